//! ROS 1 bags: whole, unfinished, damaged, refused.

mod common;

use asof_core::testing::assert_source;

use asof_core::{ProblemKind, Query, Source, Stamp, Topics};
use asof_formats::BagFile;
use common::bags::{BagMaker, Said, encrypted};
use common::{Dice, messages, mutate};

const COMPRESSIONS: [&str; 3] = ["none", "bz2", "lz4"];

/// Two chunks that overlap in time, on three connections, two of them on one topic.
fn maker(compression: &'static str) -> BagMaker {
    let mut bag = BagMaker::new(compression);
    bag.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    bag.connect(1, "/map", "nav_msgs/OccupancyGrid", "int8[] data\n", true);
    bag.connect(7, "/odom", "test/Other", "int32 y\n", false);
    bag.chunk(&[
        (0, (10, 0), b"first"),
        (1, (10, 5), b"the map"),
        (0, (12, 0), b"third"),
    ]);
    bag.chunk(&[
        (7, (11, 0), b"second"),
        (0, (13, 0), b"fourth"),
        (0, (13, 0), b"fifth"),
    ]);
    bag
}

fn payloads(bag: &BagFile) -> Vec<String> {
    messages(bag, &Query::all())
        .iter()
        .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
        .collect()
}

const ALL: [&str; 6] = ["first", "the map", "second", "third", "fourth", "fifth"];

#[test]
fn messages_of_overlapping_chunks_come_in_order() {
    for compression in COMPRESSIONS {
        let bag = BagFile::from_bytes("test.bag", maker(compression).finish()).expect("opens");
        assert_eq!(payloads(&bag), ALL, "{compression}");
        let summary = bag.summary();
        assert_eq!(summary.problems, []);
        assert_eq!(summary.messages, Some(6));
        assert_eq!(summary.compression.get(compression), Some(&2));
        assert_source(&bag, compression);
        assert_eq!(bag.check(&mut |_, _| Ok(())).expect("reads"), []);
    }
}

/// Where each record starts and ends.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let len_at = |at: usize| {
        let len: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(len) as usize
    };
    let mut found = Vec::new();
    let mut at = b"#ROSBAG V2.0\n".len();
    while at < bytes.len() {
        let data = at + 4 + len_at(at);
        let end = data + 4 + len_at(data);
        found.push((at, end));
        at = end;
    }
    found
}

#[test]
fn an_index_that_names_a_chunk_again_and_again_counts_its_messages_once() {
    for compression in COMPRESSIONS {
        let mut bytes = maker(compression).finish();
        let &(start, end) = records(&bytes).last().expect("records");
        let info = bytes[start..end].to_vec();
        bytes.extend(info.repeat(500));
        let bag = BagFile::from_bytes("test.bag", bytes).expect("opens");
        assert_eq!(bag.summary().messages, Some(6));
        assert_eq!(bag.summary().problems[0].kind, ProblemKind::BadIndex);
        assert_eq!(payloads(&bag), ALL);
    }
}

#[test]
fn an_index_that_counts_more_messages_than_there_is_room_for_is_not_believed() {
    let mut bytes = maker("none").finish();
    let end = bytes.len();
    // The last count of the last chunk info.
    bytes[end - 4..].copy_from_slice(&2_000_000u32.to_le_bytes());
    let bag = BagFile::from_bytes("test.bag", bytes).expect("opens");
    assert_eq!(bag.summary().messages, Some(6));
    assert_eq!(bag.summary().problems[0].kind, ProblemKind::BadIndex);
}

#[test]
fn a_chunk_whose_header_lost_a_name_keeps_its_messages() {
    for compression in COMPRESSIONS {
        let mut bytes = maker(compression).finish();
        let at = memchr::memmem::find(&bytes, b"size=").expect("a chunk");
        bytes[at + 3] = b'm';
        let bag = BagFile::from_bytes("test.bag", bytes).expect("opens");
        assert_eq!(payloads(&bag), ALL, "{compression}");
        assert!(!bag.summary().problems.is_empty());
    }
}

