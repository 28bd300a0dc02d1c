//! Messages of a topic as rows of its table.

use std::sync::Arc;

use asof_core::{Batch, Channel, Row, Stamp};
use asof_decode::{Payload, Projection, Table, Timed};
use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, StringArray, TimestampNanosecondArray, UInt32Array,
    new_null_array,
};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::projection::ProjectionExpr;

use crate::adapt::adapt;
use crate::database::Shared;
use crate::narrow::Paths;
use crate::topic::{LOG_TIME, PUBLISH_TIME, RECORDING, SEQUENCE, STAMP, decoder, field_name};

/// Rows of one batch.
pub(crate) const BATCH_ROWS: usize = 8192;
/// A batch is closed when it holds this many bytes.
const BATCH_BYTES: usize = 8 << 20;

/// How the messages of a topic become rows.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub topic: String,
    /// The columns that are read, narrowed to what is used.
    pub read: SchemaRef,
    /// The paths for the decoder; empty where times are enough.
    pub paths: Vec<String>,
    /// Expressions over the columns, where the output is not just the columns.
    pub projected: Option<Vec<ProjectionExpr>>,
    /// The output columns.
    pub output: SchemaRef,
    /// The columns that are labels of the recording, and not read from messages.
    pub labels: Vec<String>,
}

impl Shape {
    /// These columns of a topic.
    pub fn new(topic: &str, read: SchemaRef) -> Self {
        Shape::with_labels(topic, read, &[])
    }

    /// The same, some of which are labels of the recording.
    pub fn with_labels(topic: &str, read: SchemaRef, labels: &[String]) -> Self {
        Shape {
            topic: topic.to_owned(),
            paths: paths_of(&read, labels, None),
            output: Arc::clone(&read),
            labels: labels.to_vec(),
            read,
            projected: None,
        }
    }

    /// Whether an output column is this one of the topic's own.
    pub fn is_column(&self, place: usize, name: &str) -> bool {
        let read = match &self.projected {
            None => Some(place),
            Some(exprs) => exprs.get(place).and_then(|one| {
                let column = one.expr.as_ref().downcast_ref::<Column>();
                column.map(Column::index)
            }),
        };
        let field = read.and_then(|read| self.read.fields().get(read));
        field.is_some_and(|field| field.name() == name)
    }

    /// The same with this projection absorbed: only what it uses is decoded. `None` where it has one already.
    pub fn with_projection(&self, exprs: &[ProjectionExpr]) -> Option<Self> {
        if self.projected.is_some() {
            return None;
        }
        let paths = Paths::of(self.read.fields().len(), exprs.iter().map(|one| &one.expr));
        let fields = self.read.fields().iter().enumerate();
        let fields: Vec<_> = fields
            .map(|(column, field)| paths.narrowed(column, field).0)
            .collect();
        let read = Schema::new_with_metadata(fields, self.read.metadata().clone());
        let read = Arc::new(read);
        Some(Shape {
            topic: self.topic.clone(),
            paths: paths_of(&self.read, &self.labels, Some(&paths)),
            output: output_schema(&read, exprs),
            labels: self.labels.clone(),
            read,
            projected: Some(exprs.to_vec()),
        })
    }
}

/// The paths for a decoder; none for a column that is not used.
fn paths_of(read: &SchemaRef, labels: &[String], looked_at: Option<&Paths>) -> Vec<String> {
    let mut paths = Vec::new();
    for (column, field) in read.fields().iter().enumerate() {
        let is_ours = matches!(
            field.name().as_str(),
            RECORDING | LOG_TIME | PUBLISH_TIME | SEQUENCE
        );
        let is_ours = is_ours || labels.contains(field.name());
        if is_ours || looked_at.is_some_and(|paths| !paths.has(column)) {
            continue;
        }
        if field.name() == STAMP {
            // The stamp, wherever the message has it.
            if let Projection::AnyOf(places) = Projection::stamp() {
                paths.extend(places);
            }
            continue;
        }
        match looked_at {
            Some(looked_at) => paths.extend(looked_at.narrowed(column, field).1),
            None => paths.push(field.name().clone()),
        }
    }
    let path = |path: String| match path.split_once('.') {
        Some((first, rest)) => format!("{}.{rest}", field_name(first)),
        None => field_name(&path).to_owned(),
    };
    paths.into_iter().map(path).collect()
}

