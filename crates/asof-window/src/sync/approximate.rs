//! Approximate time, as in message_filters.

mod penalty;

use std::collections::VecDeque;
use std::time::Duration;

use asof_core::Stamp;

use self::penalty::Penalty;
use super::{DropReason, Stamped, SyncEvent, Synchronizer};

/// Finds sets of messages that are as close together as possible, one of each topic, each message used at most once.
///
/// The sets, their order, and the moment at which they are found are those of message_filters' `ApproximateTime`
/// policy for the same messages in the same order. Beyond it, any number of topics can be joined, and messages in no
/// set are returned with a reason.
///
/// A set is emitted when no later message could make a better one. That is certain once the next message of the
/// deciding topic has arrived, or earlier if [`ApproximateTime::with_lower_bound`] bounds how close two messages of a
/// topic can be.
///
/// ```
/// use asof_window::sync::{ApproximateTime, SyncEvent, Synchronizer};
///
/// let mut sync = ApproximateTime::new(2, 10);
/// let mut sets = Vec::new();
/// for (topic, stamp) in [(0, 100), (1, 103), (0, 200), (1, 204), (0, 300)] {
///     sync.add(topic, stamp.into(), stamp, &mut |event| {
///         if let SyncEvent::Matched(set) = event {
///             sets.push((set[0].value, set[1].value));
///         }
///     });
/// }
/// assert_eq!(sets, [(100, 103), (200, 204)]);
/// ```
pub struct ApproximateTime<V> {
    topics: Vec<Topic<V>>,
    /// The stamp of each topic's head, contiguous because all are compared in every step; `i64::MAX` while it has none.
    heads: Vec<i64>,
    /// The heads of a search ahead.
    ahead: Vec<i64>,
    queue_size: usize,
    penalty: Penalty,
    max_interval: i64,
    /// A set that spans at most this is good enough; negative for none.
    early: i64,
    /// How many topics have a head.
    ready: usize,
    /// Whether any topic has lost a message.
    has_dropped: bool,
    /// Valid only while `has_candidate`.
    candidate: Candidate,
    has_candidate: bool,
    /// How many heads were passed since the candidate was made, and the topic of the last of them.
    passed: usize,
    last_passed: usize,
}

/// Waiting messages of one topic. Those before `past` were considered for the current candidate, whose message is the
/// first of all. The one at `past` is the topic's head.
struct Topic<V> {
    queue: VecDeque<(i64, V)>,
    past: usize,
    /// How far beyond `past` a search ahead has gone.
    steps: usize,
    has_dropped: bool,
    lower_bound: i64,
}

/// The best set so far: it is made of the first message of every topic.
#[derive(Clone, Copy)]
struct Candidate {
    start: i64,
    end: i64,
    pivot: usize,
    pivot_time: i64,
    /// How much earlier than the pivot it starts: the most that a later set can gain.
    reach: i64,
}

impl Candidate {
    fn new(start: i64, end: i64, pivot: usize, pivot_time: i64) -> Self {
        Candidate {
            start,
            end,
            pivot,
            pivot_time,
            reach: pivot_time.saturating_sub(start),
        }
    }
}

impl<V> Topic<V> {
    /// The head's stamp; `i64::MAX` if there is none.
    #[inline]
    fn head(&self) -> i64 {
        let head = self.queue.get(self.past);
        head.map_or(i64::MAX, |(stamp, _)| *stamp)
    }

    /// The message that a search ahead is at, or the earliest that it could be.
    #[inline]
    fn head_ahead(&self, pivot_time: i64) -> i64 {
        if let Some((stamp, _)) = self.queue.get(self.past + self.steps) {
            return *stamp;
        }
        let last = self.queue.back().map_or(pivot_time, |(stamp, _)| *stamp);
        last.saturating_add(self.lower_bound).max(pivot_time)
    }
}

impl<V> ApproximateTime<V> {
    /// Joins `topics` topics, each with at most `queue_size` messages waiting (at least one).
    pub fn new(topics: usize, queue_size: usize) -> Self {
        let topic = || Topic {
            queue: VecDeque::new(),
            past: 0,
            steps: 0,
            has_dropped: false,
            lower_bound: 0,
        };
        ApproximateTime {
            topics: (0..topics).map(|_| topic()).collect(),
            heads: vec![i64::MAX; topics],
            ahead: vec![i64::MAX; topics],
            queue_size: queue_size.max(1),
            penalty: Penalty::new(0.1),
            max_interval: i64::MAX,
            early: -1,
            ready: 0,
            has_dropped: false,
            candidate: Candidate::new(0, 0, 0, 0),
            has_candidate: false,
            passed: 0,
            last_passed: 0,
        }
    }

