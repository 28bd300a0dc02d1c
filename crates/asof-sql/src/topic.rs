//! A topic as a table.

use std::sync::Arc;

use asof_core::{Channel, Query, TimeRange};
use asof_decode::{Layers, Projection, Table};
use asof_formats::Recording;
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
use crate::pushdown::{Wanted, both};
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
    /// The recordings that have it, by index.
    pub recordings: Vec<usize>,
    /// Messages in each of those, where their indexes are reliable.
    pub messages: Vec<Option<u64>>,
    /// The columns that are labels of recordings.
    pub labels: Vec<String>,
}

/// A recording with its name.
pub(crate) struct Opened {
    pub name: String,
    pub recording: Arc<dyn Recording>,
    /// Its address for other processes, if one reads it.
    #[cfg(feature = "distributed")]
    pub address: Option<crate::distributed::RecordingAddress>,
    /// Its time range, if known without opening it.
    #[cfg(feature = "distributed")]
    pub known_range: Option<TimeRange>,
}

impl Opened {
    pub fn new(name: String, recording: Arc<dyn Recording>) -> Self {
        Opened {
            name,
            recording,
            #[cfg(feature = "distributed")]
            address: None,
            #[cfg(feature = "distributed")]
            known_range: None,
        }
    }

    /// Its time range.
    pub fn range(&self) -> TimeRange {
        #[cfg(feature = "distributed")]
        if let Some(range) = self.known_range {
            return range;
        }
        self.recording.summary().range
    }
}

impl TopicTable {
    /// The table of a topic, with the columns of all its channels; conflicts are reported to `tell`.
    pub fn new(shared: &Arc<Shared>, topic: &str, tell: &mut dyn FnMut(String)) -> Self {
        let mut fields: Option<Fields> = None;
        let (mut recordings, mut messages) = (Vec::new(), Vec::new());
        let mut types: Vec<String> = Vec::new();
        for (place, opened) in shared.recordings.iter().enumerate() {
            let summary = opened.recording.summary();
            let channels = summary.channels.iter();
            let own: Vec<_> = channels
                .filter(|entry| entry.channel.topic == topic)
                .collect();
            if own.is_empty() {
                continue;
            }
            recordings.push(place);
            let is_sure = summary.problems.is_empty();
            let count = own.iter().map(|entry| entry.messages).sum::<Option<u64>>();
            messages.push(count.filter(|_| is_sure));
            for entry in own {
                let columns = message_columns(&entry.channel, &*opened.recording);
                let Some(columns) = columns else { continue };
                let name = entry.channel.type_name().to_owned();
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
        TopicTable {
            topic: topic.to_owned(),
            schema: schema_of(&fields, &labels),
            shared: Arc::clone(shared),
            recordings,
            messages,
            labels: labels
                .into_iter()
                .map(|label| label.name().clone())
                .collect(),
        }
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

/// A decoder for the messages of a channel, with only these fields.
pub(crate) fn decoder(
    channel: &Arc<Channel>,
    projection: &Projection,
    sample: &[u8],
) -> Option<Box<dyn Table>> {
    let layers = Layers::standard().without("semantic");
    layers.assign(channel, projection, &[sample]).1
}

/// The columns of a channel's messages; without a schema, those of its first message.
fn message_columns(channel: &Arc<Channel>, recording: &dyn Recording) -> Option<Fields> {
    let sample = match &channel.schema {
        Some(schema) if !schema.data.is_empty() => None,
        _ => first_payload(channel, recording),
    };
    let table = decoder(
        channel,
        &Projection::All,
        sample.as_deref().unwrap_or_default(),
    )?;
    Some(table.schema().fields().clone())
}

fn first_payload(channel: &Arc<Channel>, recording: &dyn Recording) -> Option<Vec<u8>> {
    let query = Query::topics([&channel.topic]);
    for batch in recording.read(&query).ok()? {
        let batch = batch.ok()?;
        let mut own = batch.iter().filter(|one| Arc::ptr_eq(one.channel, channel));
        if let Some(first) = own.next() {
            return Some(first.payload.to_vec());
        }
    }
    None
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
        let mut support = Wanted::pushdown_with_stamps(filters);
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
        let mut wanted = Wanted::of(filters).with_stamps(filters);
        let about = labels::about_recordings(filters, &self.labels);
        // Equalities with names were accepted by themselves, and are here once more.
        if let Some(names) = self.shared.recordings_that(&about, session)? {
            wanted.recordings = Some(names);
        }
        let all = || (0..self.schema.fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        Ok(Arc::new(TopicScan::new(self, &columns, &wanted, limit)?))
    }
}

impl TopicTable {
    /// The slices of time that are read in parallel: of each recording as many as there are threads.
    pub fn slices(&self, wanted: &Wanted) -> Vec<Slice> {
        let mut slices = Vec::new();
        let threads = self.shared.options.threads.max(1);
        let each = threads.div_ceil(self.recordings.len().max(1)).max(1);
        for &place in &self.recordings {
            let opened = &self.shared.recordings[place];
            if !wanted.has_recording(&opened.name) || !self.shared.uses(place) {
                continue;
            }
            let summary = opened.recording.summary();
            let logged = (self.shared).logged_with(place, &self.topic, wanted.stamps);
            let asked = both(wanted.range, logged.unwrap_or(TimeRange::ALL));
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

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Opened").field(&self.name).finish()
    }
}
