//! Recordings as described by the catalogue, opened on the first read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, ChannelSummary, FileOrder, FileParts, Follow,
    FollowFinished, Growth, HiddenRecords, Index, MetadataEntry, Portion, Problem, ProblemKind,
    Progress, Query, ReadStats, Schema, SectionEntry, Source, SourceError, Stamp, Summary,
    TimeRange, Topics,
};
use asof_formats::{OpenOptions, Store, StoredFile};
use bytes::Bytes;

use crate::catalogue::{Catalogue, schemas_of};
use crate::error::CatalogueError;
use crate::find::{Found, near};
use crate::head::Head;
use crate::reading::{self, Reading};
use crate::summaries::Summaries;
use crate::tables::{RecordingRow, SchemaRow, Table, int, text};

/// A recording whose summary comes from the catalogue: topics, times and counts are known without opening it. The topics of all
/// recordings of a search are read when the first of their summaries is asked for.
///
/// It is opened on the first read, and closed again when many others have been opened since. If it is not the
/// version that was indexed, or is gone, reading returns an error.
pub struct CataloguedRecording {
    file: StoredFile,
    place: String,
    /// The summary without channels.
    described: Summary,
    summary: OnceLock<Arc<Summary>>,
    shared: Arc<Opened>,
    opened: Mutex<Weak<dyn Source>>,
}

/// The state that the recordings of one search share: their topics, and those of the catalogue that were opened last.
struct Opened {
    /// The recordings, with their time ranges.
    ranges: HashMap<String, TimeRange>,
    channels: OnceLock<Result<Mutex<Channels>, CatalogueError>>,
    newest: Arc<OpenRecordings>,
    head: Arc<Head>,
    opener: SummaryOpener,
}

/// Opens recordings that a catalogue describes from the bytes that it has of them: without a request, or a look at the disk.
///
/// It keeps to the catalogue as it was when this was made.
pub struct SummaryOpener {
    generation: u64,
    root: Arc<Store>,
    catalogue: Arc<Store>,
    summaries: Summaries,
    options: OpenOptions,
}

/// The channels of recordings, by recording.
type Channels = HashMap<String, Vec<ChannelSummary>>;

/// The recordings of a catalogue that were opened last.
#[derive(Default)]
pub(crate) struct OpenRecordings(Mutex<VecDeque<Arc<dyn Source>>>);

impl std::fmt::Debug for OpenRecordings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenRecordings")
    }
}

/// The number of recordings that stay open to be read again: each may hold some of its file in memory.
const MAX_OPEN_RECORDINGS: usize = 16;
/// The columns of topics that make up a summary.
const COLUMNS: [&str; 5] = ["recording", "topic", "schema_hash", "encoding", "messages"];

impl Catalogue {
    /// The recordings of a search result, to be read. Those that could not be read when they were indexed are left out.
    ///
    /// # Errors
    /// When the catalogue cannot be read.
    pub fn open_found(
        &self,
        found: &Found,
        options: &OpenOptions,
    ) -> Result<Vec<CataloguedRecording>, CatalogueError> {
        let head = match &found.head {
            Some(head) => Arc::clone(head),
            None => Arc::new(self.existing_head()?),
        };
        let rows = found.recordings.iter().map(|found| &found.row);
        let shared = Arc::new(Opened {
            ranges: rows.map(|row| (row.recording.clone(), row.range)).collect(),
            channels: OnceLock::new(),
            opener: self.opener_at(&head, options),
            head,
            newest: Arc::clone(&self.opened),
        });
        let readable = found.recordings.iter().map(|found| &found.row);
        let readable = readable.filter(|row| row.format.is_some());
        let recording = |row: &RecordingRow| CataloguedRecording {
            file: StoredFile {
                path: row.recording.clone(),
                size: row.size,
                modified: row.modified,
                e_tag: row.e_tag.clone(),
            },
            place: self.root.shown_address_of(&row.recording),
            described: summary_of(row),
            summary: OnceLock::new(),
            shared: Arc::clone(&shared),
            opened: Mutex::new(Weak::<asof_formats::McapFile>::new()),
        };
        Ok(readable.map(recording).collect())
    }

    /// What opens single recordings as the catalogue describes them.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn opener(&self, options: &OpenOptions) -> Result<SummaryOpener, CatalogueError> {
        Ok(self.opener_at(&self.existing_head()?, options))
    }

    fn opener_at(&self, head: &Head, options: &OpenOptions) -> SummaryOpener {
        SummaryOpener {
            generation: head.generation,
            root: Arc::clone(&self.root),
            catalogue: Arc::clone(&self.store),
            summaries: Summaries::of(head),
            options: options.clone(),
        }
    }

    /// The message definitions in the catalogue, by the hashes of [`TopicKind`](crate::TopicKind)s.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn definitions(&self) -> Result<HashMap<String, Arc<Schema>>, CatalogueError> {
        Ok(by_hash(self.schemas()?))
    }
}

