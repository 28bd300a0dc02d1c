//! Decoded messages, asked by path.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Fields};
use asof_core::{Channel, Message};
use asof_decode::{Decoder, Projection};
use base64::Engine as _;

/// The decoders of the channels that one reader has met.
#[derive(Default)]
pub(crate) struct Decoders {
    /// By address; the channel is kept so that its address is not used for another.
    known: HashMap<usize, (Arc<Channel>, Result<Decoder, String>)>,
}

/// More channels than this are not remembered at once.
const MOST_DECODERS: usize = 2048;

impl Decoders {
    pub fn of(&mut self, channel: &Arc<Channel>, sample: &[u8]) -> Result<&mut Decoder, String> {
        if self.known.len() > MOST_DECODERS {
            self.known.clear();
        }
        let entry = self.known.entry(Arc::as_ptr(channel) as usize);
        let (_, decoder) = entry.or_insert_with(|| {
            let decoder = Decoder::new(channel, &Projection::All, &[sample]);
            (
                Arc::clone(channel),
                decoder.map_err(|error| error.to_string()),
            )
        });
        decoder.as_mut().map_err(|error| error.clone())
    }

    pub fn json(&mut self, message: &Message) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        self.of(&message.channel, &message.payload)?
            .write_json(&message.payload, &mut out)
            .map_err(|error| error.to_string())?;
        Ok(out)
    }

    pub fn record(&mut self, message: &Message) -> Result<Record, String> {
        let decoder = self.of(&message.channel, &message.payload)?;
        let payload = asof_decode::Payload {
            bytes: &message.payload,
            owner: Some((&message.payload, 0)),
        };
        let mut failure = None;
        decoder.append(
            &[(message.log_time, message.publish_time, payload)],
            |_, error| failure = Some(error.to_string()),
        );
        let batch = decoder.take().map_err(|error| error.to_string())?;
        match (batch, failure) {
            (Some(batch), None) => Ok(Record { batch }),
            (_, failure) => Err(failure.unwrap_or_else(|| "there is nothing in it".to_owned())),
        }
    }
}

/// A message as a row of an Arrow table.
pub(crate) struct Record {
    batch: RecordBatch,
}

impl Record {
    pub fn array(&self, path: &str) -> Option<ArrayRef> {
        let (array, rows) = Path::parse(path)?.column(&self.batch)?;
        let row = rows.at(0)?;
        (row < array.len() && array.is_valid(row)).then(|| array.slice(row, 1))
    }

    pub fn number(&self, path: &str) -> Option<f64> {
        number_at(&*self.array(path)?, 0)
    }

    /// The first of these paths that has a number.
    pub fn number_of(&self, paths: &[&str]) -> Option<f64> {
        paths.iter().find_map(|path| self.number(path))
    }

    pub fn text(&self, path: &str) -> Option<String> {
        let array = self.array(path)?;
        match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(0).to_owned()),
            _ => None,
        }
    }

    /// Bytes; in JSON they are text in base64.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let array = self.array(path)?;
        match array.data_type() {
            DataType::BinaryView => Some(array.as_binary_view().value(0).to_vec()),
            DataType::FixedSizeBinary(_) => Some(array.as_fixed_size_binary().value(0).to_vec()),
            DataType::Utf8 => base64::engine::general_purpose::STANDARD
                .decode(array.as_string::<i32>().value(0))
                .ok(),
            DataType::List(_) | DataType::FixedSizeList(..) => {
                let items = self.items(path)?;
                Some(
                    numbers(&*items)
                        .into_iter()
                        .map(|n| n as i64 as u8)
                        .collect(),
                )
            }
            _ => None,
        }
    }

    /// The elements of a list.
    pub fn items(&self, path: &str) -> Option<ArrayRef> {
        let array = self.array(path)?;
        match array.data_type() {
            DataType::List(_) => Some(array.as_list::<i32>().value(0)),
            DataType::FixedSizeList(..) => Some(array.as_fixed_size_list().value(0)),
            _ => None,
        }
    }

    /// A list of numbers.
    pub fn list(&self, path: &str) -> Option<Vec<f64>> {
        self.items(path).map(|items| numbers(&*items))
    }

    /// `[x, y, z, qx, qy, qz, qw]`, from a pose in the words of ROS or of Foxglove.
    pub fn pose(&self, path: &str) -> Option<[f64; 7]> {
        let at = |part: &str| self.number(&format!("{path}.{part}"));
        Some([
            at("position.x").or_else(|| at("translation.x"))?,
            at("position.y").or_else(|| at("translation.y"))?,
            at("position.z")
                .or_else(|| at("translation.z"))
                .unwrap_or(0.0),
            at("orientation.x")
                .or_else(|| at("rotation.x"))
                .unwrap_or(0.0),
            at("orientation.y")
                .or_else(|| at("rotation.y"))
                .unwrap_or(0.0),
            at("orientation.z")
                .or_else(|| at("rotation.z"))
                .unwrap_or(0.0),
            at("orientation.w")
                .or_else(|| at("rotation.w"))
                .unwrap_or(1.0),
        ])
    }

    /// The frame that the message is given in.
    pub fn frame(&self) -> Option<String> {
        let frame = self
            .text("header.frame_id")
            .or_else(|| self.text("frame_id"))?;
        Some(frame.trim_start_matches('/').to_owned())
    }

    /// When it was measured, in nanoseconds.
    pub fn stamp(&self) -> Option<i64> {
        let array = Arc::clone(self.batch.column_by_name("stamp")?);
        match array.data_type() {
            DataType::Timestamp(..) if array.is_valid(0) => {
                Some(array.as_primitive::<TimestampNanosecondType>().value(0))
            }
            _ => None,
        }
    }
}

