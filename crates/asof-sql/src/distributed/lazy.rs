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

    /// One that cannot be opened is reported to its readers.
    fn verify(&self) -> Result<(), SourceError> {
        self.opened.get().map_or(Ok(()), Source::verify)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        self.opened.get()?.read_stats()
    }
}

#[cfg(test)]
mod tests {
    use asof_core::testing::assert_source;
    use asof_formats::{McapFile, McapWriter, McapWriterOptions};

    use super::*;

    /// Opens one recording, by any address.
    #[derive(Debug)]
    struct Demo(Vec<u8>);

    impl RecordingOpener for Demo {
        fn open(&self, recording: &RecordingAddress) -> Result<Arc<dyn Source>, SourceError> {
            let file = McapFile::from_bytes(recording.address.clone(), self.0.clone())?;
            Ok(Arc::new(file))
        }
    }

    fn lazy(size: impl Fn(u64) -> u64) -> LazyRecording {
        let out = std::io::Cursor::new(Vec::new());
        let mut writer = McapWriter::new(out, McapWriterOptions::default()).expect("a writer");
        let options = asof_demo::DemoOptions {
            duration: std::time::Duration::from_millis(300),
            ..asof_demo::DemoOptions::default()
        };
        for message in asof_demo::Demo::new(options).messages() {
            writer.write(&message).expect("written");
        }
        let bytes = writer.finish().expect("finished").into_inner();
        let address = RecordingAddress {
            name: "demo".to_owned(),
            address: "demo.mcap".to_owned(),
            size: Some(size(bytes.len() as u64)),
            version: None,
        };
        LazyRecording::new(address, Arc::new(Demo(bytes)))
    }

    #[test]
    fn it_keeps_the_promises_of_what_it_opens() {
        let recording = lazy(|size| size);
        assert!(recording.read_stats().is_none(), "it is not open yet");
        assert_source(&recording, "opened by its first reader");
    }

    #[test]
    fn what_cannot_be_opened_is_an_error_and_not_an_empty_recording() {
        let recording = lazy(|size| size + 1);
        assert!(recording.read(&Query::all()).is_err());
        assert!(recording.follow(&Query::all()).is_err());
        assert!(recording.latest_at(&Topics::All, Stamp::MAX).is_err());
        assert!(recording.summary().channels.is_empty());
    }
}
