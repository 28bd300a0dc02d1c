//! Queries about the source, for those builds that have an engine for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asof_core::Stamp;
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// Queries that run at once.
pub(crate) const AT_ONCE: usize = 2;
/// Rows of an answer, unless fewer are asked for.
pub(crate) const MOST_ROWS: usize = 10_000;
/// A query has to be done by then.
const MOST_TIME: Duration = Duration::from_mins(1);

/// Answers queries about the source for the page, which shows them as tables and plots.
pub trait QueryEngine: Send + Sync {
    /// Runs a query, within its limits.
    ///
    /// # Errors
    /// Why there is no answer.
    fn answer(&self, query: &str, limits: &QueryLimits) -> Result<QueryAnswer, Refusal>;
}

/// How much of an answer is wanted, and for how long.
#[derive(Debug, Clone)]
pub struct QueryLimits {
    /// Rows at most.
    pub rows: usize,
    /// Bytes of the rows at most.
    pub bytes: usize,
    /// After this the query ends with what there is.
    pub time: Duration,
    /// Times are counted from here.
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

    /// Whether nobody waits for the answer any more.
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

/// What a query found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryAnswer {
    /// The columns.
    pub columns: Vec<QueryColumn>,
    /// The rows, each a JSON array with a value for each column.
    pub rows: Vec<String>,
    /// Why these are not all rows; `None` where they are.
    pub cut: Option<String>,
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryColumn {
    /// Its name, as the query gives it.
    pub name: String,
    /// What its values are.
    pub kind: QueryKind,
}

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKind {
    /// Nanoseconds since [`QueryLimits::start`].
    Time,
    /// Numbers; `null` for what JSON has no number for.
    Number,
    /// Texts as a person reads them.
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
