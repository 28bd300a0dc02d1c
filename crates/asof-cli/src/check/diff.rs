//! `asof diff`

use std::io::Write;
use std::path::PathBuf;

use asof::Recording;
use asof::check::Difference;
use asof::text::{counted, shown};
use clap::Args;

use crate::Outcome;
use crate::cat::tell_problems;
use crate::place::{Opening, Purpose, TopicRequest};
use crate::screen::{Screen, output, write_json};

/// Compare two recordings: topics, types, rates, gaps, latencies, and every field
///
/// The largest differences come first. A rate, a gap or a latency is compared relative to its own size, a field's mean
/// relative to the field's variation in the first recording. The exit code does not depend on the result.
///
/// With --json, one object per line for each difference: subject, kind, good, new, size.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof diff good.mcap new.mcap
  asof diff good.mcap new.mcap --all --json | jq 'select(.kind == \"rate\")'")]
pub struct Diff {
    /// The reference recording
    #[arg(value_name = "GOOD")]
    good: PathBuf,

    /// The recording to compare with it
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Show all differences, however small
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    opening: Opening,
}

/// How many differences text shows without `--all`, if they are large enough.
const SHOWN_DIFFERENCES: usize = 30;
const NOTABLE: f64 = 0.1;

impl Diff {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::Done;
        let open = |place: &PathBuf| {
            let places = [place.clone()];
            let recording =
                self.opening
                    .open(&places, &TopicRequest::all(), Purpose::Look, screen)?;
            anyhow::Ok(Recording::new(recording, &places))
        };
        let (good, new) = (open(&self.good)?, open(&self.new)?);
        let differences = good.diff(&new)?;
        for problems in [good.problems(), new.problems()] {
            tell_problems(&problems, screen);
            if !problems.is_empty() {
                outcome = Outcome::Damaged;
            }
        }
        let notable = |one: &&Difference| self.all || one.size >= NOTABLE;
        let most = if self.all || self.json {
            usize::MAX
        } else {
            SHOWN_DIFFERENCES
        };
        let mut out = output();
        for one in differences.iter().filter(notable).take(most) {
            if self.json {
                write_json(&mut out, one)?;
            } else {
                let line = format!("{} {}: {} → {}", one.subject, one.kind, one.good, one.new);
                writeln!(out, "{}", shown(&line))?;
            }
        }
        out.flush()?;
        let count = differences.iter().filter(notable).count();
        let hidden = (differences.len() - count) + count.saturating_sub(most);
        if count == 0 {
            screen.note("no notable difference");
        }
        if hidden > 0 {
            let what = counted(hidden as u64, "smaller difference");
            screen.note(format_args!("{what}; --all shows them"));
        }
        Ok(outcome)
    }
}
