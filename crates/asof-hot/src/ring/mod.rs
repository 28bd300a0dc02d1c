//! A ring of slots: one producer, one consumer, nothing copied.
//!
//! Every slot carries its own mark beside its contents, so that a hand-over moves one cache line fewer than in a ring
//! with two indexes. Slots are reused, never rebuilt: a `Vec` in one keeps its capacity.

mod batch;
mod consumer;
mod producer;
mod protocol;

use core::mem::MaybeUninit;

#[cfg(feature = "alloc")]
use crate::handle::Owned;
use crate::stamp::MonoStamp;
use crate::sync::{AtomicCounter, AtomicMark, AtomicWord, Padded, SharedCell};

#[cfg_attr(not(feature = "ffi"), allow(unused_imports))]
pub(crate) use batch::wrapped;
pub use batch::{ReadBatch, WriteBatch};
pub use consumer::{Consumer, ReadSlot};
pub use producer::{Producer, WriteSlot};
pub(crate) use protocol::{ConsumerState, Memory, ProducerState};

/// What happens when the ring is full.
pub trait Policy: sealed::Policy {}

/// A full ring refuses writes until a sample is read: nothing that was written is ever lost.
pub struct Refuse;
/// A full ring drops its oldest sample that is not being read: what is read is as new as possible.
pub struct DropOldest;

impl Policy for Refuse {}
impl Policy for DropOldest {}

mod sealed {
    pub trait Policy: Send + Sync + 'static {
        const DROPS: bool;
        /// Slots beyond the capacity: for dropping the oldest, one for the reader and one for the writer.
        type Spare<S>;
        /// The slot of each of the last N samples.
        type Book<const N: usize>: AsRef<[u32]> + AsMut<[u32]>;
        fn empty_book<const N: usize>() -> Self::Book<N>;
    }
    impl Policy for super::Refuse {
        const DROPS: bool = false;
        type Spare<S> = [S; 0];
        type Book<const N: usize> = [u32; 0];
        fn empty_book<const N: usize>() -> [u32; 0] {
            []
        }
    }
    impl Policy for super::DropOldest {
        const DROPS: bool = true;
        type Spare<S> = [S; 2];
        type Book<const N: usize> = [u32; N];
        fn empty_book<const N: usize>() -> [u32; N] {
            [0; N]
        }
    }
}

/// The memory of a ring that holds up to N samples.
#[repr(C)]
pub struct Ring<T, const N: usize, P: Policy = Refuse> {
    /// The position of the newest; kept by a ring that drops, whose consumer can be overtaken.
    head: Padded<AtomicMark>,
    lost: Padded<AtomicMark>,
    refused: AtomicMark,
    high_water: AtomicCounter,
    /// 1 while the end exists. Set and cleared by the end itself, so a killed process leaves it at 1.
    producer_is_here: AtomicWord,
    consumer_is_here: AtomicWord,
    slots: Slots<T, N, P>,
}

#[repr(C)]
struct Slots<T, const N: usize, P: Policy> {
    regular: [Slot<T>; N],
    spare: P::Spare<Slot<T>>,
}

/// Invariant: the frame's owner is given by the mark: the producer while it is free, the consumer while it is ready
/// (or, in a ring that drops, being read).
#[repr(C, align(128))]
struct Slot<T> {
    mark: AtomicMark,
    frame: SharedCell<Frame<T>>,
}

/// What is in a slot.
#[repr(C)]
pub(crate) struct Frame<T> {
    stamp: MonoStamp,
    value: T,
}

/// Creates a ring that refuses when it is full; `init` makes the contents of each slot.
///
/// ```
/// use asof_hot::{ring, MonoStamp};
///
/// let (mut producer, mut consumer) = ring::<Vec<f32>, 8>(|| Vec::with_capacity(720));
///
/// let mut slot = producer.try_write().expect("there is room");
/// slot.clear();
/// slot.extend([0.5; 720]);
/// slot.commit(MonoStamp(20));
///
/// let scan = consumer.try_read().expect("a scan is there");
/// assert_eq!(scan.len(), 720);
/// assert_eq!(scan.meta().stamp, MonoStamp(20));
/// drop(scan); // returns the slot, including its Vec, to the producer
/// assert!(consumer.try_read().is_none());
/// ```
#[cfg(feature = "alloc")]
pub fn ring<T: Send, const N: usize>(
    init: impl FnMut() -> T,
) -> (Producer<T, N, Refuse>, Consumer<T, N, Refuse>) {
    ring_with_policy(init)
}

/// Creates a ring that drops its oldest sample when it is full.
///
/// ```
/// use asof_hot::{ring_drop_oldest, MonoStamp};
///
/// let (mut producer, mut consumer) = ring_drop_oldest::<u32, 2>(|| 0);
/// for value in 1..=5 {
///     producer.push(value, MonoStamp(0)).expect("never refused");
/// }
/// assert_eq!(producer.lost(), 3);
/// let oldest = consumer.try_read().unwrap();
/// assert_eq!((*oldest, oldest.missed()), (4, 3));
/// ```
#[cfg(feature = "alloc")]
pub fn ring_drop_oldest<T: Send, const N: usize>(
    init: impl FnMut() -> T,
) -> (Producer<T, N, DropOldest>, Consumer<T, N, DropOldest>) {
    ring_with_policy(init)
}

