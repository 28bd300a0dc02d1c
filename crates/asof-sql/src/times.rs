//! Instants at an even distance, from the start of a recording to its end.

use std::sync::Arc;

use asof_core::TimeRange;
use datafusion::arrow::array::{RecordBatch, StringArray, TimestampNanosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::context::SessionContext;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, col};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;

use crate::assemble::BATCH_ROWS;
use crate::database::Shared;
use crate::topic::RECORDING;

/// The function that `resample` becomes a join with.
pub(crate) const TIMES: &str = "__times";
/// The column that has the instants.
pub(crate) const TIME: &str = "time";

/// More than this is not a rate: instants are a nanosecond apart.
const MOST_HERTZ: f64 = 1e9;

pub(crate) fn register(context: &SessionContext, shared: &Arc<Shared>) {
    context.register_udtf(TIMES, Arc::new(Times(Arc::clone(shared))));
}

#[derive(Debug)]
struct Times(Arc<Shared>);

impl TableFunctionImpl for Times {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let hz = match args.exprs() {
            [Expr::Literal(value, _)] => match value.cast_to(&DataType::Float64)? {
                ScalarValue::Float64(Some(hz)) => Some(hz),
                _ => None,
            },
            _ => None,
        };
        let Some(hz) = hz.filter(|hz| *hz > 0.0 && *hz <= MOST_HERTZ) else {
            return plan_err!("a rate is more than 0 and at most 1,000,000,000 per second");
        };
        let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new(RECORDING, DataType::Utf8, false),
            Field::new(TIME, time, false),
        ]));
        let grids = self.0.recordings.iter().map(|opened| {
            Arc::new(Grid {
                schema: Arc::clone(&schema),
                recording: opened.name.clone(),
                range: opened.recording.summary().range,
                hz,
            }) as Arc<dyn PartitionStream>
        });
        let table = StreamingTable::try_new(Arc::clone(&schema), grids.collect())?;
        Ok(Arc::new(
            table.with_sort_order(vec![col(TIME).sort(true, false)]),
        ))
    }
}

/// The instants of one recording.
#[derive(Debug, Clone)]
struct Grid {
    schema: SchemaRef,
    recording: String,
    range: TimeRange,
    hz: f64,
}

impl PartitionStream for Grid {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let sender = builder.tx();
        let grid = self.clone();
        builder.spawn(async move {
            let mut next = 0;
            while let Some(batch) = grid.batch(&mut next)? {
                if sender.send(Ok(batch)).await.is_err() {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}

impl Grid {
    /// The next instants; each from the start, so that a period that is not a whole number of nanoseconds does not drift.
    fn batch(&self, next: &mut u64) -> Result<Option<RecordBatch>> {
        let instant = |at: u64| {
            let nanos = (at as f64 * 1e9 / self.hz).round();
            let stamp = self.range.start.plus_nanos(nanos as i64);
            (!self.range.is_empty() && stamp <= self.range.end).then_some(stamp.nanos())
        };
        let times: Vec<i64> = (*next..).map_while(instant).take(BATCH_ROWS).collect();
        if times.is_empty() {
            return Ok(None);
        }
        *next += times.len() as u64;
        let names = std::iter::repeat_n(&self.recording, times.len());
        let batch = RecordBatch::try_new(
            Arc::clone(&self.schema),
            vec![
                Arc::new(StringArray::from_iter_values(names)),
                Arc::new(TimestampNanosecondArray::from(times).with_timezone("UTC")),
            ],
        )?;
        Ok(Some(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(start: i64, end: i64, hz: f64) -> Grid {
        Grid {
            schema: Arc::new(Schema::new(vec![
                Field::new(RECORDING, DataType::Utf8, false),
                Field::new(
                    TIME,
                    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
                    false,
                ),
            ])),
            recording: "a".to_owned(),
            range: TimeRange::new(start.into(), end.into()),
            hz,
        }
    }

    fn count(grid: &Grid) -> usize {
        let mut next = 0;
        let mut rows = 0;
        while let Some(batch) = grid.batch(&mut next).expect("a batch") {
            rows += batch.num_rows();
        }
        rows
    }

    #[test]
    fn instants_reach_from_the_first_to_the_last_and_do_not_drift() {
        assert_eq!(count(&grid(5, 1_000_000_005, 3.0)), 4);
        assert_eq!(count(&grid(0, 100_000_000_000, 333.0)), 33_301);
        assert_eq!(count(&grid(7, 7, 10.0)), 1);
        assert_eq!(count(&grid(8, 7, 10.0)), 0);
    }
}