fn by_hash(rows: Vec<SchemaRow>) -> HashMap<String, Arc<Schema>> {
    let schema = |row: SchemaRow| {
        let schema = Schema {
            name: row.name,
            encoding: row.encoding,
            data: row.definition,
        };
        (row.hash, Arc::new(schema))
    };
    rows.into_iter().map(schema).collect()
}

impl Opened {
    /// The channels of the recordings, read at the first request.
    fn channels(&self) -> Result<&Mutex<Channels>, &CatalogueError> {
        let channels = self
            .channels
            .get_or_init(|| self.read_channels().map(Mutex::new));
        channels.as_ref()
    }

    fn read_channels(&self) -> Result<Channels, CatalogueError> {
        let mut schemas = HashMap::new();
        for file in &self.head.schemas {
            schemas.extend(by_hash(schemas_of(&self.opener.catalogue, file)?));
        }
        let is_near = near(Some(self.ranges.values().copied()));
        let mut known = KnownChannels {
            schemas,
            channels: HashMap::new(),
        };
        let mut channels = Channels::new();
        let store = &self.opener.catalogue;
        for part in &self.head.parts {
            let reading = Reading {
                table: Table::Topics,
                columns: Some(&COLUMNS),
                may_hold: &|group| is_near(group),
                filters: Vec::new(),
            };
            reading::each(store, &part.topics, reading, &mut |batch| {
                known.note(&batch, &self.ranges, &mut channels)
            })?;
        }
        Ok(channels)
    }
}

/// The channels so far: recordings with the same topic of the same type share one.
struct KnownChannels {
    schemas: HashMap<String, Arc<Schema>>,
    channels: HashMap<(String, String, Option<String>), Arc<Channel>>,
}

impl KnownChannels {
    /// Adds the channels of the wanted recordings.
    fn note(
        &mut self,
        batch: &RecordBatch,
        wanted: &HashMap<String, TimeRange>,
        channels: &mut Channels,
    ) -> Result<(), ArrowError> {
        for row in 0..batch.num_rows() {
            let recording = text(batch, "recording", row)?.unwrap_or_default();
            if !wanted.contains_key(recording) {
                continue;
            }
            let owned = |name| Ok::<_, ArrowError>(text(batch, name, row)?.map(str::to_owned));
            let key = (
                owned("topic")?.unwrap_or_default(),
                owned("encoding")?.unwrap_or_default(),
                owned("schema_hash")?,
            );
            let channel = self.channels.entry(key).or_insert_with_key(|key| {
                let (topic, encoding, hash) = key;
                let schema = hash.as_ref().and_then(|hash| self.schemas.get(hash));
                Arc::new(Channel {
                    topic: topic.clone(),
                    message_encoding: encoding.clone(),
                    schema: schema.cloned(),
                    metadata: BTreeMap::new(),
                })
            });
            let messages = int(batch, "messages", row)?;
            let summary = ChannelSummary {
                channel: Arc::clone(channel),
                messages: messages.and_then(|messages| u64::try_from(messages).ok()),
            };
            match channels.get_mut(recording) {
                Some(known) => known.push(summary),
                None => drop(channels.insert(recording.to_owned(), vec![summary])),
            }
        }
        Ok(())
    }
}

/// The summary of a recording, without its channels.
fn summary_of(row: &RecordingRow) -> Summary {
    let mut summary = Summary::empty(row.format.clone().unwrap_or_default());
    summary.size = row.size;
    summary.range = row.range;
    summary.messages = row.messages;
    let problems = row.problems.iter().map(|problem| Problem {
        // The catalogue has the kind as text; here it is part of the sentence.
        kind: ProblemKind::Incomplete,
        offset: problem.offset,
        topic: problem.topic.clone(),
        message: format!("{}: {}", problem.kind, problem.message),
    });
    summary.problems = problems.collect();
    summary
}

