//! Uncached reads, for sources of which nothing may be kept.

use std::time::Instant;

use asof_core::{Batch, Batches, Query, SourceError};

use crate::shared::Shared;

/// A read of the source, passed through unchanged.
pub(crate) struct Around {
    query: Query,
    batches: Option<Batches>,
}

impl std::fmt::Debug for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Around({:?})", self.query)
    }
}

impl Around {
    pub fn new(query: &Query) -> Self {
        Around {
            query: query.clone(),
            batches: None,
        }
    }

    pub fn next(&mut self, shared: &Shared) -> Option<Result<Batch, SourceError>> {
        let start = Instant::now();
        let is_new = self.batches.is_none();
        let next = match &mut self.batches {
            Some(batches) => batches.next(),
            None => match shared.source.read(&self.query) {
                Ok(batches) => self.batches.insert(batches).next(),
                Err(error) => Some(Err(error)),
            },
        };
        let waited = start.elapsed();
        let mut state = shared.state();
        let counters = &mut state.counters;
        counters.add_wait(is_new, waited);
        if let Some(Ok(batch)) = &next {
            let count = batch.len() as u64;
            counters.source_messages += count;
            counters.misses += count;
            counters.passed_through += count;
        }
        next
    }
}
