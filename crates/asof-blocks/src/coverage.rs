//! Which times are known, as the fewest possible intervals.

use std::collections::BTreeMap;

use asof_core::{Stamp, TimeRange};

/// A set of instants.
///
/// Invariant: intervals are not empty, do not overlap, and do not touch: neighbours are merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    intervals: BTreeMap<Stamp, Stamp>,
}

/// The instant after `t`; `None` at the end of time.
pub(crate) fn after(t: Stamp) -> Option<Stamp> {
    t.nanos().checked_add(1).map(Stamp::from_nanos)
}

/// The instant before `t`; `None` at the beginning of time.
pub(crate) fn before(t: Stamp) -> Option<Stamp> {
    t.nanos().checked_sub(1).map(Stamp::from_nanos)
}

impl Coverage {
    pub fn iter(&self) -> impl Iterator<Item = TimeRange> + '_ {
        self.intervals
            .iter()
            .map(|(&start, &end)| TimeRange::new(start, end))
    }

    /// The parts of its intervals within `range`, in order.
    pub fn within(&self, range: TimeRange) -> impl Iterator<Item = TimeRange> + '_ {
        let first = self.intervals.range(..=range.start).next_back();
        let from = first.map_or(range.start, |(&start, _)| start);
        // An empty range contains nothing; `BTreeMap::range` panics if its start is after its
        // end.
        let overlapping = self.intervals.range(from..=range.end.max(from));
        overlapping
            .map(move |(&start, &end)| TimeRange::new(start, end).intersect(range))
            .filter(|part| !part.is_empty())
    }

    /// The interval that contains `t`.
    pub fn at(&self, t: Stamp) -> Option<TimeRange> {
        let (&start, &end) = self.intervals.range(..=t).next_back()?;
        (t <= end).then(|| TimeRange::new(start, end))
    }

    /// The first instant after `t` at which coverage begins or ends.
    pub fn change_after(&self, t: Stamp) -> Option<Stamp> {
        if let Some(inside) = self.at(t) {
            return after(inside.end);
        }
        self.intervals.range(t..).next().map(|(&start, _)| start)
    }

    pub fn insert(&mut self, range: TimeRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&left, &left_end)) = self.intervals.range(..=start).next_back()
            && after(left_end).is_none_or(|next| next >= start)
        {
            start = left;
            end = end.max(left_end);
        }
        // Everything that begins inside, or directly after, is merged.
        let reach = after(end).unwrap_or(end);
        while let Some((&right, &right_end)) = self.intervals.range(start..=reach).next_back() {
            self.intervals.remove(&right);
            end = end.max(right_end);
        }
        self.intervals.insert(start, end);
    }

    pub fn remove(&mut self, range: TimeRange) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.intervals.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            self.intervals.remove(&start);
            if end > range.end
                && let Some(rest) = after(range.end)
            {
                self.intervals.insert(rest, end);
            }
            if start < range.start
                && let Some(rest) = before(range.start)
            {
                self.intervals.insert(start, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: i64, end: i64) -> TimeRange {
        TimeRange::new(start.into(), end.into())
    }

    #[test]
    fn neighbours_become_one() {
        let mut coverage = Coverage::default();
        coverage.insert(range(0, 4));
        coverage.insert(range(10, 14));
        coverage.insert(range(5, 9));
        assert_eq!(coverage.iter().collect::<Vec<_>>(), [range(0, 14)]);
        coverage.insert(TimeRange::ALL);
        assert_eq!(coverage.iter().collect::<Vec<_>>(), [TimeRange::ALL]);
    }

    #[test]
    fn a_change_is_the_next_edge() {
        let mut coverage = Coverage::default();
        coverage.insert(range(5, 9));
        assert_eq!(coverage.change_after(0.into()), Some(5.into()));
        assert_eq!(coverage.change_after(5.into()), Some(10.into()));
        assert_eq!(coverage.change_after(10.into()), None);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_set_of_instants_holds(
            steps in prop::collection::vec((any::<bool>(), 0i64..40, 0i64..12), 0..40),
            other in prop::collection::vec((0i64..40, -3i64..12), 0..6),
        ) {
            let mut coverage = Coverage::default();
            let mut naive = std::collections::BTreeSet::new();
            for (adds, start, length) in steps {
                let range = range(start, start + length - 1);
                let instants = start..start + length;
                if adds {
                    coverage.insert(range);
                    naive.extend(instants);
                } else {
                    coverage.remove(range);
                    naive.retain(|t| !instants.contains(t));
                }
                for t in -1..60 {
                    prop_assert_eq!(coverage.at(t.into()).is_some(), naive.contains(&t));
                }
                let ends: Vec<_> = coverage.iter().collect();
                prop_assert!(ends.windows(2).all(|w| w[0].end.nanos() + 1 < w[1].start.nanos()));
            }
            for (start, length) in other {
                let asked = range(start, start + length - 1);
                let mut within = Coverage::default();
                for part in coverage.within(asked) {
                    within.insert(part);
                }
                for t in -1..60i64 {
                    let is_in = naive.contains(&t) && asked.contains(t.into());
                    prop_assert_eq!(within.at(t.into()).is_some(), is_in);
                }
            }
        }
    }
}
