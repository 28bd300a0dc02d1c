//! Keeping a catalogue current: what is listed is held against what is known, and only the difference is opened.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use asof_core::Stamp;
use asof_formats::{OpenOptions, Store, StoredFile};

use crate::catalogue::Catalogue;
use crate::commit::Changes;
use crate::error::CatalogueError;
use crate::head::Head;
use crate::pattern::KeyPattern;
use crate::survey::survey;
use crate::tables::{IndexedRecording, ProblemRow, SummaryRow};

/// How a catalogue is kept current.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// How paths are read; `None` for the way that the catalogue knows already.
    pub patterns: Option<Vec<KeyPattern>>,
    /// How many recordings are opened at once; `None` for 16 over a network, and as many as there are cores on disk.
    pub at_once: Option<usize>,
    /// How recordings are opened.
    pub open: OpenOptions,
}

impl Default for IndexOptions {
    fn default() -> Self {
        IndexOptions {
            patterns: None,
            at_once: None,
            open: OpenOptions {
                threads: 1,
                // A file that is cut while it is looked at must be an error, and not a signal.
                map: false,
                map_pages: false,
                ..OpenOptions::default()
            },
        }
    }
}

/// Brings a catalogue up to date.
#[derive(Debug)]
pub struct Indexer<'a> {
    catalogue: &'a Catalogue,
    options: IndexOptions,
}

/// What happened on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexEvent<'a> {
    /// The recordings were listed.
    Listed {
        /// How many there are.
        recordings: u64,
        /// How many of them are new or changed, and are opened.
        to_open: u64,
    },
    /// A folder could not be looked into.
    NotListed {
        /// Which, and why.
        problem: &'a str,
    },
    /// A recording was opened, whole or damaged.
    Opened {
        /// Its path from the root.
        recording: &'a str,
        /// What is wrong with it.
        problems: &'a [ProblemRow],
    },
    /// A recording could not be read, and is tried again the next time.
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

/// What a run has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexRun {
    /// Recordings that are there.
    pub recordings: u64,
    /// Recordings that were opened, because they are new or changed.
    pub opened: u64,
    /// Recordings that are what they were.
    pub unchanged: u64,
    /// Recordings that are gone since the last run.
    pub vanished: u64,
    /// Of those that were opened, the ones that something is wrong with.
    pub damaged: u64,
    /// Of those that were opened, the ones that could not be read and are tried again.
    pub failed: u64,
    /// Why recordings failed or are damaged, and how often: by the kind of problem.
    pub reasons: BTreeMap<String, u64>,
    /// Folders that could not be looked into.
    pub not_listed: u64,
    /// Recordings whose path no pattern fits.
    pub without_pattern: u64,
    /// The catalogue's generation afterwards.
    pub generation: u64,
}

/// A part is written when so many recordings, or rows about them, have come together, or it is time.
const RECORDINGS_AT_ONCE: usize = 2_000;
const ROWS_AT_ONCE: usize = 500_000;
const SUMMARY_BYTES_AT_ONCE: usize = 64 << 20;
const AT_LEAST_EVERY: Duration = Duration::from_secs(20);
/// Requests wait for the network rather than compute, so there are more of them than cores.
const REQUESTS_AT_ONCE: usize = 16;

impl<'a> Indexer<'a> {
    /// One for this catalogue.
    pub fn new(catalogue: &'a Catalogue, options: IndexOptions) -> Self {
        Indexer { catalogue, options }
    }

    /// Looks at what is there, and writes down what is new. Whatever is wrong with a recording does not stop it. What was
    /// found is written down in parts on the way, so that little is lost where the run is ended.
    ///
    /// # Errors
    /// When the recordings cannot be listed, or the catalogue cannot be read or written.
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
        let (to_open, vanished) = self.difference(before.as_ref(), &listing.files)?;
        // What lies in a folder that cannot be looked into may well be there.
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
        // Before anything is opened, so that a place that cannot be written to is told at once.
        let first = Changes {
            vanished,
            patterns: self.options.patterns.clone(),
            ..Changes::default()
        };
        self.catalogue.commit(&first, now)?;
        self.open_all(&to_open, &patterns, now, &mut run, tell)?;
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

    /// What is new or changed, and what is gone.
    fn difference<'f>(
        &self,
        head: Option<&Head>,
        files: &'f [StoredFile],
    ) -> Result<(Vec<&'f StoredFile>, Vec<String>), CatalogueError> {
        let Some(head) = head else {
            return Ok((files.iter().collect(), Vec::new()));
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
        let to_open = files.iter().filter(is_new).collect();
        let there: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let gone = by_name
            .values()
            .filter(|known| !known.is_vanished && !there.contains(known.recording.as_str()));
        let mut vanished: Vec<String> = gone.map(|known| known.recording.clone()).collect();
        vanished.sort_unstable();
        Ok((to_open, vanished))
    }

    /// Opens recordings, several at once, and writes down what they hold.
    fn open_all(
        &self,
        files: &[&StoredFile],
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
            // As many wait to be written down as are being opened, and no more.
            let (found, coming) = mpsc::sync_channel(self.at_once(root));
            for _ in 0..self.at_once(root).min(files.len()) {
                let (found, next) = (found.clone(), &next);
                scope.spawn(move || {
                    while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let indexed = survey(root, file, patterns, &self.options.open, now);
                        // Nobody listens where writing has failed.
                        if found.send(indexed).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(found);
            self.write_down(coming, now, run, tell)
        })
    }

    fn write_down(
        &self,
        coming: mpsc::Receiver<IndexedRecording>,
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
            waiting.indexed.push(indexed);
            let is_much = waiting.indexed.len() >= RECORDINGS_AT_ONCE
                || rows >= ROWS_AT_ONCE
                || bytes >= SUMMARY_BYTES_AT_ONCE;
            if is_much || written.elapsed() > AT_LEAST_EVERY {
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
            REQUESTS_AT_ONCE
        } else {
            std::thread::available_parallelism().map_or(1, usize::from)
        };
        self.options.at_once.unwrap_or(usual).max(1)
    }
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
