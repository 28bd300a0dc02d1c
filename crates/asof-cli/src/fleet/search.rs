//! The catalogue queries of `asof find`.

use std::path::Path;

use asof_catalogue::{
    Catalogue, Found, FoundRecording, NamePattern, Predicate, RecordingRow, Search,
};
use asof_core::{Stamp, TimeRange};
use clap::Args;
use serde_json::{Map, Value, json};

use super::CataloguePlace;
use crate::select::names_in;
use asof::text::{duration, grouped, shown};

/// Selects recordings of a catalogue.
#[derive(Debug, Default, Args)]
pub struct Searching {
    /// Recordings with messages on one of these topics: names or globs, separated by commas
    #[arg(long, value_name = "A,B", value_parser = parse_names, help_heading = FLEET)]
    topics: Option<Names>,

    /// Recordings with messages at or after this time, or day (2024-05-01)
    #[arg(long, value_name = "T", value_parser = parse_since, help_heading = FLEET)]
    since: Option<Stamp>,

    /// Recordings with messages at or before this time, or day
    #[arg(long, value_name = "T", value_parser = parse_until, help_heading = FLEET)]
    until: Option<Stamp>,

    /// Recordings of these robots: names or globs
    #[arg(long, value_name = "A,B", value_parser = parse_names, help_heading = FLEET)]
    robot: Option<Names>,

    /// Recordings from these sites: names or globs
    #[arg(long, value_name = "A,B", value_parser = parse_names, help_heading = FLEET)]
    site: Option<Names>,

    /// Recordings with this tag; the value may be a glob. May be repeated; all must match
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_tag, help_heading = FLEET)]
    tag: Vec<(String, NamePattern)>,

    /// Recordings that meet this condition, such as "messages > 1000 AND tags.weather = 'rain'": comparisons, LIKE, IN, BETWEEN, IS
    /// NULL, AND, OR, NOT over recording, address, etag, format, robot, site, date, size, messages, duration, problems, start,
    /// end, modified and tags.NAME
    #[arg(long = "where", value_name = "CONDITION", help_heading = FLEET)]
    predicate: Option<Predicate>,

    /// Also recordings that are gone
    #[arg(long, help_heading = FLEET)]
    vanished: bool,

    #[command(flatten)]
    catalogue: CataloguePlace,
}

const FLEET: &str = "Fleets (needs a catalogue: asof index)";

#[derive(Debug, Clone)]
pub struct Names(pub Vec<NamePattern>);

pub fn parse_names(text: &str) -> Result<Names, String> {
    let names = names_in(text);
    if names.is_empty() {
        return Err("nothing is named; give names or globs, separated by commas".to_owned());
    }
    Ok(Names(names))
}

fn parse_since(text: &str) -> Result<Stamp, String> {
    asof_catalogue::since(text).map_err(|error| error.to_string())
}

fn parse_until(text: &str) -> Result<Stamp, String> {
    asof_catalogue::until(text).map_err(|error| error.to_string())
}

fn parse_tag(text: &str) -> Result<(String, NamePattern), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty())
        .ok_or_else(|| "write it as key=value".to_owned())?;
    Ok((key.trim().to_owned(), NamePattern::new(value)))
}

impl Searching {
    /// Whether there is a condition that only a catalogue can answer.
    pub fn is_asked(&self) -> bool {
        self.topics.is_some()
            || self.since.is_some()
            || self.until.is_some()
            || self.robot.is_some()
            || self.site.is_some()
            || !self.tag.is_empty()
            || self.predicate.is_some()
            || self.vanished
            || self.catalogue.is_named()
    }

    /// The catalogue of a place, if there is one.
    pub fn catalogue_of(&self, place: &Path) -> anyhow::Result<Option<Catalogue>> {
        self.catalogue.if_there(place)
    }

    /// The catalogue of a place, which must exist.
    pub fn existing_catalogue_of(&self, place: &Path) -> anyhow::Result<Catalogue> {
        let catalogue = self.catalogue.of(place)?;
        catalogue.existing_head()?;
        Ok(catalogue)
    }

    /// The matching recordings.
    pub fn find(&self, catalogue: &Catalogue) -> anyhow::Result<Found> {
        let names = |names: &Option<Names>| {
            names
                .as_ref()
                .map(|names| names.0.clone())
                .unwrap_or_default()
        };
        let search = Search {
            topics: names(&self.topics),
            range: TimeRange::new(
                self.since.unwrap_or(Stamp::MIN),
                self.until.unwrap_or(Stamp::MAX),
            ),
            robots: names(&self.robot),
            sites: names(&self.site),
            tags: self.tag.clone(),
            predicate: self.predicate.clone(),
            with_vanished: self.vanished,
        };
        Ok(catalogue.find(&search)?)
    }
}

/// A recording as one line for people: start, duration, messages, robot, address.
pub fn long_line(found: &FoundRecording, address: &str) -> String {
    let row = &found.row;
    let (start, long) = if row.range.is_empty() {
        ("-".to_owned(), "-".to_owned())
    } else {
        (
            row.range.start.to_string(),
            duration(row.range.duration_nanos()),
        )
    };
    let messages = row.messages.map_or("-".to_owned(), grouped);
    let robot = row.robot.as_deref().unwrap_or("-");
    format!(
        "{start}  {long}  {messages}  {}  {}\n",
        shown(robot),
        shown(address)
    )
}

/// A recording that was found, as JSON.
pub fn found_as_json(found: &FoundRecording, address: &str) -> Value {
    let mut object = row_as_json(&found.row, address);
    if !found.topics.is_empty()
        && let Some(object) = object.as_object_mut()
    {
        let topics = found.topics.iter().map(|(topic, range)| {
            let known = (!range.is_empty()).then_some(range);
            json!({
                "topic": topic,
                "start": known.map(|range| range.start.nanos()),
                "end": known.map(|range| range.end.nanos()),
            })
        });
        object.insert("topics".to_owned(), topics.collect());
    }
    object
}

/// A recording's entry in the catalogue, as JSON.
pub fn row_as_json(row: &RecordingRow, address: &str) -> Value {
    let known = (!row.range.is_empty()).then_some(row.range);
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| {
        object.insert(name.to_owned(), value);
    };
    put("recording", json!(row.recording));
    put("address", json!(address));
    put("format", json!(row.format));
    put("size", json!(row.size));
    put("etag", json!(row.e_tag));
    put("modified", json!(row.modified.map(Stamp::nanos)));
    put("start", json!(known.map(|range| range.start.nanos())));
    put("end", json!(known.map(|range| range.end.nanos())));
    put("messages", json!(row.messages));
    put("robot", json!(row.robot));
    put("site", json!(row.site));
    put("date", json!(row.date));
    put("tags", json!(row.tags));
    let problems = row.problems.iter().map(|problem| {
        json!({
            "kind": problem.kind, "offset": problem.offset, "topic": problem.topic, "message": problem.message,
        })
    });
    put("problems", problems.collect());
    if let Some(vanished) = row.vanished {
        put("vanished", json!(vanished.nanos()));
    }
    Value::Object(object)
}
