//! ROS message definitions, of ROS 1 and ROS 2: a message, then those that it refers to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use asof_ros::msg::{self, Count, FieldType, Line, Section, constant_value, package_and_name};

use crate::error::SchemaError;
use crate::model::{Constant, Field, Kind, MessageType, Scalar, Struct};

/// The two dialects, which differ in `byte`, `time` and a bare `Header`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Ros1,
    Ros2,
}

impl Dialect {
    const fn name(self) -> &'static str {
        match self {
            Dialect::Ros1 => "ros1msg",
            Dialect::Ros2 => "ros2msg",
        }
    }
}

/// Types that some writers omit, since every robot has them.
const WELL_KNOWN_ROS1: &str = "MSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n";
const WELL_KNOWN_ROS2: &str = "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n===\n\
    MSG: builtin_interfaces/Duration\nint32 sec\nuint32 nanosec\n===\n\
    MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n===\n\
    MSG: service_msgs/ServiceEventInfo\nuint8 event_type\nbuiltin_interfaces/Time stamp\nuint8[16] client_gid\n\
    int64 sequence_number\n";

/// Parses the definition of `name`, with those that follow it.
pub(crate) fn parse(name: &str, text: &str, dialect: Dialect) -> Result<MessageType, SchemaError> {
    let mut sections = split(name, text, dialect)?;
    split_service(&mut sections);
    let known = match dialect {
        Dialect::Ros1 => WELL_KNOWN_ROS1,
        Dialect::Ros2 => WELL_KNOWN_ROS2,
    };
    for section in split("", known, dialect)?.into_iter().skip(1) {
        sections.push(section);
    }
    let mut places = Places::default();
    for (place, section) in sections.iter().enumerate() {
        places.add(&section.package, &section.name, place);
    }
    let mut types = MessageType::default();
    // The two time types of ROS 1, which are not defined in the text.
    let times = sections.len();
    for section in &sections {
        types
            .structs
            .push(parse_section(section, &places, times, dialect)?);
    }
    for (name, scalar) in [("time", Scalar::Uint32), ("duration", Scalar::Int32)] {
        let field = |name: &str| Field::new(name, Kind::Scalar(scalar));
        types.structs.push(Struct {
            name: name.to_owned(),
            fields: vec![field("sec"), field("nsec")],
            ..Struct::default()
        });
    }
    Ok(types)
}

fn split<'a>(name: &str, text: &'a str, dialect: Dialect) -> Result<Vec<Section<'a>>, SchemaError> {
    msg::sections(name, text).map_err(|error| SchemaError::Syntax {
        language: dialect.name(),
        line: error.line,
        reason: error.reason,
    })
}

/// The definition of a service has a request and a response, separated by a line `---`. For its event, rosbag2 writes
/// that definition and not the event's own, which is the same for every service.
fn split_service(sections: &mut Vec<Section<'_>>) {
    let Some(root) = sections.first_mut() else {
        return;
    };
    let is_rule = |line: &&str| line.trim() == "---";
    let Some(middle) = root.lines.iter().position(is_rule) else {
        return;
    };
    let mut request = std::mem::take(&mut root.lines);
    let response = request.split_off(middle + 1);
    request.pop();
    let Some((_, part)) = root.name.rsplit_once('_') else {
        return;
    };
    match part {
        "Request" => root.lines = request,
        "Response" => root.lines = response,
        "Event" => {
            root.lines = vec![
                "service_msgs/ServiceEventInfo info",
                "Request_[<=1] request",
                "Response_[<=1] response",
            ];
            let (package, line) = (root.package.clone(), root.line);
            for (name, lines) in [("Request_", request), ("Response_", response)] {
                sections.push(Section {
                    package: package.clone(),
                    name: name.to_owned(),
                    line,
                    lines,
                });
            }
        }
        _ => {}
    }
}

fn parse_section(
    section: &Section<'_>,
    places: &Places<'_>,
    times: usize,
    dialect: Dialect,
) -> Result<Struct, SchemaError> {
    let full_name = if section.package.is_empty() {
        section.name.clone()
    } else {
        match dialect {
            Dialect::Ros1 => format!("{}/{}", section.package, section.name),
            Dialect::Ros2 => format!("{}/msg/{}", section.package, section.name),
        }
    };
    let mut result = Struct {
        name: full_name,
        ..Struct::default()
    };
    for (index, line) in section.lines.iter().enumerate() {
        let syntax = |reason: String| SchemaError::Syntax {
            language: dialect.name(),
            line: section.line + index,
            reason,
        };
        let declared = match msg::parse_line(line).map_err(|error| syntax(error.to_string()))? {
            Line::Nothing => continue,
            Line::Constant { kind, name, value } => {
                result.constants.push(Constant {
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    value: constant_value(kind, value).to_owned(),
                });
                continue;
            }
            Line::Field(declared) => declared,
        };
        let resolve = |base: &str| {
            resolve(base, &section.package, places, times, dialect).ok_or_else(|| {
                SchemaError::UnknownType {
                    name: base.to_owned(),
                    user: result.name.clone(),
                }
            })
        };
        let (kind, bound) = kind_of(declared.kind, resolve(declared.kind.base)?);
        let mut field = Field::new(declared.name, kind).numbered(result.fields.len() as u32);
        field.bound = bound;
        field.default = (!declared.default.is_empty()).then(|| declared.default.to_owned());
        result.fields.push(field);
    }
    Ok(result)
}

