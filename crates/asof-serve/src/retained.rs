//! The last minutes of a running robot.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asof_core::{
    Batch, Batches, Channel, ChannelSummary, Message, Problem, ProblemKind, Query, Row, Source,
    SourceError, Stamp, Summary, TimeRange, Topics,
};
use bytes::Bytes;

/// The newest messages of all topics of something that still goes on, within an age and a number of bytes.
///
/// Whoever receives messages [pushes](Retained::push) them; whoever looks back reads it as any other [`Source`]. What is
/// too old, or too much, leaves at the front, across all topics, and is counted. Of a topic that has left altogether
/// the last message is kept, so that a map that was sent once is still known.
///
/// Log times rise from message to message: one that is not later than the one before is moved behind it. Readers
/// can rely on it that nothing appears before what they have seen. Cloning is cheap: clones share everything.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use asof_core::{Channel, Message, Source, Stamp, Topics};
/// use asof_serve::{Retained, Retention};
///
/// let retained = Retained::new(Retention { age: Duration::from_secs(2), ..Retention::default() });
/// let channel = Arc::new(Channel { topic: "/odom".into(), ..Channel::default() });
/// for second in 0..5 {
///     let at = Stamp::from_nanos(second * 1_000_000_000);
///     let payload = format!("{second}").into();
///     retained.push(Message { channel: Arc::clone(&channel), log_time: at, publish_time: at, sequence: 0, payload });
/// }
/// assert_eq!(retained.counts().messages, 3);
/// assert_eq!(retained.counts().left, 2);
/// let known = retained.backfill(&Topics::All, Stamp::from_nanos(3_500_000_000))?;
/// assert_eq!(known.get(0).expect("one").payload, b"3");
/// # Ok::<(), asof_core::SourceError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Retained {
    retention: Retention,
    store: Arc<Mutex<Store>>,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How far back, from the newest message.
    pub age: Duration,
    /// Bytes of payload, and of what it takes to keep them.
    pub bytes: u64,
}

impl Default for Retention {
    /// Five minutes, and 600 MB.
    fn default() -> Self {
        Retention {
            age: Duration::from_mins(5),
            bytes: 600_000_000,
        }
    }
}

/// What is held, and what is not any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetainedCounts {
    /// Messages that can be read.
    pub messages: u64,
    /// Bytes that they take, with the last messages of topics that have left.
    pub bytes: u64,
    /// Messages that have left.
    pub left: u64,
    /// Messages that left because of the bytes, before they were too old.
    pub crowded_out: u64,
    /// Messages that were not taken: on more topics than can be kept.
    pub refused: u64,
}

/// What came on some topics since a reader looked last.
pub(crate) struct Tail {
    pub batch: Batch,
    /// Messages that came and are not in the batch, by topic: too many at once, or gone again.
    pub missed: BTreeMap<String, u64>,
    /// What to ask with next time.
    pub next: u64,
}

#[derive(Debug, Default)]
struct Store {
    lanes: Vec<Lane>,
    by_topic: BTreeMap<String, usize>,
    /// The lanes of all messages that are held, in order: each lane's messages are in the same order.
    log: VecDeque<u32>,
    /// The place of the next message.
    next: u64,
    newest: Option<Stamp>,
    counts: RetainedCounts,
    problems: Vec<Problem>,
    is_connected: bool,
    /// What the summary was at a place, with so many channels and problems.
    summary: Option<((u64, u64, usize), Arc<Summary>)>,
    /// Counts changes of channels.
    channels_version: u64,
}

#[derive(Debug, Default)]
struct Lane {
    entries: VecDeque<Entry>,
    /// The last message that left.
    carried: Option<Entry>,
    channels: Vec<Arc<Channel>>,
    left: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    order: u64,
    message: Message,
}

