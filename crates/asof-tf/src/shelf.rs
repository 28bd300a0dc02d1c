//! An arena: values that stay in place until the buffer is dropped. The only `unsafe` code of the crate.
//!
//! Readers hold no lock and no reference count, so whatever they can reach must not be freed under them.
//! Here nothing is freed before its [`Shelf`] is dropped, and a shelf is inside the buffer that all
//! readers borrow. What changes at a [`Spot`] changes through atomics; recycled chunks are overwritten
//! in place, never freed, and readers check afterwards whether what they read was still valid (see
//! `history`).

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

use crate::sync::{AtomicPtr, Mutex, Ordering, locked};

/// Owns values of one type until it is dropped. They are allocated in boards of several values each, so
/// that a small value needs no allocation of its own, and many large ones are on few pages of memory.
pub(crate) struct Shelf<T> {
    boards: Mutex<Boards<T>>,
}

/// Invariant: every board before the last is full, and the first `used` places of the last are taken.
struct Boards<T> {
    made: Vec<Board<T>>,
    /// The start of the last board.
    last: NonNull<T>,
    used: usize,
    /// Places of the last board.
    places: usize,
    /// Places of the first board.
    first: usize,
    /// Places of all boards.
    all: usize,
    /// Whether boards of large values grow with their number.
    grows: bool,
}

/// Places for some values, one after another.
struct Board<T> {
    start: NonNull<T>,
    places: usize,
}

/// The bytes of a huge page. A board of that size is one, where the system has them: a lookup in a large history then
/// rarely waits for the address of its page.
const HUGE_PAGE: usize = 2 << 20;

/// The address of a value on its [`Shelf`].
///
/// Invariant: a spot is only ever passed to the shelf that made it, or to the one that made the value
/// which the spot is a part of. Spots are in private fields of one buffer's own frames, edges and
/// tables, next to the one shelf of their type, and never leave it; unit tests check it on small
/// shelves.
pub(crate) struct Spot<T>(NonNull<T>);

/// An atomic optional [`Spot`].
pub(crate) struct Link<T>(AtomicPtr<T>);

/// Links found by the low bits of an index; their number is a power of two.
pub(crate) struct Table<T> {
    links: Box<[Link<T>]>,
}

// SAFETY: a shelf owns its values as a `Vec<Box<[T]>>` would; they move with it between threads.
unsafe impl<T: Send> Send for Shelf<T> {}
// SAFETY: sharing a shelf shares `&T` (needs `T: Sync`) and lets any thread put values on it that
// another thread drops (needs `T: Send`).
unsafe impl<T: Send + Sync> Sync for Shelf<T> {}
// SAFETY: a spot gives only `&T`, and only to code that can borrow the shelf.
unsafe impl<T: Send + Sync> Send for Spot<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Spot<T> {}

impl<T> Boards<T> {
    /// Places of a later board: a page's worth.
    const LATER: usize = match 4096 / size_of::<T>() {
        0 => 1,
        places => places,
    };

    fn new(first: usize, grows: bool) -> Self {
        Boards {
            made: Vec::new(),
            last: NonNull::dangling(),
            used: 0,
            places: 0,
            first,
            all: 0,
            grows,
        }
    }

    /// Places of the next board. Of large values it is a part of what there is, so that little is in vain, and then a
    /// huge page.
    fn next_places(&self) -> usize {
        let most = HUGE_PAGE / size_of::<T>().max(1);
        match self.made.len() {
            0 => self.first,
            _ if !self.grows || Self::LATER > 1 => Self::LATER,
            _ if self.all < most / 4 => (self.all / 4).max(1),
            _ => most.max(1),
        }
    }

    fn add_board(&mut self) {
        let board = Board::new(self.next_places());
        self.last = board.start;
        self.places = board.places;
        self.all += board.places;
        self.used = 0;
        self.made.push(board);
    }
}

impl<T> Board<T> {
    fn new(places: usize) -> Self {
        const { assert!(size_of::<T>() > 0) };
        let layout = Self::layout(places);
        // SAFETY: neither the values nor their number are zero, hence nor is the size.
        let start = unsafe { alloc(layout) }.cast::<T>();
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        if layout.align() == HUGE_PAGE {
            prefer_huge_page(start.cast());
        }
        Board { start, places }
    }

    /// Of a board of about a huge page, that page.
    fn layout(places: usize) -> Layout {
        let exact = Layout::array::<T>(places).unwrap_or(Layout::new::<T>());
        let is_huge = (HUGE_PAGE / 4 * 3..=HUGE_PAGE).contains(&exact.size());
        let huge = Layout::from_size_align(HUGE_PAGE, HUGE_PAGE);
        huge.ok().filter(|_| is_huge).unwrap_or(exact)
    }
}

