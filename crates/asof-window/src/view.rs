//! A window as it was at one moment.

use std::sync::Arc;

use asof_core::Stamp;

use crate::Entry;
use crate::runs::Piece;

/// The messages of a window at one moment, in order of their stamps.
///
/// A view is borrowed from the window at the cost of about one handle per hundred messages. It never changes,
/// whatever the window does, holds no lock, and keeps its messages alive.
///
/// ```
/// use asof_window::{Bounds, Window};
///
/// let odometry = Window::new(Bounds::count(100));
/// for t in 0..5 {
///     odometry.insert(t.into(), t as f64);
/// }
/// let view = odometry.view(1.into(), 3.into());
/// let sum: f64 = view.iter().map(|(_, value)| value).sum();
/// assert_eq!(sum, 6.0);
/// ```
pub struct View<T> {
    pieces: Vec<Piece<T>>,
    len: usize,
}

impl<T> View<T> {
    pub(crate) fn new(pieces: Vec<Piece<T>>) -> Self {
        let len = pieces.iter().map(|piece| piece.end - piece.start).sum();
        View { pieces, len }
    }

    pub(crate) fn empty() -> Self {
        View {
            pieces: Vec::new(),
            len: 0,
        }
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no messages.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first stamp.
    pub fn oldest_stamp(&self) -> Option<Stamp> {
        let piece = self.pieces.first()?;
        Some(piece.run.stamp(piece.start).into())
    }

    /// The last stamp.
    pub fn newest_stamp(&self) -> Option<Stamp> {
        let piece = self.pieces.last()?;
        Some(piece.run.stamp(piece.end - 1).into())
    }

    /// The messages in place: no reference count changes, nothing is copied.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Stamp, &T)> {
        self.shared().map(|(stamp, value)| (stamp, &**value))
    }

    /// Calls `visit` with every message; the fastest way through a view.
    #[inline]
    pub fn for_each(&self, mut visit: impl FnMut(Stamp, &T)) {
        for piece in &self.pieces {
            for (stamp, value) in piece.run.range(piece.start, piece.end) {
                visit(stamp.into(), value);
            }
        }
    }

    /// The messages as handles.
    pub fn to_entries(&self) -> Vec<Entry<T>> {
        let mut entries = Vec::with_capacity(self.len);
        for piece in &self.pieces {
            let range = piece.run.range(piece.start, piece.end);
            entries.extend(range.map(|(stamp, value)| Entry::new(stamp.into(), Arc::clone(value))));
        }
        entries
    }

    /// The number of messages before `t`.
    pub fn count_before(&self, t: Stamp) -> usize {
        let mut count = 0;
        for piece in &self.pieces {
            if piece.run.stamp(piece.end - 1) < t.nanos() {
                count += piece.end - piece.start;
                continue;
            }
            let first = piece
                .run
                .first_from(piece.start, piece.end, t.nanos(), piece.start);
            return count + first - piece.start;
        }
        count
    }

    /// The message at `index`, in order.
    pub fn get(&self, index: usize) -> Option<(Stamp, &Arc<T>)> {
        let mut index = index;
        for piece in &self.pieces {
            let here = piece.end - piece.start;
            if index < here {
                let at = piece.start + index;
                return Some((piece.run.stamp(at).into(), piece.run.value(at)));
            }
            index -= here;
        }
        None
    }

    fn shared(&self) -> impl DoubleEndedIterator<Item = (Stamp, &Arc<T>)> {
        self.pieces.iter().flat_map(|piece| {
            let range = piece.run.range(piece.start, piece.end);
            range.map(|(stamp, value)| (stamp.into(), value))
        })
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        View {
            pieces: self.pieces.clone(),
            len: self.len,
        }
    }
}

/// The messages as handles, in order.
impl<T> IntoIterator for View<T> {
    type Item = Entry<T>;
    type IntoIter = std::vec::IntoIter<Entry<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.to_entries().into_iter()
    }
}
