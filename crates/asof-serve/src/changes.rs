//! Changes from the page: annotations of the recording, and files to open. Apart from [snapshots](crate::snapshots),
//! and [layouts](crate::layouts), nothing else is ever written.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use asof_core::TimeRange;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::annotations::Annotations;
use crate::app::App;
use crate::opened::{OpenedRecording, key_of_upload};
use crate::options::ServeOptions;
use crate::refusal::Refusal;
use crate::reply::{Failure, Reply, answered, json_of, wrong};
use crate::waiting::Connection;

/// The paths that change something: annotations added and removed, files uploaded and opened, snapshots written,
/// recordings of a list opened, layouts kept and removed.
pub(crate) const PATHS: [&str; 8] = [
    "/api/annotations",
    "/api/annotations/remove",
    "/api/files",
    "/api/files/open",
    "/api/snapshot",
    "/api/recordings/open",
    "/api/layouts",
    "/api/layouts/remove",
];

/// Opens files that were dropped onto the page.
pub trait Opener: Send + Sync {
    /// The folder for the files of an upload, and the upload's number; a new one where `look` is `None`.
    ///
    /// # Errors
    /// When there is no such upload, or no room for another.
    fn folder(&self, look: Option<u64>) -> Result<(u64, PathBuf), Refusal>;

    /// Opens the files of an upload, in the order of their names. The server shows them under `/r/`.
    ///
    /// # Errors
    /// When they cannot be opened.
    fn open(&self, look: u64) -> Result<OpenedRecording, Refusal>;
}

/// What can be changed.
#[derive(Default)]
pub(crate) struct Changes {
    /// The annotations; `None` where there is no file for them.
    notes: Option<Mutex<Annotations>>,
    opener: Option<Arc<dyn Opener>>,
    /// The most bytes of all uploads together.
    most_bytes: u64,
    uploads: Uploads,
    /// Whether the page offers to open files; those of another recording go to the server's own opener.
    is_open: bool,
    /// Why there are no annotations.
    trouble: Option<String>,
}

