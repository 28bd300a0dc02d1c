//! The recorder: a robot's messages, written to a file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use asof_core::Stamp;
use asof_formats::{McapWriter, McapWriterOptions};
use asof_live::{Publisher, Robot, Sample, Subscription};
use parking_lot::Mutex;

use crate::options::RecordOptions;
use crate::parts::{Parts, PartsReport, SplitOptions, started_path};
use crate::queue::Queue;
use crate::report::RecordReport;
use crate::sink::{Late, Sink, Tags};
use crate::snapshot::{SnapshotOptions, SnapshotReport, Snapshots};
use crate::{DurableFile, RecordError, RecordOutput};

/// The topic of the robot's clock.
const CLOCK: &str = "/clock";

/// Writes topics of a robot to an MCAP file until it is stopped.
///
/// Messages wait for the disk in a bounded queue. When the disk is slower than the robot, new messages are dropped, or
/// with [`Priorities`](crate::Priorities) less important ones; drops are counted per topic and logged. Dropping the
/// recorder finalizes the file; [`stop`](Recorder::stop) also tells whether it is on the disk.
pub struct Recorder {
    queue: Arc<Queue>,
    /// Empty once the recorder is being stopped, so that no more messages arrive.
    subscriptions: Vec<Subscription>,
    writer: Option<JoinHandle<Result<(), RecordError>>>,
    parts: Arc<Mutex<PartsReport>>,
    snapshots: Arc<Mutex<SnapshotReport>>,
}

