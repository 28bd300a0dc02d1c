//! The index of a disk tier: which blocks it has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use asof_core::{Stamp, TimeRange};

use super::format::Expected;

/// Blocks on disk by topics and time. Memory only.
#[derive(Debug, Default)]
pub(super) struct Files {
    groups: Vec<Group>,
    by_key: BTreeMap<u64, Entry>,
    /// Keys by their last use: the first is the oldest.
    by_use: BTreeMap<u64, u64>,
    bytes: u64,
    next_key: u64,
    next_use: u64,
}

/// Blocks of one set of topics. Invariant: they do not overlap.
#[derive(Debug)]
pub(super) struct Group {
    pub topics: Arc<[Arc<str>]>,
    /// Ends and keys by start.
    pub blocks: BTreeMap<Stamp, (Stamp, u64)>,
}

#[derive(Debug)]
struct Entry {
    group: usize,
    range: TimeRange,
    bytes: u64,
    last_use: u64,
    fingerprint: Arc<str>,
    path: PathBuf,
}

/// A file, and what it must hold.
pub(super) struct BlockFile {
    pub path: PathBuf,
    pub expected: Expected,
}

impl Files {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn place(&self, key: u64) -> Option<BlockFile> {
        let entry = self.by_key.get(&key)?;
        Some(BlockFile {
            path: entry.path.clone(),
            expected: Expected {
                fingerprint: Arc::clone(&entry.fingerprint),
                range: entry.range,
                topics: Arc::clone(&self.groups[entry.group].topics),
            },
        })
    }

    /// Whether one block covers all of this range for exactly these topics.
    pub fn holds(&self, topics: &[Arc<str>], range: TimeRange) -> bool {
        let Some(group) = self.find(topics) else {
            return false;
        };
        let at = self.groups[group].blocks.range(..=range.start).next_back();
        at.is_some_and(|(_, &(end, _))| end >= range.end)
    }

    pub fn overlapping(&self, topics: &[Arc<str>], range: TimeRange) -> Vec<u64> {
        let Some(group) = self.find(topics) else {
            return Vec::new();
        };
        let up_to_end = self.groups[group].blocks.range(..=range.end).rev();
        up_to_end
            .take_while(|(_, (end, _))| *end >= range.start)
            .map(|(_, &(_, key))| key)
            .collect()
    }

    pub fn add(&mut self, path: PathBuf, expected: &Expected, bytes: u64) {
        let group = self.find(&expected.topics).unwrap_or_else(|| {
            self.groups.push(Group {
                topics: Arc::clone(&expected.topics),
                blocks: BTreeMap::new(),
            });
            self.groups.len() - 1
        });
        let key = self.next_key;
        self.next_key += 1;
        let range = expected.range;
        self.groups[group]
            .blocks
            .insert(range.start, (range.end, key));
        self.bytes += bytes;
        let fingerprint = Arc::clone(&expected.fingerprint);
        self.by_key.insert(
            key,
            Entry {
                group,
                range,
                bytes,
                last_use: self.next_use,
                fingerprint,
                path,
            },
        );
        self.by_use.insert(self.next_use, key);
        self.next_use += 1;
    }

    /// Notes that a block was read.
    pub fn touch(&mut self, key: u64) {
        if let Some(entry) = self.by_key.get_mut(&key) {
            self.by_use.remove(&entry.last_use);
            entry.last_use = self.next_use;
            self.by_use.insert(self.next_use, key);
            self.next_use += 1;
        }
    }

    /// Removes a block from the index; returns its file, if it was there.
    pub fn remove(&mut self, key: u64) -> Option<PathBuf> {
        let entry = self.by_key.remove(&key)?;
        self.groups[entry.group].blocks.remove(&entry.range.start);
        self.by_use.remove(&entry.last_use);
        self.bytes -= entry.bytes;
        Some(entry.path)
    }

    pub fn oldest(&self) -> Option<u64> {
        self.by_use.first_key_value().map(|(_, &key)| key)
    }

    /// Keys and files of all blocks.
    pub fn paths(&self) -> impl Iterator<Item = (u64, &PathBuf)> {
        self.by_key.iter().map(|(&key, entry)| (key, &entry.path))
    }

    fn find(&self, topics: &[Arc<str>]) -> Option<usize> {
        self.groups
            .iter()
            .position(|group| *group.topics == *topics)
    }
}
