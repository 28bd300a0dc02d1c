//! Opening one file, by the format that its first bytes identify.

use std::path::Path;

use asof_core::{Source, SourceError};

use crate::file::{Format, FormatFile};
use crate::kind::{Kind, kind_by_front, kind_of, of_unknown_kind};
use crate::options::worth_telling;
use crate::pieces::KnownFile;
#[cfg(feature = "remote")]
use crate::remote::RemoteFile;
use crate::storage::{Storage, open_storage};
use crate::unpacked::{TemporaryRecording, unpack};
use crate::{BagFile, Db3File, GrowingMcapFile, McapFile, OpenOptions, UlogFile};

type Opened = Result<Box<dyn Source>, SourceError>;

/// Where a file is.
pub(super) enum Location<'a> {
    Disk(&'a Path),
    #[cfg(feature = "remote")]
    Server(Box<RemoteFile>),
}

/// Opens a file on disk under a name.
pub(super) fn open_file(path: &Path, name: String, options: &OpenOptions) -> Opened {
    if options.growing && GrowingMcapFile::is_one(path)? {
        return Ok(Box::new(GrowingMcapFile::open(path, options)?));
    }
    open_at(Location::Disk(path), name, options)
}

/// Opens a file whose pieces are known or noted; `None` if its format has no summary to be opened by, or it may grow.
pub(crate) fn open_known_file(
    file: KnownFile,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Source>>, SourceError> {
    if options.growing {
        return Ok(None);
    }
    let front = (&file as &dyn Storage).get(0, 16)?;
    Ok(Some(match kind_by_front(&front) {
        Kind::Mcap => opened(McapFile::from_storage(Box::new(file), options))?,
        Kind::Bag => opened(BagFile::from_storage(Box::new(file), options))?,
        _ => return Ok(None),
    }))
}

/// Opens a file by its format, and reads it in place if the format allows it.
pub(super) fn open_at(location: Location<'_>, name: String, options: &OpenOptions) -> Opened {
    match (location.kind()?, location) {
        (Kind::Mcap, at) => opened(McapFile::from_storage(at.storage(name, options)?, options)),
        (Kind::Bag, at) => opened(BagFile::from_storage(at.storage(name, options)?, options)),
        // It has no index, so over a network all of it is fetched once; each later read fetches its part.
        (Kind::Ulog, at) => opened(UlogFile::from_storage(at.storage(name, options)?, options)),
        (Kind::Sqlite, Location::Disk(path)) => opened(Db3File::open_as(path, name, options)),
        (Kind::Zstd, Location::Disk(path)) => open_packed(path, name, options),
        #[cfg(feature = "remote")]
        (kind @ (Kind::Sqlite | Kind::Zstd), Location::Server(file)) => {
            open_fetched(*file, kind, options)
        }
        // A file of unknown kind may still be a damaged MCAP file.
        (Kind::Unknown, at) => {
            let storage = at.storage(name.clone(), options)?;
            let is_empty = storage.size() == 0;
            opened(McapFile::from_storage(storage, options)).map_err(|error| {
                if is_empty {
                    error
                } else {
                    of_unknown_kind(&name, error)
                }
            })
        }
    }
}

impl Location<'_> {
    fn kind(&self) -> Result<Kind, SourceError> {
        match self {
            Location::Disk(path) => kind_of(path),
            #[cfg(feature = "remote")]
            Location::Server(file) => Ok(kind_by_front(&(&**file as &dyn Storage).get(0, 16)?)),
        }
    }

    fn storage(self, name: String, options: &OpenOptions) -> Result<Box<dyn Storage>, SourceError> {
        match self {
            Location::Disk(path) => open_storage(path, name, options.map),
            #[cfg(feature = "remote")]
            Location::Server(file) => Ok(file),
        }
    }
}

fn opened<F: Format>(file: Result<FormatFile<F>, SourceError>) -> Opened {
    Ok(Box::new(file?))
}

/// A file that was compressed as a whole.
fn open_packed(path: &Path, name: String, options: &OpenOptions) -> Opened {
    let size = std::fs::metadata(path).map_or(0, |found| found.len());
    if worth_telling(size) {
        options
            .notices
            .tell(&format!("unpacking {name} into a temporary file"));
    }
    let (file, problem) = unpack(path, &name, &options.limits)?;
    if kind_of(file.path())? == Kind::Zstd {
        return Err(SourceError::Unreadable {
            place: name,
            reason: "this file was compressed twice; decompress it first".into(),
        });
    }
    let inner = open_file(file.path(), name, options)?;
    Ok(Box::new(TemporaryRecording::new(inner, file, problem)))
}

/// Downloads a file that cannot be read in place.
#[cfg(feature = "remote")]
fn open_fetched(file: RemoteFile, kind: Kind, options: &OpenOptions) -> Opened {
    let name = file.name().to_owned();
    if worth_telling(file.size()) {
        let what = if kind == Kind::Sqlite {
            "an SQLite file"
        } else {
            "a file that was compressed as a whole"
        };
        let megabytes = file.size() / 1_000_000;
        options.notices.tell(&format!(
            "fetching all of {name} ({megabytes} MB) into a temporary file: {what} cannot be read in place"
        ));
    }
    let fetched = file.fetch_whole()?;
    drop(file);
    let inner = open_file(fetched.path(), name, options)?;
    Ok(Box::new(TemporaryRecording::new(inner, fetched, None)))
}
