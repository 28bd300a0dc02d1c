//! One topic as a table that is decoded as it is read.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use asof_core::{Channel, Query, Source, TimeRange};

use crate::path::FieldPath;
use crate::rows::RowsError;
use crate::tables::{ChannelReport, TableError, TableOptions, Tables, Timeline};
use crate::{Decoder, Layers, Projection, Survey};

/// Which part of a topic to read, and in which batches.
#[derive(Debug, Clone)]
pub struct TopicOptions {
    /// The columns, in this order: `log_time`, `publish_time`, `stamp`, and paths of fields, such as
    /// `pose.pose.position` or `ranges[3]`. `None` for all.
    pub columns: Option<Vec<String>>,
    /// The range of log time.
    pub range: TimeRange,
    /// A batch has at most this many rows.
    pub rows: usize,
    /// Decoder threads.
    pub threads: usize,
}

impl Default for TopicOptions {
    /// Everything, in batches of up to 64k rows.
    fn default() -> Self {
        let tables = TableOptions::default();
        TopicOptions {
            columns: None,
            range: TimeRange::ALL,
            rows: tables.rows,
            threads: tables.threads,
        }
    }
}

/// The messages of one topic as Arrow batches with one schema, which is known before anything is read.
///
/// It does not hold messages: each [`read`](Self::read) reads the source again, a batch at a time. A column that was
/// selected by its path has that path as its name.
///
/// ```
/// use asof_decode::{TopicOptions, TopicTable};
/// # use std::io::Cursor;
/// # let mut writer = asof_formats::McapWriter::new(Cursor::new(Vec::new()), Default::default())?;
/// # let demo = asof_demo::Demo::new(asof_demo::DemoOptions { duration: std::time::Duration::from_secs(1), ..Default::default() });
/// # for message in demo.messages() { writer.write(&message)?; }
/// # let recording = asof_formats::McapFile::from_bytes("demo", writer.finish()?.into_inner())?;
/// let columns = ["stamp", "pose.pose.position"].map(str::to_owned).to_vec();
/// let options = TopicOptions { columns: Some(columns), ..TopicOptions::default() };
/// let table = TopicTable::new(&recording, "/odom", options)?;
/// assert_eq!(table.schema().field(1).name(), "pose.pose.position");
/// let rows = table.read(&recording)?.map(|batch| batch.map(|batch| batch.num_rows()));
/// assert!(rows.sum::<Result<usize, _>>()? > 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct TopicTable {
    topic: String,
    options: TopicOptions,
    columns: Option<Vec<Column>>,
    schema: SchemaRef,
    survey: Arc<Survey>,
}

/// A selected column.
#[derive(Debug, Clone)]
enum Column {
    Time(Timeline),
    Path(FieldPath),
}

impl TopicTable {
    /// Determines the columns of a topic.
    ///
    /// Nothing is read from topics with a schema; others are surveyed, as for [`Tables`].
    ///
    /// # Errors
    /// When there is no such topic or column, its messages are of different types that do not form one table, or none
    /// of them can be decoded.
    pub fn new(source: &dyn Source, topic: &str, options: TopicOptions) -> Result<Self, RowsError> {
        let summary = source.summary();
        let channels: Vec<&Arc<Channel>> = summary
            .channels
            .iter()
            .map(|entry| &entry.channel)
            .filter(|channel| channel.topic == topic)
            .collect();
        let Some(first) = channels.first() else {
            return Err(RowsError::no_such_topic(topic, &summary.topics()));
        };
        let query = Query::topics([topic]).between(options.range);
        let survey = Survey::of(source, &query).map_err(TableError::from)?;
        let wanted = options.columns.as_deref();
        let (columns, schema) = shape_of(first, wanted, &survey)?;
        for channel in &channels[1..] {
            if shape_of(channel, wanted, &survey)?.1.fields() != schema.fields() {
                return Err(several(topic, &channels));
            }
        }
        Ok(TopicTable {
            topic: topic.to_owned(),
            options,
            columns,
            schema: Arc::new(schema),
            survey: Arc::new(survey),
        })
    }

