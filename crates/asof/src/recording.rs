//! Recordings, and what can be asked of one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{
    AttachmentEntry, Batch, Batches, FileOrder, Follow, MetadataEntry, Problem, Query, Source,
    SourceError, Stamp, Summary, Topics, When,
};
use asof_decode::RowsError;
use asof_tf::{Loaded, TransformBuffer};
use bytes::Bytes;

use crate::align::{AlignOptions, Aligned};
use crate::{Error, Progress, Table, Topic};

/// A recording, several as one, or a running robot; made by [`open`](crate::open). Cheap to clone.
///
/// Opening reads a file's summary and no message; everything else is read on demand.
#[derive(Clone)]
pub struct Recording {
    source: Arc<dyn asof_formats::Recording>,
    places: Arc<[PathBuf]>,
    progress: Progress,
}

impl Recording {
    /// A recording over any source, with the places that it is of.
    pub fn new(source: impl Into<Arc<dyn asof_formats::Recording>>, places: &[PathBuf]) -> Self {
        Recording {
            source: source.into(),
            places: places.into(),
            progress: Progress::default(),
        }
    }

    /// The same, whose long work reports there and can be cancelled.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
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

    /// The source of its messages.
    pub fn source(&self) -> &Arc<dyn asof_formats::Recording> {
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
            if progress.is_cancelled() {
                return Some(Err(SourceError::Cancelled));
            }
            batches.next()
        }))
    }

    /// The matching messages, then new ones as they arrive.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        self.source.follow(query)
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

    /// For each message of one topic, the matching message of others: see [`Aligned`] for the columns.
    ///
    /// # Errors
    /// When a topic or a column does not exist, cannot be decoded, or has no stamps although they were requested.
    pub fn join<T: AsRef<str>>(
        &self,
        anchor: &str,
        others: &[T],
        options: AlignOptions,
    ) -> Result<Table, Error> {
        Ok(self.aligned(Aligned::join(self, anchor, others, options)?))
    }

    /// Topics at a fixed rate, in instants per second.
    ///
    /// # Errors
    /// As [`join`](Self::join), or when the rate is out of range.
    pub fn resample<T: AsRef<str>>(
        &self,
        topics: &[T],
        hz: f64,
        options: AlignOptions,
    ) -> Result<Table, Error> {
        Ok(self.aligned(Aligned::resample(self, topics, hz, options)?))
    }

    fn aligned(&self, aligned: Aligned) -> Table {
        let recording = self.clone();
        Table::new(Arc::clone(aligned.schema()), move |rows, lost| {
            let source = Arc::new(recording.clone());
            let mut batches = aligned.clone().with_rows(rows).read(source)?;
            let lost = Arc::clone(lost);
            Ok(std::iter::from_fn(move || {
                let batch = batches.next();
                lost.store(batches.left_out(), Ordering::Relaxed);
                batch.map(|batch| batch.map_err(Error::from))
            }))
        })
    }

    /// All its transforms in a buffer with tf2's queries, and what could not be used.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn tf(&self) -> Result<Loaded, SourceError> {
        TransformBuffer::from_source(self)
    }

    /// The name in queries and reports: its first place, without secrets.
    pub(crate) fn name(&self) -> String {
        let first = self.places.first().map(|place| place.display().to_string());
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
        let named = vec![(self.name(), Arc::clone(&self.source))];
        let options = asof_sql::SqlOptions {
            tables,
            ..asof_sql::SqlOptions::default()
        };
        crate::query::query(named, options, query)
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

    fn file_order(&self) -> Option<&dyn FileOrder> {
        self.inner().file_order().map(|_| self as _)
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
