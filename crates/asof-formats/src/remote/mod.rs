//! Recordings on a web server or in a bucket, read in ranges.

mod blocks;
mod faults;
mod fetch;
mod place;
mod store;
mod version;

pub(crate) use place::{RemotePlace, failed, in_time, too_many_than, wait};
pub use version::version_at;

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock, mpsc};
use std::time::{Duration, Instant};

use asof_core::SourceError;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use tokio::runtime::Runtime;

use crate::FilePiece;
use crate::pieces::{Noted, Pieces};
use crate::storage::Storage;
use blocks::Blocks;
use faults::{Fault, changed, silent, too_slow};

/// A file on a network as a [`Storage`]: `http(s)://`, `s3://`, `gs://`, `az://`.
///
/// Bytes are fetched in blocks, adjacent blocks in one request, and kept in a small cache. Sequential reads
/// fetch further and further ahead. Several threads have several requests in flight; two that need the same
/// block share one. A transient failure is retried, with growing pauses. A file that changes while it is read
/// is an error, never a mixture.
///
/// Keys and regions of buckets are taken from the environment, under the names that each provider's own
/// tools use (`AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`, …). Without keys,
/// requests are not signed, which is enough for public buckets.
pub struct RemoteFile {
    name: String,
    remote: Arc<Remote>,
    blocks: Blocks,
    /// Ranges of the file that need no request.
    known: Pieces,
    noted: Option<Arc<Noted>>,
}

/// The address of the file, and its version when it was opened.
struct Remote {
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    size: u64,
    e_tag: Option<String>,
    /// Seconds since the epoch; 0 if unknown.
    modified: i64,
}

/// How long a server may send nothing before the request is retried.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an unanswered request is retried before its callers get an error.
pub(crate) const RETRY_TIME: Duration = Duration::from_secs(30);
/// The slowest rate at which an answer may arrive after that, in bytes per second.
const SLOWEST: u64 = 1 << 10;
/// How often an interrupted body is requested again; the client retries failed requests by itself.
const ATTEMPTS: u32 = 5;
/// The same if the server cannot be reached at all: for about a second.
const ATTEMPTS_TO_REACH: u32 = 4;

impl RemoteFile {
    /// Requests the size of the file; nothing is read yet.
    ///
    /// # Errors
    /// When the address is not valid, or there is no such file.
    pub fn open(address: &str) -> Result<Self, SourceError> {
        let place = RemotePlace::of(address)?;
        let found = place.look().map_err(|error| place.unreadable(&error))?;
        Ok(Self::found(&place, found))
    }

    pub(crate) fn found(place: &RemotePlace, found: ObjectMeta) -> Self {
        let modified = found.last_modified.timestamp();
        Self::known(place, found.size, found.e_tag, modified)
    }

    /// A file of known size and version: no request is made.
    pub(crate) fn known(
        place: &RemotePlace,
        size: u64,
        e_tag: Option<String>,
        modified: i64,
    ) -> Self {
        let remote = Remote {
            store: Arc::clone(&place.store),
            path: place.path.clone(),
            size,
            e_tag,
            modified,
        };
        RemoteFile {
            name: place.address.clone(),
            blocks: Blocks::new(size),
            remote: Arc::new(remote),
            known: Pieces::default(),
            noted: None,
        }
    }

    /// The same, with pieces of this version that were read before: they are not requested again.
    pub(crate) fn with_pieces(self, pieces: Vec<FilePiece>) -> Self {
        RemoteFile {
            known: Pieces::of(pieces),
            ..self
        }
    }

    /// The same, noting what is read of it.
    pub(crate) fn noting(self, noted: &Arc<Noted>) -> Self {
        RemoteFile {
            noted: Some(Arc::clone(noted)),
            ..self
        }
    }
}

impl Storage for RemoteFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.remote.size
    }

    fn fetch(&self, offset: u64, len: u64) -> io::Result<Bytes> {
        let len = len.min(self.remote.size.saturating_sub(offset));
        if let Some(bytes) = self.known.get(offset, len) {
            return Ok(bytes);
        }
        let bytes = self.blocks.read(offset, len, |ranges| {
            let fetches = ranges.into_iter().map(|range| self.remote.ask(range));
            // All requests are started before the first is awaited.
            let fetches: Vec<_> = fetches.collect();
            fetches.into_iter().map(finish).collect()
        })?;
        if let Some(noted) = &self.noted {
            noted.add(offset, &bytes);
        }
        Ok(bytes)
    }

    fn is_local(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteFile({}, {} bytes)", self.name, self.remote.size)
    }
}

