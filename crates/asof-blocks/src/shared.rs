//! What a cache and all of its readers share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof_core::{Source, Stamp, Topics};

use crate::budget::Budget;
use crate::disk::DiskTier;
use crate::names::TopicSet;
use crate::options::Options;
use crate::store::State;

pub(crate) struct Shared {
    pub source: Arc<dyn Source>,
    pub options: Options,
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
    pub fn new(source: Arc<dyn Source>, options: Options) -> Arc<Self> {
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

    /// The store. It is never left half changed: nothing that is done to it under the lock runs
    /// anyone else's code, so that a poisoned lock can be ignored.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of the topics that are meant.
    pub fn resolve(&self, state: &mut State, topics: &Topics) -> TopicSet {
        match topics {
            Topics::All => {
                let summary = self.source.summary();
                if let Some((known, all)) = &state.all_topics
                    && Arc::ptr_eq(known, &summary)
                {
                    return all.clone();
                }
                let channels = summary.channels.iter();
                let all: TopicSet = channels
                    .map(|entry| state.topic(&entry.channel.topic))
                    .collect();
                state.all_topics = Some((summary, all.clone()));
                all
            }
            Topics::Named(names) => names.iter().map(|name| state.topic(name)).collect(),
        }
    }

    /// Names for the source to be asked with.
    pub fn names_of(state: &State, topics: &TopicSet) -> Topics {
        Topics::named(topics.iter().map(|topic| state.names.name(topic).as_ref()))
    }

    /// When a block is closed.
    pub fn block_bytes(&self) -> u64 {
        let most = (self.budget.limit() / 8).max(1);
        self.options.block_bytes.clamp(1, most)
    }

    /// The last instant about which the source will not change its mind.
    pub fn settled(&self) -> Stamp {
        let Some(margin) = self.options.growing else {
            return Stamp::MAX;
        };
        let margin = i64::try_from(margin.as_nanos()).unwrap_or(i64::MAX);
        let range = self.source.summary().range;
        if range.is_empty() {
            return Stamp::MIN;
        }
        // Another message with the very last stamp may follow.
        range.end.plus_nanos(margin.saturating_neg()).plus_nanos(-1)
    }

    /// Hands evicted blocks to the disk tier, with no lock held.
    pub fn spill(&self) {
        let Some(disk) = &self.disk else { return };
        let mut state = self.state();
        let evicted = state.evicted.as_mut().map(std::mem::take);
        let evicted: Vec<_> = evicted
            .into_iter()
            .flatten()
            .map(|(topics, block)| {
                let names = topics
                    .iter()
                    .map(|topic| (topic, Arc::clone(state.names.name(topic))));
                (names.collect::<Vec<_>>(), block)
            })
            .collect();
        let table = Arc::clone(state.names.table());
        drop(state);
        for (topics, block) in evicted {
            disk.write(&topics, &block, &table);
        }
    }
}
