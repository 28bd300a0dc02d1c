//! Messages that wait for the disk.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use asof_core::{Channel, Stamp};
use asof_live::ros::is_latched;
use asof_live::{Sample, SequenceGaps, StampHealth};
use parking_lot::{Condvar, Mutex};

use crate::RecordError;
use crate::options::{Priorities, RecordOptions};
use crate::sink::{Receipt, Sink, Tags};

/// At most this many channels are cached under a prefixed name.
const MOST_PREFIXED: usize = 65_536;
/// At most this many notes may wait to be written.
const MOST_NOTES: usize = 10_000;
/// How often an open chunk is checked for its age.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);
/// How often a slow disk is logged.
const WARN_INTERVAL: Duration = Duration::from_secs(1);
/// The writer takes one part in this many of the queue at once; what it has taken cannot be dropped for something
/// else.
const TAKE_FRACTION: u64 = 16;

/// The counts of one recorded topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicReport {
    /// Messages in the file; for a recording in snapshots, messages that were kept for a while.
    pub written: u64,
    /// Messages that were dropped because the disk was slower than the robot.
    pub dropped: u64,
    /// Messages that came before the first time of the robot's clock, for a recording by that clock.
    pub early: u64,
    /// Messages that MCAP cannot hold: those logged before 1970.
    pub refused: u64,
    /// Messages that are missing in the publishers' own sequence numbers: they were lost on the way.
    pub lost: u64,
    /// How the stamps of its messages stand to their arrival.
    pub stamps: StampHealth,
    /// Messages with a publish time before 1970; their log time is written instead.
    pub mistimed: u64,
    /// Whether messages were written without a definition of their type, because none was found.
    pub is_undefined: bool,
    /// Whether that is because the local definition of that name differs from the robot's.
    pub is_defined_otherwise: bool,
}

/// Messages that wait for the disk.
///
/// When the queue is full, messages of lower priority than the incoming one are dropped, the oldest first; if there
/// are none, the incoming message is dropped. All drops are counted.
pub(crate) struct Queue {
    limit: u64,
    priorities: Priorities,
    state: Mutex<State>,
    arrived: Condvar,
    prefixed: Mutex<Prefixed>,
    /// The robot's clock, for a recording by it.
    clock: Option<RobotClock>,
    /// When the recording began.
    begun: Instant,
    /// An open chunk is flushed at this age.
    chunk_age: Option<Duration>,
}

/// At most this many messages wait for the robot's clock.
const MOST_BEFORE_CLOCK: usize = 1_000;
/// The robot's clock has not been received yet.
const CLOCK_UNKNOWN: i64 = i64::MIN;

/// The last time of a robot's clock, in nanoseconds, and how far it has advanced in total: it may be set back.
struct RobotClock {
    time: AtomicI64,
    advanced: AtomicI64,
}

/// Channels under their names in the recording, by their address and the prefix.
type Prefixed = HashMap<(usize, String), (Arc<Channel>, Arc<Channel>)>;

/// A queued message.
struct Waiting {
    /// The weight at arrival: it may grow when the payload's pieces are joined.
    weight: u64,
    priority: i32,
    /// The prefix of its topic's name in the recording.
    prefix: Arc<str>,
    /// When it came, since the recording began.
    at: Stamp,
    sample: Sample,
}

impl Waiting {
    fn topic(&self) -> String {
        named(&self.prefix, &self.sample)
    }
}

/// The name of a message's topic in the recording.
fn named(prefix: &str, sample: &Sample) -> String {
    format!("{prefix}{}", sample.channel.topic)
}

#[derive(Default)]
struct State {
    samples: VecDeque<Waiting>,
    /// Bytes of queued messages, and of those that the writer has taken and not yet written.
    bytes: u64,
    /// Bytes of queued messages by priority.
    by_priority: BTreeMap<i32, u64>,
    /// Priorities by topic.
    known: HashMap<String, i32>,
    topics: BTreeMap<String, TopicReport>,
    /// Sequence numbers and stamps, by topic.
    arrivals: HashMap<String, (SequenceGaps, StampHealth)>,
    notes: Vec<(String, Tags)>,
    /// Reasons of snapshots to be written.
    triggers: Vec<String>,
    /// Messages for late joiners that came before the robot's clock.
    before_clock: Vec<(Arc<str>, Sample)>,
    is_closed: bool,
    /// Whether the disk failed: what comes is dropped.
    is_broken: bool,
    warned: Option<Instant>,
}

