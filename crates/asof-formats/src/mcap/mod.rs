//! MCAP, read by its indexes if it has them, and recovered if it is damaged.

mod check;
mod chunk;
mod definitions;
mod directory;
mod extras;
mod follow;
mod format;
mod growing;
mod hidden;
mod inner;
mod latest_at;
mod open;
mod outline;
mod record;
mod scan;
mod walked;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use asof_core::{Channel, ChannelSummary, Problem, ProblemKind, SourceError, Summary, TimeRange};
use bytes::Bytes;
use mcap::records::Statistics;

use crate::buffers::BufferPool;
use crate::decompress::likely_size;
use crate::file::{FormatFile, SharedStats};
use crate::limits::{DecompressionLimits, LIFT};
use crate::options::OpenOptions;
use crate::report::Report;
use crate::sections::{ChannelTable, Loaded, SectionQuery, Sections};
use crate::storage::Storage;
use definitions::Definitions;
use directory::{Contents, Directory, SectionKind};
use hidden::HiddenPlaces;
use walked::Walked;

pub use growing::GrowingMcapFile;
pub(crate) use writer::is_disk_full;
pub use writer::{Attachment, Compression, McapWriteError, McapWriter, McapWriterOptions};

/// An MCAP file as a [`Source`](asof_core::Source).
///
/// Opening reads only the summary at the end of the file; a file without a valid summary is scanned. Reading touches
/// only the chunks that the indexes select. Chunks are decompressed ahead of the reader on other threads (see
/// [`OpenOptions::threads`]), a few at a time, so memory is bounded whatever the file's size.
///
/// A batch holds the messages of about one chunk. Messages are sorted by log time, also if chunks overlap; ties keep
/// file order. (The exception is a chunk with messages outside of its declared times: they are still delivered,
/// and listed among the problems.)
///
/// ```no_run
/// use asof_core::{Query, Source};
/// use asof_formats::McapFile;
///
/// let file = McapFile::open("run.mcap")?;
/// for batch in file.read(&Query::topics(["/odom"]))? {
///     for message in batch?.iter() {
///         println!("{} {} bytes", message.log_time, message.payload.len());
///     }
/// }
/// # Ok::<(), asof_core::SourceError>(())
/// ```
pub type McapFile = FormatFile<Mcap>;

/// MCAP: the state that all readers of a file share.
pub struct Mcap {
    storage: Box<dyn Storage>,
    threads: usize,
    limits: DecompressionLimits,
    directory: Directory,
    /// The file's own statistics, trusted or not.
    statistics: Option<Statistics>,
    definitions: RwLock<Definitions>,
    report: Report,
    pool: Arc<BufferPool>,
    stats: SharedStats,
    /// Messages in the section opened last, to estimate the size of the next one.
    last_rows: AtomicUsize,
    /// Whether every section was searched for definitions.
    is_harvested: Mutex<bool>,
    hidden: HiddenPlaces,
    /// Whether there are messages that are compressed one by one.
    has_packed: AtomicBool,
    /// Chunks from this offset on are not decompressed: together they exceed the limit.
    refused_from: u64,
}

/// Message counts by the file's channel ids.
type Counts = BTreeMap<u16, u64>;

impl Sections for Mcap {
    fn name(&self) -> &str {
        self.storage.name()
    }

