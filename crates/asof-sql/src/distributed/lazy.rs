//! A recording that is opened by its first reader.

use std::sync::{Arc, Mutex, PoisonError};

use asof_core::{Batch, Batches, Query, Source, SourceError, Stamp, Summary, Topics};
use asof_formats::Recording;

use super::{RecordingAddress, RecordingOpener};

/// A recording by its address.
pub(crate) struct LazyRecording {
    address: RecordingAddress,
    opener: Arc<dyn RecordingOpener>,
    opened: Mutex<Option<Arc<dyn Recording>>>,
}

impl LazyRecording {
    pub fn new(address: RecordingAddress, opener: Arc<dyn RecordingOpener>) -> Self {
        LazyRecording {
            address,
            opener,
            opened: Mutex::default(),
        }
    }

    fn open(&self) -> Result<Arc<dyn Recording>, SourceError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*opened {
            return Ok(Arc::clone(known));
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
        *opened = Some(Arc::clone(&recording));
        Ok(recording)
    }
}

impl Source for LazyRecording {
    fn summary(&self) -> Arc<Summary> {
        // Its readers receive the error when it cannot be opened.
        self.open()
            .map_or_else(|_| Arc::new(Summary::empty("")), |opened| opened.summary())
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.open()?.read(query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.open()?.latest_at(topics, at)
    }
}

impl Recording for LazyRecording {}
