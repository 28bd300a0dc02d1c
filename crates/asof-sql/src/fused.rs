//! As-of joins of topics of the same recordings, in one pass over all of them.
//!
//! Each slice of time is read once for all topics, begins with what was known before it, and holds neither side: a row of
//! the left side waits until no later row can be a better match. So the join streams, and slices run in
//! parallel.
//!
//! Joins by `log_time` are always exact, because that is the order of a recording. Joins by `stamp` are exact where the
//! stamps of the right topic never go back. That is checked while reading ([`crate::right::StampsGoBack`]); if they do, the
//! query restarts with sorts.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_align::Pick;
use asof_core::{Batch, Query, Source, Stamp, TimeRange};
use datafusion::arrow::array::{
    Array, RecordBatch, RecordBatchOptions, TimestampNanosecondArray, new_null_array,
};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};

use crate::asof::How;
use crate::assemble::{Assembled, Assembler, Shape, external, runs};
use crate::database::Shared;
use crate::leaf::{Partitions, decoded, in_order_of, leaf, show_expressions};
use crate::matching::RowAt;
use crate::pushdown::Pushdown;
use crate::right::{RightSide, RightTopic, times_of};
use crate::scan::TopicScan;
use crate::topic::{LOG_TIME, STAMP, Slice};

/// A topic and the topics joined with it, in slices of time.
#[derive(Debug, Clone)]
pub(crate) struct AsofScan {
    pub shared: Arc<Shared>,
    pub left: Shape,
    left_wanted: Pushdown,
    pub slices: Vec<Slice>,
    pub rights: Vec<RightTopic>,
    pub schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

/// How a join compares two times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition {
    pub left_time: usize,
    pub right_time: usize,
    pub how: How,
}

impl AsofScan {
    /// The join of a scan, or of such a join, with another scan; `None` where that cannot be one pass.
    pub fn fuse(
        left: &dyn ExecutionPlan,
        right: &TopicScan,
        condition: Condition,
        schema: SchemaRef,
    ) -> Option<Self> {
        let How::One(rule) = condition.how else {
            return None;
        };
        if condition.how.is_between() {
            return None;
        }
        let mut fused = if let Some(scan) = left.downcast_ref::<TopicScan>() {
            if scan.fetch().is_some() {
                return None;
            }
            AsofScan {
                shared: Arc::clone(&scan.shared),
                left: scan.shape.clone(),
                left_wanted: scan.wanted.clone(),
                slices: scan.slices.clone(),
                rights: Vec::new(),
                schema: Arc::clone(&schema),
                properties: Arc::clone(scan.properties()),
            }
        } else {
            left.downcast_ref::<AsofScan>()?.clone()
        };
        let (left_time, right_time) = (condition.left_time, condition.right_time);
        // The time of a topic joined before is not known when the left row is read.
        let is_of_left = left_time < fused.left.output.fields().len();
        let time_of = |shape: &Shape, place: usize| {
            [LOG_TIME, STAMP]
                .into_iter()
                .find(|name| shape.is_column(place, name))
        };
        let times = (
            time_of(&fused.left, left_time).filter(|_| is_of_left)?,
            time_of(&right.shape, right_time)?,
        );
        let is_wanted = |slice: &Slice| {
            let name = &fused.shared.opened(slice.recording).name;
            right.wanted.has_recording(name)
        };
        let is_open = right.fetch().is_some() || !right.wanted.relative.is_empty();
        if is_open || !fused.slices.iter().all(is_wanted) {
            return None;
        }
        let is_by_log_time = times == (LOG_TIME, LOG_TIME);
        let is_in_order = |slice: &Slice| {
            fused
                .shared
                .has_stamps_in_order(slice.recording, &right.shape.topic)
        };
        if times.1 == STAMP && !fused.slices.iter().all(is_in_order) {
            return None;
        }
        fused.rights.push(RightTopic {
            shape: right.shape.clone(),
            wanted: right.wanted.clone(),
            left_time,
            right_time,
            rule,
            is_by_log_time,
        });
        fused.properties = in_order_of(&fused.left, &schema, fused.partitions());
        fused.schema = schema;
        Some(fused)
    }

    fn partitions(&self) -> Partitions {
        Partitions::of(self.slices.len(), self.shared.options.threads)
    }
}

