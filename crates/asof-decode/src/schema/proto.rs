//! Protobuf, as a set of file descriptors.

use std::collections::HashMap;
use std::sync::Arc;

use prost_reflect::prost::Message;
use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, MessageDescriptor};

use crate::error::SchemaError;
use crate::model::{Enumeration, Field, Kind, MessageType, Scalar, Struct};

/// The wire format of a protobuf field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireKind {
    Bool,
    Varint32,
    Varint64,
    Zigzag32,
    Zigzag64,
    Fixed32,
    Fixed64,
    Bytes,
    Message,
    Group,
}

/// The message types, and the wire kind of each field of each struct.
pub(crate) struct ProtoTypes {
    pub types: MessageType,
    pub wires: Vec<Vec<WireKind>>,
    /// For maps: the wire kinds of key and value.
    pub maps: HashMap<(usize, usize), (WireKind, WireKind)>,
}

pub(crate) fn parse(name: &str, data: &[u8]) -> Result<ProtoTypes, SchemaError> {
    check_syntax(data)?;
    // Should prost-reflect panic over a damaged set, that is an error as well.
    std::panic::catch_unwind(|| read(name, data))
        .unwrap_or_else(|_| Err(unreadable("it is damaged".to_owned())))
}

/// Refuses anything but proto2 and proto3: prost-reflect panics while it formats that error.
fn check_syntax(data: &[u8]) -> Result<(), SchemaError> {
    let set = FileDescriptorSet::decode(data).map_err(|error| unreadable(error.to_string()))?;
    let is_known = |syntax| matches!(syntax, None | Some("proto2" | "proto3"));
    let mut files = set.file.iter();
    match files.find(|file| !is_known(file.syntax.as_deref())) {
        Some(file) => Err(unreadable(format!(
            "its file '{}' has the syntax '{}'; only proto2 and proto3 are supported",
            file.name(),
            file.syntax()
        ))),
        None => Ok(()),
    }
}

fn unreadable(reason: String) -> SchemaError {
    SchemaError::Unreadable {
        language: "protobuf",
        reason,
    }
}

fn read(name: &str, data: &[u8]) -> Result<ProtoTypes, SchemaError> {
    let pool = DescriptorPool::decode(data).map_err(|error| unreadable(error.to_string()))?;
    let root = pool
        .get_message_by_name(name.trim_start_matches('.'))
        .ok_or_else(|| unreadable(format!("it does not define the message '{name}'")))?;
    let mut reader = Reader::default();
    let root = reader.message(&root);
    let Reader {
        structs,
        wires,
        maps,
        mut pending,
        ..
    } = reader;
    debug_assert!(pending.pop().is_none());
    Ok(ProtoTypes {
        types: MessageType { structs, root },
        wires,
        maps,
    })
}

#[derive(Default)]
struct Reader {
    structs: Vec<Struct>,
    wires: Vec<Vec<WireKind>>,
    maps: HashMap<(usize, usize), (WireKind, WireKind)>,
    places: HashMap<String, usize>,
    enums: HashMap<String, Arc<Enumeration>>,
    pending: Vec<(usize, MessageDescriptor)>,
}

impl Reader {
    /// Reads a message and every type that it refers to; with a queue, so that no schema is too deep.
    fn message(&mut self, message: &MessageDescriptor) -> usize {
        let root = self.place(message);
        while let Some((place, message)) = self.pending.pop() {
            self.fill(place, &message);
        }
        root
    }

    fn place(&mut self, message: &MessageDescriptor) -> usize {
        if let Some(&place) = self.places.get(message.full_name()) {
            return place;
        }
        let place = self.structs.len();
        self.places.insert(message.full_name().to_owned(), place);
        self.structs.push(Struct {
            name: message.full_name().to_owned(),
            ..Struct::default()
        });
        self.wires.push(Vec::new());
        self.pending.push((place, message.clone()));
        place
    }

