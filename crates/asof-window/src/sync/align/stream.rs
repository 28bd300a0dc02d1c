//! Aligning topics as their messages come.

use std::collections::VecDeque;
use std::time::Duration;

use asof_core::Stamp;

use super::{Match, Missing, Pick, Rule, Side, decide};
use crate::sync::Stamped;

/// For each message of an anchor topic, what every other topic has for its stamp.
///
/// Messages are given one by one, in whatever order they arrive, live or from a recording. A row is emitted, in the
/// anchor's order, as soon as every topic has reached the anchor's stamp, so that nothing later can change it; or,
/// where that takes longer than the wait that was set, with what is there. Every anchor message gives exactly one
/// row, unless the queue of waiting ones is full; what is missing in a row is counted and explained.
///
/// ```
/// use asof_window::sync::{Align, Rule};
///
/// let mut align = Align::new(vec![Rule::nearest(), Rule::last()], 100);
/// let mut rows = Vec::new();
/// let mut emit = |row: asof_window::sync::Row<&'static str>| {
///     let values = row.matches.iter().map(|m| m.found().map(|found| found.value));
///     rows.push((row.anchor.value, values.collect::<Vec<_>>()));
/// };
/// align.add(0, 9.into(), "imu 9", &mut emit);
/// align.add_anchor(10.into(), "frame 10", &mut emit);
/// align.add(0, 12.into(), "imu 12", &mut emit);
/// align.add(1, 11.into(), "odometry 11", &mut emit);
/// assert_eq!(rows, [("frame 10", vec![Some("imu 9"), None])]);
/// ```
pub struct Align<V> {
    topics: Vec<Topic<V>>,
    anchors: VecDeque<Stamped<V>>,
    queue_size: usize,
    max_wait: Option<i64>,
    /// The largest stamp seen on any topic.
    now: Stamp,
    counters: AlignCounters,
}

struct Topic<V> {
    rule: Rule,
    queue: VecDeque<(i64, V)>,
    /// The largest stamp that ever came, even if its message is gone.
    newest: Option<i64>,
}

/// An anchor message, and what every other topic has for it, in the order of the rules.
#[derive(Debug, Clone)]
pub struct Row<V> {
    /// The message of the anchor topic.
    pub anchor: Stamped<V>,
    /// What the others have.
    pub matches: Vec<Match<V>>,
    /// Whether the row was emitted before every topic had reached the anchor's stamp.
    pub is_early: bool,
}

impl<V> Row<V> {
    /// Whether every topic has something.
    pub fn is_complete(&self) -> bool {
        self.matches.iter().all(|found| found.missing().is_none())
    }
}

/// What became of the messages of an [`Align`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlignCounters {
    /// Rows emitted.
    pub rows: u64,
    /// Rows in which every topic has something.
    pub complete: u64,
    /// Rows emitted because the wait was over.
    pub early: u64,
    /// Anchor messages that were dropped because too many were waiting.
    pub anchors_dropped: u64,
    /// For each topic, rows in which it has nothing because it had no message, none yet, or none any more.
    pub absent: Vec<u64>,
    /// For each topic, rows in which its message is farther away than the tolerance.
    pub too_far: Vec<u64>,
    /// For each topic, messages that were dropped because too many were waiting.
    pub dropped: Vec<u64>,
}

impl<V: Clone> Align<V> {
    /// Aligns as many topics as there are rules. At most `queue_size` messages wait per topic.
    pub fn new(rules: Vec<Rule>, queue_size: usize) -> Self {
        let zeros = vec![0; rules.len()];
        let topic = |rule| Topic {
            rule,
            queue: VecDeque::new(),
            newest: None,
        };
        Align {
            topics: rules.into_iter().map(topic).collect(),
            anchors: VecDeque::new(),
            queue_size: queue_size.max(2),
            max_wait: None,
            now: Stamp::MIN,
            counters: AlignCounters {
                absent: zeros.clone(),
                too_far: zeros.clone(),
                dropped: zeros,
                ..AlignCounters::default()
            },
        }
    }

