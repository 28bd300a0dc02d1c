//! Columns of one type as columns of another, by name.

use std::sync::Arc;

use asof_decode::structs;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};

/// Converts the array to `wanted`. Structs are matched field by field, also within lists: a missing field is null, and so are
/// values that cannot be cast.
pub(crate) fn adapt(array: &ArrayRef, wanted: &DataType) -> ArrayRef {
    if array.data_type() == wanted {
        return Arc::clone(array);
    }
    if let (Some(found), DataType::Struct(fields)) =
        (array.as_any().downcast_ref::<StructArray>(), wanted)
    {
        let children = fields
            .iter()
            .map(|field| match found.column_by_name(field.name()) {
                Some(child) => adapt(child, field.data_type()),
                None => new_null_array(field.data_type(), found.len()),
            });
        let children: Vec<ArrayRef> = children.collect();
        let nulls = found.nulls().cloned();
        return match structs(fields.clone(), children, nulls, found.len()) {
            Ok(built) => Arc::new(built),
            Err(_) => new_null_array(wanted, array.len()),
        };
    }
    if let DataType::List(item) = wanted {
        return adapt_list(array, item).unwrap_or_else(|| new_null_array(wanted, array.len()));
    }
    cast(array, wanted).unwrap_or_else(|_| new_null_array(wanted, array.len()))
}

/// A list, of any length or of a fixed one, with other elements.
fn adapt_list(array: &ArrayRef, item: &FieldRef) -> Option<ArrayRef> {
    let own = match array.data_type() {
        DataType::List(own) | DataType::FixedSizeList(own, _) => DataType::List(Arc::clone(own)),
        _ => return None,
    };
    let lists = cast(array, &own).ok()?;
    let (_, ends, elements, nulls) = lists.as_list_opt::<i32>()?.clone().into_parts();
    let elements = adapt(&elements, item.data_type());
    let lists = ListArray::try_new(Arc::clone(item), ends, elements, nulls).ok()?;
    Some(Arc::new(lists))
}

/// One type for both. Structs are united by the names of their fields, and lists by their elements; of two incompatible types the
/// first is kept, and `conflict` is called with its path.
pub(crate) fn united(
    one: &FieldRef,
    other: &FieldRef,
    path: &str,
    conflict: &mut dyn FnMut(&str),
) -> FieldRef {
    let is_nullable = one.is_nullable() || other.is_nullable();
    let data_type = match (one.data_type(), other.data_type()) {
        (a, b) if a == b => a.clone(),
        (DataType::Struct(a), DataType::Struct(b)) => {
            DataType::Struct(united_fields(a, b, path, conflict))
        }
        (
            DataType::List(a) | DataType::FixedSizeList(a, _),
            DataType::List(b) | DataType::FixedSizeList(b, _),
        ) => {
            let item = united(a, b, &format!("{path}[]"), conflict);
            // A value that cannot be converted is null.
            DataType::List(Arc::new(item.as_ref().clone().with_nullable(true)))
        }
        (a, b) => wider(a, b).unwrap_or_else(|| {
            conflict(path);
            a.clone()
        }),
    };
    Arc::new(Field::new(one.name(), data_type, is_nullable))
}

/// The fields of both; those that only one of them has are nullable.
pub(crate) fn united_fields(
    one: &Fields,
    other: &Fields,
    path: &str,
    conflict: &mut dyn FnMut(&str),
) -> Fields {
    let nullable =
        |field: &FieldRef| Arc::new(Field::new(field.name(), field.data_type().clone(), true));
    let mut fields: Vec<FieldRef> = Vec::new();
    for field in one {
        let path = format!("{path}.{}", field.name());
        fields.push(match other.find(field.name()) {
            Some((_, twin)) => united(field, twin, &path, conflict),
            None => nullable(field),
        });
    }
    let new = other
        .iter()
        .filter(|field| one.find(field.name()).is_none());
    fields.extend(new.map(nullable));
    fields.into()
}

/// A number type that holds both.
fn wider(one: &DataType, other: &DataType) -> Option<DataType> {
    use DataType::{
        Boolean, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64,
    };
    let rank = |kind: &DataType| {
        Some(match kind {
            Boolean => 0,
            Int8 | UInt8 => 1,
            Int16 | UInt16 => 2,
            Int32 | UInt32 => 3,
            Int64 | UInt64 => 4,
            Float32 | Float64 => 5,
            _ => return None,
        })
    };
    let (a, b) = (rank(one)?, rank(other)?);
    if a == 5 || b == 5 {
        return Some(Float64);
    }
    Some(match a.max(b) {
        0 => Boolean,
        1 => Int16,
        2 => Int32,
        _ => Int64,
    })
}
