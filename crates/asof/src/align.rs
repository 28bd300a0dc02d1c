//! Topics side by side: for each message of one topic, or each instant of a grid, the matching rows of others.
//!
//! ```
//! use std::time::Duration;
//! use asof::align::{AlignOptions, Rule};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.mcap");
//! # let mut writer = asof::formats::McapWriter::create(&path, Default::default())?;
//! # let channel = |topic: &str| std::sync::Arc::new(asof::Channel { topic: topic.into(), message_encoding: "json".into(), ..Default::default() });
//! # for (topic, at) in [("/odom", 1), ("/imu", 2), ("/odom", 11)] {
//! #     let at = asof::Stamp::from_nanos(at);
//! #     writer.write(&asof::Message { channel: channel(topic), log_time: at, publish_time: at, sequence: 0, payload: r#"{"x":1.5}"#.into() })?;
//! # }
//! # writer.finish()?;
//! let recording = asof::open(&path)?;
//! let options = AlignOptions { rule: Rule::nearest().within(Duration::from_nanos(5)), ..AlignOptions::default() };
//! for batch in recording.join("/odom", &["/imu"], options)?.batches()? {
//!     let batch = batch?;
//!     assert!(batch.column_by_name("/imu.x").is_some());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anchor;
mod held;
mod side;
mod stamps;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampNanosecondArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use asof_align::Grid;
use asof_core::{Source, SourceError, TimeRange};
use asof_decode::RowsError;

pub use asof_align::{LATENESS, On, Pick, Rule, UnknownWord, between};

use anchor::{Anchor, AnchorRows};
pub use held::SourceRef;
#[cfg(feature = "lerobot")]
pub(crate) use side::range_of;
use side::{LoadedSide, Side};
pub use stamps::{Stamps, topic_without_stamp};

/// How topics are put side by side.
#[derive(Debug, Clone)]
pub struct AlignOptions {
    /// Which message of a topic goes with an instant, and how far away it may be.
    pub rule: Rule,
    /// The time to align by; `None` for the stamps in the messages where all topics have them, and log times elsewhere. Stamps that
    /// were asked for are an error where a topic has none: see [`topic_without_stamp`].
    pub on: Option<On>,
    /// The wanted columns of each topic, in the form of [`TopicOptions`](asof_decode::TopicOptions); all columns of topics
    /// that are not listed.
    pub columns: BTreeMap<String, Vec<String>>,
    /// The range of log times of the anchor's messages, or of the grid.
    pub range: TimeRange,
    /// A batch has at most this many rows.
    pub rows: usize,
    /// How many bytes of the topics that are looked up are held at once. Their times are held beside it, 16 bytes for each
    /// message; values that do not fit are read again as rows need them.
    pub most_bytes: usize,
}

impl Default for AlignOptions {
    /// The nearest message at any distance, with all columns; 256 MB are held.
    fn default() -> Self {
        AlignOptions {
            rule: Rule::nearest(),
            on: None,
            columns: BTreeMap::new(),
            range: TimeRange::ALL,
            rows: 64 << 10,
            most_bytes: 256 << 20,
        }
    }
}

/// Why topics cannot be aligned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlignError {
    /// A topic does not exist, or cannot be decoded.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A topic has no stamps to join by.
    #[error("messages on {topic} have no stamp; join on log times instead")]
    NoStamp {
        /// The topic.
        topic: String,
    },
    /// A source that grows dropped messages while they were read.
    #[error(
        "the messages on {topic} changed while they were read; record them, and read the recording"
    )]
    Changed {
        /// The topic.
        topic: String,
    },
    /// The rate is out of range.
    #[error("{hz} is not a rate: it is more than 0 and at most 1,000,000,000 per second")]
    Rate {
        /// The rate that was given.
        hz: f64,
    },
    /// No topic was named.
    #[error("no topic is named")]
    NoTopics,
    /// Arrow rejected the table, which is a defect of this crate.
    #[error("cannot make the table: {0}")]
    Arrow(#[from] ArrowError),
}

/// Topics side by side. It holds no messages: each [`read`](Self::read) reads the source again.
///
/// The first column is `time`, by which the topics are aligned. The columns of a topic are named after it:
/// `/odom.pose.pose.position.x`. For each topic that is looked up, `/odom offset` is how many nanoseconds its message is later
/// than `time`; it and the topic's columns are null where no message matches.
///
/// When aligning by stamps, messages without a stamp, or with a stamp of zero, are skipped and counted.
#[derive(Debug, Clone)]
pub struct Alignment {
    schema: SchemaRef,
    anchor: Anchor,
    sides: Vec<Side>,
    options: AlignOptions,
    on: On,
}

impl Alignment {
    /// For each message of one topic, the matching rows of others.
    ///
    /// # Errors
    /// When a topic or a column does not exist, cannot be decoded, or has no stamps although they were requested.
    pub fn join<T: AsRef<str>>(
        source: &dyn Source,
        anchor: &str,
        others: &[T],
        options: AlignOptions,
    ) -> Result<Self, AlignError> {
        let mut topics: Vec<&str> = vec![anchor];
        topics.extend(others.iter().map(AsRef::as_ref));
        let on = choose(source, &topics, options.on)?;
        let anchor = Anchor::topic(source, anchor, on, &options)?;
        Alignment::new(source, anchor, &topics[1..], on, options)
    }

