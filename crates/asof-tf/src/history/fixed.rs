//! A single sample under a seqlock.

use super::{History, MAX_READ_TRIES, Slot, Words};
use crate::sync::{AtomicU64, Ordering, SpinGuard, fence, pause};

/// A single sample under a seqlock: the pose of a static edge. Its two parts may be anywhere.
#[derive(Clone, Copy)]
pub(crate) struct Fixed<'a> {
    pub(crate) seq: &'a AtomicU64,
    pub(crate) slot: &'a Slot,
}

impl<'a> Fixed<'a> {
    /// The current sample, for one read without a retry; see [`Fixed::is_whole`].
    #[inline(always)]
    pub(crate) fn glance(&self) -> (&'a Slot, u64) {
        let seq = self.seq.load(Ordering::Acquire);
        (self.slot, seq)
    }

    /// Whether what was read since [`Fixed::glance`] was not torn.
    #[inline(always)]
    pub(crate) fn is_whole(&self, seq: u64) -> bool {
        fence(Ordering::Acquire);
        seq & 1 == 0 && self.seq.load(Ordering::Relaxed) == seq
    }

    /// Reads through `attempt`; its result for a torn sample is discarded.
    #[inline]
    pub(crate) fn read<R, B, W>(&self, latch: &History<B, W>, attempt: impl Fn(&Slot) -> R) -> R {
        for tries in 0..MAX_READ_TRIES {
            let seq = self.seq.load(Ordering::Acquire);
            let answer = attempt(self.slot);
            fence(Ordering::Acquire);
            if seq & 1 == 0 && self.seq.load(Ordering::Relaxed) == seq {
                return answer;
            }
            pause(tries);
        }
        let _held = latch.hold();
        attempt(self.slot)
    }

    /// For the holder of the edge's latch.
    pub(crate) fn set(&self, _held: &SpinGuard<'_>, words: &Words) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.slot.set(words);
        self.seq.store(seq + 2, Ordering::Release);
    }
}
