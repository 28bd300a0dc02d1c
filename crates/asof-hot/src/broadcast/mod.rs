//! A broadcast ring: one producer, R independent readers, nothing copied.
//!
//! Every reader sees every sample, in place and in order, at its own pace. The last N samples are kept; a slower reader
//! misses some, and learns how many. A reader holds up neither the producer nor other readers, not even by dying while
//! it holds a sample. A producer that should wait for the slowest reader uses
//! [`BroadcastProducer::try_write_lossless`].

mod protocol;

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use crate::claim::Claim;
use crate::handle::{Handle, Owned};
use crate::order;
use crate::stamp::{Meta, MonoStamp, Reading};
use crate::steps::{Steps, Whole};
#[cfg(loom)]
use crate::sync::SharedLook;
use crate::sync::{
    AtomicCounter, AtomicMark, AtomicWord, ConstPtr, MutPtr, Ordering, Padded, SharedCell,
};

pub(crate) use protocol::{MAX_READERS, Memory, ProducerState, ReaderState};

/// The memory of a ring that keeps N samples for R readers.
#[repr(C)]
pub struct Broadcast<T, const N: usize, const R: usize> {
    /// The position of the newest.
    head: Padded<AtomicMark>,
    refused: Padded<AtomicCounter>,
    /// 1 while the producer exists. Set and cleared by itself, so a killed process leaves it at 1.
    producer_is_here: AtomicWord,
    places: [Padded<AtomicCounter>; R],
    slots: Slots<T, N, R>,
}

#[repr(C)]
struct Slots<T, const N: usize, const R: usize> {
    kept: [Slot<T>; N],
    one_each: [Slot<T>; R],
    and_one: Slot<T>,
}

/// Invariant: the frame is read only while the mark has a reader's bit, and written only while it is not ready, by the
/// producer.
#[repr(C, align(128))]
struct Slot<T> {
    mark: AtomicMark,
    frame: SharedCell<Frame<T>>,
}

#[repr(C)]
struct Frame<T> {
    stamp: MonoStamp,
    value: T,
}

/// Creates a ring that keeps at least N samples for R readers; `init` makes the contents of each slot.
///
/// ```
/// use asof_hot::{broadcast, MonoStamp};
///
/// let (mut producer, [mut planner, mut logger]) = broadcast::<u32, 2, 2>(|| 0);
/// producer.push(1, MonoStamp(10)).unwrap();
/// assert_eq!(*planner.try_read().unwrap(), 1);
/// for value in 2..=20 {
///     producer.push(value, MonoStamp(20)).unwrap();
/// }
/// let late = logger.try_read().unwrap();
/// assert!(*late > 1 && late.missed() > 0, "each reader has its own position and learns what it missed");
/// ```
#[cfg(feature = "alloc")]
pub fn broadcast<T: Send + Sync, const N: usize, const R: usize>(
    init: impl FnMut() -> T,
) -> (BroadcastProducer<T, N, R>, [BroadcastReader<T, N, R>; R]) {
    let mut memory = Owned::<Broadcast<T, N, R>>::new_uninit();
    let place = Owned::get_mut(&mut memory).map_or(core::ptr::null_mut(), MaybeUninit::as_mut_ptr);
    // SAFETY: the allocation is new, so `get_mut` found it unshared and the place is valid; it is filled before use.
    let memory = unsafe {
        Broadcast::init(place, init);
        memory.assume_init()
    };
    // SAFETY: the memory is new, so these are its only ends.
    unsafe {
        (
            BroadcastProducer::attach(memory.clone()),
            core::array::from_fn(|reader| BroadcastReader::attach(memory.clone(), reader)),
        )
    }
}

impl<T: Send + Sync, const N: usize, const R: usize> Broadcast<T, N, R> {
    /// A ring by value, to be [`split`](Self::split); `init` makes the contents of each slot.
    pub fn new(init: impl FnMut() -> T) -> Self {
        let mut ring = MaybeUninit::uninit();
        // SAFETY: there is room for a ring; it is filled before it is used.
        unsafe {
            Broadcast::init(ring.as_mut_ptr(), init);
            ring.assume_init()
        }
    }

