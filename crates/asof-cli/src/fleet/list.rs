//! A catalogue as the page's list of recordings.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use asof::catalogue::{FoundRecording, NotADay, Search, since, until};
use asof::{Fleet, Stamp, TimeRange};
use asof_serve::{
    Annotations, ListedRecording, RecordingList, RecordingsAsked, Refusal, ServeOptions, Server,
    newest_first,
};

use super::search::parse_names;

/// How many recordings are open at once; the oldest is closed for another.
const MAX_OPEN_RECORDINGS: usize = 4;

/// The recordings of a catalogue; each open one has its own server, on this machine only.
pub struct FleetList {
    fleet: Fleet,
    options: ServeOptions,
    open: Mutex<VecDeque<(String, Server)>>,
}

impl FleetList {
    /// Recordings are shown according to `options`.
    pub fn new(fleet: Fleet, options: &ServeOptions) -> Self {
        FleetList {
            fleet,
            options: options.clone(),
            open: Mutex::default(),
        }
    }

    fn serve(&self, recording: &str) -> anyhow::Result<Server> {
        // Only what is in the catalogue, whatever the page asks for.
        let recording = self.fleet.catalogue().path_of(recording)?;
        let address = self.fleet.address_of(&recording);
        let place = Path::new(&address);
        let options = ServeOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            any_port: true,
            start: None,
            disk: None,
            annotations: place.is_file().then(|| Annotations::beside(place)),
            robots: Vec::new(),
            recordings: None,
            queries: None,
            snapshots: None,
            ..self.options.clone()
        };
        let opened = self.fleet.recording(&recording)?;
        Ok(Server::start(Arc::new(opened), &recording, &options)?)
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

    fn open(&self, recording: &str) -> Result<String, Refusal> {
        if !self.options.listen.ip().is_loopback() {
            return Err(
                "recordings are opened only on the server's own machine, and this server also listens to others; \
                 serve the recording itself with `asof serve`"
                    .into(),
            );
        }
        let lock = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |open: &VecDeque<(String, Server)>| {
            let known = open.iter().find(|(name, _)| name == recording);
            known.map(|(_, server)| server.url())
        };
        if let Some(address) = known(&lock()) {
            return Ok(address);
        }
        let server = self
            .serve(recording)
            .map_err(|error| format!("{error:#}"))?;
        let address = server.url();
        let mut open = lock();
        open.push_back((recording.to_owned(), server));
        let closed = (open.len() > MAX_OPEN_RECORDINGS).then(|| open.pop_front());
        // Closing waits for the server's threads, so it happens on a thread of its own.
        drop(open);
        drop(closed);
        Ok(address)
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
