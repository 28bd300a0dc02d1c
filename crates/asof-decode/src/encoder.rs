//! Encodes JSON values as ROS messages, by their schema.

use asof_core::Channel;
use asof_ros::CdrWriter;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::decoder::Decoder;
use crate::error::SchemaError;
use crate::layout::Projection;
use crate::model::{Kind, MessageType, Scalar, Struct};
use crate::schema::rosmsg::{self, Dialect};

/// Encodes values as payloads of a channel: CDR for ROS 2, the ROS 1 serialization for ROS 1.
///
/// For bridges that have messages only as JSON. Missing fields are zero; a value that does not fit its type is an
/// error.
///
/// ```
/// use asof_core::{Channel, Schema};
/// use asof_decode::{Encoder, Decoder, Projection};
///
/// let schema = Schema { name: "std_msgs/msg/String".into(), encoding: "ros2msg".into(), data: "string data".into() };
/// let channel = Channel { message_encoding: "cdr".into(), schema: Some(schema.into()), ..Channel::default() };
/// let bytes = Encoder::new(&channel)?.encode(&serde_json::json!({ "data": "hello" }))?;
/// assert_eq!(Decoder::new(&channel, &Projection::All, &[])?.json(&bytes)?, r#"{"data":"hello"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Encoder {
    types: MessageType,
    dialect: Dialect,
}

/// Why a value does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: found {found}, expected {expected}")]
pub struct EncodeError {
    /// The path to the field.
    pub field: String,
    /// The value.
    pub found: String,
    /// What the type requires.
    pub expected: String,
}

impl Encoder {
    /// Creates an encoder for a ROS 1 or ROS 2 channel with a definition.
    ///
    /// # Errors
    /// When the channel is not one of these, or its definition cannot be used.
    pub fn new(channel: &Channel) -> Result<Self, SchemaError> {
        // A schema that cannot be decoded is not encoded either.
        Decoder::new(channel, &Projection::All, &[])?;
        let schema = channel.schema.as_deref();
        let language = schema.map_or("", |schema| schema.encoding.as_str());
        let dialect = match (channel.message_encoding.as_str(), language) {
            ("cdr", "ros2msg") => Dialect::Ros2,
            ("ros1", "ros1msg") => Dialect::Ros1,
            _ => {
                return Err(SchemaError::UnknownEncoding {
                    message_encoding: channel.message_encoding.clone(),
                    schema_encoding: language.to_owned(),
                });
            }
        };
        let text = schema.and_then(|schema| std::str::from_utf8(&schema.data).ok());
        let text = text.unwrap_or_default();
        Ok(Encoder {
            types: rosmsg::parse(channel.type_name(), text, dialect)?,
            dialect,
        })
    }

    /// Encodes a message with these values.
    ///
    /// # Errors
    /// When a value does not fit its field; the error names it.
    pub fn encode(&self, value: &Value) -> Result<Vec<u8>, EncodeError> {
        let mut writer = Writer {
            types: &self.types,
            dialect: self.dialect,
            out: match self.dialect {
                Dialect::Ros1 => CdrWriter::ros1(Vec::new()),
                Dialect::Ros2 => CdrWriter::new(Vec::new()),
            },
            field: Vec::new(),
        };
        writer.structure(self.types.root(), value)?;
        Ok(writer.out.finish())
    }
}

struct Writer<'a> {
    types: &'a MessageType,
    dialect: Dialect,
    out: CdrWriter,
    /// The path to the current field.
    field: Vec<&'a str>,
}

impl<'a> Writer<'a> {
    fn structure(&mut self, kind: &'a Struct, value: &Value) -> Result<(), EncodeError> {
        if kind.fields.is_empty() && self.dialect == Dialect::Ros2 {
            // ROS 2 adds this byte to types without fields.
            self.out.byte(0);
        }
        if !(value.is_object() || value.is_null()) {
            return Err(self.misfit(value, &kind.name));
        }
        for field in &kind.fields {
            let given = value.get(&field.name);
            let mut others = other_names(&field.name).iter();
            let given = given.or_else(|| others.find_map(|name| value.get(name)));
            self.field.push(&field.name);
            self.value(&field.kind, given.unwrap_or(&Value::Null))?;
            self.field.pop();
        }
        Ok(())
    }

