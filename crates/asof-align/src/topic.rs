//! One of the aligned topics.

use crate::progress::Progress;
use crate::{Duplicates, Lane, Match, Missing, Pick, Rule};

/// The newest messages of a topic. Invariant: everything received after the first of them is there.
pub(crate) struct Topic<V> {
    pub(crate) rule: Rule,
    pub(crate) progress: Progress,
    pub(crate) has_ended: bool,
    /// No message of this topic is still to come before this stamp, whatever holds for the others.
    pub(crate) reached: Option<i64>,
    lane: Lane<Entry<V>>,
    bytes: u64,
    /// The largest stamp of a dropped message.
    forgotten: Option<i64>,
}

struct Entry<V> {
    value: V,
    bytes: u64,
}

/// What happened to a message.
#[derive(Default)]
pub(crate) struct Insertion {
    pub(crate) added: u64,
    pub(crate) removed: u64,
    pub(crate) is_duplicate: bool,
}

impl<V: Clone> Topic<V> {
    pub(crate) fn new(rule: Rule) -> Self {
        Topic {
            rule,
            progress: Progress::default(),
            has_ended: false,
            reached: None,
            lane: Lane::default(),
            bytes: 0,
            forgotten: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lane.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a message with this stamp belongs before a dropped one.
    pub(crate) fn has_forgotten(&self, stamp: i64) -> bool {
        self.forgotten.is_some_and(|forgotten| stamp < forgotten)
    }

    pub(crate) fn put(
        &mut self,
        stamp: i64,
        value: V,
        bytes: u64,
        duplicates: Duplicates,
    ) -> Insertion {
        let mut put = Insertion::default();
        let is_one = duplicates != Duplicates::KeepAll;
        if let Some(equal) = self.lane.last_at_mut(stamp).filter(|_| is_one) {
            put.is_duplicate = true;
            if duplicates == Duplicates::LastWins {
                put.removed = std::mem::replace(&mut equal.bytes, bytes);
                put.added = bytes;
                equal.value = value;
                self.bytes = self.bytes.saturating_add(put.added) - put.removed;
            }
            return put;
        }
        put.added = bytes;
        self.bytes = self.bytes.saturating_add(bytes);
        self.lane.insert(stamp, Entry { value, bytes });
        put
    }

    /// Whether no message in time can change this topic's match for `t`.
    ///
    /// `watermark` is the smallest stamp that can still come; without one, the topic itself is ordered. `now` is the
    /// progress of all topics.
    pub(crate) fn is_settled(&self, t: i64, watermark: Option<i64>, now: Option<i64>) -> bool {
        if self.has_ended {
            return true;
        }
        let Some(watermark) = watermark.max(self.reached) else {
            let newest = self.progress.trusted(now);
            return newest > Some(t) || (newest == Some(t) && self.rule.pick() != Pick::After);
        };
        self.lane.is_settled(t, self.rule, watermark)
    }

    pub(crate) fn pick(&self, t: i64) -> Match<V> {
        if self.forgotten.is_some() {
            let pick = self.rule.pick();
            let (before, after) = self.lane.neighbours(t, pick);
            let found = self.lane.stamp(Some(after));
            // No dropped message could be nearer than an exact match, or come after a later one.
            let is_exact = !matches!(pick, Pick::Last | Pick::Before) && found == Some(t);
            let is_next = match pick {
                Pick::Next => self.forgotten < Some(t),
                Pick::After => self.forgotten <= Some(t),
                _ => false,
            };
            if before.is_none() && !is_exact && !is_next {
                return Match::Missing(Missing::Forgotten);
            }
        }
        let found = self.lane.pick(t, self.rule);
        found.map(|held| held.value.clone())
    }

    /// Drops what no instant from `keep` on can match; returns its bytes.
    pub(crate) fn forget_before(&mut self, keep: i64) -> u64 {
        let past = self.lane.count_past(keep, self.rule.pick());
        let first = (0..past).filter_map(|_| self.drop_first());
        first.map(|(_, bytes)| bytes).sum()
    }

    pub(crate) fn drop_first(&mut self) -> Option<(i64, u64)> {
        let (stamp, held) = self.lane.pop_front()?;
        self.bytes -= held.bytes;
        self.forgotten = self.forgotten.max(Some(stamp));
        Some((stamp, held.bytes))
    }

    /// Whether the oldest message could be the match for `t`.
    pub(crate) fn needs_first(&self, t: i64) -> bool {
        self.lane.count_past(t, self.rule.pick()) == 0
    }
}
