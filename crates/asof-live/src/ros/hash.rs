//! The hash of a type's definition, as REP 2016 has it: two types with one hash have the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// What hashes of the first version start with.
const PREFIX: &str = "RIHS01_";
/// What a struct without fields has instead.
const DUMMY: &str = "uint8 structure_needs_at_least_one_member";

/// The hash of a type, from its full definition in the words of `.msg` files: its own text, then that of every type that
/// it needs. `None` where the definition cannot be read.
///
/// ```
/// use asof_live::ros::type_hash;
///
/// let hash = type_hash("std_msgs/msg/String", "string data").expect("a hash");
/// assert_eq!(hash, "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18");
/// ```
pub fn type_hash(name: &str, definition: &str) -> Option<String> {
    let mut sections = definition.lines();
    let mut current = name.to_owned();
    let mut texts: BTreeMap<String, String> = BTreeMap::from([(current.clone(), String::new())]);
    while let Some(line) = sections.next() {
        if line.len() >= 80 && line.trim_end().bytes().all(|byte| byte == b'=') {
            let named = sections.next()?.strip_prefix("MSG: ")?;
            current = long_name(named.trim())?;
            texts.entry(current.clone()).or_default();
            continue;
        }
        let text = texts.entry(current.clone()).or_default();
        text.push_str(line);
        text.push('\n');
    }
    let main = described(name, &texts.remove(name)?)?;
    let others: Option<Vec<String>> = texts
        .iter()
        .map(|(name, text)| described(name, text))
        .collect();
    let json = format!(
        "{{\"type_description\": {main}, \"referenced_type_descriptions\": [{}]}}",
        others?.join(", ")
    );
    let mut hash = PREFIX.to_owned();
    for byte in Sha256::digest(json.as_bytes()) {
        let _ = write!(hash, "{byte:02x}");
    }
    Some(hash)
}

/// Whether a hash says that a definition is another one. What is not a hash says nothing.
pub(crate) fn differs(announced: &str, name: &str, definition: &str) -> bool {
    let is_hash = announced
        .strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == 64);
    is_hash && type_hash(name, definition).is_some_and(|known| known != announced)
}

/// Whether the bytes of a type, by its full definition in the words of `.msg` files, start with a `std_msgs/Header`.
pub(crate) fn starts_with_header(name: &str, definition: &str) -> bool {
    if name == "std_msgs/msg/Header" {
        return true;
    }
    let first = definition.lines().find_map(|line| match field(line) {
        Line::Field { kind, .. } => Some(kind),
        Line::Nothing | Line::Unreadable => None,
    });
    match first {
        Some("std_msgs/Header" | "std_msgs/msg/Header") => true,
        // A package may have a type of that name itself, which is meant then.
        Some("Header") => {
            let package = name.split('/').next().unwrap_or_default();
            let own = format!("MSG: {package}/Header");
            !definition.lines().any(|line| line.trim() == own)
        }
        _ => false,
    }
}

/// What a line of a definition declares.
enum Line<'a> {
    Field {
        kind: &'a str,
        name: &'a str,
    },
    /// A comment, a constant, or nothing at all.
    Nothing,
    Unreadable,
}

fn field(line: &str) -> Line<'_> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let Some((kind, rest)) = line.split_once(char::is_whitespace) else {
        return if line.is_empty() {
            Line::Nothing
        } else {
            Line::Unreadable
        };
    };
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
    // A constant is not a field.
    if after.trim_start().starts_with('=') {
        return Line::Nothing;
    }
    Line::Field { kind, name }
}

/// One type in the words that are hashed.
fn described(name: &str, text: &str) -> Option<String> {
    let package = name.split('/').next()?;
    let mut fields = Vec::new();
    for line in text.lines() {
        match field(line) {
            Line::Field { kind, name } => fields.push(field_of(name, kind, package)?),
            Line::Nothing => {}
            Line::Unreadable => return None,
        }
    }
    if fields.is_empty() {
        let (kind, field) = DUMMY.split_once(' ')?;
        fields.push(field_of(field, kind, package)?);
    }
    Some(format!(
        "{{\"type_name\": \"{name}\", \"fields\": [{}]}}",
        fields.join(", ")
    ))
}

