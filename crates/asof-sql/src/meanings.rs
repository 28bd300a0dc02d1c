//! Tables of meanings: a row for each transform, each line of a log, each diagnostic status.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{Channel, Query, TimeRange};
use asof_decode::{Archetype, Layers, Projection, TableOptions, Tables};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, RecordBatch, StringArray, StructArray, UInt32Array,
    new_null_array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};

use crate::adapt::{adapt, united_fields};
use crate::assemble::external;
use crate::database::Shared;
#[cfg(feature = "distributed")]
use crate::distributed::ViewKind;
use crate::labels;
use crate::pushdown::Pushdown;
use crate::recordings::Chosen;
#[cfg(feature = "distributed")]
use crate::topic::Slice;
use crate::topic::{LOG_TIME, RECORDING};
use crate::view::{Part, View, ViewTable};

const TOPIC: &str = "topic";

/// A table of all messages with one meaning, of any type.
struct Meaning {
    table: &'static str,
    archetype: &'static str,
    /// The list whose elements are rows, where the archetype has a row for each message.
    each: Option<&'static str>,
}

const MEANINGS: [Meaning; 3] = [
    Meaning {
        table: "transforms",
        archetype: "Transform",
        each: None,
    },
    Meaning {
        table: "logs",
        archetype: "Log",
        each: None,
    },
    Meaning {
        table: "diagnostics",
        archetype: "Diagnostics",
        each: Some("status"),
    },
];

/// The tables of the meanings that the recordings have messages for.
pub(crate) fn tables_of(shared: &Shared) -> impl Iterator<Item = &'static str> {
    let mut types: BTreeSet<String> = BTreeSet::new();
    for topics in shared.named_topics().values() {
        types.extend(topics.iter().map(|one| one.channel.type_name().to_owned()));
    }
    for fleet in &shared.fleets {
        types.extend(
            fleet
                .contents()
                .kinds
                .iter()
                .map(|kind| kind.type_name.clone()),
        );
    }
    let is_there = move |meaning: &&Meaning| types.iter().any(|name| meaning.is_of(name));
    MEANINGS
        .iter()
        .filter(is_there)
        .map(|meaning| meaning.table)
}

/// The table of a meaning; `None` where no message has it.
pub(crate) fn table_of(name: &str, shared: &Arc<Shared>) -> Result<Option<Arc<dyn TableProvider>>> {
    let meaning = MEANINGS.iter().find(|meaning| meaning.table == name);
    let table = meaning
        .map(|meaning| meaning.table_of(shared))
        .transpose()?;
    Ok(table.flatten().map(|table| Arc::new(ViewTable(table)) as _))
}

impl Meaning {
    fn is_of(&self, type_name: &str) -> bool {
        let archetype = Archetype::of(type_name);
        archetype.is_some_and(|archetype| archetype.name == self.archetype)
    }

    fn table_of(&self, shared: &Arc<Shared>) -> Result<Option<MeaningTable>> {
        let mut fields: Option<Fields> = None;
        let mut topics: BTreeSet<String> = BTreeSet::new();
        for topic in shared.topics() {
            for (channel, _) in shared.channels_of(&topic)? {
                if !self.is_of(channel.type_name()) {
                    continue;
                }
                let columns = || self.columns(&channel);
                let Some(own) = shared.columns_of(self.archetype, &channel, columns) else {
                    continue;
                };
                topics.insert(topic.clone());
                fields = Some(match fields {
                    None => own,
                    Some(known) if known == own => known,
                    Some(known) => united_fields(&known, &own, "", &mut |_| {}),
                });
            }
        }
        let Some(fields) = fields else {
            return Ok(None);
        };
        let mut all: Vec<FieldRef> = vec![
            Arc::new(Field::new(RECORDING, DataType::Utf8, false)),
            Arc::new(Field::new(TOPIC, DataType::Utf8, false)),
        ];
        let nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
        all.extend(fields.iter().map(nullable));
        let is_taken = |name: &str| all.iter().any(|field| field.name() == name);
        let labels = labels::fields_beside(shared, is_taken);
        let names = labels.iter().map(|label| label.name().clone()).collect();
        all.extend(labels.into_iter().map(Arc::new));
        let schema: SchemaRef = Arc::new(Schema::new(all));
        Ok(Some(MeaningTable {
            schema,
            shared: Arc::clone(shared),
            topics,
            each: self.each,
            labels: names,
        }))
    }

