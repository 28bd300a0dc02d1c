//! Reads a topic: slices of time in parallel, each in order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{Query, Stamp, TimeRange};
use datafusion::arrow::array::RecordBatch;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    replace_children_if_necessary,
};

use crate::assemble::{Assembled, Assembler, BATCH_ROWS, Shape, external, runs};
use crate::database::Shared;
use crate::lags::{Lag, LagWatch, stamp_in};
use crate::leaf::{Partitions, decoded, in_order_of, leaf, show_expressions};
use crate::pushdown::Pushdown;
use crate::recordings::Chosen;
use crate::topic::{LOG_TIME, Slice, TopicTable};

/// How many names of recordings a displayed plan shows.
const SHOWN_RECORDINGS: usize = 4;

/// The rows of a topic, with only the requested fields decoded.
#[derive(Debug, Clone)]
pub(crate) struct TopicScan {
    pub shape: Shape,
    pub shared: Arc<Shared>,
    pub wanted: Pushdown,
    pub slices: Vec<Slice>,
    partitions: Partitions,
    /// Messages of the topic in all slices, if the index has them.
    messages: Option<u64>,
    limit: Option<usize>,
    /// Measures the distance of stamps from log times, where all messages are read.
    watch: Option<Arc<LagWatch>>,
    /// Whether known lags have shortened the slices.
    knows_lags: bool,
    properties: Arc<PlanProperties>,
}

impl TopicScan {
    pub fn new(
        table: &TopicTable,
        chosen: &[Chosen],
        columns: &[usize],
        wanted: &Pushdown,
        limit: Option<usize>,
    ) -> Result<Self> {
        let read = Arc::new(table.schema.project(columns)?);
        let shape = Shape::with_labels(&table.topic, read, &table.labels);
        let mut slices = table.slices(chosen, wanted);
        let partitions = match limit {
            Some(_) => in_time_order(&mut slices, &table.shared),
            None => Partitions::of(slices.len(), table.shared.options.threads),
        };
        // For a part of the time, the count is known only by reading.
        let is_all = wanted.takes_all_times() && wanted.stamps == TimeRange::ALL;
        let has_lag = |one: &Chosen| {
            let logged = (table.shared).logged_with(one.place, &table.topic, wanted.stamps);
            logged.is_some()
        };
        let knows_lags = chosen.iter().any(has_lag);
        let is_whole = wanted.takes_all_times() && !knows_lags;
        let watch = || Arc::new(LagWatch::new(&table.shared, &table.topic, &slices));
        Ok(TopicScan {
            shared: Arc::clone(&table.shared),
            wanted: wanted.clone(),
            messages: if is_all {
                chosen.iter().map(|one| one.messages).sum()
            } else {
                None
            },
            watch: is_whole.then(watch),
            knows_lags,
            properties: in_order_of(&shape, &shape.output, partitions),
            shape,
            partitions,
            slices,
            limit,
        })
    }

    /// The same over other recordings, for another process.
    #[cfg(feature = "distributed")]
    pub fn of_slices(
        shape: Shape,
        shared: Arc<Shared>,
        slices: Vec<Slice>,
        limit: Option<usize>,
    ) -> Self {
        let partitions = Partitions::of(slices.len(), shared.options.threads);
        TopicScan {
            shared,
            wanted: Pushdown::default(),
            messages: None,
            watch: None,
            knows_lags: false,
            properties: in_order_of(&shape, &shape.output, partitions),
            shape,
            partitions,
            slices,
            limit,
        }
    }

    /// Reports the range of log times where only times are requested: then the first and the last message
    /// answer many queries.
    fn tell_ends(&self, statistics: &mut Statistics) {
        let columns = 0..self.shape.output.fields().len();
        let times: Vec<usize> = columns
            .filter(|place| self.shape.is_column(*place, LOG_TIME))
            .collect();
        if times.is_empty() || !self.shape.paths.is_empty() {
            return;
        }
        let mut places: Vec<usize> = self.slices.iter().map(|slice| slice.recording).collect();
        places.dedup();
        let ends = places
            .into_iter()
            .map(|place| self.shared.ends_of(place, &self.shape.topic));
        let ends: Option<Vec<TimeRange>> = ends.collect();
        let Some(ends) = ends.and_then(|ends| ends.into_iter().reduce(TimeRange::cover)) else {
            return;
        };
        let time = |at: Stamp| {
            let zone = Some("UTC".into());
            Precision::Exact(ScalarValue::TimestampNanosecond(Some(at.nanos()), zone))
        };
        for place in times {
            let column = &mut statistics.column_statistics[place];
            column.min_value = time(ends.start);
            column.max_value = time(ends.end);
            column.null_count = Precision::Exact(0);
        }
    }

