//! How places are opened, whatever their format.

use std::sync::Arc;

use asof_ros::Definitions;

use crate::limits::DecompressionLimits;
use crate::storage::{REQUESTS_IN_FLIGHT, Storage};

/// How places are opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Threads that decompress, the reader's own among them; with more than 1, some do it ahead of the reader.
    pub threads: usize,
    /// Definitions of types for recordings that have none.
    pub definitions: Definitions,
    /// Map files into memory. Without it they are read piece by piece, which is slower where pieces are read
    /// again, and takes no more memory than the pieces.
    pub map: bool,
    /// Read the messages of a db3 from its mapped pages, also where nothing else is to be mapped: SQLite takes
    /// longer. Of the pages at most 128 MB count as memory of this process at any time.
    pub map_pages: bool,
    /// Who is told, before it begins, of what takes long.
    pub notices: Notices,
    /// How much compressed data may become.
    pub limits: DecompressionLimits,
    /// Take an MCAP file that lacks its end for one that is being written: it [grows](asof_core::Source::growth), and
    /// can be followed. Nothing in such a file tells whether its writer is at work or was killed, so you say when you open it
    /// what it is; otherwise it is a recording that was cut. Files that are complete, and those of other formats,
    /// are opened as ever.
    pub growing: bool,
}

/// Somebody who is told of things that take long, in a sentence each; nobody by default.
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
    /// Tells this function.
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
            "Notices(to one)"
        } else {
            "Notices(to nobody)"
        })
    }
}

/// Whether somebody would wonder why so many bytes take so long.
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
    /// The threads that load from a storage: over a network they wait rather than compute.
    pub(crate) fn threads_for(&self, storage: &dyn Storage) -> usize {
        if storage.is_local() {
            self.threads
        } else {
            self.threads.max(REQUESTS_IN_FLIGHT)
        }
    }
}

/// As many threads as there are cores, up to eight.
fn default_threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(8)
}
