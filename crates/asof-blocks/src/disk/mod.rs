//! The disk tier: evicted blocks in a folder.

mod files;
mod folder;
mod format;

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use asof_core::{Batches, DerivedSummary, Problem, Query, Stamp, Summary};

use crate::block::Block;
use crate::coverage::before;
use crate::names::{ChannelTable, TopicSet};
use crate::options::DiskOptions;
use crate::store::State;
use files::Files;
use folder::Folder;

/// A folder of sealed blocks, one file each, that any number of caches and processes may share.
///
/// Files never change: they are written under a temporary name and renamed when complete, and
/// everything in them is checksummed. Their names are unique over all processes. Writing and removing
/// happen with the folder's lock held; reading needs none, because a file's content is compared with
/// the index. If a file is damaged, its block is read from the source.
#[derive(Debug)]
pub(crate) struct DiskTier {
    /// The blocks known to be there. Locked for a search, never during I/O: the store's lock is held
    /// around some of the searches.
    files: Mutex<Files>,
    /// Held while writing. Never taken with the store's lock held.
    folder: Mutex<Folder>,
    failures: AtomicU64,
    /// The problems that were found while the blocks that were there at the start were read.
    problems: Vec<Problem>,
    summary: DerivedSummary,
    /// The source is unreliable and its blocks are no longer used.
    is_given_up: AtomicBool,
}

/// What the tier has at an instant.
pub(crate) struct Spilled {
    /// A block, and the topics of it that were asked for.
    pub block: Option<(u64, TopicSet)>,
    /// The last instant for which this is so.
    pub through: Stamp,
}

/// The size of the tier and its failures.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TierSize {
    pub bytes: u64,
    pub blocks: usize,
    pub failures: u64,
}

impl DiskTier {
    /// Opens the folder and indexes its blocks. `None`, with a warning, if it cannot be used.
    pub fn open(options: &DiskOptions) -> Option<Self> {
        let files = Mutex::new(Files::default());
        let opened = Folder::open(options).and_then(|mut folder| {
            folder.refresh(&files)?;
            Ok(folder)
        });
        match opened {
            Ok(folder) => Some(DiskTier {
                files,
                problems: folder.problems(),
                summary: DerivedSummary::default(),
                folder: Mutex::new(folder),
                failures: AtomicU64::new(0),
                is_given_up: AtomicBool::new(false),
            }),
            Err(error) => {
                tracing::warn!(folder = %options.folder.display(), %error, "disk tier disabled: its folder cannot be used");
                None
            }
        }
    }

    /// The size of the tier as this cache's index has it.
    pub fn size(&self) -> TierSize {
        let files = self.files();
        TierSize {
            bytes: files.bytes(),
            blocks: files.len(),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// The summary with the problems that were found when the blocks on disk were read.
    pub fn with_problems(&self, summary: Arc<Summary>) -> Arc<Summary> {
        if self.problems.is_empty() {
            return summary;
        }
        self.summary.changed(summary, |all| {
            folder::add_new(&mut all.problems, &self.problems);
        })
    }

    /// The byte budget of the folder.
    pub fn budget(&self) -> u64 {
        self.folder().budget()
    }

    /// Removes every block of this source and accepts no more.
    pub fn give_up(&self) {
        let mut folder = self.folder();
        self.is_given_up.store(true, Ordering::Relaxed);
        if let Err(error) = folder.clear(&self.files) {
            tracing::warn!(folder = %folder.path().display(), %error, "blocks on disk could not be removed");
        }
    }

    /// Writes a block, with the problems of its source so far, and removes the least recently used ones to make room.
    /// Returns the bytes written.
    pub fn write(
        &self,
        topics: &[Arc<str>],
        block: &Block,
        table: &ChannelTable,
        problems: &[Problem],
    ) -> u64 {
        if topics.is_empty() || self.files().holds(topics, block.range) {
            return 0;
        }
        let mut folder = self.folder();
        if self.is_given_up.load(Ordering::Relaxed) {
            return 0;
        }
        let encoded = format::encode(folder.fingerprint(), topics, block, table);
        match folder.put(&self.files, topics, block.range, &encoded, problems) {
            Ok(bytes) => bytes,
            Err(error) => {
                // One warning is enough: a full disk stays full for every block that follows.
                if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(folder = %folder.path().display(), %error, "a block could not be written to disk; further failures are only counted");
                }
                0
            }
        }
    }

    /// What the tier has of these topics at `at`.
    pub fn find(&self, state: &State, topics: &TopicSet, at: Stamp) -> Spilled {
        let files = self.files();
        let mut spilled = Spilled {
            block: None,
            through: Stamp::MAX,
        };
        for group in files.groups() {
            let ids = group
                .topics
                .iter()
                .filter_map(|name| state.names.find_stored(name));
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

    /// A block's messages. If it is damaged, removes it from the index and returns `None`.
    pub fn read(&self, key: u64, query: &Query) -> Option<Batches> {
        let place = self.files().place(key)?;
        let read = fs::read(&place.path);
        let is_gone = matches!(&read, Err(error) if error.kind() == io::ErrorKind::NotFound);
        let batch = read
            .ok()
            .and_then(|bytes| format::decode(&place.expected, bytes, query));
        let Some(batch) = batch else {
            self.files().remove(key);
            if !is_gone {
                tracing::warn!(file = %place.path.display(), "a block on disk cannot be used and is removed");
                // A file that cannot be removed is not used either; the next start tries again.
                drop(fs::remove_file(&place.path));
            }
            return None;
        };
        self.files().touch(key);
        // So that other processes, and the next one, know what is in use. Where it cannot be set, the block goes earlier.
        drop(
            fs::File::options()
                .append(true)
                .open(&place.path)
                .and_then(|file| file.set_modified(SystemTime::now())),
        );
        let batch = Some(batch).filter(|batch| !batch.is_empty());
        Some(Box::new(batch.map(Ok).into_iter()))
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> MutexGuard<'_, Folder> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identifies a file and its current content by its size, modification time, and checksums of its head
/// and its tail.
///
/// # Errors
/// When the file cannot be read.
pub fn fingerprint_of_file(path: impl AsRef<Path>) -> io::Result<String> {
    const FINGERPRINT_BYTES: u64 = 64 << 10;
    let mut file = fs::File::open(path)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_nanos());
    let mut head = Vec::new();
    file.by_ref()
        .take(FINGERPRINT_BYTES)
        .read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(size.saturating_sub(FINGERPRINT_BYTES)))?;
    let mut tail = Vec::new();
    file.take(FINGERPRINT_BYTES).read_to_end(&mut tail)?;
    let (head, tail) = (crc32fast::hash(&head), crc32fast::hash(&tail));
    Ok(format!("{size}-{modified}-{head:08x}-{tail:08x}"))
}
