//! `asof join`

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;

use asof_core::{Batch, Message, MessageRef, Query, Source, Stamp, TimeRange};
use clap::{Args, ValueEnum};

use super::Outcome;
use super::cat::tell_problems;
use super::decoded::Decoders;
use super::failure::Usage;
use super::lines::shortened;
use super::numbers::shown;
use super::place::Opening;
use super::screen::{Screen, output};
use super::select::Span;

/// For every message of one topic, the message of others that belongs to it
///
/// With --json, one object a line: the anchor's message as `asof cat --json` prints it, and under `with` for
/// each other topic its message in the same form, with `offset`: by how many nanoseconds it is later than the
/// anchor's; null where there is none.
///
/// With --method interpolate, a message's floats are taken from between the last message and the next:
/// numbers linearly, rotations along the arc. Such a message has the anchor's log_time, the sequence null, and
/// `between`, the two log_times that it lies between. Where nothing can lie between two messages (pictures,
/// scans, texts, lists of different lengths), it is the nearest.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof join run.mcap --anchor /camera/image --with /odom,/imu --json
  asof join run.mcap --anchor /scan --with /odom --method interpolate --within 100ms")]
pub struct Join {
    /// A recording, or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

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
    span: Span,

    #[command(flatten)]
    opening: Opening,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Method {
    /// The nearest in time; of two equally near, the earlier
    #[default]
    Nearest,
    /// The last at or before
    Last,
    /// Between the last and the next, by how far each is away
    Interpolate,
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

/// What belongs to an anchor.
#[derive(Clone, Copy)]
enum Found<'a> {
    One(&'a Message),
    Between(&'a Message, &'a Message),
}

impl Join {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let file = self.opening.open(&self.places, screen)?;
        let summary = file.summary();
        let known = summary.topics();
        for topic in self.with.iter().chain([&self.anchor]) {
            if !known.contains(&topic.as_str()) {
                return Err(Usage::error(format!("there is no topic '{topic}'")));
            }
        }
        let range = self.span.range(&summary, screen);
        let mut joiner = Joiner {
            join: self,
            range,
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
        if !range.is_empty() {
            joiner.read(&*file)?;
        }
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

    fn choose<'a>(&self, messages: &'a VecDeque<Message>, at: Stamp) -> Option<Found<'a>> {
        let before = messages.iter().rev().find(|message| message.log_time <= at);
        let after = messages.iter().find(|message| message.log_time > at);
        let distance = |message: &Message| message.log_time.since(at).saturating_abs();
        let is_near = |message: &Message| self.within.is_none_or(|most| distance(message) <= most);
        if self.method == Method::Last {
            return before.filter(|found| is_near(found)).map(Found::One);
        }
        if self.method == Method::Interpolate
            && let (Some(before), Some(after)) = (before, after)
            && before.log_time < at
            && is_near(before)
            && is_near(after)
        {
            return Some(Found::Between(before, after));
        }
        let nearest = match (before, after) {
            (Some(before), Some(after)) if distance(after) < distance(before) => Some(after),
            (before, after) => before.or(after),
        };
        nearest.filter(|found| is_near(found)).map(Found::One)
    }
}

struct Joiner<'a, W> {
    join: &'a Join,
    /// The time of the anchors that are wanted.
    range: TimeRange,
    /// Anchors that wait for what may still come nearer.
    anchors: VecDeque<Message>,
    others: Vec<Other>,
    decoders: Decoders,
    out: W,
}

