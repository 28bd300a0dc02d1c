//! `asof check`

mod diff;
mod reports;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use asof::Recording;
use asof::check::{CheckReport, Expectations, junit};
use asof::files::{NewFile, note_input};
use asof::text::{counted, quoted};
use clap::Args;

pub use diff::Diff;
use reports::write_text;

use super::Outcome;
use super::cat::{tell_problems, told};
use super::failure::{Failures, Usage};
use super::fleet::CataloguePlace;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::{Screen, output, write_json};

/// Check recordings against expectations, as tests check code
///
/// A TOML file defines expectations of topics (type, messages, rate, gap, latency, jump, ranges of fields), of transforms
/// (known at every stamp of a topic) and of SQL queries (which must return no rows). Durations are written as 25ms or
/// 1.5s. `asof check GOOD --write` proposes such a file from a good recording.
///
/// Each recording is checked separately, also those of a folder or bucket, with a catalogue (`asof index`) and without. The exit
/// code is 1 if an expectation failed; otherwise 3 if a recording is damaged. Queries need a build with the feature `sql`; without it they are skipped and reported as such.
///
/// With --json, one object per line for each recording: path, passed, failed, skipped, expectations: [{subject, kind,
/// outcome, message, failures: [{log_time, message}], count}].
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "\
Examples:
  asof check good.mcap --write -f expectations.toml
  asof check runs/*.mcap -f expectations.toml --junit report.xml")]
pub struct Check {
    /// Recordings
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The file with the expectations
    #[arg(short, long, value_name = "FILE", required_unless_present = "write")]
    file: Option<PathBuf>,

    /// Propose expectations that this recording and others like it meet: print them, or write the file
    #[arg(long, conflicts_with_all = ["json", "junit", "all"])]
    write: bool,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Also show expectations that are met
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also write a JUnit XML file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    #[command(flatten)]
    opening: Opening,
}

impl Check {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        if self.write {
            return self.propose(screen);
        }
        let Some(file) = &self.file else {
            return Err(Usage::error(
                "name a file with expectations: -f expectations.toml",
            ));
        };
        let expectations = read(file)?;
        if expectations.count() == 0 {
            let file = file.display();
            return Err(anyhow!(
                "{file} has no expectations; `asof check GOOD --write` proposes some"
            ));
        }
        let mut reports = Vec::new();
        let mut failures = Failures::default();
        let (places, is_short) = CataloguePlace::default().each_recording(&self.places, screen)?;
        let mut outcome = if is_short {
            Outcome::Damaged
        } else {
            Outcome::Done
        };
        for place in places {
            match self.check(&place, &expectations, screen) {
                Ok((report, is_damaged)) => {
                    if is_damaged && outcome == Outcome::Done {
                        outcome = Outcome::Damaged;
                    }
                    if report.failed > 0 {
                        outcome = Outcome::Failed;
                    }
                    reports.push(report);
                }
                Err(error) => failures.add(error, screen),
            }
        }
        let mut out = output();
        for report in &reports {
            if self.json {
                write_json(&mut out, report)?;
            } else {
                write_text(report, &mut out, screen.palette(), self.all)?;
            }
        }
        out.flush()?;
        if let Some(path) = &self.junit {
            // The report of an earlier run may be replaced.
            let new = NewFile::create(path, |path| self.force || is_report(path))?;
            new.write(junit(&reports).as_bytes())?;
        }
        failures.or(outcome)
    }

    fn check(
        &self,
        place: &Path,
        expectations: &Expectations,
        screen: &Screen,
    ) -> anyhow::Result<(CheckReport, bool)> {
        let places = [place.to_owned()];
        let recording = self
            .opening
            .open(&places, &TopicRequest::all(), Purpose::Look, screen)?;
        let recording = Recording::new(recording, &places);
        let report = recording.check(expectations)?;
        let problems = recording.problems();
        tell_problems(&problems, screen);
        if report.undecoded > 0 {
            let (what, place) = (counted(report.undecoded, "message"), place.display());
            screen.warning(format_args!("{what} of {place} not decoded"));
        }
        let is_damaged = report.undecoded > 0 || !problems.is_empty();
        Ok((report, is_damaged))
    }

    fn propose(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let [place] = &self.places[..] else {
            return Err(Usage::error("expectations are proposed from one recording"));
        };
        let places = [place.clone()];
        let recording = self
            .opening
            .open(&places, &TopicRequest::all(), Purpose::Look, screen)?;
        let recording = Recording::new(recording, &places).with_progress(screen.reports(""));
        let expectations = recording.expectations()?;
        if expectations.count() == 0 {
            return Err(anyhow!(
                "there is nothing to expect of recordings like {}: `asof info {}` shows what it has",
                place.display(),
                quoted(place)
            ));
        }
        let text = expectations.to_toml()?;
        if let Some(path) = &self.file {
            let new = NewFile::create(path, |_| self.force)?;
            new.write(text.as_bytes())?;
            let what = counted(expectations.count() as u64, "expectation");
            screen.note(format_args!("{what} in {}", path.display()));
        } else {
            let mut out = output();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Ok(told(&recording.problems(), false, screen))
    }
}

/// Whether a file is empty, or XML.
fn is_report(path: &Path) -> bool {
    let text = std::fs::read(path);
    text.is_ok_and(|text| text.is_empty() || text.starts_with(b"<?xml"))
}

fn read(file: &Path) -> anyhow::Result<Expectations> {
    let name = file.display().to_string();
    note_input(file);
    let text = std::fs::read_to_string(file).with_context(|| {
        let word = quoted(file);
        format!("cannot read {name}; `asof check GOOD --write -f {word}` proposes one")
    })?;
    Ok(Expectations::from_toml(&name, &text)?)
}
