//! `asof convert`

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use asof::Recording;
use asof::files::{ConvertReport, refuse_input, refuse_other_format};
use asof::formats::ConvertOptions;
use asof::problems::problems_as_json;
use asof::{Problem, Query, Topics};
use asof_serve::Annotations;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Outcome;
use super::completions;
use super::failure::Usage;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::{Palette, Screen};
use super::select::{Patterns, Select, no_topic, parse_patterns};
use super::writing::{Chunks, tell};
use asof::text::{bytes, counted, shown};

/// Convert recordings of any format into one MCAP file, in order of time
///
/// Several places are merged. Memory is bounded however large or disordered they are: what does not fit
/// is sorted in temporary files beside the output. With --start, messages that were latched before it (such as
/// /tf_static) are put at the beginning. The new file appears when it is complete.
///
/// ROS 1 messages stay as they are. With --to ros2 they become what ROS 2 would have recorded: standard types as
/// ROS 2 defines them, and the robot's own types with their definitions rewritten for ROS 2. A type that differs
/// from its namesake in ROS 2 stays as it is and is reported.
///
/// Annotations made in the page, in run.mcap.annotations.json beside a recording, become metadata of the new file.
///
/// With --json, one object: places, output, size, start, end (nanoseconds since the epoch; null without
/// messages), messages, latched, transcoded, kept (types that stayed, with their count and the reason),
/// attachments, metadata, sorted_on_disk, problems.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag that a person gives or not"
)]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof convert run.bag -o run.mcap --to ros2
  asof convert day1/ day2.db3 -o both.mcap --topics '/tf*,/odom' --start +10s --compression lz4
  asof convert zenoh://192.168.1.5:7447 -o run.mcap --topics '/scan,/tf*' --for 30s")]
pub struct Convert {
    /// Recordings: files, or folders of them; and running robots: zenoh://host:port
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The file to write
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    select: Select,

    /// Leave out these topics: names or globs, separated by commas
    #[arg(long, value_name = "A,B", value_parser = parse_patterns, add = completions::topics())]
    exclude: Option<Patterns>,

    /// Rename a topic; may be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_rename)]
    rename: Vec<(String, String)>,

    /// Rewrite ROS 1 messages as this. ROS 2 definitions in a folder of --msg-path are preferred to those made from the
    /// recording's own
    #[arg(long, value_enum, value_name = "NAME")]
    to: Option<Dialect>,

    /// Also write metadata.yaml beside the output, so that its folder is a ROS 2 bag
    #[arg(long)]
    metadata_yaml: bool,

    #[command(flatten)]
    chunks: Chunks,

    /// Copy attachments, which is the default
    #[arg(long, overrides_with = "no_attachments")]
    include_attachments: bool,

    /// Leave attachments out
    #[arg(long, overrides_with = "include_attachments")]
    no_attachments: bool,

    /// Copy metadata, which is the default
    #[arg(long, overrides_with = "no_metadata")]
    include_metadata: bool,

    /// Leave metadata out
    #[arg(long, overrides_with = "include_metadata")]
    no_metadata: bool,

    /// Do not put messages latched before --start at the beginning
    #[arg(long)]
    no_latched: bool,

    #[command(flatten)]
    opening: Opening,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What messages are rewritten as.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Dialect {
    /// CDR, with the definitions of ROS 2
    Ros2,
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
    transcoded: u64,
    kept: Vec<ForeignTypeRow>,
    attachments: u64,
    metadata: u64,
    sorted_on_disk: bool,
    #[serde(serialize_with = "problems_as_json")]
    problems: Vec<Problem>,
}

/// A ROS 1 type that stayed as it is.
#[derive(Serialize)]
struct ForeignTypeRow {
    #[serde(rename = "type")]
    name: String,
    messages: u64,
    reason: String,
}

const BAR: &str = "converting [{bar:40}] {human_pos}/{human_len} messages {eta}";

impl Convert {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        refuse_other_format(&self.output)?;
        self.refuse_two_names()?;
        for place in &self.places {
            refuse_input(place, &self.output, "converted")?;
        }
        self.chunks.check(screen);
        let definitions = self.opening.definitions(screen)?;
        let wanted = TopicRequest::chosen(self.select.patterns());
        let recording = self
            .opening
            .open(&self.places, &wanted, Purpose::ReadOnce, screen)?;
        let mut recording = Recording::new(recording, &self.places);
        let notes = notes_beside(&self.places, screen);
        if !notes.is_empty() {
            recording = recording.with_metadata(Annotations::METADATA, notes);
        }
        let recording = recording.with_progress(screen.reports(BAR));
        let options = asof::files::ConvertOptions {
            conversion: ConvertOptions {
                definitions,
                ..self.options(&recording, screen)?
            },
            writer: self.chunks.options(),
            force: self.force,
            metadata_yaml: self.metadata_yaml,
        };
        let written = recording.convert(&self.output, &options)?;
        let done = self.done(&recording, written);
        tell(&done, &done.problems, self.json, screen, print)
    }

