//! `asof split`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use asof_core::{Problem, Query, Stamp, TimeRange};
use asof_formats::{ConvertOptions, Recording};
use clap::Args;
use jiff::SignedDuration;
use serde::Serialize;

use super::Outcome;
use super::failure::Usage;
use super::numbers::{bytes, counted};
use super::place::Opening;
use super::report::problems_as_json;
use super::screen::{Palette, Screen};
use super::select::Select;
use super::writing::{Chunks, folder_of, parse_size, refuse_input, tell, write};

/// Cut recordings into several MCAP files, by time or by size
///
/// Parts are named after the output: run.mcap becomes run_0.mcap, run_1.mcap, … Every message is in one of
/// them, except that what is latched where a part begins (such as /tf_static) stands at its beginning too, so
/// that each can be used alone. Attachments and metadata go into the first.
///
/// With --json, one object: places, parts (each with output, size, start, end, messages, latched), messages
/// (those that were latched before counted once), problems.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof split run.mcap -o parts/run.mcap --duration 60s
  asof split run.bag -o run.mcap --size 500M --topics '/camera/*,/tf*'")]
pub struct Split {
    /// Recordings: files, or folders of them
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// What the parts are named after
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// How long a part is: 60s, 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, required_unless_present = "size")]
    duration: Option<i64>,

    /// About how large a part becomes: bytes, or with k, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "duration")]
    size: Option<u64>,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    chunks: Chunks,

    #[command(flatten)]
    opening: Opening,

    /// Replace files that are there already
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `split --json` prints.
#[derive(Serialize)]
struct Done {
    places: Vec<String>,
    parts: Vec<Part>,
    messages: u64,
    #[serde(serialize_with = "problems_as_json")]
    problems: Vec<Problem>,
}

#[derive(Serialize)]
struct Part {
    output: String,
    size: u64,
    start: Option<i64>,
    end: Option<i64>,
    messages: u64,
    latched: u64,
}

const BAR: &str = "splitting [{bar:40}] {human_pos}/{human_len} messages";
/// More parts than this are a slip of the finger.
const MOST_PARTS: u64 = 10_000;

impl Split {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let recording = self.opening.open_unmapped(&self.places)?;
        let summary = recording.summary();
        let query = self.select.query(&self.places[0], &summary, screen);
        let whole = query.range.intersect(summary.range);
        self.refuse_too_many(whole)?;
        let mut done = Done {
            places: self
                .places
                .iter()
                .map(|place| place.display().to_string())
                .collect(),
            parts: Vec::new(),
            messages: 0,
            problems: Vec::new(),
        };
        let mut next = (!whole.is_empty()).then_some(whole.start);
        while let Some(start) = next {
            let range = TimeRange::new(start, self.end_of(start).min(whole.end));
            let query = Query {
                range,
                ..query.clone()
            };
            let after = self.write_part(&*recording, query, &mut done, screen)?;
            next = after.or_else(|| (range.end < whole.end).then(|| range.end.plus_nanos(1)));
        }
        if done.parts.is_empty() {
            screen.note("there is no message to write, so there are no parts");
        }
        done.problems
            .splice(0..0, recording.summary().problems.clone());
        tell(&done, &done.problems, self.json, screen, print)
    }

    /// The last instant of a part that starts then.
    fn end_of(&self, start: Stamp) -> Stamp {
        self.duration
            .map_or(Stamp::MAX, |duration| start.plus_nanos(duration - 1))
    }

    fn refuse_too_many(&self, whole: TimeRange) -> anyhow::Result<()> {
        let Some(duration) = self.duration.filter(|_| !whole.is_empty()) else {
            return Ok(());
        };
        let parts = whole.end.since(whole.start).unsigned_abs() / duration.unsigned_abs();
        if parts > MOST_PARTS {
            return Err(Usage::error(format!(
                "that would be {parts} parts; choose a longer --duration"
            )));
        }
        Ok(())
    }

    /// Writes one part; the time at which the next one starts, where the part's size decides that.
    fn write_part(
        &self,
        recording: &dyn Recording,
        query: Query,
        done: &mut Done,
        screen: &Screen,
    ) -> anyhow::Result<Option<Stamp>> {
        let path = part_of(&self.output, done.parts.len());
        for place in &self.places {
            refuse_input(place, &path)?;
        }
        let is_first = done.parts.is_empty();
        let options = ConvertOptions {
            query,
            bytes: self.size,
            attachments: is_first,
            metadata: is_first,
            temporary: Some(folder_of(&self.output)),
            ..ConvertOptions::default()
        };
        let writing = (self.chunks.options(), &options);
        let written = write(recording, &path, self.force, writing, (screen, BAR))?;
        let converted = written.converted;
        done.messages += converted.messages - converted.latched;
        done.problems.extend(converted.problems);
        let range = Some(converted.range).filter(|range| !range.is_empty());
        done.parts.push(Part {
            output: path.display().to_string(),
            size: written.size,
            start: range.map(|range| range.start.nanos()),
            end: range.map(|range| range.end.nanos()),
            messages: converted.messages,
            latched: converted.latched,
        });
        Ok(converted.next)
    }
}

fn print(out: &mut dyn Write, done: &Done, colors: Palette) -> io::Result<()> {
    let Palette { good, .. } = colors;
    for part in &done.parts {
        let (messages, size) = (counted(part.messages, "message"), bytes(part.size));
        writeln!(
            out,
            "{good}wrote{good:#} {}: {messages}, {size}",
            part.output
        )?;
    }
    let parts = counted(done.parts.len() as u64, "part");
    writeln!(out, "{} in {parts}", counted(done.messages, "message"))
}

/// `run.mcap` and 2 make `run_2.mcap`.
fn part_of(output: &Path, number: usize) -> PathBuf {
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push(format!("_{number}."));
    name.push(output.extension().unwrap_or("mcap".as_ref()));
    output.with_file_name(name)
}

fn parse_duration(text: &str) -> Result<i64, String> {
    let explained = || "give a time, such as 60s, 5m or 1h30m".to_owned();
    let duration: SignedDuration = text.parse().map_err(|_| explained())?;
    let nanos = i64::try_from(duration.as_nanos()).map_err(|_| explained())?;
    (nanos > 0).then_some(nanos).ok_or_else(explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_numbered_before_the_extension() {
        assert_eq!(
            part_of(Path::new("a/run.mcap"), 2),
            Path::new("a/run_2.mcap")
        );
        assert_eq!(part_of(Path::new("run"), 10), Path::new("run_10.mcap"));
    }

    #[test]
    fn durations_are_positive() {
        assert_eq!(parse_duration("1m30s"), Ok(90_000_000_000));
        for odd in ["", "0s", "-5s", "5", "soon"] {
            assert!(parse_duration(odd).is_err(), "{odd}");
        }
    }
}
