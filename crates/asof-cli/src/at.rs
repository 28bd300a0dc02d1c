//! `asof at`

use std::io::Write as _;
use std::path::PathBuf;

use asof::export::ReportingDecoders;
use asof::rows::{Column, MessageRows, MessageWriter, RowForm, write_columns};
use asof::text::{age, shown};
use asof::{Batch, Query, Source, Stamp, When};
use clap::Args;
use serde::de::IgnoredAny;

use super::Outcome;
use super::cat::told;
use super::fields::FieldChoice;
use super::place::{Opening, TopicRequest};
use super::screen::{Screen, is_watched, line_room, output, room};
use super::select::{TopicChoice, meant_relative};

/// Show the last message of every topic as of a time
///
/// What the robot knew then: for each topic, its last message at or before the time, decoded, and its
/// age. A terminal shows a line for each topic, cut to its width and without the header; --pretty shows all of each
/// message. With --json, one object per line as `asof cat --json` prints them, with the age in nanoseconds.
///
/// Without --time, the time is the end of a recording, and now for a running robot: as soon as each topic has had a
/// message, and after two seconds at the latest. A time before now waits as well: messages that were sent before asof
/// connected are known only if their publisher keeps them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof at run.mcap --time +12.5s
  asof at run.mcap --time 2024-05-01T12:00:10Z --topics /odom,/scan --json
  asof at run.mcap --time +12.5s --topics /odom --fields pose.pose.position
  asof at zenoh://192.168.1.5:7447 --topics /odom,/map
  asof at zenoh://192.168.1.5:7447 --time -3s")]
pub struct At {
    /// A recording or a running robot (zenoh://host:port), or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The time: RFC 3339, seconds since the epoch, nanoseconds with ns, or relative to the recording:
    /// +12.5s from its start, -3s from its end; of a running robot, -3s is three seconds ago
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    time: Option<When>,

    #[command(flatten)]
    topics: TopicChoice,

    #[command(flatten)]
    opening: Opening,

    /// Print payloads without decoding them
    #[arg(long)]
    raw: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    fields: FieldChoice,

    /// Print all of each message, over several lines; the default for one message on a terminal
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    pretty: bool,
}

impl At {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let wanted = TopicRequest::chosen(self.topics.patterns());
        let (file, at) = self
            .opening
            .open_as_of(&self.places, &wanted, self.time, screen)?;
        let topics = self.topics.topics(&self.places[0], &*file, screen)?;
        let mut query = Query::all();
        query.topics = topics;
        self.fields.narrow(&mut query, &*file, screen)?;
        let known = file.latest_at(&query.topics, at)?;
        if known.is_empty() {
            let meant = meant_relative(self.time, file.summary().range)
                .map_or(String::new(), |meant| {
                    format!("; did you mean --time {meant}?")
                });
            screen.note(format_args!("nothing was known as of {at}{meant}"));
        }
        let is_for_a_person = is_watched() && !self.json && !self.raw && !self.pretty;
        if is_for_a_person && known.len() > 1 {
            let has_damage = self.print_table(&known, at, screen)?;
            return Ok(told(&file.summary().problems, has_damage, screen));
        }
        let options = MessageRows {
            fields: self.fields.projection(),
            is_raw: self.raw,
            as_of: Some(at),
            ..MessageRows::default()
        };
        let form = if self.json {
            RowForm::Json
        } else {
            RowForm::Lines {
                room: line_room(),
                is_pretty: self.pretty || is_for_a_person,
            }
        };
        let mut rows = MessageWriter::new(output(), form, options);
        for message in known.iter() {
            rows.write(message)?;
        }
        let (_, is_complete) = rows.finish(&screen.reports(""))?;
        Ok(told(&file.summary().problems, !is_complete, screen))
    }

    /// A line for each topic; returns whether something could not be decoded.
    fn print_table(&self, known: &Batch, at: Stamp, screen: &Screen) -> anyhow::Result<bool> {
        let mut decoders = ReportingDecoders::new(self.fields.projection());
        let mut rows = Vec::with_capacity(known.len());
        for message in known.iter() {
            let mut data = Vec::new();
            let told = match decoders.json(message, &mut data) {
                Ok(()) => without_header(&String::from_utf8_lossy(&data)),
                Err(error) => format!("({})", shown(&error)),
            };
            let topic = shown(&message.channel.topic).into_owned();
            let age = age(at.since(message.log_time));
            rows.push(vec![topic, age, told]);
        }
        rows.sort();
        let mut out = output();
        let title = screen.palette().title;
        writeln!(out, "{title}as of {at}{title:#}")?;
        let is_cut = write_columns(&mut out, &COLUMNS, &rows, room(), &title)?;
        out.flush()?;
        if is_cut {
            screen.note("cut to the width of the terminal; --pretty prints all");
        }
        Ok(decoders.tell(&screen.reports("")))
    }
}

const COLUMNS: [(&str, Column); 3] = [
    ("topic", Column::LEFT.cut_in_the_middle(16)),
    ("age", Column::RIGHT),
    ("message", Column::LEFT.cut_at_the_end(16)),
];

/// A message without the header that it begins with: its time is shown as the age.
fn without_header(json: &str) -> String {
    let whole = || json.to_owned();
    let Some(rest) = json.strip_prefix("{\"header\":") else {
        return whole();
    };
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => {}
        _ => return whole(),
    }
    match rest[values.byte_offset()..].strip_prefix(',') {
        Some(fields) => format!("{{{fields}"),
        None => whole(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_after_the_header() {
        let json =
            r#"{"header":{"stamp":{"sec":1,"nanosec":2},"frame_id":"a,\"}"},"pose":{"x":1.5}}"#;
        assert_eq!(without_header(json), r#"{"pose":{"x":1.5}}"#);
        for whole in [
            r#"{"header":{}}"#,
            r#"{"x":{"header":1}}"#,
            "3",
            r#"{"header":"#,
        ] {
            assert_eq!(without_header(whole), whole);
        }
    }
}
