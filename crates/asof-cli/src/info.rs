//! `asof info`

use std::io::{self, Write};
use std::path::PathBuf;

use asof::info::{RecordingInfo, TopicInfo};
use asof::{Recording, Stamp};
use clap::Args;

use super::Outcome;
use super::failure::Failures;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::{Palette, Screen, output, print_json, room};
use super::select::Select;
use asof::rows::{Column, wrapped, write_columns};
use asof::text::{bytes, counted, duration, grouped, hertz, shown};

/// Show what is in a recording: topics, types, counts, rates, times, size, problems
///
/// Only the file's summary is read, and a few messages, so this is as quick on 10 GB as on 10 MB. Rates are averages over
/// the whole recording. The bytes of a topic are those of its payloads, uncompressed: estimated from a few messages (~),
/// counted with --bytes. With --start or --end, the messages of that time are read and counted.
///
/// For a running robot, messages and rates are those of two seconds of listening; --for listens longer.
///
/// With --json, one object per line for each place: path, format, size, start and end (nanoseconds since
/// the epoch; null without messages), duration (seconds), messages, chunks, compression, topics,
/// attachments, metadata, problems. A rate (hz) is 0 for fewer than two messages. With --merge, there is one
/// object for all places.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof info run.mcap
  asof info front.bag rear.db3 --merge --topics '/camera/*' --json
  asof info zenoh://192.168.1.5:7447 --for 10s")]
pub struct Info {
    /// Recordings, and running robots: zenoh://host:port
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    opening: Opening,

    /// Show several recordings merged into one, as other commands read them
    #[arg(long)]
    merge: bool,

    /// Count the bytes of each topic, by reading all messages
    #[arg(long)]
    bytes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Info {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        if self.merge {
            let report = self.report(&self.places, screen)?;
            show(&report, self.json, screen)?;
            return Ok(Outcome::of(&report.problems));
        }
        let mut outcome = Outcome::Done;
        let mut failures = Failures::default();
        for (index, place) in self.places.iter().enumerate() {
            if index > 0 && !self.json {
                writeln!(io::stdout())?;
            }
            match self.report(std::slice::from_ref(place), screen) {
                Ok(report) => {
                    show(&report, self.json, screen)?;
                    if !report.problems.is_empty() {
                        outcome = Outcome::Damaged;
                    }
                }
                Err(error) => failures.add(error, screen),
            }
        }
        failures.or(outcome)
    }

    fn report(&self, places: &[PathBuf], screen: &Screen) -> anyhow::Result<RecordingInfo> {
        let wanted = TopicRequest::chosen(self.select.patterns());
        let file = self.opening.open(places, &wanted, Purpose::Look, screen)?;
        let recording = Recording::new(file, places);
        let query = self.select.query(&places[0], &recording, screen)?;
        let is_all = self.select.is_all_of_time();
        Ok(if is_all && !self.bytes {
            recording.info(&query)?
        } else {
            recording.counted_info(&query, is_all)?
        })
    }
}

/// Prints a report, for programs or for people.
pub fn show(report: &RecordingInfo, json: bool, screen: &Screen) -> anyhow::Result<()> {
    if json {
        return print_json(report);
    }
    let mut out = output();
    print(&mut out, report, screen.palette())?;
    Ok(out.flush()?)
}

/// Where the values begin, and the later lines of a problem.
const LABEL_WIDTH: usize = 15;
const PROBLEM_INDENT: usize = 4;

