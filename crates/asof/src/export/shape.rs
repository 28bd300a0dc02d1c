//! Tables in the shape that a reader needs: without structs, or without a time zone.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, make_array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use arrow_select::nullif::nullif;

/// Whether times carry the zone UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeZone {
    /// Timestamps with the zone UTC, as pandas and polars expect them
    #[default]
    Utc,
    /// The same nanoseconds without a zone: the only ones that DuckDB 2 subtracts and compares
    None,
}

/// What is done to a table before it is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// Whether structs are spread over columns.
    pub flatten: bool,
    /// The zone of times.
    pub zone: TimeZone,
}

impl Shape {
    /// The table in this shape.
    pub fn of(self, batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut batch = batch;
        if self.flatten {
            batch = flat(&batch)?;
        }
        if self.zone == TimeZone::None {
            batch = zoneless(&batch)?;
        }
        Ok(batch)
    }
}

/// Columns `pose.position.x` instead of a struct `pose`; lists stay lists.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let mut out = Flat::default();
    let schema = batch.schema();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        out.add(field, column, "", false)?;
    }
    let schema = Schema::new_with_metadata(out.fields, schema.metadata().clone());
    RecordBatch::try_new(Arc::new(schema), out.columns)
}

#[derive(Default)]
struct Flat {
    fields: Vec<FieldRef>,
    columns: Vec<ArrayRef>,
    names: HashSet<String>,
}

impl Flat {
    fn add(
        &mut self,
        field: &FieldRef,
        column: &ArrayRef,
        within: &str,
        may_lack: bool,
    ) -> Result<(), ArrowError> {
        let name = if within.is_empty() {
            field.name().clone()
        } else {
            format!("{within}.{}", field.name())
        };
        let may_lack = may_lack || field.is_nullable();
        match column.data_type() {
            DataType::Struct(inner) if !inner.is_empty() => {
                let column = column.as_struct();
                // Where the struct is null, so are its fields.
                let missing = column.nulls().filter(|nulls| nulls.null_count() > 0);
                let missing = missing.map(|nulls| BooleanArray::new(!nulls.inner(), None));
                for (field, part) in inner.iter().zip(column.columns()) {
                    let part = match &missing {
                        Some(missing) => nullif(part, missing)?,
                        None => Arc::clone(part),
                    };
                    self.add(field, &part, &name, may_lack)?;
                }
            }
            _ => {
                let name = self.free(&name);
                let field = field.as_ref().clone().with_name(name);
                self.fields.push(Arc::new(field.with_nullable(may_lack)));
                self.columns.push(Arc::clone(column));
            }
        }
        Ok(())
    }

    /// A name that no column has: a JSON field may have a dot in its name.
    fn free(&mut self, name: &str) -> String {
        let mut free = name.to_owned();
        let mut numbers = 2_u64..;
        while !self.names.insert(free.clone()) {
            free = format!("{name}-{}", numbers.next().unwrap_or(u64::MAX));
        }
        free
    }
}

/// The same table, with all times without a zone.
fn zoneless(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let fields: Fields = schema.fields().iter().map(field_without_zone).collect();
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    let columns = batch.columns().iter().map(|column| {
        if type_without_zone(column.data_type()) == *column.data_type() {
            return Ok(Arc::clone(column));
        }
        without_zone(&column.to_data()).map(make_array)
    });
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    RecordBatch::try_new(Arc::new(schema), columns)
}

fn field_without_zone(field: &FieldRef) -> FieldRef {
    let kind = type_without_zone(field.data_type());
    Arc::new(Field::clone(field).with_data_type(kind))
}

fn type_without_zone(kind: &DataType) -> DataType {
    match kind {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, None),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(field_without_zone).collect())
        }
        DataType::List(item) => DataType::List(field_without_zone(item)),
        DataType::FixedSizeList(item, len) => {
            DataType::FixedSizeList(field_without_zone(item), *len)
        }
        DataType::Map(entries, is_sorted) => DataType::Map(field_without_zone(entries), *is_sorted),
        other => other.clone(),
    }
}

fn without_zone(data: &ArrayData) -> Result<ArrayData, ArrowError> {
    let kind = type_without_zone(data.data_type());
    if kind == *data.data_type() {
        return Ok(data.clone());
    }
    let parts = data.child_data().iter().map(without_zone);
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let builder = data.clone().into_builder();
    builder.data_type(kind).child_data(parts).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::TimestampNanosecondType;
    use arrow_array::{Int32Array, ListArray, StructArray, TimestampNanosecondArray};
    use arrow_buffer::{NullBuffer, OffsetBuffer};
    use arrow_schema::TimeUnit;

    fn nested() -> RecordBatch {
        let times = TimestampNanosecondArray::from(vec![1, 2, 3]).with_timezone("UTC");
        let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let number: ArrayRef = Arc::new(Int32Array::from(vec![7, 8, 9]));
        let within = vec![
            Field::new("n", DataType::Int32, false),
            Field::new("t", time.clone(), false),
        ];
        let some = NullBuffer::from(vec![true, false, true]);
        let times: ArrayRef = Arc::new(times);
        let inner = StructArray::new(within.into(), vec![number, Arc::clone(&times)], Some(some));
        let item = Arc::new(Field::new("item", time, false));
        let list = ListArray::new(item, OffsetBuffer::from_lengths([1, 0, 2]), times, None);
        let taken: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("a.n", taken, false),
            ("a", Arc::new(inner), true),
            ("list", Arc::new(list), false),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).expect("columns")
    }

    #[test]
    fn structs_are_spread_and_what_is_missing_stays_so() {
        let shape = Shape {
            flatten: true,
            ..Shape::default()
        };
        let batch = shape.of(nested()).expect("flat");
        let schema = batch.schema();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        assert_eq!(names, ["a.n", "a.n-2", "a.t", "list"]);
        let numbers = batch
            .column(1)
            .as_primitive::<arrow_array::types::Int32Type>();
        let numbers: Vec<Option<i32>> = numbers.iter().collect();
        assert_eq!(numbers, [Some(7), None, Some(9)]);
        assert!(schema.field(1).is_nullable() && !schema.field(0).is_nullable());
    }

    #[test]
    fn times_without_a_zone_are_the_same_nanoseconds_wherever_they_are() {
        let shape = Shape {
            zone: TimeZone::None,
            ..Shape::default()
        };
        let batch = shape.of(nested()).expect("zoneless");
        let bare = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let times = batch.column(1).as_struct().column(1);
        assert_eq!(times.data_type(), &bare);
        assert_eq!(times.as_primitive::<TimestampNanosecondType>().value(2), 3);
        let list = batch.column(2).as_list::<i32>().value(2);
        assert_eq!(list.data_type(), &bare);
        assert_eq!(
            list.as_primitive::<TimestampNanosecondType>().values(),
            &[2, 3]
        );
    }
}