fn output_schema(read: &SchemaRef, exprs: &[ProjectionExpr]) -> SchemaRef {
    let fields = exprs.iter().map(|one| {
        let field = one.expr.return_field(read);
        let field = field.map_or_else(|_| read.field(0).clone(), |field| field.as_ref().clone());
        field.with_name(&one.alias)
    });
    Arc::new(Schema::new_with_metadata(
        fields.collect::<Vec<_>>(),
        read.metadata().clone(),
    ))
}

/// Rows, and the log time of each.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub batch: RecordBatch,
    pub logged: Vec<i64>,
}

/// Makes rows of the messages of one topic of one recording.
pub(crate) struct Assembler {
    shared: Arc<Shared>,
    recording: usize,
    shape: Shape,
    pending: Vec<Pending>,
    /// The one that took the last message.
    current: Option<usize>,
}

/// The rows of one channel that wait to become a batch.
struct Pending {
    channel: Arc<Channel>,
    table: Option<Box<dyn Table>>,
    /// What the decoder took, in order: log time, publish time, sequence.
    rows: Vec<(i64, i64, u32)>,
}

impl Assembler {
    pub fn new(shared: &Arc<Shared>, recording: usize, shape: &Shape) -> Self {
        Assembler {
            shared: Arc::clone(shared),
            recording,
            shape: shape.clone(),
            pending: Vec::new(),
            current: None,
        }
    }

    pub fn topic(&self) -> &str {
        &self.shape.topic
    }

    /// Whether all columns follow from the log times and the recording.
    pub fn needs_log_times_alone(&self) -> bool {
        let mut fields = self.shape.read.fields().iter();
        self.shape.paths.is_empty()
            && fields.all(|field| {
                let name = field.name();
                matches!(name.as_str(), RECORDING | LOG_TIME) || self.shape.labels.contains(name)
            })
    }

    /// Rows of messages with these log times, where [that is enough](Self::needs_log_times_alone).
    pub fn of_log_times(&self, times: &[Stamp]) -> Result<Assembled> {
        let rows = times.iter().map(|time| (time.nanos(), time.nanos(), 0));
        self.assembled(rows.collect(), None)
    }