    /// Sets by how much a later set must be better than an earlier one; 0.1 by default.
    #[must_use]
    pub fn with_age_penalty(mut self, penalty: f64) -> Self {
        self.penalty = Penalty::new(penalty.max(0.0));
        self
    }

    /// Sets the maximum interval: no set spans more than this.
    #[must_use]
    pub fn with_max_interval(mut self, interval: Duration) -> Self {
        self.max_interval = nanos(interval);
        self
    }

    /// Emits a set as soon as it spans at most this, without waiting for a proof that it is the best: one message of each
    /// topic earlier, and perhaps not the same set.
    ///
    /// ```
    /// use asof_window::sync::{ApproximateTime, SyncEvent, Synchronizer};
    /// use std::time::Duration;
    ///
    /// let mut sync = ApproximateTime::new(2, 10).with_early(Duration::from_nanos(5));
    /// let mut sets = Vec::new();
    /// for (topic, stamp) in [(0, 100), (1, 103)] {
    ///     sync.add(topic, stamp.into(), stamp, &mut |event| sets.push(event));
    /// }
    /// assert!(matches!(&sets[..], [SyncEvent::Matched(_)]));
    /// ```
    #[must_use]
    pub fn with_early(mut self, span: Duration) -> Self {
        self.early = nanos(span);
        self
    }

