//! What several tests need.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod bags;
pub mod mcaps;
pub mod server;
pub mod ulogs;

use std::path::PathBuf;

use asof_core::{Message, Query, Source, Stamp, Topics};
use asof_formats::McapFile;

/// The folder with recordings from elsewhere, if it is there; says so where it is not.
pub fn test_data() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let folder =
        std::env::var_os("ASOF_TEST_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    asof_core::testing::skipped(format_args!(
        "no recordings in {} (set ASOF_TEST_DATA)",
        folder.display()
    ));
    None
}

/// All files in a folder and the folders in it.
pub fn files_below(folder: &std::path::Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Everything that matches, as owned messages.
pub fn messages(source: &dyn Source, query: &Query) -> Vec<Message> {
    let batches = source.read(query).expect("reads");
    batches
        .flat_map(|batch| {
            batch
                .expect("a batch")
                .iter()
                .map(|m| m.to_message())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The last message of each topic at or before a time, by looking at them all.
pub fn scan_latest(all: &[Message], topics: &Topics, at: Stamp) -> Vec<Message> {
    let mut last: Vec<&Message> = Vec::new();
    for message in all
        .iter()
        .filter(|m| m.log_time <= at && topics.contains(&m.channel.topic))
    {
        last.retain(|known| known.channel.topic != message.channel.topic);
        last.push(message);
    }
    last.into_iter().cloned().collect()
}

/// A short drive of the demo robot, written in every way that a test asks for.
pub fn demo_file(seconds: f64, options: mcap::WriteOptions) -> Vec<u8> {
    let demo = asof_demo::Demo::new(asof_demo::DemoOptions {
        duration: std::time::Duration::from_secs_f64(seconds),
        ..asof_demo::DemoOptions::default()
    });
    let mut writer = options
        .create(std::io::Cursor::new(Vec::new()))
        .expect("a writer");
    let mut ids = std::collections::HashMap::new();
    for message in demo.messages() {
        let id = *ids.entry(message.channel.topic.clone()).or_insert_with(|| {
            let schema = message.channel.schema.as_ref().expect("a schema");
            let schema = writer
                .add_schema(&schema.name, &schema.encoding, &schema.data)
                .expect("a schema");
            let channel = &message.channel;
            writer
                .add_channel(
                    schema,
                    &channel.topic,
                    &channel.message_encoding,
                    &channel.metadata,
                )
                .expect("a channel")
        });
        let header = mcap::records::MessageHeader {
            channel_id: id,
            sequence: message.sequence,
            log_time: message.log_time.to_unsigned_nanos().expect("after 1970"),
            publish_time: message
                .publish_time
                .to_unsigned_nanos()
                .expect("after 1970"),
        };
        writer
            .write_to_known_channel(&header, &message.payload)
            .expect("written");
    }
    let attachment = mcap::Attachment {
        log_time: 1,
        create_time: 2,
        name: "calibration.yaml".into(),
        media_type: "text/yaml".into(),
        data: b"wheel_radius: 0.035"[..].into(),
    };
    writer.attach(&attachment).expect("written");
    let metadata = [("robot".to_owned(), "demo".to_owned())].into();
    writer
        .write_metadata(&mcap::records::Metadata {
            name: "run".into(),
            metadata,
        })
        .expect("written");
    writer.finish().expect("finished");
    writer.into_inner().into_inner()
}

/// Small chunks, so that a short drive has many.
pub fn small_chunks() -> mcap::WriteOptions {
    mcap::WriteOptions::new()
        .chunk_size(Some(16 << 10))
        .compression_threads(0)
}

/// Does everything that can be done with an MCAP file. Whatever the bytes are, this ends without a panic, in
/// messages or in an error.
pub fn exercise(bytes: Vec<u8>) -> usize {
    match McapFile::from_bytes("mutated.mcap", bytes) {
        Ok(file) => exercise_recording(&file),
        Err(_) => 0,
    }
}

/// Does everything that can be done with a recording that opened; how many messages it has.
pub fn exercise_recording(file: &dyn Source) -> usize {
    let summary = file.summary();
    let mut seen = 0;
    for batch in file
        .read(&Query::all())
        .expect("a file that opened")
        .map_while(Result::ok)
    {
        assert!(!batch.is_empty());
        seen += batch
            .iter()
            .filter(|m| m.payload.len() < usize::MAX)
            .count();
    }
    let some = Query::topics(["/odom", "/tf"])
        .between(summary.range.start..=summary.range.start.plus_nanos(1 << 29));
    for batch in file
        .read(&some)
        .expect("a file that opened")
        .map_while(Result::ok)
    {
        assert!(
            batch
                .iter()
                .all(|m| some.matches(&m.channel.topic, m.log_time))
        );
    }
    for at in [
        summary.range.start,
        summary.range.end,
        Stamp::MAX,
        Stamp::MIN,
    ] {
        let known = file
            .latest_at(&Topics::All, at)
            .expect("a file that opened");
        assert!(known.iter().all(|m| m.log_time <= at));
    }
    for entry in &summary.attachments {
        let _ = file.attachment(entry);
    }
    for entry in &summary.metadata {
        let _ = file.metadata(entry);
    }
    file.check(&mut |_, _| Ok(())).expect("a file that opened");
    seen
}

/// A generator of numbers for tests: the same every time.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % below.max(1)
    }
}

/// Damages bytes as disks and people do: flips, overwrites, cuts, holes, insertions.
pub fn mutate(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for _ in 0..=dice.roll(4) {
        if damaged.is_empty() {
            break;
        }
        let at = dice.roll(damaged.len());
        match dice.roll(6) {
            0 => damaged[at] ^= 1 << dice.roll(8),
            1 => damaged[at] = dice.roll(256) as u8,
            2 => {
                let value = [0, 1, u32::MAX, i32::MAX as u32, 0x8000_0000][dice.roll(5)];
                for (place, byte) in value.to_le_bytes().into_iter().enumerate() {
                    if let Some(slot) = damaged.get_mut(at + place) {
                        *slot = byte;
                    }
                }
            }
            3 => damaged.truncate(at),
            4 => {
                let end = (at + dice.roll(300)).min(damaged.len());
                damaged.drain(at..end);
            }
            _ => {
                let extra: Vec<u8> = (0..dice.roll(300)).map(|_| dice.roll(256) as u8).collect();
                damaged.splice(at..at, extra);
            }
        }
    }
    damaged
}