/// What an entry takes beside its payload.
const OVERHEAD: u64 = size_of::<Entry>() as u64 + 40;
/// More topics than any robot has.
const MOST_TOPICS: usize = 10_000;
/// A topic's types; more than one is a mistake, and an endless number of them an attack.
const MOST_CHANNELS: usize = 8;
const MOST_PROBLEMS: usize = 100;
/// A clock that is set back by less than this is waited for.
const STEP_BACK: i64 = 1_000_000_000;
/// Messages of one batch, and about how many bytes.
const BATCH_MESSAGES: usize = 1024;
const BATCH_BYTES: u64 = 4 << 20;
/// Messages of one topic in one tail.
const TAIL_MESSAGES: usize = 2000;

impl Retained {
    /// Holds nothing yet.
    pub fn new(retention: Retention) -> Self {
        Retained {
            retention,
            store: Arc::default(),
        }
    }

    /// How much is kept.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Takes a message. Its payload is kept alive: one that is a small part of a larger buffer is better
    /// [detached](Message::detached).
    pub fn push(&self, message: Message) {
        let mut gone = Vec::new();
        let mut store = self.lock();
        store.push(message, self.retention, &mut gone);
        drop(store);
        // Large payloads are freed with no lock held.
        drop(gone);
    }

    /// Lists a topic that has no message yet.
    pub fn add_channel(&self, channel: &Arc<Channel>) {
        let mut store = self.lock();
        if let Some(lane) = store.lane_of(&channel.topic) {
            store.meet(lane, channel);
        }
    }

    /// Says whether the robot is there, for those who look.
    pub fn set_connected(&self, is_connected: bool) {
        self.lock().is_connected = is_connected;
    }

    /// Whether the robot is there, as far as anybody said.
    pub fn is_connected(&self) -> bool {
        self.lock().is_connected
    }

    /// What is held, and what has left.
    pub fn counts(&self) -> RetainedCounts {
        self.lock().counts
    }

    /// Messages that have left, by topic.
    pub fn left_by_topic(&self) -> BTreeMap<String, u64> {
        let store = self.lock();
        let lanes = store.by_topic.iter();
        lanes
            .map(|(topic, &lane)| (topic.clone(), store.lanes[lane].left))
            .filter(|(_, left)| *left > 0)
            .collect()
    }

    /// Counts the messages that ever came: what has grown has another number.
    pub fn version(&self) -> u64 {
        self.lock().next
    }

    /// Counts the changes of topics and types.
    pub(crate) fn channels_version(&self) -> u64 {
        self.lock().channels_version
    }

    /// The place of the first message that is later than `at`.
    pub(crate) fn place_after(&self, at: Stamp) -> u64 {
        let store = self.lock();
        let lanes = store.lanes.iter();
        let first = lanes.filter_map(|lane| {
            let entries = &lane.entries;
            let later = entries.partition_point(|entry| entry.message.log_time <= at);
            entries.get(later).map(|entry| entry.order)
        });
        first.min().unwrap_or(store.next)
    }

