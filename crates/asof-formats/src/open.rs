//! Opening a place as what it is: a file, a folder, or several.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use asof_core::SourceError;

use crate::folder::{open_described, open_folder};
use crate::storage::{Mapped, Plain, Storage};
use crate::unpacked::{Unpacked, unpack};
use crate::{
    BagFile, Db3File, DecompressionLimits, Definitions, GrowingMcapFile, McapFile, McapOptions,
    Merged, Recording, UlogFile,
};

/// Schemes of files on web servers and in buckets; they are read with the feature `remote`.
pub const REMOTE_SCHEMES: [&str; 9] = [
    "http", "https", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss",
];

/// How places are opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Threads that decompress, the reader's own among them; with more than 1, some do it ahead of the reader.
    pub threads: usize,
    /// Definitions of types for recordings that have none.
    pub definitions: Definitions,
    /// Map files into memory. Without it they are read piece by piece, which is slower where pieces are read
    /// again, and takes no more memory than the pieces.
    pub map: bool,
    /// Read the messages of a db3 from its mapped pages, also where nothing else is to be mapped: SQLite takes
    /// longer. Of the pages at most 128 MB count as memory of this process at any time.
    pub map_pages: bool,
    /// Who is told, before it begins, of what takes long.
    pub notices: Notices,
    /// How much compressed data may become.
    pub limits: DecompressionLimits,
    /// Take an MCAP file that lacks its end for one that is being written: it [grows](asof_core::Source::growth), and
    /// can be followed. Nothing in such a file tells whether its writer is at work or was killed, so whoever opens it
    /// says what it is; otherwise it is a recording that was cut. Files that are complete, and those of other formats,
    /// are opened as ever.
    pub growing: bool,
}

/// Somebody who is told of things that take long, in a sentence each; nobody by default.
///
/// ```
/// let options = asof_formats::OpenOptions {
///     notices: asof_formats::Notices::to(|sentence| eprintln!("{sentence}")),
///     ..Default::default()
/// };
/// ```
#[derive(Clone, Default)]
pub struct Notices(Option<Arc<Listener>>);

type Listener = dyn Fn(&str) + Send + Sync;

impl Notices {
    /// Tells this function.
    pub fn to(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Notices(Some(Arc::new(listener)))
    }

    pub(crate) fn tell(&self, sentence: &str) {
        if let Some(listener) = &self.0 {
            listener(sentence);
        }
    }
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "Notices(to one)"
        } else {
            "Notices(to nobody)"
        })
    }
}

/// Whether somebody would wonder why so many bytes take so long.
pub(crate) fn worth_telling(bytes: u64) -> bool {
    bytes >= 64_000_000
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            threads: crate::default_threads(),
            definitions: Definitions::standard(),
            map: true,
            map_pages: true,
            notices: Notices::default(),
            limits: DecompressionLimits::default(),
            growing: false,
        }
    }
}

impl OpenOptions {
    /// What of it matters to an MCAP file.
    pub(crate) fn for_mcap(&self) -> McapOptions {
        McapOptions {
            threads: self.threads,
            limits: self.limits,
        }
    }
}

/// Opens a recording, whatever its name: the first bytes decide.
///
/// A folder is a ROS 2 bag where it has a `metadata.yaml`, and otherwise all recordings in it as one; a
/// `metadata.yaml` stands for the bag that it describes.
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
        return crate::remote::open(address, options);
    }
    if path.is_dir() {
        return open_folder(path, options);
    }
    if let Some(opened) = open_described(path, options) {
        return opened;
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
pub(crate) enum Kind {
    Mcap,
    Bag,
    Sqlite,
    Ulog,
    Zstd,
    Unknown,
}

pub(crate) fn kind_of(path: &Path) -> Result<Kind, SourceError> {
    let mut front = Vec::new();
    File::open(path)
        .and_then(|file| file.take(16).read_to_end(&mut front))
        .map_err(|cause| failed(path, cause))?;
    Ok(kind_by_front(&front))
}

pub(crate) fn kind_by_front(front: &[u8]) -> Kind {
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

pub(crate) fn open_file(
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
    if options.growing && is_growing(path)? {
        let growing = GrowingMcapFile::open(path, options.for_mcap())?;
        return Ok(Box::new(growing));
    }
    match kind_of(path)? {
        Kind::Bag => Ok(Box::new(BagFile::with_limits(
            storage(name)?,
            threads,
            options.limits,
        )?)),
        Kind::Sqlite => Ok(Box::new(Db3File::open_as(path, name, options)?)),
        Kind::Zstd => {
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
            Ok(Box::new(Unpacked::new(inner, file, problem)))
        }
        Kind::Ulog => Ok(Box::new(UlogFile::from_storage(storage(name)?, threads)?)),
        Kind::Mcap => Ok(Box::new(McapFile::from_storage(
            storage(name)?,
            options.for_mcap(),
        )?)),
        // What starts like nothing known may still be a damaged MCAP file.
        Kind::Unknown => McapFile::from_storage(storage(name)?, options.for_mcap())
            .map(|file| Box::new(file) as Box<dyn Recording>)
            .map_err(|error| {
                let is_empty = std::fs::metadata(path).is_ok_and(|found| found.len() == 0);
                if is_empty {
                    error
                } else {
                    of_unknown_kind(path, error)
                }
            }),
    }
}

/// Whether a file may become an MCAP file, or is one without its end.
fn is_growing(path: &Path) -> Result<bool, SourceError> {
    let plain = Plain::open(path).map_err(|cause| failed(path, cause))?;
    let storage: &dyn Storage = &plain;
    let magic = MAGIC;
    let front = storage.get(0, magic.len() as u64)?;
    let back = storage.size().saturating_sub(magic.len() as u64);
    let has_end = back > 0 && storage.get(back, magic.len() as u64)? == magic;
    Ok(magic.starts_with(&front) && !has_end)
}

/// What every MCAP file begins and ends with.
const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// Why a file cannot be opened, in words about that kind of recording that its name says it is.
pub(crate) fn of_unknown_kind(path: &Path, error: SourceError) -> SourceError {
    let SourceError::Unreadable { place, reason } = error else {
        return error;
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    let reason = match extension {
        Some("mcap") => reason,
        Some("bag" | "active") => {
            "this is not a ROS 1 bag: it does not start with '#ROSBAG V2.0'".to_owned()
        }
        Some("db3") => "this is not a ROS 2 bag: it does not start as SQLite files do".to_owned(),
        Some("ulg") => "this is not a PX4 log: it does not start with 'ULog'".to_owned(),
        _ => "this is not a recording that asof can read: it starts like none of MCAP, ROS 1 bags, ROS 2 bags (db3) and PX4 logs (ULog)".to_owned(),
    };
    SourceError::Unreadable { place, reason }
}

pub(crate) fn failed(path: &Path, cause: std::io::Error) -> SourceError {
    SourceError::Io {
        place: path.display().to_string(),
        offset: 0,
        cause,
    }
}
