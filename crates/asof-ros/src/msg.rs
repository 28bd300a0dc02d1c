//! `.msg` text of ROS 1 and ROS 2: a message, then those that it refers to; one field or constant per line.

/// One message definition of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its package; empty if the text names none.
    pub package: String,
    /// Its name, without the package.
    pub name: String,
    /// The number of its first line in the text, counted from 1.
    pub line: usize,
    /// Its lines.
    pub lines: Vec<&'a str>,
}

impl Section<'_> {
    /// `package/Type`.
    pub fn short_name(&self) -> String {
        if self.package.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.package, self.name)
        }
    }
}

/// A line that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct MsgError {
    /// Its number in the text, counted from 1.
    pub line: usize,
    /// What was expected, and what was found.
    pub reason: String,
}

/// Why a line cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is neither a declaration nor a comment.
    #[error("expected a type and a name, found '{0}'")]
    NotADeclaration(String),
    /// What follows the type is not a name.
    #[error("expected a field's name in '{0}'")]
    NoName(String),
    /// The type is malformed.
    #[error("cannot read the type '{0}'")]
    BadType(String),
}

/// What a line declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line<'a> {
    /// A comment or an empty line.
    Nothing,
    /// A constant, which takes no space in a message.
    Constant {
        /// The name of its type.
        kind: &'a str,
        /// Its name.
        name: &'a str,
        /// Everything after the `=`, including what looks like a comment: it may be part of a string.
        value: &'a str,
    },
    /// A field.
    Field(MsgField<'a>),
}

/// A field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MsgField<'a> {
    /// Its type.
    pub kind: FieldType<'a>,
    /// Its name.
    pub name: &'a str,
    /// Its default value as written; empty without one.
    pub default: &'a str,
    /// The comment after it, with its number sign; empty without one.
    pub comment: &'a str,
}

/// The type of a field, such as `string<=10[<=3]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldType<'a> {
    /// A primitive type, or the name of a message.
    pub base: &'a str,
    /// The maximum length of a string.
    pub text_bound: Option<u64>,
    /// Whether it is an array, and of which length.
    pub count: Count,
}

/// How many values a field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A single value.
    One,
    /// A fixed-size array: `[3]`.
    Fixed(u32),
    /// An unbounded sequence: `[]`.
    Any,
    /// A bounded sequence: `[<=3]`.
    AtMost(u64),
}

/// The message definitions of a text: `name` first, then those after each line of `=`.
///
/// # Errors
/// When a line of `=` is not followed by the name of a message.
pub fn sections<'a>(name: &str, text: &'a str) -> Result<Vec<Section<'a>>, MsgError> {
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
                return Err(MsgError {
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

/// What a line declares.
///
/// # Errors
/// When it is neither a declaration nor a comment.
pub fn parse_line(line: &str) -> Result<Line<'_>, LineError> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Line::Nothing);
    }
    let (kind, rest) =
        split_type(line).ok_or_else(|| LineError::NotADeclaration(line.to_owned()))?;
    let name_len = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(name_len);
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !is_name {
        return Err(LineError::NoName(line.to_owned()));
    }
    if let Some(value) = rest.trim_start().strip_prefix('=') {
        return Ok(Line::Constant { kind, name, value });
    }
    let default = without_comment(rest);
    Ok(Line::Field(MsgField {
        kind: FieldType::parse(kind).ok_or_else(|| LineError::BadType(kind.to_owned()))?,
        name,
        comment: &rest[default.len()..],
        default: default.trim(),
    }))
}

/// The fields of a definition without dependencies; lines that cannot be parsed are skipped.
pub fn fields<'a>(lines: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = MsgField<'a>> {
    lines.into_iter().filter_map(|line| match parse_line(line) {
        Ok(Line::Field(field)) => Some(field),
        Ok(Line::Nothing | Line::Constant { .. }) | Err(_) => None,
    })
}

impl<'a> FieldType<'a> {
    /// Parses the text of a type; `None` if it is not one.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (element, count) = match text.split_once('[') {
            Some((element, rest)) => (element, count_of(rest.trim_end().strip_suffix(']')?)?),
            None => (text, Count::One),
        };
        let (base, text_bound) = match element.split_once("<=") {
            Some((base, bound)) => (base, Some(bound.trim().parse().ok()?)),
            None => (element, None),
        };
        Some(FieldType {
            base,
            text_bound,
            count,
        })
    }
}