/// A way through a message: `pose.position.x`, `ranges[7]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Field(String),
    Item(usize),
}

/// Which rows of an array are meant.
pub(crate) enum Rows {
    All,
    Chosen(Vec<Option<usize>>),
}

impl Rows {
    pub fn at(&self, row: usize) -> Option<usize> {
        match self {
            Rows::All => Some(row),
            Rows::Chosen(rows) => rows.get(row).copied().flatten(),
        }
    }
}

impl Path {
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        for field in text.split('.') {
            let (name, indexes) = match field.split_once('[') {
                Some((name, rest)) => (name, Some(rest.strip_suffix(']')?)),
                None => (field, None),
            };
            if name.is_empty() {
                return None;
            }
            parts.push(Part::Field(name.to_owned()));
            for index in indexes.iter().flat_map(|indexes| indexes.split("][")) {
                parts.push(Part::Item(index.parse().ok()?));
            }
        }
        (parts.len() <= 64).then_some(Path(parts))
    }

    /// The fields alone, as a projection takes them: up to the first list.
    pub fn projection(&self) -> Projection {
        let names = self.0.iter().map_while(|part| match part {
            Part::Field(name) => Some(name.as_str()),
            Part::Item(_) => None,
        });
        Projection::paths([names.collect::<Vec<_>>().join(".")])
    }

    /// The array at the end of the way, and which of its rows belong to which message.
    pub fn column(&self, batch: &RecordBatch) -> Option<(ArrayRef, Rows)> {
        let mut parts = self.0.iter();
        let Some(Part::Field(first)) = parts.next() else {
            return None;
        };
        let mut array = Arc::clone(own_column(batch, first)?);
        let mut rows = Rows::All;
        for part in parts {
            match part {
                Part::Field(name) => {
                    let next = Arc::clone(array.as_struct_opt()?.column_by_name(name)?);
                    if array.null_count() > 0 {
                        let valid = |row: usize| array.is_valid(row).then_some(row);
                        rows = Rows::Chosen(
                            (0..batch.num_rows())
                                .map(|row| rows.at(row).and_then(valid))
                                .collect(),
                        );
                    }
                    array = next;
                }
                Part::Item(index) => {
                    let chosen = |row: usize| item_of(&array, rows.at(row)?, *index);
                    let next = (0..batch.num_rows()).map(chosen).collect();
                    array = match array.data_type() {
                        DataType::List(_) => Arc::clone(array.as_list::<i32>().values()),
                        DataType::FixedSizeList(..) => {
                            Arc::clone(array.as_fixed_size_list().values())
                        }
                        _ => return None,
                    };
                    rows = Rows::Chosen(next);
                }
            }
        }
        Some((array, rows))
    }

    /// The numbers at the end of the way, one for each message; not-a-number where there is none.
    pub fn numbers(&self, batch: &RecordBatch) -> Option<Vec<f64>> {
        let (array, rows) = self.column(batch)?;
        if !is_number(array.data_type()) {
            return None;
        }
        let all = numbers(&*array);
        let value = |row: usize| rows.at(row).and_then(|row| all.get(row).copied());
        Some(
            (0..batch.num_rows())
                .map(|row| value(row).unwrap_or(f64::NAN))
                .collect(),
        )
    }
}

/// The message's own field of this name, rather than a time that the table adds.
fn own_column<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a ArrayRef> {
    let schema = batch.schema_ref();
    let at = schema
        .fields()
        .iter()
        .rposition(|field| field.name() == name)?;
    Some(batch.column(at))
}

