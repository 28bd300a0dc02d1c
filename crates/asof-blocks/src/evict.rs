//! Eviction: what goes when room is needed.

use asof_core::{Stamp, TimeRange};

use crate::budget::Reservation;
use crate::coverage::{after, before};
use crate::head::{Head, HeadClass};
use crate::names::TopicSet;
use crate::store::{BlockSet, Slot, State};

impl State {
    /// Reserves `bytes` more for `charge`, evicting until they fit. `false` if they cannot.
    pub fn reserve(&mut self, charge: &mut Reservation, bytes: u64, class: HeadClass) -> bool {
        if bytes > self.budget.limit() {
            return false;
        }
        while !charge.try_grow(bytes) {
            if !self.evict_one(class) {
                return false;
            }
        }
        true
    }

    /// Evicts until the budget holds, after the limit was lowered.
    pub fn fit(&mut self) {
        while self.budget.is_over()
            && (self.evict_one(HeadClass::Playback) || self.evict_protected())
        {}
    }

    /// Evicts a block that a playback head needs: the one it would reach last.
    fn evict_protected(&mut self) -> bool {
        let victim = self.furthest(false);
        victim.is_some_and(|(set, start)| self.evict(set, start))
    }

    /// Evicts one block on behalf of a reader of this class. `false` if nothing may go.
    ///
    /// In this order: topics that no head wants, blocks that only scans have read, the block furthest from
    /// any head, remembered facts about times that are not held. Scans displace only the first two.
    pub fn evict_one(&mut self, class: HeadClass) -> bool {
        let unwanted = self.unwanted();
        if unwanted.is_none() && self.trim_one() {
            return true;
        }
        let victim = unwanted.or_else(|| self.scanned()).or_else(|| {
            (class > HeadClass::Scan)
                .then(|| self.furthest(true))
                .flatten()
        });
        match victim {
            Some((set, start)) => self.evict(set, start),
            None => class > HeadClass::Scan && self.forget_oldest_fact(),
        }
    }

    fn evict(&mut self, set: usize, start: Stamp) -> bool {
        let topics = self
            .evicted
            .is_some()
            .then(|| self.sets[set].topics.clone());
        let Some(block) = self.remove(set, start) else {
            return false;
        };
        self.counters.evictions += 1;
        if let (Some(evicted), Some(topics)) = (&mut self.evicted, topics) {
            evicted.push((topics, block));
        }
        true
    }

    /// The first block of a set that no head wants.
    fn unwanted(&self) -> Option<(usize, Stamp)> {
        let is_unwanted = |set: &BlockSet| {
            !set.blocks.is_empty() && !self.heads.iter().any(|head| head.wants(set))
        };
        let (index, set) = self
            .sets
            .iter()
            .enumerate()
            .find(|(_, set)| is_unwanted(set))?;
        let (&start, _) = set.blocks.first_key_value()?;
        Some((index, start))
    }

    /// Removes the topics that no head wants from a block that also has others.
    ///
    /// Only where it frees enough, since the block has to be copied.
    fn trim_one(&mut self) -> bool {
        let mut wanted = TopicSet::default();
        for head in &self.heads {
            wanted.add(&head.topics);
        }
        let found = self.sets.iter().enumerate().find_map(|(index, set)| {
            let kept = set.topics.intersection(&wanted);
            if kept.is_empty() || kept == set.topics {
                return None;
            }
            let is_worth_it = |(_, slot): &(&Stamp, &Slot)| {
                slot.block.cost_without(&kept) * 8 >= slot.charge.bytes()
            };
            // Blocks of one set are alike: if none at the ends is worth it, hardly any is.
            let ends = set
                .blocks
                .iter()
                .take(8)
                .chain(set.blocks.iter().rev().take(8));
            let (&start, slot) = ends.into_iter().find(is_worth_it)?;
            Some((index, start, slot.class, kept))
        });
        let Some((index, start, class, kept)) = found else {
            return false;
        };
        let topics = self
            .evicted
            .is_some()
            .then(|| self.sets[index].topics.clone());
        let Some(whole) = self.remove(index, start) else {
            return false;
        };
        let trimmed = whole.only(&kept, &self.names.table());
        let mut charge = self.budget.nothing();
        // Dropping the original block freed more than enough.
        if charge.try_grow(trimmed.footprint()) {
            self.commit(&kept, trimmed, class, charge);
        }
        self.counters.trims += 1;
        if let (Some(evicted), Some(topics)) = (&mut self.evicted, topics) {
            evicted.push((topics, whole));
        }
        true
    }

