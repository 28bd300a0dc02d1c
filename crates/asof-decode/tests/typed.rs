//! Messages as structs, from every encoding, and what is said of a struct that does not fit.

mod common;

use std::collections::BTreeMap;

use asof_core::{Channel, Query};
use asof_decode::{Rows, TypedDecoder, TypedError, messages, ros};
use asof_demo::{Demo, DemoOptions};
use asof_formats::{McapFile, McapWriter, McapWriterOptions};
use common::{cdr, channel, recording, ros2};
use prost::Message as _;
use serde::Deserialize;

fn demo() -> McapFile {
    let options = DemoOptions {
        duration: std::time::Duration::from_secs(2),
        ..DemoOptions::default()
    };
    let out = std::io::Cursor::new(Vec::new());
    let mut writer = McapWriter::new(out, McapWriterOptions::default()).expect("a writer");
    for message in Demo::new(options).messages() {
        writer.write(&message).expect("written");
    }
    let bytes = writer.finish().expect("finished").into_inner();
    McapFile::from_bytes("demo", bytes).expect("a recording")
}

#[test]
fn every_common_type_of_the_demo_is_read() {
    fn count<T: serde::de::DeserializeOwned>(source: &McapFile, topic: &str) -> usize {
        let messages = messages::<T>(source, &Query::topics([topic]));
        let messages = messages.unwrap_or_else(|error| panic!("{topic}: {error}"));
        let all: Result<Vec<_>, TypedError> = messages.collect();
        all.unwrap_or_else(|error| panic!("{topic}: {error}")).len()
    }
    let demo = demo();
    let counts = [
        ("/imu", count::<ros::Imu>(&demo, "/imu")),
        ("/odom", count::<ros::Odometry>(&demo, "/odom")),
        ("/scan", count::<ros::LaserScan>(&demo, "/scan")),
        ("/tf", count::<ros::TFMessage>(&demo, "/tf")),
        ("/map", count::<ros::OccupancyGrid>(&demo, "/map")),
        ("/cmd_vel", count::<ros::Twist>(&demo, "/cmd_vel")),
        (
            "/joint_states",
            count::<ros::JointState>(&demo, "/joint_states"),
        ),
        (
            "/camera/image",
            count::<ros::CompressedImage>(&demo, "/camera/image"),
        ),
    ];
    for (topic, found) in counts {
        let rows = Rows::read(&demo, topic).expect("rows");
        assert_eq!(found, rows.len(), "{topic}");
        assert!(found > 0, "{topic}");
    }
}

#[test]
fn a_struct_and_a_column_have_the_same_numbers() {
    let demo = demo();
    let rows = Rows::read(&demo, "/odom").expect("rows");
    let x = rows.f64("pose.pose.position.x").expect("numbers");
    let covariance = rows.f64("pose.covariance[7]").expect("numbers");
    let frames = rows.text("header.frame_id").expect("texts");
    let odometry = messages::<ros::Odometry>(&demo, &Query::topics(["/odom"])).expect("odometry");
    let mut seen = 0;
    for (row, found) in odometry.enumerate() {
        let found = found.expect("decodes");
        assert_eq!(found.log_time, rows.log_times()[row]);
        assert_eq!(Some(found.message.header.stamp.stamp()), rows.stamps()[row]);
        let pose = &found.message.pose;
        assert_eq!(pose.pose.position.x.to_bits(), x[row].to_bits());
        assert_eq!(pose.covariance[7].to_bits(), covariance[row].to_bits());
        assert_eq!(Some(&found.message.header.frame_id), frames[row].as_ref());
        seen += 1;
    }
    assert_eq!(seen, rows.len());
}

