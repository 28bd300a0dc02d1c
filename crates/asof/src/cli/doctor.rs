//! `asof doctor`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use asof_core::{Problem, ProblemKind, Query};
use asof_decode::{Layers, TableOptions, Tables};
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

/// Check a recording: read all of it, and hold every part against every other
///
/// Records, checksums, chunks, indexes, statistics, attachments and metadata are checked. With --decode, every
/// message is decoded as well: schemas that cannot be read and payloads that do not fit them are problems too, with a
/// count for each topic. The exit code is 0 for a healthy recording and 3 for a damaged one. Several are checked one
/// after the other.
///
/// A running robot is listened to for two seconds, or --for longer: topics with several types, types that nobody
/// defines, clocks that are set back and messages that are too much to be kept are told.
///
/// With --json, one object a line for each place: path, healthy, messages (that can be read), problems; with --decode
/// also undecoded.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof doctor run.mcap --decode
  asof doctor run.mcap --json | jq '.problems[].kind'")]
pub struct Doctor {
    /// Recordings, or a running robot: zenoh://host:port
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    opening: Opening,

    /// Decode every message, too
    #[arg(long)]
    decode: bool,

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
    /// Messages that can be read and not decoded, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecoded: Option<u64>,
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
        if self.decode {
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
        Ok(Outcome::of(&diagnosis.problems))
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
        // Nothing that a damaged file says about itself is worth much.
        _ => readable_messages(file)?,
    };
    Ok(Diagnosis {
        path: place.display().to_string(),
        healthy: problems.is_empty(),
        is_damaged: !problems.is_empty(),
        messages,
        undecoded: None,
        problems,
        size: summary.size,
        chunks: summary.chunks,
    })
}

impl Diagnosis {
    /// Decodes every message, and adds what cannot be decoded to the problems.
    fn decode(&mut self, file: &dyn Recording) -> anyhow::Result<()> {
        let options = TableOptions {
            layers: Layers::standard().only("reflection"),
            ..TableOptions::default()
        };
        let mut tables = Tables::read(file, &Query::all(), options)?;
        for batch in &mut tables {
            batch?;
        }
        let mut undecoded = 0;
        for report in tables.report() {
            let assignment = &report.assignment;
            let (count, reason) = match report.failures.first() {
                Some((at, error)) => (report.failed, format!("the first: at {at}, {error}")),
                None if assignment.layer.is_none() => {
                    let declined = assignment.declined.last();
                    let reason = declined.map_or("", |(_, reason)| reason);
                    (report.messages, reason.to_owned())
                }
                None => continue,
            };
            undecoded += count;
            let what = counted(count, "message");
            self.problems.push(Problem {
                kind: ProblemKind::BadRecord,
                offset: None,
                topic: Some(assignment.channel.topic.clone()),
                message: format!("{what} cannot be decoded; {reason}"),
            });
        }
        self.undecoded = Some(undecoded);
        self.healthy = self.problems.is_empty();
        Ok(())
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
    let messages = counted(found.messages, "message");
    if found.healthy {
        return writeln!(
            out,
            "{good}healthy{good:#}: {messages}, and nothing wrong was found"
        );
    }
    let problems = counted(found.problems.len() as u64, "problem");
    let undecoded = found.undecoded.filter(|&count| count > 0);
    if !found.is_damaged {
        let undecoded = undecoded.unwrap_or(0);
        return writeln!(
            out,
            "{bad}undecoded{bad:#}: {problems}; {messages} can be read, {undecoded} not decoded"
        );
    }
    let undecoded = undecoded.map_or(String::new(), |count| format!(", {count} not decoded"));
    writeln!(
        out,
        "{bad}damaged{bad:#}: {problems}; {messages} can be read{undecoded}"
    )?;
    if is_robot(place) {
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
