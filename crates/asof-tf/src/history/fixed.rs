//! One sample that is replaced as a whole.

use super::{History, Slot, TRIES, Words};
use crate::sync::{AtomicU64, Held, Ordering, fence, pause};

/// One sample that is replaced as a whole: the pose of a static edge, under a seqlock.
pub(crate) struct Fixed {
    seq: AtomicU64,
    slot: Slot,
}

impl Fixed {
    pub(crate) fn new(words: &Words) -> Self {
        let slot = Slot::new();
        slot.set(words);
        Fixed {
            seq: AtomicU64::new(0),
            slot,
        }
    }

    /// The sample as it is now, for one read without another try; see [`Fixed::is_whole`].
    #[inline(always)]
    pub(crate) fn glance(&self) -> (&Slot, u64) {
        let seq = self.seq.load(Ordering::Acquire);
        (&self.slot, seq)
    }

    /// Whether what was read since [`Fixed::glance`] was whole.
    #[inline(always)]
    pub(crate) fn is_whole(&self, seq: u64) -> bool {
        fence(Ordering::Acquire);
        seq & 1 == 0 && self.seq.load(Ordering::Relaxed) == seq
    }

    /// Reads through `attempt`; whatever it makes of a torn sample is thrown away.
    #[inline]
    pub(crate) fn read<R, B>(&self, latch: &History<B>, attempt: impl Fn(&Slot) -> R) -> R {
        for tries in 0..TRIES {
            let seq = self.seq.load(Ordering::Acquire);
            let answer = attempt(&self.slot);
            fence(Ordering::Acquire);
            if seq & 1 == 0 && self.seq.load(Ordering::Relaxed) == seq {
                return answer;
            }
            pause(tries);
        }
        let _held = latch.hold();
        attempt(&self.slot)
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