impl Changes {
    pub fn new(options: &ServeOptions, opener: Option<Arc<dyn Opener>>) -> Self {
        let (notes, trouble) = match options.annotations.as_deref().map(Annotations::read) {
            Some(Ok(notes)) => (Some(Mutex::new(notes)), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        Changes {
            notes,
            is_open: opener.is_some(),
            opener,
            most_bytes: options.limits.opened_bytes,
            uploads: Uploads::default(),
            trouble,
        }
    }

    /// The changes of a recording that was opened beside a server's own.
    pub fn of_opened(options: &ServeOptions, server: &Changes) -> Self {
        let mut changes = Changes::new(options, None);
        changes.is_open = server.is_open;
        changes
    }

    /// The possible changes, for the page.
    pub fn summary(&self) -> Value {
        json!({
            "annotations": self.notes.is_some(),
            "trouble": self.trouble,
            "open": self.is_open,
            "most_bytes": self.most_bytes,
        })
    }

    fn opener(&self) -> Result<Arc<dyn Opener>, String> {
        let none = "this server does not open files from the page";
        self.opener.clone().ok_or_else(|| none.to_owned())
    }

    fn notes(&self) -> Result<MutexGuard<'_, Annotations>, String> {
        let notes = self.notes.as_ref().ok_or_else(|| {
            let none = "annotations need a recording that is one file on this machine";
            self.trouble.clone().unwrap_or_else(|| none.to_owned())
        })?;
        Ok(notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends all annotations, in relative times, with what other processes have added.
pub(crate) fn list(app: &App, reply: &mut Reply) -> Result<(), Failure> {
    let Ok(changed) = app.changes.notes().map(|notes| notes.changed_bytes()) else {
        return reply.end_list();
    };
    let room = reply.room(BYTES_PARSED * changed)?;
    // No client is waited for with the lock.
    let notes = match app.changes.notes() {
        Ok(mut notes) => {
            if let Err(error) = notes.refresh() {
                tracing::warn!("{error}");
            }
            notes.shared()
        }
        Err(_) => Arc::default(),
    };
    drop(room);
    for note in notes.iter() {
        let note = json!({
            "id": note.id, "start": app.relative(note.range.start), "end": app.relative(note.range.end), "text": note.text,
        });
        reply.item(note.to_string().as_bytes())?;
    }
    reply.end_list()
}

/// Annotations take about this many times the bytes of their file while it is read or written.
const BYTES_PARSED: usize = 6;

#[derive(Deserialize)]
pub(crate) struct NewNote {
    start: i64,
    end: Option<i64>,
    text: String,
}

/// Adds an annotation; responds with all of them.
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    Query(note): Query<NewNote>,
) -> Response {
    let start = app.absolute(note.start);
    let end = app.absolute(note.end.unwrap_or(note.start));
    let range = TimeRange::new(start.min(end), start.max(end));
    let change = move |notes: &mut Annotations| notes.add(range, &note.text).map(drop);
    changed(&app, &connection, change).await
}

#[derive(Deserialize)]
pub(crate) struct OldNote {
    id: u64,
}

/// Removes an annotation; responds with the rest.
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    Query(note): Query<OldNote>,
) -> Response {
    let change = move |notes: &mut Annotations| notes.remove(note.id);
    changed(&app, &connection, change).await
}

async fn changed(
    app: &Arc<App>,
    connection: &Arc<Connection>,
    change: impl FnOnce(&mut Annotations) -> Result<(), crate::AnnotationError> + Send + 'static,
) -> Response {
    answered(app, connection, |app, reply| {
        let bytes = app.changes.notes()?.file_bytes();
        let room = reply.room(BYTES_PARSED * bytes)?;
        let mut notes = app.changes.notes()?;
        change(&mut notes).map_err(|error| error.to_string())?;
        drop(notes);
        drop(room);
        list(app, reply)
    })
    .await
}

#[derive(Deserialize)]
pub(crate) struct NewFile {
    name: String,
    /// The upload's number, from the response to its first file.
    look: Option<u64>,
}

/// Streams a file into a temporary folder.
pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    Query(asked): Query<NewFile>,
    request: Request,
) -> Response {
    let opener = match app.changes.opener() {
        Ok(opener) => opener,
        Err(error) => return wrong(error),
    };
    let Some(name) = plain_name(&asked.name) else {
        return wrong("a file needs a name without a path");
    };
    let Some(_turn) = app.changes.uploads.turn() else {
        return wrong("too many files are being received; try again in a moment");
    };
    // On a thread that may block: a new upload may close an older one, and its server.
    let found = tokio::task::spawn_blocking(move || opener.folder(asked.look)).await;
    let (look, folder) = match found {
        Ok(Ok(found)) => found,
        Ok(Err(refusal)) => return wrong(refusal.to_string()),
        Err(error) => return wrong(format!("there is no folder for it: {error}")),
    };
    let pace = app.limits.upload_timeout;
    match take(&app.changes, &folder, &name, request.into_body(), pace).await {
        Ok(()) => json_of(&json!({ "look": look })),
        Err(error) => wrong(error),
    }
}

#[derive(Deserialize)]
pub(crate) struct NewLook {
    look: u64,
}

/// Opens the uploaded files.
pub(crate) async fn open(State(app): State<Arc<App>>, Query(asked): Query<NewLook>) -> Response {
    let opener = match app.changes.opener() {
        Ok(opener) => opener,
        Err(error) => return wrong(error),
    };
    let work = move || {
        let opened = opener.open(asked.look)?;
        let key = key_of_upload(asked.look);
        let open = app
            .opened
            .as_ref()
            .ok_or("files are opened at the server's own path")?;
        drop(open.add(&app, &key, opened));
        Ok::<_, Refusal>(key)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(key)) => json_of(&json!({ "url": format!("/r/{key}/") })),
        Ok(Err(refusal)) => wrong(refusal.to_string()),
        Err(error) => wrong(format!("opening failed: {error}")),
    }
}

