//! Values of columns as text.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, TimeUnit};
use asof_core::Stamp;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

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

fn put(out: &mut Vec<u8>, value: impl fmt::Display) {
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

/// Arrow's name for a text that is JSON.
const JSON: (&str, &str) = ("ARROW:extension:name", "arrow.json");
/// Marks columns that are left out of an object where they are NULL.
const OPTIONAL: &str = "asof:optional";
/// Marks columns whose objects are spread over the row.
const SPREAD: &str = "asof:spread";

/// A column of texts that are JSON: rows have them as they are.
pub fn json_field(name: &str) -> Field {
    let (key, value) = JSON;
    Field::new(name, DataType::Utf8, true).with_metadata([(key.into(), value.into())].into())
}

/// The same column, which is left out of an object where it is NULL.
pub fn optional(field: Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(OPTIONAL.to_owned(), String::new());
    field.with_metadata(metadata)
}

/// A column of objects as JSON whose members are members of the row.
pub(crate) fn spread(field: Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(SPREAD.to_owned(), String::new());
    field.with_metadata(metadata)
}

/// Whether the texts of a column are JSON.
pub(super) fn is_json(field: &Field) -> bool {
    field
        .metadata()
        .get(JSON.0)
        .is_some_and(|name| name == JSON.1)
}

/// Whether a row of a column is left out of an object.
pub(super) fn is_left_out(field: &Field, array: &dyn Array, row: usize) -> bool {
    array.is_null(row) && field.metadata().contains_key(OPTIONAL)
}

/// The value of a row of a column, as [`write`].
pub fn write_field(
    field: &Field,
    array: &dyn Array,
    row: usize,
    reader: Reader,
    out: &mut Vec<u8>,
) {
    match array.as_string_opt::<i32>().filter(|_| is_json(field)) {
        Some(texts) if texts.is_valid(row) => out.extend_from_slice(texts.value(row).as_bytes()),
        _ => write(array, row, reader, out),
    }
}

fn write_struct(array: &dyn Array, row: usize, reader: Reader, out: &mut Vec<u8>) {
    let array = array.as_struct();
    write_row(array.fields().iter().zip(array.columns()), row, reader, out);
}

/// A row of columns as an object.
pub(super) fn write_row<'a>(
    columns: impl Iterator<Item = (&'a Arc<Field>, &'a ArrayRef)>,
    row: usize,
    reader: Reader,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let start = out.len();
    let mut names: Vec<&str> = Vec::new();
    for (field, column) in columns {
        if is_left_out(field, column, row) {
            continue;
        }
        let before = out.len();
        if before > start {
            separate(reader, out);
        }
        let member = out.len();
        if field.metadata().contains_key(SPREAD) {
            let object = column.as_string_opt::<i32>();
            write_members(object.map_or("", |object| object.value(row)), &names, out);
        } else {
            names.push(field.name());
            write_name(field.name(), reader, out);
            write_field(field, column, row, reader, out);
        }
        if out.len() == member {
            out.truncate(before);
        }
    }
    out.push(b'}');
}

/// The members of an object. One that has the name of an earlier one gets an underscore, as a column does.
fn write_members(object: &str, names: &[&str], out: &mut Vec<u8>) {
    let is_taken = |name: &&str| object.contains(&format!("\"{name}\""));
    if names.iter().any(is_taken)
        && let Ok(Members(members)) = serde_json::from_str(object)
    {
        let mut known: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        for (place, (mut name, value)) in members.into_iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            while known.contains(&name) {
                name.push('_');
            }
            write_name(&name, Reader::Program, out);
            out.extend_from_slice(value.get().as_bytes());
            known.push(name);
        }
        return;
    }
    let object = object.trim();
    let inner = object.strip_prefix('{');
    let inner = inner.and_then(|object| object.strip_suffix('}'));
    out.extend_from_slice(inner.unwrap_or_default().trim().as_bytes());
}

/// The members of an object in their order, with their values as they are.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

fn write_name(name: &str, reader: Reader, out: &mut Vec<u8>) {
    match reader {
        Reader::Program => {
            write_json_text(name, out);
            out.push(b':');
        }
        Reader::Person => put(out, format_args!("{name}: ")),
    }
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
    out.push(b'{');
    for (row, key) in keys.iter().enumerate() {
        if row > 0 {
            separate(reader, out);
        }
        write_name(key, reader, out);
        write(values, row, reader, out);
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
    fn members_of_an_object_are_members_of_the_row_and_no_name_comes_twice() {
        let object = r#"{"log_time":0.10,"log_time_":[1,2],"x":{"log_time":3}}"#;
        let columns: [(Arc<Field>, ArrayRef); 3] = [
            (
                Arc::new(Field::new("log_time", DataType::Int64, true)),
                Arc::new(Int64Array::from(vec![1, 2, 3])),
            ),
            (
                Arc::new(spread(json_field("data"))),
                Arc::new(StringArray::from(vec![object, "{}", r#"{"x":1}"#])),
            ),
            (
                Arc::new(Field::new("y", DataType::Int64, true)),
                Arc::new(Int64Array::from(vec![7, 8, 9])),
            ),
        ];
        let rows = (0..3).map(|row| {
            let mut out = Vec::new();
            let columns = columns.iter().map(|(field, column)| (field, column));
            write_row(columns, row, Reader::Program, &mut out);
            String::from_utf8(out).expect("text")
        });
        let rows: Vec<String> = rows.collect();
        let wanted =
            r#"{"log_time":1,"log_time_":0.10,"log_time__":[1,2],"x":{"log_time":3},"y":7}"#;
        assert_eq!(
            rows,
            [
                wanted,
                r#"{"log_time":2,"y":8}"#,
                r#"{"log_time":3,"x":1,"y":9}"#
            ]
        );
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
