//! Writing a robot down.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use asof_core::Channel;
use asof_formats::{McapWriter, McapWriterOptions};
use parking_lot::{Condvar, Mutex};

use crate::describe::Described;
use crate::parts::{Parts, PartsReport, Sink, SplitOptions};
use crate::robot::now;
use crate::{LiveError, Publisher, Robot, Sample, Subscription};

/// How a robot is recorded.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// How the file is written. Chunks of a second at most lose no more than that when the process is killed.
    pub writer: McapWriterOptions,
    /// How many bytes may wait for the disk before messages are dropped.
    pub queue_bytes: u64,
    /// What is written into the recording as its metadata `tags`.
    pub tags: Tags,
}

/// Names and values that describe a recording.
pub type Tags = BTreeMap<String, String>;

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions {
            writer: McapWriterOptions {
                profile: "ros2".to_owned(),
                ..McapWriterOptions::default()
            },
            queue_bytes: 256 << 20,
            tags: Tags::new(),
        }
    }
}

/// What was recorded so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordReport {
    /// Every topic by its name.
    pub topics: BTreeMap<String, TopicReport>,
    /// Bytes that wait for the disk.
    pub waiting_bytes: u64,
    /// The files, of a recording in several.
    pub parts: PartsReport,
}

/// What was recorded of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicReport {
    /// Messages in the file.
    pub written: u64,
    /// Messages that were dropped because the disk was slower than the robot.
    pub dropped: u64,
    /// Messages that MCAP cannot hold, such as those from before 1970.
    pub refused: u64,
    /// Whether messages were written without a definition of their type, because none could be had.
    pub is_undefined: bool,
    /// Whether that is because the definition of that name that is known here is another one than the robot's.
    pub is_defined_otherwise: bool,
}

impl RecordReport {
    /// Messages in the file.
    pub fn written(&self) -> u64 {
        self.topics.values().map(|topic| topic.written).sum()
    }

    /// Messages that were dropped because the disk was slower than the robot.
    pub fn dropped(&self) -> u64 {
        self.topics.values().map(|topic| topic.dropped).sum()
    }
}

/// Writes topics of a robot to an MCAP file, until it is told to stop.
///
/// Messages wait for the disk in a queue with a bound: when the disk is slower than the robot, new messages are
/// dropped, counted per topic, and said in the log. Dropping the recorder closes the file whole, too.
pub struct Recorder {
    queue: Arc<Queue>,
    /// None once it is being stopped, so that nothing more comes in.
    subscriptions: Vec<Subscription>,
    writer: Option<JoinHandle<Result<(), LiveError>>>,
    parts: Arc<Mutex<PartsReport>>,
}

