//! ROS 1 bags, version 2.0: read by their index, or scanned if there is none.

mod chunk;
mod connections;
mod latest_at;
mod open;
mod outline;
mod record;
mod scan;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use asof_core::{
    Batch, Channel, Portion, Problem, ProblemKind, Progress, ReadStats, SectionEntry, SourceError,
    Stamp, Summary, TimeRange, Topics, check_by_reading,
};

use crate::buffers::BufferPool;
use crate::counts::counted_channels;
use crate::decompress::likely_size;
use crate::file::{Format, FormatFile, SharedStats, StoredFormat};
use crate::limits::{DecompressionLimits, LIFT};
use crate::options::OpenOptions;
use crate::report::Report;
use crate::sections::{ChannelTable, Loaded, SectionQuery, Sections};
use crate::storage::Storage;
use connections::Connections;

/// A ROS 1 bag as a [`Source`](asof_core::Source).
///
/// Opening reads the index at the end of the file. A bag without one (`.bag.active`, or one whose recorder was killed)
/// is scanned, and its index rebuilt in memory. Chunks are decompressed ahead of the reader on other threads, as for
/// MCAP.
///
/// Each connection of the bag is a channel with encoding `ros1`, the full definition of its type as
/// schema, and the other fields of the publisher (`md5sum`, `callerid`, `latching`) as metadata.
///
/// ```no_run
/// use asof_core::Source;
/// use asof_formats::BagFile;
///
/// let bag = BagFile::open("run.bag")?;
/// for entry in &bag.summary().channels {
///     println!("{} {}", entry.channel.topic, entry.channel.type_name());
/// }
/// # Ok::<(), asof_core::SourceError>(())
/// ```
pub type BagFile = FormatFile<Bag>;

impl Format for Bag {
    const NAME: &'static str = "BagFile";

    fn open(path: &Path, name: String, options: &OpenOptions) -> Result<Self, SourceError> {
        Self::of_file(path, name, options)
    }

    fn summary(&self) -> Arc<Summary> {
        self.report.summary()
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.last_messages(topics, at)
    }

    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        self.indexed_portions(range, grain)
    }

    fn check(file: &BagFile, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        file.shared.check_indexes()?;
        check_by_reading(file, progress)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        Some(self.stats.snapshot())
    }

    fn section_entries(&self) -> Vec<SectionEntry> {
        let table = self.table();
        let channel = |conn: u32| table.get(conn).cloned();
        let entry = |section: &Section| SectionEntry {
            offset: section.offset,
            length: section.end.saturating_sub(section.offset),
            uncompressed: section.size,
            compression: section.compression.clone(),
            range: section.range,
            channels: section.contents.known().map(|counts| {
                counts
                    .iter()
                    .filter_map(|&(conn, _)| channel(conn))
                    .collect()
            }),
        };
        self.sections.iter().map(entry).collect()
    }
}

impl StoredFormat for Bag {
    fn of(storage: Box<dyn Storage>, options: &OpenOptions) -> Result<Self, SourceError> {
        let scan::Opened {
            sections,
            connections,
            problems,
        } = open::open(&*storage)?;
        let mut bag = Bag {
            threads: options.threads_for(&*storage),
            sections,
            connections: RwLock::new(connections),
            report: Report::new(problems),
            pool: Arc::default(),
            stats: SharedStats::default(),
            limits: options.limits,
            refused_from: u64::MAX,
            storage,
        };
        bag.look_at_heads()?;
        bag.refuse_too_much();
        bag.distrust_large_counts();
        bag.complete()?;
        bag.summarize();
        Ok(bag)
    }
}

/// ROS 1 bags: the state that all readers of a file share.
pub struct Bag {
    storage: Box<dyn Storage>,
    threads: usize,
    /// In file order.
    sections: Vec<Section>,
    connections: RwLock<Connections>,
    report: Report,
    pool: Arc<BufferPool>,
    stats: SharedStats,
    limits: DecompressionLimits,
    /// Chunks from this offset on are not decompressed: together they exceed the limit.
    refused_from: u64,
}

/// A chunk, or a run of messages outside of chunks.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub kind: SectionKind,
    /// The offset of its first record.
    pub offset: u64,
    /// The end of the section and of the index records after it, at most.
    pub end: u64,
    /// All messages in it are within this range.
    pub range: TimeRange,
    pub contents: Contents,
    /// Bytes once decompressed, if known.
    pub size: u64,
    pub compression: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionKind {
    Chunk,
    /// A compressed chunk that was never closed: its data reaches to the end of the section.
    OpenChunk,
    /// Consecutive message records.
    Bare,
}

/// The connections with messages in a section, and their counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Contents {
    /// These; index records after the chunk have the positions.
    Indexed(Box<[(u32, u64)]>),
    /// These; their positions are not recorded.
    Listed(Box<[(u32, u64)]>),
    /// Unknown until the section is read.
    Unknown,
}

impl Contents {
    /// The connections and their counts, if known.
    pub fn known(&self) -> Option<&[(u32, u64)]> {
        match self {
            Contents::Indexed(counts) | Contents::Listed(counts) => Some(counts),
            Contents::Unknown => None,
        }
    }
}

