//! Recordings, and what can be asked of one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{
    AttachmentEntry, Batch, Batches, FileOrder, Follow, FollowEnd, FollowFused, Followed,
    MetadataEntry, Problem, Query, Source, SourceError, Stamp, Summary, Topics, When,
};
use asof_decode::RowsError;
use asof_tf::{Loaded, TransformBuffer};
use bytes::Bytes;

use crate::align::{AlignError, AlignOptions, AlignedRows, Alignment};
use crate::{Error, Progress, Table, Topic, several};

/// A recording, several as one, or a running robot; made by [`open`](crate::open). Cheap to clone.
///
/// Opening reads a file's summary and no message; everything else is read on demand.
#[derive(Clone)]
pub struct Recording {
    source: Arc<dyn Source>,
    places: Arc<[PathBuf]>,
    /// Those that it was merged from.
    parts: Arc<[Recording]>,
    progress: Progress,
}

impl Recording {
    /// A recording over any source, with the places that it is of.
    pub fn new(source: impl Into<Arc<dyn Source>>, places: &[PathBuf]) -> Self {
        Recording {
            source: source.into(),
            places: places.into(),
            parts: Arc::default(),
            progress: Progress::default(),
        }
    }

    /// Several recordings as one, merged by time. [`join`](Self::join), [`resample`](Self::resample) and queries keep them apart:
    /// their rows say which recording they are from.
    pub fn merged(parts: Vec<Recording>) -> Self {
        let named = parts.iter().map(|part| {
            let source: Box<dyn Source> = Box::new(part.clone());
            (part.name(), source)
        });
        let source: Box<dyn Source> = Box::new(asof_formats::Merged::new(named.collect()));
        let places = parts.iter().flat_map(|part| part.places.iter().cloned());
        let places: Vec<PathBuf> = places.collect();
        Recording {
            parts: parts.into(),
            ..Recording::new(source, &places)
        }
    }

    /// The same as a single recording, of whose parts nothing is known any more.
    #[must_use]
    pub fn as_one(mut self) -> Self {
        self.parts = Arc::default();
        self
    }

    /// Those that it was merged from; none for a single recording.
    pub fn parts(&self) -> &[Recording] {
        &self.parts
    }

