//! Aligning topics as their messages arrive.

use std::collections::VecDeque;
use std::time::Duration;

use asof_core::Stamp;

use crate::progress::{Progress, Step};
use crate::topic::Topic;
use crate::{Duplicates, Match, Missing, Rule, Stamped};

/// Aligns topics: for each message of an anchor topic, the match of every other topic for its stamp.
///
/// Messages are added one by one, live or from a recording. A row is emitted as soon as no message that is still in
/// time can change it.
///
/// # What is in time
///
/// - Without a lateness, topics may lag each other by any amount, but each of them is ordered: a row waits until every
///   topic has reached the anchor's stamp.
/// - With a lateness ([`Align::with_lateness`]), a message is in time if it arrives before every message, of any topic,
///   whose stamp is later by more than that. No row waits for a topic that has gone silent: [`Rule::last`] is settled
///   once the newest stamp is ahead by the lateness, [`Rule::nearest`] once it is ahead by the lateness and the
///   distance of what was found.
///
/// As long as all messages are in time, every row that is not marked early is what the same messages in order would
/// give. Later messages are counted ([`AlignStats::late`]) and used for the rows still to come.
///
/// Every anchor gives exactly one row. Rows are in the order of their anchors' stamps, except for a late anchor: its
/// row is emitted at once from what is still held, with [`Missing::Forgotten`] where that is not enough.
///
/// # What is held
///
/// At most `queue_size` messages of each topic and of the anchor, and with [`Align::with_max_bytes`] at most that many
/// bytes in total. If more would have to wait, the first row is emitted early and counted.
///
/// ```
/// use asof_align::{Align, Rule};
/// use std::time::Duration;
///
/// let mut align = Align::new(vec![Rule::nearest(), Rule::last()], 100).with_lateness(Duration::from_nanos(2));
/// let mut rows = Vec::new();
/// let mut emit = |row: asof_align::AlignedRow<&'static str>| {
///     let values = row.matches.iter().map(|m| m.found().map(|found| found.value));
///     rows.push((row.anchor.value, values.collect::<Vec<_>>()));
/// };
/// align.add(1, 4.into(), "map 4", &mut emit);
/// align.add_anchor(10.into(), "frame 10", &mut emit);
/// align.add(0, 11.into(), "imu 11", &mut emit);
/// align.add(0, 9.into(), "imu 9", &mut emit);
/// align.add(0, 13.into(), "imu 13", &mut emit);
/// assert_eq!(rows, [("frame 10", vec![Some("imu 9"), Some("map 4")])]);
/// ```
pub struct Align<V> {
    topics: Vec<Topic<V>>,
    anchors: VecDeque<(Stamped<V>, u64)>,
    queue_size: usize,
    max_bytes: u64,
    weigh: Option<Weigh<V>>,
    bytes: u64,
    lateness: Option<i64>,
    max_wait: Option<i64>,
    restart_after: Option<u64>,
    duplicates: Duplicates,
    /// The progress of all topics together.
    now: Progress,
    /// The progress of the anchors.
    newest_anchor: Progress,
    counters: AlignStats,
}

type Weigh<V> = Box<dyn Fn(&V) -> u64 + Send + Sync>;

/// An anchor message and the match of every other topic, in the order of the rules.
#[derive(Debug, Clone)]
pub struct AlignedRow<V> {
    /// The message of the anchor topic.
    pub anchor: Stamped<V>,
    /// The matches of the other topics.
    pub matches: Vec<Match<V>>,
    /// Whether the row was emitted although a message in time could still have changed it: the longest wait was over,
    /// or there was no room to wait.
    pub is_early: bool,
}

impl<V> AlignedRow<V> {
    /// Whether every topic has a match.
    pub fn is_complete(&self) -> bool {
        self.matches.iter().all(|found| found.missing().is_none())
    }
}

