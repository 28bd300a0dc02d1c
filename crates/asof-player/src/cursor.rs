//! Positions between messages.

use asof_core::{Batch, Row, Stamp};

/// A position between two messages: after all that are at or before `time`, or, with an order, after
/// that one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub time: Stamp,
    pub order: Option<u64>,
}

impl Cursor {
    /// Before everything.
    pub const START: Cursor = Cursor {
        time: Stamp::MIN,
        order: None,
    };

    /// After everything at or before `time`.
    pub fn after(time: Stamp) -> Self {
        Cursor { time, order: None }
    }

    /// Right before everything at `time`.
    pub fn before(time: Stamp) -> Self {
        Cursor::after(time.plus_nanos(-1))
    }

    /// Right after the last message of a batch.
    pub fn after_last_of(batch: &Batch) -> Self {
        batch.rows().last().map_or(Cursor::START, Cursor::after_row)
    }

    pub fn after_row(row: &Row) -> Self {
        Cursor {
            time: row.log_time,
            order: Some(row.order),
        }
    }

    /// After every message of `known`, the latest ones as of `at`.
    pub fn told_by(known: &Batch, at: Stamp) -> Self {
        let told = known.rows().iter().filter(|row| row.log_time == at);
        match told.map(|row| row.order).max() {
            Some(order) => Cursor {
                time: at,
                order: Some(order),
            },
            None => Cursor::before(at),
        }
    }

    /// Whether a row is at or before this position.
    pub fn has_passed(&self, row: &Row) -> bool {
        match self.order {
            Some(order) => (row.log_time, row.order) <= (self.time, order),
            None => row.log_time <= self.time,
        }
    }

    /// The first instant after this position that may have a message.
    pub fn next(&self) -> Stamp {
        match self.order {
            // More messages may share the stamp.
            Some(_) => self.time,
            None => self.time.plus_nanos(1),
        }
    }
}
