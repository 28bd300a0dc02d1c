//! Fields of CDR messages, found one by one.

use std::borrow::Cow;

use asof_core::Channel;
use rustc_hash::FxHashMap;

use crate::columns::{Columns, Payload};
use crate::decoder::{LARGEST_PAYLOAD, cdr_types, is_packed};
use crate::error::{Fault, PayloadError, SchemaError};
use crate::layout::{Asked, Projection};
use crate::model::{Kind, MessageType, Scalar};

use super::cdr::{CdrDecoder, Compiler, Cursor, Flavour, Op, least, run_program};
use super::cdr_memo::NoTrace;

/// Reads single fields out of messages. What is not asked for is stepped over, not decoded.
///
/// ```
/// use asof_core::{Channel, Schema};
/// use asof_decode::{FieldReader, FieldValue};
///
/// let schema = Schema {
///     name: "geometry_msgs/msg/Point".into(),
///     encoding: "ros2msg".into(),
///     data: "float64 x\nfloat64 y\nfloat64 z\n".into(),
/// };
/// let channel = Channel {
///     topic: "/goal".into(),
///     message_encoding: "cdr".into(),
///     schema: Some(schema.into()),
///     ..Channel::default()
/// };
/// let mut payload = vec![0, 1, 0, 0];
/// for value in [1.5f64, 0.1, -2.0] {
///     payload.extend(value.to_le_bytes());
/// }
/// let reader = FieldReader::new(&channel).expect("CDR");
/// let message = reader.message(&payload).expect("plain CDR");
/// let z = reader.value(&payload, message, "z")?;
/// assert!(matches!(z, Some(FieldValue::Float(z)) if z == -2.0));
/// assert!(reader.value(&payload, message, "w")?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FieldReader {
    /// By their position in the message type; structs that the message cannot contain have no members.
    structs: Vec<Members>,
    root: usize,
    flavour: Flavour,
}