#[derive(Debug, PartialEq, Deserialize)]
struct Reading {
    value: f64,
    name: String,
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Part {
    id: u32,
}

fn reading() -> Reading {
    Reading {
        value: 0.5,
        name: "left".to_owned(),
        parts: vec![Part { id: 7 }, Part { id: 9 }],
    }
}

const READING: &str =
    "uint8 skipped\nfloat64 value\nstring name\nPart[] parts\n===\nMSG: p/Part\nuint32 id\n";

fn little(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The same message in every encoding that can have it.
fn readings() -> Vec<(Channel, Vec<u8>)> {
    let value = 0.5f64.to_le_bytes();
    let xcdr1 = little(&[
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &value,
        &5u32.to_le_bytes(),
        b"left\0\0\0\0",
        &2u32.to_le_bytes(),
        &7u32.to_le_bytes(),
        &9u32.to_le_bytes(),
    ]);
    let xcdr2 = little(&[
        &[0, 7, 0, 0, 1, 0, 0, 0],
        &value,
        &5u32.to_le_bytes(),
        b"left\0\0\0\0",
        &12u32.to_le_bytes(),
        &2u32.to_le_bytes(),
        &7u32.to_le_bytes(),
        &9u32.to_le_bytes(),
    ]);
    let ros1 = little(&[
        &[1],
        &value,
        &4u32.to_le_bytes(),
        b"left",
        &2u32.to_le_bytes(),
        &7u32.to_le_bytes(),
        &9u32.to_le_bytes(),
    ]);
    let text = br#"{"skipped":1,"value":0.5,"name":"left","parts":[{"id":7},{"id":9}]}"#.to_vec();
    let schema = br#"{"type":"object","properties":{"value":{"type":"number"},"name":{"type":"string"},
        "parts":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}}}}}}"#;
    let cbor = little(&[
        b"\xa3\x65value\xf9\x38\x00\x64name\x64left\x65parts\x82",
        b"\xa1\x62id\x07\xa1\x62id\x09",
    ]);
    let open = |encoding: &str| Channel {
        topic: "/r".to_owned(),
        message_encoding: encoding.to_owned(),
        ..Channel::default()
    };
    let (descriptor, protobuf) = protobuf();
    vec![
        (ros2("/r", "p/msg/Reading", READING), cdr(&xcdr1)),
        (ros2("/r", "p/msg/Reading", READING), xcdr2),
        (
            channel("/r", "ros1", "p/Reading", "ros1msg", READING.as_bytes()),
            ros1,
        ),
        (
            channel("/r", "json", "Reading", "jsonschema", schema),
            text.clone(),
        ),
        (open("json"), text),
        (open("cbor"), cbor),
        (
            channel("/r", "protobuf", "p.Reading", "protobuf", &descriptor),
            protobuf,
        ),
    ]
}

fn protobuf() -> (Vec<u8>, Vec<u8>) {
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    };
    let field = |name: &str, number: i32, kind: Type, label: Label, of: Option<&str>| {
        FieldDescriptorProto {
            name: Some(name.to_owned()),
            number: Some(number),
            r#type: Some(kind as i32),
            label: Some(label as i32),
            type_name: of.map(str::to_owned),
            ..FieldDescriptorProto::default()
        }
    };
    let message = |name: &str, field: Vec<FieldDescriptorProto>| DescriptorProto {
        name: Some(name.to_owned()),
        field,
        ..DescriptorProto::default()
    };
    let one = Label::Optional;
    let file = FileDescriptorProto {
        name: Some("p.proto".to_owned()),
        package: Some("p".to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![
            message("Part", vec![field("id", 1, Type::Uint32, one, None)]),
            message(
                "Reading",
                vec![
                    field("value", 1, Type::Double, one, None),
                    field("name", 2, Type::String, one, None),
                    field("parts", 3, Type::Message, Label::Repeated, Some(".p.Part")),
                ],
            ),
        ],
        ..FileDescriptorProto::default()
    };
    let set = FileDescriptorSet { file: vec![file] };
    let payload = little(&[
        b"\x09",
        &0.5f64.to_le_bytes(),
        b"\x12\x04left\x1a\x02\x08\x07\x1a\x02\x08\x09",
    ]);
    (set.encode_to_vec(), payload)
}

#[test]
fn one_struct_reads_every_encoding() {
    for (channel, payload) in readings() {
        let what = format!("{} {:02x?}", channel.message_encoding, &payload[..4]);
        let decoder = TypedDecoder::<Reading>::new(&channel);
        let mut decoder = decoder.unwrap_or_else(|error| panic!("{what}: {error}"));
        for _ in 0..3 {
            let found = decoder.decode(&payload);
            let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(found, reading(), "{what}");
        }
    }
}

