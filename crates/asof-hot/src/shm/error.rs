//! What can be wrong with a segment.

use std::boxed::Box;
use std::string::String;

use super::SegmentLayout;

/// Why a segment, or an end of it, cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// The name cannot be a file's.
    #[error("'{0}' cannot name a segment: use 1 to 200 visible characters, no '/', no '.' first")]
    BadName(String),
    /// The other language asked for something that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// `create` of something that is there.
    #[error("segment '{name}' is already there: open it, or remove it first")]
    AlreadyThere {
        /// Its name.
        name: String,
    },
    /// `open` of something that is not.
    #[error(
        "segment '{name}' is not there: start the process that creates it, or use open_or_create"
    )]
    NotThere {
        /// Its name.
        name: String,
    },
    /// The one who creates it has not finished, and may be dead.
    #[error("segment '{name}' was begun but never finished: open_or_create finishes it")]
    Unfinished {
        /// Its name.
        name: String,
    },
    /// Some other file.
    #[error("'{name}' is in shared memory, but not a segment of asof-hot")]
    NotASegment {
        /// Its name.
        name: String,
    },
    /// Made by another version of this crate.
    #[error(
        "segment '{name}' has layout {found}, this process speaks layout {expected}: rebuild the older of the two, then remove the segment"
    )]
    Version {
        /// Its name.
        name: String,
        /// Its layout.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// It holds another structure, or other values.
    #[error(
        "segment '{name}' holds {found:?}, this process expects {expected:?}: make both the same, then remove the segment"
    )]
    Mismatch {
        /// Its name.
        name: String,
        /// What it holds.
        found: Box<SegmentLayout>,
        /// What was asked for.
        expected: Box<SegmentLayout>,
    },
    /// Another end of this kind is alive.
    #[error(
        "this end of the segment is held by a process that is alive: there can be one at a time"
    )]
    Taken,
    /// There are not so many of these ends.
    #[error("there is no end number {number}: the segment was made with {count}, counted from 0")]
    NoSuchEnd {
        /// The one asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// A segment opened to read cannot be written.
    #[error("the segment was opened to read only: use open for ends that write")]
    ReadOnly,
    /// What the system says.
    #[error("{action} of shared memory failed: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What came back.
        source: std::io::Error,
    },
}
