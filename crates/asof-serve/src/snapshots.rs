//! Snapshots of a running robot, written on request over HTTP.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::refusal::Refusal;
use crate::reply::{json_of, wrong};

/// Writes snapshots: the last minute of a robot, and some time after.
pub trait SnapshotTaker: Send + Sync {
    /// Begins a snapshot, or extends the one that is being written.
    ///
    /// # Errors
    /// Why it cannot be written, as a sentence for the user.
    fn write(&self, reason: &str) -> Result<(), Refusal>;

    /// The state of the snapshots, as JSON.
    fn state(&self) -> Value;

    /// Finishes the current snapshot: the server ends, and nothing is written after this.
    fn finish(&self);
}

impl fmt::Debug for dyn SnapshotTaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotTaker")
    }
}

/// The most characters of a reason that are kept.
const LONGEST_REASON: usize = 200;

#[derive(Deserialize)]
pub(crate) struct SnapshotQuery {
    /// The reason, written into the snapshot.
    reason: Option<String>,
}

/// Requests a snapshot.
pub(crate) async fn write(
    State(app): State<Arc<App>>,
    Query(wish): Query<SnapshotQuery>,
) -> Response {
    let Some(writer) = app.snapshots.clone() else {
        return wrong(NONE);
    };
    let reason = wish.reason.as_deref().unwrap_or_default();
    let reason: String = reason
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_REASON)
        .collect();
    let asked = match reason.trim() {
        "" => "a request over HTTP",
        reason => reason,
    };
    match writer.write(asked) {
        Ok(()) => json_of(&json!({ "reason": asked, "snapshots": writer.state() })),
        Err(refusal) => wrong(refusal.to_string()),
    }
}

/// The state of the snapshots.
pub(crate) async fn state(State(app): State<Arc<App>>) -> Response {
    match &app.snapshots {
        Some(writer) => json_of(&writer.state()),
        None => wrong(NONE),
    }
}

const NONE: &str =
    "this server does not write snapshots; start it with `asof serve ROBOT --snapshots OUT.mcap`";