/// Asks the system to back a board by one huge page. It may refuse.
fn prefer_huge_page(start: NonNull<u8>) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the range is one allocation of this size and alignment; the advice changes none of its contents.
    unsafe {
        libc::madvise(start.as_ptr().cast(), HUGE_PAGE, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = start;
}

impl<T> Shelf<T> {
    pub(crate) fn new() -> Self {
        Shelf {
            boards: Mutex::new(Boards::new(Boards::<T>::LATER, false)),
        }
    }

    /// A shelf for large values that may become many.
    pub(crate) fn growing() -> Self {
        Shelf {
            boards: Mutex::new(Boards::new(Boards::<T>::LATER, true)),
        }
    }

    /// A shelf whose first `places` values need no allocation.
    pub(crate) fn with_places(places: usize) -> Self {
        let mut boards = Boards::new(places.max(1), false);
        boards.add_board();
        Shelf {
            boards: Mutex::new(boards),
        }
    }

    /// Puts a value on the shelf, for the lifetime of the shelf.
    pub(crate) fn put(&self, thing: T) -> Spot<T> {
        let mut boards = locked(&self.boards);
        if boards.used == boards.places {
            boards.add_board();
        }
        // SAFETY: `used` is less than the last board's places: before there is a board, both are zero.
        let place = unsafe { boards.last.add(boards.used) };
        // SAFETY: the place is inside the board, free, aligned for `T`; no other code has its address.
        unsafe { place.write(thing) };
        boards.used += 1;
        Spot(place)
    }

    /// The value at a spot.
    #[inline]
    #[allow(clippy::unused_self)] // The borrow is the point.
    pub(crate) fn at(&self, spot: Spot<T>) -> &T {
        #[cfg(all(test, not(loom)))]
        self.assert_made(spot);
        // SAFETY: `put` made the pointer from a live board, nothing frees it before this shelf drops
        // (and `&self` keeps the shelf from that), and there is no `&mut T` after `put`.
        unsafe { spot.0.as_ref() }
    }

    /// A part of a value on this shelf.
    #[inline]
    #[allow(clippy::unused_self)] // The borrow is the point.
    pub(crate) fn within<U>(&self, part: Spot<U>) -> &U {
        // SAFETY: by the invariant of `Spot` it was made from a `&U` inside a value on this shelf, so it
        // lives as long, and only through shared references.
        unsafe { part.0.as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
impl<T> Shelf<T> {
    fn assert_made(&self, spot: Spot<T>) {
        let boards = locked(&self.boards);
        let stands_on = |board: &Board<T>| {
            (0..board.places)
                .any(|place| board.start.as_ptr().wrapping_add(place) == spot.0.as_ptr())
        };
        assert!(
            boards.made.len() > 4 || boards.made.iter().any(stands_on),
            "a spot of another shelf"
        );
    }
}

impl<T> Drop for Shelf<T> {
    fn drop(&mut self) {
        let boards = locked(&self.boards);
        for (number, board) in boards.made.iter().enumerate() {
            let is_last = number + 1 == boards.made.len();
            let taken = if is_last { boards.used } else { board.places };
            for place in 0..taken {
                // SAFETY: the first `taken` places hold values, and each is dropped here once;
                // `&mut self` means that no borrow of the shelf, hence none of its values, is left.
                unsafe { board.start.add(place).drop_in_place() };
            }
            // SAFETY: the board was allocated with this layout in `Board::new`, and is freed here once.
            unsafe {
                dealloc(
                    board.start.as_ptr().cast(),
                    Board::<T>::layout(board.places),
                );
            }
        }
    }
}

impl<T> Spot<T> {
    /// The spot of a value that is known to be on a shelf of this buffer.
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

    pub(crate) fn holding(spot: Spot<T>) -> Self {
        Link(AtomicPtr::new(spot.0.as_ptr()))
    }

    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> Option<Spot<T>> {
        NonNull::new(self.0.load(order)).map(Spot)
    }

    #[inline]
    pub(crate) fn store(&self, spot: Spot<T>, order: Ordering) {
        self.0.store(spot.0.as_ptr(), order);
    }

    #[cfg(not(loom))]
    pub(crate) fn clear(&self, order: Ordering) {
        self.0.store(null_mut(), order);
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

    #[inline]
    pub(crate) fn links(&self) -> &[Link<T>] {
        &self.links
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
    fn boards_of_large_values_grow_to_huge_pages_and_little_is_in_vain() {
        let shelf = Shelf::growing();
        let count = if cfg!(miri) { 40 } else { 1_200 };
        let spots: Vec<_> = (0..count).map(|n| shelf.put([n as u64; 520])).collect();
        for (n, spot) in spots.iter().enumerate() {
            assert_eq!(shelf.at(*spot)[519], n as u64);
        }
        let boards = locked(&shelf.boards);
        assert!(boards.made.len() < 40 && boards.all < 2 * count.max(504));
        let huge = boards.made.iter().filter(|board| board.places == 504);
        let huge: Vec<_> = huge
            .map(|board| board.start.as_ptr() as usize % HUGE_PAGE)
            .collect();
        assert!(cfg!(miri) || huge == [0; 3], "{huge:?}");
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
