//! Protobuf: messages on the wire, and their descriptor sets.

use asof_core::Stamp;

use super::record::{Record, Value};
use super::types::{Field, Kind, Label, MessageType};

/// A message in protobuf's wire format.
pub(crate) fn encode(record: &Record<'_>) -> Vec<u8> {
    let mut wire = Wire::default();
    for (field, value) in record.kind.fields.iter().zip(&record.values) {
        write(&mut wire, field, value);
    }
    wire.bytes
}

/// A `FileDescriptorSet` with a type and its dependencies, `timestamp.proto` included.
pub(crate) fn descriptor_set(kind: &'static MessageType) -> Vec<u8> {
    let mut needed = Vec::new();
    collect(kind, &mut needed);
    let mut set = Wire::default();
    set.bytes(1, &timestamp_file().bytes);
    for kind in needed {
        set.bytes(1, &file(kind).bytes);
    }
    set.bytes
}

fn write(wire: &mut Wire, field: &Field, value: &Value<'_>) {
    let number = field.number;
    // In proto3, a plain field with its default value is omitted; an optional one is not.
    let is_plain = field.label == Label::One;
    match value {
        Value::Absent => {}
        Value::Double(value) if is_plain && value.to_bits() == 0 => {}
        Value::Double(value) => wire.fixed64(number, value.to_bits()),
        Value::Doubles(values) => {
            let packed: Vec<u8> = values.iter().flat_map(|one| one.to_le_bytes()).collect();
            if !packed.is_empty() {
                wire.bytes(number, &packed);
            }
        }
        Value::Integer(0) | Value::Boolean(false) if is_plain => {}
        Value::Integer(value) if matches!(field.kind, Kind::Fixed32) => {
            wire.fixed32(number, *value);
        }
        Value::Integer(value) => wire.number(number, u64::from(*value)),
        Value::Boolean(value) => wire.number(number, u64::from(*value)),
        Value::Text(text) if is_plain && text.is_empty() => {}
        Value::Text(text) => wire.bytes(number, text.as_bytes()),
        Value::Bytes(bytes) => wire.bytes(number, bytes),
        Value::Time(stamp) => wire.bytes(number, &timestamp(*stamp)),
        Value::Message(record) => wire.bytes(number, &encode(record)),
        Value::Messages(records) => {
            for record in records {
                wire.bytes(number, &encode(record));
            }
        }
    }
}

/// A `google.protobuf.Timestamp`.
fn timestamp(stamp: Stamp) -> Vec<u8> {
    let mut wire = Wire::default();
    let (seconds, nanos) = super::seconds_and_nanos(stamp);
    if seconds != 0 {
        wire.number(1, seconds.cast_unsigned());
    }
    if nanos != 0 {
        wire.number(2, u64::from(nanos));
    }
    wire.bytes
}

/// The dependencies of a type in topological order, itself last.
fn collect(kind: &'static MessageType, needed: &mut Vec<&'static MessageType>) {
    if needed.iter().any(|known| known.name == kind.name) {
        return;
    }
    for field in kind.fields {
        if let Kind::Message(part) = field.kind {
            collect(part, needed);
        }
    }
    needed.push(kind);
}

const TIMESTAMP_FILE: &str = "google/protobuf/timestamp.proto";

/// `google/protobuf/timestamp.proto` as a `FileDescriptorProto`.
fn timestamp_file() -> Wire {
    let mut seconds = Wire::default();
    describe(&mut seconds, "seconds", 1, 1, 3);
    let mut nanos = Wire::default();
    describe(&mut nanos, "nanos", 2, 1, 5);
    let mut message = Wire::default();
    message.text(1, "Timestamp");
    message.bytes(2, &seconds.bytes);
    message.bytes(2, &nanos.bytes);
    let mut file = Wire::default();
    file.text(1, TIMESTAMP_FILE);
    file.text(2, "google.protobuf");
    file.bytes(4, &message.bytes);
    file.text(12, "proto3");
    file
}

/// The file of one type: `foxglove/LaserScan.proto`, as a `FileDescriptorProto`.
fn file(kind: &MessageType) -> Wire {
    let (package, name) = kind.package_and_name();
    let mut file = Wire::default();
    file.text(1, &path(kind));
    file.text(2, package);
    let mut imports: Vec<String> = Vec::new();
    for field in kind.fields {
        let import = match field.kind {
            Kind::Message(part) => path(part),
            Kind::Time => TIMESTAMP_FILE.to_owned(),
            _ => continue,
        };
        if !imports.contains(&import) {
            imports.push(import);
        }
    }
    for import in imports {
        file.text(3, &import);
    }
    file.bytes(4, &message(kind, name).bytes);
    file.text(12, "proto3");
    file
}

fn path(kind: &MessageType) -> String {
    format!("{}.proto", kind.name.replace('.', "/"))
}

/// A `DescriptorProto`.
fn message(kind: &MessageType, name: &str) -> Wire {
    let mut message = Wire::default();
    message.text(1, name);
    let mut optionals = Vec::new();
    for field in kind.fields {
        message.bytes(2, &descriptor(kind, field, &mut optionals).bytes);
    }
    for field in kind.fields {
        if let Kind::Enum(values) = field.kind {
            let mut set = Wire::default();
            set.text(1, values.name);
            for (number, name) in values.values.iter().enumerate() {
                let mut value = Wire::default();
                value.text(1, name);
                value.number(2, number as u64);
                set.bytes(2, &value.bytes);
            }
            message.bytes(4, &set.bytes);
        }
    }
    // An optional field of proto3 is alone in a oneof that is named after it.
    for name in optionals {
        let mut oneof = Wire::default();
        oneof.text(1, &format!("_{name}"));
        message.bytes(8, &oneof.bytes);
    }
    message
}

/// A `FieldDescriptorProto`.
fn descriptor(kind: &MessageType, field: &Field, optionals: &mut Vec<&'static str>) -> Wire {
    let mut wire = Wire::default();
    let label = if field.label == Label::Many { 3 } else { 1 };
    let number = match field.kind {
        Kind::Double => 1,
        Kind::Fixed32 => 7,
        Kind::Bool => 8,
        Kind::Text => 9,
        Kind::Time | Kind::Message(_) => 11,
        Kind::Bytes => 12,
        Kind::Enum(_) => 14,
    };
    describe(&mut wire, field.name, field.number, label, number);
    match field.kind {
        Kind::Time => wire.text(6, ".google.protobuf.Timestamp"),
        Kind::Message(part) => wire.text(6, &format!(".{}", part.name)),
        Kind::Enum(values) => wire.text(6, &format!(".{}.{}", kind.name, values.name)),
        _ => {}
    }
    if field.label == Label::Optional {
        wire.number(9, optionals.len() as u64);
        wire.number(17, 1);
        optionals.push(field.name);
    }
    wire
}

/// Name, number, label and type: the fields of every `FieldDescriptorProto`.
fn describe(wire: &mut Wire, name: &str, number: u32, label: u64, kind: u64) {
    wire.text(1, name);
    wire.number(3, u64::from(number));
    wire.number(4, label);
    wire.number(5, kind);
}

/// Protobuf's wire format.
#[derive(Debug, Default)]
struct Wire {
    bytes: Vec<u8>,
}

impl Wire {
    fn number(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, 5);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