impl Remote {
    /// Starts to fetch a range.
    fn ask(self: &Arc<Self>, range: Range<u64>) -> Pending<Bytes> {
        let remote = Arc::clone(self);
        start(async move { remote.get(range).await })
    }

    async fn get(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut pause = Duration::from_millis(100);
        for attempt in 1.. {
            let fault = match self.try_get(range.clone()).await {
                Ok(bytes) => return Ok(bytes),
                Err(fault) => fault,
            };
            let attempts = match fault {
                Fault::Passing(_) => ATTEMPTS,
                Fault::Unreachable(_) => ATTEMPTS_TO_REACH,
                Fault::Unanswered(_) | Fault::Final(_) => 1,
            };
            let error = fault.into_error();
            if attempt >= attempts {
                return Err(error);
            }
            tracing::debug!(%error, attempt, "asking again");
            tokio::time::sleep(pause).await;
            pause *= 3;
        }
        Err(io::Error::other("it was never asked for"))
    }

    /// Whether an answer is about the file that was opened, as far as the server identifies both.
    fn is_of_same_file(&self, found: &ObjectMeta) -> bool {
        if found.size != self.size {
            return false;
        }
        if let (Some(known), Some(found)) = (&self.e_tag, &found.e_tag) {
            // Compression in transit makes a tag a weak one.
            let plain = |tag: &str| tag.trim_start_matches("W/").to_owned();
            return plain(known) == plain(found);
        }
        let modified = found.last_modified.timestamp();
        self.modified == 0 || modified == 0 || modified == self.modified
    }

    async fn try_get(&self, range: Range<u64>) -> Result<Bytes, Fault> {
        let wanted = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            // A weak tag never matches, by the rules of HTTP.
            if_match: self.e_tag.clone().filter(|tag| !tag.starts_with("W/")),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&self.path, options).await;
        let found = found.map_err(|error| Fault::of(&error))?;
        // A server without support for conditions answers with the current file.
        if !self.is_of_same_file(&found.meta) {
            return Err(Fault::Final(changed()));
        }
        let bytes = all_of(found.into_stream(), wanted).await?;
        if bytes.len() as u64 != wanted {
            let message = format!(
                "{} of {wanted} bytes came: the server, or something on the way, cuts or compresses what it sends; download the file",
                bytes.len()
            );
            return Err(Fault::Passing(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                message,
            )));
        }
        Ok(bytes)
    }
}

/// The bytes of an answer, as long as they keep coming, at [`SLOWEST`] or faster: how long all of them take depends on
/// the network.
async fn all_of(
    mut answer: BoxStream<'_, object_store::Result<Bytes>>,
    wanted: u64,
) -> Result<Bytes, Fault> {
    let start = Instant::now();
    let mut bytes = BytesMut::with_capacity(wanted as usize);
    loop {
        let due = start.elapsed().saturating_sub(RETRY_TIME).as_secs() * SLOWEST;
        if (bytes.len() as u64) < due {
            return Err(Fault::Final(too_slow(start.elapsed())));
        }
        let Ok(next) = tokio::time::timeout(SILENCE_TIMEOUT, answer.next()).await else {
            return Err(Fault::Passing(silent()));
        };
        match next {
            None => return Ok(bytes.freeze()),
            Some(Err(error)) => return Err(Fault::of(&error)),
            // An endless answer is cut off.
            Some(Ok(_)) if bytes.len() as u64 > wanted => return Ok(bytes.freeze()),
            Some(Ok(more)) => bytes.extend_from_slice(&more),
        }
    }
}

/// Two threads for every remote file of the process: they mostly wait.
fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: LazyLock<OnceLock<Runtime>> = LazyLock::new(OnceLock::new);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("asof-remote")
        .enable_all()
        .build()?;
    Ok(RUNTIME.get_or_init(|| made))
}

/// A pending answer.
type Pending<T> = io::Result<mpsc::Receiver<io::Result<T>>>;

/// Starts a request. The answer arrives on a channel, so that this works on any thread, also on those
/// of another runtime.
fn start<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> Pending<T> {
    let (answer, pending) = mpsc::channel();
    runtime()?.spawn(async move {
        // The caller may have given up.
        let _ = answer.send(request.await);
    });
    Ok(pending)
}

fn finish<T>(pending: Pending<T>) -> io::Result<T> {
    pending?
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the request was dropped")))
}
