//! Keeping a catalogue current: the listing is compared with the catalogue, and only the difference is opened.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use asof_core::{SourceError, Stamp};
use asof_formats::{OpenOptions, Store, StoredFile};

use crate::catalogue::Catalogue;
use crate::commit::Changes;
use crate::error::CatalogueError;
use crate::head::Head;
use crate::pattern::KeyPattern;
use crate::survey::survey;
use crate::tables::{IndexedRecording, ProblemRow, SummaryRow};

/// Options of an indexer.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// The patterns for paths; `None` for those stored in the catalogue.
    pub patterns: Option<Vec<KeyPattern>>,
    /// The number of recordings that are opened at once; `None` for 16 over a network, and the number of cores on disk.
    pub at_once: Option<usize>,
    /// How recordings are opened.
    pub open: OpenOptions,
    /// What was read is written at least this often.
    pub part_interval: Duration,
    /// Once it is true, no more recordings are opened. What was read is kept, and the run fails with
    /// [`SourceError::Cancelled`].
    pub cancelled: Arc<AtomicBool>,
}

impl Default for IndexOptions {
    fn default() -> Self {
        IndexOptions {
            patterns: None,
            at_once: None,
            open: OpenOptions {
                threads: 1,
                // A file that is truncated while it is read must be an error, not a signal.
                map: false,
                map_pages: false,
                ..OpenOptions::default()
            },
            part_interval: Duration::from_secs(20),
            cancelled: Arc::default(),
        }
    }
}

