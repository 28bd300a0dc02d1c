//! `asof convert`

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use asof_core::{Problem, Query, Topics};
use asof_formats::{ConvertOptions, Converted, McapWriter, McapWriterOptions, Recording, convert};
use clap::Args;
use serde::Serialize;

use super::Outcome;
use super::newfile::{NewFile, refuse_same};
use super::numbers::{bytes, counted, shown};
use super::place::Opening;
use super::recover::CompressionChoice;
use super::report::problems_as_json;
use super::screen::{Palette, Screen, output};
use super::select::{Patterns, Select, parse_patterns};

/// Write recordings of any format into one MCAP file, in order of time
///
/// Several places are merged. Memory is bounded however large or disordered they are: what does not fit
/// is sorted in temporary files beside the output. Where a cut begins, what was latched before (such as
/// /tf_static) stands at its beginning. The new file appears when it is complete, and not before.
///
/// With --json, one object: places, output, size, start, end (nanoseconds since the epoch; null without
/// messages), messages, latched, attachments, metadata, sorted_on_disk, problems.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag that a person gives or not"
)]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof convert run.bag -o run.mcap
  asof convert day1/ day2.db3 -o both.mcap --topics '/tf*,/odom' --start +10s --compression lz4")]
pub struct Convert {
    /// Recordings: files, or folders of them
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The file to write
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    select: Select,

    /// Leave these topics out: names or globs, with commas between them
    #[arg(long, value_name = "A,B", value_parser = parse_patterns)]
    exclude: Option<Patterns>,

    /// Give a topic another name; may be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_rename)]
    rename: Vec<(String, String)>,

    /// How to compress it
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    compression: CompressionChoice,

    /// How hard to compress it: for zstd from 1 to 22; 0 is the compression's own default
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=22))]
    level: u32,

    /// About how large a chunk is before it is compressed: bytes, or with k or M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_size)]
    chunk_size: u64,

    /// Take attachments along, which is the default
    #[arg(long, overrides_with = "no_attachments")]
    include_attachments: bool,

    /// Leave attachments out
    #[arg(long, overrides_with = "include_attachments")]
    no_attachments: bool,

    /// Take metadata along, which is the default
    #[arg(long, overrides_with = "no_metadata")]
    include_metadata: bool,

    /// Leave metadata out
    #[arg(long, overrides_with = "include_metadata")]
    no_metadata: bool,

    /// Do not put what was latched before --start at the beginning
    #[arg(long)]
    no_latched: bool,

    #[command(flatten)]
    opening: Opening,

    /// Replace a file that is there already
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `convert --json` prints.
#[derive(Serialize)]
struct Done {
    places: Vec<String>,
    output: String,
    size: u64,
    start: Option<i64>,
    end: Option<i64>,
    messages: u64,
    latched: u64,
    attachments: u64,
    metadata: u64,
    sorted_on_disk: bool,
    #[serde(serialize_with = "problems_as_json")]
    problems: Vec<Problem>,
}

const BAR: &str = "converting [{bar:40}] {human_pos}/{human_len} messages {eta}";

