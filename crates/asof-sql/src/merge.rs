//! An as-of join as one pass over both sides, in order of time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, TimestampNanosecondArray,
    new_null_array,
};
use datafusion::arrow::compute::{SortOptions, cast, interleave};
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampNanosecondType};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures_util::StreamExt;
use tokio::sync::mpsc::Sender;

use crate::asof::Direction;

/// Merges two inputs that are in order of time.
#[derive(Debug)]
pub(crate) struct AsofJoinExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    left_time: Arc<dyn PhysicalExpr>,
    right_time: Arc<dyn PhysicalExpr>,
    keys: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    direction: Direction,
    tolerance: Option<i64>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl AsofJoinExec {
    #[expect(
        clippy::too_many_arguments,
        reason = "a plan node is made of its parts"
    )]
    pub fn try_new(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        left_time: Arc<dyn PhysicalExpr>,
        right_time: Arc<dyn PhysicalExpr>,
        keys: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
        direction: Direction,
        tolerance: Option<i64>,
        schema: SchemaRef,
    ) -> Result<Self> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(AsofJoinExec {
            left,
            right,
            left_time,
            right_time,
            keys,
            direction,
            tolerance,
            schema,
            properties: Arc::new(properties),
        })
    }
}

/// In order of time, those without one at the end.
fn in_order(time: &Arc<dyn PhysicalExpr>) -> Option<OrderingRequirements> {
    let options = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let sort = PhysicalSortExpr::new(Arc::clone(time), options);
    LexOrdering::new([sort]).map(OrderingRequirements::from)
}

