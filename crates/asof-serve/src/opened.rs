//! Recordings that are open beside the server's own, each under a path of its own: `/r/<recording>/`.
//!
//! They share the server's port, its token, its limits and its memory. A path names its recording, so a link to it works
//! after the recording was closed, and after the server was started again.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use asof_blocks::DiskOptions;
use asof_core::Source;
use axum::Router;
use serde_json::{Value, json};

use crate::app::{App, block_bytes};
use crate::changes::Changes;
use crate::frames::RobotDescription;
use crate::options::ServeOptions;
use crate::refusal::Refusal;
use crate::routes;
use crate::server::take_in_frames;

/// A recording that was opened for the page: one of a list, or dropped files.
pub struct OpenedRecording {
    /// What is shown.
    pub source: Arc<dyn Source>,
    /// Its title.
    pub name: String,
    /// The robots in it, see [`ServeOptions::robots`].
    pub robots: Vec<RobotDescription>,
    /// The file for its annotations, see [`ServeOptions::annotations`].
    pub annotations: Option<PathBuf>,
    /// Where its blocks are cached on disk, see [`ServeOptions::disk`].
    pub disk: Option<DiskOptions>,
    /// Dropped when the recording is closed, such as a temporary folder.
    pub keep: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for OpenedRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedRecording")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The least memory of an open recording; so the budget bounds how many are open.
const LEAST_BYTES: u64 = 64 << 20;
const MOST_OPEN: u64 = 32;
/// A recording that nobody has used for this long gives its memory to the others.
const IDLE_AFTER: Duration = Duration::from_secs(30);
/// What it keeps.
const IDLE_BYTES: u64 = 16 << 20;
/// How often memory is divided anew, at most.
const DIVIDE_EVERY: Duration = Duration::from_secs(1);
/// How many closed recordings are remembered.
const MOST_CLOSED: usize = 1000;

/// All open recordings, within the cache budget of the server.
pub(crate) struct OpenRecordings {
    options: ServeOptions,
    most: usize,
    open: Mutex<Open>,
    /// Recordings are opened one after the other: a page that sends several requests opens its recording once.
    pub turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Open {
    all: Vec<Entry>,
    /// Those that were closed to make room, until their page is loaded again.
    closed: VecDeque<String>,
    closed_count: u64,
    divided: Option<Instant>,
}

struct Entry {
    key: String,
    app: Arc<App>,
    router: Router,
    /// Dropped last.
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

/// When a recording was last used, and by how many WebSockets it is used now.
pub(crate) struct Usage {
    connected: AtomicUsize,
    last: Mutex<Instant>,
}

impl Default for Usage {
    fn default() -> Self {
        Usage {
            connected: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
        }
    }
}

impl Usage {
    pub fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub fn connect(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        self.touch();
    }

