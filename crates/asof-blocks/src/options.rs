//! How a cache is set up.

use std::path::PathBuf;

/// How a [`BlockCache`](crate::BlockCache) is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes that may be held, everything counted. 600 MB by default.
    pub budget: u64,
    /// A block is closed when it reaches this many bytes. 4 MiB by default; no more than an eighth of
    /// the budget in any case, so that there is something to choose from when one has to go.
    pub block_bytes: u64,
    /// Where evicted blocks go. Nowhere by default.
    pub disk: Option<DiskOptions>,
}

/// How the disk tier is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder; it is made if it is missing. Caches of any sources may share it, in any processes.
    pub folder: PathBuf,
    /// Bytes that may lie there, of all sources together. The oldest blocks go first.
    pub budget: u64,
    /// What tells this source from every other one, and from itself when it has changed: see
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
