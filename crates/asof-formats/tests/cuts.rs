//! MCAP files that end anywhere, or have a bad byte inside of a chunk: every message that is whole is read.

mod common;

use asof_core::{Message, Query, Source};
use asof_formats::McapFile;
use common::Dice;
use mcap::records::op;

fn open(bytes: Vec<u8>) -> Vec<Message> {
    let file = McapFile::from_bytes("test.mcap", bytes).expect("opens");
    common::messages(&file, &Query::all())
}

fn record_at(bytes: &[u8], at: usize) -> Option<(u8, usize, usize)> {
    let len: [u8; 8] = bytes.get(at + 1..at + 9)?.try_into().ok()?;
    let end = (at + 9).checked_add(usize::try_from(u64::from_le_bytes(len)).ok()?)?;
    Some((bytes[at], at + 9, end))
}

/// Where the data of an uncompressed chunk starts: after three words, a checksum, an empty name and a length.
const CHUNK_HEAD: usize = 8 * 3 + 4 + 4 + 8;

/// The message records that are whole, by a plain walk over the file and into its uncompressed chunks.
fn walked(bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 8;
    while let Some((opcode, body, end)) = record_at(bytes, at) {
        if opcode == op::CHUNK {
            let mut inner = body + CHUNK_HEAD;
            while let Some((opcode, _, end)) = record_at(bytes, inner)
                .filter(|(_, _, inner_end)| *inner_end <= end.min(bytes.len()))
            {
                found.extend((opcode == op::MESSAGE).then_some(inner));
                inner = end;
            }
        }
        if end > bytes.len() {
            break;
        }
        found.extend((opcode == op::MESSAGE).then_some(at));
        at = end;
    }
    found
}

/// Messages whose payloads look like the front of an empty chunk: what the end of a double and zeros look like.
fn tempting(chunk_size: Option<u64>) -> Vec<u8> {
    let options = mcap::WriteOptions::new()
        .chunk_size(chunk_size)
        .compression(None)
        .compression_threads(0);
    let mut writer = options
        .create(std::io::Cursor::new(Vec::new()))
        .expect("a writer");
    let schema = writer.add_schema("t", "", b"").expect("a schema");
    let metadata = std::collections::BTreeMap::new();
    let channel = writer
        .add_channel(schema, "/t", "x", &metadata)
        .expect("a channel");
    for sequence in 0..400u32 {
        let mut payload = vec![0; 300];
        payload[20..22].copy_from_slice(&[0x06, 0xc0]);
        let time = 1_000_000_000 + u64::from(sequence);
        let header = mcap::records::MessageHeader {
            channel_id: channel,
            sequence,
            log_time: time,
            publish_time: time,
        };
        writer
            .write_to_known_channel(&header, &payload)
            .expect("writes");
    }
    writer.finish().expect("finishes");
    writer.into_inner().into_inner()
}

#[test]
fn a_cut_inside_an_uncompressed_chunk_loses_nothing_that_is_there() {
    let demo = common::demo_file(1.0, common::small_chunks().compression(None));
    for bytes in [tempting(Some(64 << 10)), tempting(Some(8 << 10)), demo] {
        let mut dice = Dice(7);
        for _ in 0..60 {
            let cut = 200 + dice.roll(bytes.len() - 200);
            let expected = walked(&bytes[..cut]).len();
            let found = open(bytes[..cut].to_vec()).len();
            assert_eq!(found, expected, "cut at {cut} of {}", bytes.len());
        }
    }
}

#[test]
fn one_bad_byte_inside_a_chunk_costs_one_message() {
    let bytes = tempting(Some(64 << 10));
    let whole = walked(&bytes);
    assert_eq!(whole.len(), 400);
    for number in [0, 3, 100, 399] {
        let at = whole[number];
        let lost = |place: usize, value: u8| {
            let mut damaged = bytes.clone();
            damaged[place] = value;
            whole.len() - open(damaged).len()
        };
        assert_eq!(lost(at, 0), 1, "an opcode of 0");
        // A wrong length: its payload is wrong or missing, the others are there.
        for (place, value) in [(1, 3), (1, 0xff), (2, 9), (3, 1), (7, 0x80)] {
            let lost = lost(at + place, value);
            assert!(lost <= 1, "byte {place} of {number}: {lost} lost");
        }
    }
}

#[test]
fn real_recordings_cut_anywhere_keep_what_a_plain_walk_finds() {
    let Some(data) = common::test_data() else {
        return;
    };
    let mut files = Vec::new();
    common::files_below(&data.join("recordings"), &mut files);
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "mcap")
    });
    let mut tried = 0;
    for path in files {
        let bytes = std::fs::read(&path).expect("reads");
        let is_plain = McapFile::from_bytes("test.mcap", bytes.clone())
            .is_ok_and(|file| file.summary().compression.keys().all(|name| name == "none"));
        if !is_plain || bytes.len() > 3 << 20 || bytes.len() < 1000 {
            continue;
        }
        let mut dice = Dice(bytes.len() as u64);
        for _ in 0..8 {
            let cut = 200 + dice.roll(bytes.len() - 200);
            let expected = walked(&bytes[..cut]).len();
            let found = open(bytes[..cut].to_vec()).len();
            assert!(
                found >= expected,
                "{}: cut at {cut}, {found} of {expected}",
                path.display()
            );
            tried += 1;
        }
    }
    assert!(tried > 0, "no uncompressed recording");
}
