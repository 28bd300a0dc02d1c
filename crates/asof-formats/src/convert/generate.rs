//! ROS 2 definitions of types that only ROS 1 defines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use asof_ros::Definitions;
use asof_ros::msg::{self, Count, Line, is_primitive, parse_line, referred, sections, short_name};

/// The definition of a type with its dependencies. Types that exist in ROS 2 use ROS 2's definition; the fields of the
/// others are rewritten in ROS 2's syntax.
pub(super) fn generated(
    name: &str,
    ros1: &str,
    definitions: &Definitions,
) -> Result<String, String> {
    let theirs = bodies_of(name, ros1)?;
    let root = short_name(name);
    let mut bodies: BTreeMap<String, String> = BTreeMap::new();
    let mut waiting = VecDeque::from([root.clone()]);
    while let Some(next) = waiting.pop_front() {
        if bodies.contains_key(&next) {
            continue;
        }
        if next != root
            && let Some(full) = definitions.full_text(&next)
        {
            bodies.extend(bodies_of(&next, &full)?);
            continue;
        }
        let text = theirs
            .get(&next)
            .ok_or_else(|| format!("the definition of {next} is missing"))?;
        let (body, needed) = rewritten(&next, text);
        bodies.insert(next, body);
        waiting.extend(needed);
    }
    let mut full = bodies.remove(&root).unwrap_or_default();
    for (name, body) in bodies {
        let _ = write!(full, "{}\nMSG: {name}\n{body}", "=".repeat(80));
    }
    Ok(full)
}

/// The definitions in a text, by their short names.
fn bodies_of(name: &str, text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for section in sections(name, text).map_err(|error| error.to_string())? {
        let body = section.lines.iter().map(|line| format!("{line}\n"));
        found
            .entry(section.short_name())
            .or_insert_with(|| body.collect());
    }
    Ok(found)
}

/// A ROS 1 definition in ROS 2's syntax, and the types that it refers to.
fn rewritten(name: &str, text: &str) -> (String, Vec<String>) {
    let package = name.split('/').next().unwrap_or_default();
    let names: Vec<&str> = msg::fields(text.lines()).map(|field| field.name).collect();
    let small: BTreeSet<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    // Names that differ only in case are kept as they are.
    let is_unique = small.len() == names.len();
    let (mut body, mut needed) = (String::new(), Vec::new());
    for line in text.lines() {
        match parse_line(line) {
            Ok(Line::Nothing) => body.push_str(line.trim()),
            Ok(Line::Constant { kind, name, value }) => {
                let (name, value) = (name.to_ascii_uppercase(), constant(kind, value));
                let _ = write!(body, "{} {name}={value}", plain(kind));
            }
            Ok(Line::Field(field)) => {
                let base = plain(field.kind.base);
                let base = if is_primitive(base) {
                    base.to_owned()
                } else {
                    needed.push(referred(base, package));
                    referred(base, package)
                };
                let name = if is_unique {
                    field.name.to_ascii_lowercase()
                } else {
                    field.name.to_owned()
                };
                let count = match field.kind.count {
                    Count::One => String::new(),
                    Count::Fixed(len) => format!("[{len}]"),
                    Count::Any | Count::AtMost(_) => "[]".to_owned(),
                };
                let space = if field.comment.is_empty() { "" } else { " " };
                let _ = write!(body, "{base}{count} {name}{space}{}", field.comment);
            }
            Err(_) => {}
        }
        body.push('\n');
    }
    (body, needed)
}

/// The value of a constant. ROS 2 quotes strings; in ROS 1 a string is the rest of the line.
fn constant(kind: &str, value: &str) -> String {
    let value = value.trim();
    if kind == "string" {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        value.to_owned()
    }
}

/// ROS 1 types that have other names or another meaning in ROS 2.
fn plain(kind: &str) -> &str {
    match kind {
        "time" => "builtin_interfaces/Time",
        "duration" => "builtin_interfaces/Duration",
        "Header" => "std_msgs/Header",
        "byte" => "int8",
        "char" => "uint8",
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_ones_own_is_written_as_ros_2_would() {
        let ros1 = "Header header\nuint8 FULL=3 # all of it\nstring NAME=a \"b\" # c\ntime[] when\nPart[2] Parts # two\nbyte raw\n\
            ===\nMSG: my_robot/Part\nfloat64 x\ngeometry_msgs/Point at\n===\nMSG: geometry_msgs/Point\nfloat64 x\n";
        let full =
            generated("my_robot/Gripper", ros1, &Definitions::standard()).expect("generated");
        let body = full.split("====").next().expect("a body");
        let wanted = "std_msgs/Header header\nuint8 FULL=3 # all of it\nstring NAME=\"a \\\"b\\\" # c\"\n\
            builtin_interfaces/Time[] when\nmy_robot/Part[2] parts # two\nint8 raw\n";
        assert_eq!(body, wanted);
        assert!(full.contains("MSG: my_robot/Part\nfloat64 x\ngeometry_msgs/Point at\n"));
        // A standard type uses ROS 2's definition, whatever the recording contains.
        let point = full
            .split("MSG: geometry_msgs/Point\n")
            .nth(1)
            .expect("a point");
        assert!(point.contains("float64 z"), "{full}");
        assert!(full.contains("MSG: builtin_interfaces/Time\n"));
        assert!(!full.contains("seq"));
    }

    #[test]
    fn a_type_that_nothing_defines_is_named() {
        let refused = generated("my_robot/Odd", "Missing what\n", &Definitions::standard());
        assert_eq!(
            refused,
            Err("the definition of my_robot/Missing is missing".to_owned())
        );
    }
}
