//! The marks, and which end may change them.
//!
//! A mark is a position (the number of the sample, counted from 1) and a state; 0 on a slot that was never used:
//!
//! ```text
//!            producer commits            consumer claims (only where the producer may drop)
//!     Free ───────────────────► Ready ───────────────────► Reading
//!      ▲ ▲                       │ │                         │
//!      │ └── producer drops ─────┘ │                         │
//!      └──────────── consumer is done ◄──────────────────────┘
//! ```
//!
//! A dead process leaves every slot in one of these states, and its successor finds its position from the marks alone.

use crate::claim::Claim;
use crate::order;
use crate::steps::Steps;
use crate::sync::{AtomicCounter, AtomicMark, Ordering, Word};

const FREE: Word = 0;
const READY: Word = 1;
const READING: Word = 2;
const STATE: Word = 3;

#[inline(always)]
const fn mark(position: Word, state: Word) -> Word {
    position << 2 | state
}

/// Whether a position is at or after another; positions may wrap, but not by half of their range at once.
const fn is_from(position: Word, start: Word) -> bool {
    // Two bits of a word are the state.
    position.wrapping_sub(start) << 2 <= Word::MAX / 2
}

pub(crate) trait Memory {
    const DROPS: bool;
    fn capacity(&self) -> usize;
    fn slots(&self) -> usize;
    fn mark(&self, slot: usize) -> &AtomicMark;
    fn head(&self) -> &AtomicMark;
    fn lost(&self) -> &AtomicMark;
    fn refused(&self) -> &AtomicMark;
    /// The most samples that waited at once.
    fn high_water(&self) -> &AtomicCounter;
}

#[inline(always)]
fn after<M: Memory>(memory: &M, slot: usize) -> usize {
    if slot + 1 == memory.slots() {
        0
    } else {
        slot + 1
    }
}

/// The slot and the position of the newest sample that was ever in the ring, from the marks; position 0 if none was.
///
/// For a producer that takes over. Only producers write positions, all before this one; a consumer does not change
/// them, so a mark of any age will do, and there is nothing to acquire.
fn newest<M: Memory>(memory: &M) -> (usize, Word) {
    let mut newest = (memory.slots() - 1, 0);
    for slot in 0..memory.slots() {
        let mark = memory.mark(slot).load(Ordering::Relaxed);
        if mark != 0 && (newest.1 == 0 || is_from(mark >> 2, newest.1)) {
            newest = (slot, mark >> 2);
        }
    }
    newest
}

/// The producer's state.
pub(crate) struct ProducerState<Book> {
    /// The position of the next sample.
    position: Word,
    /// Where it will go, if that slot is free.
    slot: usize,
    /// The slot of each of the last samples, by position modulo the capacity; empty if nothing is dropped.
    book: Book,
    /// The index in the book of the next sample.
    page: usize,
}

impl<Book: AsRef<[u32]> + AsMut<[u32]>> ProducerState<Book> {
    /// Takes over from a producer that is gone, or starts.
    pub(crate) fn attach<M: Memory>(memory: &M, mut book: Book) -> Self {
        let (slot, newest) = newest(memory);
        if M::DROPS {
            let capacity = memory.capacity();
            let oldest = newest.wrapping_sub(capacity as Word).wrapping_add(1);
            for slot in 0..memory.slots() {
                let mark = memory.mark(slot).load(Ordering::Relaxed);
                let position = mark >> 2;
                if mark & STATE != READY {
                } else if is_from(position, oldest) {
                    book.as_mut()[position as usize % capacity] = slot as u32;
                } else {
                    // A producer died after publishing a sample and before dropping the one that it replaces.
                    drop_unread(memory, slot, position);
                }
            }
            // The head moves after the mark, so a producer may have died between the two.
            memory
                .head()
                .store(newest, order::ring_takeover_head_store());
        }
        let position = newest.wrapping_add(1);
        ProducerState {
            position,
            slot: after(memory, slot),
            book,
            page: position as usize % memory.capacity(),
        }
    }

    pub(crate) fn position(&self) -> Word {
        self.position
    }

    /// The slot that the next sample may be written to; `None` if there is none.
    #[inline(always)]
    pub(crate) fn claim<M: Memory>(&mut self, memory: &M) -> Option<usize> {
        if memory.mark(self.slot).load(order::ring_free_load()) & STATE == FREE {
            return Some(self.slot);
        }
        if M::DROPS && (self.find_free(memory) || self.make_room(memory) || self.find_free(memory))
        {
            return Some(self.slot);
        }
        let refused = memory.refused().load(Ordering::Relaxed);
        memory
            .refused()
            .store(refused.wrapping_add(1), Ordering::Relaxed);
        if !M::DROPS {
            saw_waiting(memory, memory.capacity());
        }
        None
    }