    /// What came on these topics from the place `from` on.
    pub(crate) fn tail(&self, topics: &Topics, from: u64) -> Tail {
        let store = self.lock();
        let mut batch = Builder::default();
        let mut missed = BTreeMap::new();
        for lane in store.wanted(topics) {
            let lane = &store.lanes[lane];
            let held = lane.entries.partition_point(|entry| entry.order < from);
            let count = lane.entries.len() - held;
            let start = held + count.saturating_sub(TAIL_MESSAGES);
            if start > held {
                let topic = lane.topic().to_owned();
                missed.insert(topic, (start - held) as u64);
            }
            for entry in lane.entries.range(start..) {
                batch.add(entry);
            }
        }
        let next = store.next;
        drop(store);
        Tail {
            batch: batch.finish(),
            missed,
            next,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Retained {
    fn summary(&self) -> Arc<Summary> {
        self.lock().summary()
    }

    /// Each batch holds what there is when it is asked for, up to the query's end.
    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let (own, query) = (self.clone(), query.clone());
        let mut at = (query.range.start, 0);
        Ok(Box::new(std::iter::from_fn(move || {
            let (batch, next) = own.lock().batch(&query, at)?;
            at = next;
            Some(Ok(batch))
        })))
    }

    fn backfill(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let store = self.lock();
        let mut batch = Builder::default();
        for lane in store.wanted(topics) {
            if let Some(entry) = store.lanes[lane].as_of(at) {
                batch.add(entry);
            }
        }
        drop(store);
        Ok(batch.finish())
    }
}

impl Store {
    fn push(&mut self, mut message: Message, retention: Retention, gone: &mut Vec<Entry>) {
        let Some(lane) = self.lane_of(&message.channel.topic) else {
            self.counts.refused += 1;
            return;
        };
        if let Some(newest) = self.newest {
            let back = newest.since(message.log_time);
            if back > STEP_BACK {
                self.start_over(back, gone);
            } else if back >= 0 {
                message.log_time = newest.plus_nanos(1);
            }
        }
        self.newest = Some(message.log_time);
        message.channel = self.meet(lane, &message.channel);
        let entry = Entry {
            order: self.next,
            message,
        };
        self.next += 1;
        self.counts.messages += 1;
        self.counts.bytes += entry.bytes();
        self.lanes[lane].entries.push_back(entry);
        self.log.push_back(lane as u32);
        self.fit(retention, gone);
    }

    /// Lets go of what is too old or too much. The newest message stays in any case.
    fn fit(&mut self, retention: Retention, gone: &mut Vec<Entry>) {
        let age = i64::try_from(retention.age.as_nanos()).unwrap_or(i64::MAX);
        while self.log.len() > 1 {
            let is_old = self
                .oldest()
                .zip(self.newest)
                .is_some_and(|(oldest, newest)| newest.since(oldest) > age);
            let is_much = self.counts.bytes > retention.bytes;
            if !is_old && !is_much {
                return;
            }
            if !is_old {
                self.counts.crowded_out += 1;
            }
            self.let_go(gone);
        }
    }

    fn let_go(&mut self, gone: &mut Vec<Entry>) {
        let Some(lane) = self.log.pop_front() else {
            return;
        };
        let lane = &mut self.lanes[lane as usize];
        let Some(entry) = lane.entries.pop_front() else {
            return;
        };
        lane.left += 1;
        self.counts.messages -= 1;
        self.counts.left += 1;
        // It takes the place of the one that was carried until now, and is still paid for.
        if let Some(before) = lane.carried.replace(entry) {
            self.counts.bytes -= before.bytes();
            gone.push(before);
        }
    }

    /// The clock was set back: what has been received so far belongs to another time.
    fn start_over(&mut self, back: i64, gone: &mut Vec<Entry>) {
        while !self.log.is_empty() {
            self.let_go(gone);
        }
        for lane in &mut self.lanes {
            if let Some(carried) = lane.carried.take() {
                self.counts.bytes -= carried.bytes();
                gone.push(carried);
            }
        }
        let seconds = back as f64 * 1e-9;
        let text =
            format!("the clock was set back by {seconds:.1} s; what was received before is gone");
        self.tell(Problem::whole(ProblemKind::BadRecord, text));
    }

    fn tell(&mut self, problem: Problem) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    fn lane_of(&mut self, topic: &str) -> Option<usize> {
        if let Some(&lane) = self.by_topic.get(topic) {
            return Some(lane);
        }
        if self.lanes.len() >= MOST_TOPICS {
            return None;
        }
        let lane = self.lanes.len();
        self.lanes.push(Lane::default());
        self.by_topic.insert(topic.to_owned(), lane);
        Some(lane)
    }

    /// The channel as it is kept. One whose schema has come since takes the place of the one without.
    fn meet(&mut self, lane: usize, channel: &Arc<Channel>) -> Arc<Channel> {
        let lane = &mut self.lanes[lane];
        let same = |known: &&Arc<Channel>| Arc::ptr_eq(known, channel) || **known == *channel;
        if let Some(known) = lane.channels.iter().find(same) {
            return Arc::clone(known);
        }
        self.channels_version += 1;
        let bare = |known: &Arc<Channel>| {
            known.type_name() == channel.type_name()
                && known.message_encoding == channel.message_encoding
                && !has_schema(known)
        };
        if has_schema(channel)
            && let Some(at) = lane.channels.iter().position(bare)
        {
            let old = std::mem::replace(&mut lane.channels[at], Arc::clone(channel));
            for entry in lane.entries.iter_mut().chain(&mut lane.carried) {
                if Arc::ptr_eq(&entry.message.channel, &old) {
                    entry.message.channel = Arc::clone(channel);
                }
            }
            return Arc::clone(channel);
        }
        if lane.channels.len() >= MOST_CHANNELS {
            lane.channels.remove(0);
        }
        lane.channels.push(Arc::clone(channel));
        Arc::clone(channel)
    }

    fn oldest(&self) -> Option<Stamp> {
        let lane = &self.lanes[*self.log.front()? as usize];
        Some(lane.entries.front()?.message.log_time)
    }

    fn range(&self) -> TimeRange {
        match (self.oldest(), self.newest) {
            (Some(oldest), Some(newest)) => TimeRange::new(oldest, newest),
            _ => TimeRange::EMPTY,
        }
    }

    fn summary(&mut self) -> Arc<Summary> {
        let key = (self.next, self.channels_version, self.problems.len());
        if let Some((known, summary)) = &self.summary
            && *known == key
        {
            return Arc::clone(summary);
        }
        let lanes = self.by_topic.values().map(|&lane| &self.lanes[lane]);
        let channels = lanes.flat_map(|lane| {
            let last = lane.channels.len().saturating_sub(1);
            lane.channels.iter().enumerate().map(move |(at, channel)| {
                // Those of several types on one topic are counted with the last.
                let messages = if at == last { lane.entries.len() } else { 0 };
                ChannelSummary {
                    channel: Arc::clone(channel),
                    messages: Some(messages as u64),
                }
            })
        });
        let summary = Arc::new(Summary {
            size: self.counts.bytes,
            range: self.range(),
            messages: Some(self.counts.messages),
            channels: channels.collect(),
            problems: self.problems.clone(),
            ..Summary::empty("live")
        });
        self.summary = Some((key, Arc::clone(&summary)));
        summary
    }

    fn wanted(&self, topics: &Topics) -> Vec<usize> {
        match topics {
            Topics::All => (0..self.lanes.len()).collect(),
            Topics::Named(names) => {
                let mut lanes: Vec<usize> = names
                    .iter()
                    .filter_map(|name| self.by_topic.get(name).copied())
                    .collect();
                lanes.sort_unstable();
                lanes.dedup();
                lanes
            }
        }
    }

    /// The next messages from a time and a place on, and where to go on behind them.
    fn batch(&self, query: &Query, from: (Stamp, u64)) -> Option<(Batch, (Stamp, u64))> {
        let mut heads = BinaryHeap::new();
        for lane in self.wanted(&query.topics) {
            let entries = &self.lanes[lane].entries;
            let at = entries.partition_point(|entry| entry.key() < from);
            if let Some(entry) = entries.get(at) {
                heads.push(Reverse((entry.key(), lane, at)));
            }
        }
        let mut batch = Builder::default();
        let mut last = None;
        while let Some(Reverse((key, lane, at))) = heads.pop() {
            if key.0 > query.range.end {
                break;
            }
            let entries = &self.lanes[lane].entries;
            batch.add(&entries[at]);
            last = Some(key);
            if let Some(next) = entries.get(at + 1) {
                heads.push(Reverse((next.key(), lane, at + 1)));
            }
            if batch.rows.len() >= BATCH_MESSAGES || batch.bytes >= BATCH_BYTES {
                break;
            }
        }
        let (time, order) = last?;
        Some((batch.finish(), (time, order + 1)))
    }
}

impl Lane {
    fn topic(&self) -> &str {
        self.channels.last().map_or("", |channel| &channel.topic)
    }

    fn as_of(&self, at: Stamp) -> Option<&Entry> {
        let later = self
            .entries
            .partition_point(|entry| entry.message.log_time <= at);
        match later.checked_sub(1) {
            Some(last) => self.entries.get(last),
            None => self
                .carried
                .as_ref()
                .filter(|entry| entry.message.log_time <= at),
        }
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.message.payload.len() as u64 + OVERHEAD
    }

    fn key(&self) -> (Stamp, u64) {
        (self.message.log_time, self.order)
    }
}

fn has_schema(channel: &Channel) -> bool {
    let schema = channel.schema.as_ref();
    schema.is_some_and(|schema| !schema.data.is_empty())
}

#[derive(Default)]
struct Builder {
    channels: Vec<Arc<Channel>>,
    buffers: Vec<Bytes>,
    rows: Vec<Row>,
    bytes: u64,
}

impl Builder {
    fn add(&mut self, entry: &Entry) {
        let message = &entry.message;
        let known = self
            .channels
            .iter()
            .position(|known| Arc::ptr_eq(known, &message.channel));
        let channel = known.unwrap_or_else(|| {
            self.channels.push(Arc::clone(&message.channel));
            self.channels.len() - 1
        });
        self.bytes += message.payload.len() as u64;
        self.rows.push(Row {
            log_time: message.log_time,
            publish_time: message.publish_time,
            order: entry.order,
            offset: 0,
            len: message.payload.len() as u64,
            sequence: message.sequence,
            channel: channel as u32,
            buffer: self.buffers.len() as u32,
        });
        self.buffers.push(message.payload.clone());
    }

    fn finish(self) -> Batch {
        Batch::new(self.channels.into(), self.buffers, self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(topic: &str, schema: &str) -> Arc<Channel> {
        let schema = asof_core::Schema {
            name: "pkg/msg/Type".to_owned(),
            encoding: "ros2msg".to_owned(),
            data: Bytes::copy_from_slice(schema.as_bytes()),
        };
        Arc::new(Channel {
            topic: topic.to_owned(),
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(schema)),
            ..Channel::default()
        })
    }

    fn message(channel: &Arc<Channel>, at: i64, payload: &str) -> Message {
        Message {
            channel: Arc::clone(channel),
            log_time: at.into(),
            publish_time: at.into(),
            sequence: 0,
            payload: Bytes::copy_from_slice(payload.as_bytes()),
        }
    }

    fn of_age(nanos: u64) -> Retained {
        Retained::new(Retention {
            age: Duration::from_nanos(nanos),
            ..Retention::default()
        })
    }

    fn all(retained: &Retained, query: &Query) -> Vec<(i64, String)> {
        let batches = retained.read(query).expect("readable");
        let batches: Vec<Batch> = batches.map(|batch| batch.expect("a batch")).collect();
        let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
        batches
            .iter()
            .flat_map(Batch::iter)
            .map(|one| (one.log_time.nanos(), text(one.payload)))
            .collect()
    }

    #[test]
    fn what_is_too_old_leaves_across_all_topics_and_is_counted() {
        let retained = of_age(10);
        let (a, b) = (channel("/a", "x"), channel("/b", "x"));
        for at in 0..20 {
            let channel = if at % 2 == 0 { &a } else { &b };
            retained.push(message(channel, at, &at.to_string()));
        }
        let held = all(&retained, &Query::all());
        let times: Vec<i64> = held.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, (9..20).collect::<Vec<_>>());
        assert_eq!(retained.counts().left, 9);
        assert_eq!(
            retained.summary().range,
            TimeRange::new(9.into(), 19.into())
        );
        let left = retained.left_by_topic();
        assert_eq!(left, BTreeMap::from([("/a".into(), 5), ("/b".into(), 4)]));
    }

    #[test]
    fn bytes_are_bounded_and_what_they_pushed_out_is_counted() {
        let retained = Retained::new(Retention {
            age: Duration::from_hours(1),
            bytes: 10_000,
        });
        let a = channel("/a", "x");
        for at in 0..100 {
            retained.push(message(&a, at, &"x".repeat(1000)));
        }
        let counts = retained.counts();
        assert!(counts.bytes <= 10_000, "{counts:?}");
        assert!(counts.messages >= 6, "{counts:?}");
        assert_eq!(counts.crowded_out, 100 - counts.messages);
    }

    #[test]
    fn the_last_message_of_a_topic_is_known_after_it_has_left() {
        let retained = of_age(10);
        let (map, odom) = (channel("/map", "x"), channel("/odom", "x"));
        retained.push(message(&map, 0, "the map"));
        for at in 1..100 {
            retained.push(message(&odom, at, ""));
        }
        let known = retained
            .backfill(&Topics::named(["/map"]), 99.into())
            .expect("readable");
        assert_eq!(known.get(0).expect("one").payload, b"the map");
        assert!(all(&retained, &Query::topics(["/map"])).is_empty());
        let before = retained.backfill(&Topics::named(["/odom"]), 50.into());
        assert!(before.expect("readable").is_empty(), "it has left");
    }

    #[test]
    fn times_rise_even_where_the_clock_does_not() {
        let retained = of_age(1000);
        let a = channel("/a", "x");
        for (at, name) in [(5, "a"), (5, "b"), (3, "c"), (9, "d")] {
            retained.push(message(&a, at, name));
        }
        let held = all(&retained, &Query::all());
        let expected = [(5, "a"), (6, "b"), (7, "c"), (9, "d")].map(|(at, name)| (at, name.into()));
        assert_eq!(held, expected);
    }

    #[test]
    fn a_clock_that_is_set_back_starts_over_and_is_told() {
        let retained = of_age(u64::MAX);
        let a = channel("/a", "x");
        retained.push(message(&a, 10_000_000_000, "before"));
        retained.push(message(&a, 5, "after"));
        assert_eq!(all(&retained, &Query::all()), [(5, "after".to_owned())]);
        let problems = &retained.summary().problems;
        assert!(problems[0].message.contains("set back by 10.0 s"));
    }

    #[test]
    fn a_schema_that_comes_later_is_given_to_what_came_before() {
        let retained = of_age(1000);
        let (bare, whole) = (channel("/a", ""), channel("/a", "int32 data"));
        retained.push(message(&bare, 1, "first"));
        retained.push(message(&whole, 2, "second"));
        let summary = retained.summary();
        assert_eq!(summary.channels.len(), 1);
        let known = retained.backfill(&Topics::All, 1.into()).expect("readable");
        assert_eq!(known.get(0).expect("one").channel, &whole);
    }

    #[test]
    fn a_reader_goes_on_with_what_comes_meanwhile() {
        let retained = of_age(u64::MAX);
        let a = channel("/a", "x");
        let push = |range: std::ops::Range<i64>| {
            for at in range {
                retained.push(message(&a, at, ""));
            }
        };
        push(0..2000);
        let mut batches = retained.read(&Query::all()).expect("readable");
        let first = batches.next().expect("one").expect("a batch").len();
        push(2000..2500);
        let rest: usize = batches.map(|batch| batch.expect("a batch").len()).sum();
        assert_eq!(first + rest, 2500);
    }

    #[test]
    fn a_tail_has_what_came_since_and_counts_what_is_too_much() {
        let retained = of_age(u64::MAX);
        let a = channel("/a", "x");
        retained.push(message(&a, 0, "old"));
        let from = retained.version();
        for at in 1..=5000 {
            retained.push(message(&a, at, &at.to_string()));
        }
        let tail = retained.tail(&Topics::All, from);
        assert_eq!(tail.batch.len(), TAIL_MESSAGES);
        assert_eq!(tail.missed["/a"], 3000);
        assert_eq!(tail.batch.range().end.nanos(), 5000);
        assert!(retained.tail(&Topics::All, tail.next).batch.is_empty());
    }
}