impl<W: Write> Joiner<'_, W> {
    fn read(&mut self, file: &dyn Source) -> anyhow::Result<()> {
        let others = self.join.with.iter().cloned();
        // What was known when the time begins belongs to its first anchors.
        if self.range.start > file.summary().range.start {
            let topics = Query::topics(others.clone()).topics;
            let known = file.backfill(&topics, self.range.start.plus_nanos(-1))?;
            for message in known.iter() {
                self.push(message);
            }
        }
        let query = Query {
            range: TimeRange::new(self.range.start, Stamp::MAX),
            ..Query::topics(others.chain([self.join.anchor.clone()]))
        };
        for batch in file.read(&query)? {
            if self.take(&batch?)? {
                break;
            }
        }
        self.settle(true)
    }

    /// Takes a batch in; whether nothing more is wanted.
    fn take(&mut self, batch: &Batch) -> anyhow::Result<bool> {
        for message in batch.iter() {
            let is_late = message.log_time > self.range.end;
            if message.channel.topic == self.join.anchor && !is_late {
                // What waits must not keep its chunk alive.
                self.anchors.push_back(message.to_message().detached());
            }
            self.push(message);
            self.settle(false)?;
            if is_late && self.anchors.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn push(&mut self, message: MessageRef<'_>) {
        for other in &mut self.others {
            if other.topic == message.channel.topic {
                other.messages.push_back(message.to_message().detached());
            }
        }
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
        if self.join.json {
            put_object(&mut self.decoders, anchor, &mut line)?;
            line.extend_from_slice(b",\"with\":{");
        } else {
            put_words(&mut self.decoders, anchor, &mut line)?;
        }
        for (index, other) in self.others.iter().enumerate() {
            if index > 0 && self.join.json {
                line.push(b',');
            }
            let found = self.join.choose(&other.messages, at);
            if self.join.json {
                serde_json::to_writer(&mut line, &other.topic).map_err(io::Error::from)?;
                line.push(b':');
                put_found(&mut self.decoders, found, at, &mut line)?;
            } else {
                put_found_words(&mut self.decoders, &other.topic, found, at, &mut line)?;
            }
        }
        if self.join.json {
            line.extend_from_slice(b"}}");
        }
        line.push(b'\n');
        self.out.write_all(&line)?;
        Ok(())
    }
}

fn part(before: &Message, after: &Message, at: Stamp) -> f64 {
    let whole = after.log_time.since(before.log_time);
    at.since(before.log_time) as f64 / whole.max(1) as f64
}

/// Of two, the one that is nearer; the earlier where both are equally near.
fn nearer<'a>(before: &'a Message, after: &'a Message, at: Stamp) -> &'a Message {
    if after.log_time.since(at) < at.since(before.log_time) {
        after
    } else {
        before
    }
}

/// A message of another topic as JSON, with its distance.
fn put_found(
    decoders: &mut Decoders,
    found: Option<Found<'_>>,
    at: Stamp,
    line: &mut Vec<u8>,
) -> io::Result<()> {
    let one = match found {
        None => {
            line.extend_from_slice(b"null");
            return Ok(());
        }
        Some(Found::One(message)) => message,
        Some(Found::Between(before, after)) => {
            let mut data = Vec::new();
            if between(decoders, before, after, at, &mut data) {
                let times = (before.log_time.nanos(), after.log_time.nanos());
                put_head(before, at, at, None, line)?;
                line.extend_from_slice(&data);
                write!(
                    line,
                    ",\"offset\":0,\"between\":[{},{}]}}",
                    times.0, times.1
                )?;
                return Ok(());
            }
            nearer(before, after, at)
        }
    };
    put_object(decoders, one, line)?;
    write!(line, ",\"offset\":{}}}", one.log_time.since(at))
}

/// The same for people.
fn put_found_words(
    decoders: &mut Decoders,
    topic: &str,
    found: Option<Found<'_>>,
    at: Stamp,
    line: &mut Vec<u8>,
) -> io::Result<()> {
    let topic = shown(topic);
    let one = match found {
        None => return write!(line, "  |  {topic}  -"),
        Some(Found::One(message)) => message,
        Some(Found::Between(before, after)) => {
            let mut data = Vec::new();
            if between(decoders, before, after, at, &mut data) {
                let data = shortened(&data);
                return write!(line, "  |  {topic}  between  {data}");
            }
            nearer(before, after, at)
        }
    };
    let millis = one.log_time.since(at) as f64 / 1e6;
    let data = data_of(decoders, one);
    write!(line, "  |  {topic}  {millis:+.3}ms  {}", shortened(&data))
}

fn put_words(decoders: &mut Decoders, anchor: &Message, line: &mut Vec<u8>) -> io::Result<()> {
    let data = data_of(decoders, anchor);
    let topic = shown(&anchor.channel.topic);
    write!(
        line,
        "{:.9}  {topic}  {}",
        anchor.log_time,
        shortened(&data)
    )
}

/// An object as `cat --json` prints it, still open.
fn put_object(decoders: &mut Decoders, message: &Message, line: &mut Vec<u8>) -> io::Result<()> {
    let (log_time, publish_time) = (message.log_time, message.publish_time);
    put_head(
        message,
        log_time,
        publish_time,
        Some(message.sequence),
        line,
    )?;
    let start = line.len();
    if let Err(error) = with_ref(message, |message| decoders.json(message, line)) {
        line.truncate(start);
        line.extend_from_slice(b"null,\"error\":");
        serde_json::to_writer(&mut *line, &error).map_err(io::Error::from)?;
    }
    Ok(())
}

/// Everything before an object's data.
fn put_head(
    message: &Message,
    log_time: Stamp,
    publish_time: Stamp,
    sequence: Option<u32>,
    line: &mut Vec<u8>,
) -> io::Result<()> {
    let channel = &message.channel;
    line.extend_from_slice(b"{\"topic\":");
    serde_json::to_writer(&mut *line, &channel.topic).map_err(io::Error::from)?;
    let (log_time, publish_time) = (log_time.nanos(), publish_time.nanos());
    write!(
        line,
        ",\"log_time\":{log_time},\"publish_time\":{publish_time},\"sequence\":"
    )?;
    serde_json::to_writer(&mut *line, &sequence).map_err(io::Error::from)?;
    line.extend_from_slice(b",\"type\":");
    serde_json::to_writer(&mut *line, channel.type_name()).map_err(io::Error::from)?;
    line.extend_from_slice(b",\"encoding\":");
    serde_json::to_writer(&mut *line, &channel.message_encoding).map_err(io::Error::from)?;
    line.extend_from_slice(b",\"data\":");
    Ok(())
}

/// The data alone, or why there is none.
fn data_of(decoders: &mut Decoders, message: &Message) -> Vec<u8> {
    let mut data = Vec::new();
    if let Err(error) = with_ref(message, |message| decoders.json(message, &mut data)) {
        data = format!("({})", shown(&error)).into_bytes();
    }
    data
}

fn between(
    decoders: &mut Decoders,
    before: &Message,
    after: &Message,
    at: Stamp,
    out: &mut Vec<u8>,
) -> bool {
    let pair: Batch = [before.clone(), after.clone()].into_iter().collect();
    match (pair.get(0), pair.get(1)) {
        (Some(first), Some(second)) => {
            decoders.json_between(first, second, part(before, after, at), out)
        }
        _ => false,
    }
}

fn with_ref<T: Default>(
    message: &Message,
    work: impl FnOnce(MessageRef<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let batch: Batch = [message.clone()].into_iter().collect();
    match batch.get(0) {
        Some(message) => work(message),
        None => Ok(T::default()),
    }
}
