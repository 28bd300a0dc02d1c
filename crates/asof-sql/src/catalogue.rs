//! Tables about the recordings.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Float64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, MemorySchemaProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::database::Shared;

/// The names of these tables; no alias may use one of them.
pub(crate) const NAMES: [&str; 5] = [
    "topics",
    "recordings",
    "problems",
    "metadata",
    "attachments",
];

/// Adds the tables. `told` are notes about the tables for the user.
pub(crate) fn register(
    tables: &MemorySchemaProvider,
    shared: &Arc<Shared>,
    told: Vec<String>,
) -> Result<()> {
    let made: [Arc<dyn TableProvider>; 5] = [
        table(topics(shared)?)?,
        table(recordings(shared)?)?,
        Arc::new(Problems {
            schema: problems(shared, &told)?.schema(),
            shared: Arc::clone(shared),
            told,
        }),
        table(metadata(shared)?)?,
        table(attachments(shared)?)?,
    ];
    for (name, table) in NAMES.into_iter().zip(made) {
        // A topic of that name takes precedence.
        if !tables.table_exist(name) {
            tables.register_table(name.to_owned(), table)?;
        }
    }
    Ok(())
}

/// Rows in memory, as a table.
pub(crate) fn table(batch: RecordBatch) -> Result<Arc<dyn TableProvider>> {
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
    Ok(Arc::new(table))
}

/// The problems of the recordings. They are looked up at query time: most damage is found while reading.
#[derive(Debug)]
struct Problems {
    schema: SchemaRef,
    shared: Arc<Shared>,
    told: Vec<String>,
}

#[async_trait]
impl TableProvider for Problems {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let known = table(problems(&self.shared, &self.told)?)?;
        known.scan(session, projection, filters, limit).await
    }
}

fn texts(values: impl IntoIterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn times(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::from(values).with_timezone("UTC"))
}

fn topics(shared: &Shared) -> Result<RecordBatch> {
    let mut rows = Vec::new();
    for opened in &shared.recordings {
        let summary = opened.recording.summary();
        let seconds = summary.range.duration_nanos() as f64 * 1e-9;
        for entry in &summary.channels {
            let channel = Arc::clone(&entry.channel);
            let hz = entry
                .messages
                .filter(|&messages| messages > 1 && seconds > 0.0)
                .map(|messages| messages as f64 / seconds);
            rows.push((opened.name.clone(), channel, entry.messages, hz));
        }
    }
    let schema_encoding = |channel: &asof_core::Channel| {
        let schema = channel.schema.as_ref();
        schema.map_or_else(String::new, |schema| schema.encoding.clone())
    };
    let messages: UInt64Array = rows.iter().map(|row| row.2).collect();
    let hz: Float64Array = rows.iter().map(|row| row.3).collect();
    Ok(RecordBatch::try_from_iter([
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
    ])?)
}

fn recordings(shared: &Shared) -> Result<RecordBatch> {
    let all: Vec<_> = shared
        .recordings
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
    Ok(RecordBatch::try_from_iter([
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
    ])?)
}

/// Recording, kind, offset, topic, message.
type Row = (String, String, Option<u64>, Option<String>, String);

fn problems(shared: &Shared, told: &[String]) -> Result<RecordBatch> {
    let mut rows: Vec<Row> = Vec::new();
    for opened in &shared.recordings {
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
    rows.extend(told.iter().map(table));
    let offsets: UInt64Array = rows.iter().map(|row| row.2).collect();
    let topics: StringArray = rows.iter().map(|row| row.3.clone()).collect();
    Ok(RecordBatch::try_from_iter([
        ("recording", texts(rows.iter().map(|row| row.0.clone()))),
        ("kind", texts(rows.iter().map(|row| row.1.clone()))),
        ("offset", Arc::new(offsets) as ArrayRef),
        ("topic", Arc::new(topics) as ArrayRef),
        ("message", texts(rows.iter().map(|row| row.4.clone()))),
    ])?)
}

fn metadata(shared: &Shared) -> Result<RecordBatch> {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for opened in &shared.recordings {
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
    Ok(RecordBatch::try_from_iter([
        ("recording", column(0)),
        ("name", column(1)),
        ("key", column(2)),
        ("value", column(3)),
    ])?)
}

fn attachments(shared: &Shared) -> Result<RecordBatch> {
    let mut rows = Vec::new();
    for opened in &shared.recordings {
        for entry in &opened.recording.summary().attachments {
            rows.push((opened.name.clone(), entry.clone()));
        }
    }
    let logged = rows
        .iter()
        .map(|(_, entry)| entry.log_time.map(asof_core::Stamp::nanos));
    let sizes: UInt64Array = rows.iter().map(|(_, entry)| Some(entry.size)).collect();
    Ok(RecordBatch::try_from_iter([
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
    ])?)
}
