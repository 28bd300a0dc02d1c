//! The memory of all histories of a buffer.

use crate::history::Chunk;
use crate::shelf::{Shelf, Spot, Table};
use crate::sync::{AtomicU64, Mutex, Ordering, locked};

/// Bytes of one chunk.
pub(crate) const CHUNK_BYTES: u64 = size_of::<Chunk>() as u64;

/// Chunks for histories, and the tables that link them.
pub(crate) struct Pool {
    pub(crate) chunks: Shelf<Chunk>,
    pub(crate) tables: Shelf<Table<Chunk>>,
    free: Mutex<Vec<Spot<Chunk>>>,
    made: AtomicU64,
    /// Bytes that chunks may take.
    budget: u64,
}

impl Pool {
    pub(crate) fn new(budget: u64) -> Self {
        Pool {
            budget,
            chunks: Shelf::new(),
            tables: Shelf::new(),
            free: Mutex::new(Vec::new()),
            made: AtomicU64::new(0),
        }
    }

    /// A chunk that nobody uses.
    pub(crate) fn take(&self) -> Spot<Chunk> {
        if let Some(spot) = locked(&self.free).pop() {
            return spot;
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        self.chunks.put(Chunk::new())
    }

    /// A chunk that nobody uses, if the budget allows one. Asked by several at once, it is never given
    /// more than it allows.
    pub(crate) fn take_within_budget(&self) -> Option<Spot<Chunk>> {
        let mut free = locked(&self.free);
        if let Some(spot) = free.pop() {
            return Some(spot);
        }
        if self.bytes() + CHUNK_BYTES > self.budget {
            return None;
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        drop(free);
        Some(self.chunks.put(Chunk::new()))
    }

    /// Takes back a chunk whose samples are all behind their history's tail.
    pub(crate) fn give(&self, spot: Spot<Chunk>) {
        locked(&self.free).push(spot);
    }

    /// Bytes of all chunks, in use or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.made.load(Ordering::Relaxed) * CHUNK_BYTES
    }

    /// Whether there is no chunk left that the budget allows.
    pub(crate) fn is_spent(&self) -> bool {
        self.bytes() + CHUNK_BYTES > self.budget && locked(&self.free).is_empty()
    }
}
