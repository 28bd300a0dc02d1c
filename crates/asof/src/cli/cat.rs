//! `asof cat`

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use asof_core::Problem;
use asof_formats::{McapFollower, Recording};
use clap::Args;

use super::Outcome;
use super::decoded::Decoders;
use super::failure::Usage;
use super::lines::{Lines, Style};
use super::live;
use super::numbers::counted;
use super::place::Opening;
use super::screen::{Screen, output};
use super::select::Select;

/// Print messages, decoded, one per line
///
/// With --json, one object a line: topic, log_time and publish_time (nanoseconds since the epoch),
/// sequence, type, encoding, data. With --raw, data is the payload in base64. With --csv, the messages of
/// one topic, their structs spread over columns.
///
/// With --follow, an MCAP file that is being written is printed as it grows, until its writer closes it.
/// Messages come chunk by chunk, each chunk in order of time.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag that a person gives or not"
)]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof cat run.mcap --topics /odom --start +10s --end +12.5s
  asof cat recording.mcap --follow --start -3s --json | jq .data")]
pub struct Cat {
    /// A recording, or several, which are merged by time; or a running robot: zenoh://host:port
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    opening: Opening,

    /// Print payloads as they are, without decoding them
    #[arg(long)]
    raw: bool,

    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Go on with what is written to the file, until its writer closes it
    #[arg(long, conflicts_with_all = ["attachment", "metadata", "csv"])]
    follow: bool,

    /// Write the contents of this attachment to the output instead
    #[arg(long, value_name = "NAME", conflicts_with = "metadata")]
    attachment: Option<String>,

    /// Print the metadata of this name as JSON instead
    #[arg(long, value_name = "NAME")]
    metadata: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print comma-separated values, of one topic
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    csv: bool,
}

