//! As-of joins of topics of the same recordings, in one pass over all of them.
//!
//! Each slice of time is read once for all topics, begins with what was known before it, and holds neither side: a row of
//! the left side waits until nothing that comes can be a better match. So the join streams, and slices run beside each
//! other.
//!
//! Joins by `log_time` are exact by themselves, since that is the order of a recording. Joins by `stamp` are, where the
//! stamps of the right topic never go back. Whether that is so is seen while reading ([`StampsGoBack`]); the query is
//! then started again with sorts.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{Batch, Query, Stamp, TimeRange, Topics};
use asof_formats::Recording;
use datafusion::arrow::array::{
    Array, AsArray, RecordBatch, RecordBatchOptions, TimestampNanosecondArray, new_null_array,
};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};

use crate::asof::Direction;
use crate::assemble::{Assembled, Assembler, Shape, external, runs};
use crate::database::Shared;
use crate::pushdown::Wanted;
use crate::scan::{TopicScan, is_column};
use crate::topic::{LOG_TIME, STAMP, Slice};

/// How much later than others a message may be logged until a join by stamp no longer waits for it, in nanoseconds.
/// One that is even later is noticed.
const PATIENCE: i64 = 1_000_000_000;

/// The stamps of a topic go back, so a join by them needs a sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stamps of {topic} are not in the order in which its messages were logged, which was found after the first rows were out; add ORDER BY, so that nothing is out before all is known"
)]
pub(crate) struct StampsGoBack {
    pub topic: String,
}

/// A topic that is joined with the left one.
#[derive(Debug, Clone)]
pub(crate) struct RightTopic {
    shape: Shape,
    wanted: Wanted,
    /// The columns that are compared, by their places in what comes out of each topic.
    left_time: usize,
    right_time: usize,
    direction: Direction,
    tolerance: Option<i64>,
    /// Whether both times are those of logging, in whose order messages are read.
    is_by_log_time: bool,
}

/// A topic with those that are joined with it, in slices of time.
#[derive(Debug, Clone)]
pub(crate) struct AsofScan {
    shared: Arc<Shared>,
    left: Shape,
    left_wanted: Wanted,
    slices: Vec<Slice>,
    rights: Vec<RightTopic>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

/// How a join compares two times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition {
    pub left_time: usize,
    pub right_time: usize,
    pub direction: Direction,
    pub tolerance: Option<i64>,
}

impl AsofScan {
    /// The join of a scan, or of such a join, with another scan; `None` where that cannot be one pass.
    pub fn fuse(
        left: &dyn ExecutionPlan,
        right: &TopicScan,
        condition: Condition,
        schema: SchemaRef,
    ) -> Option<Self> {
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
        // A time of a topic that was joined before is not known when the left row is read.
        let is_of_left = left_time < fused.left.output.fields().len();
        let time_of = |shape: &Shape, place: usize| {
            [LOG_TIME, STAMP]
                .into_iter()
                .find(|name| is_column(shape, place, name))
        };
        let times = (
            time_of(&fused.left, left_time).filter(|_| is_of_left)?,
            time_of(&right.shape, right_time)?,
        );
        if right.fetch().is_some() || !right.wanted.takes_all_recordings() {
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
            direction: condition.direction,
            tolerance: condition.tolerance,
            is_by_log_time,
        });
        fused.properties = properties(&fused.left, &schema, fused.slices.len());
        fused.schema = schema;
        Some(fused)
    }
}

/// In the order of the left topic.
fn properties(left: &Shape, schema: &SchemaRef, slices: usize) -> Arc<PlanProperties> {
    let columns = left.output.fields().len();
    let place = (0..columns).find(|place| is_column(left, *place, LOG_TIME));
    let order = place.map(|place| {
        let column = Column::new(schema.field(place).name(), place);
        vec![PhysicalSortExpr::new_default(Arc::new(column))]
    });
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new_with_orderings(Arc::clone(schema), order),
        Partitioning::UnknownPartitioning(slices.max(1)),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

impl DisplayAs for AsofScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decoded = |shape: &Shape| {
            if shape.paths.is_empty() {
                "nothing decoded".to_owned()
            } else {
                format!("decoded [{}]", shape.paths.join(", "))
            }
        };
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
                right.direction,
                right.shape.topic,
                decoded(&right.shape)
            )?;
            if let Some(tolerance) = right.tolerance {
                let within = std::time::Duration::from_nanos(tolerance.unsigned_abs());
                write!(f, ", within {within:?}")?;
            }
        }
        write!(f, "; one pass, {} slices of time", self.slices.len())
    }
}

