//! `asof live`, `asof record`, and running robots as every other verb sees them.

#[cfg(not(feature = "live"))]
mod absent;
#[cfg(feature = "live")]
mod listening;
#[cfg(feature = "live")]
mod plain;
#[cfg(feature = "live")]
mod playing;
#[cfg(feature = "live")]
mod prompts;
#[cfg(feature = "live")]
mod recording;
#[cfg(feature = "live")]
mod robot;
mod snapshots;
#[cfg(feature = "live")]
mod supervisor;
#[cfg(feature = "live")]
mod table;
#[cfg(feature = "live")]
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use asof::Source;
use asof::formats::Compression;
use clap::{ArgGroup, Args};

#[cfg(not(feature = "live"))]
pub use absent::{Robots, listen, stop_on_signals};
#[cfg(feature = "live")]
pub use listening::{Robots, listen};
#[cfg(feature = "live")]
pub use robot::stop_on_signals;
pub use snapshots::Snapshots;

use super::choices::one_of;
use super::length::parse_time;
use super::select::{Patterns, parse_patterns};
use super::writing::{COMPRESSIONS, parse_size};

/// Watch a running robot: rates, bandwidth, jitter, age and drops of its topics
///
/// A table on a terminal (q quits, the arrows scroll, s sorts); lines with --plain or in a pipe; with
/// --json, one object per line for each topic and interval.
#[derive(Debug, Args)]
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

    /// Time between two updates: seconds, or with a unit such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = parse_time)]
    interval: Duration,
}

/// Record a running robot as MCAP
///
/// Ctrl-C finalizes the file. If the recording is killed, at most the last second is missing, and
/// `asof recover` repairs the file. When the disk is slower than the robot, messages are dropped, counted by
/// topic and reported; the exit code is 3 then. On a terminal, a line that is typed is recorded
/// as a note.
///
/// With --keep, the last messages are kept, in memory or in files of a --ring, and written on an event: a
/// --trigger, the enter key, or the signal SIGUSR1. Each snapshot is a file of its own: run_0.mcap, run_1.mcap, …
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof record zenoh://192.168.1.5:7447 -o run.mcap
  asof record zenoh:// -o run.mcap --topics '/scan,/tf*' --for 60s
  asof record zenoh:// -o run.mcap --exclude '/camera/*' --split-time 10m --quota 200G --tag site=hall
  asof record zenoh:// -o crash.mcap --keep 60s --after 30s --trigger '/bumper.data == true' --trigger 'log >= error'
  asof record zenoh://one --and foxglove://two --prefix /one --prefix /two -o both.mcap")]
#[command(group(ArgGroup::new("splits").multiple(true).args(["split_size", "split_time"])))]
pub struct Record {
    #[command(flatten)]
    connection: Connection,

    /// The new file. {time} in its name is the start of the recording: run-{time}.mcap
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// How many megabytes may wait for the disk before messages are dropped
    #[arg(long, value_name = "MB", default_value_t = 256)]
    queue: u64,

    /// Compression of chunks
    #[arg(long, value_name = "NAME", default_value = "zstd", value_parser = one_of(COMPRESSIONS))]
    compression: Compression,

    /// Compression level; 0 is the default of the compression
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=22))]
    level: u32,

    /// Leave out these topics: names or globs, separated by commas
    #[arg(long, value_name = "A,B", value_parser = parse_patterns)]
    exclude: Option<Patterns>,

    /// Also record this robot, into the same file; give each a --prefix, in the order of the addresses
    #[arg(long = "and", value_name = "URL")]
    others: Vec<String>,

    /// Prefix of a robot's topics: /robot1
    #[arg(long, value_name = "NAME", value_parser = parse_prefix)]
    prefix: Vec<String>,

    /// Start the next file at about this size: bytes, or with k, M or G. Files are named run_0.mcap,
    /// run_1.mcap, …, after those of earlier runs, and each begins with the latched messages
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    split_size: Option<u64>,

    /// Start the next file after this time: seconds, or with a unit such as 60s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    split_time: Option<Duration>,

    /// Total size of all files, also of earlier runs: bytes, or with k, M or G. The oldest is deleted for the newest, and
    /// reported
    #[arg(long, value_name = "BYTES", value_parser = parse_size, requires = "splits")]
    quota: Option<u64>,

    /// Write nothing until an event, and then this much of the time before it: seconds, or with a unit
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "splits")]
    keep: Option<Duration>,

    /// How long a snapshot continues after the event
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "30s", requires = "keep")]
    after: Duration,

    /// Maximum size of what is kept: bytes, or with k, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "1G", requires = "keep")]
    keep_size: u64,

    /// Keep it in files in this folder instead of memory: for more than fits into memory
    #[arg(long, value_name = "DIR", requires = "keep")]
    ring: Option<PathBuf>,

    /// Write a snapshot on this event: '/bumper.data == true' (a field, with ==, !=, <, <=, > or >=), 'log >= error',
    /// 'rate(/scan) < 5' (the rate must fall: a topic that never came does not fire). May be repeated
    #[arg(long, value_name = "EXPR", requires = "keep")]
    trigger: Vec<String>,

    /// Priority of topics when the disk is slower than the robot: lower numbers are dropped first; the default is 0. GLOB=N,
    /// as in '/camera/*=-1'; may be repeated, and the last match counts
    #[arg(long, value_name = "GLOB=N", value_parser = parse_priority)]
    priority: Vec<(Patterns, i32)>,

    /// Override the quality of service of topics: GLOB=reliable, or best_effort, transient_local, volatile, joined by
    /// +. May be repeated, and the last match counts
    #[arg(long, value_name = "GLOB=QOS", value_parser = parse_qos)]
    qos: Vec<(Patterns, String)>,

    /// Log messages by the robot's own clock, the topic /clock; earlier messages are left out and counted
    #[arg(long, conflicts_with = "keep")]
    sim_time: bool,

    /// Describe the recording: name=value, as MCAP metadata
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_tag)]
    tag: Vec<(String, String)>,

    /// Print a summary as JSON
    #[arg(long)]
    json: bool,

    /// With --json, also print progress at this interval, one object per line: seconds, or with a unit
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "json")]
    status: Option<Duration>,
}

