//! Reading backwards.

use std::sync::Arc;

use asof_core::{Batch, Query, SourceError, Stamp, TimeRange};

use crate::coverage::before;
use crate::head::ReadHead;
use crate::shared::Shared;

/// Batches from the end of a range to its start.
///
/// Each batch lies wholly before the one that was handed out before it. Within a batch messages are in
/// order, as in every batch: go through it with `.iter().rev()`.
#[derive(Debug)]
pub struct Reverse {
    shared: Arc<Shared>,
    head: ReadHead,
    query: Query,
    /// The last instant that has not been handed out; `None` at the start.
    end: Option<Stamp>,
    /// Nanoseconds that the next look takes in.
    step: i64,
    /// Batches of the last look, the latest at the end.
    ready: Vec<Batch>,
}

/// The first look, and the longest one.
const STEPS: (i64, i64) = (50_000_000, 3_600_000_000_000);
/// A look that brought more messages than this is followed by a shorter one.
const ENOUGH: usize = 4096;

impl Reverse {
    pub(crate) fn new(shared: &Arc<Shared>, query: &Query, head: ReadHead) -> Self {
        let range = query.range;
        Reverse {
            shared: Arc::clone(shared),
            head,
            query: query.clone(),
            end: (!range.is_empty()).then_some(range.end),
            step: STEPS.0,
            ready: Vec::new(),
        }
    }

    /// Everything at or before this has not been handed out yet; `None` at the start of the range.
    pub fn at(&self) -> Option<Stamp> {
        match self.ready.last() {
            Some(batch) => Some(batch.range().end),
            None => self.end,
        }
    }

    fn look(&mut self, end: Stamp) -> Result<(), SourceError> {
        self.head.set_position(end);
        let recording = self.shared.source.summary().range;
        let mut start = end.plus_nanos(-self.step);
        if !recording.is_empty() && end > recording.end {
            // Nothing is there, as a rule: one look takes it in, with a little of what lies before.
            start = start.min(recording.end.plus_nanos(-self.step));
        }
        if start <= recording.start || recording.is_empty() {
            start = Stamp::MIN;
        }
        let start = start.max(self.query.range.start);
        let query = Query {
            topics: self.query.topics.clone(),
            range: TimeRange::new(start, end),
        };
        let batches = self
            .head
            .read_ahead(&query)
            .collect::<Result<Vec<_>, _>>()?;
        let count: usize = batches.iter().map(Batch::len).sum();
        self.step = if count > ENOUGH {
            (self.step / 2).max(1)
        } else {
            self.step.saturating_mul(2).min(STEPS.1)
        };
        self.ready = batches;
        self.end = before(start).filter(|&end| end >= self.query.range.start);
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
                self.end = None;
                return Some(Err(error));
            }
        }
    }
}
