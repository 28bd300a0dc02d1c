//! The recordings of a catalogue, for verbs that read messages.

use std::path::Path;

use asof::catalogue::Search;
use asof::text::counted;
use asof::{Fleet, FleetOptions, FleetRecording};

use super::CataloguePlace;
use crate::place::{Opening, Purpose};
use crate::screen::Screen;

/// The recordings of a folder or bucket that has a catalogue; `None` where it has none. Their contents are known, and each is
/// opened by its first reader. Those that could not be read when they were indexed are reported and left out, and so are
/// those that are gone.
pub fn recordings_of(
    place: &Path,
    catalogue: &CataloguePlace,
    opening: &Opening,
    screen: &Screen,
) -> anyhow::Result<Option<Vec<FleetRecording>>> {
    let options = FleetOptions {
        open: opening.options(Purpose::Hold, screen)?,
        ..catalogue.options()
    };
    let Some(fleet) = Fleet::if_indexed(place, options)? else {
        return Ok(None);
    };
    let found = fleet.recordings(&Search::default())?;
    if found.gone > 0 {
        screen.note(format_args!(
            "{} that were indexed are gone and were left out; `asof find --vanished` lists them",
            counted(found.gone, "recording")
        ));
    }
    if found.unreadable > 0 {
        screen.warning(format_args!(
            "{} could not be read when they were indexed and were left out; \
             `asof find --where 'format IS NULL'` lists them",
            counted(found.unreadable, "recording")
        ));
    }
    Ok(Some(found.recordings))
}