/// Counts of the messages and rows of an [`Align`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlignStats {
    /// Rows emitted.
    pub rows: u64,
    /// Rows in which every topic has a match.
    pub complete: u64,
    /// Rows emitted although they could still have changed.
    pub early: u64,
    /// Anchors that were not in time.
    pub late_anchors: u64,
    /// How often the clock went back and alignment started over.
    pub restarts: u64,
    /// Stamps that were far ahead of all others and not confirmed by another message.
    pub future: u64,
    /// For each topic, messages that were not in time: earlier rows may lack them.
    pub late: Vec<u64>,
    /// For each topic, rows without a match because it had no message, none yet, or none any more.
    pub absent: Vec<u64>,
    /// For each topic, rows in which its message is further away than the tolerance.
    pub too_far: Vec<u64>,
    /// For each topic, rows of late anchors whose message is no longer held.
    pub forgotten: Vec<u64>,
    /// For each topic, messages dropped for lack of room before they were too old for anchors in time.
    pub dropped: Vec<u64>,
    /// For each topic, messages refused or replaced because another has the same stamp.
    pub duplicates: Vec<u64>,
}

impl<V: Clone> Align<V> {
    /// Aligns as many topics as there are rules. At most `queue_size` messages of each are held (at least two).
    pub fn new(rules: Vec<Rule>, queue_size: usize) -> Self {
        let zeros = vec![0; rules.len()];
        Align {
            topics: rules.into_iter().map(Topic::new).collect(),
            anchors: VecDeque::new(),
            queue_size: queue_size.max(2),
            max_bytes: u64::MAX,
            weigh: None,
            bytes: 0,
            lateness: None,
            max_wait: None,
            restart_after: None,
            duplicates: Duplicates::default(),
            now: Progress::default(),
            newest_anchor: Progress::default(),
            counters: AlignStats {
                late: zeros.clone(),
                absent: zeros.clone(),
                too_far: zeros.clone(),
                forgotten: zeros.clone(),
                dropped: zeros.clone(),
                duplicates: zeros,
                ..AlignStats::default()
            },
        }
    }

    /// Sets the lateness: how far a message may arrive after messages of any topic with later stamps.
    ///
    /// Zero is for a recording that is read in the order of these stamps.
    #[must_use]
    pub fn with_lateness(mut self, lateness: Duration) -> Self {
        self.lateness = Some(nanos(lateness));
        self
    }

