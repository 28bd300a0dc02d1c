//! `asof info`

use std::io::{self, Write};
use std::path::PathBuf;

use asof::formats::Recording;
use asof::{Growth, Stamp};
use clap::Args;

use super::Outcome;
use super::failure::Failures;
use super::layers::LayerChoice;
use super::place::{Opening, Purpose, Wanted};
use super::report::{Report, TopicReport};
use super::screen::{Palette, Screen, output};
use super::select::Select;
use super::writing::print_problems;
use asof::text::{bytes, counted, duration, grouped, hertz, shown};

/// Show what is in a recording: topics, types, counts, rates, times, size, problems
///
/// Only the file's summary is read, so this is as quick on 10 GB as on 10 MB. Rates are averages over
/// the whole recording. With --start or --end, the messages of that time are read and counted instead.
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
    #[arg(long, conflicts_with = "layers")]
    merge: bool,

    /// Show which layer decodes which topic, and why; and the file's own layers
    #[arg(long)]
    layers: bool,

    #[command(flatten)]
    choice: LayerChoice,

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
            if self.layers {
                if let Err(error) = self.show_layers(place, screen) {
                    failures.add(error, screen);
                }
                continue;
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

    /// One line for each topic: the layer that takes it, and why; the layers that declined before, and why.
    fn show_layers(&self, place: &PathBuf, screen: &Screen) -> anyhow::Result<()> {
        let file = self.open(std::slice::from_ref(place), screen)?;
        let summary = file.summary();
        let query = self.select.query(place, &*file, screen);
        let layers = self.choice.of(asof::decode::Layers::standard())?;
        let mut out = output();
        for assignment in layers.plan(&summary) {
            let topic = &assignment.channel.topic;
            if !query.topics.contains(topic) {
                continue;
            }
            let layer = assignment.layer.as_deref().unwrap_or("none");
            if self.json {
                let declined: Vec<_> = assignment
                    .declined
                    .iter()
                    .map(|(layer, reason)| serde_json::json!({"layer": &**layer, "reason": reason}))
                    .collect();
                let line = serde_json::json!({
                    "topic": topic, "type": assignment.channel.type_name(), "layer": layer,
                    "reason": assignment.reason, "declined": declined,
                });
                writeln!(out, "{line}")?;
                continue;
            }
            writeln!(
                out,
                "{}  {layer}: {}",
                shown(topic),
                shown(&assignment.reason)
            )?;
            for (layer, reason) in &assignment.declined {
                writeln!(out, "    not {layer}: {}", shown(reason))?;
            }
        }
        // Contents are not read: attachments can be large.
        let mut tables: Vec<(&str, u64)> = Vec::new();
        for batch in layers.file_tables(&*file, &()) {
            let (layer, batch) = batch?;
            let rows = batch.num_rows() as u64;
            match tables.last_mut() {
                Some((last, count)) if *last == layer => *count += rows,
                _ => tables.push((layer, rows)),
            }
        }
        for (layer, rows) in tables {
            let reason = counted(rows, "row");
            if self.json {
                let line = serde_json::json!({
                    "topic": null, "type": null, "layer": layer, "reason": reason, "declined": [],
                });
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "(the file)  {layer}: {reason}")?;
            }
        }
        Ok(out.flush()?)
    }

    fn open(&self, places: &[PathBuf], screen: &Screen) -> anyhow::Result<Box<dyn Recording>> {
        let wanted = Wanted::chosen(self.select.patterns());
        self.opening.open(places, &wanted, Purpose::Look, screen)
    }

    fn report(&self, places: &[PathBuf], screen: &Screen) -> anyhow::Result<Report> {
        let file = self.open(places, screen)?;
        let summary = file.summary();
        let query = self.select.query(&places[0], &*file, screen);
        let names: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        let name = PathBuf::from(names.join(", "));
        let mut report = if self.select.is_all_of_time() {
            Report::of_summary(&name, &summary, &query)
        } else {
            Report::of_messages(&name, &*file, &query)?
        };
        // A robot's metadata is its current state; that of a file is printed by `cat --metadata`.
        if file.growth() == Growth::Growing {
            for entry in &summary.metadata {
                let told = match entry.name.as_str() {
                    "parameters" => &mut report.parameters,
                    "robot" => &mut report.robot,
                    "publishers" => &mut report.publishers,
                    "stamps" => &mut report.stamps,
                    _ => continue,
                };
                *told = file.metadata(entry)?;
            }
        }
        Ok(report)
    }
}

/// Prints a report, for programs or for people.
pub fn show(report: &Report, json: bool, screen: &Screen) -> anyhow::Result<()> {
    let mut out = output();
    if json {
        serde_json::to_writer(&mut out, report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&mut out, report, screen.palette())?;
    }
    Ok(out.flush()?)
}

fn print(out: &mut impl Write, report: &Report, colors: Palette) -> io::Result<()> {
    let Palette {
        title, label, bad, ..
    } = colors;
    writeln!(out, "{title}{}{title:#}", shown(&report.path))?;
    // Any value can hold names from the file.
    let mut line = |name: &str, value: String| {
        let value = shown(&value);
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
        print_topics(out, &report.topics, title)?;
    }
    if !report.problems.is_empty() {
        let total = counted(report.problems.len() as u64, "problem");
        writeln!(out, "\n  {bad}{total}{bad:#}")?;
        print_problems(out, &report.problems)?;
    }
    Ok(())
}

fn format_of(report: &Report) -> String {
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

/// The widest column. A longer name widens only its own line.
const MAX_COLUMN_WIDTH: usize = 120;

fn print_topics(
    out: &mut impl Write,
    topics: &[TopicReport],
    title: anstyle::Style,
) -> io::Result<()> {
    let head = ["topic", "type", "encoding", "messages", "Hz"].map(str::to_owned);
    let row = |entry: &TopicReport| {
        let rate = entry.hz.filter(|&hz| hz > 0.0);
        [
            shown(&entry.topic).into_owned(),
            shown(or_dash(&entry.type_name)).into_owned(),
            shown(or_dash(&entry.encoding)).into_owned(),
            entry.messages.map_or("unknown".to_owned(), grouped),
            rate.map_or("-".to_owned(), hertz),
        ]
    };
    let rows: Vec<[String; 5]> = topics.iter().map(row).collect();
    let mut widths = [0; 5];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count()).min(MAX_COLUMN_WIDTH);
        }
    }
    let [w0, w1, w2, w3, w4] = widths;
    let mut line = |[topic, type_name, encoding, messages, hz]: &[String; 5],
                    style: anstyle::Style| {
        writeln!(
            out,
            "  {style}{topic:<w0$}  {type_name:<w1$}  {encoding:<w2$}  {messages:>w3$}  {hz:>w4$}{style:#}"
        )
    };
    line(&head, title)?;
    rows.iter()
        .try_for_each(|row| line(row, anstyle::Style::new()))
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
