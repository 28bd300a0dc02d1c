//! A sample in the hands of one who reads.

use crate::sync::Word;

/// A sample that one end of a ring has, until it gives it back.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) slot: usize,
    pub(crate) position: Word,
    /// How many samples before this one were dropped unread, or gone past on the way to it.
    pub(crate) missed: Word,
}
