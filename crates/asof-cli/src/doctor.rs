//! `asof doctor`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use asof_core::{Channel, ChannelSummary, Problem, ProblemKind, Query};
use asof_decode::{ChannelReport, Decoder, Layers, Projection, SchemaError, TableOptions, Tables};
use asof_formats::Recording;
use clap::Args;
use serde::Serialize;

use super::Outcome;
use super::failure::Failures;
use super::live::is_robot;
use super::newfile::beside;
use super::numbers::{bytes, counted, shown};
use super::place::{Opening, Wanted, quoted};
use super::report::problems_as_json;
use super::screen::{Palette, Screen, output};

/// Check a recording: read all of it and verify that its parts agree
///
/// Records, checksums, chunks, indexes, statistics, attachments and metadata are checked, and every message is decoded.
/// Schemas that cannot be read and payloads that do not match them are problems too, with a count for each topic. Messages
/// in an unknown encoding, or of an undefined type, are counted: the file may be intact, but their contents were not
/// checked. --no-decode checks the file without decoding, which is faster.
/// The exit code is 0 for a healthy recording, and 3 for one that is damaged or has undecoded messages. Several
/// are checked one after the other.
///
/// For a running robot, it reports what two seconds of listening show (--for listens longer): topics with several types,
/// undefined types, clocks that are set back, and messages that exceed the memory limit.
///
/// With --json, one object per line for each place: path, healthy, messages (readable), undecoded (how many of
/// them cannot be decoded; null with --no-decode), unknown (topic, messages and reason of those without a
/// decoder), problems.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof doctor run.mcap
  asof doctor run.mcap --no-decode
  asof doctor run.mcap --json | jq '.problems[].kind'
  asof doctor zenoh://192.168.1.5:7447 --for 10s")]
pub struct Doctor {
    /// Recordings, and running robots: zenoh://host:port
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    opening: Opening,

    /// Also decode every message, which is the default
    #[arg(long, overrides_with = "no_decode")]
    decode: bool,

    /// Check the file without decoding its messages
    #[arg(long, overrides_with = "decode")]
    no_decode: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `doctor --json` prints.
#[derive(Serialize)]
struct Diagnosis {
    path: String,
    healthy: bool,
    messages: u64,
    /// Messages that can be read but not decoded; `None` where that was not tried.
    undecoded: Option<u64>,
    /// Those of them without a decoder.
    unknown: Vec<Unknown>,
    #[serde(serialize_with = "problems_as_json")]
    problems: Vec<Problem>,
    /// Whether something is wrong with the recording itself.
    #[serde(skip)]
    is_damaged: bool,
    #[serde(skip)]
    size: u64,
    #[serde(skip)]
    chunks: u64,
}

/// Messages of one channel without a decoder.
#[derive(Serialize)]
struct Unknown {
    topic: String,
    messages: u64,
    reason: String,
}

const BAR: &str = "checking [{bar:40}] {decimal_bytes}/{decimal_total_bytes} {eta}";

impl Doctor {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::Done;
        let mut failures = Failures::default();
        for place in &self.places {
            match self.check(place, screen) {
                Ok(Outcome::Done) => {}
                Ok(found) => outcome = found,
                Err(error) => failures.add(error, screen),
            }
        }
        failures.or(outcome)
    }

    fn check(&self, place: &Path, screen: &Screen) -> anyhow::Result<Outcome> {
        let file = self
            .opening
            .look_at(&[place.to_owned()], &Wanted::all(), screen)?;
        let bar = screen.progress(file.summary().size, BAR);
        let problems = file.check(&mut |done, _| bar.set_position(done));
        bar.finish_and_clear();
        let mut diagnosis = diagnosis(place, &*file, problems?)?;
        if !self.no_decode {
            diagnosis.decode(&*file)?;
        }
        let mut out = output();
        if self.json {
            serde_json::to_writer(&mut out, &diagnosis).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            print(&mut out, place, &diagnosis, screen.palette())?;
        }
        out.flush()?;
        Ok(if diagnosis.healthy {
            Outcome::Done
        } else {
            Outcome::Damaged
        })
    }
}

fn diagnosis(
    place: &Path,
    file: &dyn Recording,
    problems: Vec<Problem>,
) -> anyhow::Result<Diagnosis> {
    let summary = file.summary();
    let messages = match summary.messages {
        Some(messages) if problems.is_empty() => messages,
        // What a damaged file declares about itself is not reliable.
        _ => readable_messages(file)?,
    };
    Ok(Diagnosis {
        path: place.display().to_string(),
        healthy: problems.is_empty(),
        is_damaged: !problems.is_empty(),
        messages,
        undecoded: None,
        unknown: Vec::new(),
        problems,
        size: summary.size,
        chunks: summary.chunks,
    })
}