    pub fn disconnect(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
        self.touch();
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.clients() == 0 && now.duration_since(self.last()) > IDLE_AFTER
    }
}

impl OpenRecordings {
    pub fn new(options: &ServeOptions) -> Self {
        let most = (options.cache_bytes / LEAST_BYTES).clamp(1, MOST_OPEN) as usize;
        let mut options = ServeOptions {
            start: None,
            disk: None,
            queries: None,
            snapshots: None,
            recordings: None,
            ..options.clone()
        };
        options.limits.series_bytes /= most;
        OpenRecordings {
            options,
            most,
            open: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The routes of an open recording.
    pub fn find(&self, server: &App, key: &str) -> Option<Router> {
        let mut open = self.lock();
        let entry = open.all.iter().find(|entry| entry.key == key)?;
        entry.app.usage.touch();
        let router = entry.router.clone();
        let is_due = |at: Instant| at.elapsed() >= DIVIDE_EVERY;
        if open.divided.is_none_or(is_due) {
            self.divide(server, &mut open);
        }
        Some(router)
    }

    /// Whether it was closed to make room, and its page has not been loaded since.
    pub fn is_closed(&self, key: &str) -> bool {
        self.lock().closed.iter().any(|closed| closed == key)
    }

    /// Its page is loaded: it may be opened again.
    pub fn forget_closed(&self, key: &str) {
        self.lock().closed.retain(|closed| closed != key);
    }

    /// Shows a recording under `/r/<key>/`. Blocks while it is prepared.
    pub fn add(&self, server: &Arc<App>, key: &str, opened: OpenedRecording) -> Router {
        let OpenedRecording {
            source,
            name,
            robots,
            annotations,
            disk,
            keep,
        } = opened;
        let options = ServeOptions {
            robots,
            annotations,
            disk,
            ..self.options.clone()
        };
        let changes = Changes::of_opened(&options, &server.changes);
        let app = Arc::new(server.beside(source, &name, changes, &options));
        if app.is_live {
            tokio::spawn(take_in_frames(Arc::clone(&app)));
        }
        let router = routes::routes(&app);
        let mut open = self.lock();
        open.closed.retain(|closed| closed != key);
        open.all.push(Entry {
            key: key.to_owned(),
            app,
            router: router.clone(),
            _keep: keep,
        });
        let mut closed = Vec::new();
        while open.all.len() > self.most {
            let least = |entry: &(usize, &Entry)| {
                let usage = &entry.1.app.usage;
                (usage.clients() > 0, usage.last())
            };
            // Not the one that was just opened.
            let others = open.all.iter().enumerate().take(open.all.len() - 1);
            let Some((at, _)) = others.min_by_key(least) else {
                break;
            };
            closed.push(open.close(at));
        }
        self.divide(server, &mut open);
        drop(open);
        for entry in closed {
            entry.app.cache.keep_on_disk();
        }
        router
    }

    /// Divides the budget: what has not been used for a while keeps little, and what is used has the rest.
    fn divide(&self, server: &App, open: &mut Open) {
        let now = Instant::now();
        open.divided = Some(now);
        let opened = open.all.iter().map(|entry| &*entry.app);
        let own = (!server.name.is_empty()).then_some(server);
        let apps: Vec<&App> = own.into_iter().chain(opened).collect();
        let mut left = block_bytes(self.options.cache_bytes);
        let share = IDLE_BYTES.min(left / (apps.len() as u64 + 1));
        let (idle, used): (Vec<&App>, Vec<&App>) =
            apps.into_iter().partition(|app| app.usage.is_idle(now));
        for app in idle {
            app.frames.set_memory(share);
            left = left.saturating_sub(share);
        }
        let count = used.len().max(1) as u64;
        for app in used {
            app.frames.set_memory(left / count);
        }
    }

    /// What is open, for the status.
    pub fn status(&self) -> Value {
        let open = self.lock();
        let one = |entry: &Entry| {
            let cache = entry.app.cache.stats();
            json!({
                "path": format!("/r/{}/", entry.key), "name": entry.app.name, "clients": entry.app.usage.clients(),
                "budget": cache.budget, "held": cache.accounted, "transforms": entry.app.frames.status(),
            })
        };
        json!({
            "most": self.most,
            "closed": open.closed_count,
            "recordings": open.all.iter().map(one).collect::<Vec<_>>(),
        })
    }

    /// Writes the cached blocks of each to its folder, if it has one.
    pub fn keep_on_disk(&self) {
        let apps: Vec<Arc<App>> = self
            .lock()
            .all
            .iter()
            .map(|entry| Arc::clone(&entry.app))
            .collect();
        for app in &apps {
            app.cache.keep_on_disk();
        }
    }

    /// Closes all of them.
    pub fn close_all(&self) {
        let all = std::mem::take(&mut self.lock().all);
        for entry in all {
            entry.app.over.send_replace(true);
            entry.app.cache.keep_on_disk();
        }
    }
}

impl Open {
    /// Ends the sessions of a recording; dropping it frees what it held.
    fn close(&mut self, at: usize) -> Entry {
        let entry = self.all.remove(at);
        tracing::info!("closed {} to make room for another", entry.app.name);
        entry.app.over.send_replace(true);
        self.closed_count += 1;
        self.closed.push_back(entry.key.clone());
        if self.closed.len() > MOST_CLOSED {
            self.closed.pop_front();
        }
        entry
    }
}

/// Opens the recording of a path, if it is not open. Responds with its routes.
///
/// # Errors
/// Why it is not open, as a sentence for the user.
pub(crate) async fn router_of(server: &Arc<App>, key: &str) -> Result<Router, Refusal> {
    let nothing = "there is nothing here";
    let open = server.opened.as_ref().ok_or(nothing)?;
    if let Some(router) = open.find(server, key) {
        return Ok(router);
    }
    let is_drop = key.starts_with(DROPPED);
    if is_drop {
        return Err("these files were closed to make room for others, or the server was started again; drop them again".into());
    }
    if open.is_closed(key) {
        return Err(
            "this recording was closed to make room for others; reload the page to open it again"
                .into(),
        );
    }
    let recordings = server.recordings.clone().ok_or(nothing)?;
    let name = name_of(key).ok_or(nothing)?;
    let _turn = open.turn.lock().await;
    if let Some(router) = open.find(server, key) {
        return Ok(router);
    }
    let (own, key) = (Arc::clone(server), key.to_owned());
    let opened = tokio::task::spawn_blocking(move || {
        let opened = recordings.open(&name)?;
        let open = own.opened.as_ref().ok_or(nothing)?;
        Ok(open.add(&own, &key, opened))
    });
    opened
        .await
        .map_err(|error| format!("opening failed: {error}"))?
}

/// What the keys of dropped files start with. No name of a recording does: there it is encoded.
const DROPPED: char = '~';

/// The key of dropped files.
pub(crate) fn key_of_upload(number: u64) -> String {
    format!("{DROPPED}{number}")
}

/// A recording's name as a part of a path: `2024/run 1.mcap` is `2024:run%201.mcap`.
pub(crate) fn key_of(name: &str) -> String {
    let mut key = String::new();
    for byte in name.bytes() {
        match byte {
            b'/' => key.push(':'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => key.push(char::from(byte)),
            // Neither `.` nor `..`, which would be other paths.
            b'.' if !key.is_empty() && !key.ends_with(':') => key.push('.'),
            byte => write!(key, "%{byte:02X}").unwrap_or_default(),
        }
    }
    key
}

/// The name that a key stands for.
fn name_of(key: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b':' => b'/',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(16 * high + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A path within the server: of its own, or of an open recording.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    /// The key of the recording.
    pub key: Option<&'a str>,
    /// The path within it; empty where the closing slash is missing.
    pub path: &'a str,
}

impl<'a> Place<'a> {
    pub fn of(path: &'a str) -> Self {
        let Some(rest) = path.strip_prefix("/r/") else {
            return Place { key: None, path };
        };
        let (key, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let key = (!key.is_empty()).then_some(key);
        Place { key, path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_part_of_a_path_and_comes_back() {
        for (name, key) in [
            ("run.mcap", "run.mcap"),
            ("2024/05/run 1.mcap", "2024:05:run%201.mcap"),
            ("../x", "%2E.:x"),
            ("a:b/~c", "a%3Ab:%7Ec"),
            ("~1", "%7E1"),
            ("größe.bag", "gr%C3%B6%C3%9Fe.bag"),
            ("a/./b", "a:%2E:b"),
        ] {
            assert_eq!(key_of(name), key);
            assert_eq!(name_of(key).as_deref(), Some(name));
        }
        assert_eq!(name_of("%zz"), None);
        assert_eq!(name_of("%f"), None);
        assert_eq!(name_of("%FF"), None);
    }

    #[test]
    fn a_path_names_a_recording_and_a_place_in_it() {
        let place = |path: &'static str| {
            let Place { key, path } = Place::of(path);
            (key, path)
        };
        assert_eq!(place("/api/summary"), (None, "/api/summary"));
        assert_eq!(place("/r/a.mcap/"), (Some("a.mcap"), "/"));
        assert_eq!(place("/r/a/api/at"), (Some("a"), "/api/at"));
        assert_eq!(place("/r/a"), (Some("a"), ""));
        assert_eq!(place("/r/"), (None, ""));
    }
}
