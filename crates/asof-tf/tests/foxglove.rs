//! Foxglove's transforms, in the encodings that people record them in.
#![cfg(feature = "decode")]
// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

mod common;

use std::sync::Arc;

use asof_core::{Channel, Message, Schema, Stamp};
use asof_tf::{Loaded, TransformBuffer};
use common::Recording;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

const SECOND: i64 = 1_000_000_000;

/// A recording of these messages, read.
fn loaded(messages: &[Message]) -> Loaded {
    let recording = Recording(messages.to_vec());
    TransformBuffer::from_source(&recording).expect("reads")
}

fn channel(topic: &str, encoding: &str, schema: (&str, &str, Vec<u8>)) -> Arc<Channel> {
    let (name, language, data) = schema;
    Arc::new(Channel {
        topic: topic.into(),
        message_encoding: encoding.into(),
        schema: Some(
            Schema {
                name: name.into(),
                encoding: language.into(),
                data: data.into(),
            }
            .into(),
        ),
        ..Channel::default()
    })
}

fn message(channel: &Arc<Channel>, log_time: i64, payload: Vec<u8>) -> Message {
    Message {
        channel: Arc::clone(channel),
        log_time: Stamp::from_nanos(log_time),
        publish_time: Stamp::from_nanos(log_time),
        sequence: 0,
        payload: payload.into(),
    }
}

/// Half a turn about x, two metres along y, at one second; another metre on, a second later.
fn assert_moves(loaded: &Loaded) {
    assert_eq!(loaded.problems, []);
    assert_eq!(loaded.transforms, 2);
    let at = |nanos: i64| {
        loaded
            .buffer
            .lookup("map", "robot", Stamp::from_nanos(nanos))
    };
    let first = at(SECOND).expect("a sample");
    assert_eq!(first.translation.vector.as_slice(), [0.25, 2.0, -1.0]);
    assert_eq!(first.rotation.coords.as_slice(), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(at(SECOND * 3 / 2).expect("between").translation.y, 2.5);
    assert!(at(SECOND * 3).is_err());
}

const POSES: [(i64, [f64; 3]); 2] = [(1, [0.25, 2.0, -1.0]), (2, [0.25, 3.0, -1.0])];

fn field(name: &str, number: i32, kind: Type, type_name: Option<&str>) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(kind as i32),
        type_name: type_name.map(Into::into),
        ..Default::default()
    }
}

/// The schema of Foxglove's messages, as a recorder writes it.
fn descriptors() -> Vec<u8> {
    let doubles = |name: &str, parts: &[&str]| DescriptorProto {
        name: Some(name.into()),
        field: (1..)
            .zip(parts)
            .map(|(number, part)| field(part, number, Type::Double, None))
            .collect(),
        ..Default::default()
    };
    let timestamp = DescriptorProto {
        name: Some("Timestamp".into()),
        field: vec![
            field("seconds", 1, Type::Int64, None),
            field("nanos", 2, Type::Int32, None),
        ],
        ..Default::default()
    };
    let transform = DescriptorProto {
        name: Some("FrameTransform".into()),
        field: vec![
            field(
                "timestamp",
                1,
                Type::Message,
                Some(".google.protobuf.Timestamp"),
            ),
            field("parent_frame_id", 2, Type::String, None),
            field("child_frame_id", 3, Type::String, None),
            field("translation", 4, Type::Message, Some(".foxglove.Vector3")),
            field("rotation", 5, Type::Message, Some(".foxglove.Quaternion")),
        ],
        ..Default::default()
    };
    let mut list = field(
        "transforms",
        1,
        Type::Message,
        Some(".foxglove.FrameTransform"),
    );
    list.label = Some(Label::Repeated as i32);
    let transforms = DescriptorProto {
        name: Some("FrameTransforms".into()),
        field: vec![list],
        ..Default::default()
    };
    let file = |name: &str, package: &str, messages| FileDescriptorProto {
        name: Some(name.into()),
        package: Some(package.into()),
        message_type: messages,
        syntax: Some("proto3".into()),
        ..Default::default()
    };
    let mut own = file(
        "foxglove.proto",
        "foxglove",
        vec![
            doubles("Vector3", &["x", "y", "z"]),
            doubles("Quaternion", &["x", "y", "z", "w"]),
            transform,
            transforms,
        ],
    );
    own.dependency = vec!["google/protobuf/timestamp.proto".into()];
    let set = FileDescriptorSet {
        file: vec![
            file(
                "google/protobuf/timestamp.proto",
                "google.protobuf",
                vec![timestamp],
            ),
            own,
        ],
    };
    set.encode_to_vec()
}