impl Sections for Bag {
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
        self.sections[section].range
    }

    fn expected_bytes(&self, section: usize) -> u64 {
        let section = &self.sections[section];
        let stored = section.end.saturating_sub(section.offset);
        // The index does not have the size of a chunk; compressed ones may grow about tenfold.
        let allowed = self.limits.of_chunk(stored);
        section.size.min(allowed).max(stored)
    }

    fn is_unlikely(&self, section: usize) -> bool {
        let section = &self.sections[section];
        section.size > likely_size(section.end.saturating_sub(section.offset))
    }

    fn section_count(&self) -> usize {
        self.sections.len()
    }

    fn may_hold(&self, section: usize, wanted: &SectionQuery) -> bool {
        let table = self.table();
        let section = &self.sections[section];
        wanted.range.overlaps(section.range)
            && section.contents.known().is_none_or(|counts| {
                counts.iter().any(|&(conn, _)| {
                    table
                        .index_of(conn)
                        .is_none_or(|channel| wanted.wants(channel, &table.channels))
                })
            })
    }

    fn load(&self, section: usize, wanted: &SectionQuery) -> Result<Loaded, SourceError> {
        self.load_section(section, wanted)
    }

    fn buffers(&self) -> Option<&Arc<BufferPool>> {
        Some(&self.pool)
    }

    fn channels(&self) -> Arc<[Arc<Channel>]> {
        Arc::clone(&self.table().channels)
    }
}

impl Bag {
    /// Reads the compression and size of chunks from their headers: the index does not have them.
    fn look_at_heads(&mut self) -> Result<(), SourceError> {
        // If each read is a request, the first chunk represents all: a recorder has one setting.
        let is_local = self.storage.is_local();
        let mut last = String::from("none");
        for index in 0..self.sections.len() {
            if is_local || index == 0 {
                let head = self.chunk_head(&self.sections[index])?;
                let section = &mut self.sections[index];
                if let Some(head) = head {
                    section.size = section.size.max(head.size);
                    last = head.compression;
                }
            }
            self.sections[index].compression.clone_from(&last);
        }
        Ok(())
    }

    fn refuse_too_much(&mut self) {
        let compressed = self
            .sections
            .iter()
            .filter(|section| section.kind != SectionKind::Bare && section.compression != "none");
        let chunks = compressed.map(|section| {
            let allowed = self
                .limits
                .of_chunk(section.end.saturating_sub(section.offset));
            // A chunk that declares more is skipped by itself.
            let becomes = if section.size > allowed {
                0
            } else {
                section.size
            };
            (section.offset, becomes)
        });
        let size = self.storage.size();
        let Some(place) = self.limits.first_beyond(size, chunks) else {
            return;
        };
        self.refused_from = place;
        let message = format!(
            "the chunks of this bag decompress to more than {} bytes in total; those from here on were skipped: {LIFT}",
            self.limits.of_file(size)
        );
        self.report(Problem::at(ProblemKind::BadChunk, place, message));
    }

    /// Distrusts an index that counts more messages than a chunk has room for.
    fn distrust_large_counts(&mut self) {
        let mut liars = Vec::new();
        for section in &mut self.sections {
            let counts = section.contents.known().unwrap_or_default();
            let messages = counts
                .iter()
                .fold(0u64, |sum, &(_, count)| sum.saturating_add(count));
            let stored = section.end.saturating_sub(section.offset);
            // If its header was not read, it may be as large as the limit allows.
            let room = match section.size {
                0 => self.limits.of_chunk(stored),
                size => size,
            };
            if messages > room / record::SHORTEST_MESSAGE {
                liars.push((section.offset, messages, room));
                section.contents = Contents::Unknown;
                section.range = TimeRange::ALL;
            }
        }
        for (offset, messages, room) in liars {
            let message = format!(
                "the index counts {messages} messages in this chunk of {room} bytes, which is impossible; the chunk was read instead"
            );
            self.report(Problem::at(ProblemKind::BadIndex, offset, message));
        }
    }

    /// Reads the chunks without an index, or with undefined connections.
    fn complete(&mut self) -> Result<(), SourceError> {
        for index in 0..self.sections.len() {
            let is_known = self.sections[index].contents.known().is_some_and(|counts| {
                let connections = self.connections();
                let mut counts = counts.iter();
                counts.all(|&(conn, _)| connections.find(conn).is_some())
            });
            if is_known {
                continue;
            }
            let glance = self.glance(index)?;
            let section = &mut self.sections[index];
            if section.contents == Contents::Unknown {
                section.range = glance.range;
                section.contents = Contents::Listed(glance.counts.into_iter().collect());
                section.size = glance.bytes;
            }
        }
        self.sections
            .retain(|section| section.contents.known().is_none_or(|c| !c.is_empty()));
        Ok(())
    }

    fn summarize(&self) {
        let table = self.table();
        let mut summary = Summary::empty("bag");
        summary.profile = "ros1".into();
        summary.size = self.storage.size();
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for section in &self.sections {
            summary.range = summary.range.cover(section.range);
            for &(conn, count) in section.contents.known().unwrap_or_default() {
                *counts.entry(conn).or_default() += count;
            }
            if section.kind != SectionKind::Bare {
                summary.chunks += 1;
                *summary
                    .compression
                    .entry(section.compression.clone())
                    .or_default() += 1;
            }
        }
        summary.channels = counted_channels(&table.ids, &table.channels, &counts);
        summary.messages = summary.channels.iter().map(|entry| entry.messages).sum();
        self.report.set_summary(summary);
    }

    fn report(&self, problem: Problem) {
        self.report.add(self.storage.name(), problem);
    }

    fn table(&self) -> Arc<ChannelTable<u32>> {
        self.connections().table()
    }

    fn connections(&self) -> RwLockReadGuard<'_, Connections> {
        self.connections
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
