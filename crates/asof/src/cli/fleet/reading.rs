//! The recordings of a catalogue, for verbs that read messages.

use std::path::Path;
use std::sync::Arc;

use asof_catalogue::{CataloguedRecording, Search};
use asof_formats::Recording;

use super::CataloguePlace;
use crate::cli::place::Opening;
use crate::cli::screen::Screen;

/// A recording with its address.
pub type Named = (String, Arc<dyn Recording>);

/// The recordings of a folder or bucket that has a catalogue, each with its address; `None` where it has none. What is in
/// them is known, and each is opened by the first that reads it. Those that could not be read when they were indexed are
/// told, and left out.
#[cfg_attr(
    not(feature = "sql"),
    allow(dead_code, reason = "only queries read many recordings")
)]
pub fn recordings_of(
    place: &Path,
    opening: &Opening,
    screen: &Screen,
) -> anyhow::Result<Option<Vec<Named>>> {
    let Some(catalogue) = CataloguePlace::default().if_there(place)? else {
        return Ok(None);
    };
    let found = catalogue.find(&Search::default())?;
    let opened = catalogue.open_found(&found, &opening.unmapped(screen)?)?;
    let left_out = found.recordings.len() - opened.len();
    if left_out > 0 {
        screen.warning(format_args!(
            "{left_out} recordings could not be read when they were indexed, and are left out; \
             `asof find --where 'format IS NULL'` lists them"
        ));
    }
    let named = |recording: CataloguedRecording| {
        let name = recording.place().to_owned();
        (name, Arc::new(recording) as Arc<dyn Recording>)
    };
    Ok(Some(opened.into_iter().map(named).collect()))
}
