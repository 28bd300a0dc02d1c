//! Foxglove messages in protobuf, and descriptor sets for them.

use std::sync::Arc;

use asof_core::{Channel, Message, Schema};
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet,
};

use super::files::{Noise, message};

/// Messages of the schemas that are used: name, then fields as `number type name`, `*` for repeated.
const MESSAGES: &[(&str, &str)] = &[
    ("Time", "1 int64 seconds;2 int32 nanos"),
    ("Vector3", "1 double x;2 double y;3 double z"),
    ("Quaternion", "1 double x;2 double y;3 double z;4 double w"),
    ("Pose", "1 Vector3 position;2 Quaternion orientation"),
    (
        "FrameTransform",
        "1 Time timestamp;2 string parent_frame_id;3 string child_frame_id;4 Vector3 translation;5 Quaternion rotation",
    ),
    ("FrameTransforms", "1 *FrameTransform transforms"),
    (
        "PoseInFrame",
        "1 Time timestamp;2 string frame_id;3 Pose pose",
    ),
    (
        "LocationFix",
        "1 Time timestamp;2 string frame_id;3 double latitude;4 double longitude;5 double altitude;6 *double position_covariance;7 enum position_covariance_type",
    ),
    (
        "Log",
        "1 Time timestamp;2 enum level;3 string message;4 string name;5 string file;6 fixed32 line",
    ),
    (
        "JointState",
        "1 string name;2 double position;3 double velocity;4 double effort",
    ),
    ("JointStates", "1 Time timestamp;2 *JointState joints"),
    (
        "PackedElementField",
        "1 string name;2 fixed32 offset;3 enum type",
    ),
    (
        "PointCloud",
        "1 Time timestamp;2 string frame_id;3 Pose pose;4 fixed32 point_stride;5 *PackedElementField fields;6 bytes data",
    ),
    (
        "RawImage",
        "1 Time timestamp;7 string frame_id;2 fixed32 width;3 fixed32 height;4 string encoding;5 fixed32 step;6 bytes data",
    ),
    (
        "CompressedImage",
        "1 Time timestamp;4 string frame_id;2 bytes data;3 string format",
    ),
];

fn descriptor_set() -> Vec<u8> {
    let message = |(name, fields): &(&str, &str)| DescriptorProto {
        name: Some((*name).to_owned()),
        field: fields.split(';').map(field).collect(),
        ..DescriptorProto::default()
    };
    let timestamp = FileDescriptorProto {
        name: Some("google/protobuf/timestamp.proto".to_owned()),
        package: Some("google.protobuf".to_owned()),
        message_type: vec![DescriptorProto {
            name: Some("Timestamp".to_owned()),
            field: vec![field("1 int64 seconds"), field("2 int32 nanos")],
            ..DescriptorProto::default()
        }],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    let values = (0..6).map(|number| EnumValueDescriptorProto {
        name: Some(format!("KIND_{number}")),
        number: Some(number),
        ..EnumValueDescriptorProto::default()
    });
    let file = FileDescriptorProto {
        name: Some("foxglove/all.proto".to_owned()),
        package: Some("foxglove".to_owned()),
        dependency: vec!["google/protobuf/timestamp.proto".to_owned()],
        message_type: MESSAGES.iter().skip(1).map(message).collect(),
        enum_type: vec![EnumDescriptorProto {
            name: Some("Kind".to_owned()),
            value: values.collect(),
            ..EnumDescriptorProto::default()
        }],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet {
        file: vec![timestamp, file],
    }
    .encode_to_vec()
}

fn field(text: &str) -> FieldDescriptorProto {
    let mut parts = text.split(' ');
    let number = parts.next().and_then(|n| n.parse().ok());
    let kind = parts.next().unwrap_or_default();
    let name = parts.next().unwrap_or_default();
    let (kind, label) = match kind.strip_prefix('*') {
        Some(kind) => (kind, Label::Repeated),
        None => (kind, Label::Optional),
    };
    let (code, type_name) = match kind {
        "double" => (Type::Double, None),
        "int64" => (Type::Int64, None),
        "int32" => (Type::Int32, None),
        "fixed32" => (Type::Fixed32, None),
        "string" => (Type::String, None),
        "bytes" => (Type::Bytes, None),
        "enum" => (Type::Enum, Some(".foxglove.Kind".to_owned())),
        "Time" => (Type::Message, Some(".google.protobuf.Timestamp".to_owned())),
        other => (Type::Message, Some(format!(".foxglove.{other}"))),
    };
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number,
        label: Some(label as i32),
        r#type: Some(code as i32),
        type_name,
        ..FieldDescriptorProto::default()
    }
}

fn channel(topic: &str, name: &str, set: &[u8]) -> Arc<Channel> {
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "protobuf".to_owned(),
        schema: Some(Arc::new(Schema {
            name: format!("foxglove.{name}"),
            encoding: "protobuf".to_owned(),
            data: set.to_vec().into(),
        })),
        ..Channel::default()
    })
}

#[derive(Default)]
struct Wire(Vec<u8>);

