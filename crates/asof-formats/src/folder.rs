//! Folders: a ROS 2 bag, or all recordings that lie in one.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use asof_core::{Problem, ProblemKind, SourceError};

use crate::open::{Kind, failed, kind_of, open_with};
use crate::unpacked::kind_inside;
use crate::yaml::first_document;
use crate::{Merged, OpenOptions, Recording};

/// How deep the folders of a folder are searched.
const DEEPEST: usize = 8;
/// What a ROS 2 bag is described in.
pub(crate) const METADATA: &str = "metadata.yaml";

/// A ROS 2 bag, or all recordings in a folder and the folders in it.
pub(crate) fn open_folder(
    folder: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Recording>, SourceError> {
    let mut problems = Vec::new();
    let files = match parts_by_metadata(&folder.join(METADATA))? {
        Some(listed) => match existing(folder, listed, &mut problems) {
            // Somebody gave the recording another name.
            none if none.is_empty() => recordings_in(folder, 0, &mut problems)?,
            found => found,
        },
        None => recordings_in(folder, DEEPEST, &mut problems)?,
    };
    let nothing = |problems: &[Problem]| SourceError::Unreadable {
        place: folder.display().to_string(),
        reason: match problems.first() {
            Some(missing) => format!(
                "there is no recording in this folder: {}; copy it here from where the bag was recorded",
                missing.message
            ),
            None => "there is no recording in this folder".into(),
        },
    };
    as_one(opened(files, options), problems, nothing)
}

/// The bag that a `metadata.yaml` belongs to, where that is what a path names: the folder that it lies in, or
/// of a `run.metadata.yaml` the files beside it.
pub(crate) fn open_described(
    path: &Path,
    options: &OpenOptions,
) -> Option<Result<Box<dyn Recording>, SourceError>> {
    let name = path.file_name()?.to_str()?;
    let stem = match name.strip_suffix(METADATA)? {
        "" => None,
        stem => Some(stem.strip_suffix('.')?),
    };
    path.is_file()
        .then(|| open_by_description(path, stem, options))
}

fn open_by_description(
    path: &Path,
    stem: Option<&str>,
    options: &OpenOptions,
) -> Result<Box<dyn Recording>, SourceError> {
    let unreadable = |reason: &str| SourceError::Unreadable {
        place: path.display().to_string(),
        reason: reason.to_owned(),
    };
    let Some(listed) = parts_by_metadata(path)? else {
        let reason =
            "this is not a recording, and no description of a ROS 2 bag; name the recording itself";
        return Err(unreadable(reason));
    };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(stem) = stem else {
        return open_folder(folder, options);
    };
    let mut problems = Vec::new();
    let mut files = existing(folder, listed, &mut problems);
    if files.is_empty() {
        // Whoever renamed the description renamed the recording with it.
        problems.clear();
        files = recordings_in(folder, 0, &mut Vec::new())?;
        let start = format!("{stem}.");
        files.retain(|file| {
            let name = file.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.starts_with(&start)) && file.is_file()
        });
    }
    let nothing = |_: &[Problem]| {
        unreadable(
            "this describes a ROS 2 bag whose recordings are not beside it; name the recording itself",
        )
    };
    as_one(opened(files, options), problems, nothing)
}

/// A file among others, and whether it could be opened.
pub(crate) type Part = (PathBuf, Result<Box<dyn Recording>, SourceError>);

fn opened(files: Vec<PathBuf>, options: &OpenOptions) -> impl Iterator<Item = Part> {
    files.into_iter().filter_map(|file| {
        let opened = open_with(&file, options);
        let is_ours = !matches!(&opened, Err(error) if is_another_database(&file, error));
        is_ours.then_some((file, opened))
    })
}

/// All that could be opened, as one recording; what could not is a problem of it.
pub(crate) fn as_one(
    opened: impl IntoIterator<Item = Part>,
    mut problems: Vec<Problem>,
    nothing: impl FnOnce(&[Problem]) -> SourceError,
) -> Result<Box<dyn Recording>, SourceError> {
    let mut parts = Vec::new();
    let mut last_error = None;
    for (file, opened) in opened {
        match opened {
            Ok(recording) => parts.push((file.display().to_string(), recording)),
            Err(error) => {
                problems.push(Problem::whole(ProblemKind::Incomplete, error.to_string()));
                last_error = Some(error);
            }
        }
    }
    if parts.is_empty() {
        return Err(last_error.unwrap_or_else(|| nothing(&problems)));
    }
    if parts.len() == 1 && problems.is_empty() {
        return Ok(parts.remove(0).1);
    }
    Ok(Box::new(Merged::with_problems(parts, problems)))
}

/// SQLite files are everywhere; one that is not a bag, and is not called one, is nobody's loss.
fn is_another_database(file: &Path, error: &SourceError) -> bool {
    let is_named_bag = file.extension().is_some_and(|extension| extension == "db3");
    !is_named_bag
        && matches!(error, SourceError::Unreadable { .. })
        && kind_of(file).is_ok_and(|kind| kind == Kind::Sqlite)
}

/// The files that a ROS 2 bag's `metadata.yaml` lists; `None` where there is none that can be read.
fn parts_by_metadata(path: &Path) -> Result<Option<Vec<String>>, SourceError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // What is not text is not a description either.
        Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(None),
        Err(cause) => return Err(failed(path, cause)),
    };
    Ok(listed_in(&text))
}

/// The files that the description of a ROS 2 bag lists; `None` where a text is none. The recordings themselves know
/// everything else that is needed.
pub(crate) fn listed_in(text: &str) -> Option<Vec<String>> {
    let document = first_document(text)?;
    let about = &document["rosbag2_bagfile_information"];
    let paths = about["relative_file_paths"].as_vec()?;
    let names = paths.iter().filter_map(|path| path.as_str());
    Some(names.map(str::to_owned).collect())
}

/// What a listed file may really be called: early versions wrote the folder's name before it, and compression adds an
/// ending. Never anything outside of the folder, whatever the list says.
pub(crate) fn names_of_part(listed: &str) -> Vec<String> {
    let name = Path::new(listed).file_name().and_then(OsStr::to_str);
    let endings = name.map(|name| ["", ".zstd", ".zst"].map(|ending| format!("{name}{ending}")));
    endings.into_iter().flatten().collect()
}

/// Where the listed files really are.
fn existing(folder: &Path, listed: Vec<String>, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
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
fn recordings_in(
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
    /// Files and folders that were met, by their real paths.
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
        // What is here by itself comes before links to it, such as one to the latest recording.
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

/// Such as files that are still being written by a program that names them so, and what systems keep beside files.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(is_hidden_name)
}

pub(crate) fn is_hidden_name(name: &str) -> bool {
    name.starts_with('.')
}

/// Whether a file is a recording, or at least named like one: then whoever opens it says what is wrong with it.
fn is_recording(path: &Path) -> bool {
    // A pipe would be waited for.
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