    /// A row is emitted at the latest when some topic is ahead of its anchor by this much.
    #[must_use]
    pub fn with_max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX));
        self
    }

    /// Takes in a message of the anchor topic.
    pub fn add_anchor(&mut self, stamp: Stamp, value: V, emit: &mut dyn FnMut(Row<V>)) {
        let at = self.anchors.partition_point(|anchor| anchor.stamp <= stamp);
        self.anchors.insert(at, Stamped::new(stamp, value));
        if self.anchors.len() > self.queue_size {
            self.anchors.pop_front();
            self.counters.anchors_dropped += 1;
        }
        self.now = self.now.max(stamp);
        self.release(emit);
    }

    /// Takes in a message of topic `topic`, in the order of the rules. Topics without a rule are passed over.
    pub fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(Row<V>)) {
        let Some(here) = self.topics.get_mut(topic) else {
            return;
        };
        let nanos = stamp.nanos();
        let at = here.queue.partition_point(|(other, _)| *other <= nanos);
        here.queue.insert(at, (nanos, value));
        here.newest = here.newest.max(Some(nanos));
        if here.queue.len() > self.queue_size {
            here.queue.pop_front();
            self.counters.dropped[topic] += 1;
        }
        self.now = self.now.max(stamp);
        self.release(emit);
    }

    /// Emits what still waits, at the end of a recording.
    pub fn finish(&mut self, emit: &mut dyn FnMut(Row<V>)) {
        while let Some(anchor) = self.anchors.pop_front() {
            let row = self.row(anchor, false);
            emit(row);
        }
    }

    /// What became of the messages so far.
    pub fn counters(&self) -> &AlignCounters {
        &self.counters
    }

    fn release(&mut self, emit: &mut dyn FnMut(Row<V>)) {
        while let Some(first) = self.anchors.front() {
            let t = first.stamp;
            let is_settled = self
                .topics
                .iter()
                .all(|topic| topic.newest >= Some(t.nanos()));
            let is_over = self.max_wait.is_some_and(|wait| self.now.since(t) >= wait);
            if !is_settled && !is_over {
                return;
            }
            if let Some(anchor) = self.anchors.pop_front() {
                let row = self.row(anchor, !is_settled);
                emit(row);
            }
        }
    }

    fn row(&mut self, anchor: Stamped<V>, is_early: bool) -> Row<V> {
        let t = anchor.stamp.nanos();
        let mut matches = Vec::with_capacity(self.topics.len());
        for (number, topic) in self.topics.iter_mut().enumerate() {
            let found = topic.pick(t);
            match found.missing() {
                Some(Missing::TooFar(_)) => self.counters.too_far[number] += 1,
                Some(_) => self.counters.absent[number] += 1,
                None => {}
            }
            matches.push(found);
            topic.forget_before(t);
        }
        let row = Row {
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

impl<V: Clone> Topic<V> {
    fn pick(&self, t: i64) -> Match<V> {
        let split = match self.rule.pick {
            Pick::Last => self.queue.partition_point(|(stamp, _)| *stamp <= t),
            _ => self.queue.partition_point(|(stamp, _)| *stamp < t),
        };
        let before = split.checked_sub(1);
        let stamp = |index: usize| self.queue.get(index).map(|(stamp, _)| *stamp);
        let take = |side| {
            let (stamp, value) = match side {
                Side::Before => self.queue.get(before?)?,
                Side::After => self.queue.get(split)?,
            };
            Some(Stamped::new((*stamp).into(), value.clone()))
        };
        decide(self.rule, t, before.and_then(stamp), stamp(split)).into_match(take)
    }

    /// Later anchors need nothing before the last message at or before this one.
    fn forget_before(&mut self, t: i64) {
        let needless = self.queue.partition_point(|(stamp, _)| *stamp < t);
        self.queue.drain(..needless.saturating_sub(1));
    }
}
