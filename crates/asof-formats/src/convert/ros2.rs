//! Conversion of ROS 1 messages to ROS 2, from one serialization to the other.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use asof_core::{Channel, Schema};
use asof_ros::msg::{self, referred, sections, short_name};
use asof_ros::{CdrWriter, Definitions};
use bytes::Bytes;

use super::generate::generated;

/// Converts the messages of a ROS 1 channel to those of a ROS 2 channel.
#[derive(Debug)]
pub(super) struct Transcoder {
    pub channel: Arc<Channel>,
    program: Arc<[Step]>,
}

/// The transcoders of channels. Those of one type, of which there may be very many, share its conversion.
#[derive(Debug, Default)]
pub(super) struct Transcoders {
    /// By the address of the schema, which is kept so that its address is not reused.
    by_schema: HashMap<usize, (Arc<Schema>, Result<Conversion, String>)>,
}

/// The conversion of a type.
#[derive(Debug)]
struct Conversion {
    schema: Arc<Schema>,
    program: Arc<[Step]>,
}

/// One step of a conversion: consumes the front of the input, appends to the output.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// This many values of this width.
    Copy(usize, usize),
    /// This many bytes that ROS 2 does not have.
    Drop(usize),
    Text,
    /// A sequence of values of this width.
    Words(usize),
    /// A sequence of anything else, and the smallest input of an element in bytes.
    Each(Vec<Step>, usize),
    /// This many of anything else.
    Times(usize, Vec<Step>),
    /// This many zeros of this width, for a field that ROS 1 does not have.
    Zeros(usize, usize),
    EmptyText,
    /// A message without fields has one byte in CDR.
    Nothing,
}

/// A payload that does not match its definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Transcoders {
    /// The conversion for a channel; the error is why there is none.
    pub fn of(
        &mut self,
        channel: &Channel,
        definitions: &Definitions,
    ) -> Result<Transcoder, String> {
        let schema = channel.schema.as_ref().ok_or("it has no definition")?;
        let key = Arc::as_ptr(schema) as usize;
        let make = || (Arc::clone(schema), Conversion::new(schema, definitions));
        let (_, made) = self.by_schema.entry(key).or_insert_with(make);
        let made = made.as_ref().map_err(String::clone)?;
        Ok(Transcoder {
            channel: Arc::new(as_ros2(channel, &made.schema)),
            program: Arc::clone(&made.program),
        })
    }
}

impl Conversion {
    fn new(schema: &Schema, definitions: &Definitions) -> Result<Self, String> {
        let text = std::str::from_utf8(&schema.data).map_err(|_| "its definition is not text")?;
        let theirs = Types::of_ros1(&schema.name, text)?;
        let name = renamed(&schema.name);
        // A custom type gets a generated definition.
        let full = match definitions.full_text(&name) {
            Some(full) => full,
            None => generated(&name, text, definitions)?,
        };
        let ours = Types::parse(&name, &full)?;
        let mut compiler = Compiler {
            theirs: &theirs,
            ours: &ours,
            steps: 0,
        };
        let program = compiler.group(&short_name(&schema.name), &name, 0)?;
        let schema = Schema {
            name: name.replace('/', "/msg/"),
            encoding: "ros2msg".into(),
            data: Bytes::from(full),
        };
        Ok(Conversion {
            schema: Arc::new(schema),
            program: program.into(),
        })
    }
}

impl Transcoder {
    /// Writes a ROS 1 payload as CDR into `out`, which is cleared first.
    pub fn transcode(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.clear();
        let mut message = ConvertedMessage {
            input: payload,
            spare: SPARE_BYTES.saturating_add(payload.len().saturating_mul(SPARE_OF_A_BYTE)),
            out: CdrWriter::new(out),
        };
        message.run(&self.program)
    }
}

/// Types that have another name in ROS 2.
fn renamed(name: &str) -> String {
    match name {
        "tf/tfMessage" => "tf2_msgs/TFMessage".to_owned(),
        name => short_name(name),
    }
}

