//! What is wrong in one place costs that place: a schema its channel, a message itself, never the file.

mod common;

use asof_core::{Query, Source};
use asof_decode::{Decoder, Layers, PayloadError, Projection, SchemaError, TableOptions, Tables};
use asof_formats::{Compression, McapFile, McapWriter, McapWriterOptions};
use common::{cdr, channel, decode, message, recording, ros2};
use prost_types::field_descriptor_proto::{Label, Type};

fn enum_schema(syntax: &str) -> Vec<u8> {
    use prost::Message;
    use prost_types::{
        DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
        FileDescriptorProto, FileDescriptorSet,
    };
    let value = |name: &str, number| EnumValueDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        ..Default::default()
    };
    let field = |name: &str, number, kind: Type, type_name: Option<&str>, label: Label| {
        FieldDescriptorProto {
            name: Some(name.into()),
            number: Some(number),
            r#type: Some(kind as i32),
            type_name: type_name.map(Into::into),
            label: Some(label as i32),
            ..Default::default()
        }
    };
    let file = FileDescriptorProto {
        name: Some("t.proto".into()),
        package: Some("t".into()),
        syntax: Some(syntax.into()),
        enum_type: vec![EnumDescriptorProto {
            name: Some("Color".into()),
            value: vec![value("RED", 0), value("GREEN", 1)],
            ..Default::default()
        }],
        message_type: vec![DescriptorProto {
            name: Some("Thing".into()),
            field: vec![
                field("color", 1, Type::Enum, Some(".t.Color"), Label::Optional),
                field("count", 2, Type::Uint64, None, Label::Optional),
                field("child", 3, Type::Message, Some(".t.Thing"), Label::Optional),
                field("samples", 4, Type::Sint32, None, Label::Repeated),
                field("name", 5, Type::String, None, Label::Optional),
            ],
            ..Default::default()
        }],
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

fn thing() -> asof_core::Channel {
    thing_in("proto3")
}

fn thing_in(syntax: &str) -> asof_core::Channel {
    channel(
        "/thing",
        "protobuf",
        "t.Thing",
        "protobuf",
        &enum_schema(syntax),
    )
}

#[test]
fn a_protobuf_syntax_that_is_not_known_is_named_and_falls_to_raw() {
    for syntax in ["editions", ""] {
        let error = Decoder::new(&thing_in(syntax), &Projection::All, &[]);
        let error = error.err().expect("refused").to_string();
        assert!(error.contains(&format!("'{syntax}'")), "{error}");
        let channel = thing_in(syntax).into();
        let (assignment, _) = Layers::standard().assign(&channel, &Projection::All, &[]);
        assert_eq!(assignment.layer.as_deref(), Some("raw"));
    }
}

#[test]
fn an_enum_number_that_the_schema_does_not_know_is_kept() {
    let mut decoder = Decoder::new(&thing(), &Projection::All, &[]).expect("a schema");
    assert_eq!(
        decoder.json(&[0x08, 7, 0x10, 5]).expect("decodes"),
        r#"{"color":7,"count":5,"samples":[],"name":""}"#
    );
    assert_eq!(
        decoder.json(&[0x08, 1]).expect("decodes"),
        r#"{"color":"GREEN","count":0,"samples":[],"name":""}"#
    );
}

#[test]
fn a_protobuf_type_that_contains_itself_is_followed_to_its_end() {
    let mut decoder = Decoder::new(&thing(), &Projection::All, &[]).expect("a schema");
    let json = decoder.json(&[0x1a, 4, 0x1a, 2, 0x10, 9]).expect("decodes");
    assert!(
        json.contains(r#""child":{"color":"RED","count":0,"child":{"color":"RED","count":9"#),
        "{json}"
    );
}

#[test]
fn a_protobuf_field_that_comes_twice_counts_the_last_time_and_messages_are_merged() {
    let mut decoder = Decoder::new(&thing(), &Projection::All, &[]).expect("a schema");
    let json = decoder
        .json(&[
            0x10, 1, 0x10, 2, 0x1a, 2, 0x10, 3, 0x1a, 2, 0x08, 1, 0x22, 2, 1, 2, 0x20, 3,
        ])
        .expect("decodes");
    assert!(json.contains(r#""count":2"#), "{json}");
    assert!(
        json.contains(r#""child":{"color":"GREEN","count":3"#),
        "{json}"
    );
    assert!(json.contains(r#""samples":[-1,1,-2]"#), "{json}");
}

#[test]
fn a_ros_type_that_contains_itself_is_refused_and_falls_to_raw() {
    let loops = ros2(
        "/loop",
        "a/msg/A",
        "B b\n===\nMSG: a/B\nA a\n===\nMSG: a/A\nB b\n",
    );
    let error = Decoder::new(&loops, &Projection::All, &[])
        .err()
        .expect("refused");
    assert!(matches!(error, SchemaError::Recursive { .. }), "{error}");
    let (assignment, _) = Layers::standard().assign(&loops.into(), &Projection::All, &[]);
    assert_eq!(assignment.layer.as_deref(), Some("raw"));
    assert_eq!(assignment.declined.len(), 2);
}

#[test]
fn types_in_types_in_types_without_end_are_refused_and_fall_to_raw() {
    let chain = |types: usize| {
        let inner = (1..types).map(|i| format!("===\nMSG: a/T{i}\nT{} t\n", i + 1));
        let text = format!(
            "T1 t\n{}===\nMSG: a/T{types}\nint32 x\n",
            inner.collect::<Vec<_>>().concat()
        );
        ros2("/chain", "a/msg/T0", &text)
    };
    Decoder::new(&chain(50), &Projection::All, &[]).expect("a schema");
    for types in [100, 50_000] {
        let error = Decoder::new(&chain(types), &Projection::All, &[])
            .err()
            .expect("refused");
        assert!(matches!(error, SchemaError::TooLarge { .. }), "{error}");
        let (assignment, _) =
            Layers::standard().assign(&chain(types).into(), &Projection::All, &[]);
        assert_eq!(assignment.layer.as_deref(), Some("raw"));
    }
}

#[test]
fn one_bad_schema_among_good_ones_costs_its_channel_its_columns_alone() {
    let good = ros2("/good", "std_msgs/msg/Int32", "int32 data\n");
    let bad = ros2("/bad", "a/msg/B", "this is ; no schema\n");
    let worse = channel("/worse", "protobuf", "t.Missing", "protobuf", b"\xff\xff");
    let file = recording(&[
        (&good, cdr(&7i32.to_le_bytes())),
        (&bad, cdr(&[1])),
        (&worse, vec![1, 2, 3]),
    ]);
    let (batches, report) = decode(&file, Layers::standard());
    let layer_of = |topic: &str| {
        let batch = batches
            .iter()
            .find(|b| b.channel.topic == topic)
            .expect(topic);
        batch.layer.to_string()
    };
    assert_eq!(layer_of("/good"), "semantic");
    assert_eq!(layer_of("/bad"), "raw");
    assert_eq!(layer_of("/worse"), "raw");
    assert!(report.iter().all(|channel| channel.failed == 0));
}

#[test]
fn short_and_corrupt_messages_cost_themselves_and_are_counted() {
    let point = ros2("/point", "p/msg/Point", "float64 x\nstring name\n");
    let mut good = cdr(&1.5f64.to_le_bytes());
    good.extend_from_slice(&[3, 0, 0, 0, b'a', b'b', 0]);
    let mut lying = good.clone();
    lying[12] = 200;
    let proto = thing();
    let file = recording(&[
        (&point, good.clone()),
        (&point, good[..9].to_vec()),
        (&point, lying),
        (&point, good),
        (&proto, vec![0x10, 1]),
        (&proto, vec![0x2a, 100, 1]),
        (&proto, vec![0x10, 2]),
    ]);
    let (batches, report) = decode(&file, Layers::standard().only("reflection"));
    let rows: usize = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    assert_eq!(rows, 4);
    assert_eq!(report[0].failed, 2);
    assert_eq!(report[0].failures.len(), 2);
    assert!(matches!(
        report[0].failures[0].1,
        PayloadError::Short { .. }
    ));
    assert_eq!(report[1].failed, 1);
    assert_eq!((report[0].messages, report[1].messages), (4, 3));
}

/// Two hundred messages in chunks of twenty or so.
fn two_hundred(compression: Compression) -> Vec<u8> {
    let channel = ros2("/n", "std_msgs/msg/Int32", "int32 data\n").into();
    let options = McapWriterOptions {
        compression,
        chunk_size: 1000,
        chunk_age: None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::new(std::io::Cursor::new(Vec::new()), options).expect("a writer");
    for n in 0..200i32 {
        let payload = cdr(&n.to_le_bytes());
        writer
            .write(&message(&channel, i64::from(n), payload))
            .expect("writes");
    }
    writer.finish().expect("finishes").into_inner()
}

fn rows_of(bytes: Vec<u8>) -> (usize, usize) {
    let file = McapFile::from_bytes("test", bytes).expect("opens");
    let (batches, _) = decode(&file, Layers::standard());
    let rows = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    (rows, file.summary().problems.len())
}

/// The places of all records of the data section: opcode, start, end.
fn records(bytes: &[u8]) -> Vec<(u8, usize, usize)> {
    let mut at = 8;
    let mut found = Vec::new();
    while at + 9 <= bytes.len() - 8 {
        let len = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().expect("eight")) as usize;
        found.push((bytes[at], at, at + 9 + len));
        at += 9 + len;
    }
    found
}

const CHANNEL: u8 = 4;
const CHUNK: u8 = 6;
const CHUNK_INDEX: u8 = 8;
const DATA_END: u8 = 15;

/// Gives the first chunk a compression that nobody knows: in its own head, or in its index too.
fn with_unknown_codec(in_index_too: bool) -> Vec<u8> {
    let mut bytes = two_hundred(Compression::Zstd);
    let found = records(&bytes);
    let of = |opcode: u8| *found.iter().find(|r| r.0 == opcode).expect("a record");
    let mut places = vec![of(CHUNK)];
    if in_index_too {
        places.push(of(CHUNK_INDEX));
    }
    for (_, start, end) in places {
        let name = bytes[start..end]
            .windows(4)
            .position(|four| four == b"zstd");
        let name = start + name.expect("the name of its compression");
        bytes[name..name + 4].copy_from_slice(b"zstq");
    }
    bytes
}

#[test]
fn a_chunk_with_an_unknown_codec_is_left_out_and_reported() {
    let (rows, problems) = rows_of(with_unknown_codec(true));
    assert!((150..200).contains(&rows), "{rows}");
    assert!(problems > 0);
}

#[test]
fn a_chunk_whose_head_is_damaged_is_read_by_its_index_and_reported() {
    let (rows, problems) = rows_of(with_unknown_codec(false));
    assert_eq!(rows, 200);
    assert!(problems > 0);
}

#[test]
fn a_file_that_is_cut_keeps_what_is_before_the_cut() {
    for compression in [Compression::Zstd, Compression::None] {
        let bytes = two_hundred(compression);
        let chunks: Vec<_> = records(&bytes)
            .into_iter()
            .filter(|r| r.0 == CHUNK)
            .collect();
        let (_, start, end) = chunks[5];
        let cut = bytes[..usize::midpoint(start, end) + 20].to_vec();
        let (rows, problems) = rows_of(cut);
        assert!(rows >= 5 * 19, "{rows}");
        assert!(problems > 0);
    }
}

#[test]
fn private_records_are_passed_over() {
    let bytes = two_hundred(Compression::Zstd);
    let chunks: Vec<_> = records(&bytes)
        .into_iter()
        .filter(|r| r.0 == CHUNK)
        .collect();
    let mut with_private = bytes[..chunks[1].1].to_vec();
    with_private.push(0x90);
    with_private.extend_from_slice(&5u64.to_le_bytes());
    with_private.extend_from_slice(b"mine!");
    // Then the rest up to a cut, so that there is no summary to go by.
    with_private.extend_from_slice(&bytes[chunks[1].1..chunks[7].2]);
    let (rows, _) = rows_of(with_private);
    assert!(rows >= 8 * 19, "{rows}");
}

#[test]
fn a_hole_in_the_middle_costs_what_was_in_it() {
    let bytes = two_hundred(Compression::Zstd);
    let chunks: Vec<_> = records(&bytes)
        .into_iter()
        .filter(|r| r.0 == CHUNK)
        .collect();
    let mut holed = bytes[..chunks[7].2].to_vec();
    holed[chunks[3].1..chunks[3].2].fill(0);
    let (rows, problems) = rows_of(holed);
    assert!(rows >= 6 * 19, "{rows}");
    assert!(problems > 0);
}

#[test]
fn a_bad_checksum_is_reported_and_the_rows_are_kept() {
    let mut bytes = two_hundred(Compression::None);
    let (_, start, end) = *records(&bytes)
        .iter()
        .find(|r| r.0 == CHUNK)
        .expect("a chunk");
    bytes[end - 1] ^= 1;
    assert!(start < end);
    let (rows, problems) = rows_of(bytes);
    assert_eq!(rows, 200);
    assert_eq!(problems, 1, "each is counted");
}

#[test]
fn a_file_without_a_summary_is_decoded_all_the_same() {
    let bytes = two_hundred(Compression::Zstd);
    let end = records(&bytes)
        .into_iter()
        .find(|r| r.0 == DATA_END)
        .expect("an end")
        .2;
    let (rows, _) = rows_of(bytes[..end].to_vec());
    assert_eq!(rows, 200);
}

/// Two hundred messages by another writer, with what it is told to write.
fn written_with(options: mcap::WriteOptions) -> Vec<u8> {
    let mut writer = options
        .create(std::io::Cursor::new(Vec::new()))
        .expect("a writer");
    let id = writer
        .add_schema("std_msgs/msg/Int32", "ros2msg", b"int32 data\n")
        .expect("a schema");
    let id = writer
        .add_channel(id, "/n", "cdr", &std::collections::BTreeMap::default())
        .expect("a channel");
    for n in 0..200u32 {
        let header = mcap::records::MessageHeader {
            channel_id: id,
            sequence: n,
            log_time: u64::from(n),
            publish_time: u64::from(n),
        };
        writer
            .write_to_known_channel(&header, &cdr(&n.to_le_bytes()))
            .expect("writes");
    }
    writer.finish().expect("finishes");
    writer.into_inner().into_inner()
}

#[test]
fn messages_outside_of_chunks_are_decoded_beside_a_summary() {
    let bytes = written_with(mcap::WriteOptions::new().use_chunks(false));
    assert_eq!(rows_of(bytes).0, 200);
}

#[test]
fn messages_outside_of_chunks_are_decoded_without_a_summary() {
    let bytes = written_with(mcap::WriteOptions::new().use_chunks(false));
    let end = records(&bytes)
        .into_iter()
        .find(|r| r.0 == DATA_END)
        .expect("an end");
    assert_eq!(rows_of(bytes[..end.2].to_vec()).0, 200);
    // And up to a cut within one of them.
    let (rows, problems) = rows_of(bytes[..end.1 - 5].to_vec());
    assert_eq!(rows, 199);
    assert!(problems > 0);
}

#[test]
fn messages_between_chunks_are_decoded_beside_those_within() {
    let bytes = two_hundred(Compression::Zstd);
    let chunks: Vec<_> = records(&bytes)
        .into_iter()
        .filter(|r| r.0 == CHUNK)
        .collect();
    // Channel 1, sequence 0, both times in the middle, and a number; the indexes know nothing of it.
    let channel = bytes_of_first_channel(&bytes);
    let mut body = channel.to_le_bytes().to_vec();
    body.extend(0u32.to_le_bytes());
    body.extend(100u64.to_le_bytes());
    body.extend(100u64.to_le_bytes());
    body.extend(cdr(&7i32.to_le_bytes()));
    let mut bare = vec![5];
    bare.extend((body.len() as u64).to_le_bytes());
    bare.extend(body);
    let cut = chunks[6].2;
    let mut mixed = bytes[..chunks[3].2].to_vec();
    mixed.extend(&bare);
    mixed.extend(&bytes[chunks[3].2..cut]);
    let without = rows_of(bytes[..cut].to_vec()).0;
    assert_eq!(rows_of(mixed).0, without + 1);
}

/// The id of the first channel, as the summary repeats it.
fn bytes_of_first_channel(bytes: &[u8]) -> u16 {
    let (_, start, _) = *records(bytes)
        .iter()
        .find(|r| r.0 == CHANNEL)
        .expect("a channel");
    u16::from_le_bytes([bytes[start + 9], bytes[start + 10]])
}

#[test]
fn indexes_and_statistics_may_be_left_out() {
    for (has_index, has_statistics, has_channels) in [
        (false, true, true),
        (true, false, true),
        (false, false, false),
        (true, true, false),
    ] {
        let options = mcap::WriteOptions::new()
            .chunk_size(Some(1000))
            .emit_chunk_indexes(has_index)
            .emit_message_indexes(has_index && has_statistics)
            .emit_statistics(has_statistics)
            .repeat_channels(has_channels)
            .repeat_schemas(has_channels);
        let (rows, _) = rows_of(written_with(options));
        assert_eq!(rows, 200, "{has_index} {has_statistics} {has_channels}");
    }
}

#[test]
fn two_channels_of_one_topic_with_different_schemas_are_both_kept() {
    let one = ros2("/t", "std_msgs/msg/Int32", "int32 data\n");
    let other = ros2("/t", "std_msgs/msg/Float64", "float64 data\n");
    let file = recording(&[
        (&one, cdr(&1i32.to_le_bytes())),
        (&other, cdr(&2f64.to_le_bytes())),
    ]);
    let (batches, _) = decode(&file, Layers::standard());
    assert_eq!(batches.len(), 2);
}

#[test]
fn one_thread_and_two_give_the_same_batches() {
    let messages = asof_demo::small_messages(5, 3 << 20);
    let mut writer = McapWriter::new(
        std::io::Cursor::new(Vec::new()),
        McapWriterOptions::default(),
    )
    .expect("a writer");
    for message in messages {
        writer.write(&message).expect("writes");
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    let file = McapFile::from_bytes("test", bytes).expect("opens");
    let with = |threads| -> Vec<_> {
        let options = TableOptions {
            threads,
            rows: 500,
            ..TableOptions::default()
        };
        Tables::read(&file, &Query::all(), options)
            .expect("reads")
            .map(|batch| {
                batch
                    .map(|b| (b.channel.topic.clone(), b.batch))
                    .expect("a batch")
            })
            .collect()
    };
    let (one, two) = (with(1), with(2));
    assert!(one.len() > 10);
    assert_eq!(one, two);
}

#[test]
fn a_flatbuffer_schema_with_vectors_of_vectors_is_refused() {
    use common::flat::{Flat, buffer};
    let text = |text: &str| Some(Flat::Text(text.to_owned()));
    // A vector (14) whose elements are vectors: without end, since both are one type.
    let kind = Flat::Table(vec![Some(Flat::U8(14)), Some(Flat::U8(14))]);
    let field = Flat::Table(vec![text("deep"), Some(kind)]);
    let object = Flat::Table(vec![text("T"), Some(Flat::Tables(vec![field]))]);
    let schema = Flat::Table(vec![
        Some(Flat::Tables(vec![object])),
        Some(Flat::Tables(Vec::new())),
        None,
        None,
        Some(Flat::Table(vec![text("T")])),
    ]);
    let bfbs = buffer(&schema, *b"BFBS");
    let deep = channel("/deep", "flatbuffer", "T", "flatbuffer", &bfbs);
    let error = Decoder::new(&deep, &Projection::All, &[])
        .err()
        .expect("refused");
    assert!(matches!(error, SchemaError::Unreadable { .. }), "{error}");
}