/// A field of a protobuf message that has a length.
fn sized(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn doubles(parts: &[f64]) -> Vec<u8> {
    (1_u8..)
        .zip(parts)
        .flat_map(|(number, part)| [vec![number << 3 | 1], part.to_le_bytes().to_vec()].concat())
        .collect()
}

fn frame_transform(seconds: i64, translation: [f64; 3]) -> Vec<u8> {
    [
        sized(1, &[8, seconds as u8]),
        sized(2, b"map"),
        sized(3, b"robot"),
        sized(4, &doubles(&translation)),
        sized(5, &doubles(&[1.0, 0.0, 0.0, 0.0])),
    ]
    .concat()
}

#[test]
fn a_frame_transform_in_protobuf_is_one() {
    let schema = ("foxglove.FrameTransform", "protobuf", descriptors());
    let channel = channel("/pose", "protobuf", schema);
    let messages = POSES.map(|(s, t)| message(&channel, s * SECOND, frame_transform(s, t)));
    assert_moves(&loaded(&messages));
}

#[test]
fn frame_transforms_in_protobuf_are_many() {
    let schema = ("foxglove.FrameTransforms", "protobuf", descriptors());
    let channel = channel("/tf", "protobuf", schema);
    let payload = POSES
        .map(|(s, t)| sized(1, &frame_transform(s, t)))
        .concat();
    assert_moves(&loaded(&[message(&channel, 7 * SECOND, payload)]));
}

#[test]
fn a_message_that_does_not_say_when_was_true_when_it_was_recorded() {
    let schema = ("foxglove.FrameTransform", "protobuf", descriptors());
    let channel = channel("/pose", "protobuf", schema);
    let payload = [sized(2, b"map"), sized(3, b"robot")].concat();
    let loaded = loaded(&[message(&channel, 7 * SECOND, payload)]);
    assert_eq!(loaded.problems, []);
    let found = loaded
        .buffer
        .lookup("map", "robot", Stamp::from_nanos(7 * SECOND));
    assert_eq!(
        found.expect("at its log time"),
        nalgebra::Isometry3::identity()
    );
}

#[test]
fn what_is_on_tf_static_holds_for_all_times_there_too() {
    let schema = ("foxglove.FrameTransform", "protobuf", descriptors());
    let channel = channel("/tf_static", "protobuf", schema);
    let payload = frame_transform(1, [0.5, 0.0, 0.0]);
    let loaded = loaded(&[message(&channel, 7 * SECOND, payload)]);
    let found = loaded.buffer.lookup("map", "robot", Stamp::EPOCH);
    assert_eq!(found.expect("at any time").translation.x, 0.5);
}

fn json_transform(seconds: i64, [x, y, z]: [f64; 3]) -> String {
    // The parts of a rotation in an order that is not that of its name.
    format!(
        r#"{{"timestamp":{{"sec":{seconds},"nsec":0}},"parent_frame_id":"map","child_frame_id":"robot",
        "translation":{{"x":{x},"y":{y},"z":{z}}},"rotation":{{"w":0,"x":1,"y":0,"z":0}}}}"#
    )
}

