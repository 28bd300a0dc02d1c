//! A topic as a table.

use std::sync::Arc;

use asof_core::{Channel, TimeRange};
use asof_decode::{Layers, Projection, Survey, Table};
use async_trait::async_trait;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit,
};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::adapt::united_fields;
use crate::database::Shared;
use crate::labels;
use crate::pushdown::{Pushdown, both};
use crate::recordings::Chosen;
use crate::scan::TopicScan;

/// The columns that every topic has, before those of its messages.
pub(crate) const RECORDING: &str = "recording";
pub(crate) const LOG_TIME: &str = "log_time";
pub(crate) const PUBLISH_TIME: &str = "publish_time";
pub(crate) const STAMP: &str = "stamp";
pub(crate) const SEQUENCE: &str = "sequence";

/// A topic of one or several recordings.
#[derive(Debug)]
pub(crate) struct TopicTable {
    pub topic: String,
    pub schema: SchemaRef,
    pub shared: Arc<Shared>,
    /// The columns that are labels of recordings.
    pub labels: Vec<String>,
}

impl TopicTable {
    /// The table of a topic, with the columns of all its kinds of channels; conflicts are reported to `tell`.
    pub fn new(shared: &Arc<Shared>, topic: &str, tell: &mut dyn FnMut(String)) -> Result<Self> {
        let mut fields: Option<Fields> = None;
        let mut types: Vec<String> = Vec::new();
        for (channel, place) in shared.channels_of(topic)? {
            for columns in columns_of(shared, &channel, place)? {
                let name = channel.type_name().to_owned();
                if !types.contains(&name) {
                    types.push(name);
                }
                fields = Some(match fields {
                    None => columns,
                    Some(known) if known == columns => known,
                    Some(known) => {
                        let mut conflict = |path: &str| {
                            tell(format!(
                                "{topic}{path} has several types; those that cannot be converted are NULL"
                            ));
                        };
                        united_fields(&known, &columns, "", &mut conflict)
                    }
                });
            }
        }
        if types.len() > 1 {
            tell(format!(
                "{topic} has several types ({}), united by the names of their fields",
                types.join(", ")
            ));
        }
        let fields = fields.unwrap_or_default();
        let is_taken = |name: &str| fields.iter().any(|field| field.name() == name);
        let labels = labels::fields_beside(shared, is_taken);
        Ok(TopicTable {
            topic: topic.to_owned(),
            schema: schema_of(&fields, &labels),
            shared: Arc::clone(shared),
            labels: labels
                .into_iter()
                .map(|label| label.name().clone())
                .collect(),
        })
    }
}

/// All columns of a topic, those that every topic has first, labels last.
fn schema_of(message: &Fields, labels: &[Field]) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let mut fields: Vec<FieldRef> = vec![
        Arc::new(Field::new(RECORDING, DataType::Utf8, false)),
        Arc::new(Field::new(LOG_TIME, time.clone(), false)),
        Arc::new(Field::new(PUBLISH_TIME, time, false)),
    ];
    let is_ours = |name: &str| name == LOG_TIME || name == PUBLISH_TIME;
    let mut own = message
        .iter()
        .filter(|field| !is_ours(field.name()))
        .peekable();
    fields.extend(own.next_if(|field| field.name() == STAMP).cloned());
    fields.push(Arc::new(Field::new(SEQUENCE, DataType::UInt32, false)));
    for field in own {
        let mut name = column_name(field.name());
        while fields.iter().any(|known| *known.name() == name) {
            name.push('_');
        }
        // A channel may lack it, and a message may not set it.
        let field = field.as_ref().clone().with_nullable(true);
        fields.push(Arc::new(field.with_name(name)));
    }
    fields.extend(labels.iter().cloned().map(Arc::new));
    // Without metadata: tables of several topics are united as they are.
    Arc::new(Schema::new(fields))
}

/// A field of a message with the name of one of our columns gets an underscore.
fn column_name(field: &str) -> String {
    match field {
        RECORDING | SEQUENCE => format!("{field}_"),
        other => other.to_owned(),
    }
}

/// The name of a field in the decoder's table, for a column that comes from a message.
pub(crate) fn field_name(column: &str) -> &str {
    match column {
        "recording_" => RECORDING,
        "sequence_" => SEQUENCE,
        other => other,
    }
}

/// A decoder for the messages of a channel, with only these fields; samples are asked for without a schema alone.
pub(crate) fn decoder(
    channel: &Arc<Channel>,
    projection: &Projection,
    samples: &[&[u8]],
) -> Option<Box<dyn Table>> {
    let layers = Layers::standard().without("semantic");
    layers.assign(channel, projection, samples).1
}

