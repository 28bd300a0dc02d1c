//! `asof at`

use std::path::PathBuf;

use asof::{Query, Source, When};
use clap::Args;

use super::Outcome;
use super::cat::tell_problems;
use super::fields::FieldChoice;
use super::lines::{Lines, Style};
use super::place::{Opening, Wanted};
use super::screen::{Screen, is_watched, output};
use super::select::TopicChoice;

/// Show the last message of every topic as of a time
///
/// What the robot knew then: for each topic, its last message at or before the time, decoded, and its
/// age. With --json, one object per line as `asof cat --json` prints them, with the age in nanoseconds.
///
/// Without --time, the time is the end of a recording, and now for a running robot: as soon as each topic has had a
/// message, and after two seconds at the latest. A time before now waits as well: messages that were sent before asof
/// connected are known only if their publisher keeps them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof at run.mcap --time +12.5s
  asof at run.mcap --time 2024-05-01T12:00:10Z --topics /odom,/scan --json
  asof at run.mcap --time +12.5s --topics /odom --fields pose.pose.position
  asof at zenoh://192.168.1.5:7447 --topics /odom,/map
  asof at zenoh://192.168.1.5:7447 --time -3s")]
pub struct At {
    /// A recording or a running robot (zenoh://host:port), or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The time: RFC 3339, seconds since the epoch, nanoseconds with ns, or relative to the recording:
    /// +12.5s from its start, -3s from its end; of a running robot, -3s is three seconds ago
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    time: Option<When>,

    #[command(flatten)]
    topics: TopicChoice,

    #[command(flatten)]
    opening: Opening,

    /// Print payloads without decoding them
    #[arg(long)]
    raw: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    fields: FieldChoice,

    /// Print each message over several lines; the default for one message on a terminal
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    pretty: bool,
}

impl At {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let wanted = Wanted::chosen(self.topics.patterns());
        let (file, at) = self
            .opening
            .open_as_of(&self.places, &wanted, self.time, screen)?;
        let topics = self.topics.topics(&self.places[0], &*file, screen);
        let mut query = Query::all();
        query.topics = topics;
        self.fields.narrow(&mut query, &*file, screen)?;
        let known = file.latest_at(&query.topics, at)?;
        if known.is_empty() {
            screen.note(format_args!("nothing was known as of {at}"));
        }
        let style = Style::new(self.json, self.raw).with_ages(at);
        let is_single = known.len() == 1 && is_watched() && !self.json && !self.raw;
        let style = style.pretty(self.pretty || is_single);
        let mut lines = Lines::new(output(), style).with_fields(self.fields.projection());
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
