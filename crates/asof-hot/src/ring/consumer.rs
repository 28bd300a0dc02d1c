//! The reading end.

use core::marker::PhantomData;
use core::ops::Deref;

use super::{ConsumerState, Frame, Memory, Policy, ReadBatch, Refuse, Ring};
use crate::claim::Claim;
use crate::handle::{Handle, Owned};
use crate::order;
use crate::stamp::{Meta, Reading};
use crate::sync::{ConstPtr, Ordering, SharedCell};

/// The reading end of a ring. There is one.
pub struct Consumer<
    T,
    const N: usize,
    P: Policy = Refuse,
    H: Handle<Target = Ring<T, N, P>> = Owned<Ring<T, N, P>>,
> {
    pub(super) memory: H,
    pub(super) state: ConsumerState,
    _types: PhantomData<(T, P)>,
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Consumer<T, N, P, H> {
    /// Becomes the consumer; continues with the oldest sample that was not read completely.
    ///
    /// The sample that a consumer was reading when it died is lost in a ring that drops, and read again in a ring that
    /// refuses.
    ///
    /// # Safety
    /// No other consumer of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        let state = ConsumerState::attach(&*memory);
        memory.consumer_is_here.store(1, Ordering::Relaxed);
        Consumer {
            memory,
            state,
            _types: PhantomData,
        }
    }

    /// The oldest sample, in place; `None` if there is none.
    #[inline(always)]
    pub fn try_read(&mut self) -> Option<ReadSlot<'_, T, N, P, H>> {
        let claim = self.state.claim(&*self.memory)?;
        // Only a ring that drops can lose a newer sample for which older ones were returned.
        let skipped = if P::DROPS {
            self.state.take_gone_past()
        } else {
            0
        };
        Some(self.hold(claim, skipped))
    }

    /// The newest sample, in place; older ones are returned unread, and counted by [`ReadSlot::skipped`].
    pub fn try_latest(&mut self) -> Option<ReadSlot<'_, T, N, P, H>> {
        let (claim, skipped) = self.state.claim_newest(&*self.memory)?;
        Some(self.hold(claim, skipped))
    }

    /// Up to `most` consecutive samples, in place, returned together; `None` if there is none.
    pub fn try_read_batch(&mut self, most: usize) -> Option<ReadBatch<'_, T, N, P, H>> {
        if most == 0 {
            return None;
        }
        let first = self.state.claim(&*self.memory)?;
        let mut count = 1;
        while count < most.min(N) && self.state.claim_next_in_row(&*self.memory).is_some() {
            count += 1;
        }
        Some(ReadBatch {
            consumer: self,
            first,
            count,
        })
    }

    /// A copy of the oldest sample.
    pub fn pop(&mut self) -> Option<Reading<T>>
    where
        T: Clone,
    {
        let slot = self.try_read()?;
        Some(Reading::new(T::clone(&slot), slot.meta()))
    }

    /// Whether a sample is there.
    #[inline(always)]
    pub fn has_new(&self) -> bool {
        self.state.has_next(&*self.memory)
    }

    /// The number of samples dropped unread over the ring's lifetime.
    pub fn lost(&self) -> u64 {
        self.memory.lost().load(Ordering::Relaxed) as u64
    }

    /// The most samples that waited at once over the ring's lifetime: how large it has to be.
    pub fn high_water(&self) -> u64 {
        self.memory.high_water().load(Ordering::Relaxed) as u64
    }

    /// Whether the producer is gone, or not there yet. A thread that sees this sees everything that it wrote: if there
    /// is then nothing to read, nothing more will come, except from a successor. In shared memory this asks the kernel
    /// and also detects a killed process.
    pub fn is_abandoned(&self) -> bool {
        let is_here = || self.memory.producer_is_here.load(order::end_leave_load()) != 0;
        !self.memory.is_opposite_alive().unwrap_or_else(is_here)
    }

    #[inline(always)]
    fn hold(&mut self, claim: Claim, skipped: usize) -> ReadSlot<'_, T, N, P, H> {
        let frame = Some(self.memory.slot(claim.slot).frame.get());
        ReadSlot {
            consumer: self,
            frame,
            claim,
            skipped,
        }
    }

    pub(super) fn place(&self, slot: usize) -> &SharedCell<Frame<T>> {
        &self.memory.slot(slot).frame
    }
}

impl<T, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Drop
    for Consumer<T, N, P, H>
{
    fn drop(&mut self) {
        self.memory
            .consumer_is_here
            .store(0, order::end_leave_store());
    }
}

/// A sample being read in place. Dropping it returns the slot to the producer.
pub struct ReadSlot<'a, T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> {
    consumer: &'a mut Consumer<T, N, P, H>,
    /// `Some` until the guard is dropped.
    frame: Option<ConstPtr<Frame<T>>>,
    claim: Claim,
    skipped: usize,
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>>
    ReadSlot<'_, T, N, P, H>
{
    /// Which sample this is, and when it was written.
    pub fn meta(&self) -> Meta {
        Meta {
            generation: self.claim.position as u64,
            stamp: self.frame().stamp,
        }
    }

    /// The number of samples before this one that the producer dropped unread.
    pub fn missed(&self) -> u64 {
        self.claim.missed as u64
    }

    /// The number of older samples that [`Consumer::try_latest`] skipped.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Dies while holding the slot, as a process can; for the models.
    #[cfg(loom)]
    pub fn die(mut self) {
        self.frame = None;
        core::mem::forget(self);
    }

    #[inline(always)]
    fn frame(&self) -> &Frame<T> {
        match &self.frame {
            // SAFETY: the slot was claimed, so it is the consumer's, which this guard borrows.
            Some(frame) => unsafe { frame.deref() },
            None => unreachable!("a guard has its slot until it is dropped"),
        }
    }
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Deref
    for ReadSlot<'_, T, N, P, H>
{
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.frame().value
    }
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Drop
    for ReadSlot<'_, T, N, P, H>
{
    #[inline(always)]
    fn drop(&mut self) {
        self.frame = None;
        ConsumerState::release(&*self.consumer.memory, self.claim);
    }
}
