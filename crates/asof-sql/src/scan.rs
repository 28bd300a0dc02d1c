//! Reads a topic: stretches of time, one beside the other, each in order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::Query;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};

use crate::assemble::{Assembled, Assembler, Shape, external, runs};
use crate::database::Shared;
use crate::pushdown::Wanted;
use crate::topic::{LOG_TIME, Slice, TopicTable};

/// The rows of a topic, decoded as far as they are asked for.
#[derive(Debug, Clone)]
pub(crate) struct TopicScan {
    pub shape: Shape,
    pub shared: Arc<Shared>,
    pub wanted: Wanted,
    pub slices: Vec<Slice>,
    /// Messages of the topic in all slices, where the index tells.
    messages: Option<u64>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl TopicScan {
    pub fn new(
        table: &TopicTable,
        columns: &[usize],
        wanted: &Wanted,
        limit: Option<usize>,
    ) -> Result<Self> {
        let shape = Shape::new(&table.topic, Arc::new(table.schema.project(columns)?));
        let slices = table.slices(wanted);
        let is_all = *wanted == Wanted::default();
        Ok(TopicScan {
            shared: Arc::clone(&table.shared),
            wanted: wanted.clone(),
            messages: if is_all {
                table.messages.iter().copied().sum()
            } else {
                None
            },
            properties: properties(&shape, slices.len()),
            shape,
            slices,
            limit,
        })
    }

    /// The same with this projection inside of it, if it has none yet.
    pub fn with_projection(&self, projection: &ProjectionExec) -> Option<Self> {
        let shape = self.shape.with_projection(projection.expr())?;
        Some(TopicScan {
            properties: properties(&shape, self.slices.len()),
            shape,
            ..self.clone()
        })
    }
}

/// Whether a column that comes out is this one of the topic's own.
pub(crate) fn is_column(shape: &Shape, place: usize, name: &str) -> bool {
    let read = match &shape.projected {
        None => Some(place),
        Some(exprs) => exprs.get(place).and_then(|one| {
            let column = one.expr.as_ref().downcast_ref::<Column>();
            column.map(Column::index)
        }),
    };
    let field = read.and_then(|read| shape.read.fields().get(read));
    field.is_some_and(|field| field.name() == name)
}

/// Slices beside each other, each in order of `log_time`.
fn properties(shape: &Shape, slices: usize) -> Arc<PlanProperties> {
    let schema = Arc::clone(&shape.output);
    let place = (0..schema.fields().len()).find(|place| is_column(shape, *place, LOG_TIME));
    let order = place.map(|place| {
        let column = Column::new(schema.field(place).name(), place);
        vec![PhysicalSortExpr::new_default(Arc::new(column))]
    });
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new_with_orderings(schema, order),
        Partitioning::UnknownPartitioning(slices.max(1)),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

impl DisplayAs for TopicScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicScan: {}", self.shape.topic)?;
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
        if self.shape.paths.is_empty() {
            write!(f, ", nothing decoded")?;
        } else {
            write!(f, ", decoded [{}]", self.shape.paths.join(", "))?;
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
        for one in self.shape.projected.iter().flatten() {
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
            return internal_err!("there is no slice {partition} of {}", self.shape.topic);
        };
        let reader = SliceReader {
            assembler: Assembler::new(&self.shared, slice.recording, &self.shape),
            query: Query::topics([&self.shape.topic]).between(slice.range),
            shared: Arc::clone(&self.shared),
            slice,
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
            limit,
            ..self.clone()
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
        let scan = self.with_projection(projection);
        Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>))
    }
}

/// Reads one slice, on a thread of its own.
struct SliceReader {
    assembler: Assembler,
    query: Query,
    shared: Arc<Shared>,
    slice: Slice,
    /// Rows that are still wanted.
    left: usize,
}

impl SliceReader {
    fn run(mut self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
        let recording = &self.shared.recordings[self.slice.recording].recording;
        let batches = recording.read(&self.query).map_err(external)?;
        let mut full = Vec::new();
        for batch in batches {
            let batch = batch.map_err(external)?;
            let read = &self.shared.read;
            read.fetch_add(batch.len() as u64, Ordering::Relaxed);
            for run in runs(&batch) {
                self.assembler.add(&batch, run, &mut full)?;
            }
            if self.assembler.waiting() >= self.left {
                self.assembler.flush(&mut full)?;
            }
            if !hand_out(&mut full, &mut self.left, send) {
                return Ok(());
            }
        }
        self.assembler.flush(&mut full)?;
        hand_out(&mut full, &mut self.left, send);
        Ok(())
    }
}

/// Hands out batches. Whether more are wanted.
fn hand_out(
    full: &mut Vec<Assembled>,
    left: &mut usize,
    send: &mut dyn FnMut(RecordBatch) -> bool,
) -> bool {
    for Assembled { batch, .. } in full.drain(..) {
        let batch = batch.slice(0, batch.num_rows().min(*left));
        *left -= batch.num_rows();
        if !send(batch) || *left == 0 {
            return false;
        }
    }
    true
}
