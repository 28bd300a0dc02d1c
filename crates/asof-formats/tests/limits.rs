//! Small files that would become large, and files that claim more than they have: bounded, counted, and said.

mod common;

use std::io::Write as _;
use std::path::Path;

use asof_core::{ProblemKind, Query, Source, Topics};
use asof_formats::{
    BagFile, DecompressionLimits, MappedFile, McapFile, OpenOptions, open, open_with,
};
use common::bags::BagMaker;
use common::mcaps::{channel, chunk, file, message};
use common::messages;

/// The usual limits, a thousand times smaller, so that bombs need not be large.
const SMALL: DecompressionLimits = DecompressionLimits {
    ratio: 256,
    alive_at_most: u64::MAX,
    chunk_at_least: 64 << 10,
    chunk_at_most: 1 << 20,
    file_at_least: 1 << 20,
};

/// A chunk with one message of so many zeros.
fn bomb(kilobytes: usize, time: u64) -> Vec<u8> {
    let records = [
        channel(1, "/a"),
        message(1, time, &vec![0; kilobytes << 10]),
    ]
    .concat();
    chunk("zstd", &records, (time, time))
}

fn mcap(bytes: Vec<u8>, limits: DecompressionLimits) -> McapFile {
    let options = OpenOptions {
        limits,
        ..OpenOptions::default()
    };
    let storage = MappedFile::from_bytes("run.mcap", bytes.into());
    McapFile::from_storage(Box::new(storage), &options).expect("opens")
}

#[test]
fn a_chunk_that_becomes_too_much_is_left_out_and_the_others_are_read() {
    let good = chunk(
        "zstd",
        &[channel(2, "/b"), message(2, 7, b"{}")].concat(),
        (7, 7),
    );
    let bytes = file(&[bomb(80, 5), good]);
    assert!(bytes.len() < 1000);
    let bag = mcap(bytes.clone(), SMALL);
    assert_eq!(messages(&bag, &Query::all()).len(), 1);
    let problems = bag.summary().problems.clone();
    assert!(
        problems
            .iter()
            .any(|problem| problem.message.contains("--no-limits")),
        "{problems:?}"
    );
    assert_eq!(
        messages(&mcap(bytes, DecompressionLimits::NONE), &Query::all()).len(),
        2
    );
}

#[test]
fn chunks_that_are_harmless_one_by_one_are_bounded_together() {
    let parts: Vec<Vec<u8>> = (0..30).map(|time| bomb(60, time)).collect();
    let bag = mcap(file(&parts), SMALL);
    let summary = bag.summary();
    assert!(
        summary
            .messages
            .is_some_and(|found| (10..18).contains(&found))
    );
    let kinds: Vec<_> = summary
        .problems
        .iter()
        .map(|problem| problem.kind)
        .collect();
    assert!(kinds.contains(&ProblemKind::BadChunk), "{kinds:?}");
    let read: usize = bag
        .read(&Query::all())
        .expect("reads")
        .map(|batch| batch.expect("a batch").len())
        .sum();
    assert_eq!(Some(read as u64), summary.messages);
}

#[test]
fn a_bag_with_a_bomb_keeps_its_other_chunks() {
    for compression in ["lz4", "bz2"] {
        let mut maker = BagMaker::new(compression);
        maker.connect(0, "/a", "std_msgs/String", "string data\n", false);
        maker.chunk(&[(0, (1, 0), &vec![0; 70 << 10])]);
        maker.chunk(&[(0, (2, 0), b"good")]);
        let storage = MappedFile::from_bytes("run.bag", maker.finish().into());
        let options = OpenOptions {
            threads: 2,
            limits: SMALL,
            ..OpenOptions::default()
        };
        let bag = BagFile::from_storage(Box::new(storage), &options).expect("opens");
        let found = messages(&bag, &Query::all());
        // LZ4 makes at most 255 bytes of one, which is not a bomb.
        let expected = if compression == "lz4" { 2 } else { 1 };
        assert_eq!(found.len(), expected, "{compression}");
    }
}

fn database(path: &Path, payloads: &[Vec<u8>]) {
    let database = rusqlite::Connection::open(path).expect("opens");
    database
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             INSERT INTO topics VALUES (1, '/a', 'std_msgs/msg/String', 'cdr');
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);",
        )
        .expect("creates");
    for (time, payload) in payloads.iter().enumerate() {
        database
            .execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)",
                (time as i64, payload),
            )
            .expect("inserts");
    }
}

