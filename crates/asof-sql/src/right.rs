//! The right side of an as-of join in one pass: the rows of a topic that can still match.

use std::collections::VecDeque;
use std::sync::Arc;

use asof_align::{LATENESS, Lane, Pick, Rule};
use asof_core::{Batch, Query, Source, Stamp, TimeRange, Topics};
use datafusion::arrow::array::{Array, AsArray, RecordBatch, TimestampNanosecondArray};
use datafusion::arrow::datatypes::TimestampNanosecondType;
use datafusion::common::{DataFusionError, Result};

use crate::asof::How;
use crate::assemble::{Assembled, Assembler, Shape, external, runs};
use crate::database::Shared;
use crate::matching::{RowAt, known_times};
use crate::pushdown::Pushdown;

/// How much later than others a message may be logged before a join by stamp stops waiting for it, in nanoseconds.
/// One that is even later is detected.
const MAX_LATENESS_NANOS: i64 = LATENESS.as_nanos() as i64;

/// The stamps of a topic go back, so a join by them needs a sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stamps of {topic} are not in the order in which its messages were logged, which was found after the first rows were out; add ORDER BY, so that nothing is out before all is known"
)]
pub(crate) struct StampsGoBack {
    pub topic: String,
}

impl StampsGoBack {
    /// The code of this error where only texts pass, as between the processes of a cluster.
    const CODE: &str = "[asof stamps-go-back ";

    /// The error as a text: its code, the topic in hexadecimal digits, and its sentence.
    #[cfg(feature = "distributed")]
    pub fn coded(&self) -> String {
        let mut text = Self::CODE.to_owned();
        for byte in self.topic.bytes() {
            // Writing to a String cannot fail.
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        }
        format!("{text}] {self}")
    }

    /// The error with this code in a text.
    pub fn of_code(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once(Self::CODE)?;
        let (digits, _) = rest.split_once(']')?;
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        let topic = String::from_utf8(bytes?).ok()?;
        Some(StampsGoBack { topic })
    }
}

/// A topic that is joined with the left one.
#[derive(Debug, Clone)]
pub(crate) struct RightTopic {
    pub shape: Shape,
    pub wanted: Pushdown,
    /// The columns that are compared, by their indexes in the output of each topic.
    pub left_time: usize,
    pub right_time: usize,
    pub rule: Rule,
    /// Whether both times are log times, in whose order messages are read.
    pub is_by_log_time: bool,
}

pub(crate) fn times_of(batch: &RecordBatch, column: usize) -> TimestampNanosecondArray {
    let times = batch.column(column);
    let times = times.as_primitive::<TimestampNanosecondType>();
    known_times(batch.schema_ref().field(column).name(), times)
}

/// A row of the right side that may be a match.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    logged: i64,
    place: RowAt,
}

