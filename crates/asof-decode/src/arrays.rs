//! Converts columns to Arrow arrays.

use std::sync::Arc;

use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    FixedSizeListArray, ListArray, MapArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Fields};
use arrow_select::nullif::nullif;

use crate::columns::{Columns, Texts};
use crate::layout::{Group, Node, Shape};
use crate::model::Scalar;
use crate::recycle::{Word, buffer_of};

impl Group {
    /// Takes the first `len` rows of every field out of the columns, which are empty afterwards.
    pub fn take(&self, columns: &mut Columns, len: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        self.fields
            .iter()
            .flatten()
            .map(|node| node.take(columns, len))
            .collect()
    }
}

impl Node {
    pub fn take(&self, columns: &mut Columns, len: usize) -> Result<ArrayRef, ArrowError> {
        let nulls = self
            .presence
            .map(|column| NullBuffer::from(take_bits(&mut columns.w1[column])));
        Ok(match &self.shape {
            Shape::Scalar(scalar, column) => scalar_array(columns, *scalar, *column, nulls),
            Shape::Enum(names, column) => scalar_array(columns, names.scalar(), *column, nulls),
            Shape::Text(column) | Shape::Json(column) => {
                text_array(std::mem::take(&mut columns.texts[*column]), nulls)?
            }
            Shape::Blob(column) => {
                let blobs = std::mem::take(&mut columns.blobs[*column]);
                let (views, buffers) = blobs.into_parts();
                let len = views.len();
                Arc::new(BinaryViewArray::try_new(
                    ScalarBuffer::new(buffer_of(views), 0, len),
                    buffers,
                    nulls,
                )?)
            }
            Shape::FixedBlob(size, column) => {
                let data = buffer_of(std::mem::take(&mut columns.w1[*column]));
                Arc::new(FixedSizeBinaryArray::try_new_with_len(
                    *size as i32,
                    data,
                    nulls,
                    len,
                )?)
            }
            Shape::Struct(group) => {
                let arrays = group.take(columns, len)?;
                Arc::new(structs(group.arrow_fields(), arrays, nulls, len)?)
            }
            Shape::List(ends, item) => {
                let ends = take_ends(&mut columns.ends[*ends]);
                let inner = item.take(columns, last_of(&ends))?;
                Arc::new(ListArray::try_new(
                    Arc::new(item.arrow_field()),
                    ends,
                    inner,
                    nulls,
                )?)
            }
            Shape::Array(size, item) => {
                let inner = item.take(columns, len * *size as usize)?;
                Arc::new(FixedSizeListArray::try_new_with_length(
                    Arc::new(item.arrow_field()),
                    *size as i32,
                    inner,
                    nulls,
                    len,
                )?)
            }
            Shape::Map(ends, key, value) => {
                let ends = take_ends(&mut columns.ends[*ends]);
                let inner = last_of(&ends);
                let arrays = vec![key.take(columns, inner)?, value.take(columns, inner)?];
                let DataType::Map(entries, is_sorted) = self.data_type() else {
                    return Err(ArrowError::SchemaError("a map is not a map".to_owned()));
                };
                let DataType::Struct(fields) = entries.data_type().clone() else {
                    return Err(ArrowError::SchemaError("a map has no entries".to_owned()));
                };
                let values = StructArray::try_new(fields, arrays, None)?;
                Arc::new(MapArray::try_new(entries, ends, values, nulls, is_sorted)?)
            }
        })
    }
}

/// Structs whose fields are null wherever the struct is: engines take a field out of a struct without looking at the struct.
///
/// # Errors
/// When the arrays do not fit the fields.
pub fn structs(
    fields: Fields,
    arrays: Vec<ArrayRef>,
    nulls: Option<NullBuffer>,
    len: usize,
) -> Result<StructArray, ArrowError> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let arrays = match &nulls {
        Some(nulls) => arrays
            .iter()
            .map(|array| masked(array, nulls))
            .collect::<Result<_, _>>()?,
        None => arrays,
    };
    StructArray::try_new_with_length(fields, arrays, nulls, len)
}

