//! Folders of small recordings.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use asof_catalogue::{
    Catalogue, Changes, IndexOptions, IndexRun, IndexedRecording, Indexer, RecordingRow, SchemaRow,
    TopicRow, schema_hash,
};
use asof_core::{Channel, Message, Schema, Stamp, TimeRange};
use asof_formats::{McapWriter, McapWriterOptions, Store};

pub struct Fleet {
    folder: tempfile::TempDir,
}

pub fn second(seconds: i64) -> Stamp {
    Stamp::from_nanos(seconds * 1_000_000_000)
}

/// When everything happens.
pub fn now() -> Stamp {
    second(2_000_000_000)
}

/// Adds recordings to a catalogue, as an indexer does that has looked at them.
pub fn write(catalogue: &Catalogue, indexed: Vec<IndexedRecording>) {
    let changes = Changes {
        indexed,
        ..Changes::default()
    };
    catalogue.commit(&changes, now()).expect("it is written");
}

fn schema() -> Schema {
    Schema {
        name: "test/msg/Number".into(),
        encoding: "ros2msg".into(),
        data: "float64 value".into(),
    }
}

impl Fleet {
    pub fn new() -> Self {
        Fleet {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    /// In memory where the system has a folder for that: each file of a catalogue is synced, which takes a disk long.
    pub fn in_memory() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Fleet {
            folder: folder.expect("a folder"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A recording of one second with a message on each topic at its start and its end.
    pub fn record(&self, name: &str, start: i64, topics: &[&str]) {
        self.record_with_metadata(name, start, topics, &[]);
    }

    pub fn record_with_metadata(
        &self,
        name: &str,
        start: i64,
        topics: &[&str],
        metadata: &[(&str, &str)],
    ) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
        let schema = Arc::new(schema());
        for topic in topics {
            let channel = Arc::new(Channel {
                topic: (*topic).to_owned(),
                message_encoding: "cdr".into(),
                schema: Some(Arc::clone(&schema)),
                ..Channel::default()
            });
            for at in [second(start), second(start + 1)] {
                let message = Message {
                    channel: Arc::clone(&channel),
                    log_time: at,
                    publish_time: at,
                    sequence: 0,
                    payload: vec![0, 1, 0, 0].into(),
                };
                writer.write(&message).expect("a message");
            }
        }
        if !metadata.is_empty() {
            let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let metadata: BTreeMap<String, String> = metadata.iter().map(text).collect();
            writer.write_metadata("run", metadata).expect("metadata");
        }
        writer.finish().expect("a file");
    }

    /// A catalogue as another process would open it.
    pub fn catalogue(&self) -> Catalogue {
        Catalogue::beside(Store::at(self.folder.path()).expect("a folder")).expect("a folder")
    }

    pub fn index(&self) -> IndexRun {
        let catalogue = self.catalogue();
        let indexer = Indexer::new(&catalogue, IndexOptions::default());
        indexer.run(now(), &|_| {}).expect("it runs")
    }

    pub fn rows(&self) -> BTreeMap<String, RecordingRow> {
        let rows = self.catalogue().recordings().expect("a catalogue");
        rows.into_iter()
            .map(|row| (row.recording.clone(), row))
            .collect()
    }

    /// What an indexer would say of a recording, without one.
    pub fn surveyed(name: &str, start: i64) -> IndexedRecording {
        let range = TimeRange::new(second(start), second(start + 1));
        let schema = schema();
        IndexedRecording {
            row: RecordingRow {
                recording: name.to_owned(),
                address: name.to_owned(),
                size: 100,
                modified: Some(second(start)),
                format: Some("mcap".into()),
                range,
                messages: Some(2),
                indexed: Some(now()),
                ..RecordingRow::default()
            },
            topics: vec![TopicRow {
                recording: name.to_owned(),
                topic: "/tf".into(),
                type_name: schema.name.clone(),
                schema_hash: Some(schema_hash(&schema)),
                encoding: "cdr".into(),
                schema_encoding: "ros2msg".into(),
                messages: Some(2),
                bytes: None,
                bytes_estimate: None,
                range,
            }],
            schemas: vec![SchemaRow::of(&schema)],
            sections: Vec::new(),
            summary: None,
        }
    }
}
