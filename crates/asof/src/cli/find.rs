//! `asof find`

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use asof_core::{Stamp, TimeRange};
use asof_serve::Annotations;
use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::Outcome;
use super::numbers::{duration, shown};
use super::place;
use super::screen::{Screen, output};

/// Find moments that people have marked in recordings
///
/// Looks into the annotations that were made in the page (run.mcap.annotations.json beside run.mcap) and into those that
/// `asof convert` has put into a file. One line for each: the recording, when, for how long, the text. Folders are looked
/// through with all that is in them. Without a match the exit code is 1.
///
/// With --json, one object a line: place, start, end (nanoseconds since the epoch), text.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof find runs/ --text slips
  asof find run.mcap --json | jq -r .start")]
pub struct Find {
    /// Recordings, or folders of them
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// Only annotations with all these words, whatever their case
    #[arg(long, value_name = "WORDS")]
    text: Option<String>,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// A moment that was marked.
struct Moment {
    range: TimeRange,
    text: String,
}

/// How deep folders are looked through.
const DEEPEST: usize = 16;

impl Find {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let words: Vec<String> = self
            .text
            .iter()
            .flat_map(|text| text.split_whitespace().map(str::to_lowercase))
            .collect();
        let mut files = Vec::new();
        for place in &self.places {
            if place.is_dir() {
                recordings_in(place, 0, &mut files)
                    .with_context(|| format!("cannot look into {}", place.display()))?;
            } else {
                files.push(place.clone());
            }
        }
        let mut out = output();
        let mut found = 0_u64;
        let mut is_damaged = false;
        for file in files {
            let moments = match moments_of(&file) {
                Ok(moments) => moments,
                // One that cannot be read does not hide the others.
                Err(error) if self.places.len() > 1 || self.places[0].is_dir() => {
                    is_damaged = true;
                    screen.warning(format_args!("{error:#}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for moment in moments {
                let text = moment.text.to_lowercase();
                if words.iter().all(|word| text.contains(word)) {
                    found += 1;
                    out.write_all(self.line(&file, &moment).as_bytes())?;
                }
            }
        }
        out.flush()?;
        if found == 0 {
            screen.note("no annotation matches");
            return Ok(Outcome::Failed);
        }
        Ok(if is_damaged {
            Outcome::Damaged
        } else {
            Outcome::Done
        })
    }

    fn line(&self, file: &Path, moment: &Moment) -> String {
        let TimeRange { start, end } = moment.range;
        let place = file.display().to_string();
        if self.json {
            let line = json!({
                "place": place, "start": start.nanos(), "end": end.nanos(), "text": moment.text,
            });
            return format!("{line}\n");
        }
        let long = match end.since(start) {
            0 => "-".to_owned(),
            nanos => duration(nanos),
        };
        format!(
            "{}  {start}  {long}  {}\n",
            shown(&place),
            shown(&moment.text)
        )
    }
}

/// What was marked in a recording: beside it, and in it.
fn moments_of(file: &Path) -> anyhow::Result<Vec<Moment>> {
    let recording = place::open(file)?;
    let mut moments: Vec<Moment> = Annotations::read(&Annotations::beside(file))?
        .all()
        .iter()
        .map(|note| Moment {
            range: note.range,
            text: note.text.clone(),
        })
        .collect();
    for entry in &recording.summary().metadata {
        if entry.name != Annotations::METADATA {
            continue;
        }
        let notes = recording.metadata(entry)?;
        moments.extend(notes.values().filter_map(|note| moment_in(note)));
    }
    moments.sort_by_key(|moment| moment.range.start);
    Ok(moments)
}

/// A note as metadata has it; `None` where it is not one.
fn moment_in(note: &str) -> Option<Moment> {
    #[derive(Deserialize)]
    struct Note {
        start: String,
        end: String,
        text: String,
    }
    let note: Note = serde_json::from_str(note).ok()?;
    let at = |text: &str| text.parse().map(Stamp::from_nanos).ok();
    Some(Moment {
        range: TimeRange::new(at(&note.start)?, at(&note.end)?),
        text: note.text,
    })
}

/// The recordings below a folder, by name.
fn recordings_in(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = std::fs::read_dir(folder)?;
    let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    inside.sort();
    for path in inside {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_link = path.is_symlink();
        if path.is_dir() && !is_link && depth < DEEPEST {
            recordings_in(&path, depth + 1, files)?;
        } else if matches!(extension, Some("mcap" | "bag" | "db3" | "ulg")) && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}
