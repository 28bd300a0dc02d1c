//! One sample that is replaced as a whole.

use super::{History, MAX_READ_TRIES, Slot, Words};
use crate::sync::{AtomicU64, Held, Ordering, fence, pause};

/// One sample that is replaced as a whole: the pose of a static edge, under a seqlock. It stands wherever
/// there is room for its two parts.
#[derive(Clone, Copy)]
pub(crate) struct Fixed<'a> {
    pub(crate) seq: &'a AtomicU64,
    pub(crate) slot: &'a Slot,
}

impl<'a> Fixed<'a> {
    /// The sample as it is now, for one read without another try; see [`Fixed::is_whole`].
    #[inline(always)]
    pub(crate) fn glance(&self) -> (&'a Slot, u64) {
        let seq = self.seq.load(Ordering::Acquire);
        (self.slot, seq)
    }

    /// Whether what was read since [`Fixed::glance`] was whole.
    #[inline(always)]
    pub(crate) fn is_whole(&self, seq: u64) -> bool {
        fence(Ordering::Acquire);
        seq & 1 == 0 && self.seq.load(Ordering::Relaxed) == seq
    }

    /// Reads through `attempt`; whatever it makes of a torn sample is thrown away.
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
    pub(crate) fn set(&self, _held: &Held<'_>, words: &Words) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.slot.set(words);
        self.seq.store(seq + 2, Ordering::Release);
    }
}