#[test]
fn messages_of_a_db3_that_become_too_much_are_left_out_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let mut unsized_frame = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
    unsized_frame
        .write_all(&vec![0; 80 << 10])
        .expect("compresses");
    let bombs = [
        zstd::bulk::compress(&vec![0; 80 << 10], 3).expect("compresses"),
        unsized_frame.finish().expect("compresses"),
        zstd::bulk::compress(b"\0\x01\0\0good", 3).expect("compresses"),
    ];
    database(&path, &bombs);
    for map in [true, false] {
        let options = OpenOptions {
            map,
            map_pages: map,
            limits: SMALL,
            ..OpenOptions::default()
        };
        let bag = open_with(&path, &options).expect("opens");
        assert_eq!(messages(&*bag, &Query::all()).len(), 1);
        let problems = bag.summary().problems.clone();
        let named = |id: &str| problems.iter().any(|problem| problem.message.contains(id));
        assert!(
            named("message id 1:") && named("message id 2:"),
            "{problems:?}"
        );
        let options = OpenOptions {
            limits: DecompressionLimits::NONE,
            ..options
        };
        let bag = open_with(&path, &options).expect("opens");
        assert_eq!(messages(&*bag, &Query::all()).len(), 3);
    }
}

#[test]
fn a_file_that_was_compressed_as_a_whole_is_refused_where_it_becomes_too_much() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    database(&path, &[b"\0\x01\0\0good".to_vec()]);
    let bytes = std::fs::read(&path).expect("reads");
    let packed = folder.path().join("run.db3.zstd");
    let compressed = zstd::bulk::compress(&bytes, 3).expect("compresses");
    std::fs::write(&packed, &compressed).expect("writes");
    assert_eq!(open(&packed).expect("opens").summary().messages, Some(1));
    let limits = DecompressionLimits {
        ratio: 2,
        file_at_least: 1000,
        ..DecompressionLimits::default()
    };
    let options = OpenOptions {
        limits,
        ..OpenOptions::default()
    };
    let Err(refused) = open_with(&packed, &options) else {
        panic!("a bomb was opened");
    };
    assert!(refused.to_string().contains("--no-limits"), "{refused}");
}

#[test]
fn an_index_that_counts_what_cannot_be_is_not_believed() {
    let mut maker = BagMaker::new("none");
    maker.connect(0, "/a", "std_msgs/String", "string data\n", false);
    maker.chunk(&[(0, (1, 0), b"one"), (0, (2, 0), b"two")]);
    let mut bytes = maker.finish();
    // The last eight bytes are the connection and its count in the only chunk info.
    let count = bytes.len() - 4;
    assert_eq!(bytes[count..], 2u32.to_le_bytes());
    bytes[count..].copy_from_slice(&1_000_000_000u32.to_le_bytes());
    let bag = BagFile::from_bytes("run.bag", bytes).expect("opens");
    let summary = bag.summary();
    assert_eq!(summary.messages, Some(2));
    assert_eq!(summary.problems[0].kind, ProblemKind::BadIndex);
    assert_eq!(messages(&bag, &Query::topics(["/a"])).len(), 2);
}

#[test]
fn as_many_channels_as_there_are_numbers_for_are_all_known() {
    let all = 1..=u16::MAX;
    let definitions: Vec<u8> = all
        .clone()
        .flat_map(|id| channel(id, &format!("/{id}")))
        .collect();
    let said: Vec<u8> = all
        .clone()
        .flat_map(|id| message(id, u64::from(id), b"{}"))
        .collect();
    let mixed: Vec<u8> = all
        .clone()
        .flat_map(|id| [channel(id, &format!("/{id}")), message(id, 1, b"{}")].concat())
        .collect();
    let times = (1, u64::from(u16::MAX));
    for parts in [
        vec![definitions, chunk("zstd", &said, times)],
        vec![chunk("zstd", &mixed, (1, 1))],
    ] {
        let bag = McapFile::from_bytes("run.mcap", file(&parts)).expect("opens");
        assert_eq!(bag.summary().channels.len(), 65_535);
        assert_eq!(bag.summary().messages, Some(65_535));
        let one = Topics::named(["/65535"]);
        let found = bag.latest_at(&one, asof_core::Stamp::MAX).expect("reads");
        assert_eq!(found.len(), 1);
    }
}

#[test]
fn very_many_connections_are_all_known() {
    let mut maker = BagMaker::new("none");
    for id in 0..30_000 {
        maker.connect(
            id,
            &format!("/{id}"),
            "std_msgs/String",
            "string data\n",
            false,
        );
    }
    let said: Vec<(u32, (u32, u32), &[u8])> =
        (0..30_000).map(|id| (id, (id, 0), &b"x"[..])).collect();
    maker.chunk(&said);
    let bytes = maker.finish();
    let cut = bytes.len() * 2 / 3;
    for bytes in [bytes.clone(), bytes[..cut].to_vec()] {
        let bag = BagFile::from_bytes("run.bag", bytes).expect("opens");
        assert!(bag.summary().channels.len() > 15_000);
        let read = messages(&bag, &Query::all()).len() as u64;
        assert_eq!(bag.summary().messages, Some(read));
    }
}
