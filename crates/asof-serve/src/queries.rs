//! Queries about the source, for builds with a query engine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asof_core::Stamp;
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// At most this many queries run at once.
pub(crate) const MOST_QUERIES: usize = 2;
/// The most rows of an answer, unless fewer are requested.
pub(crate) const MOST_ROWS: usize = 10_000;
/// The time limit of a query.
const MOST_TIME: Duration = Duration::from_mins(1);

/// Answers queries of the page about the source.
pub trait QueryEngine: Send + Sync {
    /// Runs a query within its limits.
    ///
    /// # Errors
    /// When the query cannot be answered.
    fn answer(&self, query: &str, limits: &QueryLimits) -> Result<QueryAnswer, Refusal>;
}

/// The limits of a query.
#[derive(Debug, Clone)]
pub struct QueryLimits {
    /// The most rows.
    pub rows: usize,
    /// The most bytes of rows.
    pub bytes: usize,
    /// After this time the query ends with the rows so far.
    pub time: Duration,
    /// Times are relative to this one.
    pub start: Stamp,
    given_up: Arc<AtomicBool>,
}

impl QueryLimits {
    pub(crate) fn new(rows: usize, bytes: usize, start: Stamp) -> (Self, GiveUp) {
        let given_up = Arc::new(AtomicBool::new(false));
        let limits = QueryLimits {
            rows,
            bytes,
            time: MOST_TIME,
            start,
            given_up: Arc::clone(&given_up),
        };
        (limits, GiveUp(given_up))
    }

    /// Whether the client has disconnected.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

/// Dropped with the request that waits for the answer.
pub(crate) struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The result of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryAnswer {
    /// The columns.
    pub columns: Vec<QueryColumn>,
    /// The rows, each a JSON array with a value for each column.
    pub rows: Vec<String>,
    /// Why rows are missing; `None` where all are there.
    pub cut: Option<String>,
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryColumn {
    /// Its name, as the query gives it.
    pub name: String,
    /// The kind of its values.
    pub kind: QueryKind,
}

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKind {
    /// Nanoseconds since [`QueryLimits::start`].
    Time,
    /// Numbers; `null` where JSON has no number.
    Number,
    /// Readable text.
    Text,
}

impl QueryAnswer {
    pub(crate) fn to_json(&self) -> String {
        let column = |column: &QueryColumn| {
            let kind = match column.kind {
                QueryKind::Time => "time",
                QueryKind::Number => "number",
                QueryKind::Text => "text",
            };
            json!({ "name": column.name, "kind": kind })
        };
        let columns: Vec<Value> = self.columns.iter().map(column).collect();
        let head = json!(columns);
        let cut = json!(self.cut);
        format!(
            "{{\"columns\":{head},\"cut\":{cut},\"rows\":[{}]}}",
            self.rows.join(",")
        )
    }
}

impl fmt::Debug for dyn QueryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueryEngine")
    }
}