fn count_of(inside: &str) -> Option<Count> {
    let inside = inside.trim();
    if inside.is_empty() {
        return Some(Count::Any);
    }
    match inside.strip_prefix("<=") {
        Some(most) => most.trim().parse().ok().map(Count::AtMost),
        None => inside.parse().ok().map(Count::Fixed),
    }
}

/// The value of a constant of this type, without quotes and comments.
pub fn constant_value<'a>(kind: &str, value: &'a str) -> &'a str {
    // A string's value is the rest of its line, including number signs.
    if kind.starts_with("string") || kind.starts_with("wstring") {
        let value = value.trim();
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        if let Some(quote) = quote
            && let Some(end) = value[1..].find(quote)
        {
            return &value[1..=end];
        }
        return value;
    }
    without_comment(value).trim()
}

/// Whether a type is a primitive type of ROS 2.
pub fn is_primitive(base: &str) -> bool {
    const OWN: [&str; 15] = [
        "bool", "byte", "char", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
        "uint64", "float32", "float64", "string", "wstring",
    ];
    OWN.contains(&base)
}

/// `package/Type` of the message that a field of this type refers to; a bare `Header` is `std_msgs/Header`.
pub fn referred(base: &str, package: &str) -> String {
    match base {
        "Header" => "std_msgs/Header".to_owned(),
        other if other.contains('/') => short_name(other),
        other => format!("{package}/{other}"),
    }
}

/// `a/pkg/msg/Type`, `pkg/msg/Type` and `pkg/Type` are all the type `Type` of `pkg`.
pub fn package_and_name(full: &str) -> (String, String) {
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

/// `package/Type` of `package/msg/Type`; any other name unchanged.
pub fn short_name(name: &str) -> String {
    match *name.split('/').collect::<Vec<_>>() {
        [package, "msg", kind] => format!("{package}/{kind}"),
        _ => name.to_owned(),
    }
}

/// `package/msg/Type` of `package/Type` or `package/msg/Type`; a name without a package unchanged.
pub fn long_name(name: &str) -> String {
    match name.split_once('/') {
        Some((package, rest)) => {
            let kind = rest.rsplit('/').next().unwrap_or(rest);
            format!("{package}/msg/{kind}")
        }
        None => name.to_owned(),
    }
}

/// Whether a type starts with a `std_msgs/Header`, by its full definition in `.msg` syntax.
pub fn starts_with_header(name: &str, definition: &str) -> bool {
    if name == "std_msgs/msg/Header" {
        return true;
    }
    let first = fields(definition.lines())
        .next()
        .map(|field| field.kind.base);
    match first {
        Some("std_msgs/Header" | "std_msgs/msg/Header") => true,
        // A package may define a type of that name itself, which then takes precedence.
        Some("Header") => {
            let package = name.split('/').next().unwrap_or_default();
            let own = format!("MSG: {package}/Header");
            !definition.lines().any(|line| line.trim() == own)
        }
        _ => false,
    }
}

/// A type ends at the first space outside of its brackets.
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

/// The text before a `#` that is not in quotes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_field_a_constant_or_nothing() {
        assert_eq!(parse_line("  # only words"), Ok(Line::Nothing));
        let constant = Line::Constant {
            kind: "string",
            name: "NAME",
            value: "a # b",
        };
        assert_eq!(parse_line("string NAME=a # b"), Ok(constant));
        let Ok(Line::Field(field)) = parse_line("string<=10[ <= 3 ] names [\"a#\"] # two") else {
            panic!("a field");
        };
        assert_eq!(field.kind.base, "string");
        assert_eq!(field.kind.text_bound, Some(10));
        assert_eq!(field.kind.count, Count::AtMost(3));
        assert_eq!((field.default, field.comment), ("[\"a#\"]", "# two"));
        for bad in [
            "int32",
            "int32[x] y",
            "string<=x y",
            "int32[<=] y",
            "int32 7",
        ] {
            assert!(parse_line(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sections_know_their_names_and_lines() {
        let text = "int8 a\r\n===\n\nMSG: pkg/msg/Inner\nint8 b\n";
        let found = sections("pkg/msg/Outer", text).expect("reads");
        assert_eq!(found[0].lines, ["int8 a"]);
        assert_eq!(found[1].short_name(), "pkg/Inner");
        assert_eq!((found[1].line, &found[1].lines[..]), (5, &["int8 b"][..]));
        let error = sections("a/B", "===\nint8 x").expect_err("no name");
        assert_eq!(error.line, 2);
    }
}