impl DisplayAs for AsofJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "AsofJoinExec: {} of {} by {}",
            self.direction, self.right_time, self.left_time
        )?;
        if let Some(tolerance) = self.tolerance {
            write!(f, ", within {tolerance} ns")?;
        }
        for (left, right) in &self.keys {
            write!(f, ", {left} = {right}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for AsofJoinExec {
    fn name(&self) -> &'static str {
        "AsofJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition, Distribution::SinglePartition]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![in_order(&self.left_time), in_order(&self.right_time)]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true, false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let keys = self.keys.iter().flat_map(|(one, other)| [one, other]);
        for expr in [&self.left_time, &self.right_time].into_iter().chain(keys) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([left, right]) = <[Arc<dyn ExecutionPlan>; 2]>::try_from(children) else {
            return plan_err!("an as-of join has two sides");
        };
        Ok(Arc::new(AsofJoinExec::try_new(
            left,
            right,
            Arc::clone(&self.left_time),
            Arc::clone(&self.right_time),
            self.keys.clone(),
            self.direction,
            self.tolerance,
            Arc::clone(&self.schema),
        )?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions {
                children_properties: ChildrenPropertiesMode::Recompute,
            },
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let keys: Vec<Arc<dyn PhysicalExpr>> =
            self.keys.iter().map(|(one, _)| Arc::clone(one)).collect();
        let fields = keys
            .iter()
            .map(|key| Ok(SortField::new(key.data_type(&self.left.schema())?)))
            .collect::<Result<Vec<_>>>()?;
        let merge = Merge {
            left: Side {
                stream: self.left.execute(partition, Arc::clone(&context))?,
                time: Arc::clone(&self.left_time),
                keys,
                converter: RowConverter::new(fields.clone())?,
            },
            right: Side {
                stream: self.right.execute(partition, context)?,
                time: Arc::clone(&self.right_time),
                keys: self
                    .keys
                    .iter()
                    .map(|(_, other)| Arc::clone(other))
                    .collect(),
                converter: RowConverter::new(fields)?,
            },
            known: Known::new(self.direction, self.tolerance),
            schema: Arc::clone(&self.schema),
            right_schema: self.right.schema(),
        };
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let sender = builder.tx();
        builder.spawn(merge.run(sender));
        Ok(builder.build())
    }
}

/// One side of the join.
struct Side {
    stream: SendableRecordBatchStream,
    time: Arc<dyn PhysicalExpr>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    converter: RowConverter,
}

/// Rows with their times and keys.
struct Keyed {
    batch: RecordBatch,
    times: TimestampNanosecondArray,
    keys: Option<Vec<OwnedRow>>,
}

impl Keyed {
    fn time(&self, row: usize) -> Option<i64> {
        self.times.is_valid(row).then(|| self.times.value(row))
    }

    fn key(&self, row: usize) -> Option<OwnedRow> {
        self.keys.as_ref().map(|keys| keys[row].clone())
    }
}

impl Side {
    async fn next(&mut self) -> Result<Option<Keyed>> {
        loop {
            let Some(batch) = self.stream.next().await else {
                return Ok(None);
            };
            let batch = batch?;
            if batch.num_rows() > 0 {
                return self.keyed(batch).map(Some);
            }
        }
    }

    fn keyed(&self, batch: RecordBatch) -> Result<Keyed> {
        let rows = batch.num_rows();
        let times = self.time.evaluate(&batch)?.into_array(rows)?;
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let times = match times.data_type() {
            DataType::Timestamp(TimeUnit::Nanosecond, _) => times,
            _ => cast(&times, &nanos)?,
        };
        let keys = if self.keys.is_empty() {
            None
        } else {
            let columns = self
                .keys
                .iter()
                .map(|key| key.evaluate(&batch)?.into_array(rows))
                .collect::<Result<Vec<ArrayRef>>>()?;
            let converted = self.converter.convert_columns(&columns)?;
            Some(converted.iter().map(|row| row.owned()).collect())
        };
        Ok(Keyed {
            times: times.as_primitive::<TimestampNanosecondType>().clone(),
            keys,
            batch,
        })
    }
}

struct Merge {
    left: Side,
    right: Side,
    known: Known,
    schema: SchemaRef,
    right_schema: SchemaRef,
}

impl Merge {
    async fn run(mut self, sender: Sender<Result<RecordBatch>>) -> Result<()> {
        let mut coming: Option<(Keyed, usize)> = None;
        let mut is_over = false;
        while let Some(left) = self.left.next().await? {
            let mut matches = Vec::with_capacity(left.batch.num_rows());
            for row in 0..left.batch.num_rows() {
                let Some(time) = left.time(row) else {
                    matches.push(None);
                    continue;
                };
                let key = left.key(row);
                // Takes in what the right side has up to what this row needs.
                while !is_over {
                    if coming.is_none() {
                        match self.right.next().await? {
                            Some(batch) => coming = Some((batch, 0)),
                            None => {
                                is_over = true;
                                break;
                            }
                        }
                    }
                    let Some((batch, at)) = &mut coming else {
                        break;
                    };
                    let next = batch.time(*at);
                    // Those without a time are at the end, and match nothing.
                    if next.is_some_and(|next| !self.known.needs(key.as_ref(), time, next)) {
                        break;
                    }
                    if let Some(next) = next {
                        self.known.add(batch.key(*at), next, &batch.batch, *at);
                    }
                    *at += 1;
                    if *at >= batch.batch.num_rows() {
                        coming = None;
                    }
                }
                matches.push(self.known.choose(key.as_ref(), time));
            }
            let batch = self.join(&left.batch, &matches)?;
            if sender.send(Ok(batch)).await.is_err() {
                return Ok(());
            }
            self.known.tidy();
        }
        Ok(())
    }

    /// The left rows beside those that they match.
    fn join(&self, left: &RecordBatch, matches: &[Option<Place>]) -> Result<RecordBatch> {
        let mut used: Vec<&RecordBatch> = Vec::new();
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let mut places = Vec::with_capacity(matches.len());
        for place in matches {
            places.push(match place {
                None => (0, 0),
                Some(place) => {
                    let number = *numbers.entry(place.batch).or_insert_with(|| {
                        used.push(&self.known.batches[&place.batch]);
                        used.len()
                    });
                    (number, place.row)
                }
            });
        }
        let mut columns = left.columns().to_vec();
        for (at, field) in self.right_schema.fields().iter().enumerate() {
            let nothing = new_null_array(field.data_type(), 1);
            let mut arrays: Vec<&dyn Array> = vec![nothing.as_ref()];
            arrays.extend(used.iter().map(|batch| batch.column(at).as_ref()));
            columns.push(interleave(&arrays, &places)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(left.num_rows()));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// Where a row of the right side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    batch: u64,
    row: usize,
}

/// What the right side has said so far, as far as it can still matter.
struct Known {
    direction: Direction,
    tolerance: Option<i64>,
    rows: HashMap<Option<OwnedRow>, VecDeque<(i64, Place)>>,
    batches: HashMap<u64, RecordBatch>,
    newest: u64,
}

impl Known {
    fn new(direction: Direction, tolerance: Option<i64>) -> Self {
        Known {
            direction,
            tolerance,
            rows: HashMap::new(),
            batches: HashMap::new(),
            newest: 0,
        }
    }

    /// Whether a row at `next` has to be taken in before one at `time` can be answered.
    fn needs(&self, key: Option<&OwnedRow>, time: i64, next: i64) -> bool {
        match self.direction {
            Direction::Backward { or_equal } => next < time || (or_equal && next == time),
            Direction::Forward { .. } | Direction::Nearest => {
                if next <= time {
                    return true;
                }
                let is_too_far = |tolerance: i64| next.saturating_sub(time) > tolerance;
                if self.tolerance.is_some_and(is_too_far) {
                    return false;
                }
                // A later row of this key is there already: one after it is farther away.
                let or_equal = self.direction != Direction::Forward { or_equal: false };
                let later = |(at, _): &(i64, Place)| *at > time || (or_equal && *at == time);
                let rows = self.rows.get(&key.cloned());
                !rows.is_some_and(|rows| rows.iter().any(later))
            }
        }
    }

    fn add(&mut self, key: Option<OwnedRow>, time: i64, batch: &RecordBatch, row: usize) {
        // Rows without a time are last in their batch, so each batch that matters starts with its first row.
        if row == 0 {
            self.newest += 1;
            self.batches.insert(self.newest, batch.clone());
        }
        let place = Place {
            batch: self.newest,
            row,
        };
        let rows = self.rows.entry(key).or_default();
        if matches!(self.direction, Direction::Backward { .. }) {
            rows.clear();
        }
        rows.push_back((time, place));
    }

    fn choose(&mut self, key: Option<&OwnedRow>, time: i64) -> Option<Place> {
        let rows = self.rows.get_mut(&key.cloned())?;
        // The left side goes on: of what is before this row, the last one alone can matter again.
        let is_forward = matches!(self.direction, Direction::Forward { .. });
        while rows.len() > 1 && (rows[1].0 < time || (rows[1].0 == time && !is_forward)) {
            rows.pop_front();
        }
        let before = |or_equal: bool| {
            let is_before = |(at, _): &&(i64, Place)| *at < time || (or_equal && *at == time);
            rows.iter().rev().find(is_before).copied()
        };
        let after = |or_equal: bool| {
            let is_after = |(at, _): &&(i64, Place)| *at > time || (or_equal && *at == time);
            rows.iter().find(is_after).copied()
        };
        let (at, place) = match self.direction {
            Direction::Backward { or_equal } => before(or_equal)?,
            Direction::Forward { or_equal } => after(or_equal)?,
            Direction::Nearest => match (before(true), after(false)) {
                (Some(before), Some(after)) => {
                    let nearer = after.0.abs_diff(time) < time.abs_diff(before.0);
                    if nearer { after } else { before }
                }
                (before, after) => before.or(after)?,
            },
        };
        let distance = i64::try_from(at.abs_diff(time)).unwrap_or(i64::MAX);
        let is_near = self.tolerance.is_none_or(|tolerance| distance <= tolerance);
        is_near.then_some(place)
    }

    /// Lets go of batches that no key looks at any more.
    fn tidy(&mut self) {
        let mut needed: Vec<u64> = vec![self.newest];
        needed.extend(self.rows.values().flatten().map(|(_, place)| place.batch));
        needed.sort_unstable();
        needed.dedup();
        self.batches
            .retain(|number, _| needed.binary_search(number).is_ok());
    }
}
