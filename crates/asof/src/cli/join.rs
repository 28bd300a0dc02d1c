//! `asof join`

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;

use asof_core::{Batch, Message, Query, Source};
use clap::{Args, ValueEnum};

use super::Outcome;
use super::cat::tell_problems;
use super::decoded::Decoders;
use super::failure::Usage;
use super::place::Opening;
use super::screen::{Screen, output};

/// For every message of one topic, the message of others that belongs to it
///
/// One JSON object a line: log_time and data of the anchor's message, and under `with` for each other topic
/// the log_time, the distance in nanoseconds and the data of its message; null where there is none.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof join run.mcap --anchor /camera/image --with /odom,/imu
  asof join run.mcap --anchor /scan --with /odom --method last --within 100ms")]
pub struct Join {
    /// A recording
    #[arg(value_name = "PLACE")]
    place: PathBuf,

    /// The topic whose messages lead
    #[arg(long, value_name = "TOPIC")]
    anchor: String,

    /// The topics to look up, with commas between them
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    with: Vec<String>,

    /// Which message belongs to the anchor's
    #[arg(long, value_enum, default_value_t)]
    method: Method,

    /// None that is farther away than this: 50ms, 1s
    #[arg(long, value_name = "TIME", value_parser = parse_distance)]
    within: Option<i64>,

    #[command(flatten)]
    opening: Opening,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Method {
    /// The nearest in time; of two equally near, the earlier
    #[default]
    Nearest,
    /// The last at or before
    Last,
}

fn parse_distance(text: &str) -> Result<i64, String> {
    match format!("+{text}").parse() {
        Ok(asof_core::When::AfterStart(nanos)) => Ok(nanos),
        _ => Err("a length of time, such as 50ms or 1.5s".to_owned()),
    }
}

/// One of the other topics: its last messages, as far as an anchor may still want them.
struct Other {
    topic: String,
    messages: VecDeque<Message>,
}

impl Join {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let file = self.opening.open(std::slice::from_ref(&self.place))?;
        let summary = file.summary();
        let known = summary.topics();
        for topic in self.with.iter().chain([&self.anchor]) {
            if !known.contains(&topic.as_str()) {
                return Err(Usage::error(format!("there is no topic '{topic}'")));
            }
        }
        let mut joiner = Joiner {
            join: self,
            anchors: VecDeque::new(),
            others: self
                .with
                .iter()
                .map(|topic| Other {
                    topic: topic.clone(),
                    messages: VecDeque::new(),
                })
                .collect(),
            decoders: Decoders::default(),
            out: output(),
        };
        let topics = self.with.iter().chain([&self.anchor]).cloned();
        for batch in file.read(&Query::topics(topics))? {
            joiner.take(&batch?)?;
        }
        joiner.settle(true)?;
        joiner.out.flush()?;
        let has_damage = joiner.decoders.tell(screen);
        let problems = &file.summary().problems;
        tell_problems(problems, screen);
        Ok(if has_damage {
            Outcome::Damaged
        } else {
            Outcome::of(problems)
        })
    }
}

struct Joiner<'a, W> {
    join: &'a Join,
    /// Anchors that wait for what may still come nearer.
    anchors: VecDeque<Message>,
    others: Vec<Other>,
    decoders: Decoders,
    out: W,
}

impl<W: Write> Joiner<'_, W> {
    fn take(&mut self, batch: &Batch) -> anyhow::Result<()> {
        for message in batch.iter() {
            let topic = &message.channel.topic;
            // What waits must not keep its chunk alive.
            let owned = || message.to_message().detached();
            for other in &mut self.others {
                if other.topic == *topic {
                    other.messages.push_back(owned());
                }
            }
            if *topic == self.join.anchor {
                self.anchors.push_back(owned());
            }
            self.settle(false)?;
        }
        Ok(())
    }

    /// Writes the anchors for which nothing nearer can come.
    fn settle(&mut self, is_end: bool) -> anyhow::Result<()> {
        while let Some(anchor) = self.anchors.front() {
            let at = anchor.log_time;
            let is_settled =
                |other: &Other| other.messages.back().is_some_and(|last| last.log_time > at);
            if !is_end && !self.others.iter().all(is_settled) {
                break;
            }
            // Of those at or before the anchor only the last is wanted, by this one and by all that follow.
            for other in &mut self.others {
                while other
                    .messages
                    .get(1)
                    .is_some_and(|next| next.log_time <= at)
                {
                    other.messages.pop_front();
                }
            }
            let Some(anchor) = self.anchors.pop_front() else {
                break;
            };
            self.write(&anchor)?;
        }
        // Without an anchor that waits, only the last of each can still be wanted.
        if self.anchors.is_empty() {
            for other in &mut self.others {
                while other.messages.len() > 1 {
                    other.messages.pop_front();
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, anchor: &Message) -> anyhow::Result<()> {
        let at = anchor.log_time;
        let mut line = Vec::new();
        write!(line, "{{\"log_time\":{},\"data\":", at.nanos())?;
        put(&mut self.decoders, anchor, &mut line);
        line.extend_from_slice(b",\"with\":{");
        for (index, other) in self.others.iter().enumerate() {
            if index > 0 {
                line.push(b',');
            }
            serde_json::to_writer(&mut line, &other.topic)?;
            line.push(b':');
            let found = self.join.choose(&other.messages, at);
            match found {
                None => line.extend_from_slice(b"null"),
                Some(found) => {
                    let (time, distance) = (found.log_time.nanos(), found.log_time.since(at));
                    write!(
                        line,
                        "{{\"log_time\":{time},\"offset\":{distance},\"data\":"
                    )?;
                    put(&mut self.decoders, found, &mut line);
                    line.push(b'}');
                }
            }
        }
        line.extend_from_slice(b"}}\n");
        self.out.write_all(&line)?;
        Ok(())
    }
}

impl Join {
    fn choose<'a>(
        &self,
        messages: &'a VecDeque<Message>,
        at: asof_core::Stamp,
    ) -> Option<&'a Message> {
        let before = messages.iter().rev().find(|message| message.log_time <= at);
        let after = messages.iter().find(|message| message.log_time > at);
        let distance = |message: &Message| message.log_time.since(at).saturating_abs();
        let found = match (self.method, before, after) {
            (Method::Last, before, _) => before,
            (Method::Nearest, Some(before), Some(after)) => {
                Some(if distance(after) < distance(before) {
                    after
                } else {
                    before
                })
            }
            (Method::Nearest, before, after) => before.or(after),
        };
        found.filter(|found| self.within.is_none_or(|within| distance(found) <= within))
    }
}

/// The message as JSON; null where it cannot be decoded.
fn put(decoders: &mut Decoders, message: &Message, line: &mut Vec<u8>) {
    let batch: Batch = [message.clone()].into_iter().collect();
    let Some(message) = batch.get(0) else {
        return;
    };
    if decoders.json(message, line).is_err() {
        line.extend_from_slice(b"null");
    }
}
