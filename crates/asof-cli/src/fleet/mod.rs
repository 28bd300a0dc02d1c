//! Folders and buckets of recordings: `asof index`, `asof tag`, and the catalogue queries of `asof find`.

mod index;
mod list;
#[cfg(feature = "sql")]
mod reading;
mod search;
mod tag;

use std::path::{Path, PathBuf};

use asof_catalogue::Catalogue;
use asof_formats::Store;
use clap::Args;

pub use index::Index;
pub use list::FleetList;
#[cfg(feature = "sql")]
pub use reading::recordings_of;
pub use search::{Searching, found_as_json, long_line};
pub use tag::Tag;

/// The location of a catalogue.
#[derive(Debug, Clone, Default, Args)]
pub struct CataloguePlace {
    /// The folder of the catalogue, if not .asof beside the recordings: for read-only buckets and web
    /// servers
    #[arg(long, value_name = "FOLDER")]
    catalogue: Option<PathBuf>,
}

impl CataloguePlace {
    /// The catalogue of the recordings below a place. Nothing is read yet.
    pub fn of(&self, place: &Path) -> anyhow::Result<Catalogue> {
        let root = Store::at(place)?;
        Ok(match &self.catalogue {
            Some(elsewhere) => Catalogue::elsewhere(root, Store::at(elsewhere)?),
            None => Catalogue::beside(root)?,
        })
    }

    /// The catalogue of a place that has one.
    pub fn if_there(&self, place: &Path) -> anyhow::Result<Option<Catalogue>> {
        let is_folder = place.is_dir() || is_bucket(place);
        if !is_folder {
            return Ok(None);
        }
        let catalogue = self.of(place)?;
        Ok(catalogue.head()?.is_some().then_some(catalogue))
    }

    /// Whether one was named.
    pub fn is_named(&self) -> bool {
        self.catalogue.is_some()
    }
}

/// Whether a place is an address that may contain a catalogue: not one with the extension of a recording.
fn is_bucket(place: &Path) -> bool {
    let Some((_, path)) = place.to_str().and_then(|text| text.split_once("://")) else {
        return false;
    };
    let name = path.split(['?', '#']).next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    // A host alone is a bucket.
    !path.contains('?') && (!name.contains('/') || !last.contains('.'))
}
