//! What a window returns.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use asof_core::Stamp;

/// A message of a window, with its stamp: a handle, not a copy.
///
/// It stays valid after the window has dropped the message.
pub struct Entry<T> {
    /// The stamp by which the window indexes the message.
    pub stamp: Stamp,
    /// The message itself, shared with the window.
    pub value: Arc<T>,
}

impl<T> Entry<T> {
    /// Creates an entry.
    pub fn new(stamp: Stamp, value: Arc<T>) -> Self {
        Entry { stamp, value }
    }

    /// An owned copy of the message.
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

/// The messages on both sides of an instant, and its position between them.
#[derive(Debug)]
pub struct Bracket<T> {
    /// The last message at or before the instant.
    pub before: Entry<T>,
    /// The first message at or after it; the same one if a message is exactly there.
    pub after: Entry<T>,
    /// The position of the instant: 0 at `before`, 1 at `after`.
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
