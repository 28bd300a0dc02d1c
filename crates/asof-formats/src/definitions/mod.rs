//! Definitions of ROS 2 types, for recordings that do not carry their own.
//!
//! Bags of ROS 2 before Iron name types and do not define them. The types of the standard packages are
//! known here; others are looked up in folders of `.msg` files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Where definitions of types are looked up.
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    /// `package/Type` to its file. Files come before what is built in.
    files: BTreeMap<String, PathBuf>,
}

/// Which of the standard types' layouts is meant: three of them changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Era {
    /// Dashing to Galactic.
    BeforeHumble,
    #[default]
    Humble,
}

/// Names and texts, one after the other: see the file.
static STANDARD: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    include_str!("standard.msgs")
        .split("== ")
        .filter_map(|entry| entry.split_once('\n'))
        .collect()
});

/// A definition larger than this is none.
const LARGEST_FILE: u64 = 1 << 20;
/// How deep folders are searched.
const DEEPEST: usize = 8;
/// Between the parts of a definition.
const RULE: &str =
    "================================================================================";

impl Definitions {
    /// The standard types alone.
    pub fn standard() -> Self {
        Definitions::default()
    }

    /// The standard types, and every `package/msg/Type.msg` below these folders.
    ///
    /// # Errors
    /// When one of the folders cannot be read.
    pub fn with_folders<P: AsRef<Path>>(
        folders: impl IntoIterator<Item = P>,
    ) -> std::io::Result<Self> {
        let mut definitions = Definitions::default();
        for folder in folders {
            // The outermost folder must be readable; those below are taken as they come.
            std::fs::read_dir(folder.as_ref())?;
            definitions.search(folder.as_ref(), DEEPEST);
        }
        Ok(definitions)
    }

    /// The full definition of a type (`package/msg/Type` or `package/Type`): its own text, then that of
    /// every type that it needs, as MCAP's `ros2msg` wants it. `None` where one of them is not known.
    pub fn full_text(&self, name: &str) -> Option<String> {
        self.full_text_of(name, Era::Humble)
    }

    pub(crate) fn full_text_of(&self, name: &str, era: Era) -> Option<String> {
        let name = short_name(name)?;
        let mut full = self.text(&name, era)?;
        let mut seen: HashSet<String> = HashSet::from([name.clone()]);
        let mut waiting: Vec<String> = needed_by(&full, &name);
        waiting.reverse();
        while let Some(needed) = waiting.pop() {
            if !seen.insert(needed.clone()) {
                continue;
            }
            let text = self.text(&needed, era)?;
            if !full.ends_with('\n') && !full.is_empty() {
                full.push('\n');
            }
            let _ = write!(full, "{RULE}\nMSG: {needed}\n{text}");
            waiting.extend(needed_by(&text, &needed).into_iter().rev());
        }
        Some(full)
    }

    fn text(&self, name: &str, era: Era) -> Option<String> {
        if let Some(path) = self.files.get(name) {
            let is_small = std::fs::metadata(path).is_ok_and(|found| found.len() <= LARGEST_FILE);
            return is_small
                .then(|| std::fs::read_to_string(path).ok())
                .flatten();
        }
        let older = (era == Era::BeforeHumble)
            .then(|| STANDARD.get(format!("{name} before humble").as_str()))
            .flatten();
        older
            .or_else(|| STANDARD.get(name))
            .map(|&text| text.to_owned())
    }

    fn search(&mut self, folder: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                if depth > 0 {
                    self.search(&path, depth - 1);
                }
            } else if path.extension().is_some_and(|extension| extension == "msg")
                && let Some(name) = name_by_path(&path)
            {
                self.files.entry(name).or_insert(path);
            }
        }
    }
}

