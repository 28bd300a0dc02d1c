//! The same damage at several sizes: work grows with the bytes of a file, not with their square.
//!
//! Times are of this process alone and compared with each other with a wide margin, so a busy machine changes nothing.

mod common;

use std::time::{Duration, Instant};

use asof_core::Source;
use asof_formats::{McapFile, UlogFile};

/// How much longer the largest of three sizes, 1, 4 and 16 times as much, may take than it should: what is quadratic
/// takes 256 times as long as the smallest instead of 16.
const MARGIN: u32 = 5;
/// Shorter times say nothing.
const LEAST: Duration = Duration::from_millis(20);

/// Makes and opens the same file at three sizes; the best of two for each.
fn grows_with_its_bytes(what: &str, make: impl Fn(usize) -> Vec<u8>, open: impl Fn(Vec<u8>)) {
    let time = |scale: usize| {
        let bytes = make(scale);
        let once = || {
            let bytes = bytes.clone();
            let start = Instant::now();
            open(bytes);
            start.elapsed()
        };
        once().min(once())
    };
    let small = time(1).max(LEAST);
    let large = time(16);
    assert!(
        large <= small * 16 * MARGIN,
        "{what}: {small:?}, then {large:?}"
    );
}

/// A log whose one format has many nested fields, each of a format of its own.
fn nested_formats(count: usize) -> Vec<u8> {
    let record = |kind: u8, body: &[u8]| {
        let mut record = (body.len() as u16).to_le_bytes().to_vec();
        record.push(kind);
        record.extend_from_slice(body);
        record
    };
    let mut bytes = b"ULog\x01\x12\x35\x01".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(record(b'B', &[0; 40]));
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
        let mut subscription = vec![0];
        subscription.extend((number as u16).to_le_bytes());
        subscription.extend(format!("top{number}").into_bytes());
        bytes.extend(record(b'A', &subscription));
    }
    bytes
}

#[test]
fn formats_of_a_log_are_named_in_one_pass() {
    grows_with_its_bytes(
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
    grows_with_its_bytes("garbage in an MCAP file", make, |bytes| {
        let file = McapFile::from_bytes("cut.mcap", bytes).expect("opens");
        common::messages(&file, &asof_core::Query::all());
    });
}
