//! The distance between the stamps of a topic and the log times of its messages.
//!
//! No index of a recording has stamps, so a query about them reads every message of its topic the first time. The scan
//! notes the largest distance between stamps and log times, and from then on a range of stamps is a range of log times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::{Stamp, TimeRange};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::TimestampNanosecondType;

use crate::assemble::{Assembled, Shape};
use crate::database::Shared;
use crate::topic::{STAMP, Slice};

/// The lags of the topics that were read completely, by recording and topic.
#[derive(Debug, Default)]
pub(crate) struct Lags(Mutex<BTreeMap<(usize, String), Lag>>);

/// The least and the most by which a stamp is after the log time of its message; usually both are negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lag {
    least: i64,
    most: i64,
}

impl Default for Lag {
    /// For no message.
    fn default() -> Self {
        Lag {
            least: i64::MAX,
            most: i64::MIN,
        }
    }
}

impl Lag {
    fn add(&mut self, stamp: i64, logged: i64) {
        let lag = stamp.saturating_sub(logged);
        self.least = self.least.min(lag);
        self.most = self.most.max(lag);
    }

    fn cover(self, other: Lag) -> Lag {
        Lag {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// The log times of messages with these stamps. Sums that overflow become the ends of time, which is correct.
    fn logged(self, stamps: TimeRange) -> TimeRange {
        if self.least > self.most || stamps.is_empty() {
            return TimeRange::EMPTY;
        }
        let minus = |stamp: Stamp, lag: i64| Stamp::from_nanos(stamp.nanos().saturating_sub(lag));
        let start = match (stamps.start, self.most) {
            (Stamp::MIN, _) | (_, i64::MAX) => Stamp::MIN,
            (start, most) => minus(start, most),
        };
        let end = match (stamps.end, self.least) {
            (Stamp::MAX, _) | (_, i64::MIN) => Stamp::MAX,
            (end, least) => minus(end, least),
        };
        TimeRange::new(start, end)
    }
}

impl Shared {
    /// The log times of messages of a topic with these stamps, where known.
    pub fn logged_with(
        &self,
        recording: usize,
        topic: &str,
        stamps: TimeRange,
    ) -> Option<TimeRange> {
        if stamps == TimeRange::ALL {
            return None;
        }
        let known = self.lags.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = known.get(&(recording, topic.to_owned()))?;
        Some(lag.logged(stamps))
    }

    fn set_lag(&self, recording: usize, topic: &str, lag: Lag) {
        // A growing recording may bring other stamps.
        if !self.opened(recording).recording.growth().is_growing() {
            let mut known = self.lags.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert((recording, topic.to_owned()), lag);
        }
    }
}

/// Collects the lags that the slices of a scan see.
#[derive(Debug)]
pub(crate) struct LagWatch {
    shared: Arc<Shared>,
    topic: String,
    /// The slices that cover each recording completely.
    slices: Vec<Slice>,
    seen: Mutex<BTreeMap<usize, Lag>>,
}

impl LagWatch {
    pub fn new(shared: &Arc<Shared>, topic: &str, slices: &[Slice]) -> Self {
        LagWatch {
            shared: Arc::clone(shared),
            topic: topic.to_owned(),
            slices: slices.to_vec(),
            seen: Mutex::default(),
        }
    }

    /// Reports a slice that was read to its end. When all slices of its recording are, the lag is known.
    pub fn tell(&self, partition: usize, lag: Lag) {
        let Some(recording) = self.slices.get(partition).map(|slice| slice.recording) else {
            return;
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(partition, lag);
        let own = self.slices.iter().enumerate();
        let own = own.filter(|(_, slice)| slice.recording == recording);
        let lags: Option<Vec<Lag>> = own.map(|(place, _)| seen.get(&place).copied()).collect();
        if let Some(lags) = lags {
            let lag = lags.into_iter().fold(Lag::default(), Lag::cover);
            self.shared.set_lag(recording, &self.topic, lag);
        }
    }
}

impl Lag {
    /// Adds rows whose column at `place` is the stamp.
    pub fn add_rows(&mut self, rows: &Assembled, place: usize) {
        let stamps = rows.batch.column(place);
        let Some(stamps) = stamps.as_primitive_opt::<TimestampNanosecondType>() else {
            return;
        };
        for (row, logged) in rows.logged.iter().enumerate() {
            // A message without a stamp is not found by one.
            if stamps.is_valid(row) {
                self.add(stamps.value(row), *logged);
            }
        }
    }
}

/// The index of the stamp among the output columns.
pub(crate) fn stamp_in(shape: &Shape) -> Option<usize> {
    (0..shape.output.fields().len()).find(|place| shape.is_column(*place, STAMP))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(lag: Lag, start: i64, end: i64) -> (i64, i64) {
        let range = lag.logged(TimeRange::new(start.into(), end.into()));
        (range.start.nanos(), range.end.nanos())
    }

    #[test]
    fn every_message_with_such_a_stamp_was_logged_in_that_range() {
        let mut lag = Lag::default();
        for (stamp, logged) in [(90, 100), (195, 200), (310, 300)] {
            lag.add(stamp, logged);
        }
        assert_eq!(logged(lag, 90, 195), (80, 205));
        assert_eq!(logged(lag, 310, i64::MAX), (300, i64::MAX));
        assert_eq!(logged(lag, i64::MIN, 90), (i64::MIN, 100));
    }

    #[test]
    fn stamps_that_are_anywhere_leave_nothing_out() {
        let mut lag = Lag::default();
        lag.add(i64::MIN, i64::MAX);
        lag.add(i64::MAX, i64::MIN);
        assert_eq!(logged(lag, 5, 6), (i64::MIN, i64::MAX));
        let none = Lag::default().logged(TimeRange::new(5.into(), 6.into()));
        assert!(none.is_empty());
    }
}
