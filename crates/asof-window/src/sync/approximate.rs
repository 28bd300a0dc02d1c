//! Approximate time, as message_filters has it.

use std::collections::VecDeque;
use std::time::Duration;

use asof_core::Stamp;

use super::{DropReason, Event, Stamped, Synchronizer, unknown};

/// Finds sets of messages that are as close together as can be, one of each topic, each message used at most once.
///
/// The sets, their order, and the moment at which they are found are those of message_filters' `ApproximateTime`
/// policy for the same messages in the same order. Beyond it, any number of topics can be joined, and whatever
/// ends up in no set is given back with a reason.
///
/// A set is found when no later message could make a better one. That is known once the next message of the
/// deciding topic is there, or earlier if [`ApproximateTime::with_lower_bound`] says how close two messages of a
/// topic can be.
///
/// ```
/// use asof_window::sync::{ApproximateTime, Event, Synchronizer};
///
/// let mut sync = ApproximateTime::new(2, 10);
/// let mut sets = Vec::new();
/// for (topic, stamp) in [(0, 100), (1, 103), (0, 200), (1, 204), (0, 300)] {
///     sync.add(topic, stamp.into(), stamp, &mut |event| {
///         if let Event::Matched(set) = event {
///             sets.push((set[0].value, set[1].value));
///         }
///     });
/// }
/// assert_eq!(sets, [(100, 103), (200, 204)]);
/// ```
pub struct ApproximateTime<V> {
    topics: Vec<Topic<V>>,
    queue_size: usize,
    penalty: f64,
    max_interval: i64,
    /// How many topics have a head.
    ready: usize,
    /// Whether any topic has lost a message.
    has_dropped: bool,
    candidate: Option<Candidate>,
}

/// Messages of one topic that wait. Those before `past` have been looked at for the present candidate, whose
/// message is the first of all. The one at `past` is the topic's head.
struct Topic<V> {
    queue: VecDeque<(i64, V)>,
    past: usize,
    /// The head's stamp; `i64::MAX` while there is none.
    head: i64,
    /// Where `past` was before a search ahead.
    saved: usize,
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
}

impl Candidate {
    /// How much earlier than the pivot it starts: what a later set can win at most.
    fn reach(&self) -> i64 {
        self.pivot_time.saturating_sub(self.start)
    }
}

impl<V> Topic<V> {
    /// Notes the head's stamp.
    #[inline]
    fn look_up(&mut self) {
        let head = self.queue.get(self.past);
        self.head = head.map_or(i64::MAX, |(stamp, _)| *stamp);
    }

    /// The message at `past`, or the earliest that it could be.
    #[inline]
    fn virtual_head(&self, pivot_time: i64) -> i64 {
        if let Some((stamp, _)) = self.queue.get(self.past) {
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
            head: i64::MAX,
            saved: 0,
            has_dropped: false,
            lower_bound: 0,
        };
        ApproximateTime {
            topics: (0..topics).map(|_| topic()).collect(),
            queue_size: queue_size.max(1),
            penalty: 0.1,
            max_interval: i64::MAX,
            ready: 0,
            has_dropped: false,
            candidate: None,
        }
    }

    /// By how much a later set must be better than an earlier one; 0.1 unless said otherwise.
    #[must_use]
    pub fn with_age_penalty(mut self, penalty: f64) -> Self {
        self.penalty = penalty.max(0.0);
        self
    }

    /// No set spans more than this.
    #[must_use]
    pub fn with_max_interval(mut self, interval: Duration) -> Self {
        self.max_interval = nanos(interval);
        self
    }

