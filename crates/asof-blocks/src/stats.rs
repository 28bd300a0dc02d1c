//! What the cache has done, in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::head::HeadClass;

/// What a [`BlockCache`](crate::BlockCache) holds and has done so far. A snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The budget in bytes.
    pub budget: u64,
    /// Bytes accounted for: blocks, facts, and what is being read.
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
    /// Bytes of what sources said about times that are not held.
    pub fact_bytes: u64,
    /// Messages that came from memory.
    pub hits: u64,
    /// Messages that had to be read.
    pub misses: u64,
    /// Backfill answers, by topic, that came from memory.
    pub backfill_hits: u64,
    /// Backfill answers, by topic, that the source was asked for.
    pub backfill_misses: u64,
    /// Blocks that were evicted.
    pub evictions: u64,
    /// Blocks that had to give up topics that nobody wants.
    pub trims: u64,
    /// Messages that were passed on without being kept: there was no room for them, or the source may still change
    /// its mind.
    pub passed_through: u64,
    /// Times that the source was asked to read.
    pub source_reads: u64,
    /// Times that the source was asked for a backfill.
    pub source_backfills: u64,
    /// Messages that the source has delivered.
    pub source_messages: u64,
    /// Blocks that were read back from the disk tier.
    pub disk_reads: u64,
    /// Times that a reader had to wait for the source.
    pub stalls: u64,
    /// How long readers have waited for the source, together.
    pub stalled: Duration,
    /// Times that the source broke its promise of order.
    ///
    /// From the first time on the cache keeps nothing, and readers that begin then get all messages, as the source
    /// gives them. One that has begun before and shares a read with others may lack a message that came too late,
    /// or get it twice.
    pub disorders: u64,
}

/// A source that takes longer than this for a batch has made its reader wait.
const A_STALL: Duration = Duration::from_millis(1);

impl CacheStats {
    /// Nothing yet, of any class.
    pub(crate) fn nothing_yet() -> Self {
        CacheStats {
            bytes_by_class: HeadClass::ALL.map(|class| (class, 0)).into(),
            ..CacheStats::default()
        }
    }

    /// Counts a wait for the source's next batch, and whether reading began with it.
    pub(crate) fn add_wait(&mut self, is_new: bool, waited: Duration) {
        self.source_reads += u64::from(is_new);
        self.stalled += waited;
        self.stalls += u64::from(waited >= A_STALL);
    }

    pub(crate) fn add_block(&mut self, class: HeadClass, bytes: u64) {
        *self.bytes_by_class.entry(class).or_default() += bytes;
    }

    pub(crate) fn remove_block(&mut self, class: HeadClass, bytes: u64) {
        *self.bytes_by_class.entry(class).or_default() -= bytes;
    }
}
