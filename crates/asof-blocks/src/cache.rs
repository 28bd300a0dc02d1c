//! The cache itself.

use std::sync::Arc;

use asof_core::{
    Batch, Batches, Follow, FollowFinished, Growth, Portion, Query, Source, SourceError, Stamp,
    Summary, TimeRange, Topics,
};

use crate::disk::DiskTier;
use crate::head::{Direction, HeadClass, HeadOptions, ReadHead};
use crate::options::CacheOptions;
use crate::ranges::{LoadedRanges, RangeWatch};
use crate::reader::Reader;
use crate::reverse::Reverse;
use crate::shared::Shared;
use crate::stats::CacheStats;

/// A [`Source`] over any source, that keeps what was read, by topic and time, within a byte budget.
///
/// Cloning is cheap: clones share everything. Readers outlive the cache if they must.
///
/// Over a source that grows nothing is kept: any time may still get another message, so that neither a message nor
/// its absence is the last word. Reads, backfills and followers go to the source itself until it says that it is
/// [finished](Growth::Finished).
#[derive(Debug, Clone)]
pub struct BlockCache {
    shared: Arc<Shared>,
}

/// What the cache counts, held against what it finds by counting anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// What the budget says is in use.
    pub accounted: u64,
    /// The sum of what blocks, facts and reads on their way have reserved.
    pub reserved: u64,
    /// What the blocks cost, measured anew, with the same facts and reads.
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

    /// A cache over a source that others use as well.
    pub fn over(source: Arc<dyn Source>, options: CacheOptions) -> Self {
        BlockCache {
            shared: Shared::new(source, options),
        }
    }

    /// The source below.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.shared.source
    }

    /// A head on these topics: the cache keeps what it needs for as long as the head lives.
    pub fn head(&self, topics: &Topics, options: HeadOptions) -> ReadHead {
        ReadHead::new(&self.shared, topics, options)
    }

    /// Reads with a head of its own, of this class, that moves along.
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
    /// One call steps back over a video's group of pictures, however long it is. What is not held is
    /// read, and kept, in ranges that grow until there are enough messages.
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

    /// What is held of these topics: the times at which none of them is missing, what is being read included.
    ///
    /// Kept as blocks come and go: asking costs as much as has changed since these topics were last asked about.
    pub fn loaded(&self, topics: &Topics) -> LoadedRanges {
        LoadedRanges::of(&self.shared, topics)
    }

    /// The stretch of time of the block that holds this topic at `at`; `None` where nothing is held.
    pub fn block_at(&self, topic: &str, at: Stamp) -> Option<TimeRange> {
        let state = self.shared.state();
        let topic = state.names.find(topic)?;
        state.block_at(topic, at)
    }

    /// Tells when what is held of these topics changes, at most 60 times a second.
    pub fn watch(&self, topics: &Topics) -> RangeWatch {
        RangeWatch::new(&self.shared, topics)
    }

    /// Changes the budget. If it is lower, evicts at once, also what a playback head is about to need.
    ///
    /// What another thread is reading from the source at this moment is given up when its read returns.
    pub fn set_budget(&self, bytes: u64) {
        self.shared.budget.set_limit(bytes);
        self.shared.fit();
        self.shared.spill();
    }

    /// Writes what is held in memory to the disk tier, where there is one, as far as it has room.
    ///
    /// The last clone of a cache does this when it is dropped. Call it where a process may end without that.
    pub fn keep_on_disk(&self) {
        self.shared.keep_on_disk();
    }

    /// Drops everything that is held, on no one's behalf but the caller's.
    pub fn clear(&self) {
        let mut state = self.shared.state();
        let all = (0..state.names.len() as u32).collect();
        state.forget(&all, TimeRange::ALL);
    }

    /// What is held and has been done.
    pub fn stats(&self) -> CacheStats {
        let state = self.shared.state();
        let disk = self.shared.disk.as_ref().map(DiskTier::size);
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

    /// Counts everything anew and compares: for tests, after every step.
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

impl Source for BlockCache {
    fn summary(&self) -> Arc<Summary> {
        self.shared.source.summary()
    }

    /// Reads as [`HeadClass::Preload`].
    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(Box::new(self.read_as(query, HeadClass::Preload)))
    }

    fn backfill(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        crate::backfill::backfill(&self.shared, topics, at)
    }

    fn growth(&self) -> Growth {
        self.shared.source.growth()
    }

    fn outline(&self, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        self.shared.source.outline(grain)
    }

    /// A source that grows is followed itself; one that does not is read through the cache.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        if self.shared.is_growing() {
            return self.shared.source.follow(query);
        }
        Ok(Box::new(FollowFinished::new(self.read(query)?)))
    }
}