    /// The same table in batches of at most this many rows; unchanged where `rows` is `None`.
    #[must_use]
    pub fn with_rows(mut self, rows: Option<usize>) -> Self {
        self.options.rows = rows.unwrap_or(self.options.rows);
        self
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The range of log time that is read.
    pub fn range(&self) -> TimeRange {
        self.options.range
    }

    /// The columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads the rows of the source, or of one of those that it was merged from.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read(&self, source: &dyn Source) -> Result<TopicBatches, RowsError> {
        let query = Query::topics([self.topic.as_str()]).between(self.options.range);
        let options = TableOptions {
            layers: Layers::standard().only("reflection"),
            projection: projection_of(self.columns.as_deref()),
            rows: self.options.rows.max(1),
            threads: self.options.threads,
            // Batches that are kept must not keep whole chunks alive.
            shares_buffers: false,
            ..TableOptions::default()
        };
        let survey = Arc::clone(&self.survey);
        let tables = Tables::read_surveyed(source, &query, options, survey);
        let tables = tables.map_err(TableError::from)?;
        Ok(TopicBatches {
            table: self.clone(),
            tables,
        })
    }

    /// A decoder that makes rows for [`select`](Self::select), from messages on the topic's first channel.
    ///
    /// # Errors
    /// When the topic is gone, or cannot be decoded.
    pub fn decoder(&self, source: &dyn Source) -> Result<(Arc<Channel>, Decoder), RowsError> {
        let summary = source.summary();
        let mut channels = summary.channels.iter().map(|entry| &entry.channel);
        let channel = channels.find(|channel| channel.topic == self.topic);
        let channel =
            channel.ok_or_else(|| RowsError::no_such_topic(&self.topic, &summary.topics()))?;
        let samples = self.survey.samples(channel);
        let samples = samples.as_ref().map_or(&[][..], |both| &both[..]);
        let projection = projection_of(self.columns.as_deref());
        let decoder = Decoder::new(channel, &projection, samples);
        let decoder = decoder.map_err(|error| undecodable(&self.topic, &error))?;
        Ok((Arc::clone(channel), decoder))
    }

    /// The selected columns of a batch with everything that was decoded.
    ///
    /// # Errors
    /// When the batch has another type than the table.
    pub fn select(&self, batch: &RecordBatch) -> Result<RecordBatch, RowsError> {
        let arrays = match &self.columns {
            None => Ok(batch.columns().to_vec()),
            Some(columns) => columns
                .iter()
                .map(|column| self.array(column, batch))
                .collect(),
        }?;
        let is_alike =
            |(array, field): (&Arc<dyn Array>, &Arc<Field>)| array.data_type() == field.data_type();
        // A channel that the source did not list at first may have another type.
        let fields = self.schema.fields();
        if arrays.len() != fields.len() || !arrays.iter().zip(fields).all(is_alike) {
            return Err(RowsError::SeveralTables {
                topic: self.topic.clone(),
                types: "it has a type that the source did not list".to_owned(),
            });
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let chosen = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        chosen.map_err(|cause| self.arrow(cause))
    }

    fn array(&self, column: &Column, batch: &RecordBatch) -> Result<Arc<dyn Array>, RowsError> {
        match column {
            Column::Time(time) => {
                let place = time_place(batch.schema_ref(), *time);
                let array = place.map(|place| Arc::clone(batch.column(place)));
                array.ok_or_else(|| {
                    let column = time.name();
                    self.arrow(arrow_schema::ArrowError::SchemaError(format!(
                        "there is no column {column}"
                    )))
                })
            }
            Column::Path(path) => {
                let column = path.column(batch).map_err(|cause| RowsError::Path {
                    topic: self.topic.clone(),
                    cause,
                })?;
                column.to_array().map_err(|cause| self.arrow(cause))
            }
        }
    }

    fn arrow(&self, cause: arrow_schema::ArrowError) -> RowsError {
        let topic = self.topic.clone();
        TableError::Arrow { topic, cause }.into()
    }
}

/// The rows of a [`TopicTable`], batch by batch.
pub struct TopicBatches {
    table: TopicTable,
    tables: Tables,
}

impl TopicBatches {
    /// Messages that could not be decoded so far, and have no row.
    pub fn failed(&self) -> u64 {
        self.report().iter().map(|report| report.failed).sum()
    }

