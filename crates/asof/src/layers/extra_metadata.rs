//! One more metadata record.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, DerivedSummary, FileParts, HiddenRecords, MetadataEntry, Source, SourceError,
    Summary, Topics,
};
use bytes::Bytes;

/// A recording with one more metadata record, such as its annotations.
pub struct ExtraMetadata {
    recording: Arc<dyn Source>,
    name: String,
    values: BTreeMap<String, String>,
    summary: DerivedSummary,
}

/// An offset at which no metadata record of a recording can be.
const NO_OFFSET: u64 = u64::MAX;

impl ExtraMetadata {
    /// The recording with a record of this name.
    pub fn new(
        recording: impl Into<Arc<dyn Source>>,
        name: impl Into<String>,
        values: BTreeMap<String, String>,
    ) -> Self {
        ExtraMetadata {
            recording: recording.into(),
            name: name.into(),
            values,
            summary: DerivedSummary::default(),
        }
    }
}

impl asof_core::SourceLayer for ExtraMetadata {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.recording
    }

    fn summary(&self) -> Arc<Summary> {
        self.summary.changed(self.inner().summary(), |summary| {
            summary.metadata.push(MetadataEntry {
                name: self.name.clone(),
                offset: NO_OFFSET,
            });
        })
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }
}

impl FileParts for ExtraMetadata {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.recording.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        if entry.offset == NO_OFFSET && entry.name == self.name {
            return Ok(self.values.clone());
        }
        self.recording.metadata(entry)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        self.recording.hidden(topics)
    }
}
