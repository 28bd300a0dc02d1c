//! The messages of one topic that a stream holds.

use std::collections::VecDeque;
use std::ops::Range;

use asof_core::Stamp;

use crate::{Match, Pick, Rule, Side, Stamped};

/// The messages of one topic, or of one key of it. Invariant: sorted by stamp, equal ones in order of arrival.
#[derive(Debug, Clone)]
pub struct Lane<V> {
    queue: VecDeque<(i64, V)>,
}

impl<V> Default for Lane<V> {
    fn default() -> Self {
        Lane {
            queue: VecDeque::new(),
        }
    }
}

impl<V> Lane<V> {
    /// The number of messages.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A message, by its index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(i64, &V)> {
        self.queue.get(index).map(|(stamp, value)| (*stamp, value))
    }

    /// The first message.
    #[inline]
    pub fn first(&self) -> Option<(i64, &V)> {
        self.get(0)
    }

    /// The last to arrive of those with this stamp.
    pub fn last_at_mut(&mut self, stamp: i64) -> Option<&mut V> {
        let at = self.count_until(stamp).checked_sub(1)?;
        let (found, value) = self.queue.get_mut(at)?;
        (*found == stamp).then_some(value)
    }

    /// Adds a message, after those with the same stamp.
    pub fn insert(&mut self, stamp: i64, value: V) {
        if self.queue.back().is_none_or(|(last, _)| *last <= stamp) {
            self.queue.push_back((stamp, value));
        } else {
            let at = self.count_until(stamp);
            self.queue.insert(at, (stamp, value));
        }
    }

    /// Adds a message that is not after the first one; returns whether it was not.
    pub fn push_front(&mut self, stamp: i64, value: V) -> bool {
        let is_first = self.first().is_none_or(|(first, _)| stamp <= first);
        if is_first {
            self.queue.push_front((stamp, value));
        }
        is_first
    }

    /// Removes the first message.
    pub fn pop_front(&mut self) -> Option<(i64, V)> {
        self.queue.pop_front()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// All values, in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.queue.iter().map(|(_, value)| value)
    }

    /// The match for the instant `t`.
    #[inline]
    pub fn pick(&self, t: i64, rule: Rule) -> Match<&V> {
        let (before, after) = self.neighbours(t, rule.pick());
        let take = |side| {
            let at = match side {
                Side::Before => before?,
                Side::After => after,
            };
            let (stamp, value) = self.get(at)?;
            Some(Stamped::new(Stamp::from_nanos(stamp), value))
        };
        let stamps = (self.stamp(before), self.stamp(Some(after)));
        rule.decide(t, stamps.0, stamps.1).into_match(take)
    }

    /// Whether no message that is still to come can change the match for `t`, where none is to come before `watermark`.
    #[inline]
    pub fn is_settled(&self, t: i64, rule: Rule, watermark: i64) -> bool {
        // Of what was last known, the watermark alone decides.
        match rule.pick() {
            Pick::Last => return watermark > t,
            Pick::Before => return watermark >= t,
            _ => {}
        }
        let (before, after) = self.neighbours(t, rule.pick());
        rule.is_settled(t, self.stamp(before), self.stamp(Some(after)), watermark)
    }

    /// How many messages no instant from `t` on can match.
    pub fn count_past(&self, t: i64, pick: Pick) -> usize {
        let known = match pick {
            Pick::Before => self.count_before(t),
            _ => self.count_until(t),
        };
        // All with the stamp of the last one stay: the first of them may be the nearest.
        let last = self.stamp(known.checked_sub(1));
        last.map_or(0, |last| self.count_before(last))
    }

    /// Removes the first messages.
    pub fn remove_first(&mut self, count: usize) {
        self.queue.drain(..count);
    }

    /// The indexes of the messages from `start` to `end`, both in.
    pub fn range(&self, start: i64, end: i64) -> Range<usize> {
        let first = self.count_before(start);
        first..self.count_until(end).max(first)
    }

    /// The message before `t`, and the one after that, as [`Rule::decide`] wants them. Of equal ones the nearest is the first to arrive,
    /// on both sides.
    #[inline]
    pub(crate) fn neighbours(&self, t: i64, pick: Pick) -> (Option<usize>, usize) {
        let after = if pick.is_split_after_equal() {
            self.count_until(t)
        } else {
            self.count_before(t)
        };
        let before = after.checked_sub(1);
        if pick != Pick::Nearest {
            return (before, after);
        }
        let first = |last: usize| {
            let stamp = self.queue[last].0;
            let is_alone = last == 0 || self.queue[last - 1].0 < stamp;
            if is_alone {
                last
            } else {
                self.count_before(stamp)
            }
        };
        (before.map(first), after)
    }

    #[inline]
    pub(crate) fn stamp(&self, index: Option<usize>) -> Option<i64> {
        self.queue.get(index?).map(|(stamp, _)| *stamp)
    }

    /// How many are before `t`.
    #[inline]
    fn count_before(&self, t: i64) -> usize {
        self.queue.partition_point(|(stamp, _)| *stamp < t)
    }

    /// How many are at or before `t`.
    #[inline]
    fn count_until(&self, t: i64) -> usize {
        self.queue.partition_point(|(stamp, _)| *stamp <= t)
    }
}
