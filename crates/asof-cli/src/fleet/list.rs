//! A catalogue as the page's list of recordings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use asof::catalogue::{Found, FoundRecording, IndexOptions, NotADay, Search, since, until};
use asof::files::TemporaryFolder;
use asof::{Event, Fleet, FleetOptions, Progress, Stamp, TimeRange};
use asof_serve::{
    Annotations, ListProgress, ListedRecording, OpenedRecording, RecordingList, RecordingsAsked,
    RecordingsFound, Refusal, newest_first,
};

use super::search::parse_names;
use crate::disk::DiskPlace;
use crate::screen::Screen;

/// The recordings of a catalogue.
pub struct FleetList {
    fleet: Fleet,
    /// The catalogue, where it is the list's own.
    own: Option<Arc<OwnCatalogue>>,
    /// The description of the robot, for each recording.
    description: Option<PathBuf>,
    /// Where the blocks of opened recordings are kept.
    disk: Option<DiskPlace>,
}

/// A temporary catalogue of a place that has none. It is brought up to date on a thread of its own when the list is asked for.
struct OwnCatalogue {
    run: Mutex<IndexState>,
    ended: Condvar,
    screen: Screen,
    _folder: TemporaryFolder,
}

/// The last run of the indexer.
#[derive(Default)]
struct IndexState {
    /// Cancels it while it is under way.
    running: Option<Progress>,
    ended: Option<Instant>,
    done: u64,
    total: u64,
    /// Why it failed.
    failure: Option<String>,
}

/// A list that was asked for again within this time is not brought up to date again.
const INDEX_INTERVAL: Duration = Duration::from_secs(2);
/// How long a list waits to be complete. A longer run is reported with it.
const LIST_PATIENCE: Duration = Duration::from_millis(400);
/// How often the list grows meanwhile.
const PART_INTERVAL: Duration = Duration::from_secs(1);

impl OwnCatalogue {
    fn run(&self) -> MutexGuard<'_, IndexState> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the indexer, if its last run is not a recent one.
    fn start(self: &Arc<Self>, fleet: &Fleet) {
        let mut run = self.run();
        let is_recent = |ended: Instant| ended.elapsed() < INDEX_INTERVAL;
        if run.running.is_some() || run.ended.is_some_and(is_recent) {
            return;
        }
        // What is damaged is said once.
        let is_first = run.ended.is_none();
        let own = Arc::downgrade(self);
        let progress = Progress::to(move |event| {
            let Some(own) = own.upgrade() else {
                return;
            };
            match event {
                Event::Done { done, total } => {
                    let mut run = own.run();
                    (run.done, run.total) = (done, total);
                }
                Event::Warning(text) if is_first => own.screen.warning(text),
                _ => {}
            }
        });
        let fleet = fleet.clone().with_progress(progress.clone());
        *run = IndexState {
            running: Some(progress),
            ..IndexState::default()
        };
        drop(run);
        let own = Arc::clone(self);
        std::thread::spawn(move || {
            let options = IndexOptions {
                part_interval: PART_INTERVAL,
                ..IndexOptions::default()
            };
            let failure = fleet.index(&options).err();
            let mut run = own.run();
            run.running = None;
            run.ended = Some(Instant::now());
            run.failure = failure.map(|error| error.to_string());
            if let Some(failure) = &run.failure {
                tracing::warn!("the list is not up to date: {failure}");
            }
            drop(run);
            own.ended.notify_all();
        });
    }

    /// Waits a little for the end of a run. Returns how far it is otherwise.
    fn wait(&self) -> (Option<ListProgress>, Option<String>) {
        let is_running = |run: &mut IndexState| run.running.is_some();
        let run = self
            .ended
            .wait_timeout_while(self.run(), LIST_PATIENCE, is_running);
        let (run, _) = run.unwrap_or_else(PoisonError::into_inner);
        let reading = run.running.is_some().then_some(ListProgress {
            done: run.done,
            total: run.total,
        });
        (reading, run.failure.clone())
    }
}

impl Drop for FleetList {
    fn drop(&mut self) {
        if let Some(running) = self.own.as_ref().and_then(|own| own.run().running.take()) {
            running.cancel();
        }
    }
}

impl FleetList {
    pub fn new(fleet: Fleet) -> Self {
        FleetList {
            fleet,
            own: None,
            description: None,
            disk: None,
        }
    }

    /// The recordings of a place without a catalogue. Each is opened once, to see what is in it: the list grows meanwhile.
    pub fn without_catalogue(
        place: &Path,
        mut options: FleetOptions,
        screen: &Screen,
    ) -> anyhow::Result<Self> {
        let folder = TemporaryFolder::new().context("there is no temporary folder for the list")?;
        options.catalogue = Some(folder.path().to_owned());
        let mut list = FleetList::new(Fleet::new(place, options)?);
        let own = Arc::new(OwnCatalogue {
            run: Mutex::default(),
            ended: Condvar::new(),
            screen: screen.clone(),
            _folder: folder,
        });
        own.start(&list.fleet);
        list.own = Some(own);
        Ok(list)
    }