/// The channel that ROS 2 would have recorded.
fn as_ros2(channel: &Channel, schema: &Arc<Schema>) -> Channel {
    let mut metadata = channel.metadata.clone();
    metadata.remove("md5sum");
    if metadata
        .remove("latching")
        .is_some_and(|latching| latching == "1")
    {
        metadata.insert("offered_qos_profiles".into(), latched_qos());
    }
    Channel {
        topic: channel.topic.clone(),
        message_encoding: "cdr".into(),
        schema: Some(Arc::clone(schema)),
        metadata,
    }
}

/// The QoS of a latched topic's publisher in rosbag2's format: reliable, transient local.
fn latched_qos() -> String {
    let mut text =
        "- history: 3\n  depth: 0\n  reliability: 1\n  durability: 1\n  liveliness: 1\n".to_owned();
    for name in ["deadline", "lifespan", "liveliness_lease_duration"] {
        let _ = write!(
            text,
            "  {name}:\n    sec: 9223372036\n    nsec: 854775807\n"
        );
    }
    text.push_str("  avoid_ros_namespace_conventions: false");
    text
}

/// Message types by their short names, with their fields.
struct Types(HashMap<String, Vec<Field>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    kind: Kind,
    count: Count,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Numbers of this many bytes; floats apart from integers.
    Number(usize, bool),
    Text,
    /// ROS 1's time and duration, which are message types in ROS 2.
    Time,
    Named(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    One,
    Fixed(usize),
    Any,
}

impl Types {
    fn of_ros1(name: &str, text: &str) -> Result<Self, String> {
        let mut types = Self::parse(name, text)?;
        let header = ["uint32 seq", "time stamp", "string frame_id"];
        types
            .0
            .entry("std_msgs/Header".to_owned())
            .or_insert_with(|| fields_of("std_msgs", header));
        Ok(types)
    }

    /// A definition, then its dependencies.
    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut types = HashMap::new();
        for section in sections(name, text).map_err(|error| error.to_string())? {
            types
                .entry(section.short_name())
                .or_insert_with(|| fields_of(&section.package, section.lines));
        }
        Ok(Types(types))
    }

    fn get(&self, name: &str) -> Result<&[Field], String> {
        let fields = self.0.get(name).map(Vec::as_slice);
        fields.ok_or_else(|| format!("the definition of {name} is missing"))
    }
}

fn fields_of<'a>(package: &str, lines: impl IntoIterator<Item = &'a str>) -> Vec<Field> {
    msg::fields(lines)
        .map(|field| Field {
            kind: kind_of(field.kind.base, package),
            count: match field.kind.count {
                msg::Count::One => Count::One,
                msg::Count::Fixed(count) => Count::Fixed(count as usize),
                msg::Count::Any | msg::Count::AtMost(_) => Count::Any,
            },
            name: field.name.to_owned(),
        })
        .collect()
}

fn kind_of(base: &str, package: &str) -> Kind {
    match base {
        "bool" | "int8" | "uint8" | "byte" | "char" => Kind::Number(1, false),
        "int16" | "uint16" => Kind::Number(2, false),
        "int32" | "uint32" => Kind::Number(4, false),
        "int64" | "uint64" => Kind::Number(8, false),
        "float32" => Kind::Number(4, true),
        "float64" => Kind::Number(8, true),
        "string" => Kind::Text,
        "time" | "duration" => Kind::Time,
        other => Kind::Named(referred(other, package)),
    }
}

struct Compiler<'a> {
    theirs: &'a Types,
    ours: &'a Types,
    steps: usize,
}

/// Types nest no deeper than this, and have no more fields.
const MAX_DEPTH: usize = 32;
const MOST_STEPS: usize = 10_000;

