//! A catalogue as the page's list of recordings.

use std::path::Path;
use std::sync::Arc;

use asof::catalogue::{FoundRecording, NotADay, Search, since, until};
use asof::{Fleet, Stamp, TimeRange};
use asof_serve::{
    Annotations, ListedRecording, OpenedRecording, RecordingList, RecordingsAsked, Refusal,
    newest_first,
};

use super::search::parse_names;

/// The recordings of a catalogue.
pub struct FleetList {
    fleet: Fleet,
}

impl FleetList {
    pub fn new(fleet: Fleet) -> Self {
        FleetList { fleet }
    }

    fn opened(&self, recording: &str) -> anyhow::Result<OpenedRecording> {
        // Only what is in the catalogue, whatever the page asks for.
        let recording = self.fleet.catalogue().path_of(recording)?;
        let address = self.fleet.address_of(&recording);
        let place = Path::new(&address);
        let source = self.fleet.recording(&recording)?;
        Ok(OpenedRecording {
            source: Arc::new(source),
            annotations: place.is_file().then(|| Annotations::beside(place)),
            name: recording,
            robots: Vec::new(),
            keep: None,
        })
    }
}

impl RecordingList for FleetList {
    fn name(&self) -> String {
        self.fleet.place()
    }

    fn find(&self, asked: &RecordingsAsked) -> Result<Vec<ListedRecording>, Refusal> {
        let names = |text: &str| match text.trim() {
            "" => Ok(Vec::new()),
            text => parse_names(text).map(|names| names.0),
        };
        let time =
            |text: &str, otherwise: Stamp, parse: fn(&str) -> Result<Stamp, _>| match text.trim() {
                "" => Ok(otherwise),
                text => parse(text).map_err(|error: NotADay| error.to_string()),
            };
        let search = Search {
            topics: names(&asked.topic)?,
            robots: names(&asked.robot)?,
            range: TimeRange::new(
                time(&asked.since, Stamp::MIN, since)?,
                time(&asked.until, Stamp::MAX, until)?,
            ),
            ..Search::default()
        };
        let found = self
            .fleet
            .find(&search)
            .map_err(|error| error.to_string())?;
        let words: Vec<String> = asked
            .text
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let is_meant = |found: &&FoundRecording| words.iter().all(|word| is_said(found, word));
        let meant = found.recordings.iter().filter(is_meant);
        let mut listed: Vec<ListedRecording> = meant.map(listed).collect();
        newest_first(&mut listed);
        Ok(listed)
    }

    fn open(&self, recording: &str) -> Result<OpenedRecording, Refusal> {
        self.opened(recording)
            .map_err(|error| format!("{error:#}").into())
    }
}

/// Whether a word occurs in the entry of a recording.
fn is_said(found: &FoundRecording, word: &str) -> bool {
    let row = &found.row;
    let texts = [&row.robot, &row.site, &row.date];
    let texts = texts.into_iter().flatten().chain([&row.recording]);
    let tags = row.tags.iter().flat_map(|(key, value)| [key, value]);
    texts
        .chain(tags)
        .any(|text| text.to_lowercase().contains(word))
}

fn listed(found: &FoundRecording) -> ListedRecording {
    let row = &found.row;
    ListedRecording {
        recording: row.recording.clone(),
        range: row.range,
        messages: row.messages,
        size: row.size,
        robot: row.robot.clone(),
        site: row.site.clone(),
        tags: row.tags.clone(),
        problems: row.problems.len() as u64,
    }
}
