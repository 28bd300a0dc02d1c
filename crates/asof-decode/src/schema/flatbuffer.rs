//! FlatBuffers schemas in their binary form (`.bfbs`), by the slots of `reflection.fbs`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Allowance, SchemaError};
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
/// The most bytes of all that a schema declares. Its parts may be shared, so a small one could declare without end.
const BYTES_AT_MOST: usize = 64 << 20;
/// About the bytes of a field, of a value of an enumeration, or of a choice of a union, without its name.
const PART_BYTES: usize = 160;

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
    let mut reader = Reader {
        names: Vec::new(),
        objects: &objects,
        enums: &enums,
        bytes: Allowance::new(BYTES_AT_MOST, "bytes of declarations"),
    };
    for table in &enums {
        let names = reader.enumeration(table)?;
        reader.names.push(names);
    }
    let mut names = Vec::with_capacity(objects.len());
    for object in &objects {
        names.push(reader.name(object)?);
    }
    let find = |wanted: &str| names.iter().position(|name| name == wanted);
    let root = find(name)
        .or_else(|| root_name.and_then(find))
        .ok_or_else(|| unreadable(&format!("it does not define '{name}'")))?;
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
    /// The bytes of what was read.
    bytes: Allowance,
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
    fn enumeration(&mut self, table: &Table<'_>) -> Result<Arc<Enumeration>, SchemaError> {
        let name = self.name(table)?;
        let mut values = Vec::new();
        for value in self.tables(table, 1)? {
            values.push((value.i64(1), self.name(&value)?));
        }
        let scalar = table.table(3).and_then(|kind| scalar_of(kind.u8(0)));
        let scalar = scalar.unwrap_or(Scalar::Int32);
        Ok(Arc::new(Enumeration::new(name, values, scalar)))
    }

    /// The name of an object, a field, an enumeration or a value.
    fn name(&mut self, table: &Table<'_>) -> Result<String, SchemaError> {
        let name = table.text(0).unwrap_or_default();
        self.bytes.take(name.len())?;
        Ok(name.to_owned())
    }

    /// The tables of a vector of tables.
    fn tables<'a>(
        &mut self,
        table: &Table<'a>,
        slot: usize,
    ) -> Result<Vec<Table<'a>>, SchemaError> {
        let tables = table.tables(slot);
        self.bytes.take(PART_BYTES * tables.len())?;
        Ok(tables)
    }

    fn object(&mut self, object: &Table<'_>) -> Result<(Struct, Object), SchemaError> {
        let name = self.name(object)?;
        let is_inline = object.u8(2) != 0;
        let mut fields = self.tables(object, 1)?;
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
                let types = self.union_types(&kind)?;
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
                ..Field::new(self.name(field)?, model)
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

    fn union_types(&mut self, kind: &Table<'_>) -> Result<Vec<(u8, usize)>, SchemaError> {
        let names = usize::try_from(kind.i32(2, -1)).ok();
        let enums = self.enums;
        let Some(names) = names.and_then(|at| enums.get(at)) else {
            return Ok(Vec::new());
        };
        let mut types: Vec<(u8, usize)> = Vec::new();
        for value in self.tables(names, 1)? {
            let choice = value.i64(1) as u8;
            let Some(kind) = value.table(3).filter(|kind| kind.u8(0) == OBJECT) else {
                continue;
            };
            if let Ok(place) = self.place(kind.i32(2, -1))
                && types.iter().all(|(known, _)| *known != choice)
            {
                types.push((choice, place));
            }
        }
        Ok(types)
    }
}
