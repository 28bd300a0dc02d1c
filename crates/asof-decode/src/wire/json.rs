//! Decodes JSON text straight into columns, and CBOR by way of JSON.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustc_hash::FxHashMap;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::columns::{Backing, Columns, Payload};
use crate::error::{Fault, PayloadError, SchemaError};
use crate::layout::{Group, Layout, Node, Projection, Recursion, Shape};
use crate::model::{MessageType, Scalar};
use crate::schema::jsonschema::OTHER;
use crate::schema::shape::Inference;

use super::{BYTES_OF_A_VALUE, WireDecoder, cbor, too_many_values, values_at_most};

/// Decodes JSON messages, or CBOR ones.
pub(crate) struct JsonDecoder {
    layout: Layout,
    /// The column for values that the schema does not have, and its presence.
    other: Option<(usize, usize)>,
    names: Names,
    is_cbor: bool,
    /// Whether the types are those of samples: a message is then any value.
    is_inferred: bool,
}

/// The fields of each struct that has many, by name.
type Names = FxHashMap<usize, FxHashMap<String, usize>>;

/// From this many fields on, they are looked up by name.
const MANY_FIELDS: usize = 16;

/// The field of a message that is not an object.
const VALUE: &str = "value";

/// The most samples that are used where there is no schema.
const SAMPLES: usize = 100;

impl JsonDecoder {
    pub fn with_schema(
        types: &MessageType,
        projection: &Projection,
        is_cbor: bool,
    ) -> Result<Self, SchemaError> {
        let layout = Layout::new(types, projection, Recursion::Text)?;
        let other = layout
            .root
            .find(OTHER)
            .and_then(|node| Some((node.column()?, node.presence?)));
        let many = types.structs.iter().enumerate();
        let many = many.filter(|(_, one)| one.fields.len() >= MANY_FIELDS);
        let names = many.map(|(id, one)| {
            let places = one.fields.iter().enumerate().rev();
            (
                id,
                places.map(|(at, field)| (field.name.clone(), at)).collect(),
            )
        });
        Ok(JsonDecoder {
            layout,
            other,
            names: names.collect(),
            is_cbor,
            is_inferred: false,
        })
    }

    /// A decoder whose types are inferred from the samples.
    pub fn inferred(
        name: &str,
        samples: &[&[u8]],
        projection: &Projection,
        is_cbor: bool,
    ) -> Result<Self, SchemaError> {
        let mut inference = Inference::default();
        for sample in samples.iter().take(SAMPLES) {
            add_sample(&mut inference, sample, is_cbor);
        }
        let decoder = JsonDecoder::with_schema(&inference.into_types(name), projection, is_cbor)?;
        Ok(JsonDecoder {
            is_inferred: true,
            ..decoder
        })
    }

    /// A payload as the text of an object.
    fn object<'a>(&self, payload: &'a [u8]) -> Result<Cow<'a, [u8]>, PayloadError> {
        let text = to_json(payload, self.is_cbor)?;
        Ok(if self.is_inferred {
            as_object(text)
        } else {
            text
        })
    }

    fn row(&self, payload: &[u8], columns: &mut Columns) -> Result<(), PayloadError> {
        let text = self.object(payload)?;
        let mut rest = Rest {
            names: &self.names,
            other: Vec::new(),
            path: String::new(),
            left: values_at_most(payload.len()),
            is_too_large: false,
        };
        let mut reader = serde_json::Deserializer::from_slice(&text);
        let seed = GroupSeed {
            group: &self.layout.root,
            columns,
            rest: &mut rest,
        };
        let read = seed
            .deserialize(&mut reader)
            .and_then(|()| reader.end())
            .map_err(|error| malformed(&error));
        if rest.is_too_large {
            return Err(*too_many_values(0));
        }
        read?;
        let mut other = rest.other;
        if let Some((column, presence)) = self.other {
            columns.w1[presence].push(u8::from(!other.is_empty()));
            if other.is_empty() {
                columns.texts[column].push(b"null");
            } else {
                other.push(b'}');
                columns.texts[column].push(&other);
            }
        }
        Ok(())
    }
}

/// A payload as JSON text.
pub(crate) fn to_json(payload: &[u8], is_cbor: bool) -> Result<Cow<'_, [u8]>, PayloadError> {
    if is_cbor {
        cbor::to_json(payload).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(payload))
    }
}

/// Widens the types of a channel so that they hold this message, too.
pub(crate) fn add_sample(inference: &mut Inference, payload: &[u8], is_cbor: bool) {
    // A survey passes its witnesses on in JSON, also for CBOR: the first byte is not that of a CBOR map.
    let text = to_json(payload, is_cbor).unwrap_or(Cow::Borrowed(payload));
    inference.add(&as_object(text));
}

