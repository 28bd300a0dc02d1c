//! Memory follows what is in flight, not how large the recording is.

mod common;

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use asof_core::{Query, Source};
use asof_decode::{TableOptions, Tables};
use asof_formats::{McapFile, McapWriter, McapWriterOptions, OpenOptions, PlainFile};
use common::flavours::{Flavour, Types};
use common::message;
use common::types::ROS;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const CHUNK_SIZE: usize = 4 << 20;
const THREADS: usize = 2;
/// What is promised: 64 MB, and two chunks for each thread.
const ALLOWED: usize = (64 << 20) + 2 * THREADS * CHUNK_SIZE;
/// Decompressed, the recording is several times as large.
const PAYLOAD: usize = 200 << 20;

/// Pictures beside small messages, as on a robot.
fn write(file: File) -> u64 {
    let options = McapWriterOptions {
        chunk_size: CHUNK_SIZE as u64,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::new(BufWriter::new(file), options).expect("a writer");
    let types = Types::parse(ROS);
    let small: Vec<_> = ["sensor_msgs/Imu", "tf2_msgs/TFMessage", "nav_msgs/Odometry"]
        .into_iter()
        .map(|name| types.sample(name, Flavour::Ros2, 5))
        .map(|(mut channel, payload)| {
            channel.topic = format!("/{}", channel.type_name());
            (Arc::new(channel), payload)
        })
        .collect();
    let (mut picture, _) = types.sample("sensor_msgs/CompressedImage", Flavour::Ros2, 5);
    picture.topic = "/picture".into();
    let picture = Arc::new(picture);
    // A header of zeros and empty texts, then the bytes.
    let mut shown = vec![0, 1, 0, 0];
    shown.extend([0; 8]);
    for word in [1u32, 0, 1, 0, 700 << 10] {
        shown.extend(word.to_le_bytes());
    }
    shown.extend(vec![7; 700 << 10]);
    let (mut at, mut written) = (0, 0);
    while written < PAYLOAD {
        at += 1;
        let (channel, payload) = match at % 200 {
            0 => (&picture, &shown),
            n => {
                let (channel, payload) = &small[n as usize % small.len()];
                (channel, payload)
            }
        };
        written += payload.len();
        writer
            .write(&message(channel, at, payload.clone()))
            .expect("writes");
    }
    writer.finish().expect("finishes");
    at as u64
}

#[test]
fn a_recording_of_any_size_is_decoded_in_bounded_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.mcap");
    let messages = write(File::create(&path).expect("a file"));
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let storage = PlainFile::open(&path).expect("a file");
    let file = McapFile::from_storage(
        Box::new(storage),
        &OpenOptions {
            threads: THREADS,
            ..OpenOptions::default()
        },
    )
    .expect("an MCAP file");
    let options = TableOptions {
        threads: THREADS,
        ..TableOptions::default()
    };
    let mut tables = Tables::read(&file, &Query::all(), options).expect("reads");
    for batch in &mut tables {
        batch.expect("a batch");
    }
    let peak = MEMORY.peak_usage() - before;
    let report = tables.report();
    assert_eq!(report.iter().map(|c| c.messages).sum::<u64>(), messages);
    assert!(report.iter().all(|channel| channel.failed == 0));
    assert!(file.summary().problems.is_empty());
    assert!(peak <= ALLOWED, "{peak} bytes, and {ALLOWED} are allowed");
    eprintln!("{} of {} MB", peak >> 20, ALLOWED >> 20);
}