fn field_of(name: &str, kind: &str, package: &str) -> Option<String> {
    let (element, list) = match kind.strip_suffix(']') {
        Some(kind) => {
            let (element, size) = kind.rsplit_once('[')?;
            (element, Some(size))
        }
        None => (kind, None),
    };
    let (offset, capacity) = match list {
        None => (0, 0),
        Some("") => (144, 0),
        Some(size) => match size.strip_prefix("<=") {
            Some(most) => (96, most.parse::<u64>().ok()?),
            None => (48, size.parse().ok()?),
        },
    };
    let (base, most) = match element.split_once("<=") {
        Some((base, most)) => (base, Some(most.parse::<u64>().ok()?)),
        None => (element, None),
    };
    let (number, nested) = match (base, most) {
        ("int8", None) => (2, String::new()),
        ("uint8", None) => (3, String::new()),
        ("int16", None) => (4, String::new()),
        ("uint16", None) => (5, String::new()),
        ("int32", None) => (6, String::new()),
        ("uint32", None) => (7, String::new()),
        ("int64", None) => (8, String::new()),
        ("uint64", None) => (9, String::new()),
        ("float32", None) => (10, String::new()),
        ("float64", None) => (11, String::new()),
        ("char", None) => (13, String::new()),
        ("bool", None) => (15, String::new()),
        ("byte", None) => (16, String::new()),
        ("string", None) => (17, String::new()),
        ("wstring", None) => (18, String::new()),
        ("string", Some(_)) => (21, String::new()),
        ("wstring", Some(_)) => (22, String::new()),
        (nested, None) if nested.contains('/') => (1, long_name(nested)?),
        (nested, None) => (1, format!("{package}/msg/{nested}")),
        _ => return None,
    };
    Some(format!(
        "{{\"name\": \"{name}\", \"type\": {{\"type_id\": {}, \"capacity\": {capacity}, \"string_capacity\": {}, \
         \"nested_type_name\": \"{nested}\"}}}}",
        number + offset,
        most.unwrap_or(0),
    ))
}

/// `std_msgs/Header` as `std_msgs/msg/Header`.
fn long_name(name: &str) -> Option<String> {
    let (package, rest) = name.split_once('/')?;
    let kind = rest.rsplit('/').next()?;
    Some(format!("{package}/msg/{kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_formats::Definitions;

    fn standard(name: &str) -> String {
        let definitions = Definitions::default();
        let text = definitions.full_text(name).expect("a standard type");
        type_hash(name, &text).expect("a hash")
    }

    /// As they stand in keys of running robots.
    #[test]
    fn the_standard_types_have_the_hashes_that_robots_announce() {
        let known = [
            (
                "std_msgs/msg/String",
                "df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
            ),
            (
                "geometry_msgs/msg/Vector3",
                "cc12fe83e4c02719f1ce8070bfd14aecd40f75a96696a67a2a1f37f7dbb0765d",
            ),
            (
                "geometry_msgs/msg/Twist",
                "9c45bf16fe0983d80e3cfe750d6835843d265a9a6c46bd2e609fcddde6fb8d2a",
            ),
        ];
        for (name, hash) in known {
            assert_eq!(standard(name), format!("{PREFIX}{hash}"), "{name}");
        }
    }

    #[test]
    fn comments_constants_and_defaults_do_not_matter_but_fields_do() {
        let plain = type_hash("a/msg/B", "int32 x\nstring<=8[<=3] y");
        let same = type_hash(
            "a/msg/B",
            "# about\nint32 LIMIT=7\nint32 x 5 # here\n\nstring<=8[<=3] y",
        );
        assert!(plain.is_some());
        assert_eq!(plain, same);
        assert_ne!(plain, type_hash("a/msg/B", "int32 x\nstring<=8[3] y"));
    }

    #[test]
    fn what_is_no_definition_has_no_hash() {
        assert!(type_hash("std_msgs/msg/Empty", "").is_some());
        for text in ["int32", "string<=x y", "int32[<=] y"] {
            assert_eq!(type_hash("a/msg/B", text), None, "{text}");
        }
        assert!(!differs(
            "TypeHashNotSupported",
            "std_msgs/msg/String",
            "string data"
        ));
    }
}
