//! Evenly spaced instants, from the start of a recording to its end.

use std::sync::Arc;

use asof_core::TimeRange;
use datafusion::arrow::array::{RecordBatch, StringArray, TimestampNanosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};

use crate::assemble::BATCH_ROWS;
use crate::database::Shared;
#[cfg(feature = "distributed")]
use crate::distributed::ViewKind;
use crate::pushdown::Pushdown;
use crate::recordings::Chosen;
use crate::topic::RECORDING;
#[cfg(feature = "distributed")]
use crate::topic::Slice;
use crate::view::{Part, View, ViewTable};

/// The function that `resample` joins with.
pub(crate) const TIMES: &str = "__times";
/// The column of the instants.
pub(crate) const TIME: &str = "time";

pub(crate) fn register(context: &SessionContext, shared: &Arc<Shared>) {
    context.register_udtf(TIMES, Arc::new(Times(Arc::clone(shared))));
}

/// Whether this many instants per second can be distinguished.
pub(crate) fn is_rate(hz: f64) -> bool {
    asof_align::Grid::new(TimeRange::EMPTY, hz).is_some()
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
        let Some(hz) = hz.filter(|hz| is_rate(*hz)) else {
            return plan_err!("a rate is more than 0 and at most 1,000,000,000 per second");
        };
        Ok(Arc::new(ViewTable(TimesTable {
            schema: schema(),
            shared: Arc::clone(&self.0),
            hz,
        })))
    }
}

/// The columns of the instants.
pub(crate) fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new(RECORDING, DataType::Utf8, false),
        Field::new(TIME, time, false),
    ]))
}

#[derive(Debug)]
struct TimesTable {
    schema: SchemaRef,
    shared: Arc<Shared>,
    hz: f64,
}

impl View for TimesTable {
    type Part = Grid;

    const ORDER: Option<&'static str> = Some(TIME);

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn pushdown(&self, filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        vec![TableProviderFilterPushDown::Unsupported; filters.len()]
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn topics<'a>(&'a self, _: &'a [Expr]) -> Option<Vec<&'a str>> {
        None
    }

    fn parts(&self, chosen: Vec<Chosen>, _: &Pushdown) -> Vec<Grid> {
        let grid = |one: Chosen| {
            let opened = self.shared.opened(one.place);
            Grid {
                schema: Arc::clone(&self.schema),
                recording: opened.name.clone(),
                place: one.place,
                range: opened.range(),
                hz: self.hz,
            }
        };
        chosen.into_iter().map(grid).collect()
    }

    #[cfg(feature = "distributed")]
    fn described(&self, _: &[Expr]) -> ViewKind {
        ViewKind::Times { hz: self.hz }
    }
}

/// The instants of one recording.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    pub schema: SchemaRef,
    pub recording: String,
    /// The index of the recording.
    #[cfg_attr(not(feature = "distributed"), allow(dead_code))] // plans that travel name it
    pub place: usize,
    pub range: TimeRange,
    pub hz: f64,
}

impl Part for Grid {
    fn run(&self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
        let Some(mut instants) = asof_align::Grid::new(self.range, self.hz) else {
            return Ok(());
        };
        while let Some(batch) = self.batch(&mut instants)? {
            if !send(batch) {
                break;
            }
        }
        Ok(())
    }

    #[cfg(feature = "distributed")]
    fn slice(&self) -> Slice {
        Slice {
            recording: self.place,
            range: self.range,
        }
    }
}

impl Grid {
    /// The next instants.
    fn batch(&self, instants: &mut asof_align::Grid) -> Result<Option<RecordBatch>> {
        let times: Vec<i64> = instants.take(BATCH_ROWS).collect();
        if times.is_empty() {
            return Ok(None);
        }
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
            schema: schema(),
            recording: "a".to_owned(),
            place: 0,
            range: TimeRange::new(start.into(), end.into()),
            hz,
        }
    }

    fn count(grid: &Grid) -> usize {
        let mut instants = asof_align::Grid::new(grid.range, grid.hz).expect("a rate");
        let mut rows = 0;
        while let Some(batch) = grid.batch(&mut instants).expect("a batch") {
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