/// A message without a schema that is not an object, such as `5`, is an object with one field: `{"value":5}`.
fn as_object(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_none_or(|byte| *byte == b'{') {
        return text;
    }
    match serde_json::from_slice::<&RawValue>(&text) {
        Ok(value) => Cow::Owned(format!("{{\"{VALUE}\":{}}}", value.get()).into_bytes()),
        Err(_) => text,
    }
}

fn malformed(error: &serde_json::Error) -> PayloadError {
    let reason = format!("JSON, line {}: {error}", error.line());
    PayloadError::malformed(error.column(), reason)
}

impl WireDecoder for JsonDecoder {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn decode_one(
        &mut self,
        payload: Payload<'_>,
        columns: &mut Columns,
        _rows: usize,
    ) -> Result<(), Fault> {
        self.row(payload.bytes, columns).map_err(Box::new)
    }

    fn text(&self, payload: &[u8]) -> Option<Result<Vec<u8>, PayloadError>> {
        Some(match self.object(payload) {
            Ok(text) if !self.is_cbor => compact(&text),
            other => other.map(Cow::into_owned),
        })
    }
}

/// The same JSON without whitespace: numbers, names and their order are unchanged.
pub(crate) fn compact(text: &[u8]) -> Result<Vec<u8>, PayloadError> {
    let raw: &RawValue = serde_json::from_slice(text).map_err(|error| malformed(&error))?;
    let mut out = Vec::with_capacity(text.len());
    let (mut is_text, mut is_escaped) = (false, false);
    for &byte in raw.get().as_bytes() {
        if is_text {
            is_text = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            out.push(byte);
        } else if !byte.is_ascii_whitespace() {
            is_text = byte == b'"';
            out.push(byte);
        }
    }
    Ok(out)
}

/// Reads an object into the columns of a struct.
struct GroupSeed<'a, 'r> {
    group: &'a Group,
    columns: &'a mut Columns,
    rest: &'a mut Rest<'r>,
}

impl<'de> DeserializeSeed<'de> for GroupSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for GroupSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let GroupSeed {
            group,
            columns,
            rest,
        } = self;
        rest.spend(1 + group.fields.len())?;
        let mut seen = vec![false; group.fields.len()];
        let is_root = rest.path.is_empty();
        let names = rest.names.get(&group.id);
        // Fields are usually in the schema's order.
        let mut guess = 0;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            let is_it = |at: usize| {
                let node = group.fields.get(at).and_then(Option::as_ref);
                node.is_some_and(|node| node.name == name && !(is_root && name == OTHER))
            };
            let found = if is_it(guess) {
                Some(guess)
            } else if let Some(names) = names {
                names.get(&*name).copied().filter(|&at| is_it(at))
            } else {
                (0..group.fields.len()).find(|&at| is_it(at))
            };
            let value: &RawValue = map.next_value()?;
            let node = found.and_then(|at| Some((at, group.fields[at].as_ref()?)));
            let Some((at, node)) = node.filter(|(at, _)| !seen[*at]) else {
                rest.keep(&name, value)?;
                continue;
            };
            guess = at + 1;
            seen[at] = true;
            if !put(node, value, columns, rest).map_err(A::Error::custom)? {
                rest.keep(&name, value)?;
            }
        }
        for (at, node) in group.fields.iter().enumerate() {
            let Some(node) = node else { continue };
            if !(seen[at] || is_root && node.name == OTHER) {
                rest.fill(node, columns)?;
            }
        }
        Ok(())
    }
}

/// What a message has beside its columns, and how much there may be.
struct Rest<'a> {
    names: &'a Names,
    /// The values that have no column, as an object without its end.
    other: Vec<u8>,
    /// Where the values are that are being read.
    path: String,
    /// How many more values there may be.
    left: usize,
    is_too_large: bool,
}

impl Rest<'_> {
    fn spend<E: Error>(&mut self, values: usize) -> Result<(), E> {
        if let Some(left) = self.left.checked_sub(values) {
            self.left = left;
            return Ok(());
        }
        self.is_too_large = true;
        Err(E::custom("too many values"))
    }

    /// Adds a value that is absent, or of another type.
    fn fill<E: Error>(&mut self, node: &Node, columns: &mut Columns) -> Result<(), E> {
        if matches!(node.shape, Shape::Struct(_)) {
            self.spend(node.fill_size())?;
        }
        node.push_default(columns, 1);
        Ok(())
    }

    /// Adds a value that has no column of its own, under its path.
    fn keep<E: Error>(&mut self, name: &str, value: &RawValue) -> Result<(), E> {
        self.spend(self.path.len() / BYTES_OF_A_VALUE)?;
        let other = &mut self.other;
        other.push(if other.is_empty() { b'{' } else { b',' });
        let key = format!("{}{name}", self.path);
        crate::print::print_text(key.as_bytes(), other);
        other.push(b':');
        match compact(value.get().as_bytes()) {
            Ok(text) => other.extend_from_slice(&text),
            Err(_) => other.extend_from_slice(b"null"),
        }
        Ok(())
    }
}