/// So many recordings of a catalogue are looked at, where a topic has no schema.
const MOST_SURVEYED: usize = 16;

/// The columns of a channel's messages; without a schema, those that the messages of its recordings show.
fn columns_of(
    shared: &Shared,
    channel: &Arc<Channel>,
    place: Option<usize>,
) -> Result<Vec<Fields>> {
    let columns = |samples: &[&[u8]]| {
        let table = decoder(channel, &Projection::All, samples)?;
        Some(table.schema().fields().clone())
    };
    if !Survey::is_needed(channel) {
        let columns = shared.columns_of("", channel, || columns(&[]));
        return Ok(columns.into_iter().collect());
    }
    let places = if let Some(place) = place {
        vec![place]
    } else {
        let topics = [channel.topic.as_str()];
        let all = shared.select(Some(&topics), &Pushdown::default(), &[], None)?;
        let mut all: Vec<usize> = all.iter().map(|one| one.place).collect();
        shared.retain_readable(&mut all, |place| *place);
        let step = all.len().div_ceil(MOST_SURVEYED).max(1);
        all.into_iter().step_by(step).collect()
    };
    let found = places.into_iter().filter_map(|place| {
        let samples = shared.opened(place).samples(channel);
        columns(&samples.iter().map(Vec::as_slice).collect::<Vec<_>>())
    });
    Ok(found.collect())
}

#[async_trait]
impl TableProvider for TopicTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let mut support = Pushdown::pushdown_with_stamps(filters);
        for (support, filter) in support.iter_mut().zip(filters) {
            if labels::is_about_recordings(filter, &self.labels) {
                *support = TableProviderFilterPushDown::Exact;
            }
        }
        Ok(support)
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut wanted = Pushdown::of(filters).with_stamps(filters);
        let about = labels::about_recordings(filters, &self.labels);
        let chosen = self.chosen(&wanted, &about, Some(session))?;
        if !about.is_empty() && wanted.takes_all_recordings() {
            // A join in one pass must not add others.
            let name = |one: &Chosen| self.shared.opened(one.place).name.clone();
            wanted.recordings = Some(chosen.iter().map(name).collect());
        }
        let all = || (0..self.schema.fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        let scan = TopicScan::new(self, &chosen, &columns, &wanted, limit)?;
        Ok(Arc::new(scan))
    }
}

impl TopicTable {
    /// The recordings with wanted rows that can be read.
    pub fn chosen(
        &self,
        wanted: &Pushdown,
        about: &[&Expr],
        session: Option<&dyn Session>,
    ) -> Result<Vec<Chosen>> {
        let topics = [self.topic.as_str()];
        let mut chosen = self.shared.select(Some(&topics), wanted, about, session)?;
        self.shared.retain_readable(&mut chosen, |one| one.place);
        Ok(chosen)
    }

    /// The slices of time of these recordings that are read in parallel: of each as many as there are threads.
    pub fn slices(&self, chosen: &[Chosen], wanted: &Pushdown) -> Vec<Slice> {
        let mut slices = Vec::new();
        let threads = self.shared.options.threads.max(1);
        let each = threads.div_ceil(chosen.len().max(1)).max(1);
        for place in chosen.iter().map(|one| one.place) {
            let summary = self.shared.opened(place).described();
            let logged = (self.shared).logged_with(place, &self.topic, wanted.stamps);
            let asked = wanted.range_within(summary.range);
            let asked = both(asked, logged.unwrap_or(TimeRange::ALL));
            let range = both(summary.range, asked);
            let first = slices.len();
            if range.is_empty() {
                // A damaged recording may hold more than its summary lists.
                if summary.problems.is_empty() {
                    continue;
                }
                slices.push(Slice {
                    recording: place,
                    range: asked,
                });
                continue;
            }
            let step = (range.duration_nanos() / each as i64).saturating_add(1);
            let mut start = range.start;
            loop {
                let end = start.plus_nanos(step - 1).min(range.end);
                slices.push(Slice {
                    recording: place,
                    range: TimeRange::new(start, end),
                });
                if end >= range.end {
                    break;
                }
                start = end.plus_nanos(1);
            }
            // The ends in a summary may be wrong.
            slices[first].range.start = asked.start;
            if let Some(last) = slices.last_mut() {
                last.range.end = asked.end;
            }
        }
        slices
    }
}

/// A time range of one recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub recording: usize,
    pub range: TimeRange,
}
