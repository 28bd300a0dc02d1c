//! Stamps, the times at which messages were measured: where they are, how their parts are spelled, and their value.
//!
//! This is the only list of those spellings; everything that reads a time from a message uses it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, TimestampNanosecondArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Fields};

use crate::columns::Columns;
use crate::layout::{Group, Projection, Shape};
use crate::model::Scalar;
use crate::print::number_at;
use crate::recycle::{buffer_of, room_for};

/// The paths of stamps, in order of precedence.
pub(crate) const STAMP_PATHS: [&str; 3] = ["header.stamp", "stamp", "timestamp"];

/// The spellings of a time's seconds.
const SECONDS: [&str; 3] = ["sec", "seconds", "secs"];
/// The spellings of a time's nanoseconds.
const NANOS: [&str; 5] = ["nanosec", "nsec", "nanos", "nsecs", "nanoseconds"];

const SECOND: i64 = 1_000_000_000;

impl Projection {
    /// Only the stamp: when a message was measured.
    pub fn stamp() -> Self {
        Projection::any_of(STAMP_PATHS)
    }
}

/// The seconds and the nanoseconds of a time, in any spelling.
pub(crate) fn parts_of<T>(find: impl Fn(&str) -> Option<T>) -> Option<(T, T)> {
    let seconds = SECONDS.iter().find_map(|name| find(name))?;
    let nanos = NANOS.iter().find_map(|name| find(name))?;
    Some((seconds, nanos))
}

/// Seconds and nanoseconds as one number; `None` where they are not a valid time.
fn joined(seconds: i64, nanos: i64) -> Option<i64> {
    let whole = seconds.checked_mul(SECOND)?.checked_add(nanos);
    whole.filter(|_| (0..SECOND).contains(&nanos))
}

/// The times in a column of structs such as `{sec, nanosec}`, in every spelling of ROS, protobuf and JSON.
///
/// A row is null where the struct or its seconds are null, and where nanoseconds are not below a second. Absent
/// nanoseconds are zero. `None` for a column that does not hold times.
pub fn stamps_of(array: &dyn Array) -> Option<TimestampNanosecondArray> {
    let table = array.as_struct_opt()?;
    let (seconds, nanos) = time_parts(table.data_type())?;
    let (seconds, nanos) = (table.column(seconds), table.column(nanos));
    let present = NullBuffer::union(table.nulls(), seconds.nulls());
    let (seconds, nanos) = (integers(seconds)?, integers(nanos)?);
    let is_there = |row: usize| present.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let mut good = Vec::with_capacity(array.len());
    let mut values = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        let value = joined(seconds[row], nanos[row]).filter(|_| is_there(row));
        good.push(value.is_some());
        values.push(value.unwrap_or(0));
    }
    let nulls =
        (!good.iter().all(|good| *good)).then(|| NullBuffer::new(BooleanBuffer::from(good)));
    let times = TimestampNanosecondArray::new(ScalarBuffer::from(values), nulls);
    Some(times.with_timezone("UTC"))
}

/// The indexes of the seconds and the nanoseconds of a struct that is a time, in every spelling; `None` for any other type.
pub fn time_parts(kind: &DataType) -> Option<(usize, usize)> {
    let DataType::Struct(fields) = kind else {
        return None;
    };
    let place = |name: &str| place_of(fields, name);
    parts_of(place)
}

fn place_of(fields: &Fields, name: &str) -> Option<usize> {
    let mut fields = fields.iter();
    fields.position(|field| field.name() == name && field.data_type().is_integer())
}

/// Integers of any width. Null is zero: a decoder writes a zero for an absent value.
fn integers(array: &ArrayRef) -> Option<Vec<i64>> {
    macro_rules! all {
        ($kind:ty) => {{
            let values = array.as_primitive::<$kind>().values().iter();
            values.map(|value| i64::from(*value)).collect()
        }};
    }
    Some(match array.data_type() {
        DataType::Int8 => all!(Int8Type),
        DataType::Int16 => all!(Int16Type),
        DataType::Int32 => all!(Int32Type),
        DataType::Int64 => array.as_primitive::<Int64Type>().values().to_vec(),
        DataType::UInt8 => all!(UInt8Type),
        DataType::UInt16 => all!(UInt16Type),
        DataType::UInt32 => all!(UInt32Type),
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values().iter();
            // Values beyond the range are not times, and are detected as such.
            values
                .map(|value| i64::try_from(*value).unwrap_or(i64::MAX))
                .collect()
        }
        _ => return None,
    })
}

/// The columns of a message's stamp.
#[derive(Debug, Clone)]
pub(crate) struct StampColumns {
    seconds: (Scalar, usize),
    nanos: (Scalar, usize),
    /// Columns of booleans that must all be true.
    present: Vec<usize>,
}