impl Diagnosis {
    /// Decodes every message, and adds those that fail to the problems, or to the unknown ones.
    fn decode(&mut self, file: &dyn Recording) -> anyhow::Result<()> {
        let options = TableOptions {
            layers: Layers::standard().only("reflection"),
            ..TableOptions::default()
        };
        let mut tables = Tables::read(file, &Query::all(), options)?;
        for batch in &mut tables {
            batch?;
        }
        let reports = tables.report();
        let undecoded = reports.iter().map(|report| self.take_note(report)).sum();
        self.undecoded = Some(undecoded);
        self.check_unused_schemas(file);
        self.healthy = self.problems.is_empty() && undecoded == 0;
        Ok(())
    }

    /// Adds what is wrong with a channel's messages; returns how many of them could not be decoded.
    fn take_note(&mut self, report: &ChannelReport) -> u64 {
        let channel = &report.assignment.channel;
        let (count, reason) = match report.failures.first() {
            Some((at, error)) => (report.failed, format!("the first: at {at}, {error}")),
            None if report.assignment.layer.is_none() => {
                let declined = report.assignment.declined.last();
                let reason = declined.map_or("", |(_, reason)| reason);
                (report.messages, reason.to_owned())
            }
            None => return 0,
        };
        let is_unknown = report.assignment.layer.is_none() && schema_fault(channel).is_none();
        if is_unknown {
            self.unknown.push(Unknown {
                topic: channel.topic.clone(),
                messages: count,
                reason,
            });
            return count;
        }
        let what = counted(count, "message");
        self.problems.push(Problem {
            kind: ProblemKind::BadRecord,
            offset: None,
            topic: Some(channel.topic.clone()),
            message: format!("{what} cannot be decoded; {reason}"),
        });
        count
    }

    /// A channel without messages has a schema, too.
    fn check_unused_schemas(&mut self, file: &dyn Recording) {
        let summary = file.summary();
        let unused = |entry: &&ChannelSummary| entry.messages == Some(0);
        for entry in summary.channels.iter().filter(unused) {
            let channel = &entry.channel;
            if let Some(fault) = schema_fault(channel) {
                self.problems.push(Problem {
                    kind: ProblemKind::BadRecord,
                    offset: None,
                    topic: Some(channel.topic.clone()),
                    message: format!("its schema cannot be read: {fault}"),
                });
            }
        }
    }
}

/// What is wrong with a channel's schema; `None` where its encoding is unknown, or where it has no schema.
fn schema_fault(channel: &Channel) -> Option<SchemaError> {
    let has_schema = channel
        .schema
        .as_ref()
        .is_some_and(|schema| !schema.data.is_empty());
    match Decoder::new(channel, &Projection::All, &[]).err()? {
        SchemaError::UnknownEncoding { .. } | SchemaError::NoDefinition { .. } => None,
        error => has_schema.then_some(error),
    }
}

fn print(out: &mut impl Write, place: &Path, found: &Diagnosis, colors: Palette) -> io::Result<()> {
    let Palette {
        title, good, bad, ..
    } = colors;
    let (size, chunks) = (bytes(found.size), counted(found.chunks, "chunk"));
    let path = shown(&found.path);
    writeln!(out, "{title}{path}{title:#}: {size}, {chunks}")?;
    for problem in &found.problems {
        writeln!(out, "  {}", shown(&problem.to_string()))?;
    }
    for Unknown {
        topic,
        messages,
        reason,
    } in &found.unknown
    {
        let (topic, reason) = (shown(topic), shown(reason));
        let what = counted(*messages, "message");
        writeln!(out, "  {topic}: {what} cannot be decoded; {reason}")?;
    }
    let messages = counted(found.messages, "message");
    if found.healthy {
        let decoded = match found.undecoded {
            Some(_) => "",
            None => "; their payloads were not decoded or checked",
        };
        return writeln!(
            out,
            "{good}healthy{good:#}: {messages}, and nothing wrong was found{decoded}"
        );
    }
    let problems = match found.problems.len() as u64 {
        0 => "nothing else wrong was found".to_owned(),
        count => counted(count, "problem"),
    };
    let undecoded = found.undecoded.filter(|&count| count > 0);
    let undecoded = undecoded.map_or(String::new(), |count| format!(", {count} not decoded"));
    let verdict = if found.is_damaged {
        "damaged"
    } else {
        "undecoded"
    };
    writeln!(
        out,
        "{bad}{verdict}{bad:#}: {problems}; {messages} can be read{undecoded}"
    )?;
    if !found.is_damaged || is_robot(place) {
        return Ok(());
    }
    let (from, to) = (quoted(place), quoted(&beside(place, "recovered")));
    writeln!(
        out,
        "to save what can be saved: asof recover {from} -o {to}"
    )
}

fn readable_messages(file: &dyn Recording) -> anyhow::Result<u64> {
    let mut messages = 0;
    for batch in file.read(&Query::all())? {
        messages += batch?.len() as u64;
    }
    Ok(messages)
}
