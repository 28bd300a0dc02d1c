//! Putting rows in order.

use asof_core::{Row, Stamp};

/// Rows by time, then place.
///
/// The input is a few sorted runs, one after the other. Sorting moves keys of half a row's size, and
/// each row once.
pub(crate) fn in_order(rows: Vec<Row>) -> Vec<Row> {
    if rows.is_sorted_by_key(key) {
        return rows;
    }
    let mut keys: Vec<(Stamp, u64, u32)> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| (row.log_time, row.order, index as u32))
        .collect();
    keys.sort();
    keys.iter()
        .map(|&(_, _, index)| rows[index as usize])
        .collect()
}

/// What rows are ordered by: time, then place in the source.
pub(crate) type Key = (Stamp, u64);

/// A row's place in the order.
pub(crate) fn key(row: &Row) -> Key {
    (row.log_time, row.order)
}