impl StampColumns {
    pub fn find(root: &Group) -> Option<Self> {
        STAMP_PATHS.iter().find_map(|path| {
            let stamp = root.find(path)?;
            let Shape::Struct(group) = &stamp.shape else {
                return None;
            };
            let (seconds, nanos) = parts_of(|name| {
                let node = group.find(name)?;
                match &node.shape {
                    Shape::Scalar(Scalar::Float32 | Scalar::Float64, _) => None,
                    Shape::Scalar(scalar, column) => Some(((*scalar, *column), node.presence)),
                    _ => None,
                }
            })?;
            let header = path.split_once('.').and_then(|(first, _)| root.find(first));
            let header = header.and_then(|header| header.presence);
            let present = [header, stamp.presence, seconds.1];
            Some(StampColumns {
                seconds: seconds.0,
                nanos: nanos.0,
                present: present.into_iter().flatten().collect(),
            })
        })
    }

    /// The stamp of one row.
    pub fn at(&self, columns: &Columns, row: usize) -> Option<i64> {
        let seconds = number_at(columns, self.seconds.0, self.seconds.1, row);
        let nanos = number_at(columns, self.nanos.0, self.nanos.1, row);
        joined(seconds, nanos).filter(|_| self.is_present(columns, row))
    }

    fn is_present(&self, columns: &Columns, row: usize) -> bool {
        let mut present = self.present.iter().map(|&column| columns.w1[column][row]);
        present.all(|byte| byte != 0)
    }

    /// The stamps of all rows.
    pub fn array(&self, columns: &Columns, rows: usize) -> ArrayRef {
        let mut values = room_for::<u64>(rows);
        // Seconds of ROS have 32 bits, so the result fits into 64: no row needs a check.
        if let (
            (Scalar::Int32 | Scalar::Uint32, seconds),
            (Scalar::Int32 | Scalar::Uint32, nanos),
        ) = (self.seconds, self.nanos)
        {
            let is_signed = self.seconds.0 == Scalar::Int32;
            let pairs = columns.w4[seconds].iter().zip(&columns.w4[nanos]);
            let mut largest = 0;
            values.extend(pairs.map(|(&seconds, &nanos)| {
                largest = largest.max(nanos);
                let seconds = if is_signed {
                    i64::from(seconds as i32)
                } else {
                    i64::from(seconds)
                };
                (seconds * SECOND + i64::from(nanos)) as u64
            }));
            if i64::from(largest) < SECOND && (0..rows).all(|row| self.is_present(columns, row)) {
                return times_array(values, None);
            }
            values.clear();
        }
        let mut good = Vec::with_capacity(rows);
        for row in 0..rows {
            let stamp = self.at(columns, row);
            good.push(stamp.is_some());
            values.push(stamp.unwrap_or(0) as u64);
        }
        let is_whole = good.iter().all(|good| *good);
        let nulls = (!is_whole).then(|| NullBuffer::new(BooleanBuffer::from(good)));
        times_array(values, nulls)
    }
}

/// Nanoseconds, with the sign in the highest bit, as in Arrow.
pub(crate) fn times_array(times: Vec<u64>, nulls: Option<NullBuffer>) -> ArrayRef {
    let len = times.len();
    let times = ScalarBuffer::new(buffer_of(times), 0, len);
    Arc::new(TimestampNanosecondArray::new(times, nulls).with_timezone("UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StructArray, UInt32Array};
    use arrow_schema::Field;

    fn times(seconds: &str, nanos: &str) -> StructArray {
        let fields = vec![
            Field::new(seconds, DataType::Int64, true),
            Field::new(nanos, DataType::UInt32, true),
        ];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![
                Some(1),
                None,
                Some(2),
                Some(3),
                Some(i64::MAX),
            ])),
            Arc::new(UInt32Array::from(vec![
                Some(5),
                Some(5),
                None,
                Some(1_000_000_000),
                Some(0),
            ])),
        ];
        StructArray::new(fields.into(), columns, None)
    }

    #[test]
    fn every_spelling_of_a_time_is_the_same_time() {
        for seconds in SECONDS {
            for nanos in NANOS {
                let found = stamps_of(&times(seconds, nanos)).expect("a time");
                let found: Vec<Option<i64>> = found.iter().collect();
                // What has no seconds, too many nanoseconds, or is too far off is not a time.
                let wanted = [Some(1_000_000_005), None, Some(2_000_000_000), None, None];
                assert_eq!(found, wanted, "{seconds} {nanos}");
            }
        }
    }

    #[test]
    fn a_struct_of_other_numbers_is_not_a_time() {
        assert!(stamps_of(&times("x", "y")).is_none());
        assert!(stamps_of(&times("sec", "y")).is_none());
    }
}