impl Compiler<'_> {
    /// Compiles the conversion from a ROS 1 type to a ROS 2 type.
    fn group(&mut self, from: &str, to: &str, depth: usize) -> Result<Vec<Step>, String> {
        let (theirs, ours) = (self.theirs.get(from)?, self.ours.get(to)?);
        self.steps += 1 + ours.len();
        if depth > MAX_DEPTH || self.steps > MOST_STEPS {
            return Err(format!("{from} is too large"));
        }
        let mut program = Vec::new();
        let mut next = 0;
        if from == "std_msgs/Header" && theirs.first().is_some_and(|first| first.name == "seq") {
            program.push(Step::Drop(4));
            next = 1;
        }
        for field in ours {
            // A few field names changed from upper to lower case.
            let is_same = |theirs: &Field| theirs.name.eq_ignore_ascii_case(&field.name);
            match theirs.iter().position(is_same) {
                Some(place) if place == next => {
                    next += 1;
                    self.field(&theirs[place], field, depth, &mut program)?;
                }
                Some(_) => return Err(format!("{from} has its fields in another order than {to}")),
                None => self.default(field, depth, &mut program)?,
            }
        }
        if let Some(unused) = theirs.get(next) {
            return Err(format!("{to} of ROS 2 has no field '{}'", unused.name));
        }
        if ours.is_empty() {
            program.push(Step::Nothing);
        }
        Ok(program)
    }

    fn field(
        &mut self,
        theirs: &Field,
        ours: &Field,
        depth: usize,
        program: &mut Vec<Step>,
    ) -> Result<(), String> {
        let differs = || format!("the field '{}' is of another type in ROS 2", ours.name);
        if theirs.count != ours.count {
            return Err(differs());
        }
        let element = match (&theirs.kind, &ours.kind) {
            (Kind::Number(..), Kind::Number(width, _)) if theirs.kind == ours.kind => {
                program.push(match ours.count {
                    Count::One => Step::Copy(*width, 1),
                    Count::Fixed(count) => Step::Copy(*width, count),
                    Count::Any => Step::Words(*width),
                });
                return Ok(());
            }
            (Kind::Text, Kind::Text) => vec![Step::Text],
            (Kind::Time, Kind::Named(name))
                if name == "builtin_interfaces/Time" || name == "builtin_interfaces/Duration" =>
            {
                vec![Step::Copy(4, 2)]
            }
            (Kind::Named(from), Kind::Named(to)) if renamed(from) == *to => {
                self.group(from, to, depth + 1)?
            }
            _ => return Err(differs()),
        };
        match ours.count {
            Count::One => program.extend(element),
            Count::Fixed(count) => program.push(Step::Times(count, element)),
            Count::Any => {
                let least = least_input(&element);
                program.push(Step::Each(element, least));
            }
        }
        Ok(())
    }

    /// Fields that only ROS 2 has are zero or empty.
    fn default(
        &mut self,
        field: &Field,
        depth: usize,
        program: &mut Vec<Step>,
    ) -> Result<(), String> {
        let count = match field.count {
            Count::One => 1,
            Count::Fixed(count) => count,
            Count::Any => {
                program.push(Step::Zeros(4, 1));
                return Ok(());
            }
        };
        let element = match &field.kind {
            Kind::Number(width, _) => {
                program.push(Step::Zeros(*width, count));
                return Ok(());
            }
            Kind::Text => vec![Step::EmptyText],
            Kind::Time => vec![Step::Zeros(4, 2)],
            Kind::Named(name) => {
                self.steps += 1;
                if depth > MAX_DEPTH || self.steps > MOST_STEPS {
                    return Err(format!("{name} is too large"));
                }
                let mut element = Vec::new();
                for field in self.ours.get(name)? {
                    self.default(field, depth + 1, &mut element)?;
                }
                if element.is_empty() {
                    element.push(Step::Nothing);
                }
                element
            }
        };
        program.push(Step::Times(count, element));
        Ok(())
    }
}

/// The smallest number of bytes that a program consumes.
fn least_input(program: &[Step]) -> usize {
    let step = |step: &Step| match step {
        Step::Copy(width, count) => width.saturating_mul(*count),
        Step::Drop(len) => *len,
        Step::Text | Step::Words(_) | Step::Each(..) => 4,
        Step::Times(count, steps) => count.saturating_mul(least_input(steps)),
        Step::Zeros(..) | Step::EmptyText | Step::Nothing => 0,
    };
    program.iter().map(step).fold(0, usize::saturating_add)
}

