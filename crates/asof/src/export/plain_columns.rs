//! Columns that Parquet can hold.
//!
//! Parquet has no struct without fields, such as constants-only types of ROS and empty messages of protobuf. Such a
//! column becomes a boolean: true where the message has a value, null where it has none. Lists of them thus keep their
//! lengths.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, ListArray, MapArray, RecordBatch,
    StructArray,
};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema, SchemaRef};

/// Metadata of a column that replaces a struct without fields.
const EMPTY: &str = "asof:empty";

/// The schema in which batches of another are written; `None` where that can be written unchanged.
pub fn plain(schema: &Schema) -> Option<SchemaRef> {
    let is_plain = schema
        .fields()
        .iter()
        .all(|field| is_plain(field.data_type()));
    if is_plain {
        return None;
    }
    let fields: Fields = schema.fields().iter().map(plain_field).collect();
    Some(Arc::new(Schema::new_with_metadata(
        fields,
        schema.metadata().clone(),
    )))
}

/// A batch in the schema that [`plain`] made of its own.
pub fn plain_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(plain_array);
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(SchemaRef::clone(schema), columns)
}

fn is_plain(kind: &DataType) -> bool {
    match kind {
        DataType::Struct(fields) => {
            !fields.is_empty() && fields.iter().all(|field| is_plain(field.data_type()))
        }
        DataType::List(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            is_plain(item.data_type())
        }
        _ => true,
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let kind = plain_type(field.data_type());
    let mut field = field.as_ref().clone();
    if matches!(field.data_type(), DataType::Struct(inner) if inner.is_empty()) {
        let mut metadata: HashMap<String, String> = field.metadata().clone();
        metadata.insert(EMPTY.to_owned(), "true".to_owned());
        field = field.with_metadata(metadata);
    }
    Arc::new(field.with_data_type(kind))
}

fn plain_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Struct(fields) if fields.is_empty() => DataType::Boolean,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(plain_field(item), *len),
        DataType::Map(entries, is_sorted) => DataType::Map(plain_field(entries), *is_sorted),
        other => other.clone(),
    }
}

fn plain_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if is_plain(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    let nulls = array.nulls().cloned();
    Ok(match plain_type(array.data_type()) {
        DataType::Boolean => {
            let all = BooleanBuffer::new_set(array.len());
            Arc::new(BooleanArray::new(all, nulls))
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().map(plain_array);
            let columns = columns.collect::<Result<_, _>>()?;
            Arc::new(StructArray::try_new(fields, columns, nulls)?)
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let values = plain_array(list.values())?;
            Arc::new(ListArray::try_new(
                item,
                list.offsets().clone(),
                values,
                nulls,
            )?)
        }
        DataType::FixedSizeList(item, len) => {
            let values = plain_array(array.as_fixed_size_list().values())?;
            let len_of = array.len();
            Arc::new(FixedSizeListArray::try_new_with_length(
                item, len, values, nulls, len_of,
            )?)
        }
        DataType::Map(entries, is_sorted) => {
            let map = array.as_map();
            let inner: ArrayRef = Arc::new(map.entries().clone());
            let inner = plain_array(&inner)?.as_struct().clone();
            let offsets = map.offsets().clone();
            Arc::new(MapArray::try_new(
                entries, offsets, inner, nulls, is_sorted,
            )?)
        }
        _ => Arc::clone(array),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int32Array;
    use arrow_buffer::{NullBuffer, OffsetBuffer};
    use arrow_schema::Field;

    #[test]
    fn what_has_no_fields_is_a_truth_value_wherever_it_is() {
        let nothing = |len: usize, nulls: Option<NullBuffer>| -> ArrayRef {
            Arc::new(StructArray::new_empty_fields(len, nulls))
        };
        let kind = DataType::Struct(Fields::empty());
        let item = Arc::new(Field::new("item", kind.clone(), false));
        let list = ListArray::new(
            Arc::clone(&item),
            OffsetBuffer::from_lengths([2, 0, 1]),
            nothing(3, None),
            None,
        );
        let some = NullBuffer::from(vec![true, false, true]);
        let number: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let inner = vec![
            Field::new("n", DataType::Int32, false),
            Field::new("e", kind.clone(), true),
        ];
        let outer = StructArray::new(inner.into(), vec![number, nothing(3, Some(some))], None);
        let columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("list", Arc::new(list), false),
            ("outer", Arc::new(outer), false),
            ("empty", nothing(3, None), false),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("columns");
        let schema = plain(batch.schema_ref()).expect("there are empty ones");
        let found = plain_batch(&batch, &schema).expect("a batch");
        assert!(plain(&schema).is_none());
        let list = found.column(0).as_list::<i32>();
        assert_eq!((list.value_length(0), list.value_length(2)), (2, 1));
        let present = found.column(1).as_struct().column(1).as_boolean();
        let present: Vec<Option<bool>> = present.iter().collect();
        assert_eq!(present, [Some(true), None, Some(true)]);
        assert_eq!(found.column(2).as_boolean().true_count(), 3);
    }
}
