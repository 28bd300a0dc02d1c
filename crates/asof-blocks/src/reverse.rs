//! Reading backwards.

use std::sync::Arc;

use asof_core::{Batch, Query, SourceError, Stamp, TimeRange};

use crate::coverage::before;
use crate::head::ReadHead;
use crate::shared::Shared;

/// Batches from the end of a range to its start.
///
/// Each batch is entirely earlier than the one handed out before it. Within a batch messages are in ascending order,
/// as in every batch: iterate with `.iter().rev()`.
///
/// It reads forwards over short stretches of time, from the last to the first, and holds the messages of one stretch:
/// at most 8 MiB or an eighth of the budget, whichever is less, but at least 64 KiB. Messages of one stamp stay
/// together.
#[derive(Debug)]
pub struct Reverse {
    shared: Arc<Shared>,
    head: ReadHead,
    query: Query,
    /// The last instant that has not been handed out; `None` at the start.
    end: Option<Stamp>,
    /// Nanoseconds that the next look covers.
    step: i64,
    /// Batches of the last look, the latest at the end.
    ready: Vec<Batch>,
}

/// Length of the first look if the message rate is unknown.
const FIRST_SPAN_NANOS: i64 = 50_000_000;
/// A look that brought fewer messages than this is followed by a longer one.
const MIN_MESSAGES: usize = 1024;
/// The most bytes that a look may hold.
const LOOK_BYTES: u64 = 8 << 20;
/// The least it may hold, however small the budget.
const MIN_LOOK_BYTES: u64 = 64 << 10;

impl Reverse {
    pub(crate) fn new(shared: &Arc<Shared>, query: &Query, head: ReadHead) -> Self {
        let range = query.range;
        Reverse {
            shared: Arc::clone(shared),
            head,
            query: query.clone(),
            end: (!range.is_empty()).then_some(range.end),
            step: FIRST_SPAN_NANOS,
            ready: Vec::new(),
        }
    }

    /// Sets how many nanoseconds the first look covers.
    pub(crate) fn with_first_look(mut self, nanos: i64) -> Self {
        self.step = nanos.max(1);
        self
    }

    /// The latest instant not yet handed out; `None` at the start of the range.
    pub fn at(&self) -> Option<Stamp> {
        match self.ready.last() {
            Some(batch) => Some(batch.range().end),
            None => self.end,
        }
    }

    /// Reads the stretch that ends at `end`; the denser the messages, the shorter it is.
    fn look(&mut self, end: Stamp) -> Result<(), SourceError> {
        self.head.set_position(end);
        let most = (self.shared.budget.limit() / 8).clamp(MIN_LOOK_BYTES, LOOK_BYTES);
        loop {
            let start = end
                .plus_nanos(1 - self.step)
                .max(self.query.range.start)
                .min(end);
            let Some(batches) = self.read(TimeRange::new(start, end), most)? else {
                self.step = (self.step / 4).max(1);
                continue;
            };
            let count: usize = batches.iter().map(Batch::len).sum();
            self.ready = batches;
            self.end = before(start).filter(|&end| end >= self.query.range.start);
            if count == 0 {
                self.leap()?;
            } else if count < MIN_MESSAGES
                && self.ready.iter().map(Batch::held_bytes).sum::<u64>() < most / 4
            {
                self.step = self.step.saturating_mul(2);
            }
            return Ok(());
        }
    }

    /// Everything in a range, or `None` if it is too much.
    fn read(&self, range: TimeRange, most: u64) -> Result<Option<Vec<Batch>>, SourceError> {
        let query = Query {
            topics: self.query.topics.clone(),
            range,
        };
        let is_one_stamp = range.start == range.end;
        let mut batches = Vec::new();
        let mut bytes = 0;
        for batch in self.head.read_ahead(&query) {
            // A batch may be a slice of a much larger buffer, which it would keep alive.
            let batch = batch?.compacted();
            bytes += batch.held_bytes();
            if bytes > most && !is_one_stamp {
                return Ok(None);
            }
            batches.push(batch);
        }
        Ok(Some(batches))
    }

    /// The stretch was empty: goes to the last message before it, however far back.
    fn leap(&mut self) -> Result<(), SourceError> {
        let Some(end) = self.end else {
            return Ok(());
        };
        let known = crate::latest_at::latest_at(&self.shared, &self.query.topics, end)?;
        self.end = known
            .rows()
            .last()
            .map(|row| row.log_time.min(end))
            .filter(|&end| end >= self.query.range.start);
        Ok(())
    }
}

impl Iterator for Reverse {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop() {
                return Some(Ok(batch));
            }
            let end = self.end?;
            if let Err(error) = self.look(end) {
                self.ready.clear();
                self.end = None;
                return Some(Err(error));
            }
        }
    }
}
