//! The marks, and which end may change them.
//!
//! A mark is a position (the number of the sample, counted from 1), a bit for each reader that is reading it, and
//! whether it can be read at all; 0 on a slot that was never used:
//!
//! ```text
//!            producer commits              a reader begins, and ends
//!     Free ───────────────────► Ready ◄────────────────────────────► Ready, with its bit
//!      ▲                          │
//!      └─ producer takes it back ─┘  when N newer ones exist and it is not being read
//! ```
//!
//! Readers take nothing from each other. A dead one leaves its bits, which its successor clears; until then the slot is
//! out of use, and there is one spare slot for each reader.

use crate::claim::Claim;
use crate::order;
use crate::steps::Steps;
use crate::sync::{AtomicCounter, AtomicMark, Ordering, Word};

/// The most readers: their bits and a position share a word.
pub(crate) const MAX_READERS: usize = 16;

const READY: Word = 1;
const READERS: Word = 0xffff << 1;
const POSITION: u32 = 17;

const fn ready(position: Word) -> Word {
    position << POSITION | READY
}

const fn bit(reader: usize) -> Word {
    2 << reader
}

/// Whether a position is at or after another; positions may wrap, but not by half of their range at once.
const fn is_from(position: Word, start: Word) -> bool {
    position.wrapping_sub(start) << POSITION <= Word::MAX / 2
}

pub(crate) trait Memory {
    fn capacity(&self) -> usize;
    fn readers(&self) -> usize;
    /// One for each kept sample, one for each reader, and one being filled.
    fn slots(&self) -> usize {
        self.capacity() + self.readers() + 1
    }
    fn mark(&self, slot: usize) -> &AtomicMark;
    fn head(&self) -> &AtomicMark;
    /// The position that a reader wants next; 0 while there is none.
    fn place(&self, reader: usize) -> &AtomicCounter;
    fn refused(&self) -> &AtomicCounter;
}

fn after<M: Memory>(memory: &M, slot: usize) -> usize {
    if slot + 1 == memory.slots() {
        0
    } else {
        slot + 1
    }
}

/// The producer's state.
pub(crate) struct ProducerState {
    /// The position of the next sample.
    position: Word,
    /// Where it will go, if that slot is available.
    slot: usize,
}

impl ProducerState {
    /// Takes over from a producer that is gone, or starts.
    pub(crate) fn attach<M: Memory>(memory: &M) -> Self {
        // Only producers write positions, all before this one: a mark of any age will do.
        let mut newest = (memory.slots() - 1, 0);
        for slot in 0..memory.slots() {
            let mark = memory.mark(slot).load(Ordering::Relaxed);
            let position = mark >> POSITION;
            if mark & READY != 0 && (newest.1 == 0 || is_from(position, newest.1)) {
                newest = (slot, position);
            }
        }
        // The head moves after the mark, so a producer may have died between the two.
        let head = order::broadcast_takeover_head_store();
        memory.head().store(newest.1, head);
        ProducerState {
            position: newest.1.wrapping_add(1),
            slot: after(memory, newest.0),
        }
    }

    pub(crate) fn position(&self) -> Word {
        self.position
    }