/// Updates a catalogue.
#[derive(Debug)]
pub struct Indexer<'a> {
    catalogue: &'a Catalogue,
    options: IndexOptions,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexEvent<'a> {
    /// The recordings were listed.
    Listed {
        /// The number of recordings.
        recordings: u64,
        /// How many of them are new or changed, and will be opened.
        to_open: u64,
    },
    /// A folder could not be listed.
    NotListed {
        /// Which, and why.
        problem: &'a str,
    },
    /// A recording was opened, intact or damaged.
    Opened {
        /// Its path from the root.
        recording: &'a str,
        /// The problems found in it.
        problems: &'a [ProblemRow],
    },
    /// A recording could not be read; the next run tries again.
    Failed {
        /// Its path from the root.
        recording: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// A recording is gone.
    Vanished {
        /// Its path from the root.
        recording: &'a str,
    },
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexRun {
    /// Recordings in the listing.
    pub recordings: u64,
    /// Recordings that were opened because they are new or changed.
    pub opened: u64,
    /// Recordings that are unchanged.
    pub unchanged: u64,
    /// Recordings that vanished since the last run.
    pub vanished: u64,
    /// Of the opened ones, those with problems.
    pub damaged: u64,
    /// Of the opened ones, those that could not be read and will be tried again.
    pub failed: u64,
    /// How many recordings failed or are damaged, by kind of problem.
    pub reasons: BTreeMap<String, u64>,
    /// Folders that could not be listed.
    pub not_listed: u64,
    /// Recordings whose path matches no pattern.
    pub without_pattern: u64,
    /// The catalogue's generation after the run.
    pub generation: u64,
}

/// A part is written once this many recordings, rows or summary bytes are waiting, or after the time in the options.
const PART_RECORDINGS: usize = 2_000;
const PART_ROWS: usize = 500_000;
const PART_SUMMARY_BYTES: usize = 64 << 20;
/// Requests wait for the network, so there are more of them than cores.
const CONCURRENT_REQUESTS: usize = 16;

impl<'a> Indexer<'a> {
    /// An indexer of this catalogue.
    pub fn new(catalogue: &'a Catalogue, options: IndexOptions) -> Self {
        Indexer { catalogue, options }
    }

    /// Lists the recordings, opens those that are new or changed, and writes them to the catalogue. A damaged recording
    /// does not stop the run. Results are written in parts on the way, so that an interrupted run loses little.
    ///
    /// # Errors
    /// When the recordings cannot be listed, or the catalogue cannot be read or written; or when it is cancelled.
    pub fn run(
        &self,
        now: Stamp,
        tell: &dyn Fn(IndexEvent<'_>),
    ) -> Result<IndexRun, CatalogueError> {
        let before = self.catalogue.head()?;
        let listing = self.catalogue.root.recordings()?;
        let patterns = self.patterns(before.as_ref());
        let mut run = IndexRun {
            recordings: listing.files.len() as u64,
            not_listed: listing.problems.len() as u64,
            ..IndexRun::default()
        };
        for problem in &listing.problems {
            tell(IndexEvent::NotListed { problem });
        }
        if !patterns.is_empty() {
            let fits = |file: &&StoredFile| {
                patterns
                    .iter()
                    .any(|pattern| pattern.read(&file.path).is_some())
            };
            run.without_pattern = run.recordings - listing.files.iter().filter(fits).count() as u64;
        }
        let Difference {
            to_open,
            seen,
            vanished,
        } = self.difference(before.as_ref(), &listing.files)?;
        // Recordings in a folder that cannot be listed may still exist.
        let vanished = if listing.problems.is_empty() {
            vanished
        } else {
            Vec::new()
        };
        run.unchanged = run.recordings - to_open.len() as u64;
        run.vanished = vanished.len() as u64;
        tell(IndexEvent::Listed {
            recordings: run.recordings,
            to_open: to_open.len() as u64,
        });
        for recording in &vanished {
            tell(IndexEvent::Vanished { recording });
        }
        // Before anything is opened, so that a place that is not writable is reported at once.
        let first = Changes {
            vanished,
            patterns: self.options.patterns.clone(),
            ..Changes::default()
        };
        self.catalogue.commit(&first, now)?;
        self.open_all((&to_open, &seen), &patterns, now, &mut run, tell)?;
        if run.opened < to_open.len() as u64 {
            return Err(SourceError::Cancelled.into());
        }
        let mut head = self.catalogue.existing_head()?;
        if !to_open.is_empty() || run.vanished > 0 {
            head = self.catalogue.compact(now)?;
            self.catalogue.sweep(now)?;
        }
        run.generation = head.generation;
        Ok(run)
    }

    fn patterns(&self, head: Option<&Head>) -> Vec<KeyPattern> {
        if let Some(patterns) = &self.options.patterns {
            return patterns.clone();
        }
        let known = head.iter().flat_map(|head| &head.patterns);
        known.filter_map(|pattern| pattern.parse().ok()).collect()
    }

    /// The files that are new or changed, the versions of those in the catalogue, and the paths that are gone.
    fn difference<'f>(
        &self,
        head: Option<&Head>,
        files: &'f [StoredFile],
    ) -> Result<Difference<'f>, CatalogueError> {
        let Some(head) = head else {
            return Ok(Difference {
                to_open: files.iter().collect(),
                ..Difference::default()
            });
        };
        let parts = self.catalogue.known.of(&self.catalogue.store, head)?;
        let known = parts.iter().flat_map(|part| part.iter());
        let by_name: HashMap<&str, _> = known
            .map(|known| (known.recording.as_str(), known))
            .collect();
        let is_new = |file: &&StoredFile| {
            let known = by_name.get(file.path.as_str());
            !known.is_some_and(|known| known.is_current(file))
        };
        let to_open: Vec<&StoredFile> = files.iter().filter(is_new).collect();
        let seen = to_open.iter().filter_map(|file| {
            let known = by_name.get(file.path.as_str())?;
            Some((file.path.clone(), StoredFile::from(*known)))
        });
        let there: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let gone = by_name
            .values()
            .filter(|known| !known.is_vanished && !there.contains(known.recording.as_str()));
        let mut vanished: Vec<String> = gone.map(|known| known.recording.clone()).collect();
        vanished.sort_unstable();
        Ok(Difference {
            seen: seen.collect(),
            to_open,
            vanished,
        })
    }

    /// Opens recordings, several at once, and writes their rows.
    fn open_all(
        &self,
        (files, seen): (&[&StoredFile], &HashMap<String, StoredFile>),
        patterns: &[KeyPattern],
        now: Stamp,
        run: &mut IndexRun,
        tell: &dyn Fn(IndexEvent<'_>),
    ) -> Result<(), CatalogueError> {
        if files.is_empty() {
            return Ok(());
        }
        let root = &self.catalogue.root;
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            // At most as many results wait to be written as recordings are being opened.
            let (found, coming) = mpsc::sync_channel(self.at_once(root));
            for _ in 0..self.at_once(root).min(files.len()) {
                let (found, next) = (found.clone(), &next);
                scope.spawn(move || {
                    while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if self.options.cancelled.load(Ordering::Relaxed) {
                            return;
                        }
                        let indexed = survey(root, file, patterns, &self.options.open, now);
                        // The receiver is gone if writing has failed.
                        if found.send(indexed).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(found);
            self.write_down(coming, seen, now, run, tell)
        })
    }

    fn write_down(
        &self,
        coming: mpsc::Receiver<IndexedRecording>,
        seen: &HashMap<String, StoredFile>,
        now: Stamp,
        run: &mut IndexRun,
        tell: &dyn Fn(IndexEvent<'_>),
    ) -> Result<(), CatalogueError> {
        let mut waiting = Changes::default();
        let (mut rows, mut bytes) = (0, 0);
        let mut written = Instant::now();
        for indexed in coming {
            count(&indexed, run, tell);
            rows += indexed.topics.len() + indexed.sections.len();
            bytes += indexed.summary.as_ref().map_or(0, SummaryRow::bytes);
            waiting
                .seen
                .extend(seen.get(&indexed.row.recording).cloned());
            waiting.indexed.push(indexed);
            let is_much = waiting.indexed.len() >= PART_RECORDINGS
                || rows >= PART_ROWS
                || bytes >= PART_SUMMARY_BYTES;
            if is_much || written.elapsed() > self.options.part_interval {
                self.catalogue.commit(&waiting, now)?;
                waiting = Changes::default();
                (rows, bytes) = (0, 0);
                written = Instant::now();
            }
        }
        if !waiting.indexed.is_empty() {
            self.catalogue.commit(&waiting, now)?;
        }
        Ok(())
    }

    fn at_once(&self, root: &Store) -> usize {
        let usual = if root.is_remote() {
            CONCURRENT_REQUESTS
        } else {
            std::thread::available_parallelism().map_or(1, usize::from)
        };
        self.options.at_once.unwrap_or(usual).max(1)
    }
}

/// What differs between a listing and a catalogue.
#[derive(Debug, Default)]
struct Difference<'f> {
    to_open: Vec<&'f StoredFile>,
    /// The versions that the catalogue has of those, by path.
    seen: HashMap<String, StoredFile>,
    vanished: Vec<String>,
}

fn count(indexed: &IndexedRecording, run: &mut IndexRun, tell: &dyn Fn(IndexEvent<'_>)) {
    let row = &indexed.row;
    run.opened += 1;
    if let Some(problem) = row.problems.first() {
        *run.reasons.entry(problem.kind.clone()).or_default() += 1;
    }
    if row.indexed.is_none() {
        run.failed += 1;
        let reason = row.problems.first().map_or("", |problem| &problem.message);
        tell(IndexEvent::Failed {
            recording: &row.recording,
            reason,
        });
        return;
    }
    run.damaged += u64::from(!row.problems.is_empty());
    tell(IndexEvent::Opened {
        recording: &row.recording,
        problems: &row.problems,
    });
}
