//! FlatBuffers schemas in their binary form (`.bfbs`), by the slots of `reflection.fbs`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::SchemaError;
use crate::model::{Enumeration, Field, Kind, MessageType, Scalar, Struct};
use crate::wire::flat_table::Table;

/// The message types, and their FlatBuffers layout.
pub(crate) struct FlatTypes {
    pub types: MessageType,
    /// For each struct of the types.
    pub objects: Vec<Object>,
}

pub(crate) struct Object {
    /// Whether it is a struct, stored in place; a table is stored by offset.
    pub is_inline: bool,
    pub size: usize,
    /// For each field: its slot in a table, or its offset in a struct.
    pub places: Vec<usize>,
    /// For each field: its value where a table omits it.
    pub defaults: Vec<u64>,
    /// For each field that is a union: the slot of its type, and the struct of each type.
    pub unions: HashMap<usize, (usize, Vec<(u8, usize)>)>,
}

const LANGUAGE: &str = "flatbuffer";
const OBJECTS_AT_MOST: usize = 100_000;

pub(crate) fn parse(name: &str, data: &[u8]) -> Result<FlatTypes, SchemaError> {
    let unreadable = |reason: &str| SchemaError::Unreadable {
        language: LANGUAGE,
        reason: reason.to_owned(),
    };
    if data.get(4..8) != Some(b"BFBS") {
        return Err(unreadable("not a binary schema (.bfbs)"));
    }
    let schema = Table::root(data).ok_or_else(|| unreadable("it is truncated or damaged"))?;
    let objects = schema.tables(0);
    let enums = schema.tables(1);
    if objects.len() > OBJECTS_AT_MOST {
        return Err(SchemaError::TooLarge {
            reason: format!("{} types", objects.len()),
        });
    }
    let root_name = schema.table(4).and_then(|root| root.text(0));
    let find = |wanted: &str| objects.iter().position(|o| o.text(0) == Some(wanted));
    let root = find(name)
        .or_else(|| root_name.and_then(find))
        .ok_or_else(|| unreadable(&format!("it does not define '{name}'")))?;
    let reader = Reader {
        names: enums.iter().map(enumeration).collect(),
        objects: &objects,
        enums: &enums,
    };
    let mut result = FlatTypes {
        types: MessageType::default(),
        objects: Vec::new(),
    };
    for object in &objects {
        let (declared, layout) = reader.object(object)?;
        result.types.structs.push(declared);
        result.objects.push(layout);
    }
    result.types.root = root;
    Ok(result)
}

struct Reader<'a> {
    objects: &'a [Table<'a>],
    enums: &'a [Table<'a>],
    names: Vec<Arc<Enumeration>>,
}

fn enumeration(table: &Table<'_>) -> Arc<Enumeration> {
    let values = table
        .tables(1)
        .iter()
        .map(|value| (value.i64(1), value.text(0).unwrap_or_default().to_owned()))
        .collect();
    let scalar = table.table(3).and_then(|kind| scalar_of(kind.u8(0)));
    Arc::new(Enumeration::new(
        table.text(0).unwrap_or_default().to_owned(),
        values,
        scalar.unwrap_or(Scalar::Int32),
    ))
}

/// The base types of `reflection.fbs` that are numbers.
fn scalar_of(base: u8) -> Option<Scalar> {
    Some(match base {
        1 | 4 => Scalar::Uint8,
        2 => Scalar::Bool,
        3 => Scalar::Int8,
        5 => Scalar::Int16,
        6 => Scalar::Uint16,
        7 => Scalar::Int32,
        8 => Scalar::Uint32,
        9 => Scalar::Int64,
        10 => Scalar::Uint64,
        11 => Scalar::Float32,
        12 => Scalar::Float64,
        _ => return None,
    })
}

const STRING: u8 = 13;
const VECTOR: u8 = 14;
const OBJECT: u8 = 15;
const UNION: u8 = 16;
const ARRAY: u8 = 17;
const UNION_TYPE: u8 = 1;

