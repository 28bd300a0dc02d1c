//! The rows of one side of an as-of join so far, and which of them matches a row of the other.

use std::collections::{HashMap, VecDeque};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::row::OwnedRow;

use crate::asof::Direction;

/// The position of a row of the right side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowAt {
    pub batch: u64,
    pub row: usize,
}

/// The match of a row of the left side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match {
    pub place: RowAt,
    /// The row after it, and the fraction of the way to it, for interpolation.
    pub next: (RowAt, f64),
}

impl From<RowAt> for Match {
    fn from(place: RowAt) -> Self {
        Match {
            place,
            next: (place, 0.0),
        }
    }
}

/// The rows of the right side so far, as long as they can still match.
pub(crate) struct Known {
    pub direction: Direction,
    tolerance: Option<i64>,
    rows: HashMap<Option<OwnedRow>, VecDeque<(i64, RowAt)>>,
    pub batches: HashMap<u64, RecordBatch>,
    newest: u64,
}

impl Known {
    pub fn new(direction: Direction, tolerance: Option<i64>) -> Self {
        Known {
            direction,
            tolerance,
            rows: HashMap::new(),
            batches: HashMap::new(),
            newest: 0,
        }
    }

    /// Whether a row at `next` must be added before one at `time` can be answered.
    pub fn needs(&self, key: Option<&OwnedRow>, time: i64, next: i64) -> bool {
        if let Direction::Backward { or_equal } = self.direction {
            return next < time || (or_equal && next == time);
        }
        if next <= time {
            return true;
        }
        let is_too_far = |tolerance: i64| next.saturating_sub(time) > tolerance;
        if self.tolerance.is_some_and(is_too_far) {
            return false;
        }
        // A later row of this key is there already: one after it is farther away.
        let or_equal = self.direction != Direction::Forward { or_equal: false };
        let later = |(at, _): &(i64, RowAt)| *at > time || (or_equal && *at == time);
        let rows = self.rows.get(&key.cloned());
        !rows.is_some_and(|rows| rows.iter().any(later))
    }

    pub fn add(&mut self, key: Option<OwnedRow>, time: i64, batch: &RecordBatch, row: usize) {
        // Rows without a time are last in their batch, so each batch that matters starts with its first row.
        if row == 0 {
            self.newest += 1;
            self.batches.insert(self.newest, batch.clone());
        }
        let place = RowAt {
            batch: self.newest,
            row,
        };
        let rows = self.rows.entry(key).or_default();
        if matches!(self.direction, Direction::Backward { .. }) {
            rows.clear();
        }
        rows.push_back((time, place));
    }

    pub fn choose(&mut self, key: Option<&OwnedRow>, time: i64) -> Option<Match> {
        let rows = self.rows.get_mut(&key.cloned())?;
        // The left side advances: of the rows before this one, only the last can match again.
        let is_forward = matches!(self.direction, Direction::Forward { .. });
        while rows.len() > 1 && (rows[1].0 < time || (rows[1].0 == time && !is_forward)) {
            rows.pop_front();
        }
        let before = |or_equal: bool| {
            let is_before = |(at, _): &&(i64, RowAt)| *at < time || (or_equal && *at == time);
            rows.iter().rev().find(is_before).copied()
        };
        let after = |or_equal: bool| {
            let is_after = |(at, _): &&(i64, RowAt)| *at > time || (or_equal && *at == time);
            rows.iter().find(is_after).copied()
        };
        let tolerance = self.tolerance.map(i64::unsigned_abs);
        let is_near = |at: i64| tolerance.is_none_or(|most| at.abs_diff(time) <= most);
        let (at, place) = match self.direction {
            Direction::Backward { or_equal } => before(or_equal)?,
            Direction::Forward { or_equal } => after(or_equal)?,
            Direction::Nearest | Direction::Window { .. } => match (before(true), after(false)) {
                (Some(before), Some(after)) => {
                    let nearer = after.0.abs_diff(time) < time.abs_diff(before.0);
                    if nearer { after } else { before }
                }
                (before, after) => before.or(after)?,
            },
            Direction::Between => {
                let (at, place) = before(true)?;
                if at == time {
                    return Some(place.into());
                }
                let (next, next_place) = after(false)?;
                let part = time.abs_diff(at) as f64 / next.abs_diff(at) as f64;
                return (is_near(at) && is_near(next)).then_some(Match {
                    place,
                    next: (next_place, part),
                });
            }
        };
        is_near(at).then(|| place.into())
    }

    /// The size of the batches that are held.
    pub fn bytes(&self) -> usize {
        let batches = self.batches.values();
        batches.map(RecordBatch::get_array_memory_size).sum()
    }

    /// Drops batches that no key refers to any more.
    pub fn tidy(&mut self) {
        let mut needed: Vec<u64> = vec![self.newest];
        needed.extend(self.rows.values().flatten().map(|(_, place)| place.batch));
        needed.sort_unstable();
        needed.dedup();
        self.batches
            .retain(|number, _| needed.binary_search(number).is_ok());
    }
}
