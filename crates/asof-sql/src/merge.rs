//! An as-of join as one pass over both sides, in order of time.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use asof_align::{Match, Missing};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, TimestampNanosecondArray,
    new_null_array,
};
use datafusion::arrow::compute::{SortOptions, cast, interleave};
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampNanosecondType};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, plan_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
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

use crate::asof::How;
use crate::between::between;
use crate::matching::{Batches, Key, RowAt, known_times};
use crate::numbered::{number_of, without_number};
use crate::windows::Windows;

/// Bytes of the right side that are held until their matches are sent.
const MOST_HELD: usize = 32 << 20;

/// Merges two inputs that are in order of time.
#[derive(Debug)]
pub(crate) struct AsofJoinExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    pub left_time: Arc<dyn PhysicalExpr>,
    pub right_time: Arc<dyn PhysicalExpr>,
    pub keys: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    pub how: How,
    pub schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl AsofJoinExec {
    pub fn new(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        left_time: Arc<dyn PhysicalExpr>,
        right_time: Arc<dyn PhysicalExpr>,
        keys: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
        how: How,
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        AsofJoinExec {
            left,
            right,
            left_time,
            right_time,
            keys,
            how,
            schema,
            properties: Arc::new(properties),
        }
    }
}

/// In order of time, rows without a time at the end; of one time in order of their numbers, if they have them.
pub(crate) fn in_order(
    time: &Arc<dyn PhysicalExpr>,
    input: &Arc<dyn ExecutionPlan>,
) -> Option<LexOrdering> {
    let options = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let sort = PhysicalSortExpr::new(Arc::clone(time), options);
    LexOrdering::new([sort].into_iter().chain(number_of(&input.schema())))
}

impl DisplayAs for AsofJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "AsofJoinExec: {} of {} by {}",
            self.how, self.right_time, self.left_time
        )?;
        if let Some(tolerance) = self.how.tolerance() {
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
        let left = in_order(&self.left_time, &self.left);
        let right = in_order(&self.right_time, &self.right);
        [left, right]
            .map(|order| order.map(OrderingRequirements::from))
            .into()
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
        Ok(Arc::new(AsofJoinExec::new(
            left,
            right,
            Arc::clone(&self.left_time),
            Arc::clone(&self.right_time),
            self.keys.clone(),
            self.how,
            Arc::clone(&self.schema),
        )))
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
        let left = Side {
            stream: self.left.execute(partition, Arc::clone(&context))?,
            time: Arc::clone(&self.left_time),
            keys,
            converter: RowConverter::new(fields.clone())?,
        };
        let right_keys = self.keys.iter().map(|(_, other)| Arc::clone(other));
        let right = Side {
            stream: self.right.execute(partition, Arc::clone(&context))?,
            time: Arc::clone(&self.right_time),
            keys: right_keys.collect(),
            converter: RowConverter::new(fields)?,
        };
        let memory = MemoryConsumer::new(self.name()).register(context.memory_pool());
        let joined = Joined {
            schema: Arc::clone(&self.schema),
            right_schema: without_number(&self.right.schema()),
        };
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let sender = builder.tx();
        match self.how {
            How::All(span) => {
                let windows = Windows::new(left, right, span, joined, memory);
                builder.spawn(windows.run(sender));
            }
            How::One(rule) => {
                let merge = Merge {
                    left,
                    right,
                    known: asof_align::Merge::new(rule),
                    batches: Batches::default(),
                    joined,
                    memory,
                    coming: None,
                    is_over: false,
                };
                builder.spawn(merge.run(sender));
            }
        }
        Ok(builder.build())
    }
}

/// One side of the join.
pub(crate) struct Side {
    stream: SendableRecordBatchStream,
    time: Arc<dyn PhysicalExpr>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    converter: RowConverter,
}

/// Rows with their times and keys.
pub(crate) struct Keyed {
    pub batch: RecordBatch,
    times: TimestampNanosecondArray,
    keys: Option<Vec<Option<OwnedRow>>>,
}

impl Keyed {
    pub fn time(&self, row: usize) -> Option<i64> {
        self.times.is_valid(row).then(|| self.times.value(row))
    }

    pub fn bytes(&self) -> usize {
        self.batch.get_array_memory_size()
    }

    /// What has to be equal; `None` where a part of it is NULL.
    pub fn key(&self, row: usize) -> Option<Key> {
        match &self.keys {
            None => Some(Key::Any),
            Some(keys) => keys[row].clone().map(Key::Of),
        }
    }

    /// The time and the key of a row that can match.
    pub fn matchable(&self, row: usize) -> Option<(i64, Key)> {
        self.time(row).zip(self.key(row))
    }
}

impl Side {
    pub async fn next(&mut self) -> Result<Option<Keyed>> {
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
            let is_whole = |row: usize| columns.iter().all(|column| !column.is_null(row));
            let keys = converted.iter().enumerate();
            Some(
                keys.map(|(row, key)| is_whole(row).then(|| key.owned()))
                    .collect(),
            )
        };
        let column = self.time.as_ref().downcast_ref::<Column>();
        let name = column.map_or("", Column::name);
        Ok(Keyed {
            times: known_times(name, times.as_primitive::<TimestampNanosecondType>()),
            keys,
            batch,
        })
    }
}