/// `…/package/msg/Type.msg`, or `…/package/Type.msg`.
fn name_by_path(path: &Path) -> Option<String> {
    let kind = path.file_stem()?.to_str()?;
    let folder = path.parent()?;
    let package = if folder.file_name()? == "msg" {
        folder.parent()?.file_name()?
    } else {
        folder.file_name()?
    };
    Some(format!("{}/{kind}", package.to_str()?))
}

/// `package/Type` of `package/msg/Type` or `package/Type`.
fn short_name(name: &str) -> Option<String> {
    match *name.split('/').collect::<Vec<_>>() {
        [package, kind] | [package, "msg", kind] => Some(format!("{package}/{kind}")),
        _ => None,
    }
}

/// The types that a definition's fields are of, in order, without those that are built into the language.
fn needed_by(text: &str, name: &str) -> Vec<String> {
    let package = name.split('/').next().unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let line = line.split('#').next()?.trim();
            let token = line.split_whitespace().next()?;
            let kind = token.split(['[', '<']).next()?;
            match kind {
                "bool" | "byte" | "char" | "int8" | "uint8" | "int16" | "uint16" | "int32"
                | "uint32" | "int64" | "uint64" | "float32" | "float64" | "string" | "wstring" => {
                    None
                }
                "Header" => Some("std_msgs/Header".to_owned()),
                "time" | "Time" if package == "builtin_interfaces" => {
                    Some("builtin_interfaces/Time".to_owned())
                }
                other if other.contains('/') => short_name(other),
                other => Some(format!("{package}/{other}")),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_standard_type_is_complete() {
        let definitions = Definitions::standard();
        let mut count = 0;
        for name in STANDARD.keys().filter(|name| !name.contains(' ')) {
            assert!(definitions.full_text(name).is_some(), "{name}");
            count += 1;
        }
        assert!(count > 150, "{count} types");
    }

    #[test]
    fn a_full_definition_has_each_needed_type_once_in_order_of_need() {
        let full = Definitions::standard()
            .full_text("nav_msgs/msg/Odometry")
            .expect("known");
        assert!(full.starts_with("std_msgs/Header header\nstring child_frame_id\n"));
        let parts: Vec<&str> = full.lines().filter(|l| l.starts_with("MSG: ")).collect();
        assert_eq!(
            parts[..2],
            ["MSG: std_msgs/Header", "MSG: builtin_interfaces/Time"]
        );
        let once: HashSet<_> = parts.iter().collect();
        assert_eq!(once.len(), parts.len());
        assert!(parts.contains(&"MSG: geometry_msgs/Quaternion"));
    }

    #[test]
    fn a_marker_of_an_older_distribution_has_its_older_layout() {
        let definitions = Definitions::standard();
        let has_texture = |era| {
            let text = definitions.full_text_of("visualization_msgs/msg/Marker", era);
            text.expect("known").contains("texture_resource")
        };
        assert!(has_texture(Era::Humble));
        assert!(!has_texture(Era::BeforeHumble));
    }

    #[test]
    fn types_in_a_folder_are_found_with_what_they_need() {
        let folder = tempfile::tempdir().expect("a folder");
        let package = folder.path().join("share/my_robot/msg");
        std::fs::create_dir_all(&package).expect("creates");
        let write = |name: &str, text: &str| {
            std::fs::write(package.join(name), text).expect("writes");
        };
        write("Wheel.msg", "float64 speed # in m/s\n");
        write(
            "Base.msg",
            "Wheel[4] wheels\ngeometry_msgs/Point centre\nint8 FRONT=1",
        );
        let definitions = Definitions::with_folders([folder.path()]).expect("reads");
        let full = definitions.full_text("my_robot/msg/Base").expect("known");
        assert!(full.contains("int8 FRONT=1\n=="), "{full}");
        assert!(full.contains("MSG: my_robot/Wheel\nfloat64 speed"));
        assert!(full.contains("MSG: geometry_msgs/Point\n"));
        assert_eq!(definitions.full_text("my_robot/msg/Missing"), None);
    }
}
