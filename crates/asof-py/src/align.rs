//! Topics side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof::align::{AlignError, AlignOptions, Aligned, On};
use asof::window::sync::Pick;
use asof::{Recording, TimeRange};

use crate::errors::{Failure, Result};
use crate::table::{Rows, Table};
use crate::time::Length;

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

/// What was asked for, as Python says it.
pub struct Wish {
    /// `nearest`, `last`, `interpolated`, or the words of pandas and polars for them.
    pub how: String,
    /// `stamp` or `log_time`.
    pub on: Option<String>,
    /// What is farther away does not count.
    pub tolerance: Option<Length>,
    /// Columns by topic.
    pub columns: BTreeMap<String, Vec<String>>,
    /// From when to when.
    pub range: TimeRange,
}

impl Wish {
    fn options(self) -> Result<AlignOptions> {
        let pick = match self.how.as_str() {
            "nearest" => Pick::Nearest,
            "last" | "backward" | "ffill" => Pick::Last,
            "interpolated" | "interpolate" | "linear" => Pick::Interpolated,
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
            range: self.range,
            ..AlignOptions::default()
        })
    }
}

/// For each message of a topic, what others have for it.
pub fn join(
    recording: &Arc<dyn Recording>,
    anchor: &str,
    others: &[String],
    wish: Wish,
) -> Result<Table> {
    let aligned = Aligned::join(&**recording, anchor, others, wish.options()?)?;
    Ok(table(recording, aligned))
}

/// For each instant of a grid, what topics have for it.
pub fn resample(
    recording: &Arc<dyn Recording>,
    topics: &[String],
    hz: f64,
    wish: Wish,
) -> Result<Table> {
    let aligned = Aligned::resample(&**recording, topics, hz, wish.options()?)?;
    Ok(table(recording, aligned))
}

fn table(recording: &Arc<dyn Recording>, aligned: Aligned) -> Table {
    let recording = Arc::clone(recording);
    let schema = Arc::clone(aligned.schema());
    Table::new(schema, move |rows, lost| {
        let lost = Arc::clone(lost);
        let mut batches = aligned.clone().with_rows(rows).read(&*recording)?;
        let rows = std::iter::from_fn(move || {
            let next = batches.next();
            lost.store(batches.left_out(), Ordering::Relaxed);
            next.map(|batch| batch.map_err(Failure::from))
        });
        Ok(Box::new(rows) as Rows)
    })
}
