//! Errors of segments.

use std::boxed::Box;
use std::string::String;

use super::SegmentLayout;

/// Why a segment, or an end of it, cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// The name is not a valid file name.
    #[error("'{0}' cannot name a segment: use 1 to 200 visible characters, no '/', no '.' first")]
    BadName(String),
    /// An invalid argument.
    #[error("{0}")]
    Invalid(String),
    /// `create` of a segment that exists.
    #[error("segment '{name}' already exists: open it, or remove it first")]
    AlreadyThere {
        /// Its name.
        name: String,
    },
    /// `open` of a segment that does not exist.
    #[error(
        "segment '{name}' does not exist: start the process that creates it, or use open_or_create"
    )]
    NotThere {
        /// Its name.
        name: String,
    },
    /// Its creator has not finished, and may be dead.
    #[error("segment '{name}' was never completed by its creator: open_or_create completes it")]
    Unfinished {
        /// Its name.
        name: String,
    },
    /// Not a segment.
    #[error("'{name}' is in shared memory, but not a segment of asof-hot")]
    NotASegment {
        /// Its name.
        name: String,
    },
    /// Created by another version of this crate.
    #[error(
        "segment '{name}' has layout {found}, this process uses layout {expected}: rebuild the older of the two, then remove the segment"
    )]
    Version {
        /// Its name.
        name: String,
        /// The layout of the segment.
        found: u32,
        /// The layout of this process.
        expected: u32,
    },
    /// It holds another structure or other values.
    #[error(
        "segment '{name}' holds {found}, this process expects {expected}: {}",
        advice(name, found, expected)
    )]
    Mismatch {
        /// Its name.
        name: String,
        /// What it holds.
        found: Box<SegmentLayout>,
        /// What this process expects.
        expected: Box<SegmentLayout>,
    },
    /// It was created with other timeouts, locks or silence, on which a robot's safety depends.
    #[error(
        "segment '{name}' was created with other settings than this process uses ({what}): make both the same and \
         remove the segment, or use open to accept its settings"
    )]
    Settings {
        /// Its name.
        name: String,
        /// What differs, and how.
        what: String,
    },
    /// It belongs to another user.
    #[error(
        "this user has no permission to open segment '{name}': its creator can set permissions such as 0o660"
    )]
    NotAllowed {
        /// Its name.
        name: String,
    },
    /// Another end of this kind is alive.
    #[error("this end of the segment is held by a live process: there can be only one at a time")]
    Taken,
    /// An end number out of range.
    #[error(
        "there is no end number {number}: the segment was created with {count}, counted from 0"
    )]
    NoSuchEnd {
        /// The requested number.
        number: usize,
        /// The number of such ends.
        count: usize,
    },
    /// A segment opened read-only cannot be written.
    #[error("the segment was opened read-only: use open for ends that write")]
    ReadOnly,
    /// A system call failed.
    #[error("{action} of shared memory failed: {source}")]
    System {
        /// The operation.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// How to resolve a mismatch.
fn advice(name: &str, found: &SegmentLayout, expected: &SegmentLayout) -> String {
    let is_same_struct = found.kind == expected.kind && found.type_name == expected.type_name;
    let remove = std::format!(
        "remove the segment (asof_hot::shm::remove(\"{name}\"), asof::remove(\"{name}\") or rm /dev/shm/{name})"
    );
    if is_same_struct && found.counts == expected.counts {
        let type_name = found.type_name;
        return std::format!(
            "the struct {type_name} has changed. Build all programs that use it from the same declaration, stop those \
             that are running, then {remove}"
        );
    }
    if is_same_struct {
        return std::format!(
            "use the same numbers in all programs, stop those that are running, then {remove}"
        );
    }
    std::format!(
        "use another name for one of them; or, if the existing one is not needed, {remove}"
    )
}