#[test]
fn a_connection_is_a_channel_with_its_definition_and_what_its_publisher_said() {
    let bag = BagFile::from_bytes("test.bag", maker("none").finish()).expect("opens");
    let summary = bag.summary();
    let map = &summary.channels[1].channel;
    assert_eq!(map.topic, "/map");
    assert_eq!(map.message_encoding, "ros1");
    assert_eq!(map.metadata.get("latching").map(String::as_str), Some("1"));
    assert!(map.metadata.contains_key("md5sum"));
    let schema = map.schema.as_ref().expect("a schema");
    assert_eq!(schema.encoding, "ros1msg");
    assert_eq!(&schema.data[..], b"int8[] data\n");
    assert_eq!(summary.channels[2].channel.type_name(), "test/Other");
}

#[test]
fn an_unfinished_bag_reads_as_the_finished_one() {
    for compression in COMPRESSIONS {
        let bag =
            BagFile::from_bytes("test.bag.active", maker(compression).unfinished()).expect("opens");
        assert_eq!(payloads(&bag), ALL, "{compression}");
        assert_eq!(bag.summary().messages, Some(6));
        assert_eq!(bag.summary().problems[0].kind, ProblemKind::Incomplete);
        assert_source(&bag, compression);
    }
}

#[test]
fn a_chunk_that_was_never_closed_gives_what_was_written_of_it() {
    for compression in COMPRESSIONS {
        let mut maker = maker(compression);
        maker.open_chunk(&[(0, (20, 0), b"sixth"), (0, (21, 0), b"seventh")]);
        let bag = BagFile::from_bytes("test.bag.active", maker.unfinished()).expect("opens");
        let found = payloads(&bag);
        assert_eq!(found[6..], ["sixth", "seventh"], "{compression}");
        assert_source(&bag, compression);
    }
}

#[test]
fn a_bag_cut_anywhere_gives_a_front_of_its_messages() {
    let whole = maker("none").finish();
    for cut in 13..whole.len() {
        let bag = BagFile::from_bytes("cut.bag", whole[..cut].to_vec()).expect("opens");
        let found = payloads(&bag);
        assert!(!bag.summary().problems.is_empty(), "cut at {cut}");
        assert!(
            found.iter().all(|m| ALL.contains(&m.as_str())),
            "cut at {cut}: {found:?}"
        );
    }
}

#[test]
fn a_bag_cut_in_a_chunk_of_lz4_gives_what_is_there_of_the_chunk() {
    let texts: Vec<String> = (0..2000).map(|n| format!("message {}", n * n)).collect();
    let said: Vec<Said<'_>> = (1..)
        .zip(&texts)
        .map(|(second, text)| (0, (second, 0), text.as_bytes()))
        .collect();
    let mut maker = BagMaker::new("lz4");
    maker.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    maker.chunk(&said);
    // The chunk is all but the front and what follows it.
    let whole = maker.unfinished();
    let middle = 4117 + (whole.len() - 4117) / 4;
    let bag = BagFile::from_bytes("cut.bag", whole[..middle].to_vec()).expect("opens");
    let found = payloads(&bag);
    assert!(found.len() > 100, "{}", found.len());
    assert!(texts.starts_with(&found));
    assert_eq!(bag.summary().messages, Some(found.len() as u64));
    let problems = &bag.summary().problems;
    let is_cut = |problem: &asof_core::Problem| problem.kind == ProblemKind::Truncated;
    assert!(problems.iter().any(is_cut), "{problems:?}");
    let is_garbage = |problem: &asof_core::Problem| problem.kind == ProblemKind::Garbage;
    assert!(!problems.iter().any(is_garbage), "{problems:?}");
}

#[test]
fn damage_in_the_middle_of_a_chunk_costs_only_what_it_hit() {
    let mut bytes = maker("none").finish();
    let place = bytes
        .windows(7)
        .position(|window| window == b"the map")
        .expect("the message");
    // The head of the record before its payload: 4 + 38 + 4 bytes.
    bytes[place - 46..place - 30].fill(0xee);
    let bag = BagFile::from_bytes("damaged.bag", bytes).expect("opens");
    assert_eq!(
        payloads(&bag),
        ["first", "second", "third", "fourth", "fifth"]
    );
    let summary = bag.summary();
    let problem = summary.problems.first().expect("a problem");
    assert_eq!(problem.kind, ProblemKind::BadRecord);
    assert!(problem.offset.is_some());
}

