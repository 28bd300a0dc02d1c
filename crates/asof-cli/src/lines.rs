//! Messages, one per line, quickly.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use asof::decode::Projection;
use asof::{Channel, MessageRef, Stamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::screen::{Screen, is_watched};
use asof::export::ReportingDecoders;
use asof::rows::write_pretty;
use asof::text::shown;

/// What lines look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    is_json: bool,
    is_raw: bool,
    is_pretty: bool,
    /// The time from which ages are measured, where they are shown.
    as_of: Option<Stamp>,
}

impl Style {
    /// For programs or for people; payloads raw or decoded.
    pub fn new(is_json: bool, is_raw: bool) -> Self {
        Style {
            is_json,
            is_raw,
            is_pretty: false,
            as_of: None,
        }
    }

    /// The same with each message over several lines, for people.
    #[must_use]
    pub fn pretty(self, is_pretty: bool) -> Self {
        Style { is_pretty, ..self }
    }

    /// The same with the age of each message at a time.
    #[must_use]
    pub fn with_ages(self, at: Stamp) -> Self {
        Style {
            as_of: Some(at),
            ..self
        }
    }
}

/// Writes messages as lines.
///
/// A line is built in one reused buffer, from parts that are made once per channel; so a
/// message costs its digits and its base64, and no allocation.
pub struct Lines<W: Write> {
    out: W,
    style: Style,
    decoders: ReportingDecoders,
    line: Vec<u8>,
    parts: HashMap<*const Channel, Parts>,
    /// Keeps the channels whose addresses are in `parts` alive, so that no address is reused.
    channels: Vec<Arc<Channel>>,
}

/// What all lines of a channel share.
struct Parts {
    before_times: Box<[u8]>,
    after_sequence: Box<[u8]>,
}

/// Bytes of payload that a line for people shows.
const SHOWN_BYTES: usize = 16;
/// Characters of a decoded message that a line on a terminal shows.
const SHOWN_CHARACTERS: usize = 240;

impl<W: Write> Lines<W> {
    pub fn new(out: W, style: Style) -> Self {
        Lines {
            out,
            style,
            decoders: ReportingDecoders::default(),
            line: Vec::new(),
            parts: HashMap::new(),
            channels: Vec::new(),
        }
    }

    /// The same with only these fields of each message.
    #[must_use]
    pub fn with_fields(self, fields: Projection) -> Self {
        Lines {
            decoders: ReportingDecoders::new(fields),
            ..self
        }
    }

    pub fn write(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        self.line.clear();
        if self.style.is_json {
            self.put_json(message)?;
        } else {
            self.put_text(message)?;
        }
        self.out.write_all(&self.line)
    }

    /// Flushes what was written so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the lines and reports what could not be decoded; returns whether anything that should be there is missing.
    pub fn finish(mut self, screen: &Screen) -> io::Result<bool> {
        self.out.flush()?;
        Ok(self.decoders.tell(&screen.reports("")))
    }

    fn put_json(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        let parts = match self.parts.entry(Arc::as_ptr(message.channel)) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                self.channels.push(Arc::clone(message.channel));
                new.insert(Parts::of(message.channel)?)
            }
        };
        let mut digits = itoa::Buffer::new();
        let line = &mut self.line;
        line.extend_from_slice(&parts.before_times);
        line.extend_from_slice(digits.format(message.log_time.nanos()).as_bytes());
        line.extend_from_slice(b",\"publish_time\":");
        line.extend_from_slice(digits.format(message.publish_time.nanos()).as_bytes());
        line.extend_from_slice(b",\"sequence\":");
        line.extend_from_slice(digits.format(message.sequence).as_bytes());
        if let Some(at) = self.style.as_of {
            line.extend_from_slice(b",\"age\":");
            line.extend_from_slice(digits.format(at.since(message.log_time)).as_bytes());
        }
        line.extend_from_slice(&parts.after_sequence);
        if !self.style.is_raw {
            match self.decoders.json(message, line) {
                Ok(()) => line.extend_from_slice(b"}\n"),
                Err(error) => {
                    line.extend_from_slice(b"null,\"error\":");
                    serde_json::to_writer(&mut *line, &error).map_err(io::Error::from)?;
                    line.extend_from_slice(b"}\n");
                }
            }
            return Ok(());
        }
        line.push(b'"');
        let start = line.len();
        // Four characters for every three bytes or fraction of them.
        line.resize(start + message.payload.len().div_ceil(3) * 4, 0);
        let written = STANDARD
            .encode_slice(message.payload, &mut line[start..])
            .map_err(io::Error::other)?;
        line.truncate(start + written);
        line.extend_from_slice(b"\"}\n");
        Ok(())
    }

    fn put_text(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        let line = &mut self.line;
        let channel = message.channel;
        let type_name = match channel.type_name() {
            "" => "-",
            name => name,
        };
        let (topic, type_name) = (shown(&channel.topic), shown(type_name));
        let age = self.style.as_of.map(|at| at.since(message.log_time));
        let age = age.map_or(String::new(), |age| format!("  {} old", age_text(age)));
        if !self.style.is_raw {
            write!(line, "{:.9}{age}  {topic}  {type_name}", message.log_time)?;
            line.extend_from_slice(if self.style.is_pretty { b"" } else { b"  " });
            let mut data = Vec::new();
            match self.decoders.json(message, &mut data) {
                Ok(()) if self.style.is_pretty => {
                    write_pretty(&data, 1, line);
                    return Ok(());
                }
                Ok(()) => line.extend_from_slice(shortened(&data).as_bytes()),
                Err(error) => write!(line, "({})", shown(&error))?,
            }
            line.push(b'\n');
            return Ok(());
        }
        write!(
            line,
            "{:.9}{age}  {topic}  {type_name}  {} B ",
            message.log_time,
            message.payload.len()
        )?;
        for byte in message.payload.iter().take(SHOWN_BYTES) {
            write!(line, " {byte:02x}")?;
        }
        if message.payload.len() > SHOWN_BYTES {
            line.extend_from_slice(" …".as_bytes());
        }
        line.push(b'\n');
        Ok(())
    }
}