/// The array, null wherever `nulls` is, at any depth of structs.
fn masked(array: &ArrayRef, nulls: &NullBuffer) -> Result<ArrayRef, ArrowError> {
    if let Some(inner) = array.as_any().downcast_ref::<StructArray>() {
        let nulls = NullBuffer::union(inner.nulls(), Some(nulls));
        let (fields, arrays, _) = inner.clone().into_parts();
        return Ok(Arc::new(structs(fields, arrays, nulls, array.len())?));
    }
    nullif(array, &BooleanArray::new(!nulls.inner(), None))
}

fn take_ends(column: &mut Vec<i32>) -> OffsetBuffer<i32> {
    offsets_of(std::mem::replace(column, vec![0]))
}

fn offsets_of(ends: Vec<i32>) -> OffsetBuffer<i32> {
    let len = ends.len();
    OffsetBuffer::new(ScalarBuffer::new(buffer_of(ends), 0, len))
}

fn last_of(ends: &OffsetBuffer<i32>) -> usize {
    ends.last().copied().unwrap_or(0) as usize
}

/// A column of booleans as bits. Its memory stays with the column.
fn take_bits(column: &mut Vec<u8>) -> BooleanBuffer {
    let bits = BooleanBuffer::collect_bool(column.len(), |at| column[at] != 0);
    column.clear();
    bits
}

fn scalar_array(
    columns: &mut Columns,
    scalar: Scalar,
    column: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    match scalar {
        Scalar::Bool => {
            let bits = take_bits(&mut columns.w1[column]);
            Arc::new(BooleanArray::new(bits, nulls))
        }
        Scalar::Int8 => words::<Int8Type, u8>(&mut columns.w1[column], nulls),
        Scalar::Uint8 => words::<UInt8Type, u8>(&mut columns.w1[column], nulls),
        Scalar::Int16 => words::<Int16Type, u16>(&mut columns.w2[column], nulls),
        Scalar::Uint16 => words::<UInt16Type, u16>(&mut columns.w2[column], nulls),
        Scalar::Int32 => words::<Int32Type, u32>(&mut columns.w4[column], nulls),
        Scalar::Uint32 => words::<UInt32Type, u32>(&mut columns.w4[column], nulls),
        Scalar::Float32 => words::<Float32Type, u32>(&mut columns.w4[column], nulls),
        Scalar::Int64 => words::<Int64Type, u64>(&mut columns.w8[column], nulls),
        Scalar::Uint64 => words::<UInt64Type, u64>(&mut columns.w8[column], nulls),
        Scalar::Float64 => words::<Float64Type, u64>(&mut columns.w8[column], nulls),
    }
}

/// The same bits under another type of the same width.
fn words<A: ArrowPrimitiveType, T: Word>(
    column: &mut Vec<T>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let words = std::mem::take(column);
    let len = words.len();
    let buffer = ScalarBuffer::<A::Native>::new(buffer_of(words), 0, len);
    Arc::new(PrimitiveArray::<A>::new(buffer, nulls))
}

/// Texts as they are, or repaired where Arrow finds invalid UTF-8.
fn text_array(texts: Texts, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let (ends, data) = (offsets_of(texts.ends), buffer_of(texts.data));
    if let Ok(array) = StringArray::try_new(ends.clone(), data.clone(), nulls.clone()) {
        return Ok(Arc::new(array));
    }
    let texts = repaired(&ends, &data);
    let (ends, data) = (offsets_of(texts.ends), buffer_of(texts.data));
    Ok(Arc::new(StringArray::try_new(ends, data, nulls)?))
}

/// The same texts, with U+FFFD for invalid UTF-8.
fn repaired(ends: &[i32], data: &[u8]) -> Texts {
    let mut good = Texts::default();
    for ends in ends.windows(2) {
        let text = &data[ends[0] as usize..ends[1] as usize];
        good.push(String::from_utf8_lossy(text).as_bytes());
    }
    good
}
