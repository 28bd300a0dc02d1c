//! A catalogue, and where it lies.

use std::sync::Arc;

use asof_formats::{Store, StoredVersion};

use crate::error::CatalogueError;
use crate::head::{Head, PartFile};
use crate::known::KnownParts;
use crate::reading;
use crate::tables::{RecordingRow, SchemaRow};

/// The folder that a catalogue lies in, where nobody said otherwise: hidden, beside the recordings.
pub const FOLDER: &str = ".asof";
/// The head's name.
pub(crate) const HEAD: &str = "head.json";

/// What is known of the recordings of a folder or bucket.
#[derive(Debug)]
pub struct Catalogue {
    pub(crate) root: Arc<Store>,
    pub(crate) store: Arc<Store>,
    pub(crate) known: KnownParts,
}

impl Catalogue {
    /// The catalogue of the recordings below `root`, which lies beside them.
    ///
    /// # Errors
    /// When the address is none.
    pub fn beside(root: Store) -> Result<Self, CatalogueError> {
        let store = root.inside(FOLDER)?;
        Ok(Self::elsewhere(root, store))
    }

    /// The catalogue of the recordings below `root`, which lies in a folder of its own: for recordings that nothing can
    /// be written beside.
    pub fn elsewhere(root: Store, store: Store) -> Self {
        Catalogue {
            root: Arc::new(root),
            store: Arc::new(store),
            known: KnownParts::default(),
        }
    }

    /// Where the recordings lie.
    pub fn root(&self) -> &Store {
        &self.root
    }

    /// Where the catalogue itself lies, as it may be shown.
    pub fn address(&self) -> String {
        self.store.address()
    }

    /// The head as it is now; `None` where there is no catalogue yet.
    ///
    /// # Errors
    /// When it cannot be read, or is of another version.
    pub fn head(&self) -> Result<Option<Head>, CatalogueError> {
        Ok(self.seen_head()?.map(|(head, _)| head))
    }

    /// The head, of a catalogue that must be there.
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
        // The version first: the rest of a later one may be different.
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

    /// Every recording that the catalogue knows, those that vanished among them.
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

    /// Every definition that the catalogue knows, each once.
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
        let batch = reading::read_all(&self.store, file, &RecordingRow::schema())?;
        RecordingRow::rows(&batch).map_err(|error| reading::bad(&self.store, file, &error))
    }

    pub(crate) fn schemas_of(&self, file: &PartFile) -> Result<Vec<SchemaRow>, CatalogueError> {
        let batch = reading::read_all(&self.store, file, &SchemaRow::schema())?;
        SchemaRow::rows(&batch).map_err(|error| reading::bad(&self.store, file, &error))
    }
}

/// What every version of a head begins with.
#[derive(serde::Deserialize)]
struct Front {
    format: String,
    version: u64,
}
