//! Message definitions from a folder, as ROS installs them: `package/msg/Name.msg`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use asof_core::Schema;

/// A folder of definitions: `share` of a ROS installation, or any folder with `package/msg/Name.msg` in it.
#[derive(Debug, Clone)]
pub struct SchemaFolder {
    root: PathBuf,
}

const PRIMITIVES: &[&str] = &[
    "bool", "byte", "char", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32",
    "uint32", "int64", "uint64", "string", "wstring",
];
const RULE: &str =
    "================================================================================";

impl SchemaFolder {
    /// The definitions below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        SchemaFolder { root: root.into() }
    }

    /// The schema of a type such as `sensor_msgs/msg/Imu`, with all that it is made of; `None` if the folder does
    /// not have all of it.
    pub fn schema(&self, type_name: &str) -> Option<Schema> {
        let mut text = self.read(type_name)?;
        let mut seen = BTreeSet::from([type_name.to_owned()]);
        let mut waiting = parts_of(&text, type_name);
        while let Some(next) = waiting.pop() {
            if !seen.insert(next.clone()) {
                continue;
            }
            let definition = self.read(&next)?;
            waiting.extend(parts_of(&definition, &next));
            let short = next.replace("/msg/", "/");
            let _ = write!(text, "\n{RULE}\nMSG: {short}\n{definition}");
        }
        Some(Schema {
            name: type_name.to_owned(),
            encoding: "ros2msg".to_owned(),
            data: text.into(),
        })
    }

    fn read(&self, type_name: &str) -> Option<String> {
        let mut parts = type_name.split('/');
        let (package, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
        let is_plain = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        // A type's name comes from the network: it must not lead out of the folder.
        if parts.next().is_some() || ![package, kind, name].into_iter().all(is_plain) {
            return None;
        }
        let path: &Path = &self
            .root
            .join(package)
            .join(kind)
            .join(format!("{name}.msg"));
        std::fs::read_to_string(path).ok()
    }
}

/// The types that a definition is made of, with their full names.
fn parts_of(definition: &str, type_name: &str) -> Vec<String> {
    let package = type_name.split('/').next().unwrap_or_default();
    let mut parts = Vec::new();
    for line in definition.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(kind) = line.split_whitespace().next() else {
            continue;
        };
        let kind = kind.split(['[', '<']).next().unwrap_or_default();
        if PRIMITIVES.contains(&kind) || kind.is_empty() {
            continue;
        }
        parts.push(match kind.split('/').collect::<Vec<_>>()[..] {
            ["Header"] => "std_msgs/msg/Header".to_owned(),
            [name] => format!("{package}/msg/{name}"),
            [package, name] => format!("{package}/msg/{name}"),
            _ => kind.to_owned(),
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_brings_along_what_it_is_made_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            std::fs::write(path, text).expect("written");
        };
        write(
            "a_msgs/msg/Pair.msg",
            "Item[2] items # two\nstd_msgs/Header header\nstring<=5 name\nint32 K=3\n",
        );
        write("a_msgs/msg/Item.msg", "float64 x\n");
        write(
            "std_msgs/msg/Header.msg",
            "builtin_interfaces/Time stamp\nstring frame_id\n",
        );
        write(
            "builtin_interfaces/msg/Time.msg",
            "int32 sec\nuint32 nanosec\n",
        );
        let schemas = SchemaFolder::new(folder.path());
        let schema = schemas.schema("a_msgs/msg/Pair").expect("complete");
        let text = String::from_utf8(schema.data.to_vec()).expect("text");
        for part in [
            "MSG: a_msgs/Item",
            "MSG: std_msgs/Header",
            "MSG: builtin_interfaces/Time",
            "float64 x",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part} in {text}");
        }
        assert_eq!(schemas.schema("../msg/Pair"), None);
        assert_eq!(schemas.schema("a_msgs/msg/Nothing"), None);
    }
}
