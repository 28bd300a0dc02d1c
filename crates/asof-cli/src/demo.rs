//! `asof demo`

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use asof::demo::{Demo, DemoEncoding, DemoOptions};
use asof::formats::{McapWriter, McapWriterOptions};
use asof::{Query, Recording};
use clap::Args;

use super::Outcome;
use super::choices::{Choice, one_of};
use super::info;
use super::place::{self, Purpose};
use super::screen::{Screen, output};
use super::serve::ServeFlags;
use asof::files::NewFile;
use asof::text::quoted;

/// Make a small recording of a simulated robot, and open it
///
/// On a terminal, the recording is opened in the browser as `asof serve` does. Elsewhere, in a script or a
/// pipe, that takes --serve, or an address to --listen on.
///
/// A wheeled robot drives a loop through four rooms. The same seed gives the same recording, byte for
/// byte. An earlier demo recording is replaced; any other file only with --force.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof demo
  asof demo -o long.mcap --seconds 600 --seed 7 --no-serve")]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line.
pub struct DemoVerb {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "asof-demo.mcap")]
    output: PathBuf,

    /// How long the robot drives
    #[arg(long, value_name = "N", default_value = "30", value_parser = parse_seconds)]
    seconds: Duration,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How the messages are encoded
    #[arg(long, value_parser = one_of(ENCODINGS), value_name = "NAME", default_value = "ros2")]
    encoding: DemoEncoding,

    /// Replace any existing file
    #[arg(long)]
    force: bool,

    /// Print the output of `asof info --json`
    #[arg(long)]
    json: bool,

    /// Serve the recording, also without a terminal
    #[arg(long, conflicts_with = "no_serve")]
    serve: bool,

    /// Only make the recording
    #[arg(long)]
    no_serve: bool,

    #[command(flatten)]
    serving: ServeFlags,
}

const ENCODINGS: &[Choice<DemoEncoding>] = &[
    ("ros2", "ROS 2 types in CDR", DemoEncoding::Cdr),
    (
        "protobuf",
        "Foxglove's types in protobuf",
        DemoEncoding::Protobuf,
    ),
    ("json", "Foxglove's types in JSON", DemoEncoding::Json),
];

/// The metadata record that identifies a demo recording.
const MARK: &str = "asof-demo";

const BAR: &str = "driving [{bar:40}] {percent} % {eta}";

impl DemoVerb {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let new = NewFile::create(&self.output, |path| self.force || is_demo(path))?;
        self.write(&new, screen).map_err(|error| {
            let (file, cause) = (self.output.display(), error.root_cause().to_string());
            error.context(format!("cannot write {file}: {cause}"))
        })?;
        new.finish()?;
        let recording = place::open(&self.output, Purpose::Read)?;
        let recording = Recording::new(recording, std::slice::from_ref(&self.output));
        info::show(&recording.info(&Query::all())?, self.json, screen)?;
        if !self.json {
            self.suggest(screen)?;
        }
        if !self.is_served() {
            return Ok(Outcome::Done);
        }
        let recording = place::open(&self.output, Purpose::Hold)?;
        self.serving.serve_file(recording, &self.output, screen)
    }

    /// A script needs the recording and the prompt; a user wants to see it.
    fn is_served(&self) -> bool {
        let has_person = || std::io::stdout().is_terminal() && !self.json;
        !self.no_serve && (self.serve || self.serving.is_addressed() || has_person())
    }

    fn write(&self, new: &NewFile, screen: &Screen) -> anyhow::Result<()> {
        let demo = Demo::new(DemoOptions {
            seed: self.seed,
            duration: self.seconds,
            encoding: self.encoding,
            ..DemoOptions::default()
        });
        let options = McapWriterOptions {
            profile: demo.profile().to_owned(),
            ..McapWriterOptions::default()
        };
        let mut writer = McapWriter::new(new.writer()?, options)?;
        for channel in demo.channels() {
            writer.add_channel(channel)?;
        }
        let start = demo.options().start;
        let bar = screen.progress(self.seconds.as_millis() as u64, BAR);
        for (index, message) in demo.messages().enumerate() {
            writer.write(&message)?;
            if index % 256 == 0 {
                let millis = message.log_time.since(start) / 1_000_000;
                bar.set_position(millis.max(0) as u64);
            }
        }
        bar.finish_and_clear();
        writer.write_metadata(MARK, self.as_metadata())?;
        writer.finish()?;
        Ok(())
    }

    fn as_metadata(&self) -> BTreeMap<String, String> {
        let entry = |name: &str, value: String| (name.to_owned(), value);
        let encoding = ENCODINGS.iter().find(|(.., one)| *one == self.encoding);
        BTreeMap::from([
            entry("seed", self.seed.to_string()),
            entry("seconds", self.seconds.as_secs_f64().to_string()),
            entry(
                "encoding",
                encoding.map_or("", |(word, ..)| word).to_owned(),
            ),
        ])
    }

    fn suggest(&self, screen: &Screen) -> anyhow::Result<()> {
        let file = quoted(&self.output);
        let asof = program();
        let (start, end) = if self.seconds > Duration::from_secs(10) {
            ("+10s", "+10.1s")
        } else {
            ("+0s", "+0.1s")
        };
        let label = screen.palette().title;
        let mut out = output();
        write!(
            out,
            "
{label}What to try next{label:#}
  {asof} cat {file} --topics /odom --start {start} --end {end}
  {asof} at {file} --time {start} --topics /odom,/scan --json
  {asof} info {file} --json
  {asof} serve {file}
  {asof} doctor {file}
"
        )?;
        Ok(out.flush()?)
    }
}

/// The name under which this program was called, so that the commands it shows can be copied.
fn program() -> String {
    let name = super::words().first().map(PathBuf::from);
    match name {
        Some(name) if name.components().count() > 1 => quoted(&name),
        _ => "asof".to_owned(),
    }
}

fn is_demo(path: &Path) -> bool {
    let Ok(file) = asof::formats::open(path) else {
        return false;
    };
    file.summary()
        .metadata
        .iter()
        .any(|entry| entry.name == MARK)
}

/// A century: longer than any demo, and fits into a stamp.
const MOST_SECONDS: f64 = 100.0 * 365.25 * 86_400.0;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.0..=MOST_SECONDS).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give a number of seconds, such as 30 or 2.5".to_owned())
}
