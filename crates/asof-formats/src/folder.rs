//! What is in a folder: the parts of a ROS 2 bag, or all recordings. Nothing is opened here.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use asof_core::{Problem, ProblemKind, SourceError};

use crate::kind::{Kind, kind_inside, kind_of};
use crate::storage::failed;
use crate::yaml::first_document;

/// How deep nested folders are searched.
pub(crate) const MAX_FOLDER_DEPTH: usize = 8;
/// The description of a ROS 2 bag.
pub(crate) const METADATA: &str = "metadata.yaml";

/// The files that a ROS 2 bag's `metadata.yaml` lists; `None` if it is missing or not a description.
pub(crate) fn parts_by_metadata(path: &Path) -> Result<Option<Vec<String>>, SourceError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A file that is not text is not a description.
        Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(None),
        Err(cause) => return Err(failed(path, cause)),
    };
    Ok(listed_in(&text))
}

/// The files that the description of a ROS 2 bag lists; `None` if the text is not one. Everything else that is needed
/// is in the recordings.
pub(crate) fn listed_in(text: &str) -> Option<Vec<String>> {
    let document = first_document(text)?;
    let about = &document["rosbag2_bagfile_information"];
    let paths = about["relative_file_paths"].as_vec()?;
    let names = paths.iter().filter_map(|path| path.as_str());
    Some(names.map(str::to_owned).collect())
}

/// The names that a listed file may have: early versions put the folder's name before it, and compression adds a
/// suffix. All of them are in the folder, whatever the list contains.
pub(crate) fn names_of_part(listed: &str) -> Vec<String> {
    let name = Path::new(listed).file_name().and_then(OsStr::to_str);
    let endings = name.map(|name| ["", ".zstd", ".zst"].map(|ending| format!("{name}{ending}")));
    endings.into_iter().flatten().collect()
}

/// Where the listed files really are.
pub(crate) fn existing(
    folder: &Path,
    listed: Vec<String>,
    problems: &mut Vec<Problem>,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in listed {
        let names = names_of_part(&name).into_iter();
        let mut candidates = names.map(|name| folder.join(name));
        if let Some(path) = candidates.find(|path| path.is_file()) {
            found.push(path);
        } else {
            let message = format!("{METADATA} lists {name}, which is not in the folder");
            problems.push(Problem::whole(ProblemKind::Incomplete, message));
        }
    }
    found
}

/// The recordings and bags in a folder, each once, however many links lead to it.
pub(crate) fn recordings_in(
    folder: &Path,
    depth: usize,
    problems: &mut Vec<Problem>,
) -> Result<Vec<PathBuf>, SourceError> {
    let mut search = Search {
        known: HashSet::new(),
        found: Vec::new(),
        problems,
    };
    search.folder(folder, depth)?;
    search.found.sort();
    Ok(search.found)
}

struct Search<'a> {
    /// Files and folders found so far, by their real paths.
    known: HashSet<PathBuf>,
    found: Vec<PathBuf>,
    problems: &'a mut Vec<Problem>,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), SourceError> {
        if !self.is_new(folder) {
            return Ok(());
        }
        let entries = std::fs::read_dir(folder).map_err(|cause| failed(folder, cause))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // Files come before links to them, such as one to the latest recording.
        paths.sort_by_key(|path| (path.is_symlink(), path.clone()));
        for path in paths.into_iter().filter(|path| !is_hidden(path)) {
            if !path.is_dir() {
                if is_recording(&path) && self.is_new(&path) {
                    self.found.push(path);
                }
            } else if parts_by_metadata(&path.join(METADATA)).is_ok_and(|parts| parts.is_some()) {
                if self.is_new(&path) {
                    self.found.push(path);
                }
            } else if depth > 0
                && let Err(error) = self.folder(&path, depth - 1)
            {
                let message = error.to_string();
                let problem = Problem::whole(ProblemKind::Incomplete, message);
                self.problems.push(problem);
            }
        }
        Ok(())
    }

    fn is_new(&mut self, path: &Path) -> bool {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.known.insert(real)
    }
}

/// Whether a file is hidden, such as one that a program is still writing, or the system's own.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(is_hidden_name)
}

pub(crate) fn is_hidden_name(name: &str) -> bool {
    name.starts_with('.')
}

/// Whether a file is a recording, or at least named like one: then opening it reports what is wrong.
fn is_recording(path: &Path) -> bool {
    // Opening a pipe would block.
    if !path.is_file() {
        return false;
    }
    match kind_of(path) {
        Ok(Kind::Unknown) | Err(_) => is_named_recording(path),
        Ok(Kind::Zstd) => is_named_recording(path) || kind_inside(path) != Kind::Unknown,
        Ok(_) => true,
    }
}

pub(crate) fn is_named_recording(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches(".zstd").trim_end_matches(".zst");
    [".mcap", ".bag", ".bag.active", ".db3", ".ulg"]
        .iter()
        .any(|ending| name.ends_with(ending))
}
