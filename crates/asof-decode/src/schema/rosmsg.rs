//! ROS message definitions, of ROS 1 and ROS 2: a message, then those that it refers to.

use std::collections::HashMap;

use crate::error::SchemaError;
use crate::model::{Constant, Field, Kind, MessageType, Scalar, Struct};

/// The two dialects, which differ in what `byte`, `time` and a bare `Header` are.
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

/// Types that some writers leave out, since every robot has them.
const WELL_KNOWN_ROS1: &str = "MSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n";
const WELL_KNOWN_ROS2: &str = "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n===\n\
    MSG: builtin_interfaces/Duration\nint32 sec\nuint32 nanosec\n===\n\
    MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n===\n\
    MSG: service_msgs/ServiceEventInfo\nuint8 event_type\nbuiltin_interfaces/Time stamp\nuint8[16] client_gid\n\
    int64 sequence_number\n";

/// A message definition before its references are resolved.
struct Section<'a> {
    package: String,
    name: String,
    /// The number of its first line.
    line: usize,
    lines: Vec<&'a str>,
}

/// Reads the definition of `name`, with those that follow it.
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
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    for (place, section) in sections.iter().enumerate() {
        let key = (section.package.as_str(), section.name.as_str());
        places.entry(key).or_insert(place);
    }
    let mut types = MessageType::default();
    // The two times of ROS 1, which have no definition of their own.
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
    let (package, base) = package_and_name(name);
    let mut sections = vec![Section {
        package,
        name: base,
        line: 1,
        lines: Vec::new(),
    }];
    let mut is_new = name.is_empty();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        let trimmed = line.trim();
        if trimmed.len() >= 3 && trimmed.bytes().all(|byte| byte == b'=') {
            is_new = true;
            continue;
        }
        if is_new {
            if trimmed.is_empty() {
                continue;
            }
            let Some(name) = trimmed.strip_prefix("MSG:") else {
                return Err(SchemaError::Syntax {
                    language: dialect.name(),
                    line: index + 1,
                    reason: format!("expected 'MSG: package/Type' after ===, found '{trimmed}'"),
                });
            };
            let (package, name) = package_and_name(name.trim());
            sections.push(Section {
                package,
                name,
                line: index + 2,
                lines: Vec::new(),
            });
            is_new = false;
            continue;
        }
        if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        }
    }
    Ok(sections)
}

/// The definition of a service has a request and a response, with a line `---` between them. Of its event,
/// rosbag2 writes that definition and not the event's own, which is the same for every service.
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

/// `a/pkg/msg/Type`, `pkg/msg/Type` and `pkg/Type` are all the type `Type` of `pkg`.
fn package_and_name(full: &str) -> (String, String) {
    let mut parts: Vec<&str> = full.split('/').filter(|part| !part.is_empty()).collect();
    let name = parts.pop().unwrap_or_default();
    if parts.len() > 1
        && parts
            .last()
            .is_some_and(|p| matches!(*p, "msg" | "srv" | "action"))
    {
        parts.pop();
    }
    let package = parts.pop().unwrap_or_default();
    (package.to_owned(), name.to_owned())
}

fn parse_section(
    section: &Section<'_>,
    places: &HashMap<(&str, &str), usize>,
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
        let bare = line.split('#').next().unwrap_or_default().trim();
        if bare.is_empty() {
            continue;
        }
        let line = line.trim();
        let (kind, rest) = split_type(line)
            .ok_or_else(|| syntax(format!("expected a type and a name, found '{line}'")))?;
        let name_len = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let (name, rest) = rest.split_at(name_len);
        let is_name = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        if !is_name {
            return Err(syntax(format!("expected a field's name in '{line}'")));
        }
        if let Some(value) = rest.trim_start().strip_prefix('=') {
            result.constants.push(Constant {
                name: name.to_owned(),
                kind: kind.to_owned(),
                value: constant_value(kind, value),
            });
            continue;
        }
        let default = rest.trim();
        let default = without_comment(default).trim();
        let resolve = |base: &str| {
            resolve(base, &section.package, places, times, dialect).ok_or_else(|| {
                SchemaError::UnknownType {
                    name: base.to_owned(),
                    user: result.name.clone(),
                }
            })
        };
        let (kind, bound) = parse_type(kind, &resolve).map_err(|error| match error {
            TypeError::Schema(error) => error,
            TypeError::Syntax(reason) => syntax(reason),
        })?;
        let mut field = Field::new(name, kind).numbered(result.fields.len() as u32);
        field.bound = bound;
        field.default = (!default.is_empty()).then(|| default.to_owned());
        result.fields.push(field);
    }
    Ok(result)
}