impl Reader<'_> {
    fn object(&self, object: &Table<'_>) -> Result<(Struct, Object), SchemaError> {
        let name = object.text(0).unwrap_or_default().to_owned();
        let is_inline = object.u8(2) != 0;
        let mut fields = object.tables(1);
        // They are sorted by name; their numbers are in the order of declaration.
        fields.sort_by_key(|field| field.u16(2));
        let mut declared = Struct {
            name,
            ..Struct::default()
        };
        let mut layout = Object {
            is_inline,
            size: object.i32(4, 0).max(0) as usize,
            places: Vec::new(),
            defaults: Vec::new(),
            unions: HashMap::new(),
        };
        for field in &fields {
            let Some(kind) = field.table(1) else { continue };
            let base = kind.u8(0);
            if field.u8(6) != 0 {
                continue;
            }
            let at = declared.fields.len();
            let model = self.kind(&kind, base)?;
            if base == UNION {
                let types = self.union_types(&kind);
                let slot = (field.u16(2) as usize).saturating_sub(1);
                layout.unions.insert(at, (slot, types));
            }
            let is_pointer = matches!(base, STRING | VECTOR | OBJECT | UNION) && !is_inline;
            let is_optional = is_pointer && base != VECTOR || field.u8(11) != 0;
            let default = match scalar_of(base) {
                Some(Scalar::Float32) => u64::from((field.f64(5) as f32).to_bits()),
                Some(Scalar::Float64) => field.f64(5).to_bits(),
                _ => field.i64(4) as u64,
            };
            declared.fields.push(Field {
                is_optional,
                number: u32::from(field.u16(2)),
                ..Field::new(field.text(0).unwrap_or_default(), model)
            });
            layout.places.push(if is_inline {
                field.u16(3) as usize
            } else {
                field.u16(2) as usize
            });
            layout.defaults.push(default);
        }
        Ok((declared, layout))
    }

    fn kind(&self, kind: &Table<'_>, base: u8) -> Result<Kind, SchemaError> {
        let index = kind.i32(2, -1);
        match base {
            STRING => Ok(Kind::Text),
            OBJECT => self.place(index).map(Kind::Struct),
            UNION => Ok(Kind::Json),
            VECTOR | ARRAY => {
                let element = kind.u8(1);
                let len = u32::from(kind.u16(3));
                if matches!(element, VECTOR | ARRAY) {
                    return Err(SchemaError::Unreadable {
                        language: LANGUAGE,
                        reason: "a vector of vectors is not possible in FlatBuffers".to_owned(),
                    });
                }
                // A vector of bytes without an enum is a blob.
                if element == 4 && index < 0 {
                    return Ok(if base == VECTOR {
                        Kind::Blob
                    } else {
                        Kind::FixedBlob(len)
                    });
                }
                let item = Box::new(self.kind(kind, element)?);
                Ok(if base == VECTOR {
                    Kind::List(item)
                } else {
                    Kind::Array(item, len)
                })
            }
            _ => {
                let scalar = scalar_of(base).ok_or_else(|| SchemaError::Unreadable {
                    language: LANGUAGE,
                    reason: format!("unknown base type {base}"),
                })?;
                let names = usize::try_from(index)
                    .ok()
                    .and_then(|at| self.names.get(at));
                Ok(match names {
                    Some(names) if base != UNION_TYPE || names.scalar() == scalar => {
                        Kind::Enum(Arc::clone(names))
                    }
                    _ => Kind::Scalar(scalar),
                })
            }
        }
    }

    fn place(&self, index: i32) -> Result<usize, SchemaError> {
        usize::try_from(index)
            .ok()
            .filter(|&index| index < self.objects.len())
            .ok_or_else(|| SchemaError::Unreadable {
                language: LANGUAGE,
                reason: format!("type {index} is not defined"),
            })
    }

    fn union_types(&self, kind: &Table<'_>) -> Vec<(u8, usize)> {
        let names = usize::try_from(kind.i32(2, -1)).ok();
        let Some(names) = names.and_then(|at| self.enums.get(at)) else {
            return Vec::new();
        };
        names
            .tables(1)
            .iter()
            .filter_map(|value| {
                let kind = value.table(3)?;
                let place = self.place(kind.i32(2, -1)).ok()?;
                (kind.u8(0) == OBJECT).then_some((value.i64(1) as u8, place))
            })
            .collect()
    }
}
