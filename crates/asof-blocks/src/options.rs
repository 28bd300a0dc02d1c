//! Options of a cache.

use std::path::PathBuf;

/// Options of a [`BlockCache`](crate::BlockCache).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// The most bytes to hold, everything counted. 600 MB by default.
    pub budget: u64,
    /// A block is closed when it reaches this many bytes. 4 MiB by default; never more than an eighth
    /// of the budget, so that eviction has a choice.
    pub block_bytes: u64,
    /// Where evicted blocks go. Nowhere by default.
    pub disk: Option<DiskOptions>,
}

/// Options of the disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder; created if missing. Caches of different sources and processes can share it.
    pub folder: PathBuf,
    /// The most bytes in the folder, for all sources together. The oldest blocks are removed first.
    pub budget: u64,
    /// Identifies this source and its current content: see
    /// [`fingerprint_of_file`](crate::fingerprint_of_file).
    pub fingerprint: String,
}

impl Default for CacheOptions {
    fn default() -> Self {
        CacheOptions {
            budget: 600_000_000,
            block_bytes: 4 << 20,
            disk: None,
        }
    }
}

impl CacheOptions {
    /// The defaults, with another budget.
    pub fn with_budget(bytes: u64) -> Self {
        CacheOptions {
            budget: bytes,
            ..CacheOptions::default()
        }
    }
}
