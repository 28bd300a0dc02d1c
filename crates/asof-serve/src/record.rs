//! Decoded messages, in the forms that the panels of a page ask for.

use arrow_array::Array as _;
use arrow_schema::{DataType, Field, Fields};
use asof_core::Message;
use asof_decode::{Decoder, Decoders, Record, is_number};

/// A message as JSON.
pub(crate) fn json_of(decoders: &mut Decoders, message: &Message) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let decoder = decoders.of(&message.channel, &[&message.payload]);
    decoder
        .map_err(|error| error.to_string())?
        .write_json(&message.payload, &mut out)
        .map_err(|error| error.to_string())?;
    Ok(out)
}

/// `[x, y, z, qx, qy, qz, qw]` of a message that has a pose.
pub(crate) fn pose_of(record: &Record) -> Option<[f64; 7]> {
    let position = record.list("position")?;
    let [x, y, rest @ ..] = &position[..] else {
        return None;
    };
    let orientation = record.list("orientation").unwrap_or_default();
    let [qx, qy, qz, qw] = orientation.try_into().unwrap_or([0.0, 0.0, 0.0, 1.0]);
    let z = rest.first().copied().unwrap_or(0.0);
    Some([*x, *y, z, qx, qy, qz, qw])
}

/// The frame that a message is given in.
pub(crate) fn frame_of(record: &Record) -> Option<String> {
    let frame = record
        .text("frame_id")
        .or_else(|| record.text("header.frame_id"))?;
    Some(frame.trim_start_matches('/').to_owned())
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
