//! Conversion into MCAP: everything there, in order, cut, renamed, sorted.

mod common;

use std::io::Cursor;
use std::sync::Arc;

use asof_core::{Channel, FileOrder, FileParts, Message, Query, Source, Stamp};
use asof_formats::{
    BagFile, ConvertCounts, ConvertOptions, McapFile, McapWriter, McapWriterOptions, convert,
};
use common::bags::BagMaker;
use common::{Dice, messages};

fn converted(recording: &dyn Source, options: &ConvertOptions) -> (McapFile, ConvertCounts) {
    let mut writer =
        McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default()).expect("a writer");
    let done = convert(recording, &mut writer, options, &mut |_| {}).expect("converts");
    let bytes = writer.finish().expect("finishes").into_inner();
    let file = McapFile::from_bytes("out.mcap", bytes).expect("opens");
    assert_eq!(file.check(&mut |_, _| Ok(())).expect("reads"), []);
    assert_eq!(file.summary().messages, Some(done.messages));
    (file, done)
}

fn bag() -> BagFile {
    let mut maker = BagMaker::new("lz4");
    maker.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    maker.connect(1, "/map", "nav_msgs/OccupancyGrid", "int8[] data\n", true);
    maker.connect(2, "/tf_static", "tf2_msgs/TFMessage", "string x\n", true);
    maker.connect(3, "/silent", "std_msgs/Empty", "", false);
    maker.chunk(&[
        (2, (1, 0), b"lidar"),
        (1, (1, 0), b"old map"),
        (2, (2, 0), b"camera"),
        (1, (3, 0), b"new map"),
        (0, (4, 0), b"here"),
        (0, (6, 0), b"there"),
    ]);
    BagFile::from_bytes("run.bag", maker.finish()).expect("opens")
}

fn said(source: &dyn Source) -> Vec<(i64, String, String)> {
    messages(source, &Query::all())
        .iter()
        .map(|message| {
            (
                message.log_time.nanos() / 1_000_000_000,
                message.channel.topic.clone(),
                String::from_utf8_lossy(&message.payload).into_owned(),
            )
        })
        .collect()
}

#[test]
fn a_bag_becomes_mcap_with_its_channels_definitions_and_messages() {
    let bag = bag();
    let (file, done) = converted(&bag, &ConvertOptions::default());
    assert_eq!(said(&file), said(&bag));
    assert_eq!((done.messages, done.latched), (6, 0));
    let channel = file.summary().channels[1].channel.clone();
    assert_eq!(channel.message_encoding, "ros1");
    assert_eq!(
        channel.schema.as_ref().expect("a schema").encoding,
        "ros1msg"
    );
    assert_eq!(channel.metadata["latching"], "1");
    assert!(file.summary().topics().contains(&"/silent"));
}

#[test]
fn a_cut_begins_with_what_was_latched_then() {
    let bag = bag();
    let options = ConvertOptions {
        query: Query::all().between(Stamp::from_nanos(5_000_000_000)..),
        ..ConvertOptions::default()
    };
    let (file, done) = converted(&bag, &options);
    let wanted = [
        (5, "/tf_static", "lidar"),
        (5, "/tf_static", "camera"),
        (5, "/map", "new map"),
        (6, "/odom", "there"),
    ];
    let wanted = wanted.map(|(time, topic, text)| (time, topic.to_owned(), text.to_owned()));
    assert_eq!(said(&file), wanted);
    assert_eq!((done.messages, done.latched), (4, 3));
    let first = &messages(&file, &Query::all())[0];
    assert_eq!(first.publish_time, Stamp::from_nanos(1_000_000_000));

    let without = ConvertOptions {
        keep_latched: false,
        ..options
    };
    assert_eq!(converted(&bag, &without).1.messages, 1);
}

#[test]
fn topics_are_chosen_and_renamed() {
    let options = ConvertOptions {
        query: Query::topics(["/odom"]),
        rename: [("/odom".to_owned(), "/robot/odom".to_owned())].into(),
        ..ConvertOptions::default()
    };
    let (file, _) = converted(&bag(), &options);
    assert_eq!(file.summary().topics(), ["/robot/odom"]);
    assert_eq!(file.summary().messages, Some(2));
    assert_eq!(
        file.summary().channels[0].channel.type_name(),
        "nav_msgs/Odometry"
    );
}

