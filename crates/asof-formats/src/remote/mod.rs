//! Recordings on a web server or in a bucket, read in ranges.

mod blocks;

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock, mpsc};
use std::time::Duration;

use asof_core::SourceError;
use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Runtime;
use url::Url;

use crate::storage::Storage;
use blocks::Blocks;

/// A file on a network as a [`Storage`]: `http(s)://`, `s3://`, `gs://`, `az://`.
///
/// Bytes are fetched in blocks, neighbouring blocks in one request, and kept in a small cache. Reads that
/// follow each other fetch further and further ahead. Several threads have several requests in flight; two
/// that want the same block wait for one. A request that fails for a passing reason is repeated, later and
/// later. A file that changes while it is read is an error, never a mixture.
///
/// Keys and regions of buckets are taken from the environment, under the names that each provider's own
/// tools use (`AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`, …). Where there are none,
/// requests are not signed, which is enough for buckets that are open to all.
pub struct RemoteFile {
    name: String,
    remote: Arc<Remote>,
    blocks: Blocks,
}

/// Where the bytes are, and how they were when they were first seen.
struct Remote {
    store: Box<dyn ObjectStore>,
    path: ObjectPath,
    size: u64,
    e_tag: Option<String>,
    modified: i64,
}

/// Schemes that are read here.
const SCHEMES: [&str; 9] = [
    "http", "https", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss",
];
/// How often a body that broke off is asked for again; the client repeats failed requests by itself.
const ATTEMPTS: u32 = 5;

/// The part of a place before `://`, where it is an address that can be read.
pub(crate) fn address(place: &std::path::Path) -> Option<&str> {
    let text = place.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    SCHEMES.contains(&scheme).then_some(text)
}

impl RemoteFile {
    /// Asks how large the file is; nothing is read yet.
    ///
    /// # Errors
    /// When the address is none, or there is no such file.
    pub fn open(address: &str) -> Result<Self, SourceError> {
        let unreadable = |reason: String| SourceError::Unreadable {
            place: address.to_owned(),
            reason,
        };
        let url = Url::parse(address).map_err(|error| {
            unreadable(format!("this is no address ({error}); check its spelling"))
        })?;
        let provider = Provider::of(url.scheme());
        let known: Vec<(String, String)> = std::env::vars().collect();
        let unsigned = provider.and_then(|provider| provider.unsigned(&known));
        let options = known
            .into_iter()
            .chain((url.scheme() == "http").then(|| ("allow_http".to_owned(), "true".to_owned())))
            .chain(unsigned.map(|name| (name.to_owned(), "true".to_owned())))
            .map(|(name, value)| (name.to_ascii_lowercase(), value));
        let (store, path) = object_store::parse_url_opts(&url, options).map_err(|error| {
            let hint = provider.map_or("check its spelling", Provider::hint);
            unreadable(format!("cannot reach it: {error}; {hint}"))
        })?;
        let store: Arc<dyn ObjectStore> = store.into();
        let (asked, wanted) = (Arc::clone(&store), path.clone());
        let found = wait(async move { asked.head(&wanted).await }).map_err(|error| {
            let mut reason = explained(&error);
            if let (true, Some(provider)) = (is_denied(&error), provider) {
                reason = format!("{reason}; {}", provider.hint());
            }
            unreadable(reason)
        })?;
        let remote = Arc::new(Remote {
            store: Box::new(store),
            path,
            size: found.size,
            e_tag: found.e_tag,
            modified: found.last_modified.timestamp(),
        });
        Ok(RemoteFile {
            name: address.to_owned(),
            blocks: Blocks::new(found.size),
            remote,
        })
    }
}

/// Who keeps a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    Amazon,
    Google,
    Azure,
}