/// How many files are received at once: each holds a connection.
const MOST_UPLOADS: usize = 8;
/// The fewest bytes a second of an upload, on average.
const SLOWEST_UPLOAD: u64 = 16 << 10;

/// The files that were received, and are being received.
#[derive(Default)]
struct Uploads {
    active: Arc<AtomicUsize>,
    /// The bytes in each folder that is still there.
    folders: Mutex<Vec<(PathBuf, u64)>>,
}

/// A place for one upload; dropping it makes room for another.
struct UploadTurn(Arc<AtomicUsize>);

impl Drop for UploadTurn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Uploads {
    fn turn(&self) -> Option<UploadTurn> {
        let turn = UploadTurn(Arc::clone(&self.active));
        (self.active.fetch_add(1, Ordering::Relaxed) < MOST_UPLOADS).then_some(turn)
    }

    /// Counts bytes of a folder, if all folders together then hold at most `most`. Folders that were removed do not count.
    fn add(&self, folder: &Path, bytes: u64, most: u64) -> bool {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        folders.retain(|(known, _)| known == folder || known.exists());
        let all: u64 = folders.iter().map(|(_, bytes)| bytes).sum();
        let has_room = all.saturating_add(bytes) <= most;
        if has_room {
            match folders.iter_mut().find(|(known, _)| known == folder) {
                Some((_, held)) => *held += bytes,
                None => folders.push((folder.to_owned(), bytes)),
            }
        }
        has_room
    }

    fn remove(&self, folder: &Path, bytes: u64) {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, held)) = folders.iter_mut().find(|(known, _)| known == folder) {
            *held = held.saturating_sub(bytes);
        }
    }
}

/// Writes a request's body to a new file in a folder.
async fn take(
    changes: &Changes,
    folder: &Path,
    name: &str,
    body: Body,
    pause: Duration,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot save {name}: {error}");
    let most = changes.most_bytes;
    let path = folder.join(name);
    let mut file = std::fs::File::create_new(&path).map_err(failed)?;
    let mut taken = 0;
    let mut parts = body.into_data_stream();
    let start = Instant::now();
    loop {
        // A client that sends a byte now and then would hold its place for ever.
        let due = start + 2 * pause + Duration::from_secs(taken / SLOWEST_UPLOAD);
        let due = due.min(Instant::now() + pause);
        let part = match tokio::time::timeout_at(due.into(), parts.next()).await {
            Ok(Some(part)) => part.map_err(|error| error.to_string()),
            Ok(None) => return Ok(()),
            Err(_) => Err("it came too slowly".to_owned()),
        };
        let written = match part {
            Ok(part) if !changes.uploads.add(folder, part.len() as u64, most) => Err(format!(
                "{name} is too large: files are copied to this machine's temporary folder, up to {most} bytes of all files; open it with `asof serve` instead"
            )),
            Ok(part) => {
                taken += part.len() as u64;
                tokio::task::block_in_place(|| file.write_all(&part)).map_err(failed)
            }
            Err(error) => Err(format!("{name} was not received completely: {error}")),
        };
        if let Err(error) = written {
            drop(file);
            drop(std::fs::remove_file(&path));
            changes.uploads.remove(folder, taken);
            return Err(error);
        }
    }
}

/// A plain file name; `None` where it has a path.
fn plain_name(name: &str) -> Option<String> {
    let mut parts = Path::new(name).components();
    let is_plain = matches!(
        (parts.next(), parts.next()),
        (Some(std::path::Component::Normal(_)), None)
    );
    let is_word = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':');
    (is_plain && name.len() <= 200 && name.chars().all(is_word)).then(|| name.to_owned())
}
