//! The cache itself.

use std::sync::Arc;

use asof_core::{
    Batch, Batches, Follow, FollowFinished, Query, Source, SourceError, Stamp, Summary, TimeRange,
    Topics,
};

use crate::disk::DiskTier;
use crate::head::{Direction, HeadClass, HeadOptions, ReadHead};
use crate::options::CacheOptions;
use crate::ranges::{LoadedRanges, RangeWatch};
use crate::reader::Reader;
use crate::reverse::Reverse;
use crate::shared::Shared;
use crate::stats::CacheStats;
use crate::wanted::accounts_for_all;

/// A read-through cache: a [`Source`] over any source that keeps what was read, by topic and time, within a byte
/// budget.
///
/// Cloning is cheap: clones share everything. Readers may outlive the cache.
///
/// Nothing is cached over a growing source, since any time may still get another message. Reads, lookups and
/// followers go to the source itself until it is [finished](asof_core::Growth::Finished).
#[derive(Debug, Clone)]
pub struct BlockCache {
    shared: Arc<Shared>,
}

/// The cache's running counts against a recount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// Bytes in use according to the budget.
    pub accounted: u64,
    /// The sum of the reservations of blocks, facts and reads in progress.
    pub reserved: u64,
    /// The recounted cost of the blocks, plus the same facts and reads.
    pub measured: u64,
    /// The budget.
    pub budget: u64,
}

impl Audit {
    /// Whether all counts agree and the budget holds.
    pub fn is_sound(&self) -> bool {
        self.accounted == self.reserved
            && self.reserved == self.measured
            && self.accounted <= self.budget
    }
}

impl BlockCache {
    /// A cache over `source`.
    pub fn new(source: impl Source + 'static, options: CacheOptions) -> Self {
        BlockCache::over(Arc::new(source), options)
    }

    /// A cache over a shared source.
    pub fn over(source: Arc<dyn Source>, options: CacheOptions) -> Self {
        BlockCache {
            shared: Shared::new(source, options),
        }
    }