#[cfg(feature = "distributed")]
impl AsofScan {
    /// The same over other recordings, for another process.
    pub fn of_slices(
        left: Shape,
        rights: Vec<RightTopic>,
        schema: SchemaRef,
        shared: Arc<Shared>,
        slices: Vec<Slice>,
    ) -> Self {
        AsofScan {
            left_wanted: Pushdown::default(),
            properties: in_order_of(
                &left,
                &schema,
                Partitions::of(slices.len(), shared.options.threads),
            ),
            shared,
            left,
            slices,
            rights,
            schema,
        }
    }
}

impl DisplayAs for AsofScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsofScan: {}", self.left.topic)?;
        if self.left_wanted.range != TimeRange::ALL {
            let TimeRange { start, end } = self.left_wanted.range;
            write!(f, ", log_time from {start} to {end}")?;
        }
        write!(f, ", {}", decoded(&self.left))?;
        for right in &self.rights {
            let time = right.shape.output.field(right.right_time).name();
            write!(
                f,
                "; {} {} by {time}, {}",
                How::One(right.rule),
                right.shape.topic,
                decoded(&right.shape)
            )?;
            if let Some(within) = right.rule.tolerance() {
                write!(f, ", within {within:?}")?;
            }
        }
        write!(f, "; one pass, {}", self.partitions())
    }
}

impl ExecutionPlan for AsofScan {
    fn name(&self) -> &'static str {
        "AsofScan"
    }

    leaf!();

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let rights = self.rights.iter().map(|right| &right.shape);
        show_expressions([&self.left].into_iter().chain(rights), f)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let places = self.partitions().slices(partition)?;
        let plan = self.clone();
        let sender = builder.tx();
        builder.spawn_blocking(move || {
            for place in places {
                if sender.is_closed() {
                    break;
                }
                let pass = Pass::new(&plan, plan.slices[place], &context);
                let mut has_sent = false;
                let joined = pass.run(&mut |batch| {
                    has_sent = true;
                    sender.blocking_send(Ok(batch)).is_ok()
                });
                match joined {
                    Err(error) if !has_sent => {
                        (plan.shared).leave_out(plan.slices[place].recording, error)?;
                    }
                    joined => joined?,
                }
            }
            Ok(())
        });
        Ok(builder.build())
    }
}

/// One slice, read once.
struct Pass {
    plan: AsofScan,
    slice: Slice,
    left: Assembler,
    waiting: VecDeque<LeftRows>,
    rights: Vec<RightSide>,
    memory: MemoryReservation,
}

/// Rows of the left side that wait for their matches.
struct LeftRows {
    batch: RecordBatch,
    bytes: usize,
    /// None of them was logged after this.
    logged_until: i64,
    /// For each right side the times, and the matches as far as they are known.
    times: Vec<TimestampNanosecondArray>,
    matches: Vec<Vec<Option<RowAt>>>,
}

impl Pass {
    fn new(plan: &AsofScan, slice: Slice, context: &TaskContext) -> Self {
        let consumer = MemoryConsumer::new(format!("AsofScan of {}", plan.left.topic));
        let rights = plan.rights.iter();
        Pass {
            slice,
            left: Assembler::new(&plan.shared, slice.recording, &plan.left),
            waiting: VecDeque::new(),
            rights: rights
                .map(|right| RightSide::new(&plan.shared, slice.recording, right))
                .collect(),
            memory: consumer.register(context.memory_pool()),
            plan: plan.clone(),
        }
    }

    fn run(mut self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
        let shared = Arc::clone(&self.plan.shared);
        let opened = shared.opened(self.slice.recording);
        let recording = &*opened.recording;
        for right in &mut self.rights {
            right.begin(recording, self.slice.range.start)?;
        }
        let mut topics = vec![self.plan.left.topic.clone()];
        topics.extend(
            self.plan
                .rights
                .iter()
                .map(|right| right.shape.topic.clone()),
        );
        let query = Query::topics(topics).between(self.slice.range);
        for batch in recording.read(&query).map_err(external)? {
            let batch = batch.map_err(external)?;
            shared.read.fetch_add(batch.len() as u64, Ordering::Relaxed);
            self.take(&batch)?;
            let horizon = batch.range().end.nanos();
            self.settle(recording, horizon)?;
            if !self.hand_out(send)? {
                return Ok(());
            }
        }
        self.read_on(recording)?;
        self.hand_out(send)?;
        Ok(())
    }