    /// The number of consecutive free slots, from the claimed one on, up to `most`.
    pub(crate) fn free_in_a_row<M: Memory>(&self, memory: &M, most: usize) -> usize {
        let mut slot = self.slot;
        let mut count = 0;
        while count < most.min(memory.capacity())
            && memory.mark(slot).load(order::ring_free_load()) & STATE == FREE
        {
            slot = after(memory, slot);
            count += 1;
        }
        count
    }

    /// Whether the slot after the claimed one is free too.
    #[inline(always)]
    pub(crate) fn free_ahead<M: Memory>(&self, memory: &M) -> Option<usize> {
        let is_free = memory.mark(self.slot).load(order::ring_free_load()) & STATE == FREE;
        is_free.then_some(self.slot)
    }

    /// Drops the oldest sample to free its slot: a reader holds so many that no other slot is left.
    ///
    /// All samples that can be dropped are in the book, which has the last ones up to the capacity. If each of them was
    /// claimed before it could be dropped, then so many are being read that others were returned.
    #[cold]
    fn make_room<M: Memory>(&mut self, memory: &M) -> bool {
        let capacity = memory.capacity();
        for age in (1..=capacity).rev() {
            let page = (self.page + capacity - age) % capacity;
            let slot = self.book.as_ref()[page] as usize % memory.slots();
            let position = self.position.wrapping_sub(age as Word);
            if drop_unread(memory, slot, position) {
                self.slot = slot;
                return true;
            }
        }
        false
    }

    /// Whether there is a slot, possibly by dropping its sample.
    pub(crate) fn has_room<M: Memory>(&mut self, memory: &M) -> bool {
        self.free_ahead(memory).is_some()
            || M::DROPS
                && (self.find_free(memory)
                    || (0..memory.slots())
                        .any(|slot| memory.mark(slot).load(Ordering::Relaxed) & STATE == READY))
    }

    /// Skips the slots that are being read.
    ///
    /// Twice around: the first time a returned slot may still look as if it were being read. But a reader holds at most
    /// the capacity at once, and there are two more slots. So if all look as if they were being read, the one that was
    /// taken last was taken after others were returned, and having seen that, the second round sees those free.
    #[cold]
    pub(crate) fn find_free<M: Memory>(&mut self, memory: &M) -> bool {
        for _ in 0..2 * memory.slots() {
            if memory.mark(self.slot).load(order::ring_free_load()) & STATE == FREE {
                return true;
            }
            self.slot = after(memory, self.slot);
        }
        false
    }

    /// Gives the claimed slot to the consumer and, if the ring drops, makes room for it.
    #[inline(always)]
    pub(crate) fn publish<M: Memory>(&mut self, memory: &M, steps: &mut impl Steps) {
        if steps.stop() {
            return;
        }
        memory
            .mark(self.slot)
            .store(mark(self.position, READY), order::ring_ready_store());
        if M::DROPS {
            let capacity = memory.capacity();
            let oldest = core::mem::replace(&mut self.book.as_mut()[self.page], self.slot as u32);
            let oldest = oldest as usize % memory.slots();
            let position = self.position.wrapping_sub(capacity as Word);
            if steps.stop() {
                return;
            }
            drop_unread(memory, oldest, position);
            self.page = if self.page + 1 == capacity {
                0
            } else {
                self.page + 1
            };
            if steps.stop() {
                return;
            }
            memory.head().store(self.position, order::ring_head_store());
        }
        self.position = self.position.wrapping_add(1);
        self.slot = after(memory, self.slot);
    }
}

/// Drops a sample unless it was read or is being read; returns whether it was dropped.
#[inline(always)]
fn drop_unread<M: Memory>(memory: &M, slot: usize, position: Word) -> bool {
    let slot = memory.mark(slot);
    let (ready, free) = (mark(position, READY), mark(position, FREE));
    // Nothing to acquire: the consumer has not touched a sample that is still ready.
    let is_dropped = slot.load(Ordering::Relaxed) == ready
        && slot
            .compare_exchange(ready, free, order::ring_drop(), Ordering::Relaxed)
            .is_ok();
    if is_dropped {
        let lost = memory.lost().load(Ordering::Relaxed);
        memory.lost().store(lost.wrapping_add(1), Ordering::Relaxed);
        saw_waiting(memory, memory.capacity());
    }
    is_dropped
}

/// Records how many samples waited at once.
#[inline(always)]
fn saw_waiting<M: Memory>(memory: &M, count: usize) {
    // A load first: a ring that drops constantly calls this constantly, and both ends write it.
    if (memory.high_water().load(Ordering::Relaxed) as usize) < count {
        memory
            .high_water()
            .fetch_max(count as Word, Ordering::Relaxed);
    }
}