#[cfg(feature = "alloc")]
fn ring_with_policy<T: Send, const N: usize, P: Policy>(
    init: impl FnMut() -> T,
) -> (Producer<T, N, P>, Consumer<T, N, P>) {
    let mut memory = Owned::<Ring<T, N, P>>::new_uninit();
    let place = Owned::get_mut(&mut memory).map_or(core::ptr::null_mut(), MaybeUninit::as_mut_ptr);
    // SAFETY: the allocation is new, so `get_mut` found it unshared and the place is valid; it is filled before use.
    let memory = unsafe {
        Ring::init(place, init);
        memory.assume_init()
    };
    // SAFETY: the memory is new, so these are its only ends.
    unsafe { (Producer::attach(memory.clone()), Consumer::attach(memory)) }
}

impl<T: Send, const N: usize, P: Policy> Ring<T, N, P> {
    /// A ring by value, to be [`split`](Self::split); `init` makes the contents of each slot.
    pub fn new(init: impl FnMut() -> T) -> Self {
        let mut ring = MaybeUninit::uninit();
        // SAFETY: there is room for a ring; it is filled before it is used.
        unsafe {
            Ring::init(ring.as_mut_ptr(), init);
            ring.assume_init()
        }
    }

    /// The two ends, which borrow this.
    pub fn split(&mut self) -> (Producer<T, N, P, &Self>, Consumer<T, N, P, &Self>) {
        // SAFETY: borrowed mutably, so no other end is alive.
        unsafe { (Producer::attach(&*self), Consumer::attach(&*self)) }
    }

    /// Fills a ring in place: the slots may be too large for the stack.
    ///
    /// # Safety
    /// `place` is valid for writing a ring.
    pub(crate) unsafe fn init(place: *mut Self, mut init: impl FnMut() -> T) {
        const { assert!(N >= 1, "a ring has at least one slot") };
        // SAFETY: every field of the place is written once, each slot within the slots.
        unsafe {
            (&raw mut (*place).head).write(Padded(AtomicMark::new(0)));
            (&raw mut (*place).lost).write(Padded(AtomicMark::new(0)));
            (&raw mut (*place).refused).write(AtomicMark::new(0));
            (&raw mut (*place).high_water).write(AtomicCounter::new(0));
            (&raw mut (*place).producer_is_here).write(AtomicWord::new(0));
            (&raw mut (*place).consumer_is_here).write(AtomicWord::new(0));
            let slots = (&raw mut (*place).slots).cast::<Slot<T>>();
            for index in 0..Self::SLOTS {
                let slot = slots.add(index);
                (&raw mut (*slot).mark).write(AtomicMark::new(0));
                (&raw mut (*slot).frame).write(SharedCell::new(Frame {
                    stamp: MonoStamp(0),
                    value: init(),
                }));
            }
        }
    }
}

impl<T, const N: usize, P: Policy> Ring<T, N, P> {
    const SLOTS: usize = N + size_of::<P::Spare<u8>>();

    /// Offsets: head, lost, refused, high water, slots; the size of a slot, and in it the stamp and the value.
    #[cfg(all(test, feature = "ffi", not(loom)))]
    pub(crate) fn offsets() -> [usize; 8] {
        use core::mem::offset_of;
        let frame = offset_of!(Slot<T>, frame);
        [
            offset_of!(Self, head),
            offset_of!(Self, lost),
            offset_of!(Self, refused),
            offset_of!(Self, high_water),
            offset_of!(Self, slots),
            size_of::<Slot<T>>(),
            frame + offset_of!(Frame<T>, stamp),
            frame + offset_of!(Frame<T>, value),
        ]
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        debug_assert!(index < Self::SLOTS);
        let slots = (&raw const self.slots).cast::<Slot<T>>();
        // SAFETY: the slots are contiguous, regular then spare, as their layout is C's; the index is one of them.
        unsafe { &*slots.add(index) }
    }
}

impl<T, const N: usize, P: Policy> Memory for Ring<T, N, P> {
    const DROPS: bool = P::DROPS;
    #[inline(always)]
    fn capacity(&self) -> usize {
        N
    }
    #[inline(always)]
    fn slots(&self) -> usize {
        Self::SLOTS
    }
    #[inline(always)]
    fn mark(&self, slot: usize) -> &AtomicMark {
        &self.slot(slot).mark
    }
    #[inline(always)]
    fn head(&self) -> &AtomicMark {
        &self.head
    }
    #[inline(always)]
    fn lost(&self) -> &AtomicMark {
        &self.lost
    }
    #[inline(always)]
    fn refused(&self) -> &AtomicMark {
        &self.refused
    }
    #[inline(always)]
    fn high_water(&self) -> &AtomicCounter {
        &self.high_water
    }
}
