//! Labels that users give to recordings.

use std::collections::{BTreeMap, BTreeSet};

use asof_core::Stamp;
use asof_core::spelling::nearest;

use crate::catalogue::Catalogue;
use crate::commit::{Changes, LabelChange};
use crate::error::CatalogueError;
use crate::tables::RecordingRow;

impl Catalogue {
    /// Labels a recording, without changing the file. The keys `robot`, `site` and `date` take precedence over path and
    /// metadata. Returns the new row of the recording.
    ///
    /// # Errors
    /// When the catalogue has no such recording, or cannot be changed.
    pub fn label(
        &self,
        recording: &str,
        set: BTreeMap<String, String>,
        removed: BTreeSet<String>,
        now: Stamp,
    ) -> Result<RecordingRow, CatalogueError> {
        let recording = self.path_of(recording)?;
        let labels = vec![LabelChange {
            recording: recording.clone(),
            set,
            removed,
        }];
        self.commit(
            &Changes {
                labels,
                ..Changes::default()
            },
            now,
        )?;
        let mut rows = self.recordings()?.into_iter();
        rows.find(|row| row.recording == recording)
            .ok_or_else(|| unknown(&recording, "; it was removed meanwhile"))
    }

    /// The path from the root of a recording, given by this path, by its address, or by the end of its path if that is
    /// unique.
    ///
    /// # Errors
    /// When there is none, or several.
    pub fn path_of(&self, named: &str) -> Result<String, CatalogueError> {
        let head = self.existing_head()?;
        let known = self.known.of(&self.store, &head)?;
        let all = || {
            known
                .iter()
                .flat_map(|part| part.iter())
                .map(|known| known.recording.as_str())
        };
        let trimmed = named.trim_start_matches("./");
        if let Some(found) = all().find(|&path| path == named || path == trimmed) {
            return Ok(found.to_owned());
        }
        let is_address = |path: &&str| {
            let address = self.root.address_of(path);
            address == named || self.root.shown_address_of(path) == named
        };
        if let Some(found) = all().find(is_address) {
            return Ok(found.to_owned());
        }
        let ends_so = |path: &&str| {
            let rest = path.strip_suffix(trimmed);
            !trimmed.is_empty() && rest.is_some_and(|rest| rest.ends_with('/'))
        };
        let mut ending = all().filter(ends_so);
        match (ending.next(), ending.next()) {
            (Some(found), None) => Ok(found.to_owned()),
            (Some(first), Some(second)) => {
                let hint = format!(
                    "; several paths end like this: {first}, {second}; give more of the path"
                );
                Err(unknown(named, &hint))
            }
            _ => Err(unknown(named, &hint(trimmed, all()))),
        }
    }
}

/// The path that was meant, by all of it or by its last name; else where the paths are listed.
fn hint<'a>(wanted: &str, paths: impl Iterator<Item = &'a str> + Clone) -> String {
    let name = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
    let near = nearest(wanted, paths.clone()).or_else(|| {
        let meant = nearest(wanted, paths.clone().map(name))?;
        paths.into_iter().find(|path| name(path) == meant)
    });
    match near {
        Some(path) => format!("; did you mean '{path}'?"),
        None => "; `asof find` lists its recordings, `asof index` adds new ones".to_owned(),
    }
}

fn unknown(recording: &str, hint: &str) -> CatalogueError {
    CatalogueError::UnknownRecording {
        recording: recording.to_owned(),
        hint: hint.to_owned(),
    }
}