impl Recorder {
    /// Records the topics that `wants` is true for into one file after another, named after `path`: `run.mcap` becomes
    /// `run_0.mcap`, `run_1.mcap`, …. A file that is there is never replaced; those of this recording that `split` has no
    /// room for are deleted, the oldest first, and counted.
    ///
    /// # Errors
    /// When the first file cannot be created.
    pub fn create_parts(
        robot: &Robot,
        path: impl AsRef<Path>,
        split: SplitOptions,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, LiveError> {
        let (parts, report) = Parts::create(path.as_ref(), split, options.writer, options.tags)?;
        let mut recorder = Self::idle(Box::new(parts), options.queue_bytes)?;
        recorder.parts = report;
        recorder.add(robot, wants);
        Ok(recorder)
    }

    /// Records topics of another robot too. Topics of the same name are one: give each robot a prefix.
    pub fn add(
        &mut self,
        robot: &Robot,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) {
        self.add_with_prefix(robot, "", wants);
    }

    /// The same, with something in front of the names of its topics: `/robot1`.
    pub fn add_with_prefix(
        &mut self,
        robot: &Robot,
        prefix: &str,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) {
        let queue = Arc::clone(&self.queue);
        let prefix = prefix.trim_end_matches('/').to_owned();
        let push = move |mut sample: Sample| {
            sample.prefix.clone_from(&prefix);
            queue.push(sample);
        };
        self.subscriptions.push(robot.subscribe(wants, push));
    }

    /// Writes a named set of text into the recording, as metadata: a note of a person, a mark.
    pub fn note(&self, name: &str, values: Tags) {
        let mut state = self.queue.state.lock();
        if state.notes.len() < MOST_NOTES {
            state.notes.push((name.to_owned(), values));
        }
        drop(state);
        self.queue.arrived.notify_one();
    }

    /// Records the topics that `wants` is true for into a new file.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(
        robot: &Robot,
        path: impl AsRef<Path>,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, LiveError> {
        let file = File::create(path).map_err(asof_formats::McapWriteError::from)?;
        Self::start(
            robot,
            BufWriter::with_capacity(1 << 17, file),
            options,
            wants,
        )
    }

    /// Records the topics that `wants` is true for into anything that can be written.
    ///
    /// # Errors
    /// When the head of the recording cannot be written.
    pub fn start<W: Write + Seek + Send + 'static>(
        robot: &Robot,
        output: W,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, LiveError> {
        let mut writer = McapWriter::new(output, options.writer)?;
        if !options.tags.is_empty() {
            writer.write_metadata("tags", options.tags)?;
        }
        let mut recorder = Self::idle(Box::new(writer), options.queue_bytes)?;
        recorder.add(robot, wants);
        Ok(recorder)
    }

    /// Records the messages on a raw key expression too.
    ///
    /// # Errors
    /// When the key expression is none.
    pub fn add_key(&mut self, robot: &Robot, key_expression: &str) -> Result<(), LiveError> {
        let queue = Arc::clone(&self.queue);
        let subscription = robot.subscribe_key(key_expression, move |sample| queue.push(sample))?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    fn idle(writer: Box<dyn Sink>, queue_bytes: u64) -> Result<Self, LiveError> {
        let queue = Arc::new(Queue::new(queue_bytes));
        let source = Arc::clone(&queue);
        let writer = thread::Builder::new()
            .name("asof-live recorder".to_owned())
            .spawn(move || source.write_all(writer))
            .map_err(LiveError::Thread)?;
        Ok(Recorder {
            queue,
            subscriptions: Vec::new(),
            writer: Some(writer),
            parts: Arc::default(),
        })
    }

    /// What was recorded so far.
    pub fn report(&self) -> RecordReport {
        let state = self.queue.state.lock();
        RecordReport {
            topics: state.topics.clone(),
            waiting_bytes: state.bytes,
            parts: self.parts.lock().clone(),
        }
    }

    /// Whether the file is still being written; it is not after an error of the disk.
    pub fn is_recording(&self) -> bool {
        self.writer
            .as_ref()
            .is_some_and(|writer| !writer.is_finished())
    }

    /// Writes what waits, closes the file, and says what was recorded.
    ///
    /// The recorder has subscriptions of its own: a message that a window has already may still be on its way here,
    /// and what comes after this call is not recorded. [`Recorder::report`] says what has come.
    ///
    /// # Errors
    /// When the file could not be written.
    pub fn stop(mut self) -> Result<RecordReport, LiveError> {
        self.finish()?;
        Ok(self.report())
    }

    fn finish(&mut self) -> Result<(), LiveError> {
        self.subscriptions.clear();
        self.queue.close();
        match self.writer.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(LiveError::WriterGone),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("{error}");
        }
    }
}

/// Messages, each with its weight when it came: it may grow when its pieces are put together.
type Waiting = VecDeque<(u64, Sample)>;

/// Messages that wait for the disk.
struct Queue {
    limit: u64,
    state: Mutex<State>,
    arrived: Condvar,
    prefixed: Mutex<Prefixed>,
}

/// Channels under their names in the recording, by their address and the prefix.
type Prefixed = HashMap<(usize, String), (Arc<Channel>, Arc<Channel>)>;

/// Channels that are known under another name at once.
const MOST_PREFIXED: usize = 65_536;
/// Notes that may wait to be written.
const MOST_NOTES: usize = 10_000;

#[derive(Default)]
struct State {
    samples: Waiting,
    bytes: u64,
    topics: BTreeMap<String, TopicReport>,
    notes: Vec<(String, Tags)>,
    is_closed: bool,
    warned: Option<Instant>,
}

/// An open chunk is looked at this often.
const TICK: Duration = Duration::from_millis(200);
/// A slow disk is complained about this often.
const COMPLAINT: Duration = Duration::from_secs(1);

impl Queue {
    fn new(limit: u64) -> Self {
        Queue {
            limit,
            state: Mutex::default(),
            arrived: Condvar::new(),
            prefixed: Mutex::default(),
        }
    }

    fn push(&self, sample: Sample) {
        let weight = sample.weight();
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        if state.bytes.saturating_add(weight) > self.limit {
            let topic = format!("{}{}", sample.prefix, sample.channel.topic);
            let report = state.report_of(&topic);
            report.dropped += 1;
            let dropped = report.dropped;
            let is_due = state.warned.is_none_or(|last| last.elapsed() >= COMPLAINT);
            if is_due {
                state.warned = Some(Instant::now());
                drop(state);
                tracing::warn!(
                    "the disk is slower than the robot: {dropped} messages of {} dropped so far",
                    sample.channel.topic
                );
            }
            return;
        }
        state.bytes += weight;
        state.samples.push_back((weight, sample));
        drop(state);
        self.arrived.notify_one();
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.arrived.notify_all();
    }

