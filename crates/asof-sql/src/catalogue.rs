//! Tables about the recordings.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Float64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
#[cfg(feature = "distributed")]
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

use crate::database::Shared;
use crate::fleet_tables;
use crate::recordings::Opened;

/// The names of these tables; no alias may use one of them.
pub(crate) const NAMES: [&str; 5] = ["topics", "recordings", PROBLEMS, "metadata", "attachments"];

/// The column of a topic's bytes, which are estimated.
pub(crate) const BYTES: &str = "bytes_estimate";

/// The one of these that lists problems.
pub(crate) const PROBLEMS: &str = "problems";

/// Rows in memory, as a table.
pub(crate) fn table(batch: RecordBatch) -> Result<Arc<dyn TableProvider>> {
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
    Ok(Arc::new(table))
}

/// A table about the recordings. Its rows are looked up at query time: most damage is found while reading, and a catalogue is read
/// only for the columns that a query uses, and not held.
#[derive(Debug, Clone)]
pub(crate) struct AboutTable {
    name: String,
    schema: SchemaRef,
    shared: Arc<Shared>,
    told: Arc<Mutex<BTreeSet<String>>>,
}

impl AboutTable {
    pub fn new(name: &str, shared: &Arc<Shared>, told: &Arc<Mutex<BTreeSet<String>>>) -> Self {
        AboutTable {
            name: name.to_owned(),
            schema: schema_of(name),
            shared: Arc::clone(shared),
            told: Arc::clone(told),
        }
    }

    /// Sends all rows, with these columns.
    fn rows(&self, columns: &[usize], send: fleet_tables::SendRows<'_>) -> Result<()> {
        let named: Vec<Arc<Opened>> = (0..self.shared.named)
            .map(|place| self.shared.opened(place))
            .collect();
        let whole = match self.name.as_str() {
            "topics" => topics(&named, columns.contains(&self.schema.index_of(BYTES)?))?,
            "recordings" => recordings(&named)?,
            PROBLEMS => problems(&self.shared, &named, &self.told)?,
            "metadata" => metadata(&named)?,
            _ => attachments(&named)?,
        };
        let mut is_wanted = send(whole.project(columns)?);
        let schema = Arc::new(self.schema.project(columns)?);
        for fleet in &self.shared.fleets {
            if !is_wanted {
                break;
            }
            is_wanted = match self.name.as_str() {
                "topics" => fleet_tables::topics(fleet, &schema, send)?,
                "recordings" => fleet_tables::recordings(fleet, &schema, send)?,
                PROBLEMS => send(fleet_tables::problems(fleet)?.project(columns)?),
                // A catalogue has none of these.
                _ => true,
            };
        }
        Ok(())
    }
}

#[async_trait]
impl TableProvider for AboutTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        // Rows that are only counted have a column too, one that a catalogue always has.
        let read: &[usize] = if wanted.is_empty() { &[1] } else { wanted };
        let schema = Arc::new(self.schema.project(read)?);
        let projection = wanted.is_empty().then(Vec::new);
        #[cfg(feature = "distributed")]
        if self.shared.is_distributed {
            // Other processes have no catalogue: the plan contains the rows.
            let mut all = Vec::new();
            self.rows(read, &mut |rows| {
                all.push(rows);
                true
            })?;
            return Ok(MemorySourceConfig::try_new_exec(
                &[all],
                schema,
                projection,
            )?);
        }
        let rows: Arc<dyn PartitionStream> = Arc::new(AboutRows {
            table: self.clone(),
            columns: read.to_vec(),
            schema: Arc::clone(&schema),
        });
        let exec = StreamingTableExec::try_new(
            schema,
            vec![rows],
            projection.as_ref(),
            None,
            false,
            limit,
        )?;
        Ok(Arc::new(exec))
    }
}

/// Some columns of such a table.
#[derive(Debug)]
struct AboutRows {
    table: AboutTable,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl PartitionStream for AboutRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let (sender, table) = (builder.tx(), self.table.clone());
        let columns = self.columns.clone();
        builder.spawn_blocking(move || {
            table.rows(&columns, &mut |rows| sender.blocking_send(Ok(rows)).is_ok())
        });
        builder.build()
    }
}