/// The rows of a right topic so far, as long as they can still match.
pub(crate) struct RightSide {
    pub spec: RightTopic,
    assembler: Assembler,
    assembled: Vec<Assembled>,
    rows: Lane<Candidate>,
    /// Whether all rows with the time of the first one are there.
    is_first_whole: bool,
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
            rows: Lane::default(),
            is_first_whole: false,
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
    pub fn begin(&mut self, recording: &dyn Source, start: Stamp) -> Result<()> {
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
            let tolerance = How::One(self.spec.rule).tolerance().unwrap_or(0);
            for (time, candidate) in candidates {
                let is_late =
                    (self.settled).is_some_and(|settled| time <= settled.saturating_add(tolerance));
                if is_late || self.newest.is_some_and(|newest| time < newest) {
                    return Err(self.goes_back());
                }
                self.newest = Some(time);
                self.rows.insert(time, candidate);
            }
            self.batches.push_back(assembled.batch);
        }
        Ok(())
    }

    /// The rows that have a time.
    fn candidates(&self, rows: &Assembled, batch: u64) -> Vec<(i64, Candidate)> {
        let times = times_of(&rows.batch, self.spec.right_time);
        let candidate = |row: usize| {
            let candidate = Candidate {
                logged: rows.logged[row],
                place: RowAt { batch, row },
            };
            (times.value(row), candidate)
        };
        let known = (0..times.len()).filter(|row| times.is_valid(*row));
        known.map(candidate).collect()
    }

    fn goes_back(&self) -> DataFusionError {
        let topic = self.spec.shape.topic.clone();
        DataFusionError::External(Box::new(StampsGoBack { topic }))
    }

    /// Loads the rows before the first candidate, where a row at `time` needs them.
    pub fn look_back(&mut self, recording: &dyn Source, time: i64) -> Result<()> {
        let mut step = MAX_LATENESS_NANOS;
        while self.has_earlier {
            let Some((first_time, &first)) = self.rows.first() else {
                return Ok(());
            };
            // Of several at one time, the first to arrive may be the match.
            let is_whole = self.is_first_whole && first_time <= time;
            let is_enough = match self.spec.rule.pick() {
                Pick::Last | Pick::After => first_time <= time,
                Pick::Before => first_time < time,
                Pick::Next | Pick::Interpolate => is_whole || first_time < time,
                Pick::Nearest => {
                    let until = self.rows.range(i64::MIN, time).end;
                    let last = until.checked_sub(1).and_then(|at| self.rows.get(at));
                    is_whole || last.is_some_and(|(last, _)| first_time < last)
                }
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
            self.is_first_whole = false;
            self.put_before(loaded)?;
        }
        Ok(())
    }

    fn put_before(&mut self, loaded: Vec<Assembled>) -> Result<()> {
        for assembled in loaded.into_iter().rev() {
            self.first -= 1;
            let candidates = self.candidates(&assembled, self.first);
            self.batches.push_front(assembled.batch);
            for (time, candidate) in candidates.into_iter().rev() {
                if !self.rows.push_front(time, candidate) {
                    return Err(self.goes_back());
                }
            }
        }
        Ok(())
    }

    /// The match of a row at `time`: `None` while a better one may come. `beyond` is how far reading has advanced past it.
    #[expect(clippy::option_option, reason = "not yet known, or known to be none")]
    pub fn best(&mut self, time: i64, beyond: i64) -> Option<Option<RowAt>> {
        let rule = self.spec.rule;
        // Nothing is before what has come already: that would be an error.
        let is_final = self.is_over
            || (self.newest).is_some_and(|newest| self.rows.is_settled(time, rule, newest));
        if !is_final {
            if !self.is_past(beyond) {
                return None;
            }
            if !self.spec.is_by_log_time {
                self.settled = Some(self.settled.map_or(time, |settled| settled.max(time)));
            }
        }
        let best = self.rows.pick(time, rule);
        let best = best.found().map(|found| found.value.place);
        // The left side advances.
        let past = self.rows.count_past(time, rule.pick());
        if past > 0 {
            self.rows.remove_first(past);
            self.has_earlier = true;
            self.is_first_whole = true;
        }
        Some(best)
    }

    /// Whether reading has advanced so far that nothing is waited for.
    fn is_past(&self, beyond: i64) -> bool {
        let patience = if self.spec.is_by_log_time {
            0
        } else {
            MAX_LATENESS_NANOS
        };
        match (self.spec.rule.pick(), How::One(self.spec.rule).tolerance()) {
            (Pick::Last | Pick::Before, _) => beyond > patience,
            (_, Some(tolerance)) => beyond > patience.saturating_add(tolerance),
            (_, None) => false,
        }
    }

    /// Drops batches that no row refers to any more.
    pub fn tidy(&mut self, needed: Option<u64>) {
        let candidate = self.rows.first().map(|(_, row)| row.place.batch);
        let end = self.first + self.batches.len() as u64;
        let keep = candidate.unwrap_or(end).min(needed.unwrap_or(end));
        while self.first < keep && !self.batches.is_empty() {
            self.batches.pop_front();
            self.first += 1;
        }
    }
}
