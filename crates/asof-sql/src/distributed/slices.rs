//! Slices of recordings as rows, and the plan that reads them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{Stamp, TimeRange};
use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt64Type};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err, plan_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning,
    PlanProperties, ReplaceChildrenOptions, replace_children_if_necessary,
};
use futures_util::StreamExt;

use super::work::{PlacedSlice, ViewKind, Work};
use super::{ClusterStats, FleetVersion, OpensNothing, RecordingAddress, RecordingOpener};
use crate::assemble::Shape;
use crate::database::Shared;
use crate::fused::AsofScan;
use crate::labels::RecordingLabels;
use crate::right::StampsGoBack;
use crate::scan::TopicScan;
use crate::topic::{LOG_TIME, Slice};

/// Makes rows from the slices in its input.
#[derive(Debug)]
pub(crate) struct SliceExec {
    pub work: Work,
    /// The time column that each partition is ordered by.
    pub order: Option<usize>,
    opener: Arc<dyn RecordingOpener>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SliceExec {
    /// Over an input whose rows are slices.
    ///
    /// # Errors
    /// When the input has other columns, or the order is by a column that does not exist.
    pub fn new(
        work: Work,
        order: Option<usize>,
        opener: Arc<dyn RecordingOpener>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Result<Self> {
        if input.schema().fields() != row_schema().fields() {
            return plan_err!("slices of recordings have other columns");
        }
        let schema = work.schema()?;
        let ordering = match order.map(|place| (place, schema.fields().get(place))) {
            None => None,
            Some((place, Some(field))) => {
                let column = Arc::new(Column::new(field.name(), place));
                Some(vec![PhysicalSortExpr::new_default(column)])
            }
            Some((place, None)) => {
                return plan_err!("there is no column {place} to be in order of");
            }
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema, ordering),
            Partitioning::UnknownPartitioning(
                input.properties().output_partitioning().partition_count(),
            ),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(SliceExec {
            work,
            order,
            opener,
            input,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// The slices of its partitions, as rows, while it is where the plan is made.
    pub fn partitions(&self) -> Option<&[Vec<RecordBatch>]> {
        let source = self.input.downcast_ref::<DataSourceExec>()?.data_source();
        let source: &dyn std::any::Any = source.as_ref();
        let source = source.downcast_ref::<MemorySourceConfig>()?;
        Some(MemorySourceConfig::partitions(source))
    }

    /// The same over other partitions.
    pub fn over(&self, partitions: &[Vec<RecordBatch>]) -> Result<Arc<dyn ExecutionPlan>> {
        let input = MemorySourceConfig::try_new_exec(partitions, row_schema(), None)?;
        let opener = Arc::clone(&self.opener);
        let exec = SliceExec::new(self.work.clone(), self.order, opener, input)?;
        Ok(Arc::new(exec))
    }

    /// Whether its rows can be returned before all slices are read. Those of an as-of join cannot: it may find stamps out of order,
    /// and is then planned again.
    pub fn is_row_by_row(&self) -> bool {
        !matches!(self.work, Work::Asof { .. })
    }

    /// The rows of a view, as its table plans them.
    pub fn of_view(
        kind: ViewKind,
        projection: Option<&Vec<usize>>,
        order: Option<usize>,
        shared: &Shared,
        slices: &[Slice],
    ) -> Result<Self> {
        let work = Work::View(kind, projection.cloned());
        SliceExec::new(
            work,
            order,
            Arc::new(OpensNothing),
            rows_of(shared, slices)?,
        )
    }
}

/// Partitions for each core of the cluster: more would cost more scheduling than reading.
const PARTITIONS_PER_CORE: usize = 8;

/// The plan with its leaves adapted to a cluster of this many cores. `None` where it reads no recording.
///
/// # Errors
/// When a recording has no address, or the plan is `EXPLAIN ANALYZE`.
pub(crate) fn distributed(
    plan: &Arc<dyn ExecutionPlan>,
    cores: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut leaves = Leaves {
        most: cores.saturating_mul(PARTITIONS_PER_CORE).max(1),
        has_any: false,
    };
    let changed = leaves.changed(Arc::clone(plan), false)?;
    Ok(leaves.has_any.then_some(changed))
}

/// Replaces the leaves of a plan.
struct Leaves {
    /// The most partitions of a leaf, unless each has to be in order.
    most: usize,
    has_any: bool,
}

impl Leaves {
    /// The plan with other leaves; `needs_order` is whether a plan above it relies on its order.
    fn changed(
        &mut self,
        plan: Arc<dyn ExecutionPlan>,
        needs_order: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if plan.is::<AnalyzeExec>() {
            return plan_err!(
                "EXPLAIN ANALYZE does not run on a cluster; run it without --cluster"
            );
        }
        if let Some(leaf) = leaf_of(&plan)? {
            self.has_any = true;
            return Ok(Arc::new(self.grouped(leaf, needs_order)?));
        }
        let (required, kept) = (plan.required_input_ordering(), plan.maintains_input_order());
        let mut children = Vec::new();
        for (place, child) in plan.children().into_iter().enumerate() {
            let is_required = required.get(place).is_some_and(Option::is_some);
            let is_kept = kept.get(place).copied().unwrap_or(false);
            let needs_order = is_required || needs_order && is_kept;
            children.push(self.changed(Arc::clone(child), needs_order)?);
        }
        if children.is_empty() {
            return Ok(plan);
        }
        replace_children_if_necessary(plan, children)
    }

    /// The leaf with several slices in each partition, where there are many and no order is required.
    fn grouped(&self, leaf: SliceExec, needs_order: bool) -> Result<SliceExec> {
        let Some(rows) = leaf.partitions() else {
            return Ok(leaf);
        };
        if rows.len() <= self.most || needs_order && leaf.order.is_some() {
            return Ok(leaf);
        }
        let groups = rows
            .chunks(rows.len().div_ceil(self.most))
            .map(<[_]>::concat);
        let groups: Vec<Vec<RecordBatch>> = groups.collect();
        let input = MemorySourceConfig::try_new_exec(&groups, row_schema(), None)?;
        SliceExec::new(leaf.work, None, leaf.opener, input)
    }
}

/// A plan that reads recordings, as one over rows.
fn leaf_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<SliceExec>> {
    if let Some(scan) = plan.downcast_ref::<TopicScan>() {
        let work = Work::Topic(scan.shape.clone(), scan.fetch());
        return leaf(work, &scan.shape, &scan.shared, &scan.slices).map(Some);
    }
    if let Some(scan) = plan.downcast_ref::<AsofScan>() {
        let work = Work::Asof {
            left: scan.left.clone(),
            rights: scan.rights.clone(),
            schema: Arc::clone(&scan.schema),
        };
        return leaf(work, &scan.left, &scan.shared, &scan.slices).map(Some);
    }
    let Some(view) = plan.downcast_ref::<SliceExec>() else {
        return Ok(None);
    };
    let (opener, input) = (Arc::clone(&view.opener), Arc::clone(&view.input));
    SliceExec::new(view.work.clone(), view.order, opener, input).map(Some)
}

/// A leaf whose first columns are those of this topic.
fn leaf(work: Work, topic: &Shape, shared: &Shared, slices: &[Slice]) -> Result<SliceExec> {
    let mut columns = 0..topic.output.fields().len();
    let order = columns.find(|place| topic.is_column(*place, LOG_TIME));
    SliceExec::new(
        work,
        order,
        Arc::new(OpensNothing),
        rows_of(shared, slices)?,
    )
}

/// The schema of slices as rows.
fn row_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("recording", DataType::Utf8, false),
        Field::new("address", DataType::Utf8, false),
        Field::new("size", DataType::UInt64, true),
        Field::new("start", DataType::Int64, false),
        Field::new("end", DataType::Int64, false),
        Field::new("labels", DataType::Utf8, true),
        Field::new("fleet", DataType::Utf8, true),
        Field::new("generation", DataType::UInt64, true),
        Field::new("e_tag", DataType::Utf8, true),
        Field::new("modified", DataType::Int64, true),
    ]))
}

/// Slices as rows, a partition each.
fn rows_of(shared: &Shared, slices: &[Slice]) -> Result<Arc<dyn ExecutionPlan>> {
    let mut partitions = Vec::new();
    for slice in slices {
        let opened = shared.opened(slice.recording);
        let Some(address) = &opened.address else {
            return plan_err!(
                "other processes cannot find {}: it has no address",
                opened.name
            );
        };
        let slice = PlacedSlice {
            recording: address.clone(),
            range: slice.range,
            labels: opened.labels.clone(),
        };
        partitions.push(vec![row_of(&slice)?]);
    }
    if partitions.is_empty() {
        partitions.push(Vec::new());
    }
    let rows = MemorySourceConfig::try_new_exec(&partitions, row_schema(), None)?;
    Ok(rows)
}

fn row_of(slice: &PlacedSlice) -> Result<RecordBatch> {
    let PlacedSlice {
        recording,
        range,
        labels,
    } = slice;
    let labels = labels.as_ref().map(RecordingLabels::to_text);
    let version = recording.version.as_ref();
    let modified = version.and_then(|version| version.modified);
    let text = |text: &str| Arc::new(StringArray::from(vec![text.to_owned()]));
    let optional = |text: Option<&str>| Arc::new(StringArray::from(vec![text]));
    let count = |count: Option<u64>| Arc::new(UInt64Array::from(vec![count]));
    let number = |number: i64| Arc::new(Int64Array::from(vec![number]));
    Ok(RecordBatch::try_new(
        row_schema(),
        vec![
            text(&recording.name),
            text(&recording.address),
            count(recording.size),
            number(range.start.nanos()),
            number(range.end.nanos()),
            optional(labels.as_deref()),
            optional(version.map(|version| &*version.fleet)),
            count(version.map(|version| version.generation)),
            optional(version.and_then(|version| version.e_tag.as_deref())),
            Arc::new(Int64Array::from(vec![modified.map(Stamp::nanos)])),
        ],
    )?)
}

/// The slices in rows. They come from outside.
fn slices_in(rows: &RecordBatch) -> Result<Vec<PlacedSlice>> {
    let texts = |column: usize| rows.column(column).as_string_opt::<i32>();
    let times = |column: usize| rows.column(column).as_primitive_opt::<Int64Type>();
    let counts = |column: usize| rows.column(column).as_primitive_opt::<UInt64Type>();
    let of_recording = (texts(0), texts(1), counts(2));
    let of_slice = (times(3), times(4), texts(5));
    let of_version = (texts(6), counts(7), texts(8), times(9));
    let (
        (Some(names), Some(addresses), Some(sizes)),
        (Some(starts), Some(ends), Some(labels)),
        (Some(fleets), Some(generations), Some(tags), Some(modified)),
    ) = (of_recording, of_slice, of_version)
    else {
        return internal_err!("slices of recordings have other columns");
    };
    let slice = |row: usize| PlacedSlice {
        recording: RecordingAddress {
            name: names.value(row).to_owned(),
            address: addresses.value(row).to_owned(),
            size: sizes.is_valid(row).then(|| sizes.value(row)),
            version: fleets.is_valid(row).then(|| FleetVersion {
                fleet: fleets.value(row).to_owned(),
                generation: generations.value(row),
                e_tag: tags.is_valid(row).then(|| tags.value(row).to_owned()),
                modified: modified.is_valid(row).then(|| modified.value(row).into()),
            }),
        },
        range: TimeRange::new(starts.value(row).into(), ends.value(row).into()),
        labels: (labels.is_valid(row)).then(|| RecordingLabels::from_text(labels.value(row))),
    };
    Ok((0..rows.num_rows()).map(slice).collect())
}

/// An error as its message: the other side of a network receives only the text.
fn told(error: &DataFusionError) -> DataFusionError {
    match error.find_root() {
        DataFusionError::External(cause) => {
            let code = cause.downcast_ref::<StampsGoBack>();
            DataFusionError::Execution(code.map_or_else(|| cause.to_string(), StampsGoBack::coded))
        }
        DataFusionError::ResourcesExhausted(text) => {
            DataFusionError::ResourcesExhausted(text.clone())
        }
        other => DataFusionError::Execution(other.strip_backtrace()),
    }
}

impl DisplayAs for SliceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slices = self.properties.output_partitioning().partition_count();
        write!(
            f,
            "SliceExec: {}, {slices} slices of time",
            self.work.name()
        )
    }
}

