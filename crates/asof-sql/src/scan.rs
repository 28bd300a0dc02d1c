//! Reads a topic: stretches of time, one beside the other, each in order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{Batch, Channel, Query, Row};
use asof_decode::{Payload, Projection, Table, Timed};
use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, StringArray, TimestampNanosecondArray, UInt32Array,
    new_null_array,
};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};

use crate::adapt::adapt;
use crate::database::Shared;
use crate::narrow::Paths;
use crate::pushdown::Wanted;
use crate::topic::{
    LOG_TIME, PUBLISH_TIME, RECORDING, SEQUENCE, STAMP, Slice, TopicTable, decoder, field_name,
};

/// Rows of one batch.
const BATCH_ROWS: usize = 8192;
/// A batch is closed when it holds this much.
const BATCH_BYTES: usize = 8 << 20;

/// Where messages say when they were measured.
const STAMP_PATHS: [&str; 3] = ["header.stamp", "stamp", "timestamp"];

/// The rows of a topic, decoded as far as they are asked for.
#[derive(Debug)]
pub(crate) struct TopicScan {
    topic: String,
    shared: Arc<Shared>,
    wanted: Wanted,
    slices: Vec<Slice>,
    /// Messages of the topic in all slices, where the index tells.
    messages: Option<u64>,
    /// The columns that are read, narrowed to what is looked at.
    read: SchemaRef,
    /// What a decoder is asked for; nothing where times are enough.
    paths: Vec<String>,
    /// What is made of the columns, where it is not just them.
    projected: Option<Vec<ProjectionExpr>>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl TopicScan {
    pub fn new(
        table: &TopicTable,
        columns: Vec<usize>,
        wanted: &Wanted,
        limit: Option<usize>,
    ) -> Result<Self> {
        let read = Arc::new(table.schema.project(&columns)?);
        let is_all = *wanted == Wanted::default();
        let scan = TopicScan {
            topic: table.topic.clone(),
            shared: Arc::clone(&table.shared),
            slices: table.slices(wanted),
            wanted: wanted.clone(),
            messages: if is_all {
                table.messages.iter().copied().sum()
            } else {
                None
            },
            paths: paths_of(&read, None),
            properties: Arc::new(properties(&read, None, 1)),
            read,
            projected: None,
            limit,
        };
        Ok(scan.settled())
    }

    fn settled(mut self) -> Self {
        let partitions = self.slices.len().max(1);
        self.properties = Arc::new(properties(
            &self.read,
            self.projected.as_deref(),
            partitions,
        ));
        self
    }

    /// The same with this projection inside of it: only what it looks at is decoded.
    fn with_projection(&self, exprs: &[ProjectionExpr]) -> Result<Self> {
        let paths = Paths::of(self.read.fields().len(), exprs.iter().map(|one| &one.expr));
        let mut fields = Vec::new();
        for (column, field) in self.read.fields().iter().enumerate() {
            fields.push(paths.narrowed(column, field).0);
        }
        let read = Arc::new(Schema::new_with_metadata(
            fields,
            self.read.metadata().clone(),
        ));
        // Names, indexes and aliases stay; an expression is bound again to the narrowed types.
        let projected = exprs.iter().map(|one| ProjectionExpr {
            expr: Arc::clone(&one.expr),
            alias: one.alias.clone(),
        });
        let scan = TopicScan {
            topic: self.topic.clone(),
            shared: Arc::clone(&self.shared),
            wanted: self.wanted.clone(),
            slices: self.slices.clone(),
            messages: self.messages,
            paths: paths_of(&self.read, Some(&paths)),
            read,
            projected: Some(projected.collect()),
            limit: self.limit,
            properties: Arc::clone(&self.properties),
        };
        Ok(scan.settled())
    }
}

/// What a decoder has to be asked for; of a column that nobody looks at, nothing.
fn paths_of(read: &SchemaRef, looked_at: Option<&Paths>) -> Vec<String> {
    let mut paths = Vec::new();
    for (column, field) in read.fields().iter().enumerate() {
        let is_ours = matches!(
            field.name().as_str(),
            RECORDING | LOG_TIME | PUBLISH_TIME | SEQUENCE
        );
        if is_ours || looked_at.is_some_and(|paths| !paths.has(column)) {
            continue;
        }
        if field.name() == STAMP {
            // Wherever the message says when it was measured.
            paths.extend(STAMP_PATHS.map(str::to_owned));
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

fn properties(
    read: &SchemaRef,
    projected: Option<&[ProjectionExpr]>,
    partitions: usize,
) -> PlanProperties {
    let (schema, place) = match projected {
        None => (Arc::clone(read), read.index_of(LOG_TIME).ok()),
        Some(exprs) => {
            let is_time = |one: &ProjectionExpr| {
                let column = one.expr.as_ref().downcast_ref::<Column>();
                column.is_some_and(|column| {
                    read.fields()
                        .get(column.index())
                        .is_some_and(|field| field.name() == LOG_TIME)
                })
            };
            (output_schema(read, exprs), exprs.iter().position(is_time))
        }
    };
    let order = place.map(|place| {
        let column = Column::new(schema.field(place).name(), place);
        vec![PhysicalSortExpr::new_default(Arc::new(column))]
    });
    PlanProperties::new(
        EquivalenceProperties::new_with_orderings(schema, order),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
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

impl DisplayAs for TopicScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicScan: {}", self.topic)?;
        if self.wanted.range != asof_core::TimeRange::ALL {
            write!(
                f,
                ", log_time from {} to {}",
                self.wanted.range.start, self.wanted.range.end
            )?;
        }
        if let Some(recordings) = &self.wanted.recordings {
            write!(f, ", recordings [{}]", recordings.join(", "))?;
        }
        if self.paths.is_empty() {
            write!(f, ", nothing decoded")?;
        } else {
            write!(f, ", decoded [{}]", self.paths.join(", "))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", at most {limit} rows")?;
        }
        write!(f, ", {} slices of time", self.slices.len())
    }
}

impl ExecutionPlan for TopicScan {
    fn name(&self) -> &'static str {
        "TopicScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for one in self.projected.iter().flatten() {
            if f(&one.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.eq_properties.schema());
        let mut builder = RecordBatchReceiverStreamBuilder::new(schema, 2);
        let Some(&slice) = self.slices.get(partition) else {
            if self.slices.is_empty() && partition == 0 {
                return Ok(builder.build());
            }
            return internal_err!("there is no slice {partition} of {}", self.topic);
        };
        let reader = SliceReader {
            topic: self.topic.clone(),
            shared: Arc::clone(&self.shared),
            slice,
            read: Arc::clone(&self.read),
            paths: self.paths.clone(),
            projected: self.projected.clone(),
            output: Arc::clone(self.properties.eq_properties.schema()),
            left: self.limit.unwrap_or(usize::MAX),
        };
        let sender = builder.tx();
        builder.spawn_blocking(move || {
            reader.run(&mut |batch| sender.blocking_send(Ok(batch)).is_ok())
        });
        Ok(builder.build())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let schema = self.properties.eq_properties.schema();
        let mut statistics = Statistics::new_unknown(schema);
        if args.partition().is_none() && self.limit.is_none() {
            // The index counts the messages: nothing has to be decompressed for a count.
            if let Some(messages) = self.messages {
                statistics.num_rows = Precision::Exact(messages as usize);
            }
        }
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let scan = TopicScan {
            topic: self.topic.clone(),
            shared: Arc::clone(&self.shared),
            wanted: self.wanted.clone(),
            slices: self.slices.clone(),
            messages: self.messages,
            read: Arc::clone(&self.read),
            paths: self.paths.clone(),
            projected: self.projected.clone(),
            limit,
            properties: Arc::clone(&self.properties),
        };
        Some(Arc::new(scan))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if self.projected.is_some() {
            return Ok(None);
        }
        let scan = self.with_projection(projection.expr())?;
        Ok(Some(Arc::new(scan)))
    }
}

/// Reads one slice, on a thread of its own.
struct SliceReader {
    topic: String,
    shared: Arc<Shared>,
    slice: Slice,
    read: SchemaRef,
    paths: Vec<String>,
    projected: Option<Vec<ProjectionExpr>>,
    output: SchemaRef,
    left: usize,
}

/// The rows of one channel that wait to be a batch.
struct Pending {
    channel: Arc<Channel>,
    table: Option<Box<dyn Table>>,
    /// What the decoder took, in order: logged, published, counted.
    rows: Vec<(i64, i64, u32)>,
}

impl SliceReader {
    fn run(mut self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
        let recording = &self.shared.recordings[self.slice.recording].recording;
        let query = Query::topics([&self.topic]).between(self.slice.range);
        let batches = recording.read(&query).map_err(external)?;
        let mut pending: Vec<Pending> = Vec::new();
        let mut current: Option<usize> = None;
        for batch in batches {
            let batch = batch.map_err(external)?;
            for run in runs(&batch) {
                let channel = &batch.channels()[run[0].channel as usize];
                let place = self.place_of(&mut pending, channel, &batch, &run[0]);
                // Another channel of the topic: what came before goes first, so that times stay in order.
                if current.is_some_and(|before| before != place)
                    && let Some(before) = current
                    && !self.flush(&mut pending[before], send)?
                {
                    return Ok(());
                }
                current = Some(place);
                for part in run.chunks(BATCH_ROWS) {
                    self.append(&mut pending[place], &batch, part);
                    let waiting = &pending[place];
                    let bytes = waiting.table.as_ref().map_or(0, |table| table.bytes());
                    let is_full = waiting.rows.len() >= BATCH_ROWS
                        || bytes >= BATCH_BYTES
                        || waiting.rows.len() >= self.left;
                    if is_full && !self.flush(&mut pending[place], send)? {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(last) = current {
            self.flush(&mut pending[last], send)?;
        }
        Ok(())
    }

    fn place_of(
        &self,
        pending: &mut Vec<Pending>,
        channel: &Arc<Channel>,
        batch: &Batch,
        row: &Row,
    ) -> usize {
        let known = pending
            .iter()
            .position(|one| Arc::ptr_eq(&one.channel, channel));
        known.unwrap_or_else(|| {
            let sample = payload_of(batch, row).bytes;
            let table = if self.paths.is_empty() {
                None
            } else {
                let some = Projection::any_of(self.paths.clone());
                // A channel that has none of the fields gives NULLs.
                decoder(channel, &some, sample)
            };
            pending.push(Pending {
                channel: Arc::clone(channel),
                table,
                rows: Vec::new(),
            });
            pending.len() - 1
        })
    }

    fn append(&self, pending: &mut Pending, batch: &Batch, rows: &[Row]) {
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
            .undecoded
            .fetch_add(failed.len() as u64, Ordering::Relaxed);
        for (place, error) in &failed {
            self.shared
                .tell_undecoded(&self.topic, rows[*place].log_time, error);
        }
        let is_good = |(place, _): &(usize, _)| failed.iter().all(|(bad, _)| bad != place);
        let good = times.enumerate().filter(is_good).map(|(_, times)| times);
        pending.rows.extend(good);
    }

    /// Hands out what waits. Whether more is wanted.
    fn flush(
        &mut self,
        pending: &mut Pending,
        send: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<bool> {
        let rows = std::mem::take(&mut pending.rows);
        let decoded = match &mut pending.table {
            Some(table) => table.take().map_err(DataFusionError::from)?,
            None => None,
        };
        if rows.is_empty() {
            return Ok(true);
        }
        let batch = self.assemble(&rows, decoded.as_ref())?;
        let batch = if batch.num_rows() > self.left {
            batch.slice(0, self.left)
        } else {
            batch
        };
        self.left -= batch.num_rows();
        let batch = self.project(batch)?;
        Ok(send(batch) && self.left > 0)
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
                    let name = &self.shared.recordings[self.slice.recording].name;
                    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
                        name, count,
                    )))
                }
                LOG_TIME => times(rows.iter().map(|row| row.0).collect()),
                PUBLISH_TIME => times(rows.iter().map(|row| row.1).collect()),
                SEQUENCE => Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.2))),
                // The stamp is there wherever the message has one, asked for or not.
                STAMP => Arc::clone(decoded?.column_by_name(STAMP)?),
                name => Arc::clone(decoded?.column_by_name(field_name(name))?),
            })
        };
        let columns = self
            .read
            .fields()
            .iter()
            .map(|field| match column(field.name()) {
                Some(found) => adapt(&found, field.data_type()),
                None => new_null_array(field.data_type(), count),
            });
        let schema = nullable_where_unread(&self.read);
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(schema, columns.collect(), &options)?;
        Ok(batch)
    }

    fn project(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = match &self.projected {
            None => batch.columns().to_vec(),
            Some(exprs) => {
                let rows = batch.num_rows();
                let value = |one: &ProjectionExpr| one.expr.evaluate(&batch)?.into_array(rows);
                exprs.iter().map(value).collect::<Result<_>>()?
            }
        };
        let schema = Arc::clone(&self.output);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// Within the scan a column may be null that is not looked at.
fn nullable_where_unread(read: &SchemaRef) -> SchemaRef {
    let fields = read
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows that follow each other on one channel.
fn runs(batch: &Batch) -> impl Iterator<Item = &[Row]> {
    batch
        .rows()
        .chunk_by(|one, next| one.channel == next.channel)
}

fn payload_of<'a>(batch: &'a Batch, row: &Row) -> Payload<'a> {
    let buffer = &batch.buffers()[row.buffer as usize];
    let bytes = &buffer[row.offset as usize..(row.offset + row.len) as usize];
    Payload { bytes, owner: None }
}

fn external(error: asof_core::SourceError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