struct Merge {
    left: Side,
    right: Side,
    known: asof_align::Merge<Key, RowAt>,
    batches: Batches,
    joined: Joined,
    memory: MemoryReservation,
    /// Rows of the right side that have arrived and are not added yet.
    coming: Option<(Keyed, usize)>,
    is_over: bool,
}

impl Merge {
    async fn run(mut self, sender: Sender<Result<RecordBatch>>) -> Result<()> {
        while let Some(left) = self.left.next().await? {
            let mut done = 0;
            let mut matches = Vec::with_capacity(left.batch.num_rows());
            for row in 0..left.batch.num_rows() {
                let Some((time, key)) = left.matchable(row) else {
                    matches.push(Match::Missing(Missing::Nothing));
                    continue;
                };
                while self.needs_more(&key, time) {
                    let Some(batch) = self.right.next().await? else {
                        self.is_over = true;
                        break;
                    };
                    self.batches.begin();
                    self.coming = Some((batch, 0));
                    // Matches so far are sent, so that they keep no batch of the right side alive.
                    if self.batches.bytes() > MOST_HELD
                        && !self
                            .hand_out(&left, &mut done, &mut matches, &sender)
                            .await?
                    {
                        return Ok(());
                    }
                }
                matches.push(self.known.pick(&key, time).map(|place| *place));
            }
            if !self
                .hand_out(&left, &mut done, &mut matches, &sender)
                .await?
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Adds arrived rows of the right side as far as this row needs them. Returns whether there may be more.
    fn needs_more(&mut self, key: &Key, time: i64) -> bool {
        let Some((batch, at)) = &mut self.coming else {
            return !self.is_over;
        };
        while *at < batch.batch.num_rows() {
            if let Some((next, own)) = batch.matchable(*at) {
                if !self.known.needs(key, time, next) {
                    return false;
                }
                let place = self.batches.hold(&batch.batch, *at);
                self.known.add(own, next, place);
            }
            *at += 1;
        }
        self.coming = None;
        true
    }

    /// Sends the rows of the left side that have their matches. Returns whether more are wanted.
    async fn hand_out(
        &mut self,
        left: &Keyed,
        done: &mut usize,
        matches: &mut Vec<Match<RowAt>>,
        sender: &Sender<Result<RecordBatch>>,
    ) -> Result<bool> {
        if !matches.is_empty() {
            let rows = left.batch.slice(*done, matches.len());
            *done += matches.len();
            let batch = self.join(&rows, matches)?;
            matches.clear();
            if sender.send(Ok(batch)).await.is_err() {
                return Ok(false);
            }
        }
        self.batches.retain(self.known.values());
        let sides = self.coming.iter().map(|(batch, _)| batch).chain([left]);
        let sides: usize = sides.map(Keyed::bytes).sum();
        let places = self.known.values().count() * size_of::<(i64, RowAt)>();
        self.memory
            .try_resize(sides + self.batches.bytes() + places)?;
        Ok(true)
    }

    /// The left rows beside their matches.
    fn join(&self, left: &RecordBatch, matches: &[Match<RowAt>]) -> Result<RecordBatch> {
        let place = |found: &Match<RowAt>| match found {
            Match::Found(one) => Some(one.value),
            Match::Between { before, .. } => Some(before.value),
            Match::Missing(_) => None,
        };
        let places: Vec<Option<RowAt>> = matches.iter().map(place).collect();
        let mut columns = self.joined.taken(&self.batches, &places)?;
        let is_between = |found: &Match<RowAt>| matches!(found, Match::Between { .. });
        if matches.iter().any(is_between) {
            let next = |found: &Match<RowAt>| match found {
                Match::Between { after, .. } => Some(after.value),
                other => place(other),
            };
            let places: Vec<Option<RowAt>> = matches.iter().map(next).collect();
            let later = self.joined.taken(&self.batches, &places)?;
            let part = |found: &Match<RowAt>| match found {
                Match::Between { fraction, .. } => *fraction,
                _ => 0.0,
            };
            let parts: Vec<f64> = matches.iter().map(part).collect();
            for (column, later) in columns.iter_mut().zip(&later) {
                *column = between(column, later, &parts)?;
            }
        }
        let left = left.columns().iter().cloned();
        self.joined
            .batch(left.chain(columns).collect(), matches.len())
    }
}

/// The output of a join.
pub(crate) struct Joined {
    pub schema: SchemaRef,
    pub right_schema: SchemaRef,
}

impl Joined {
    /// The columns of the right side at these positions; null where there is none.
    pub fn taken(&self, batches: &Batches, places: &[Option<RowAt>]) -> Result<Vec<ArrayRef>> {
        let mut used: Vec<&RecordBatch> = Vec::new();
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let mut rows = Vec::with_capacity(places.len());
        for place in places {
            rows.push(match place {
                None => (0, 0),
                Some(place) => {
                    let number = *numbers.entry(place.batch).or_insert_with(|| {
                        used.push(batches.get(place.batch));
                        used.len()
                    });
                    (number, place.row)
                }
            });
        }
        let fields = self.right_schema.fields().iter().enumerate();
        let columns = fields.map(|(at, field)| {
            let nothing = new_null_array(field.data_type(), 1);
            let mut arrays: Vec<&dyn Array> = vec![nothing.as_ref()];
            arrays.extend(used.iter().map(|batch| batch.column(at).as_ref()));
            Ok(interleave(&arrays, &rows)?)
        });
        columns.collect()
    }

    pub fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}
