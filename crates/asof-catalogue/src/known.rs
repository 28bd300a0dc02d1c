//! The version of each recording in the catalogue: all that is needed to detect changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use asof_core::Stamp;
use asof_formats::{Store, StoredFile};

use crate::error::CatalogueError;
use crate::head::{Head, PartFile};
use crate::reading::{self, Reading};
use crate::tables::{Table, column, int, text};
use arrow_array::Array as _;

/// A recording and its version in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordingVersion {
    pub recording: String,
    pub e_tag: Option<String>,
    pub size: u64,
    pub modified: Option<Stamp>,
    pub is_indexed: bool,
    pub is_vanished: bool,
}

impl RecordingVersion {
    /// Whether a listed file is the version that was indexed.
    pub fn is_current(&self, file: &StoredFile) -> bool {
        self.is_indexed && !self.is_vanished && self.is_version_of(file)
    }

    pub fn is_version_of(&self, file: &StoredFile) -> bool {
        self.size == file.size && self.e_tag == file.e_tag && self.modified == file.modified
    }
}

impl From<&RecordingVersion> for StoredFile {
    fn from(known: &RecordingVersion) -> Self {
        StoredFile {
            path: known.recording.clone(),
            size: known.size,
            modified: known.modified,
            e_tag: known.e_tag.clone(),
        }
    }
}

/// The columns to read.
const COLUMNS: [&str; 6] = [
    "recording",
    "etag",
    "size",
    "modified_ns",
    "indexed",
    "vanished",
];

/// A cache of parts, which never change.
#[derive(Debug, Default)]
pub(crate) struct KnownParts(Mutex<HashMap<String, Arc<Vec<RecordingVersion>>>>);

impl KnownParts {
    /// The recordings of each part of a head, in the head's order.
    pub fn of(
        &self,
        store: &Store,
        head: &Head,
    ) -> Result<Vec<Arc<Vec<RecordingVersion>>>, CatalogueError> {
        let known = |file: &PartFile| {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&file.file)
                .cloned()
        };
        let mut parts = Vec::with_capacity(head.parts.len());
        for part in &head.parts {
            let file = &part.recordings;
            parts.push(match known(file) {
                Some(found) => found,
                None => Arc::new(read(store, file)?),
            });
        }
        let kept = head.parts.iter().zip(&parts);
        let kept = kept.map(|(part, found)| (part.recordings.file.clone(), Arc::clone(found)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept.collect();
        Ok(parts)
    }
}

fn read(store: &Store, file: &PartFile) -> Result<Vec<RecordingVersion>, CatalogueError> {
    let reading = Reading {
        table: Table::Recordings,
        columns: Some(&COLUMNS),
        may_hold: &|_| true,
        filters: Vec::new(),
    };
    let mut all = Vec::new();
    reading::each(store, file, reading, &mut |batch| {
        for row in 0..batch.num_rows() {
            all.push(known_at(&batch, row)?);
        }
        Ok(())
    })?;
    Ok(all)
}

fn known_at(batch: &RecordBatch, row: usize) -> Result<RecordingVersion, ArrowError> {
    let is_set = |name| Ok::<_, ArrowError>(column(batch, name)?.is_valid(row));
    Ok(RecordingVersion {
        recording: text(batch, "recording", row)?
            .unwrap_or_default()
            .to_owned(),
        e_tag: text(batch, "etag", row)?.map(str::to_owned),
        size: int(batch, "size", row)?
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or_default(),
        modified: int(batch, "modified_ns", row)?.map(Stamp::from_nanos),
        is_indexed: is_set("indexed")?,
        is_vanished: is_set("vanished")?,
    })
}
