//! The folder of a disk tier: its lock, its budget, and its files.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use asof_core::{Problem, TimeRange};

use super::files::Files;
use super::format::{self, Expected};
use crate::options::DiskOptions;

const BLOCK: &str = "block";
const UNFINISHED: &str = "unfinished";
/// The file of the problems that were found while a source's blocks were read.
const PROBLEMS: &str = "found.problems";
const LOCK: &str = "asof-blocks.lock";

/// How often the lock is tried, and at what interval. A process that is stopped while it holds the lock must not
/// stop the others: they continue without writing.
const MAX_TRIES: u32 = 100;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// How long nothing is written after the lock could not be had: the next blocks need not wait as well.
const LOCK_PAUSE: Duration = Duration::from_secs(10);

/// Where a tier's blocks are: a folder for each source, inside one that all sources share.
///
/// The shared folder has one lock and one budget. The lock file holds a count of changes: a process that finds a
/// different count than it left there lists the files again.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    own: PathBuf,
    fingerprint: Arc<str>,
    budget: u64,
    lock: File,
    /// Until when the lock is not tried.
    paused: Option<Instant>,
    /// The change count that the index reflects.
    seen: Option<u64>,
    /// Blocks of other sources, the least recently used last.
    others: Vec<Other>,
    other_bytes: u64,
    /// Distinguishes this tier's files from those of every other tier, in any process.
    maker: u64,
    written: u64,
    /// How many problems of this source were written.
    problems: usize,
}

#[derive(Debug)]
struct Other {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

impl Folder {
    pub fn open(options: &DiskOptions) -> io::Result<Self> {
        let fingerprint: Arc<str> = options.fingerprint.as_str().into();
        let own = options.folder.join(name_of(&fingerprint));
        fs::create_dir_all(&own)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(options.folder.join(LOCK))?;
        Ok(Folder {
            root: options.folder.clone(),
            own,
            fingerprint,
            budget: options.budget,
            lock,
            paused: None,
            seen: None,
            others: Vec::new(),
            other_bytes: 0,
            maker: unique_number(),
            written: 0,
            problems: 0,
        })
    }

    pub fn path(&self) -> &Path {
        &self.own
    }

    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Takes in changes that others made to the folder.
    pub fn refresh(&mut self, index: &Mutex<Files>) -> io::Result<()> {
        self.locked(|folder| folder.look(index))
    }

    /// Writes a block, unless it is there already or larger than the budget, and the problems that were found while it was
    /// read. Returns its bytes.
    pub fn put(
        &mut self,
        index: &Mutex<Files>,
        topics: &[Arc<str>],
        range: TimeRange,
        encoded: &[u8],
        problems: &[Problem],
    ) -> io::Result<u64> {
        let bytes = encoded.len() as u64;
        if bytes > self.budget {
            return Ok(0);
        }
        self.locked(|folder| {
            folder.look(index)?;
            if with(index, |files| files.holds(topics, range)) {
                return Ok(0);
            }
            let replaced: Vec<PathBuf> = with(index, |files| {
                let overlapping = files.overlapping(topics, range).into_iter();
                overlapping.filter_map(|key| files.remove(key)).collect()
            });
            for path in &replaced {
                remove(path);
            }
            folder.make_room(index, bytes);
            // First: a block must never be there without them.
            folder.put_problems(problems)?;
            let path = folder.write(encoded, BLOCK)?;
            let expected = Expected {
                fingerprint: Arc::clone(&folder.fingerprint),
                range,
                topics: topics.into(),
            };
            with(index, |files| files.add(path, &expected, bytes));
            folder.count_change()?;
            Ok(bytes)
        })
    }

    /// The problems that were found while the source's blocks were read.
    pub fn problems(&self) -> Vec<Problem> {
        let bytes = fs::read(self.own.join(PROBLEMS)).unwrap_or_default();
        format::decode_problems(&self.fingerprint, &bytes).unwrap_or_default()
    }

    /// Adds problems to those that are there. With the lock held.
    fn put_problems(&mut self, problems: &[Problem]) -> io::Result<()> {
        let path = self.own.join(PROBLEMS);
        if problems.is_empty() || (self.problems == problems.len() && path.exists()) {
            return Ok(());
        }
        let mut all = self.problems();
        add_new(&mut all, problems);
        let written = self.write(
            &format::encode_problems(&self.fingerprint, &all),
            "problems",
        )?;
        fs::rename(written, path)?;
        self.problems = problems.len();
        Ok(())
    }