fn schema_of(name: &str) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let count = |name: &str| Field::new(name, DataType::UInt64, true);
    let time = |name: &str| {
        let zone = Some("UTC".into());
        Field::new(name, DataType::Timestamp(TimeUnit::Nanosecond, zone), true)
    };
    let fields = match name {
        "topics" => vec![
            text("recording"),
            text("topic"),
            text("type"),
            text("encoding"),
            text("schema_encoding"),
            count("messages"),
            Field::new("hz", DataType::Float64, true),
            count(BYTES),
        ],
        "recordings" => vec![
            text("recording"),
            text("format"),
            text("library"),
            time("start"),
            time("end"),
            count("size"),
            count("messages"),
            count("problems"),
        ],
        PROBLEMS => vec![
            text("recording"),
            text("kind"),
            count("offset"),
            Field::new("topic", DataType::Utf8, true),
            text("message"),
        ],
        "metadata" => vec![text("recording"), text("name"), text("key"), text("value")],
        _ => vec![
            text("recording"),
            text("name"),
            text("media_type"),
            time("log_time"),
            count("size"),
        ],
    };
    Arc::new(Schema::new(fields))
}

/// Rows with the columns that a table declares.
fn made<const N: usize>(name: &str, columns: [(&str, ArrayRef); N]) -> Result<RecordBatch> {
    let columns = columns.map(|(_, column)| column);
    Ok(RecordBatch::try_new(schema_of(name), columns.to_vec())?)
}

fn texts(values: impl IntoIterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn times(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::from(values).with_timezone("UTC"))
}

/// With the bytes of topics, if these are wanted: they are in the indexes.
fn topics(named: &[Arc<Opened>], with_bytes: bool) -> Result<RecordBatch> {
    let mut rows = Vec::new();
    for opened in named {
        let summary = opened.recording.summary();
        let seconds = summary.range.duration_nanos() as f64 * 1e-9;
        let sizes = if with_bytes {
            opened
                .recording
                .payload_estimates()
                .map_err(|error| DataFusionError::External(error.into()))?
        } else {
            Vec::new()
        };
        let sizes = sizes.iter();
        let sizes: HashMap<*const asof_core::Channel, u64> = sizes
            .map(|(channel, bytes)| (Arc::as_ptr(channel), *bytes))
            .collect();
        for entry in &summary.channels {
            let channel = Arc::clone(&entry.channel);
            let hz = entry
                .messages
                .filter(|&messages| messages > 1 && seconds > 0.0)
                .map(|messages| messages as f64 / seconds);
            let bytes = sizes.get(&Arc::as_ptr(&channel)).copied();
            let bytes = bytes.or((entry.messages == Some(0)).then_some(0));
            rows.push((opened.name.clone(), channel, entry.messages, hz, bytes));
        }
    }
    let schema_encoding = |channel: &asof_core::Channel| {
        let schema = channel.schema.as_ref();
        schema.map_or_else(String::new, |schema| schema.encoding.clone())
    };
    let messages: UInt64Array = rows.iter().map(|row| row.2).collect();
    let hz: Float64Array = rows.iter().map(|row| row.3).collect();
    let bytes: UInt64Array = rows.iter().map(|row| row.4).collect();
    made(
        "topics",
        [
            ("recording", texts(rows.iter().map(|row| row.0.clone()))),
            ("topic", texts(rows.iter().map(|row| row.1.topic.clone()))),
            (
                "type",
                texts(rows.iter().map(|row| row.1.type_name().to_owned())),
            ),
            (
                "encoding",
                texts(rows.iter().map(|row| row.1.message_encoding.clone())),
            ),
            (
                "schema_encoding",
                texts(rows.iter().map(|row| schema_encoding(&row.1))),
            ),
            ("messages", Arc::new(messages) as ArrayRef),
            ("hz", Arc::new(hz) as ArrayRef),
            (BYTES, Arc::new(bytes) as ArrayRef),
        ],
    )
}

