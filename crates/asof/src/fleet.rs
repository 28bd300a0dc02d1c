//! Folders and buckets of recordings as one database.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asof_catalogue::{
    Catalogue, Found, FoundRecording, IndexEvent, IndexOptions, IndexRun, Indexer, RecordingRow,
    Search,
};
use asof_core::{Source, Stamp};
use asof_formats::{Listing, Notices, OpenOptions, Store};
use serde_json::{Map, Value, json};

use crate::text::grouped;
use crate::{Error, Progress, Recording};

/// The recordings below a folder or bucket as one database; made by [`fleet`](crate::fleet). Cheap to clone.
///
/// A catalogue in plain Parquet beside the recordings says what is in each of them. [`index`](Self::index) keeps it current,
/// and [`find`](Self::find) answers from it without opening a recording.
#[derive(Clone)]
pub struct Fleet {
    catalogue: Arc<Catalogue>,
    open: OpenOptions,
    progress: Progress,
}

/// Options of a fleet.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// The folder of the catalogue; `None` for `.asof` beside the recordings. For read-only buckets and web servers.
    pub catalogue: Option<PathBuf>,
    /// How recordings are opened.
    pub open: OpenOptions,
}

impl Default for FleetOptions {
    fn default() -> Self {
        FleetOptions {
            catalogue: None,
            open: OpenOptions {
                // Many are open at once, and one that is truncated meanwhile must be an error, not a signal.
                map: false,
                map_pages: false,
                ..OpenOptions::default()
            },
        }
    }
}

/// The recordings of a fleet, to be read: see [`Fleet::recordings`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FleetRecordings {
    /// The recordings, sorted by start, then by path.
    pub recordings: Vec<FleetRecording>,
    /// How many others are gone since they were indexed.
    pub gone: u64,
    /// How many others could not be read when they were indexed.
    pub unreadable: u64,
}

/// One recording of a fleet.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FleetRecording {
    /// Its entry in the catalogue.
    pub row: RecordingRow,
    /// The recording; its first reader opens it.
    pub recording: Recording,
}

/// The recordings below a folder or bucket: see [`Fleet::places_below`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlacesBelow {
    /// Each recording.
    pub places: Vec<PathBuf>,
    /// Folders that could not be searched, and why.
    pub problems: Vec<String>,
}

