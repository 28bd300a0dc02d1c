//! Opening a folder: a ROS 2 bag, or all recordings in it as one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use asof_core::{Problem, ProblemKind, Source, SourceError};

use super::file::open_file;
use crate::folder::{MAX_FOLDER_DEPTH, METADATA, existing, parts_by_metadata, recordings_in};
use crate::kind::{Kind, kind_of};
use crate::{Merged, OpenOptions};

/// A ROS 2 bag, or all recordings in a folder and its subfolders.
pub(super) fn open_folder(
    folder: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, SourceError> {
    let mut problems = Vec::new();
    let files = match parts_by_metadata(&folder.join(METADATA))? {
        Some(listed) => match existing(folder, listed, &mut problems) {
            // The recording was renamed.
            none if none.is_empty() => recordings_in(folder, 0, &mut problems)?,
            found => found,
        },
        None => recordings_in(folder, MAX_FOLDER_DEPTH, &mut problems)?,
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

/// The bag that a `metadata.yaml` describes: the folder that it is in, or, for a `run.metadata.yaml`, the files beside
/// it.
pub(super) fn open_described(
    path: &Path,
    options: &OpenOptions,
) -> Option<Result<Box<dyn Source>, SourceError>> {
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
) -> Result<Box<dyn Source>, SourceError> {
    let unreadable = |reason: &str| SourceError::Unreadable {
        place: path.display().to_string(),
        reason: reason.to_owned(),
    };
    let Some(listed) = parts_by_metadata(path)? else {
        let reason = "this is neither a recording nor the description of a ROS 2 bag; name the recording itself";
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
        // The recording was renamed with its description.
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

/// One of several files, and whether it could be opened.
pub(super) type Part = (PathBuf, Result<Box<dyn Source>, SourceError>);

fn opened(files: Vec<PathBuf>, options: &OpenOptions) -> impl Iterator<Item = Part> {
    files.into_iter().filter_map(|file| {
        let opened = if file.is_dir() {
            open_folder(&file, options)
        } else {
            open_file(&file, file.display().to_string(), options)
        };
        let is_ours = !matches!(&opened, Err(error) if is_another_database(&file, error));
        is_ours.then_some((file, opened))
    })
}

/// All files that could be opened, as one recording; the others are among its problems.
pub(super) fn as_one(
    opened: impl IntoIterator<Item = Part>,
    mut problems: Vec<Problem>,
    nothing: impl FnOnce(&[Problem]) -> SourceError,
) -> Result<Box<dyn Source>, SourceError> {
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

/// SQLite files are common; one that is not a bag, and not named like one, is not worth reporting.
fn is_another_database(file: &Path, error: &SourceError) -> bool {
    let is_named_bag = file.extension().is_some_and(|extension| extension == "db3");
    !is_named_bag
        && matches!(error, SourceError::Unreadable { .. })
        && kind_of(file).is_ok_and(|kind| kind == Kind::Sqlite)
}
