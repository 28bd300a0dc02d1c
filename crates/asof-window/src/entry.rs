//! What a window gives back.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use asof_core::Stamp;

/// A message of a window, with its stamp: a handle, not a copy.
///
/// It stays valid after the window has let go of the message.
pub struct Entry<T> {
    /// When the message is from, as the window indexes it.
    pub stamp: Stamp,
    /// The message itself, shared with the window.
    pub value: Arc<T>,
}

impl<T> Entry<T> {
    /// An entry of these two.
    pub fn new(stamp: Stamp, value: Arc<T>) -> Self {
        Entry { stamp, value }
    }

    /// A copy of the message, for those who must own one.
    pub fn cloned(&self) -> T
    where
        T: Clone,
    {
        T::clone(&self.value)
    }
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Entry {
            stamp: self.stamp,
            value: Arc::clone(&self.value),
        }
    }
}

impl<T> Deref for Entry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.stamp.nanos(), self.value)
    }
}

impl<T: PartialEq> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.stamp == other.stamp && self.value == other.value
    }
}

/// The messages on both sides of an instant, and where between them it lies.
#[derive(Debug)]
pub struct Bracket<T> {
    /// The last message at or before the instant.
    pub before: Entry<T>,
    /// The first message at or after it; the same one when a message is exactly there.
    pub after: Entry<T>,
    /// How far the instant is from `before` to `after`: 0 is there, 1 is here.
    pub fraction: f64,
}

impl<T> Bracket<T> {
    /// The value in between.
    pub fn interpolate(&self) -> T
    where
        T: crate::Interpolate,
    {
        self.before
            .value
            .interpolate(&self.after.value, self.fraction)
    }
}
