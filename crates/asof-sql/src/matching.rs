//! The rows of one side of a join that can still match.

use std::collections::{HashMap, HashSet};

use asof_align::On;
use datafusion::arrow::array::{RecordBatch, TimestampNanosecondArray};
use datafusion::arrow::row::OwnedRow;

use crate::topic::STAMP;

/// The times of a column of this name; a stamp that was never set is none.
pub(crate) fn known_times(
    name: &str,
    times: &TimestampNanosecondArray,
) -> TimestampNanosecondArray {
    if name != STAMP || !times.values().contains(&0) {
        return times.clone();
    }
    let known = times.iter().map(|time| On::Stamp.known(time));
    known.collect()
}

/// The values that have to be equal on both sides. A row in which one of them is NULL has no key, and matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Nothing has to be equal.
    Any,
    /// These values.
    Of(OwnedRow),
}

/// The position of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowAt {
    pub batch: u64,
    pub row: usize,
}

/// Batches by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    held: HashMap<u64, RecordBatch>,
    newest: u64,
}

impl Batches {
    /// Starts with the next batch, which is held once a row of it is.
    pub fn begin(&mut self) {
        self.newest += 1;
    }

    /// Holds a row of the current batch.
    pub fn hold(&mut self, batch: &RecordBatch, row: usize) -> RowAt {
        self.held
            .entry(self.newest)
            .or_insert_with(|| batch.clone());
        RowAt {
            batch: self.newest,
            row,
        }
    }

    pub fn get(&self, number: u64) -> &RecordBatch {
        &self.held[&number]
    }

    /// The size of the batches that are held.
    pub fn bytes(&self) -> usize {
        self.held
            .values()
            .map(RecordBatch::get_array_memory_size)
            .sum()
    }

    /// Drops all but the current batch and those of these rows.
    pub fn retain<'a>(&mut self, rows: impl Iterator<Item = &'a RowAt>) {
        let mut needed: HashSet<u64> = rows.map(|place| place.batch).collect();
        needed.insert(self.newest);
        self.held.retain(|number, _| needed.contains(number));
    }
}
