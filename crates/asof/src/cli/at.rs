//! `asof at`

use std::path::PathBuf;

use asof_core::{Query, Source, When};
use clap::Args;

use super::Outcome;
use super::cat::tell_problems;
use super::lines::{Lines, Style};
use super::place::Opening;
use super::screen::{Screen, output};
use super::select::TopicChoice;

/// Show the last message of every topic as of a time
///
/// What the robot knew then: for each topic, its last message at or before the time, decoded. With --json,
/// one object a line as `asof cat --json` prints them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof at run.mcap --time +12.5s
  asof at run.mcap --time 2024-05-01T12:00:10Z --topics /odom,/scan --json")]
pub struct At {
    /// A recording, or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The time: RFC 3339, seconds since the epoch, nanoseconds with ns, or relative to the recording:
    /// +12.5s from its start, -3s from its end
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    time: When,

    #[command(flatten)]
    topics: TopicChoice,

    #[command(flatten)]
    opening: Opening,

    /// Print payloads as they are, without decoding them
    #[arg(long)]
    raw: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl At {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let file = self.opening.open(&self.places, screen)?;
        let summary = file.summary();
        let query = Query {
            topics: self.topics.topics(&self.places[0], &summary, screen),
            ..Query::all()
        };
        let at = self.time.resolve(summary.range);
        let known = file.backfill(&query.topics, at)?;
        if known.is_empty() {
            screen.note(format_args!("nothing was known as of {at}"));
        }
        let mut lines = Lines::new(output(), Style::new(self.json, self.raw));
        for message in known.iter() {
            lines.write(message)?;
        }
        let has_damage = lines.finish(screen)?;
        let problems = &file.summary().problems;
        tell_problems(problems, screen);
        Ok(if has_damage {
            Outcome::Damaged
        } else {
            Outcome::of(problems)
        })
    }
}
