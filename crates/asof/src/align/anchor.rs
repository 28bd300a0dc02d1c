//! The anchor: the messages of a topic, or the instants of a grid.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::Field;
use arrow_select::take::take;
use asof_align::Grid;
use asof_core::Source;
use asof_decode::{TopicBatches, TopicTable};

use super::side::{table_of, value_columns};
use super::{AlignError, AlignOptions, On, named_after};

#[derive(Debug, Clone)]
pub(super) enum Anchor {
    Topic {
        table: TopicTable,
        on: On,
        /// The index of the time column, and of the first column that is shown.
        time: usize,
        shown: usize,
    },
    Grid(Grid),
    /// Instants, in order.
    Times(Arc<[i64]>),
}

/// Times, and the anchor's own columns.
type Rows = (Vec<i64>, Vec<ArrayRef>);

impl Anchor {
    pub(super) fn topic(
        source: &dyn Source,
        topic: &str,
        on: On,
        options: &AlignOptions,
    ) -> Result<Self, AlignError> {
        let table = table_of(source, topic, on, options, options.range)?;
        let (time, shown) = value_columns(&table, on, options)?;
        Ok(Anchor::Topic {
            table,
            on,
            time,
            shown,
        })
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        match self {
            Anchor::Topic { table, shown, .. } => {
                named_after(table.topic(), &table.schema().fields()[*shown..])
            }
            Anchor::Grid(_) | Anchor::Times(_) => Vec::new(),
        }
    }

    pub(super) fn read(&self, source: &dyn Source, rows: usize) -> Result<AnchorRows, AlignError> {
        Ok(match self {
            Anchor::Topic {
                table,
                on,
                time,
                shown,
            } => AnchorRows::Topic {
                batches: Box::new(table.clone().with_rows(Some(rows)).read(source)?),
                on: *on,
                time: *time,
                shown: *shown,
                unstamped: 0,
            },
            Anchor::Grid(grid) => AnchorRows::Grid {
                grid: grid.clone(),
                rows,
            },
            Anchor::Times(times) => AnchorRows::Times {
                times: Arc::clone(times),
                next: 0,
                rows,
            },
        })
    }
}

pub(super) enum AnchorRows {
    Topic {
        batches: Box<TopicBatches>,
        on: On,
        time: usize,
        shown: usize,
        unstamped: u64,
    },
    Grid {
        grid: Grid,
        rows: usize,
    },
    Times {
        times: Arc<[i64]>,
        next: usize,
        rows: usize,
    },
}

impl AnchorRows {
    pub(super) fn left_out(&self) -> u64 {
        match self {
            AnchorRows::Topic {
                batches, unstamped, ..
            } => batches.failed() + unstamped,
            AnchorRows::Grid { .. } | AnchorRows::Times { .. } => 0,
        }
    }
}

impl Iterator for AnchorRows {
    type Item = Result<Rows, AlignError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            AnchorRows::Topic {
                batches,
                on,
                time,
                shown,
                unstamped,
            } => loop {
                let rows = match batches.next()? {
                    Ok(batch) => rows_of(&batch, *on, *time, *shown, unstamped),
                    Err(error) => return Some(Err(error.into())),
                };
                // An empty batch is not passed on.
                if !matches!(&rows, Ok((times, _)) if times.is_empty()) {
                    return Some(rows);
                }
            },
            AnchorRows::Grid { grid, rows } => {
                let times: Vec<i64> = grid.take(*rows).collect();
                (!times.is_empty()).then(|| Ok((times, Vec::new())))
            }
            AnchorRows::Times { times, next, rows } => {
                let end = next.saturating_add(*rows).min(times.len());
                let part = times[*next..end].to_vec();
                *next = end;
                (!part.is_empty()).then(|| Ok((part, Vec::new())))
            }
        }
    }
}

/// The rows of a batch that have a time.
fn rows_of(
    batch: &RecordBatch,
    on: On,
    time: usize,
    shown: usize,
    unstamped: &mut u64,
) -> Result<Rows, AlignError> {
    let times = batch.column(time).as_primitive::<TimestampNanosecondType>();
    let columns = &batch.columns()[shown..];
    let known = times.iter().enumerate();
    let known = known.filter_map(|(row, time)| Some((row as u64, on.known(time)?)));
    let (rows, values): (Vec<u64>, Vec<i64>) = known.unzip();
    if rows.len() == times.len() {
        return Ok((values, columns.to_vec()));
    }
    *unstamped += (times.len() - rows.len()) as u64;
    let places = UInt64Array::from(rows);
    let columns = columns.iter().map(|column| take(&**column, &places, None));
    let columns = columns.collect::<Result<Vec<Arc<dyn Array>>, _>>()?;
    Ok((values, columns))
}
