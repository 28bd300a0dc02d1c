//! Folders and buckets of recordings: `asof index`, `asof tag`, and the catalogue queries of `asof find`.

mod index;
mod list;
#[cfg(feature = "sql")]
mod reading;
mod search;
mod tag;

use std::path::{Path, PathBuf};

use asof::{Fleet, FleetOptions};
use clap::Args;

pub use index::Index;
pub use list::FleetList;
#[cfg(feature = "sql")]
pub use reading::fleet_of;
pub use search::{LONG_COLUMNS, Searching, long_row};
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
    /// The fleet of the recordings below a place. Nothing is read yet.
    pub fn of(&self, place: &Path) -> anyhow::Result<Fleet> {
        Ok(Fleet::new(place, self.options())?)
    }

    /// The fleet of a place that has a catalogue.
    pub fn if_there(&self, place: &Path) -> anyhow::Result<Option<Fleet>> {
        Ok(Fleet::if_indexed(place, self.options())?)
    }

    fn options(&self) -> FleetOptions {
        FleetOptions {
            catalogue: self.catalogue.clone(),
            ..FleetOptions::default()
        }
    }

    /// Whether one was named.
    pub fn is_named(&self) -> bool {
        self.catalogue.is_some()
    }
}