    /// Sets the longest wait: a row is emitted once some topic is ahead of its anchor by this much.
    #[must_use]
    pub fn with_max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(nanos(wait));
        self
    }

    /// Bounds the bytes held by all topics and anchors together. `weigh` returns the bytes that a message keeps alive.
    /// The newest message of each topic is always held.
    #[must_use]
    pub fn with_max_bytes(
        mut self,
        bytes: u64,
        weigh: impl Fn(&V) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.max_bytes = bytes;
        self.weigh = Some(Box::new(weigh));
        self
    }

    /// Starts over when a message is older than the newest by more than this: waiting rows are emitted early and held
    /// messages dropped. For clocks that go back, as in a recording played in a loop.
    #[must_use]
    pub fn with_restart_after(mut self, jump: Duration) -> Self {
        self.restart_after = Some(u64::try_from(jump.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// Sets what happens to messages of one topic with the same stamp.
    #[must_use]
    pub fn with_duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// Adds a message of the anchor topic.
    pub fn add_anchor(&mut self, stamp: Stamp, value: V, emit: &mut dyn FnMut(AlignedRow<V>)) {
        let t = stamp.nanos();
        self.restart_if_back(t, emit);
        // Before it is judged: it may show that the stamps before it were wrong.
        self.note(t);
        self.newest_anchor.note(t);
        let limit = self.watermark().or(self.newest_anchor.newest());
        let is_late = limit.is_some_and(|limit| t < limit);
        self.counters.late_anchors += u64::from(is_late);
        let bytes = self.weight(&value);
        let at = self
            .anchors
            .partition_point(|(anchor, _)| anchor.stamp <= stamp);
        self.anchors.insert(at, (Stamped::new(stamp, value), bytes));
        self.bytes = self.bytes.saturating_add(bytes);
        self.release(emit);
        self.make_room(emit);
    }

    /// Adds a message of topic `topic`, in the order of the rules. Topics without a rule are ignored.
    pub fn add(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        emit: &mut dyn FnMut(AlignedRow<V>),
    ) {
        self.restart_if_back(stamp.nanos(), emit);
        self.put(topic, stamp, value, emit, true);
    }

    /// Adds a message of a topic that was looked up ahead of all others: no message of this topic is still to come
    /// before it, by more than the lateness, and it says nothing about the other topics.
    ///
    /// For a recording in which one topic has so few messages that rows wait for it; see [`Align::waits_for`].
    pub fn add_ahead(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        emit: &mut dyn FnMut(AlignedRow<V>),
    ) {
        if let Some(topic) = self.topics.get_mut(topic) {
            let lateness = self.lateness.unwrap_or(0);
            let reached = stamp.nanos().saturating_sub(lateness);
            topic.reached = topic.reached.max(Some(reached));
        }
        self.put(topic, stamp, value, emit, false);
    }

    fn put(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        emit: &mut dyn FnMut(AlignedRow<V>),
        is_news: bool,
    ) {
        if topic >= self.topics.len() {
            return;
        }
        let t = stamp.nanos();
        // Before it is judged: it may show that the stamps before it were wrong.
        if is_news {
            self.note(t);
        }
        let watermark = self.watermark();
        let here = &mut self.topics[topic];
        let step = here.progress.note(t);
        let limit = watermark.or(here.progress.newest());
        let is_late = limit.is_some_and(|limit| t < limit);
        self.counters.late[topic] += u64::from(is_late);
        if watermark.is_none() && step == Step::LeapDenied {
            self.counters.future += 1;
        }
        let bytes = self.weight(&value);
        let here = &mut self.topics[topic];
        // Earlier messages were dropped, so only the rows already waiting can need it.
        if !here.has_forgotten(t) {
            let put = here.put(t, value, bytes, self.duplicates);
            self.counters.duplicates[topic] += u64::from(put.is_duplicate);
            self.bytes = self.bytes.saturating_add(put.added) - put.removed;
        }
        self.release(emit);
        self.forget_old();
        self.make_room(emit);
    }

    /// Ends a topic: no message of it is still to come, and no row waits for it any more.
    pub fn end(&mut self, topic: usize, emit: &mut dyn FnMut(AlignedRow<V>)) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.has_ended = true;
        }
        self.release(emit);
    }

    /// Advances time to `now`, by the clock of the stamps: with a lateness, rows are settled without a message.
    pub fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(AlignedRow<V>)) {
        self.note(now.nanos());
        self.release(emit);
        self.forget_old();
    }

    /// Emits all waiting rows, at the end of a recording.
    pub fn finish(&mut self, emit: &mut dyn FnMut(AlignedRow<V>)) {
        while let Some((anchor, bytes)) = self.anchors.pop_front() {
            self.bytes -= bytes;
            let row = self.row(anchor, false);
            emit(row);
        }
    }

    /// The number of waiting anchors.
    pub fn waiting(&self) -> usize {
        self.anchors.len()
    }

    /// The number of messages held, anchors included.
    pub fn held(&self) -> usize {
        self.anchors.len() + self.topics.iter().map(Topic::len).sum::<usize>()
    }

    /// Their weight in bytes; zero without [`Align::with_max_bytes`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The topics that the first row waits for; none if it waits for late messages on any of them.
    pub fn waits_for(&self) -> impl Iterator<Item = usize> + '_ {
        let (watermark, now) = (self.watermark(), self.now.newest());
        let first = self.anchors.front().map(|(anchor, _)| anchor.stamp.nanos());
        let first = first.filter(|t| watermark.is_none_or(|watermark| watermark >= *t));
        let topics = self.topics.iter().enumerate();
        topics
            .filter(move |(_, topic)| first.is_some_and(|t| !topic.is_settled(t, watermark, now)))
            .map(|(number, _)| number)
    }

    /// The counts so far.
    pub fn stats(&self) -> &AlignStats {
        &self.counters
    }

    /// The watermark: no message in time is still to come before this stamp. `None` if there is none for all topics.
    fn watermark(&self) -> Option<i64> {
        let lateness = self.lateness?;
        let now = self.now.newest();
        Some(now.map_or(i64::MIN, |now| now.saturating_sub(lateness)))
    }

    fn weight(&self, value: &V) -> u64 {
        self.weigh.as_ref().map_or(0, |weigh| weigh(value))
    }

    fn note(&mut self, stamp: i64) {
        if self.now.note(stamp) == Step::LeapDenied && self.lateness.is_some() {
            self.counters.future += 1;
        }
    }

    fn restart_if_back(&mut self, stamp: i64, emit: &mut dyn FnMut(AlignedRow<V>)) {
        let (Some(jump), Some(now)) = (self.restart_after, self.now.newest()) else {
            return;
        };
        if stamp >= now || now.abs_diff(stamp) <= jump {
            return;
        }
        while self.emit_first_early(emit) {}
        for topic in &mut self.topics {
            *topic = Topic::new(topic.rule);
        }
        self.bytes = 0;
        self.now = Progress::default();
        self.newest_anchor = Progress::default();
        self.counters.restarts += 1;
    }

    fn release(&mut self, emit: &mut dyn FnMut(AlignedRow<V>)) {
        while let Some((first, _)) = self.anchors.front() {
            let t = first.stamp.nanos();
            let (watermark, now) = (self.watermark(), self.now.newest());
            // An anchor in time with a smaller stamp would have to come first.
            let is_settled = watermark.is_none_or(|watermark| watermark >= t)
                && self
                    .topics
                    .iter()
                    .all(|topic| topic.is_settled(t, watermark, now));
            let is_over = self.max_wait.is_some_and(|wait| {
                let now = self.now.newest();
                now.is_some_and(|now| now.saturating_sub(t) >= wait)
            });
            if !is_settled && !is_over {
                return;
            }
            if let Some((anchor, bytes)) = self.anchors.pop_front() {
                self.bytes -= bytes;
                let row = self.row(anchor, !is_settled);
                emit(row);
            }
        }
    }

    /// Drops what no anchor in time can need.
    fn forget_old(&mut self) {
        let Some(watermark) = self.watermark() else {
            return;
        };
        let first = self.anchors.front().map(|(anchor, _)| anchor.stamp.nanos());
        let keep = first.map_or(watermark, |first| first.min(watermark));
        for topic in &mut self.topics {
            self.bytes -= topic.forget_before(keep);
        }
    }

    /// Keeps everything within its bounds: history goes first, then rows are emitted early.
    fn make_room(&mut self, emit: &mut dyn FnMut(AlignedRow<V>)) {
        while self.anchors.len() > self.queue_size && self.emit_first_early(emit) {}
        for number in 0..self.topics.len() {
            while self.topics[number].len() > self.queue_size {
                self.let_go_of_first(number, emit);
            }
        }
        while self.bytes > self.max_bytes {
            let spare = (0..self.topics.len())
                .filter(|&number| self.topics[number].len() > 1 && !self.is_first_needed(number))
                .max_by_key(|&number| self.topics[number].bytes());
            match spare {
                Some(number) => self.drop_first(number),
                None if self.emit_first_early(emit) => {}
                None => return,
            }
        }
    }

    fn let_go_of_first(&mut self, number: usize, emit: &mut dyn FnMut(AlignedRow<V>)) {
        while self.is_first_needed(number) && self.emit_first_early(emit) {}
        self.drop_first(number);
    }

    fn drop_first(&mut self, number: usize) {
        let Some((stamp, bytes)) = self.topics[number].drop_first() else {
            return;
        };
        self.bytes -= bytes;
        let watermark = self.watermark();
        let is_wanted = watermark.is_some_and(|watermark| stamp >= watermark);
        self.counters.dropped[number] += u64::from(is_wanted);
    }

    /// Whether a waiting anchor needs the oldest message of a topic.
    fn is_first_needed(&self, number: usize) -> bool {
        let first = self.anchors.front().map(|(anchor, _)| anchor.stamp.nanos());
        first.is_some_and(|t| self.topics[number].needs_first(t))
    }

    fn emit_first_early(&mut self, emit: &mut dyn FnMut(AlignedRow<V>)) -> bool {
        let Some((anchor, bytes)) = self.anchors.pop_front() else {
            return false;
        };
        self.bytes -= bytes;
        let row = self.row(anchor, true);
        emit(row);
        true
    }

    fn row(&mut self, anchor: Stamped<V>, is_early: bool) -> AlignedRow<V> {
        let t = anchor.stamp.nanos();
        let mut matches = Vec::with_capacity(self.topics.len());
        for (number, topic) in self.topics.iter().enumerate() {
            let found = topic.pick(t);
            let counters = &mut self.counters;
            match found.missing() {
                Some(Missing::TooFar(_)) => counters.too_far[number] += 1,
                Some(Missing::Forgotten) => counters.forgotten[number] += 1,
                Some(_) => counters.absent[number] += 1,
                None => {}
            }
            matches.push(found);
        }
        let row = AlignedRow {
            anchor,
            matches,
            is_early,
        };
        self.counters.rows += 1;
        self.counters.early += u64::from(is_early);
        self.counters.complete += u64::from(row.is_complete());
        row
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
