//! Any bytes against any schema: what the fuzz targets and the quick tests run alike.

use std::sync::{Arc, LazyLock};

use asof_core::{Channel, Schema, Stamp};
use asof_decode::{Decoder, Layers, Payload, Projection, Timed};

use super::flavours::{Flavour, Types};
use super::{channel, fields, ros2, types};

/// Every kind of channel that there is, with a good payload for each.
pub static CHANNELS: LazyLock<Vec<(Channel, Vec<u8>)>> = LazyLock::new(channels);

fn channels() -> Vec<(Channel, Vec<u8>)> {
    let mut all: Vec<(Channel, Vec<u8>)> = Vec::new();
    let foxglove = Types::parse(types::FOXGLOVE);
    for name in ["FrameTransforms", "PointCloud", "JointStates", "LaserScan"] {
        let name = format!("foxglove/{name}");
        for flavour in [Flavour::Protobuf, Flavour::Json, Flavour::Flatbuffer] {
            all.push(foxglove.sample(&name, flavour, 7));
        }
    }
    let ros = Types::parse(types::ROS);
    for name in [
        "sensor_msgs/Imu",
        "visualization_msgs/MarkerArray",
        "sensor_msgs/PointCloud2",
        "sensor_msgs/JointState",
    ] {
        for flavour in [Flavour::Ros1, Flavour::Ros2] {
            all.push(ros.sample(name, flavour, 7));
        }
    }
    all.push((
        ros2("/w", "p/msg/W", "wstring[] w\nE[] e\n===\nMSG: p/E\n"),
        vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ));
    let idl = "union U switch (long) { case 1: long a; default: string b; };\
        @mutable struct M { U u; @optional sequence<U> v; map<long, string> m; wstring w; long g[2][3]; };";
    let plain =
        "module p { module msg { struct S { double x; sequence<long, 4> n; string<8> s; }; }; };";
    let plain_payload = [&[0, 1, 0, 0][..], &[0; 16], &[1, 0, 0, 0, 0]].concat();
    all.push((
        channel("/i", "cdr", "M", "omgidl", idl.as_bytes()),
        vec![0, 0x0b, 0, 0, 0, 0, 0, 0],
    ));
    all.push((
        channel("/p", "cdr", "p/msg/S", "ros2idl", plain.as_bytes()),
        plain_payload,
    ));
    let without_schema = |encoding: &str, payload: &[u8]| {
        let channel = Channel {
            topic: "/c".into(),
            message_encoding: encoding.into(),
            ..Channel::default()
        };
        (channel, payload.to_vec())
    };
    all.push(without_schema("cbor", b"\xa2\x61a\x01\x61b\x82\x02\x03"));
    all.push(without_schema(
        "json",
        br#"{"a":1,"b":[2,{"c":"d"}],"e":null}"#,
    ));
    all.push((recursive(), vec![0x1a, 4, 0x1a, 2, 0x10, 9]));
    all
}

