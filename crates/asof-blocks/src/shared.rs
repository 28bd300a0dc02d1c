//! State shared by a cache and all of its readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof_core::{Source, Topics};

use crate::budget::Budget;
use crate::disk::DiskTier;
use crate::names::TopicSet;
use crate::options::CacheOptions;
use crate::store::State;
use crate::wanted::Wanted;

pub(crate) struct Shared {
    pub source: Arc<dyn Source>,
    pub options: CacheOptions,
    pub budget: Arc<Budget>,
    pub disk: Option<DiskTier>,
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
        let disk = options.disk.as_ref().and_then(DiskTier::open);
        let state = State::new(Arc::clone(&budget), disk.is_some());
        Arc::new(Shared {
            source,
            options,
            budget,
            disk,
            state: Mutex::new(state),
        })
    }

    /// The store. It is never left inconsistent: no foreign code runs under the lock, so a poisoned lock can be
    /// ignored.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topics that a selection means. The source is queried before the lock is taken.
    pub fn resolve(&self, topics: &Topics) -> Wanted {
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

    /// Writes evicted blocks to the disk tier, with no lock held.
    pub fn spill(&self) {
        let Some(disk) = &self.disk else { return };
        let mut state = self.state();
        let evicted = state.evicted.as_mut().map(std::mem::take);
        let evicted: Vec<_> = evicted
            .into_iter()
            .flatten()
            .map(|(topics, block)| (state.stored_names(&topics), block))
            .collect();
        let table = Arc::clone(state.names.table());
        drop(state);
        for (topics, block) in evicted {
            disk.write(&topics, &block, &table);
        }
    }

    /// Writes the blocks in memory to the disk tier, the most important first, as far as it has room.
    pub fn keep_on_disk(&self) {
        let Some(disk) = &self.disk else { return };
        self.spill();
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
            (held, Arc::clone(state.names.table()))
        };
        held.sort_by_key(|(class, _, block)| (std::cmp::Reverse(*class), block.range.start));
        let mut room = disk.budget();
        for (_, names, block) in held {
            // More would push out what was written just now.
            room = room.saturating_sub(block.footprint());
            if room == 0 {
                break;
            }
            disk.write(&names, &block, &table);
        }
    }
}

impl Drop for Shared {
    /// Keeps what was read for the next time the recording is opened.
    fn drop(&mut self) {
        self.keep_on_disk();
    }
}