    fn value(&mut self, kind: &'a Kind, value: &Value) -> Result<(), EncodeError> {
        match kind {
            Kind::Scalar(scalar) => self.scalar(*scalar, value),
            Kind::Enum(names) => self.scalar(names.scalar(), value),
            Kind::Text => {
                let text = self.text(value)?;
                self.out.string(text);
                Ok(())
            }
            Kind::WideText => {
                let units: Vec<u16> = self.text(value)?.encode_utf16().collect();
                self.out.length(units.len());
                for unit in units {
                    self.out.raw(&unit.to_le_bytes());
                }
                Ok(())
            }
            Kind::Blob => {
                let blob = self.blob(value)?;
                self.out.blob(&blob);
                Ok(())
            }
            Kind::FixedBlob(len) => {
                let mut blob = self.blob(value)?;
                if value.is_null() {
                    blob.resize(*len as usize, 0);
                }
                if blob.len() != *len as usize {
                    return Err(self.misfit(value, &format!("{len} bytes")));
                }
                self.out.raw(&blob);
                Ok(())
            }
            Kind::Struct(place) => {
                let types = self.types;
                self.structure(&types.structs[*place], value)
            }
            Kind::List(element) => {
                let elements = self.elements(value)?;
                self.out.length(elements.len());
                elements.iter().try_for_each(|one| self.value(element, one))
            }
            Kind::Array(element, len) => {
                let elements = self.elements(value)?;
                if value.is_null() {
                    return (0..*len).try_for_each(|_| self.value(element, &Value::Null));
                }
                if elements.len() != *len as usize {
                    return Err(self.misfit(value, &format!("{len} elements")));
                }
                elements.iter().try_for_each(|one| self.value(element, one))
            }
            Kind::Map(..) | Kind::Json => Err(self.misfit(value, "a type of ROS")),
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) -> Result<(), EncodeError> {
        // Missing values are zero; a string where JSON has no number is not a number.
        let zero = Value::from(0);
        let is_float = matches!(scalar, Scalar::Float32 | Scalar::Float64);
        let value = if value.is_null() && !is_float {
            &zero
        } else {
            value
        };
        match scalar {
            Scalar::Bool => {
                let flag = value.as_bool().or_else(|| value.as_i64().map(|n| n != 0));
                let flag = flag.ok_or_else(|| self.misfit(value, "true or false"))?;
                self.out.boolean(flag);
            }
            Scalar::Float32 | Scalar::Float64 => {
                let number = match value {
                    Value::Null => Some(f64::NAN),
                    Value::String(text) => text.parse().ok(),
                    other => other.as_f64(),
                };
                let number = number.ok_or_else(|| self.misfit(value, "a number"))?;
                if scalar == Scalar::Float32 {
                    self.out.float32(number as f32);
                } else {
                    self.out.float64(number);
                }
            }
            _ => {
                let width = scalar.width();
                let number = integer(value).filter(|number| fits(scalar, *number));
                let number = number.ok_or_else(|| self.misfit(value, &format!("{scalar:?}")))?;
                self.out.align(width).raw(&number.to_le_bytes()[..width]);
            }
        }
        Ok(())
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, EncodeError> {
        match value {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text),
            other => Err(self.misfit(other, "text")),
        }
    }

    /// Bytes: base64 as bridges write them, or a list of numbers.
    fn blob(&self, value: &Value) -> Result<Vec<u8>, EncodeError> {
        match value {
            Value::Null => Ok(Vec::new()),
            Value::String(text) => {
                let decoded = STANDARD.decode(text);
                decoded.map_err(|_| self.misfit(value, "bytes in base64"))
            }
            Value::Array(all) => {
                let byte = |one: &Value| {
                    let number = integer(one).filter(|number| (-128..=255).contains(number));
                    number.map(|number| number as u8)
                };
                let bytes: Option<Vec<u8>> = all.iter().map(byte).collect();
                bytes.ok_or_else(|| self.misfit(value, "bytes"))
            }
            other => Err(self.misfit(other, "bytes")),
        }
    }

    fn elements<'v>(&self, value: &'v Value) -> Result<&'v [Value], EncodeError> {
        match value {
            Value::Null => Ok(&[]),
            Value::Array(all) => Ok(all),
            other => Err(self.misfit(other, "a list")),
        }
    }

    fn misfit(&self, value: &Value, expected: &str) -> EncodeError {
        let shown: String = value.to_string().chars().take(60).collect();
        EncodeError {
            field: self.field.join("."),
            found: shown,
            expected: expected.to_owned(),
        }
    }
}

