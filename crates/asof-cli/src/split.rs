//! `asof split`

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use asof_core::{Problem, Query, Stamp, TimeRange};
use asof_formats::{ConvertOptions, McapWriterOptions, Recording};
use clap::{ArgGroup, Args};
use jiff::SignedDuration;
use serde::Serialize;

use super::Outcome;
use super::failure::Usage;
use super::numbers::{bytes, counted};
use super::place::FileOpening;
use super::report::problems_as_json;
use super::screen::{Palette, Screen};
use super::select::Select;
use super::writing::{
    Chunks, folder_of, parse_size, refuse_input, refuse_other_format, tell, write,
};

/// Split recordings into several MCAP files, by time or by size
///
/// Parts are named after the output: run.mcap becomes run_0.mcap, run_1.mcap, … Every message is in one of
/// them, except that messages latched when a part begins (such as /tf_static) are also at its beginning, so
/// that each can be used alone. Attachments and metadata go into the first. If the output is a folder, parts
/// are named after the recording. Times without messages make no part.
///
/// With --json, one object: places, parts (each with output, size, start, end, messages, latched), messages
/// (latched ones counted once), problems.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof split run.mcap -o parts/run.mcap --duration 60s
  asof split run.bag -o parts/ --size 500M --topics '/camera/*,/tf*'")]
#[command(group(ArgGroup::new("cut").required(true).args(["duration", "size"])))]
pub struct Split {
    /// Recordings: files, or folders of them
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The name that parts are derived from, or the folder for them
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Duration of a part: 60s, 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<i64>,

    /// Approximate size of a part: bytes, or with k, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    chunks: Chunks,

    #[command(flatten)]
    opening: FileOpening,

    /// Replace existing files
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
/// More parts than this are taken for a typing error.
const MOST_PARTS: u64 = 10_000;
/// How many parts are probed when there could be more: most may be empty, as between the drives of a year.
const MOST_PROBED_PARTS: u64 = 1_000;

impl Split {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let naming = Naming::of(&self.output, &self.places[0]);
        refuse_other_format(&naming.output)?;
        let earlier = self.earlier_parts(&naming)?;
        self.chunks.check(screen);
        let definitions = self.opening.definitions(screen)?;
        let recording = self.opening.open_once(&self.places, definitions, screen)?;
        naming.make_folder()?;
        let summary = recording.summary();
        let query = self.select.query(&self.places[0], &*recording, screen);
        let whole = query.range.intersect(summary.range);
        self.refuse_too_many(&*recording, &query, whole)?;
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
        while let Some(from) = next {
            let Some(start) = self.start_of_part(&*recording, &query, from, whole)? else {
                break;
            };
            let range = TimeRange::new(start, self.end_of(start).min(whole.end));
            let query = Query {
                range,
                ..query.clone()
            };
            let after = self
                .write_part(&*recording, query, &naming, &mut done, screen)
                .map_err(|error| with_finished(error, &done.parts))?;
            next = after.or_else(|| (range.end < whole.end).then(|| range.end.plus_nanos(1)));
        }
        if done.parts.is_empty() {
            screen.note("there are no messages to write, so there are no parts");
        }
        if let Some(first) = earlier
            .iter()
            .find(|(number, _)| *number >= done.parts.len())
        {
            screen.note(format_args!(
                "{} is from an earlier split; remove it and those after it if they are not wanted",
                first.1.display()
            ));
        }
        done.problems
            .splice(0..0, recording.summary().problems.clone());
        tell(&done, &done.problems, self.json, screen, print)
    }

    /// Existing files with the names of parts, by number. Refused before the first part is written.
    fn earlier_parts(&self, naming: &Naming) -> anyhow::Result<Vec<(usize, PathBuf)>> {
        let earlier = naming.existing();
        for (_, path) in &earlier {
            for place in &self.places {
                refuse_input(place, path, "split")?;
            }
            if !self.force {
                bail!(
                    "{} exists already; name another file with -o, or replace it with --force",
                    path.display()
                );
            }
        }
        Ok(earlier)
    }

    /// Where the next part starts: parts by time follow each other without a gap, but none is empty.
    fn start_of_part(
        &self,
        recording: &dyn Recording,
        query: &Query,
        from: Stamp,
        whole: TimeRange,
    ) -> anyhow::Result<Option<Stamp>> {
        let rest = Query {
            range: TimeRange::new(from, whole.end),
            ..query.clone()
        };
        // The first message of an unordered recording is found by sorting all of it.
        if recording.bytes_held_by_order(&rest) > ConvertOptions::default().memory {
            return Ok(Some(from));
        }
        let mut first = None;
        for batch in recording.read(&rest)? {
            first = batch?.iter().next().map(|message| message.log_time);
            if first.is_some() {
                break;
            }
        }
        Ok(first.map(|first| match self.duration {
            Some(duration) => from.plus_nanos(first.since(from) / duration * duration),
            None => first,
        }))
    }

