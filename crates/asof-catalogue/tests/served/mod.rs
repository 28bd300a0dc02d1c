//! A fleet on a server.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../fleet/mod.rs"]
pub mod fleet;
#[path = "../../../asof-formats/tests/common/server.rs"]
pub mod server;

use std::sync::Arc;

use asof_catalogue::{Catalogue, CataloguedRecording, IndexedRecording, Search, SummaryRow};
use asof_core::{Query, Source};
use asof_formats::{MappedFile, OpenOptions, Storage as _, Store, StoredFile};
use fleet::{Fleet, write};
use server::Server;

/// The paths of the recordings.
pub const NAMES: [&str; 3] = ["/a.mcap", "/b.mcap", "/c.mcap"];

/// Three recordings on a server, and their catalogue, which lies on disk.
pub struct Served {
    pub server: Arc<Server>,
    pub catalogue: Catalogue,
    fleet: Fleet,
}

/// What an indexer writes down of a recording on a server.
pub fn surveyed(root: &Store, name: &str, size: u64) -> IndexedRecording {
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
    pub fn new() -> Self {
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
            fleet,
        }
    }

    /// Puts the catalogue beside the recordings.
    pub fn put_catalogue(&self) {
        let folder = std::fs::read_dir(self.fleet.path("catalogue")).expect("a folder");
        for file in folder.flatten() {
            let bytes = std::fs::read(file.path()).expect("a file");
            let name = file.file_name().into_string().expect("a name");
            self.put(&format!("/.asof/{name}"), Some(bytes));
        }
    }

    pub fn recordings(&self) -> Vec<CataloguedRecording> {
        let found = self
            .catalogue
            .find(&Search::default())
            .expect("a catalogue");
        let opened = self.catalogue.open_found(&found, &OpenOptions::default());
        opened.expect("a catalogue")
    }

    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        let files = self.server.files.lock().expect("no panic");
        let (file, _) = &files[name];
        let bytes = file.fetch(0, file.size());
        bytes.expect("in memory").to_vec()
    }

    pub fn put(&self, name: &str, bytes: Option<Vec<u8>>) {
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

/// How many messages are in it.
pub fn counted(recording: &dyn Source) -> Result<usize, String> {
    let batches = recording.read(&Query::all());
    let batches = batches.map_err(|error| error.to_string())?;
    let mut messages = 0;
    for batch in batches {
        messages += batch.map_err(|error| error.to_string())?.len();
    }
    Ok(messages)
}
