//! `asof live`, `asof record`, and running robots as every other verb sees them.

#[cfg(not(feature = "live"))]
mod absent;
#[cfg(feature = "live")]
mod listening;
#[cfg(feature = "live")]
mod plain;
#[cfg(feature = "live")]
mod recording;
#[cfg(feature = "live")]
mod robot;
#[cfg(feature = "live")]
mod table;
#[cfg(feature = "live")]
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use asof_formats::Recording;
use clap::Args;

#[cfg(not(feature = "live"))]
pub use absent::{Listening, listen};
#[cfg(feature = "live")]
pub use listening::{Listening, listen};
#[cfg(feature = "live")]
pub use robot::stop_on_signals;

use super::Outcome;
use super::place::parse_time;
use super::screen::Screen;
use super::select::{Patterns, parse_patterns};

/// Watch a running robot: rates, bandwidth, jitter, age and drops of its topics
///
/// A table on a terminal (q ends it, the arrows scroll, s sorts); lines with --plain or in a pipe; with
/// --json, one object a line for each topic and interval.
#[derive(Debug, Args)]
#[cfg_attr(
    not(feature = "live"),
    allow(dead_code, reason = "only the address is told")
)]
#[command(after_help = "\
Examples:
  asof live zenoh://192.168.1.5:7447
  asof live zenoh:// --topics '/camera/*' --json --for 10s")]
pub struct Live {
    #[command(flatten)]
    connection: Connection,

    /// Print lines instead of a table
    #[arg(long)]
    plain: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "plain")]
    json: bool,

    /// The time between two looks: seconds, or with a unit such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = parse_time)]
    interval: Duration,
}

/// Write a running robot down, as MCAP
///
/// Ctrl-C closes the file whole; what a killed recording leaves behind lacks the last second at most, and
/// `asof recover` makes it whole. When the disk is slower than the robot, messages are dropped, counted by
/// topic, and told; the exit code is 3 then.
#[derive(Debug, Args)]
#[cfg_attr(
    not(feature = "live"),
    allow(dead_code, reason = "only the address is told")
)]
#[command(after_help = "\
Examples:
  asof record zenoh://192.168.1.5:7447 -o run.mcap
  asof record zenoh:// -o run.mcap --topics '/scan,/tf*' --for 60s")]
pub struct Record {
    #[command(flatten)]
    connection: Connection,

    /// The new file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// How many megabytes may wait for the disk before messages are dropped
    #[arg(long, value_name = "MB", default_value_t = 256)]
    queue: u64,

    /// How chunks are compressed
    #[arg(long, value_name = "NAME", default_value = "zstd", value_parser = ["zstd", "lz4", "none"])]
    compression: String,

    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
}

/// Which robot, and what of it.
#[derive(Debug, Args)]
#[cfg_attr(
    not(feature = "live"),
    allow(dead_code, reason = "only the address is told")
)]
struct Connection {
    /// A running robot: zenoh://host:port, or zenoh:// for the router on this machine; with
    /// ?mode=peer|client|router, domain=N, listen=host:port, multicast=true
    #[arg(value_name = "URL")]
    url: String,

    /// Only these topics: names or globs, with commas between them
    #[arg(long, value_name = "A,B", value_parser = parse_patterns)]
    topics: Option<Patterns>,

    /// Raw Zenoh keys too, such as 'demo/**'
    #[arg(long, value_name = "EXPRESSION")]
    key: Vec<String>,

    /// Look for definitions of ROS 2 types in this folder too; nodes that describe their own types, and
    /// the standard types, need none
    #[arg(long, value_name = "DIR")]
    msg_path: Vec<PathBuf>,

    /// Stop after this time: seconds, or with a unit such as 30s, 5m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
}

#[cfg(feature = "live")]
impl Live {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        watching::run(self, screen)
    }
}

#[cfg(feature = "live")]
impl Record {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        recording::run(self, screen)
    }
}

#[cfg(not(feature = "live"))]
impl Live {
    pub fn run(&self, _screen: &Screen) -> anyhow::Result<Outcome> {
        Err(absent(&self.connection.url))
    }
}

#[cfg(not(feature = "live"))]
impl Record {
    pub fn run(&self, _screen: &Screen) -> anyhow::Result<Outcome> {
        Err(absent(&self.connection.url))
    }
}

/// Compiled without the robots, nothing has to be ended in order.
#[cfg(not(feature = "live"))]
#[allow(clippy::unnecessary_wraps, reason = "with robots it can fail")]
pub fn stop_on_signals() -> anyhow::Result<()> {
    Ok(())
}

/// Compiled without the robots.
#[cfg(not(feature = "live"))]
pub fn absent(url: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "cannot connect to {url}: this build has no live support; build one with it: \
         cargo install --path crates/asof --features live"
    )
}

/// A place among those that were named, of which at least one is a robot.
pub enum Place {
    /// The address of a robot.
    Robot(String),
    /// A recording, under the name that it is told of by.
    #[cfg_attr(
        not(feature = "live"),
        allow(dead_code, reason = "without robots nothing stands beside them")
    )]
    Recording(String, Box<dyn Recording>),
}

/// Whether a place is a running robot.
pub fn is_robot(place: &std::path::Path) -> bool {
    place
        .to_str()
        .is_some_and(|text| text.starts_with("zenoh://"))
}