impl CataloguedRecording {
    /// Its address, without secrets.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether it is open at the moment.
    pub fn is_open(&self) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.strong_count() > 0
    }

    /// Its summary as far as no channel is needed: format, size, time range, number of messages, problems.
    pub fn described(&self) -> &Summary {
        &self.described
    }

    /// The summary with its channels.
    fn summarized(&self) -> Summary {
        let mut summary = self.described.clone();
        match self.shared.channels() {
            Ok(channels) => {
                let mut channels = channels.lock().unwrap_or_else(PoisonError::into_inner);
                summary.channels = channels.remove(&self.file.path).unwrap_or_default();
            }
            Err(error) => summary.problems.push(Problem {
                kind: ProblemKind::Incomplete,
                offset: None,
                topic: None,
                message: format!("its topics are not known: {error}"),
            }),
        }
        summary
    }

    fn open(&self) -> Result<Arc<dyn Source>, SourceError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened.upgrade() {
            return Ok(known);
        }
        self.verify()?;
        let told = |error: SourceError| outdated(&self.place, &error.to_string());
        let newest = &self.shared.newest.0;
        let recording = self.shared.opener.open(&self.file).map_err(told)?;
        let recording: Arc<dyn Source> = Arc::from(recording);
        *opened = Arc::downgrade(&recording);
        let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.push_back(Arc::clone(&recording));
        let closed = (newest.len() > MAX_OPEN_RECORDINGS).then(|| newest.pop_front());
        drop(newest);
        drop(closed);
        Ok(recording)
    }

    /// Runs a request on the opened recording. An error caused by an outdated catalogue is explained.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&dyn Source) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        ask(&*self.open()?).map_err(|error| explained(&self.place, error))
    }

    fn explaining(&self, batches: Batches) -> Batches {
        let place = self.place.clone();
        Box::new(batches.map(move |batch| batch.map_err(|error| explained(&place, error))))
    }
}

impl SummaryOpener {
    /// The [generation](Head::generation) of the catalogue. Versions of recordings that another one names have other bytes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a file on disk is still this version; on a server that shows when it is read.
    pub fn is_version(&self, file: &StoredFile) -> bool {
        self.root.is_version(file).unwrap_or(false)
    }

    /// Opens this version of a recording. Whether the file is still this version shows when more of it is read.
    ///
    /// # Errors
    /// As [`asof_formats::open`].
    pub fn open(&self, file: &StoredFile) -> Result<Box<dyn Source>, SourceError> {
        let pieces = self.summaries.pieces(&self.catalogue, &file.path);
        let pieces = pieces.unwrap_or_else(|error| {
            tracing::warn!(%error, "the catalogue's copy of a summary cannot be read; it is read from the recording");
            Vec::new()
        });
        self.root.open_known(file, pieces, &self.options)
    }
}

impl std::fmt::Debug for SummaryOpener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SummaryOpener({})", self.root.address())
    }
}

/// A recording that differs from the catalogue shows only when it is read, since it was opened from the catalogue.
fn explained(place: &str, error: SourceError) -> SourceError {
    use std::io::ErrorKind::{NotFound, StaleNetworkFileHandle};
    match &error {
        SourceError::Io { cause, .. } => match cause.kind() {
            StaleNetworkFileHandle => outdated(place, "it has changed since it was indexed"),
            NotFound => outdated(place, &cause.to_string()),
            _ => error,
        },
        _ => error,
    }
}

fn outdated(place: &str, why: &str) -> SourceError {
    SourceError::Unreadable {
        place: place.to_owned(),
        reason: format!("{why}; the catalogue is out of date: update it with `asof index`"),
    }
}

impl std::fmt::Debug for CataloguedRecording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CataloguedRecording({})", self.place)
    }
}

// Not a layer: what is within is opened on demand, which can fail, and closed again.
#[deny(clippy::missing_trait_methods)]
impl Source for CataloguedRecording {
    fn summary(&self) -> Arc<Summary> {
        Arc::clone(self.summary.get_or_init(|| Arc::new(self.summarized())))
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(self.explaining(self.open()?.read(query)?))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.ask(|opened| opened.latest_at(topics, at))
    }

    /// Only finished recordings are in a catalogue.
    fn growth(&self) -> Growth {
        Growth::Finished
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(FollowFinished::new(self.read(query)?)))
    }

    fn index(&self) -> Option<&dyn Index> {
        Some(self)
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        Some(self)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        self.ask(|opened| opened.check(progress))
    }

    fn verify(&self) -> Result<(), SourceError> {
        match self.shared.opener.root.is_version(&self.file) {
            Ok(true) => Ok(()),
            Ok(false) => Err(outdated(&self.place, "it has changed since it was indexed")),
            Err(error) => Err(outdated(&self.place, &error.to_string())),
        }
    }

    fn read_stats(&self) -> Option<ReadStats> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.upgrade()?.read_stats()
    }
}

impl Index for CataloguedRecording {
    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        self.ask(|opened| opened.outline(range, grain))
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        self.ask(|opened| opened.log_times(topic, range))
    }

    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        self.ask(|opened| opened.payload_estimates())
    }

    fn sections(&self) -> Vec<SectionEntry> {
        self.open()
            .map(|opened| opened.sections())
            .unwrap_or_default()
    }
}

impl FileParts for CataloguedRecording {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.ask(|opened| opened.attachment(entry))
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.ask(|opened| opened.metadata(entry))
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        self.ask(|opened| opened.hidden(topics))
    }
}

impl FileOrder for CataloguedRecording {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(self.explaining(self.open()?.read_in_file_order(query)?))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        self.open()
            .map_or(0, |opened| opened.bytes_held_by_order(query))
    }
}