    /// The ends, which borrow this.
    #[allow(clippy::type_complexity)] // the ends' types say all that they are
    pub fn split(
        &mut self,
    ) -> (
        BroadcastProducer<T, N, R, &Self>,
        [BroadcastReader<T, N, R, &Self>; R],
    ) {
        let this = &*self;
        // SAFETY: borrowed mutably, so no other end is alive.
        unsafe {
            (
                BroadcastProducer::attach(this),
                core::array::from_fn(|reader| BroadcastReader::attach(this, reader)),
            )
        }
    }

    /// Fills a ring in place: the slots may be too large for the stack.
    ///
    /// # Safety
    /// `place` is valid for writing a ring.
    pub(crate) unsafe fn init(place: *mut Self, mut init: impl FnMut() -> T) {
        const {
            assert!(N >= 1, "a ring keeps at least one sample");
            assert!(R >= 1 && R <= MAX_READERS, "from 1 to 16 readers");
        };
        // SAFETY: every field of the place is written once, each slot within the slots.
        unsafe {
            (&raw mut (*place).head).write(Padded(AtomicMark::new(0)));
            (&raw mut (*place).refused).write(Padded(AtomicCounter::new(0)));
            (&raw mut (*place).producer_is_here).write(AtomicWord::new(0));
            for reader in 0..R {
                (&raw mut (*place).places)
                    .cast::<Padded<AtomicCounter>>()
                    .add(reader)
                    .write(Padded(AtomicCounter::new(0)));
            }
            let slots = (&raw mut (*place).slots).cast::<Slot<T>>();
            for index in 0..=(N + R) {
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

impl<T, const N: usize, const R: usize> Broadcast<T, N, R> {
    /// Offsets: head, refused, positions, slots; the size of a slot, and in it the stamp and the value.
    #[cfg(all(test, feature = "ffi", not(loom)))]
    pub(crate) fn offsets() -> [usize; 7] {
        use core::mem::offset_of;
        let frame = offset_of!(Slot<T>, frame);
        [
            offset_of!(Self, head),
            offset_of!(Self, refused),
            offset_of!(Self, places),
            offset_of!(Self, slots),
            size_of::<Slot<T>>(),
            frame + offset_of!(Frame<T>, stamp),
            frame + offset_of!(Frame<T>, value),
        ]
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        debug_assert!(index < N + R + 1);
        let slots = (&raw const self.slots).cast::<Slot<T>>();
        // SAFETY: the slots are contiguous, as their layout is C's; the index is one of them.
        unsafe { &*slots.add(index) }
    }
}

impl<T, const N: usize, const R: usize> Memory for Broadcast<T, N, R> {
    #[inline(always)]
    fn capacity(&self) -> usize {
        N
    }
    #[inline(always)]
    fn readers(&self) -> usize {
        R
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
    fn place(&self, reader: usize) -> &AtomicCounter {
        &self.places[reader]
    }
    #[inline(always)]
    fn refused(&self) -> &AtomicCounter {
        &self.refused
    }
}

/// The writing end of a broadcast ring. There is one.
pub struct BroadcastProducer<T, const N: usize, const R: usize, H = Owned<Broadcast<T, N, R>>>
where
    H: Handle<Target = Broadcast<T, N, R>>,
{
    memory: H,
    state: ProducerState,
    _type: PhantomData<T>,
}

impl<T: Send + Sync, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>>
    BroadcastProducer<T, N, R, H>
{
    /// Becomes the producer; continues where the last one stopped.
    ///
    /// # Safety
    /// No other producer of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        let state = ProducerState::attach(&*memory);
        memory.producer_is_here.store(1, Ordering::Relaxed);
        BroadcastProducer {
            memory,
            state,
            _type: PhantomData,
        }
    }

    /// A slot to fill in place, with the contents of its last use. There always is one; a reader that has not read the
    /// oldest sample by then may miss it.
    pub fn try_write(&mut self) -> Option<BroadcastSlot<'_, T, N, R, H>> {
        let slot = self.state.claim(&*self.memory)?;
        Some(self.open(slot))
    }

    /// Like [`try_write`](Self::try_write), but `None` (which [`refused`](Self::refused) counts) while a present reader
    /// has not read the oldest sample, so no reader misses anything. A killed reader is waited for until its successor
    /// attaches, or until it is [forgotten](Self::forget_reader).
    pub fn try_write_lossless(&mut self) -> Option<BroadcastSlot<'_, T, N, R, H>> {
        let slot = self.state.claim_lossless(&*self.memory)?;
        Some(self.open(slot))
    }

    fn open(&mut self, slot: usize) -> BroadcastSlot<'_, T, N, R, H> {
        let frame = self.memory.slot(slot).frame.get_mut();
        BroadcastSlot {
            producer: self,
            frame,
        }
    }

    /// Writes a value for all readers.
    ///
    /// # Errors
    /// The value itself, if there is no slot, which is never.
    pub fn push(&mut self, value: T, stamp: MonoStamp) -> Result<(), T> {
        match self.try_write() {
            Some(mut slot) => {
                *slot = value;
                slot.commit(stamp);
                Ok(())
            }
            None => Err(value),
        }
    }

    /// Stops waiting for a killed reader, counted from 0. A reader that is alive is waited for again once it has read
    /// its next sample.
    ///
    /// # Panics
    /// If there is no such reader.
    pub fn forget_reader(&mut self, reader: usize) {
        assert!(reader < R, "reader {reader} of {R}, counted from 0");
        self.memory.place(reader).store(0, Ordering::Relaxed);
    }

    /// The number of samples committed over the ring's lifetime.
    pub fn committed(&self) -> u64 {
        self.state.position() as u64 - 1
    }

    /// How often there was no slot to write to.
    pub fn refused(&self) -> u64 {
        self.memory.refused().load(Ordering::Relaxed) as u64
    }

    /// Whether all readers are gone, or none is there yet. In shared memory this asks the kernel and also detects
    /// killed processes.
    pub fn is_abandoned(&self) -> bool {
        let is_any_here =
            || (0..R).any(|reader| self.memory.place(reader).load(Ordering::Relaxed) != 0);
        !self.memory.is_opposite_alive().unwrap_or_else(is_any_here)
    }
}

impl<T, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>> Drop
    for BroadcastProducer<T, N, R, H>
{
    fn drop(&mut self) {
        self.memory
            .producer_is_here
            .store(0, order::end_leave_store());
    }
}

/// A slot being filled. [`commit`](Self::commit) gives it to the readers; dropping it returns it unused.
pub struct BroadcastSlot<
    'a,
    T,
    const N: usize,
    const R: usize,
    H: Handle<Target = Broadcast<T, N, R>>,
> {
    producer: &'a mut BroadcastProducer<T, N, R, H>,
    frame: MutPtr<Frame<T>>,
}

impl<T: Send + Sync, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>>
    BroadcastSlot<'_, T, N, R, H>
{
    /// Gives the slot to all readers.
    pub fn commit(self, stamp: MonoStamp) {
        self.commit_steps(stamp, &mut Whole);
    }

    /// Commits but dies after `steps` steps, as a process can; for the models.
    #[cfg(loom)]
    pub fn commit_and_die(self, stamp: MonoStamp, steps: usize) {
        self.commit_steps(stamp, &mut crate::steps::DiesAfter(steps));
    }

    fn commit_steps(self, stamp: MonoStamp, steps: &mut impl Steps) {
        let BroadcastSlot { producer, frame } = self;
        // SAFETY: the slot is out of use, so it belongs to the producer, which this guard borrows.
        unsafe { frame.deref() }.stamp = stamp;
        drop(frame);
        producer.state.publish(&*producer.memory, steps);
    }
}

impl<T, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>> Deref
    for BroadcastSlot<'_, T, N, R, H>
{
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the slot is out of use, so it belongs to the producer, which this guard borrows. Shared, as the guard
        // is here.
        &unsafe { self.frame.shared() }.value
    }
}

