//! One of the aligned topics.

use std::collections::VecDeque;

use super::progress::Progress;
use super::{Match, Missing, Pick, Rule, Side, decide};
use crate::Duplicates;
use crate::sync::Stamped;

/// The newest messages of a topic. Invariant: sorted by stamp, equal ones in order of arrival, and everything
/// received after the first of them is there.
pub(super) struct Topic<V> {
    pub(super) rule: Rule,
    pub(super) progress: Progress,
    pub(super) has_ended: bool,
    /// No message of this topic is still to come before this stamp, whatever holds for the others.
    pub(super) reached: Option<i64>,
    queue: VecDeque<Held<V>>,
    bytes: u64,
    /// The largest stamp of a dropped message.
    forgotten: Option<i64>,
}

struct Held<V> {
    stamp: i64,
    value: V,
    bytes: u64,
}

/// What happened to a message.
#[derive(Default)]
pub(super) struct Put {
    pub(super) added: u64,
    pub(super) removed: u64,
    pub(super) is_duplicate: bool,
}

impl<V: Clone> Topic<V> {
    pub(super) fn new(rule: Rule) -> Self {
        Topic {
            rule,
            progress: Progress::default(),
            has_ended: false,
            reached: None,
            queue: VecDeque::new(),
            bytes: 0,
            forgotten: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a message with this stamp belongs before a dropped one.
    pub(super) fn has_forgotten(&self, stamp: i64) -> bool {
        self.forgotten.is_some_and(|forgotten| stamp < forgotten)
    }

    pub(super) fn put(&mut self, stamp: i64, value: V, bytes: u64, duplicates: Duplicates) -> Put {
        let at = self.queue.partition_point(|held| held.stamp <= stamp);
        let mut put = Put::default();
        let equal = at.checked_sub(1).map(|before| &mut self.queue[before]);
        if let Some(equal) = equal.filter(|equal| equal.stamp == stamp) {
            put.is_duplicate = duplicates != Duplicates::KeepAll;
            match duplicates {
                Duplicates::KeepAll => {}
                Duplicates::FirstWins => return put,
                Duplicates::LastWins => {
                    put.removed = std::mem::replace(&mut equal.bytes, bytes);
                    put.added = bytes;
                    equal.value = value;
                    self.bytes = self.bytes.saturating_add(put.added) - put.removed;
                    return put;
                }
            }
        }
        put.added = bytes;
        self.bytes = self.bytes.saturating_add(bytes);
        let held = Held {
            stamp,
            value,
            bytes,
        };
        self.queue.insert(at, held);
        put
    }

    /// Whether no message in time can change this topic's match for `t`.
    ///
    /// `watermark` is the smallest stamp that can still come; without one, the topic itself is ordered.
    pub(super) fn is_settled(&self, t: i64, watermark: Option<i64>) -> bool {
        if self.has_ended {
            return true;
        }
        let Some(watermark) = watermark.max(self.reached) else {
            return self.progress.newest() >= Some(t);
        };
        let (before, after) = self.neighbours(t);
        let (before, after) = (self.stamp(before), self.stamp(Some(after)));
        let tolerance = self.rule.tolerance;
        // What is still to come is at least this far after `t`, once it cannot be before it.
        let ahead = (watermark >= t).then(|| watermark.abs_diff(t));
        match self.rule.pick {
            Pick::Last => watermark > t,
            Pick::Nearest => {
                let distances = [before, after].into_iter().flatten();
                let nearest = distances.map(|stamp| stamp.abs_diff(t)).min();
                nearest == Some(0)
                    || ahead.is_some_and(|ahead| {
                        nearest.is_some_and(|nearest| nearest <= ahead)
                            || (ahead > tolerance
                                && nearest.is_none_or(|nearest| nearest > tolerance))
                    })
            }
            Pick::Interpolated => {
                after == Some(t)
                    || ahead.is_some_and(|ahead| {
                        after.is_some_and(|after| watermark >= after)
                            || ahead > tolerance
                            || (ahead > 0
                                && !self.rule.or_nearest
                                && before.is_some_and(|before| before.abs_diff(t) > tolerance))
                    })
            }
        }
    }

    pub(super) fn pick(&self, t: i64) -> Match<V> {
        let (before, after) = self.neighbours(t);
        if before.is_none() && self.forgotten.is_some() {
            // For an exact match, no dropped message could be nearer.
            let is_exact = self.rule.pick != Pick::Last && self.stamp(Some(after)) == Some(t);
            if !is_exact {
                return Match::Missing(Missing::Forgotten);
            }
        }
        let take = |side| {
            let held = match side {
                Side::Before => self.queue.get(before?)?,
                Side::After => self.queue.get(after)?,
            };
            Some(Stamped::new(held.stamp.into(), held.value.clone()))
        };
        let stamps = (self.stamp(before), self.stamp(Some(after)));
        decide(self.rule, t, stamps.0, stamps.1).into_match(take)
    }

    /// Drops everything before the last stamp at or before `keep`; returns its bytes.
    pub(super) fn forget_before(&mut self, keep: i64) -> u64 {
        let end = self.queue.partition_point(|held| held.stamp <= keep);
        let Some(last) = self.stamp(end.checked_sub(1)) else {
            return 0;
        };
        let mut bytes = 0;
        while self.queue.front().is_some_and(|first| first.stamp < last) {
            bytes += self.drop_first().map_or(0, |(_, bytes)| bytes);
        }
        bytes
    }

    pub(super) fn drop_first(&mut self) -> Option<(i64, u64)> {
        let held = self.queue.pop_front()?;
        self.bytes -= held.bytes;
        self.forgotten = self.forgotten.max(Some(held.stamp));
        Some((held.stamp, held.bytes))
    }

    /// Whether the oldest message could be the match for `t`.
    pub(super) fn needs_first(&self, t: i64) -> bool {
        let end = self.queue.partition_point(|held| held.stamp <= t);
        let first = self.stamp(Some(0));
        end.checked_sub(1)
            .is_none_or(|last| self.stamp(Some(last)) == first)
    }

    /// The message before `t` (at or before it for [`Pick::Last`]), and the one after that. Of equal ones the nearest
    /// is the first to arrive, on both sides.
    fn neighbours(&self, t: i64) -> (Option<usize>, usize) {
        let count_before = |t| self.queue.partition_point(|held| held.stamp < t);
        match self.rule.pick {
            Pick::Last => {
                let after = self.queue.partition_point(|held| held.stamp <= t);
                (after.checked_sub(1), after)
            }
            Pick::Interpolated => {
                let after = count_before(t);
                (after.checked_sub(1), after)
            }
            Pick::Nearest => {
                let after = count_before(t);
                (self.stamp(after.checked_sub(1)).map(count_before), after)
            }
        }
    }

    fn stamp(&self, index: Option<usize>) -> Option<i64> {
        self.queue.get(index?).map(|held| held.stamp)
    }
}
