//! Writes the catalogue of a large fleet, without its recordings, to measure searches.
//!
//! usage: many_rows FOLDER RECORDINGS
//!
//! Ten robots, a recording an hour each, with three topics; recording 54,321 and each 1,000th after it have a fourth,
//! `/bumper`.

use std::error::Error;

use asof_catalogue::{Catalogue, Changes, IndexedRecording, RecordingRow, TopicRow};
use asof_core::{Stamp, TimeRange};
use asof_formats::Store;

const HOUR: i64 = 3_600_000_000_000;
const START: i64 = 1_714_564_800_000_000_000;
/// As many as an indexer writes at once.
const AT_ONCE: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(count)) = (words.next(), words.next()) else {
        return Err("usage: many_rows FOLDER RECORDINGS".into());
    };
    let count: usize = count.parse()?;
    std::fs::create_dir_all(&folder)?;
    let catalogue = Catalogue::beside(Store::at(&folder)?)?;
    let now = Stamp::from_nanos(START);
    for first in (0..count).step_by(AT_ONCE) {
        let numbers = first..count.min(first + AT_ONCE);
        let changes = Changes {
            indexed: numbers.map(recording).collect(),
            ..Changes::default()
        };
        catalogue.commit(&changes, now)?;
        catalogue.compact(now)?;
    }
    Ok(())
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
