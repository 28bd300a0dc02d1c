//! Interpolation between two messages, column by column.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, StructArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Fields, Float32Type, Float64Type, TimeUnit,
    TimestampNanosecondType,
};
use datafusion::common::Result;
use nalgebra::{Quaternion, UnitQuaternion};

/// Interpolates each row between the first and the second: floats and times linearly, rotations along the arc. Values that
/// cannot be interpolated (texts, integers, lists) are those of the first, which were known by then.
pub(crate) fn between(first: &ArrayRef, second: &ArrayRef, parts: &[f64]) -> Result<ArrayRef> {
    Ok(match first.data_type() {
        DataType::Float64 => Arc::new(numbers::<Float64Type>(first, second, parts, &linear)),
        DataType::Float32 => Arc::new(numbers::<Float32Type>(
            first,
            second,
            parts,
            &|a, b, part| linear(a.into(), b.into(), part) as f32,
        )),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let step = |a: i64, b: i64, part: f64| {
                a.saturating_add((b.saturating_sub(a) as f64 * part).round() as i64)
            };
            let times = numbers::<TimestampNanosecondType>(first, second, parts, &step);
            Arc::new(times.with_timezone_opt(zone.clone()))
        }
        DataType::Struct(fields) => {
            let (one, other) = (first.as_struct(), second.as_struct());
            if let Some(rotations) = rotations(fields, one, other, parts)? {
                return Ok(rotations);
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

/// Equal values stay the same, including infinities.
fn linear(a: f64, b: f64, part: f64) -> f64 {
    if a.to_bits() == b.to_bits() {
        a
    } else {
        a + (b - a) * part
    }
}

fn numbers<T: ArrowPrimitiveType>(
    first: &ArrayRef,
    second: &ArrayRef,
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

/// Structs of x, y, z and w are rotations.
fn rotations(
    fields: &Fields,
    one: &StructArray,
    other: &StructArray,
    parts: &[f64],
) -> Result<Option<ArrayRef>> {
    let is_float = |field: &str, at: usize| {
        fields[at].name() == field && *fields[at].data_type() == DataType::Float64
    };
    let is_rotation = fields.len() == 4
        && ["x", "y", "z", "w"]
            .iter()
            .zip(0..)
            .all(|(name, at)| is_float(name, at));
    if !is_rotation {
        return Ok(None);
    }
    let value = |array: &StructArray, at: usize, row: usize| {
        let column = array.column(at).as_primitive::<Float64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let rotation = |array: &StructArray, row: usize| {
        let [x, y, z, w] = [0, 1, 2, 3].map(|at| value(array, at, row));
        UnitQuaternion::try_new(Quaternion::new(w?, x?, y?, z?), f64::EPSILON)
    };
    let row = |row: usize| -> [Option<f64>; 4] {
        let as_it_is = || [0, 1, 2, 3].map(|at| value(one, at, row));
        let pair = rotation(one, row).zip(rotation(other, row));
        let Some((a, b)) = pair.filter(|_| parts[row] > 0.0) else {
            return as_it_is();
        };
        match a.try_slerp(&b, parts[row], 1e-9) {
            Some(found) => {
                let at = found.coords;
                [Some(at.x), Some(at.y), Some(at.z), Some(at.w)]
            }
            None => as_it_is(),
        }
    };
    let rows: Vec<[Option<f64>; 4]> = (0..one.len()).map(row).collect();
    let column = |at: usize| -> ArrayRef {
        let values: PrimitiveArray<Float64Type> = rows.iter().map(|row| row[at]).collect();
        Arc::new(values)
    };
    let columns = (0..4).map(column).collect();
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
