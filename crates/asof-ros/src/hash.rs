//! Hashes of type definitions (REP 2016): two types with equal hashes have the same wire format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::msg::{Count, FieldType, Line, Section, long_name, parse_line, sections};

/// The prefix of hashes of version 1.
const PREFIX: &str = "RIHS01_";
/// The placeholder member of a struct without fields.
const EMPTY_STRUCT_MEMBER: &str = "structure_needs_at_least_one_member";

/// The hash of a type, from its full definition in `.msg` syntax: its own text, then that of every type that it
/// refers to. `None` if the definition cannot be parsed.
///
/// ```
/// use asof_ros::type_hash;
///
/// let hash = type_hash("std_msgs/msg/String", "string data").expect("a hash");
/// assert_eq!(hash, "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18");
/// ```
pub fn type_hash(name: &str, definition: &str) -> Option<String> {
    let sections = sections(name, definition).ok()?;
    let (main, others) = sections.split_first()?;
    let main = described(name, main)?;
    // Each once, sorted by name.
    let others: BTreeMap<String, &Section<'_>> = others
        .iter()
        .rev()
        .map(|section| (long_name(&section.short_name()), section))
        .collect();
    let others: Option<Vec<String>> = others
        .iter()
        .map(|(name, section)| described(name, section))
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

/// Whether a hash proves that a definition is a different one. Text that is not a hash proves nothing.
pub fn differs(announced: &str, name: &str, definition: &str) -> bool {
    let is_hash = announced
        .strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == 64);
    is_hash && type_hash(name, definition).is_some_and(|known| known != announced)
}

/// One type in the JSON form that is hashed.
fn described(name: &str, section: &Section<'_>) -> Option<String> {
    let mut fields = Vec::new();
    for line in &section.lines {
        match parse_line(line).ok()? {
            Line::Field(field) => fields.push(field_of(field.name, field.kind, &section.package)?),
            Line::Nothing | Line::Constant { .. } => {}
        }
    }
    if fields.is_empty() {
        fields.push(field_of(
            EMPTY_STRUCT_MEMBER,
            FieldType::parse("uint8")?,
            "",
        )?);
    }
    Some(format!(
        "{{\"type_name\": \"{name}\", \"fields\": [{}]}}",
        fields.join(", ")
    ))
}

fn field_of(name: &str, kind: FieldType<'_>, package: &str) -> Option<String> {
    let (offset, capacity) = match kind.count {
        Count::One => (0, 0),
        Count::Fixed(len) => (48, len.into()),
        Count::AtMost(most) => (96, most),
        Count::Any => (144, 0),
    };
    let (number, nested) = match (kind.base, kind.text_bound) {
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
        (nested, None) if nested.contains('/') => (1, long_name(nested)),
        (nested, None) => (1, format!("{package}/msg/{nested}")),
        _ => return None,
    };
    Some(format!(
        "{{\"name\": \"{name}\", \"type\": {{\"type_id\": {}, \"capacity\": {capacity}, \"string_capacity\": {}, \
         \"nested_type_name\": \"{nested}\"}}}}",
        number + offset,
        kind.text_bound.unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Definitions;

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