fn item_of(array: &ArrayRef, row: usize, index: usize) -> Option<usize> {
    if row >= array.len() || array.is_null(row) {
        return None;
    }
    match array.data_type() {
        DataType::List(_) => {
            let offsets = array.as_list::<i32>().offsets();
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            (index < end - start).then_some(start + index)
        }
        DataType::FixedSizeList(_, len) => {
            let len = *len as usize;
            (index < len).then_some(row * len + index)
        }
        _ => None,
    }
}

fn is_number(kind: &DataType) -> bool {
    kind.is_numeric() || matches!(kind, DataType::Boolean | DataType::Timestamp(..))
}

pub(crate) fn number_at(array: &dyn Array, row: usize) -> Option<f64> {
    (row < array.len() && array.is_valid(row))
        .then(|| numbers(&*array.slice(row, 1)).first().copied())?
}

/// Everything as floating point; nothing for what are no numbers.
pub(crate) fn numbers(array: &dyn Array) -> Vec<f64> {
    macro_rules! all {
        ($kind:ty) => {
            array
                .as_primitive::<$kind>()
                .iter()
                .map(|value| value.map_or(f64::NAN, |value| value as f64))
                .collect()
        };
    }
    match array.data_type() {
        DataType::Float64 => all!(Float64Type),
        DataType::Float32 => all!(Float32Type),
        DataType::Int8 => all!(Int8Type),
        DataType::Int16 => all!(Int16Type),
        DataType::Int32 => all!(Int32Type),
        DataType::Int64 => all!(Int64Type),
        DataType::UInt8 => all!(UInt8Type),
        DataType::UInt16 => all!(UInt16Type),
        DataType::UInt32 => all!(UInt32Type),
        DataType::UInt64 => all!(UInt64Type),
        DataType::Boolean => array
            .as_boolean()
            .iter()
            .map(|value| value.map_or(f64::NAN, f64::from))
            .collect(),
        DataType::Timestamp(..) => array
            .as_primitive::<TimestampNanosecondType>()
            .iter()
            .map(|value| value.map_or(f64::NAN, |nanos| nanos as f64 * 1e-9))
            .collect(),
        _ => Vec::new(),
    }
}

/// A field that a plot or a state panel can show.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct FieldEntry {
    pub path: String,
    /// `number`, `bool`, `enum` or `text`.
    pub kind: &'static str,
}

/// The fields of a channel that can be shown over time. Lists count as far as `sample` has elements.
pub(crate) fn fields_of(decoder: &Decoder, sample: Option<&Record>) -> Vec<FieldEntry> {
    let mut found = Vec::new();
    let schema = decoder.schema();
    // The table's own times come first: they are no fields of the message.
    let added = schema
        .fields()
        .iter()
        .take_while(|field| matches!(field.data_type(), DataType::Timestamp(..)))
        .count();
    let own: Fields = schema.fields()[added..].to_vec().into();
    walk(&own, "", sample, &mut found);
    found
}

/// Lists show so many elements in a choice of fields; more can be named by hand.
const MOST_ITEMS: usize = 32;
const MOST_FIELDS: usize = 2000;

fn walk(fields: &Fields, before: &str, sample: Option<&Record>, found: &mut Vec<FieldEntry>) {
    for field in fields {
        let path = if before.is_empty() {
            field.name().clone()
        } else {
            format!("{before}.{}", field.name())
        };
        add(field, path, sample, found);
    }
}

fn add(field: &Field, path: String, sample: Option<&Record>, found: &mut Vec<FieldEntry>) {
    if found.len() >= MOST_FIELDS || path.len() > 400 {
        return;
    }
    let is_enum = field.metadata().keys().any(|key| key.contains("enum"));
    let kind = match field.data_type() {
        DataType::Struct(fields) => return walk(fields, &path, sample, found),
        DataType::List(item) | DataType::FixedSizeList(item, _) => {
            let len = sample
                .and_then(|sample| sample.items(&path))
                .map_or(0, |items| items.len());
            for index in 0..len.min(MOST_ITEMS) {
                add(item, format!("{path}[{index}]"), sample, found);
            }
            return;
        }
        kind if kind.is_integer() && is_enum => "enum",
        DataType::Boolean => "bool",
        DataType::Utf8 => "text",
        kind if is_number(kind) => "number",
        _ => return,
    };
    found.push(FieldEntry { path, kind });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_fields_and_elements() {
        let parts = |text: &str| Path::parse(text).map(|path| path.0.len());
        assert_eq!(parts("pose.position.x"), Some(3));
        assert_eq!(parts("ranges[7]"), Some(2));
        assert_eq!(parts("a[1][2].b"), Some(4));
        for text in ["", ".", "a.", "a[", "a[x]", "[1]", "a[-1]"] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