    /// The slot that the next sample may be written to. There is always one while each reader reads one sample at a time.
    pub(crate) fn claim<M: Memory>(&mut self, memory: &M) -> Option<usize> {
        // A failed try means that a reader has just begun to read that sample, and readers read one at a time. The
        // first time around a returned slot may also look as if it were being read; but then another one of the same
        // reader looks so too, and having seen that, the next round sees the first one returned.
        for _ in 0..(memory.readers() + 2) * memory.slots() {
            if self.take_back(memory, self.slot) {
                return Some(self.slot);
            }
            self.slot = after(memory, self.slot);
        }
        memory.refused().fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Like [`claim`](Self::claim), but `None` if a reader has not read the sample that would be dropped for it.
    pub(crate) fn claim_lossless<M: Memory>(&mut self, memory: &M) -> Option<usize> {
        let oldest = self.position.wrapping_sub(memory.capacity() as Word);
        for reader in 0..memory.readers() {
            let place = memory.place(reader).load(Ordering::Relaxed);
            if place != 0 && is_from(oldest, place as Word) {
                memory.refused().fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        self.claim(memory)
    }

    /// Takes a slot out of use, if its sample is not needed.
    fn take_back<M: Memory>(&self, memory: &M, slot: usize) -> bool {
        let slot = memory.mark(slot);
        let mark = slot.load(order::broadcast_scan_load());
        if mark & READY == 0 {
            // Never used, or taken back and then not filled.
            return true;
        }
        let window = self.position.wrapping_sub(memory.capacity() as Word);
        let is_kept = is_from(mark >> POSITION, window);
        if is_kept || mark & READERS != 0 {
            return false;
        }
        slot.compare_exchange(
            mark,
            mark & !READY,
            order::broadcast_take_back(),
            Ordering::Relaxed,
        )
        .is_ok()
    }

    /// Gives the claimed slot to all readers.
    pub(crate) fn publish<M: Memory>(&mut self, memory: &M, steps: &mut impl Steps) {
        if steps.stop() {
            return;
        }
        memory
            .mark(self.slot)
            .store(ready(self.position), order::broadcast_ready_store());
        if steps.stop() {
            return;
        }
        memory
            .head()
            .store(self.position, order::broadcast_head_store());
        self.position = self.position.wrapping_add(1);
        self.slot = after(memory, self.slot);
    }
}

/// A reader's state.
pub(crate) struct ReaderState {
    reader: usize,
    /// The position of the next sample.
    position: Word,
    /// Its likely slot.
    slot: usize,
    missed_in_all: u64,
}

impl ReaderState {
    /// Takes over from a reader that is gone, at its position; or starts with what is written from now on.
    pub(crate) fn attach<M: Memory>(memory: &M, reader: usize) -> Self {
        for slot in 0..memory.slots() {
            // What this reader's predecessor left; no other end changes this bit.
            let slot = memory.mark(slot);
            if slot.load(Ordering::Relaxed) & bit(reader) != 0 {
                slot.fetch_and(!bit(reader), order::broadcast_takeover_unpin());
            }
        }
        let mut position = memory.place(reader).load(Ordering::Relaxed) as Word;
        if position == 0 {
            let head = memory.head().load(order::broadcast_head_load());
            position = head.wrapping_add(1);
            memory.place(reader).store(position as _, Ordering::Relaxed);
        }
        ReaderState {
            reader,
            position,
            slot: 0,
            missed_in_all: 0,
        }
    }

    /// Leaves: the producer no longer waits for this reader.
    pub(crate) fn leave<M: Memory>(&self, memory: &M) {
        memory.place(self.reader).store(0, Ordering::Relaxed);
    }

    pub(crate) fn missed_in_all(&self) -> u64 {
        self.missed_in_all
    }

    /// The number of samples that this reader has not read.
    pub(crate) fn waiting<M: Memory>(&self, memory: &M) -> u64 {
        let next = memory
            .head()
            .load(order::broadcast_head_load())
            .wrapping_add(1);
        // The head moves after the mark, so it can lag what was already read.
        if is_from(next, self.position) {
            (next.wrapping_sub(self.position) << POSITION >> POSITION) as u64
        } else {
            0
        }
    }

    /// Takes the oldest remaining sample that this reader has not read.
    pub(crate) fn claim<M: Memory>(&mut self, memory: &M) -> Option<Claim> {
        if self.pin(memory, self.slot, self.position) {
            return Some(self.took(memory, self.slot, self.position));
        }
        // Each failed round means that the producer has taken back more samples. That could go on forever, so the
        // number of rounds is bounded.
        for _ in 0..=memory.slots() {
            if self.waiting(memory) == 0 {
                return None;
            }
            let oldest = |best, position| is_from(best, position);
            if let Some(claim) = self.claim_best(memory, self.position, oldest) {
                return Some(claim);
            }
        }
        None
    }

    /// Takes the newest sample and skips older ones; those count as missed.
    ///
    /// It never holds two at once, not even temporarily: there is one spare slot for each reader, not two.
    pub(crate) fn claim_newest<M: Memory>(&mut self, memory: &M) -> Option<Claim> {
        // As in `claim`: a failed round means that the producer has moved on.
        for _ in 0..=memory.slots() {
            let head = memory.head().load(order::broadcast_head_load());
            if !is_from(head, self.position.wrapping_add(1)) {
                // At most one is waiting.
                return self.claim(memory);
            }
            let newest = |best, position| is_from(position, best);
            if let Some(claim) = self.claim_best(memory, head, newest) {
                return Some(claim);
            }
        }
        None
    }

    /// Searches all slots for the best sample from a position on, and takes it if it is still there.
    fn claim_best<M: Memory>(
        &mut self,
        memory: &M,
        start: Word,
        is_better: impl Fn(Word, Word) -> bool,
    ) -> Option<Claim> {
        let mut best: Option<(usize, Word)> = None;
        for slot in 0..memory.slots() {
            let mark = memory.mark(slot).load(order::broadcast_scan_load());
            let position = mark >> POSITION;
            if mark & READY != 0
                && is_from(position, start)
                && best.is_none_or(|(_, best)| is_better(best, position))
            {
                best = Some((slot, position));
            }
        }
        let (slot, position) = best?;
        self.pin(memory, slot, position)
            .then(|| self.took(memory, slot, position))
    }

    /// Marks a sample as being read by this reader, if it is there.
    fn pin<M: Memory>(&self, memory: &M, slot: usize, position: Word) -> bool {
        let slot = memory.mark(slot);
        let mut mark = slot.load(Ordering::Relaxed);
        // Another reader may pin or release at the same time, each once per sample.
        while mark & !READERS == ready(position) {
            match slot.compare_exchange(
                mark,
                mark | bit(self.reader),
                order::broadcast_pin(),
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(found) => mark = found,
            }
        }
        false
    }

    fn took<M: Memory>(&mut self, memory: &M, slot: usize, position: Word) -> Claim {
        let missed = position.wrapping_sub(self.position) << POSITION >> POSITION;
        self.missed_in_all += missed as u64;
        self.position = position.wrapping_add(1);
        self.slot = after(memory, slot);
        Claim {
            slot,
            position,
            missed,
        }
    }

    /// Marks a sample as read by this reader.
    pub(crate) fn release<M: Memory>(&self, memory: &M, claim: Claim) {
        memory
            .mark(claim.slot)
            .fetch_and(!bit(self.reader), order::broadcast_unpin());
        let next = claim.position.wrapping_add(1);
        memory
            .place(self.reader)
            .store(next as _, Ordering::Relaxed);
    }
}