impl<T, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>> DerefMut
    for BroadcastSlot<'_, T, N, R, H>
{
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the slot is out of use, so it belongs to the producer, which this guard borrows.
        &mut unsafe { self.frame.deref() }.value
    }
}

/// A reading end of a broadcast ring. There are R, each with its own position.
pub struct BroadcastReader<T, const N: usize, const R: usize, H = Owned<Broadcast<T, N, R>>>
where
    H: Handle<Target = Broadcast<T, N, R>>,
{
    memory: H,
    state: ReaderState,
    _type: PhantomData<T>,
}

impl<T: Send + Sync, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>>
    BroadcastReader<T, N, R, H>
{
    /// Becomes the reader with this number, counted from 0: at the position of the last one if that died, else with
    /// what is written from now on.
    ///
    /// # Panics
    /// If there is no such reader.
    ///
    /// # Safety
    /// No other reader with this number is alive.
    pub unsafe fn attach(memory: H, reader: usize) -> Self {
        assert!(reader < R, "reader {reader} of {R}, counted from 0");
        BroadcastReader {
            state: ReaderState::attach(&*memory, reader),
            memory,
            _type: PhantomData,
        }
    }

    /// The oldest sample that this reader has not read, in place; `None` if there is none.
    pub fn try_read(&mut self) -> Option<BroadcastGuard<'_, T, N, R, H>> {
        let claim = self.state.claim(&*self.memory)?;
        Some(self.hold(claim))
    }

    /// The newest sample, in place, if this reader has not read it; older ones count as missed.
    pub fn try_latest(&mut self) -> Option<BroadcastGuard<'_, T, N, R, H>> {
        let claim = self.state.claim_newest(&*self.memory)?;
        Some(self.hold(claim))
    }

    fn hold(&mut self, claim: Claim) -> BroadcastGuard<'_, T, N, R, H> {
        let frame = Some(self.memory.slot(claim.slot).frame.get());
        BroadcastGuard {
            reader: self,
            frame,
            claim,
        }
    }

    /// A copy of the oldest sample that this reader has not read.
    pub fn pop(&mut self) -> Option<Reading<T>>
    where
        T: Clone,
    {
        let guard = self.try_read()?;
        Some(Reading::new(T::clone(&guard), guard.meta()))
    }

    /// Whether there is a sample that this reader has not read.
    pub fn has_new(&self) -> bool {
        self.state.waiting(&*self.memory) > 0
    }

    /// The number of samples that this reader has not read; more than N if it has missed some.
    pub fn waiting(&self) -> u64 {
        self.state.waiting(&*self.memory)
    }

    /// The total number of samples that this reader has missed or skipped.
    pub fn missed(&self) -> u64 {
        self.state.missed_in_all()
    }

    /// Whether the producer is gone, or not there yet. A thread that sees this sees everything that it wrote. In shared
    /// memory this asks the kernel and also detects a killed process.
    pub fn is_abandoned(&self) -> bool {
        let is_here = || self.memory.producer_is_here.load(order::end_leave_load()) != 0;
        !self.memory.is_opposite_alive().unwrap_or_else(is_here)
    }
}