impl Recorder {
    /// Records the topics that `wants` accepts into one file after another, named after `path`: `run.mcap` becomes
    /// `run_0.mcap`, `run_1.mcap`, …, after those of earlier runs. An existing file is never overwritten. Files that exceed
    /// the quota of `split` are deleted, the oldest first, and counted. Each file begins with the last message of each
    /// latched topic. `{time}` in the name is the start of the run, see [`started_path`](crate::started_path).
    ///
    /// # Errors
    /// When the first file cannot be created.
    pub fn create_parts(
        robot: &Robot,
        path: impl AsRef<Path>,
        split: SplitOptions,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, RecordError> {
        let queue = Queue::new(&options);
        let writer = writer_options(&options);
        let (parts, report) =
            Parts::create(path.as_ref(), Stamp::now(), split, writer, options.tags)?;
        let mut recorder = Self::idle(Box::new(parts), queue)?;
        recorder.parts = report;
        recorder.add(robot, wants);
        Ok(recorder)
    }

    /// Keeps the newest messages of the topics that `wants` accepts, and writes them to a file when a trigger fires.
    /// Each snapshot is a file of its own, named after `path`: `run_0.mcap`, `run_1.mcap`, …, after those of earlier runs.
    /// An existing file is never overwritten. Messages are kept by when they came, whatever is done to the clock.
    ///
    /// # Errors
    /// When the writer thread cannot be started, there is no such folder, or that of the ring cannot be created.
    pub fn create_snapshots(
        robot: &Robot,
        path: impl AsRef<Path>,
        snapshots: SnapshotOptions,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, RecordError> {
        let queue = Queue::new(&options);
        let (writer, tags) = (writer_options(&options), options.tags);
        let (snapshots, report) =
            Snapshots::new(path.as_ref(), Stamp::now(), snapshots, writer, tags)?;
        let mut recorder = Self::idle(Box::new(snapshots), queue)?;
        recorder.snapshots = report;
        recorder.add(robot, wants);
        Ok(recorder)
    }

    /// Writes a snapshot for your own reason, which is recorded in it. Does nothing unless snapshots are recorded.
    pub fn trigger(&self, reason: &str) {
        self.queue.trigger(reason);
    }

    /// Records topics of another robot too. Topics of the same name are merged: give each robot a prefix.
    pub fn add(
        &mut self,
        robot: &Robot,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) {
        self.add_with_prefix(robot, "", wants);
    }

    /// The same, with a prefix for the robot's topic names: `/robot1`.
    pub fn add_with_prefix(
        &mut self,
        robot: &Robot,
        prefix: &str,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) {
        let queue = Arc::clone(&self.queue);
        let prefix = Arc::from(prefix.trim_end_matches('/'));
        let push = move |sample: Sample| queue.push(&prefix, sample);
        if self.queue.has_clock() {
            self.follow_clock(robot);
        }
        self.subscriptions.push(robot.subscribe(wants, push));
    }

    /// Logs messages by a robot's clock from now on.
    fn follow_clock(&mut self, robot: &Robot) {
        let queue = Arc::clone(&self.queue);
        let is_clock = |publisher: &Publisher| publisher.channel.topic == CLOCK;
        let tell = move |sample: Sample| {
            if let Some(time) = sample.clock_time() {
                queue.set_clock(time);
            }
        };
        self.subscriptions.push(robot.subscribe(is_clock, tell));
    }

    /// Writes named text values into the recording, as metadata: an operator's note, a marker.
    pub fn note(&self, name: &str, values: Tags) {
        self.queue.note(name, values);
    }

    /// Records the topics that `wants` accepts into a new file. An existing file is never overwritten. `{time}` in the
    /// name is the start of the run, see [`started_path`](crate::started_path).
    ///
    /// # Errors
    /// When the file exists, or cannot be created.
    pub fn create(
        robot: &Robot,
        path: impl AsRef<Path>,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, RecordError> {
        let path = started_path(path, Stamp::now());
        let file = File::create_new(&path).and_then(|file| DurableFile::new(file, &path));
        let file = file.map_err(asof_formats::McapWriteError::from)?;
        Self::start(
            robot,
            BufWriter::with_capacity(1 << 17, file),
            options,
            wants,
        )
    }

    /// Records the topics that `wants` accepts into any writer.
    ///
    /// # Errors
    /// When the header of the recording cannot be written.
    pub fn start<W: RecordOutput>(
        robot: &Robot,
        output: W,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, RecordError> {
        let queue = Queue::new(&options);
        let mut writer = McapWriter::new(output, writer_options(&options))?;
        if !options.tags.is_empty() {
            writer.write_metadata("tags", options.tags)?;
        }
        let mut recorder = Self::idle(Box::new(writer), queue)?;
        recorder.add(robot, wants);
        Ok(recorder)
    }

    /// The same, into a writer that `open` makes when the first message comes. Without a message it is not called: what it
    /// would replace stays.
    ///
    /// # Errors
    /// When the writer thread cannot be started.
    pub fn start_late<W: RecordOutput>(
        robot: &Robot,
        open: impl FnOnce() -> io::Result<W> + Send + 'static,
        options: &RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Self, RecordError> {
        let queue = Queue::new(options);
        let mut late = Late::new(open, writer_options(options));
        if !options.tags.is_empty() {
            late.note("tags", &options.tags)
                .map_err(RecordError::from)?;
        }
        let mut recorder = Self::idle(Box::new(late), queue)?;
        recorder.add(robot, wants);
        Ok(recorder)
    }

    /// Records the messages on a raw key expression too.
    ///
    /// # Errors
    /// When the key expression is invalid.
    pub fn add_key(&mut self, robot: &Robot, key_expression: &str) -> Result<(), RecordError> {
        let queue = Arc::clone(&self.queue);
        let prefix = Arc::from("");
        let push = move |sample: Sample| queue.push(&prefix, sample);
        let subscription = robot.subscribe_key(key_expression, push)?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    fn idle(writer: Box<dyn Sink>, queue: Queue) -> Result<Self, RecordError> {
        let queue = Arc::new(queue);
        let source = Arc::clone(&queue);
        let writer = thread::Builder::new()
            .name("asof recorder".to_owned())
            .spawn(move || source.write_all(writer))
            .map_err(RecordError::Thread)?;
        Ok(Recorder {
            queue,
            subscriptions: Vec::new(),
            writer: Some(writer),
            parts: Arc::default(),
            snapshots: Arc::default(),
        })
    }

    /// The state of the recording.
    pub fn report(&self) -> RecordReport {
        let (topics, waiting_bytes) = self.queue.report();
        RecordReport {
            topics,
            waiting_bytes,
            parts: self.parts.lock().clone(),
            snapshots: self.snapshots.lock().clone(),
        }
    }

    /// Whether the file is still being written; false after a disk error.
    pub fn is_recording(&self) -> bool {
        self.writer
            .as_ref()
            .is_some_and(|writer| !writer.is_finished())
    }

    /// Writes the queued messages, finalizes the file, and returns the report.
    ///
    /// The recorder has its own subscriptions: a message that a window already holds may not have arrived here yet,
    /// and messages after this call are not recorded. [`Recorder::report`] counts those that have arrived.
    ///
    /// # Errors
    /// When the file could not be written.
    pub fn stop(mut self) -> Result<RecordReport, RecordError> {
        self.finish()?;
        Ok(self.report())
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        self.subscriptions.clear();
        self.queue.close();
        match self.writer.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(RecordError::WriterGone),
        }
    }
}

/// Chunks are closed by the queue, whose clock never goes back.
fn writer_options(options: &RecordOptions) -> McapWriterOptions {
    McapWriterOptions {
        chunk_age: None,
        ..options.writer.clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("{error}");
        }
    }
}
