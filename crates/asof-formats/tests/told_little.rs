//! MCAP files that say little about themselves, or say it wrongly: what they lack is found in their chunks.

mod common;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use asof_core::{Channel, FileParts, Message, ProblemKind, Query, Schema, Source, Stamp, Topics};
use asof_formats::{
    ConvertOptions, HiddenRecord, McapFile, McapWriter, McapWriterOptions, convert,
};
use common::messages;

/// Where each record of a file starts, by its opcode.
fn records(bytes: &[u8]) -> Vec<(u8, usize, usize)> {
    let mut found = Vec::new();
    let mut at = 8;
    while at + 9 <= bytes.len() - 8 {
        let len = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().expect("eight bytes"));
        let end = at + 9 + len as usize;
        found.push((bytes[at], at, end));
        at = end;
    }
    found
}

/// A file with other statistics.
fn with_statistics(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let found = records(&bytes);
    let &(_, start, end) = found
        .iter()
        .find(|record| record.0 == 0x0b)
        .expect("statistics");
    change(&mut bytes[start + 9..end]);
    // No checksum of the summary.
    let footer = bytes.len() - 8 - 4;
    bytes[footer..footer + 4].fill(0);
    bytes
}

fn demo() -> Vec<u8> {
    common::demo_file(1.0, common::small_chunks())
}

fn open(bytes: Vec<u8>) -> McapFile {
    McapFile::from_bytes("run.mcap", bytes).expect("opens")
}

#[test]
fn statistics_that_nobody_filled_in_are_not_believed() {
    let whole = open(demo()).summary();
    let zeros = open(with_statistics(demo(), |body| body.fill(0))).summary();
    assert_eq!(zeros.messages, whole.messages);
    assert_eq!(zeros.range, whole.range);
    let counts = |summary: &asof_core::Summary| -> Vec<Option<u64>> {
        summary
            .channels
            .iter()
            .map(|entry| entry.messages)
            .collect()
    };
    assert_eq!(counts(&zeros), counts(&whole));
}

#[test]
fn statistics_that_count_more_than_there_is_room_for_are_not_believed() {
    let whole = open(demo()).summary();
    let claimed = with_statistics(demo(), |body| {
        body[..8].copy_from_slice(&1_000_000_000u64.to_le_bytes());
    });
    assert_eq!(open(claimed).summary().messages, whole.messages);
}

#[test]
fn times_in_the_statistics_do_not_hide_what_the_chunks_have() {
    let whole = open(demo()).summary();
    // Two counts of eight and two bytes and four of four come before them.
    let moved = with_statistics(demo(), |body| {
        body[26..34].copy_from_slice(&5u64.to_le_bytes());
        body[34..42].copy_from_slice(&6u64.to_le_bytes());
    });
    assert_eq!(open(moved).summary().range, whole.range);
}

fn channel(encoding: &str) -> Arc<Channel> {
    Arc::new(Channel {
        topic: "/chat".into(),
        message_encoding: encoding.into(),
        schema: Some(Arc::new(Schema {
            name: "std_msgs/msg/String".into(),
            encoding: "ros2msg".into(),
            data: "string data".into(),
        })),
        metadata: BTreeMap::new(),
    })
}