impl<T, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>> Drop
    for BroadcastReader<T, N, R, H>
{
    fn drop(&mut self) {
        self.state.leave(&*self.memory);
    }
}

/// A sample being read in place. Other readers may read it too; dropping this moves on to the next.
pub struct BroadcastGuard<
    'a,
    T,
    const N: usize,
    const R: usize,
    H: Handle<Target = Broadcast<T, N, R>>,
> {
    reader: &'a mut BroadcastReader<T, N, R, H>,
    /// `Some` until the guard is dropped.
    frame: Option<ConstPtr<Frame<T>>>,
    claim: Claim,
}

impl<T, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>>
    BroadcastGuard<'_, T, N, R, H>
{
    /// Which sample this is, and when it was written.
    pub fn meta(&self) -> Meta {
        Meta {
            generation: self.claim.position as u64,
            stamp: self.frame().stamp,
        }
    }

    /// The number of samples before this one that this reader was too late for or skipped.
    pub fn missed(&self) -> u64 {
        self.claim.missed as u64
    }

    /// Dies while holding the slot, as a process can; for the models.
    #[cfg(loom)]
    pub fn die(mut self) {
        self.frame = None;
        core::mem::forget(self);
    }

    fn frame(&self) -> &Frame<T> {
        match &self.frame {
            // SAFETY: the slot has this reader's bit, so it is not written.
            Some(frame) => unsafe { frame.deref() },
            None => unreachable!("a guard has its slot until it is dropped"),
        }
    }
}

impl<T, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>> Deref
    for BroadcastGuard<'_, T, N, R, H>
{
    type Target = T;
    fn deref(&self) -> &T {
        &self.frame().value
    }
}

impl<T, const N: usize, const R: usize, H: Handle<Target = Broadcast<T, N, R>>> Drop
    for BroadcastGuard<'_, T, N, R, H>
{
    fn drop(&mut self) {
        self.frame = None;
        self.reader.state.release(&*self.reader.memory, self.claim);
    }
}
