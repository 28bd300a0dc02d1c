//! The command that was followed last: usually also the next one, as sources command every few milliseconds.

use core::cell::Cell;

use super::{MOST, Memory, Stop, choose, floor, highest};
use crate::latest::{Memory as _, Settled, copy_settled};
use crate::order;
use crate::stamp::{Meta, MonoStamp};
use crate::sync::AtomicWord;
use crate::words::same_pairs;

/// The command that was followed last, with all that decided so: the words that sources, locks and the director wrote,
/// and the range of "now" in which every comparison with them comes out the same. While nothing of that changes, the
/// decision stands, whoever is locked, forced or silent.
#[derive(Clone)]
pub(crate) struct Followed {
    source: Cell<usize>,
    settled: Cell<Settled>,
    /// The head of the commands of this source.
    head: Cell<*const AtomicWord>,
    words: Words,
    /// The first time of the range, and how long it is.
    from: Cell<u64>,
    span: Cell<u64>,
}

/// Words in the order in which they are in the memory.
#[derive(Clone)]
#[repr(align(16))]
struct Words([Cell<u64>; 2 * MOST + 1]);

/// One of the words that decide: the sources' ends, the locks, the forced source.
#[inline(always)]
fn word<M: Memory>(memory: &M, index: usize) -> u64 {
    let (sources, locks) = (memory.source_count(), memory.lock_count());
    if index < sources {
        memory.end(index).load(order::mux_stamp_load())
    } else if index < sources + locks {
        memory.lock(index - sources).load(order::mux_stamp_load())
    } else {
        memory.forced().load(order::mux_stamp_load()) as u64
    }
}

// SAFETY: the places are only read, as any thread may that has the memory.
unsafe impl Send for Followed {}

impl Followed {
    /// Nothing was followed yet.
    pub(crate) fn new<M: Memory>(memory: &M) -> Self {
        let commands = memory.command(0);
        Followed {
            source: Cell::new(0),
            settled: Cell::new(Settled::nothing_in(commands)),
            head: Cell::new(commands.head()),
            words: Words([const { Cell::new(0) }; 2 * MOST + 1]),
            from: Cell::new(0),
            span: Cell::new(0),
        }
    }

    /// Copies out the command to follow at `now` and returns its source.
    ///
    /// # Safety
    /// `target` is valid for a value, and the memory is that of [`new`](Self::new), at the same place.
    #[inline(always)]
    pub(crate) unsafe fn choose<M: Memory>(
        &self,
        memory: &M,
        now: MonoStamp,
        target: *mut u8,
    ) -> Result<(usize, Meta), Stop> {
        // SAFETY: upheld by the caller; the head and the value are of one source, of the type of all.
        let found = unsafe {
            let head = &*self.head.get();
            copy_settled(memory.command(0), head, self.settled.get(), target)
        };
        // The command is still its source's newest and, after it was read, still the one to follow.
        if let Some(meta) = found
            && self.stands(memory, now)
        {
            return Ok((self.source.get(), meta));
        }
        // SAFETY: upheld by the caller.
        unsafe { self.choose_another(memory, now, target) }
    }

    /// Whether nothing has changed that decided which source is followed.
    #[inline(always)]
    fn stands<M: Memory>(&self, memory: &M, now: MonoStamp) -> bool {
        let words = memory.source_count() + memory.lock_count() + 1;
        // SAFETY: so many words are there and here, aligned to 16.
        let (pairs, mut is_same) =
            unsafe { same_pairs(memory.watched(), self.words.0.as_ptr().cast(), words / 2) };
        for index in 2 * pairs..words {
            is_same &= word(memory, index) == self.words.0[index].get();
        }
        is_same && now.0.wrapping_sub(self.from.get()) <= self.span.get()
    }

    /// # Safety
    /// As for [`choose`](Self::choose).
    #[cold]
    #[inline(never)]
    unsafe fn choose_another<M: Memory>(
        &self,
        memory: &M,
        now: MonoStamp,
        target: *mut u8,
    ) -> Result<(usize, Meta), Stop> {
        // SAFETY: upheld by the caller.
        let (source, meta) = unsafe { choose(memory, now, target) }?;
        self.remember(memory, source, meta, now);
        Ok((source, meta))
    }

    fn remember<M: Memory>(&self, memory: &M, source: usize, meta: Meta, now: MonoStamp) {
        let (sources, locks) = (memory.source_count(), memory.lock_count());
        let (mut back, mut ahead) = (u64::MAX, u64::MAX);
        for (index, kept) in self.words.0.iter().enumerate().take(sources + locks + 1) {
            kept.set(word(memory, index));
            let around = if index < sources {
                memory.source_limit(index).same_around(kept.get(), now)
            } else if index < sources + locks {
                memory
                    .lock_limit(index - sources)
                    .same_around(kept.get(), now)
            } else {
                continue;
            };
            (back, ahead) = (back.min(around.0), ahead.min(around.1));
        }
        self.from.set(now.0.wrapping_sub(back));
        self.span.set(back.wrapping_add(ahead));
        // What was just loaded has to decide alike: it may be newer than what the source was chosen by.
        let ends = |source: usize| self.words.0[source].get();
        let (floor, _) = floor(memory, now, |lock| self.words.0[sources + lock].get());
        let forced = self.words.0[sources + locks].get() as usize;
        let is_same = highest(memory, floor, forced, now, ends) == Some(source)
            && ends(source) == memory.source_limit(source).end(meta.stamp);
        self.source.set(source);
        let commands = memory.command(source);
        self.head.set(commands.head());
        self.settled.set(if is_same {
            Settled::new(commands, meta)
        } else {
            Settled::nothing_in(commands)
        });
    }
}
