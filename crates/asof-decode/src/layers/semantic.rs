//! Archetypes as views of reflected columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, TimestampNanosecondType,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, ListArray, PrimitiveArray, RecordBatch, StructArray,
    TimestampNanosecondArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use asof_core::Channel;

use super::archetypes::{Archetype, Column, View};
use super::{Claim, MessageLayer, Table};
use crate::decoder::{channel_metadata, time_field};
use crate::layout::usual_order;
use crate::path::{FieldPath, PathPart, own_field};
use crate::stamps::{stamps_of, time_parts};
use crate::{Decoder, PayloadError, Projection, Timed};

pub(super) struct Semantic;

impl MessageLayer for Semantic {
    fn name(&self) -> &'static str {
        "semantic"
    }

    fn claim(&self, channel: &Channel, projection: &Projection, samples: &[&[u8]]) -> Claim {
        let Some(archetype) = Archetype::of(channel.type_name()) else {
            return Claim::Declines(match channel.type_name() {
                "" => "it has no type".to_owned(),
                name => format!("'{name}' has no archetype"),
            });
        };
        if *projection != Projection::All {
            return Claim::Declines("the selected fields are the message's own".to_owned());
        }
        let vectors = archetype.vectors();
        let decoder = match Decoder::with_vectors(channel, projection, &vectors, samples) {
            Ok(decoder) => decoder,
            Err(error) => return Claim::Declines(error.to_string()),
        };
        match SemanticTable::new(channel, archetype, decoder) {
            Ok(table) => Claim::Takes {
                reason: format!("'{}' is a {}", channel.type_name(), archetype.name),
                table: Box::new(table),
            },
            Err(reason) => Claim::Declines(reason),
        }
    }
}

struct SemanticTable {
    decoder: Decoder,
    schema: SchemaRef,
    /// The list whose elements are rows, if the archetype has one.
    each: Option<Path>,
    has_own_stamp: bool,
    columns: Vec<(Path, View)>,
}

/// A path through the fields of structs: indexes, and whether a list is crossed after each.
#[derive(Debug, Clone)]
struct Path(Vec<(usize, bool)>);

impl SemanticTable {
    fn new(channel: &Channel, archetype: &Archetype, decoder: Decoder) -> Result<Self, String> {
        let reflected = Arc::clone(decoder.schema());
        let is_time = |field: &Field| matches!(field.data_type(), DataType::Timestamp(..));
        let stamp_is_given = reflected.field_with_name("stamp").is_ok_and(is_time);
        let (each, fields) = match archetype.each {
            None => (None, reflected.fields().clone()),
            Some(list) => {
                let (path, field) = resolve(reflected.fields(), list)
                    .ok_or_else(|| format!("it has no field '{list}'"))?;
                let DataType::List(item) = field.data_type() else {
                    return Err(format!("'{list}' is not a list"));
                };
                let DataType::Struct(fields) = item.data_type() else {
                    return Err(format!("'{list}' is not a list of structs"));
                };
                (Some(path), fields.clone())
            }
        };
        let mut columns = Vec::new();
        let mut out = vec![
            time_field("log_time", false),
            time_field("publish_time", false),
        ];
        let has_own_stamp = archetype
            .columns
            .first()
            .is_some_and(|c| c.view == View::Time);
        if stamp_is_given && !has_own_stamp {
            out.push(time_field("stamp", true));
        }
        for column in archetype.columns {
            let Some((path, field)) = find(&fields, column) else {
                continue;
            };
            let Some(field) = seen_as(column, &path, &field) else {
                continue;
            };
            out.push(field);
            columns.push((path, column.view));
        }
        if columns.is_empty() {
            return Err(format!("it has none of the fields of a {}", archetype.name));
        }
        let mut metadata = channel_metadata(channel, "semantic");
        metadata.push(("asof:archetype".to_owned(), archetype.name.to_owned()));
        for (key, value) in reflected.metadata() {
            if key == "asof:constants" {
                metadata.push((key.clone(), value.clone()));
            }
        }
        let schema = Schema::new(out).with_metadata(metadata.into_iter().collect());
        Ok(SemanticTable {
            decoder,
            schema: Arc::new(schema),
            each,
            has_own_stamp,
            columns,
        })
    }

