//! Small files that would become large, read by many at once: what is alive at once is bounded, counted, and said.

mod common;

use std::sync::Arc;

use asof_core::{Batch, Query, Source, Stamp, Topics};
use asof_formats::{BagFile, DecompressionLimits, MappedFile, McapFile, OpenOptions};
use common::bags::BagMaker;
use common::mcaps::{channel, chunk, file, message};

const BOMBS: u64 = 8;
const BOMB_BYTES: usize = 2 << 20;

/// Room for three bombs.
const LIMITS: DecompressionLimits = DecompressionLimits {
    ratio: 1 << 20,
    alive_at_most: 7 << 20,
    chunk_at_least: 3 << 20,
    chunk_at_most: 1 << 30,
    file_at_least: 1 << 30,
};

fn options() -> OpenOptions {
    OpenOptions {
        threads: 8,
        limits: LIMITS,
        ..OpenOptions::default()
    }
}

/// Chunks of one message of zeros each, one after the other or all at the same time, each on its topic.
fn mcap(compression: &str, is_overlapping: bool) -> Arc<dyn Source> {
    let bomb = |time: u64| {
        let id = time as u16;
        let zeros = message(id, time, &vec![0; BOMB_BYTES]);
        let times = if is_overlapping {
            (1, BOMBS)
        } else {
            (time, time)
        };
        let records = [channel(id, &format!("/{id}")), zeros].concat();
        chunk(compression, &records, times)
    };
    let bytes = file(&(1..=BOMBS).map(bomb).collect::<Vec<_>>());
    assert!(bytes.len() < BOMBS as usize * BOMB_BYTES / 200);
    let storage = MappedFile::from_bytes("run.mcap", bytes.into());
    Arc::new(McapFile::from_storage(Box::new(storage), &options()).expect("opens"))
}

fn bag(compression: &'static str) -> Arc<dyn Source> {
    let mut maker = BagMaker::new(compression);
    for id in 1..=BOMBS as u32 {
        maker.connect(
            id,
            &format!("/{id}"),
            "std_msgs/String",
            "string data\n",
            false,
        );
        maker.chunk(&[(id, (id, 0), &vec![0; BOMB_BYTES])]);
    }
    let storage = MappedFile::from_bytes("run.bag", maker.finish().into());
    Arc::new(BagFile::from_storage(Box::new(storage), &options()).expect("opens"))
}

/// Messages of a db3 that are zstd frames, many of them within one section.
fn db3(folder: &std::path::Path) -> Arc<dyn Source> {
    let path = folder.join("run.db3");
    let database = rusqlite::Connection::open(&path).expect("opens");
    database
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);",
        )
        .expect("creates");
    let payload = zstd::bulk::compress(&vec![0; BOMB_BYTES], 3).expect("compresses");
    for id in 1..=BOMBS as i64 {
        let topic = "INSERT INTO topics VALUES (?, '/' || ?, 'std_msgs/msg/String', 'cdr')";
        database.execute(topic, (id, id)).expect("inserts");
        let message = "INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)";
        let row = (id, id, &payload);
        database.execute(message, row).expect("inserts");
    }
    asof_formats::open_with(&path, &options())
        .expect("opens")
        .into()
}

fn alive() -> u64 {
    DecompressionLimits::alive().0
}

/// All sources in one test: the counter is one of the process.
#[test]
fn what_is_alive_at_once_is_bounded_over_all_threads_and_readers() {
    let folder = tempfile::tempdir().expect("a folder");
    let sources = [
        mcap("lz4", false),
        mcap("lz4", true),
        mcap("zstd", false),
        bag("lz4"),
        bag("bz2"),
        db3(folder.path()),
    ];
    for (number, source) in sources.iter().enumerate() {
        // Somebody who lets go of each batch gets them all.
        let one_by_one = |query: Query| {
            let batches = source.read(&query).expect("reads");
            batches
                .map(|batch| batch.expect("a batch").len())
                .sum::<usize>()
        };
        // Of chunks that overlap, and in a section of a db3, several are needed at once.
        if ![1, 5].contains(&number) {
            assert_eq!(one_by_one(Query::all()), BOMBS as usize, "source {number}");
            assert_eq!(alive(), 0);
        }
        // Many readers at once, which keep what they have read.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let batches = source.read(&Query::all()).expect("reads");
                    let kept: Vec<Batch> = batches.map(|batch| batch.expect("a batch")).collect();
                    assert!(alive() <= LIMITS.alive_at_most);
                    drop(kept);
                });
            }
        });
        assert_eq!(alive(), 0, "source {number}");
        let last = source.latest_at(&Topics::All, Stamp::MAX).expect("reads");
        assert!(last.len() <= 3 && alive() > 0, "source {number}");
        drop(last);
        assert_eq!(alive(), 0, "source {number}");
        let problems = source.summary().problems.clone();
        assert!(
            problems.iter().any(|p| p.message.contains("--no-limits")),
            "{problems:?}"
        );
    }
    let (_, most) = DecompressionLimits::alive();
    assert!((4 << 20..=LIMITS.alive_at_most).contains(&most), "{most}");
}
