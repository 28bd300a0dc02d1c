//! The catalogue queries of `asof find`.

use std::collections::BTreeSet;
use std::path::Path;

use asof::catalogue::{Found, FoundRecording, NamePattern, Predicate, Search};
use asof::{Fleet, Stamp, TimeRange};
use clap::Args;

use super::CataloguePlace;
use crate::failure::Usage;
use crate::select::names_in;
use asof::rows::Column;
use asof::text::{duration, grouped, hint, shown};

/// Selects recordings of a catalogue.
#[derive(Debug, Default, Args)]
pub struct SearchFlags {
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
    asof::catalogue::since(text).map_err(|error| error.to_string())
}

fn parse_until(text: &str) -> Result<Stamp, String> {
    asof::catalogue::until(text).map_err(|error| error.to_string())
}

fn parse_tag(text: &str) -> Result<(String, NamePattern), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty())
        .ok_or_else(|| "write it as key=value".to_owned())?;
    Ok((key.trim().to_owned(), NamePattern::new(value)))
}

impl SearchFlags {
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

    /// The fleet of a place, if it has a catalogue.
    pub fn fleet_of(&self, place: &Path) -> anyhow::Result<Option<Fleet>> {
        self.catalogue.if_there(place)
    }

    /// The fleet of a place, which must have a catalogue.
    pub fn existing_fleet_of(&self, place: &Path) -> anyhow::Result<Fleet> {
        let fleet = self.catalogue.of(place)?;
        fleet.catalogue().existing_head()?;
        Ok(fleet)
    }

    /// The matching recordings.
    pub fn find(&self, fleet: &Fleet) -> anyhow::Result<Found> {
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
            ..Search::default()
        };
        Ok(fleet.find(&search)?)
    }

    /// The first name that no recording of the fleet has, as an error with the one that may have been meant.
    pub fn misnamed(&self, fleet: &Fleet) -> anyhow::Result<Option<anyhow::Error>> {
        let all = fleet.find(&Search {
            topics: self.topics.iter().map(|_| NamePattern::new("*")).collect(),
            with_vanished: true,
            ..Search::default()
        })?;
        let rows = || all.recordings.iter().map(|found| &found.row);
        let topics = all.recordings.iter().flat_map(|found| found.topics.keys());
        let topics: BTreeSet<&str> = topics.map(String::as_str).collect();
        let robots: BTreeSet<&str> = rows().filter_map(|row| row.robot.as_deref()).collect();
        let sites: BTreeSet<&str> = rows().filter_map(|row| row.site.as_deref()).collect();
        let keys = rows().flat_map(|row| row.tags.keys().map(String::as_str));
        let keys: BTreeSet<&str> = keys.chain(["robot", "site", "date"]).collect();
        let tags = self.tag.iter().map(|(key, _)| NamePattern::new(key));
        let tags = Some(Names(tags.collect()));
        let named = [
            ("topic", &self.topics, topics),
            ("robot", &self.robot, robots),
            ("site", &self.site, sites),
            ("tag", &tags, keys),
        ];
        for (what, names, known) in named {
            for name in names.iter().flat_map(|names| &names.0) {
                if !known.iter().any(|known| name.is_match(known)) {
                    let meant = hint(name.as_str(), known.iter().copied());
                    let meant = meant.map_or(String::new(), |meant| format!("; {meant}"));
                    let error = format!("no recording has a {what} '{name}'{meant}");
                    return Ok(Some(Usage::error(error)));
                }
            }
        }
        Ok(None)
    }
}

/// The columns of recordings for people.
pub const LONG_COLUMNS: [(&str, Column); 5] = [
    ("start", Column::LEFT),
    ("duration", Column::RIGHT),
    ("messages", Column::RIGHT),
    ("robot", Column::LEFT),
    ("recording", Column::LEFT),
];

/// A recording as a row of them.
pub fn long_row(found: &FoundRecording, address: &str) -> Vec<String> {
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
    vec![
        start,
        long,
        messages,
        shown(robot).into_owned(),
        shown(address).into_owned(),
    ]
}