/// A type ends at the first space that is outside of its brackets.
fn split_type(line: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, c) in line.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            c if c.is_whitespace() && depth <= 0 => {
                let rest = line[at..].trim_start();
                return (!rest.is_empty()).then_some((&line[..at], rest));
            }
            _ => {}
        }
    }
    None
}

fn constant_value(kind: &str, value: &str) -> String {
    // A string's value is the rest of its line, number signs and all.
    if kind.starts_with("string") || kind.starts_with("wstring") {
        let value = value.trim();
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        if let Some(quote) = quote
            && let Some(end) = value[1..].find(quote)
        {
            return value[1..=end].to_owned();
        }
        return value.to_owned();
    }
    without_comment(value).trim().to_owned()
}

/// What is before a `#` that is not in quotes.
fn without_comment(text: &str) -> &str {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '#') => return &text[..at],
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    text
}

enum TypeError {
    Schema(SchemaError),
    Syntax(String),
}

fn parse_type(
    text: &str,
    resolve: &impl Fn(&str) -> Result<Kind, SchemaError>,
) -> Result<(Kind, Option<u64>), TypeError> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let bad = |what: &str| TypeError::Syntax(format!("cannot read the type '{what}'"));
    let (element, brackets) = match text.find('[') {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text.as_str(), None),
    };
    let (base, text_bound) = match element.split_once("<=") {
        Some((base, bound)) => (base, Some(bound.parse().map_err(|_| bad(&text))?)),
        None => (element, None),
    };
    let is_bytes = matches!(base, "uint8" | "byte" | "char");
    let item = resolve(base).map_err(TypeError::Schema)?;
    let Some(brackets) = brackets else {
        return Ok((item, text_bound));
    };
    let inside = brackets
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .ok_or_else(|| bad(&text))?;
    if inside.is_empty() {
        let kind = if is_bytes {
            Kind::Blob
        } else {
            Kind::List(Box::new(item))
        };
        return Ok((kind, text_bound));
    }
    if let Some(bound) = inside.strip_prefix("<=") {
        let bound = bound.parse().map_err(|_| bad(&text))?;
        let kind = if is_bytes {
            Kind::Blob
        } else {
            Kind::List(Box::new(item))
        };
        return Ok((kind, Some(bound)));
    }
    let len: u32 = inside.parse().map_err(|_| bad(&text))?;
    let kind = if is_bytes {
        Kind::FixedBlob(len)
    } else {
        Kind::Array(Box::new(item), len)
    };
    Ok((kind, text_bound))
}

fn resolve(
    base: &str,
    package: &str,
    places: &HashMap<(&str, &str), usize>,
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
        "time" => return find("builtin_interfaces", "Time", places),
        "duration" => return find("builtin_interfaces", "Duration", places),
        _ => {
            let (named, name) = package_and_name(base);
            if named.is_empty() {
                return find(package, &name, places)
                    .or_else(|| find("std_msgs", "Header", places).filter(|_| name == "Header"))
                    .or_else(|| only(&name, places));
            }
            return find(&named, &name, places);
        }
    }))
}

fn find(package: &str, name: &str, places: &HashMap<(&str, &str), usize>) -> Option<Kind> {
    places.get(&(package, name)).copied().map(Kind::Struct)
}

/// The type of that name, where only one package has one.
fn only(name: &str, places: &HashMap<(&str, &str), usize>) -> Option<Kind> {
    let mut found = places.iter().filter(|((_, other), _)| *other == name);
    let (_, place) = found.next()?;
    found.next().is_none().then_some(Kind::Struct(*place))
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