    fn is_local(&self) -> bool {
        self.storage.is_local()
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn range_of(&self, section: usize) -> TimeRange {
        self.directory.sections[section].range
    }

    fn expected_bytes(&self, section: usize) -> u64 {
        let section = &self.directory.sections[section];
        let stored = section.end.saturating_sub(section.offset);
        let allowed = self.limits.of_chunk(stored);
        section.uncompressed_size.min(allowed).max(stored)
    }

    fn is_unlikely(&self, section: usize) -> bool {
        let section = &self.directory.sections[section];
        section.uncompressed_size > likely_size(section.end.saturating_sub(section.offset))
    }

    fn section_count(&self) -> usize {
        self.directory.sections.len()
    }

    fn may_hold(&self, section: usize, wanted: &SectionQuery) -> bool {
        self.holds_wanted(section, wanted, &self.table())
    }

    fn needed(&self, wanted: &SectionQuery) -> Vec<usize> {
        // An hour has thousands of chunks; the table is fetched once.
        let table = self.table();
        (0..self.section_count())
            .filter(|&section| self.holds_wanted(section, wanted, &table))
            .collect()
    }

    fn load(&self, section: usize, wanted: &SectionQuery) -> Result<Loaded, SourceError> {
        self.load_section(section, wanted)
    }

    fn reload(
        &self,
        section: usize,
        wanted: &SectionQuery,
        end: u64,
    ) -> Result<Vec<Bytes>, SourceError> {
        if self.has_packed.load(Ordering::Relaxed) {
            return self.load_section(section, wanted).map(|all| all.buffers);
        }
        let section = &self.directory.sections[section];
        let is_enough = |front: &[u8]| front.len() as u64 >= end;
        let contents = self.contents_until(section, end, is_enough)?;
        Ok(vec![contents.unwrap_or_default()])
    }

    fn buffers(&self) -> Option<&Arc<BufferPool>> {
        Some(&self.pool)
    }

    fn channels(&self) -> Arc<[Arc<Channel>]> {
        Arc::clone(&self.table().channels)
    }
}

impl Mcap {
    /// A file from the result of a scan, or from its own summary; and the messages counted so far.
    fn of_walk(
        storage: Box<dyn Storage>,
        options: &OpenOptions,
        walked: Walked,
        statistics: Option<Statistics>,
    ) -> (Self, Counts) {
        let Walked {
            mut directory,
            definitions,
            mut problems,
            counts,
            ..
        } = walked;
        directory.arrange();
        let (limits, size) = (&options.limits, storage.size());
        let refused_from = limits.first_beyond(size, directory.decompressed(limits));
        if let Some(place) = refused_from {
            let message = format!(
                "the chunks of this file decompress to more than {} bytes in total; those from here on were skipped: {LIFT}",
                limits.of_file(size)
            );
            problems.push(Problem::at(ProblemKind::BadChunk, place, message));
        }
        let file = Mcap {
            directory,
            definitions: RwLock::new(definitions),
            report: Report::new(problems),
            pool: Arc::default(),
            stats: SharedStats::default(),
            last_rows: AtomicUsize::new(0),
            is_harvested: Mutex::new(false),
            hidden: HiddenPlaces::default(),
            has_packed: AtomicBool::new(false),
            refused_from: refused_from.unwrap_or(u64::MAX),
            threads: options.threads_for(&*storage),
            limits: options.limits,
            statistics,
            storage,
        };
        (file, counts)
    }

    /// Reads the chunks without an index; returns the messages per channel in each.
    fn look_into_untold(&mut self) -> Result<Vec<(usize, Counts)>, SourceError> {
        let mut found = Vec::new();
        for index in 0..self.directory.sections.len() {
            if self.directory.sections[index].contents != Contents::Unknown {
                continue;
            }
            let glance = self.glance(index)?;
            let section = &mut self.directory.sections[index];
            section.range = glance.range;
            section.contents = Contents::Listed(glance.counts.keys().copied().collect());
            found.push((index, glance.counts));
        }
        Ok(found)
    }

    /// Defines channels that still wait for their schema without it.
    fn settle(&self) {
        let unsettled = self.definitions_mut().settle();
        for problem in unsettled {
            self.report(problem);
        }
    }

    /// Drops the chunk indexes if the statistics count messages on a channel that no index lists.
    fn distrust_partial_indexes(&mut self) {
        let sections = &mut self.directory.sections;
        let Some(statistics) = &self.statistics else {
            return;
        };
        let counts = &statistics.channel_message_counts;
        let mut unnamed: BTreeSet<u16> = counts
            .iter()
            .filter(|&(_, &count)| count > 0)
            .map(|(&id, _)| id)
            .collect();
        if unnamed.is_empty() {
            return;
        }
        for section in &*sections {
            match &section.contents {
                Contents::Indexed(entries) => entries.iter().for_each(|(id, _)| {
                    unnamed.remove(id);
                }),
                Contents::Listed(ids) => ids.iter().for_each(|id| {
                    unnamed.remove(id);
                }),
                Contents::Unknown => unnamed.clear(),
            }
            if unnamed.is_empty() {
                return;
            }
        }
        for section in sections.iter_mut() {
            if matches!(section.contents, Contents::Indexed(_)) {
                section.contents = Contents::Unknown;
            }
        }
        let message = format!(
            "the statistics count messages on {} channels that no chunk index lists; the chunks are read without their indexes",
            unnamed.len()
        );
        self.report(Problem::whole(ProblemKind::BadIndex, message));
    }

    /// Searches the chunks for definitions if indexes name channels that the summary does not define, or the summary
    /// names schemas that it does not repeat, or counts more channels than it repeats. The first `searched` sections
    /// were searched before. Returns whether all others were searched.
    fn find_missing_channels(&self, searched: usize) -> Result<bool, SourceError> {
        let (mut counts_unknown, mut has_glanced) = (self.counts_unknown(), false);
        for index in searched..self.directory.sections.len() {
            let is_untold = self.directory.sections[index].contents == Contents::Unknown;
            if (is_untold && counts_unknown) || self.names_unknown(index) {
                self.glance(index)?;
                has_glanced = true;
                counts_unknown = counts_unknown && self.counts_unknown();
            }
        }
        // A definition may also be in a chunk without a message of its channel.
        let mut sections = searched..self.directory.sections.len();
        let is_missing = has_glanced && sections.any(|index| self.names_unknown(index));
        if is_missing {
            self.harvest(searched)?;
        }
        Ok(is_missing)
    }