fn recordings(named: &[Arc<Opened>]) -> Result<RecordBatch> {
    let all: Vec<_> = named
        .iter()
        .map(|opened| (opened.name.clone(), opened.recording.summary()))
        .collect();
    let end = |at: fn(&asof_core::TimeRange) -> asof_core::Stamp| {
        let at = |range: &asof_core::TimeRange| (!range.is_empty()).then(|| at(range).nanos());
        times(all.iter().map(|(_, summary)| at(&summary.range)).collect())
    };
    let sizes: UInt64Array = all.iter().map(|(_, summary)| Some(summary.size)).collect();
    let messages: UInt64Array = all.iter().map(|(_, summary)| summary.messages).collect();
    let problems = all
        .iter()
        .map(|(_, summary)| Some(summary.problems.len() as u64));
    let problems: UInt64Array = problems.collect();
    made(
        "recordings",
        [
            ("recording", texts(all.iter().map(|(name, _)| name.clone()))),
            (
                "format",
                texts(all.iter().map(|(_, summary)| summary.format.clone())),
            ),
            (
                "library",
                texts(all.iter().map(|(_, summary)| summary.library.clone())),
            ),
            ("start", end(|range| range.start)),
            ("end", end(|range| range.end)),
            ("size", Arc::new(sizes) as ArrayRef),
            ("messages", Arc::new(messages) as ArrayRef),
            ("problems", Arc::new(problems) as ArrayRef),
        ],
    )
}

/// Recording, kind, offset, topic, message.
pub(crate) type Row = (String, String, Option<u64>, Option<String>, String);

fn problems(
    shared: &Shared,
    named: &[Arc<Opened>],
    told: &Mutex<BTreeSet<String>>,
) -> Result<RecordBatch> {
    let mut rows: Vec<Row> = Vec::new();
    for opened in named {
        for problem in &opened.recording.summary().problems {
            rows.push((
                opened.name.clone(),
                problem.kind.name().to_owned(),
                problem.offset,
                problem.topic.clone(),
                problem.message.clone(),
            ));
        }
    }
    for (topic, first) in shared.undecoded_topics() {
        let message = format!(
            "a message logged at {} cannot be decoded: {}",
            first.log_time, first.reason
        );
        rows.push((
            String::new(),
            "undecoded".to_owned(),
            None,
            Some(topic),
            message,
        ));
    }
    let table = |text: &String| (String::new(), "table".to_owned(), None, None, text.clone());
    let told = told.lock().unwrap_or_else(PoisonError::into_inner);
    rows.extend(told.iter().map(table));
    problem_rows(&rows)
}

/// Problems as rows.
pub(crate) fn problem_rows(rows: &[Row]) -> Result<RecordBatch> {
    let offsets: UInt64Array = rows.iter().map(|row| row.2).collect();
    let topics: StringArray = rows.iter().map(|row| row.3.clone()).collect();
    made(
        PROBLEMS,
        [
            ("recording", texts(rows.iter().map(|row| row.0.clone()))),
            ("kind", texts(rows.iter().map(|row| row.1.clone()))),
            ("offset", Arc::new(offsets) as ArrayRef),
            ("topic", Arc::new(topics) as ArrayRef),
            ("message", texts(rows.iter().map(|row| row.4.clone()))),
        ],
    )
}

fn metadata(named: &[Arc<Opened>]) -> Result<RecordBatch> {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for opened in named {
        for entry in &opened.recording.summary().metadata {
            // A record that cannot be read is a problem of the recording, and listed there.
            let Ok(pairs) = opened.recording.metadata(entry) else {
                continue;
            };
            for (key, value) in pairs {
                rows.push([opened.name.clone(), entry.name.clone(), key, value]);
            }
        }
    }
    let column = |at: usize| texts(rows.iter().map(|row| row[at].clone()));
    made(
        "metadata",
        [
            ("recording", column(0)),
            ("name", column(1)),
            ("key", column(2)),
            ("value", column(3)),
        ],
    )
}

fn attachments(named: &[Arc<Opened>]) -> Result<RecordBatch> {
    let mut rows = Vec::new();
    for opened in named {
        for entry in &opened.recording.summary().attachments {
            rows.push((opened.name.clone(), entry.clone()));
        }
    }
    let logged = rows
        .iter()
        .map(|(_, entry)| entry.log_time.map(asof_core::Stamp::nanos));
    let sizes: UInt64Array = rows.iter().map(|(_, entry)| Some(entry.size)).collect();
    made(
        "attachments",
        [
            (
                "recording",
                texts(rows.iter().map(|(name, _)| name.clone())),
            ),
            (
                "name",
                texts(rows.iter().map(|(_, entry)| entry.name.clone())),
            ),
            (
                "media_type",
                texts(rows.iter().map(|(_, entry)| entry.media_type.clone())),
            ),
            ("log_time", times(logged.collect())),
            ("size", Arc::new(sizes) as ArrayRef),
        ],
    )
}