/// How many recordings with problems a run names.
const MAX_NAMED_PROBLEMS: u64 = 10;
/// How often a pause between two runs looks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Fleet {
    /// The fleet of a place, with options. Nothing is read yet.
    ///
    /// # Errors
    /// When the address is not valid.
    pub fn new(place: impl AsRef<Path>, options: FleetOptions) -> Result<Self, Error> {
        let root = Store::at(place.as_ref())?;
        let catalogue = match &options.catalogue {
            Some(folder) => Catalogue::elsewhere(root, Store::at(folder)?),
            None => Catalogue::beside(root)?,
        };
        Ok(Fleet {
            catalogue: Arc::new(catalogue),
            open: options.open,
            progress: Progress::default(),
        })
    }

    /// The fleet of a place that has a catalogue; `None` for a file or a robot, or without a catalogue.
    ///
    /// # Errors
    /// When the address is not valid, or the catalogue cannot be read.
    pub fn if_indexed(
        place: impl AsRef<Path>,
        options: FleetOptions,
    ) -> Result<Option<Self>, Error> {
        if !may_be_fleet(place.as_ref()) {
            return Ok(None);
        }
        let fleet = Fleet::new(place, options)?;
        Ok(fleet.is_indexed()?.then_some(fleet))
    }

    /// The recordings below a folder or bucket, each a place of its own, in the order of their paths: the same with a catalogue and
    /// without one, apart from those that it knows as gone. `None` for a place that is one recording: a file, the folder of a
    /// ROS 2 bag, a running robot, or a folder without any file that is named like a recording.
    ///
    /// # Errors
    /// When the address is not valid, or the catalogue or the folder cannot be read.
    pub fn places_below(
        place: impl AsRef<Path>,
        options: FleetOptions,
    ) -> Result<Option<PlacesBelow>, Error> {
        let place = place.as_ref();
        if !may_be_fleet(place) {
            return Ok(None);
        }
        let fleet = Fleet::new(place, options)?;
        let mut problems = Vec::new();
        let paths: Vec<String> = if fleet.is_indexed()? {
            let found = fleet.find(&Search::default())?.recordings.into_iter();
            let mut paths: Vec<String> = found.map(|one| one.row.recording).collect();
            paths.sort_unstable();
            paths
        } else {
            let root = fleet.catalogue.root();
            let listed = root.is_bag().and_then(|is_bag| {
                if is_bag {
                    Ok(Listing::default())
                } else {
                    root.recordings()
                }
            });
            let listing = match listed {
                Ok(listing) => listing,
                // A web server lists nothing, and a bucket may refuse to: it may be one recording all the same.
                Err(_) if root.is_remote() => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            problems = listing.problems;
            listing.files.into_iter().map(|file| file.path).collect()
        };
        let places = paths
            .iter()
            .map(|path| PathBuf::from(fleet.address_of(path)));
        let places: Vec<PathBuf> = places.collect();
        Ok((!places.is_empty()).then_some(PlacesBelow { places, problems }))
    }

    /// The same, whose long work reports there and can be cancelled.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// The address of its recordings, without secrets.
    pub fn place(&self) -> String {
        self.catalogue.root().address()
    }

    /// The address of its catalogue, without secrets.
    pub fn catalogue_place(&self) -> String {
        self.catalogue.address()
    }

    /// Its catalogue.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Whether there is a catalogue.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_indexed(&self) -> Result<bool, Error> {
        Ok(self.catalogue.head()?.is_some())
    }

    /// Writes its recordings to the catalogue. Only those that are new or changed are opened; concurrent runs, and one that
    /// is cancelled or killed, lose nothing.
    ///
    /// A damaged recording does not stop the run: it is counted, and the first ten are reported as warnings. How recordings
    /// are opened is set by these options.
    ///
    /// # Errors
    /// When the recordings cannot be listed, the catalogue cannot be written, or the run is cancelled.
    pub fn index(&self, options: &IndexOptions) -> Result<IndexRun, Error> {
        let report = IndexReport::new(&self.progress);
        let progress = self.progress.clone();
        let options = IndexOptions {
            open: OpenOptions {
                notices: Notices::to(move |sentence| progress.note(sentence)),
                ..options.open.clone()
            },
            cancelled: Arc::clone(self.progress.cancelled()),
            ..options.clone()
        };
        let indexer = Indexer::new(&self.catalogue, options);
        // The indexer's own threads only see the flag.
        let pass_on = || {
            if self.progress.is_cancelled() {
                self.progress.cancel();
            }
        };
        pass_on();
        let run = indexer.run(Stamp::now(), &|event| {
            report.hear(&event);
            pass_on();
        });
        report.end();
        Ok(run?)
    }

    /// Indexes again and again, each time after a pause, until it is cancelled or `each` breaks. `each` is given every run,
    /// also one that failed: a lost network may come back.
    pub fn watch(
        &self,
        options: &IndexOptions,
        pause: Duration,
        mut each: impl FnMut(Result<IndexRun, Error>) -> ControlFlow<()>,
    ) {
        loop {
            let end = Instant::now() + pause;
            while Instant::now() < end {
                if self.progress.is_cancelled() {
                    return;
                }
                let left = end.saturating_duration_since(Instant::now());
                std::thread::sleep(POLL_INTERVAL.min(left));
            }
            let run = self.index(options);
            if matches!(&run, Err(error) if error.is_cancelled()) || each(run).is_break() {
                return;
            }
        }
    }

    /// The matching recordings, from the catalogue alone.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn find(&self, search: &Search) -> Result<Found, Error> {
        Ok(self.catalogue.find(search)?)
    }

    /// The matching recordings, to be read. Their contents are known from the catalogue, and each is opened by its first
    /// reader. Those that are gone and those that cannot be read are counted.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn recordings(&self, search: &Search) -> Result<FleetRecordings, Error> {
        let mut found = self.find(&Search {
            with_vanished: true,
            ..search.clone()
        })?;
        let indexed = found.recordings.len();
        found.recordings.retain(|one| one.row.vanished.is_none());
        let there = found.recordings.len();
        let opened = self.catalogue.open_found(&found, &self.open)?;
        // Those that could be read, in the same order.
        let rows = found.recordings.into_iter().map(|found| found.row);
        let rows = rows.filter(|row| row.format.is_some());
        let recording = |(recording, row): (asof_catalogue::CataloguedRecording, _)| {
            let places = [PathBuf::from(recording.place())];
            let recording: Arc<dyn Source> = Arc::new(recording);
            let recording = Recording::new(recording, &places).with_progress(self.progress.clone());
            FleetRecording { row, recording }
        };
        let recordings: Vec<FleetRecording> = opened.into_iter().zip(rows).map(recording).collect();
        Ok(FleetRecordings {
            gone: (indexed - there) as u64,
            unreadable: (there - recordings.len()) as u64,
            recordings,
        })
    }

    /// One recording, named by its path from there, by its address, or by the end of its path if that is unique.
    ///
    /// # Errors
    /// When there is none in the catalogue, or several; or when it cannot be opened.
    pub fn recording(&self, name: &str) -> Result<Recording, Error> {
        self.recording_at(&self.catalogue.path_of(name)?)
    }

    /// The recording at a path from there, whether the catalogue has it or not.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn recording_at(&self, path: &str) -> Result<Recording, Error> {
        let place = PathBuf::from(self.address_of(path));
        let recording = asof_formats::open_with(&place, &self.open)?;
        Ok(Recording::new(recording, &[place]).with_progress(self.progress.clone()))
    }

    /// The address of one of its recordings, from its path.
    pub fn address_of(&self, recording: &str) -> String {
        self.catalogue.root().address_of(recording)
    }

    /// Tags a recording without touching its file; a key without a value removes the tag. The tags `robot`, `site` and
    /// `date` override those of path and metadata. Returns the new entry of the recording.
    ///
    /// # Errors
    /// When the catalogue has no such recording, or cannot be written.
    pub fn tag<K: Into<String>, V: Into<String>>(
        &self,
        recording: &str,
        tags: impl IntoIterator<Item = (K, Option<V>)>,
    ) -> Result<RecordingRow, Error> {
        let (mut set, mut removed) = (BTreeMap::new(), BTreeSet::new());
        for (key, value) in tags {
            let key = key.into();
            if key.trim().is_empty() {
                return Err(Error::Option("a tag has no name".to_owned()));
            }
            match value {
                Some(value) => drop(set.insert(key, value.into())),
                None => drop(removed.insert(key)),
            }
        }
        let catalogue = &self.catalogue;
        Ok(catalogue.label(recording, set, removed, Stamp::now())?)
    }

    /// The rows of a query over its recordings: every topic is a table, with the columns `robot`, `site` and `tags` beside its
    /// own. Recordings that the query does not need are not opened.
    ///
    /// # Errors
    /// When the query is not valid, or there is no catalogue.
    #[cfg(feature = "sql")]
    pub fn sql(&self, query: &str) -> Result<crate::Table, Error> {
        self.sql_with(query, BTreeMap::new())
    }

    /// The same, with tables of your own beside the topics: see [`own_table`](crate::own_table).
    ///
    /// # Errors
    /// As [`sql`](Self::sql), or when a recording has a table of the same name.
    #[cfg(feature = "sql")]
    pub fn sql_with(
        &self,
        query: &str,
        tables: BTreeMap<String, asof_sql::OwnTable>,
    ) -> Result<crate::Table, Error> {
        let options = asof_sql::SqlOptions {
            fleets: vec![self.for_sql()],
            tables,
            ..asof_sql::SqlOptions::default()
        };
        crate::query::query(Vec::new(), options, query, &self.progress)
    }

    /// The same as part of a database: see [`asof_sql::SqlOptions::fleets`].
    #[cfg(feature = "sql")]
    pub fn for_sql(&self) -> asof_sql::FleetPlace {
        asof_sql::FleetPlace {
            catalogue: Arc::clone(&self.catalogue),
            open: self.open.clone(),
        }
    }

    /// A recording that was found, as JSON, with its matching topics.
    pub fn found_as_json(&self, found: &FoundRecording) -> Value {
        let mut object = self.row_as_json(&found.row);
        if !found.topics.is_empty()
            && let Some(object) = object.as_object_mut()
        {
            let topics = found.topics.iter().map(|(topic, found)| {
                let known = (!found.range.is_empty()).then_some(found.range);
                json!({
                    "topic": topic,
                    "start": known.map(|range| range.start.nanos()),
                    "end": known.map(|range| range.end.nanos()),
                    "messages": found.messages,
                    "bytes_estimate": found.bytes_estimate,
                })
            });
            object.insert("topics".to_owned(), topics.collect());
        }
        object
    }

    /// The entry of a recording in the catalogue, as JSON: times in nanoseconds since the epoch.
    pub fn row_as_json(&self, row: &RecordingRow) -> Value {
        let known = (!row.range.is_empty()).then_some(row.range);
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| {
            object.insert(name.to_owned(), value);
        };
        put("recording", json!(row.recording));
        put("address", json!(self.address_of(&row.recording)));
        put("format", json!(row.format));
        put("size", json!(row.size));
        put("etag", json!(row.e_tag));
        put("modified", json!(row.modified.map(Stamp::nanos)));
        put("start", json!(known.map(|range| range.start.nanos())));
        put("end", json!(known.map(|range| range.end.nanos())));
        put("messages", json!(row.messages));
        put("robot", json!(row.robot));
        put("site", json!(row.site));
        put("date", json!(row.date));
        put("tags", json!(row.tags));
        let problems = row.problems.iter().map(|problem| {
            json!({
                "kind": problem.kind, "offset": problem.offset, "topic": problem.topic, "message": problem.message,
            })
        });
        put("problems", problems.collect());
        if let Some(vanished) = row.vanished {
            put("vanished", json!(vanished.nanos()));
        }
        Value::Object(object)
    }
}

