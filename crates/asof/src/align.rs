//! Topics side by side: for each message of one, or each instant of a grid, what others have for it.
//!
//! ```
//! use std::time::Duration;
//! use asof::align::{AlignOptions, Aligned};
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
//! let options = AlignOptions { tolerance: Some(Duration::from_nanos(5)), ..AlignOptions::default() };
//! let joined = Aligned::join(&*recording, "/odom", &["/imu"], options)?;
//! for batch in joined.read(&*recording)? {
//!     let batch = batch?;
//!     assert!(batch.column_by_name("/imu.x").is_some());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anchor;
mod side;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampNanosecondArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use asof_core::{Source, SourceError, TimeRange};
use asof_decode::{RowsError, Timeline};
use asof_window::sync::{Pick, Rule};

use anchor::{Anchor, AnchorRows};
use side::{LoadedSide, Side};

/// How topics are put side by side.
#[derive(Debug, Clone)]
pub struct AlignOptions {
    /// Which message of a topic goes with an instant.
    pub pick: Pick,
    /// By which time; `None` for the stamps in the messages where all topics have them, and log times elsewhere.
    pub on: Option<On>,
    /// A message that is farther away than this does not count.
    pub tolerance: Option<Duration>,
    /// The wanted columns of each topic, as [`TopicOptions`](asof_decode::TopicOptions) has them; all of a topic that is
    /// not named.
    pub columns: BTreeMap<String, Vec<String>>,
    /// The log times of the anchor's messages, or the ends of the grid.
    pub range: TimeRange,
    /// A batch has at most this many rows.
    pub rows: usize,
    /// What the topics that are looked up may take in memory.
    pub most_bytes: usize,
}

impl Default for AlignOptions {
    /// The nearest message, however far away, of all columns; up to 2 GB are held.
    fn default() -> Self {
        AlignOptions {
            pick: Pick::Nearest,
            on: None,
            tolerance: None,
            columns: BTreeMap::new(),
            range: TimeRange::ALL,
            rows: 64 << 10,
            most_bytes: 2 << 30,
        }
    }
}

/// A time that messages are put side by side by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "lerobot",
    derive(serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum On {
    /// When they were measured, as they say themselves.
    Stamp,
    /// When they were recorded.
    #[cfg_attr(feature = "lerobot", serde(alias = "log"))]
    LogTime,
}

impl On {
    /// The column that has it.
    pub const fn column(self) -> &'static str {
        match self {
            On::Stamp => Timeline::Stamp.name(),
            On::LogTime => Timeline::LogTime.name(),
        }
    }
}

/// Why topics cannot be put side by side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlignError {
    /// A topic is not there, or cannot be decoded.
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
    /// More would have to be held than is allowed.
    #[error(
        "the messages on {topic} take more than the {most} bytes that may be held; choose fewer columns, or a shorter time"
    )]
    TooLarge {
        /// The topic.
        topic: String,
        /// What may be held.
        most: usize,
    },
    /// A rate that is not one.
    #[error("{hz} is not a rate: it is more than 0 and at most 1,000,000,000 per second")]
    Rate {
        /// What was given.
        hz: f64,
    },
    /// Nothing to put side by side.
    #[error("no topic is named")]
    NoTopics,
    /// Arrow refused, which is a defect of this crate.
    #[error("cannot make the table: {0}")]
    Arrow(#[from] ArrowError),
}

/// Topics side by side. It holds no messages: [`read`](Self::read) reads the source, again and again.
///
/// The first column is `time`, by which they are put side by side. The columns of a topic are named after it:
/// `/odom.pose.pose.position.x`. Of each topic that is looked up, `/odom offset` says by how many nanoseconds its message is later
/// than `time`; it and the topic's columns are null where there is none.
///
/// Messages without a stamp, or with a stamp of zero, are left out where stamps are joined by, and counted.
#[derive(Debug, Clone)]
pub struct Aligned {
    schema: SchemaRef,
    anchor: Anchor,
    sides: Vec<Side>,
    options: AlignOptions,
    on: On,
}

