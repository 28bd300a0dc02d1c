//! The kind of a file: by its first bytes, and by its name if those are damaged.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use asof_core::SourceError;

use crate::filling::ZSTD;
use crate::storage::failed;

/// The kind of a file, by its first bytes.
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
    } else if starts(&ZSTD) {
        Kind::Zstd
    } else {
        Kind::Unknown
    }
}

/// The kind of the contents of a zstd file, by their first bytes.
pub(crate) fn kind_inside(path: &Path) -> Kind {
    let mut front = Vec::new();
    let read = File::open(path)
        .and_then(zstd::Decoder::new)
        .and_then(|reader| reader.take(16).read_to_end(&mut front));
    read.map_or(Kind::Unknown, |_| kind_by_front(&front))
}

/// Why a file cannot be opened, in terms of the kind of recording that its name suggests.
pub(crate) fn of_unknown_kind(name: &str, error: SourceError) -> SourceError {
    let SourceError::Unreadable { place, reason } = error else {
        return error;
    };
    // An address may have a query after its path.
    let path = if name.contains("://") {
        name.split(['?', '#']).next().unwrap_or_default()
    } else {
        name
    };
    let extension = Path::new(path).extension();
    let reason = match extension.and_then(|extension| extension.to_str()) {
        Some("mcap") => reason,
        Some("bag" | "active") => {
            "this is not a ROS 1 bag: it does not start with '#ROSBAG V2.0'".to_owned()
        }
        Some("db3") => "this is not a ROS 2 bag: it does not start like an SQLite file".to_owned(),
        Some("ulg") => "this is not a PX4 log: it does not start with 'ULog'".to_owned(),
        _ => "this is not a recording that asof can read: its first bytes are not those of MCAP, a ROS 1 bag, a ROS 2 bag (db3) or a PX4 log (ULog)".to_owned(),
    };
    SourceError::Unreadable { place, reason }
}
