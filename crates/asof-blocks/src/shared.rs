//! State shared by a cache and all of its readers.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use asof_core::{Source, Summary, Topics};

use crate::block::Block;
use crate::budget::Budget;
use crate::disk::DiskTier;
use crate::names::{ChannelTable, TopicSet};
use crate::options::CacheOptions;
use crate::store::State;
use crate::wanted::QueryTopics;

pub(crate) struct Shared {
    pub source: Arc<dyn Source>,
    pub options: CacheOptions,
    pub budget: Arc<Budget>,
    pub disk: Option<Arc<DiskTier>>,
    spills: Mutex<Option<SpillThread>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache")
            .field("options", &self.options)
            .field("accounted", &self.budget.used())
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub fn new(source: Arc<dyn Source>, options: CacheOptions) -> Arc<Self> {
        let budget = Budget::new(options.budget);
        let disk = options.disk.as_ref().and_then(DiskTier::open).map(Arc::new);
        let state = State::new(Arc::clone(&budget), disk.is_some());
        Arc::new(Shared {
            source,
            options,
            budget,
            disk,
            spills: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// The store. It is never left inconsistent: no foreign code runs under the lock, so a poisoned lock can be
    /// ignored.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topics that a selection means. The source is queried before the lock is taken.
    pub fn resolve(&self, topics: &Topics) -> QueryTopics {
        let summary = self.source.summary();
        self.state().resolve(&summary, topics)
    }

    /// The topic names for a query of the source.
    pub fn names_of(state: &State, topics: &TopicSet) -> Topics {
        if state.names.has_rest(topics) {
            return Topics::All;
        }
        Topics::named(topics.iter().map(|topic| state.names.name(topic).as_ref()))
    }

    /// The size at which a block is sealed.
    pub fn block_bytes(&self) -> u64 {
        let most = (self.budget.limit() / 8).max(1);
        self.options.block_bytes.clamp(1, most)
    }

    /// Whether the source may still add messages at any time.
    pub fn is_growing(&self) -> bool {
        self.source.growth().is_growing()
    }

    /// Evicts until the budget holds. Open blocks are sealed for that, except those being read into right now;
    /// their readers do the same when they return.
    pub fn fit(&self) {
        if !self.budget.is_over() {
            return;
        }
        let fetches: Vec<_> = {
            let state = self.state();
            let flights = state.fetches.iter();
            flights.map(|flight| Arc::clone(&flight.fetch)).collect()
        };
        for fetch in fetches {
            fetch.settle(self);
        }
        self.state().fit();
    }

    /// Hands evicted blocks to the thread that writes them to the disk tier, with no lock of the store held. Waits only
    /// when that thread is a few blocks behind: they are memory too.
    pub fn spill(&self) {
        let Some(disk) = &self.disk else { return };
        let mut state = self.state();
        let evicted = state.evicted.as_mut().map(std::mem::take);
        let evicted: Vec<_> = evicted
            .into_iter()
            .flatten()
            .map(|(topics, block)| (state.stored_names(&topics), block))
            .collect();
        let table = state.names.table();
        drop(state);
        if evicted.is_empty() {
            return;
        }
        let summary = self.source.summary();
        let mut spills = self.spills();
        for (topics, block) in evicted {
            let spill = Spill {
                topics,
                block,
                table: Arc::clone(&table),
                summary: Arc::clone(&summary),
            };
            if spills.is_none() {
                *spills = SpillThread::start(disk);
            }
            match &*spills {
                Some(thread) => drop(thread.queue.send(spill)),
                None => spill.write(disk),
            }
        }
    }

    /// Waits until evicted blocks are written.
    pub fn flush(&self) {
        self.spill();
        drop(self.spills().take());
    }

    fn spills(&self) -> MutexGuard<'_, Option<SpillThread>> {
        self.spills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the blocks in memory to the disk tier, the most important first, as far as it has room.
    pub fn keep_on_disk(&self) {
        let Some(disk) = &self.disk else { return };
        self.flush();
        let (mut held, table) = {
            let state = self.state();
            let mut held = Vec::new();
            for set in state.sets.iter().filter(|set| !set.blocks.is_empty()) {
                let names: Arc<[Arc<str>]> = state.stored_names(&set.topics).into();
                let blocks = set.blocks.values();
                held.extend(
                    blocks.map(|slot| (slot.class, Arc::clone(&names), Arc::clone(&slot.block))),
                );
            }
            (held, state.names.table())
        };
        held.sort_by_key(|(class, _, block)| (std::cmp::Reverse(*class), block.range.start));
        let summary = self.source.summary();
        let mut room = disk.budget();
        for (_, names, block) in held {
            // More would push out what was written just now.
            room = room.saturating_sub(block.footprint());
            if room == 0 {
                break;
            }
            disk.write(&names, &block, &table, &summary.problems);
        }
    }
}

/// An evicted block on its way to the disk tier.
struct Spill {
    topics: Vec<Arc<str>>,
    block: Arc<Block>,
    table: Arc<ChannelTable>,
    /// Of the source, after the block was read: with the problems in it.
    summary: Arc<Summary>,
}

impl Spill {
    fn write(&self, disk: &DiskTier) {
        let problems = &self.summary.problems;
        disk.write(&self.topics, &self.block, &self.table, problems);
    }
}

/// The thread that writes evicted blocks. Dropping it waits until they are written.
struct SpillThread {
    queue: SyncSender<Spill>,
    thread: Option<JoinHandle<()>>,
}

/// The most evicted blocks that wait to be written.
const MOST_SPILLS: usize = 2;

impl SpillThread {
    /// `None` where there is no thread to be had.
    fn start(disk: &Arc<DiskTier>) -> Option<Self> {
        let (queue, spills) = mpsc::sync_channel::<Spill>(MOST_SPILLS);
        let disk = Arc::clone(disk);
        let thread = std::thread::Builder::new().name("asof-blocks".to_owned());
        let thread = thread.spawn(move || spills.iter().for_each(|spill| spill.write(&disk)));
        Some(SpillThread {
            queue,
            thread: Some(thread.ok()?),
        })
    }
}

impl Drop for SpillThread {
    fn drop(&mut self) {
        let (closed, _) = mpsc::sync_channel(0);
        self.queue = closed;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Shared {
    /// Keeps what was read for the next time the recording is opened.
    fn drop(&mut self) {
        self.keep_on_disk();
    }
}