impl Aligned {
    /// For each message of one topic, what others have for it.
    ///
    /// # Errors
    /// When a topic or a column is not there, cannot be decoded, or has no stamps although they were asked for.
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
        Aligned::new(source, anchor, &topics[1..], on, options)
    }

    /// For each instant of a grid with so many to the second, what topics have for it.
    ///
    /// The grid begins at the start of the range, or of the recording.
    ///
    /// # Errors
    /// As [`join`](Self::join), or when the rate is not one.
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
        if !(hz > 0.0 && hz <= 1e9) {
            return Err(AlignError::Rate { hz });
        }
        let on = choose(source, &topics, options.on)?;
        let range = options.range.intersect(source.summary().range);
        Aligned::new(source, Anchor::Grid { range, hz }, &topics, on, options)
    }

    /// For each of these instants, which are in order, what topics have for it. The range of the options is that of the
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
        Aligned::new(source, Anchor::Times(times), &topics, on, options)
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
        Ok(Aligned {
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

    /// By which time they are put side by side.
    pub fn on(&self) -> On {
        self.on
    }

    /// The same in batches of at most this many rows; as many as before where none is given.
    #[must_use]
    pub fn with_rows(mut self, rows: Option<usize>) -> Self {
        self.options.rows = rows.unwrap_or(self.options.rows).max(1);
        self
    }

    /// Reads the topics that are looked up into memory, and then the rows as they are asked for.
    ///
    /// # Errors
    /// When the source cannot be read, or what is looked up does not fit.
    pub fn read(&self, source: &dyn Source) -> Result<AlignedRows, AlignError> {
        let mut left_out = 0;
        let mut room = self.options.most_bytes;
        let mut sides = Vec::with_capacity(self.sides.len());
        for side in &self.sides {
            sides.push(side.load(source, &self.options, &mut room, &mut left_out)?);
        }
        Ok(AlignedRows {
            schema: Arc::clone(&self.schema),
            rows: self.anchor.read(source, self.options.rows)?,
            sides,
            rule: rule_of(&self.options),
            left_out,
        })
    }
}

/// The rows of an [`Aligned`], batch by batch.
pub struct AlignedRows {
    schema: SchemaRef,
    rows: AnchorRows,
    sides: Vec<LoadedSide>,
    rule: Rule,
    left_out: u64,
}

impl AlignedRows {
    /// Messages that were left out so far: without a stamp, or not decodable.
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
            let (offsets, columns) = side.rows(times, self.rule)?;
            all.push(Arc::new(Int64Array::from(offsets)));
            all.extend(columns);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), all)?)
    }
}

impl Iterator for AlignedRows {
    type Item = Result<RecordBatch, AlignError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.rows.next()? {
            Ok((times, columns)) => Some(self.batch(&times, columns)),
            Err(error) => Some(Err(error)),
        }
    }
}

fn rule_of(options: &AlignOptions) -> Rule {
    let rule = match options.pick {
        Pick::Nearest => Rule::nearest(),
        Pick::Last => Rule::last(),
        Pick::Interpolated => Rule::interpolated().or_nearest(),
    };
    match options.tolerance {
        Some(distance) => rule.within(distance),
        None => rule,
    }
}

/// By which time to put topics side by side.
fn choose(source: &dyn Source, topics: &[&str], on: Option<On>) -> Result<On, AlignError> {
    if on == Some(On::LogTime) {
        return Ok(On::LogTime);
    }
    for topic in topics {
        if !side::has_stamp(source, topic)? {
            return match on {
                Some(_) => Err(AlignError::NoStamp {
                    topic: (*topic).to_owned(),
                }),
                None => Ok(On::LogTime),
            };
        }
    }
    Ok(On::Stamp)
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