impl Convert {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        for place in &self.places {
            refuse_input(place, &self.output)?;
        }
        let recording = self.opening.open_unmapped(&self.places)?;
        let new = NewFile::create(&self.output, |_| self.force)?;
        let converted = self.convert(&*recording, &new, screen)?;
        new.finish()?;
        let done = self.done(&*recording, converted)?;
        let mut out = output();
        if self.json {
            serde_json::to_writer(&mut out, &done).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            print(&mut out, &done, screen.palette())?;
        }
        out.flush()?;
        Ok(Outcome::of(&done.problems))
    }

    fn convert(
        &self,
        recording: &dyn Recording,
        new: &NewFile,
        screen: &Screen,
    ) -> anyhow::Result<Converted> {
        let summary = recording.summary();
        let failed = || format!("cannot write {}: is the disk full?", self.output.display());
        let options = McapWriterOptions {
            compression: self.compression.into(),
            level: self.level,
            chunk_size: self.chunk_size,
            chunk_age: None,
            profile: summary.profile.clone(),
        };
        let mut writer = McapWriter::new(new.writer()?, options).with_context(failed)?;
        let bar = screen.progress(summary.messages.unwrap_or(0), BAR);
        let options = self.options(recording, screen);
        let converted = convert(recording, &mut writer, &options, &mut |done| {
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let converted = converted?;
        writer.finish().with_context(failed)?;
        Ok(converted)
    }

    fn options(&self, recording: &dyn Recording, screen: &Screen) -> ConvertOptions {
        let summary = recording.summary();
        let Query { mut topics, range } = self.select.query(&self.places[0], &summary, screen);
        if let Some(excluded) = &self.exclude {
            let kept = summary
                .topics()
                .into_iter()
                .filter(|topic| topics.contains(topic) && !excluded.is_match(topic));
            topics = Topics::named(kept);
        }
        let known = summary.topics();
        for (old, _) in &self.rename {
            if !known.contains(&old.as_str()) {
                screen.note(format_args!("there is no topic '{old}' to rename"));
            }
        }
        ConvertOptions {
            query: Query { topics, range },
            rename: self.rename.iter().cloned().collect::<BTreeMap<_, _>>(),
            attachments: !self.no_attachments,
            metadata: !self.no_metadata,
            keep_latched: !self.no_latched,
            // Temporary files may be as large as the output, which has room beside it.
            temporary: Some(folder_of(&self.output)),
            ..ConvertOptions::default()
        }
    }

    fn done(&self, recording: &dyn Recording, converted: Converted) -> anyhow::Result<Done> {
        let written = std::fs::metadata(&self.output);
        let size = written
            .with_context(|| format!("cannot find {} any more", self.output.display()))?
            .len();
        let range = Some(converted.range).filter(|range| !range.is_empty());
        Ok(Done {
            places: self
                .places
                .iter()
                .map(|place| place.display().to_string())
                .collect(),
            output: self.output.display().to_string(),
            size,
            start: range.map(|range| range.start.nanos()),
            end: range.map(|range| range.end.nanos()),
            messages: converted.messages,
            latched: converted.latched,
            attachments: converted.attachments,
            metadata: converted.metadata,
            sorted_on_disk: converted.sorted_on_disk,
            problems: [recording.summary().problems.clone(), converted.problems].concat(),
        })
    }
}

/// A flood of problems is cut short for people; JSON has them all.
const PROBLEMS_SHOWN: usize = 20;

fn print(out: &mut impl Write, done: &Done, colors: Palette) -> io::Result<()> {
    let Palette { good, .. } = colors;
    for problem in done.problems.iter().take(PROBLEMS_SHOWN) {
        writeln!(out, "  {}", shown(&problem.to_string()))?;
    }
    if done.problems.len() > PROBLEMS_SHOWN {
        writeln!(out, "  and {} more", done.problems.len() - PROBLEMS_SHOWN)?;
    }
    writeln!(
        out,
        "{good}wrote{good:#} {}: {}, {}, {}, {}",
        done.output,
        counted(done.messages, "message"),
        counted(done.attachments, "attachment"),
        counted(done.metadata, "metadata record"),
        bytes(done.size),
    )?;
    if done.latched > 0 {
        let latched = counted(done.latched, "message");
        writeln!(
            out,
            "{latched} from before the start stand at it: they were latched"
        )?;
    }
    if done.sorted_on_disk {
        writeln!(
            out,
            "the messages were far out of order and were sorted on disk"
        )?;
    }
    Ok(())
}

/// Refuses to write over what is being read, also where that is a file in a folder.
fn refuse_input(place: &Path, output: &Path) -> anyhow::Result<()> {
    refuse_same(place, output)?;
    let Ok(entries) = std::fs::read_dir(place) else {
        return Ok(());
    };
    entries
        .flatten()
        .try_for_each(|entry| refuse_input(&entry.path(), output))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn parse_rename(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => {
            Ok((old.to_owned(), new.to_owned()))
        }
        _ => Err("give the old and the new name, such as /odom=/robot/odom".to_owned()),
    }
}

/// Bytes, also in thousands and millions of the kind that computers count.
fn parse_size(text: &str) -> Result<u64, String> {
    let explained = || "give a number of bytes, such as 500k or 4M".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(explained()),
    };
    let count: u64 = digits.parse().map_err(|_| explained())?;
    // A chunk's message indexes and the reader's memory have their limits.
    count
        .checked_mul(unit)
        .filter(|size| (1..=1 << 30).contains(size))
        .ok_or_else(explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_thousands_and_millions() {
        assert_eq!(parse_size("786432"), Ok(786_432));
        assert_eq!(parse_size("4M"), Ok(4 << 20));
        assert_eq!(parse_size("500k"), Ok(500 << 10));
        for odd in ["", "M", "4X", "-1", "0", "99999999999G"] {
            assert!(parse_size(odd).is_err(), "{odd}");
        }
    }
}