/// The consumer's state.
pub(crate) struct ConsumerState {
    /// The position of the next sample.
    position: Word,
    /// Its slot, unless the producer had to skip slots.
    slot: usize,
    /// Samples that were skipped for a newer one, which was then dropped; only in a ring that drops.
    gone_past: usize,
    /// Samples that were dropped before those and not reported yet.
    missed_before: Word,
    /// The most samples that were seen to wait at once.
    #[cfg(not(loom))]
    most_waiting: usize,
    /// Whether the last poll found nothing, and whether the last sample was found after such a poll.
    #[cfg(not(loom))]
    was_empty: bool,
    #[cfg(not(loom))]
    is_first: bool,
}

impl ConsumerState {
    /// Takes over from a consumer that is gone, or starts.
    pub(crate) fn attach<M: Memory>(memory: &M) -> Self {
        for slot in 0..memory.slots() {
            // Only consumers, all before this one, mark slots as being read: nothing to acquire.
            let found = memory.mark(slot).load(Ordering::Relaxed);
            if found & STATE == READING {
                // A consumer died while it read this: release it.
                memory
                    .mark(slot)
                    .store(mark(found >> 2, FREE), order::ring_takeover_free_store());
            }
        }
        // A producer that refuses can only continue until the ring is full, and each of its steps adds to the marks: a
        // second survey with the same sum saw the same marks, all at once. One that drops may continue forever, but
        // then the survey need not be exact, as missing samples are searched for.
        let (mut state, mut sum) = Self::survey(memory);
        if !M::DROPS {
            loop {
                let last = sum;
                (state, sum) = Self::survey(memory);
                if sum == last {
                    break;
                }
            }
        }
        state
    }

    /// Where to continue, by the marks as they were read one after the other, and their sum.
    fn survey<M: Memory>(memory: &M) -> (Self, Word) {
        let mut oldest: Option<(usize, Word)> = None;
        let mut newest = (memory.slots() - 1, 0);
        let mut sum: Word = 0;
        for slot in 0..memory.slots() {
            let mark = memory.mark(slot).load(order::ring_takeover_load());
            let position = mark >> 2;
            sum = sum.wrapping_add(mark);
            if mark & STATE == READY && oldest.is_none_or(|(_, best)| is_from(best, position)) {
                oldest = Some((slot, position));
            }
            if mark != 0 && (newest.1 == 0 || is_from(position, newest.1)) {
                newest = (slot, position);
            }
        }
        // With nothing to read, the next sample is the one after the newest that was there.
        let (slot, position) =
            oldest.unwrap_or((after(memory, newest.0), newest.1.wrapping_add(1)));
        let state = ConsumerState {
            position,
            slot,
            gone_past: 0,
            missed_before: 0,
            #[cfg(not(loom))]
            most_waiting: 0,
            #[cfg(not(loom))]
            was_empty: false,
            #[cfg(not(loom))]
            is_first: false,
        };
        (state, sum)
    }

    /// Takes the oldest sample that is left.
    #[inline(always)]
    pub(crate) fn claim<M: Memory>(&mut self, memory: &M) -> Option<Claim> {
        let expected = mark(self.position, READY);
        if !M::DROPS {
            if memory.mark(self.slot).load(order::ring_ready_load()) != expected {
                self.found_nothing();
                return None;
            }
            return Some(self.took(memory, self.slot, self.position));
        }
        if Self::claim_at(memory, self.slot, self.position) {
            return Some(self.took(memory, self.slot, self.position));
        }
        let found = self.claim_elsewhere(memory);
        if found.is_none() {
            self.found_nothing();
        }
        found
    }

    #[inline(always)]
    fn found_nothing(&mut self) {
        #[cfg(not(loom))]
        {
            self.was_empty = true;
        }
    }

    /// Takes the newest sample and returns older ones unread, with their number.
    pub(crate) fn claim_newest<M: Memory>(&mut self, memory: &M) -> Option<(Claim, usize)> {
        let mut newest = self.claim(memory)?;
        while self.has_next(memory) {
            Self::release(memory, newest);
            self.gone_past += 1;
            self.missed_before = newest.missed;
            newest = self.claim(memory)?;
        }
        Some((newest, self.take_gone_past()))
    }

    /// The number of skipped samples not reported yet.
    #[inline(always)]
    pub(crate) fn take_gone_past(&mut self) -> usize {
        core::mem::take(&mut self.gone_past)
    }

    /// Whether there is a sample that was not taken yet.
    #[inline(always)]
    pub(crate) fn has_next<M: Memory>(&self, memory: &M) -> bool {
        let is_next =
            memory.mark(self.slot).load(order::ring_ready_load()) == mark(self.position, READY);
        is_next || (M::DROPS && !self.has_all(memory))
    }

