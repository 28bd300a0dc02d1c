//! Two sides in order of time.

use std::collections::HashMap;
use std::hash::Hash;

use crate::{Lane, Match, Missing, Pick, Rule, Span};

/// The messages of one side so far, by key, as long as those of the other can still match them. Both sides are in order of
/// time, and nothing is looked up before it is needed.
///
/// A message without a key is added to no side: what is unknown equals nothing, not even something unknown.
///
/// ```
/// use asof_align::{Merge, Rule};
///
/// let mut known = Merge::new(Rule::last());
/// let mut imu = [(10, "a"), (20, "b"), (30, "c")].into_iter().peekable();
/// let mut at = |t: i64| {
///     while let Some((stamp, value)) = imu.next_if(|(stamp, _)| known.needs(&(), t, *stamp)) {
///         known.add((), stamp, value);
///     }
///     known.pick(&(), t).found().map(|message| *message.value)
/// };
/// assert_eq!([at(5), at(20), at(29)], [None, Some("b"), Some("b")]);
/// ```
#[derive(Debug, Clone)]
pub struct Merge<K, V> {
    rule: Rule,
    lanes: HashMap<K, Lane<V>>,
}

impl<K: Hash + Eq, V> Merge<K, V> {
    /// Nothing yet.
    pub fn new(rule: Rule) -> Self {
        Merge {
            rule,
            lanes: HashMap::new(),
        }
    }

    /// The rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Whether a message at `next`, of any key, has to be added before an instant `t` can be answered.
    #[inline]
    pub fn needs(&self, key: &K, t: i64, next: i64) -> bool {
        !match self.lanes.get(key) {
            Some(lane) => lane.is_settled(t, self.rule, next),
            None => self.rule.is_settled(t, None, None, next),
        }
    }

    /// Adds a message that is [needed](Self::needs).
    #[inline]
    pub fn add(&mut self, key: K, stamp: i64, value: V) {
        let lane = self.lanes.entry(key).or_default();
        // It is before the instant that needs it, so nothing before it can match again.
        if matches!(self.rule.pick(), Pick::Last | Pick::Before) {
            lane.clear();
        }
        lane.insert(stamp, value);
    }

    /// The match for an instant. Instants ascend, for all keys together.
    pub fn pick(&mut self, key: &K, t: i64) -> Match<&V> {
        let Some(lane) = self.lanes.get_mut(key) else {
            return Match::Missing(Missing::Nothing);
        };
        let past = lane.count_past(t, self.rule.pick());
        lane.remove_first(past);
        lane.pick(t, self.rule)
    }

    /// All messages that are held.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.lanes.values().flat_map(Lane::values)
    }
}

/// As above, for all messages around an instant instead of one.
#[derive(Debug, Clone)]
pub struct SpanMerge<K, V> {
    span: Span,
    lanes: HashMap<K, Lane<V>>,
}

impl<K: Hash + Eq, V> SpanMerge<K, V> {
    /// Nothing yet.
    pub fn new(span: Span) -> Self {
        SpanMerge {
            span,
            lanes: HashMap::new(),
        }
    }

    /// Whether a message at `next` has to be added before an instant `t` can be answered.
    #[inline]
    pub fn needs(&self, t: i64, next: i64) -> bool {
        next <= self.span.around(t).1
    }

    /// Adds a message that is [needed](Self::needs).
    pub fn add(&mut self, key: K, stamp: i64, value: V) {
        self.lanes.entry(key).or_default().insert(stamp, value);
    }

    /// The messages around an instant, in order. Instants ascend, for all keys together.
    pub fn pick(&self, key: &K, t: i64) -> impl Iterator<Item = &V> {
        let (start, end) = self.span.around(t);
        let lane = self.lanes.get(key);
        let range = lane.map_or(0..0, |lane| lane.range(start, end));
        range.filter_map(move |at| Some(lane?.get(at)?.1))
    }

    /// Drops what is not around any instant from `t` on.
    pub fn forget(&mut self, t: i64) {
        let (start, _) = self.span.around(t);
        self.lanes.retain(|_, lane| {
            let past = lane.range(i64::MIN, start.saturating_sub(1)).end;
            lane.remove_first(past);
            !lane.is_empty()
        });
    }

    /// All messages that are held.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.lanes.values().flat_map(Lane::values)
    }
}