    /// The columns of a channel's messages, seen as their meaning.
    fn columns(&self, channel: &Arc<Channel>) -> Option<Fields> {
        let layers = Layers::standard().only("semantic");
        let table = layers.assign(channel, &Projection::All, &[]).1?;
        let schema = table.schema();
        let empty = RecordBatch::new_empty(Arc::clone(&schema));
        let rows = unfolded(&empty, self.each).ok()?;
        Some(rows.schema().fields().clone())
    }
}

/// A row for each of one meaning, of all recordings.
#[derive(Debug)]
struct MeaningTable {
    schema: SchemaRef,
    shared: Arc<Shared>,
    /// The topics that have it.
    topics: BTreeSet<String>,
    each: Option<&'static str>,
    labels: Vec<String>,
}

impl View for MeaningTable {
    type Part = MeaningPart;

    // Messages of several topics, and rows with times of their own.
    const ORDER: Option<&'static str> = None;

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn pushdown(&self, filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        let support = |filter: &&Expr| match topic_of(filter) {
            Some(_) => vec![TableProviderFilterPushDown::Exact],
            None => Pushdown::pushdown(&[filter]),
        };
        filters.iter().flat_map(support).collect()
    }

    fn topics<'a>(&'a self, filters: &'a [Expr]) -> Option<Vec<&'a str>> {
        let chosen: Vec<&str> = filters.iter().filter_map(topic_of).collect();
        let is_chosen = |topic: &&str| chosen.iter().all(|chosen| topic == chosen);
        Some(
            self.topics
                .iter()
                .map(String::as_str)
                .filter(is_chosen)
                .collect(),
        )
    }

    fn parts(&self, chosen: Vec<Chosen>, wanted: &Pushdown) -> Vec<MeaningPart> {
        let part = |one: Chosen| MeaningPart {
            schema: Arc::clone(&self.schema),
            shared: Arc::clone(&self.shared),
            recording: one.place,
            topics: one.topics,
            range: wanted.range_within(self.shared.opened(one.place).range()),
            each: self.each,
        };
        chosen.into_iter().map(part).collect()
    }

    #[cfg(feature = "distributed")]
    fn described(&self, filters: &[Expr]) -> ViewKind {
        let topics = self.topics(filters).unwrap_or_default().into_iter();
        ViewKind::Meaning {
            schema: Arc::clone(&self.schema),
            topics: topics.map(str::to_owned).collect(),
            each: self.each,
        }
    }
}

/// The list that a table of meanings unfolds, by its name.
#[cfg(feature = "distributed")]
pub(crate) fn unfolded_list(name: &str) -> Option<&'static str> {
    let mut lists = MEANINGS.iter().filter_map(|meaning| meaning.each);
    lists.find(|list| *list == name)
}

/// The topic that a filter selects.
fn topic_of(filter: &Expr) -> Option<&str> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = filter
    else {
        return None;
    };
    let (Expr::Column(column), Expr::Literal(value, _)) = (&**left, &**right) else {
        return None;
    };
    let name = value.try_as_str().flatten();
    name.filter(|_| column.name == TOPIC)
}

/// The part of such a table from one recording.
#[derive(Debug)]
pub(crate) struct MeaningPart {
    pub schema: SchemaRef,
    pub shared: Arc<Shared>,
    pub recording: usize,
    pub topics: Vec<String>,
    pub range: TimeRange,
    pub each: Option<&'static str>,
}