    /// Takes messages of one channel of the topic, and emits the batches that are full.
    pub fn add(&mut self, batch: &Batch, run: &[Row], full: &mut Vec<Assembled>) -> Result<()> {
        let Some(first) = run.first() else {
            return Ok(());
        };
        let channel = &batch.channels()[first.channel as usize];
        let place = self.place_of(channel, batch, first);
        // Another channel of the topic: earlier rows go first, so that times stay in order.
        if self.current.is_some_and(|before| before != place) {
            self.flush(full)?;
        }
        self.current = Some(place);
        for part in run.chunks(BATCH_ROWS) {
            self.append(place, batch, part);
            let waiting = &self.pending[place];
            let bytes = waiting.table.as_ref().map_or(0, |table| table.bytes());
            if waiting.rows.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
                self.flush(full)?;
            }
        }
        Ok(())
    }

    /// The number of waiting rows.
    pub fn waiting(&self) -> usize {
        self.current
            .map_or(0, |current| self.pending[current].rows.len())
    }

    /// Emits the waiting rows.
    pub fn flush(&mut self, full: &mut Vec<Assembled>) -> Result<()> {
        let Some(current) = self.current else {
            return Ok(());
        };
        let pending = &mut self.pending[current];
        let rows = std::mem::take(&mut pending.rows);
        let decoded = match &mut pending.table {
            Some(table) => table.take().map_err(DataFusionError::from)?,
            None => None,
        };
        if !rows.is_empty() {
            full.push(self.assembled(rows, decoded.as_ref())?);
        }
        Ok(())
    }

    fn assembled(
        &self,
        rows: Vec<(i64, i64, u32)>,
        decoded: Option<&RecordBatch>,
    ) -> Result<Assembled> {
        let batch = self.assemble(&rows, decoded)?;
        Ok(Assembled {
            batch: self.project(&batch)?,
            logged: rows.into_iter().map(|row| row.0).collect(),
        })
    }

    fn place_of(&mut self, channel: &Arc<Channel>, batch: &Batch, row: &Row) -> usize {
        let mut known = self.pending.iter();
        if let Some(place) = known.position(|one| Arc::ptr_eq(&one.channel, channel)) {
            return place;
        }
        let table = if self.shape.paths.is_empty() {
            None
        } else {
            let some = Projection::any_of(self.shape.paths.clone());
            let samples = self.shared.opened(self.recording).samples(channel);
            let mut samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
            if samples.is_empty() {
                samples.push(payload_of(batch, row).bytes);
            }
            // A channel that has none of the fields yields NULLs.
            decoder(channel, &some, &samples)
        };
        self.pending.push(Pending {
            channel: Arc::clone(channel),
            table,
            rows: Vec::new(),
        });
        self.pending.len() - 1
    }

    fn append(&mut self, place: usize, batch: &Batch, rows: &[Row]) {
        let pending = &mut self.pending[place];
        let times = rows
            .iter()
            .map(|row| (row.log_time.nanos(), row.publish_time.nanos(), row.sequence));
        let Some(table) = &mut pending.table else {
            pending.rows.extend(times);
            return;
        };
        let run: Vec<Timed<'_>> = rows
            .iter()
            .map(|row| (row.log_time, row.publish_time, payload_of(batch, row)))
            .collect();
        let mut failed = Vec::new();
        table.append(&run, &mut |place, error| failed.push((place, error)));
        if failed.is_empty() {
            pending.rows.extend(times);
            return;
        }
        self.shared
            .tell_undecoded(&self.shape.topic, failed.len() as u64, || {
                let (place, error) = failed.first()?;
                Some((rows[*place].log_time, error.to_string()))
            });
        let is_good = |(place, _): &(usize, _)| failed.iter().all(|(bad, _)| bad != place);
        let good = times.enumerate().filter(is_good).map(|(_, times)| times);
        pending.rows.extend(good);
    }

    fn assemble(
        &self,
        rows: &[(i64, i64, u32)],
        decoded: Option<&RecordBatch>,
    ) -> Result<RecordBatch> {
        let count = rows.len();
        let times = |values: Vec<i64>| -> ArrayRef {
            Arc::new(TimestampNanosecondArray::from(values).with_timezone("UTC"))
        };
        let column = |name: &str| -> Option<ArrayRef> {
            Some(match name {
                RECORDING => {
                    let opened = self.shared.opened(self.recording);
                    let names = std::iter::repeat_n(&opened.name, count);
                    Arc::new(StringArray::from_iter_values(names))
                }
                LOG_TIME => times(rows.iter().map(|row| row.0).collect()),
                PUBLISH_TIME => times(rows.iter().map(|row| row.1).collect()),
                SEQUENCE => Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.2))),
                name if self.shape.labels.iter().any(|label| label == name) => {
                    self.shared.label(self.recording, name, count)?
                }
                name => Arc::clone(decoded?.column_by_name(field_name(name))?),
            })
        };
        let fields = self.shape.read.fields().iter();
        let columns = fields.map(|field| match column(field.name()) {
            Some(found) => adapt(&found, field.data_type()),
            None => new_null_array(field.data_type(), count),
        });
        let schema = nullable_where_unread(&self.shape.read);
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(schema, columns.collect(), &options)?;
        Ok(batch)
    }

    fn project(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = match &self.shape.projected {
            None => batch.columns().to_vec(),
            Some(exprs) => {
                let rows = batch.num_rows();
                let value = |one: &ProjectionExpr| one.expr.evaluate(batch)?.into_array(rows);
                exprs.iter().map(value).collect::<Result<_>>()?
            }
        };
        let schema = Arc::clone(&self.shape.output);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// A column that is not used may be null within the scan.
fn nullable_where_unread(read: &SchemaRef) -> SchemaRef {
    let fields = read
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Consecutive rows of one channel.
pub(crate) fn runs(batch: &Batch) -> impl Iterator<Item = &[Row]> {
    batch
        .rows()
        .chunk_by(|one, next| one.channel == next.channel)
}

fn payload_of<'a>(batch: &'a Batch, row: &Row) -> Payload<'a> {
    let buffer = &batch.buffers()[row.buffer as usize];
    let bytes = &buffer[row.offset as usize..(row.offset + row.len) as usize];
    Payload { bytes, owner: None }
}

/// An error of a recording, wrapped for the engine.
pub(crate) fn external(error: asof_core::SourceError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