impl Cat {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        if live::is_robot(&self.places[0]) {
            return self.follow_robot(screen);
        }
        if self.follow {
            return self.follow(screen);
        }
        let file = self.opening.open(&self.places, screen)?;
        let mut has_damage = false;
        if let Some(name) = &self.attachment {
            self.write_attachment(&*file, name, screen)?;
        } else if let Some(name) = &self.metadata {
            self.write_metadata(&*file, name)?;
        } else if self.csv {
            has_damage = self.write_csv(&*file, screen)?;
        } else {
            has_damage = self.write_messages(&*file, screen)?;
        }
        let problems = &file.summary().problems;
        tell_problems(problems, screen);
        Ok(if has_damage {
            Outcome::Damaged
        } else {
            Outcome::of(problems)
        })
    }

    /// A running robot has no end: its messages are printed as they come.
    fn follow_robot(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let is_alone = self.places.len() == 1 && self.attachment.is_none();
        if !is_alone || self.metadata.is_some() || self.csv || !self.select.is_all_of_time() {
            return Err(Usage::error(
                "of a running robot, cat prints messages as they come: one place, without times, --csv, \
                 --attachment and --metadata; `asof record` makes a recording of it",
            ));
        }
        #[cfg(feature = "live")]
        return live::cat(
            &self.places[0],
            self.select.patterns(),
            self.opening.folders(),
            Style::new(self.json, self.raw),
            self.limit,
            screen,
        );
        #[cfg(not(feature = "live"))]
        {
            let _ = screen;
            Err(live::absent(&self.places[0].display().to_string()))
        }
    }

    fn write_messages(&self, file: &dyn Recording, screen: &Screen) -> anyhow::Result<bool> {
        let query = self.select.query(&self.places[0], &file.summary(), screen);
        let mut lines = Lines::new(output(), Style::new(self.json, self.raw));
        let mut left = self.limit.unwrap_or(u64::MAX);
        if left > 0 && !query.range.is_empty() {
            'reading: for batch in file.read(&query)? {
                for message in batch?.iter() {
                    lines.write(message)?;
                    left -= 1;
                    if left == 0 {
                        break 'reading;
                    }
                }
            }
        }
        let has_damage = lines.finish(screen)?;
        if let Some(counters) = file.counters().filter(|_| screen.is_verbose()) {
            screen.note(format_args!(
                "{} opened, {} decompressed",
                counted(counters.chunks, "chunk"),
                counted(counters.decompressed_bytes, "byte"),
            ));
        }
        Ok(has_damage)
    }

    fn follow(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let [place] = &self.places[..] else {
            return Err(Usage::error("--follow takes one file"));
        };
        if super::place::is_address(place) || place.is_dir() {
            return Err(Usage::error(
                "--follow takes an MCAP file on this machine that is being written",
            ));
        }
        let range = if let Some(range) = self.select.range_without_recording() {
            range
        } else {
            // A time relative to the recording is relative to what there is of it now.
            let summary = self.opening.open(&self.places, screen)?.summary();
            self.select.range(&summary, screen)
        };
        let mut follower = super::place::follow(place)?;
        let mut lines = Lines::new(output(), Style::new(self.json, self.raw));
        let mut left = self.limit.unwrap_or(u64::MAX);
        'following: while left > 0 {
            let Some(batch) = follower.poll()? else {
                lines.flush()?;
                if follower.is_finished() {
                    break;
                }
                std::thread::sleep(FOLLOW_EVERY);
                continue;
            };
            for message in batch.iter() {
                let is_chosen = self.select.wants_topic(&message.channel.topic);
                if !is_chosen || !range.contains(message.log_time) {
                    continue;
                }
                lines.write(message)?;
                left -= 1;
                if left == 0 {
                    break 'following;
                }
            }
        }
        let has_damage = lines.finish(screen)?;
        let problems = McapFollower::problems(&follower);
        tell_problems(&problems, screen);
        Ok(if has_damage {
            Outcome::Damaged
        } else {
            Outcome::of(&problems)
        })
    }

    /// The messages of one topic as comma-separated values, under a line of names.
    fn write_csv(&self, file: &dyn Recording, screen: &Screen) -> anyhow::Result<bool> {
        let query = self.select.query(&self.places[0], &file.summary(), screen);
        let mut decoders = Decoders::default();
        let mut out = output();
        let mut topic: Option<String> = None;
        let mut line = Vec::new();
        let mut left = self.limit.unwrap_or(u64::MAX);
        'reading: for batch in file.read(&query)? {
            for message in batch?.iter() {
                if left == 0 {
                    break 'reading;
                }
                match &topic {
                    Some(topic) if *topic != message.channel.topic => {
                        return Err(Usage::error(
                            "--csv prints one topic, and there are several; choose one with --topics",
                        ));
                    }
                    Some(_) => {}
                    None => {
                        let names = decoders.csv_names(message).unwrap_or_default();
                        let names = names.iter().map(|name| format!(",{name}"));
                        writeln!(out, "log_time,publish_time{}", names.collect::<String>())?;
                        topic = Some(message.channel.topic.clone());
                    }
                }
                line.clear();
                write!(
                    line,
                    "{},{}",
                    message.log_time.nanos(),
                    message.publish_time.nanos()
                )?;
                if decoders.csv(message, &mut line).is_ok() {
                    line.push(b'\n');
                    out.write_all(&line)?;
                }
                left -= 1;
            }
        }
        out.flush()?;
        Ok(decoders.tell(screen))
    }

    fn write_attachment(
        &self,
        file: &dyn Recording,
        name: &str,
        screen: &Screen,
    ) -> anyhow::Result<()> {
        let summary = file.summary();
        let mut found = summary
            .attachments
            .iter()
            .filter(|entry| entry.name == name);
        let Some(entry) = found.next() else {
            let names = summary.attachments.iter().map(|entry| entry.name.as_str());
            return Err(self.nothing_named("attachment", name, names));
        };
        let others = found.count() as u64;
        if others > 0 {
            screen.note(format_args!(
                "{} more of that name; this is the first",
                counted(others, "attachment")
            ));
        }
        let data = file.attachment(entry)?;
        let mut out = io::stdout().lock();
        out.write_all(&data)?;
        Ok(out.flush()?)
    }

    /// Every record of that name, one object a line.
    fn write_metadata(&self, file: &dyn Recording, name: &str) -> anyhow::Result<()> {
        let summary = file.summary();
        let mut found = summary
            .metadata
            .iter()
            .filter(|entry| entry.name == name)
            .peekable();
        if found.peek().is_none() {
            let names = summary.metadata.iter().map(|entry| entry.name.as_str());
            return Err(self.nothing_named("metadata", name, names));
        }
        let mut out = output();
        for entry in found {
            serde_json::to_writer(&mut out, &file.metadata(entry)?).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Ok(out.flush()?)
    }

    fn nothing_named<'a>(
        &self,
        what: &str,
        name: &str,
        names: impl Iterator<Item = &'a str>,
    ) -> anyhow::Error {
        let names: Vec<&str> = names.collect();
        let place = self.places[0].display();
        if names.is_empty() {
            anyhow!("{place} has no {what} '{name}', nor any other")
        } else {
            anyhow!(
                "{place} has no {what} '{name}'; it has: {}",
                names.join(", ")
            )
        }
    }
}

/// How often a file that is being written is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(50);
/// As many as fit below the messages.
const PROBLEMS_SHOWN: usize = 5;

/// Tells the first problems of a recording.
pub fn tell_problems(problems: &[Problem], screen: &Screen) {
    for problem in problems.iter().take(PROBLEMS_SHOWN) {
        screen.warning(problem);
    }
    if problems.len() > PROBLEMS_SHOWN {
        let more = (problems.len() - PROBLEMS_SHOWN) as u64;
        screen.warning(format_args!(
            "{} more; `asof doctor` lists them all",
            counted(more, "problem")
        ));
    }
}
