//! `asof split`

use std::io::{self, Write};
use std::path::PathBuf;

use asof::Recording;
use asof::files::{Cut, SplitOptions, SplitReport};
use clap::{ArgGroup, Args};

use super::Outcome;
use super::length::parse_nanos;
use super::place::{FileOpening, Purpose};
use super::screen::{Palette, Screen};
use super::select::Select;
use super::writing::{Chunks, parse_size, tell};
use asof::text::{bytes, counted};

/// Split recordings into several MCAP files, by time or by size
///
/// Parts are named after the output: run.mcap becomes run_0.mcap, run_1.mcap, … Every message is in one of
/// them, except that messages latched when a part begins (such as /tf_static) are also at its beginning, so
/// that each can be used alone. Attachments and metadata go into the first. If the output is a folder, parts
/// are named after the recording. Times without messages make no part.
///
/// With --json, one object: places, parts (each with output, size, start, end, messages, latched), messages
/// (latched ones counted once), problems.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof split run.mcap -o parts/run.mcap --duration 60s
  asof split run.bag -o parts/ --size 500M --topics '/camera/*,/tf*'")]
#[command(group(ArgGroup::new("cut").required(true).args(["duration", "size"])))]
pub struct Split {
    /// Recordings: files, or folders of them
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The name that parts are derived from, or the folder for them
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Duration of a part: seconds, or with a unit such as 60s, 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_nanos)]
    duration: Option<i64>,

    /// Approximate size of a part: bytes, or with k, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    chunks: Chunks,

    #[command(flatten)]
    opening: FileOpening,

    /// Replace existing files
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const BAR: &str = "splitting [{bar:40}] {human_pos}/{human_len} messages";
impl Split {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        self.chunks.check(screen);
        let recording = self.opening.open(&self.places, Purpose::ReadOnce, screen)?;
        let recording = Recording::new(recording, &self.places).with_progress(screen.reports(BAR));
        let cut = match (self.duration, self.size) {
            (Some(nanos), _) => Cut::Duration(nanos),
            (None, size) => Cut::Size(size.unwrap_or(u64::MAX)),
        };
        let options = SplitOptions {
            query: self.select.query(&self.places[0], &recording, screen)?,
            writer: self.chunks.options(),
            force: self.force,
            ..SplitOptions::new(cut)
        };
        let done = recording.split(&self.output, &options)?;
        tell(&done, &done.problems, self.json, screen, print)
    }
}

fn print(out: &mut dyn Write, done: &SplitReport, colors: Palette) -> io::Result<()> {
    let Palette { good, .. } = colors;
    for part in &done.parts {
        let (messages, size) = (counted(part.messages, "message"), bytes(part.size));
        writeln!(
            out,
            "{good}wrote{good:#} {}: {messages}, {size}",
            part.output
        )?;
    }
    let parts = counted(done.parts.len() as u64, "part");
    writeln!(out, "{} in {parts}", counted(done.messages, "message"))
}
