//! Fields that are read one by one, beside the same message decoded whole.

use asof_core::Channel;
use asof_decode::{Decoder, FieldReader, FieldValue, NumberList, StructPlace};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Whether a message whose fields are read one by one is that of the decoder. `None` where they are not read so.
///
/// A message that the decoder refuses may have good fields; it is read, and need not fail.
pub fn compare(channel: &Channel, decoder: &mut Decoder, payload: &[u8]) -> Option<()> {
    let reader = FieldReader::new(channel)?;
    let message = reader.message(payload)?;
    match decoder.json(payload) {
        Ok(json) => {
            let json: Value = serde_json::from_str(&json).expect("JSON");
            assert_struct(&reader, payload, message, &json);
        }
        Err(_) => walk(&reader, payload, message),
    }
    Some(())
}

/// Reads everything, whether or not it is there.
fn walk(reader: &FieldReader, payload: &[u8], place: StructPlace) {
    for index in 0..reader.names(place).len() {
        if let Ok(value) = reader.value_at(payload, place, index) {
            walk_value(reader, payload, &value);
        }
    }
}

fn walk_value(reader: &FieldReader, payload: &[u8], value: &FieldValue<'_>) {
    match value {
        FieldValue::Struct(place) => walk(reader, payload, *place),
        FieldValue::List(items) => {
            for item in items {
                walk_value(reader, payload, item);
            }
        }
        _ => {}
    }
}

fn assert_struct(reader: &FieldReader, payload: &[u8], place: StructPlace, json: &Value) {
    let json = json.as_object().expect("an object");
    let names: Vec<&str> = reader.names(place).collect();
    assert_eq!(names.len(), json.len(), "{names:?} of {json:?}");
    for name in names {
        let value = reader.value(payload, place, name).expect("it was decoded");
        let value = value.expect("a field");
        assert_same(reader, payload, &value, &json[name]);
    }
}

fn assert_same(reader: &FieldReader, payload: &[u8], value: &FieldValue<'_>, json: &Value) {
    let is_same = match value {
        FieldValue::Bool(value) => json.as_bool() == Some(*value),
        FieldValue::Int(value) => json.as_i64() == Some(*value),
        FieldValue::Uint(value) => json.as_u64() == Some(*value),
        FieldValue::Float(value) => is_near(*value, json),
        FieldValue::Text(value) => json.as_str() == Some(value),
        FieldValue::Bytes(value) => json.as_str() == Some(&STANDARD.encode(value)),
        FieldValue::Numbers(list) => {
            let items = json.as_array().expect("an array");
            let values = numbers(list);
            values.len() == items.len()
                && values
                    .iter()
                    .zip(items)
                    .all(|(value, item)| is_near(*value, item))
        }
        FieldValue::List(values) => {
            let items = json.as_array().expect("an array");
            for (value, item) in values.iter().zip(items) {
                assert_same(reader, payload, value, item);
            }
            values.len() == items.len()
        }
        FieldValue::Struct(place) => {
            assert_struct(reader, payload, *place, json);
            true
        }
    };
    assert!(is_same, "{value:?} is not {json}");
}

fn is_near(value: f64, json: &Value) -> bool {
    let other = match json {
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::String(text) => text.parse().expect("NaN or an infinity"),
        json => json.as_f64().expect("a number"),
    };
    // JSON has the shortest text of a float of 32 bits.
    value.to_bits() == other.to_bits()
        || (value.is_nan() && other.is_nan())
        || (value - other).abs() <= other.abs() * 1e-6
}

fn numbers(list: &NumberList<'_>) -> Vec<f64> {
    use asof_decode::Scalar;
    let words = list.bytes.chunks_exact(list.scalar.width());
    let word = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if list.is_big_endian {
            bytes.reverse();
        }
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(&bytes);
        let word = u64::from_le_bytes(wide);
        match list.scalar {
            Scalar::Bool => f64::from(u8::from(word != 0)),
            Scalar::Int8 => f64::from(word as u8 as i8),
            Scalar::Int16 => f64::from(word as u16 as i16),
            Scalar::Int32 => f64::from(word as u32 as i32),
            Scalar::Int64 => word as i64 as f64,
            Scalar::Uint8 | Scalar::Uint16 | Scalar::Uint32 | Scalar::Uint64 => word as f64,
            Scalar::Float32 => f64::from(f32::from_bits(word as u32)),
            Scalar::Float64 => f64::from_bits(word),
        }
    };
    words.map(word).collect()
}