    /// Whether the newest sample was taken.
    #[inline(always)]
    fn has_all<M: Memory>(&self, memory: &M) -> bool {
        // The head moves after the mark, so it can lag what was already read.
        !is_from(memory.head().load(order::ring_head_load()), self.position)
    }

    /// Takes the next sample only if it is in the next slot, for batches.
    pub(crate) fn claim_next_in_row<M: Memory>(&mut self, memory: &M) -> Option<Claim> {
        if !M::DROPS {
            return self.claim(memory);
        }
        let (slot, position) = (self.slot, self.position);
        Self::claim_at(memory, slot, position).then(|| self.took(memory, slot, position))
    }

    /// The producer has dropped samples or skipped a slot: searches for the oldest that is left.
    #[cold]
    fn claim_elsewhere<M: Memory>(&mut self, memory: &M) -> Option<Claim> {
        // Each failed round means that the producer has dropped more samples. That could go on forever, so the number
        // of rounds is bounded.
        for _ in 0..=memory.slots() {
            if self.has_all(memory) {
                return None;
            }
            let mut oldest: Option<(usize, Word)> = None;
            for slot in 0..memory.slots() {
                let mark = memory.mark(slot).load(order::ring_scan_load());
                let position = mark >> 2;
                if mark & STATE == READY
                    && is_from(position, self.position)
                    && oldest.is_none_or(|(_, best)| is_from(best, position))
                {
                    oldest = Some((slot, position));
                }
            }
            if let Some((slot, position)) = oldest
                && Self::claim_at(memory, slot, position)
            {
                return Some(self.took(memory, slot, position));
            }
        }
        None
    }

    #[inline(always)]
    fn claim_at<M: Memory>(memory: &M, slot: usize, position: Word) -> bool {
        let expected = mark(position, READY);
        let slot = memory.mark(slot);
        // Load first: an empty ring is polled, and an exchange would take the cache line from the producer each time.
        slot.load(Ordering::Relaxed) == expected
            && slot
                .compare_exchange(
                    expected,
                    mark(position, READING),
                    order::ring_claim(),
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    #[inline(always)]
    fn took<M: Memory>(&mut self, memory: &M, slot: usize, position: Word) -> Claim {
        let mut missed = position.wrapping_sub(self.position);
        if M::DROPS {
            missed = missed.wrapping_add(core::mem::take(&mut self.missed_before));
        }
        self.position = position.wrapping_add(1);
        self.slot = after(memory, slot);
        #[cfg(not(loom))] // a statistic, whose loads would make the models explode
        self.count_waiting(memory, slot, position);
        Claim {
            slot,
            position,
            missed,
        }
    }

    /// Updates the high water mark: counts how many samples wait, from the one just taken, if there are more than ever
    /// before.
    ///
    /// Waiting samples are consecutive. So there are more than ever before if the sample that far after this one is
    /// there. Not checked after a poll that found nothing: the producer is then most likely working on the next slot,
    /// and a load of it would slow it down. The next sample makes up for that, and counts this one too.
    #[cfg(not(loom))]
    #[inline(always)]
    fn count_waiting<M: Memory>(&mut self, memory: &M, slot: usize, position: Word) {
        let before = usize::from(self.is_first);
        self.is_first = core::mem::take(&mut self.was_empty);
        let most = self.most_waiting;
        if most >= memory.capacity() || (self.is_first && most > 0) {
            return;
        }
        // This many after this one; the first is the one just taken.
        let distance = most.saturating_sub(before);
        let mut ahead = slot + distance;
        if ahead >= memory.slots() {
            ahead -= memory.slots();
        }
        let expected = mark(position.wrapping_add(distance as Word), READY);
        if distance == 0 || memory.mark(ahead).load(Ordering::Relaxed) == expected {
            self.count_more_waiting(memory, slot, position, before);
        }
    }

    #[cfg(not(loom))]
    #[cold]
    fn count_more_waiting<M: Memory>(
        &mut self,
        memory: &M,
        slot: usize,
        position: Word,
        before: usize,
    ) {
        let (mut slot, mut count) = (after(memory, slot), 1);
        while count + before < memory.capacity() {
            let expected = mark(position.wrapping_add(count as Word), READY);
            if memory.mark(slot).load(Ordering::Relaxed) != expected {
                break;
            }
            (slot, count) = (after(memory, slot), count + 1);
        }
        self.most_waiting = self.most_waiting.max(count + before);
        saw_waiting(memory, self.most_waiting);
    }

    /// Returns the slot to the producer.
    #[inline(always)]
    pub(crate) fn release<M: Memory>(memory: &M, claim: Claim) {
        memory
            .mark(claim.slot)
            .store(mark(claim.position, FREE), order::ring_free_store());
    }
}
