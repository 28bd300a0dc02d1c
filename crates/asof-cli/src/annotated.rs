//! A recording with its annotations, as if they had been recorded with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use asof::formats::{HiddenRecords, Progress, ReadStats, Recording};
use asof::{
    AttachmentEntry, Batch, Batches, Follow, Growth, MetadataEntry, Portion, Problem, Query,
    Source, SourceError, Stamp, Summary, Topics,
};
use asof_serve::Annotations;
use bytes::Bytes;

use super::screen::Screen;

/// A recording whose annotations are one of its metadata records.
pub struct Annotated {
    recording: Box<dyn Recording>,
    notes: BTreeMap<String, String>,
}

/// An offset at which no metadata record of a recording can be.
const NO_OFFSET: u64 = u64::MAX;

impl Annotated {
    /// The recording of these places, with the annotations beside them.
    pub fn over(
        recording: Box<dyn Recording>,
        places: &[PathBuf],
        screen: &Screen,
    ) -> Box<dyn Recording> {
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
        Box::new(Annotated { recording, notes })
    }
}

impl Source for Annotated {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = Summary::clone(&self.recording.summary());
        summary.metadata.push(MetadataEntry {
            name: Annotations::METADATA.to_owned(),
            offset: NO_OFFSET,
        });
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.recording.read(query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.recording.latest_at(topics, at)
    }

    fn growth(&self) -> Growth {
        self.recording.growth()
    }

    fn outline(&self, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        self.recording.outline(grain)
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        self.recording.follow(query)
    }
}

impl Recording for Annotated {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.recording.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        if entry.offset == NO_OFFSET && entry.name == Annotations::METADATA {
            return Ok(self.notes.clone());
        }
        self.recording.metadata(entry)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        self.recording.check(progress)
    }

    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        self.recording.read_in_file_order(query)
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        self.recording.bytes_held_by_order(query)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        self.recording.hidden(topics)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        self.recording.read_stats()
    }
}