fn parse_prefix(text: &str) -> Result<String, String> {
    let name = text.trim_matches('/');
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err("give a name such as /robot1".to_owned());
    }
    Ok(format!("/{name}"))
}

fn parse_priority(text: &str) -> Result<(Patterns, i32), String> {
    let (globs, number) = text
        .rsplit_once('=')
        .ok_or("give topics and a number, as in '/camera/*=-1'")?;
    let number = number
        .trim()
        .parse()
        .map_err(|_| format!("'{number}' is not an integer"))?;
    Ok((parse_patterns(globs)?, number))
}

fn parse_qos(text: &str) -> Result<(Patterns, String), String> {
    let (globs, words) = text
        .rsplit_once('=')
        .ok_or("give topics and a quality, as in '/scan=reliable'")?;
    Ok((parse_patterns(globs)?, words.to_owned()))
}

fn parse_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give a name and a value, as in site=hall".to_owned()),
    }
}

/// Publish a recording to a robot's network, as if the robot ran
///
/// Over Zenoh, with the keys and tokens of rmw_zenoh, so that ROS 2 nodes receive it. Any format is played: messages of
/// ROS 1 and others are converted if ROS 2 has a standard type of the same name; what cannot be published is reported. On a
/// terminal, space pauses and resumes, q quits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof play run.mcap zenoh://
  asof play run.bag zenoh://192.168.1.5:7447 --rate 2 --loop --clock --start +10s --remap /odom:=/robot/odom")]
pub struct Play {
    /// Recordings; several are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The destination: zenoh://host:port, or zenoh:// for the router on this machine
    #[arg(value_name = "URL", required = true)]
    url: String,

    #[command(flatten)]
    select: super::select::Select,

    /// Speed, as a multiple of the recorded one
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = parse_rate)]
    rate: f64,

    /// Start over at the end
    #[arg(long = "loop")]
    repeat: bool,

    /// Publish a topic under another name: /odom:=/robot/odom
    #[arg(long, value_name = "FROM:=TO", value_parser = parse_remap)]
    remap: Vec<(String, String)>,

    /// Publish the recording's time on /clock, this many times per second
    #[arg(long, value_name = "HZ", num_args = 0..=1, default_missing_value = "40", value_parser = parse_rate)]
    clock: Option<f64>,

    /// Start paused, until the space bar is pressed
    #[arg(long)]
    paused: bool,

    /// Stop after this time: seconds, or with a unit such as 30s, 5m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|rate: &f64| (1e-3..=1e3).contains(rate))
        .ok_or_else(|| "give a number from 0.001 to 1000".to_owned())
}

fn parse_remap(text: &str) -> Result<(String, String), String> {
    let (from, to) = text
        .split_once(":=")
        .ok_or("give two names separated by :=, as in /odom:=/robot/odom")?;
    let is_topic = |name: &str| name.len() > 1 && name.starts_with('/') && !name.ends_with('/');
    if !is_topic(from) || !is_topic(to) {
        return Err("topics start with a slash and do not end with one".to_owned());
    }
    Ok((from.to_owned(), to.to_owned()))
}

/// The robot, and what to read of it.
#[derive(Debug, Default, Args)]
struct Connection {
    /// A running robot: zenoh://host:port, or zenoh:// for the router on this machine; with
    /// ?mode=peer|client|router, domain=N, listen=host:port, multicast=true. Or a Foxglove server:
    /// foxglove://host:8765, ws://host:8765. Or a rosbridge server: rosbridge://host:9090.
    /// Or robots on DDS, in a build with the feature `dds`: dds://?domain=0, dds://INTERFACE?domain=0
    #[arg(value_name = "URL")]
    url: String,

    /// Only these topics: names or globs, separated by commas
    #[arg(long, value_name = "A,B", value_parser = parse_patterns)]
    topics: Option<Patterns>,

    /// Also subscribe to raw Zenoh keys, such as 'demo/**'
    #[arg(long, value_name = "EXPRESSION")]
    key: Vec<String>,

    /// Also look for definitions of ROS 2 types in this folder; nodes that describe their own types, and
    /// the standard types, need none
    #[arg(long, value_name = "DIR")]
    msg_path: Vec<PathBuf>,

    /// Stop after this time: seconds, or with a unit such as 30s, 5m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
}

/// One of the named places, of which at least one is a robot.
pub enum Place {
    /// The address of a robot.
    Robot(String),
    /// A recording, and its name in messages.
    Recording(String, Box<dyn Source>),
}
