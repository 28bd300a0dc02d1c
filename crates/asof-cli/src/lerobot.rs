//! `asof lerobot`

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use super::Outcome;
use super::failure::Usage;
use super::place::robots_in;
use super::screen::{Screen, output};
use super::signals;
use asof::lerobot::{DatasetMap, Exported, LerobotError, append, export};
use asof::text::counted;
use asof::text::quoted;

/// Make a dataset for machine learning, in LeRobot's format (version 3)
///
/// The map defines which topics become which features, and at which rate:
///
///   hz = 30                       # frames per second
///   task = "pick up the cube"
///   episodes = "recording"        # or a length of time, "30s", or a topic, "/episode"
///   method = "last"               # or "nearest", "before", "next", "after", "interpolate"
///   on = "log_time"               # or "stamp"
///   tolerance = "100ms"           # the largest distance to a message
///
///   [features]
///   "observation.state" = ["/joint_states.position"]       # or of single joints: "/joint_states.position[shoulder]"
///   "observation.images.front" = "/camera/image"
///   action = { paths = ["/cmd_vel.linear.x", "/cmd_vel.angular.z"], method = "interpolate" }
///
/// Each place is a separate recording. With a topic of episodes, each message begins an episode; one with `data: false` ends
/// it, and a text names its task. A frame is left out when a feature is not known at its time.
///
/// H.264 and H.265 are copied into MP4 files as they were recorded, and the frames are those of the pictures. Other
/// pictures become videos if ffmpeg is installed, and stay pictures otherwise (`videos = false` keeps them).
#[allow(clippy::doc_link_with_quotes, reason = "the map is TOML")]
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  asof lerobot run.mcap -o dataset --config map.toml
  asof lerobot tuesday.mcap -o dataset --config map.toml --append
  asof lerobot monday/*.mcap s3://robots/tuesday.mcap -o dataset --config map.toml --json"
)]
pub struct Lerobot {
    /// Recordings: files, folders, addresses
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The folder to make
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Add to a dataset that the same map has made
    #[arg(long)]
    append: bool,

    /// The map of topics to features, in TOML
    #[arg(long, value_name = "MAP.toml")]
    config: PathBuf,

    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
}

const BAR: &str = "{msg} [{bar:40}] {pos} of {len} recordings";

impl Lerobot {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let path = self.config.display();
        let text =
            std::fs::read_to_string(&self.config).with_context(|| format!("cannot read {path}"))?;
        let map = DatasetMap::from_toml(&text)
            .map_err(|error| Usage::error(format!("{path}: {error}")))?;
        if let Some(robot) = robots_in(&self.places).next() {
            return Err(Usage::error(format!(
                "{} is a running robot; record it first: asof record {} -o run.mcap",
                robot.display(),
                quoted(robot)
            )));
        }
        let recordings: Vec<Vec<PathBuf>> = self
            .places
            .iter()
            .map(|place| vec![place.clone()])
            .collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        signals::on_end(move |_| over.store(true, Ordering::Relaxed))?;
        let bar = screen.progress(recordings.len() as u64, BAR);
        let write = if self.append { append } else { export };
        let made = write(&recordings, &self.output, &map, &mut |progress| {
            bar.set_position(progress.recordings.0 as u64);
            bar.set_message(counted(progress.frames, "frame"));
            if is_over.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        bar.finish_and_clear();
        let made = match made {
            Ok(made) => made,
            Err(LerobotError::Map(reason)) => {
                return Err(Usage::error(format!("{path}: {reason}")));
            }
            Err(error) => return Err(error.into()),
        };
        self.tell(&made, screen)?;
        Ok(if made.unusable > 0 {
            Outcome::Damaged
        } else {
            Outcome::Done
        })
    }

    fn tell(&self, made: &Exported, screen: &Screen) -> anyhow::Result<()> {
        use std::io::Write as _;
        if self.json {
            let mut told = serde_json::to_value(made)?;
            told["path"] = json!(self.output);
            writeln!(output(), "{told}")?;
        } else {
            let frames = counted(made.frames, "frame");
            let episodes = counted(made.episodes, "episode");
            screen.note(format_args!(
                "{frames} in {episodes} in {}",
                self.output.display()
            ));
            let kinds: Vec<String> = made
                .features
                .iter()
                .map(|(name, kind)| format!("{name} ({kind})"))
                .collect();
            screen.note(format_args!("{}", kinds.join(", ")));
        }
        if made.left_out > 0 {
            screen.note(format_args!(
                "{} left out: a feature was not known",
                counted(made.left_out, "frame")
            ));
        }
        if made.cuts > 0 {
            let episodes = counted(made.cuts, "episode");
            screen.note(format_args!(
                "{episodes} more than requested: frames that were left out split an episode"
            ));
        }
        if made.empty > 0 {
            screen.warning(format_args!(
                "{} without any frame",
                counted(made.empty, "episode")
            ));
        }
        if made.unusable > 0 {
            screen.warning(format_args!(
                "{} not used: not decodable, without a stamp, or back in time",
                counted(made.unusable, "message")
            ));
        }
        for name in &made.unseen {
            screen.warning(format_args!(
                "{name} has no statistics: reading its video needs ffmpeg"
            ));
        }
        Ok(())
    }
}
