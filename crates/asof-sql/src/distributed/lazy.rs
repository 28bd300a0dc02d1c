//! A recording that is opened by its first reader.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use asof_core::{
    Batch, Batches, FileOrder, FileParts, Follow, Growth, Index, Problem, Progress, Query,
    ReadStats, Source, SourceError, Stamp, Summary, Topics,
};

use super::{RecordingAddress, RecordingOpener};

/// A recording by its address.
pub(crate) struct LazyRecording {
    address: RecordingAddress,
    opener: Arc<dyn RecordingOpener>,
    opened: OnceLock<Arc<dyn Source>>,
    /// Held while it is opened, so that it is opened once.
    opening: Mutex<()>,
    empty: Arc<Summary>,
}

impl LazyRecording {
    pub fn new(address: RecordingAddress, opener: Arc<dyn RecordingOpener>) -> Self {
        LazyRecording {
            address,
            opener,
            opened: OnceLock::new(),
            opening: Mutex::default(),
            empty: Arc::new(Summary::empty("")),
        }
    }

    fn open(&self) -> Result<&dyn Source, SourceError> {
        if let Some(opened) = self.opened.get() {
            return Ok(&**opened);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.opened.get() {
            return Ok(&**opened);
        }
        let recording = self.opener.open(&self.address)?;
        let size = recording.summary().size;
        if let Some(planned) = self.address.size.filter(|planned| *planned != size) {
            return Err(SourceError::Unreadable {
                place: self.address.address.clone(),
                reason: format!(
                    "it has changed since the query was planned: it had {planned} bytes, and now has {size}; \
                     update a catalogue with `asof index`, and run the query again"
                ),
            });
        }
        Ok(&**self.opened.get_or_init(|| recording))
    }
}

// Not a layer: opening what is within can fail, and its readers receive the error.
#[deny(clippy::missing_trait_methods)]
impl Source for LazyRecording {
    fn summary(&self) -> Arc<Summary> {
        self.open()
            .map_or_else(|_| Arc::clone(&self.empty), Source::summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.open()?.read(query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.open()?.latest_at(topics, at)
    }

    fn growth(&self) -> Growth {
        self.open().map_or(Growth::Finished, Source::growth)
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        self.open()?.follow(query)
    }

    fn index(&self) -> Option<&dyn Index> {
        self.open().ok()?.index()
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        self.open().ok()?.parts()
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        self.open().ok()?.file_order()
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        self.open()?.check(progress)
    }

    fn verify(&self) -> Result<(), SourceError> {
        self.open()?.verify()
    }

    fn read_stats(&self) -> Option<ReadStats> {
        self.opened.get()?.read_stats()
    }
}