    /// The same, where each recording that is opened gets this description of its robot.
    pub fn with_description(mut self, description: Option<PathBuf>) -> Self {
        self.description = description;
        self
    }

    /// The same, where the blocks of each recording that is opened are kept there.
    pub fn with_disk(mut self, disk: Option<DiskPlace>) -> Self {
        self.disk = disk;
        self
    }

    /// The path of a recording: only of one that is in the catalogue, or will be, whatever the page asks for.
    fn path_of(&self, recording: &str) -> anyhow::Result<String> {
        let catalogue = self.fleet.catalogue();
        let own = self.own.as_ref();
        let is_reading = own.is_some_and(|own| own.run().running.is_some());
        let unknown = match catalogue.path_of(recording) {
            Ok(path) => return Ok(path),
            Err(error) if is_reading => error,
            Err(error) => return Err(error.into()),
        };
        let mut files = catalogue.root().recordings()?.files.into_iter();
        let found = files.find(|file| file.path == recording);
        Ok(found.ok_or(unknown)?.path)
    }

    fn opened(&self, recording: &str) -> anyhow::Result<OpenedRecording> {
        let recording = self.path_of(recording)?;
        let address = self.fleet.address_of(&recording);
        let place = Path::new(&address);
        let mut source = self.fleet.recording_at(&recording)?;
        if let Some(description) = &self.description {
            source = source.with_description(description)?;
        }
        let disk = self.disk.clone().and_then(|disk| {
            let disk = disk.of(&[place.to_owned()], &source);
            disk.map_err(|error| tracing::warn!("{recording}: {error:#}"))
                .ok()
        });
        Ok(OpenedRecording {
            source: Arc::new(source),
            annotations: place.is_file().then(|| Annotations::beside(place)),
            name: recording,
            robots: Vec::new(),
            disk,
            keep: None,
        })
    }

    /// The matches among what is known, and how far the indexer is.
    fn found(&self, search: &Search) -> anyhow::Result<(Found, Option<ListProgress>)> {
        let Some(own) = &self.own else {
            return Ok((self.fleet.find(search)?, None));
        };
        own.start(&self.fleet);
        let (reading, failure) = own.wait();
        if !self.fleet.is_indexed()? {
            return match failure {
                Some(failure) => Err(anyhow!(failure)),
                None => Ok((Found::default(), reading)),
            };
        }
        Ok((self.fleet.find(search)?, reading))
    }
}

impl RecordingList for FleetList {
    fn name(&self) -> String {
        self.fleet.place()
    }

    fn find(&self, asked: &RecordingsAsked) -> Result<RecordingsFound, Refusal> {
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
        let found = self.found(&search);
        let (found, reading) = found.map_err(|error| format!("{error:#}"))?;
        let words: Vec<String> = asked
            .text
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let is_meant = |found: &&FoundRecording| words.iter().all(|word| is_said(found, word));
        let meant = found.recordings.iter().filter(is_meant);
        let mut recordings: Vec<ListedRecording> = meant.map(listed).collect();
        newest_first(&mut recordings);
        Ok(RecordingsFound {
            recordings,
            reading,
        })
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

#[cfg(test)]
mod tests {
    use asof::formats::{McapWriter, McapWriterOptions};
    use asof_core::testing::eventually;

    use super::*;
    use crate::screen::ColorChoice;

    #[test]
    fn while_recordings_are_looked_into_the_list_says_how_far_it_is_and_opens_those_it_will_have() {
        let folder = tempfile::tempdir().expect("a folder");
        let runs = folder.path().join("runs");
        std::fs::create_dir(&runs).expect("made");
        for path in [runs.join("run.mcap"), folder.path().join("other.mcap")] {
            let writer = McapWriter::create(path, McapWriterOptions::default()).expect("created");
            writer.finish().expect("finished");
        }
        let screen = Screen::new(ColorChoice::Never, 0, true);
        let list = FleetList::without_catalogue(&runs, FleetOptions::default(), &screen);
        let list = list.expect("a list");
        let own = list.own.as_ref().expect("its own catalogue");
        eventually("a complete list", || {
            let found = list.find(&RecordingsAsked::default()).expect("found");
            (found.recordings.len(), found.reading) == (1, None)
        });

        // A run that never ends, before anything was written.
        let other = TemporaryFolder::new().expect("a folder");
        let options = FleetOptions {
            catalogue: Some(other.path().to_owned()),
            ..FleetOptions::default()
        };
        let fleet = Fleet::new(&runs, options).expect("a fleet");
        *own.run() = IndexState {
            running: Some(Progress::default()),
            done: 2,
            total: 5,
            ..IndexState::default()
        };
        let mut waiting = FleetList::new(fleet);
        waiting.own = Some(Arc::clone(own));
        let found = waiting.find(&RecordingsAsked::default()).expect("found");
        let reading = ListProgress { done: 2, total: 5 };
        assert_eq!(
            (found.recordings, found.reading),
            (Vec::new(), Some(reading))
        );
        assert!(waiting.opened("run.mcap").is_ok());
        for unknown in ["../other.mcap", "other.mcap", ""] {
            assert!(waiting.opened(unknown).is_err(), "{unknown}");
        }
    }
}
