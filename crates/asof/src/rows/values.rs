//! Values of columns as text.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, TimeUnit};
use asof_core::Stamp;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// How many elements of a list a cell shows.
const SHOWN_ELEMENTS: usize = 8;

/// The reader of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The complete value, as JSON: times are nanoseconds, bytes are base64.
    Program,
    /// A value for people: times as dates, the first elements of a list, the number of bytes.
    Person,
}

/// Writes the value of a row. It is JSON for programs, and similar to that for people.
pub fn write(array: &dyn Array, row: usize, reader: Reader, out: &mut Vec<u8>) {
    if array.is_null(row) {
        out.extend_from_slice(match reader {
            Reader::Program => b"null",
            Reader::Person => b"NULL",
        });
        return;
    }
    match array.data_type() {
        DataType::Boolean => put(out, array.as_boolean().value(row)),
        DataType::Float16 => {
            write_float(
                f64::from(array.as_primitive::<Float16Type>().value(row)),
                out,
            );
        }
        DataType::Float32 => write_float32(array.as_primitive::<Float32Type>().value(row), out),
        DataType::Float64 => write_float(array.as_primitive::<Float64Type>().value(row), out),
        DataType::Utf8 => write_text(array.as_string::<i32>().value(row), reader, out),
        DataType::LargeUtf8 => write_text(array.as_string::<i64>().value(row), reader, out),
        DataType::Utf8View => write_text(array.as_string_view().value(row), reader, out),
        DataType::Binary => write_bytes(array.as_binary::<i32>().value(row), reader, out),
        DataType::LargeBinary => write_bytes(array.as_binary::<i64>().value(row), reader, out),
        DataType::BinaryView => write_bytes(array.as_binary_view().value(row), reader, out),
        DataType::FixedSizeBinary(_) => {
            write_bytes(array.as_fixed_size_binary().value(row), reader, out);
        }
        DataType::Timestamp(unit, _) => match nanos_of_time(array, *unit, row) {
            Some(nanos) if reader == Reader::Program => put(out, nanos),
            Some(nanos) => put(out, Stamp::from_nanos(nanos)),
            None => write_otherwise(array, row, reader, out),
        },
        DataType::Duration(unit) => match nanos_of_duration(array, *unit, row) {
            Some(nanos) if reader == Reader::Program => put(out, nanos),
            Some(nanos) => put(out, format_args!("{}s", nanos as f64 / 1e9)),
            None => write_otherwise(array, row, reader, out),
        },
        DataType::List(_) => write_list(&array.as_list::<i32>().value(row), reader, out),
        DataType::LargeList(_) => write_list(&array.as_list::<i64>().value(row), reader, out),
        DataType::FixedSizeList(..) => {
            write_list(&array.as_fixed_size_list().value(row), reader, out);
        }
        DataType::Struct(_) => write_struct(array, row, reader, out),
        DataType::Map(..) => write_map(array, row, reader, out),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            write(dictionary.values(), key, reader, out);
        }
        kind if kind.is_numeric() => write_plain(array, row, out),
        _ => write_otherwise(array, row, reader, out),
    }
}

