//! Options of opening a place, for all formats.

use std::sync::Arc;

use asof_ros::Definitions;

use crate::limits::DecompressionLimits;
use crate::storage::{REQUESTS_IN_FLIGHT, Storage};

/// Options of opening a place.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Threads that decompress, including the reader's own; with more than 1, the others work ahead of the reader.
    pub threads: usize,
    /// Definitions of types for recordings that do not contain their own.
    pub definitions: Definitions,
    /// Map files into memory. Otherwise they are read piece by piece, which is slower if pieces are read again, and
    /// takes no more memory than the pieces.
    pub map: bool,
    /// Read the messages of a db3 from its mapped pages, also if `map` is off: SQLite is slower. At most 128 MB of the
    /// pages count as memory of this process at any time.
    pub map_pages: bool,
    /// A callback that is called before an operation that takes long.
    pub notices: Notices,
    /// How large compressed data may become.
    pub limits: DecompressionLimits,
    /// Take an MCAP file without a footer for one that is being written: it [grows](asof_core::Source::growth), and
    /// can be followed. Nothing in such a file shows whether its writer is running or was killed, so you decide when
    /// you open it; by default it is a truncated recording. Complete files, and other formats, are not affected.
    pub growing: bool,
}

/// A callback for progress messages, one sentence each; none by default.
///
/// ```
/// let options = asof_formats::OpenOptions {
///     notices: asof_formats::Notices::to(|sentence| eprintln!("{sentence}")),
///     ..Default::default()
/// };
/// ```
#[derive(Clone, Default)]
pub struct Notices(Option<Arc<Listener>>);

type Listener = dyn Fn(&str) + Send + Sync;

impl Notices {
    /// Calls this function.
    pub fn to(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Notices(Some(Arc::new(listener)))
    }

    pub(crate) fn tell(&self, sentence: &str) {
        if let Some(listener) = &self.0 {
            listener(sentence);
        }
    }
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "Notices(callback)"
        } else {
            "Notices(none)"
        })
    }
}

/// Whether an operation on this many bytes takes long enough to be announced.
pub(crate) fn worth_telling(bytes: u64) -> bool {
    bytes >= 64_000_000
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            threads: default_threads(),
            definitions: Definitions::standard(),
            map: true,
            map_pages: true,
            notices: Notices::default(),
            limits: DecompressionLimits::default(),
            growing: false,
        }
    }
}

impl OpenOptions {
    /// The number of threads that load from a storage. Over a network they wait rather than compute.
    pub(crate) fn threads_for(&self, storage: &dyn Storage) -> usize {
        if storage.is_local() {
            self.threads
        } else {
            self.threads.max(REQUESTS_IN_FLIGHT)
        }
    }
}

/// The number of cores, at most eight.
fn default_threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(8)
}
