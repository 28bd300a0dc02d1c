//! Decoded messages, in the forms of the page's panels.

use arrow_array::Array as _;
use arrow_schema::{DataType, Field, Fields};
use asof_core::{Channel, Message};
use asof_decode::{
    Archetype, DecodeError, Decoder, Decoders, Projection, Record, SchemaError, is_number,
};

/// A message as JSON.
pub(crate) fn json_of(decoders: &mut Decoders, message: &Message) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let decoder = decoders.of(&message.channel, &[&message.payload]);
    decoder
        .map_err(|error| reason(&error.into()))?
        .write_json(&message.payload, &mut out)
        .map_err(|error| error.to_string())?;
    Ok(out)
}

/// Why something cannot be decoded, with a way on where there is one.
pub(crate) fn reason(error: &DecodeError) -> String {
    match error {
        DecodeError::Schema(SchemaError::NoDefinition { .. }) => {
            format!("{error}; name a folder that has its .msg file: --msg-path DIR")
        }
        _ => error.to_string(),
    }
}

/// The frame of a message.
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

/// The fields of a channel that can be shown over time. Lists have as many elements as in `sample`.
pub(crate) fn fields_of(decoder: &Decoder, sample: Option<&Record>) -> Vec<FieldEntry> {
    let mut found = Vec::new();
    let schema = decoder.schema();
    // The table's own times come first: they are not fields of the message.
    let added = schema
        .fields()
        .iter()
        .take_while(|field| matches!(field.data_type(), DataType::Timestamp(..)))
        .count();
    let own: Fields = schema.fields()[added..].to_vec().into();
    walk(&own, "", sample, &mut found);
    found
}

/// A column of an archetype, and which of its components are plotted; empty for a number.
type PlotColumn = (&'static str, &'static [&'static str]);

/// The default plots of each archetype.
const PLOTS: &[(&str, &[PlotColumn])] = &[
    ("Twist", &[("linear", &["x"]), ("angular", &["z"])]),
    (
        "Odometry",
        &[("linear_velocity", &["x"]), ("angular_velocity", &["z"])],
    ),
    ("Imu", &[("linear_acceleration", &["x", "y", "z"])]),
    ("Pose", &[("position", &["x", "y", "z"])]),
    ("Point", &[("position", &["x", "y", "z"])]),
    ("Wrench", &[("force", &["x", "y", "z"])]),
    ("BatteryState", &[("voltage", &[]), ("percentage", &[])]),
    ("Range", &[("range", &[])]),
    ("Temperature", &[("value", &[])]),
    ("Pressure", &[("value", &[])]),
    ("MagneticField", &[("magnetic_field", &["x", "y", "z"])]),
];

/// The default plots of a channel, as paths of its schema; empty where that is not known.
pub(crate) fn plot_of(channel: &Channel) -> Vec<String> {
    let Some(archetype) = Archetype::of(channel.type_name()) else {
        return Vec::new();
    };
    let known = PLOTS.iter().find(|(name, _)| *name == archetype.name);
    let (Some((_, columns)), None) = (known, archetype.list()) else {
        return Vec::new();
    };
    let Ok(decoder) = Decoder::new(channel, &Projection::All, &[]) else {
        return Vec::new();
    };
    let fields = fields_of(&decoder, None);
    let is_there = |path: &String| {
        let mut numbers = fields.iter().filter(|field| field.kind == "number");
        numbers.any(|field| field.path == *path)
    };
    let mut found = Vec::new();
    for (column, parts) in *columns {
        // The first of the column's paths that this flavour of the message has.
        let ways = archetype.paths_of(column).iter().map(|path| match parts {
            [] => vec![(*path).to_owned()],
            parts => parts.iter().map(|part| format!("{path}.{part}")).collect(),
        });
        let way = ways
            .into_iter()
            .find(|way: &Vec<String>| way.iter().all(is_there));
        found.extend(way.unwrap_or_default());
    }
    found
}

/// At most this many list elements are offered as fields; others can be entered by hand.
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
    use asof_core::Schema;
    use std::sync::Arc;

    fn channel(name: &str, definition: &str) -> Channel {
        Channel {
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(Schema {
                name: name.to_owned(),
                encoding: "ros2msg".to_owned(),
                data: definition.as_bytes().to_vec().into(),
            })),
            ..Channel::default()
        }
    }

    #[test]
    fn a_type_without_a_definition_tells_the_way_on() {
        // As in ROS 2 bags before Iron.
        let schema = Schema {
            name: "robot/msg/Odd".to_owned(),
            ..Schema::default()
        };
        let channel = Channel {
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(schema)),
            ..Channel::default()
        };
        let message = Message {
            channel: Arc::new(channel),
            log_time: asof_core::Stamp::EPOCH,
            publish_time: asof_core::Stamp::EPOCH,
            sequence: 0,
            payload: vec![0, 1, 0, 0, 7].into(),
        };
        let error = json_of(&mut Decoders::default(), &message).expect_err("no definition");
        assert!(
            error.contains("robot/msg/Odd") && error.contains("--msg-path"),
            "{error}"
        );
    }

    #[test]
    fn only_fields_that_a_schema_has_are_worth_a_plot() {
        let vector = "float64 x\nfloat64 y\nfloat64 z\n";
        let line = "=".repeat(80);
        let twist = format!(
            "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n{line}\nMSG: geometry_msgs/Vector3\n{vector}"
        );
        let plot = plot_of(&channel("geometry_msgs/msg/Twist", &twist));
        assert_eq!(plot, ["linear.x", "angular.z"]);
        // A type of that name with other fields, and one of no known meaning.
        let odd = channel("geometry_msgs/msg/Twist", "float64 speed\n");
        assert_eq!(plot_of(&odd), [""; 0]);
        let other = channel("robot/msg/Twist", &twist);
        assert_eq!(plot_of(&other), [""; 0]);
    }
}
