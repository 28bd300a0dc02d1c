//! Definitions in IDL, for packages without `.msg` files.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{Definitions, Era, SEPARATOR, read, short_name};
use crate::msg::{self, Count, FieldType, MsgField, is_primitive, long_name, referred};

impl Definitions {
    /// The definition of a type and of its dependencies, in the format of MCAP's `ros2idl`. A dependency may be defined
    /// by a `.msg` file, or be a standard type. The error is the type that is missing.
    pub(super) fn full_idl_of(&self, name: &str, era: Era) -> Result<String, String> {
        let name = short_name(name).ok_or_else(|| name.to_owned())?;
        let mut full = String::new();
        let mut seen = HashSet::new();
        let mut waiting = vec![name];
        while let Some(name) = waiting.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let idl = self.idl_files.get(&name).and_then(|path| read(path));
            let (text, needed) = if let Some(text) = idl {
                let needed = included_by(&text);
                (text, needed)
            } else {
                let text = self.text(&name, era).ok_or_else(|| long_name(&name))?;
                (from_message(&text, &name), super::needed_by(&text, &name))
            };
            let _ = writeln!(
                full,
                "{SEPARATOR}\nIDL: {}\n{}",
                long_name(&name),
                text.trim_end()
            );
            waiting.extend(needed.into_iter().rev());
        }
        Ok(full)
    }
}

/// The types whose files a definition includes.
fn included_by(text: &str) -> Vec<String> {
    let included = text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("#include")?.trim();
        let file = rest.trim_matches(['"', '<', '>']);
        short_name(file.strip_suffix(".idl")?)
    });
    included.collect()
}

/// A message's fields as a struct. Constants and defaults are left out: recorded bytes do not depend on them.
fn from_message(text: &str, name: &str) -> String {
    let (package, kind) = name.split_once('/').unwrap_or(("", name));
    let mut fields = String::new();
    for field in msg::fields(text.lines()) {
        let _ = writeln!(fields, "  {};", declared(&field, package));
    }
    format!("module {package} {{ module msg {{ struct {kind} {{\n{fields}}}; }}; }};\n")
}

/// `float64[9] covariance` as `double covariance[9]`.
fn declared(field: &MsgField<'_>, package: &str) -> String {
    let FieldType {
        base,
        text_bound,
        count,
    } = field.kind;
    let mut element = match base {
        "bool" => "boolean".to_owned(),
        "byte" => "octet".to_owned(),
        "char" => "uint8".to_owned(),
        "float32" => "float".to_owned(),
        "float64" => "double".to_owned(),
        own if is_primitive(own) => own.to_owned(),
        other => long_name(&referred(other, package)).replace('/', "::"),
    };
    if let Some(bound) = text_bound {
        let _ = write!(element, "<{bound}>");
    }
    let name = field.name;
    match count {
        Count::One => format!("{element} {name}"),
        Count::Any => format!("sequence<{element}> {name}"),
        Count::AtMost(most) => format!("sequence<{element}, {most}> {name}"),
        Count::Fixed(len) => format!("{element} {name}[{len}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_a_struct() {
        let text = "int8 FRONT=1\nint8 BACK = 2\nbool is_on  # comment\nstring<=8 name \"x\"\n\
            Wheel[4] wheels\ngeometry_msgs/Point[] path\nfloat64[<=3] few\nbyte[] raw\nHeader header\nint32 n 5\n";
        let expected = "module my_robot { module msg { struct Base {
  boolean is_on;
  string<8> name;
  my_robot::msg::Wheel wheels[4];
  sequence<geometry_msgs::msg::Point> path;
  sequence<double, 3> few;
  sequence<octet> raw;
  std_msgs::msg::Header header;
  int32 n;
}; }; };
";
        assert_eq!(from_message(text, "my_robot/Base"), expected);
    }

    #[test]
    fn includes_name_what_is_needed() {
        let text = "#include \"std_msgs/msg/Header.idl\"\n  #include <a/b/msg/C.idl>\n#include \"x.h\"\nmodule m {};";
        assert_eq!(included_by(text), ["std_msgs/Header"]);
    }
}
