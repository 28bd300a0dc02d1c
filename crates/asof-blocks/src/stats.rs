//! Statistics of the cache.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::head::HeadClass;

/// What a [`BlockCache`](crate::BlockCache) holds and has done so far. A snapshot in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The budget in bytes.
    pub budget: u64,
    /// Bytes accounted for: blocks, facts and reads in progress.
    pub accounted: u64,
    /// The most that was ever accounted for.
    pub peak: u64,
    /// Sealed blocks in memory.
    pub blocks: usize,
    /// Bytes of blocks by the most important class of reader that wanted them.
    pub bytes_by_class: BTreeMap<HeadClass, u64>,
    /// Bytes of payload in memory by topic.
    pub payload_by_topic: BTreeMap<String, u64>,
    /// Bytes in the disk tier.
    pub disk_bytes: u64,
    /// Blocks in the disk tier.
    pub disk_blocks: usize,
    /// Blocks that could not be written to the disk tier.
    pub disk_failures: u64,
    /// Bytes of remembered answers of `latest_at` about times that are not held.
    pub fact_bytes: u64,
    /// Messages served from memory.
    pub hits: u64,
    /// Messages read from the source or the disk tier.
    pub misses: u64,
    /// Answers of `latest_at`, per topic, served from memory.
    pub latest_hits: u64,
    /// Answers of `latest_at`, per topic, requested from the source.
    pub latest_misses: u64,
    /// Blocks that were evicted.
    pub evictions: u64,
    /// Blocks from which topics that no head wants were removed.
    pub trims: u64,
    /// Messages passed through uncached: there was no room for them, or the source may still add to them.
    pub passed_through: u64,
    /// Reads of the source.
    pub source_reads: u64,
    /// Calls of the `latest_at` of the source.
    pub source_lookups: u64,
    /// Messages delivered by the source.
    pub source_messages: u64,
    /// Blocks that were read back from the disk tier.
    pub disk_reads: u64,
    /// Times a reader had to wait for the source.
    pub stalls: u64,
    /// Total time readers have waited for the source.
    pub stalled: Duration,
    /// Times the source delivered a message out of order.
    ///
    /// After the first time nothing is cached, and readers that start then get all messages as the source delivers
    /// them. A reader that started earlier and shares a read with others may miss a message that came too late, or
    /// get it twice.
    pub disorders: u64,
}

/// A batch that takes longer than this counts as a stall.
const STALL_THRESHOLD: Duration = Duration::from_millis(1);

impl CacheStats {
    /// All zero, with an entry for each class.
    pub(crate) fn nothing_yet() -> Self {
        CacheStats {
            bytes_by_class: HeadClass::ALL.map(|class| (class, 0)).into(),
            ..CacheStats::default()
        }
    }

    /// Counts a wait for the source's next batch; `is_new` if it began the read.
    pub(crate) fn add_wait(&mut self, is_new: bool, waited: Duration) {
        self.source_reads += u64::from(is_new);
        self.stalled += waited;
        self.stalls += u64::from(waited >= STALL_THRESHOLD);
    }

    pub(crate) fn add_block(&mut self, class: HeadClass, bytes: u64) {
        *self.bytes_by_class.entry(class).or_default() += bytes;
    }

    pub(crate) fn remove_block(&mut self, class: HeadClass, bytes: u64) {
        *self.bytes_by_class.entry(class).or_default() -= bytes;
    }
}