impl FleetRecording {
    /// Its name in queries: its address, without secrets.
    pub fn name(&self) -> String {
        self.recording.name()
    }

    /// What queries can filter it by.
    #[cfg(feature = "sql")]
    pub fn labels(&self) -> asof_sql::RecordingLabels {
        asof_sql::RecordingLabels {
            robot: self.row.robot.clone(),
            site: self.row.site.clone(),
            tags: self.row.tags.clone(),
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("place", &self.place())
            .field("catalogue", &self.catalogue_place())
            .finish_non_exhaustive()
    }
}

/// Whether a place is an address that may contain a catalogue: not one with the extension of a recording.
fn may_be_fleet(place: &Path) -> bool {
    let is_robot = place.to_str().is_some_and(crate::is_robot);
    !is_robot && (place.is_dir() || is_bucket(place))
}

fn is_bucket(place: &Path) -> bool {
    let Some((_, path)) = place.to_str().and_then(|text| text.split_once("://")) else {
        return false;
    };
    let name = path.split(['?', '#']).next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    // A host alone is a bucket.
    !path.contains('?') && (!name.contains('/') || !last.contains('.'))
}

/// Reports a run to a progress.
struct IndexReport<'a> {
    progress: &'a Progress,
    opened: AtomicU64,
    to_open: AtomicU64,
    problems: AtomicU64,
}