    fn view(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        let has_stamp = !self.has_own_stamp && self.schema.field_with_name("stamp").is_ok();
        let times = if has_stamp { 3 } else { 2 };
        let Some(each) = &self.each else {
            arrays.extend(batch.columns()[..times].iter().cloned());
            for (path, view) in &self.columns {
                arrays.push(seen(walk(batch.columns(), &path.0)?, *view)?);
            }
            return RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        };
        let list = walk(batch.columns(), &each.0)?;
        let list = list
            .as_list_opt::<i32>()
            .ok_or_else(|| ArrowError::CastError("rows that are not a list".to_owned()))?;
        for array in &batch.columns()[..times] {
            arrays.push(repeated(array, list)?);
        }
        let items = list
            .values()
            .as_struct_opt()
            .ok_or_else(|| ArrowError::CastError("rows that are not structs".to_owned()))?;
        for (path, view) in &self.columns {
            arrays.push(seen(walk(items.columns(), &path.0)?, *view)?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }
}

impl Table for SemanticTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn append(&mut self, run: &[Timed<'_>], failed: &mut dyn FnMut(usize, PayloadError)) {
        self.decoder.append(run, failed);
    }

    fn rows(&self) -> usize {
        self.decoder.rows()
    }

    fn bytes(&self) -> usize {
        self.decoder.bytes()
    }

    fn reserve(&mut self, more: usize) {
        self.decoder.reserve(more);
    }

    fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        match self.decoder.take()? {
            Some(batch) => self.view(&batch).map(Some),
            None => Ok(None),
        }
    }
}

/// The first of a column's paths that exists.
fn find(fields: &Fields, column: &Column) -> Option<(Path, Field)> {
    column.paths.iter().find_map(|path| resolve(fields, path))
}

fn resolve(fields: &Fields, path: &str) -> Option<(Path, Field)> {
    let path = FieldPath::parse(path).ok()?;
    let mut places: Vec<(usize, bool)> = Vec::new();
    let mut fields = fields.clone();
    let mut found: Option<FieldRef> = None;
    for part in path.parts() {
        match part {
            PathPart::Field(name) => {
                if let Some(outer) = &found {
                    let DataType::Struct(inner) = outer.data_type() else {
                        return None;
                    };
                    fields = inner.clone();
                }
                let at = own_field(&fields, name)?;
                if matches!(fields[at].data_type(), DataType::Timestamp(..)) {
                    return None;
                }
                places.push((at, false));
                found = Some(Arc::clone(&fields[at]));
            }
            PathPart::Every => {
                let DataType::List(item) = found.as_ref()?.data_type() else {
                    return None;
                };
                places.last_mut()?.1 = true;
                found = Some(Arc::clone(item));
            }
            PathPart::Item(_) => return None,
        }
    }
    found.map(|field| (Path(places), (*field).clone()))
}

/// The Arrow field of a column; `None` where the reflected field cannot be presented that way.
fn seen_as(column: &Column, path: &Path, field: &Field) -> Option<Field> {
    let is_nullable = field.is_nullable() || path.0.len() > 1;
    let crosses = path.0.iter().any(|(_, crosses)| *crosses);
    match column.view {
        View::Same if crosses => {
            let item = Field::new("item", field.data_type().clone(), true);
            Some(Field::new(
                column.name,
                DataType::List(Arc::new(item)),
                true,
            ))
        }
        View::Same => Some(
            field
                .clone()
                .with_name(column.name)
                .with_nullable(is_nullable),
        ),
        View::Vector => {
            let (len, kind) = vector_type(field.data_type())?;
            let item = Arc::new(Field::new("item", kind, false));
            let kind = DataType::FixedSizeList(item, len as i32);
            let has_nulls = matches!(field.data_type(), DataType::Struct(parts) if parts.iter().any(|part| part.is_nullable()));
            Some(Field::new(column.name, kind, is_nullable || has_nulls))
        }
        View::Time => {
            time_parts(field.data_type())?;
            Some(time_field(column.name, true))
        }
    }
}

/// The number and type of the components of a struct of numbers.
fn vector_type(kind: &DataType) -> Option<(usize, DataType)> {
    let fields = match kind {
        DataType::Struct(fields) => fields,
        // Already decoded as an array.
        DataType::FixedSizeList(item, len) => {
            return Some((*len as usize, item.data_type().clone()));
        }
        _ => return None,
    };
    if fields.is_empty() || !fields.iter().all(|field| is_number(field.data_type())) {
        return None;
    }
    let is_single = fields.iter().all(|f| *f.data_type() == DataType::Float32);
    let kind = if is_single {
        DataType::Float32
    } else {
        DataType::Float64
    };
    Some((fields.len(), kind))
}

/// Whether it can be a component. JSON without a schema has 1 where it means 1.0.
fn is_number(kind: &DataType) -> bool {
    use DataType::{Float32, Float64, Int32, Int64, UInt32, UInt64};
    matches!(kind, Float32 | Float64 | Int32 | Int64 | UInt32 | UInt64)
}

/// The array at a path, with the nulls of the structs that lead to it.
fn walk(columns: &[ArrayRef], path: &[(usize, bool)]) -> Result<ArrayRef, ArrowError> {
    let broken = || ArrowError::CastError("a column is not where its schema says".to_owned());
    let (&(first, crosses), rest) = path.split_first().ok_or_else(broken)?;
    let array = columns.get(first).ok_or_else(broken)?;
    if rest.is_empty() {
        return Ok(Arc::clone(array));
    }
    if crosses {
        let list = array.as_list_opt::<i32>().ok_or_else(broken)?;
        let items = list.values().as_struct_opt().ok_or_else(broken)?;
        let inner = walk(items.columns(), rest)?;
        let item = Field::new("item", inner.data_type().clone(), true);
        return Ok(Arc::new(ListArray::try_new(
            Arc::new(item),
            list.offsets().clone(),
            inner,
            list.nulls().cloned(),
        )?));
    }
    let outer = array.as_struct_opt().ok_or_else(broken)?;
    let inner = walk(outer.columns(), rest)?;
    match outer.nulls() {
        None => Ok(inner),
        Some(nulls) => {
            let both = NullBuffer::union(Some(nulls), inner.nulls());
            let data = inner.to_data().into_builder().nulls(both).build()?;
            Ok(arrow_array::make_array(data))
        }
    }
}

fn seen(array: ArrayRef, view: View) -> Result<ArrayRef, ArrowError> {
    match view {
        View::Same => Ok(array),
        View::Vector => match array.as_struct_opt() {
            Some(array) => vector(array),
            None => Ok(array),
        },
        View::Time => times(&array),
    }
}

/// The components of each vector, interleaved.
fn vector(array: &StructArray) -> Result<ArrayRef, ArrowError> {
    let has_only = |kind: &DataType| array.columns().iter().all(|part| part.data_type() == kind);
    if has_only(&DataType::Float32) {
        return interleaved::<Float32Type>(array);
    }
    if has_only(&DataType::Float64) {
        return interleaved::<Float64Type>(array);
    }
    let fields = array.fields().iter().map(|field| {
        let field = field.as_ref().clone();
        Arc::new(field.with_data_type(DataType::Float64))
    });
    let parts = array.columns().iter().map(as_doubles).collect();
    let nulls = array.nulls().cloned();
    interleaved::<Float64Type>(&StructArray::try_new(fields.collect(), parts, nulls)?)
}

fn as_doubles(part: &ArrayRef) -> ArrayRef {
    macro_rules! converted {
        ($kind:ty) => {
            Arc::new(
                part.as_primitive::<$kind>()
                    .unary::<_, Float64Type>(|value| value as f64),
            )
        };
    }
    match part.data_type() {
        DataType::Float32 => converted!(Float32Type),
        DataType::Int32 => converted!(Int32Type),
        DataType::Int64 => converted!(Int64Type),
        DataType::UInt32 => converted!(UInt32Type),
        DataType::UInt64 => converted!(UInt64Type),
        _ => Arc::clone(part),
    }
}

fn interleaved<T: ArrowPrimitiveType>(array: &StructArray) -> Result<ArrayRef, ArrowError> {
    let names: Vec<&str> = array.fields().iter().map(|f| f.name().as_str()).collect();
    let parts: Vec<&[T::Native]> = usual_order(&names)
        .into_iter()
        .map(|place| &array.column(place).as_primitive::<T>().values()[..])
        .collect();
    let mut values = Vec::with_capacity(parts.len() * array.len());
    match parts[..] {
        [x, y, z] => {
            for ((x, y), z) in x.iter().zip(y).zip(z) {
                values.extend_from_slice(&[*x, *y, *z]);
            }
        }
        [x, y, z, w] => {
            for (((x, y), z), w) in x.iter().zip(y).zip(z).zip(w) {
                values.extend_from_slice(&[*x, *y, *z, *w]);
            }
        }
        _ => {
            for row in 0..array.len() {
                values.extend(parts.iter().map(|part| part[row]));
            }
        }
    }
    let item = Arc::new(Field::new("item", T::DATA_TYPE, false));
    let values = PrimitiveArray::<T>::new(ScalarBuffer::from(values), None);
    Ok(Arc::new(FixedSizeListArray::try_new(
        item,
        parts.len() as i32,
        Arc::new(values),
        all_nulls(array),
    )?))
}

/// A vector is null if it or one of its components is.
fn all_nulls(array: &StructArray) -> Option<NullBuffer> {
    let own = array.nulls().cloned();
    array.columns().iter().fold(own, |nulls, part| {
        NullBuffer::union(nulls.as_ref(), part.nulls())
    })
}

/// Seconds and nanoseconds as one timestamp; null where they are not a valid time.
fn times(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let times = stamps_of(&**array);
    let times =
        times.ok_or_else(|| ArrowError::CastError("a stamp without its parts".to_owned()))?;
    Ok(Arc::new(times))
}

/// Each list's time once for each of its elements.
fn repeated(array: &ArrayRef, list: &ListArray) -> Result<ArrayRef, ArrowError> {
    let times = array
        .as_primitive_opt::<TimestampNanosecondType>()
        .ok_or_else(|| ArrowError::CastError("a time column that is none".to_owned()))?;
    let mut values = Vec::with_capacity(list.values().len());
    let mut good = Vec::new();
    for (row, ends) in list.offsets().windows(2).enumerate() {
        let count = (ends[1] - ends[0]) as usize;
        values.resize(values.len() + count, times.values()[row]);
        if times.nulls().is_some() {
            good.resize(good.len() + count, times.is_valid(row));
        }
    }
    let nulls = (!good.is_empty()).then(|| NullBuffer::new(BooleanBuffer::from(good)));
    let array = TimestampNanosecondArray::new(ScalarBuffer::from(values), nulls);
    Ok(Arc::new(array.with_timezone("UTC")))
}