    fn write_all(&self, mut writer: Box<dyn Sink>) -> Result<(), LiveError> {
        let result = self.drain(&mut *writer);
        // An error of the disk: what comes now is dropped, and counted as such by nobody.
        if result.is_err() {
            self.close();
        }
        result?;
        writer.finish()?;
        Ok(())
    }

    fn drain(&self, writer: &mut dyn Sink) -> Result<(), LiveError> {
        let mut held = Held::default();
        loop {
            let (batch, is_closed) = self.take();
            let is_last = is_closed && batch.is_empty();
            // Before the batch: what it has on the same topics came later.
            for (channel, samples) in held.settled(is_last) {
                for (weight, sample) in samples {
                    self.write(writer, weight, &sample, &channel)?;
                }
            }
            for (weight, sample) in batch {
                match sample.settled() {
                    Some(channel) => self.write(writer, weight, &sample, &channel)?,
                    None => held.keep(weight, sample),
                }
            }
            let notes = std::mem::take(&mut self.state.lock().notes);
            for (name, values) in notes {
                writer.note(&name, &values)?;
            }
            writer.tick(now())?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn write(
        &self,
        writer: &mut dyn Sink,
        weight: u64,
        sample: &Sample,
        channel: &Arc<Channel>,
    ) -> Result<(), LiveError> {
        let mut message = sample.to_message();
        message.channel = self.prefixed(&sample.prefix, channel);
        let outcome = writer.write(&message);
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_sub(weight);
        let report = state.report_of(&message.channel.topic);
        match outcome {
            Ok(()) => {
                report.written += 1;
                let schema = channel.schema.as_deref();
                let is_undefined = schema.is_some_and(|schema| schema.data.is_empty());
                report.is_undefined |= is_undefined;
                let described = sample.described.as_ref();
                report.is_defined_otherwise |=
                    is_undefined && described.is_some_and(|described| described.is_other());
                Ok(())
            }
            Err(asof_formats::McapWriteError::BeforeEpoch { .. }) => {
                report.refused += 1;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A channel under the name that it has in the recording; the same one for the same channel.
    fn prefixed(&self, prefix: &str, channel: &Arc<Channel>) -> Arc<Channel> {
        if prefix.is_empty() {
            return Arc::clone(channel);
        }
        let mut known = self.prefixed.lock();
        let key = (Arc::as_ptr(channel) as usize, prefix.to_owned());
        if known.len() >= MOST_PREFIXED && !known.contains_key(&key) {
            known.clear();
        }
        let (_, renamed) = known.entry(key).or_insert_with(|| {
            let slash = if channel.topic.starts_with('/') {
                ""
            } else {
                "/"
            };
            let topic = format!("{prefix}{slash}{}", channel.topic);
            let renamed = Channel {
                topic,
                ..Channel::clone(channel)
            };
            // The original is kept, so that its address is not given to another.
            (Arc::clone(channel), Arc::new(renamed))
        });
        Arc::clone(renamed)
    }

    /// What waits, and whether more can come.
    fn take(&self) -> (Waiting, bool) {
        let mut state = self.state.lock();
        if state.samples.is_empty() && !state.is_closed {
            self.arrived.wait_for(&mut state, TICK);
        }
        (std::mem::take(&mut state.samples), state.is_closed)
    }
}

impl State {
    fn report_of(&mut self, topic: &str) -> &mut TopicReport {
        self.topics.entry(topic.to_owned()).or_default()
    }
}

/// Messages whose schema is on its way, by topic. They still count against the queue's limit.
#[derive(Default)]
struct Held {
    topics: Vec<(Arc<Described>, Waiting)>,
}

impl Held {
    fn keep(&mut self, weight: u64, sample: Sample) {
        let Some(described) = sample.described.clone() else {
            return;
        };
        let known = self
            .topics
            .iter_mut()
            .find(|(topic, _)| Arc::ptr_eq(topic, &described));
        match known {
            Some((_, samples)) => samples.push_back((weight, sample)),
            None => self
                .topics
                .push((described, Waiting::from([(weight, sample)]))),
        }
    }

    /// Takes out the topics that need not wait any longer; all of them if nothing more will come.
    fn settled(&mut self, is_last: bool) -> Vec<(Arc<Channel>, Waiting)> {
        let mut ready = Vec::new();
        self.topics.retain_mut(|(described, samples)| {
            let channel = if is_last {
                Some(described.known().channel)
            } else {
                described.settled()
            };
            let Some(channel) = channel else {
                return true;
            };
            ready.push((channel, std::mem::take(samples)));
            false
        });
        ready
    }
}