fn json_schema(is_list: bool) -> Vec<u8> {
    let vector = |parts: &[&str]| {
        let parts: Vec<String> = parts
            .iter()
            .map(|part| format!(r#""{part}":{{"type":"number"}}"#))
            .collect();
        format!(
            r#"{{"type":"object","properties":{{{}}}}}"#,
            parts.join(",")
        )
    };
    let time = r#"{"type":"object","title":"time","properties":{"sec":{"type":"integer","minimum":0},"nsec":{"type":"integer","minimum":0,"maximum":999999999}}}"#;
    let one = format!(
        r#"{{"title":"foxglove.FrameTransform","type":"object","properties":{{"timestamp":{time},"parent_frame_id":{{"type":"string"}},"child_frame_id":{{"type":"string"}},"translation":{},"rotation":{}}}}}"#,
        vector(&["x", "y", "z"]),
        vector(&["x", "y", "z", "w"]),
    );
    if is_list {
        format!(r#"{{"title":"foxglove.FrameTransforms","type":"object","properties":{{"transforms":{{"type":"array","items":{one}}}}}}}"#).into()
    } else {
        one.into()
    }
}

#[test]
fn both_are_read_from_json() {
    let schema = ("foxglove.FrameTransform", "jsonschema", json_schema(false));
    let one = channel("/pose", "json", schema);
    let messages = POSES.map(|(s, t)| message(&one, s * SECOND, json_transform(s, t).into()));
    assert_moves(&loaded(&messages));

    let schema = ("foxglove.FrameTransforms", "jsonschema", json_schema(true));
    let many = channel("/tf", "json", schema);
    let list = POSES.map(|(s, t)| json_transform(s, t)).join(",");
    let payload = format!(r#"{{"transforms":[{list}]}}"#).into();
    assert_moves(&loaded(&[message(&many, 7 * SECOND, payload)]));
}

#[test]
fn json_without_a_schema_is_read_too() {
    let schema = ("foxglove.FrameTransform", "", Vec::new());
    let one = channel("/pose", "json", schema);
    let messages = POSES.map(|(s, t)| message(&one, s * SECOND, json_transform(s, t).into()));
    assert_moves(&loaded(&messages));
}

#[test]
fn the_flavour_of_ros_is_read_by_its_schema() {
    let text = "builtin_interfaces/Time timestamp\nstring parent_frame_id\nstring child_frame_id\n\
        geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n\
        ===\nMSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n\
        ===\nMSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w\n";
    let text = text.replace("===\n", &format!("{}\n", "=".repeat(80)));
    let schema = ("foxglove_msgs/msg/FrameTransform", "ros2msg", text.into());
    let channel = channel("/pose", "cdr", schema);
    let messages = POSES.map(|(s, translation)| {
        let mut bytes = vec![0, 1, 0, 0];
        bytes.extend((s as u32).to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(4_u32.to_le_bytes());
        bytes.extend(b"map\0");
        bytes.extend(6_u32.to_le_bytes());
        bytes.extend(b"robot\0");
        while !(bytes.len() - 4).is_multiple_of(8) {
            bytes.push(0);
        }
        for part in translation.into_iter().chain([1.0, 0.0, 0.0, 0.0]) {
            bytes.extend(part.to_le_bytes());
        }
        message(&channel, s * SECOND, bytes)
    });
    assert_moves(&loaded(&messages));
}

#[test]
fn what_cannot_be_decoded_is_told_and_costs_no_other_message() {
    let schema = ("foxglove.FrameTransform", "protobuf", descriptors());
    let channel = channel("/pose", "protobuf", schema);
    let mut messages: Vec<Message> = POSES
        .iter()
        .map(|(s, t)| message(&channel, s * SECOND, frame_transform(*s, *t)))
        .collect();
    messages.insert(1, message(&channel, SECOND, vec![0xff; 9]));
    let loaded = loaded(&messages);
    assert_eq!(loaded.transforms, 2);
    assert_eq!(loaded.problems.len(), 1);
    assert_eq!(loaded.problems[0].topic.as_deref(), Some("/pose"));
}

#[test]
fn a_channel_whose_schema_is_broken_is_told_once() {
    let schema = ("foxglove.FrameTransform", "protobuf", b"no schema".to_vec());
    let channel = channel("/pose", "protobuf", schema);
    let messages = [1, 2, 3].map(|s| message(&channel, s, Vec::new()));
    let loaded = loaded(&messages);
    assert_eq!(loaded.transforms, 0);
    assert_eq!(loaded.problems.len(), 1);
    assert!(
        loaded.problems[0].message.ends_with("(3 times)"),
        "{:?}",
        loaded.problems
    );
}
