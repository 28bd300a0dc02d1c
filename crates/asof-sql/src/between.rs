//! Interpolation between two messages, column by column.

use std::sync::Arc;

use asof_align::between::{number, rotation, time};

use asof_decode::{stamps_of, time_parts};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Int64Array, PrimitiveArray, StructArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Fields, Float32Type, Float64Type, Int64Type, TimeUnit,
    TimestampNanosecondType,
};
use datafusion::common::Result;

/// Interpolates each row between the first and the second: floats and times linearly, rotations along the arc, lists of a fixed
/// length item by item. Values that cannot be interpolated (texts, integers, lists of any length) are those of the first, which were
/// known by then.
pub(crate) fn between(first: &ArrayRef, second: &ArrayRef, parts: &[f64]) -> Result<ArrayRef> {
    Ok(match first.data_type() {
        DataType::Float64 => Arc::new(numbers::<Float64Type>(first, second, parts, &number)),
        DataType::Float32 => Arc::new(numbers::<Float32Type>(
            first,
            second,
            parts,
            &|a, b, part| number(a.into(), b.into(), part) as f32,
        )),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let times = numbers::<TimestampNanosecondType>(first, second, parts, &instant);
            Arc::new(times.with_timezone_opt(zone.clone()))
        }
        DataType::FixedSizeList(item, len) => {
            let (one, other) = (first.as_fixed_size_list(), second.as_fixed_size_list());
            let each = parts.iter();
            let each: Vec<f64> = each
                .flat_map(|part| std::iter::repeat_n(*part, one.value_length() as usize))
                .collect();
            let items = between(one.values(), other.values(), &each)?;
            let nulls = one.nulls().cloned();
            Arc::new(FixedSizeListArray::try_new(
                Arc::clone(item),
                *len,
                items,
                nulls,
            )?)
        }
        DataType::Struct(fields) => {
            let (one, other) = (first.as_struct(), second.as_struct());
            if let Some(rotations) = rotations(fields, one, other, parts)? {
                return Ok(rotations);
            }
            if let Some(stamps) = stamps(fields, one, other, parts)? {
                return Ok(stamps);
            }
            let columns = one.columns().iter().zip(other.columns());
            let columns = columns.map(|(one, other)| between(one, other, parts));
            let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
            if columns.is_empty() {
                return Ok(Arc::clone(first));
            }
            Arc::new(StructArray::try_new(
                fields.clone(),
                columns,
                one.nulls().cloned(),
            )?)
        }
        _ => Arc::clone(first),
    })
}

/// Between two times, so it is one too.
fn instant(a: i64, b: i64, part: f64) -> i64 {
    time(a.into(), b.into(), part) as i64
}

fn numbers<T: ArrowPrimitiveType>(
    first: &dyn Array,
    second: &dyn Array,
    parts: &[f64],
    step: &dyn Fn(T::Native, T::Native, f64) -> T::Native,
) -> PrimitiveArray<T> {
    let (one, other) = (first.as_primitive::<T>(), second.as_primitive::<T>());
    let rows = one.iter().zip(other.iter()).zip(parts);
    rows.map(|((a, b), part)| {
        let a = a?;
        Some(b.filter(|_| *part > 0.0).map_or(a, |b| step(a, b, *part)))
    })
    .collect()
}

/// Structs of seconds and nanoseconds alone are times.
fn stamps(
    fields: &Fields,
    one: &StructArray,
    other: &StructArray,
    parts: &[f64],
) -> Result<Option<ArrayRef>> {
    let places = time_parts(one.data_type()).filter(|_| fields.len() == 2);
    let (Some(places), Some(from), Some(to)) = (places, stamps_of(one), stamps_of(other)) else {
        return Ok(None);
    };
    let times = numbers::<TimestampNanosecondType>(&from, &to, parts, &instant);
    let mut columns = one.columns().to_vec();
    let second = |time: i64| time.div_euclid(1_000_000_000);
    let nanos = |time: i64| time.rem_euclid(1_000_000_000);
    let pieces: [(usize, &dyn Fn(i64) -> i64); 2] = [(places.0, &second), (places.1, &nanos)];
    for (place, piece) in pieces {
        let own = cast(&columns[place], &DataType::Int64)?;
        // What is not a time stays.
        let values = times.iter().zip(own.as_primitive::<Int64Type>());
        let values: Int64Array = values.map(|(time, own)| time.map(piece).or(own)).collect();
        columns[place] = cast(&values, fields[place].data_type())?;
    }
    let nulls = one.nulls().cloned();
    let times = StructArray::try_new(fields.clone(), columns, nulls)?;
    Ok(Some(Arc::new(times)))
}