    /// Declares that two messages of this topic are never closer than this. Sets are found earlier, but are wrong if
    /// the bound is.
    #[must_use]
    pub fn with_lower_bound(mut self, topic: usize, bound: Duration) -> Self {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.lower_bound = nanos(bound);
        }
        self
    }

    /// An empty one with the same settings for another number of topics.
    pub(super) fn with_topics(self, topics: usize) -> Self {
        let mut same = ApproximateTime {
            penalty: self.penalty,
            max_interval: self.max_interval,
            early: self.early,
            ..ApproximateTime::new(topics, self.queue_size)
        };
        for (topic, old) in same.topics.iter_mut().zip(self.topics) {
            topic.lower_bound = old.lower_bound;
        }
        same
    }

    #[inline]
    fn take_in(&mut self, topic: usize, stamp: Stamp, value: V, out: &mut impl Outlet<V>) {
        let Some(here) = self.topics.get_mut(topic) else {
            out.dropped(topic, stamp.nanos(), value, DropReason::UnknownTopic);
            return;
        };
        here.queue.push_back((stamp.nanos(), value));
        if here.queue.len() == here.past + 1 {
            self.heads[topic] = stamp.nanos();
            self.ready += 1;
            self.process(out);
        }
        if self.topics[topic].queue.len() > self.queue_size {
            self.overflow(topic, out);
        }
    }

    /// Drops a topic's oldest message and restarts the search without it.
    #[cold]
    fn overflow(&mut self, full: usize, out: &mut impl Outlet<V>) {
        self.topics[full].has_dropped = true;
        self.has_dropped = true;
        if let Some((stamp, value)) = self.topics[full].queue.pop_front() {
            out.dropped(full, stamp, value, DropReason::QueueFull);
        }
        self.start_anew();
        if std::mem::take(&mut self.has_candidate) {
            self.process(out);
        }
    }

    /// Makes every topic's first message its head again.
    #[inline]
    fn start_anew(&mut self) {
        (self.ready, self.passed) = (0, 0);
        for (topic, head) in self.topics.iter_mut().zip(&mut self.heads) {
            topic.past = 0;
            *head = topic.head();
            self.ready += usize::from(!topic.queue.is_empty());
        }
    }

    fn process(&mut self, out: &mut impl Outlet<V>) {
        while self.ready == self.topics.len() {
            let (mut start_topic, start, end_topic, end) = bounds(&self.heads);
            if self.has_dropped {
                self.forgive_all_but(end_topic);
            }
            let mut is_best = false;
            if self.has_candidate {
                let best = &mut self.candidate;
                let grown = end.saturating_sub(best.end);
                let won = start.saturating_sub(best.start);
                if self.penalty.outweighs(grown, won) {
                    is_best = self.penalty.outweighs(grown, best.reach);
                } else {
                    *best = Candidate::new(start, end, best.pivot, best.pivot_time);
                    self.drop_passed(out);
                    start_topic = self.run_up(start_topic, out);
                }
            } else if let Some(reason) = self.obstacle(start, end, end_topic) {
                self.drop_head(start_topic, reason, out);
                continue;
            } else {
                // Nothing has been passed yet, so nothing is dropped.
                self.candidate = Candidate::new(start, end, end_topic, end);
                self.has_candidate = true;
                start_topic = self.run_up(start_topic, out);
            }
            self.pass_head(start_topic);
            // A candidate made just now has not grown: a later set can only gain.
            is_best |= start_topic == self.candidate.pivot || self.candidate.reach <= 0;
            is_best |= self.candidate.end.saturating_sub(self.candidate.start) <= self.early;
            if is_best || (self.ready < self.topics.len() && self.is_provably_best()) {
                self.publish(out);
            }
        }
    }

    /// Drops messages followed by one of their topic that is still not later than the latest head: a candidate made
    /// just now is replaced by one that starts later and ends as before. That happens to most messages, so the other
    /// tests are skipped. Returns the topic of the earliest head.
    fn run_up(&mut self, mut start_topic: usize, out: &mut impl Outlet<V>) -> usize {
        // Then every step may change what is forgiven.
        if self.has_dropped {
            return start_topic;
        }
        let Candidate {
            mut start,
            end,
            pivot,
            pivot_time,
            ..
        } = self.candidate;
        while start_topic != pivot && start < pivot_time {
            let queue = &mut self.topics[start_topic].queue;
            let Some(&(next, _)) = queue.get(1) else {
                break;
            };
            if next > end {
                break;
            }
            self.heads[start_topic] = next;
            let (next_topic, next_start) = earliest(&self.heads);
            if next_start <= start {
                // Two are equally early: nothing is gained yet.
                self.heads[start_topic] = start;
                break;
            }
            if let Some((stamp, value)) = queue.pop_front() {
                out.dropped(start_topic, stamp, value, DropReason::BetterMatch);
            }
            (start_topic, start) = (next_topic, next_start);
        }
        self.candidate = Candidate::new(start, end, pivot, pivot_time);
        start_topic
    }

    /// Why the heads cannot be a candidate.
    #[inline]
    fn obstacle(&self, start: i64, end: i64, end_topic: usize) -> Option<DropReason> {
        if end.saturating_sub(start) > self.max_interval {
            Some(DropReason::IntervalTooLong)
        } else if self.topics[end_topic].has_dropped {
            Some(DropReason::AfterLoss)
        } else {
            None
        }
    }

    /// No message dropped on another topic could have been better than the current ones.
    #[cold]
    fn forgive_all_but(&mut self, end_topic: usize) {
        for (number, topic) in self.topics.iter_mut().enumerate() {
            topic.has_dropped &= number == end_topic;
        }
        self.has_dropped = self.topics[end_topic].has_dropped;
    }

    /// Drops the messages that the candidate has passed.
    #[inline]
    fn drop_passed(&mut self, out: &mut impl Outlet<V>) {
        if std::mem::take(&mut self.passed) == 1 {
            // The usual case: the messages before a rare topic's are replaced one after the other.
            let number = self.last_passed;
            let topic = &mut self.topics[number];
            topic.past = 0;
            if let Some((stamp, value)) = topic.queue.pop_front() {
                out.dropped(number, stamp, value, DropReason::BetterMatch);
            }
        } else {
            self.drop_all_passed(out);
        }
    }

    fn drop_all_passed(&mut self, out: &mut impl Outlet<V>) {
        for (number, topic) in self.topics.iter_mut().enumerate() {
            // One by one: a drain costs more than removing these few.
            while topic.past > 0 {
                topic.past -= 1;
                if let Some((stamp, value)) = topic.queue.pop_front() {
                    out.dropped(number, stamp, value, DropReason::BetterMatch);
                }
            }
        }
    }

    #[inline]
    fn pass_head(&mut self, number: usize) {
        let topic = &mut self.topics[number];
        topic.past += 1;
        self.passed += 1;
        self.last_passed = number;
        self.heads[number] = topic.head();
        self.ready -= usize::from(topic.past == topic.queue.len());
    }

    fn drop_head(&mut self, number: usize, reason: DropReason, out: &mut impl Outlet<V>) {
        let topic = &mut self.topics[number];
        if let Some((stamp, value)) = topic.queue.pop_front() {
            out.dropped(number, stamp, value, reason);
        }
        self.heads[number] = topic.head();
        self.ready -= usize::from(topic.queue.is_empty());
    }

    /// Whether even the best possible missing heads could not make a better set.
    fn is_provably_best(&mut self) -> bool {
        let candidate = self.candidate;
        let pivot_time = candidate.pivot_time;
        for (topic, head) in self.topics.iter_mut().zip(&mut self.ahead) {
            topic.steps = 0;
            *head = topic.head_ahead(pivot_time);
        }
        // At most as many steps as there are heads before the pivot.
        loop {
            let (start_topic, start, _, end) = bounds(&self.ahead);
            let grown = end.saturating_sub(candidate.end);
            if self.penalty.outweighs(grown, candidate.reach) {
                return true;
            }
            let won = start.saturating_sub(candidate.start);
            if !self.penalty.outweighs(grown, won) {
                return false;
            }
            // Not the pivot: with it as the start, one of the two tests above is true.
            let topic = &mut self.topics[start_topic];
            topic.steps += 1;
            self.ahead[start_topic] = topic.head_ahead(pivot_time);
        }
    }

    fn publish(&mut self, out: &mut impl Outlet<V>) {
        let mut set = Vec::with_capacity(self.topics.len());
        for topic in &mut self.topics {
            if let Some((stamp, value)) = topic.queue.pop_front() {
                set.push(Stamped::new(stamp.into(), value));
            }
        }
        self.start_anew();
        self.has_candidate = false;
        out.matched(set);
    }
}

