//! Writes the catalogue of a large fleet, without its recordings, to measure searches and the planning of queries.
//!
//! usage: `many_rows FOLDER RECORDINGS [RECORDING]`
//!
//! Ten robots, a recording an hour each, with three topics; recording 54,321 and each 1,000th after it have a fourth,
//! `/bumper`. With RECORDING, an MCAP file, each has its topics and definitions instead, and one of them, in the middle, is a copy of
//! it, whose address is printed.

use std::error::Error;
use std::path::{Path, PathBuf};

use asof_catalogue::{
    Catalogue, Changes, IndexedRecording, RecordingRow, SchemaRow, TopicRow, schema_hash,
};
use asof_core::{Stamp, TimeRange};
use asof_formats::Store;

const HOUR: i64 = 3_600_000_000_000;
const START: i64 = 1_714_564_800_000_000_000;
/// The rows of one part of the catalogue, as the indexer writes them.
const AT_ONCE: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(count)) = (words.next(), words.next()) else {
        return Err("usage: many_rows FOLDER RECORDINGS [RECORDING]".into());
    };
    let count: usize = count.parse()?;
    let model = words
        .next()
        .map(|file| Model::open(Path::new(&file)))
        .transpose()?;
    std::fs::create_dir_all(&folder)?;
    let catalogue = Catalogue::beside(Store::at(&folder)?)?;
    let now = Stamp::from_nanos(START);
    for first in (0..count).step_by(AT_ONCE) {
        let numbers = first..count.min(first + AT_ONCE);
        let changes = Changes {
            indexed: numbers
                .map(|number| like(model.as_ref(), recording(number)))
                .collect(),
            ..Changes::default()
        };
        catalogue.commit(&changes, now)?;
        catalogue.compact(now)?;
    }
    if let Some(model) = model {
        let copied = model.copied(Path::new(&folder), recording(count / 2))?;
        println!(
            "{}",
            Path::new(&folder).join(&copied.row.recording).display()
        );
        let changes = Changes {
            indexed: vec![copied],
            ..Changes::default()
        };
        catalogue.commit(&changes, now)?;
    }
    Ok(())
}

/// The recording whose topics all others have.
struct Model {
    file: PathBuf,
    topics: Vec<TopicRow>,
    schemas: Vec<SchemaRow>,
    range: TimeRange,
}

impl Model {
    fn open(file: &Path) -> Result<Self, Box<dyn Error>> {
        let recording = asof_formats::open(file)?;
        let summary = recording.summary();
        let channels = || summary.channels.iter();
        let schemas = channels().filter_map(|entry| entry.channel.schema.as_deref());
        let topic = |entry: &asof_core::ChannelSummary| {
            let channel = &entry.channel;
            let schema = channel.schema.as_deref();
            TopicRow {
                recording: String::new(),
                topic: channel.topic.clone(),
                type_name: channel.type_name().to_owned(),
                schema_hash: schema.map(schema_hash),
                encoding: channel.message_encoding.clone(),
                schema_encoding: schema
                    .map(|schema| schema.encoding.clone())
                    .unwrap_or_default(),
                messages: entry.messages,
                bytes: None,
                bytes_estimate: None,
                range: summary.range,
            }
        };
        Ok(Model {
            file: file.to_owned(),
            topics: channels().map(topic).collect(),
            schemas: schemas.map(SchemaRow::of).collect(),
            range: summary.range,
        })
    }

    /// A recording that is a copy of it.
    fn copied(
        &self,
        folder: &Path,
        of: IndexedRecording,
    ) -> Result<IndexedRecording, Box<dyn Error>> {
        let path = folder.join(&of.row.recording);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::copy(&self.file, &path)?;
        let listed = Store::at(folder)?.recordings()?.files;
        let found = listed.iter().find(|file| file.path == of.row.recording);
        let found = found.ok_or("the copy is not listed")?;
        let mut of = like(Some(self), of);
        of.row.size = found.size;
        of.row.modified = found.modified;
        of.row.range = self.range;
        for topic in &mut of.topics {
            topic.range = self.range;
        }
        Ok(of)
    }
}

/// A recording with the topics of another.
fn like(model: Option<&Model>, mut recording: IndexedRecording) -> IndexedRecording {
    if let Some(model) = model {
        let topic = |topic: &TopicRow| TopicRow {
            recording: recording.row.recording.clone(),
            range: recording.row.range,
            ..topic.clone()
        };
        recording.topics = model.topics.iter().map(topic).collect();
        recording.schemas.clone_from(&model.schemas);
    }
    recording
}

fn recording(number: usize) -> IndexedRecording {
    let robot = format!("r{}", number % 10);
    let name = format!("{robot}/{number:07}.mcap");
    let start = START + (number / 10) as i64 * HOUR;
    let range = TimeRange::new(
        Stamp::from_nanos(start),
        Stamp::from_nanos(start + HOUR - 1),
    );
    let mut names = vec!["/odom", "/scan", "/tf"];
    if number >= 54_321 && (number - 54_321).is_multiple_of(1_000) {
        names.push("/bumper");
    }
    let topic = |topic: &str| TopicRow {
        recording: name.clone(),
        topic: topic.to_owned(),
        type_name: "std_msgs/msg/Header".to_owned(),
        schema_hash: None,
        encoding: "cdr".to_owned(),
        schema_encoding: String::new(),
        messages: Some(3_600),
        bytes: None,
        bytes_estimate: None,
        range,
    };
    IndexedRecording {
        topics: names.into_iter().map(topic).collect(),
        row: RecordingRow {
            address: name.clone(),
            size: 1 << 30,
            modified: Some(range.end),
            format: Some("mcap".to_owned()),
            messages: Some(10_800),
            labels: [("robot".to_owned(), robot)].into(),
            indexed: Some(range.end),
            range,
            recording: name,
            ..RecordingRow::default()
        },
        schemas: Vec::new(),
        sections: Vec::new(),
        summary: None,
    }
}
