//! `asof doctor`

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use asof::Recording;
use asof::check::{Diagnosis, DoctorOptions};
use asof::files::beside;
use asof::text::{bytes, counted, quoted, shown};
use clap::Args;

use super::Outcome;
use super::failure::Failures;
use super::layers;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::{Palette, Screen, output, print_json};

/// Check a recording: read all of it and verify that its parts agree
///
/// Records, checksums, chunks, indexes, statistics, attachments and metadata are checked, and every message is decoded.
/// Schemas that cannot be read and payloads that do not match them are problems too, with a count for each topic. Messages
/// in an unknown encoding, or of an undefined type, are counted: the file may be intact, but their contents were not
/// checked. --no-decode checks the file without decoding, which is faster.
/// Stamps that are off by more than a minute from when their message was logged, zero, or jump are told for each topic; they do
/// not make a recording damaged, as those of a simulation are of another clock.
/// The exit code is 0 for a healthy recording, and 3 for one that is damaged or has undecoded messages. Several
/// are checked one after the other.
///
/// For a running robot, it reports what two seconds of listening show (--for listens longer): topics with several types,
/// undefined types, clocks that are set back, and messages that exceed the memory limit.
///
/// With --json, one object per line for each place: path, healthy, damaged (whether something is wrong with the recording
/// itself; undecoded messages alone are not damage), messages (readable), undecoded (how many of
/// them cannot be decoded; null with --no-decode), unknown (topic, messages and reason of those without a
/// decoder), stamps (the topics with wrong ones: how many are off by more than a minute, zero, or jump), problems.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
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

    /// Show which layer decodes which topic, and why, and the file's own layers; nothing is checked
    #[arg(long)]
    layers: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
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
        let file = self.opening.open(
            &[place.to_owned()],
            &TopicRequest::all(),
            Purpose::Look,
            screen,
        )?;
        if self.layers {
            layers::show(&*file, self.json)?;
            return Ok(Outcome::Done);
        }
        let options = DoctorOptions {
            decode: !self.no_decode,
        };
        let diagnosis = Recording::new(file, &[place.to_owned()])
            .with_progress(screen.reports(BAR))
            .doctor(&options)?;
        if self.json {
            print_json(&diagnosis)?;
        } else {
            let mut out = output();
            print(&mut out, place, &diagnosis, screen.palette())?;
            out.flush()?;
        }
        Ok(if diagnosis.healthy {
            Outcome::Done
        } else {
            Outcome::Damaged
        })
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
    for unknown in &found.unknown {
        let (topic, reason) = (shown(&unknown.topic), shown(&unknown.reason));
        let what = counted(unknown.messages, "message");
        writeln!(out, "  {topic}: {what} cannot be decoded; {reason}")?;
    }
    for (topic, stamps) in &found.stamps {
        writeln!(out, "  {}: {stamps}", shown(topic))?;
    }
    let messages = counted(found.messages, "message");
    if found.healthy && !found.stamps.is_empty() {
        let topics = counted(found.stamps.len() as u64, "topic");
        return writeln!(
            out,
            "{bad}wrong stamps{bad:#} on {topics}: {messages}, and nothing else wrong was found"
        );
    }
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
    // A running robot has no size, and nothing to save.
    if !found.is_damaged || found.size == 0 {
        return Ok(());
    }
    let (from, to) = (quoted(place), quoted(&beside(place, "recovered")));
    writeln!(
        out,
        "to save what can be saved: asof recover {from} -o {to}"
    )
}
