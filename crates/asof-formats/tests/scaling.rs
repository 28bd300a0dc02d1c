//! The same damage at several sizes: work grows with the bytes of a file, not with their square.
//!
//! Times are of this process alone and compared with each other with a wide margin, so a busy machine changes nothing.

mod common;

use asof_core::testing::assert_linear;
use asof_core::{Query, Source, Stamp};
use asof_formats::{BagFile, Db3File, McapFile, UlogFile};
use common::mcaps::{channel, chunk, file, message};
use common::{Dice, bags, ulogs};
use rusqlite::Connection;

/// A record of a log.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut record = (body.len() as u16).to_le_bytes().to_vec();
    record.push(kind);
    record.extend_from_slice(body);
    record
}

/// The subscription of a format.
fn subscription(id: usize, name: &str) -> Vec<u8> {
    let body = [&[0], &(id as u16).to_le_bytes()[..], name.as_bytes()].concat();
    record(b'A', &body)
}

/// The beginning of a log.
fn log() -> Vec<u8> {
    let mut bytes = b"ULog\x01\x12\x35\x01".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(record(b'B', &[0; 40]));
    bytes
}

/// A log whose one format has many nested fields, each of a format of its own.
fn nested_formats(count: usize) -> Vec<u8> {
    let mut bytes = log();
    let mut names = Vec::new();
    for number in 0..count {
        let name = format!("f{number}");
        let text = format!("{name}:uint8_t a;");
        bytes.extend(record(b'F', text.as_bytes()));
        names.push(name);
    }
    // Several formats, since one has room for 64 kB.
    for (number, some) in names.chunks(1000).enumerate() {
        let fields: Vec<String> = some.iter().map(|name| format!("{name} x{name};")).collect();
        let fields = fields.concat();
        let text = format!("top{number}:uint64_t timestamp;{fields}");
        bytes.extend(record(b'F', text.as_bytes()));
        bytes.extend(subscription(number, &format!("top{number}")));
    }
    bytes
}

#[test]
fn a_format_that_is_subscribed_again_and_again_is_laid_out_once() {
    assert_linear(
        "subscriptions of one format",
        |scale| {
            let long = "x".repeat(3000 * scale);
            let text = format!("m:uint64_t timestamp;uint8_t {long};");
            let mut bytes = [log(), record(b'F', text.as_bytes())].concat();
            (0..600 * scale).for_each(|id| bytes.extend(subscription(id, "m")));
            bytes
        },
        |bytes| {
            let log = UlogFile::from_bytes("log.ulg", bytes).expect("opens");
            assert_eq!(log.summary().channels.len(), 1);
        },
    );
}

#[test]
fn a_log_with_many_topics_names_each_once() {
    assert_linear(
        "topics of a log",
        |scale| {
            let mut bytes = log();
            for number in 0..500 * scale {
                let name = format!("f{number}");
                let text = format!("{name}:uint64_t timestamp;uint8_t a;");
                bytes.extend(record(b'F', text.as_bytes()));
                bytes.extend(subscription(number, &name));
            }
            bytes
        },
        |bytes| {
            let log = UlogFile::from_bytes("log.ulg", bytes).expect("opens");
            assert!(log.summary().channels.len() >= 500);
        },
    );
}

#[test]
fn formats_of_a_log_are_named_in_one_pass() {
    assert_linear(
        "nested formats",
        |scale| nested_formats(800 * scale),
        |bytes| {
            let log = UlogFile::from_bytes("log.ulg", bytes).expect("opens");
            assert!(!log.summary().channels.is_empty());
        },
    );
}

#[test]
fn damage_inside_chunks_is_searched_in_one_pass() {
    // What begins like a message, again and again.
    let make = |scale: usize| {
        let options = common::small_chunks().compression(None).chunk_size(None);
        let mut bytes = common::demo_file(0.2, options);
        let tempting = [&[5, 40, 0, 0, 0, 0, 0, 0, 0, 1, 0][..], &[0; 20]].concat();
        bytes.truncate(bytes.len() / 2);
        bytes.extend(tempting.repeat(3000 * scale));
        bytes
    };
    assert_linear("garbage in an MCAP file", make, |bytes| {
        let file = McapFile::from_bytes("cut.mcap", bytes).expect("opens");
        common::messages(&file, &Query::all());
    });
}

/// The same damage for each stretch of so many bytes.
fn damaged(mut bytes: Vec<u8>, every: usize) -> Vec<u8> {
    for at in (every..bytes.len()).step_by(every) {
        bytes[at] ^= 0x5a;
    }
    bytes
}

