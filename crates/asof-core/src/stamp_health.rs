//! The health of stamps: how they stand to the time at which messages arrive.

use std::fmt;

use crate::Stamp;

/// A stamp that is further than this from its arrival is off: no network and no sensor takes a minute.
const MOST_OFF: i64 = 60_000_000_000;

/// How the stamps of a topic, in headers and of publishers, stand to the arrival of its messages.
///
/// ```
/// use asof_core::{Stamp, StampHealth};
///
/// let mut health = StampHealth::default();
/// let arrived: Stamp = "2024-05-01T12:00:00Z".parse()?;
/// let stamp: Stamp = "2024-05-01T14:00:00Z".parse()?;
/// health.note([stamp], arrived);
/// assert_eq!(health.to_string(), "1 stamp is ahead of their arrival by 2.0 h");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StampHealth {
    /// Messages with a stamp that is off by more than a minute from their arrival.
    pub off: u64,
    /// By how much the last of them was off, in nanoseconds; negative where the stamp is in the past.
    pub offset: i64,
    /// Messages with a stamp that is zero.
    pub zero: u64,
    /// Messages whose stamp jumped by more than a minute against the arrivals.
    pub jumps: u64,
    last: Option<i64>,
}

impl StampHealth {
    /// Notes the stamps of a message that arrived, the one in its header first; returns whether something is wrong with them.
    pub fn note(&mut self, stamps: impl IntoIterator<Item = Stamp>, arrived: Stamp) -> bool {
        let (mut is_zero, mut worst) = (false, 0_i64);
        let mut first = None;
        for stamp in stamps {
            let offset = stamp.since(arrived);
            if stamp == Stamp::EPOCH {
                is_zero = true;
            } else if offset.unsigned_abs() > worst.unsigned_abs() {
                worst = offset;
            }
            first = first.or((stamp != Stamp::EPOCH).then_some(offset));
        }
        let is_off = worst.unsigned_abs() > MOST_OFF.unsigned_abs();
        let before = first.and_then(|offset| self.last.replace(offset));
        let step = first
            .zip(before)
            .map_or(0, |(offset, before)| offset.saturating_sub(before));
        let is_jump = step.unsigned_abs() > MOST_OFF.unsigned_abs();
        self.zero += u64::from(is_zero);
        self.off += u64::from(is_off);
        self.jumps += u64::from(is_jump);
        if is_off {
            self.offset = worst;
        }
        is_zero || is_off || is_jump
    }

    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.off == 0 && self.zero == 0 && self.jumps == 0
    }
}

impl fmt::Display for StampHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (self.offset as f64 / 1e9).abs();
        let by = match seconds {
            ..7_200.0 => format!("{:.0} min", seconds / 60.0),
            ..172_800.0 => format!("{:.1} h", seconds / 3_600.0),
            _ => format!("{:.0} days", seconds / 86_400.0),
        };
        let side = if self.offset < 0 {
            "behind"
        } else {
            "ahead of"
        };
        let are = |count: u64| match count {
            1 => "1 stamp is".to_owned(),
            count => format!("{count} stamps are"),
        };
        let told = [
            (
                self.off,
                format!("{} {side} their arrival by {by}", are(self.off)),
            ),
            (self.zero, format!("{} zero", are(self.zero))),
            (
                self.jumps,
                format!("{} more than a minute off the one before", are(self.jumps)),
            ),
        ];
        let told = told.into_iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> = told.map(|(_, text)| text).collect();
        f.write_str(&told.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn noted(offsets: &[Option<i64>]) -> StampHealth {
        let mut health = StampHealth::default();
        for (number, offset) in offsets.iter().enumerate() {
            let arrived = Stamp::from_nanos(500_000 * HOUR + number as i64 * 10_000_000);
            let stamp = offset.map_or(Stamp::EPOCH, |offset| arrived.plus_nanos(offset));
            let is_bad = health.note([stamp], arrived);
            assert_eq!(is_bad, health.note([stamp], arrived) || is_bad);
        }
        health
    }

    #[test]
    fn stamps_that_are_on_time_are_good() {
        let health = noted(&[Some(-5_000_000), Some(1_000), Some(-30_000_000_000)]);
        assert!(health.is_good(), "{health}");
    }

    #[test]
    fn a_clock_that_is_off_by_hours_is_told() {
        let health = noted(&[Some(2 * HOUR), Some(2 * HOUR)]);
        assert_eq!((health.off, health.jumps, health.zero), (4, 0, 0));
        assert_eq!(
            health.to_string(),
            "4 stamps are ahead of their arrival by 2.0 h"
        );
    }

    #[test]
    fn stamps_that_are_zero_or_jump_are_told() {
        let health = noted(&[Some(0), None, Some(2 * HOUR), Some(0)]);
        assert_eq!((health.zero, health.jumps), (2, 2));
    }
}