impl ExecutionPlan for SliceExec {
    fn name(&self) -> &'static str {
        "SliceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let shapes: Vec<&Shape> = match &self.work {
            Work::Topic(shape, _) => vec![shape],
            Work::Asof { left, rights, .. } => {
                let rights = rights.iter().map(|right| &right.shape);
                [left].into_iter().chain(rights).collect()
            }
            Work::View(..) => Vec::new(),
        };
        crate::leaf::show_expressions(shapes, f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children) else {
            return internal_err!("slices come from one input");
        };
        let opener = Arc::clone(&self.opener);
        let exec = SliceExec::new(self.work.clone(), self.order, opener, input)?;
        Ok(Arc::new(exec))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions {
            children_properties: ChildrenPropertiesMode::Recompute,
        };
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut named = self.input.execute(partition, Arc::clone(&context))?;
        let schema = Arc::clone(self.properties.eq_properties.schema());
        let mut builder = RecordBatchReceiverStreamBuilder::new(schema, 2);
        let sender = builder.tx();
        let (work, opener) = (self.work.clone(), Arc::clone(&self.opener));
        let read = MetricBuilder::new(&self.metrics).counter(ClusterStats::READ, partition);
        let undecoded =
            MetricBuilder::new(&self.metrics).counter(ClusterStats::UNDECODED, partition);
        builder.spawn(async move {
            while let Some(rows) = named.next().await {
                for slice in slices_in(&rows?)? {
                    let (shared, mut made) = work.start(slice, &opener, Arc::clone(&context))?;
                    while let Some(rows) = made.next().await {
                        if sender
                            .send(rows.map_err(|error| told(&error)))
                            .await
                            .is_err()
                        {
                            return Ok(());
                        }
                    }
                    read.add(shared.read.load(Ordering::Relaxed) as usize);
                    undecoded.add(shared.undecoded.load(Ordering::Relaxed) as usize);
                }
            }
            Ok(())
        });
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
