//! Chunks with bytes after what they hold: every message is there however it is asked for, or its loss is told.

mod common;

use std::io::{Cursor, Write as _};
use std::time::{Duration, Instant};

use asof_core::{FileOrder, Followed, Query, Source, Stamp, Topics};
use asof_formats::{
    ConvertOptions, GrowingMcapFile, McapFile, McapWriter, McapWriterOptions, OpenOptions, convert,
};
use common::messages;

/// Where the padding is, and what it is made of.
#[derive(Debug, Clone, Copy)]
enum Padding {
    /// After the chunk's data, within its record, as a later version of the format would have more fields there.
    AfterData(u8),
    /// After the records in it, before they were compressed.
    AfterRecords(u8),
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    compression: &'static str,
    has_indexes: bool,
    has_summary: bool,
    /// Statistics and the chunk's index are all that the summary has.
    is_sparse: bool,
    padding: Padding,
    len: usize,
}

const MESSAGES: u64 = 12;

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn record(opcode: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut bytes = vec![opcode];
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn channel(id: u16, topic: &str) -> Vec<u8> {
    let (none, empty) = (0u16.to_le_bytes(), 0u32.to_le_bytes());
    record(
        4,
        &[
            &id.to_le_bytes(),
            &none,
            &text(topic),
            &text("json"),
            &empty,
        ],
    )
}

/// A file of one chunk, whose twelve messages are on two topics in turn, a nanosecond apart from 1 on.
fn file(kind: Kind) -> Vec<u8> {
    let channels = [channel(0, "/a"), channel(1, "/b")].concat();
    let mut inner = channels.clone();
    let mut places: [Vec<u8>; 2] = Default::default();
    for number in 0..MESSAGES {
        let (id, time) = (number % 2, (number + 1).to_le_bytes());
        places[id as usize].extend(time);
        places[id as usize].extend((inner.len() as u64).to_le_bytes());
        let sequence = (number as u32).to_le_bytes();
        inner.extend(record(
            5,
            &[&(id as u16).to_le_bytes(), &sequence, &time, &time, b"{}"],
        ));
    }
    let mut after = Vec::new();
    match kind.padding {
        Padding::AfterData(byte) => after = vec![byte; kind.len],
        Padding::AfterRecords(byte) => inner.extend(vec![byte; kind.len]),
    }
    let data = match kind.compression {
        "zstd" => zstd::bulk::compress(&inner, 1).expect("zstd"),
        "lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(&inner).expect("lz4");
            encoder.finish().expect("lz4")
        }
        _ => inner.clone(),
    };
    let (start, end) = (1u64.to_le_bytes(), MESSAGES.to_le_bytes());
    let (size, stored) = (
        (inner.len() as u64).to_le_bytes(),
        (data.len() as u64).to_le_bytes(),
    );
    let codec = text(kind.compression);
    let crc = [0; 4];
    let chunk = record(
        6,
        &[&start, &end, &size, &crc, &codec, &stored, &data, &after],
    );
    let mut bytes = mcap::MAGIC.to_vec();
    bytes.extend(record(1, &[&text(""), &text("")]));
    let chunk_at = bytes.len() as u64;
    bytes.extend(&chunk);
    let mut offsets = Vec::new();
    let indexes_at = bytes.len();
    for (id, pairs) in places.iter().enumerate().filter(|_| kind.has_indexes) {
        let id = (id as u16).to_le_bytes();
        offsets.extend(id);
        offsets.extend((bytes.len() as u64).to_le_bytes());
        let len = (pairs.len() as u32).to_le_bytes();
        bytes.extend(record(7, &[&id, &len, pairs]));
    }
    let indexes_len = ((bytes.len() - indexes_at) as u64).to_le_bytes();
    bytes.extend(record(0x0f, &[&crc]));
    let summary_at = bytes.len() as u64;
    if kind.has_summary {
        if !kind.is_sparse {
            bytes.extend(&channels);
        }
        let mut counts = 20u32.to_le_bytes().to_vec();
        for id in 0..2u16 {
            counts.extend(id.to_le_bytes());
            counts.extend((MESSAGES / 2).to_le_bytes());
        }
        let numbers: Vec<u8> = [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0].to_vec();
        bytes.extend(record(
            0x0b,
            &[&MESSAGES.to_le_bytes(), &numbers, &start, &end, &counts],
        ));
        let map_len = (offsets.len() as u32).to_le_bytes();
        let chunk_len = (chunk.len() as u64).to_le_bytes();
        let index: [&[u8]; 10] = [
            &start,
            &end,
            &chunk_at.to_le_bytes(),
            &chunk_len,
            &map_len,
            &offsets,
            &indexes_len,
            &codec,
            &stored,
            &size,
        ];
        bytes.extend(record(8, &index));
    }
    let summary_start = if kind.has_summary { summary_at } else { 0 };
    let none = 0u64.to_le_bytes();
    bytes.extend(record(2, &[&summary_start.to_le_bytes(), &none, &crc]));
    bytes.extend(mcap::MAGIC);
    bytes
}

