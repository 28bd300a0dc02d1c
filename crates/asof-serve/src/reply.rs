//! Responses that are made on a blocking thread and sent while they are made, within the budget of [`waiting`](crate::waiting).
//!
//! Nothing is made before there is room for it: the response is written in parts, each reserved before it is filled, and
//! whatever else the work holds is reserved by [`Reply::room`].

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::app::App;
use crate::guard::Refusal;
use crate::waiting::{Client, Connection, Reservation};

/// The approximate size of one part of a response.
pub(crate) const PART_BYTES: usize = 256 << 10;
/// A decoded message takes about this many times its bytes: as a record, and as text.
pub(crate) const BYTES_DECODED: usize = 6;

/// Why a response ends early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no room in the budget.
    NoRoom,
    /// The client has disconnected.
    Gone,
    /// Why the request cannot be answered, for the user.
    Wrong(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Wrong(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Failure::Wrong(text.to_owned())
    }
}

/// A response that is being made.
pub(crate) struct Reply {
    client: Client,
    connection: Arc<Connection>,
    handle: Handle,
    media_type: HeaderValue,
    parts: UnboundedSender<(HeaderValue, Bytes)>,
    /// The part that is being filled, and its room.
    part: Option<(Vec<u8>, Reservation)>,
    /// How many items of a list were written.
    items: usize,
}

impl Reply {
    /// Whether the client is still there.
    pub fn is_wanted(&self) -> bool {
        self.client.is_waiting()
    }

    /// Changes the media type, from JSON; before anything is written.
    pub fn set_media_type(&mut self, media_type: HeaderValue) {
        self.media_type = media_type;
    }

    /// The response has arbitrary bytes.
    pub fn set_binary(&mut self) {
        self.set_media_type(HeaderValue::from_static("application/octet-stream"));
    }

    /// Room for what is made besides the response; waits until there is some.
    pub fn room(&self, bytes: usize) -> Result<Reservation, Failure> {
        if !self.is_wanted() {
            return Err(Failure::Gone);
        }
        let room = self.handle.block_on(self.connection.reserve(bytes));
        room.ok_or(Failure::NoRoom)
    }

    /// Room for decoding a message of this size.
    pub fn room_to_decode(&self, payload: usize) -> Result<Reservation, Failure> {
        self.room(payload.saturating_mul(BYTES_DECODED))
    }

    /// Writes a piece of the response.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let (part, _) = if let Some(part) = &mut self.part {
                part
            } else {
                let room = self.room(PART_BYTES)?;
                self.part.insert((Vec::with_capacity(PART_BYTES), room))
            };
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - part.len()));
            part.extend_from_slice(now);
            bytes = later;
            if part.len() == PART_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Writes a value as JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_vec(value).map_err(|error| error.to_string())?;
        self.write(&text)
    }

    /// Writes an item of a JSON list; [`end_list`](Self::end_list) follows the last one.
    pub fn item(&mut self, text: &[u8]) -> Result<(), Failure> {
        if !self.is_wanted() {
            return Err(Failure::Gone);
        }
        self.write(if self.items == 0 { b"[" } else { b"," })?;
        self.items += 1;
        self.write(text)
    }

    /// Ends a list, which may be empty.
    pub fn end_list(&mut self) -> Result<(), Failure> {
        self.write(if self.items == 0 { b"[]" } else { b"]" })
    }

    /// Sends what has been written. The budget alone bounds how much waits: a client that reads slowly keeps no other from
    /// its turn.
    fn send(&mut self) -> Result<(), Failure> {
        let Some((part, mut room)) = self.part.take() else {
            return Ok(());
        };
        room.resize(part.len());
        let part = (self.media_type.clone(), room.hold(part.into()));
        self.parts.send(part).map_err(|_| Failure::Gone)
    }
}

