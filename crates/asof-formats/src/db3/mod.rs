//! ROS 2 bags in SQLite: one `.db3` file, from Dashing to today.

mod database;
mod directory;
mod filling;
mod load;
mod mapped;
mod pages;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, MetadataEntry, Problem, ProblemKind, Query, Source,
    SourceError, Stamp, Summary, TimeRange, Topics,
};
use bytes::Bytes;

use crate::buffers::BufferPool;
use crate::definitions::Definitions;
use crate::recording::{Progress, Recording, check_by_reading, counted_channels, has_none};
use crate::report::Report;
use crate::sections::{self, Loaded, Sections, Wanted};
use database::{Database, Topic};
use directory::Directory;
use mapped::MappedMessages;

/// A `.db3` file as a [`Source`].
///
/// SQLite holds the messages in the order of their ids; opening looks at each message's topic, time and
/// length (not at its payload) and divides them into sections. From there on it is read like any other
/// recording: only the sections that a query needs, ahead of the reader, on connections of their own.
///
/// The messages of a file that nobody writes to are read from its mapped pages, many times faster than SQLite
/// steps through them, and most payloads are handed out without a copy; SQLite reads everything else, and
/// whatever is damaged or unusual.
///
/// Files that are being written right now open as they are at that moment; later messages are not seen.
/// Payloads that were compressed one by one (zstd) come out decompressed.
///
/// ```no_run
/// use asof_core::{Query, Source};
/// use asof_formats::{Db3File, Definitions};
///
/// let definitions = Definitions::with_folders(["/opt/ros/humble/share"])?;
/// let bag = Db3File::open("run_0.db3", &definitions)?;
/// println!("{:?}", bag.summary().messages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Db3File {
    shared: Arc<Db3Shared>,
}

impl Db3File {
    /// Opens a file; `definitions` stand in where it has none of its own.
    ///
    /// # Errors
    /// When it cannot be opened, or is no ROS 2 bag.
    pub fn open(path: impl AsRef<Path>, definitions: &Definitions) -> Result<Self, SourceError> {
        let path = path.as_ref();
        Self::open_as(
            path,
            path.display().to_string(),
            definitions,
            crate::default_threads(),
        )
    }

    /// Opens a file under another name.
    pub(crate) fn open_as(
        path: &Path,
        name: String,
        definitions: &Definitions,
        threads: usize,
    ) -> Result<Self, SourceError> {
        let shared = Db3Shared::open(path, name, definitions, threads)?;
        Ok(Db3File {
            shared: Arc::new(shared),
        })
    }
}

impl Source for Db3File {
    fn summary(&self) -> Arc<Summary> {
        self.shared.report.summary()
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(sections::read(&self.shared, query))
    }

    fn backfill(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        sections::backfill(&*self.shared, topics, at)
    }
}

impl Recording for Db3File {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        Err(has_none(&self.shared.name, "attachment", &entry.name))
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        let found = self
            .shared
            .metadata
            .iter()
            .find(|(id, _)| *id == entry.offset);
        let (_, text) =
            found.ok_or_else(|| has_none(&self.shared.name, "metadata", &entry.name))?;
        Ok([("serialized_metadata".to_owned(), text.clone())].into())
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        self.shared.check_pages()?;
        check_by_reading(self, progress)
    }

    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(sections::read_in_file_order(&self.shared, query))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        sections::bytes_held_by_order(&self.shared, query)
    }
}

impl std::fmt::Debug for Db3File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db3File({})", self.shared.name)
    }
}

/// What all readers of a file share.
pub(crate) struct Db3Shared {
    name: String,
    threads: usize,
    database: Database,
    /// By the file's topic ids, sorted.
    topics: Vec<i64>,
    /// Beside `topics`.
    channels: Arc<[Arc<Channel>]>,
    directory: Directory,
    /// The messages without SQLite, where that goes.
    mapped: Option<MappedMessages>,
    /// What the recorder wrote about the recording, by row.
    metadata: Vec<(u64, String)>,
    report: Report,
    pool: Arc<BufferPool>,
}