    /// The underlying source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.shared.source
    }

    /// Creates a read head on these topics. The cache keeps what the head needs until it is dropped.
    pub fn head(&self, topics: &Topics, options: HeadOptions) -> ReadHead {
        ReadHead::new(&self.shared, topics, options)
    }

    /// Reads with a new head of this class, which moves along with the reader.
    pub fn read_as(&self, query: &Query, class: HeadClass) -> Reader {
        let options = HeadOptions {
            class,
            position: query.range.start,
            ..HeadOptions::default()
        };
        self.head(&query.topics, options).read(query)
    }

    /// The last `count` messages of a topic at or before `at`, in order of time.
    ///
    /// One call steps back over a video's group of pictures, however long. Missing data is read, and cached, in
    /// growing ranges until there are enough messages.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn last_n(&self, topic: &str, at: Stamp, count: usize) -> Result<Batch, SourceError> {
        crate::last_n::last_n(&self.shared, topic, at, count)
    }

    /// Reads backwards from the end of the query's range.
    pub fn reverse(&self, query: &Query, class: HeadClass) -> Reverse {
        let head = self.head(
            &query.topics,
            HeadOptions {
                class,
                position: query.range.end,
                direction: Direction::Backward,
                ..HeadOptions::default()
            },
        );
        Reverse::new(&self.shared, query, head)
    }

    /// The times at which all of these topics are held, reads in progress included.
    ///
    /// Updated as blocks come and go: a call costs what has changed since the last call for these topics.
    pub fn loaded(&self, topics: &Topics) -> LoadedRanges {
        LoadedRanges::of(&self.shared, topics)
    }

    /// The time range of the block that holds this topic at `at`; `None` if nothing is held there.
    pub fn block_at(&self, topic: &str, at: Stamp) -> Option<TimeRange> {
        let state = self.shared.state();
        let topic = state.names.find(topic)?;
        state.block_at(topic, at)
    }

    /// Watches the loaded ranges of these topics, with at most 60 events a second.
    pub fn watch(&self, topics: &Topics) -> RangeWatch {
        RangeWatch::new(&self.shared, topics)
    }

    /// Changes the budget. A lower one evicts at once, even what a playback head is about to need.
    ///
    /// What another thread is reading from the source at this moment is released when its read returns.
    pub fn set_budget(&self, bytes: u64) {
        self.shared.budget.set_limit(bytes);
        self.shared.fit();
        self.shared.spill();
    }

    /// Waits until every evicted block is on disk. They are written on a thread of its own.
    pub fn flush(&self) {
        self.shared.flush();
    }

    /// Writes the blocks in memory to the disk tier, if there is one, as far as it has room.
    ///
    /// Dropping the last clone of a cache does the same. Call this if the process may end without dropping it.
    pub fn keep_on_disk(&self) {
        self.shared.keep_on_disk();
    }

    /// Whether the summary lists every topic that has messages: its counts say so. A damaged file may have others.
    pub fn lists_all_topics(&self) -> bool {
        accounts_for_all(&Source::summary(self))
    }

    /// Drops everything that is held.
    pub fn clear(&self) {
        let mut state = self.shared.state();
        let all = (0..state.names.len() as u32).collect();
        state.forget(&all, TimeRange::ALL);
    }

    /// Statistics: what is held and what was done.
    pub fn stats(&self) -> CacheStats {
        let state = self.shared.state();
        let disk = self.shared.disk.as_deref().map(DiskTier::size);
        let disk = disk.unwrap_or_default();
        let by_topic = state.topics.iter().enumerate();
        CacheStats {
            budget: self.shared.budget.limit(),
            accounted: self.shared.budget.used(),
            peak: self.shared.budget.peak(),
            blocks: state.block_count(),
            payload_by_topic: by_topic
                .filter(|(_, index)| index.payload_bytes > 0)
                .map(|(id, index)| (state.names.name(id as u32).to_string(), index.payload_bytes))
                .collect(),
            disk_bytes: disk.bytes,
            disk_blocks: disk.blocks,
            disk_failures: disk.failures,
            fact_bytes: state.measured_facts(),
            ..state.counters.clone()
        }
    }

    /// Recounts everything and compares. For tests, after every step.
    ///
    /// Exact only while no other thread reads.
    pub fn audit(&self) -> Audit {
        let fetches: Vec<_> = {
            let state = self.shared.state();
            state
                .fetches
                .iter()
                .map(|flight| Arc::clone(&flight.fetch))
                .collect()
        };
        let open: u64 = fetches.iter().map(|fetch| fetch.reserved()).sum();
        let state = self.shared.state();
        let slots = || state.sets.iter().flat_map(|set| set.blocks.values());
        let facts = state.measured_facts();
        Audit {
            accounted: self.shared.budget.used(),
            reserved: slots().map(|slot| slot.charge.bytes()).sum::<u64>() + facts + open,
            measured: slots().map(|slot| slot.block.footprint()).sum::<u64>() + facts + open,
            budget: self.shared.budget.limit(),
        }
    }
}

impl asof_core::SourceLayer for BlockCache {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.shared.source
    }

    /// That of the source; problems that were found when the blocks of the disk tier were read are in it.
    fn summary(&self) -> Arc<Summary> {
        let summary = self.inner().summary();
        match &self.shared.disk {
            Some(disk) => disk.with_problems(summary),
            None => summary,
        }
    }

    /// Reads as [`HeadClass::Preload`].
    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(Box::new(self.read_as(query, HeadClass::Preload)))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        crate::latest_at::latest_at(&self.shared, topics, at)
    }

    /// Follows a growing source directly; reads any other through the cache.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        if self.shared.is_growing() {
            return self.inner().follow(query);
        }
        Ok(Box::new(FollowFinished::new(asof_core::SourceLayer::read(
            self, query,
        )?)))
    }
}
