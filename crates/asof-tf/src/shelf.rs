//! Things that stay where they are until the whole buffer goes: the only `unsafe` code of the crate.
//!
//! Readers hold no lock and no reference count, so whatever they can reach must not be freed under
//! them. Here nothing is ever freed before its [`Shelf`] is dropped, and a shelf lives inside of the
//! buffer that all readers borrow. What changes behind a [`Spot`] changes through atomics; recycled
//! chunks are overwritten in place, never freed, and readers check afterwards whether what they read
//! was still theirs (see `history`).

#![allow(unsafe_code)]

use std::ptr::{NonNull, null_mut};

use crate::sync::{AtomicPtr, Mutex, Ordering, locked};

/// Owns things of one kind, until it is dropped.
pub(crate) struct Shelf<T> {
    things: Mutex<Vec<NonNull<T>>>,
}

/// Where a thing stands on its [`Shelf`].
///
/// Invariant: a spot is only ever shown to the shelf that made it. Spots live in private fields of
/// one buffer's own frames, edges and tables, next to the one shelf of their kind, and never leave it;
/// unit tests check it on small shelves.
pub(crate) struct Spot<T>(NonNull<T>);

/// A place in memory that holds a [`Spot`] or nothing, changed atomically.
pub(crate) struct Link<T>(AtomicPtr<T>);

/// A power of two of links, found by the low bits of an index.
pub(crate) struct Table<T> {
    links: Box<[Link<T>]>,
}

// SAFETY: a shelf owns its things as a `Vec<Box<T>>` would; they move with it between threads.
unsafe impl<T: Send> Send for Shelf<T> {}
// SAFETY: sharing a shelf shares `&T` (needs `T: Sync`) and lets any thread put things on it that
// another thread drops (needs `T: Send`).
unsafe impl<T: Send + Sync> Sync for Shelf<T> {}
// SAFETY: a spot gives nothing but `&T`, and only to those who can borrow the shelf.
unsafe impl<T: Send + Sync> Send for Spot<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Spot<T> {}

impl<T> Shelf<T> {
    pub(crate) fn new() -> Self {
        Shelf {
            things: Mutex::new(Vec::new()),
        }
    }

    /// Puts a thing on the shelf, for as long as the shelf lives.
    pub(crate) fn put(&self, thing: T) -> Spot<T> {
        // SAFETY: `Box::into_raw` is never null.
        let spot = unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(thing))) };
        locked(&self.things).push(spot);
        Spot(spot)
    }

    /// The thing that stands there.
    #[inline]
    #[allow(clippy::unused_self)] // The borrow is the point.
    pub(crate) fn at(&self, spot: Spot<T>) -> &T {
        #[cfg(all(test, not(loom)))]
        self.assert_made(spot);
        // SAFETY: `put` made the pointer from a live box, nothing frees it before this shelf drops
        // (and `&self` keeps the shelf from that), and nobody has a `&mut T` after `put`.
        unsafe { spot.0.as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
impl<T> Shelf<T> {
    fn assert_made(&self, spot: Spot<T>) {
        let things = locked(&self.things);
        assert!(
            things.len() > 32 || things.contains(&spot.0),
            "a spot of another shelf"
        );
    }
}

impl<T> Drop for Shelf<T> {
    fn drop(&mut self) {
        for thing in locked(&self.things).drain(..) {
            // SAFETY: each pointer came from `Box::into_raw` in `put` and is freed here once; `&mut
            // self` means that no borrow of the shelf, hence none of its things, is left.
            drop(unsafe { Box::from_raw(thing.as_ptr()) });
        }
    }
}

impl<T> Spot<T> {
    /// The spot of a thing that is known to stand on a shelf of this buffer.
    #[inline]
    pub(crate) fn of(thing: &T) -> Self {
        Spot(NonNull::from(thing))
    }
}

impl<T> Clone for Spot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Spot<T> {}

impl<T> PartialEq for Spot<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Spot<T> {}

impl<T> Link<T> {
    pub(crate) fn empty() -> Self {
        Link(AtomicPtr::new(null_mut()))
    }

    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> Option<Spot<T>> {
        NonNull::new(self.0.load(order)).map(Spot)
    }

    /// Empties the link.
    pub(crate) fn clear(&self) {
        self.0.store(null_mut(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn store(&self, spot: Spot<T>, order: Ordering) {
        self.0.store(spot.0.as_ptr(), order);
    }
}

impl<T> Table<T> {
    /// A table of at least `len` empty links.
    pub(crate) fn new(len: usize) -> Self {
        let links = (0..len.next_power_of_two()).map(|_| Link::empty());
        Table {
            links: links.collect(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// The link for `index`, modulo the length.
    #[inline]
    pub(crate) fn link(&self, index: u64) -> &Link<T> {
        &self.links[index as usize & (self.links.len() - 1)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn things_are_dropped_once_and_only_with_their_shelf() {
        let drops = Arc::new(AtomicUsize::new(0));
        let shelf = Shelf::new();
        let link = Link::empty();
        for _ in 0..100 {
            link.store(shelf.put(Counted(Arc::clone(&drops))), Ordering::Release);
        }
        let last = shelf.at(link.load(Ordering::Acquire).expect("was set"));
        assert_eq!(last.0.load(Ordering::Relaxed), 0);
        drop(shelf);
        assert_eq!(drops.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn what_stands_on_a_shelf_can_be_read_from_other_threads() {
        let shelf = Shelf::new();
        let table = Table::new(3);
        assert_eq!(table.len(), 4);
        for value in 0..4_u64 {
            table.link(value).store(shelf.put(value), Ordering::Release);
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for index in 0..8 {
                        let spot = table.link(index).load(Ordering::Acquire).expect("was set");
                        assert_eq!(*shelf.at(spot), index % 4);
                    }
                });
            }
        });
    }
}