/// The field that an error names, and the whole of it.
fn misfit<T: serde::de::DeserializeOwned>(channel: &Channel) -> (String, String) {
    match TypedDecoder::<T>::new(channel) {
        Err(error @ TypedError::Misfit { .. }) => {
            let text = error.to_string();
            let TypedError::Misfit { path, .. } = error else {
                unreachable!("it was one");
            };
            (path, text)
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it fits"),
    }
}

#[allow(dead_code)]
mod wrong {
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub struct Missing {
        pub pose: MissingPose,
    }
    #[derive(Deserialize)]
    pub struct MissingPose {
        pub orientation: f64,
    }
    #[derive(Deserialize)]
    pub struct Kind {
        pub pose: KindPose,
    }
    #[derive(Deserialize)]
    pub struct KindPose {
        pub x: String,
    }
    #[derive(Deserialize)]
    pub struct Narrow {
        pub pose: NarrowPose,
    }
    #[derive(Deserialize)]
    pub struct NarrowPose {
        pub x: f32,
    }
    #[derive(Deserialize)]
    pub struct Length {
        pub covariance: [f64; 3],
    }
    #[derive(Deserialize)]
    pub struct InList {
        pub parts: Vec<InListPart>,
    }
    #[derive(Deserialize)]
    pub struct InListPart {
        pub name: u32,
    }
}

#[test]
fn a_field_that_does_not_fit_is_named_before_any_message_is_read() {
    let text = "Pose pose\nfloat64[4] covariance\nPart[] parts\nuint16 small\n===\n\
        MSG: p/Pose\nfloat64 x\nfloat64 y\n===\nMSG: p/Part\nstring name\n";
    let channel = ros2("/p", "p/msg/P", text);
    let (path, text) = misfit::<wrong::Missing>(&channel);
    assert_eq!(path, "pose.orientation");
    assert!(text.contains("/p") && text.contains("p/msg/P"), "{text}");
    let (path, text) = misfit::<wrong::Kind>(&channel);
    assert_eq!(path, "pose.x");
    assert!(text.contains("float64"), "{text}");
    assert_eq!(misfit::<wrong::Narrow>(&channel).0, "pose.x");
    let (path, text) = misfit::<wrong::Length>(&channel);
    assert_eq!(path, "covariance");
    assert!(text.contains('4') && text.contains('3'), "{text}");
    assert_eq!(misfit::<wrong::InList>(&channel).0, "parts[0].name");
}

#[derive(Debug, Deserialize)]
struct Loose {
    /// A struct of numbers as an array.
    pose: [f64; 2],
    /// A list that must have two elements in each message.
    pair: [u8; 2],
    #[serde(default)]
    later: u32,
    maybe: Option<f64>,
}

#[test]
fn arrays_options_and_defaults_are_what_serde_makes_of_them() {
    let text = "Pose pose\nuint32[] pair\n===\nMSG: p/Pose\nfloat64 x\nfloat64 y\n";
    let channel = ros2("/p", "p/msg/P", text);
    let mut decoder = TypedDecoder::<Loose>::new(&channel).expect("fits");
    let payload = |pair: &[u32]| {
        let mut body = [1.5f64, 2.5].map(f64::to_le_bytes).concat();
        body.extend((pair.len() as u32).to_le_bytes());
        body.extend(pair.iter().flat_map(|word| word.to_le_bytes()));
        cdr(&body)
    };
    let found = decoder.decode(&payload(&[3, 4])).expect("decodes");
    assert_eq!((found.pose, found.pair), ([1.5, 2.5], [3, 4]));
    assert_eq!((found.later, found.maybe), (0, None));
    // What does not fit in one message is an error of that message, and named.
    for bad in [&[3, 300][..], &[3], &[3, 4, 5]] {
        let error = decoder.decode(&payload(bad)).expect_err("does not fit");
        assert!(error.to_string().contains("pair"), "{bad:?}: {error}");
    }
    assert!(decoder.decode(&payload(&[1, 2])).is_ok());
}

#[test]
fn only_the_fields_of_the_struct_are_decoded_and_maps_are_maps() {
    #[derive(Debug, Deserialize)]
    struct Named {
        counts: BTreeMap<String, u8>,
    }
    let open = Channel {
        topic: "/m".to_owned(),
        message_encoding: "json".to_owned(),
        ..Channel::default()
    };
    let source = recording(&[(&open, br#"{"counts":{"a":1,"b":2},"x":[]}"#.to_vec())]);
    let mut found = messages::<Named>(&source, &Query::all()).expect("fits");
    let found = found.next().expect("one").expect("decodes");
    assert_eq!(found.message.counts.len(), 2);
    let error = messages::<Named>(&source, &Query::topics(["/none"])).err();
    assert!(matches!(error, Some(TypedError::NoSuchTopic { .. })));
}