/// A message that is being converted.
struct ConvertedMessage<'a, 'o> {
    input: &'a [u8],
    /// How many more bytes, and elements that take none, may come from nowhere.
    spare: usize,
    out: CdrWriter<&'o mut Vec<u8>>,
}

/// What a message of any size may have that its payload does not: fields that only ROS 2 has, and elements without fields.
const SPARE_BYTES: usize = 1 << 20;
/// The same, for each byte of a payload.
const SPARE_OF_A_BYTE: usize = 64;

impl ConvertedMessage<'_, '_> {
    fn run(&mut self, program: &[Step]) -> Result<(), Malformed> {
        for step in program {
            match step {
                Step::Copy(width, count) => {
                    let words = self.take(width.checked_mul(*count).ok_or(Malformed)?)?;
                    self.out.align(*width).raw(words);
                }
                Step::Drop(len) => drop(self.take(*len)?),
                Step::Text => {
                    let len = self.length()?;
                    let text = self.take(len)?;
                    self.out.string(text);
                }
                Step::Words(width) => {
                    let count = self.length()?;
                    let words = self.take(count.checked_mul(*width).ok_or(Malformed)?)?;
                    self.out.length(count);
                    if count > 0 {
                        self.out.align(*width).raw(words);
                    }
                }
                Step::Each(element, least) => {
                    let count = self.length()?;
                    // The count is checked against the remaining input first.
                    if count.saturating_mul((*least).max(1)) > self.input.len() {
                        return Err(Malformed);
                    }
                    self.out.length(count);
                    self.repeat(count, element)?;
                }
                Step::Times(count, element) => self.repeat(*count, element)?,
                Step::Zeros(width, count) => {
                    let len = width.checked_mul(*count).ok_or(Malformed)?;
                    self.spend(len)?;
                    self.out.align(*width).zeros(len);
                }
                Step::EmptyText => {
                    self.spend(1)?;
                    self.out.string("");
                }
                Step::Nothing => {
                    self.spend(1)?;
                    self.out.byte(0);
                }
            }
        }
        Ok(())
    }

    fn repeat(&mut self, count: usize, element: &[Step]) -> Result<(), Malformed> {
        for _ in 0..count {
            let before = self.input.len();
            self.run(element)?;
            if self.input.len() == before {
                self.spend(1)?;
            }
        }
        Ok(())
    }

    fn spend(&mut self, count: usize) -> Result<(), Malformed> {
        self.spare = self.spare.checked_sub(count).ok_or(Malformed)?;
        Ok(())
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        let word = self.take(4)?.try_into().map_err(|_| Malformed)?;
        Ok(u32::from_le_bytes(word) as usize)
    }
}

