//! Files of lines: comma-separated values, or a JSON object for each message.

use std::fmt;
use std::io::{BufWriter, Write};

use asof_core::MessageRef;
use asof_decode::ByChannel;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::decoders::ReportingDecoders;
use crate::Error;
use crate::files::{Appender, NewFile};
use crate::rows::header;

/// The times that every message has.
const TIMES: [&str; 2] = ["log_time", "publish_time"];

/// One file for each topic; for comma-separated values, one for each set of columns of a topic.
pub struct LineFiles<Start> {
    is_csv: bool,
    times: [bool; 2],
    decoders: ReportingDecoders,
    start: Start,
    files: Vec<LineFile>,
    places: ByChannel<Option<ChannelFile>>,
    line: Vec<u8>,
}

struct LineFile {
    topic: String,
    header: String,
    new: NewFile,
    writer: BufWriter<Appender>,
}

#[derive(Clone, Copy)]
struct ChannelFile {
    file: usize,
    /// Whether messages have a field named like a time.
    is_named_alike: bool,
}

impl<Start: FnMut(&str) -> Result<NewFile, Error>> LineFiles<Start> {
    /// `times` selects `log_time` and `publish_time`; `start` makes the file of a topic.
    pub fn new(is_csv: bool, times: [bool; 2], decoders: ReportingDecoders, start: Start) -> Self {
        LineFiles {
            is_csv,
            times,
            decoders,
            start,
            files: Vec::new(),
            places: ByChannel::default(),
            line: Vec::new(),
        }
    }

    /// Writes a message; one that cannot be decoded is counted and skipped.
    pub fn write(&mut self, message: MessageRef<'_>) -> Result<(), Error> {
        self.line.clear();
        let times = [message.log_time, message.publish_time];
        let times = TIMES.into_iter().zip(times).zip(self.times);
        let times = times.filter_map(|(time, is_wanted)| is_wanted.then_some(time));
        if self.is_csv {
            for (_, time) in times {
                write!(self.line, ",{}", time.nanos())?;
            }
            if self.decoders.csv(message, &mut self.line).is_err() {
                return Ok(());
            }
            // Each value is preceded by a comma, which the first does not need.
            self.line.drain(..1.min(self.line.len()));
        } else {
            self.line.push(b'{');
            for (name, time) in times {
                write!(self.line, "\"{name}\":{},", time.nanos())?;
            }
            let start = self.line.len();
            if self.decoders.json(message, &mut self.line).is_err() {
                return Ok(());
            }
            // The object's own brace is written already.
            self.line.remove(start);
            let line = &mut self.line;
            if line.get(start) == Some(&b'}') && line.get(start - 1) == Some(&b',') {
                line.remove(start - 1);
            }
        }
        let place = self.place_of(message)?;
        if place.is_named_alike && !self.is_csv {
            self.line = with_own_names(&self.line)?;
        }
        self.line.push(b'\n');
        Ok(self.files[place.file].writer.write_all(&self.line)?)
    }

    /// Moves all files to their places; returns how many there are, and what could not be decoded.
    pub fn finish(self) -> Result<(u64, ReportingDecoders), Error> {
        let count = self.files.len() as u64;
        for file in self.files {
            let mut writer = file.writer;
            writer.flush()?;
            file.new.finish()?;
        }
        Ok((count, self.decoders))
    }

    fn place_of(&mut self, message: MessageRef<'_>) -> Result<ChannelFile, Error> {
        let channel = message.channel;
        if let Some(place) = self.places.get(channel, || None) {
            return Ok(*place);
        }
        let times = TIMES.into_iter().zip(self.times);
        let times: Vec<&str> = times.filter_map(|(name, is)| is.then_some(name)).collect();
        let header = if self.is_csv {
            let own = self.decoders.csv_names(channel, message.payload);
            header(&times, &own.unwrap_or_default())
        } else {
            String::new()
        };
        let is_it = |file: &LineFile| file.topic == channel.topic && file.header == header;
        let file = if let Some(file) = self.files.iter().position(is_it) {
            file
        } else {
            let new = (self.start)(&channel.topic)?;
            let mut writer = new.appender();
            if self.is_csv {
                writeln!(writer, "{header}")?;
            }
            self.files.push(LineFile {
                topic: channel.topic.clone(),
                header,
                new,
                writer,
            });
            self.files.len() - 1
        };
        let place = ChannelFile {
            file,
            is_named_alike: self.decoders.has_field(channel, message.payload, &times),
        };
        *self.places.get(channel, || None) = Some(place);
        Ok(place)
    }
}

/// A JSON object with unique keys: a later duplicate gets an underscore, as a column does.
fn with_own_names(line: &[u8]) -> Result<Vec<u8>, Error> {
    let Pairs(pairs) = serde_json::from_slice(line).map_err(std::io::Error::from)?;
    let mut out = Vec::with_capacity(line.len() + 8);
    let mut names: Vec<String> = Vec::with_capacity(pairs.len());
    for (name, value) in &pairs {
        out.push(if names.is_empty() { b'{' } else { b',' });
        let mut name = name.clone();
        while names.contains(&name) {
            name.push('_');
        }
        serde_json::to_writer(&mut out, &name).map_err(std::io::Error::from)?;
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
        names.push(name);
    }
    out.push(b'}');
    Ok(out)
}

/// The fields of an object in their order, with their raw values.
struct Pairs(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_comes_twice_and_every_value_stays_as_it_is() {
        let line = br#"{"log_time":1,"publish_time":2,"log_time":0.10,"log_time_":[1,2],"x":{"log_time":3}}"#;
        let found = with_own_names(line).expect("an object");
        let wanted = r#"{"log_time":1,"publish_time":2,"log_time_":0.10,"log_time__":[1,2],"x":{"log_time":3}}"#;
        assert_eq!(String::from_utf8_lossy(&found), wanted);
    }
}