/// Messages in an order that has nothing to do with time, so that every chunk overlaps with every other.
fn shuffled(count: u64) -> McapFile {
    let options = McapWriterOptions {
        chunk_size: 8 << 10,
        chunk_age: None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::new(Cursor::new(Vec::new()), options).expect("a writer");
    let channels = ["/a", "/b"].map(|topic| {
        Arc::new(Channel {
            topic: topic.into(),
            ..Channel::default()
        })
    });
    let mut dice = Dice(5);
    for sequence in 0..count {
        let time = Stamp::from_nanos(dice.roll(count as usize / 2) as i64);
        writer
            .write(&Message {
                channel: Arc::clone(&channels[dice.roll(2)]),
                log_time: time,
                publish_time: Stamp::from_nanos(7),
                sequence: sequence as u32,
                payload: vec![dice.roll(256) as u8; dice.roll(400)].into(),
            })
            .expect("writes");
    }
    let metadata = [("who".to_owned(), "me".to_owned())].into();
    writer.write_metadata("run", metadata).expect("writes");
    let bytes = writer.finish().expect("finishes").into_inner();
    McapFile::from_bytes("shuffled.mcap", bytes).expect("opens")
}

#[test]
fn a_shuffled_recording_is_sorted_on_disk_and_ties_keep_their_order() {
    let file = shuffled(20_000);
    let small = ConvertOptions {
        memory: 1 << 16,
        ..ConvertOptions::default()
    };
    let (sorted, done) = converted(&file, &small);
    assert!(done.sorted_on_disk);
    assert_eq!(done.metadata, 1);
    let wanted = messages(&file, &Query::all());
    let found = messages(&sorted, &Query::all());
    assert_eq!(found.len(), 20_000);
    assert!(wanted == found);
    let in_file_order: Vec<Message> = sorted
        .read_in_file_order(&Query::all())
        .expect("reads")
        .flat_map(|batch| {
            batch
                .expect("reads")
                .iter()
                .map(|m| m.to_message())
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(in_file_order == found, "the new file itself is in order");
}

#[test]
fn attachments_come_along_unless_they_are_not_wanted() {
    let bytes = common::demo_file(0.2, common::small_chunks());
    let file = McapFile::from_bytes("demo.mcap", bytes).expect("opens");
    let (copy, done) = converted(&file, &ConvertOptions::default());
    assert_eq!((done.attachments, done.metadata), (1, 1));
    let entry = copy.summary().attachments[0].clone();
    assert_eq!(
        &copy.attachment(&entry).expect("its data")[..],
        b"wheel_radius: 0.035"
    );
    let none = ConvertOptions {
        attachments: false,
        metadata: false,
        ..ConvertOptions::default()
    };
    let (copy, _) = converted(&file, &none);
    assert_eq!(copy.summary().attachments, []);
    assert_eq!(copy.summary().metadata, []);
    assert!(messages(&copy, &Query::all()) == messages(&file, &Query::all()));
}

#[test]
fn what_was_before_1970_is_kept_at_its_first_instant_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let database = rusqlite::Connection::open(&path).expect("opens");
    database
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             INSERT INTO topics VALUES (1, '/a', 'std_msgs/msg/String', 'cdr');
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
             INSERT INTO messages VALUES (1, 1, -5000000000, x'00'), (2, 1, 7000000000, x'01'), (3, 1, -1, x'02');",
        )
        .expect("creates");
    drop(database);
    let recording = asof_formats::open(&path).expect("opens");
    let found = recording.check(&mut |_, _| Ok(())).expect("checks");
    assert_eq!(found.len(), 1, "the doctor tells of them too: {found:?}");
    assert!(
        found[0]
            .message
            .starts_with("2 messages have a time before 1970")
    );
    let (file, done) = converted(&*recording, &ConvertOptions::default());
    assert_eq!(done.messages, 3);
    assert_eq!(done.problems.len(), 1);
    assert!(
        done.problems[0]
            .message
            .starts_with("2 messages have a time before 1970")
    );
    let times: Vec<i64> = messages(&file, &Query::all())
        .iter()
        .map(|m| m.log_time.nanos())
        .collect();
    assert_eq!(times, [0, 0, 7_000_000_000]);
}
