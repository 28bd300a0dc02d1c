//! The catalogue of a place, for queries.

use std::path::Path;

use asof::sql::FleetPlace;
use asof::text::counted;
use asof::{Fleet, FleetOptions};

use super::CataloguePlace;
use crate::place::{Opening, Purpose};
use crate::screen::Screen;

/// The catalogue of a folder or bucket that has one; `None` where it has none. Its recordings are opened by their first readers. Those
/// that could not be read when they were indexed are reported and left out, and so are those that are gone; returns whether all
/// could be read.
pub fn fleet_of(
    place: &Path,
    catalogue: &CataloguePlace,
    opening: &Opening,
    screen: &Screen,
) -> anyhow::Result<Option<(FleetPlace, bool)>> {
    let options = FleetOptions {
        open: opening.options(Purpose::Hold, screen)?,
        ..catalogue.options()
    };
    let Some(fleet) = Fleet::if_indexed(place, options)? else {
        return Ok(None);
    };
    let contents = fleet.catalogue().contents()?;
    if contents.vanished > 0 {
        screen.note(format_args!(
            "left out: {} gone since the last `asof index`; `asof find --vanished` lists them",
            counted(contents.vanished, "recording")
        ));
    }
    if contents.unreadable > 0 {
        screen.warning(format_args!(
            "left out: {} that the last `asof index` could not read; \
             `asof find --where 'format IS NULL'` lists them",
            counted(contents.unreadable, "recording")
        ));
    }
    Ok(Some((fleet.for_sql(), contents.unreadable == 0)))
}
