//! Snapshots of a running robot, written when a person or a program asks for one over HTTP.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::changes::{json_of, wrong};
use crate::refusal::Refusal;

/// Writes snapshots: the last minute of a robot, and a while that follows.
pub trait SnapshotTaker: Send + Sync {
    /// Begins one, or makes the one that is being written longer.
    ///
    /// # Errors
    /// Why it cannot be written, as a sentence for the person who asked.
    fn write(&self, reason: &str) -> Result<(), Refusal>;

    /// What is kept and was written, for programs.
    fn state(&self) -> Value;

    /// Ends the one that is being written: the server goes, and nothing is written after this.
    fn finish(&self);
}

impl fmt::Debug for dyn SnapshotTaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotTaker")
    }
}

/// Characters of a reason that are kept.
const LONGEST_REASON: usize = 200;

#[derive(Deserialize)]
pub(crate) struct Wish {
    /// Why it is wanted; written into the snapshot.
    reason: Option<String>,
}

/// Asks for a snapshot.
pub(crate) async fn write(State(app): State<Arc<App>>, Query(wish): Query<Wish>) -> Response {
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
        Err(refusal) => wrong(&refusal.to_string()),
    }
}

/// What is kept and was written.
pub(crate) async fn state(State(app): State<Arc<App>>) -> Response {
    match &app.snapshots {
        Some(writer) => json_of(&writer.state()),
        None => wrong(NONE),
    }
}

const NONE: &str = "this server writes no snapshots; `asof serve ROBOT --snapshots OUT.mcap` does";
