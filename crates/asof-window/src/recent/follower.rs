//! A position in the store that advances with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use asof_core::{Follow, FollowEnd, Followed, Query, SourceError};

use super::Shared;
use super::store::Cursor;

/// Hands out what the store holds, then new messages.
pub(super) struct Follower {
    shared: Arc<Shared>,
    query: Query,
    cursor: Cursor,
    missed: BTreeMap<String, u64>,
}

impl Follower {
    pub fn new(shared: &Arc<Shared>, query: &Query) -> Self {
        let cursor = shared.lock().cursor(query.range.start);
        Follower {
            shared: Arc::clone(shared),
            query: query.clone(),
            cursor,
            missed: BTreeMap::new(),
        }
    }
}

impl Follow for Follower {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        let shared = Arc::clone(&self.shared);
        let mut store = shared.lock();
        loop {
            if store.has_restarted(&mut self.cursor) {
                return Ok(Followed::Restarted);
            }
            if let Some(batch) = store.advance(&self.query, &mut self.cursor, &mut self.missed) {
                drop(store);
                return Ok(Followed::Batch(batch.finish()));
            }
            let is_over = store
                .trusted()
                .is_some_and(|newest| newest > self.query.range.end);
            let end = if is_over || self.query.range.is_empty() {
                Some(FollowEnd::Complete)
            } else {
                store.end.clone()
            };
            if let Some(end) = end {
                return Ok(Followed::End(end));
            }
            if Instant::now() >= deadline {
                return Ok(Followed::CaughtUp);
            }
            store = shared.wait(store, deadline);
        }
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.missed)
    }
}
