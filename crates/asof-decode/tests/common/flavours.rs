//! One definition of a type in every flavour, and one value of it in every encoding.

use std::collections::BTreeMap;
use std::fmt::Write;

use asof_core::Channel;
use base64::Engine;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use super::channel;
use super::flat::{self, Flat};

/// A flavour in which a type is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    Ros1,
    Ros2,
    Protobuf,
    Json,
    Flatbuffer,
}

/// What a field holds.
#[derive(Debug, Clone)]
enum Kind {
    /// A number, a truth value or a text, by its name in ROS.
    Plain(String),
    Time,
    Duration,
    Bytes,
    Struct(String),
    List(Box<Kind>, Option<usize>),
}

/// A value, whatever flavour it is written in.
#[derive(Debug, Clone)]
enum Value {
    Float(f64),
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
    Time(u32, u32),
    List(Vec<Value>),
    Struct(Vec<Value>),
}

/// Types by their names.
pub struct Types(BTreeMap<String, Vec<(String, Kind)>>);

impl Types {
    /// Reads definitions, one a line.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty());
        Types(lines.map(definition).collect())
    }

    /// The names, as `package/Type`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A channel of this type, and a payload; `seed` chooses what is in it.
    pub fn sample(&self, name: &str, flavour: Flavour, seed: u64) -> (Channel, Vec<u8>) {
        let value = self.value(&Kind::Struct(name.to_owned()), &mut (seed | 1));
        let (package, short) = name.split_once('/').expect("a package");
        let dotted = format!("{package}.{short}");
        let ros_package = package.replace("foxglove", "foxglove_msgs");
        match flavour {
            Flavour::Ros1 | Flavour::Ros2 => {
                let is_ros2 = flavour == Flavour::Ros2;
                let mut writer = Ros {
                    types: self,
                    is_ros2,
                    out: Vec::new(),
                };
                writer.put(&Kind::Struct(name.to_owned()), &value);
                let text = self.ros_text(name, is_ros2);
                if is_ros2 {
                    let name = format!("{ros_package}/msg/{short}");
                    let channel = channel("/t", "cdr", &name, "ros2msg", text.as_bytes());
                    (channel, [vec![0, 1, 0, 0], writer.out].concat())
                } else {
                    let name = format!("{ros_package}/{short}");
                    let channel = channel("/t", "ros1", &name, "ros1msg", text.as_bytes());
                    (channel, writer.out)
                }
            }
            Flavour::Protobuf => {
                let mut out = Vec::new();
                self.put_protobuf(name, &value, &mut out);
                let set = self.descriptors(name).encode_to_vec();
                (channel("/t", "protobuf", &dotted, "protobuf", &set), out)
            }
            Flavour::Json => {
                let schema = self.json_schema(&Kind::Struct(name.to_owned()));
                let mut out = String::new();
                self.put_json(&Kind::Struct(name.to_owned()), &value, &mut out);
                let channel = channel("/t", "json", &dotted, "jsonschema", schema.as_bytes());
                (channel, out.into_bytes())
            }
            Flavour::Flatbuffer => {
                let bfbs = self.bfbs(name);
                let root = self.flat(&Kind::Struct(name.to_owned()), &value);
                let channel = channel("/t", "flatbuffer", &dotted, "flatbuffer", &bfbs);
                (channel, flat::buffer(&root, *b"\0\0\0\0"))
            }
        }
    }

    fn fields(&self, name: &str) -> &[(String, Kind)] {
        self.0.get(name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The type and all that it is made of, the type first.
    fn used(&self, name: &str) -> Vec<String> {
        let mut found = vec![name.to_owned()];
        let mut at = 0;
        while at < found.len() {
            for (_, kind) in self.fields(&found[at].clone()) {
                let mut kind = kind;
                while let Kind::List(item, _) = kind {
                    kind = item;
                }
                if let Kind::Struct(inner) = kind
                    && !found.contains(inner)
                {
                    found.push(inner.clone());
                }
            }
            at += 1;
        }
        found
    }

    /// Numbers that every encoding holds exactly, each another one.
    fn value(&self, kind: &Kind, next: &mut u64) -> Value {
        *next = next
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let random = *next >> 40;
        match kind {
            Kind::Plain(name) => match name.as_str() {
                "float32" | "float64" => Value::Float(random as f64 / 1024.0 - 5000.0),
                "string" => Value::Text(format!("text {random}")),
                "bool" => Value::Integer((random & 1) as i64),
                _ => Value::Integer((random % 100) as i64 + 1),
            },
            Kind::Time => Value::Time(1_700_000_000 + random as u32, random as u32 * 50),
            Kind::Duration => Value::Time(random as u32 % 60, random as u32 * 50),
            Kind::Bytes => Value::Bytes((0..40).map(|n| (random + n) as u8).collect()),
            Kind::Struct(name) => {
                let fields = self.fields(name).iter();
                Value::Struct(fields.map(|(_, kind)| self.value(kind, next)).collect())
            }
            Kind::List(item, len) => {
                let len = len.unwrap_or(2 + random as usize % 3);
                Value::List((0..len).map(|_| self.value(item, next)).collect())
            }
        }
    }

    fn ros_text(&self, name: &str, is_ros2: bool) -> String {
        let mut text = String::new();
        for (at, used) in self.used(name).iter().enumerate() {
            if at > 0 {
                let used = used.replace("foxglove/", "foxglove_msgs/");
                let _ = writeln!(text, "================\nMSG: {used}");
            }
            if used == "std_msgs/Header" && !is_ros2 {
                text.push_str("uint32 seq\n");
            }
            for (field, kind) in self.fields(used) {
                let _ = writeln!(text, "{} {field}", ros_kind(kind, is_ros2));
            }
        }
        if is_ros2 {
            for (name, first) in [("Time", "int32 sec"), ("Duration", "int32 sec")] {
                let _ = writeln!(
                    text,
                    "================\nMSG: builtin_interfaces/{name}\n{first}\nuint32 nanosec"
                );
            }
        }
        text
    }

    fn put_protobuf(&self, name: &str, value: &Value, out: &mut Vec<u8>) {
        let Value::Struct(values) = value else {
            return;
        };
        for (number, ((_, kind), value)) in self.fields(name).iter().zip(values).enumerate() {
            self.put_protobuf_field(number as u64 + 1, kind, value, out);
        }
    }

    fn put_protobuf_field(&self, number: u64, kind: &Kind, value: &Value, out: &mut Vec<u8>) {
        let mut inner = Vec::new();
        match (kind, value) {
            (Kind::List(item, _), Value::List(values)) => {
                let is_packed = matches!(&**item, Kind::Plain(name) if name != "string");
                if !is_packed {
                    for value in values {
                        self.put_protobuf_field(number, item, value, out);
                    }
                    return;
                }
                for value in values {
                    put_number(item, value, &mut inner);
                }
            }
            (Kind::Struct(name), value) => self.put_protobuf(name, value, &mut inner),
            (_, Value::Time(seconds, nanos)) => {
                for (number, part) in [(1, *seconds), (2, *nanos)] {
                    varint(number << 3, &mut inner);
                    varint(u64::from(part), &mut inner);
                }
            }
            (_, Value::Text(text)) => inner.extend_from_slice(text.as_bytes()),
            (_, Value::Bytes(bytes)) => inner.extend_from_slice(bytes),
            _ => {
                let wire = match kind {
                    Kind::Plain(name) if name == "float64" => 1,
                    Kind::Plain(name) if name == "float32" => 5,
                    _ => 0,
                };
                varint(number << 3 | wire, out);
                put_number(kind, value, out);
                return;
            }
        }
        varint(number << 3 | 2, out);
        varint(inner.len() as u64, out);
        out.extend(inner);
    }

    fn descriptors(&self, name: &str) -> FileDescriptorSet {
        let package = name.split('/').next().unwrap_or_default();
        let messages = self.used(name).into_iter().map(|used| DescriptorProto {
            name: used.split('/').nth(1).map(str::to_owned),
            field: self
                .fields(&used)
                .iter()
                .enumerate()
                .map(|(at, (field, kind))| proto_field(field, at as i32 + 1, kind))
                .collect(),
            ..Default::default()
        });
        let part = |name: &str, number, kind: Type| FieldDescriptorProto {
            name: Some(name.into()),
            number: Some(number),
            r#type: Some(kind as i32),
            label: Some(Label::Optional as i32),
            ..Default::default()
        };
        let known = |file: &str, message: &str| FileDescriptorProto {
            name: Some(format!("google/protobuf/{file}.proto")),
            package: Some("google.protobuf".into()),
            syntax: Some("proto3".into()),
            message_type: vec![DescriptorProto {
                name: Some(message.into()),
                field: vec![
                    part("seconds", 1, Type::Int64),
                    part("nanos", 2, Type::Int32),
                ],
                ..Default::default()
            }],
            ..Default::default()
        };
        let own = FileDescriptorProto {
            name: Some("all.proto".into()),
            package: Some(package.into()),
            syntax: Some("proto3".into()),
            dependency: vec![
                "google/protobuf/timestamp.proto".into(),
                "google/protobuf/duration.proto".into(),
            ],
            message_type: messages.collect(),
            ..Default::default()
        };
        FileDescriptorSet {
            file: vec![
                known("timestamp", "Timestamp"),
                known("duration", "Duration"),
                own,
            ],
        }
    }

    fn json_schema(&self, kind: &Kind) -> String {
        match kind {
            Kind::Plain(name) => match name.as_str() {
                "float32" | "float64" => r#"{"type":"number"}"#.to_owned(),
                "string" => r#"{"type":"string"}"#.to_owned(),
                "bool" => r#"{"type":"boolean"}"#.to_owned(),
                _ => r#"{"type":"integer"}"#.to_owned(),
            },
            Kind::Time | Kind::Duration => {
                r#"{"type":"object","properties":{"sec":{"type":"integer"},"nsec":{"type":"integer"}}}"#
                    .to_owned()
            }
            Kind::Bytes => r#"{"type":"string","contentEncoding":"base64"}"#.to_owned(),
            Kind::List(item, _) => {
                format!(r#"{{"type":"array","items":{}}}"#, self.json_schema(item))
            }
            Kind::Struct(name) => {
                let fields = self.fields(name).iter();
                let fields: Vec<String> = fields
                    .map(|(field, kind)| format!("\"{field}\":{}", self.json_schema(kind)))
                    .collect();
                format!(
                    r#"{{"type":"object","properties":{{{}}}}}"#,
                    fields.join(",")
                )
            }
        }
    }

    fn put_json(&self, kind: &Kind, value: &Value, out: &mut String) {
        let mut list = |open: char, close: char, parts: Vec<String>| {
            out.push(open);
            out.push_str(&parts.join(","));
            out.push(close);
        };
        let inner = |kind: &Kind, value: &Value| {
            let mut text = String::new();
            self.put_json(kind, value, &mut text);
            text
        };
        let is_bool = matches!(kind, Kind::Plain(name) if name == "bool");
        match (kind, value) {
            (Kind::Struct(name), Value::Struct(values)) => {
                let fields = self.fields(name).iter().zip(values);
                let parts = fields.map(|((f, k), v)| format!("\"{f}\":{}", inner(k, v)));
                list('{', '}', parts.collect());
            }
            (Kind::List(item, _), Value::List(values)) => {
                list('[', ']', values.iter().map(|v| inner(item, v)).collect());
            }
            (_, Value::Time(sec, nsec)) => {
                list('{', '}', vec![format!("\"sec\":{sec},\"nsec\":{nsec}")]);
            }
            (_, Value::Text(text)) => {
                let _ = write!(out, "{text:?}");
            }
            (_, Value::Bytes(bytes)) => {
                let text = base64::engine::general_purpose::STANDARD.encode(bytes);
                let _ = write!(out, "\"{text}\"");
            }
            (_, Value::Float(float)) => {
                let _ = write!(out, "{float:?}");
            }
            (_, Value::Integer(integer)) if is_bool => {
                out.push_str(if *integer == 0 { "false" } else { "true" });
            }
            (_, Value::Integer(integer)) => out.push_str(&integer.to_string()),
            (_, Value::Struct(_) | Value::List(_)) => {}
        }
    }

    /// The schema in FlatBuffers' own schema, by the slots of `reflection.fbs`.
    fn bfbs(&self, name: &str) -> Vec<u8> {
        let used = self.used(name);
        let dotted = |name: &str| Some(Flat::Text(name.replace('/', ".")));
        let time = used.len() as i32;
        let base = |kind: &Kind| match kind {
            Kind::Plain(name) => (flat_base(name), -1),
            Kind::Time => (15, time),
            Kind::Duration => (15, time + 1),
            Kind::Struct(name) => (15, used.iter().position(|u| u == name).unwrap_or(0) as i32),
            Kind::Bytes | Kind::List(..) => (14, -1),
        };
        let kind_table = |kind: &Kind| {
            let (own, mut index) = base(kind);
            let element = match kind {
                Kind::Bytes => 4,
                Kind::List(item, _) => {
                    let (element, place) = base(item);
                    index = place;
                    element
                }
                _ => 0,
            };
            Flat::Table(vec![
                Some(Flat::U8(own)),
                Some(Flat::U8(element)),
                Some(Flat::I32(index)),
            ])
        };
        let field = |name: &str, kind: &Kind, id: u16, offset: u16| {
            Flat::Table(vec![
                Some(Flat::Text(name.to_owned())),
                Some(kind_table(kind)),
                Some(Flat::U16(id)),
                Some(Flat::U16(offset)),
            ])
        };
        let mut objects = Vec::new();
        for used in &used {
            let fields = self.fields(used).iter().enumerate();
            let fields = fields
                .map(|(at, (name, kind))| field(name, kind, at as u16, 4 + 2 * at as u16))
                .collect();
            objects.push(Flat::Table(vec![
                dotted(used),
                Some(Flat::Tables(fields)),
                Some(Flat::U8(0)),
            ]));
        }
        for (name, first) in [("Time", "uint32"), ("Duration", "int32")] {
            let fields = vec![
                field("sec", &Kind::Plain(first.into()), 0, 0),
                field("nsec", &Kind::Plain("uint32".into()), 1, 4),
            ];
            objects.push(Flat::Table(vec![
                Some(Flat::Text(format!("foxglove.{name}"))),
                Some(Flat::Tables(fields)),
                Some(Flat::U8(1)),
                Some(Flat::I32(4)),
                Some(Flat::I32(8)),
            ]));
        }
        let schema = Flat::Table(vec![
            Some(Flat::Tables(objects)),
            Some(Flat::Tables(Vec::new())),
            None,
            None,
            Some(Flat::Table(vec![dotted(name)])),
        ]);
        flat::buffer(&schema, *b"BFBS")
    }

    fn flat(&self, kind: &Kind, value: &Value) -> Flat {
        match (kind, value) {
            (Kind::Struct(name), Value::Struct(values)) => {
                let fields = self.fields(name).iter().zip(values);
                Flat::Table(fields.map(|((_, k), v)| Some(self.flat(k, v))).collect())
            }
            (Kind::List(item, _), Value::List(values)) => {
                let items = values.iter().map(|value| self.flat(item, value)).collect();
                match &**item {
                    Kind::Plain(name) if name != "string" => Flat::Numbers(items),
                    Kind::Time | Kind::Duration => Flat::Numbers(items),
                    _ => Flat::Tables(items),
                }
            }
            (_, Value::Time(sec, nsec)) => Flat::Pair(*sec, *nsec),
            (_, Value::Text(text)) => Flat::Text(text.clone()),
            (_, Value::Bytes(bytes)) => Flat::Bytes(bytes.clone()),
            (Kind::Plain(name), Value::Float(float)) if name == "float32" => {
                Flat::F32(*float as f32)
            }
            (_, Value::Float(float)) => Flat::F64(*float),
            (Kind::Plain(name), Value::Integer(integer)) => match flat_base(name) {
                2..=4 => Flat::U8(*integer as u8),
                5 | 6 => Flat::U16(*integer as u16),
                7 | 8 => Flat::I32(*integer as i32),
                _ => Flat::I64(*integer),
            },
            other => panic!("{other:?}"),
        }
    }
}

fn definition(line: &str) -> (String, Vec<(String, Kind)>) {
    let (name, fields) = line.split_once(": ").expect("a name and its fields");
    let package = name.split('/').next().unwrap_or_default();
    let fields = fields.split(", ").map(|field| {
        let (kind, name) = field.split_once(' ').expect("a kind and a name");
        (name.to_owned(), kind_of(kind, package))
    });
    (name.to_owned(), fields.collect())
}

fn kind_of(text: &str, package: &str) -> Kind {
    if text == "uint8[]" {
        return Kind::Bytes;
    }
    if let Some((item, len)) = text.strip_suffix(']').and_then(|t| t.split_once('[')) {
        return Kind::List(Box::new(kind_of(item, package)), len.parse().ok());
    }
    match text {
        "time" => Kind::Time,
        "duration" => Kind::Duration,
        text if text.contains('/') => Kind::Struct(text.to_owned()),
        text if text.starts_with(char::is_uppercase) => Kind::Struct(format!("{package}/{text}")),
        text => Kind::Plain(text.to_owned()),
    }
}

fn ros_kind(kind: &Kind, is_ros2: bool) -> String {
    match kind {
        Kind::Plain(name) => name.clone(),
        Kind::Time if is_ros2 => "builtin_interfaces/Time".to_owned(),
        Kind::Duration if is_ros2 => "builtin_interfaces/Duration".to_owned(),
        Kind::Time => "time".to_owned(),
        Kind::Duration => "duration".to_owned(),
        Kind::Bytes => "uint8[]".to_owned(),
        Kind::Struct(name) => name.replace("foxglove/", "foxglove_msgs/"),
        Kind::List(item, Some(len)) => format!("{}[{len}]", ros_kind(item, is_ros2)),
        Kind::List(item, None) => format!("{}[]", ros_kind(item, is_ros2)),
    }
}

/// Writes ROS 1's serialization, or the body of XCDR1, both little-endian.
struct Ros<'a> {
    types: &'a Types,
    is_ros2: bool,
    out: Vec<u8>,
}

impl Ros<'_> {
    fn word(&mut self, bytes: &[u8]) {
        while self.is_ros2 && !self.out.len().is_multiple_of(bytes.len()) {
            self.out.push(0);
        }
        self.out.extend_from_slice(bytes);
    }

    fn len(&mut self, len: usize) {
        self.word(&(len as u32).to_le_bytes());
    }

    fn put(&mut self, kind: &Kind, value: &Value) {
        match (kind, value) {
            (Kind::Struct(name), Value::Struct(values)) => {
                if name == "std_msgs/Header" && !self.is_ros2 {
                    self.len(7);
                }
                let types = self.types;
                for ((_, kind), value) in types.fields(name).iter().zip(values) {
                    self.put(kind, value);
                }
            }
            (Kind::List(item, fixed), Value::List(values)) => {
                if fixed.is_none() {
                    self.len(values.len());
                }
                for value in values {
                    self.put(item, value);
                }
            }
            (_, Value::Bytes(bytes)) => {
                self.len(bytes.len());
                self.out.extend_from_slice(bytes);
            }
            (_, Value::Text(text)) => {
                self.len(text.len() + usize::from(self.is_ros2));
                self.out.extend_from_slice(text.as_bytes());
                if self.is_ros2 {
                    self.out.push(0);
                }
            }
            (_, Value::Time(sec, nsec)) => {
                self.word(&sec.to_le_bytes());
                self.word(&nsec.to_le_bytes());
            }
            (Kind::Plain(name), Value::Float(float)) if name == "float32" => {
                self.word(&(*float as f32).to_le_bytes());
            }
            (_, Value::Float(float)) => self.word(&float.to_le_bytes()),
            (Kind::Plain(name), Value::Integer(integer)) => {
                let width = match name.as_str() {
                    "int16" | "uint16" => 2,
                    "int32" | "uint32" => 4,
                    "int64" | "uint64" => 8,
                    _ => 1,
                };
                self.word(&integer.to_le_bytes()[..width]);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_number(kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    match (kind, value) {
        (Kind::Plain(name), Value::Float(float)) if name == "float32" => {
            out.extend((*float as f32).to_le_bytes());
        }
        (_, Value::Float(float)) => out.extend(float.to_le_bytes()),
        (_, Value::Integer(integer)) => varint(*integer as u64, out),
        other => panic!("{other:?}"),
    }
}

fn proto_field(name: &str, number: i32, kind: &Kind) -> FieldDescriptorProto {
    let (item, label) = match kind {
        Kind::List(item, _) => (&**item, Label::Repeated),
        kind => (kind, Label::Optional),
    };
    let (kind, type_name) = match item {
        Kind::Plain(name) => (
            match name.as_str() {
                "float64" => Type::Double,
                "float32" => Type::Float,
                "string" => Type::String,
                "bool" => Type::Bool,
                "uint64" => Type::Uint64,
                "int64" => Type::Int64,
                name if name.starts_with('u') => Type::Uint32,
                _ => Type::Int32,
            },
            None,
        ),
        Kind::Time => (Type::Message, Some(".google.protobuf.Timestamp".to_owned())),
        Kind::Duration => (Type::Message, Some(".google.protobuf.Duration".to_owned())),
        Kind::Struct(name) => (Type::Message, Some(format!(".{}", name.replace('/', ".")))),
        Kind::Bytes | Kind::List(..) => (Type::Bytes, None),
    };
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(label as i32),
        r#type: Some(kind as i32),
        type_name,
        ..Default::default()
    }
}

fn flat_base(name: &str) -> u8 {
    match name {
        "bool" => 2,
        "int8" => 3,
        "uint8" => 4,
        "int16" => 5,
        "uint16" => 6,
        "int32" => 7,
        "uint32" => 8,
        "int64" => 9,
        "uint64" => 10,
        "float32" => 11,
        "float64" => 12,
        _ => 13,
    }
}
