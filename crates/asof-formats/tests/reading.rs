//! What a source over MCAP promises: order, pushdown, several readers, bounded work.

mod common;

use std::io::Cursor;
use std::sync::Arc;

use asof_core::{Channel, Message, Query, Schema, Source, Stamp, TimeRange, Topics};
use asof_formats::{Compression, MappedFile, McapFile, McapWriter, McapWriterOptions, OpenOptions};
use proptest::prelude::*;

fn channel(topic: &str) -> Arc<Channel> {
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "json".into(),
        ..Channel::default()
    })
}

fn message(channel: &Arc<Channel>, log_time: i64, payload: String) -> Message {
    let at = Stamp::from_nanos(log_time);
    Message {
        channel: Arc::clone(channel),
        log_time: at,
        publish_time: at,
        sequence: 0,
        payload: payload.into(),
    }
}

fn write(messages: &[Message], options: McapWriterOptions) -> Vec<u8> {
    let mut writer = McapWriter::new(Cursor::new(Vec::new()), options).expect("a writer");
    for message in messages {
        writer.write(message).expect("written");
    }
    writer.finish().expect("finished").into_inner()
}

fn tiny_chunks() -> McapWriterOptions {
    McapWriterOptions {
        chunk_size: 200,
        chunk_age: None,
        ..McapWriterOptions::default()
    }
}

fn open(bytes: Vec<u8>, threads: usize) -> McapFile {
    let storage = MappedFile::from_bytes("test.mcap", bytes.into());
    McapFile::from_storage(
        Box::new(storage),
        &OpenOptions {
            threads,
            ..OpenOptions::default()
        },
    )
    .expect("opens")
}

proptest! {
    /// Log times at random: chunks overlap, and messages are out of order within them.
    #[test]
    fn any_order_of_writing_is_read_in_order_of_time_and_ties_keep_file_order(
        times in prop::collection::vec(0i64..60, 0..200),
        threads in 1usize..4,
        range in (0i64..60, 0i64..60),
        at in 0i64..60,
        compression in prop::sample::select(vec![Compression::Zstd, Compression::Lz4, Compression::None]),
    ) {
        let channels = [channel("/a"), channel("/b"), channel("/c")];
        let written: Vec<_> = times
            .iter()
            .enumerate()
            .map(|(index, &time)| message(&channels[index % 3], time, format!("message {index}")))
            .collect();
        let file = open(write(&written, McapWriterOptions { compression, ..tiny_chunks() }), threads);
        let mut sorted = written.clone();
        sorted.sort_by_key(|m| m.log_time);
        prop_assert_eq!(&common::messages(&file, &Query::all()), &sorted);

        let query = Query::topics(["/a", "/c"]).between(TimeRange::new(range.0.into(), range.1.into()));
        let wanted: Vec<_> = sorted.iter().filter(|m| query.matches(&m.channel.topic, m.log_time)).cloned().collect();
        prop_assert_eq!(common::messages(&file, &query), wanted);

        let known = file.latest_at(&Topics::All, at.into()).expect("reads");
        let known: Vec<_> = known.iter().map(|m| m.to_message()).collect();
        prop_assert_eq!(known, common::scan_latest(&sorted, &Topics::All, at.into()));
        prop_assert_eq!(file.check(&mut |_, _| Ok(())).expect("reads"), []);
    }
}

#[test]
fn latest_at_at_the_end_decompresses_only_the_chunks_that_hold_the_answers() {
    let (often, rare) = (channel("/often"), channel("/rare"));
    let mut messages = vec![message(&rare, 0, "once, long ago".into())];
    messages.extend((1..10_000).map(|n| message(&often, n, format!("message {n}"))));
    let file = open(write(&messages, tiny_chunks()), 2);
    assert!(file.summary().chunks > 1000);
    let known = file.latest_at(&Topics::All, Stamp::MAX).expect("reads");
    assert_eq!(known.len(), 2);
    assert_eq!(file.read_stats().expect("counts").decompressed_chunks, 2);
}

#[test]
fn a_topic_and_a_time_touch_only_the_chunks_that_hold_them() {
    let (often, rare) = (channel("/often"), channel("/rare"));
    let kinds = |n: i64| if n % 1000 == 0 { &rare } else { &often };
    let messages: Vec<_> = (0..10_000)
        .map(|n| message(kinds(n), n, format!("message {n}")))
        .collect();
    let bytes = write(&messages, tiny_chunks());
    let file = open(bytes.clone(), 2);
    assert_eq!(common::messages(&file, &Query::topics(["/rare"])).len(), 10);
    assert_eq!(file.read_stats().expect("counts").decompressed_chunks, 10);

    let file = open(bytes, 2);
    let all = file.summary().chunks;
    let part = Query::all().between(Stamp::from_nanos(5000)..=Stamp::from_nanos(5499));
    assert_eq!(common::messages(&file, &part).len(), 500);
    assert!(file.read_stats().expect("counts").decompressed_chunks <= all / 20 + 2);
}

#[test]
fn opening_reads_no_chunk() {
    let messages: Vec<_> = (0..1000)
        .map(|n| message(&channel("/a"), n, format!("message {n}")))
        .collect();
    let file = open(write(&messages, tiny_chunks()), 2);
    assert_eq!(file.summary().messages, Some(1000));
    assert_eq!(file.read_stats().expect("counts").chunks, 0);
}

