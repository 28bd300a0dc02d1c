//! Opening a file as what it is.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use asof_core::SourceError;

use crate::{BagFile, McapFile, Recording};

/// Opens a recording, whatever its name: the first bytes decide.
///
/// # Errors
/// When the file cannot be read, or is nothing that asof can read yet; the error says what it is.
pub fn open(path: impl AsRef<Path>) -> Result<Box<dyn Recording>, SourceError> {
    let path = path.as_ref();
    let place = || path.display().to_string();
    let refused = |reason: &str| {
        Err(SourceError::Unreadable {
            place: place(),
            reason: reason.to_owned(),
        })
    };
    let io = |cause| SourceError::Io {
        place: place(),
        offset: 0,
        cause,
    };
    if path.is_dir() {
        return refused("this is a folder; name one of the .mcap files in it");
    }
    let mut front = Vec::new();
    File::open(path)
        .and_then(|file| file.take(16).read_to_end(&mut front))
        .map_err(io)?;
    if front.starts_with(b"#ROSBAG V") || front.starts_with(b"#ROSRECORD V") {
        return Ok(Box::new(BagFile::open(path)?));
    }
    if front.starts_with(b"SQLite format 3") {
        return refused(
            "this is an SQLite file, perhaps a ROS 2 .db3 bag, which asof cannot read yet; convert it to MCAP",
        );
    }
    if front.starts_with(b"ULog\x01") {
        return refused("this is a PX4 ULog, which asof cannot read yet; convert it to MCAP");
    }
    Ok(Box::new(McapFile::open(path)?))
}