    /// The same, whose long work reports there and can be cancelled.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        let parts = self.parts.iter().cloned();
        let parts = parts.map(|part| part.with_progress(progress.clone()));
        self.parts = parts.collect();
        self.progress = progress;
        self
    }

    /// What its work reports to.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Its paths or addresses.
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// The same as text.
    pub fn place_names(&self) -> Vec<String> {
        let places = self.places.iter();
        places.map(|place| place.display().to_string()).collect()
    }

    /// The source of its messages.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// What it holds, and the problems found so far.
    pub fn summary(&self) -> Arc<Summary> {
        self.source.summary()
    }

    /// The first log time; `None` without messages.
    pub fn start(&self) -> Option<Stamp> {
        let range = self.summary().range;
        (!range.is_empty()).then_some(range.start)
    }

    /// The last log time; `None` without messages.
    pub fn end(&self) -> Option<Stamp> {
        let range = self.summary().range;
        (!range.is_empty()).then_some(range.end)
    }

    /// Its problems, as far as they have been met.
    pub fn problems(&self) -> Vec<Problem> {
        self.summary().problems.clone()
    }

    /// Whether more messages may arrive.
    pub fn is_growing(&self) -> bool {
        self.source.growth().is_growing()
    }

    /// The names of its topics, in order.
    pub fn topics(&self) -> Vec<String> {
        let summary = self.summary();
        summary.topics().into_iter().map(str::to_owned).collect()
    }

    /// One topic.
    ///
    /// # Errors
    /// When there is none of this name; the error names those that are there.
    pub fn topic(&self, name: &str) -> Result<Topic, Error> {
        let summary = self.summary();
        let topics = summary.topics();
        if !topics.contains(&name) {
            return Err(RowsError::no_such_topic(name, &topics).into());
        }
        Ok(Topic::new(self.clone(), name))
    }

    /// The contents of an attachment that the summary lists.
    ///
    /// # Errors
    /// When there is no such attachment.
    pub fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.source.attachment(entry)
    }

    /// The contents of a metadata record that the summary lists.
    ///
    /// # Errors
    /// When there is no such record.
    pub fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.source.metadata(entry)
    }

    /// The matching messages, in order of log time, in batches.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(self.cancellable(self.source.read(query)?))
    }

    /// The same batches, which end with an error when the work is cancelled.
    fn cancellable(&self, mut batches: Batches) -> Batches {
        let progress = self.progress.clone();
        Box::new(std::iter::from_fn(move || {
            match progress.refuse_if_cancelled() {
                Ok(()) => batches.next(),
                Err(cancelled) => Some(Err(cancelled)),
            }
        }))
    }

    /// The matching messages, then new ones as they arrive. It ends with an error when the work is cancelled.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(FollowFused::new(CancellableFollow {
            follow: self.source.follow(query)?,
            progress: self.progress.clone(),
        })))
    }

    /// The absolute time of one that may be relative to the recording.
    pub fn resolve(&self, time: impl Into<When>) -> Stamp {
        time.into().resolve(self.summary().range)
    }

    /// What was known: the last message of every topic at or before a time.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn at(&self, time: impl Into<When>) -> Result<Batch, SourceError> {
        self.source.latest_at(&Topics::All, self.resolve(time))
    }

    /// The same of some topics, at an absolute time.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.source.latest_at(topics, at)
    }

    /// For each message of one topic, the matching message of others: see [`Alignment`] for the columns. Of several recordings that
    /// have these topics, a message is matched with those of its own recording, which the column `recording` names.
    ///
    /// # Errors
    /// When a topic or a column does not exist, cannot be decoded, or has no stamps although they were requested.
    pub fn join<T: AsRef<str>>(
        &self,
        anchor: &str,
        others: &[T],
        options: AlignOptions,
    ) -> Result<Table, Error> {
        let whole = Alignment::join(self, anchor, others, options.clone())?;
        let mut topics = vec![anchor.to_owned()];
        topics.extend(others.iter().map(|topic| topic.as_ref().to_owned()));
        let join = |part: &Recording, topics: &[String], options| {
            Alignment::join(part, &topics[0], &topics[1..], options)
        };
        Ok(self.side_by_side(whole, topics, options, join))
    }

    /// Topics at a fixed rate, in instants per second; of several recordings that have them, of each from its start to its end.
    ///
    /// # Errors
    /// As [`join`](Self::join), or when the rate is out of range.
    pub fn resample<T: AsRef<str>>(
        &self,
        topics: &[T],
        hz: f64,
        options: AlignOptions,
    ) -> Result<Table, Error> {
        let whole = Alignment::resample(self, topics, hz, options.clone())?;
        let topics = topics.iter().map(|topic| topic.as_ref().to_owned());
        let resample = move |part: &Recording, topics: &[String], options| {
            Alignment::resample(part, topics, hz, options)
        };
        Ok(self.side_by_side(whole, topics.collect(), options, resample))
    }

    /// The table of `whole`; of several recordings the tables that `each` makes of them, unless one has some of the topics and
    /// others have the rest: these were recorded together.
    fn side_by_side(
        &self,
        whole: Alignment,
        topics: Vec<String>,
        options: AlignOptions,
        each: impl Fn(&Recording, &[String], AlignOptions) -> Result<Alignment, AlignError>
        + Send
        + Sync
        + 'static,
    ) -> Table {
        if self.parts.is_empty() {
            return self.aligned(whole);
        }
        let schema = Arc::clone(whole.schema());
        let share = |part: &Recording| {
            let summary = part.summary();
            let known = summary.topics();
            let found = topics
                .iter()
                .filter(|topic| known.contains(&topic.as_str()));
            found.count()
        };
        let parts = self.parts.iter().filter(|part| share(part) > 0);
        if parts.clone().any(|part| share(part) < topics.len()) {
            return several::of_together(&self.aligned(whole));
        }
        let options = AlignOptions {
            on: Some(whole.on()),
            ..options
        };
        let parts: Vec<Recording> = parts.cloned().collect();
        several::one_after_another(&schema, parts, move |part| {
            Ok(part.aligned(each(part, &topics, options.clone())?))
        })
    }

    fn aligned(&self, aligned: Alignment) -> Table {
        let recording = self.clone();
        let schema = Arc::clone(aligned.schema());
        let open = move |rows| {
            let source = Arc::new(recording.clone());
            Ok(aligned.clone().with_rows(rows).read(source)?)
        };
        Table::counting(schema, open, AlignedRows::left_out)
    }

    /// All its transforms in a buffer with tf2's queries, and what could not be used.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn tf(&self) -> Result<Loaded, SourceError> {
        TransformBuffer::from_source(self)
    }

    /// The name in queries and reports: its first place, without secrets.
    pub fn name(&self) -> String {
        let first = self.place_names().into_iter().next();
        asof_formats::without_secrets(&first.unwrap_or_default())
    }

    /// The rows of a query: every topic is a table, `"/odom"` or `odom`.
    ///
    /// # Errors
    /// When the query is not valid.
    #[cfg(feature = "sql")]
    pub fn sql(&self, query: &str) -> Result<Table, Error> {
        self.sql_with(query, BTreeMap::new())
    }

    /// The same, with tables of your own beside the topics: see [`own_table`](crate::own_table).
    ///
    /// # Errors
    /// As [`sql`](Self::sql), or when the recording has a table of the same name.
    #[cfg(feature = "sql")]
    pub fn sql_with(
        &self,
        query: &str,
        tables: BTreeMap<String, asof_sql::OwnTable>,
    ) -> Result<Table, Error> {
        let all = match self.parts() {
            [] => std::slice::from_ref(self),
            parts => parts,
        };
        let named = all
            .iter()
            .map(|part| (part.name(), Arc::clone(&part.source)))
            .collect();
        let options = asof_sql::SqlOptions {
            tables,
            ..asof_sql::SqlOptions::default()
        };
        crate::query::query(named, options, query, &self.progress)
    }
}

impl asof_core::SourceLayer for Recording {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.source
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Recording::read(self, query)
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Recording::follow(self, query)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        self.inner().file_order().map(|_| self as _)
    }
}

/// Follows until the work is cancelled, and reports what happens to the source.
struct CancellableFollow {
    follow: Box<dyn Follow>,
    progress: Progress,
}

/// How often it is asked whether the work was cancelled.
const TICK: Duration = Duration::from_millis(100);

impl Follow for CancellableFollow {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        loop {
            self.progress.refuse_if_cancelled()?;
            let followed = self.follow.next(deadline.min(Instant::now() + TICK))?;
            match &followed {
                Followed::CaughtUp if Instant::now() < deadline => continue,
                Followed::Restarted => self
                    .progress
                    .note("the clock was set back: messages from here on are from another time"),
                Followed::End(FollowEnd::Lost(reason)) => self.progress.warning(reason),
                _ => {}
            }
            return Ok(followed);
        }
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        self.follow.missed()
    }
}

impl FileOrder for Recording {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(self.cancellable(self.source.read_in_file_order(query)?))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        self.source.bytes_held_by_order(query)
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}
