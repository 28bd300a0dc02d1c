//! `asof find`: recordings of a fleet, and moments in recordings.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray};
use asof::catalogue::{FoundRecording, SearchStats};
use asof::{Fleet, Stamp, TimeRange};
use asof_serve::Annotations;
use clap::Args;
use serde::Deserialize;

use super::Outcome;
use super::fleet::{LONG_COLUMNS, SearchFlags, long_row};
use super::place::{self, Purpose};
use super::screen::{Screen, output};
use asof::rows::{RowForm, RowWriter, write_columns};
use asof::text::{duration, shown};

/// Find recordings of a fleet, and annotated moments in recordings
///
/// For a folder or bucket with a catalogue (`asof index`), lists the matching recordings, one address per line, as input
/// for other commands; none of them is opened. With --text, lists the matching moments in them instead.
///
/// Moments are the annotations that were made in the page (run.mcap.annotations.json beside run.mcap) and those that
/// `asof convert` has put into a file. One line for each: the recording, its time, its duration, the text. Folders without a
/// catalogue are searched recursively. Without a match the exit code is 1.
///
/// With --json, one object per line: for a recording its entry in the catalogue (recording, address, start, end, messages,
/// robot, tags, topics, …), for a moment place, start, end (nanoseconds since the epoch), text.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof find s3://bucket/fleet --topics /bumper --since 2024-05-01 --robot r7
  asof find s3://bucket/fleet --robot r7 --print0 | xargs -0 -n 1 asof check
  asof find runs/ --text slips --json | jq -r .start")]
pub struct Find {
    /// Recordings, or folders of them
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// Only annotations with all these words, ignoring case
    #[arg(long, value_name = "WORDS")]
    text: Option<String>,

    #[command(flatten)]
    searching: SearchFlags,

    /// For recordings, also print start, duration, messages and robot before the address
    #[arg(short, long)]
    long: bool,

    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,

    /// Print only places, each followed by a NUL character, for `xargs -0`: names may contain spaces and line feeds
    #[arg(long, conflicts_with_all = ["json", "long"])]
    print0: bool,
}

/// An annotated moment.
struct Moment {
    range: TimeRange,
    text: String,
}

/// How deep folders are searched.
const MAX_FOLDER_DEPTH: usize = 16;

