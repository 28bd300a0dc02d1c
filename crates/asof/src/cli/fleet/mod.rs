//! Folders and buckets of recordings: `asof index`, `asof tag`, and what `asof find` asks of a catalogue.

mod index;
mod search;
mod tag;

use std::path::{Path, PathBuf};

use asof_catalogue::Catalogue;
use asof_formats::Store;
use clap::Args;

pub use index::Index;
pub use search::{Searching, found_as_json, long_line};
pub use tag::Tag;

/// Where a catalogue lies.
#[derive(Debug, Clone, Default, Args)]
pub struct CataloguePlace {
    /// Where the catalogue lies, if not in .asof beside the recordings: for buckets and web servers that nothing can be
    /// written to
    #[arg(long, value_name = "FOLDER")]
    catalogue: Option<PathBuf>,
}

impl CataloguePlace {
    /// The catalogue of the recordings below a place. Nothing is asked yet.
    pub fn of(&self, place: &Path) -> anyhow::Result<Catalogue> {
        let root = Store::at(place)?;
        Ok(match &self.catalogue {
            Some(elsewhere) => Catalogue::elsewhere(root, Store::at(elsewhere)?),
            None => Catalogue::beside(root)?,
        })
    }

    /// Whether one was named.
    pub fn is_named(&self) -> bool {
        self.catalogue.is_some()
    }
}
