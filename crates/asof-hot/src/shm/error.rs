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
        "segment '{name}' holds {found}, this process expects {expected}: {}",
        advice(name, found, expected)
    )]
    Mismatch {
        /// Its name.
        name: String,
        /// What it holds.
        found: Box<SegmentLayout>,
        /// What was asked for.
        expected: Box<SegmentLayout>,
    },
    /// It was made with other settings: of timeouts, locks, or silence, on which a robot's safety depends.
    #[error(
        "segment '{name}' was made with other settings than this process asks for ({what}): make both the same and \
         remove the segment, or open it as it is"
    )]
    Settings {
        /// Its name.
        name: String,
        /// What differs, and how.
        what: String,
    },
    /// It belongs to another user.
    #[error(
        "segment '{name}' may not be opened by this user: its maker can let others in by its permissions, such as 0o660"
    )]
    NotAllowed {
        /// Its name.
        name: String,
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

/// What to do about a segment that holds something else.
fn advice(name: &str, found: &SegmentLayout, expected: &SegmentLayout) -> String {
    let is_same_struct = found.kind == expected.kind && found.type_name == expected.type_name;
    let remove = std::format!(
        "remove the segment (asof_hot::shm::remove(\"{name}\"), asof::remove(\"{name}\") or rm /dev/shm/{name})"
    );
    if is_same_struct && found.counts == expected.counts {
        let type_name = found.type_name;
        return std::format!(
            "the struct {type_name} has changed. Build all programs that use it from the same declaration, stop those \
             that run, then {remove}"
        );
    }
    if is_same_struct {
        return std::format!(
            "say the same numbers in all programs, stop those that run, then {remove}"
        );
    }
    std::format!("use another name for one of them; or, if what is there is not needed, {remove}")
}
