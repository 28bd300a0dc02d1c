//! Which times are held, for display.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{TimeRange, Topics};

use crate::shared::Shared;

/// The times at which every one of some topics is held. A snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadedRanges {
    /// Counts up with every change of what is held, on any topic.
    pub version: u64,
    /// The ranges, in order, merged; both ends included, exact to the nanosecond.
    pub ranges: Vec<TimeRange>,
    /// The same as fractions of the recording, from 0 to 1, clipped to it.
    pub fractions: Vec<(f64, f64)>,
}

impl LoadedRanges {
    pub(crate) fn of(shared: &Shared, topics: &Topics) -> Self {
        let summary = shared.source.summary();
        let mut state = shared.state();
        let wanted = state.resolve_held(&summary, topics);
        let version = state.version;
        let ranges = if wanted.around.is_empty() {
            state.loaded(&wanted.topics)
        } else {
            Vec::new()
        };
        drop(state);
        let fractions = fractions(&ranges, summary.range);
        LoadedRanges {
            version,
            ranges,
            fractions,
        }
    }
}

fn fractions(ranges: &[TimeRange], recording: TimeRange) -> Vec<(f64, f64)> {
    let length = recording.duration_nanos();
    let within = ranges
        .iter()
        .map(|range| range.intersect(recording))
        .filter(|range| !range.is_empty());
    if length == 0 {
        // A recording of one instant is either held or not.
        return within.map(|_| (0.0, 1.0)).collect();
    }
    let part = |stamp: asof_core::Stamp| stamp.since(recording.start) as f64 / length as f64;
    within
        .map(|range| (part(range.start), part(range.end)))
        .collect()
}

/// Reports changes of [`LoadedRanges`]. See [`BlockCache::watch`](crate::BlockCache::watch).
#[derive(Debug)]
pub struct RangeWatch {
    shared: Arc<Shared>,
    topics: Topics,
    seen: Option<LoadedRanges>,
    told: Option<Instant>,
}

impl RangeWatch {
    /// The shortest time between two events.
    pub const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 60);

    pub(crate) fn new(shared: &Arc<Shared>, topics: &Topics) -> Self {
        RangeWatch {
            shared: Arc::clone(shared),
            topics: topics.clone(),
            seen: None,
            told: None,
        }
    }

    /// Switches to other topics; the next answer is about them.
    pub fn set_topics(&mut self, topics: &Topics) {
        if self.topics != *topics {
            self.topics = topics.clone();
            self.seen = None;
        }
    }

    /// The new ranges, if they differ from those last returned and that was at least
    /// [`INTERVAL`](Self::INTERVAL) ago.
    ///
    /// Returns ranges at most 60 times a second, however often it is called; changes in between are
    /// combined.
    pub fn changed(&mut self, now: Instant) -> Option<LoadedRanges> {
        if self.told.is_some_and(|told| now < told + Self::INTERVAL) {
            return None;
        }
        let version = self.shared.state().version;
        if self
            .seen
            .as_ref()
            .is_some_and(|seen| seen.version == version)
        {
            return None;
        }
        let ranges = LoadedRanges::of(&self.shared, &self.topics);
        let is_new = self
            .seen
            .as_ref()
            .is_none_or(|seen| seen.ranges != ranges.ranges);
        self.seen = Some(ranges.clone());
        if is_new {
            self.told = Some(now);
        }
        is_new.then_some(ranges)
    }
}