/// Opens what can be opened, and reads what can be read.
fn read<S: Source>(file: Result<S, asof_core::SourceError>) {
    if let Ok(file) = file {
        let batches = file.read(&Query::all()).into_iter().flatten();
        batches.for_each(drop);
        file.summary();
    }
}

/// Rare damage, and damage in every record.
const STRETCHES: [usize; 2] = [20_011, 1_009];

#[test]
fn a_damaged_mcap_file_costs_its_bytes() {
    for every in STRETCHES {
        let make = |scale: usize| {
            damaged(
                common::demo_file(0.25 * scale as f64, common::small_chunks()),
                every,
            )
        };
        assert_linear("damaged MCAP", make, |bytes| {
            read(McapFile::from_bytes("damaged.mcap", bytes));
        });
    }
}

#[test]
fn a_damaged_bag_costs_its_bytes() {
    for every in STRETCHES {
        let make = |scale: usize| {
            let mut bag = bags::BagMaker::new("none");
            bag.connect(0, "/chat", "std_msgs/String", "string data", false);
            for chunk in 0..30 * scale as u32 {
                let payload = [7; 300];
                let said: Vec<bags::Said<'_>> =
                    (0..40).map(|at| (0, (chunk, at), &payload[..])).collect();
                bag.chunk(&said);
            }
            damaged(bag.finish(), every)
        };
        assert_linear("damaged bag", make, |bytes| {
            read(BagFile::from_bytes("damaged.bag", bytes));
        });
    }
}

#[test]
fn a_damaged_log_costs_its_bytes() {
    for every in STRETCHES {
        let make = |scale: usize| damaged(ulogs::flight(1_000 * scale as u64).bytes, every);
        assert_linear("damaged log", make, |bytes| {
            read(UlogFile::from_bytes("damaged.ulg", bytes));
        });
    }
}

#[test]
fn every_topic_by_its_name_costs_the_names() {
    let make = |scale: usize| {
        let ids = 1..=1_000 * scale as u16;
        let channels: Vec<u8> = ids
            .clone()
            .flat_map(|id| channel(id, &format!("/robot/{id}")))
            .collect();
        let said: Vec<u8> = ids
            .clone()
            .flat_map(|id| message(id, u64::from(id), b"{}"))
            .collect();
        file(&[channels, chunk("", &said, (1, u64::from(ids.len() as u16)))])
    };
    assert_linear("named topics", make, |bytes| {
        let file = McapFile::from_bytes("wide.mcap", bytes).expect("opens");
        let query = Query::topics(file.summary().topics());
        let count = common::messages(&file, &query).len();
        let last = file.latest_at(&query.topics, Stamp::MAX).expect("reads");
        assert_eq!((count, last.len()), (file.summary().channels.len(), count));
    });
}

/// A database whose payloads are on many pages.
fn database(messages: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let database = Connection::open(&path).expect("opens");
    database
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             INSERT INTO topics VALUES (1, '/chat', 'std_msgs/msg/String', 'cdr');
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
             BEGIN;",
        )
        .expect("creates");
    for time in 0..messages {
        let data = vec![time as u8; 20_000];
        let insert = "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)";
        let row = (time as i64, data);
        database.execute(insert, row).expect("inserts");
    }
    database.execute_batch("COMMIT").expect("committed");
    drop(database);
    std::fs::read(&path).expect("read")
}

#[test]
fn a_database_whose_pages_lead_anywhere_costs_its_bytes() {
    const PAGE: usize = 4096;
    for has_head in [true, false] {
        let make = |scale: usize| {
            let mut bytes = database(12 * scale);
            let mut dice = Dice(7);
            let pages = bytes.len() / PAGE;
            for page in 1..pages {
                let next = &mut bytes[page * PAGE..page * PAGE + 4];
                // An overflow page begins with the number of the next one.
                if next[0] == 0 && dice.roll(2) == 0 {
                    next.copy_from_slice(&(1 + dice.roll(pages) as u32).to_be_bytes());
                }
            }
            if !has_head {
                bytes[..100].fill(0x11);
                bytes[..16].copy_from_slice(b"SQLite format 3\0");
            }
            bytes
        };
        assert_linear("a database with loops", make, |bytes| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("damaged.db3");
            std::fs::write(&path, bytes).expect("written");
            read(Db3File::open(&path));
        });
    }
}