/// A struct in a payload: the message itself, or one within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StructPlace {
    id: u32,
    at: u32,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum FieldValue<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(Cow<'a, str>),
    /// Bytes, as they are in the payload.
    Bytes(&'a [u8]),
    /// A list of numbers or booleans.
    Numbers(NumberList<'a>),
    /// A list of anything else.
    List(Vec<FieldValue<'a>>),
    /// A struct, whose fields are read in turn.
    Struct(StructPlace),
}

/// Numbers in a payload. They need not be aligned in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberList<'a> {
    /// Their type.
    pub scalar: Scalar,
    /// Whether the first byte of each is its most significant.
    pub is_big_endian: bool,
    /// Their bytes.
    pub bytes: &'a [u8],
}

#[derive(Debug, Default)]
struct Members {
    members: Vec<Member>,
    places: FxHashMap<String, usize>,
}

#[derive(Debug)]
struct Member {
    name: String,
    read: Read,
    /// The operations that step over it.
    skip: Vec<Op>,
}

/// How a value is read.
#[derive(Debug)]
enum Read {
    Scalar(Scalar),
    Text,
    Blob,
    FixedBlob(usize),
    Struct(usize),
    /// Numbers; how many, if the type says that.
    Numbers(Scalar, Option<usize>),
    Items {
        count: Option<usize>,
        item: Box<Read>,
        skip: Vec<Op>,
        least: usize,
    },
}

impl FieldReader {
    /// A reader for a channel. `None` where messages have to be decoded whole, by a [`Decoder`](crate::Decoder): in other
    /// encodings than ROS's own, and for types that XTypes wraps.
    pub fn new(channel: &Channel) -> Option<Self> {
        let (types, flavour, language) = cdr_types(channel)?.ok()?;
        // It has the limits of a type.
        let asked = Asked::from(&Projection::All);
        let decoder = CdrDecoder::new(types, asked, flavour, language).ok()?;
        if decoder.is_wrapped || decoder.has_wide_text {
            return None;
        }
        let types = decoder.types;
        let mut builder = Builder {
            compiler: Compiler::new(&types, flavour),
            structs: (0..types.structs.len()).map(|_| None).collect(),
        };
        builder.members(types.root).ok()?;
        let structs = builder.structs.into_iter();
        Some(FieldReader {
            structs: structs.map(Option::unwrap_or_default).collect(),
            root: types.root,
            flavour,
        })
    }

    /// The message in a payload. `None` where it has to be decoded whole: it is wrapped or compressed, or is not CDR.
    pub fn message(&self, payload: &[u8]) -> Option<StructPlace> {
        if payload.len() > LARGEST_PAYLOAD || is_packed(payload) {
            return None;
        }
        let cursor = Cursor::new(Payload::from(payload), self.flavour).ok()?;
        (!cursor.is_wrapped()).then_some(StructPlace {
            id: self.root as u32,
            at: cursor.pos as u32,
        })
    }

    /// The names of a struct's fields, in order.
    pub fn names(&self, place: StructPlace) -> impl ExactSizeIterator<Item = &str> {
        let members = &self.structs[place.id as usize].members;
        members.iter().map(|member| member.name.as_str())
    }

    /// The index of a field among its struct's.
    pub fn index(&self, place: StructPlace, name: &str) -> Option<usize> {
        self.structs[place.id as usize].places.get(name).copied()
    }

    /// A field of a struct in the payload in which that struct was found; `None` where it has no such field.
    ///
    /// # Errors
    /// When the payload ends before it, or is otherwise damaged there.
    pub fn value<'a>(
        &self,
        payload: &'a [u8],
        place: StructPlace,
        name: &str,
    ) -> Result<Option<FieldValue<'a>>, PayloadError> {
        self.index(place, name)
            .map(|index| self.value_at(payload, place, index))
            .transpose()
    }

    /// The same, by the index of the field. Beyond the last one it is an empty list.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn value_at<'a>(
        &self,
        payload: &'a [u8],
        place: StructPlace,
        index: usize,
    ) -> Result<FieldValue<'a>, PayloadError> {
        self.find(payload, place, index).map_err(|fault| *fault)
    }

    fn find<'a>(
        &self,
        payload: &'a [u8],
        place: StructPlace,
        index: usize,
    ) -> Result<FieldValue<'a>, Fault> {
        let mut cursor = Cursor::new(Payload::from(payload), self.flavour)?;
        cursor.pos = place.at as usize;
        // Operations without columns write nothing.
        let mut nothing = Columns::default();
        let members = &self.structs[place.id as usize].members;
        let Some(member) = members.get(index) else {
            return Ok(FieldValue::List(Vec::new()));
        };
        for before in &members[..index] {
            run_program(&before.skip, &mut cursor, &mut nothing, &mut NoTrace)?;
        }
        member.read.value(&mut cursor, &mut nothing)
    }
}