/// Other names of the parts of a time, in bridges and in the two versions of ROS.
fn other_names(name: &str) -> &'static [&'static str] {
    match name {
        "sec" => &["secs"],
        "nsec" => &["nsecs", "nanosec"],
        "nanosec" => &["nsecs", "nsec"],
        _ => &[],
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(flag) => Some(i128::from(*flag)),
        Value::Number(number) => {
            let whole = number.as_i64().map(i128::from);
            let whole = whole.or_else(|| number.as_u64().map(i128::from));
            let float = number
                .as_f64()
                .filter(|one| one.fract() == 0.0 && one.abs() < 9e15);
            whole.or_else(|| float.map(|one| one as i128))
        }
        _ => None,
    }
}

fn fits(scalar: Scalar, number: i128) -> bool {
    let (least, most) = match scalar {
        Scalar::Int8 => (i128::from(i8::MIN), i128::from(i8::MAX)),
        // Characters and bytes are signed in some bridges.
        Scalar::Uint8 => (i128::from(i8::MIN), i128::from(u8::MAX)),
        Scalar::Int16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
        Scalar::Uint16 => (0, i128::from(u16::MAX)),
        Scalar::Int32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        Scalar::Uint32 => (0, i128::from(u32::MAX)),
        Scalar::Int64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
        Scalar::Uint64 => (0, i128::from(u64::MAX)),
        Scalar::Bool | Scalar::Float32 | Scalar::Float64 => return false,
    };
    (least..=most).contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::Schema;
    use serde_json::json;

    fn channel(encoding: &str, language: &str, text: &str) -> Channel {
        let schema = Schema {
            name: "a/msg/B".to_owned(),
            encoding: language.to_owned(),
            data: text.as_bytes().to_vec().into(),
        };
        Channel {
            message_encoding: encoding.to_owned(),
            schema: Some(schema.into()),
            ..Channel::default()
        }
    }

    fn there_and_back(channel: &Channel, value: &Value) -> Value {
        let bytes = Encoder::new(channel).expect("an encoder").encode(value);
        let mut decoder = Decoder::new(channel, &Projection::All, &[]).expect("a decoder");
        let json = decoder.json(&bytes.expect("encoded")).expect("decoded");
        serde_json::from_str(&json).expect("JSON")
    }

    const FIELDS: &str = "uint8 a\nfloat64 b\nstring c\nbool d\nint16[] e\nfloat32[2] f\nuint8[] g\nInner[] inner\n\
        int64 h\nuint64 i\nint8 j\n";
    const INNER: &str = "===\nMSG: a/Inner\nstring name\nfloat64 x\n";

    fn values() -> Value {
        json!({
            "a": 7, "b": -1.5, "c": "hällo", "d": true, "e": [1, -2, 3], "f": [0.5, 2.0],
            "g": [1, 2, 3], "inner": [{ "name": "one", "x": 1.0 }, { "name": "", "x": 2.5 }],
            "h": i64::MIN, "i": u64::MAX, "j": -3,
        })
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same_values_in_both_dialects() {
        let text = format!("{FIELDS}{INNER}");
        for (encoding, language) in [("cdr", "ros2msg"), ("ros1", "ros1msg")] {
            let channel = channel(encoding, language, &text);
            let expected = there_and_back(&channel, &values());
            for name in ["a", "b", "c", "d", "e", "f", "inner", "h", "i", "j"] {
                assert_eq!(expected[name], values()[name], "{encoding} {name}");
            }
        }
    }

    #[test]
    fn bytes_come_as_base64_or_as_numbers() {
        let channel = channel("cdr", "ros2msg", "uint8[] data\nuint8[3] id");
        let numbers = json!({ "data": [1, 2, 255], "id": [9, 8, 7] });
        let text = json!({ "data": "AQL/", "id": "CQgH" });
        let encoder = Encoder::new(&channel).expect("an encoder");
        assert_eq!(encoder.encode(&numbers), encoder.encode(&text));
        let short = encoder
            .encode(&json!({ "id": [1] }))
            .expect_err("too short");
        assert_eq!(short.field, "id");
    }

    #[test]
    fn times_have_the_names_of_either_ros() {
        let two = channel("cdr", "ros2msg", "builtin_interfaces/Time stamp");
        let encoder = Encoder::new(&two).expect("an encoder");
        let ours = encoder.encode(&json!({ "stamp": { "sec": 5, "nanosec": 6 } }));
        let theirs = encoder.encode(&json!({ "stamp": { "secs": 5, "nsecs": 6 } }));
        assert_eq!(ours, theirs);
        let one = channel("ros1", "ros1msg", "time stamp\nduration d");
        let encoded = Encoder::new(&one).expect("an encoder");
        let times = json!({ "stamp": { "secs": 5, "nsecs": 6 }, "d": { "secs": -1, "nsecs": 0 } });
        let bytes = encoded.encode(&times).expect("encoded");
        assert_eq!(bytes.len(), 16);
        assert_eq!(bytes[..8], [5, 0, 0, 0, 6, 0, 0, 0]);
    }

    #[test]
    fn what_does_not_fit_names_the_field_and_what_is_missing_is_zero() {
        let text = format!("{FIELDS}{INNER}");
        let channel = channel("cdr", "ros2msg", &text);
        let encoder = Encoder::new(&channel).expect("an encoder");
        for (field, value) in [
            ("a", json!(256)),
            ("b", json!({})),
            ("c", json!(1)),
            ("d", json!("yes")),
            ("e", json!(3)),
            ("f", json!([1.0])),
            ("g", json!("not base64!")),
            ("i", json!(-1)),
        ] {
            let error = encoder.encode(&json!({ field: value })).expect_err(field);
            assert_eq!(error.field, field);
        }
        let wrong = encoder.encode(&json!({ "inner": [{ "x": "far" }] }));
        assert_eq!(wrong.expect_err("not a number").field, "inner.x");
        assert!(encoder.encode(&json!([])).is_err());
        let empty = there_and_back(&channel, &json!({}));
        assert_eq!((&empty["a"], &empty["c"]), (&json!(0), &json!("")));
    }

    #[test]
    fn a_number_that_json_cannot_say_is_not_a_number() {
        let channel = channel("cdr", "ros2msg", "float32[] ranges");
        let bytes = Encoder::new(&channel).expect("an encoder");
        let bytes = bytes
            .encode(&json!({ "ranges": [null, 1.0] }))
            .expect("encoded");
        assert!(f32::from_le_bytes(bytes[8..12].try_into().expect("four")).is_nan());
    }

    #[test]
    fn a_type_without_fields_has_the_byte_that_ros_gives_it() {
        let channel = channel("cdr", "ros2msg", "");
        let empty = Encoder::new(&channel);
        if let Ok(encoder) = empty {
            assert_eq!(
                encoder.encode(&json!({})).expect("encoded"),
                [0, 1, 0, 0, 0]
            );
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        let channel = channel("json", "jsonschema", "{}");
        assert!(Encoder::new(&channel).is_err());
    }
}