/// Makes a response on a blocking thread. The number of concurrent ones is limited. Each keeps its turn until all of it has
/// room, also if its client has disconnected, until the work has noticed.
pub(crate) async fn answered(
    app: &Arc<App>,
    connection: &Arc<Connection>,
    work: impl FnOnce(&App, &mut Reply) -> Result<(), Failure> + Send + 'static,
) -> Response {
    let turn = Arc::clone(&app.readers).acquire_owned().await;
    let own = Arc::clone(app);
    let (here, client) = Client::new();
    let (sender, mut parts) = unbounded_channel();
    let mut reply = Reply {
        client,
        connection: Arc::clone(connection),
        handle: Handle::current(),
        media_type: HeaderValue::from_static("application/json"),
        parts: sender,
        part: None,
        items: 0,
    };
    let task = tokio::task::spawn_blocking(move || {
        let done = work(&own, &mut reply).and_then(|()| reply.send());
        // With the last sender, the response ends: what it says then is complete.
        drop((reply, turn));
        done
    });
    let (media_type, first) = parts.recv().await.unwrap_or_else(|| {
        let none = HeaderValue::from_static("application/json");
        (none, Bytes::new())
    });
    let kind = [(header::CONTENT_TYPE, media_type)];
    // All of a short response is in one part.
    if first.len() < PART_BYTES {
        return match task.await {
            Ok(Ok(())) => (kind, first).into_response(),
            Ok(Err(failure)) => failed(app, failure),
            Err(error) => broken(&error),
        };
    }
    let rest = rest_of(parts, task);
    let body = futures_util::stream::once(async move { Ok(first) }).chain(rest);
    // The client is there as long as its response is.
    let body = body.inspect(move |_| {
        let _ = &here;
    });
    (kind, Body::from_stream(body)).into_response()
}

type Done = tokio::task::JoinHandle<Result<(), Failure>>;

/// The parts after the first. Where the work fails, the response breaks off, so that the client does not take it as complete.
fn rest_of(
    parts: UnboundedReceiver<(HeaderValue, Bytes)>,
    task: Done,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::unfold(Some((parts, task)), |state| async move {
        let (mut parts, task) = state?;
        if let Some((_, part)) = parts.recv().await {
            return Some((Ok(part), Some((parts, task))));
        }
        match task.await {
            Ok(Ok(())) => None,
            failed => {
                let text = format!("the response is not complete: {failed:?}");
                Some((Err(std::io::Error::other(text)), None))
            }
        }
    })
}

/// Sends bytes that are there already, as soon as there is room for them.
pub(crate) async fn with_room(
    app: &App,
    connection: &Arc<Connection>,
    json: impl Into<Bytes>,
) -> Response {
    let json = json.into();
    let Some(room) = connection.reserve(json.len()).await else {
        return failed(app, Failure::NoRoom);
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, room.hold(json)).into_response()
}

/// The response to a request that failed before anything of its response was sent.
pub(crate) fn failed(app: &App, failure: Failure) -> Response {
    match failure {
        Failure::Wrong(text) => wrong(text),
        Failure::NoRoom | Failure::Gone => {
            let retry = [(header::RETRY_AFTER, "5")];
            (retry, refused(app, Refusal::NoRoom, "an answer")).into_response()
        }
    }
}

/// The response to a request that makes no sense, or cannot be answered.
pub(crate) fn wrong(text: impl Into<String>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let error = json!({ "error": text.into() });
    (StatusCode::BAD_REQUEST, kind, error.to_string()).into_response()
}

/// The response where a thread has panicked.
pub(crate) fn broken(error: &tokio::task::JoinError) -> Response {
    let text = format!("reading failed: {error}\n");
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

/// A small value as the response.
pub(crate) fn json_of(value: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, value.to_string()).into_response()
}

/// Refuses a request, and counts it.
pub(crate) fn refused(app: &App, refusal: Refusal, what: &str) -> Response {
    app.refusals.note(refusal, what);
    (refusal.status(), format!("{}\n", refusal.text())).into_response()
}