    /// Two messages of this topic are never closer than this. Sets are found earlier, but are wrong if it is.
    #[must_use]
    pub fn with_lower_bound(mut self, topic: usize, bound: Duration) -> Self {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.lower_bound = nanos(bound);
        }
        self
    }

    /// Forgets everything that waits.
    pub fn clear(&mut self) {
        for topic in &mut self.topics {
            topic.queue.clear();
            topic.past = 0;
            topic.look_up();
            topic.has_dropped = false;
        }
        self.ready = 0;
        self.has_dropped = false;
        self.candidate = None;
    }

    fn process(&mut self, emit: &mut dyn FnMut(Event<V>)) {
        while self.ready == self.topics.len() {
            let (start_topic, start, end_topic, end) = self.heads();
            if self.has_dropped {
                self.forgive_all_but(end_topic);
            }
            let candidate = match self.candidate {
                None => {
                    let reason = if end.saturating_sub(start) > self.max_interval {
                        Some(DropReason::IntervalTooLong)
                    } else if self.topics[end_topic].has_dropped {
                        Some(DropReason::AfterLoss)
                    } else {
                        None
                    };
                    if let Some(reason) = reason {
                        self.drop_head(start_topic, reason, emit);
                        continue;
                    }
                    self.take_candidate(start, end, end_topic, end, emit)
                }
                Some(best) if !self.outgrows(end, best.end, start.saturating_sub(best.start)) => {
                    self.take_candidate(start, end, best.pivot, best.pivot_time, emit)
                }
                Some(best) => best,
            };
            self.pass_head(start_topic);
            let is_exhausted = start_topic == candidate.pivot;
            let is_best = is_exhausted || self.outgrows(end, candidate.end, candidate.reach());
            if is_best || (self.ready < self.topics.len() && self.is_provably_best(candidate)) {
                self.publish(emit);
            }
        }
    }

    /// Nothing that was lost on another topic could have been better than what is there now.
    #[cold]
    fn forgive_all_but(&mut self, end_topic: usize) {
        for (number, topic) in self.topics.iter_mut().enumerate() {
            topic.has_dropped &= number == end_topic;
        }
        self.has_dropped = self.topics[end_topic].has_dropped;
    }

    /// Earliest and latest head: the first topic of those that share the earliest, the last of those that share the
    /// latest.
    #[inline]
    fn heads(&self) -> (usize, i64, usize, i64) {
        bounds(self.topics.iter().map(|topic| topic.head))
    }

    fn take_candidate(
        &mut self,
        start: i64,
        end: i64,
        pivot: usize,
        pivot_time: i64,
        emit: &mut dyn FnMut(Event<V>),
    ) -> Candidate {
        for (number, topic) in self.topics.iter_mut().enumerate() {
            // One by one: a drain costs more than the few that it takes out.
            while topic.past > 0 {
                topic.past -= 1;
                if let Some((stamp, value)) = topic.queue.pop_front() {
                    emit(dropped(number, stamp, value, DropReason::BetterMatch));
                }
            }
        }
        let candidate = Candidate {
            start,
            end,
            pivot,
            pivot_time,
        };
        self.candidate = Some(candidate);
        candidate
    }

    #[inline]
    fn pass_head(&mut self, topic: usize) {
        let topic = &mut self.topics[topic];
        topic.past += 1;
        topic.look_up();
        self.ready -= usize::from(topic.past == topic.queue.len());
    }

    fn drop_head(&mut self, number: usize, reason: DropReason, emit: &mut dyn FnMut(Event<V>)) {
        let topic = &mut self.topics[number];
        if let Some((stamp, value)) = topic.queue.pop_front() {
            emit(dropped(number, stamp, value, reason));
        }
        topic.look_up();
        self.ready -= usize::from(topic.queue.is_empty());
    }

    /// Whether even the best that the missing heads could bring is no better.
    fn is_provably_best(&mut self, candidate: Candidate) -> bool {
        let pivot_time = candidate.pivot_time;
        // At most as many steps as there are heads before the pivot; they are taken back afterwards.
        for topic in &mut self.topics {
            topic.saved = topic.past;
        }
        let is_best = loop {
            let heads = self.topics.iter();
            let (start_topic, start, _, end) =
                bounds(heads.map(|topic| topic.virtual_head(pivot_time)));
            if self.outgrows(end, candidate.end, candidate.reach()) {
                break true;
            }
            if !self.outgrows(end, candidate.end, start.saturating_sub(candidate.start)) {
                break false;
            }
            // Not the pivot: with it as the start, one of the two tests above is true.
            self.topics[start_topic].past += 1;
        };
        for topic in &mut self.topics {
            topic.past = topic.saved;
        }
        is_best
    }

    fn publish(&mut self, emit: &mut dyn FnMut(Event<V>)) {
        let mut set = Vec::with_capacity(self.topics.len());
        self.ready = 0;
        for topic in &mut self.topics {
            topic.past = 0;
            if let Some((stamp, value)) = topic.queue.pop_front() {
                set.push(Stamped::new(stamp.into(), value));
            }
            topic.look_up();
            self.ready += usize::from(!topic.queue.is_empty());
        }
        self.candidate = None;
        emit(Event::Matched(set));
    }

    /// Whether a set that ends at `end` instead of `best` has lost, by the age penalty, what it won at its start.
    #[inline]
    fn outgrows(&self, end: i64, best: i64, won: i64) -> bool {
        let grown = end.saturating_sub(best);
        let surplus = grown as f64 * (1.0 + self.penalty) - won as f64;
        // Far from equal, rounding does not matter.
        if surplus.abs() > 16.0 + grown.unsigned_abs() as f64 * 1e-9 {
            return surplus > 0.0;
        }
        self.penalized(grown) >= won
    }

    /// `nanos * (1 + penalty)`, rounded as `ros::Duration` rounds it: the same sets to the last nanosecond.
    #[inline]
    fn penalized(&self, nanos: i64) -> i64 {
        if nanos == 0 {
            return 0;
        }
        let (seconds, rest) = (
            nanos.div_euclid(1_000_000_000),
            nanos.rem_euclid(1_000_000_000),
        );
        let scaled = (seconds as f64 + 1e-9 * rest as f64) * (1.0 + self.penalty);
        let whole = scaled.floor();
        (whole as i64)
            .saturating_mul(1_000_000_000)
            .saturating_add(((scaled - whole) * 1e9).round() as i64)
    }
}