/// An age as text: `1.234 s`.
pub fn age_text(nanos: i64) -> String {
    let seconds = nanos as f64 * 1e-9;
    if seconds.abs() < 120.0 {
        format!("{seconds:.3} s")
    } else if seconds.abs() < 7200.0 {
        format!("{:.1} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// As much of a text as fits on a line of a terminal; all of it in a pipe, where it is searched.
pub fn shortened(data: &[u8]) -> String {
    static ROOM: LazyLock<usize> = LazyLock::new(|| {
        if is_watched() {
            SHOWN_CHARACTERS
        } else {
            usize::MAX
        }
    });
    cut(&String::from_utf8_lossy(data), *ROOM)
}

fn cut(text: &str, room: usize) -> String {
    match text.char_indices().nth(room) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

impl Parts {
    fn of(channel: &Channel) -> io::Result<Self> {
        let text = |text: &str| serde_json::to_string(text).map_err(io::Error::from);
        let before = format!("{{\"topic\":{},\"log_time\":", text(&channel.topic)?);
        let after = format!(
            ",\"type\":{},\"encoding\":{},\"data\":",
            text(channel.type_name())?,
            text(&channel.message_encoding)?
        );
        Ok(Parts {
            before_times: before.into_bytes().into(),
            after_sequence: after.into_bytes().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof::{Batch, Message, Stamp};

    fn line(message: Message, json: bool) -> String {
        let batch: Batch = [message].into_iter().collect();
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out, Style::new(json, true));
        batch
            .iter()
            .for_each(|message| lines.write(message).expect("memory"));
        let screen = Screen::new(crate::screen::ColorChoice::default(), 0, true);
        lines.finish(&screen).expect("memory");
        String::from_utf8(out).expect("text")
    }

    fn message() -> Message {
        Message {
            channel: Arc::new(Channel {
                topic: "/quote\"d".into(),
                message_encoding: "cdr".into(),
                ..Channel::default()
            }),
            log_time: Stamp::from_nanos(1_700_000_000_250_000_000),
            publish_time: Stamp::from_nanos(-1),
            sequence: 7,
            payload: vec![0xff, 0, 1, 2].into(),
        }
    }

    #[test]
    fn a_message_in_json_has_every_field_in_order() {
        let expected = r#"{"topic":"/quote\"d","log_time":1700000000250000000,"publish_time":-1,"sequence":7,"type":"","encoding":"cdr","data":"/wABAg=="}"#;
        assert_eq!(line(message(), true).trim_end(), expected);
    }

    #[test]
    fn a_message_for_people_starts_with_a_time_that_parses_back() {
        let line = line(message(), false);
        assert_eq!(
            line,
            "2023-11-14T22:13:20.250000000Z  /quote\"d  -  4 B  ff 00 01 02\n"
        );
    }

    #[test]
    fn a_line_is_cut_where_there_is_no_room_and_nowhere_else() {
        let long = "é".repeat(300);
        assert_eq!(cut(&long, 240).chars().count(), 242);
        assert_eq!(cut(&long, 300), long);
        assert_eq!(cut(&long, usize::MAX), long);
    }

    #[test]
    fn an_age_is_counted_from_the_time_that_was_asked_about() {
        let batch: Batch = [message()].into_iter().collect();
        for (json, wanted) in [(true, "\"age\":1500000000,"), (false, "  1.500 s old  ")] {
            let at = message().log_time.plus_nanos(1_500_000_000);
            let mut out = Vec::new();
            let mut lines = Lines::new(&mut out, Style::new(json, true).with_ages(at));
            batch
                .iter()
                .for_each(|message| lines.write(message).expect("memory"));
            drop(lines);
            let text = String::from_utf8(out).expect("text");
            assert!(text.contains(wanted), "{text}");
        }
    }

    #[test]
    fn a_payload_of_nothing_is_an_empty_text() {
        let empty = Message {
            payload: vec![].into(),
            ..message()
        };
        assert!(line(empty, true).ends_with("\"data\":\"\"}\n"));
    }
}
