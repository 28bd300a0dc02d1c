//! Definitions of ROS 2 types, for recordings that do not contain their own.
//!
//! Bags from before ROS 2 Iron name types without defining them. The types of the standard packages are
//! built in; others are looked up in folders of `.msg` and `.idl` files.

mod idl;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::msg::{self, is_primitive, long_name};

/// A lookup of type definitions.
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    /// `package/Type` to its file. Files take precedence over built-in types.
    files: BTreeMap<String, PathBuf>,
    /// The same for IDL files; types that have a `.msg` file too are in both.
    idl_files: BTreeMap<String, PathBuf>,
    /// `Type` to a file directly in a given folder, whose package is therefore unknown.
    bare_files: BTreeMap<String, PathBuf>,
}

/// The definition of a type and of its dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullDefinition {
    /// `ros2msg` or `ros2idl`, as MCAP calls them.
    pub encoding: &'static str,
    /// The definition, then those of its dependencies.
    pub text: String,
}

/// A type without a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no definition of {name}")]
pub struct MissingDefinition {
    /// Its name, `package/msg/Type`.
    pub name: String,
}

/// The version of the standard types: three of them have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// Dashing to Galactic.
    BeforeHumble,
    /// From Humble on.
    #[default]
    Humble,
}

/// Names and texts in turn: see the file.
static STANDARD: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    include_str!("standard.msgs")
        .split("== ")
        .filter_map(|entry| entry.split_once('\n'))
        .collect()
});

/// A larger file is not taken for a definition.
const MAX_DEFINITION_BYTES: u64 = 1 << 20;
/// How deep folders are searched.
const MAX_FOLDER_DEPTH: usize = 8;
/// The separator between the parts of a definition.
const SEPARATOR: &str =
    "================================================================================";

impl Definitions {
    /// Only the standard types.
    pub fn standard() -> Self {
        Definitions::default()
    }

    /// The standard types, and those defined in these folders: see
    /// [`add_folder`](Definitions::add_folder).
    ///
    /// # Errors
    /// When one of the folders cannot be read.
    pub fn with_folders<P: AsRef<Path>>(
        folders: impl IntoIterator<Item = P>,
    ) -> std::io::Result<Self> {
        let mut definitions = Definitions::default();
        for folder in folders {
            definitions.add_folder(folder.as_ref())?;
        }
        Ok(definitions)
    }

    /// Adds every `package/msg/Type.msg` in a folder and its subfolders, and `.idl` files for types without one;
    /// returns the number of files. Folders that were added earlier take precedence.
    ///
    /// The name of a package is the one in its `package.xml`, or else that of its folder. Files directly in the given
    /// folder define types of any package that nothing else defines.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn add_folder(&mut self, folder: &Path) -> std::io::Result<usize> {
        // The outermost folder must be readable; unreadable ones inside are skipped.
        std::fs::read_dir(folder)?;
        let folder = folder.canonicalize()?;
        let mut search = Search {
            definitions: self,
            root: &folder,
            packages: HashMap::new(),
            files: 0,
        };
        search.folder(&folder, MAX_FOLDER_DEPTH);
        Ok(search.files)
    }

    /// The full definition of a type (`package/msg/Type` or `package/Type`): its own text, then that of
    /// its dependencies, in the format of MCAP's `ros2msg`. `None` if one of them is missing.
    pub fn full_text(&self, name: &str) -> Option<String> {
        self.full_text_of(name, Era::Humble).ok()
    }

    /// The type whose definition is missing: this one, or one of its dependencies. `None` if all are there.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// std::fs::create_dir(folder.path().join("my_robot"))?;
    /// std::fs::write(folder.path().join("my_robot/Base.msg"), "Wheel[4] wheels")?;
    /// let definitions = asof_ros::Definitions::with_folders([folder.path()])?;
    /// let missing = definitions.missing_for("my_robot/msg/Base");
    /// assert_eq!(missing.as_deref(), Some("my_robot/msg/Wheel"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn missing_for(&self, name: &str) -> Option<String> {
        let missing = self.definition_of(name, Era::Humble).err();
        missing.map(|missing| missing.name)
    }

    /// The full definition, in either language.
    ///
    /// # Errors
    /// When its definition, or that of a type that it refers to, is missing.
    pub fn definition_of(&self, name: &str, era: Era) -> Result<FullDefinition, MissingDefinition> {
        let in_messages = self.full_text_of(name, era).map(|text| FullDefinition {
            encoding: "ros2msg",
            text,
        });
        let found = in_messages.or_else(|missing| {
            if self.idl_files.is_empty() {
                return Err(missing);
            }
            let text = self.full_idl_of(name, era)?;
            Ok(FullDefinition {
                encoding: "ros2idl",
                text,
            })
        });
        found.map_err(|name| MissingDefinition { name })
    }

    /// The error is the type whose definition is missing.
    fn full_text_of(&self, name: &str, era: Era) -> Result<String, String> {
        let name = short_name(name).ok_or_else(|| name.to_owned())?;
        let known = |name: &str| self.text(name, era).ok_or_else(|| long_name(name));
        let mut full = known(&name)?;
        let mut seen: HashSet<String> = HashSet::from([name.clone()]);
        let mut waiting: Vec<String> = needed_by(&full, &name);
        waiting.reverse();
        while let Some(needed) = waiting.pop() {
            if !seen.insert(needed.clone()) {
                continue;
            }
            let text = known(&needed)?;
            if !full.ends_with('\n') && !full.is_empty() {
                full.push('\n');
            }
            let _ = write!(full, "{SEPARATOR}\nMSG: {needed}\n{text}");
            waiting.extend(needed_by(&text, &needed).into_iter().rev());
        }
        Ok(full)
    }

    fn text(&self, name: &str, era: Era) -> Option<String> {
        if let Some(path) = self.files.get(name) {
            return read(path);
        }
        let older = (era == Era::BeforeHumble)
            .then(|| STANDARD.get(format!("{name} before humble").as_str()))
            .flatten();
        let standard = older.or_else(|| STANDARD.get(name));
        if let Some(&text) = standard {
            return Some(text.to_owned());
        }
        let (_, kind) = name.split_once('/')?;
        self.bare_files.get(kind).and_then(|path| read(path))
    }
}