    /// Removes every block of this source.
    pub fn clear(&mut self, index: &Mutex<Files>) -> io::Result<()> {
        self.locked(|folder| {
            with(index, |files| *files = Files::default());
            for path in folder.list_own()? {
                remove(&path);
            }
            folder.count_change()
        })
    }

    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let busy = || {
            let text = "another process holds the folder's lock";
            io::Error::new(io::ErrorKind::WouldBlock, text)
        };
        if self.paused.is_some_and(|until| Instant::now() < until) {
            return Err(busy());
        }
        let mut tries = 0;
        while let Err(refused) = self.lock.try_lock() {
            tries += 1;
            match refused {
                TryLockError::Error(error) => return Err(error),
                TryLockError::WouldBlock if tries >= MAX_TRIES => {
                    self.paused = Some(Instant::now() + LOCK_PAUSE);
                    return Err(busy());
                }
                TryLockError::WouldBlock => std::thread::sleep(LOCK_RETRY_INTERVAL),
            }
        }
        let done = work(self);
        // A lock that cannot be released ends when the file is closed.
        drop(self.lock.unlock());
        done
    }

    /// Lists the files again if another tier has changed them. With the lock held.
    fn look(&mut self, index: &Mutex<Files>) -> io::Result<()> {
        let count = self.changes()?;
        if self.seen == Some(count) {
            return Ok(());
        }
        let listed = self.list_own()?;
        let known: BTreeSet<PathBuf> = with(index, |files| {
            files.paths().map(|(_, path)| path.clone()).collect()
        });
        let mut found = Vec::new();
        for path in listed.iter().filter(|path| !known.contains(*path)) {
            match read_head(path, &self.fingerprint) {
                Some((expected, bytes)) => found.push((path.clone(), expected, bytes)),
                None => remove(path),
            }
        }
        let listed: BTreeSet<PathBuf> = listed.into_iter().collect();
        let twice: Vec<PathBuf> = with(index, |files| {
            let gone: Vec<u64> = files
                .paths()
                .filter(|(_, path)| !listed.contains(*path))
                .map(|(key, _)| key)
                .collect();
            for key in gone {
                files.remove(key);
            }
            let mut twice = Vec::new();
            for (path, expected, bytes) in found {
                if files
                    .overlapping(&expected.topics, expected.range)
                    .is_empty()
                {
                    files.add(path, &expected, bytes);
                } else {
                    twice.push(path);
                }
            }
            twice
        });
        for path in &twice {
            remove(path);
        }
        self.list_others()?;
        self.make_room(index, 0);
        self.seen = Some(count);
        Ok(())
    }

    /// Removes blocks until `bytes` more fit: those of other sources first, then those of this one, from the least
    /// recently used.
    fn make_room(&mut self, index: &Mutex<Files>, bytes: u64) {
        let mut used = with(index, |files| files.bytes());
        while used + self.other_bytes + bytes > self.budget {
            if let Some(other) = self.others.pop() {
                self.other_bytes -= other.bytes;
                remove(&other.path);
                if let Some(folder) = other.path.parent() {
                    let mut others = self.others.iter();
                    if !others.any(|other| other.path.starts_with(folder)) {
                        remove_empty(folder);
                    }
                }
                continue;
            }
            let path = with(index, |files| {
                let oldest = files.oldest().and_then(|key| files.remove(key));
                used = files.bytes();
                oldest
            });
            match path {
                Some(path) => remove(&path),
                None => return,
            }
        }
    }

