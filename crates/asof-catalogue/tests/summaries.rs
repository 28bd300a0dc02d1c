//! Recordings on a server that are opened by what the catalogue has of them.

#[allow(dead_code, reason = "not every test makes recordings in every way")]
mod fleet;
#[path = "../../asof-formats/tests/common/server.rs"]
#[allow(
    dead_code,
    reason = "the server can do more than these tests ask of it"
)]
mod server;

use std::sync::Arc;

use asof_catalogue::{
    Catalogue, CataloguedRecording, Changes, IndexedRecording, Search, SummaryRow,
};
use asof_core::{Index, Query, Source as _};
use asof_formats::{MappedFile, OpenOptions, Store, StoredFile};
use fleet::{Fleet, now, write};
use server::Server;

const NAMES: [&str; 3] = ["/a.mcap", "/b.mcap", "/c.mcap"];

/// Three recordings on a server, and their catalogue, which lies on disk.
struct Served {
    server: Arc<Server>,
    catalogue: Catalogue,
    _fleet: Fleet,
}

/// What an indexer writes down of a recording on a server.
fn surveyed(root: &Store, name: &str, size: u64) -> IndexedRecording {
    let file = StoredFile {
        path: name.to_owned(),
        size,
        modified: None,
        e_tag: Some("\"1\"".to_owned()),
    };
    let opened = root.open_noting(&file, &OpenOptions::default());
    let (_, pieces) = opened.expect("it opens");
    let mut indexed = Fleet::surveyed(name, 100);
    indexed.row.size = size;
    indexed.row.e_tag = file.e_tag;
    indexed.row.modified = None;
    indexed.summary = Some(SummaryRow {
        recording: name.to_owned(),
        pieces,
    });
    indexed
}

impl Served {
    fn new() -> Self {
        let fleet = Fleet::new();
        let bytes = NAMES.map(|name| {
            let name = name.trim_start_matches('/');
            fleet.record(name, 100, &["/tf", "/scan"]);
            std::fs::read(fleet.path(name)).expect("a recording")
        });
        let sizes: Vec<u64> = bytes.iter().map(|bytes| bytes.len() as u64).collect();
        let (server, address) = Server::with_files(NAMES.into_iter().zip(bytes)).start();
        let root = Store::at(address.trim_end_matches("run")).expect("an address");
        let beside = Store::at(fleet.path("catalogue")).expect("a folder");
        let catalogue = Catalogue::elsewhere(root, beside);
        for (name, size) in NAMES.iter().zip(sizes) {
            // A part each, so that there is something to put together.
            let name = name.trim_start_matches('/');
            let indexed = surveyed(catalogue.root(), name, size);
            write(&catalogue, vec![indexed]);
        }
        Served {
            server,
            catalogue,
            _fleet: fleet,
        }
    }

    fn recordings(&self) -> Vec<CataloguedRecording> {
        let found = self
            .catalogue
            .find(&Search::default())
            .expect("a catalogue");
        let opened = self.catalogue.open_found(&found, &OpenOptions::default());
        opened.expect("a catalogue")
    }

    fn put(&self, name: &str, bytes: Option<Vec<u8>>) {
        let mut files = self.server.files.lock().expect("no panic");
        match bytes {
            Some(bytes) => files.insert(
                name.to_owned(),
                (MappedFile::from_bytes(name, bytes.into()), 2),
            ),
            None => files.remove(name),
        };
    }
}

fn counted(recording: &CataloguedRecording) -> Result<usize, String> {
    let batches = recording.read(&Query::all());
    let batches = batches.map_err(|error| error.to_string())?;
    let mut messages = 0;
    for batch in batches {
        messages += batch.map_err(|error| error.to_string())?.len();
    }
    Ok(messages)
}

/// Opens all recordings, and says how many requests that took.
fn requests_to_open(served: &Served) -> u64 {
    let before = served.server.requests();
    let all = served.recordings();
    assert_eq!(all.len(), NAMES.len());
    for recording in &all {
        assert!(!recording.sections().is_empty());
        assert!(recording.is_open());
    }
    served.server.requests() - before
}

#[test]
fn a_recording_is_opened_without_a_request_for_its_summary() {
    let served = Served::new();
    assert_eq!(requests_to_open(&served), 0);
    for recording in &served.recordings() {
        assert_eq!(counted(recording), Ok(4));
    }
    assert_eq!(requests_to_open(&served), 0);
}

#[test]
fn summaries_outlive_labels_compaction_and_the_recordings_beside_them() {
    let served = Served::new();
    let catalogue = &served.catalogue;
    for number in 0..8 {
        write(
            catalogue,
            vec![Fleet::surveyed(&format!("{number}.bag"), 200)],
        );
    }
    catalogue.compact(now()).expect("it is put together");
    assert_eq!(catalogue.existing_head().expect("a head").parts.len(), 1);
    let gone = (0..8).map(|number| format!("{number}.bag"));
    let changes = Changes {
        vanished: gone.collect(),
        ..Changes::default()
    };
    catalogue.commit(&changes, now()).expect("it is written");
    assert_eq!(requests_to_open(&served), 0);

    let changes = Changes {
        vanished: vec!["b.mcap".to_owned()],
        ..Changes::default()
    };
    catalogue.commit(&changes, now()).expect("it is written");
    let head = catalogue.existing_head().expect("a head");
    let kept = head.parts[0].summaries.as_ref().map(|file| file.rows);
    assert_eq!(kept, Some(2), "what is gone has no summary any more");
    assert_eq!(head.tables.summaries.len(), 1);
}

#[test]
fn a_recording_that_is_not_what_was_indexed_is_told_when_it_is_read() {
    let served = Served::new();
    let all = served.recordings();
    served.put("/a.mcap", Some(vec![0; all[0].summary().size as usize]));
    served.put("/b.mcap", None);
    for (recording, why) in all.iter().zip(["has changed since", "no such file"]) {
        let told = counted(recording).expect_err("it is not there any more");
        assert!(told.contains(why), "{told}");
        assert!(told.contains("asof index"), "{told}");
    }
    assert_eq!(counted(&all[2]), Ok(4));
}

#[test]
fn without_a_summary_in_the_catalogue_the_recording_is_asked() {
    let served = Served::new();
    let mut indexed = surveyed(served.catalogue.root(), "a.mcap", {
        let files = served.server.files.lock().expect("no panic");
        let (file, _) = &files["/a.mcap"];
        asof_formats::Storage::size(file)
    });
    indexed.summary = None;
    indexed.row.modified = Some(now());
    write(&served.catalogue, vec![indexed]);
    assert!(requests_to_open(&served) > 0);
}
