//! A sample held by a reader.

use crate::sync::Word;

/// A sample that one end of a ring holds until it returns it.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) slot: usize,
    pub(crate) position: Word,
    /// The number of samples before this one that were dropped unread or skipped.
    pub(crate) missed: Word,
}
