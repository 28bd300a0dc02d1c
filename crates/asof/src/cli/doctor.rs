//! `asof doctor`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use asof_core::{Problem, Query};
use asof_formats::Recording;
use clap::Args;
use serde::Serialize;

use super::Outcome;
use super::failure::Failures;
use super::newfile::beside;
use super::numbers::{bytes, counted, shown};
use super::place::{Opening, quoted};
use super::report::problems_as_json;
use super::screen::{Palette, Screen, output};

/// Check a recording: read all of it, and hold every part against every other
///
/// Records, checksums, chunks, indexes, statistics, attachments and metadata are checked. The exit code
/// is 0 for a healthy recording and 3 for a damaged one. Several are checked one after the other.
///
/// With --json, one object a line for each place: path, healthy, messages (that can be read), problems.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof doctor run.mcap
  asof doctor run.mcap --json | jq '.problems[].kind'")]
pub struct Doctor {
    /// Recordings
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    opening: Opening,

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
    #[serde(serialize_with = "problems_as_json")]
    problems: Vec<Problem>,
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
        let file = self.opening.open(&[place.to_owned()], screen)?;
        let bar = screen.progress(file.summary().size, BAR);
        let problems = file.check(&mut |done, _| bar.set_position(done));
        bar.finish_and_clear();
        let diagnosis = diagnosis(place, &*file, problems?)?;
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
        messages,
        problems,
        size: summary.size,
        chunks: summary.chunks,
    })
}

fn print(out: &mut impl Write, place: &Path, found: &Diagnosis, colors: Palette) -> io::Result<()> {
    let Palette {
        title, good, bad, ..
    } = colors;
    let (size, chunks) = (bytes(found.size), counted(found.chunks, "chunk"));
    writeln!(out, "{title}{}{title:#}: {size}, {chunks}", found.path)?;
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
    writeln!(
        out,
        "{bad}damaged{bad:#}: {problems}; {messages} can be read"
    )?;
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
