//! Rows as JSON, and as lines for people.

use std::io::{self, Write};
use std::sync::Arc;

use asof::window::sync::{AlignedRow, Match, Stamped};
use asof::{Message, Stamp};

use super::fields::Fields;
use super::text::Text;
use super::{Item, On, Sink, offset};
use crate::lines::shortened;
use crate::screen::Screen;
use asof::text::shown;

/// Writes one line per row.
pub(super) struct Lines {
    out: Text,
    is_json: bool,
    on: On,
    sides: Vec<Side>,
    fields: Fields,
    line: Vec<u8>,
}

/// A topic that is looked up. A message in many rows is decoded once, for the first of them.
struct Side {
    topic: String,
    last: Option<(Item, Vec<u8>)>,
}

impl Lines {
    pub(super) fn new(out: Text, is_json: bool, on: On, with: &[String], fields: Fields) -> Self {
        let side = |topic: &String| Side {
            topic: topic.clone(),
            last: None,
        };
        Lines {
            out,
            is_json,
            on,
            sides: with.iter().map(side).collect(),
            fields,
            line: Vec::new(),
        }
    }

    fn put_json(&mut self, row: &AlignedRow<Item>) -> io::Result<()> {
        let anchor = &row.anchor;
        put_message(&mut self.fields, self.on, anchor, &mut self.line)?;
        self.line.extend_from_slice(b",\"with\":{");
        for index in 0..self.sides.len() {
            if index > 0 {
                self.line.push(b',');
            }
            let topic = &self.sides[index].topic;
            serde_json::to_writer(&mut self.line, topic).map_err(io::Error::from)?;
            self.line.push(b':');
            self.put_found(index, &row.matches[index], anchor)?;
        }
        self.line.push(b'}');
        if row.is_early {
            self.line.extend_from_slice(b",\"early\":true");
        }
        self.line.extend_from_slice(b"}\n");
        Ok(())
    }

    /// A message of another topic as JSON, with its distance.
    fn put_found(
        &mut self,
        index: usize,
        found: &Match<Item>,
        anchor: &Stamped<Item>,
    ) -> io::Result<()> {
        let at = anchor.stamp;
        let one = match found {
            Match::Missing(_) => {
                self.line.extend_from_slice(b"null");
                return Ok(());
            }
            Match::Found(message) => message,
            Match::Between {
                before,
                after,
                fraction,
            } => {
                let start = self.line.len();
                let logged = anchor.value.log_time;
                put_head(&before.value, logged, logged, None, &mut self.line)?;
                let pair = (&*before.value, &*after.value);
                let line = &mut self.line;
                if self.fields.json_between(pair, *fraction, line) {
                    let times = (before.stamp.nanos(), after.stamp.nanos());
                    write!(
                        line,
                        ",\"offset\":0,\"between\":[{},{}]}}",
                        times.0, times.1
                    )?;
                    return Ok(());
                }
                self.line.truncate(start);
                nearer(before, after, at)
            }
        };
        let side = &mut self.sides[index];
        let text = match &mut side.last {
            Some((item, text)) if Arc::ptr_eq(item, &one.value) => text,
            last => {
                let mut text = Vec::new();
                put_message(&mut self.fields, self.on, one, &mut text)?;
                &mut last.insert((Arc::clone(&one.value), text)).1
            }
        };
        self.line.extend_from_slice(text);
        write!(self.line, ",\"offset\":{}}}", offset(one.stamp, at))
    }

    fn put_text(&mut self, row: &AlignedRow<Item>) -> io::Result<()> {
        let at = row.anchor.stamp;
        let data = data_of(&mut self.fields, &row.anchor.value);
        let topic = shown(&row.anchor.value.channel.topic);
        write!(self.line, "{at:.9}  {topic}  {}", shortened(&data))?;
        for (side, found) in self.sides.iter_mut().zip(&row.matches) {
            let topic = shown(&side.topic);
            let one = match Shown::of(found, at, &mut self.fields) {
                Shown::Nothing => {
                    write!(self.line, "  |  {topic}  -")?;
                    continue;
                }
                Shown::Between(data) => {
                    let data = shortened(&data);
                    write!(self.line, "  |  {topic}  between  {data}")?;
                    continue;
                }
                Shown::One(message) => message,
            };
            let text = match &mut side.last {
                Some((item, text)) if Arc::ptr_eq(item, &one.value) => text,
                last => {
                    let text = shortened(&data_of(&mut self.fields, &one.value));
                    &mut last.insert((Arc::clone(&one.value), text.into_bytes())).1
                }
            };
            let millis = offset(one.stamp, at) as f64 / 1e6;
            write!(self.line, "  |  {topic}  {millis:+.3}ms  ")?;
            self.line.extend_from_slice(text);
        }
        self.line.push(b'\n');
        Ok(())
    }
}

impl Sink for Lines {
    fn write(&mut self, row: &AlignedRow<Item>) -> anyhow::Result<()> {
        self.line.clear();
        if self.is_json {
            self.put_json(row)?;
        } else {
            self.put_text(row)?;
        }
        Ok(self.out.write_all(&self.line)?)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }

    fn finish(self: Box<Self>, screen: &Screen) -> anyhow::Result<bool> {
        self.out.close()?;
        Ok(self.fields.tell(screen))
    }
}

/// What a row shows of a topic.
pub(super) enum Shown<'a> {
    Nothing,
    One(&'a Stamped<Item>),
    /// An interpolated message, as JSON.
    Between(Vec<u8>),
}

impl<'a> Shown<'a> {
    /// Where two messages cannot be interpolated, the nearer one.
    pub(super) fn of(found: &'a Match<Item>, at: Stamp, fields: &mut Fields) -> Self {
        match found {
            Match::Missing(_) => Shown::Nothing,
            Match::Found(message) => Shown::One(message),
            Match::Between {
                before,
                after,
                fraction,
            } => {
                let mut data = Vec::new();
                let pair = (&*before.value, &*after.value);
                if fields.json_between(pair, *fraction, &mut data) {
                    Shown::Between(data)
                } else {
                    Shown::One(nearer(before, after, at))
                }
            }
        }
    }
}

/// The nearer of two; the earlier where both are equally near.
pub(super) fn nearer<'a>(
    before: &'a Stamped<Item>,
    after: &'a Stamped<Item>,
    at: Stamp,
) -> &'a Stamped<Item> {
    if after.stamp.since(at) < at.since(before.stamp) {
        after
    } else {
        before
    }
}

/// An object as `cat --json` prints it, without its closing brace.
fn put_message(
    fields: &mut Fields,
    on: On,
    one: &Stamped<Item>,
    line: &mut Vec<u8>,
) -> io::Result<()> {
    let message = &one.value;
    let (log_time, publish_time) = (message.log_time, message.publish_time);
    put_head(
        message,
        log_time,
        publish_time,
        Some(message.sequence),
        line,
    )?;
    let start = line.len();
    if let Err(error) = fields.json(message, line) {
        line.truncate(start);
        line.extend_from_slice(b"null,\"error\":");
        serde_json::to_writer(&mut *line, &error).map_err(io::Error::from)?;
    }
    if on == On::Stamp {
        write!(line, ",\"stamp\":{}", one.stamp.nanos())?;
    }
    Ok(())
}

/// Everything that precedes an object's data.
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

/// The data, or why there is none.
fn data_of(fields: &mut Fields, message: &Message) -> Vec<u8> {
    let mut data = Vec::new();
    if let Err(error) = fields.json(message, &mut data) {
        data = format!("({})", shown(&error)).into_bytes();
    }
    data
}