/// Writes one value; returns whether it has the column's type. If not, or if it is null, the field is absent.
fn put(
    node: &Node,
    value: &RawValue,
    columns: &mut Columns,
    rest: &mut Rest<'_>,
) -> Result<bool, serde_json::Error> {
    let text = value.get().trim_ascii();
    if text == "null" {
        rest.fill(node, columns)?;
        return Ok(true);
    }
    let fits = put_value(node, text, columns, rest)?;
    if !fits {
        rest.fill(node, columns)?;
    } else if let Some(presence) = node.presence {
        columns.w1[presence].push(1);
    }
    Ok(fits)
}

/// Writes one value, without its presence. Where it does not fit, nothing is written.
fn put_value(
    node: &Node,
    text: &str,
    columns: &mut Columns,
    rest: &mut Rest<'_>,
) -> Result<bool, serde_json::Error> {
    let is = |first: &[u8]| text.as_bytes().first().is_some_and(|b| first.contains(b));
    match &node.shape {
        Shape::Scalar(Scalar::Bool, column) => {
            let value = match text {
                "true" => 1,
                "false" => 0,
                _ => return Ok(false),
            };
            columns.w1[*column].push(value);
        }
        Shape::Scalar(Scalar::Int64, column) => {
            let Ok(value) = text.parse::<i64>() else {
                return Ok(false);
            };
            columns.w8[*column].push(value as u64);
        }
        Shape::Scalar(Scalar::Uint64, column) => {
            let Ok(value) = text.parse::<u64>() else {
                return Ok(false);
            };
            columns.w8[*column].push(value);
        }
        Shape::Scalar(_, column) => {
            if !is(b"-0123456789") {
                return Ok(false);
            }
            let Ok(value) = text.parse::<f64>() else {
                return Ok(false);
            };
            columns.w8[*column].push(value.to_bits());
        }
        Shape::Text(column) => {
            if !is(b"\"") {
                return Ok(false);
            }
            let value: Cow<'_, str> = serde_json::from_str(text)?;
            columns.texts[*column].push(value.as_bytes());
        }
        Shape::Blob(column) => {
            if !is(b"\"") {
                return Ok(false);
            }
            let value: Cow<'_, str> = serde_json::from_str(text)?;
            let Ok(bytes) = STANDARD.decode(value.as_bytes()) else {
                return Ok(false);
            };
            columns.blobs[*column].push(&bytes, 0, Backing { owner: None });
        }
        Shape::Json(column) => {
            let text = compact(text.as_bytes()).map_err(serde_json::Error::custom)?;
            columns.texts[*column].push(&text);
        }
        Shape::Struct(group) => {
            if !is(b"{") {
                return Ok(false);
            }
            let before = rest.path.len();
            rest.path.push_str(&node.name);
            rest.path.push('.');
            let seed = GroupSeed {
                group,
                columns,
                rest,
            };
            seed.deserialize(&mut serde_json::Deserializer::from_str(text))?;
            rest.path.truncate(before);
        }
        Shape::List(ends, item) => {
            if !is(b"[") {
                return Ok(false);
            }
            let ends = *ends;
            let start = columns.ends[ends].last().copied().unwrap_or(0);
            let seed = ListSeed {
                item,
                columns,
                rest,
            };
            let (count, fits) = seed.deserialize(&mut serde_json::Deserializer::from_str(text))?;
            let end = i32::try_from(count)
                .ok()
                .and_then(|count| start.checked_add(count));
            let Some(end) = end.filter(|_| fits) else {
                item.truncate(columns, start as usize);
                return Ok(false);
            };
            columns.ends[ends].push(end);
        }
        Shape::Enum(..) | Shape::FixedBlob(..) | Shape::Array(..) | Shape::Map(..) => {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads an array into the columns of its element.
struct ListSeed<'a, 'r> {
    item: &'a Node,
    columns: &'a mut Columns,
    rest: &'a mut Rest<'r>,
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_, '_> {
    type Value = (usize, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_, '_> {
    type Value = (usize, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut count = 0;
        let mut fits = true;
        while let Some(value) = seq.next_element::<&RawValue>()? {
            if fits {
                let text = value.get().trim_ascii();
                // A null element, or one of another type, cannot be in the list: the whole list is kept as text then.
                fits = put_value(self.item, text, self.columns, self.rest)
                    .map_err(A::Error::custom)?;
                count += 1;
            }
        }
        Ok((count, fits))
    }
}
