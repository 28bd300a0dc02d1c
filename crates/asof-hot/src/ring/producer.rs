//! The writing end.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::{Frame, Memory, Policy, ProducerState, Refuse, Ring, WriteBatch};
use crate::handle::{Handle, Owned};
use crate::order;
use crate::stamp::MonoStamp;
use crate::steps::{Steps, Whole};
#[cfg(loom)]
use crate::sync::SharedLook;
use crate::sync::{MutPtr, Ordering, SharedCell};
use crate::words::fetch_for_writing;

/// The writing end of a ring. There is one.
pub struct Producer<
    T,
    const N: usize,
    P: Policy = Refuse,
    H: Handle<Target = Ring<T, N, P>> = Owned<Ring<T, N, P>>,
> {
    pub(super) memory: H,
    pub(super) state: ProducerState<P::Book<N>>,
    fetch_ahead: usize,
    _types: PhantomData<(T, P)>,
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Producer<T, N, P, H> {
    /// Becomes the producer; continues where the last one stopped.
    ///
    /// # Safety
    /// No other producer of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        let state = ProducerState::attach(&*memory, P::empty_book());
        memory.producer_is_here.store(1, Ordering::Relaxed);
        let size = size_of::<Frame<T>>();
        Producer {
            memory,
            state,
            fetch_ahead: if size >= 1024 { size } else { 0 },
            _types: PhantomData,
        }
    }

    /// Sets how many bytes of the next slot to prefetch into this core's cache after each commit.
    ///
    /// The consumer's core has those lines; fetching them while the consumer works takes the transfer off the next
    /// write. By default the entire slot if it has 1 KB or more, else nothing. Use less for a producer that writes only
    /// the beginning of large slots, or that runs on the consumer's core.
    pub fn fetch_ahead(&mut self, bytes: usize) {
        self.fetch_ahead = bytes.min(size_of::<Frame<T>>());
    }

    /// A slot to fill in place, with the contents of its last use.
    ///
    /// `None` if the ring is full (which [`refused`](Self::refused) counts). A ring that drops its oldest never is:
    /// while a reader holds a batch, or died with one, fewer samples are kept beside it (at least two of N), and one
    /// may be dropped for a slot that is then not committed.
    #[inline(always)]
    pub fn try_write(&mut self) -> Option<WriteSlot<'_, T, N, P, H>> {
        let slot = self.state.claim(&*self.memory)?;
        let frame = self.memory.slot(slot).frame.get_mut();
        Some(WriteSlot {
            producer: self,
            frame,
        })
    }

    /// Whether there is a slot to write to; does not count as refused.
    #[inline(always)]
    pub fn has_room(&mut self) -> bool {
        self.state.has_room(&*self.memory)
    }

    /// Up to `most` consecutive slots, to fill in place and commit together; `None` if the ring is full.
    pub fn try_write_batch(&mut self, most: usize) -> Option<WriteBatch<'_, T, N, P, H>> {
        let first = self.state.claim(&*self.memory)?;
        let count = self.state.free_in_a_row(&*self.memory, most);
        (count > 0).then_some(WriteBatch {
            producer: self,
            first,
            count,
        })
    }

    /// Writes a value.
    ///
    /// # Errors
    /// The value itself, if the ring is full.
    #[inline]
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

    /// The number of samples committed over the ring's lifetime.
    pub fn committed(&self) -> u64 {
        self.state.position() as u64 - 1
    }

    /// The number of committed samples that were dropped unread.
    pub fn lost(&self) -> u64 {
        self.memory.lost().load(Ordering::Relaxed) as u64
    }

    /// How often there was no slot to write to.
    pub fn refused(&self) -> u64 {
        self.memory.refused().load(Ordering::Relaxed) as u64
    }

    /// The most samples that waited at once over the ring's lifetime: how large it has to be. Counted whenever the
    /// consumer takes one, and when there was no room.
    pub fn high_water(&self) -> u64 {
        self.memory.high_water().load(Ordering::Relaxed) as u64
    }

    /// Whether the consumer is gone, or not there yet: whatever is written then waits for a successor. In shared memory
    /// this asks the kernel and also detects a killed process.
    pub fn is_abandoned(&self) -> bool {
        let is_here = || self.memory.consumer_is_here.load(order::end_leave_load()) != 0;
        !self.memory.is_opposite_alive().unwrap_or_else(is_here)
    }

    #[inline(always)]
    pub(super) fn publish(&mut self, steps: &mut impl Steps) {
        self.state.publish(&*self.memory, steps);
        if self.fetch_ahead > 0
            && let Some(next) = self.state.free_ahead(&*self.memory)
        {
            fetch_for_writing(self.memory.slot(next).frame.address(), self.fetch_ahead);
        }
    }

    pub(super) fn place(&self, slot: usize) -> &SharedCell<Frame<T>> {
        &self.memory.slot(slot).frame
    }
}

impl<T, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Drop
    for Producer<T, N, P, H>
{
    fn drop(&mut self) {
        self.memory
            .producer_is_here
            .store(0, order::end_leave_store());
    }
}

/// A slot being filled. [`commit`](Self::commit) gives it to the consumer; dropping it returns it unused.
pub struct WriteSlot<'a, T, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> {
    producer: &'a mut Producer<T, N, P, H>,
    frame: MutPtr<Frame<T>>,
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>>
    WriteSlot<'_, T, N, P, H>
{
    /// Gives the slot to the consumer.
    #[inline(always)]
    pub fn commit(self, stamp: MonoStamp) {
        self.commit_steps(stamp, &mut Whole);
    }

    /// Commits but dies after `steps` steps, as a process can; for the models.
    #[cfg(loom)]
    pub fn commit_and_die(self, stamp: MonoStamp, steps: usize) {
        self.commit_steps(stamp, &mut crate::steps::DiesAfter(steps));
    }

    #[inline(always)]
    fn commit_steps(self, stamp: MonoStamp, steps: &mut impl Steps) {
        let WriteSlot { producer, frame } = self;
        // SAFETY: the slot is free, so it belongs to the producer, which this guard borrows.
        unsafe { frame.deref() }.stamp = stamp;
        drop(frame);
        producer.publish(steps);
    }
}

impl<T, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Deref
    for WriteSlot<'_, T, N, P, H>
{
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot is free, so it belongs to the producer, which this guard borrows. Shared, as the guard is
        // here.
        &unsafe { self.frame.shared() }.value
    }
}

impl<T, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> DerefMut
    for WriteSlot<'_, T, N, P, H>
{
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the slot is free, so it belongs to the producer, which this guard borrows.
        &mut unsafe { self.frame.deref() }.value
    }
}