impl<'a> IndexReport<'a> {
    fn new(progress: &'a Progress) -> Self {
        IndexReport {
            progress,
            opened: AtomicU64::new(0),
            to_open: AtomicU64::new(0),
            problems: AtomicU64::new(0),
        }
    }

    fn hear(&self, event: &IndexEvent<'_>) {
        match event {
            IndexEvent::Listed { to_open, .. } => self.to_open.store(*to_open, Ordering::Relaxed),
            IndexEvent::NotListed { problem } => self.warn(problem),
            IndexEvent::Opened {
                recording,
                problems,
            } => {
                self.step();
                if let Some(problem) = problems.first() {
                    let (kind, message) = (&problem.kind, &problem.message);
                    self.warn(&format!("{recording}: {kind}: {message}"));
                }
            }
            IndexEvent::Failed { recording, reason } => {
                self.step();
                self.warn(&format!(
                    "{recording} is tried again the next time: {reason}"
                ));
            }
            IndexEvent::Vanished { recording } => {
                self.progress.note(format_args!("{recording} is gone"));
            }
            _ => {}
        }
    }

    fn step(&self) {
        let opened = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let to_open = self.to_open.load(Ordering::Relaxed);
        self.progress.done(opened, to_open);
    }

    fn warn(&self, text: &str) {
        if self.problems.fetch_add(1, Ordering::Relaxed) < MAX_NAMED_PROBLEMS {
            self.progress.warning(text);
        }
    }

    /// Says how many were not named.
    fn end(&self) {
        let problems = self.problems.load(Ordering::Relaxed);
        if let Some(others) = problems.checked_sub(MAX_NAMED_PROBLEMS + 1) {
            self.progress.warning(format_args!(
                "and {} more; `asof find --where 'problems > 0'` lists them",
                grouped(others + 1)
            ));
        }
    }
}