/// A file of messages on one channel, a second apart.
fn written(
    encoding: &str,
    payloads: &[Vec<u8>],
    compression: asof_formats::Compression,
) -> Vec<u8> {
    let options = McapWriterOptions {
        compression,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::new(Cursor::new(Vec::new()), options).expect("a writer");
    let channel = channel(encoding);
    for (second, payload) in payloads.iter().enumerate() {
        let at = Stamp::from_nanos(second as i64 * 1_000_000_000);
        let message = Message {
            channel: Arc::clone(&channel),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: payload.clone().into(),
        };
        writer.write(&message).expect("written");
    }
    let about = "rosbag2_bagfile_information:\n  compression_format: zstd\n  compression_mode: MESSAGE\n  version: 9\n";
    let metadata = [("serialized_metadata".to_owned(), about.to_owned())].into();
    writer.write_metadata("rosbag2", metadata).expect("written");
    writer.finish().expect("finished").into_inner()
}

/// CDR strings of different lengths.
fn plain() -> Vec<Vec<u8>> {
    (0..20u8)
        .map(|n| [&[0, 1, 0, 0][..], &vec![n; 10 + 400 * usize::from(n)]].concat())
        .collect()
}

fn packed() -> Vec<Vec<u8>> {
    let pack = |payload: Vec<u8>| zstd::bulk::compress(&payload, 3).expect("compresses");
    plain().into_iter().map(pack).collect()
}

fn payloads(source: &dyn Source, query: &Query) -> Vec<Vec<u8>> {
    messages(source, query)
        .iter()
        .map(|message| message.payload.to_vec())
        .collect()
}

#[test]
fn messages_that_were_compressed_one_by_one_come_out_decompressed_however_they_are_asked_for() {
    use asof_formats::Compression::{Lz4, None, Zstd};
    for compression in [Zstd, Lz4, None] {
        let file = open(written("cdr", &packed(), compression));
        assert!(payloads(&file, &Query::all()) == plain());
        assert!(payloads(&file, &Query::topics(["/chat"])) == plain());
        let from = Stamp::from_nanos(5_000_000_000);
        assert!(payloads(&file, &Query::all().between(from..)) == plain()[5..]);
        let last = file.latest_at(&Topics::All, from).expect("reads");
        let last: Vec<&[u8]> = last.iter().map(|message| message.payload).collect();
        assert_eq!(last, [&plain()[5][..]]);
        asof_core::testing::assert_source(&file, "messages by themselves");
        assert_eq!(file.summary().problems, []);
    }
}

#[test]
fn what_only_looks_compressed_stays_as_it_is() {
    // No encoding but CDR has its first byte fixed.
    let file = open(written(
        "application/zstd",
        &packed(),
        asof_formats::Compression::Zstd,
    ));
    assert!(payloads(&file, &Query::all()) == packed());
}

#[test]
fn a_copy_of_decompressed_messages_does_not_say_that_they_are_compressed() {
    let file = open(written("cdr", &packed(), asof_formats::Compression::Zstd));
    let mut writer =
        McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default()).expect("a writer");
    convert(&file, &mut writer, &ConvertOptions::default(), &mut |_| {}).expect("converts");
    let copy = open(writer.finish().expect("finished").into_inner());
    assert!(payloads(&copy, &Query::all()) == plain());
    let entry = copy.summary().metadata[0].clone();
    let text = copy.metadata(&entry).expect("its text")["serialized_metadata"].clone();
    assert!(
        !text.contains("MESSAGE") && text.contains("version: 9"),
        "{text}"
    );
}

#[test]
fn a_damaged_message_among_them_is_left_out_and_counted() {
    let mut damaged = packed();
    let middle = damaged[7].len() - 3;
    damaged[7].truncate(middle);
    let file = open(written("cdr", &damaged, asof_formats::Compression::Zstd));
    assert_eq!(messages(&file, &Query::all()).len(), 19);
    let problem = &file.summary().problems[0];
    assert_eq!(problem.kind, ProblemKind::BadRecord);
    assert!(
        problem
            .message
            .starts_with("1 messages that were compressed"),
        "{problem}"
    );
}

/// Two messages, of which one is past all time, and a record of one's own kind in the chunk and out of it.
fn beyond() -> Vec<u8> {
    let mut writer = mcap::WriteOptions::new()
        .compression_threads(0)
        .create(Cursor::new(Vec::new()))
        .expect("a writer");
    let id = writer
        .add_channel(0, "/a", "json", &BTreeMap::new())
        .expect("a channel");
    for (sequence, log_time, publish_time) in [(1, 5, 4), (2, u64::MAX - 1, 7), (3, 6, u64::MAX)] {
        let header = mcap::records::MessageHeader {
            channel_id: id,
            sequence,
            log_time,
            publish_time,
        };
        writer
            .write_to_known_channel(&header, b"{}")
            .expect("written");
    }
    let inside = mcap::write::PrivateRecordOptions::IncludeInChunks.into();
    writer
        .write_private_record(0x81, b"inside", inside)
        .expect("written");
    #[allow(clippy::default_trait_access, reason = "the type is of another crate")]
    writer
        .write_private_record(0x82, b"outside", Default::default())
        .expect("written");
    writer.finish().expect("finished");
    writer.into_inner().into_inner()
}

