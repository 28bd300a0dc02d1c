//! Opening an address: a recording, a ROS 2 bag, or a folder of a bucket.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use asof_core::{Problem, ProblemKind, Source, SourceError};
use object_store::Error;

use super::file::{Location, open_at};
use super::folder::{Part, as_one};
use crate::folder::{METADATA, is_hidden_name, is_named_recording, listed_in, names_of_part};
use crate::remote::{RemoteFile, RemotePlace};
use crate::storage::{REQUESTS_IN_FLIGHT, Storage};
use crate::{OpenOptions, without_secrets};

/// The largest bag description that is read.
const LONGEST_DESCRIPTION: u64 = 64 << 20;

/// Opens an address.
pub(super) fn open(address: &str, options: &OpenOptions) -> Result<Box<dyn Source>, SourceError> {
    let place = RemotePlace::of(address)?;
    if place.is_folder() {
        return open_folder(&place, options);
    }
    let found = match place.look() {
        Ok(found) => found,
        Err(error @ Error::NotFound { .. }) if place.is_in_bucket() => {
            let missing = place.unreadable(&error);
            return match place.list() {
                Ok(paths) if !paths.is_empty() => open_listed(&place, &paths, options),
                _ => Err(missing),
            };
        }
        Err(error) => return Err(place.unreadable(&error)),
    };
    let is_description = place.file_name().ends_with(METADATA);
    let file = RemoteFile::found(&place, found);
    if is_description && let Some(listed) = description(&file)? {
        return open_described(&place, &listed, |name| place.address_beside(name), options);
    }
    open_remote_file(file, options)
}

/// A file on a server, read in place if its format allows it.
pub(crate) fn open_remote_file(
    file: RemoteFile,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, SourceError> {
    let name = file.name().to_owned();
    open_at(Location::Server(Box::new(file)), name, options)
}

/// The files that a bag's description lists; `None` if the file is not a description.
fn description(file: &RemoteFile) -> Result<Option<Vec<String>>, SourceError> {
    if file.size() > LONGEST_DESCRIPTION {
        return Ok(None);
    }
    let text = (file as &dyn Storage).get(0, file.size())?;
    Ok(std::str::from_utf8(&text).ok().and_then(listed_in))
}

fn open_folder(place: &RemotePlace, options: &OpenOptions) -> Result<Box<dyn Source>, SourceError> {
    if place.is_in_bucket() {
        let paths = place.list().map_err(|error| place.unreadable(&error))?;
        return open_listed(place, &paths, options);
    }
    // A web server does not list a folder; a bag's description does.
    let file = match RemoteFile::open(&place.address_of(METADATA)) {
        Ok(file) => file,
        Err(SourceError::Unreadable { reason, .. }) => {
            return Err(SourceError::Unreadable {
                place: place.address.clone(),
                reason: format!(
                    "a web server does not list folders, and there is no readable {METADATA} of a ROS 2 bag ({reason}); name a recording"
                ),
            });
        }
        Err(error) => return Err(error),
    };
    match description(&file)? {
        Some(listed) => open_described(place, &listed, |name| place.address_of(name), options),
        None => Err(SourceError::Unreadable {
            place: file.name().to_owned(),
            reason: "this is not a description of a ROS 2 bag; name the recording itself".into(),
        }),
    }
}

/// The bag that a description on a web server or in a bucket describes.
fn open_described(
    place: &RemotePlace,
    listed: &[String],
    address_of: impl Fn(&str) -> String + Sync,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, SourceError> {
    let mut problems = Vec::new();
    let mut parts = Vec::new();
    let found = at_once(listed, |name| open_listed_part(name, &address_of, options));
    for (name, part) in listed.iter().zip(found) {
        match part {
            Some(part) => parts.push(part),
            None => problems.push(missing(name)),
        }
    }
    as_one(parts, problems, |problems| {
        nothing_in(&place.address, problems)
    })
}

/// A part of a bag under the first of its names that exists; `None` if none does.
fn open_listed_part(
    name: &str,
    address_of: impl Fn(&str) -> String,
    options: &OpenOptions,
) -> Option<Part> {
    let addresses = names_of_part(name)
        .into_iter()
        .map(|name| address_of(&name));
    for address in addresses {
        let opened = RemotePlace::of(&address).and_then(|place| match place.look() {
            Ok(found) => open_remote_file(RemoteFile::found(&place, found), options).map(Some),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(place.unreadable(&error)),
        });
        if let Some(opened) = opened.transpose() {
            return Some((PathBuf::from(without_secrets(&address)), opened));
        }
    }
    None
}

/// Everything in a folder of a bucket with the name of a recording.
fn open_listed(
    place: &RemotePlace,
    paths: &[String],
    options: &OpenOptions,
) -> Result<Box<dyn Source>, SourceError> {
    let mut problems = Vec::new();
    for path in paths {
        let Some(folder) = path
            .strip_suffix(METADATA)
            .filter(|folder| folder.is_empty() || folder.ends_with('/'))
        else {
            continue;
        };
        let listed = match RemoteFile::open(&place.address_of(path)).map(|file| description(&file))
        {
            Ok(Ok(listed)) => listed.unwrap_or_default(),
            Ok(Err(error)) | Err(error) => {
                let message = error.to_string();
                problems.push(Problem::whole(ProblemKind::Incomplete, message));
                continue;
            }
        };
        let is_there = |name: &String| paths.contains(&format!("{folder}{name}"));
        let lost = listed
            .iter()
            .filter(|name| !names_of_part(name).iter().any(is_there));
        problems.extend(lost.map(|name| missing(name)));
    }
    let files: Vec<String> = paths
        .iter()
        .filter(|path| !path.split('/').any(is_hidden_name))
        .filter(|path| is_named_recording(Path::new(path)))
        .map(|path| place.address_of(path))
        .collect();
    let opened = at_once(&files, |address| open(address, options));
    let names = files
        .iter()
        .map(|file| PathBuf::from(without_secrets(file)));
    let parts = names.zip(opened);
    as_one(parts, problems, |problems| {
        nothing_in(&place.address, problems)
    })
}

fn missing(name: &str) -> Problem {
    let message = format!("{METADATA} lists {name}, which is not beside it");
    Problem::whole(ProblemKind::Incomplete, message)
}

fn nothing_in(address: &str, problems: &[Problem]) -> SourceError {
    let reason = match problems.first() {
        Some(first) => format!("no recording found: {}", first.message),
        None => "nothing there is named like a recording (.mcap, .bag, .db3, .ulg); name the recording itself".to_owned(),
    };
    SourceError::Unreadable {
        place: address.to_owned(),
        reason,
    }
}

/// Runs work that is mostly waiting concurrently; the results are in the order of the inputs.
fn at_once<T: Sync, R: Send>(inputs: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..REQUESTS_IN_FLIGHT.min(inputs.len()) {
            scope.spawn(|| {
                while let Some((number, input)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    inputs.get(number).map(|input| (number, input))
                } {
                    let result = work(input);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