impl Sections for Db3Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn range_of(&self, section: usize) -> TimeRange {
        self.directory.sections[section].range
    }

    fn expected_bytes(&self, section: usize) -> u64 {
        self.directory.sections[section].bytes
    }

    fn section_count(&self) -> usize {
        self.directory.sections.len()
    }

    fn may_hold(&self, section: usize, wanted: &Wanted) -> bool {
        let section = &self.directory.sections[section];
        wanted.range.overlaps(section.range)
            && section.topics.iter().any(|&(topic, _)| {
                self.channel_of(topic)
                    .is_some_and(|channel| wanted.wants(channel, &self.channels))
            })
    }

    fn load(&self, section: usize, wanted: &Wanted) -> Result<Loaded, SourceError> {
        self.load_section(section, wanted)
    }

    fn channels(&self) -> Arc<[Arc<Channel>]> {
        Arc::clone(&self.channels)
    }
}

impl Db3Shared {
    fn open(
        path: &Path,
        name: String,
        definitions: &Definitions,
        threads: usize,
    ) -> Result<Self, SourceError> {
        let database = Database::open(path, &name)?;
        let layout = database.layout()?;
        let mut problems = crate::problems::Problems::default();
        let mut topics: Vec<Topic> = layout.topics;
        topics.sort_by_key(|topic| topic.id);
        let undefined = database::define(&mut topics, &layout.embedded, layout.era, definitions);
        // Nothing is lost by that, so it is no problem of the file: whoever decodes says so.
        for (topic, kind) in undefined {
            tracing::info!(
                place = name,
                topic,
                kind,
                "no definition of this type is known"
            );
        }
        problems.extend(database.stale_view());
        let mut mapped = MappedMessages::open(&database, path)
            .inspect_err(|reason| tracing::debug!(place = name, reason, "left to SQLite"))
            .ok();
        let directory = Directory::scan(&database, &mut mapped, threads, &mut problems)?;
        let ids: Vec<i64> = topics.iter().map(|topic| topic.id).collect();
        let shared = Db3Shared {
            name,
            threads,
            topics: ids,
            channels: topics
                .into_iter()
                .map(|topic| Arc::new(topic.channel))
                .collect(),
            directory,
            mapped,
            metadata: layout.metadata,
            report: Report::new(problems),
            pool: Arc::default(),
            database,
        };
        shared.summarize(layout.library);
        Ok(shared)
    }

    fn summarize(&self, library: String) {
        let mut summary = Summary::empty("db3");
        summary.profile = "ros2".into();
        summary.library = library;
        summary.size = self.database.size();
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for section in &self.directory.sections {
            summary.range = summary.range.cover(section.range);
            for &(topic, count) in &section.topics {
                *counts.entry(topic).or_default() += count;
            }
        }
        summary.channels = counted_channels(&self.topics, &self.channels, &counts);
        summary.messages = summary.channels.iter().map(|entry| entry.messages).sum();
        summary.metadata = self
            .metadata
            .iter()
            .map(|&(offset, _)| MetadataEntry {
                name: "rosbag2".into(),
                offset,
            })
            .collect();
        self.report.set_summary(summary);
        let unknown: u64 = counts
            .iter()
            .filter(|(id, _)| self.topics.binary_search(id).is_err())
            .map(|(_, count)| count)
            .sum();
        if unknown > 0 {
            let message =
                format!("{unknown} messages are on topics that nobody defined; they are left out");
            self.report(Problem::whole(ProblemKind::UnknownReference, message));
        }
    }

    fn channel_of(&self, topic: i64) -> Option<u32> {
        self.topics
            .binary_search(&topic)
            .ok()
            .map(|index| index as u32)
    }

    fn report(&self, problem: Problem) {
        self.report.add(&self.name, problem);
    }
}
