//! The memory of all histories of a buffer.

use crate::history::{Chunk, Parents};
use crate::shelf::{Shelf, Spot, Table};
use crate::sync::{AtomicU64, Mutex, Ordering, locked};

/// Bytes of one chunk.
pub(crate) const CHUNK_BYTES: u64 = size_of::<Chunk>() as u64;

/// With a smaller budget, chunks are allocated one by one.
const SMALL_BUDGET: u64 = 32 << 20;

/// Chunks for histories, the parents beside them, and the tables that link them.
pub(crate) struct Pool {
    pub(crate) chunks: Shelf<Chunk>,
    pub(crate) parents: Shelf<Parents>,
    pub(crate) tables: Shelf<Table<Chunk>>,
    free: Mutex<Vec<Spot<Chunk>>>,
    /// Bytes allocated.
    made: AtomicU64,
    /// The most bytes to allocate.
    budget: u64,
}

impl Pool {
    pub(crate) fn new(budget: u64) -> Self {
        Pool {
            budget,
            // What is allocated ahead must not matter beside a small budget.
            chunks: if budget < SMALL_BUDGET {
                Shelf::new()
            } else {
                Shelf::growing()
            },
            parents: Shelf::new(),
            tables: Shelf::new(),
            free: Mutex::new(Vec::new()),
            made: AtomicU64::new(0),
        }
    }

    /// A free chunk.
    pub(crate) fn take(&self) -> Spot<Chunk> {
        if let Some(spot) = locked(&self.free).pop() {
            return spot;
        }
        self.made.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
        self.chunks.put(Chunk::new())
    }

    /// Memory for the parents of a chunk's samples; it stays with that chunk.
    pub(crate) fn make_parents(&self) -> Spot<Parents> {
        let bytes = size_of::<Parents>() as u64;
        self.made.fetch_add(bytes, Ordering::Relaxed);
        self.parents.put(Parents::new())
    }

    /// A table for `len` chunks.
    pub(crate) fn make_table(&self, len: usize) -> Spot<Table<Chunk>> {
        let table = Table::new(len);
        let bytes = size_of::<Table<Chunk>>() + size_of_val(table.links());
        self.made.fetch_add(bytes as u64, Ordering::Relaxed);
        self.tables.put(table)
    }

    /// A free chunk, if the budget allows one. The budget also holds for concurrent calls.
    pub(crate) fn take_within_budget(&self) -> Option<Spot<Chunk>> {
        let mut free = locked(&self.free);
        if let Some(spot) = free.pop() {
            return Some(spot);
        }
        if self.bytes() + CHUNK_BYTES > self.budget {
            return None;
        }
        self.made.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
        drop(free);
        Some(self.chunks.put(Chunk::new()))
    }

    /// Takes back a chunk whose samples are all before their history's tail.
    pub(crate) fn give(&self, spot: Spot<Chunk>) {
        locked(&self.free).push(spot);
    }

    /// Bytes allocated, in use or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Whether there is no chunk left that the budget allows.
    pub(crate) fn is_spent(&self) -> bool {
        self.bytes() + CHUNK_BYTES > self.budget && locked(&self.free).is_empty()
    }
}
