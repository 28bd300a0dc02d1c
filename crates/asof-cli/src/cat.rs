//! `asof cat`

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use asof::decode::Survey;
use asof::{Follow, FollowEnd, Followed, Growth, Problem, Query, Source, Summary};
use clap::Args;

use super::Outcome;
use super::failure::Usage;
use super::fields::FieldChoice;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::{Screen, is_watched, line_room, output, output_of_values, write_json};
use super::select::Select;
use asof::rows::{MessageRows, MessageWriter, RowForm};
use asof::text::{counted, hint};

/// Print messages, decoded, one per line
///
/// With --json, one object per line: topic, log_time and publish_time (nanoseconds since the epoch),
/// sequence, type, encoding, data. With --raw, data is the payload in base64. With --csv, the messages of
/// one topic, their structs spread over columns.
///
/// With --follow, MCAP files that are being written are printed as they grow, until their writers close them: first
/// the messages so far, in order of time, then chunk by chunk. A running robot is printed as it goes, until Ctrl-C or until
/// --for ends; recordings given beside it come first, as far as they are older.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag that a person gives or not"
)]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof cat run.mcap --topics /odom --start +10s --end +12.5s
  asof cat recording.mcap --follow --start -3s --json | jq .data
  asof cat zenoh://192.168.1.5:7447 --topics /odom --for 30s --csv
  asof cat yesterday.mcap zenoh://192.168.1.5:7447 --topics /diagnostics")]
pub struct Cat {
    /// A recording or a running robot (zenoh://host:port), or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    opening: Opening,

    /// Print payloads without decoding them
    #[arg(long)]
    raw: bool,

    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Continue with what is written to the files, until their writers close them; a running robot is always followed
    #[arg(long, conflicts_with_all = ["attachment", "metadata"])]
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

    #[command(flatten)]
    fields: FieldChoice,

    /// Print each message over several lines; the default for one message (--limit 1) on a terminal
    #[arg(long, conflicts_with_all = ["json", "raw", "csv"])]
    pretty: bool,

    /// Print comma-separated values, of one topic
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    csv: bool,
}

impl Cat {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let wanted = TopicRequest::chosen(self.select.patterns());
        let purpose = if self.follow {
            Purpose::Follow
        } else {
            Purpose::Read
        };
        let file = self.opening.open(&self.places, &wanted, purpose, screen)?;
        let mut has_damage = false;
        if let Some(name) = &self.attachment {
            self.write_attachment(&*file, name, screen)?;
        } else if let Some(name) = &self.metadata {
            self.write_metadata(&*file, name)?;
        } else {
            has_damage = self.write_messages(&*file, screen)?;
        }
        Ok(told(&file.summary().problems, has_damage, screen))
    }

    fn write_messages(&self, file: &dyn Source, screen: &Screen) -> anyhow::Result<bool> {
        let summary = file.summary();
        let mut query = self.select.query(&self.places[0], file, screen)?;
        self.fields.narrow(&mut query, file, screen)?;
        if self.csv {
            refuse_several(&summary, &query)?;
        }
        let has_damage = if self.limit == Some(0) || query.range.is_empty() {
            false
        } else {
            // The topics of a robot are not known in advance, and not waited for.
            let survey = if self.csv && file.growth() == Growth::Finished {
                Survey::of(file, &query)?
            } else {
                Survey::default()
            };
            self.print(&mut *file.follow(&query)?, survey, screen)?
        };
        if let Some(counters) = file.read_stats().filter(|_| screen.is_verbose()) {
            screen.note(format_args!(
                "{} opened, {} decompressed",
                counted(counters.chunks, "chunk"),
                counted(counters.decompressed_bytes, "byte"),
            ));
        }
        Ok(has_damage)
    }

    /// Prints messages until the limit or the end; returns whether some could not be decoded.
    fn print(
        &self,
        follow: &mut dyn Follow,
        survey: Survey,
        screen: &Screen,
    ) -> anyhow::Result<bool> {
        let is_single = self.limit == Some(1) && is_watched() && !self.raw;
        let form = match (self.csv, self.json) {
            (true, _) => RowForm::Csv,
            (_, true) => RowForm::Json,
            _ => RowForm::Lines {
                room: line_room(),
                is_pretty: self.pretty || is_single,
            },
        };
        let out = if self.csv {
            output_of_values()
        } else {
            output()
        };
        let options = MessageRows {
            fields: self.fields.projection(),
            is_raw: self.raw,
            survey,
            ..MessageRows::default()
        };
        let mut rows = MessageWriter::new(out, form, options);
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 {
            match follow.next(Instant::now() + FLUSH_INTERVAL)? {
                Followed::Batch(batch) => {
                    for message in batch
                        .iter()
                        .take(usize::try_from(left).unwrap_or(usize::MAX))
                    {
                        rows.write(message)?;
                        left -= 1;
                    }
                    rows.flush()?;
                }
                // Flush before waiting, so that available messages are shown.
                Followed::CaughtUp => rows.flush()?,
                Followed::Restarted => {
                    screen.note(
                        "the clock was set back: messages from here on are from another time",
                    );
                }
                Followed::End(FollowEnd::Lost(reason)) => {
                    rows.finish(&screen.reports(""))?;
                    return Err(anyhow!(reason));
                }
                Followed::End(_) => break,
            }
        }
        let (_, is_complete) = rows.finish(&screen.reports(""))?;
        Ok(!is_complete)
    }

    fn write_attachment(
        &self,
        file: &dyn Source,
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

    /// Every record of that name, one object per line.
    fn write_metadata(&self, file: &dyn Source, name: &str) -> anyhow::Result<()> {
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
            write_json(&mut out, &file.metadata(entry)?)?;
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
        let known = match hint(name, names.iter().copied()) {
            Some(meant) => format!("; {meant}"),
            None if names.is_empty() => ", nor any other".to_owned(),
            None => format!("; it has: {}", names.join(", ")),
        };
        Usage::error(format!("{place} has no {what} '{name}'{known}"))
    }
}

/// Rejects several topics under one header line.
fn refuse_several(summary: &Summary, query: &Query) -> anyhow::Result<()> {
    let chosen = summary.topics().into_iter();
    let chosen: Vec<&str> = chosen
        .filter(|topic| query.topics.contains(topic))
        .collect();
    if chosen.len() <= 1 {
        return Ok(());
    }
    let count = chosen.len();
    let more = if count > 5 { ", …" } else { "" };
    Err(Usage::error(format!(
        "--csv prints one topic, and there are {count}: {}{more}; choose one with --topics",
        chosen[..count.min(5)].join(", "),
    )))
}

/// How long printed lines may wait for others before a flush.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// How many problems are shown below the messages.
const PROBLEMS_SHOWN: usize = 5;

/// The outcome of a verb that has read a recording, whose first problems are printed; `has_damage` is what else was wrong.
pub fn told(problems: &[Problem], has_damage: bool, screen: &Screen) -> Outcome {
    tell_problems(problems, screen);
    if has_damage {
        Outcome::Damaged
    } else {
        Outcome::of(problems)
    }
}

/// Prints the first problems of a recording.
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