    /// The same in one partition, whose first rows are the first in time.
    pub fn first_in_time(&self) -> Self {
        let mut slices = self.slices.clone();
        let partitions = in_time_order(&mut slices, &self.shared);
        TopicScan {
            properties: in_order_of(&self.shape, &self.shape.output, partitions),
            partitions,
            slices,
            // It has noted the slices by their old places.
            watch: None,
            ..self.clone()
        }
    }

    /// The same with this projection absorbed, if it has none yet.
    pub fn with_projection(&self, projection: &ProjectionExec) -> Option<Self> {
        let shape = self.shape.with_projection(projection.expr())?;
        Some(TopicScan {
            properties: in_order_of(&shape, &shape.output, self.partitions),
            shape,
            ..self.clone()
        })
    }
}

/// Sorts slices by time, recording by recording, to be read one after the other: a limit then has the first rows in time.
fn in_time_order(slices: &mut [Slice], shared: &Shared) -> Partitions {
    slices.sort_by_cached_key(|slice| {
        let recording = shared.opened(slice.recording).range();
        (recording.start, slice.recording, slice.range.start)
    });
    Partitions::in_one(slices.len())
}

/// A limit without an order has the first rows in time: the scan below it is read from its first slice on.
#[derive(Debug)]
pub(crate) struct FirstInTime;

impl PhysicalOptimizerRule for FirstInTime {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let found = plan.transform_down(|plan| {
            let is_limit = plan.is::<CoalescePartitionsExec>() && plan.fetch().is_some()
                || plan.is::<GlobalLimitExec>();
            let [input] = plan.children()[..] else {
                return Ok(Transformed::no(plan));
            };
            match is_limit.then(|| from_the_first(input)).flatten() {
                Some(input) => {
                    let plan = replace_children_if_necessary(plan, vec![input])?;
                    Ok(Transformed::yes(plan))
                }
                None => Ok(Transformed::no(plan)),
            }
        });
        Ok(found?.data)
    }

    fn name(&self) -> &'static str {
        "first_in_time"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan over a scan of one partition, if there are only filters and the like between them.
fn from_the_first(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<TopicScan>() {
        return Some(Arc::new(scan.first_in_time()));
    }
    let [input] = plan.children()[..] else {
        return None;
    };
    let input = from_the_first(input)?;
    if plan.is::<RepartitionExec>() {
        return Some(input);
    }
    let is_row_by_row = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>();
    is_row_by_row.then(|| replace_children_if_necessary(Arc::clone(plan), vec![input]).ok())?
}

impl DisplayAs for TopicScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicScan: {}", self.shape.topic)?;
        if self.wanted.range != TimeRange::ALL {
            write!(
                f,
                ", log_time from {} to {}",
                self.wanted.range.start, self.wanted.range.end
            )?;
        }
        for (op, when) in &self.wanted.relative {
            write!(f, ", log_time {op} {when} of each recording")?;
        }
        if self.wanted.stamps != TimeRange::ALL {
            let TimeRange { start, end } = self.wanted.stamps;
            write!(f, ", stamp from {start} to {end}")?;
            let read = self.slices.iter().map(|slice| slice.range);
            match read.reduce(TimeRange::cover) {
                _ if !self.knows_lags => f.write_str(" (in no index: all are looked at)")?,
                None => f.write_str(" (there are none, as earlier queries saw)")?,
                Some(TimeRange { start, end }) => {
                    write!(f, " (logged from {start} to {end}, as earlier queries saw)")?;
                }
            }
        }
        if let Some(recordings) = &self.wanted.recordings {
            let names: Vec<&str> = recordings
                .iter()
                .take(SHOWN_RECORDINGS)
                .map(String::as_str)
                .collect();
            let more = if recordings.len() > SHOWN_RECORDINGS {
                ", …"
            } else {
                ""
            };
            write!(
                f,
                ", {} recordings [{}{more}]",
                recordings.len(),
                names.join(", ")
            )?;
        }
        write!(f, ", {}", decoded(&self.shape))?;
        if let Some(limit) = self.limit {
            write!(f, ", at most {limit} rows")?;
        }
        write!(f, ", {}", self.partitions)
    }
}

