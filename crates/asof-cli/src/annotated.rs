//! A recording with its annotations, as if they had been recorded with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use asof::{
    AttachmentEntry, DerivedSummary, FileParts, HiddenRecords, MetadataEntry, Source, SourceError,
    Summary, Topics,
};
use asof_serve::Annotations;
use bytes::Bytes;

use super::screen::Screen;

/// A recording whose annotations are one of its metadata records.
pub struct Annotated {
    recording: Box<dyn Source>,
    notes: BTreeMap<String, String>,
    summary: DerivedSummary,
}

/// An offset at which no metadata record of a recording can be.
const NO_OFFSET: u64 = u64::MAX;

impl Annotated {
    /// The recording of these places, with the annotations beside them.
    pub fn over(
        recording: Box<dyn Source>,
        places: &[PathBuf],
        screen: &Screen,
    ) -> Box<dyn Source> {
        let mut notes = BTreeMap::new();
        for (index, place) in places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.is_file())
        {
            match Annotations::read(&Annotations::beside(place)) {
                // Numbers of several recordings are distinguished by the recording's own.
                Ok(found) => notes.extend(found.metadata().into_iter().map(|(number, note)| {
                    let number = if places.len() > 1 {
                        format!("{index}-{number}")
                    } else {
                        number
                    };
                    (number, note)
                })),
                Err(error) => screen.warning(format_args!("annotations are skipped: {error}")),
            }
        }
        if notes.is_empty() {
            return recording;
        }
        let summary = DerivedSummary::default();
        Box::new(Annotated {
            recording,
            notes,
            summary,
        })
    }
}

impl asof::SourceLayer for Annotated {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.recording
    }

    fn summary(&self) -> Arc<Summary> {
        self.summary.changed(self.inner().summary(), |summary| {
            summary.metadata.push(MetadataEntry {
                name: Annotations::METADATA.to_owned(),
                offset: NO_OFFSET,
            });
        })
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }
}

impl FileParts for Annotated {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.recording.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        if entry.offset == NO_OFFSET && entry.name == Annotations::METADATA {
            return Ok(self.notes.clone());
        }
        self.recording.metadata(entry)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        self.recording.hidden(topics)
    }
}