impl<V> Synchronizer<V> for ApproximateTime<V> {
    fn take_waiting(&mut self, gone: &mut Vec<V>) {
        for topic in &mut self.topics {
            gone.extend(topic.queue.drain(..).map(|(_, value)| value));
            topic.past = 0;
            topic.has_dropped = false;
        }
        self.heads.fill(i64::MAX);
        (self.ready, self.passed) = (0, 0);
        self.has_dropped = false;
        self.has_candidate = false;
    }

    fn topics(&self) -> usize {
        self.topics.len()
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>)) {
        self.take_in(topic, stamp, value, &mut Everything(emit));
    }

    #[inline]
    fn add_for_sets(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        found: &mut dyn FnMut(Vec<Stamped<V>>),
        gone: &mut Vec<V>,
    ) {
        self.take_in(topic, stamp, value, &mut Sets { found, gone });
    }
}

/// Where events go. Most messages are in no set: dropping one without a listener must cost no more than moving it.
trait Outlet<V> {
    fn matched(&mut self, set: Vec<Stamped<V>>);
    fn dropped(&mut self, topic: usize, stamp: i64, value: V, reason: DropReason);
}

struct Everything<'a, V>(&'a mut dyn FnMut(SyncEvent<V>));

impl<V> Outlet<V> for Everything<'_, V> {
    fn matched(&mut self, set: Vec<Stamped<V>>) {
        (self.0)(SyncEvent::Matched(set));
    }

    fn dropped(&mut self, topic: usize, stamp: i64, value: V, reason: DropReason) {
        (self.0)(SyncEvent::Dropped {
            topic,
            message: Stamped::new(stamp.into(), value),
            reason,
        });
    }
}

struct Sets<'a, V> {
    found: &'a mut dyn FnMut(Vec<Stamped<V>>),
    gone: &'a mut Vec<V>,
}

impl<V> Outlet<V> for Sets<'_, V> {
    fn matched(&mut self, set: Vec<Stamped<V>>) {
        (self.found)(set);
    }

    #[inline]
    fn dropped(&mut self, _: usize, _: i64, value: V, _: DropReason) {
        self.gone.push(value);
    }
}

/// Earliest and latest head: the first topic of those that share the earliest, the last of those that share the latest.
#[inline]
fn bounds(heads: &[i64]) -> (usize, i64, usize, i64) {
    let (mut start_topic, mut start, mut end_topic, mut end) = (0, i64::MAX, 0, i64::MIN);
    for (number, &head) in heads.iter().enumerate() {
        if head < start {
            (start_topic, start) = (number, head);
        }
        if head >= end {
            (end_topic, end) = (number, head);
        }
    }
    (start_topic, start, end_topic, end)
}

/// The earliest head, of the first topic of those that share it.
#[inline]
fn earliest(heads: &[i64]) -> (usize, i64) {
    let (mut topic, mut earliest) = (0, i64::MAX);
    for (number, &head) in heads.iter().enumerate() {
        if head < earliest {
            (topic, earliest) = (number, head);
        }
    }
    (topic, earliest)
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