fn read(path: &Path) -> Option<String> {
    let is_small = std::fs::metadata(path).is_ok_and(|found| found.len() <= MAX_DEFINITION_BYTES);
    is_small
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
}

/// A walk through a folder.
struct Search<'a> {
    definitions: &'a mut Definitions,
    root: &'a Path,
    /// Folder to the package name in its `package.xml`.
    packages: HashMap<PathBuf, Option<String>>,
    files: usize,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                if depth > 0 {
                    self.folder(&path, depth - 1);
                }
            } else {
                self.file(path);
            }
        }
    }

    fn file(&mut self, path: PathBuf) {
        let extension = path.extension().and_then(OsStr::to_str);
        let (Some(extension @ ("msg" | "idl")), Some(name)) = (extension, self.name_by_path(&path))
        else {
            return;
        };
        self.files += 1;
        if extension == "idl" {
            self.definitions.idl_files.entry(name).or_insert(path);
            return;
        }
        let is_bare =
            path.parent() == Some(self.root) && self.root.file_name() != Some("msg".as_ref());
        if let (true, Some((_, kind))) = (is_bare, name.split_once('/')) {
            let bare = &mut self.definitions.bare_files;
            bare.entry(kind.to_owned()).or_insert(path.clone());
        }
        self.definitions.files.entry(name).or_insert(path);
    }

    /// `…/package/msg/Type.msg`, or `…/package/Type.msg`.
    fn name_by_path(&mut self, path: &Path) -> Option<String> {
        let kind = path.file_stem()?.to_str()?;
        let folder = path.parent()?;
        let package = if folder.file_name()? == "msg" {
            folder.parent()?
        } else {
            folder
        };
        let said = self
            .packages
            .entry(package.to_owned())
            .or_insert_with(|| package_name(&package.join("package.xml")));
        match said {
            Some(said) => Some(format!("{said}/{kind}")),
            None => Some(format!("{}/{kind}", package.file_name()?.to_str()?)),
        }
    }
}

/// The package name in a `package.xml`; the folder may have another name.
fn package_name(path: &Path) -> Option<String> {
    let text = read(path)?;
    let (_, rest) = text.split_once("<name>")?;
    let (name, _) = rest.split_once("</name>")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    Some(name.trim().to_owned()).filter(|name| !name.is_empty() && name.chars().all(is_name))
}

