//! Channels by their ids in the file.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use asof_core::Channel;

/// The channels of a file, in the order in which they were found. It only grows, so an index into an older copy is
/// valid in every newer one.
#[derive(Debug)]
pub(crate) struct ChannelTable<Id> {
    pub channels: Arc<[Arc<Channel>]>,
    /// The file's id of each channel, parallel to `channels`.
    pub ids: Vec<Id>,
    by_id: ById,
}

impl<Id: Copy + Into<u32>> ChannelTable<Id> {
    /// The index of the channel that the file calls `id`.
    #[inline]
    pub fn index_of(&self, id: Id) -> Option<u32> {
        self.by_id.get(id.into())
    }

    /// The channel that the file calls `id`.
    pub fn get(&self, id: Id) -> Option<&Arc<Channel>> {
        self.channels.get(self.index_of(id)? as usize)
    }
}

/// Channels as they are found.
#[derive(Debug, Clone)]
pub(crate) struct ChannelList<Id> {
    channels: Vec<Arc<Channel>>,
    ids: Vec<Id>,
    by_id: ById,
    /// Built on demand: a file may have very many channels, and each new one invalidates the copy.
    table: OnceLock<Arc<ChannelTable<Id>>>,
}

impl<Id: Copy + Into<u32>> ChannelList<Id> {
    /// All channels found so far.
    pub fn table(&self) -> Arc<ChannelTable<Id>> {
        let table = self.table.get_or_init(|| {
            Arc::new(ChannelTable {
                channels: self.channels.clone().into(),
                ids: self.ids.clone(),
                by_id: self.by_id.clone(),
            })
        });
        Arc::clone(table)
    }

    /// How many channels are known.
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Every channel with its id.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Arc<Channel>)> {
        self.ids.iter().copied().zip(&self.channels)
    }

    /// The channel that the file calls `id`, and its index.
    pub fn find(&self, id: Id) -> Option<(u32, &Arc<Channel>)> {
        let index = self.by_id.get(id.into())?;
        Some((index, &self.channels[index as usize]))
    }

    /// Adds a channel under an unused id.
    pub fn insert(&mut self, id: Id, channel: Arc<Channel>) {
        self.by_id.set(id.into(), self.channels.len() as u32);
        self.channels.push(channel);
        self.ids.push(id);
        self.table = OnceLock::new();
    }
}

impl<Id> Default for ChannelList<Id> {
    fn default() -> Self {
        ChannelList {
            channels: Vec::new(),
            ids: Vec::new(),
            by_id: ById::default(),
            table: OnceLock::new(),
        }
    }
}

/// Indexes by the file's ids: small ids, in practice all of them, in a vector.
#[derive(Debug, Clone, Default)]
struct ById {
    small: Vec<u32>,
    large: BTreeMap<u32, u32>,
}

const NONE: u32 = u32::MAX;
const MAX_DIRECT_IDS: u32 = 1 << 16;

impl ById {
    #[inline]
    fn get(&self, id: u32) -> Option<u32> {
        match self.small.get(id as usize) {
            Some(&index) => (index != NONE).then_some(index),
            None => self.large.get(&id).copied(),
        }
    }

    fn set(&mut self, id: u32, index: u32) {
        if id < MAX_DIRECT_IDS {
            if self.small.len() <= id as usize {
                self.small.resize(id as usize + 1, NONE);
            }
            self.small[id as usize] = index;
        } else {
            self.large.insert(id, index);
        }
    }
}