    /// Whether a section's index names an undefined channel, or some channel's schema is missing.
    fn names_unknown(&self, section: usize) -> bool {
        let definitions = self.definitions();
        let contents = &self.directory.sections[section].contents;
        definitions.is_waiting()
            || (*contents != Contents::Unknown
                && contents.may_hold(|id| definitions.find(id).is_none()))
    }

    /// Whether the statistics name undefined channels. If message indexes are missing too, nothing else does.
    fn counts_unknown(&self) -> bool {
        let definitions = self.definitions();
        self.statistics.as_ref().is_some_and(|statistics| {
            let counts = &statistics.channel_message_counts;
            definitions.len() < statistics.channel_count as usize
                || (definitions.len() == 0 && statistics.message_count > 0)
                || counts.keys().any(|&id| definitions.find(id).is_none())
        })
    }

    /// Searches every section for definitions, once.
    fn harvest_all(&self) -> Result<(), SourceError> {
        self.harvest(0)?;
        self.settle();
        Ok(())
    }

    /// Searches every section from the first that was not searched before, once.
    fn harvest(&self, searched: usize) -> Result<(), SourceError> {
        let mut is_harvested = self
            .is_harvested
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *is_harvested {
            return Ok(());
        }
        for index in searched..self.directory.sections.len() {
            self.glance(index)?;
        }
        *is_harvested = true;
        Ok(())
    }

    fn summarize(&self, is_trusted: bool, counts: &BTreeMap<u16, u64>) {
        let table = self.table();
        let mut summary = Summary::empty("mcap");
        summary.library.clone_from(&self.directory.library);
        summary.profile.clone_from(&self.directory.profile);
        summary.size = self.storage.size();
        let statistics = self.statistics.as_ref().filter(|_| is_trusted);
        let counted: u64 = counts.values().sum();
        let (messages, range) = match statistics {
            Some(found) if found.message_count == 0 => (0, TimeRange::EMPTY),
            Some(found) => (found.message_count, self.directory.range_by(found)),
            None if counted == 0 => (0, TimeRange::EMPTY),
            None => (counted, self.directory.range()),
        };
        let counts = statistics.map_or(counts, |found| &found.channel_message_counts);
        let beyond = self.count_beyond();
        let undefined = if table.ids.is_empty() {
            messages
        } else {
            let undefined = counts
                .iter()
                .filter(|(id, _)| table.index_of(**id).is_none());
            undefined.map(|(_, count)| *count).sum()
        };
        if undefined > 0 {
            let message = format!("{undefined} messages are on undefined channels and are skipped");
            self.report(Problem::whole(ProblemKind::UnknownReference, message));
        }
        let readable = messages
            .saturating_sub(undefined)
            .saturating_sub(beyond.values().sum());
        summary.messages = Some(readable);
        summary.range = if readable == 0 {
            TimeRange::EMPTY
        } else {
            range
        };
        // Statistics may give the total without the counts per channel.
        let has_parts = messages == 0 || !counts.is_empty();
        for section in self
            .directory
            .sections
            .iter()
            .filter(|section| section.kind == SectionKind::Chunk)
        {
            summary.chunks += 1;
            let name = if section.compression.is_empty() {
                "none"
            } else {
                &section.compression
            };
            match summary.compression.get_mut(name) {
                Some(chunks) => *chunks += 1,
                None => drop(summary.compression.insert(name.to_owned(), 1)),
            }
        }
        let mut channels: Vec<(u16, ChannelSummary)> = table
            .ids
            .iter()
            .zip(table.channels.iter())
            .map(|(&id, channel)| {
                let count = counts.get(&id).copied().unwrap_or(0);
                let beyond = beyond.get(&id).copied().unwrap_or(0);
                let messages = has_parts.then(|| count.saturating_sub(beyond));
                (
                    id,
                    ChannelSummary {
                        channel: Arc::clone(channel),
                        messages,
                    },
                )
            })
            .collect();
        channels.sort_by_key(|&(id, _)| id);
        summary.channels = channels.into_iter().map(|(_, channel)| channel).collect();
        summary.attachments.clone_from(&self.directory.attachments);
        summary.metadata.clone_from(&self.directory.metadata);
        self.report.set_summary(summary);
    }

    /// Records a problem.
    fn report(&self, problem: Problem) {
        self.report.add(self.storage.name(), problem);
    }

    fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// The channels known so far.
    fn table(&self) -> Arc<ChannelTable<u16>> {
        self.definitions().table()
    }

    fn definitions(&self) -> RwLockReadGuard<'_, Definitions> {
        self.definitions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn definitions_mut(&self) -> RwLockWriteGuard<'_, Definitions> {
        self.definitions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of messages to reserve space for in a section of this many bytes.
    fn likely_rows(&self, bytes: usize) -> usize {
        let last = self.last_rows.load(Ordering::Relaxed);
        (last + last / 8 + 8).min(bytes / 31 + 1)
    }

    fn learn_density(&self, rows: usize) {
        self.last_rows.store(rows, Ordering::Relaxed);
    }
}
