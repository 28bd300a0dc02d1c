//! A list of recordings for the page.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use asof_core::{Stamp, TimeRange};
use axum::extract::{Extension, Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::App;
use crate::opened::{OpenedRecording, key_of, router_of};
use crate::refusal::Refusal;
use crate::reply::{Failure, answered, json_of, wrong};
use crate::waiting::Connection;

/// The most recordings of one response.
const MOST_LISTED: usize = 200;
/// About the bytes of a tag besides its texts.
const TAG_BYTES: usize = 64;
const NO_LIST: &str = "this server serves one recording; it does not have a list";

/// Lists recordings and opens them; given to the server by the caller.
pub trait RecordingList: Send + Sync {
    /// The page's title for the list.
    fn name(&self) -> String;

    /// The recordings that match, the newest first.
    ///
    /// # Errors
    /// Why the search failed, as a sentence for the user.
    fn find(&self, asked: &RecordingsAsked) -> Result<RecordingsFound, Refusal>;

    /// Opens a recording. The server shows it under `/r/`, and closes the least recently used one where there is no
    /// memory for another.
    ///
    /// # Errors
    /// When it cannot be opened, as a sentence for the user.
    fn open(&self, recording: &str) -> Result<OpenedRecording, Refusal>;
}

impl fmt::Debug for dyn RecordingList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordingList")
    }
}

/// The recordings that match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingsFound {
    /// The matches among those that are known.
    pub recordings: Vec<ListedRecording>,
    /// While recordings are still being looked into, how far that is: the list is not complete yet.
    pub reading: Option<ListProgress>,
}

impl From<Vec<ListedRecording>> for RecordingsFound {
    /// A list that is complete.
    fn from(recordings: Vec<ListedRecording>) -> Self {
        RecordingsFound {
            recordings,
            reading: None,
        }
    }
}

/// How far a list of recordings is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListProgress {
    /// The recordings that were looked into.
    pub done: u64,
    /// Of this many; zero where that is not known yet.
    pub total: u64,
}

/// A filter of recordings. All conditions must hold; an empty one is ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RecordingsAsked {
    /// Words in the path, the robot, the site, the date or the tags.
    pub text: String,
    /// Names or globs of robots, separated by commas.
    pub robot: String,
    /// Names or globs of topics, separated by commas.
    pub topic: String,
    /// With messages at or after this time or day.
    pub since: String,
    /// With messages at or before this time or day.
    pub until: String,
    /// How many matches are skipped.
    pub from: usize,
}

/// A recording of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRecording {
    /// Its identifier for [`RecordingList::open`].
    pub recording: String,
    /// From the first message to the last.
    pub range: TimeRange,
    /// The number of messages.
    pub messages: Option<u64>,
    /// Its size in bytes.
    pub size: u64,
    /// The robot.
    pub robot: Option<String>,
    /// The site.
    pub site: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The number of problems.
    pub problems: u64,
}

impl ListedRecording {
    /// About the bytes that it takes, without its text.
    fn bytes(&self) -> usize {
        let names = [
            Some(&self.recording),
            self.robot.as_ref(),
            self.site.as_ref(),
        ];
        let names = names.into_iter().flatten().map(String::len);
        let tags = self.tags.iter();
        let tags = tags.map(|(key, value)| TAG_BYTES + key.len() + value.len());
        size_of::<Self>() + names.chain(tags).sum::<usize>()
    }

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

/// The matching recordings, one page of them.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    Query(asked): Query<RecordingsAsked>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        let Some(recordings) = &app.recordings else {
            return Err(NO_LIST.into());
        };
        let found = recordings.find(&asked);
        let found = found.map_err(|refusal| Failure::Wrong(refusal.to_string()))?;
        let (total, reading) = (found.recordings.len(), json!(found.reading));
        let shown = found
            .recordings
            .into_iter()
            .skip(asked.from)
            .take(MOST_LISTED);
        let shown: Vec<ListedRecording> = shown.collect();
        let _room = reply.room(shown.iter().map(ListedRecording::bytes).sum())?;
        reply.write(br#"{"recordings":"#)?;
        for recording in &shown {
            reply.item(recording.to_json().to_string().as_bytes())?;
        }
        reply.end_list()?;
        let rest = format!(
            r#","from":{},"total":{total},"reading":{reading}}}"#,
            asked.from
        );
        reply.write(rest.as_bytes())
    })
    .await
}

#[derive(Deserialize)]
pub(crate) struct Chosen {
    recording: String,
}

/// Opens one of them.
pub(crate) async fn open(State(app): State<Arc<App>>, Query(asked): Query<Chosen>) -> Response {
    if app.recordings.is_none() {
        return wrong(NO_LIST);
    }
    let key = key_of(&asked.recording);
    if let Some(opened) = &app.opened {
        opened.forget_closed(&key);
    }
    match router_of(&app, &key).await {
        Ok(_) => json_of(&json!({ "url": format!("/r/{key}/") })),
        Err(refusal) => wrong(refusal.to_string()),
    }
}

/// By start, the newest first; those without a time come last.
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