#[test]
fn an_index_that_points_elsewhere_is_found_out_by_latest_at_and_by_the_doctor() {
    let mut bytes = maker("none").finish();
    // The last entry of an index record: 13 s, and where the message should be.
    let entry = [13u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
    let is_entry = |at: &usize| bytes[*at..*at + 8] == entry && bytes[at - 1] != b'=';
    let last = (13..bytes.len() - 8).rfind(is_entry).expect("an entry");
    bytes[last + 9] = 0x7f;
    let unread = BagFile::from_bytes("test.bag", bytes.clone()).expect("opens");
    let problems = unread.check(&mut |_, _| Ok(())).expect("checks");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].kind, ProblemKind::BadIndex);
    let bag = BagFile::from_bytes("test.bag", bytes).expect("opens");
    let batch = bag
        .latest_at(&Topics::named(["/odom"]), Stamp::from_nanos(14_000_000_000))
        .expect("reads");
    assert_eq!(
        batch.get(0).map(|message| message.payload),
        Some(&b"fifth"[..])
    );
    assert_eq!(bag.summary().problems[0].kind, ProblemKind::BadIndex);
}

#[test]
fn other_versions_and_encrypted_bags_are_refused_by_name() {
    let refused = |bytes: Vec<u8>| {
        BagFile::from_bytes("odd.bag", bytes)
            .map(|_| ())
            .expect_err("is refused")
            .to_string()
    };
    assert!(refused(b"#ROSBAG V1.2\nrest".to_vec()).contains("old version ('#ROSBAG V1.2')"));
    assert!(refused(b"#ROSRECORD V1.1\nrest".to_vec()).contains("old version ('#ROSRECORD V1.1')"));
    assert!(refused(encrypted()).contains("encrypted ('rosbag/AesCbcEncryptor')"));
    assert!(refused(b"hello".to_vec()).contains("not a ROS 1 bag"));
}

#[test]
fn every_bag_of_others_keeps_the_promises_of_a_source() {
    let Some(data) = common::test_data() else {
        return;
    };
    let mut files = Vec::new();
    common::files_below(&data.join("recordings"), &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "bag"));
    assert!(files.len() > 30, "{} bags", files.len());
    for path in files {
        let bag = BagFile::open(&path).expect("opens");
        let name = path.display().to_string();
        // Everything is read very often; what only large ones have, others have in small.
        if bag.summary().size < 100_000 {
            assert_source(&bag, &name);
        }
        let read = messages(&bag, &Query::all()).len() as u64;
        assert_eq!(bag.summary().messages, Some(read), "{name}");
        let is_unindexed = name.contains("unindexed");
        assert_eq!(bag.summary().problems.is_empty(), !is_unindexed, "{name}");
    }
}

/// A long run is behind `ASOF_LONG_TESTS`.
#[test]
fn no_damage_makes_reading_a_bag_panic_or_hang() {
    let rounds = if std::env::var_os("ASOF_LONG_TESTS").is_some() {
        50_000
    } else {
        600
    };
    let mut dice = Dice(8);
    for round in 0..rounds {
        let compression = COMPRESSIONS[round % 3];
        let maker = maker(compression);
        let bytes = if round % 2 == 0 {
            maker.finish()
        } else {
            maker.unfinished()
        };
        let damaged = mutate(&bytes, &mut dice);
        let Ok(bag) = BagFile::from_bytes("damaged.bag", damaged) else {
            continue;
        };
        let found = messages(&bag, &Query::all());
        assert!(found.len() < 1000);
        let batch = bag.latest_at(&Topics::All, Stamp::MAX).expect("reads");
        assert!(batch.len() <= found.len().max(10));
        bag.check(&mut |_, _| Ok(())).expect("reads");
    }
}

#[test]
fn a_bag_without_a_message_is_empty_and_whole() {
    let bag = BagFile::from_bytes("empty.bag", BagMaker::new("none").finish()).expect("opens");
    let nothing: &[Said<'_>] = &[];
    assert_eq!(messages(&bag, &Query::all()).len(), nothing.len());
    assert_eq!(bag.summary().problems, []);
    assert!(bag.summary().range.is_empty());
}