impl<V> Synchronizer<V> for ApproximateTime<V> {
    fn topics(&self) -> usize {
        self.topics.len()
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(Event<V>)) {
        let Some(here) = self.topics.get_mut(topic) else {
            emit(unknown(topic, stamp, value));
            return;
        };
        here.queue.push_back((stamp.nanos(), value));
        if here.queue.len() == here.past + 1 {
            here.head = stamp.nanos();
            self.ready += 1;
            self.process(emit);
        }
        let here = &self.topics[topic];
        if here.queue.len() <= self.queue_size {
            return;
        }
        // The search starts anew without the oldest message.
        for topic in &mut self.topics {
            topic.past = 0;
            topic.look_up();
        }
        self.ready = self
            .topics
            .iter()
            .filter(|topic| !topic.queue.is_empty())
            .count();
        self.topics[topic].has_dropped = true;
        self.has_dropped = true;
        if let Some((stamp, value)) = self.topics[topic].queue.pop_front() {
            emit(dropped(topic, stamp, value, DropReason::QueueFull));
        }
        self.topics[topic].look_up();
        if self.candidate.take().is_some() {
            self.process(emit);
        }
    }
}

#[inline]
fn bounds(heads: impl Iterator<Item = i64>) -> (usize, i64, usize, i64) {
    let (mut start_topic, mut start, mut end_topic, mut end) = (0, i64::MAX, 0, i64::MIN);
    for (number, head) in heads.enumerate() {
        if head < start {
            (start_topic, start) = (number, head);
        }
        if head >= end {
            (end_topic, end) = (number, head);
        }
    }
    (start_topic, start, end_topic, end)
}

fn dropped<V>(topic: usize, stamp: i64, value: V, reason: DropReason) -> Event<V> {
    Event::Dropped {
        topic,
        message: Stamped::new(stamp.into(), value),
        reason,
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
