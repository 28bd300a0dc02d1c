//! Many recordings, for the page to choose from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use asof_core::{Stamp, TimeRange};
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::changes::{json_of, wrong};
use crate::refusal::Refusal;

/// Recordings of an answer.
const MOST_LISTED: usize = 200;

/// Knows many recordings, and opens one: what answers the page's list is handed to the server.
pub trait RecordingList: Send + Sync {
    /// What the page calls all of them.
    fn name(&self) -> String;

    /// The recordings that are meant, the newest first.
    ///
    /// # Errors
    /// Why there is no answer, as a sentence for the person who asked.
    fn find(&self, asked: &RecordingsAsked) -> Result<Vec<ListedRecording>, Refusal>;

    /// Shows a recording; the address to look at it.
    ///
    /// # Errors
    /// When it cannot be opened, in words for that person.
    fn open(&self, recording: &str) -> Result<String, Refusal>;
}

impl fmt::Debug for dyn RecordingList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordingList")
    }
}

/// Which recordings are meant: those that fulfil everything that is said. What is empty says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RecordingsAsked {
    /// Words that are in the path, the robot, the site, the date or the tags.
    pub text: String,
    /// Names or globs of robots, with commas between them.
    pub robot: String,
    /// Names or globs of topics, with commas between them.
    pub topic: String,
    /// With something at or after this time or day.
    pub since: String,
    /// With something at or before this time or day.
    pub until: String,
    /// How many are passed over.
    pub from: usize,
}

/// A recording of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRecording {
    /// What [`RecordingList::open`] knows it by.
    pub recording: String,
    /// From the first message to the last.
    pub range: TimeRange,
    /// Messages in all.
    pub messages: Option<u64>,
    /// Bytes.
    pub size: u64,
    /// Whose it is.
    pub robot: Option<String>,
    /// Where it was made.
    pub site: Option<String>,
    /// What is said of it.
    pub tags: BTreeMap<String, String>,
    /// How many things are wrong with it.
    pub problems: u64,
}

impl ListedRecording {
    fn to_json(&self) -> Value {
        let known = (!self.range.is_empty()).then_some(self.range);
        json!({
            "recording": self.recording,
            "start": known.map(|range| range.start.to_string()),
            "duration": known.map(TimeRange::duration_nanos),
            "messages": self.messages,
            "size": self.size,
            "robot": self.robot,
            "site": self.site,
            "tags": self.tags,
            "problems": self.problems,
        })
    }
}

/// The recordings that are meant, some of them.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(asked): Query<RecordingsAsked>,
) -> Response {
    let Some(recordings) = app.recordings.clone() else {
        return wrong("this server shows one recording, and has no list of them");
    };
    let from = asked.from;
    match tokio::task::spawn_blocking(move || recordings.find(&asked)).await {
        Ok(Ok(found)) => {
            let shown = found.iter().skip(from).take(MOST_LISTED);
            let shown: Vec<Value> = shown.map(ListedRecording::to_json).collect();
            json_of(&json!({ "total": found.len(), "from": from, "recordings": shown }))
        }
        Ok(Err(refusal)) => wrong(&refusal.to_string()),
        Err(error) => wrong(&format!("the search failed: {error}")),
    }
}

#[derive(Deserialize)]
pub(crate) struct Chosen {
    recording: String,
}

/// Shows one of them.
pub(crate) async fn open(State(app): State<Arc<App>>, Query(asked): Query<Chosen>) -> Response {
    let Some(recordings) = app.recordings.clone() else {
        return wrong("this server shows one recording, and has no list of them");
    };
    match tokio::task::spawn_blocking(move || recordings.open(&asked.recording)).await {
        Ok(Ok(address)) => json_of(&json!({ "url": address })),
        Ok(Err(refusal)) => wrong(&refusal.to_string()),
        Err(error) => wrong(&format!("opening failed: {error}")),
    }
}

/// By start, the newest first; what has no time comes last.
pub fn newest_first(recordings: &mut [ListedRecording]) {
    let start = |one: &ListedRecording| {
        if one.range.is_empty() {
            Stamp::MIN
        } else {
            one.range.start
        }
    };
    recordings.sort_by(|a, b| {
        let by_start = start(b).cmp(&start(a));
        by_start.then_with(|| a.recording.cmp(&b.recording))
    });
}
