//! The right side of an as-of join in one pass: the rows of a topic that can still match.

use std::collections::VecDeque;
use std::sync::Arc;

use asof_core::{Batch, Query, Stamp, TimeRange, Topics};
use asof_formats::Recording;
use datafusion::arrow::array::{Array, AsArray, RecordBatch, TimestampNanosecondArray};
use datafusion::arrow::datatypes::TimestampNanosecondType;
use datafusion::common::{DataFusionError, Result};

use crate::asof::Direction;
use crate::assemble::{Assembled, Assembler, Shape, external, runs};
use crate::database::Shared;
use crate::matching::RowAt;
use crate::pushdown::Wanted;

/// How much later than others a message may be logged before a join by stamp stops waiting for it, in nanoseconds.
/// One that is even later is detected.
const MAX_LATENESS_NANOS: i64 = 1_000_000_000;

/// The stamps of a topic go back, so a join by them needs a sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stamps of {topic} are not in the order in which its messages were logged, which was found after the first rows were out; add ORDER BY, so that nothing is out before all is known"
)]
pub(crate) struct StampsGoBack {
    pub topic: String,
}

impl StampsGoBack {
    /// The topic, if a text contains the message of this error.
    pub fn in_text(text: &str) -> Option<String> {
        let (_, rest) = text.split_once("the stamps of ")?;
        let (topic, _) =
            rest.split_once(" are not in the order in which its messages were logged")?;
        Some(topic.to_owned())
    }
}

/// A topic that is joined with the left one.
#[derive(Debug, Clone)]
pub(crate) struct RightTopic {
    pub shape: Shape,
    pub wanted: Wanted,
    /// The columns that are compared, by their indexes in the output of each topic.
    pub left_time: usize,
    pub right_time: usize,
    pub direction: Direction,
    pub tolerance: Option<i64>,
    /// Whether both times are log times, in whose order messages are read.
    pub is_by_log_time: bool,
}

pub(crate) fn times_of(batch: &RecordBatch, column: usize) -> TimestampNanosecondArray {
    let times = batch.column(column);
    times.as_primitive::<TimestampNanosecondType>().clone()
}

/// A row of the right side that may be a match.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    time: i64,
    logged: i64,
    place: RowAt,
}

/// The rows of a right topic so far, as long as they can still match.
pub(crate) struct RightSide {
    pub spec: RightTopic,
    assembler: Assembler,
    assembled: Vec<Assembled>,
    /// In order of their times.
    rows: VecDeque<Candidate>,
    pub batches: VecDeque<RecordBatch>,
    /// The number of the first batch: counts dropped batches, and those put before the first one.
    first: u64,
    /// Whether the recording has messages before the first candidate.
    has_earlier: bool,
    newest: Option<i64>,
    /// Up to this time rows were matched because the wait was over.
    settled: Option<i64>,
    /// Whether the topic has ended.
    pub is_over: bool,
}

/// The number of the first batch: leaves room for those that are put before it.
const FIRST_BATCH: u64 = 1 << 62;

impl RightSide {
    pub fn new(shared: &Arc<Shared>, recording: usize, spec: &RightTopic) -> Self {
        RightSide {
            assembler: Assembler::new(shared, recording, &spec.shape),
            spec: spec.clone(),
            assembled: Vec::new(),
            rows: VecDeque::new(),
            batches: VecDeque::new(),
            first: FIRST_BATCH,
            has_earlier: false,
            newest: None,
            settled: None,
            is_over: false,
        }
    }

    pub fn first_batch(&self) -> u64 {
        self.first
    }

    pub fn bytes(&self) -> usize {
        let batches = self.batches.iter();
        batches.map(RecordBatch::get_array_memory_size).sum()
    }

    /// Starts with what was known before the slice.
    pub fn begin(&mut self, recording: &dyn Recording, start: Stamp) -> Result<()> {
        let before = start.plus_nanos(-1).min(self.spec.wanted.range.end);
        if start == Stamp::MIN || before < self.spec.wanted.range.start {
            return Ok(());
        }
        let topics = Topics::named([&self.spec.shape.topic]);
        let known = recording.latest_at(&topics, before).map_err(external)?;
        for run in runs(&known) {
            self.add(&known, run)?;
        }
        self.flush()?;
        self.has_earlier = !known.is_empty();
        Ok(())
    }

    pub fn add(&mut self, batch: &Batch, run: &[asof_core::Row]) -> Result<()> {
        let range = self.spec.wanted.range;
        let start = run.partition_point(|row| row.log_time < range.start);
        let end = run.partition_point(|row| row.log_time <= range.end);
        let wanted = run.get(start..end).unwrap_or_default();
        self.assembler.add(batch, wanted, &mut self.assembled)
    }

    pub fn flush(&mut self) -> Result<()> {
        self.assembler.flush(&mut self.assembled)?;
        for assembled in std::mem::take(&mut self.assembled) {
            let number = self.first + self.batches.len() as u64;
            let candidates = self.candidates(&assembled, number);
            for candidate in candidates {
                let time = candidate.time;
                let is_late = self.settled.is_some_and(|settled| {
                    time <= settled.saturating_add(self.spec.tolerance.unwrap_or(0))
                });
                if is_late || self.newest.is_some_and(|newest| time < newest) {
                    return Err(self.goes_back());
                }
                self.newest = Some(time);
                self.rows.push_back(candidate);
            }
            self.batches.push_back(assembled.batch);
        }
        Ok(())
    }

    /// The rows that have a time.
    fn candidates(&self, rows: &Assembled, batch: u64) -> Vec<Candidate> {
        let times = times_of(&rows.batch, self.spec.right_time);
        let candidate = |row: usize| Candidate {
            time: times.value(row),
            logged: rows.logged[row],
            place: RowAt { batch, row },
        };
        let known = (0..times.len()).filter(|row| times.is_valid(*row));
        known.map(candidate).collect()
    }

