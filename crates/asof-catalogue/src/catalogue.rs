//! A catalogue and its location.

use std::sync::Arc;

use asof_formats::{Store, StoredVersion};

use crate::error::CatalogueError;
use crate::head::{Head, PartFile};
use crate::known::KnownParts;
use crate::opening::OpenRecordings;
use crate::reading;
use crate::tables::{RecordingRow, SchemaRow, Table};

/// The default folder of a catalogue: hidden, beside the recordings.
pub const FOLDER: &str = ".asof";
/// The head's name.
pub(crate) const HEAD: &str = "head.json";

/// The catalogue of the recordings in a folder or bucket.
#[derive(Debug)]
pub struct Catalogue {
    pub(crate) root: Arc<Store>,
    pub(crate) store: Arc<Store>,
    pub(crate) known: KnownParts,
    pub(crate) opened: Arc<OpenRecordings>,
}

impl Catalogue {
    /// The catalogue beside the recordings in `root`.
    ///
    /// # Errors
    /// When the address is not valid.
    pub fn beside(root: Store) -> Result<Self, CatalogueError> {
        let store = root.inside(FOLDER)?;
        Ok(Self::elsewhere(root, store))
    }

    /// The catalogue of the recordings in `root`, kept in a folder of its own: for recordings in a place that is not
    /// writable.
    pub fn elsewhere(root: Store, store: Store) -> Self {
        Catalogue {
            root: Arc::new(root),
            store: Arc::new(store),
            known: KnownParts::default(),
            opened: Arc::default(),
        }
    }

    /// The root of the recordings.
    pub fn root(&self) -> &Store {
        &self.root
    }

    /// The address of the catalogue, without secrets.
    pub fn address(&self) -> String {
        self.store.address()
    }

    /// The current head; `None` if there is no catalogue yet.
    ///
    /// # Errors
    /// When it cannot be read, or has an unsupported version.
    pub fn head(&self) -> Result<Option<Head>, CatalogueError> {
        Ok(self.seen_head()?.map(|(head, _)| head))
    }

    /// The head of a catalogue that must exist.
    ///
    /// # Errors
    /// When there is none, or as [`Catalogue::head`].
    pub fn existing_head(&self) -> Result<Head, CatalogueError> {
        self.head()?.ok_or_else(|| CatalogueError::Missing {
            place: self.address(),
        })
    }

    pub(crate) fn seen_head(&self) -> Result<Option<(Head, StoredVersion)>, CatalogueError> {
        let Some(stored) = self.store.read(HEAD)? else {
            return Ok(None);
        };
        let place = || self.store.shown_address_of(HEAD);
        let bad = |reason: String| CatalogueError::BadHead {
            place: place(),
            reason,
        };
        // The version first: a later one may have a different layout.
        let front: Front =
            serde_json::from_slice(&stored.bytes).map_err(|error| bad(error.to_string()))?;
        if front.format != Head::FORMAT {
            return Err(bad(format!("its format is {:?}", front.format)));
        }
        if front.version > Head::VERSION {
            return Err(CatalogueError::TooNew {
                place: place(),
                found: front.version,
                known: Head::VERSION,
            });
        }
        let head: Head =
            serde_json::from_slice(&stored.bytes).map_err(|error| bad(error.to_string()))?;
        let is_bad_name =
            |file: &&PartFile| file.file.is_empty() || file.file.contains(['/', '\\']);
        if let Some(file) = head.files().find(is_bad_name) {
            return Err(bad(format!(
                "it names the file {:?}, which is not beside it",
                file.file
            )));
        }
        Ok(Some((head, stored.version)))
    }

    /// Every recording in the catalogue, including vanished ones.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn recordings(&self) -> Result<Vec<RecordingRow>, CatalogueError> {
        let head = self.existing_head()?;
        let mut all = Vec::new();
        for part in &head.parts {
            all.extend(self.rows_of(&part.recordings)?);
        }
        Ok(all)
    }

    /// Every message definition in the catalogue, without duplicates.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn schemas(&self) -> Result<Vec<SchemaRow>, CatalogueError> {
        let head = self.existing_head()?;
        let mut all = Vec::new();
        for file in &head.schemas {
            all.extend(self.schemas_of(file)?);
        }
        all.sort_by(|a, b| a.hash.cmp(&b.hash));
        all.dedup_by(|a, b| a.hash == b.hash);
        Ok(all)
    }

    pub(crate) fn rows_of(&self, file: &PartFile) -> Result<Vec<RecordingRow>, CatalogueError> {
        let batch = reading::read_all(&self.store, file, Table::Recordings)?;
        RecordingRow::rows(&batch).map_err(|error| reading::bad(&self.store, file, &error))
    }

    pub(crate) fn schemas_of(&self, file: &PartFile) -> Result<Vec<SchemaRow>, CatalogueError> {
        schemas_of(&self.store, file)
    }
}

pub(crate) fn schemas_of(store: &Store, file: &PartFile) -> Result<Vec<SchemaRow>, CatalogueError> {
    let batch = reading::read_all(store, file, Table::Schemas)?;
    SchemaRow::rows(&batch).map_err(|error| reading::bad(store, file, &error))
}

/// The fields that every version of a head has.
#[derive(serde::Deserialize)]
struct Front {
    format: String,
    version: u64,
}
