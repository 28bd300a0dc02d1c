//! The messages of one topic as columns of numbers.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, PrimitiveArray, RecordBatch};
use asof_core::{Query, Source, Stamp};

use crate::path::{FieldPath, PathError};
use crate::tables::{ChannelReport, TableError, TableOptions, Tables};
use crate::{Layers, Projection};

/// All messages of one topic, decoded, to be read as columns by path.
///
/// Everything is in memory: read a part of a long topic with a [`Query`] of a time range, or with only the fields that
/// you need. For data that does not fit into memory use [`Tables`].
///
/// ```
/// use asof_decode::Rows;
/// # use std::io::Cursor;
/// # let mut writer = asof_formats::McapWriter::new(Cursor::new(Vec::new()), Default::default())?;
/// # let demo = asof_demo::Demo::new(asof_demo::DemoOptions { duration: std::time::Duration::from_secs(1), ..Default::default() });
/// # for message in demo.messages() { writer.write(&message)?; }
/// # let recording = asof_formats::McapFile::from_bytes("demo", writer.finish()?.into_inner())?;
/// let rows = Rows::read(&recording, "/odom")?;
/// let (x, times) = (rows.f64("pose.pose.position.x")?, rows.log_times());
/// assert_eq!(x.len(), times.len());
/// let error = rows.f64("pose.position.x").expect_err("a PoseWithCovariance is around it");
/// assert!(error.to_string().contains("pose, covariance"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rows {
    batches: Vec<RecordBatch>,
    reports: Vec<ChannelReport>,
}

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The source has no such topic.
    #[error("there is no topic {topic}; there are {known}")]
    NoSuchTopic {
        /// The topic.
        topic: String,
        /// Topics of the source.
        known: String,
    },
    /// The topic has messages of different types, which do not form one table.
    #[error("the messages on {topic} are of different types: {types}; Tables has a table for each")]
    SeveralTables {
        /// The topic.
        topic: String,
        /// The types.
        types: String,
    },
    /// The messages cannot be decoded.
    #[error("the messages on {topic} cannot be decoded: {reason}")]
    Undecodable {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
    /// A path does not exist.
    #[error("{topic}: {cause}")]
    Path {
        /// The topic.
        topic: String,
        /// What is there instead.
        #[source]
        cause: PathError,
    },
    /// The source or a table failed.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl RowsError {
    /// The error for a missing topic, with some that exist.
    pub fn no_such_topic(topic: impl Into<String>, topics: &[&str]) -> Self {
        let mut known = topics[..topics.len().min(NAMED_TOPICS)].join(", ");
        if topics.len() > NAMED_TOPICS {
            known.push_str(", …");
        }
        if topics.is_empty() {
            "none".clone_into(&mut known);
        }
        RowsError::NoSuchTopic {
            topic: topic.into(),
            known,
        }
    }
}

/// The most topics that an error names.
const NAMED_TOPICS: usize = 12;

impl Rows {
    /// Decodes all messages of a topic.
    ///
    /// # Errors
    /// When there is no such topic, its messages do not form one table, or none of them can be decoded.
    pub fn read(source: &dyn Source, topic: &str) -> Result<Self, RowsError> {
        Rows::read_with(source, &Query::topics([topic]), &Projection::All)
    }

    /// Decodes the selected fields of the messages of a query, which must be of one topic.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(
        source: &dyn Source,
        query: &Query,
        projection: &Projection,
    ) -> Result<Self, RowsError> {
        let summary = source.summary();
        let topics = summary.topics();
        let asked: Vec<&str> = topics
            .iter()
            .copied()
            .filter(|topic| query.topics.contains(topic))
            .collect();
        if asked.is_empty() && !topics.is_empty() {
            let topic = match &query.topics {
                asof_core::Topics::Named(names) => {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    names.join(", ")
                }
                asof_core::Topics::All => String::new(),
            };
            return Err(RowsError::no_such_topic(topic, &topics));
        }
        let options = TableOptions {
            layers: Layers::standard().only("reflection"),
            projection: projection.clone(),
            // Rows that are kept must not keep whole chunks alive.
            shares_buffers: false,
            ..TableOptions::default()
        };
        let mut tables = Tables::read(source, query, options).map_err(TableError::from)?;
        let mut batches: Vec<RecordBatch> = Vec::new();
        for batch in &mut tables {
            batches.push(batch?.batch);
        }
        let reports = tables.report();
        let topic = || {
            asked
                .first()
                .map_or_else(String::new, |topic| (*topic).to_owned())
        };
        if reports.len() > 1 {
            let types = reports.iter().map(|report| {
                let channel = &report.assignment.channel;
                format!("{} on {}", channel.type_name(), channel.topic)
            });
            return Err(RowsError::SeveralTables {
                topic: topic(),
                types: types.collect::<Vec<_>>().join(", "),
            });
        }
        if let Some(report) = reports.first()
            && report.assignment.layer.is_none()
        {
            let declined = report.assignment.declined.last();
            return Err(RowsError::Undecodable {
                topic: topic(),
                reason: declined.map_or_else(String::new, |(_, reason)| reason.clone()),
            });
        }
        Ok(Rows { batches, reports })
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows as Arrow batches, all of one schema.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Messages that could not be decoded, and have no row.
    pub fn failed(&self) -> u64 {
        self.reports.iter().map(|report| report.failed).sum()
    }

    /// The counts of decoded and failed messages.
    pub fn report(&self) -> Option<&ChannelReport> {
        self.reports.first()
    }

    /// The numbers at a path, one for each row, NaN where there is none: `pose.pose.position.x`, `ranges[3]`. A
    /// boolean is 0 or 1, a time its seconds.
    ///
    /// # Errors
    /// When the path does not exist, or is not numeric.
    pub fn f64(&self, path: &str) -> Result<Vec<f64>, PathError> {
        let path = FieldPath::parse(path)?;
        let mut all = Vec::with_capacity(self.len());
        for batch in &self.batches {
            all.extend(path.numbers(batch)?);
        }
        Ok(all)
    }

    /// The texts at a path, one for each row, `None` where there is none.
    ///
    /// # Errors
    /// When the path does not exist, or is not text.
    pub fn text(&self, path: &str) -> Result<Vec<Option<String>>, PathError> {
        let path = FieldPath::parse(path)?;
        let mut all = Vec::with_capacity(self.len());
        for batch in &self.batches {
            let column = path.column(batch)?;
            if column.array().as_string_opt::<i32>().is_none() {
                return Err(path.wrong_type(column.array().data_type(), "a text"));
            }
            all.extend((0..column.len()).map(|row| column.text(row).map(str::to_owned)));
        }
        Ok(all)
    }

    /// The log time of each message.
    pub fn log_times(&self) -> Vec<Stamp> {
        let times = self.times("log_time");
        times.map(Option::unwrap_or_default).collect()
    }

    /// The stamp of each message: when it was measured. `None` where it has none.
    pub fn stamps(&self) -> Vec<Option<Stamp>> {
        let stamps: Vec<Option<Stamp>> = self.times("stamp").collect();
        if stamps.is_empty() {
            return vec![None; self.len()];
        }
        stamps
    }

    fn times(&self, name: &'static str) -> impl Iterator<Item = Option<Stamp>> {
        self.batches.iter().flat_map(move |batch| {
            let times = batch.column_by_name(name);
            let times = times.and_then(|times| times.as_primitive_opt::<TimestampNanosecondType>());
            let times = times.into_iter().flat_map(PrimitiveArray::iter);
            times.map(|time| time.map(Stamp::from_nanos))
        })
    }
}
