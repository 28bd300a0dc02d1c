//! Instants at a rate, and spans of time around an instant.

use asof_core::TimeRange;

/// Instants at a rate, from the start of a range to its end, both in.
///
/// Each is counted from the start, so that a period that is not a whole number of nanoseconds does not drift.
///
/// ```
/// use asof_align::Grid;
/// use asof_core::TimeRange;
///
/// let thirds = Grid::new(TimeRange::new(0.into(), 1_000_000_000.into()), 3.0).expect("a rate");
/// assert_eq!(thirds.collect::<Vec<_>>(), [0, 333_333_333, 666_666_667, 1_000_000_000]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    range: TimeRange,
    hz: f64,
    next: u64,
}

impl Grid {
    /// `None` if the rate is not more than 0 and at most 1,000,000,000 per second.
    pub fn new(range: TimeRange, hz: f64) -> Option<Self> {
        let is_rate = hz > 0.0 && hz <= 1e9;
        is_rate.then_some(Grid { range, hz, next: 0 })
    }

    fn instant(&self, number: u64) -> Option<i64> {
        let nanos = (number as f64 * 1e9 / self.hz).round();
        let at = self.range.start.nanos().checked_add(nanos as i64)?;
        (at <= self.range.end.nanos()).then_some(at)
    }
}

impl Iterator for Grid {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        if self.range.is_empty() {
            return None;
        }
        let at = self.instant(self.next)?;
        self.next += 1;
        Some(at)
    }
}

/// A span of time around an instant, by the distances of its ends from it, in nanoseconds; both ends are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Where it starts; negative before the instant.
    pub from: i64,
    /// Where it ends.
    pub to: i64,
}

impl Span {
    /// The first and the last time of the span around `t`.
    #[inline]
    pub const fn around(self, t: i64) -> (i64, i64) {
        (t.saturating_add(self.from), t.saturating_add(self.to))
    }

    /// The same seen from the messages in it: the span of the instants that it is around.
    #[must_use]
    pub const fn swapped(self) -> Self {
        Span {
            from: self.to.saturating_neg(),
            to: self.from.saturating_neg(),
        }
    }
}
