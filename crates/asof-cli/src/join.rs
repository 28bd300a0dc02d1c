//! `asof join`

mod fields;
mod lines;
mod reading;
mod separated;
mod stamps;
mod table;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use asof::window::sync::{AlignedRow, Rule};
use asof::{Message, Source, Stamp};
use clap::{Args, ValueEnum};

use self::fields::{Chosen, Fields};
use self::lines::Lines;
use self::reading::Reading;
use self::separated::Separated;
use self::table::Joined;
use self::text::Text;
use super::Outcome;
use super::cat::tell_problems;
use super::completions;
use super::failure::Usage;
use super::length::parse_length;
use super::place::{Opening, Purpose, Wanted};
use super::screen::{Screen, output};
use super::select::{Span, no_topic};
use asof::files::refuse_same;

/// Match every message of one topic with messages of others by time
///
/// Messages are joined by their stamps, the times of measurement, where all topics have them, and by
/// their log times otherwise; --on chooses. A row is printed as soon as no later message can change it: for a
/// running robot, while it runs.
///
/// With --json, one object per line: the anchor's message as `asof cat --json` prints it, and under `with` for
/// each other topic its message in the same form, with `offset`, the nanoseconds by which it is later than the
/// anchor's; null where none matches. Pictures, clouds and other bytes are left out without --bytes.
/// With --csv, structs are spread over columns, whose names start with their topic's.
///
/// With --method interpolate, floats are interpolated between the last message and the next:
/// numbers linearly, rotations along the arc. Such a message has the anchor's log_time, the sequence null, and
/// `between`, the times of the two messages. Messages that cannot be interpolated (pictures,
/// scans, texts, lists of different lengths) are taken from the nearest.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag that a person gives or not"
)]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof join run.mcap --anchor /camera/image --with /odom,/imu --json
  asof join run.mcap --anchor /scan --with /odom --method interpolate --within 100ms
  asof join run.mcap --anchor /scan --with /odom --fields pose.pose.position,ranges -o joined.parquet
  asof join zenoh://192.168.1.5:7447 --anchor /scan --with /odom --csv --for 30s")]
pub struct Join {
    /// A recording or a running robot (zenoh://host:port), or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The topic whose messages make the rows
    #[arg(long, value_name = "TOPIC", add = completions::topics())]
    anchor: String,

    /// The topics to look up, separated by commas
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true, add = completions::topics())]
    with: Vec<String>,

    /// Which message matches the anchor's
    #[arg(long, value_enum, default_value_t)]
    method: Method,

    /// Which time to join by: the stamp in the message, or the time at which it was logged
    #[arg(long, value_enum)]
    on: Option<On>,

    /// The largest distance between matching messages: seconds, or with a unit such as 50ms
    #[arg(long, value_name = "TIME", value_parser = parse_length)]
    within: Option<Duration>,

    /// How late a message may arrive, by the time that is joined on: 250ms, 5s. One second by default;
    /// zero where a recording is joined on log times
    #[arg(long, value_name = "TIME", value_parser = parse_length)]
    lateness: Option<Duration>,

    /// Only these fields, by path, separated by commas
    #[arg(long, value_name = "A.B,C", value_delimiter = ',', add = completions::fields())]
    fields: Vec<String>,

    /// Also print pictures, clouds and other bytes, in base64
    #[arg(long)]
    bytes: bool,

    #[command(flatten)]
    span: Span,

    #[command(flatten)]
    opening: Opening,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Write to this file instead: .parquet, .arrow, .csv, .ndjson
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["json", "csv"])]
    output: Option<PathBuf>,

    /// Write a Parquet file; the same as -o FILE.parquet
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "output"])]
    parquet: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Method {
    /// The nearest in time; of two equally near, the earlier
    #[default]
    Nearest,
    /// The last at or before
    Last,
    /// Between the last and the next, weighted by distance
    Interpolate,
}

/// The time by which a message is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// When it was measured: the stamp in its header
    Stamp,
    /// When it was logged
    Log,
}

/// A message that waits for its row, or is part of it.
type Item = Arc<Message>;

/// Where rows go.
trait Sink {
    fn write(&mut self, row: &AlignedRow<Item>) -> anyhow::Result<()>;

    /// Flushes what was written so far, because nothing arrives for a while.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Ends the rows and reports what could not be decoded; returns whether anything that should be there is missing.
    fn finish(self: Box<Self>, screen: &Screen) -> anyhow::Result<bool>;
}

impl Join {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let wanted = Wanted::named(self.with.iter().chain([&self.anchor]));
        let file = self
            .opening
            .open(&self.places, &wanted, Purpose::Read, screen)?;
        let summary = file.summary();
        let known = summary.topics();
        for topic in self.with.iter().chain([&self.anchor]) {
            if !known.contains(&topic.as_str()) {
                return Err(no_topic(topic, &self.places[0], &known));
            }
        }
        let mut reading = Reading::new(self, &*file, screen)?;
        let mut sink = self.sink(&*file, reading.on())?;
        reading.read(&*file, &mut *sink)?;
        let mut has_damage = sink.finish(screen)?;
        has_damage |= reading.tell(screen);
        let problems = &file.summary().problems;
        tell_problems(problems, screen);
        Ok(if has_damage {
            Outcome::Damaged
        } else {
            Outcome::of(problems)
        })
    }

    fn sink(&self, file: &dyn Source, on: On) -> anyhow::Result<Box<dyn Sink>> {
        let fields = Fields::new(Chosen {
            paths: self.fields.clone(),
            with_bytes: self.bytes,
        });
        fields.check(file, self.with.iter().chain([&self.anchor]))?;
        let Some(path) = self.output.as_ref().or(self.parquet.as_ref()) else {
            let out = Text::Screen(Box::new(output()));
            return if self.csv {
                Ok(Box::new(Separated::start(out, self, file, fields)?))
            } else {
                Ok(Box::new(Lines::new(out, self.json, on, &self.with, fields)))
            };
        };
        for place in &self.places {
            refuse_same(place, path, "joined")?;
        }
        let extension = path.extension().and_then(|text| text.to_str());
        match extension
            .filter(|_| self.parquet.is_none())
            .unwrap_or("parquet")
        {
            "csv" => {
                let out = Text::create(path, self.force)?;
                Ok(Box::new(Separated::start(out, self, file, fields)?))
            }
            "ndjson" | "jsonl" => {
                let out = Text::create(path, self.force)?;
                Ok(Box::new(Lines::new(out, true, on, &self.with, fields)))
            }
            "parquet" | "arrow" => Ok(Box::new(Joined::start(path, self, file, &self.fields)?)),
            other => Err(Usage::error(format!(
                "there is no table of the kind '{other}'; name a file .parquet, .arrow, .csv or .ndjson"
            ))),
        }
    }

    fn rule(&self) -> Rule {
        let rule = match self.method {
            Method::Nearest => Rule::nearest(),
            Method::Last => Rule::last(),
            Method::Interpolate => Rule::interpolate().or_nearest(),
        };
        match self.within {
            Some(distance) => rule.within(distance),
            None => rule,
        }
    }
}

/// The nanoseconds by which something is later than the anchor.
fn offset(at: Stamp, anchor: Stamp) -> i64 {
    at.since(anchor)
}
