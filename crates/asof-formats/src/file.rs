//! The common shell of all formats: opening a file, and the traits that readers see.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, FileOrder, FileParts, HiddenRecords, Index,
    MetadataEntry, Portion, Problem, Progress, Query, ReadStats, SectionEntry, Source, SourceError,
    Stamp, Summary, TimeRange, Topics, check_by_reading,
};
use bytes::Bytes;

use crate::options::OpenOptions;
use crate::sections::{self, Sections};
use crate::storage::{MappedFile, Storage, open_storage};

/// A file of one format as a [`Source`] with an index and parts: [`McapFile`](crate::McapFile),
/// [`BagFile`](crate::BagFile), [`Db3File`](crate::Db3File), [`UlogFile`](crate::UlogFile).
///
/// [`open`](crate::open) detects the format; use this type if you know which one you have.
pub struct FormatFile<F> {
    pub(crate) shared: Arc<F>,
}

/// What distinguishes a format from the others; its sections are the rest.
#[expect(
    private_bounds,
    reason = "no other crate names it, or has a format of its own"
)]
pub trait Format: Sections + Sized + 'static {
    /// The name of its public type in this crate.
    const NAME: &'static str;

    /// Opens a file under a name.
    fn open(path: &Path, name: String, options: &OpenOptions) -> Result<Self, SourceError>;

    fn summary(&self) -> Arc<Summary>;

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        sections::latest_at(self, topics, at)
    }

    fn outline(&self, _range: TimeRange, _grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        Ok(None)
    }

    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        sections::payload_estimates(self, &self.summary())
    }

    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        Err(SourceError::without(self.name(), "attachment", &entry.name))
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        Err(SourceError::without(self.name(), "metadata", &entry.name))
    }

    fn check(file: &FormatFile<Self>, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        check_by_reading(file, progress)
    }

    fn hidden(self: &Arc<Self>, _topics: &Topics) -> HiddenRecords {
        Box::new(std::iter::empty())
    }

    fn read_stats(&self) -> Option<ReadStats> {
        None
    }

    fn section_entries(&self) -> Vec<SectionEntry> {
        Vec::new()
    }

    fn log_times(
        &self,
        _topic: &str,
        _range: TimeRange,
    ) -> Result<Option<Vec<Stamp>>, SourceError> {
        Ok(None)
    }
}

/// A format that is read from any storage with random access.
pub trait StoredFormat: Format {
    fn of(storage: Box<dyn Storage>, options: &OpenOptions) -> Result<Self, SourceError>;

    /// [`Format::open`] for all of them.
    fn of_file(path: &Path, name: String, options: &OpenOptions) -> Result<Self, SourceError> {
        Self::of(open_storage(path, name, options.map)?, options)
    }
}

impl<F: Format> FormatFile<F> {
    /// Opens a file with the default options.
    ///
    /// # Errors
    /// When it cannot be opened, has another format, or cannot be read, for example because it is encrypted. Damage
    /// is not an error: it is listed in the summary's problems.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// [`FormatFile::open`], with options.
    ///
    /// # Errors
    /// As [`FormatFile::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, SourceError> {
        let path = path.as_ref();
        Self::open_as(path, path.display().to_string(), options)
    }

    /// Opens a file under another name.
    pub(crate) fn open_as(
        path: &Path,
        name: String,
        options: &OpenOptions,
    ) -> Result<Self, SourceError> {
        F::open(path, name, options).map(Self::new)
    }

    pub(crate) fn new(format: F) -> Self {
        FormatFile {
            shared: Arc::new(format),
        }
    }
}

impl<F: StoredFormat> FormatFile<F> {
    /// Opens bytes in memory.
    ///
    /// # Errors
    /// As [`FormatFile::open`].
    pub fn from_bytes(
        name: impl Into<String>,
        bytes: impl Into<Bytes>,
    ) -> Result<Self, SourceError> {
        let storage = MappedFile::from_bytes(name, bytes.into());
        Self::from_storage(Box::new(storage), &OpenOptions::default())
    }

    /// Opens any storage with random access.
    ///
    /// # Errors
    /// As [`FormatFile::open`].
    pub fn from_storage(
        storage: Box<dyn Storage>,
        options: &OpenOptions,
    ) -> Result<Self, SourceError> {
        F::of(storage, options).map(Self::new)
    }
}

impl<F: Format> Source for FormatFile<F> {
    fn summary(&self) -> Arc<Summary> {
        self.shared.summary()
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(sections::read(&self.shared, query))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.shared.latest_at(topics, at)
    }

    fn index(&self) -> Option<&dyn Index> {
        Some(self)
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        Some(self)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        F::check(self, progress)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        self.shared.read_stats()
    }
}

impl<F: Format> Index for FormatFile<F> {
    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        self.shared.outline(range, grain)
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        self.shared.log_times(topic, range)
    }

    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        self.shared.payload_estimates()
    }

    fn sections(&self) -> Vec<SectionEntry> {
        self.shared.section_entries()
    }
}

impl<F: Format> FileParts for FormatFile<F> {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.shared.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.shared.metadata(entry)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        Ok(self.shared.hidden(topics))
    }
}

impl<F: Format> FileOrder for FormatFile<F> {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(sections::read_in_file_order(&self.shared, query))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        sections::bytes_held_by_order(&self.shared, query)
    }
}

impl<F: Format> std::fmt::Debug for FormatFile<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", F::NAME, self.shared.name())
    }
}

/// [`ReadStats`] that all readers of a file add to.
#[derive(Default)]
pub(crate) struct SharedStats {
    chunks: AtomicU64,
    decompressed_chunks: AtomicU64,
    decompressed_bytes: AtomicU64,
}

impl SharedStats {
    /// Counts a chunk of `bytes` bytes, decompressed if it was compressed.
    pub fn count_chunk(&self, is_compressed: bool, bytes: usize) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        if is_compressed {
            self.decompressed_chunks.fetch_add(1, Ordering::Relaxed);
            self.decompressed_bytes
                .fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub fn snapshot(&self) -> ReadStats {
        ReadStats {
            chunks: self.chunks.load(Ordering::Relaxed),
            decompressed_chunks: self.decompressed_chunks.load(Ordering::Relaxed),
            decompressed_bytes: self.decompressed_bytes.load(Ordering::Relaxed),
        }
    }
}