    fn options(&self, recording: &Recording, screen: &Screen) -> anyhow::Result<ConvertOptions> {
        let summary = recording.summary();
        let Query { mut topics, range } = self.select.query(&self.places[0], recording, screen)?;
        if let Some(excluded) = &self.exclude {
            excluded.check(&self.places[0], &summary.topics(), screen)?;
            let kept = summary
                .topics()
                .into_iter()
                .filter(|topic| topics.contains(topic) && !excluded.is_match(topic));
            topics = Topics::named(kept);
        }
        self.check_renames(&summary.topics(), &topics, screen)?;
        Ok(ConvertOptions {
            query: Query { topics, range },
            follow: true,
            rename: self.rename.iter().cloned().collect::<BTreeMap<_, _>>(),
            to_ros2: self.to.is_some(),
            attachments: !self.no_attachments,
            metadata: !self.no_metadata,
            keep_latched: !self.no_latched,
            ..ConvertOptions::default()
        })
    }

    fn refuse_two_names(&self) -> anyhow::Result<()> {
        let mut names = BTreeMap::new();
        for (old, new) in &self.rename {
            if let Some(other) = names.insert(old, new).filter(|&other| other != new) {
                return Err(Usage::error(format!(
                    "--rename gives '{old}' two names, '{other}' and '{new}'; choose one"
                )));
            }
        }
        Ok(())
    }

    /// Refuses a new name for a topic that is not there, and notes one that is shared by several.
    fn check_renames(
        &self,
        known: &[&str],
        chosen: &Topics,
        screen: &Screen,
    ) -> anyhow::Result<()> {
        let new_name = |topic: &str| {
            let found = self.rename.iter().find(|(old, _)| old == topic);
            found.map_or(topic.to_owned(), |(_, new)| new.clone())
        };
        for (old, new) in &self.rename {
            if !known.contains(&old.as_str()) {
                return Err(no_topic(old, &self.places[0], known));
            }
            // When both are renamed, one note is enough.
            let is_said = |topic: &str| new_name(topic) != topic && topic < old.as_str();
            let other = known.iter().find(|topic| {
                let is_other = **topic != old && chosen.contains(topic) && !is_said(topic);
                is_other && new_name(topic) == *new
            });
            if let Some(other) = other.filter(|_| chosen.contains(old)) {
                screen.note(format_args!(
                    "'{old}' and '{other}' are both written as '{new}'"
                ));
            }
        }
        Ok(())
    }

    fn done(&self, recording: &Recording, written: ConvertReport) -> Done {
        let ConvertReport { size, converted } = written;
        let range = Some(converted.range).filter(|range| !range.is_empty());
        let kept = converted
            .kept
            .into_iter()
            .map(|(name, kept)| ForeignTypeRow {
                name,
                messages: kept.messages,
                reason: kept.reason,
            });
        Done {
            places: recording.place_names(),
            output: self.output.display().to_string(),
            size,
            start: range.map(|range| range.start.nanos()),
            end: range.map(|range| range.end.nanos()),
            messages: converted.messages,
            latched: converted.latched,
            transcoded: converted.transcoded,
            kept: kept.collect(),
            attachments: converted.attachments,
            metadata: converted.metadata,
            sorted_on_disk: converted.sorted_on_disk,
            problems: [recording.summary().problems.clone(), converted.problems].concat(),
        }
    }
}

/// The annotations in files beside recordings.
fn notes_beside(places: &[PathBuf], screen: &Screen) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    for (index, place) in places.iter().enumerate() {
        if !place.is_file() {
            continue;
        }
        match Annotations::read(&Annotations::beside(place)) {
            // Numbers of several recordings are distinguished by the recording's own.
            Ok(found) if places.len() > 1 => {
                let found = found.metadata().into_iter();
                notes.extend(found.map(|(number, note)| (format!("{index}-{number}"), note)));
            }
            Ok(found) => notes.extend(found.metadata()),
            Err(error) => screen.warning(format_args!("annotations are skipped: {error}")),
        }
    }
    notes
}

fn print(out: &mut dyn Write, done: &Done, colors: Palette) -> io::Result<()> {
    let Palette { good, .. } = colors;
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
        let latched = counted(done.latched, "latched message");
        writeln!(out, "{latched} from before the start, put at the start")?;
    }
    if done.transcoded > 0 {
        let transcoded = counted(done.transcoded, "message");
        writeln!(out, "{transcoded} of ROS 1 converted to ROS 2")?;
    }
    for kept in &done.kept {
        let (messages, name) = (counted(kept.messages, "message"), shown(&kept.name));
        let reason = shown(&kept.reason);
        writeln!(out, "{messages} of {name} stayed as ROS 1: {reason}")?;
    }
    if done.sorted_on_disk {
        writeln!(
            out,
            "the messages were far out of order and were sorted on disk"
        )?;
    }
    Ok(())
}

fn parse_rename(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => {
            Ok((old.to_owned(), new.to_owned()))
        }
        _ => Err("give the old and the new name, such as /odom=/robot/odom".to_owned()),
    }
}