impl Part for MeaningPart {
    fn run(&self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
        let opened = self.shared.opened(self.recording);
        let options = TableOptions {
            layers: Layers::standard().only("semantic"),
            shares_buffers: false,
            threads: 1,
            ..TableOptions::default()
        };
        let query = Query::topics(self.topics.iter().cloned()).between(self.range);
        let mut tables = Tables::read(&*opened.recording, &query, options).map_err(external)?;
        for batch in &mut tables {
            let batch = batch.map_err(|error| DataFusionError::External(Box::new(error)))?;
            let rows = unfolded(&batch.batch, self.each)?;
            let rows = self.dressed(&rows, &batch.channel.topic, &opened.name)?;
            let read = &self.shared.read;
            read.fetch_add(batch.batch.num_rows() as u64, Ordering::Relaxed);
            if rows.num_rows() > 0 && !send(rows) {
                break;
            }
        }
        for report in tables.report() {
            let topic = &report.assignment.channel.topic;
            self.shared.tell_undecoded(topic, report.failed, || {
                let (log_time, error) = report.failures.first()?;
                Some((*log_time, error.to_string()))
            });
        }
        Ok(())
    }

    #[cfg(feature = "distributed")]
    fn slice(&self) -> Slice {
        Slice {
            recording: self.recording,
            range: self.range,
        }
    }
}

impl MeaningPart {
    /// The rows with the columns of the complete table.
    fn dressed(&self, rows: &RecordBatch, topic: &str, recording: &str) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let text = |text: &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
                text, count,
            )))
        };
        let columns = self
            .schema
            .fields()
            .iter()
            .enumerate()
            .map(
                |(place, field)| match (place, rows.column_by_name(field.name())) {
                    (0, _) => text(recording),
                    (1, _) => text(topic),
                    (_, Some(found)) => adapt(found, field.data_type()),
                    (_, None) => self.label_or_null(field, count),
                },
            );
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new(schema, columns.collect())?)
    }
}

impl MeaningPart {
    /// A column that the messages lack. No meaning has a column with the name of a label.
    fn label_or_null(&self, field: &Field, rows: usize) -> ArrayRef {
        let label = labels::is_label(field.name())
            .then(|| self.shared.label(self.recording, field.name(), rows));
        match label.flatten() {
            Some(said) => adapt(&said, field.data_type()),
            None => new_null_array(field.data_type(), rows),
        }
    }
}

/// The rows; with a list, one for each of its elements, whose fields are the columns beside the times.
fn unfolded(batch: &RecordBatch, each: Option<&str>) -> Result<RecordBatch> {
    let Some(list) = each.and_then(|name| batch.column_by_name(name)) else {
        return Ok(batch.clone());
    };
    let Some(list) = list.as_list_opt::<i32>() else {
        return Ok(batch.clone());
    };
    let (rows, elements) = elements_of(list);
    let Some(elements) = elements else {
        return Ok(batch.clone());
    };
    let is_time = |field: &Field| matches!(field.data_type(), DataType::Timestamp(..));
    let mut fields: Vec<FieldRef> = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if is_time(field) || field.name() == LOG_TIME {
            fields.push(Arc::clone(field));
            columns.push(take(column, &rows, None)?);
        }
    }
    for (field, column) in elements.fields().iter().zip(elements.columns()) {
        fields.push(Arc::clone(field));
        columns.push(Arc::clone(column));
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// For each element of all lists its row, and the elements.
fn elements_of(list: &ListArray) -> (UInt32Array, Option<StructArray>) {
    let mut rows: Vec<u32> = Vec::new();
    for row in 0..list.len() {
        let count = if list.is_null(row) {
            0
        } else {
            list.value_length(row) as usize
        };
        rows.extend(std::iter::repeat_n(row as u32, count));
    }
    let offsets = list.value_offsets();
    let (first, last) = (offsets[0] as usize, offsets[list.len()] as usize);
    let values = list.values().slice(first, last - first);
    let elements = values.as_struct_opt().cloned();
    // A null list has no elements, whatever its child array holds.
    let is_whole = elements.as_ref().is_some_and(|all| all.len() == rows.len());
    (UInt32Array::from(rows), elements.filter(|_| is_whole))
}