impl<'a> ConvertedMessage<'a, '_> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.input.split_at_checked(len).ok_or(Malformed)?;
        self.input = rest;
        Ok(front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(name: &str, definition: &str) -> Channel {
        Channel {
            topic: "/t".into(),
            message_encoding: "ros1".into(),
            schema: Some(Arc::new(Schema {
                name: name.into(),
                encoding: "ros1msg".into(),
                data: definition.to_owned().into(),
            })),
            metadata: [("latching".to_owned(), "1".to_owned())].into(),
        }
    }

    fn transcoded(name: &str, definition: &str, payload: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut transcoders = Transcoders::default();
        let transcoder = transcoders.of(&channel(name, definition), &Definitions::standard());
        let mut out = Vec::new();
        transcoder.expect("a way").transcode(payload, &mut out)?;
        Ok(out)
    }

    #[test]
    fn a_header_loses_its_sequence_and_text_gains_its_zero() {
        let definition = "Header header\nfloat64 temperature\nfloat64 variance\n";
        let mut payload = vec![9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, b'a', b'b'];
        payload.extend([1.5f64, 2.5].map(f64::to_le_bytes).concat());
        let mut wanted = vec![
            0, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', 0,
        ];
        wanted.resize(4 + 16, 0);
        wanted.extend([1.5f64, 2.5].map(f64::to_le_bytes).concat());
        let found = transcoded("sensor_msgs/Temperature", definition, &payload);
        assert_eq!(found, Ok(wanted));
        let cut = &payload[..payload.len() - 1];
        assert_eq!(
            transcoded("sensor_msgs/Temperature", definition, cut),
            Err(Malformed)
        );
    }

    #[test]
    fn the_channel_is_what_ros_2_would_have_recorded() {
        let found = Transcoders::default().of(
            &channel("std_msgs/String", "string data\n"),
            &Definitions::standard(),
        );
        let channel = found.expect("a way").channel;
        assert_eq!(channel.type_name(), "std_msgs/msg/String");
        assert!(crate::is_latched(&channel));
        assert!(!channel.metadata.contains_key("latching"));
    }

    #[test]
    fn what_has_no_counterpart_is_refused_with_a_reason() {
        let refused = |name: &str, definition: &str| {
            Transcoders::default()
                .of(&channel(name, definition), &Definitions::standard())
                .map(|_| ())
                .expect_err("no way")
        };
        assert!(refused("my_robot/Odd", "Missing x\n").contains("my_robot/Missing is missing"));
        assert!(refused("std_msgs/String", "string data\nint8 more\n").contains("no field 'more'"));
        assert!(refused("std_msgs/String", "int8 data\n").contains("another type"));
        assert!(
            refused("geometry_msgs/Point", "float64 y\nfloat64 x\nfloat64 z\n").contains("order")
        );
    }

    #[test]
    fn a_type_of_the_robots_own_becomes_one_of_ros_2() {
        let definition =
            "time at\nstring NAME=x\nPart[] parts\n===\nMSG: my_robot/Part\nuint8 a\nfloat64 B\n";
        let mut payload = vec![1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7];
        payload.extend(2.5f64.to_le_bytes());
        let mut wanted = vec![0, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7];
        wanted.resize(4 + 16, 0);
        wanted.extend(2.5f64.to_le_bytes());
        assert_eq!(transcoded("my_robot/Odd", definition, &payload), Ok(wanted));
    }

    #[test]
    fn elements_without_bytes_have_an_end() {
        let line = "=".repeat(80);
        for definition in [
            "E[4000000000] list".to_owned(),
            "E[] list".to_owned(),
            format!("A[60000] a\n{line}\nMSG: t/A\nE[60000] e"),
        ] {
            let text = format!("{definition}\n{line}\nMSG: t/E\n");
            let payload = [&2_000_000_u32.to_le_bytes()[..], &[0; 10]].concat();
            assert_eq!(transcoded("t/T", &text, &payload), Err(Malformed), "{text}");
        }
        let text = format!("E[3] list\n{line}\nMSG: t/E\n");
        assert_eq!(transcoded("t/T", &text, &[]), Ok(vec![0, 1, 0, 0, 0, 0, 0]));
        let nested = format!("A[] a\n{line}\nMSG: t/A\nint64[4000000000] x\n");
        let nested =
            nested.replace("int64", "B") + &format!("{line}\nMSG: t/B\nint64[4000000000] y\n");
        assert_eq!(transcoded("t/T", &nested, &[1, 0, 0, 0]), Err(Malformed));
    }

    #[test]
    fn an_empty_message_and_an_empty_list_are_as_cdr_has_them() {
        assert_eq!(
            transcoded("std_msgs/Empty", "", &[]),
            Ok(vec![0, 1, 0, 0, 0])
        );
        let path = "Header header\ngeometry_msgs/PoseStamped[] poses\n===\nMSG: geometry_msgs/PoseStamped\n\
            Header header\ngeometry_msgs/Pose pose\n===\nMSG: geometry_msgs/Pose\nPoint position\nQuaternion orientation\n\
            ===\nMSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n===\nMSG: geometry_msgs/Quaternion\n\
            float64 x\nfloat64 y\nfloat64 z\nfloat64 w\n";
        let found = transcoded("nav_msgs/Path", path, &[0; 20]);
        assert_eq!(
            found,
            Ok([&[0, 1, 0, 0][..], &[0; 8], &[1, 0, 0, 0], &[0; 8]].concat())
        );
        let absurd = [&[0; 16][..], &[255; 4]].concat();
        assert_eq!(transcoded("nav_msgs/Path", path, &absurd), Err(Malformed));
    }
}