    /// The counts of decoded and failed messages so far.
    pub fn report(&self) -> Vec<ChannelReport> {
        self.tables.report()
    }
}

impl Iterator for TopicBatches {
    type Item = Result<RecordBatch, RowsError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.tables.next()? {
            Ok(batch) => Some(self.table.select(&batch.batch)),
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// The selected columns of a channel, and their schema.
fn shape_of(
    channel: &Arc<Channel>,
    wanted: Option<&[String]>,
    survey: &Survey,
) -> Result<(Option<Vec<Column>>, Schema), RowsError> {
    let topic = &channel.topic;
    let samples = survey.samples(channel);
    let samples = samples.as_ref().map_or(&[][..], |both| &both[..]);
    let undecodable = |error: crate::SchemaError| undecodable(topic, &error);
    let all = Decoder::new(channel, &Projection::All, samples).map_err(undecodable)?;
    let schema = all.schema();
    let Some(wanted) = wanted else {
        return Ok((None, Schema::clone(schema)));
    };
    let mut fields = Vec::with_capacity(wanted.len());
    let mut columns = Vec::with_capacity(wanted.len());
    for name in wanted {
        let (column, field) = column_of(schema, name).map_err(|cause| RowsError::Path {
            topic: topic.clone(),
            cause,
        })?;
        columns.push(column);
        fields.push(field);
    }
    // The fields within a field depend on what is decoded of it.
    let projection = projection_of(Some(&columns));
    let some = Decoder::new(channel, &projection, samples).map_err(undecodable)?;
    for (column, field) in columns.iter().zip(&mut fields) {
        if let Column::Path(path) = column {
            let found = path
                .resolve(some.schema())
                .map_err(|cause| RowsError::Path {
                    topic: topic.clone(),
                    cause,
                })?;
            *field = field.clone().with_data_type(found.data_type().clone());
        }
    }
    let metadata = some.schema().metadata().clone();
    Ok((Some(columns), Schema::new(fields).with_metadata(metadata)))
}

/// A column by its name, and its field.
fn column_of(schema: &Schema, name: &str) -> Result<(Column, Field), crate::PathError> {
    let times = [Timeline::LogTime, Timeline::PublishTime, Timeline::Stamp];
    let time = times.into_iter().find(|time| time.name() == name);
    if let Some((time, place)) = time.and_then(|time| Some((time, time_place(schema, time)?))) {
        return Ok((Column::Time(time), schema.field(place).clone()));
    }
    let path = FieldPath::parse(name)?;
    let field = path.resolve(schema)?;
    // A parent may be absent.
    let field =
        Field::new(name, field.data_type().clone(), true).with_metadata(field.metadata().clone());
    Ok((Column::Path(path), field))
}

/// The index of a time's column: times are the first columns, so a field of the message is never meant.
fn time_place(schema: &Schema, time: Timeline) -> Option<usize> {
    let is_time = |field: &&Arc<Field>| matches!(field.data_type(), DataType::Timestamp(..));
    let mut times = schema.fields().iter().take(3).take_while(is_time);
    times.position(|field| field.name() == time.name())
}

fn projection_of(columns: Option<&[Column]>) -> Projection {
    let Some(columns) = columns else {
        return Projection::All;
    };
    Projection::paths(columns.iter().filter_map(|column| match column {
        Column::Path(path) => Some(path.fields()),
        Column::Time(_) => None,
    }))
}

fn several(topic: &str, channels: &[&Arc<Channel>]) -> RowsError {
    let types = channels
        .iter()
        .map(|channel| channel.type_name().to_owned());
    RowsError::SeveralTables {
        topic: topic.to_owned(),
        types: types.collect::<Vec<_>>().join(", "),
    }
}

fn undecodable(topic: &str, error: &crate::SchemaError) -> RowsError {
    RowsError::Undecodable {
        topic: topic.to_owned(),
        reason: error.to_string(),
    }
}