/// `package/Type` of `package/msg/Type` or `package/Type`.
fn short_name(name: &str) -> Option<String> {
    match *name.split('/').collect::<Vec<_>>() {
        [package, kind] | [package, "msg", kind] => Some(format!("{package}/{kind}")),
        _ => None,
    }
}

/// The types of a definition's fields, in order, without primitive types.
fn needed_by(text: &str, name: &str) -> Vec<String> {
    let package = name.split('/').next().unwrap_or_default();
    msg::fields(text.lines())
        .map(|field| field.kind.base)
        .filter(|base| !is_primitive(base))
        .map(|base| msg::referred(base, package))
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
            let text = definitions
                .full_text_of("visualization_msgs/msg/Marker", era)
                .ok();
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

    /// A folder with these files.
    fn folder_of(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("creates");
            std::fs::write(path, text).expect("writes");
        }
        folder
    }

    #[test]
    fn a_package_is_called_what_its_description_says() {
        let folder = folder_of(&[
            ("checkout-1.2/msg/Wheel.msg", "float64 speed"),
            (
                "checkout-1.2/package.xml",
                "<package><name>my_robot</name></package>",
            ),
        ]);
        let definitions = Definitions::with_folders([folder.path()]).expect("reads");
        assert!(definitions.full_text("my_robot/msg/Wheel").is_some());
        assert!(definitions.full_text("checkout-1.2/msg/Wheel").is_none());
    }

    #[test]
    fn bare_files_stand_in_for_types_that_nothing_else_defines() {
        let folder = folder_of(&[
            ("Base.msg", "Wheel wheel"),
            ("Wheel.msg", "float64 speed"),
            ("Point.msg", "bool wrong"),
            ("deeper/Motor.msg", "float64 power"),
        ]);
        let definitions = Definitions::with_folders([folder.path()]).expect("reads");
        let full = definitions.full_text("my_robot/msg/Base").expect("known");
        assert!(
            full.contains("MSG: my_robot/Wheel\nfloat64 speed"),
            "{full}"
        );
        let point = definitions.full_text("geometry_msgs/msg/Point");
        assert!(point.is_some_and(|text| text.contains("float64 x")));
        assert_eq!(definitions.full_text("my_robot/msg/Motor"), None);
    }

    #[test]
    fn the_type_that_is_not_known_is_named() {
        let folder = folder_of(&[("my_robot/msg/Base.msg", "Wheel wheel")]);
        let definitions = Definitions::with_folders([folder.path()]).expect("reads");
        let missing = |name| definitions.missing_for(name);
        assert_eq!(
            missing("my_robot/msg/Base").as_deref(),
            Some("my_robot/msg/Wheel")
        );
        assert_eq!(
            missing("my_robot/msg/Arm").as_deref(),
            Some("my_robot/msg/Arm")
        );
        assert_eq!(missing("std_msgs/msg/Header"), None);
    }

    #[test]
    fn a_folder_without_definitions_has_none() {
        let folder = folder_of(&[("notes.txt", "hello")]);
        let mut definitions = Definitions::standard();
        assert_eq!(definitions.add_folder(folder.path()).expect("reads"), 0);
        assert!(definitions.add_folder(&folder.path().join("none")).is_err());
    }

    #[test]
    fn what_is_defined_in_idl_alone_comes_with_all_that_it_needs() {
        let base = "#include \"std_msgs/msg/Header.idl\"\n#include \"my_robot/msg/Wheel.idl\"\n\
            module my_robot { module msg { struct Base { std_msgs::msg::Header header; }; }; };";
        let folder = folder_of(&[
            ("my_robot/msg/Base.idl", base),
            ("my_robot/msg/Wheel.msg", "float64 speed\n"),
        ]);
        let definitions = Definitions::with_folders([folder.path()]).expect("reads");
        let found = definitions.definition_of("my_robot/msg/Base", Era::Humble);
        let FullDefinition { encoding, text } = found.expect("known");
        assert_eq!(encoding, "ros2idl");
        for part in [
            "my_robot/msg/Base",
            "std_msgs/msg/Header",
            "my_robot/msg/Wheel",
        ] {
            assert_eq!(text.matches(&format!("IDL: {part}\n")).count(), 1, "{text}");
        }
        assert!(text.contains("double speed;"), "{text}");
        // Where there is both, the shorter language is taken.
        let wheel = definitions.definition_of("my_robot/msg/Wheel", Era::Humble);
        assert_eq!(wheel.expect("known").encoding, "ros2msg");
    }
}
