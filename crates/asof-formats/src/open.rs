//! Opening a place as what it is: a file, a folder, or several.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use asof_core::{Problem, ProblemKind, SourceError};

use crate::storage::{Mapped, Plain, Storage};
use crate::unpacked::{Unpacked, unpack};
use crate::{BagFile, Db3File, Definitions, McapFile, McapOptions, Merged, Recording, UlogFile};

/// How places are opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Threads that decompress ahead of a reader; with 1, the reader does it itself.
    pub threads: usize,
    /// Definitions of types for recordings that have none.
    pub definitions: Definitions,
    /// Map files into memory. Without it they are read piece by piece, which is slower where pieces are read
    /// again, and takes no more memory than the pieces.
    pub map: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            threads: crate::default_threads(),
            definitions: Definitions::standard(),
            map: true,
        }
    }
}

/// Opens a recording, whatever its name: the first bytes decide.
///
/// A folder is a ROS 2 bag where it has a `metadata.yaml`, and otherwise all recordings in it as one.
///
/// # Errors
/// When it cannot be read, or is nothing that asof can read; the error says what it is.
pub fn open(place: impl AsRef<Path>) -> Result<Box<dyn Recording>, SourceError> {
    open_with(place, &OpenOptions::default())
}

/// [`open`], with options.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    place: impl AsRef<Path>,
    options: &OpenOptions,
) -> Result<Box<dyn Recording>, SourceError> {
    let path = place.as_ref();
    #[cfg(feature = "remote")]
    if let Some(address) = crate::remote::address(path) {
        return open_remote(address, options);
    }
    if path.is_dir() {
        return open_folder(path, options);
    }
    open_file(path, path.display().to_string(), options)
}

/// Opens several places as one recording, merged by time.
///
/// # Errors
/// When one of them cannot be opened, or none is given.
pub fn open_all<P: AsRef<Path>>(
    places: &[P],
    options: &OpenOptions,
) -> Result<Box<dyn Recording>, SourceError> {
    match places {
        [] => Err(SourceError::Unreadable {
            place: "(nothing)".into(),
            reason: "name at least one recording".into(),
        }),
        [place] => open_with(place, options),
        places => {
            let open = |place: &P| {
                let name = place.as_ref().display().to_string();
                Ok((name, open_with(place, options)?))
            };
            let parts = places
                .iter()
                .map(open)
                .collect::<Result<_, SourceError>>()?;
            Ok(Box::new(Merged::new(parts)))
        }
    }
}

/// What a file is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mcap,
    Bag,
    Sqlite,
    Ulog,
    Zstd,
    Unknown,
}

fn kind_of(path: &Path) -> Result<Kind, SourceError> {
    let mut front = Vec::new();
    File::open(path)
        .and_then(|file| file.take(16).read_to_end(&mut front))
        .map_err(|cause| failed(path, cause))?;
    Ok(kind_by_front(&front))
}

fn kind_by_front(front: &[u8]) -> Kind {
    let starts = |magic: &[u8]| front.starts_with(magic);
    if starts(b"\x89MCAP") {
        Kind::Mcap
    } else if starts(b"#ROSBAG V") || starts(b"#ROSRECORD V") {
        Kind::Bag
    } else if starts(b"SQLite format 3") {
        Kind::Sqlite
    } else if starts(b"ULog\x01") || starts(b"ULogEnc") {
        Kind::Ulog
    } else if starts(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Kind::Zstd
    } else {
        Kind::Unknown
    }
}

/// A file on a network, read in place where its format allows that.
#[cfg(feature = "remote")]
fn open_remote(address: &str, options: &OpenOptions) -> Result<Box<dyn Recording>, SourceError> {
    let storage: Box<dyn Storage> = Box::new(crate::RemoteFile::open(address)?);
    let threads = options.threads.max(REQUESTS_IN_FLIGHT);
    let refused = |what: &str| {
        Err(SourceError::Unreadable {
            place: address.to_owned(),
            reason: format!("{what} cannot be read in place over a network; download it first"),
        })
    };
    match kind_by_front(&storage.get(0, 16)?) {
        Kind::Bag => Ok(Box::new(BagFile::from_storage(storage, threads)?)),
        Kind::Mcap | Kind::Unknown => Ok(Box::new(McapFile::from_storage(
            storage,
            McapOptions { threads },
        )?)),
        Kind::Sqlite => refused("an SQLite file"),
        Kind::Zstd => refused("a file that was compressed as a whole"),
        // It has no index, so all of it comes over the network, once; each reading after that fetches its part.
        Kind::Ulog => Ok(Box::new(UlogFile::from_storage(storage, threads)?)),
    }
}

/// Threads that load ahead wait for the network rather than compute, so there are more of them than cores.
#[cfg(feature = "remote")]
const REQUESTS_IN_FLIGHT: usize = 4;