/// Structs of x, y, z and w, all of one width, are rotations.
fn rotations(
    fields: &Fields,
    one: &StructArray,
    other: &StructArray,
    parts: &[f64],
) -> Result<Option<ArrayRef>> {
    let names = fields.iter().map(|field| field.name().as_str());
    let is_rotation = names.eq(["x", "y", "z", "w"])
        && matches!(fields[0].data_type(), DataType::Float32 | DataType::Float64)
        && fields
            .iter()
            .all(|field| field.data_type() == fields[0].data_type());
    if !is_rotation {
        return Ok(None);
    }
    let wide = |array: &StructArray| -> Result<Vec<ArrayRef>> {
        let columns = array.columns().iter();
        columns
            .map(|column| Ok(cast(column, &DataType::Float64)?))
            .collect()
    };
    let (from, to) = (wide(one)?, wide(other)?);
    let numbers = |columns: &[ArrayRef], row: usize| -> [Option<f64>; 4] {
        std::array::from_fn(|at| {
            let column = columns[at].as_primitive::<Float64Type>();
            column.is_valid(row).then(|| column.value(row))
        })
    };
    let whole = |[x, y, z, w]: [Option<f64>; 4]| Some([x?, y?, z?, w?]);
    let row = |row: usize| -> [Option<f64>; 4] {
        let (a, b) = (numbers(&from, row), numbers(&to, row));
        match whole(a).zip(whole(b)).filter(|_| parts[row] > 0.0) {
            Some((a, b)) => rotation(a, b, parts[row]).map(Some),
            None => a,
        }
    };
    let rows: Vec<[Option<f64>; 4]> = (0..one.len()).map(row).collect();
    let column = |at: usize| -> Result<ArrayRef> {
        let values: PrimitiveArray<Float64Type> = rows.iter().map(|row| row[at]).collect();
        Ok(cast(&values, fields[at].data_type())?)
    };
    let columns = (0..4).map(column).collect::<Result<_>>()?;
    let nulls = one.nulls().cloned();
    Ok(Some(Arc::new(StructArray::try_new(
        fields.clone(),
        columns,
        nulls,
    )?)))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float64Array, Int32Array, StringArray};

    use super::*;

    fn floats(values: Vec<Option<f64>>) -> ArrayRef {
        Arc::new(Float64Array::from(values))
    }

    #[test]
    fn floats_go_part_of_the_way_and_the_rest_stays() {
        let found = between(
            &floats(vec![Some(1.0), None, Some(f64::INFINITY), Some(3.0)]),
            &floats(vec![Some(2.0), Some(1.0), Some(f64::INFINITY), None]),
            &[0.25, 0.5, 0.5, 0.5],
        );
        let wanted = floats(vec![Some(1.25), None, Some(f64::INFINITY), Some(3.0)]);
        assert_eq!(&found.expect("floats"), &wanted);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let others: ArrayRef = Arc::new(StringArray::from(vec!["b"]));
        assert_eq!(&between(&texts, &others, &[0.9]).expect("texts"), &texts);
        let counts: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let more: ArrayRef = Arc::new(Int32Array::from(vec![9]));
        assert_eq!(&between(&counts, &more, &[0.5]).expect("counts"), &counts);
    }

    #[test]
    fn rotations_go_along_the_arc() {
        let rotation = |angle: f64| -> ArrayRef {
            let (sin, cos) = (angle / 2.0).sin_cos();
            let parts = [("x", 0.0), ("y", 0.0), ("z", sin), ("w", cos)];
            let parts = parts.map(|(name, value)| (name, floats(vec![Some(value)])));
            Arc::new(StructArray::try_from(parts.to_vec()).expect("a struct"))
        };
        let found = between(&rotation(0.2), &rotation(1.0), &[0.25]).expect("a rotation");
        let z = found
            .as_struct()
            .column(2)
            .as_primitive::<Float64Type>()
            .value(0);
        assert!((z - (0.4f64 / 2.0).sin()).abs() < 1e-12, "{z}");
    }
}
