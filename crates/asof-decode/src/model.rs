//! Message types, independent of their schema language.

use std::sync::Arc;

/// A message type with all types that it refers to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageType {
    /// Every struct that the message may contain. They refer to one another by their index here, so a type may contain
    /// itself.
    pub structs: Vec<Struct>,
    /// The index of the message itself.
    pub root: usize,
}

impl MessageType {
    /// The message's own struct.
    pub fn root(&self) -> &Struct {
        &self.structs[self.root]
    }
}

/// A struct: named fields in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Struct {
    /// Its full name, as in the schema.
    pub name: String,
    /// Its fields in order.
    pub fields: Vec<Field>,
    /// Constants that the schema declares next to the fields.
    pub constants: Vec<Constant>,
    /// How CDR may wrap it.
    pub extensibility: Option<Extensibility>,
    /// For an IDL union: which labels select which field, from the second field on. The first field is the
    /// discriminator.
    pub cases: Option<Vec<Case>>,
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether it may be absent, and a reader can tell.
    pub is_optional: bool,
    /// Protobuf's field number, CDR's member id, FlatBuffers' slot.
    pub number: u32,
    /// Fields with the same number here exclude one another (protobuf's oneof).
    pub oneof: Option<u32>,
    /// The value of an absent field, as written in the schema.
    pub default: Option<String>,
    /// The most elements or characters that the schema allows.
    pub bound: Option<u64>,
}

impl Field {
    /// A required field.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Field {
            name: name.into(),
            kind,
            is_optional: false,
            number: 0,
            oneof: None,
            default: None,
            bound: None,
        }
    }

    /// The same, with a number.
    #[must_use]
    pub fn numbered(self, number: u32) -> Self {
        Field { number, ..self }
    }

    /// The same, as optional.
    #[must_use]
    pub fn optional(self) -> Self {
        Field {
            is_optional: true,
            ..self
        }
    }
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A number or a boolean.
    Scalar(Scalar),
    /// Text in UTF-8.
    Text,
    /// Text in UTF-16 on the wire.
    WideText,
    /// Bytes of any length.
    Blob,
    /// Bytes of a fixed length.
    FixedBlob(u32),
    /// A number with names for some of its values.
    Enum(Arc<Enumeration>),
    /// The struct at this index of [`MessageType::structs`].
    Struct(usize),
    /// A list of any length.
    List(Box<Kind>),
    /// A list of exactly this many elements.
    Array(Box<Kind>, u32),
    /// Keys and values.
    Map(Box<Kind>, Box<Kind>),
    /// Any JSON value.
    Json,
}

/// Numbers and booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Scalar {
    Bool,
    Int8,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float32,
    Float64,
}

impl Scalar {
    /// Its size in bytes.
    pub const fn width(self) -> usize {
        match self {
            Scalar::Bool | Scalar::Int8 | Scalar::Uint8 => 1,
            Scalar::Int16 | Scalar::Uint16 => 2,
            Scalar::Int32 | Scalar::Uint32 | Scalar::Float32 => 4,
            Scalar::Int64 | Scalar::Uint64 | Scalar::Float64 => 8,
        }
    }
}

/// An enumeration: names for numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Enumeration {
    /// Its full name.
    pub name: String,
    /// Numbers and their names, sorted by number; the first name of a number counts.
    pub values: Vec<(i64, String)>,
    /// Its representation.
    pub scalar: Option<Scalar>,
}

impl Enumeration {
    /// Sorts the values so that they can be searched.
    pub fn new(name: String, mut values: Vec<(i64, String)>, scalar: Scalar) -> Self {
        values.sort_by_key(|(number, _)| *number);
        values.dedup_by_key(|(number, _)| *number);
        Enumeration {
            name,
            values,
            scalar: Some(scalar),
        }
    }

    /// Its representation.
    pub fn scalar(&self) -> Scalar {
        self.scalar.unwrap_or(Scalar::Int32)
    }

    /// The name of a number, if it has one.
    pub fn name_of(&self, number: i64) -> Option<&str> {
        let found = self
            .values
            .binary_search_by_key(&number, |(number, _)| *number);
        found.ok().map(|at| self.values[at].1.as_str())
    }
}

/// A constant that a schema declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its type, as written in the schema.
    pub kind: String,
    /// Its value, as written in the schema.
    pub value: String,
}

/// How a struct may change between versions, which determines how CDR wraps it (DDS-XTypes 7.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extensibility {
    /// It never changes: no header.
    Final,
    /// Fields may be added at its end: XCDR2 writes its length first.
    Appendable,
    /// Fields may be added and removed: each carries its number.
    Mutable,
}

/// One case of an IDL union.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Case {
    /// The discriminator values that select it.
    pub labels: Vec<i64>,
    /// Whether it is selected by every value that no other case has.
    pub is_default: bool,
}