    fn goes_back(&self) -> DataFusionError {
        let topic = self.spec.shape.topic.clone();
        DataFusionError::External(Box::new(StampsGoBack { topic }))
    }

    /// Loads the rows before the first candidate, where a row at `time` needs them.
    pub fn look_back(&mut self, recording: &dyn Recording, time: i64) -> Result<()> {
        let mut step = MAX_LATENESS_NANOS;
        while self.has_earlier {
            let Some(first) = self.rows.front().copied() else {
                return Ok(());
            };
            // Of several at exactly this time another one may match.
            let is_enough = match self.spec.direction {
                Direction::Backward { or_equal: false } | Direction::Forward { or_equal: true } => {
                    first.time < time
                }
                _ => first.time <= time,
            };
            if is_enough {
                return Ok(());
            }
            let end = Stamp::from_nanos(first.logged).plus_nanos(-1);
            let topics = Topics::named([&self.spec.shape.topic]);
            let earlier = recording.latest_at(&topics, end).map_err(external)?;
            let Some(last) = earlier.get(0).map(|message| message.log_time) else {
                self.has_earlier = false;
                break;
            };
            let start = last.plus_nanos(-step).max(self.spec.wanted.range.start);
            step = step.saturating_mul(2);
            let query = Query::topics([&self.spec.shape.topic]).between(TimeRange::new(start, end));
            let mut loaded = Vec::new();
            for batch in recording.read(&query).map_err(external)? {
                let batch = batch.map_err(external)?;
                for run in runs(&batch) {
                    self.assembler.add(&batch, run, &mut loaded)?;
                }
            }
            self.assembler.flush(&mut loaded)?;
            self.has_earlier = !loaded.is_empty();
            self.put_before(loaded)?;
        }
        Ok(())
    }

    fn put_before(&mut self, loaded: Vec<Assembled>) -> Result<()> {
        for assembled in loaded.into_iter().rev() {
            self.first -= 1;
            let candidates = self.candidates(&assembled, self.first);
            self.batches.push_front(assembled.batch);
            for candidate in candidates.into_iter().rev() {
                let first = self.rows.front();
                if first.is_some_and(|first| candidate.time > first.time) {
                    return Err(self.goes_back());
                }
                self.rows.push_front(candidate);
            }
        }
        Ok(())
    }

    /// The match of a row at `time`: `None` while a better one may come. `beyond` is how far reading has advanced past it.
    #[expect(clippy::option_option, reason = "not yet known, or known to be none")]
    pub fn best(&mut self, time: i64, beyond: i64) -> Option<Option<RowAt>> {
        let at = self.rows.partition_point(|row| row.time <= time);
        let before = self.rows.partition_point(|row| row.time < time);
        let (earlier, later) = match self.spec.direction {
            Direction::Backward { or_equal } => (if or_equal { at } else { before }, None),
            Direction::Forward { or_equal } => (0, Some(if or_equal { before } else { at })),
            // Other directions are not fused.
            _ => (at, Some(at)),
        };
        let is_final = self.is_over
            || match later {
                Some(later) => later < self.rows.len(),
                None => at < self.rows.len(),
            }
            || self.is_too_far(time);
        if !is_final {
            if !self.is_past(beyond) {
                return None;
            }
            if !self.spec.is_by_log_time {
                self.settled = Some(self.settled.map_or(time, |settled| settled.max(time)));
            }
        }
        let earlier = earlier.checked_sub(1).map(|place| self.rows[place]);
        let later = later.and_then(|place| self.rows.get(place).copied());
        let best = match (earlier, later) {
            (Some(earlier), Some(later)) => {
                let is_nearer = later.time.abs_diff(time) < time.abs_diff(earlier.time);
                Some(if is_nearer { later } else { earlier })
            }
            (earlier, later) => earlier.or(later),
        };
        let is_near = |found: &Candidate| {
            let tolerance = self.spec.tolerance.map(i64::unsigned_abs);
            tolerance.is_none_or(|tolerance| found.time.abs_diff(time) <= tolerance)
        };
        let best = best.filter(is_near).map(|found| found.place);
        // The left side advances: of the rows before this one, only the last can match again.
        let keep = before.saturating_sub(1);
        if keep > 0 {
            self.rows.drain(..keep);
            self.has_earlier = true;
        }
        Some(best)
    }

    /// Whether the topic has passed everything that a row at `time` may match.
    fn is_too_far(&self, time: i64) -> bool {
        let Some((tolerance, newest)) = self.spec.tolerance.zip(self.newest) else {
            return false;
        };
        newest > time.saturating_add(tolerance)
    }

    /// Whether reading has advanced so far that nothing is waited for.
    fn is_past(&self, beyond: i64) -> bool {
        let patience = if self.spec.is_by_log_time {
            0
        } else {
            MAX_LATENESS_NANOS
        };
        match (self.spec.direction, self.spec.tolerance) {
            (Direction::Backward { .. }, _) => beyond > patience,
            (_, Some(tolerance)) => beyond > patience.saturating_add(tolerance),
            (_, None) => false,
        }
    }

    /// Drops batches that no row refers to any more.
    pub fn tidy(&mut self, needed: Option<u64>) {
        let candidate = self.rows.front().map(|row| row.place.batch);
        let end = self.first + self.batches.len() as u64;
        let keep = candidate.unwrap_or(end).min(needed.unwrap_or(end));
        while self.first < keep && !self.batches.is_empty() {
            self.batches.pop_front();
            self.first += 1;
        }
    }
}