impl ExecutionPlan for TopicScan {
    fn name(&self) -> &'static str {
        "TopicScan"
    }

    leaf!();

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        show_expressions([&self.shape], f)
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.eq_properties.schema());
        let mut builder = RecordBatchReceiverStreamBuilder::new(schema, 2);
        let places = self.partitions.slices(partition)?;
        let stamp = stamp_in(&self.shape);
        let watch = self.watch.clone().filter(|_| stamp.is_some());
        let scan = self.clone();
        let sender = builder.tx();
        builder.spawn_blocking(move || {
            let mut left = scan.limit.unwrap_or(usize::MAX);
            for place in places {
                if sender.is_closed() {
                    break;
                }
                let reader = SliceReader::new(&scan, place, left, stamp);
                let mut has_sent = false;
                let read = reader.run(&mut |batch| {
                    has_sent = true;
                    sender.blocking_send(Ok(batch)).is_ok()
                });
                let read = match read {
                    Err(error) if !has_sent => {
                        scan.shared.leave_out(scan.slices[place].recording, error)?;
                        continue;
                    }
                    read => read?,
                };
                let Some((lag, rest)) = read else { break };
                if let Some(watch) = &watch {
                    watch.tell(place, lag);
                }
                left = rest;
            }
            Ok(())
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
            // The index has the number of messages: a count decompresses nothing.
            if let Some(messages) = self.messages {
                statistics.num_rows = Precision::Exact(messages as usize);
                self.tell_ends(&mut statistics);
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

/// Reads one slice.
struct SliceReader {
    assembler: Assembler,
    query: Query,
    shared: Arc<Shared>,
    slice: Slice,
    /// How many more rows are wanted.
    left: usize,
    lag: Lag,
    /// The index of the stamp column.
    stamp: Option<usize>,
}

impl SliceReader {
    fn new(scan: &TopicScan, place: usize, left: usize, stamp: Option<usize>) -> Self {
        let slice = scan.slices[place];
        SliceReader {
            assembler: Assembler::new(&scan.shared, slice.recording, &scan.shape),
            query: Query::topics([&scan.shape.topic]).between(slice.range),
            shared: Arc::clone(&scan.shared),
            slice,
            left,
            lag: Lag::default(),
            stamp,
        }
    }

    /// Sends the rows. Returns their lag, and how many more are wanted; `None` if none are, or some were left out.
    fn run(mut self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<Option<(Lag, usize)>> {
        let shared = Arc::clone(&self.shared);
        let recording = &shared.opened(self.slice.recording).recording;
        if self.assembler.needs_log_times_alone() {
            let times = recording.log_times(self.assembler.topic(), self.slice.range);
            if let Some(times) = times.map_err(external)? {
                return self.run_of_times(&times, send);
            }
        }
        let batches = recording.read(&self.query).map_err(external)?;
        let mut full = Vec::new();
        for batch in batches {
            let batch = batch.map_err(external)?;
            shared.read.fetch_add(batch.len() as u64, Ordering::Relaxed);
            for run in runs(&batch) {
                self.assembler.add(&batch, run, &mut full)?;
            }
            if self.assembler.waiting() >= self.left {
                self.assembler.flush(&mut full)?;
            }
            if !self.hand_out(&mut full, send) {
                return Ok(None);
            }
        }
        self.assembler.flush(&mut full)?;
        let is_whole = self.hand_out(&mut full, send);
        Ok(is_whole.then_some((self.lag, self.left)))
    }

    /// Sends rows for which only log times are requested. They have no stamps, and so no lag.
    fn run_of_times(
        mut self,
        times: &[Stamp],
        send: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<Option<(Lag, usize)>> {
        let mut full = Vec::new();
        for part in times.chunks(BATCH_ROWS) {
            full.push(self.assembler.of_log_times(part)?);
            if !self.hand_out(&mut full, send) {
                return Ok(None);
            }
        }
        Ok(Some((self.lag, self.left)))
    }

    /// Sends batches. Returns whether more are wanted.
    fn hand_out(
        &mut self,
        full: &mut Vec<Assembled>,
        send: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> bool {
        for rows in full.drain(..) {
            if let Some(stamp) = self.stamp {
                self.lag.add_rows(&rows, stamp);
            }
            let batch = rows.batch;
            let batch = batch.slice(0, batch.num_rows().min(self.left));
            self.left -= batch.num_rows();
            if !send(batch) || self.left == 0 {
                return false;
            }
        }
        true
    }
}
