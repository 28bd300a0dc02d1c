//! Several slots at once.

use super::{Consumer, ConsumerState, Memory, Policy, Producer, Ring};
use crate::claim::Claim;
use crate::handle::Handle;
use crate::stamp::{Meta, MonoStamp};
use crate::steps::Whole;

/// Slots being filled, in order. [`commit`](Self::commit) gives them to the consumer; dropping this returns them
/// unused.
pub struct WriteBatch<'a, T, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> {
    pub(super) producer: &'a mut Producer<T, N, P, H>,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>>
    WriteBatch<'_, T, N, P, H>
{
    /// The number of slots.
    #[allow(clippy::len_without_is_empty)] // there is always one
    pub fn len(&self) -> usize {
        self.count
    }

    /// Fills each slot in turn; `fill` receives its index and the contents of its last use.
    pub fn fill(&mut self, mut fill: impl FnMut(usize, &mut T)) {
        for index in 0..self.count {
            let slot = wrapped(&*self.producer.memory, self.first + index);
            let frame = self.producer.place(slot).get_mut();
            // SAFETY: the slot is free, so it belongs to the producer, which this guard borrows; one at a time is
            // handed out.
            fill(index, &mut unsafe { frame.deref() }.value);
        }
    }

    /// Gives the slots to the consumer, all with one stamp.
    pub fn commit(self, stamp: MonoStamp) {
        for index in 0..self.count {
            let slot = wrapped(&*self.producer.memory, self.first + index);
            let frame = self.producer.place(slot).get_mut();
            // SAFETY: as in `fill`; the slots before this one are given away, this one is not yet.
            unsafe { frame.deref() }.stamp = stamp;
            drop(frame);
            self.producer.publish(&mut Whole);
        }
    }
}

/// Samples being read in place, in order. Dropping this returns the slots to the producer.
pub struct ReadBatch<'a, T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> {
    pub(super) consumer: &'a mut Consumer<T, N, P, H>,
    pub(super) first: Claim,
    pub(super) count: usize,
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>>
    ReadBatch<'_, T, N, P, H>
{
    /// The number of samples.
    #[allow(clippy::len_without_is_empty)] // there is always one
    pub fn len(&self) -> usize {
        self.count
    }

    /// The number of samples before these that the producer dropped unread.
    pub fn missed(&self) -> u64 {
        self.first.missed as u64
    }

    /// Calls `look` with each sample in turn.
    pub fn for_each(&self, mut look: impl FnMut(&T, Meta)) {
        for index in 0..self.count {
            let claim = self.claim(index);
            let frame = self.consumer.place(claim.slot).get();
            // SAFETY: the slot was claimed, so it is the consumer's, which this guard borrows.
            let frame = unsafe { frame.deref() };
            let meta = Meta {
                generation: claim.position as u64,
                stamp: frame.stamp,
            };
            look(&frame.value, meta);
        }
    }

    fn claim(&self, index: usize) -> Claim {
        Claim {
            slot: wrapped(&*self.consumer.memory, self.first.slot + index),
            position: self.first.position.wrapping_add(index as _),
            missed: 0,
        }
    }
}

impl<T: Send, const N: usize, P: Policy, H: Handle<Target = Ring<T, N, P>>> Drop
    for ReadBatch<'_, T, N, P, H>
{
    fn drop(&mut self) {
        for index in 0..self.count {
            ConsumerState::release(&*self.consumer.memory, self.claim(index));
        }
    }
}

/// A slot index that wraps around after the last slot.
pub(crate) fn wrapped<M: Memory>(memory: &M, index: usize) -> usize {
    if index >= memory.slots() {
        index - memory.slots()
    } else {
        index
    }
}