impl Read {
    fn value<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        nothing: &mut Columns,
    ) -> Result<FieldValue<'a>, Fault> {
        Ok(match self {
            Read::Scalar(scalar) => match scalar {
                Scalar::Bool => FieldValue::Bool(cursor.u8()? != 0),
                Scalar::Int8 => FieldValue::Int((cursor.u8()? as i8).into()),
                Scalar::Int16 => FieldValue::Int((cursor.u16()? as i16).into()),
                Scalar::Int32 => FieldValue::Int((cursor.u32()? as i32).into()),
                Scalar::Int64 => FieldValue::Int(cursor.u64()? as i64),
                Scalar::Uint8 => FieldValue::Uint(cursor.u8()?.into()),
                Scalar::Uint16 => FieldValue::Uint(cursor.u16()?.into()),
                Scalar::Uint32 => FieldValue::Uint(cursor.u32()?.into()),
                Scalar::Uint64 => FieldValue::Uint(cursor.u64()?),
                Scalar::Float32 => FieldValue::Float(f32::from_bits(cursor.u32()?).into()),
                Scalar::Float64 => FieldValue::Float(f64::from_bits(cursor.u64()?)),
            },
            Read::Text => {
                let len = cursor.length(&mut NoTrace)?;
                FieldValue::Text(String::from_utf8_lossy(cursor.text(len)?))
            }
            Read::Blob => {
                let len = cursor.length(&mut NoTrace)?;
                FieldValue::Bytes(cursor.bytes(len, "bytes")?)
            }
            Read::FixedBlob(len) => FieldValue::Bytes(cursor.bytes(*len, "an array")?),
            Read::Struct(id) => FieldValue::Struct(StructPlace {
                id: *id as u32,
                at: cursor.pos as u32,
            }),
            Read::Numbers(scalar, count) => {
                let width = scalar.width();
                let count = match count {
                    Some(count) => *count,
                    None => cursor.length(&mut NoTrace)?,
                };
                // A list without elements does not align.
                if count > 0 {
                    cursor.align(width);
                }
                FieldValue::Numbers(NumberList {
                    scalar: *scalar,
                    is_big_endian: cursor.is_big_endian,
                    bytes: cursor.bytes(count.saturating_mul(width), "an array")?,
                })
            }
            Read::Items {
                count,
                item,
                skip,
                least,
            } => {
                let count = match count {
                    Some(count) => *count,
                    None => cursor.length(&mut NoTrace)?,
                };
                cursor.check_count(count, *least)?;
                let mut items = Vec::with_capacity(count);
                for _ in 0..count {
                    let mut inner = *cursor;
                    items.push(item.value(&mut inner, nothing)?);
                    run_program(skip, cursor, nothing, &mut NoTrace)?;
                }
                FieldValue::List(items)
            }
        })
    }
}

struct Builder<'a> {
    /// It counts the operations of all structs together, within its limit.
    compiler: Compiler<'a>,
    structs: Vec<Option<Members>>,
}

impl Builder<'_> {
    fn members(&mut self, id: usize) -> Result<(), SchemaError> {
        if self.structs[id].is_some() {
            return Ok(());
        }
        let types: &MessageType = self.compiler.types;
        let mut made = Members::default();
        for field in &types.structs[id].fields {
            let member = Member {
                name: field.name.clone(),
                read: self.read(&field.kind)?,
                skip: self.skip(&field.kind)?,
            };
            made.places.insert(field.name.clone(), made.members.len());
            made.members.push(member);
        }
        self.structs[id] = Some(made);
        Ok(())
    }

    fn skip(&mut self, kind: &Kind) -> Result<Vec<Op>, SchemaError> {
        let mut ops = Vec::new();
        self.compiler.kind(kind, None, &mut ops)?;
        Ok(ops)
    }

    fn read(&mut self, kind: &Kind) -> Result<Read, SchemaError> {
        Ok(match kind {
            Kind::Scalar(scalar) => Read::Scalar(*scalar),
            Kind::Enum(names) => Read::Scalar(names.scalar()),
            Kind::Text => Read::Text,
            Kind::Blob => Read::Blob,
            Kind::FixedBlob(len) => Read::FixedBlob(*len as usize),
            Kind::Struct(id) => {
                self.members(*id)?;
                Read::Struct(*id)
            }
            Kind::List(item) => self.list(item, None)?,
            Kind::Array(item, len) => self.list(item, Some(*len as usize))?,
            Kind::WideText | Kind::Map(..) | Kind::Json => {
                return Err(SchemaError::Unreadable {
                    language: "CDR",
                    reason: "a part that has to be decoded whole".to_owned(),
                });
            }
        })
    }

    fn list(&mut self, item: &Kind, count: Option<usize>) -> Result<Read, SchemaError> {
        let scalar = match item {
            Kind::Scalar(scalar) => Some(*scalar),
            Kind::Enum(names) => Some(names.scalar()),
            _ => None,
        };
        if let Some(scalar) = scalar {
            return Ok(Read::Numbers(scalar, count));
        }
        let skip = self.skip(item)?;
        Ok(Read::Items {
            count,
            item: Box::new(self.read(item)?),
            least: least(&skip),
            skip,
        })
    }
}