fn hidden(file: &McapFile) -> Vec<(u32, u64, u64)> {
    let found = file.hidden(&Topics::All).expect("reads");
    let message = |record| match record {
        HiddenRecord::Message {
            sequence,
            log_time,
            publish_time,
            ..
        } => Some((sequence, log_time, publish_time)),
        _ => None,
    };
    found
        .filter_map(|record| message(record.expect("reads")))
        .collect()
}

#[test]
fn a_copy_keeps_what_no_stamp_can_hold_and_what_is_private() {
    let file = open(beyond());
    let shown: Vec<u32> = messages(&file, &Query::all())
        .iter()
        .map(|m| m.sequence)
        .collect();
    assert_eq!(shown, [1, 3]);
    let kinds: Vec<_> = file
        .summary()
        .problems
        .iter()
        .map(|problem| problem.kind)
        .collect();
    assert_eq!(kinds, [ProblemKind::BadTime, ProblemKind::BadTime]);
    let mut writer =
        McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default()).expect("a writer");
    let done =
        convert(&file, &mut writer, &ConvertOptions::default(), &mut |_| {}).expect("converts");
    assert_eq!((done.messages, done.beyond_time, done.private), (3, 1, 2));
    let copy = open(writer.finish().expect("finished").into_inner());
    assert_eq!(hidden(&copy), [(2, u64::MAX - 1, 7)]);
    assert_eq!(hidden(&copy), hidden(&file));
    let private = |file: &McapFile| -> Vec<(u8, Vec<u8>)> {
        let found = file.hidden(&Topics::All).expect("reads");
        let mut private: Vec<_> = found
            .filter_map(|record| match record.expect("reads") {
                HiddenRecord::Private { opcode, data } => Some((opcode, data.to_vec())),
                _ => None,
            })
            .collect();
        private.sort();
        private
    };
    assert_eq!(
        private(&copy),
        [(0x81, b"inside".to_vec()), (0x82, b"outside".to_vec())]
    );
    // Of the three, what readers see.
    assert_eq!(copy.summary().messages, Some(2));
}

#[test]
fn damage_within_a_chunk_leaves_the_messages_before_it() {
    for compression in [Some(mcap::Compression::Zstd), Some(mcap::Compression::Lz4)] {
        let options = mcap::WriteOptions::new()
            .compression(compression)
            .compression_threads(0)
            .chunk_size(Some(4 << 20));
        let bytes = common::demo_file(4.0, options);
        let whole = messages(&open(bytes.clone()), &Query::all());
        let &(_, start, end) = records(&bytes)
            .iter()
            .find(|record| record.0 == 0x06)
            .expect("a chunk");
        let mut damaged = bytes;
        let middle = usize::midpoint(start, end);
        damaged[middle..middle + 64].fill(0);
        let file = open(damaged);
        let found = messages(&file, &Query::all());
        assert!(
            found.len() > whole.len() / 5,
            "{} of {}",
            found.len(),
            whole.len()
        );
        assert!(!file.summary().problems.is_empty());
    }
}

#[test]
fn a_chunk_whose_head_is_damaged_is_read_by_its_index() {
    let bytes = demo();
    let whole = messages(&open(bytes.clone()), &Query::all());
    let &(_, start, _) = records(&bytes)
        .iter()
        .find(|record| record.0 == 0x06)
        .expect("a chunk");
    // The opcode; the record's length; what it becomes; the length of the compression's name; the name.
    for place in [0, 5, 9 + 16, 9 + 28, 9 + 32] {
        let mut damaged = bytes.clone();
        damaged[start + place] ^= 0x40;
        let file = open(damaged);
        let found = messages(&file, &Query::all());
        assert!(
            found == whole,
            "byte {place}: {} of {}",
            found.len(),
            whole.len()
        );
        assert!(!file.summary().problems.is_empty(), "byte {place}");
    }
}
