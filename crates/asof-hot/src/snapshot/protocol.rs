//! The mailboxes, and which end may change them.

use crate::order;
use crate::stamp::MonoStamp;
use crate::steps::Steps;
use crate::sync::{AtomicMark, Ordering, Word};
use crate::words::fetch_for_writing;

/// What the protocol needs of the memory: typed in Rust, sized at run time in the C interface.
pub(crate) trait Memory {
    /// The number of readers; there are two more buffers.
    fn readers(&self) -> usize;
    fn mailbox(&self, reader: usize) -> &AtomicMark;
    /// Which publication a buffer holds.
    ///
    /// # Safety
    /// A mailbox names the buffer, so it is not written.
    unsafe fn generation_of(&self, buffer: usize) -> u64;
    /// Writes generation and stamp into a buffer.
    ///
    /// # Safety
    /// No mailbox names the buffer, and the caller is the writer.
    unsafe fn seal(&self, buffer: usize, generation: u64, stamp: MonoStamp);
    /// The address of a buffer, only for cache hints.
    fn address(&self, buffer: usize) -> *const u8;
}

/// A valid buffer number, whatever another process has put into a mailbox.
#[inline(always)]
fn existing<M: Memory>(memory: &M, buffer: usize) -> usize {
    if buffer < memory.readers() + 2 {
        buffer
    } else {
        0
    }
}

/// The contents of a mailbox: the buffer that is offered to its reader, whether that was taken, and which buffer the
/// reader holds if it was not.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mail(Word);

impl Mail {
    const FRESH: Word = 1 << 31;

    #[inline(always)]
    const fn new(offered: usize, held: usize, is_fresh: bool) -> Self {
        Mail(offered as Word | (held as Word) << 15 | (is_fresh as Word) << 31)
    }
    #[inline(always)]
    const fn offered(self) -> usize {
        (self.0 & 0x7fff) as usize
    }
    #[inline(always)]
    const fn is_fresh(self) -> bool {
        self.0 & Self::FRESH != 0
    }
    /// The buffer that the reader holds.
    #[inline(always)]
    const fn in_hand(self) -> usize {
        if self.is_fresh() {
            (self.0 >> 15 & 0x7fff) as usize
        } else {
            self.offered()
        }
    }
}

/// The writer's state.
pub(crate) struct WriterState<Known> {
    /// The buffer that was published last.
    pub(crate) front: usize,
    /// The buffer that no reader has.
    pub(crate) back: usize,
    pub(crate) generation: u64,
    /// What each mailbox held when it was last read; its reader may have taken the offer since.
    known: Known,
}

impl<Known: AsRef<[Mail]> + AsMut<[Mail]>> WriterState<Known> {
    /// Takes over from a writer that is gone, or starts; completes an unfinished publication. `known` has room for each
    /// reader.
    pub(crate) fn attach<M: Memory>(memory: &M, known: Known) -> Self {
        let mut state = WriterState {
            front: 0,
            back: 0,
            generation: 0,
            known,
        };
        for reader in 0..memory.readers() {
            let mailbox = memory.mailbox(reader);
            let mail = Mail(mailbox.load(order::snapshot_takeover_load()));
            state.known.as_mut()[reader] = mail;
            let buffer = existing(memory, mail.offered());
            // SAFETY: the mailbox names it.
            let generation = unsafe { memory.generation_of(buffer) };
            if generation >= state.generation {
                (state.front, state.generation) = (buffer, generation);
            }
        }
        // Only to readers that were not offered it: for the others nothing is new, in particular before the first
        // publication.
        for reader in 0..memory.readers() {
            if existing(memory, state.known.as_ref()[reader].offered()) != state.front {
                state.known.as_mut()[reader] = offer(memory.mailbox(reader), state.front);
            }
        }
        state.back = state.unused(memory);
        state
    }

