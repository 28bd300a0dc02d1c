//! Topics side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof::TimeRange;
use asof::align::{AlignError, AlignOptions, Aligned, On};
use asof::window::sync::Pick;
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
            AlignError::TooLarge { .. } => Failure::new("TooLargeError", error),
            error => Failure::new("AlignError", error),
        }
    }
}

/// Options for aligning topics, from a Python dict.
pub struct Wish {
    /// `nearest`, `last`, `interpolated`, or their names in pandas and polars.
    how: String,
    /// `stamp` or `log_time`.
    on: Option<String>,
    /// The largest distance of a match.
    tolerance: Option<Length>,
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
            columns: given.get_item("columns")?.extract()?,
            start: given.get_item("start")?.extract()?,
            end: given.get_item("end")?.extract()?,
        })
    }
}

impl Wish {
    /// The same for a recording of this range.
    pub fn options(self, whole: TimeRange) -> Result<AlignOptions> {
        let pick = match self.how.as_str() {
            "nearest" => Pick::Nearest,
            "last" | "backward" | "ffill" => Pick::Last,
            "interpolated" | "interpolate" | "linear" => Pick::Interpolate,
            other => {
                let message =
                    format_args!("how='{other}' is not one of nearest, last, interpolated");
                return Err(Failure::new("AlignError", message));
            }
        };
        let on = match self.on.as_deref() {
            None => None,
            Some("stamp") => Some(On::Stamp),
            Some("log_time" | "log") => Some(On::LogTime),
            Some(other) => {
                let message = format_args!("on='{other}' is not one of stamp, log_time");
                return Err(Failure::new("AlignError", message));
            }
        };
        Ok(AlignOptions {
            pick,
            on,
            tolerance: self.tolerance.map(|Length(tolerance)| tolerance),
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
        let mut batches = aligned.clone().with_rows(rows).read(&recording)?;
        let rows = std::iter::from_fn(move || {
            let next = batches.next();
            lost.store(batches.left_out(), Ordering::Relaxed);
            next.map(|batch| batch.map_err(Failure::from))
        });
        Ok(Box::new(rows) as Rows)
    })
}
