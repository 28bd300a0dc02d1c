//! Definitions in ROS 2's language of types that only ROS 1 defines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::ros2::short;
use crate::Definitions;

/// The definition of a type, with all that it needs. Types that ROS 2 has are taken as it has them; of the others, each
/// field is written as ROS 2 would.
pub(super) fn generated(
    name: &str,
    ros1: &str,
    definitions: &Definitions,
) -> Result<String, String> {
    let theirs = blocks(name, ros1);
    let root = short(name);
    let mut bodies: BTreeMap<String, String> = BTreeMap::new();
    let mut waiting = VecDeque::from([root.clone()]);
    while let Some(next) = waiting.pop_front() {
        if bodies.contains_key(&next) {
            continue;
        }
        if next != root
            && let Some(full) = definitions.full_text(&next)
        {
            bodies.extend(blocks(&next, &full));
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

/// The definitions in a text, by their short names: the first, then those after lines of `=`.
fn blocks(name: &str, text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut current = short(name);
    let mut body = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.len() >= 3 && trimmed.bytes().all(|byte| byte == b'=') {
            found.entry(current).or_insert(body);
            (current, body) = (String::new(), String::new());
        } else if let (true, Some(name)) = (current.is_empty(), trimmed.strip_prefix("MSG:")) {
            current = short(name.trim());
        } else {
            body.push_str(line);
            body.push('\n');
        }
    }
    found.entry(current).or_insert(body);
    found
}

/// A definition of ROS 1 in ROS 2's words, and the types that it names.
fn rewritten(name: &str, text: &str) -> (String, Vec<String>) {
    let package = name.split('/').next().unwrap_or_default();
    let names: Vec<String> = text.lines().filter_map(field_name).collect();
    let small: BTreeSet<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    // Two names that differ in capitals alone stay as they are.
    let is_unique = small.len() == names.len();
    let (mut body, mut needed) = (String::new(), Vec::new());
    for line in text.lines() {
        let trimmed = line.trim();
        let Some((kind, rest)) = trimmed.split_once(char::is_whitespace) else {
            body.push_str(if trimmed.starts_with('#') {
                trimmed
            } else {
                ""
            });
            body.push('\n');
            continue;
        };
        if trimmed.starts_with('#') {
            let _ = writeln!(body, "{trimmed}");
        } else if let Some((name, value)) = constant(kind, rest) {
            let _ = writeln!(body, "{} {name}={value}", plain(kind));
        } else {
            let (field, comment) = rest.split_once('#').unwrap_or((rest, ""));
            let field = field.trim();
            let field = if is_unique {
                field.to_ascii_lowercase()
            } else {
                field.to_owned()
            };
            let (base, count) = kind.split_once('[').unwrap_or((kind, ""));
            let base = named(package, plain(base));
            let count = if count.is_empty() {
                String::new()
            } else {
                format!("[{count}")
            };
            let comment = if comment.is_empty() {
                String::new()
            } else {
                format!(" #{comment}")
            };
            let _ = writeln!(body, "{base}{count} {field}{comment}");
            needed.extend(base.contains('/').then_some(base));
        }
    }
    (body, needed)
}

fn field_name(line: &str) -> Option<String> {
    let (kind, rest) = line.trim().split_once(char::is_whitespace)?;
    let is_field = !kind.starts_with('#') && constant(kind, rest).is_none();
    is_field.then(|| rest.split('#').next().unwrap_or_default().trim().to_owned())
}

/// The name and the value of a constant. A text is quoted in ROS 2, and in ROS 1 it is all that follows.
fn constant(kind: &str, rest: &str) -> Option<(String, String)> {
    let (name, value) = rest.split_once('=')?;
    if name.contains('#') {
        return None;
    }
    let name = name.trim().to_ascii_uppercase();
    let value = if kind == "string" {
        format!(
            "\"{}\"",
            value.trim().replace('\\', "\\\\").replace('"', "\\\"")
        )
    } else {
        value.trim().to_owned()
    };
    Some((name, value))
}

/// The types of ROS 1 that have other names in ROS 2, or mean something else there.
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

/// A type with its package, where it is not one of the language's own.
fn named(package: &str, kind: &str) -> String {
    const OWN: [&str; 12] = [
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
        "float32", "float64", "string",
    ];
    if OWN.contains(&kind) {
        kind.to_owned()
    } else if kind.contains('/') {
        short(kind)
    } else {
        format!("{package}/{kind}")
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
        // A standard type is as ROS 2 has it, whatever the recording says.
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