    #[inline(always)]
    pub(crate) fn publish<M: Memory>(
        &mut self,
        memory: &M,
        stamp: MonoStamp,
        steps: &mut impl Steps,
    ) {
        self.generation += 1;
        // SAFETY: no mailbox names the back buffer, so it is ours.
        unsafe { memory.seal(self.back, self.generation, stamp) };
        self.offer_to_all(memory, self.back, steps);
        self.front = self.back;
        self.back = self.unused(memory);
        fetch_for_writing(memory.address(self.back), 64);
    }

    #[inline(always)]
    fn offer_to_all<M: Memory>(&mut self, memory: &M, buffer: usize, steps: &mut impl Steps) {
        for reader in 0..memory.readers() {
            if steps.stop() {
                return;
            }
            self.known.as_mut()[reader] = offer(memory.mailbox(reader), buffer);
        }
    }

    /// A buffer that is not the front buffer and that no reader can have.
    #[inline(always)]
    fn unused<M: Memory>(&self, memory: &M) -> usize {
        let known = self.known.as_ref();
        if memory.readers() + 2 <= 64 {
            let mut used = 1u64 << (self.front & 63);
            for mail in known {
                used |= 1 << (mail.in_hand() & 63);
            }
            return (!used).trailing_zeros() as usize;
        }
        let mut candidate = 0;
        while candidate == self.front || known.iter().any(|mail| mail.in_hand() == candidate) {
            candidate += 1;
        }
        candidate
    }
}

/// Offers a buffer to one reader; returns the new contents of its mailbox.
#[inline(always)]
fn offer(mailbox: &AtomicMark, buffer: usize) -> Mail {
    // A load and a change would fetch the cache line twice from the reader's core.
    fetch_for_writing((&raw const *mailbox).cast(), 1);
    let mut found = Mail(mailbox.load(order::snapshot_taken_load()));
    if found.is_fresh() {
        // Its reader may take the last offer this very moment.
        let offer = Mail::new(buffer, found.in_hand(), true);
        let exchanged = mailbox.compare_exchange(
            found.0,
            offer.0,
            order::snapshot_exchange(),
            order::snapshot_taken_load(),
        );
        match exchanged {
            Ok(_) => return offer,
            Err(taken) => found = Mail(taken),
        }
    }
    // A reader leaves its mailbox alone until there is a new offer, so this needs no exchange.
    let offer = Mail::new(buffer, found.in_hand(), true);
    mailbox.store(offer.0, order::snapshot_offer_store());
    offer
}

/// A reader's state.
pub(crate) struct ReaderState {
    reader: usize,
    /// The buffer this reader has.
    pub(crate) held: usize,
}

impl ReaderState {
    /// Takes over from a reader that is gone, with the buffer that it held, or starts.
    pub(crate) fn attach<M: Memory>(memory: &M, reader: usize) -> Self {
        // A taken offer was taken, and acquired, by a reader before this one: nothing to acquire.
        let mut mail = Mail(memory.mailbox(reader).load(Ordering::Relaxed));
        if mail.is_fresh() {
            // Which buffer is held is only certain once the offer is taken.
            mail = take(memory.mailbox(reader));
        }
        ReaderState {
            reader,
            held: existing(memory, mail.offered()),
        }
    }

    #[inline(always)]
    pub(crate) fn has_new<M: Memory>(&self, memory: &M) -> bool {
        Mail(memory.mailbox(self.reader).load(Ordering::Relaxed)).is_fresh()
    }

    /// Takes the newest buffer, if there is one that it does not have.
    #[inline(always)]
    pub(crate) fn take_newest<M: Memory>(&mut self, memory: &M) {
        if self.has_new(memory) {
            self.held = existing(memory, take(memory.mailbox(self.reader)).offered());
        }
    }
}

/// Takes an existing offer. Only its reader clears the mark, so an atomic subtraction is enough.
#[inline(always)]
fn take(mailbox: &AtomicMark) -> Mail {
    Mail(mailbox.fetch_sub(Mail::FRESH, order::snapshot_take()))
}
