//! Rows without Arrow's view types, which are newer than many readers of Arrow data.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::take::take;

use crate::Error;
use crate::table::RowBatches;

/// The most bytes of values that become plain at once. Views can name the same bytes again and again; plain columns cannot, and
/// the offsets of one end at 2 GiB.
const MOST_BYTES: usize = 64 << 20;

/// The columns with plain types in the place of views; `None` if there are none.
pub(crate) fn plain_schema(schema: &SchemaRef) -> Option<SchemaRef> {
    let fields: Vec<_> = schema.fields().iter().map(plain_field).collect();
    let plain = Schema::new(fields).with_metadata(schema.metadata().clone());
    (plain != **schema).then(|| Arc::new(plain))
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let kind = plain_kind(field.data_type());
    Arc::new(Field::clone(field).with_data_type(kind))
}

fn plain_kind(kind: &DataType) -> DataType {
    match kind {
        DataType::BinaryView => DataType::Binary,
        DataType::Utf8View => DataType::Utf8,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(plain_field(item), *size),
        DataType::Map(entries, is_sorted) => DataType::Map(plain_field(entries), *is_sorted),
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(plain_kind(values)))
        }
        kind => kind.clone(),
    }
}

/// Batches that become plain as they are read; a very large one becomes several.
pub(crate) struct PlainBatches {
    pub(crate) batches: RowBatches,
    pub(crate) schema: SchemaRef,
    pub(crate) waiting: VecDeque<RecordBatch>,
}

impl Iterator for PlainBatches {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.waiting.is_empty() {
            match self.batches.next()? {
                Ok(batch) => split(batch, &mut self.waiting),
                Err(error) => return Some(Err(error)),
            }
        }
        let batch = self.waiting.pop_front()?;
        Some(plain(&batch, &self.schema).map_err(Error::from))
    }
}

fn split(batch: RecordBatch, parts: &mut VecDeque<RecordBatch>) {
    let bytes: usize = batch
        .columns()
        .iter()
        .map(|column| view_bytes(column))
        .sum();
    let rows = batch.num_rows();
    if bytes <= MOST_BYTES || rows < 2 {
        parts.push_back(batch);
        return;
    }
    split(batch.slice(0, rows / 2), parts);
    split(batch.slice(rows / 2, rows - rows / 2), parts);
}

/// The bytes that the views of an array name.
fn view_bytes(array: &dyn Array) -> usize {
    // The length of a view is in its low half.
    let named = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum();
    let within = |values: &dyn Array, first: usize, last: usize| {
        view_bytes(&values.slice(first, last - first))
    };
    match array.data_type() {
        DataType::BinaryView => named(array.as_binary_view().views()),
        DataType::Utf8View => named(array.as_string_view().views()),
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.map(|column| view_bytes(column)).sum()
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let ends = list.offsets();
            within(list.values(), ends[0] as usize, ends[list.len()] as usize)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let ends = list.offsets();
            within(list.values(), ends[0] as usize, ends[list.len()] as usize)
        }
        DataType::FixedSizeList(..) => view_bytes(array.as_fixed_size_list().values()),
        DataType::Map(..) => {
            let map = array.as_map();
            let ends = map.offsets();
            within(map.entries(), ends[0] as usize, ends[map.len()] as usize)
        }
        _ => 0,
    }
}

fn plain(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let all_rows = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        // A part of a column of lists still has the elements of all: the cast would copy them too.
        arrow_cast::cast(&take(column, &all_rows, None)?, field.data_type())
    });
    let columns = columns.collect::<Result<_, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        ArrayRef, BinaryViewArray, FixedSizeListArray, Int64Array, ListArray, StringViewArray,
        StructArray,
    };
    use arrow_buffer::OffsetBuffer;

    use super::*;
    use crate::Table;

    fn item(of: &ArrayRef) -> FieldRef {
        Arc::new(Field::new("item", of.data_type().clone(), true))
    }

    fn table(columns: Vec<(&str, ArrayRef)>) -> Table {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Table::new(batch.schema(), move |_, _| {
            Ok(std::iter::once(Ok(batch.clone())))
        })
    }

    #[test]
    fn views_become_plain_wherever_they_are_and_keep_their_values() {
        let long = vec![7_u8; 100];
        let blobs: ArrayRef = Arc::new(BinaryViewArray::from_iter([
            Some(&b"short"[..]),
            None,
            Some(&long),
            Some(b""),
        ]));
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![
            "a",
            "é",
            "",
            "the last of four",
        ]));
        let ends = OffsetBuffer::new(vec![0, 3, 3, 4, 4].into());
        let lists: ArrayRef =
            Arc::new(ListArray::new(item(&blobs), ends, Arc::clone(&blobs), None));
        let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(
            item(&lists),
            1,
            Arc::clone(&lists),
            None,
        ));
        let fields = vec![
            (
                Arc::new(Field::new("lists", lists.data_type().clone(), true)),
                Arc::clone(&lists),
            ),
            (
                Arc::new(Field::new("pairs", pairs.data_type().clone(), true)),
                pairs,
            ),
        ];
        let structs: ArrayRef = Arc::new(StructArray::from(fields));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
        let before = table(vec![
            ("blobs", blobs),
            ("texts", texts),
            ("structs", structs),
            ("numbers", numbers),
        ]);
        let after = before.clone().without_views();
        assert!(!format!("{:?}", after.schema()).contains("View"));
        let (old, new) = (before.collect().unwrap(), after.collect().unwrap());
        assert_eq!((new.len(), new[0].schema_ref()), (1, after.schema()));
        // Back again they are what they were.
        let restored = new[0].columns().iter().zip(old[0].columns());
        for (column, wanted) in restored {
            let column = arrow_cast::cast(column, wanted.data_type()).unwrap();
            assert_eq!(&column, wanted);
        }
    }

    #[test]
    fn bytes_that_many_views_name_do_not_become_one_batch() {
        let image = vec![1_u8; 1 << 20];
        let mut images = BinaryViewArray::from_iter_values([&image]);
        let again = images.views()[0];
        images = BinaryViewArray::new(
            vec![again; 200].into(),
            images.data_buffers().to_vec(),
            None,
        );
        let ends = OffsetBuffer::from_lengths([1; 200]);
        let lists: ArrayRef = Arc::new(images);
        let lists: ArrayRef = Arc::new(ListArray::new(item(&lists), ends, lists, None));
        let batches = table(vec![("lists", lists)])
            .without_views()
            .collect()
            .unwrap();
        let rows: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [50; 4]);
        for batch in &batches {
            let values = batch.column(0).as_list::<i32>().values();
            assert_eq!(values.as_binary::<i32>().value_data().len(), 50 << 20);
        }
    }

    #[test]
    fn a_table_without_views_stays_as_it_is() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let before = table(vec![("numbers", numbers)]);
        let after = before.clone().without_views();
        assert!(Arc::ptr_eq(before.schema(), after.schema()));
    }
}