    /// The last instant of a part that starts then.
    fn end_of(&self, start: Stamp) -> Stamp {
        self.duration
            .map_or(Stamp::MAX, |duration| start.plus_nanos(duration - 1))
    }

    fn refuse_too_many(
        &self,
        recording: &dyn Recording,
        query: &Query,
        whole: TimeRange,
    ) -> anyhow::Result<()> {
        let Some(duration) = self.duration.filter(|_| !whole.is_empty()) else {
            return Ok(());
        };
        let parts = whole.end.since(whole.start).unsigned_abs() / duration.unsigned_abs();
        if parts <= MOST_PARTS {
            return Ok(());
        }
        let mut from = whole.start;
        for _ in 0..MOST_PROBED_PARTS {
            match self.start_of_part(recording, query, from, whole)? {
                Some(start) if self.end_of(start) < whole.end => {
                    from = self.end_of(start).plus_nanos(1);
                }
                _ => return Ok(()),
            }
        }
        Err(Usage::error(format!(
            "that would be up to {parts} parts; choose a longer --duration"
        )))
    }

    /// A part cannot be smaller than a chunk.
    fn writer_options(&self) -> McapWriterOptions {
        let options = self.chunks.options();
        let most = self.size.map_or(u64::MAX, |size| (size / 4).max(1));
        McapWriterOptions {
            chunk_size: options.chunk_size.min(most),
            ..options
        }
    }

    /// Writes one part; returns the start of the next one, where the part's size decides that.
    fn write_part(
        &self,
        recording: &dyn Recording,
        query: Query,
        naming: &Naming,
        done: &mut Done,
        screen: &Screen,
    ) -> anyhow::Result<Option<Stamp>> {
        let path = naming.part(done.parts.len());
        let is_first = done.parts.is_empty();
        let options = ConvertOptions {
            query,
            bytes: self.size,
            attachments: is_first,
            metadata: is_first,
            temporary: Some(folder_of(&naming.output)),
            ..ConvertOptions::default()
        };
        let writing = (self.writer_options(), &options);
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

/// An error in the middle, naming the parts that are complete: they are kept.
fn with_finished(error: anyhow::Error, parts: &[Part]) -> anyhow::Error {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return error;
    };
    let kept = match parts.len() {
        1 => format!("{} is complete and was kept", first.output),
        count => format!(
            "{count} parts are complete and were kept, {} to {}",
            first.output, last.output
        ),
    };
    let line = format!("{error}; {kept}");
    error.context(line)
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

/// The names of parts: `run.mcap` makes `run_0.mcap`, `run_1.mcap`, and so on.
struct Naming {
    output: PathBuf,
    /// Whether the output names a folder, with a trailing slash.
    is_folder: bool,
}

impl Naming {
    /// Parts in a folder are named after the recording.
    fn of(output: &Path, place: &Path) -> Self {
        let is_folder = output.is_dir() || output.to_string_lossy().ends_with('/');
        if !is_folder {
            return Naming {
                output: output.to_owned(),
                is_folder,
            };
        }
        let mut name = place.file_stem().unwrap_or("part".as_ref()).to_owned();
        name.push(".mcap");
        Naming {
            output: output.join(name),
            is_folder,
        }
    }

    /// Creates the folder if the output names one that does not exist yet.
    fn make_folder(&self) -> anyhow::Result<()> {
        let folder = folder_of(&self.output);
        if !self.is_folder || folder.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))
    }

    fn part(&self, number: usize) -> PathBuf {
        let mut name = self.output.file_stem().unwrap_or_default().to_owned();
        name.push(format!("_{number}."));
        name.push(self.output.extension().unwrap_or("mcap".as_ref()));
        self.output.with_file_name(name)
    }

    /// The files named like parts, in their order.
    fn existing(&self) -> Vec<(usize, PathBuf)> {
        let entries = std::fs::read_dir(folder_of(&self.output));
        let numbered = |name: &OsStr| {
            let (_, number) = Path::new(name).file_stem()?.to_str()?.rsplit_once('_')?;
            let number = number.parse().ok()?;
            let path = self.part(number);
            (path.file_name() == Some(name)).then_some((number, path))
        };
        let entries = entries.into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| numbered(&entry.file_name()))
            .collect();
        found.sort();
        found
    }
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
        let part = |output: &str, number| {
            Naming::of(Path::new(output), Path::new("day/drive.bag")).part(number)
        };
        assert_eq!(part("a/run.mcap", 2), Path::new("a/run_2.mcap"));
        assert_eq!(part("run", 10), Path::new("run_10.mcap"));
        assert_eq!(part("parts/", 0), Path::new("parts/drive_0.mcap"));
    }

    #[test]
    fn durations_are_positive() {
        assert_eq!(parse_duration("1m30s"), Ok(90_000_000_000));
        for odd in ["", "0s", "-5s", "5", "soon"] {
            assert!(parse_duration(odd).is_err(), "{odd}");
        }
    }
}
