//! Folders and buckets of recordings: `asof index`, `asof tag`, and the catalogue queries of `asof find`.

mod index;
mod list;
#[cfg(feature = "sql")]
mod reading;
mod search;
mod tag;

use std::path::{Path, PathBuf};

use super::screen::Screen;
use asof::formats::OpenOptions;
use asof::{Fleet, FleetOptions};
use clap::Args;

pub use index::Index;
pub use list::FleetList;
#[cfg(feature = "sql")]
pub use reading::fleet_of;
pub use search::{LONG_COLUMNS, SearchFlags, long_row};
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

    /// The recordings of a folder or bucket as the page's list: from its catalogue, or from a temporary one. `None` for a place
    /// that is one recording.
    pub fn list(
        &self,
        place: &Path,
        open: OpenOptions,
        screen: &Screen,
    ) -> anyhow::Result<Option<FleetList>> {
        let options = FleetOptions {
            open,
            ..self.options()
        };
        if self.is_named() {
            let fleet = Fleet::new(place, options)?;
            fleet.catalogue().existing_head()?;
            return Ok(Some(FleetList::new(fleet)));
        }
        if let Some(fleet) = Fleet::if_indexed(place, options.clone())? {
            return Ok(Some(FleetList::new(fleet)));
        }
        match Fleet::places_below(place, options.clone())? {
            Some(_) => FleetList::without_catalogue(place, options, screen).map(Some),
            None => Ok(None),
        }
    }

    /// These places, and instead of a folder or bucket of recordings each of them: whether there is a catalogue makes no difference.
    /// Folders that cannot be searched are reported; returns whether there are any.
    pub fn each_recording(
        &self,
        places: &[PathBuf],
        screen: &Screen,
    ) -> anyhow::Result<(Vec<PathBuf>, bool)> {
        let (mut all, mut is_short) = (Vec::new(), false);
        for place in places {
            match Fleet::places_below(place, self.options())? {
                Some(below) => {
                    all.extend(below.places);
                    is_short |= !below.problems.is_empty();
                    for problem in below.problems {
                        screen.warning(problem);
                    }
                }
                None => all.push(place.clone()),
            }
        }
        Ok((all, is_short))
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