impl ExecutionPlan for AsofScan {
    fn name(&self) -> &'static str {
        "AsofScan"
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
        let shapes = [&self.left]
            .into_iter()
            .chain(self.rights.iter().map(|right| &right.shape));
        for one in shapes.flat_map(|shape| shape.projected.iter().flatten()) {
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
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let Some(&slice) = self.slices.get(partition) else {
            if self.slices.is_empty() && partition == 0 {
                return Ok(builder.build());
            }
            return internal_err!("there is no slice {partition} of {}", self.left.topic);
        };
        let consumer = MemoryConsumer::new(format!("AsofScan of {}", self.left.topic));
        let pass = Pass {
            plan: self.clone(),
            slice,
            left: Assembler::new(&self.shared, slice.recording, &self.left),
            waiting: VecDeque::new(),
            rights: self
                .rights
                .iter()
                .map(|right| RightSide::new(&self.shared, slice.recording, right))
                .collect(),
            memory: consumer.register(context.memory_pool()),
        };
        let sender = builder.tx();
        builder
            .spawn_blocking(move || pass.run(&mut |batch| sender.blocking_send(Ok(batch)).is_ok()));
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
    matches: Vec<Vec<Option<Place>>>,
}

impl Pass {
    fn run(mut self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
        let shared = Arc::clone(&self.plan.shared);
        let recording = &*shared.recordings[self.slice.recording].recording;
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

    /// Takes a batch of all topics in.
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

    /// Finds the matches that nothing after `horizon` can better.
    fn settle(&mut self, recording: &dyn Recording, horizon: i64) -> Result<()> {
        for place in 0..self.rights.len() {
            self.settle_one(place, recording, horizon)?;
        }
        Ok(())
    }

    fn settle_one(&mut self, place: usize, recording: &dyn Recording, horizon: i64) -> Result<()> {
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

    /// After the slice: what the last rows still wait for.
    fn read_on(&mut self, recording: &dyn Recording) -> Result<()> {
        let end = self.slice.range.end;
        for place in 0..self.rights.len() {
            let is_open = |rows: &LeftRows| rows.matches[place].len() < rows.batch.num_rows();
            let right = &self.plan.rights[place];
            let is_done = right.is_by_log_time
                && matches!(right.direction, Direction::Backward { .. })
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

    /// Hands out what has all its matches. Whether more is wanted.
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

    /// The left rows beside those that they match.
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

fn times_of(batch: &RecordBatch, column: usize) -> TimestampNanosecondArray {
    let times = batch.column(column);
    times.as_primitive::<TimestampNanosecondType>().clone()
}

/// Where a row of the right side is: batches are counted as they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    batch: u64,
    row: usize,
}

/// A row of the right side that may be a match.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    time: i64,
    logged: i64,
    place: Place,
}

/// What a right topic has said so far, as far as it can still matter.
struct RightSide {
    spec: RightTopic,
    assembler: Assembler,
    assembled: Vec<Assembled>,
    /// In order of their times.
    rows: VecDeque<Candidate>,
    batches: VecDeque<RecordBatch>,
    /// Batches that were let go, or were put before the first one.
    first: u64,
    /// Whether the recording has messages before the first candidate.
    has_earlier: bool,
    newest: Option<i64>,
    /// Up to this time rows were matched because nothing more was waited for.
    settled: Option<i64>,
    /// Nothing more comes.
    is_over: bool,
}

/// Where the batches start to be counted: there is room for those that are put before them.
const MIDDLE: u64 = 1 << 62;

impl RightSide {
    fn new(shared: &Arc<Shared>, recording: usize, spec: &RightTopic) -> Self {
        RightSide {
            assembler: Assembler::new(shared, recording, &spec.shape),
            spec: spec.clone(),
            assembled: Vec::new(),
            rows: VecDeque::new(),
            batches: VecDeque::new(),
            first: MIDDLE,
            has_earlier: false,
            newest: None,
            settled: None,
            is_over: false,
        }
    }

    fn first_batch(&self) -> u64 {
        self.first
    }

    fn bytes(&self) -> usize {
        let batches = self.batches.iter();
        batches.map(RecordBatch::get_array_memory_size).sum()
    }

    /// Starts with what was known before the slice.
    fn begin(&mut self, recording: &dyn Recording, start: Stamp) -> Result<()> {
        let before = start.plus_nanos(-1).min(self.spec.wanted.range.end);
        if start == Stamp::MIN || before < self.spec.wanted.range.start {
            return Ok(());
        }
        let topics = Topics::named([&self.spec.shape.topic]);
        let known = recording.backfill(&topics, before).map_err(external)?;
        for run in runs(&known) {
            self.add(&known, run)?;
        }
        self.flush()?;
        self.has_earlier = !known.is_empty();
        Ok(())
    }

    fn add(&mut self, batch: &Batch, run: &[asof_core::Row]) -> Result<()> {
        let range = self.spec.wanted.range;
        let start = run.partition_point(|row| row.log_time < range.start);
        let end = run.partition_point(|row| row.log_time <= range.end);
        let wanted = run.get(start..end).unwrap_or_default();
        self.assembler.add(batch, wanted, &mut self.assembled)
    }

    fn flush(&mut self) -> Result<()> {
        self.assembler.flush(&mut self.assembled)?;
        for assembled in std::mem::take(&mut self.assembled) {
            let number = self.first + self.batches.len() as u64;
            let candidates = self.candidates(&assembled, number);
            for candidate in candidates {
                let time = candidate.time;
                let is_late = self.settled.is_some_and(|settled| {
                    time <= settled.saturating_add(self.spec.tolerance.unwrap_or(0))
                });
                if is_late || self.newest.is_some_and(|newest| time < newest) {
                    return Err(self.goes_back());
                }
                self.newest = Some(time);
                self.rows.push_back(candidate);
            }
            self.batches.push_back(assembled.batch);
        }
        Ok(())
    }

    /// The rows that have a time.
    fn candidates(&self, rows: &Assembled, batch: u64) -> Vec<Candidate> {
        let times = times_of(&rows.batch, self.spec.right_time);
        let candidate = |row: usize| Candidate {
            time: times.value(row),
            logged: rows.logged[row],
            place: Place { batch, row },
        };
        let known = (0..times.len()).filter(|row| times.is_valid(*row));
        known.map(candidate).collect()
    }

    fn goes_back(&self) -> DataFusionError {
        let topic = self.spec.shape.topic.clone();
        DataFusionError::External(Box::new(StampsGoBack { topic }))
    }

    /// Loads what is before the first candidate, where a row at `time` needs it.
    fn look_back(&mut self, recording: &dyn Recording, time: i64) -> Result<()> {
        let mut step = PATIENCE;
        while self.has_earlier {
            let Some(first) = self.rows.front().copied() else {
                return Ok(());
            };
            // Of several at this very time another one may be meant.
            let is_enough = match self.spec.direction {
                Direction::Backward { or_equal: false } | Direction::Forward { or_equal: true } => {
                    first.time < time
                }
                _ => first.time <= time,
            };
            if is_enough {
                return Ok(());
            }
            let end = Stamp::from_nanos(first.logged).plus_nanos(-1);
            let topics = Topics::named([&self.spec.shape.topic]);
            let earlier = recording.backfill(&topics, end).map_err(external)?;
            let Some(last) = earlier.get(0).map(|message| message.log_time) else {
                self.has_earlier = false;
                break;
            };
            let start = last.plus_nanos(-step).max(self.spec.wanted.range.start);
            step = step.saturating_mul(2);
            let query = Query::topics([&self.spec.shape.topic]).between(TimeRange::new(start, end));
            let mut loaded = Vec::new();
            for batch in recording.read(&query).map_err(external)? {
                let batch = batch.map_err(external)?;
                for run in runs(&batch) {
                    self.assembler.add(&batch, run, &mut loaded)?;
                }
            }
            self.assembler.flush(&mut loaded)?;
            self.has_earlier = !loaded.is_empty();
            self.put_before(loaded)?;
        }
        Ok(())
    }

    fn put_before(&mut self, loaded: Vec<Assembled>) -> Result<()> {
        for assembled in loaded.into_iter().rev() {
            self.first -= 1;
            let candidates = self.candidates(&assembled, self.first);
            self.batches.push_front(assembled.batch);
            for candidate in candidates.into_iter().rev() {
                let first = self.rows.front();
                if first.is_some_and(|first| candidate.time > first.time) {
                    return Err(self.goes_back());
                }
                self.rows.push_front(candidate);
            }
        }
        Ok(())
    }

    /// The match of a row at `time`: `None` while a better one may come. So much time has been read beyond that row.
    fn best(&mut self, time: i64, beyond: i64) -> Option<Option<Place>> {
        let at = self.rows.partition_point(|row| row.time <= time);
        let before = self.rows.partition_point(|row| row.time < time);
        let (earlier, later) = match self.spec.direction {
            Direction::Backward { or_equal } => (if or_equal { at } else { before }, None),
            Direction::Forward { or_equal } => (0, Some(if or_equal { before } else { at })),
            Direction::Nearest => (at, Some(at)),
        };
        let is_final = self.is_over
            || match later {
                Some(later) => later < self.rows.len(),
                None => at < self.rows.len(),
            }
            || self.is_too_far(time);
        if !is_final {
            if !self.is_past(beyond) {
                return None;
            }
            if !self.spec.is_by_log_time {
                self.settled = Some(self.settled.map_or(time, |settled| settled.max(time)));
            }
        }
        let earlier = earlier.checked_sub(1).map(|place| self.rows[place]);
        let later = later.and_then(|place| self.rows.get(place).copied());
        let best = match (earlier, later) {
            (Some(earlier), Some(later)) => {
                let is_nearer = later.time.abs_diff(time) < time.abs_diff(earlier.time);
                Some(if is_nearer { later } else { earlier })
            }
            (earlier, later) => earlier.or(later),
        };
        let is_near = |found: &Candidate| {
            let tolerance = self.spec.tolerance.map(i64::unsigned_abs);
            tolerance.is_none_or(|tolerance| found.time.abs_diff(time) <= tolerance)
        };
        let best = best.filter(is_near).map(|found| found.place);
        // The left side goes on: of what is before this row, the last one alone can matter again.
        let keep = before.saturating_sub(1);
        if keep > 0 {
            self.rows.drain(..keep);
            self.has_earlier = true;
        }
        Some(best)
    }

    /// Whether the topic has gone beyond what a row at `time` may match.
    fn is_too_far(&self, time: i64) -> bool {
        let Some((tolerance, newest)) = self.spec.tolerance.zip(self.newest) else {
            return false;
        };
        newest > time.saturating_add(tolerance)
    }

    /// Whether so much has been read since that nothing is waited for.
    fn is_past(&self, beyond: i64) -> bool {
        let patience = if self.spec.is_by_log_time {
            0
        } else {
            PATIENCE
        };
        match (self.spec.direction, self.spec.tolerance) {
            (Direction::Backward { .. }, _) => beyond > patience,
            (_, Some(tolerance)) => beyond > patience.saturating_add(tolerance),
            (_, None) => false,
        }
    }

    /// Lets go of batches that no row looks at any more.
    fn tidy(&mut self, needed: Option<u64>) {
        let candidate = self.rows.front().map(|row| row.place.batch);
        let end = self.first + self.batches.len() as u64;
        let keep = candidate.unwrap_or(end).min(needed.unwrap_or(end));
        while self.first < keep && !self.batches.is_empty() {
            self.batches.pop_front();
            self.first += 1;
        }
    }
}
