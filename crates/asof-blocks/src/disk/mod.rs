//! Blocks that had to leave memory, in a folder.

mod format;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof_core::{Batches, Query, Stamp, TimeRange};

use crate::block::Block;
use crate::coverage::before;
use crate::names::{ChannelTable, TopicId, TopicSet};
use crate::options::DiskOptions;
use crate::store::State;

/// A folder of sealed blocks, one file each.
///
/// Files are written under another name and renamed when they are complete, and everything in them
/// is checksummed. Whatever is wrong with one, it is removed and its block read from the source again.
#[derive(Debug)]
pub(crate) struct DiskTier {
    folder: PathBuf,
    budget: u64,
    fingerprint: String,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    groups: Vec<Group>,
    by_key: BTreeMap<u64, Place>,
    bytes: u64,
    next_key: u64,
}

/// Blocks of one set of topics. Invariant: they do not overlap.
#[derive(Debug)]
struct Group {
    topics: Vec<Arc<str>>,
    blocks: BTreeMap<Stamp, (Stamp, u64)>,
}

#[derive(Debug)]
struct Place {
    group: usize,
    start: Stamp,
    bytes: u64,
}

/// What the tier has at an instant.
pub(crate) struct Spilled {
    /// A block, and the topics of it that were asked for.
    pub block: Option<(u64, TopicSet)>,
    /// Until when that stays so.
    pub through: Stamp,
}

const EXTENSION: &str = "block";

impl DiskTier {
    /// Opens the folder and takes in what is there. `None`, with a warning, where it cannot be used.
    pub fn open(options: &DiskOptions) -> Option<Self> {
        // Each source has a folder of its own; the whole fingerprint stands in every file.
        let name = format!("{:08x}", crc32fast::hash(options.fingerprint.as_bytes()));
        let folder = options.folder.join(name);
        if let Err(error) = fs::create_dir_all(&folder) {
            tracing::warn!(folder = %folder.display(), %error, "no disk tier: its folder cannot be made");
            return None;
        }
        let tier = DiskTier {
            folder,
            budget: options.budget,
            fingerprint: options.fingerprint.clone(),
            files: Mutex::default(),
        };
        if let Err(error) = tier.take_stock() {
            tracing::warn!(folder = %tier.folder.display(), %error, "no disk tier: its folder cannot be read");
            return None;
        }
        Some(tier)
    }

    /// Bytes and blocks on disk.
    pub fn size(&self) -> (u64, usize) {
        let files = self.files();
        (files.bytes, files.by_key.len())
    }

    /// Writes a block, and removes the oldest ones to make room.
    pub fn write(&self, topics: &[(TopicId, Arc<str>)], block: &Block, table: &ChannelTable) {
        if block.rows.is_empty() {
            return;
        }
        let names: Vec<Arc<str>> = topics.iter().map(|(_, name)| Arc::clone(name)).collect();
        if self.files().holds(&names, block.range) {
            return;
        }
        let encoded = format::encode(&self.fingerprint, &names, block, table);
        let bytes = encoded.len() as u64;
        if bytes > self.budget {
            return;
        }
        let mut files = self.files();
        while files.bytes + bytes > self.budget {
            let Some((&oldest, _)) = files.by_key.first_key_value() else {
                break;
            };
            self.remove(&mut files, oldest);
        }
        let key = files.next_key;
        files.next_key += 1;
        for overlapping in files.overlapping(&names, block.range) {
            self.remove(&mut files, overlapping);
        }
        if let Err(error) = self.put(key, &encoded) {
            tracing::warn!(folder = %self.folder.display(), %error, "a block could not be written to disk");
            return;
        }
        files.add(key, &names, block.range, bytes);
    }

    /// What there is of these topics at `at`.
    pub fn find(&self, state: &State, topics: &TopicSet, at: Stamp) -> Spilled {
        let files = self.files();
        let mut spilled = Spilled {
            block: None,
            through: Stamp::MAX,
        };
        for group in &files.groups {
            let ids = group
                .topics
                .iter()
                .filter_map(|name| state.names.find(name));
            let held = ids.collect::<TopicSet>().intersection(topics);
            if held.is_empty() {
                continue;
            }
            match group.blocks.range(..=at).next_back() {
                Some((_, &(end, key))) if end >= at => {
                    return Spilled {
                        block: Some((key, held)),
                        through: end,
                    };
                }
                _ => {}
            }
            if let Some((&next, _)) = group.blocks.range(at..).next() {
                let through = before(next).unwrap_or(next);
                spilled.through = spilled.through.min(through);
            }
        }
        spilled
    }

