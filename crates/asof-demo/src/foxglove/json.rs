//! JSON: messages and their JSON Schemas.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::record::{Record, Value};
use super::types::{Field, Kind, Label, MessageType};

/// A message as a JSON object.
pub(crate) fn encode(record: &Record<'_>) -> String {
    let mut out = String::with_capacity(256);
    object(&mut out, record);
    out
}

/// The JSON Schema of a type.
pub(crate) fn schema(kind: &MessageType) -> String {
    let mut out = String::new();
    describe_message(&mut out, kind);
    out
}

fn object(out: &mut String, record: &Record<'_>) {
    out.push('{');
    let mut is_first = true;
    for (field, value) in record.kind.fields.iter().zip(&record.values) {
        if matches!(value, Value::Absent) {
            continue;
        }
        separate(out, &mut is_first);
        text(out, field.name);
        out.push(':');
        write(out, value);
    }
    out.push('}');
}

fn write(out: &mut String, value: &Value<'_>) {
    // Writing to a String cannot fail.
    match value {
        Value::Absent => out.push_str("null"),
        Value::Double(value) => number(out, *value),
        Value::Doubles(values) => list(out, values, |out, &value| number(out, value)),
        Value::Integer(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Text(value) => text(out, value),
        Value::Bytes(bytes) => {
            out.push('"');
            STANDARD.encode_string(bytes, out);
            out.push('"');
        }
        Value::Time(stamp) => {
            let (seconds, nanos) = super::seconds_and_nanos(*stamp);
            let _ = write!(out, "{{\"sec\":{seconds},\"nsec\":{nanos}}}");
        }
        Value::Message(record) => object(out, record),
        Value::Messages(records) => list(out, records, object),
    }
}

fn list<T>(out: &mut String, items: &[T], mut each: impl FnMut(&mut String, &T)) {
    out.push('[');
    let mut is_first = true;
    for item in items {
        separate(out, &mut is_first);
        each(out, item);
    }
    out.push(']');
}

/// JSON has no infinity: a beam without an echo is 0, below what the laser can measure.
fn number(out: &mut String, value: f64) {
    let value = if value.is_finite() { value } else { 0.0 };
    let _ = write!(out, "{value}");
}

fn text(out: &mut String, value: &str) {
    out.push('"');
    for letter in value.chars() {
        match letter {
            '"' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}

fn separate(out: &mut String, is_first: &mut bool) {
    if !std::mem::take(is_first) {
        out.push(',');
    }
}

fn describe_message(out: &mut String, kind: &MessageType) {
    out.push_str("{\"title\":");
    text(out, kind.name);
    out.push_str(",\"type\":\"object\",\"properties\":{");
    let mut is_first = true;
    for field in kind.fields {
        separate(out, &mut is_first);
        text(out, field.name);
        out.push(':');
        describe_field(out, kind, field);
    }
    out.push_str("},\"required\":");
    let is_required = |field: &&Field| field.label != Label::Optional;
    let required: Vec<&Field> = kind.fields.iter().filter(is_required).collect();
    list(out, &required, |out, field| text(out, field.name));
    out.push('}');
}

fn describe_field(out: &mut String, kind: &MessageType, field: &Field) {
    if field.label == Label::Many {
        out.push_str("{\"type\":\"array\",\"items\":");
        describe_kind(out, kind, field.kind);
        out.push('}');
    } else {
        describe_kind(out, kind, field.kind);
    }
}

fn describe_kind(out: &mut String, owner: &MessageType, kind: Kind) {
    match kind {
        Kind::Double => out.push_str("{\"type\":\"number\"}"),
        Kind::Fixed32 => out.push_str("{\"type\":\"integer\",\"minimum\":0}"),
        Kind::Bool => out.push_str("{\"type\":\"boolean\"}"),
        Kind::Text => out.push_str("{\"type\":\"string\"}"),
        Kind::Bytes => out.push_str("{\"type\":\"string\",\"contentEncoding\":\"base64\"}"),
        Kind::Time => out.push_str(
            "{\"type\":\"object\",\"title\":\"time\",\"properties\":{\
             \"sec\":{\"type\":\"integer\",\"minimum\":0},\
             \"nsec\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":999999999}},\
             \"required\":[\"sec\",\"nsec\"]}",
        ),
        Kind::Message(part) => describe_message(out, part),
        Kind::Enum(values) => {
            out.push_str("{\"title\":");
            text(out, &format!("{}{}", owner.name, values.name));
            out.push_str(",\"oneOf\":");
            let numbered: Vec<_> = values.values.iter().enumerate().collect();
            list(out, &numbered, |out, (number, name)| {
                out.push_str("{\"title\":");
                text(out, name);
                let _ = write!(out, ",\"const\":{number}}}");
            });
            out.push('}');
        }
    }
}