    /// Takes a batch of all topics.
    fn take(&mut self, batch: &Batch) -> Result<()> {
        let mut left = Vec::new();
        for run in runs(batch) {
            let topic = &batch.channels()[run[0].channel as usize].topic;
            if *topic == self.plan.left.topic {
                self.left.add(batch, run, &mut left)?;
            }
            for right in &mut self.rights {
                if *topic == right.spec.shape.topic {
                    right.add(batch, run)?;
                }
            }
        }
        self.left.flush(&mut left)?;
        for Assembled { batch: rows, .. } in left {
            let times = self.plan.rights.iter();
            let times = times.map(|right| times_of(&rows, right.left_time));
            self.waiting.push_back(LeftRows {
                bytes: rows.get_array_memory_size(),
                logged_until: batch.range().end.nanos(),
                times: times.collect(),
                matches: vec![Vec::with_capacity(rows.num_rows()); self.rights.len()],
                batch: rows,
            });
        }
        for right in &mut self.rights {
            right.flush()?;
        }
        let waiting: usize = self.waiting.iter().map(|rows| rows.bytes).sum();
        let known: usize = self.rights.iter().map(RightSide::bytes).sum();
        self.memory.try_resize(waiting + known)
    }

    /// Finds the matches that no row after `horizon` can improve.
    fn settle(&mut self, recording: &dyn Source, horizon: i64) -> Result<()> {
        for place in 0..self.rights.len() {
            self.settle_one(place, recording, horizon)?;
        }
        Ok(())
    }

    fn settle_one(&mut self, place: usize, recording: &dyn Source, horizon: i64) -> Result<()> {
        let right = &mut self.rights[place];
        for rows in &mut self.waiting {
            let (times, matches) = (&rows.times[place], &mut rows.matches[place]);
            while matches.len() < times.len() {
                let row = matches.len();
                if times.is_null(row) {
                    matches.push(None);
                    continue;
                }
                let time = times.value(row);
                right.look_back(recording, time)?;
                match right.best(time, horizon.saturating_sub(rows.logged_until)) {
                    Some(best) => matches.push(best),
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Reads beyond the slice what the last rows still wait for.
    fn read_on(&mut self, recording: &dyn Source) -> Result<()> {
        let end = self.slice.range.end;
        for place in 0..self.rights.len() {
            let is_open = |rows: &LeftRows| rows.matches[place].len() < rows.batch.num_rows();
            let right = &self.plan.rights[place];
            let is_done = right.is_by_log_time
                && matches!(right.rule.pick(), Pick::Last | Pick::Before)
                || end == Stamp::MAX;
            if !is_done && self.waiting.iter().any(is_open) {
                let after = TimeRange::new(end.plus_nanos(1), right.wanted.range.end);
                let query = Query::topics([&right.shape.topic]).between(after);
                for batch in recording.read(&query).map_err(external)? {
                    let batch = batch.map_err(external)?;
                    for run in runs(&batch) {
                        self.rights[place].add(&batch, run)?;
                    }
                    self.rights[place].flush()?;
                    self.settle_one(place, recording, batch.range().end.nanos())?;
                    if !self.waiting.iter().any(is_open) {
                        break;
                    }
                }
            }
            self.rights[place].is_over = true;
            self.settle_one(place, recording, i64::MAX)?;
        }
        Ok(())
    }

    /// Sends rows that have all their matches. Returns whether more are wanted.
    fn hand_out(&mut self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<bool> {
        while let Some(rows) = self.waiting.front() {
            let count = rows.batch.num_rows();
            if rows.matches.iter().any(|matches| matches.len() < count) {
                break;
            }
            let batch = self.join(rows)?;
            self.waiting.pop_front();
            if !send(batch) {
                return Ok(false);
            }
        }
        for (place, right) in self.rights.iter_mut().enumerate() {
            let waiting = self.waiting.iter();
            let needed = waiting.flat_map(|rows| rows.matches[place].iter().flatten());
            right.tidy(needed.map(|place| place.batch).min());
        }
        Ok(true)
    }

    /// The left rows beside their matches.
    fn join(&self, rows: &LeftRows) -> Result<RecordBatch> {
        let mut columns = rows.batch.columns().to_vec();
        for (right, matches) in self.rights.iter().zip(&rows.matches) {
            let fields = right.spec.shape.output.fields().iter();
            let first = right.first_batch();
            let places: Vec<(usize, usize)> = matches
                .iter()
                .map(|found| match found {
                    None => (0, 0),
                    Some(place) => ((place.batch - first) as usize + 1, place.row),
                })
                .collect();
            for (column, field) in fields.enumerate() {
                let nothing = new_null_array(field.data_type(), 1);
                let mut arrays: Vec<&dyn Array> = vec![nothing.as_ref()];
                arrays.extend(right.batches.iter().map(|one| one.column(column).as_ref()));
                columns.push(interleave(&arrays, &places)?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.batch.num_rows()));
        let schema = Arc::clone(&self.plan.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}
