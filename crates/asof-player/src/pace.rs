//! How fast the source is, and how far to read ahead.

use std::time::Duration;

/// The source's bandwidth in recorded time: nanoseconds of recording per nanosecond of reading.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// A running mean; `None` before the first measurement.
    rate: Option<f64>,
}

/// The shortest read-ahead, in playback time.
const MIN_READ_AHEAD: Duration = Duration::from_secs(1);
/// The read-ahead, in playback time, if the source is just fast enough.
const USUAL_READ_AHEAD: Duration = Duration::from_secs(4);
/// The longest read-ahead, however slow the source.
const MAX_READ_AHEAD: Duration = Duration::from_mins(1);

impl Pace {
    /// Records how long a stretch of the recording took to read.
    pub fn note(&mut self, recorded_nanos: i64, took: Duration) {
        let rate = recorded_nanos.max(0) as f64 / took.as_nanos().max(1) as f64;
        self.rate = Some(match self.rate {
            Some(known) => known * 0.8 + rate * 0.2,
            None => rate,
        });
    }

    /// Nanoseconds of the recording to read ahead at this speed.
    ///
    /// A source that is many times faster than playback needs little. The closer it is to the
    /// playback speed, the more is read while there is time.
    pub fn look_ahead(&self, speed: f64) -> i64 {
        let rate = self.rate.unwrap_or(speed);
        let margin = if rate > 0.0 {
            speed / rate
        } else {
            f64::INFINITY
        };
        let seconds = (USUAL_READ_AHEAD.as_secs_f64() * margin * 4.0)
            .clamp(MIN_READ_AHEAD.as_secs_f64(), MAX_READ_AHEAD.as_secs_f64());
        (seconds * speed * 1e9) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(times_real_time: f64) -> Pace {
        let mut pace = Pace::default();
        pace.note((times_real_time * 1e9) as i64, Duration::from_secs(1));
        pace
    }

    #[test]
    fn a_fast_source_needs_little_and_a_slow_one_more() {
        let fast = measured(10_000.0).look_ahead(1.0);
        let slow = measured(2.0).look_ahead(1.0);
        let too_slow = measured(0.01).look_ahead(1.0);
        assert_eq!(fast, 1_000_000_000);
        assert!(slow > fast && too_slow > slow);
        assert_eq!(too_slow, 60_000_000_000);
    }

    #[test]
    fn playing_faster_reads_further() {
        let pace = measured(100.0);
        assert!(pace.look_ahead(10.0) > 5 * pace.look_ahead(1.0));
    }
}