    fn fill(&mut self, place: usize, message: &MessageDescriptor) {
        let mut fields = Vec::new();
        let mut wires = Vec::new();
        // In the order of declaration.
        for declared in &message.descriptor_proto().field {
            let Some(field) = message.get_field_by_name(declared.name()) else {
                continue;
            };
            let (kind, wire) = if field.is_map() {
                self.map(place, fields.len(), &field)
            } else {
                let (kind, wire) = self.kind(&field);
                if field.is_list() {
                    (Kind::List(Box::new(kind)), wire)
                } else {
                    (kind, wire)
                }
            };
            let is_single = !field.is_list() && !field.is_map();
            let oneof = declared.oneof_index.map(|index| index as u32);
            fields.push(Field {
                name: field.name().to_owned(),
                kind,
                is_optional: is_single && field.supports_presence(),
                number: field.number(),
                oneof: oneof.filter(|_| !declared.proto3_optional()),
                default: declared.default_value.clone(),
                bound: None,
            });
            wires.push(wire);
        }
        self.structs[place].fields = fields;
        self.wires[place] = wires;
    }

    fn map(&mut self, place: usize, at: usize, field: &FieldDescriptor) -> (Kind, WireKind) {
        let prost_reflect::Kind::Message(entry) = field.kind() else {
            return (Kind::Blob, WireKind::Bytes);
        };
        let (key, key_wire) = self.kind(&entry.map_entry_key_field());
        let (value, value_wire) = self.kind(&entry.map_entry_value_field());
        self.maps.insert((place, at), (key_wire, value_wire));
        (Kind::Map(Box::new(key), Box::new(value)), WireKind::Message)
    }

    fn kind(&mut self, field: &FieldDescriptor) -> (Kind, WireKind) {
        use prost_reflect::Kind as Proto;
        let scalar = |scalar, wire| (Kind::Scalar(scalar), wire);
        match field.kind() {
            Proto::Double => scalar(Scalar::Float64, WireKind::Fixed64),
            Proto::Float => scalar(Scalar::Float32, WireKind::Fixed32),
            Proto::Int32 => scalar(Scalar::Int32, WireKind::Varint32),
            Proto::Int64 => scalar(Scalar::Int64, WireKind::Varint64),
            Proto::Uint32 => scalar(Scalar::Uint32, WireKind::Varint32),
            Proto::Uint64 => scalar(Scalar::Uint64, WireKind::Varint64),
            Proto::Sint32 => scalar(Scalar::Int32, WireKind::Zigzag32),
            Proto::Sint64 => scalar(Scalar::Int64, WireKind::Zigzag64),
            Proto::Fixed32 => scalar(Scalar::Uint32, WireKind::Fixed32),
            Proto::Fixed64 => scalar(Scalar::Uint64, WireKind::Fixed64),
            Proto::Sfixed32 => scalar(Scalar::Int32, WireKind::Fixed32),
            Proto::Sfixed64 => scalar(Scalar::Int64, WireKind::Fixed64),
            Proto::Bool => scalar(Scalar::Bool, WireKind::Bool),
            Proto::String => (Kind::Text, WireKind::Bytes),
            Proto::Bytes => (Kind::Blob, WireKind::Bytes),
            Proto::Enum(names) => (Kind::Enum(self.names(&names)), WireKind::Varint32),
            Proto::Message(message) => {
                let wire = if field.is_group() {
                    WireKind::Group
                } else {
                    WireKind::Message
                };
                (Kind::Struct(self.place(&message)), wire)
            }
        }
    }

    fn names(&mut self, names: &EnumDescriptor) -> Arc<Enumeration> {
        if let Some(known) = self.enums.get(names.full_name()) {
            return Arc::clone(known);
        }
        // In the order of declaration, so that the first of several names for a number counts.
        let values = names
            .enum_descriptor_proto()
            .value
            .iter()
            .map(|value| (i64::from(value.number()), value.name().to_owned()))
            .collect();
        let known = Arc::new(Enumeration::new(
            names.full_name().to_owned(),
            values,
            Scalar::Int32,
        ));
        self.enums
            .insert(names.full_name().to_owned(), Arc::clone(&known));
        known
    }
}