fn kinds() -> Vec<Kind> {
    let mut all = Vec::new();
    for compression in ["", "zstd", "lz4"] {
        for (has_indexes, has_summary, is_sparse) in [
            (true, true, false),
            (true, false, false),
            (false, true, false),
            (false, false, false),
            (true, true, true),
            (false, true, true),
        ] {
            for padding in [
                Padding::AfterData(0),
                Padding::AfterData(0xff),
                Padding::AfterRecords(0),
                Padding::AfterRecords(0xff),
            ] {
                for len in [0, 1, 8, 9, 300, 5000, 70_000] {
                    all.push(Kind {
                        compression,
                        has_indexes,
                        has_summary,
                        is_sparse,
                        padding,
                        len,
                    });
                }
            }
        }
    }
    all
}

fn sequences(source: &dyn Source, query: &Query) -> Vec<u32> {
    messages(source, query).iter().map(|m| m.sequence).collect()
}

#[test]
fn every_message_of_a_padded_chunk_is_there_however_it_is_asked_for() {
    let every: Vec<u32> = (0..MESSAGES as u32).collect();
    for kind in kinds() {
        let open = || McapFile::from_bytes("padded", file(kind)).expect("opens");
        let source = open();
        assert_eq!(source.summary().messages, Some(MESSAGES), "{kind:?}");
        assert_eq!(source.summary().topics(), ["/a", "/b"], "{kind:?}");
        assert_eq!(sequences(&source, &Query::all()), every, "{kind:?}");
        let of_one = sequences(&open(), &Query::topics(["/b"]));
        assert_eq!(of_one, [1, 3, 5, 7, 9, 11], "{kind:?}");
        let some = Query::all().between(Stamp::from_nanos(3)..=Stamp::from_nanos(5));
        assert_eq!(sequences(&open(), &some), [2, 3, 4], "{kind:?}");
        let known = open()
            .latest_at(&Topics::All, Stamp::from_nanos(6))
            .expect("reads");
        let mut known: Vec<u32> = known.iter().map(|m| m.sequence).collect();
        known.sort_unstable();
        assert_eq!(known, [4, 5], "{kind:?}");
        let in_order = open().read_in_file_order(&Query::all()).expect("reads");
        let count: usize = in_order.map(|batch| batch.expect("a batch").len()).sum();
        assert_eq!(count as u64, MESSAGES, "{kind:?}");
        let mut writer = McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default())
            .expect("a writer");
        let options = ConvertOptions::default();
        let copied = convert(&open(), &mut writer, &options, &mut |_| {}).expect("converts");
        assert_eq!(copied.messages, MESSAGES, "{kind:?}");
    }
}

#[test]
fn what_follows_a_padded_chunk_while_it_is_written_misses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    for kind in kinds() {
        let bytes = file(kind);
        std::fs::write(&path, &bytes[..20]).expect("writes");
        let growing = GrowingMcapFile::open(&path, &OpenOptions::default()).expect("opens");
        let mut follower = growing.follow(&Query::all()).expect("follows");
        std::fs::write(&path, &bytes).expect("writes");
        let mut count = 0;
        loop {
            match follower.next(Instant::now() + Duration::from_secs(20)) {
                Ok(Followed::Batch(batch)) => count += batch.len(),
                Ok(Followed::End(_)) => break,
                other => panic!("{kind:?}: {other:?}"),
            }
        }
        assert_eq!(count as u64, MESSAGES, "{kind:?}");
    }
}

#[test]
fn later_fields_of_a_chunk_are_not_damage_and_bytes_among_its_records_are() {
    for kind in kinds() {
        let source = McapFile::from_bytes("padded", file(kind)).expect("opens");
        let problems = source.check(&mut |_, _| Ok(())).expect("reads");
        let is_damage = matches!(kind.padding, Padding::AfterRecords(_)) && kind.len > 0;
        assert_eq!(!problems.is_empty(), is_damage, "{kind:?}: {problems:?}");
    }
}
