//! Rows of Arrow tables as JSON messages, in the form of Foxglove's JSON: times as seconds and nanoseconds, bytes in base64.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, TimeUnit};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::errors::{Failure, Result};

const SECOND: i64 = 1_000_000_000;

/// The JSON Schema of messages with these fields.
pub fn schema(fields: &[&Field]) -> Result<String> {
    Ok(properties(fields.iter().copied())?.to_string())
}

fn properties<'a>(fields: impl Iterator<Item = &'a Field>) -> Result<Value> {
    let entries =
        fields.map(|field| Ok((field.name().clone(), kind(field.data_type(), field.name())?)));
    let entries = entries.collect::<Result<serde_json::Map<_, _>>>()?;
    Ok(json!({ "type": "object", "properties": entries }))
}

fn kind(data_type: &DataType, name: &str) -> Result<Value> {
    Ok(match data_type {
        DataType::Boolean => json!({ "type": "boolean" }),
        kind if kind.is_integer() => json!({ "type": "integer" }),
        kind if kind.is_floating() => json!({ "type": "number" }),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => json!({ "type": "string" }),
        DataType::Timestamp(..) => json!({
            "type": "object",
            "title": "time",
            "properties": { "sec": { "type": "integer" }, "nsec": { "type": "integer" } },
        }),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            json!({ "type": "string", "contentEncoding": "base64" })
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            json!({ "type": "array", "items": kind(item.data_type(), name)? })
        }
        DataType::Struct(fields) => properties(fields.iter().map(|field| &**field))?,
        DataType::Null => json!({ "type": "null" }),
        other => {
            let message = format_args!(
                "column '{name}' is of the Arrow type {other}, which cannot be written as JSON; cast it first"
            );
            return Err(Failure::new("WriteError", message));
        }
    })
}

/// Writes a row as an object.
pub fn object<'a>(
    out: &mut Vec<u8>,
    columns: impl Iterator<Item = (&'a str, &'a ArrayRef)>,
    row: usize,
) -> Result<()> {
    out.push(b'{');
    for (at, (name, column)) in columns.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        text(out, name);
        out.push(b':');
        value(out, column, row)?;
    }
    out.push(b'}');
    Ok(())
}

fn value(out: &mut Vec<u8>, array: &ArrayRef, row: usize) -> Result<()> {
    macro_rules! whole {
        ($kind:ty) => {
            out.extend(array.as_primitive::<$kind>().value(row).to_string().bytes())
        };
    }
    if array.is_null(row) {
        out.extend(b"null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Null => out.extend(b"null"),
        DataType::Boolean => out.extend(array.as_boolean().value(row).to_string().bytes()),
        DataType::Int8 => whole!(Int8Type),
        DataType::Int16 => whole!(Int16Type),
        DataType::Int32 => whole!(Int32Type),
        DataType::Int64 => whole!(Int64Type),
        DataType::UInt8 => whole!(UInt8Type),
        DataType::UInt16 => whole!(UInt16Type),
        DataType::UInt32 => whole!(UInt32Type),
        DataType::UInt64 => whole!(UInt64Type),
        DataType::Float16 => float(out, array.as_primitive::<Float16Type>().value(row).to_f64()),
        DataType::Float32 => {
            let number = array.as_primitive::<Float32Type>().value(row);
            // The shortest text of this number, not of the double next to it.
            if number.is_finite() {
                out.extend(number.to_string().bytes());
            } else {
                out.extend(b"null");
            }
        }
        DataType::Float64 => float(out, array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => text(out, array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text(out, array.as_string::<i64>().value(row)),
        DataType::Utf8View => text(out, array.as_string_view().value(row)),
        DataType::Binary => bytes(out, array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(out, array.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes(out, array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => bytes(out, array.as_fixed_size_binary().value(row)),
        DataType::Timestamp(..) => {
            let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
            let time = arrow_cast::cast(&array.slice(row, 1), &nanos)?;
            let time = time.as_primitive::<TimestampNanosecondType>().value(0);
            let (sec, nsec) = (time.div_euclid(SECOND), time.rem_euclid(SECOND));
            out.extend(format!("{{\"sec\":{sec},\"nsec\":{nsec}}}").bytes());
        }
        DataType::List(_) => items(out, &array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => items(out, &array.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => items(out, &array.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let names = fields.iter().map(|field| field.name().as_str());
            object(out, names.zip(columns), row)?;
        }
        other => {
            let message =
                format_args!("a value of the Arrow type {other} cannot be written as JSON");
            return Err(Failure::new("WriteError", message));
        }
    }
    Ok(())
}

fn items(out: &mut Vec<u8>, items: &ArrayRef) -> Result<()> {
    out.push(b'[');
    for at in 0..items.len() {
        if at > 0 {
            out.push(b',');
        }
        value(out, items, at)?;
    }
    out.push(b']');
    Ok(())
}

/// JSON has no literal for numbers that are not finite.
fn float(out: &mut Vec<u8>, number: f64) {
    out.extend(json!(number).to_string().bytes());
}

fn text(out: &mut Vec<u8>, given: &str) {
    out.extend(json!(given).to_string().bytes());
}

fn bytes(out: &mut Vec<u8>, given: &[u8]) {
    let encoded = base64::engine::general_purpose::STANDARD.encode(given);
    text(out, &encoded);
}