impl Queue {
    pub fn new(options: &RecordOptions) -> Self {
        Queue {
            limit: options.queue_bytes,
            priorities: options.priorities.clone(),
            state: Mutex::default(),
            arrived: Condvar::new(),
            prefixed: Mutex::default(),
            clock: options.sim_time.then(|| RobotClock {
                time: AtomicI64::new(CLOCK_UNKNOWN),
                advanced: AtomicI64::new(0),
            }),
            begun: Instant::now(),
            chunk_age: options.writer.chunk_age,
        }
    }

    /// Whether messages are logged by the robot's clock.
    pub fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// The counts of each topic, and the bytes that wait.
    pub fn report(&self) -> (BTreeMap<String, TopicReport>, u64) {
        let state = self.state.lock();
        (state.topics.clone(), state.bytes)
    }

    /// Queues named text values to be written.
    pub fn note(&self, name: &str, values: Tags) {
        let mut state = self.state.lock();
        if state.notes.len() < MOST_NOTES {
            state.notes.push((name.to_owned(), values));
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Queues the reason of a snapshot.
    pub fn trigger(&self, reason: &str) {
        let mut state = self.state.lock();
        if state.triggers.len() < MOST_NOTES {
            state.triggers.push(reason.to_owned());
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Sets the robot's clock.
    pub fn set_clock(&self, time: Stamp) {
        if let Some(clock) = &self.clock {
            let before = clock.time.swap(time.nanos(), Ordering::AcqRel);
            if before != CLOCK_UNKNOWN {
                let passed = time.nanos().saturating_sub(before).max(0);
                clock.advanced.fetch_add(passed, Ordering::AcqRel);
            }
            let latched = std::mem::take(&mut self.state.lock().before_clock);
            for (prefix, sample) in latched {
                self.push(&prefix, sample);
            }
        }
    }

    /// The current log time: the robot's clock once it was received, for a recording by it; else this machine's.
    fn now(&self) -> Stamp {
        let clock = self
            .clock
            .as_ref()
            .map(|clock| clock.time.load(Ordering::Acquire));
        match clock {
            Some(time) if time != CLOCK_UNKNOWN => time.into(),
            _ => Stamp::now(),
        }
    }

    /// The time since the recording began, by a clock that never goes back.
    fn steady(&self) -> Stamp {
        match &self.clock {
            Some(clock) => clock.advanced.load(Ordering::Acquire).into(),
            None => i64::try_from(self.begun.elapsed().as_nanos())
                .unwrap_or(i64::MAX)
                .into(),
        }
    }

    pub fn push(&self, prefix: &Arc<str>, mut sample: Sample) {
        let weight = sample.weight();
        let mut state = self.state.lock();
        if state.is_closed {
            if state.is_broken {
                state.report_of(&named(prefix, &sample)).dropped += 1;
            }
            return;
        }
        let topic = named(prefix, &sample);
        if !state.arrivals.contains_key(&topic) && state.arrivals.len() < MOST_PREFIXED {
            state.arrivals.insert(topic.clone(), Default::default());
        }
        if let Some((gaps, stamps)) = state.arrivals.get_mut(&topic) {
            let before = gaps.lost;
            gaps.note(&sample);
            let (is_bad, stamps, lost) = (
                stamps.note(sample.stamps(), sample.received),
                *stamps,
                gaps.lost,
            );
            if is_bad || lost > before {
                let report = state.report_of(&topic);
                (report.lost, report.stamps) = (lost, stamps);
            }
        }
        // Under the lock: what finds no clock is then among what the first time of the clock releases.
        let is_early = match &self.clock {
            None => false,
            Some(clock) => {
                let time = clock.time.load(Ordering::Acquire);
                sample.received = time.into();
                time == CLOCK_UNKNOWN
            }
        };
        if is_early {
            // It will not be sent again once the clock is there.
            let held: u64 = state.before_clock.iter().map(|(_, one)| one.weight()).sum();
            let has_room = state.before_clock.len() < MOST_BEFORE_CLOCK
                && held.saturating_add(weight) <= self.limit / TAKE_FRACTION;
            if is_latched(&sample.channel) && has_room {
                state.before_clock.push((Arc::clone(prefix), sample));
            } else {
                state.report_of(&named(prefix, &sample)).early += 1;
            }
            return;
        }
        let priority = state.priority_of(&sample.channel, &self.priorities);
        let missing = state
            .bytes
            .saturating_add(weight)
            .saturating_sub(self.limit);
        if missing > 0 && !state.make_room(missing, priority, self.limit / TAKE_FRACTION) {
            let report = state.report_of(&named(prefix, &sample));
            report.dropped += 1;
            let dropped = report.dropped;
            let is_due = state
                .warned
                .is_none_or(|last| last.elapsed() >= WARN_INTERVAL);
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
        *state.by_priority.entry(priority).or_default() += weight;
        state.samples.push_back(Waiting {
            weight,
            priority,
            prefix: Arc::clone(prefix),
            at: self.steady(),
            sample,
        });
        drop(state);
        self.arrived.notify_one();
    }

    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        // The clock that these waited for never came.
        for (prefix, sample) in std::mem::take(&mut state.before_clock) {
            state.report_of(&named(&prefix, &sample)).early += 1;
        }
        drop(state);
        self.arrived.notify_all();
    }

    /// Writes messages until the queue is closed and empty. After an error, all that was not written counts as dropped.
    pub fn write_all(&self, mut writer: Box<dyn Sink>) -> Result<(), RecordError> {
        let (mut batch, mut pending) = (VecDeque::new(), PendingSchemas::default());
        let result = self.drain(&mut *writer, &mut batch, &mut pending);
        let result = result.and_then(|()| Ok(writer.finish()?));
        if result.is_err() {
            self.close();
            let mut state = self.state.lock();
            state.is_broken = true;
            let queued = std::mem::take(&mut state.samples);
            let pending = pending.settled(true).into_iter();
            let pending = pending.flat_map(|(_, waiting)| waiting);
            for waiting in batch.into_iter().chain(pending).chain(queued) {
                state.report_of(&waiting.topic()).dropped += 1;
            }
            state.bytes = 0;
        }
        result
    }

    fn drain(
        &self,
        writer: &mut dyn Sink,
        batch: &mut VecDeque<Waiting>,
        pending: &mut PendingSchemas,
    ) -> Result<(), RecordError> {
        // By this machine's steady clock: log times go back, and a robot's clock may stand still.
        let mut flushed = Instant::now();
        loop {
            let is_closed = self.take(batch);
            let is_last = is_closed && batch.is_empty();
            // Before the batch: its messages on the same topics came later.
            for (channel, samples) in pending.settled(is_last) {
                let mut samples = VecDeque::from(samples);
                while let Some(waiting) = samples.front() {
                    if let Err(error) = self.write(writer, waiting, &channel) {
                        batch.extend(samples);
                        return Err(error);
                    }
                    samples.pop_front();
                }
            }
            while let Some(waiting) = batch.front() {
                match waiting.sample.settled() {
                    Some(channel) => {
                        self.write(writer, waiting, &channel)?;
                        batch.pop_front();
                    }
                    None => batch
                        .pop_front()
                        .into_iter()
                        .for_each(|one| pending.keep(one)),
                }
            }
            let (notes, triggers) = {
                let mut state = self.state.lock();
                let triggers = std::mem::take(&mut state.triggers);
                (std::mem::take(&mut state.notes), triggers)
            };
            for reason in triggers {
                writer.trigger(&reason, self.now(), self.steady())?;
            }
            for (name, values) in notes {
                writer.note(&name, &values)?;
            }
            writer.tick(self.now(), self.steady())?;
            if self.chunk_age.is_some_and(|age| flushed.elapsed() >= age) {
                flushed = Instant::now();
                writer.flush()?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn write(
        &self,
        writer: &mut dyn Sink,
        waiting: &Waiting,
        channel: &Arc<Channel>,
    ) -> Result<(), RecordError> {
        let sample = &waiting.sample;
        let mut message = sample.to_message();
        message.channel = self.prefixed(&waiting.prefix, channel);
        // MCAP has no times before 1970; a wrong clock must not cost the message.
        let is_mistimed = message.publish_time < Stamp::EPOCH;
        if is_mistimed {
            message.publish_time = message.log_time;
        }
        let receipt = Receipt {
            at: waiting.at,
            publisher: sample.publisher,
        };
        let outcome = writer.write(&message, &receipt);
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_sub(waiting.weight);
        let report = state.report_of(&message.channel.topic);
        report.mistimed += u64::from(is_mistimed);
        match outcome {
            Ok(()) => {
                report.written += 1;
                let schema = channel.schema.as_deref();
                let is_undefined = schema.is_some_and(|schema| schema.data.is_empty());
                report.is_undefined |= is_undefined;
                report.is_defined_otherwise |= is_undefined && sample.is_defined_otherwise();
                Ok(())
            }
            Err(asof_formats::McapWriteError::BeforeEpoch { .. }) => {
                report.refused += 1;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A channel under its name in the recording; the same one for the same channel.
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
            // The original is kept, so that its address is not reused.
            (Arc::clone(channel), Arc::new(renamed))
        });
        Arc::clone(renamed)
    }

    /// Takes the oldest queued messages; returns whether no more can come.
    fn take(&self, taken: &mut VecDeque<Waiting>) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.notes.is_empty() && state.triggers.is_empty();
        if state.samples.is_empty() && !state.is_closed && is_idle {
            self.arrived.wait_for(&mut state, FLUSH_INTERVAL);
        }
        let mut bytes = 0;
        while bytes < (self.limit / TAKE_FRACTION).max(1)
            && let Some(waiting) = state.samples.pop_front()
        {
            bytes += waiting.weight;
            state.uncount(waiting.priority, waiting.weight);
            taken.push_back(waiting);
        }
        state.is_closed
    }
}

impl State {
    fn report_of(&mut self, topic: &str) -> &mut TopicReport {
        self.topics.entry(topic.to_owned()).or_default()
    }

    /// The priority of a topic. What is meant for late subscribers comes once, and is worth the most.
    fn priority_of(&mut self, channel: &Channel, priorities: &Priorities) -> i32 {
        let topic = channel.topic.as_str();
        if let Some(known) = self.known.get(topic) {
            return *known;
        }
        let priority = if is_latched(channel) {
            i32::MAX
        } else {
            priorities.of(topic)
        };
        if self.known.len() < MOST_PREFIXED {
            self.known.insert(topic.to_owned(), priority);
        }
        priority
    }

    fn uncount(&mut self, priority: i32, weight: u64) {
        if let Some(bytes) = self.by_priority.get_mut(&priority) {
            *bytes = bytes.saturating_sub(weight);
        }
    }

    /// Drops less important messages, the least important and oldest first, until `missing` bytes are free, and `more`
    /// on top, so that this does not run for every message. Returns whether enough bytes were freed.
    fn make_room(&mut self, missing: u64, priority: i32, more: u64) -> bool {
        let lower: u64 = self
            .by_priority
            .range(..priority)
            .map(|(_, bytes)| bytes)
            .sum();
        if lower < missing {
            return false;
        }
        let mut wanted = missing.max(more).min(lower);
        let mut quotas: BTreeMap<i32, u64> = BTreeMap::new();
        for (&one, &bytes) in self.by_priority.range(..priority) {
            let quota = bytes.min(wanted);
            quotas.insert(one, quota);
            wanted -= quota;
        }
        let samples = std::mem::take(&mut self.samples);
        for waiting in samples {
            let quota = quotas.get_mut(&waiting.priority);
            let Some(quota) = quota.filter(|quota| **quota > 0) else {
                self.samples.push_back(waiting);
                continue;
            };
            *quota = quota.saturating_sub(waiting.weight);
            self.bytes = self.bytes.saturating_sub(waiting.weight);
            self.uncount(waiting.priority, waiting.weight);
            self.report_of(&waiting.topic()).dropped += 1;
        }
        true
    }
}

/// Messages whose schema is still pending, by channel. They count against the queue's limit.
#[derive(Default)]
struct PendingSchemas {
    channels: Vec<Vec<Waiting>>,
}

impl PendingSchemas {
    fn keep(&mut self, waiting: Waiting) {
        let channel = &waiting.sample.channel;
        let is_same = |one: &Waiting| Arc::ptr_eq(&one.sample.channel, channel);
        let mut channels = self.channels.iter_mut();
        match channels.find(|waiting| waiting.first().is_some_and(is_same)) {
            Some(known) => known.push(waiting),
            None => self.channels.push(vec![waiting]),
        }
    }

    /// Takes out the channels that need not wait any longer; all of them if no more messages will come.
    fn settled(&mut self, is_last: bool) -> Vec<(Arc<Channel>, Vec<Waiting>)> {
        let mut ready = Vec::new();
        self.channels.retain_mut(|waiting| {
            let channel = waiting.first().and_then(|one| {
                let latest = || one.sample.to_message().channel;
                one.sample.settled().or_else(|| is_last.then(latest))
            });
            let Some(channel) = channel else {
                return true;
            };
            ready.push((channel, std::mem::take(waiting)));
            false
        });
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::Message;
    use asof_formats::McapWriteError;
    use bytes::Bytes;

    fn queue(limit: u64) -> Queue {
        let important = |topic: &str| match topic {
            "/odom" => 10,
            "/image" => -10,
            _ => 0,
        };
        Queue::new(&RecordOptions {
            queue_bytes: limit,
            priorities: Priorities::new(important),
            ..RecordOptions::default()
        })
    }

    fn sample(topic: &str, size: usize) -> Sample {
        let channel = Channel {
            topic: topic.to_owned(),
            ..Channel::default()
        };
        Sample::new(Arc::new(channel), Bytes::from(vec![0; size]))
    }

    fn push(queue: &Queue, sample: Sample) {
        queue.push(&Arc::from(""), sample);
    }

    fn dropped(queue: &Queue) -> BTreeMap<String, u64> {
        let (topics, _) = queue.report();
        let topics = topics.into_iter();
        topics
            .map(|(topic, report)| (topic, report.dropped))
            .collect()
    }

    fn waiting(queue: &Queue) -> Vec<String> {
        let state = queue.state.lock();
        let samples = state.samples.iter();
        samples
            .map(|one| one.sample.channel.topic.clone())
            .collect()
    }

    #[test]
    fn what_is_least_important_is_dropped_first_and_the_oldest_of_it() {
        let queue = queue(100_000);
        for _ in 0..4 {
            for topic in ["/image", "/scan", "/odom"] {
                push(&queue, sample(topic, 8_000));
            }
        }
        assert!(dropped(&queue).is_empty(), "there was room");
        push(&queue, sample("/odom", 20_000));
        let lost = dropped(&queue);
        assert_eq!(lost.keys().collect::<Vec<_>>(), ["/image"], "{lost:?}");
        let left = waiting(&queue);
        assert_eq!(left.iter().filter(|topic| *topic == "/odom").count(), 5);
        assert_eq!(left.last().map(String::as_str), Some("/odom"), "in order");
        // Nothing is less important than a picture.
        let before = lost["/image"];
        push(&queue, sample("/image", 90_000));
        assert_eq!(dropped(&queue)["/image"], before + 1);
    }

    #[test]
    fn among_equals_what_comes_is_dropped() {
        let queue = queue(50_000);
        for _ in 0..10 {
            push(&queue, sample("/scan", 10_000));
        }
        let left = waiting(&queue).len() as u64;
        assert_eq!(dropped(&queue)["/scan"], 10 - left);
        assert!(left >= 4, "{left}");
    }

    #[test]
    fn the_bytes_that_wait_never_exceed_the_limit_and_nothing_goes_uncounted() {
        let queue = queue(200_000);
        let mut pushed = 0;
        for number in 0..2_000_usize {
            let topic = ["/odom", "/scan", "/image"][number % 3];
            push(&queue, sample(topic, number * 37 % 20_000));
            pushed += 1;
            assert!(queue.report().1 <= 200_000);
        }
        let lost: u64 = dropped(&queue).values().sum();
        assert_eq!(lost + waiting(&queue).len() as u64, pushed);
        let state = queue.state.lock();
        let weights: u64 = state.samples.iter().map(|one| one.weight).sum();
        assert_eq!(state.bytes, weights);
        assert_eq!(state.by_priority.values().sum::<u64>(), weights);
    }

    #[test]
    fn with_a_clock_of_the_robot_messages_are_logged_by_it_and_none_before_it_is_heard() {
        let queue = Queue::new(&RecordOptions {
            sim_time: true,
            ..RecordOptions::default()
        });
        push(&queue, sample("/scan", 10));
        // It comes once, and at once.
        push(&queue, sample("/tf_static", 10));
        queue.set_clock(5_000.into());
        push(&queue, sample("/scan", 10));
        let state = queue.state.lock();
        assert_eq!(state.topics["/scan"].early, 1);
        let waiting = state.samples.iter().map(|one| &one.sample);
        let waiting: Vec<_> = waiting
            .map(|sample| (sample.channel.topic.as_str(), sample.received.nanos()))
            .collect();
        assert_eq!(waiting, [("/tf_static", 5_000), ("/scan", 5_000)]);
    }

    #[test]
    fn what_waited_for_a_clock_that_never_came_is_counted() {
        let queue = Queue::new(&RecordOptions {
            sim_time: true,
            ..RecordOptions::default()
        });
        push(&queue, sample("/tf_static", 10));
        queue.close();
        assert_eq!(queue.report().0["/tf_static"].early, 1);
    }

    /// Records the times that it receives.
    struct TimesSink(Arc<Mutex<Vec<i64>>>);

    impl Sink for TimesSink {
        fn write(&mut self, message: &Message, _: &Receipt) -> Result<(), McapWriteError> {
            self.0.lock().push(message.log_time.nanos());
            Ok(())
        }
        fn note(&mut self, _: &str, _: &Tags) -> Result<(), McapWriteError> {
            Ok(())
        }
        fn trigger(&mut self, _: &str, now: Stamp, _: Stamp) -> Result<(), McapWriteError> {
            self.0.lock().push(now.nanos());
            Ok(())
        }
        fn tick(&mut self, now: Stamp, _: Stamp) -> Result<(), McapWriteError> {
            self.0.lock().push(now.nanos());
            Ok(())
        }
        fn flush(&mut self) -> Result<(), McapWriteError> {
            Ok(())
        }
        fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
            Ok(())
        }
    }

    #[test]
    fn a_publisher_whose_clock_is_before_1970_is_recorded_by_the_time_of_receipt() {
        let queue = queue(100_000);
        for source in [Stamp::MIN, (-1).into(), Stamp::MAX, 7.into()] {
            let mut one = sample("/scan", 10);
            one.source = Some(source);
            push(&queue, one);
        }
        queue.close();
        let file = std::io::Cursor::new(Vec::new());
        let writer =
            asof_formats::McapWriter::new(file, asof_formats::McapWriterOptions::default());
        queue
            .write_all(Box::new(writer.expect("a writer")))
            .expect("written");
        let report = queue.report().0["/scan"];
        assert_eq!((report.written, report.refused, report.mistimed), (4, 0, 2));
    }

    #[test]
    fn snapshots_and_chunks_go_by_the_clock_that_messages_are_logged_by() {
        let queue = Queue::new(&RecordOptions {
            sim_time: true,
            ..RecordOptions::default()
        });
        queue.set_clock(5_000.into());
        push(&queue, sample("/scan", 10));
        queue.trigger("the enter key");
        queue.close();
        let told = Arc::<Mutex<Vec<i64>>>::default();
        queue
            .write_all(Box::new(TimesSink(Arc::clone(&told))))
            .expect("written");
        let told = told.lock();
        assert!(told.len() >= 3, "{told:?}");
        assert!(told.iter().all(|time| *time == 5_000), "{told:?}");
    }

    #[test]
    fn a_latched_topic_is_the_last_that_is_dropped() {
        let queue = queue(60_000);
        for _ in 0..7 {
            push(&queue, sample("/odom", 8_000));
        }
        push(&queue, sample("/tf_static", 8_000));
        assert!(waiting(&queue).contains(&"/tf_static".to_owned()));
        assert_eq!(dropped(&queue).keys().collect::<Vec<_>>(), ["/odom"]);
    }

    /// A file in memory that is looked at while it is written.
    #[derive(Clone, Default)]
    struct MemoryFile(Arc<Mutex<std::io::Cursor<Vec<u8>>>>);

    impl std::io::Write for MemoryFile {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl std::io::Seek for MemoryFile {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.lock().seek(to)
        }
    }

    #[test]
    fn messages_reach_the_file_within_a_moment_though_the_clock_was_set_back() {
        let queue = Arc::new(queue(1 << 20));
        let file = MemoryFile::default();
        let options = asof_formats::McapWriterOptions {
            chunk_age: None,
            ..RecordOptions::default().writer
        };
        let writer = asof_formats::McapWriter::new(file.clone(), options).expect("a writer");
        let source = Arc::clone(&queue);
        let thread = std::thread::spawn(move || source.write_all(Box::new(writer)));
        // An hour back between the two.
        for hours in [2, 1] {
            let mut one = sample("/scan", 10);
            one.received = (hours * 3_600_000_000_000).into();
            push(&queue, one);
        }
        let written = || {
            let bytes = file.0.lock().get_ref().clone();
            let found = asof_formats::McapFile::from_bytes("memory", bytes);
            found
                .ok()
                .and_then(|file| asof_core::Source::summary(&file).messages)
        };
        let deadline = Instant::now() + Duration::from_mins(1);
        while written() != Some(2) {
            assert!(Instant::now() < deadline, "{:?} written", written());
            std::thread::yield_now();
        }
        queue.close();
        thread.join().expect("ended").expect("written");
    }

    #[test]
    fn messages_that_never_came_are_counted_by_publisher() {
        let queue = queue(1 << 20);
        for (publisher, sequence) in [(1, 1), (2, 9), (1, 2), (1, 5), (2, 10)] {
            let mut one = sample("/scan", 10);
            one.publisher = Some([publisher; 16]);
            one.sequence = Some(sequence);
            push(&queue, one);
        }
        assert_eq!(queue.report().0["/scan"].lost, 2);
    }

    #[test]
    fn a_clock_that_is_off_by_hours_is_in_the_report() {
        let queue = queue(1 << 20);
        for hours in [2, 2, 0] {
            let mut one = sample("/scan", 10);
            one.source = Some(one.received.plus_nanos(hours * 3_600_000_000_000));
            push(&queue, one);
        }
        let stamps = queue.report().0["/scan"].stamps;
        assert_eq!((stamps.off, stamps.jumps), (2, 1), "{stamps}");
    }

    /// A disk that is full after some messages.
    struct FullDisk(u64);

    impl Sink for FullDisk {
        fn write(&mut self, _: &Message, _: &Receipt) -> Result<(), McapWriteError> {
            self.0 = self.0.checked_sub(1).ok_or(std::io::Error::other("full"))?;
            Ok(())
        }
        fn note(&mut self, _: &str, _: &Tags) -> Result<(), McapWriteError> {
            Ok(())
        }
        fn flush(&mut self) -> Result<(), McapWriteError> {
            Ok(())
        }
        fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
            Ok(())
        }
    }

    #[test]
    fn what_is_dropped_after_a_disk_error_is_counted() {
        let queue = queue(100_000);
        for _ in 0..10 {
            push(&queue, sample("/scan", 10));
        }
        assert!(queue.write_all(Box::new(FullDisk(4))).is_err());
        push(&queue, sample("/scan", 10));
        let (topics, waiting) = queue.report();
        assert_eq!((topics["/scan"].written, topics["/scan"].dropped), (4, 7));
        assert_eq!(waiting, 0);
    }
}