/// A protobuf type with an enum, a map, and itself within itself.
fn recursive() -> Channel {
    use prost::Message;
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{
        DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
        FileDescriptorProto, FileDescriptorSet, MessageOptions,
    };
    let field =
        |name: &str, number, kind: Type, type_name: &str, label: Label| FieldDescriptorProto {
            name: Some(name.into()),
            number: Some(number),
            r#type: Some(kind as i32),
            type_name: (!type_name.is_empty()).then(|| type_name.into()),
            label: Some(label as i32),
            ..Default::default()
        };
    let one = Label::Optional;
    let many = Label::Repeated;
    let file = FileDescriptorProto {
        name: Some("t.proto".into()),
        package: Some("t".into()),
        syntax: Some("proto3".into()),
        enum_type: vec![EnumDescriptorProto {
            name: Some("Color".into()),
            value: vec![EnumValueDescriptorProto {
                name: Some("RED".into()),
                number: Some(0),
                ..Default::default()
            }],
            ..Default::default()
        }],
        message_type: vec![DescriptorProto {
            name: Some("Thing".into()),
            field: vec![
                field("color", 1, Type::Enum, ".t.Color", one),
                field("count", 2, Type::Uint64, "", one),
                field("child", 3, Type::Message, ".t.Thing", one),
                field("samples", 4, Type::Sint32, "", many),
                field("name", 5, Type::String, "", one),
                field("by_name", 6, Type::Message, ".t.Thing.ByNameEntry", many),
            ],
            nested_type: vec![DescriptorProto {
                name: Some("ByNameEntry".into()),
                field: vec![
                    field("key", 1, Type::String, "", one),
                    field("value", 2, Type::Double, "", one),
                ],
                options: Some(MessageOptions {
                    map_entry: Some(true),
                    ..Default::default()
                }),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let set = FileDescriptorSet { file: vec![file] }.encode_to_vec();
    channel("/thing", "protobuf", "t.Thing", "protobuf", &set)
}

/// For a fuzz target: the first byte chooses one of the channels of an encoding, the rest is a payload.
pub fn any_payload(encoding: &str, bytes: &[u8]) {
    let fitting: Vec<_> = CHANNELS
        .iter()
        .filter(|(channel, _)| channel.message_encoding == encoding)
        .collect();
    let Some((&choice, payload)) = bytes.split_first() else {
        return;
    };
    let (channel, good) = fitting[choice as usize % fitting.len()];
    let mut decoder = decoder_of(channel, good);
    run_decoder(&mut decoder, &[good, payload, good, payload]);
    fields::compare(channel, &mut decoder, payload);
    run_layers(channel, good, payload);
}

/// For a fuzz target: the first byte chooses one of the channels of a schema language, the rest is a schema.
pub fn any_schema(languages: &[&str], bytes: &[u8]) {
    let fitting: Vec<_> = CHANNELS
        .iter()
        .filter(|(channel, _)| {
            let schema = channel.schema.as_ref();
            schema.is_some_and(|schema| languages.contains(&schema.encoding.as_str()))
        })
        .collect();
    let Some((&choice, data)) = bytes.split_first() else {
        return;
    };
    let (channel, good) = fitting[choice as usize % fitting.len()];
    run_layers(&with_schema(channel, data), good, good);
}

/// Inputs to start from, for the target of this name: `payload_cdr`, `schema_idl`.
pub fn seeds(is_wanted: impl Fn(&Channel) -> bool, is_schema: bool) -> Vec<Vec<u8>> {
    let fitting = CHANNELS.iter().filter(|(channel, _)| is_wanted(channel));
    fitting
        .enumerate()
        .map(|(at, (channel, good))| {
            let data = match &channel.schema {
                Some(schema) if is_schema => &schema.data[..],
                _ => good,
            };
            [&[at as u8], data].concat()
        })
        .collect()
}

pub fn with_schema(channel: &Channel, data: &[u8]) -> Channel {
    let known = channel.schema.as_deref().cloned().unwrap_or_default();
    let schema = Schema {
        data: data.to_vec().into(),
        ..known
    };
    Channel {
        schema: Some(schema.into()),
        ..channel.clone()
    }
}

pub fn decoder_of(channel: &Channel, good: &[u8]) -> Decoder {
    Decoder::new(channel, &Projection::All, &[good])
        .unwrap_or_else(|error| panic!("{} {}: {error}", channel.topic, channel.type_name()))
}

fn timed(bytes: &[u8]) -> Timed<'_> {
    (Stamp::EPOCH, Stamp::EPOCH, Payload::from(bytes))
}

/// Decodes payloads in every way that there is: each is a row or an error.
pub fn run_decoder(decoder: &mut Decoder, payloads: &[&[u8]]) {
    let run: Vec<_> = payloads.iter().map(|bytes| timed(bytes)).collect();
    let mut failed = 0;
    let before = decoder.rows();
    decoder.append(&run, |_, _| failed += 1);
    assert_eq!(decoder.rows() - before + failed, run.len());
    let mut out = Vec::new();
    for payload in payloads {
        out.clear();
        if decoder.write_json(payload, &mut out).is_ok() {
            assert!(
                serde_json::from_slice::<&serde_json::value::RawValue>(&out).is_ok(),
                "no JSON: {}",
                String::from_utf8_lossy(&out)
            );
        }
        let mut cells = 0;
        let decoded = decoder.cells(payload, |_| cells += 1);
        let names = decoded.map_or(0, |()| decoder.cell_names().len());
        assert_eq!(cells, names);
    }
    for pair in payloads.windows(2) {
        out.clear();
        let _ = decoder.write_json_between((pair[0], pair[1]), 0.5, &mut out);
    }
    decoder.take().expect("Arrow takes it");
}

/// Offers a channel to the layers, and gives the payload to the one that takes it.
pub fn run_layers(channel: &Channel, sample: &[u8], payload: &[u8]) {
    let shared = Arc::new(channel.clone());
    let (_, table) = Layers::standard().assign(&shared, &Projection::All, &[sample]);
    let mut table = table.expect("raw takes what nobody else does");
    table.append(&[timed(payload), timed(sample)], &mut |_, _| {});
    table.take().expect("Arrow takes it");
}