fn print(out: &mut impl Write, report: &RecordingInfo, colors: Palette) -> io::Result<()> {
    let Palette {
        title, label, bad, ..
    } = colors;
    writeln!(out, "{title}{}{title:#}", shown(&report.path))?;
    let room = room();
    // Any value can hold names from the file.
    let mut line = |name: &str, value: String| {
        let value = wrapped(&shown(&value), LABEL_WIDTH, room);
        writeln!(out, "  {label}{name:<12}{label:#} {value}")
    };
    line("format", format_of(report))?;
    line("size", bytes(report.size))?;
    if let Some((start, end)) = report.start.zip(report.end) {
        let (start, end) = (Stamp::from_nanos(start), Stamp::from_nanos(end));
        line("start", start.to_string())?;
        line("end", end.to_string())?;
        line("duration", duration(end.since(start)))?;
    }
    line(
        "messages",
        report.messages.map_or("unknown".to_owned(), grouped),
    )?;
    if report.chunks > 0 {
        line(
            "chunks",
            format!("{}, {}", grouped(report.chunks), report.compression),
        )?;
    }
    if let [first, ..] = &report.topics[..]
        && is_of_one_encoding(&report.topics)
    {
        line("encoding", or_dash(&first.encoding).to_owned())?;
    }
    for entry in &report.attachments {
        let (name, size) = (&entry.name, bytes(entry.size));
        line(
            "attachment",
            format!("{name} ({}, {size})", or_dash(&entry.media_type)),
        )?;
    }
    for entry in &report.metadata {
        line("metadata", entry.name.clone())?;
    }
    for (name, value) in &report.robot {
        line("robot", format!("{name}: {value}"))?;
    }
    for (name, value) in &report.parameters {
        line("parameter", format!("{name} = {value}"))?;
    }
    for (topic, nodes) in &report.publishers {
        line("publisher", format!("{topic} by {nodes}"))?;
    }
    for (topic, stamps) in &report.stamps {
        line("stamps", format!("{topic}: {stamps}"))?;
    }
    if !report.topics.is_empty() {
        writeln!(out)?;
        print_topics(out, &report.topics, room, colors)?;
    }
    if !report.problems.is_empty() {
        let total = counted(report.problems.len() as u64, "problem");
        writeln!(out, "\n  {bad}{total}{bad:#}")?;
        for problem in &report.problems {
            let problem = wrapped(&shown(&problem.to_string()), PROBLEM_INDENT, room);
            writeln!(out, "  {problem}")?;
        }
    }
    Ok(())
}

fn format_of(report: &RecordingInfo) -> String {
    let mut text = report.format.clone();
    if !report.profile.is_empty() {
        text.push_str(", profile ");
        text.push_str(&report.profile);
    }
    if !report.library.is_empty() {
        text.push_str(", written by ");
        text.push_str(&report.library);
    }
    text
}

/// Whether all topics have one encoding, which is said once then.
fn is_of_one_encoding(topics: &[TopicInfo]) -> bool {
    topics
        .windows(2)
        .all(|pair| pair[0].encoding == pair[1].encoding)
}

fn print_topics(
    out: &mut impl Write,
    topics: &[TopicInfo],
    room: Option<usize>,
    colors: Palette,
) -> io::Result<()> {
    let name = |name| (name, Column::LEFT.cut_in_the_middle(8));
    let mut columns = vec![name("topic"), name("type")];
    let has_encoding = !is_of_one_encoding(topics);
    if has_encoding {
        columns.push(name("encoding"));
    }
    columns.extend(["messages", "Hz", "bytes"].map(|name| (name, Column::RIGHT)));
    let row = |entry: &TopicInfo| {
        let mut cells = vec![
            shown(&entry.topic).into_owned(),
            shown(or_dash(&entry.type_name)).into_owned(),
        ];
        if has_encoding {
            cells.push(shown(or_dash(&entry.encoding)).into_owned());
        }
        let rate = entry.hz.filter(|&hz| hz > 0.0);
        let size = match (entry.bytes, entry.bytes_estimate) {
            (Some(count), _) => bytes(count),
            (None, Some(count)) => format!("~{}", bytes(count)),
            (None, None) => "-".to_owned(),
        };
        cells.extend([
            entry.messages.map_or("unknown".to_owned(), grouped),
            rate.map_or("-".to_owned(), hertz),
            size,
        ]);
        cells
    };
    let rows: Vec<Vec<String>> = topics.iter().map(row).collect();
    write_columns(out, &columns, &rows, room, &colors.title)?;
    if topics.iter().any(|entry| entry.bytes_estimate.is_some()) {
        let label = colors.label;
        let note = "~ is estimated from a few messages; --bytes counts";
        let note = wrapped(note, PROBLEM_INDENT, room);
        writeln!(out, "  {label}{note}{label:#}")?;
    }
    Ok(())
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