    /// This source's blocks, in the order in which they were used. Removes unfinished files: with the lock
    /// held, no other process is writing.
    fn list_own(&self) -> io::Result<Vec<PathBuf>> {
        let mut blocks = Vec::new();
        for entry in fs::read_dir(&self.own)? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(BLOCK) => blocks.push((used_at(&path), path)),
                Some(UNFINISHED) => remove(&path),
                // Not a file of ours.
                _ => {}
            }
        }
        blocks.sort();
        Ok(blocks.into_iter().map(|(_, path)| path).collect())
    }

    fn list_others(&mut self) -> io::Result<()> {
        self.others.clear();
        for entry in fs::read_dir(&self.root)? {
            let folder = entry?.path();
            let name = folder.file_name().and_then(|name| name.to_str());
            if folder == self.own || !name.is_some_and(is_name) {
                continue;
            }
            // A folder of another source that cannot be listed is skipped.
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            let mut is_empty = true;
            for entry in entries.flatten() {
                let path = entry.path();
                is_empty &= path.ends_with(PROBLEMS);
                if path.extension().is_some_and(|found| found == BLOCK)
                    && let Ok(metadata) = entry.metadata()
                {
                    self.others.push(Other {
                        used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                        path,
                        bytes: metadata.len(),
                    });
                }
            }
            if is_empty {
                remove_empty(&folder);
            }
        }
        self.others
            .sort_by_key(|other| std::cmp::Reverse(other.used));
        self.other_bytes = self.others.iter().map(|other| other.bytes).sum();
        Ok(())
    }

    /// Writes a file under a unique name and gives it this extension when it is complete.
    fn write(&mut self, bytes: &[u8], extension: &str) -> io::Result<PathBuf> {
        self.written += 1;
        let name = format!("{:016x}-{:08x}", self.maker, self.written);
        let unfinished = self.own.join(&name).with_extension(UNFINISHED);
        let path = self.own.join(&name).with_extension(extension);
        // Another process may have removed it while it was empty.
        fs::create_dir_all(&self.own)?;
        let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            remove(&unfinished);
            return Err(error);
        }
        Ok(path)
    }

    /// The folder's change count.
    fn changes(&mut self) -> io::Result<u64> {
        let mut bytes = Vec::new();
        self.lock.seek(SeekFrom::Start(0))?;
        (&self.lock).take(8).read_to_end(&mut bytes)?;
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    fn count_change(&mut self) -> io::Result<()> {
        let count = self.changes()?.wrapping_add(1);
        self.lock.seek(SeekFrom::Start(0))?;
        self.lock.write_all(&count.to_le_bytes())?;
        self.seen = Some(count);
        Ok(())
    }
}

fn with<T>(index: &Mutex<Files>, look: impl FnOnce(&mut Files) -> T) -> T {
    look(&mut index.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What a file declares that it holds, and its size; `None` if the file is invalid.
fn read_head(path: &Path, fingerprint: &Arc<str>) -> Option<(Expected, u64)> {
    let mut file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    let mut lengths = [0; format::PREFIX];
    file.read_exact(&mut lengths).ok()?;
    let length = format::head_length(&lengths)?;
    if length > bytes {
        return None;
    }
    let mut head = vec![0; usize::try_from(length).ok()?];
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_exact(&mut head).ok()?;
    let head = format::decode_head(&head)?;
    if head.file_bytes != bytes || head.fingerprint != **fingerprint {
        return None;
    }
    let expected = Expected {
        fingerprint: Arc::clone(fingerprint),
        range: head.range,
        topics: head.topics.into(),
    };
    Some((expected, bytes))
}

/// A file that cannot be removed is not used either; the next start tries again.
fn remove(path: &Path) {
    drop(fs::remove_file(path));
}

/// Removes the folder of a source that has no block any more.
fn remove_empty(folder: &Path) {
    remove(&folder.join(PROBLEMS));
    // Only an empty one can be removed.
    drop(fs::remove_dir(folder));
}

/// Adds the problems that are not among `known`.
pub(super) fn add_new(known: &mut Vec<Problem>, problems: &[Problem]) {
    let text = |problem: &Problem| (problem.offset, problem.to_string());
    let mut texts: HashSet<_> = known.iter().map(text).collect();
    let new = problems
        .iter()
        .filter(|problem| texts.insert(text(problem)));
    known.extend(new.cloned());
}

/// When a block was last read, or written: reading sets the time of the file.
fn used_at(path: &Path) -> SystemTime {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The name of a source's folder. Every file has the full fingerprint.
fn name_of(fingerprint: &str) -> String {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(fingerprint.as_bytes());
    let short = crc32fast::hash(fingerprint.as_bytes());
    format!("{:016x}{short:08x}", hasher.finish())
}

fn is_name(name: &str) -> bool {
    name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A number that no other process and no other tier of this one has.
fn unique_number() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    if let Ok(since) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        hasher.write_u128(since.as_nanos());
    }
    hasher.finish()
}
