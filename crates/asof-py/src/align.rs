//! Topics side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof::TimeRange;
use asof::align::{AlignError, AlignOptions, On, Pick, Rule, UnknownWord};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::table::{Rows, Table};
use crate::time::{Length, Time, from_items, range};

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

from_items! {
    /// Options for aligning topics, from a Python dict.
    pub struct AlignArguments {
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
}

impl AlignArguments {
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

/// A table of topics side by side.
pub fn table(made: std::result::Result<asof::Table, asof::Error>) -> Result<Table> {
    let made = made?;
    let schema = Arc::clone(made.schema());
    Ok(Table::new(schema, move |rows, lost| {
        let lost = Arc::clone(lost);
        let mut batches = made.batches_of(rows)?;
        let rows = std::iter::from_fn(move || {
            let next = batches.next();
            lost.store(batches.lost(), Ordering::Relaxed);
            next.map(|batch| batch.map_err(Failure::from))
        });
        Ok(Box::new(rows) as Rows)
    }))
}