/// The type of a field, and its bound, from the type of one of its values.
fn kind_of(declared: FieldType<'_>, item: Kind) -> (Kind, Option<u64>) {
    let is_bytes = matches!(declared.base, "uint8" | "byte" | "char");
    match declared.count {
        Count::One => (item, declared.text_bound),
        Count::Fixed(len) if is_bytes => (Kind::FixedBlob(len), declared.text_bound),
        Count::Fixed(len) => (Kind::Array(Box::new(item), len), declared.text_bound),
        Count::Any | Count::AtMost(_) => {
            let bound = match declared.count {
                Count::AtMost(most) => Some(most),
                _ => declared.text_bound,
            };
            let kind = if is_bytes {
                Kind::Blob
            } else {
                Kind::List(Box::new(item))
            };
            (kind, bound)
        }
    }
}

fn resolve(
    base: &str,
    package: &str,
    places: &Places<'_>,
    times: usize,
    dialect: Dialect,
) -> Option<Kind> {
    let is_ros1 = dialect == Dialect::Ros1;
    Some(Kind::Scalar(match base {
        "bool" => Scalar::Bool,
        "byte" if is_ros1 => Scalar::Int8,
        "byte" | "char" | "uint8" => Scalar::Uint8,
        "int8" => Scalar::Int8,
        "int16" => Scalar::Int16,
        "uint16" => Scalar::Uint16,
        "int32" => Scalar::Int32,
        "uint32" => Scalar::Uint32,
        "int64" => Scalar::Int64,
        "uint64" => Scalar::Uint64,
        "float32" => Scalar::Float32,
        "float64" => Scalar::Float64,
        "string" => return Some(Kind::Text),
        "wstring" if !is_ros1 => return Some(Kind::WideText),
        "time" if is_ros1 => return Some(Kind::Struct(times)),
        "duration" if is_ros1 => return Some(Kind::Struct(times + 1)),
        "time" => return places.find("builtin_interfaces", "Time"),
        "duration" => return places.find("builtin_interfaces", "Duration"),
        _ => {
            let (named, name) = package_and_name(base);
            if named.is_empty() {
                return places
                    .find(package, &name)
                    .or_else(|| {
                        places
                            .find("std_msgs", "Header")
                            .filter(|_| name == "Header")
                    })
                    .or_else(|| places.only(&name));
            }
            return places.find(&named, &name);
        }
    }))
}

/// The types of a definition.
#[derive(Default)]
struct Places<'a> {
    by_name: HashMap<(&'a str, &'a str), usize>,
    /// Without the package; `None` where several packages have a type of that name.
    by_last: HashMap<&'a str, Option<usize>>,
}

impl<'a> Places<'a> {
    /// Adds a type; of two with the same name, the first counts.
    fn add(&mut self, package: &'a str, name: &'a str, place: usize) {
        if let Entry::Vacant(entry) = self.by_name.entry((package, name)) {
            entry.insert(place);
            let last = self.by_last.entry(name);
            last.and_modify(|known| *known = None)
                .or_insert(Some(place));
        }
    }

    fn find(&self, package: &str, name: &str) -> Option<Kind> {
        self.by_name
            .get(&(package, name))
            .copied()
            .map(Kind::Struct)
    }

    /// The type of that name, if only one package has one.
    fn only(&self, name: &str) -> Option<Kind> {
        self.by_last.get(name).copied().flatten().map(Kind::Struct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a comment\nint32 X=5 # five\nstring NAME=a # b\nstd_msgs/Header header\n\
        uint8[] data\nfloat64[36] covariance\nstring<=10[<=3] names [\"a\", \"b\"]\nint8 level -1 # low\n\
        Inner[] inner\n================\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n\
        ================\nMSG: pkg/Inner\nbyte[16] id\nwstring text\n";

    #[test]
    fn fields_constants_defaults_and_bounds_are_read() {
        let types = parse("pkg/msg/Outer", TEXT, Dialect::Ros2).expect("reads");
        let root = types.root();
        assert_eq!(root.name, "pkg/msg/Outer");
        assert_eq!(root.constants[0].value, "5");
        assert_eq!(root.constants[1].value, "a # b");
        let kinds: Vec<_> = root.fields.iter().map(|field| &field.kind).collect();
        assert_eq!(kinds[1], &Kind::Blob);
        assert_eq!(
            kinds[2],
            &Kind::Array(Box::new(Kind::Scalar(Scalar::Float64)), 36)
        );
        assert_eq!(root.fields[3].bound, Some(3));
        assert_eq!(root.fields[3].default.as_deref(), Some("[\"a\", \"b\"]"));
        assert_eq!(root.fields[4].default.as_deref(), Some("-1"));
        let Kind::List(inner) = kinds[5] else {
            panic!("a list")
        };
        let Kind::Struct(inner) = **inner else {
            panic!("of structs")
        };
        assert_eq!(types.structs[inner].fields[0].kind, Kind::FixedBlob(16));
        assert_eq!(types.structs[inner].fields[1].kind, Kind::WideText);
    }

    #[test]
    fn a_name_with_a_longer_path_is_found_by_its_end() {
        let text = "rmw/msg/Gid gid\n===\nMSG: vendor/rmw/msg/Gid\nuint8[16] data\n";
        assert!(parse("rmw/msg/Info", text, Dialect::Ros2).is_ok());
    }

    #[test]
    fn a_type_that_is_not_there_is_named() {
        let error = parse("a/B", "c/D d\n", Dialect::Ros1).expect_err("missing");
        assert_eq!(
            error,
            SchemaError::UnknownType {
                name: "c/D".into(),
                user: "a/B".into()
            }
        );
    }
}