impl Wire {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
        self
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn fixed32(mut self, field: u64, value: u32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
}

fn time(nanos: i64) -> Vec<u8> {
    let wire = Wire::default().number(1, (nanos / 1_000_000_000) as u64);
    wire.number(2, (nanos % 1_000_000_000) as u64).0
}

fn vector(noise: &mut Noise, steps: f64) -> Vec<u8> {
    let wire = Wire::default().double(1, noise.float(steps));
    wire.double(2, noise.float(steps))
        .double(3, noise.float(steps))
        .0
}

fn quaternion(noise: &mut Noise) -> Vec<u8> {
    let (sin, cos) = noise.float(2048.0).sin_cos();
    Wire::default()
        .double(1, 0.0)
        .double(2, 0.0)
        .double(3, sin)
        .double(4, cos)
        .0
}

const FRAMES: [&str; 9] = [
    "map",
    "odom",
    "base_link",
    "arm_base",
    "arm_1",
    "arm_2",
    "arm_3",
    "gripper",
    "head",
];

/// FrameTransforms of 8, PoseInFrame, LocationFix, Log, JointStates of 12, in turns.
pub fn small(count: u32) -> impl Iterator<Item = Message> {
    let set = descriptor_set();
    let channels = [
        channel("/tf", "FrameTransforms", &set),
        channel("/pose", "PoseInFrame", &set),
        channel("/fix", "LocationFix", &set),
        channel("/log", "Log", &set),
        channel("/joints", "JointStates", &set),
    ];
    let mut noise = Noise(11);
    let start = asof_demo::DemoOptions::default().start;
    (0..count).map(move |at| {
        let stamp = start.plus_nanos(i64::from(at) * 1_000_000);
        let time = time(stamp.nanos());
        let kind = at as usize % 5;
        let payload = match kind {
            0 => FRAMES.windows(2).fold(Wire::default(), |wire, pair| {
                let one = Wire::default()
                    .bytes(1, &time)
                    .bytes(2, pair[0].as_bytes())
                    .bytes(3, pair[1].as_bytes())
                    .bytes(4, &vector(&mut noise, 8192.0))
                    .bytes(5, &quaternion(&mut noise));
                wire.bytes(1, &one.0)
            }),
            1 => {
                let pose = Wire::default()
                    .bytes(1, &vector(&mut noise, 8192.0))
                    .bytes(2, &quaternion(&mut noise));
                Wire::default()
                    .bytes(1, &time)
                    .bytes(2, b"map")
                    .bytes(3, &pose.0)
            }
            2 => {
                let covariance: Vec<u8> = (0..9)
                    .flat_map(|at| f64::from(at % 4 == 0).to_le_bytes())
                    .collect();
                Wire::default()
                    .bytes(1, &time)
                    .bytes(2, b"gps")
                    .double(3, 48.1 + noise.float(1e5) / 1e3)
                    .double(4, 11.5 + noise.float(1e5) / 1e3)
                    .double(5, 520.0 + noise.float(100.0))
                    .bytes(6, &covariance)
                    .number(7, 2)
            }
            3 => Wire::default()
                .bytes(1, &time)
                .number(2, noise.next() % 5 + 1)
                .bytes(
                    3,
                    format!(
                        "waypoint {} reached after {} ms",
                        at % 97,
                        noise.next() % 5000
                    )
                    .as_bytes(),
                )
                .bytes(4, b"navigator")
                .bytes(5, b"src/navigator.cpp")
                .fixed32(6, 217),
            _ => (0..12).fold(Wire::default().bytes(1, &time), |wire, joint| {
                let one = Wire::default()
                    .bytes(1, format!("joint_{joint:02}").as_bytes())
                    .double(2, noise.float(4096.0))
                    .double(3, noise.float(256.0))
                    .double(4, noise.float(64.0));
                wire.bytes(2, &one.0)
            }),
        };
        message(&channels[kind], stamp, at, payload.0)
    })
}

/// PointCloud, RawImage and CompressedImage, in turns.
pub fn large(count: u32) -> impl Iterator<Item = Message> {
    let set = descriptor_set();
    let channels = [
        channel("/points", "PointCloud", &set),
        channel("/image", "RawImage", &set),
        channel("/jpeg", "CompressedImage", &set),
    ];
    let mut noise = Noise(12);
    let start = asof_demo::DemoOptions::default().start;
    (0..count).map(move |at| {
        let stamp = start.plus_nanos(i64::from(at) * 33_000_000);
        let time = time(stamp.nanos());
        let kind = at as usize % 3;
        let wire = Wire::default().bytes(1, &time);
        let payload = match kind {
            0 => {
                let data: Vec<u8> = (0..65_536u32)
                    .flat_map(|point| {
                        let range =
                            4.0 + f64::from(point % 640) / 100.0 + noise.float(512.0) / 20.0;
                        [
                            range as f32,
                            (range * 0.5) as f32,
                            noise.float(128.0) as f32,
                            17.0,
                        ]
                    })
                    .flat_map(f32::to_le_bytes)
                    .collect();
                let fields = ["x", "y", "z", "intensity"].into_iter().enumerate();
                let wire = wire.bytes(2, b"lidar").fixed32(4, 16);
                let wire = fields.fold(wire, |wire, (at, name)| {
                    let one = Wire::default()
                        .bytes(1, name.as_bytes())
                        .fixed32(2, 4 * at as u32)
                        .number(3, 5);
                    wire.bytes(5, &one.0)
                });
                wire.bytes(6, &data)
            }
            1 => {
                let data: Vec<u8> = (0..1280 * 720u32)
                    .map(|pixel| {
                        ((pixel / 1280 + pixel % 1280) / 8) as u8 ^ (noise.next() & 7) as u8
                    })
                    .collect();
                wire.fixed32(2, 1280)
                    .fixed32(3, 720)
                    .bytes(4, b"mono8")
                    .fixed32(5, 1280)
                    .bytes(6, &data)
                    .bytes(7, b"camera")
            }
            _ => {
                let data: Vec<u8> = (0..150_000).map(|_| noise.next() as u8).collect();
                wire.bytes(2, &data).bytes(3, b"jpeg").bytes(4, b"camera")
            }
        };
        message(&channels[kind], stamp, at, payload.0)
    })
}