impl Provider {
    fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" | "s3a" => Some(Provider::Amazon),
            "gs" => Some(Provider::Google),
            "az" | "azure" | "abfs" | "abfss" => Some(Provider::Azure),
            _ => None,
        }
    }

    /// Where nothing in the environment can sign a request, the option to leave it unsigned. Asking the machine's
    /// own cloud for keys instead takes minutes wherever there is none, so that has to be asked for.
    fn unsigned(self, known: &[(String, String)]) -> Option<&'static str> {
        let (option, keys): (_, &[&str]) = match self {
            Provider::Amazon => (
                "aws_skip_signature",
                &[
                    "AWS_ACCESS_KEY_ID",
                    "AWS_WEB_IDENTITY_TOKEN_FILE",
                    "AWS_CONTAINER_",
                    "AWS_METADATA_ENDPOINT",
                    "AWS_SKIP_SIGNATURE",
                ],
            ),
            Provider::Google => (
                "google_skip_signature",
                &[
                    "GOOGLE_SERVICE_ACCOUNT",
                    "GOOGLE_APPLICATION_CREDENTIALS",
                    "GOOGLE_SKIP_SIGNATURE",
                ],
            ),
            Provider::Azure => (
                "azure_skip_signature",
                &[
                    "AZURE_STORAGE_ACCOUNT_KEY",
                    "AZURE_STORAGE_ACCESS_KEY",
                    "AZURE_STORAGE_SAS",
                    "AZURE_STORAGE_CLIENT",
                    "AZURE_STORAGE_TOKEN",
                    "AZURE_CLIENT_",
                    "AZURE_FEDERATED_TOKEN_FILE",
                    "AZURE_USE_AZURE_CLI",
                    "AZURE_STORAGE_USE_EMULATOR",
                    "AZURE_MSI_ENDPOINT",
                    "AZURE_SKIP_SIGNATURE",
                ],
            ),
        };
        let is_key = |name: &str| keys.iter().any(|key| name.starts_with(key));
        let can_sign = known.iter().any(|(name, _)| is_key(name));
        (!can_sign).then_some(option)
    }

    /// What to set.
    fn hint(self) -> &'static str {
        match self {
            Provider::Amazon => {
                "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION (on a machine of that cloud, AWS_METADATA_ENDPOINT)"
            }
            Provider::Google => "set GOOGLE_APPLICATION_CREDENTIALS to a file with keys",
            Provider::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY where the container is not open to all"
            }
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
        self.blocks.read(offset, len, |ranges| {
            let fetches = ranges.into_iter().map(|range| {
                let remote = Arc::clone(&self.remote);
                start(async move { remote.get(range).await })
            });
            // All are under way before the first is waited for.
            let fetches: Vec<_> = fetches.collect();
            fetches.into_iter().map(finish).collect()
        })
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
    async fn get(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut pause = Duration::from_millis(100);
        for attempt in 1.. {
            match self.try_get(range.clone()).await {
                Err(Fault::Passing(error)) if attempt < ATTEMPTS => {
                    tracing::debug!(%error, attempt, "asking again");
                    tokio::time::sleep(pause).await;
                    pause *= 3;
                }
                Err(Fault::Passing(error) | Fault::Final(error)) => return Err(error),
                Ok(bytes) => return Ok(bytes),
            }
        }
        Err(io::Error::other("it was never asked for"))
    }

    async fn try_get(&self, range: Range<u64>) -> Result<Bytes, Fault> {
        let wanted = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.e_tag.clone(),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&self.path, options).await;
        let found = found.map_err(|error| Fault::of(&error))?;
        // A server that does not know conditions answers with what is there now.
        let is_same = found.meta.size == self.size
            && found.meta.e_tag == self.e_tag
            && (self.e_tag.is_some() || found.meta.last_modified.timestamp() == self.modified);
        if !is_same {
            return Err(Fault::Final(changed()));
        }
        let bytes = found.bytes().await.map_err(|error| Fault::of(&error))?;
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

/// Why a request failed, and whether it may go better next time.
enum Fault {
    Passing(io::Error),
    Final(io::Error),
}

impl Fault {
    fn of(error: &object_store::Error) -> Self {
        use object_store::Error;
        match error {
            Error::Precondition { .. } => Fault::Final(changed()),
            Error::NotFound { .. }
            | Error::NotSupported { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. } => Fault::Final(io::Error::other(explained(error))),
            _ => Fault::Passing(io::Error::other(explained(error))),
        }
    }
}

fn changed() -> io::Error {
    io::Error::other("the file was changed while it was being read; open it again")
}

fn is_denied(error: &object_store::Error) -> bool {
    use object_store::Error;
    matches!(
        error,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. }
    )
}

/// A failure in words for the person who gave the address.
fn explained(error: &object_store::Error) -> String {
    use object_store::Error;
    match error {
        Error::NotFound { .. } => "there is no such file there; check the address".to_owned(),
        Error::NotSupported { .. } => {
            "the server does not hand out ranges of a file (HTTP 206), which reading in place needs; download the file, or serve it with a server that does".to_owned()
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            "access was denied; check the keys in the environment".to_owned()
        }
        other => format!(
            "the server cannot be read: {}; check the address and the network, or try again later",
            first_cause(other)
        ),
    }
}

/// What started it: the rest of the chain says who passed it on.
fn first_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Two threads for every remote file of the process: they wait, and do little else.
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

/// An answer that is on its way.
type Pending<T> = io::Result<mpsc::Receiver<io::Result<T>>>;

/// Starts a request. The answer is waited for on a channel, so that this works on any thread, also on those
/// of another runtime.
fn start<T: Send + 'static>(
    request: impl Future<Output = io::Result<T>> + Send + 'static,
) -> Pending<T> {
    let (answer, pending) = mpsc::channel();
    runtime()?.spawn(async move {
        // Whoever asked may have given up.
        let _ = answer.send(request.await);
    });
    Ok(pending)
}

fn finish<T>(pending: Pending<T>) -> io::Result<T> {
    pending?
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the request was dropped")))
}

fn wait<T: Send + 'static>(
    request: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> object_store::Result<T> {
    let failed = |error: io::Error| object_store::Error::Generic {
        store: "network",
        source: Box::new(error),
    };
    finish(start(async move { Ok(request.await) })).map_err(failed)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_by_what_started_it() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let told = explained(&object_store::Error::Generic {
            store: "HTTP",
            source: Box::new(io::Error::other(refused)),
        });
        let expected = "the server cannot be read: connection refused; check the address and the network, or try again later";
        assert_eq!(told, expected);
    }

    #[test]
    fn requests_are_signed_only_where_there_is_something_to_sign_with() {
        let known = |names: &[&str]| -> Vec<(String, String)> {
            let pair = |name: &&str| ((*name).to_owned(), "x".to_owned());
            names.iter().map(pair).collect()
        };
        let amazon = Provider::of("s3").expect("a provider");
        assert_eq!(
            amazon.unsigned(&known(&["PATH"])),
            Some("aws_skip_signature")
        );
        assert_eq!(
            amazon.unsigned(&known(&["AWS_REGION"])),
            Some("aws_skip_signature")
        );
        assert_eq!(amazon.unsigned(&known(&["AWS_ACCESS_KEY_ID"])), None);
        let azure = Provider::of("az").expect("a provider");
        assert_eq!(azure.unsigned(&known(&["AZURE_STORAGE_ACCOUNT_KEY"])), None);
        assert_eq!(Provider::of("https"), None);
    }
}