    /// A block that only scans have read and that no playback head is about to reach.
    fn scanned(&self) -> Option<(usize, Stamp)> {
        self.sets.iter().enumerate().find_map(|(index, set)| {
            if set.scans.is_empty() {
                return None;
            }
            let protected = self.protected(set);
            // Blocks in a protected chain are few and contiguous: searching from both ends is enough.
            let ends = set
                .scans
                .iter()
                .take(8)
                .chain(set.scans.iter().rev().take(8));
            ends.copied()
                .find(|&start| is_free(set, start, &protected))
                .map(|start| (index, start))
        })
    }

    /// The block furthest from every head, among the unprotected ones or among all.
    ///
    /// The cost rises with the distance from the nearest head, so only a few places can be the furthest: the
    /// ends, the edges of protected chains, and the watersheds between heads.
    fn furthest(&self, spares_protected: bool) -> Option<(usize, Stamp)> {
        let mut best: Option<(u64, usize, Stamp)> = None;
        for (index, set) in self.sets.iter().enumerate() {
            if set.blocks.is_empty() {
                continue;
            }
            let protected = if spares_protected {
                self.protected(set)
            } else {
                Vec::new()
            };
            let mut heads: Vec<&Head> = self.heads.iter().filter(|head| head.wants(set)).collect();
            heads.sort_unstable_by_key(|head| head.options.position);
            let mut consider = |range: Option<TimeRange>| {
                let is_free =
                    |range: &TimeRange| !protected.iter().any(|chain| chain.overlaps(*range));
                let Some(range) = range.filter(is_free) else {
                    return;
                };
                let near = heads.iter().map(|head| head.distance(range)).min();
                let distance = near.unwrap_or(u64::MAX);
                if best.is_none_or(|(known, _, _)| distance > known) {
                    best = Some((distance, index, range.start));
                }
            };
            consider(set.blocks.first_key_value().map(range));
            consider(set.blocks.last_key_value().map(range));
            for pair in heads.windows(2) {
                let middle = pair[0].watershed(pair[1]);
                consider(set.at_or_before(middle));
                consider(set.next_after(middle));
            }
            for chain in &protected {
                // The block with the chain's first instant may begin earlier: search before that block.
                let first = set.at_or_before(chain.start);
                let edge = first.map_or(chain.start, |first| first.start.min(chain.start));
                consider(before(edge).and_then(|t| set.at_or_before(t)));
                consider(set.next_after(chain.end));
            }
        }
        best.map(|(_, index, start)| (index, start))
    }

    /// The chains of this set that playback heads need unbroken.
    fn protected(&self, set: &BlockSet) -> Vec<TimeRange> {
        let playing = self
            .heads
            .iter()
            .filter(|head| head.options.class == HeadClass::Playback && head.wants(set));
        playing
            .filter_map(|head| {
                let chain = set.covered.at(head.options.position)?;
                Some(head.protected(chain))
            })
            .filter(|chain| !chain.is_empty())
            .collect()
    }
}

impl Head {
    fn wants(&self, set: &BlockSet) -> bool {
        self.topics.intersects(&set.topics)
    }
}

impl BlockSet {
    fn at_or_before(&self, t: Stamp) -> Option<TimeRange> {
        self.blocks.range(..=t).next_back().map(range)
    }

    fn next_after(&self, t: Stamp) -> Option<TimeRange> {
        self.blocks.range(after(t)?..).next().map(range)
    }
}

fn range((&start, slot): (&Stamp, &Slot)) -> TimeRange {
    TimeRange::new(start, slot.end)
}

fn is_free(set: &BlockSet, start: Stamp, protected: &[TimeRange]) -> bool {
    let Some(slot) = set.blocks.get(&start) else {
        return false;
    };
    let range = TimeRange::new(start, slot.end);
    !protected.iter().any(|chain| chain.overlaps(range))
}
