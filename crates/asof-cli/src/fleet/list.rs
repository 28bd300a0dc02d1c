//! A catalogue as the page's list of recordings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use asof::catalogue::{FoundRecording, IndexOptions, NotADay, Search, since, until};
use asof::files::TemporaryFolder;
use asof::{Fleet, FleetOptions, Stamp, TimeRange};
use asof_serve::{
    Annotations, ListedRecording, OpenedRecording, RecordingList, RecordingsAsked, Refusal,
    newest_first,
};

use super::index::BAR;
use super::search::parse_names;
use crate::screen::Screen;

/// The recordings of a catalogue.
pub struct FleetList {
    fleet: Fleet,
    /// The catalogue, where it is the list's own.
    own: Option<OwnCatalogue>,
    /// The description of the robot, for each recording.
    description: Option<PathBuf>,
}

/// A temporary catalogue of a place that has none. It is brought up to date when the list is asked for.
struct OwnCatalogue {
    _folder: TemporaryFolder,
    indexed: Mutex<Instant>,
}

/// A list that was asked for again within this time is not brought up to date again.
const INDEX_INTERVAL: Duration = Duration::from_secs(2);

impl FleetList {
    pub fn new(fleet: Fleet) -> Self {
        FleetList {
            fleet,
            own: None,
            description: None,
        }
    }

    /// The recordings of a place without a catalogue. Each is opened once, to see what is in it.
    pub fn without_catalogue(
        place: &Path,
        mut options: FleetOptions,
        screen: &Screen,
    ) -> anyhow::Result<Self> {
        let folder = TemporaryFolder::new().context("there is no temporary folder for the list")?;
        options.catalogue = Some(folder.path().to_owned());
        let fleet = Fleet::new(place, options)?;
        let shown = fleet.clone().with_progress(screen.reports(BAR));
        shown.index(&IndexOptions::default())?;
        let own = OwnCatalogue {
            _folder: folder,
            indexed: Mutex::new(Instant::now()),
        };
        Ok(FleetList {
            own: Some(own),
            ..FleetList::new(fleet)
        })
    }

    /// The same, where each recording that is opened gets this description of its robot.
    pub fn with_description(self, description: Option<PathBuf>) -> Self {
        FleetList {
            description,
            ..self
        }
    }

    fn bring_up_to_date(&self) {
        let Some(own) = &self.own else {
            return;
        };
        let mut indexed = own.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        if indexed.elapsed() < INDEX_INTERVAL {
            return;
        }
        if let Err(error) = self.fleet.index(&IndexOptions::default()) {
            tracing::warn!("the list is not up to date: {error}");
        }
        *indexed = Instant::now();
    }

    fn opened(&self, recording: &str) -> anyhow::Result<OpenedRecording> {
        // Only what is in the catalogue, whatever the page asks for.
        let recording = self.fleet.catalogue().path_of(recording)?;
        let address = self.fleet.address_of(&recording);
        let place = Path::new(&address);
        let mut source = self.fleet.recording(&recording)?;
        if let Some(description) = &self.description {
            source = source.with_description(description)?;
        }
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
        self.bring_up_to_date();
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