fn open_file(
    path: &Path,
    name: String,
    options: &OpenOptions,
) -> Result<Box<dyn Recording>, SourceError> {
    let threads = options.threads;
    let storage = |name: String| -> Result<Box<dyn Storage>, SourceError> {
        let storage = if options.map {
            Mapped::open(path).map(|mapped| Box::new(mapped.named(name)) as Box<dyn Storage>)
        } else {
            Plain::open(path).map(|plain| Box::new(plain.named(name)) as Box<dyn Storage>)
        };
        storage.map_err(|cause| failed(path, cause))
    };
    match kind_of(path)? {
        Kind::Bag => Ok(Box::new(BagFile::from_storage(storage(name)?, threads)?)),
        Kind::Sqlite => Ok(Box::new(Db3File::open_as(path, name, options)?)),
        Kind::Zstd => {
            let (file, problem) = unpack(path)?;
            if kind_of(&file)? == Kind::Zstd {
                return Err(SourceError::Unreadable {
                    place: name,
                    reason: "this file was compressed twice; decompress it first".into(),
                });
            }
            let inner = open_file(&file, name, options)?;
            Ok(Box::new(Unpacked::new(inner, file, problem)))
        }
        Kind::Ulog => Ok(Box::new(UlogFile::from_storage(storage(name)?, threads)?)),
        // What starts like nothing known may still be a damaged MCAP file, whose reader says what it found.
        Kind::Mcap | Kind::Unknown => Ok(Box::new(McapFile::from_storage(
            storage(name)?,
            McapOptions { threads },
        )?)),
    }
}

/// A ROS 2 bag, or all recordings in a folder and the folders in it.
fn open_folder(folder: &Path, options: &OpenOptions) -> Result<Box<dyn Recording>, SourceError> {
    let mut problems = Vec::new();
    let files = match parts_by_metadata(folder)? {
        Some(listed) => match existing(folder, listed, &mut problems) {
            // Somebody gave the recording another name.
            none if none.is_empty() => recordings_in(folder, 0)?,
            found => found,
        },
        None => recordings_in(folder, 3)?,
    };
    let mut parts = Vec::new();
    let mut last_error = None;
    for file in files {
        let name = file.display().to_string();
        match open_with(&file, options) {
            Ok(recording) => parts.push((name, recording)),
            Err(error) => {
                problems.push(Problem::whole(ProblemKind::Incomplete, error.to_string()));
                last_error = Some(error);
            }
        }
    }
    if parts.is_empty() {
        return Err(last_error.unwrap_or_else(|| SourceError::Unreadable {
            place: folder.display().to_string(),
            reason: match problems.first() {
                Some(missing) => format!(
                    "there is no recording in this folder: {}; copy it here from where the bag was recorded",
                    missing.message
                ),
                None => "there is no recording in this folder".into(),
            },
        }));
    }
    if parts.len() == 1 && problems.is_empty() {
        return Ok(parts.remove(0).1);
    }
    Ok(Box::new(Merged::with_problems(parts, problems)))
}

/// The files that a ROS 2 bag's `metadata.yaml` lists; `None` where there is none that can be read.
fn parts_by_metadata(folder: &Path) -> Result<Option<Vec<String>>, SourceError> {
    let path = folder.join("metadata.yaml");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(failed(&path, cause)),
    };
    let Ok(documents) = yaml_rust2::YamlLoader::load_from_str(&text) else {
        // The recordings themselves know everything that is needed.
        return Ok(None);
    };
    let paths = documents.first().and_then(|document| {
        document["rosbag2_bagfile_information"]["relative_file_paths"].as_vec()
    });
    let Some(paths) = paths else { return Ok(None) };
    let names = paths.iter().filter_map(|path| path.as_str());
    Ok(Some(names.map(str::to_owned).collect()))
}

/// Where the listed files really are: early versions wrote the folder's name before them, and compression
/// adds an ending to the name.
fn existing(folder: &Path, listed: Vec<String>, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in listed {
        let file_name = Path::new(&name).file_name().map(PathBuf::from);
        let candidates = file_name.iter().flat_map(|file| {
            ["", ".zstd", ".zst"].map(|ending| {
                let mut path = folder.join(file).into_os_string();
                path.push(ending);
                PathBuf::from(path)
            })
        });
        // Never outside of the folder, whatever the list says.
        if let Some(path) = candidates.into_iter().find(|path| path.is_file()) {
            found.push(path);
        } else {
            let message = format!("metadata.yaml lists {name}, which is not in the folder");
            problems.push(Problem::whole(ProblemKind::Incomplete, message));
        }
    }
    found
}

fn recordings_in(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, SourceError> {
    let entries = std::fs::read_dir(folder).map_err(|cause| failed(folder, cause))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            if path.join("metadata.yaml").is_file() {
                found.push(path);
            } else if depth > 0 {
                found.extend(recordings_in(&path, depth - 1).unwrap_or_default());
            }
        } else if kind_of(&path).is_ok_and(|kind| kind != Kind::Unknown) {
            found.push(path);
        }
    }
    Ok(found)
}

fn failed(path: &Path, cause: std::io::Error) -> SourceError {
    SourceError::Io {
        place: path.display().to_string(),
        offset: 0,
        cause,
    }
}