    /// A block's messages; `None`, and the block is gone, if anything about it is wrong.
    pub fn read(&self, key: u64, query: &Query) -> Option<Batches> {
        let read = fs::read(self.path(key));
        let batch = read
            .ok()
            .and_then(|bytes| format::decode(&self.fingerprint, bytes, query));
        let Some(batch) = batch else {
            tracing::warn!(key, "a block on disk cannot be used and is removed");
            self.remove(&mut self.files(), key);
            return None;
        };
        let batch = Some(batch).filter(|batch| !batch.is_empty());
        Some(Box::new(batch.map(Ok).into_iter()))
    }

    fn take_stock(&self) -> io::Result<()> {
        let mut files = self.files();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let key = path
                .file_stem()
                .and_then(|stem| u64::from_str_radix(stem.to_str()?, 16).ok());
            let is_block = path.extension().is_some_and(|found| found == EXTENSION);
            let head = key
                .filter(|_| is_block)
                .and_then(|key| Some((key, self.read_head(&path)?)));
            match head {
                Some((key, (head, bytes)))
                    if files.bytes + bytes <= self.budget
                        && files.overlapping(&head.topics, head.range).is_empty() =>
                {
                    files.next_key = files.next_key.max(key + 1);
                    files.add(key, &head.topics, head.range, bytes);
                }
                // Left behind by someone who was interrupted, damaged, or too much.
                _ => drop(fs::remove_file(&path)),
            }
        }
        Ok(())
    }

    fn read_head(&self, path: &Path) -> Option<(format::Head, u64)> {
        let mut file = fs::File::open(path).ok()?;
        let bytes = file.metadata().ok()?.len();
        let mut lengths = [0; format::PREFIX];
        file.read_exact(&mut lengths).ok()?;
        let length = format::head_length(&lengths)?;
        if length > bytes {
            return None;
        }
        let mut head = vec![0; length as usize];
        file.seek(SeekFrom::Start(0)).ok()?;
        file.read_exact(&mut head).ok()?;
        let head = format::decode_head(&self.fingerprint, &head)?;
        (head.file_bytes == bytes).then_some((head, bytes))
    }

    fn put(&self, key: u64, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{key:016x}.unfinished"));
        fs::write(&unfinished, bytes)?;
        fs::rename(&unfinished, self.path(key))
    }

    fn remove(&self, files: &mut Files, key: u64) {
        files.remove(key);
        // If it cannot be removed, it is not used either: the next start will try again.
        drop(fs::remove_file(self.path(key)));
    }

    fn path(&self, key: u64) -> PathBuf {
        self.folder.join(format!("{key:016x}.{EXTENSION}"))
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn group(&mut self, topics: &[Arc<str>]) -> usize {
        if let Some(index) = self.groups.iter().position(|group| group.topics == topics) {
            return index;
        }
        self.groups.push(Group {
            topics: topics.to_vec(),
            blocks: BTreeMap::new(),
        });
        self.groups.len() - 1
    }

    fn holds(&mut self, topics: &[Arc<str>], range: TimeRange) -> bool {
        let group = self.group(topics);
        let at = self.groups[group].blocks.range(..=range.start).next_back();
        at.is_some_and(|(_, &(end, _))| end >= range.end)
    }

    fn overlapping(&mut self, topics: &[Arc<str>], range: TimeRange) -> Vec<u64> {
        let group = self.group(topics);
        let up_to_end = self.groups[group].blocks.range(..=range.end).rev();
        up_to_end
            .take_while(|(_, (end, _))| *end >= range.start)
            .map(|(_, &(_, key))| key)
            .collect()
    }

    fn add(&mut self, key: u64, topics: &[Arc<str>], range: TimeRange, bytes: u64) {
        let group = self.group(topics);
        self.groups[group]
            .blocks
            .insert(range.start, (range.end, key));
        self.bytes += bytes;
        let start = range.start;
        self.by_key.insert(
            key,
            Place {
                group,
                start,
                bytes,
            },
        );
    }

    fn remove(&mut self, key: u64) {
        if let Some(place) = self.by_key.remove(&key) {
            self.groups[place.group].blocks.remove(&place.start);
            self.bytes -= place.bytes;
        }
    }
}

/// What tells a file from every other, and from itself when it has changed: its size, when it was
/// modified, and checksums of its head and its tail.
///
/// # Errors
/// When the file cannot be read.
pub fn fingerprint_of_file(path: impl AsRef<Path>) -> io::Result<String> {
    const LOOK: u64 = 64 << 10;
    let mut file = fs::File::open(path)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_nanos());
    let mut head = Vec::new();
    file.by_ref().take(LOOK).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(size.saturating_sub(LOOK)))?;
    let mut tail = Vec::new();
    file.take(LOOK).read_to_end(&mut tail)?;
    let (head, tail) = (crc32fast::hash(&head), crc32fast::hash(&tail));
    Ok(format!("{size}-{modified}-{head:08x}-{tail:08x}"))
}
