//! What is in a folder: the parts of a ROS 2 bag, or all recordings. Nothing is opened here.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{DirEntry, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use asof_core::{Problem, ProblemKind, SourceError};

use crate::kind::{Kind, kind_inside, kind_of};
use crate::storage::failed;
use crate::yaml::first_document;

/// How deep nested folders are searched.
pub(crate) const MAX_FOLDER_DEPTH: usize = 8;
/// How many files and folders are looked at: folders of the system, such as /proc, lead everywhere.
pub(crate) const MAX_ENTRIES: usize = 100_000;
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
        entries: 0,
        most: MAX_ENTRIES,
        problems,
    };
    search.folder(folder, depth)?;
    search.end(folder);
    Ok(search.found)
}

struct Search<'a> {
    /// Files and folders found so far, by their real paths.
    known: HashSet<PathBuf>,
    found: Vec<PathBuf>,
    /// How many were looked at, and how many may be.
    entries: usize,
    most: usize,
    problems: &'a mut Vec<Problem>,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), SourceError> {
        if !self.is_new(folder) {
            return Ok(());
        }
        let entries = std::fs::read_dir(folder).map_err(|cause| failed(folder, cause))?;
        let rest = self.most.saturating_sub(self.entries) + 1;
        let entries = entries.flatten().take(rest);
        let is_link = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        // Files come before links to them, such as one to the latest recording.
        let mut paths: Vec<(bool, PathBuf)> = entries
            .map(|entry| (is_link(&entry), entry.path()))
            .collect();
        paths.sort();
        for (_, path) in paths.into_iter().filter(|(_, path)| !is_hidden(path)) {
            if self.entries >= self.most {
                self.entries = usize::MAX;
                break;
            }
            self.entries += 1;
            let Ok(found) = std::fs::metadata(&path) else {
                // It was removed meanwhile, or is a link to nothing.
                continue;
            };
            if !found.is_dir() {
                if is_recording(&path, &found) && self.is_new(&path) {
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

    fn end(&mut self, folder: &Path) {
        self.found.sort();
        if self.entries > self.most {
            let message = format!(
                "{} has more than {} files and folders, and the rest was not searched; name a folder closer to the recordings",
                folder.display(),
                self.most
            );
            let problem = Problem::whole(ProblemKind::Incomplete, message);
            self.problems.push(problem);
        }
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
fn is_recording(path: &Path, found: &Metadata) -> bool {
    // Opening a pipe would block.
    if !found.is_file() {
        return false;
    }
    // So are all files of the system's own folders.
    if found.len() == 0 {
        return is_named_recording(path);
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn search(folder: &Path, most: usize) -> (usize, usize, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut search = Search {
            known: HashSet::new(),
            found: Vec::new(),
            entries: 0,
            most,
            problems: &mut problems,
        };
        search.folder(folder, MAX_FOLDER_DEPTH).expect("a folder");
        search.end(folder);
        let (entries, found) = (search.entries, search.found.len());
        (entries, found, problems)
    }

    #[test]
    fn each_entry_is_looked_at_once_however_many_links_lead_to_it() {
        for scale in [1, 4, 16] {
            let folder = tempfile::tempdir().expect("a folder");
            for number in 0..10 * scale {
                let inner = folder.path().join(format!("{number}"));
                std::fs::create_dir(&inner).expect("made");
                std::fs::write(inner.join("run.mcap"), "").expect("written");
                symlink(folder.path(), inner.join("up")).expect("linked");
            }
            let (entries, found, problems) = search(folder.path(), MAX_ENTRIES);
            assert_eq!((entries, found), (30 * scale, 10 * scale));
            assert!(problems.is_empty());
        }
    }

    #[test]
    fn a_search_ends_and_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..20 {
            let name = format!("{number:02}.mcap");
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let (_, found, problems) = search(folder.path(), 20);
        assert_eq!((found, problems.len()), (20, 0));
        let (_, found, problems) = search(folder.path(), 7);
        assert_eq!((found, problems.len()), (7, 1));
        assert!(problems[0].message.contains("more than 7 files"));
    }
}
