//! Topics side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof::TimeRange;
use asof::align::{AlignError, AlignOptions, Aligned, On, Pick, Rule, UnknownWord};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::interrupt::Heeding;
use crate::table::{Rows, Table};
use crate::time::{Length, Time, range};

impl From<AlignError> for Failure {
    fn from(error: AlignError) -> Self {
        match error {
            AlignError::Rows(rows) => rows.into(),
            AlignError::Source(source) => source.into(),
            AlignError::NoStamp { .. } => Failure::new("FieldError", error),
            error => Failure::new("AlignError", error),
        }
    }
}

/// Options for aligning topics, from a Python dict.
pub struct Wish {
    /// `nearest`, `last`, `before`, `next`, `after`, `interpolate`, or their names in pandas and polars.
    how: String,
    /// `stamp` or `log_time`.
    on: Option<String>,
    /// The largest distance of a match.
    tolerance: Option<Length>,
    /// Whether interpolation takes the nearest message at the ends.
    or_nearest: bool,
    /// Columns by topic.
    columns: BTreeMap<String, Vec<String>>,
    /// The time range.
    start: Option<Time>,
    end: Option<Time>,
}

impl FromPyObject<'_, '_> for Wish {
    type Error = PyErr;

    /// Errors of its parts are returned unchanged: they name the wrong option.
    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Ok(Wish {
            how: given.get_item("how")?.extract()?,
            on: given.get_item("on")?.extract()?,
            tolerance: given.get_item("tolerance")?.extract()?,
            or_nearest: given.get_item("or_nearest")?.extract()?,
            columns: given.get_item("columns")?.extract()?,
            start: given.get_item("start")?.extract()?,
            end: given.get_item("end")?.extract()?,
        })
    }
}

impl Wish {
    /// The same for a recording of this range.
    pub fn options(self, whole: TimeRange) -> Result<AlignOptions> {
        let wrong = |option: &str, error: UnknownWord| {
            Failure::new("AlignError", format_args!("{option}={error}"))
        };
        let pick: Pick = self.how.parse().map_err(|error| wrong("how", error))?;
        let on = self.on.map(|on| on.parse::<On>()).transpose();
        let mut rule = Rule::new(pick);
        if let Some(Length(tolerance)) = self.tolerance {
            rule = rule.within(tolerance);
        }
        if self.or_nearest {
            rule = rule.or_nearest();
        }
        Ok(AlignOptions {
            rule,
            on: on.map_err(|error| wrong("on", error))?,
            columns: self.columns,
            range: range(whole, self.start, self.end),
            ..AlignOptions::default()
        })
    }
}

/// For each message of a topic, the matching rows of others.
pub fn join(
    recording: Heeding,
    anchor: &str,
    others: &[String],
    options: AlignOptions,
) -> Result<Table> {
    let aligned = Aligned::join(&recording, anchor, others, options)?;
    Ok(table(recording, aligned))
}

/// For each instant of a grid, the matching rows of topics.
pub fn resample(
    recording: Heeding,
    topics: &[String],
    hz: f64,
    options: AlignOptions,
) -> Result<Table> {
    let aligned = Aligned::resample(&recording, topics, hz, options)?;
    Ok(table(recording, aligned))
}

fn table(recording: Heeding, aligned: Aligned) -> Table {
    let schema = Arc::clone(aligned.schema());
    Table::new(schema, move |rows, lost| {
        let lost = Arc::clone(lost);
        let source = Arc::new(Heeding(Arc::clone(&recording.0)));
        let mut batches = aligned.clone().with_rows(rows).read(source)?;
        let rows = std::iter::from_fn(move || {
            let next = batches.next();
            lost.store(batches.left_out(), Ordering::Relaxed);
            next.map(|batch| batch.map_err(Failure::from))
        });
        Ok(Box::new(rows) as Rows)
    })
}