#[test]
fn several_readers_see_the_same_and_one_that_stops_early_disturbs_nobody() {
    let messages: Vec<_> = (0..5000)
        .map(|n| message(&channel("/a"), n, format!("message {n}")))
        .collect();
    let file = Arc::new(open(write(&messages, tiny_chunks()), 3));
    std::thread::scope(|scope| {
        for reader in 0..6 {
            let (file, messages) = (Arc::clone(&file), &messages);
            scope.spawn(move || {
                if reader % 2 == 0 {
                    file.read(&Query::all())
                        .expect("reads")
                        .take(3)
                        .for_each(|batch| drop(batch.expect("a batch")));
                } else {
                    assert_eq!(
                        common::messages(&*file, &Query::all()).len(),
                        messages.len()
                    );
                }
            });
        }
    });
}

/// 90 chunks of a megabyte, each from the start of the recording to its end: more than may be open at once.
#[test]
fn chunks_that_all_overlap_are_merged_whatever_their_size() {
    let topic = channel("/a");
    let digits = (0..20_000u32).map(|n| n.wrapping_mul(2_654_435_761) >> 15);
    let digits: Vec<String> = digits.map(|n| format!("{:05}", n % 99_991)).collect();
    let block = digits.concat();
    let written: Vec<_> = (0..900)
        .map(|n| message(&topic, n % 10 * 1000 + n / 10, format!("{n} {block}")))
        .collect();
    let options = McapWriterOptions {
        compression: Compression::Zstd,
        chunk_size: 999_000,
        ..tiny_chunks()
    };
    let file = open(write(&written, options), 2);
    assert!(file.summary().chunks > 80);
    let number = |payload: &[u8]| {
        payload
            .split(|&byte| byte == b' ')
            .next()
            .map(<[u8]>::to_vec)
    };
    let mut seen = Vec::new();
    for batch in file.read(&Query::all()).expect("reads") {
        let batch = batch.expect("a batch");
        assert!(batch.iter().all(|m| m.payload.len() > 100_000));
        seen.extend(batch.iter().map(|m| (m.log_time, number(m.payload))));
    }
    let mut wanted: Vec<_> = written
        .iter()
        .map(|m| (m.log_time, number(&m.payload)))
        .collect();
    wanted.sort_by_key(|(time, _)| *time);
    assert!(seen == wanted);
    // Half of them are closed again, and opened for each batch.
    let stats = file.read_stats().expect("counts");
    let chunks = file.summary().chunks;
    let opened = stats.decompressed_chunks;
    assert!(opened < 3 * chunks, "{opened} of {chunks}");
    // What was early in them was read without what is after it.
    let bytes = stats.decompressed_bytes;
    assert!(bytes < opened * 950_000, "{bytes} of {opened}");
}

#[test]
fn what_is_early_in_a_chunk_is_read_without_the_rest_and_without_its_checksum() {
    let (rare, many) = (channel("/rare"), channel("/many"));
    let mut written = vec![message(&rare, 0, "first".into())];
    written
        .extend((1..4_000).map(|n| message(&many, n, format!("{} {n}", n * n % 977).repeat(30))));
    for compression in [Compression::Zstd, Compression::Lz4] {
        let options = McapWriterOptions {
            compression,
            chunk_size: 64 << 20,
            ..tiny_chunks()
        };
        let mut bytes = write(&written, options);
        // The checksum of the only chunk, after two times and a size.
        let chunk = bytes
            .windows(9)
            .position(|nine| nine[0] == 6 && nine[5..9] == [0; 4]);
        bytes[chunk.expect("a chunk") + 9 + 24] ^= 0xff;
        let file = open(bytes, 1);
        let taken = || file.read_stats().expect("counts").decompressed_bytes;
        assert_eq!(
            common::messages(&file, &Query::topics(["/rare"])),
            written[..1]
        );
        let last = file
            .latest_at(&Topics::named(["/rare"]), Stamp::MAX)
            .expect("reads");
        assert_eq!(last.len(), 1);
        let part = taken();
        assert_eq!(file.summary().problems, []);
        assert_eq!(
            common::messages(&file, &Query::topics(["/many"])).len(),
            3_999
        );
        assert_eq!(common::messages(&file, &Query::all()), written);
        let whole = (taken() - part) / 2;
        assert!(part < whole / 2, "{part} of {whole} bytes, twice");
        let problems = file.summary().problems.clone();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].kind, asof_core::ProblemKind::BadChecksum);
    }
}

#[test]
fn a_batch_outlives_its_file() {
    let file = open(
        write(&[message(&channel("/a"), 1, "kept".into())], tiny_chunks()),
        1,
    );
    let batch = file
        .read(&Query::all())
        .expect("reads")
        .next()
        .expect("one")
        .expect("a batch");
    drop(file);
    assert_eq!(batch.get(0).expect("one message").payload, b"kept");
}

#[test]
fn one_topic_may_come_on_two_channels_with_two_schemas() {
    let with = |name: &str| {
        let schema = Schema {
            name: name.into(),
            encoding: "ros2msg".into(),
            data: name.to_owned().into(),
        };
        Arc::new(Channel {
            schema: Some(Arc::new(schema)),
            ..(*channel("/a")).clone()
        })
    };
    let messages = [
        message(&with("A"), 1, "1".into()),
        message(&with("B"), 2, "2".into()),
        message(&channel("/a"), 3, "3".into()),
    ];
    let file = open(write(&messages, tiny_chunks()), 1);
    let found = common::messages(&file, &Query::topics(["/a"]));
    let types: Vec<_> = found
        .iter()
        .map(|m| m.channel.type_name().to_owned())
        .collect();
    assert_eq!(types, ["A", "B", ""]);
    assert_eq!(file.summary().channels.len(), 3);
    assert_eq!(
        file.latest_at(&Topics::All, Stamp::MAX)
            .expect("reads")
            .get(0)
            .expect("one")
            .payload,
        b"3"
    );
}
