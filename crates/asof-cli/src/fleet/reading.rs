//! The recordings of a catalogue, for verbs that read messages.

use std::path::Path;
use std::sync::Arc;

use asof_catalogue::{RecordingRow, Search};
use asof_formats::Recording;

use super::CataloguePlace;
use crate::place::Opening;
use crate::screen::Screen;
use asof::text::counted;

/// A recording of a catalogue.
pub struct Catalogued {
    /// Its address.
    pub name: String,
    pub recording: Arc<dyn Recording>,
    /// Its entry in the catalogue.
    pub row: RecordingRow,
}

/// The recordings of a folder or bucket that has a catalogue; `None` where it has none. Their contents are known, and each is
/// opened by its first reader. Those that could not be read when they were indexed are reported and left out, and so are
/// those that are gone.
pub fn recordings_of(
    place: &Path,
    catalogue: &CataloguePlace,
    opening: &Opening,
    screen: &Screen,
) -> anyhow::Result<Option<Vec<Catalogued>>> {
    let Some(catalogue) = catalogue.if_there(place)? else {
        return Ok(None);
    };
    let mut found = catalogue.find(&Search {
        with_vanished: true,
        ..Search::default()
    })?;
    let indexed = found.recordings.len();
    found.recordings.retain(|one| one.row.vanished.is_none());
    let gone = indexed - found.recordings.len();
    if gone > 0 {
        screen.note(format_args!(
            "{} that were indexed are gone and were left out; `asof find --vanished` lists them",
            counted(gone as u64, "recording")
        ));
    }
    let opened = catalogue.open_found(&found, &opening.unmapped(screen)?)?;
    let left_out = found.recordings.len() - opened.len();
    if left_out > 0 {
        screen.warning(format_args!(
            "{} could not be read when they were indexed and were left out; \
             `asof find --where 'format IS NULL'` lists them",
            counted(left_out as u64, "recording")
        ));
    }
    // Those that could be read, in the same order.
    let rows = found.recordings.into_iter().map(|found| found.row);
    let rows = rows.filter(|row| row.format.is_some());
    let catalogued = opened
        .into_iter()
        .zip(rows)
        .map(|(recording, row)| Catalogued {
            name: recording.place().to_owned(),
            recording: Arc::new(recording),
            row,
        });
    Ok(Some(catalogued.collect()))
}
