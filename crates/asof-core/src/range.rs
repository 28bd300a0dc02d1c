//! Intervals of time.

use std::fmt;

use crate::Stamp;

/// A closed interval: both ends are in. Empty when `start > end`; no operation panics.
///
/// ```
/// use asof_core::{Stamp, TimeRange};
///
/// let range = TimeRange::new(Stamp::from_nanos(10), Stamp::from_nanos(20));
/// assert!(range.contains(Stamp::from_nanos(20)));
/// assert!(range.intersect(TimeRange::from(Stamp::from_nanos(21)..)).is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// The first instant in the range.
    pub start: Stamp,
    /// The last instant in the range.
    pub end: Stamp,
}

impl TimeRange {
    /// All of time.
    pub const ALL: TimeRange = TimeRange {
        start: Stamp::MIN,
        end: Stamp::MAX,
    };
    /// No time at all; the neutral element of [`TimeRange::cover`].
    pub const EMPTY: TimeRange = TimeRange {
        start: Stamp::MAX,
        end: Stamp::MIN,
    };

    /// From `start` to `end`, both included.
    pub const fn new(start: Stamp, end: Stamp) -> Self {
        TimeRange { start, end }
    }

    /// Whether it holds no instant.
    pub fn is_empty(self) -> bool {
        self.start > self.end
    }

    /// Whether `stamp` is in it.
    pub fn contains(self, stamp: Stamp) -> bool {
        self.start <= stamp && stamp <= self.end
    }

    /// Whether the two share an instant.
    pub fn overlaps(self, other: TimeRange) -> bool {
        !self.intersect(other).is_empty()
    }

    /// The instants in both; empty if they share none.
    #[must_use]
    pub fn intersect(self, other: TimeRange) -> TimeRange {
        TimeRange {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn cover(self, other: TimeRange) -> TimeRange {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        TimeRange {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// The smallest range that holds this one and `stamp`.
    #[must_use]
    pub fn cover_stamp(self, stamp: Stamp) -> TimeRange {
        self.cover(TimeRange::new(stamp, stamp))
    }

    /// Nanoseconds from start to end; zero when empty, saturates at `i64::MAX`.
    pub fn duration_nanos(self) -> i64 {
        if self.is_empty() {
            0
        } else {
            self.end.since(self.start)
        }
    }
}

impl From<std::ops::RangeInclusive<Stamp>> for TimeRange {
    fn from(range: std::ops::RangeInclusive<Stamp>) -> Self {
        TimeRange::new(*range.start(), *range.end())
    }
}

impl From<std::ops::RangeFrom<Stamp>> for TimeRange {
    fn from(range: std::ops::RangeFrom<Stamp>) -> Self {
        TimeRange::new(range.start, Stamp::MAX)
    }
}

impl From<std::ops::RangeToInclusive<Stamp>> for TimeRange {
    fn from(range: std::ops::RangeToInclusive<Stamp>) -> Self {
        TimeRange::new(Stamp::MIN, range.end)
    }
}

impl fmt::Debug for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.start.nanos(), self.end.nanos())
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
    fn a_backward_range_is_empty_and_harmless() {
        let backward = range(5, 3);
        assert!(backward.is_empty());
        assert!(!backward.contains(4.into()));
        assert_eq!(backward.duration_nanos(), 0);
        assert_eq!(backward.cover(range(1, 2)), range(1, 2));
        assert_eq!(TimeRange::ALL.duration_nanos(), i64::MAX);
    }

    proptest! {
        #[test]
        fn intersection_holds_exactly_what_both_hold(a: i8, b: i8, c: i8, d: i8, t: i8) {
            let (x, y) = (range(a.into(), b.into()), range(c.into(), d.into()));
            let t = Stamp::from_nanos(t.into());
            prop_assert_eq!(x.intersect(y).contains(t), x.contains(t) && y.contains(t));
            prop_assert!(!x.contains(t) || x.cover(y).contains(t));
        }
    }
}
