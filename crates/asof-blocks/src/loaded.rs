//! The times at which several topics are all held, updated as blocks come and go.

use asof_core::{Stamp, TimeRange};

use crate::coverage::{Coverage, after, before};
use crate::names::TopicSet;
use crate::store::State;

/// Cached answers for the most recently queried groups of topics.
///
/// A change of the store costs one entry per group. A query costs what has changed since the last one, plus a
/// copy of the answer.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// In order of use; the most recently queried group is last.
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    topics: TopicSet,
    /// The times at which every topic has a block; out of date within `stale`.
    held: Coverage,
    stale: Coverage,
}

/// The most groups remembered. Each viewer page queries the topics that it shows.
const MAX_GROUPS: usize = 32;

impl State {
    /// The times at which all of these topics are held, in blocks or in what is being read.
    pub fn loaded(&mut self, topics: &TopicSet) -> Vec<TimeRange> {
        if topics.is_empty() {
            return Vec::new();
        }
        let mut group = self.loaded.take(topics);
        for range in std::mem::take(&mut group.stale).iter() {
            group.held.remove(range);
            for held in self.held_within(topics, range, false) {
                group.held.insert(held);
            }
        }
        let flights = self.fetches.iter().filter_map(|flight| {
            let is_meant = flight.fetch.topics.intersects(topics);
            flight.open.filter(|_| is_meant)
        });
        let open: Vec<TimeRange> = flights.collect();
        let all: Vec<TimeRange> = if open.is_empty() {
            group.held.iter().collect()
        } else {
            let mut all = group.held.clone();
            for range in open {
                for held in self.held_within(topics, range, true) {
                    all.insert(held);
                }
            }
            all.iter().collect()
        };
        self.loaded.groups.push(group);
        all
    }

    /// At each instant a topic is held by at most one set or read. So all topics are held where the counts of
    /// topics held by each add up to the total.
    fn held_within(&self, topics: &TopicSet, range: TimeRange, with_open: bool) -> Vec<TimeRange> {
        let mut edges: Vec<(Stamp, i64)> = Vec::new();
        let mut add = |part: TimeRange, count: i64| {
            edges.push((part.start, count));
            if let Some(end) = after(part.end) {
                edges.push((end, -count));
            }
        };
        for set in &self.sets {
            let count = set.topics.common(topics) as i64;
            if count > 0 {
                set.covered.within(range).for_each(|part| add(part, count));
            }
        }
        for flight in self.fetches.iter().filter(|_| with_open) {
            let count = flight.fetch.topics.common(topics) as i64;
            let part = flight.open.map(|open| open.intersect(range));
            if let Some(part) = part.filter(|part| count > 0 && !part.is_empty()) {
                add(part, count);
            }
        }
        edges.sort_unstable_by_key(|&(at, _)| at);
        let all = topics.len() as i64;
        let mut held = Vec::new();
        let (mut count, mut from) = (0, None);
        for same in edges.chunk_by(|a, b| a.0 == b.0) {
            count += same.iter().map(|&(_, change)| change).sum::<i64>();
            let at = same[0].0;
            match (from, count >= all) {
                (None, true) => from = Some(at),
                (Some(start), false) => {
                    held.push(TimeRange::new(start, before(at).unwrap_or(at)));
                    from = None;
                }
                _ => {}
            }
        }
        // A range that holds until the end of time has no closing edge.
        held.extend(from.map(|start| TimeRange::new(start, range.end)));
        held
    }
}

impl Loaded {
    /// Records that what is held of these topics has changed within a time range.
    pub fn note_change(&mut self, topics: &TopicSet, range: TimeRange) {
        for group in &mut self.groups {
            if group.topics.intersects(topics) {
                group.stale.insert(range);
            }
        }
    }

    /// Takes out the group of these topics, to be put back. A new group is entirely stale.
    fn take(&mut self, topics: &TopicSet) -> Group {
        if let Some(index) = self.groups.iter().position(|group| group.topics == *topics) {
            return self.groups.remove(index);
        }
        if self.groups.len() >= MAX_GROUPS {
            self.groups.remove(0);
        }
        let mut stale = Coverage::default();
        stale.insert(TimeRange::ALL);
        Group {
            topics: topics.clone(),
            held: Coverage::default(),
            stale,
        }
    }
}