    /// For each instant of a grid with this many instants per second, the matching rows of topics.
    ///
    /// The grid begins at the start of the range, or of the recording.
    ///
    /// # Errors
    /// As [`join`](Self::join), or when the rate is out of range.
    pub fn resample<T: AsRef<str>>(
        source: &dyn Source,
        topics: &[T],
        hz: f64,
        options: AlignOptions,
    ) -> Result<Self, AlignError> {
        let topics: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
        if topics.is_empty() {
            return Err(AlignError::NoTopics);
        }
        let range = options.range.intersect(source.summary().range);
        let grid = Grid::new(range, hz).ok_or(AlignError::Rate { hz })?;
        let on = choose(source, &topics, options.on)?;
        Alignment::new(source, Anchor::Grid(grid), &topics, on, options)
    }

    /// For each of these instants, which are in order, the matching rows of topics. The range of the options is that of the
    /// messages that may be needed.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn at<T: AsRef<str>>(
        source: &dyn Source,
        times: Arc<[i64]>,
        topics: &[T],
        options: AlignOptions,
    ) -> Result<Self, AlignError> {
        let topics: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
        if topics.is_empty() {
            return Err(AlignError::NoTopics);
        }
        let on = choose(source, &topics, options.on)?;
        Alignment::new(source, Anchor::Times(times), &topics, on, options)
    }

    fn new(
        source: &dyn Source,
        anchor: Anchor,
        topics: &[&str],
        on: On,
        options: AlignOptions,
    ) -> Result<Self, AlignError> {
        let sides = topics.iter();
        let sides = sides.map(|topic| Side::new(source, topic, on, &options));
        let sides = sides.collect::<Result<Vec<_>, _>>()?;
        let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let mut fields = vec![Field::new("time", time, false)];
        fields.extend(anchor.fields());
        for side in &sides {
            let offset = format!("{} offset", side.topic());
            fields.push(Field::new(offset, DataType::Int64, true));
            fields.extend(side.fields());
        }
        Ok(Alignment {
            schema: Arc::new(Schema::new(fields)),
            anchor,
            sides,
            options,
            on,
        })
    }

    /// The columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The time by which the topics are aligned.
    pub fn on(&self) -> On {
        self.on
    }

    /// The same in batches of at most this many rows; unchanged for `None`.
    #[must_use]
    pub fn with_rows(mut self, rows: Option<usize>) -> Self {
        self.options.rows = rows.unwrap_or(self.options.rows).max(1);
        self
    }

    /// Reads the times of the topics that are looked up, then yields rows on demand.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read<'a>(
        &self,
        source: impl Into<SourceRef<'a>>,
    ) -> Result<AlignedRows<'a>, AlignError> {
        let source = source.into();
        let mut left_out = 0;
        let most_bytes = self.options.most_bytes / self.sides.len().max(1);
        let mut sides = Vec::with_capacity(self.sides.len());
        for side in &self.sides {
            sides.push(side.load(source.get(), &self.options, most_bytes, &mut left_out)?);
        }
        // A batch of large rows has fewer of them.
        let bytes_per_row = sides.iter().map(LoadedSide::bytes_per_row).sum::<usize>();
        let most_rows = self.options.most_bytes / bytes_per_row.max(1);
        let rows = self.options.rows.min(most_rows.max(1));
        Ok(AlignedRows {
            schema: Arc::clone(&self.schema),
            rows: self.anchor.read(source.get(), rows)?,
            source,
            sides,
            rule: self.options.rule,
            left_out,
        })
    }
}

/// The rows of an [`Alignment`], batch by batch.
pub struct AlignedRows<'a> {
    schema: SchemaRef,
    source: SourceRef<'a>,
    rows: AnchorRows,
    sides: Vec<LoadedSide>,
    rule: Rule,
    left_out: u64,
}

impl AlignedRows<'_> {
    /// Messages skipped so far: without a stamp, or not decodable.
    pub fn left_out(&self) -> u64 {
        self.left_out + self.rows.left_out()
    }

    fn batch(&mut self, times: &[i64], columns: Vec<ArrayRef>) -> Result<RecordBatch, AlignError> {
        let mut all: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        all.push(Arc::new(
            TimestampNanosecondArray::from(times.to_vec()).with_timezone("UTC"),
        ));
        all.extend(columns);
        for side in &mut self.sides {
            let (offsets, columns) = side.rows(self.source.get(), times, self.rule)?;
            all.push(Arc::new(Int64Array::from(offsets)));
            all.extend(columns);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), all)?)
    }
}

impl Iterator for AlignedRows<'_> {
    type Item = Result<RecordBatch, AlignError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.rows.next()? {
            Ok((times, columns)) => Some(self.batch(&times, columns)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// The time to align by.
fn choose(source: &dyn Source, topics: &[&str], on: Option<On>) -> Result<On, AlignError> {
    if on == Some(On::LogTime) {
        return Ok(On::LogTime);
    }
    let last = stamps::last_of(source, topics)?;
    let mut without = topic_without_stamp(source, &last, topics.iter().copied());
    if without.is_none() || on.is_some() {
        for topic in topics {
            // One that does not exist, or cannot be decoded, is told as that.
            let is_stamped = side::has_stamp(source, topic)?;
            without = without.or((!is_stamped).then_some(*topic));
        }
    }
    match (without, on) {
        (None, _) => Ok(On::Stamp),
        (Some(_), None) => Ok(On::LogTime),
        (Some(topic), Some(_)) => Err(AlignError::NoStamp {
            topic: topic.to_owned(),
        }),
    }
}

/// The fields of a topic's columns, named after it.
fn named_after(topic: &str, fields: &[Arc<Field>]) -> Vec<Field> {
    let named = |field: &Arc<Field>| {
        let name = format!("{topic}.{}", field.name());
        // Nothing may be found, and then all of it is null.
        Field::clone(field).with_name(name).with_nullable(true)
    };
    fields.iter().map(named).collect()
}
