//! `asof join`

mod reading;

use std::path::PathBuf;
use std::time::Duration;

use asof::align::{On, Pick, Rule};
use asof::{JoinedForm, JoinedOptions, JoinedOutput, JoinedWriter, Source};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use self::reading::Reading;
use super::Outcome;
use super::cat::told;
use super::completions;
use super::length::parse_length;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::{Screen, line_room, output};
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
/// scans, texts, lists of different lengths) are taken from the nearest. Before the first message and after the last
/// one nothing matches, or the nearest with --or-nearest.
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
    #[arg(long, value_parser = picks(), default_value = Pick::Nearest.word())]
    method: Pick,

    /// Interpolate takes the nearest message before the first and after the last one
    #[arg(long)]
    or_nearest: bool,

    /// Which time to join by: the stamp in the message, or the time at which it was logged
    #[arg(long, value_parser = times())]
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

/// The words for which message matches.
fn picks() -> impl TypedValueParser<Value = Pick> {
    let word = |pick: Pick| {
        let help = match pick {
            Pick::Nearest => "The nearest in time; of two equally near, the earlier",
            Pick::Last => "The last at or before",
            Pick::Before => "The last before",
            Pick::Next => "The first at or after",
            Pick::After => "The first after",
            Pick::Interpolate => "Between the last and the next, weighted by distance",
        };
        let word = PossibleValue::new(pick.word()).help(help);
        word.aliases(pick.other_words())
    };
    PossibleValuesParser::new(Pick::ALL.map(word)).try_map(|word| word.parse())
}

/// The words for the time by which a message is joined.
fn times() -> impl TypedValueParser<Value = On> {
    let word = |on: On| {
        let help = match on {
            On::Stamp => "When it was measured: the stamp in its header",
            On::LogTime => "When it was logged",
        };
        let word = PossibleValue::new(on.word()).help(help);
        word.aliases(on.other_words())
    };
    PossibleValuesParser::new(On::ALL.map(word)).try_map(|word| word.parse())
}

impl Join {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let wanted = TopicRequest::named(self.with.iter().chain([&self.anchor]));
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
        let mut rows = self.rows(&*file, reading.on())?;
        reading.read(&*file, &mut rows)?;
        let mut has_damage = !rows.finish(&screen.reports(""))?;
        has_damage |= reading.tell(screen);
        Ok(told(&file.summary().problems, has_damage, screen))
    }

    fn rows(&self, file: &dyn Source, on: On) -> anyhow::Result<JoinedWriter> {
        let (force, named) = (self.force, self.output.as_ref());
        let output = match (&self.parquet, named) {
            (Some(path), _) => JoinedOutput::Parquet {
                path: path.clone(),
                force,
            },
            (None, Some(path)) => JoinedOutput::File {
                path: path.clone(),
                force,
            },
            (None, None) => {
                let form = match (self.json, self.csv) {
                    (true, _) => JoinedForm::Json,
                    (_, true) => JoinedForm::Csv,
                    _ => JoinedForm::Lines { room: line_room() },
                };
                JoinedOutput::Text(Box::new(output()), form)
            }
        };
        if let Some(path) = self.parquet.as_ref().or(named) {
            for place in &self.places {
                refuse_same(place, path, "joined")?;
            }
        }
        let options = JoinedOptions {
            topics: [&self.anchor]
                .into_iter()
                .chain(&self.with)
                .cloned()
                .collect(),
            on,
            fields: self.fields.clone(),
            with_bytes: self.bytes,
        };
        Ok(JoinedWriter::new(file, options, output)?)
    }

    fn rule(&self) -> Rule {
        let rule = Rule::new(self.method);
        let rule = if self.or_nearest {
            rule.or_nearest()
        } else {
            rule
        };
        match self.within {
            Some(distance) => rule.within(distance),
            None => rule,
        }
    }
}