impl Find {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let words: Vec<String> = self
            .text
            .iter()
            .flat_map(|text| text.split_whitespace().map(str::to_lowercase))
            .collect();
        let mut files = Vec::new();
        let mut out = output();
        let mut found = 0_u64;
        let (mut rows, mut misnamed) = (Vec::new(), None);
        for place in &self.places {
            if let Some(fleet) = self.fleet_of(place)? {
                let recordings = self.searching.find(&fleet)?;
                if recordings.recordings.is_empty() && misnamed.is_none() {
                    misnamed = self.searching.misnamed(&fleet)?;
                }
                let SearchStats {
                    groups,
                    groups_read,
                } = recordings.stats;
                tracing::debug!(groups, groups_read, "searched the catalogue");
                for recording in recordings.recordings {
                    let address = fleet.address_of(&recording.row.recording);
                    if self.text.is_some() {
                        files.push(PathBuf::from(address));
                        continue;
                    }
                    found += 1;
                    if self.print0 {
                        write_place(&mut out, Path::new(&address))?;
                        continue;
                    }
                    if self.long && !self.json {
                        rows.push(long_row(&recording, &address));
                        continue;
                    }
                    out.write_all(self.recording_line(&fleet, &recording, &address).as_bytes())?;
                }
            } else if place.is_dir() {
                recordings_in(place, 0, &mut files)
                    .with_context(|| format!("cannot look into {}", place.display()))?;
            } else {
                files.push(place.clone());
            }
        }
        if !rows.is_empty() {
            // An address is copied, so nothing is cut.
            write_columns(
                &mut out,
                &LONG_COLUMNS,
                &rows,
                None,
                &screen.palette().title,
            )?;
        }
        let mut is_damaged = false;
        // One that cannot be read does not hide the others.
        let files_are_many = self.places.len() > 1 || files.len() > 1 || self.places[0].is_dir();
        for file in files {
            let mut moments = match moments_of(&file) {
                Ok(moments) => moments,
                Err(error) if files_are_many => {
                    is_damaged = true;
                    screen.warning(format_args!("{error:#}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            moments.retain(|moment| {
                let text = moment.text.to_lowercase();
                words.iter().all(|word| text.contains(word))
            });
            if self.print0 && !moments.is_empty() {
                found += 1;
                write_place(&mut out, &file)?;
                continue;
            }
            found += moments.len() as u64;
            self.write_moments(&file, &moments, &mut out)?;
        }
        out.flush()?;
        if let Some(error) = misnamed.filter(|_| found == 0) {
            return Err(error);
        }
        if found == 0 {
            let is_of_moments = self.text.is_some() || !self.searching.is_asked();
            screen.note(if is_of_moments {
                "no annotation matches"
            } else {
                "no recording matches"
            });
            return Ok(Outcome::Failed);
        }
        Ok(if is_damaged {
            Outcome::Damaged
        } else {
            Outcome::Done
        })
    }

    /// The fleet of a place: where it has a catalogue, or where only a catalogue can answer.
    fn fleet_of(&self, place: &Path) -> anyhow::Result<Option<Fleet>> {
        if self.searching.is_asked() {
            return self.searching.existing_fleet_of(place).map(Some);
        }
        self.searching.fleet_of(place)
    }

    fn recording_line(&self, fleet: &Fleet, found: &FoundRecording, address: &str) -> String {
        if self.json {
            format!("{}\n", fleet.found_as_json(found))
        } else {
            format!("{}\n", shown(address))
        }
    }

    /// Writes the moments of a recording, a line for each.
    fn write_moments(
        &self,
        file: &Path,
        moments: &[Moment],
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let text = |of: &dyn Fn(&Moment) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(moments.iter().map(of)))
        };
        let time = |of: fn(TimeRange) -> Stamp| -> ArrayRef {
            let times = moments.iter().map(|moment| of(moment.range).nanos());
            Arc::new(TimestampNanosecondArray::from_iter_values(times))
        };
        let mut columns = vec![
            ("place", text(&|_| file.display().to_string())),
            ("start", time(|range| range.start)),
        ];
        let (form, length) = if self.json {
            (RowForm::Json, ("end", time(|range| range.end)))
        } else {
            let length = text(&|moment| match moment.range.end.since(moment.range.start) {
                0 => "-".to_owned(),
                nanos => duration(nanos),
            });
            let form = RowForm::Lines {
                room: usize::MAX,
                is_pretty: false,
            };
            (form, ("duration", length))
        };
        columns.extend([length, ("text", text(&|moment| moment.text.clone()))]);
        let batch = RecordBatch::try_from_iter(columns)?;
        let mut rows = RowWriter::new(out, form, &batch.schema())?;
        rows.write(&batch)?;
        rows.finish()?;
        Ok(())
    }
}

/// A place as it is, and a NUL character after it.
fn write_place(out: &mut impl Write, place: &Path) -> std::io::Result<()> {
    out.write_all(place.as_os_str().as_encoded_bytes())?;
    out.write_all(&[0])
}

/// The annotations of a recording: beside it, and in it.
fn moments_of(file: &Path) -> anyhow::Result<Vec<Moment>> {
    let recording = place::open(file, Purpose::Read)?;
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

/// An annotation from metadata; `None` where it is not one.
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
        if path.is_dir() && !is_link && depth < MAX_FOLDER_DEPTH {
            recordings_in(&path, depth + 1, files)?;
        } else if matches!(extension, Some("mcap" | "bag" | "db3" | "ulg")) && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}