/// The value of a row as one field of a CSV line: texts unquoted, the rest as in JSON; empty for NULL.
pub fn write_csv(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    if array.is_null(row) {
        return;
    }
    let text = match array.data_type() {
        DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
        DataType::Utf8View => Some(array.as_string_view().value(row)),
        _ => None,
    };
    let mut field = Vec::new();
    match text {
        Some(text) => field.extend_from_slice(text.as_bytes()),
        None => write(array, row, Reader::Program, &mut field),
    }
    // Numbers that are not finite are strings only in JSON.
    if text.is_none() && field.first() == Some(&b'"') && field.last() == Some(&b'"') {
        field.remove(0);
        field.pop();
    }
    let needs_quotes = field.is_empty() || field.iter().any(|byte| b",\"\n\r".contains(byte));
    if !needs_quotes {
        out.extend_from_slice(&field);
        return;
    }
    out.push(b'"');
    for byte in field {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// A text as a JSON string.
pub fn write_json_text(text: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail, and any text can be JSON.
    let _ = serde_json::to_writer(out, text);
}

fn put(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

fn write_text(text: &str, reader: Reader, out: &mut Vec<u8>) {
    match reader {
        Reader::Program => write_json_text(text, out),
        Reader::Person => out.extend_from_slice(text.as_bytes()),
    }
}

fn write_bytes(bytes: &[u8], reader: Reader, out: &mut Vec<u8>) {
    match reader {
        Reader::Program => put(out, format_args!("\"{}\"", STANDARD.encode(bytes))),
        Reader::Person => put(out, format_args!("<{} bytes>", bytes.len())),
    }
}

fn write_float(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        let _ = serde_json::to_writer(out, &value);
    } else {
        write_strange(value, out);
    }
}

fn write_float32(value: f32, out: &mut Vec<u8>) {
    if value.is_finite() {
        let _ = serde_json::to_writer(out, &value);
    } else {
        write_strange(value.into(), out);
    }
}

/// JSON has no literals for these.
fn write_strange(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(if value.is_nan() {
        b"\"NaN\""
    } else if value > 0.0 {
        b"\"Infinity\""
    } else {
        b"\"-Infinity\""
    });
}

/// Nanoseconds of the value of an array, which is of one of these types, by its unit.
macro_rules! nanos {
    ($array:expr, $row:expr, $unit:expr; $second:ty, $milli:ty, $micro:ty, $nano:ty) => {
        match $unit {
            TimeUnit::Second => $array
                .as_primitive::<$second>()
                .value($row)
                .checked_mul(1_000_000_000),
            TimeUnit::Millisecond => $array
                .as_primitive::<$milli>()
                .value($row)
                .checked_mul(1_000_000),
            TimeUnit::Microsecond => $array
                .as_primitive::<$micro>()
                .value($row)
                .checked_mul(1_000),
            TimeUnit::Nanosecond => Some($array.as_primitive::<$nano>().value($row)),
        }
    };
}

fn nanos_of_time(array: &dyn Array, unit: TimeUnit, row: usize) -> Option<i64> {
    nanos!(
        array, row, unit;
        TimestampSecondType, TimestampMillisecondType, TimestampMicrosecondType, TimestampNanosecondType
    )
}

fn nanos_of_duration(array: &dyn Array, unit: TimeUnit, row: usize) -> Option<i64> {
    nanos!(
        array, row, unit;
        DurationSecondType, DurationMillisecondType, DurationMicrosecondType, DurationNanosecondType
    )
}

fn write_list(elements: &ArrayRef, reader: Reader, out: &mut Vec<u8>) {
    let shown = match reader {
        Reader::Program => elements.len(),
        Reader::Person => elements.len().min(SHOWN_ELEMENTS),
    };
    out.push(b'[');
    for row in 0..shown {
        if row > 0 {
            separate(reader, out);
        }
        write(elements, row, reader, out);
    }
    if shown < elements.len() {
        put(out, format_args!(", … {} in all", elements.len()));
    }
    out.push(b']');
}

fn write_struct(array: &dyn Array, row: usize, reader: Reader, out: &mut Vec<u8>) {
    let array = array.as_struct();
    let columns = array.fields().iter().zip(array.columns());
    let fields = columns.map(|(field, column)| (field.name().as_str(), column, row));
    write_object(fields, reader, out);
}

fn write_map(array: &dyn Array, row: usize, reader: Reader, out: &mut Vec<u8>) {
    let entries = array.as_map().value(row);
    let (keys, values) = (entries.column(0), entries.column(1));
    let keys: Vec<String> = (0..entries.len())
        .map(|row| {
            let mut key = Vec::new();
            write(keys, row, Reader::Person, &mut key);
            String::from_utf8_lossy(&key).into_owned()
        })
        .collect();
    let fields = keys.iter().enumerate();
    write_object(
        fields.map(|(row, key)| (key.as_str(), values, row)),
        reader,
        out,
    );
}

fn write_object<'a>(
    fields: impl Iterator<Item = (&'a str, &'a ArrayRef, usize)>,
    reader: Reader,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    for (place, (name, column, row)) in fields.enumerate() {
        if place > 0 {
            separate(reader, out);
        }
        match reader {
            Reader::Program => {
                write_json_text(name, out);
                out.push(b':');
            }
            Reader::Person => put(out, format_args!("{name}: ")),
        }
        write(column, row, reader, out);
    }
    out.push(b'}');
}

fn separate(reader: Reader, out: &mut Vec<u8>) {
    out.extend_from_slice(match reader {
        Reader::Program => b",",
        Reader::Person => b", ",
    });
}

/// A number in its usual form.
fn write_plain(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    if let Ok(formatter) = ArrayFormatter::try_new(array, &FormatOptions::default()) {
        put(out, formatter.value(row));
    }
}

/// Types without a form of their own here: dates, intervals.
fn write_otherwise(array: &dyn Array, row: usize, reader: Reader, out: &mut Vec<u8>) {
    let mut text = Vec::new();
    write_plain(array, row, &mut text);
    write_text(&String::from_utf8_lossy(&text), reader, out);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        BinaryArray, DictionaryArray, DurationNanosecondArray, Float32Array, Float64Array,
        Int64Array, ListArray, StringArray, StructArray, TimestampNanosecondArray, UInt64Array,
    };

    use super::*;

    fn written(array: &dyn Array, reader: Reader) -> Vec<String> {
        (0..array.len())
            .map(|row| {
                let mut out = Vec::new();
                write(array, row, reader, &mut out);
                String::from_utf8(out).expect("text")
            })
            .collect()
    }

    #[test]
    fn numbers_are_exact_and_those_that_json_lacks_are_texts() {
        let program = |array: &dyn Array| written(array, Reader::Program);
        assert_eq!(program(&Float32Array::from(vec![0.1])), ["0.1"]);
        let strange = Float64Array::from(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1]);
        assert_eq!(
            program(&strange),
            ["\"NaN\"", "\"Infinity\"", "\"-Infinity\"", "0.1"]
        );
        assert_eq!(
            program(&Int64Array::from(vec![Some(i64::MIN), None])),
            ["-9223372036854775808", "null"]
        );
        assert_eq!(
            program(&UInt64Array::from(vec![u64::MAX])),
            ["18446744073709551615"]
        );
    }

    #[test]
    fn times_and_bytes_depend_on_who_reads_them() {
        let time = TimestampNanosecondArray::from(vec![1_700_000_000_250_000_000]);
        assert_eq!(written(&time, Reader::Program), ["1700000000250000000"]);
        assert_eq!(written(&time, Reader::Person), ["2023-11-14T22:13:20.25Z"]);
        let age = DurationNanosecondArray::from(vec![-12_500_000]);
        assert_eq!(written(&age, Reader::Program), ["-12500000"]);
        assert_eq!(written(&age, Reader::Person), ["-0.0125s"]);
        let picture = BinaryArray::from_vec(vec![&[0xff; 300]]);
        assert_eq!(written(&picture, Reader::Person), ["<300 bytes>"]);
        assert!(written(&picture, Reader::Program)[0].starts_with("\"/////"));
    }

    #[test]
    fn lists_are_shortened_for_people_alone_and_structs_nest() {
        let ranges = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(
            (0..360).map(Some).collect::<Vec<_>>(),
        )]);
        assert_eq!(
            written(&ranges, Reader::Person),
            ["[0, 1, 2, 3, 4, 5, 6, 7, … 360 in all]"]
        );
        let whole: Vec<i32> =
            serde_json::from_str(&written(&ranges, Reader::Program)[0]).expect("JSON");
        assert_eq!(whole, (0..360).collect::<Vec<_>>());
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a \"b\""]));
        let nested = StructArray::try_from(vec![("n", names)]).expect("a struct");
        assert_eq!(written(&nested, Reader::Program), [r#"{"n":"a \"b\""}"#]);
        let words: DictionaryArray<Int32Type> = ["x", "y", "x"].into_iter().collect();
        assert_eq!(written(&words, Reader::Person), ["x", "y", "x"]);
    }

    #[test]
    fn a_csv_field_is_quoted_where_it_must_be_and_an_empty_text_is_not_null() {
        let texts = StringArray::from(vec![Some("a,\"b\"\n"), Some(""), None, Some("x")]);
        let fields: Vec<String> = (0..4)
            .map(|row| {
                let mut out = Vec::new();
                write_csv(&texts, row, &mut out);
                String::from_utf8(out).expect("text")
            })
            .collect();
        assert_eq!(fields, ["\"a,\"\"b\"\"\n\"", "\"\"", "", "x"]);
        let mut out = Vec::new();
        write_csv(&Float64Array::from(vec![f64::NAN]), 0, &mut out);
        assert_eq!(out, b"NaN");
    }
}
