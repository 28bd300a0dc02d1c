//! One edge's samples, ordered by stamp: written by one thread at a time, read by any without waiting.
//!
//! # Layout
//!
//! A sample is one cache line, [`Slot`]: stamp and pose arrive together. Slots stand in [`Chunk`]s of
//! 4 KiB behind a small table of links, so growing copies no sample and a full history needs about
//! 64 bytes a transform. Samples have absolute, ever growing indexes `tail..head`; index `i` is slot
//! `i % CHUNK` of the chunk linked at `i / CHUNK` (modulo the table's length). A chunk that fell out
//! of the window is linked again at the head end: a steady history allocates nothing.
//!
//! # How a reader knows that what it read is whole
//!
//! Every word is an atomic, so a torn read is a wrong value, never undefined behaviour. Then:
//!
//! - *Append* writes a slot nobody looks at and publishes it with a release store of `head`. Before that
//!   `newest` links the slot itself, so that the newest sample is one step away: a reader that sees a `head`
//!   sees the link of its last index, or of a later one. After it `stamp` tells the newest time, so that
//!   a search need not touch the newest slot, which the writer's core has: a reader that sees a stamp sees a
//!   `head` that covers it. So a sample that was reached through `newest` counts only once `stamp` has
//!   reached it too: before that, a search for its time would not find it.
//! - *Eviction* moves `tail` first; a release fence stands between that store and any later write to
//!   a recycled slot. A reader checks `tail` behind an acquire fence, after its loads: if it saw any
//!   new word in the slot, it sees the new `tail` too, and tries again. Appends alone never disturb a
//!   reader of other slots.
//! - *Everything else* (late insert, replacement, merge, clear) makes `seq` odd, changes, and makes it
//!   even again: a seqlock.
//!
//! A *merge* of many late samples writes copies of the chunks that change, while readers go on in the old
//! ones, and links them in one short change.
//!
//! # Parents
//!
//! As a rule all samples of a history are given in one parent frame, and it is not stored with them. A
//! history that is [mixed](History::is_mixed) has the number of its parent beside each sample
//! ([`Parents`]), written and read by the same rules as the sample. Once all samples with another parent
//! have left, it is plain again.
//!
//! A reader tries [`MAX_READ_TRIES`] times and then takes the writer's latch for one read, so neither a fast
//! writer nor a long merge can hold it up for ever. Every search loop is bounded by `tail` and `head`
//! as they were read once, so torn stamps cannot make it run on.

// The compiler would keep these apart from their callers; together, a pose stays in registers.
#![allow(clippy::inline_always)]

mod fixed;
mod rewrite;
mod view;
mod write;

pub(crate) use fixed::Fixed;
pub(crate) use view::{Neighbours, View};

use crate::pool::Pool;
use crate::shelf::{Link, Table};
use crate::sync::{AtomicU32, AtomicU64, Held, Ordering, SpinLock, fence, pause};

/// Words of a sample: its stamp, then the rotation x, y, z, w and the translation x, y, z as bits.
#[cfg(not(loom))]
pub(crate) const WORDS: usize = 8;
#[cfg(loom)]
pub(crate) const WORDS: usize = 2;

/// Samples in a chunk.
#[cfg(not(loom))]
pub(crate) const CHUNK: u64 = 64;
#[cfg(loom)]
pub(crate) const CHUNK: u64 = 1;

/// Optimistic tries of a reader before it takes the latch.
const MAX_READ_TRIES: u32 = if cfg!(loom) { 1 } else { 64 };

/// The first index: far from zero, so that samples can be put in front of the oldest one.
const ORIGIN: u64 = 1 << 40;

/// Slots of the first chunk that may be left free. Edges that are written together, as those of one
/// robot's joints are, would have their newest samples at the same place of their chunks, and so in the
/// same few lines of a processor's cache: they start at different places instead.
const COLOURS: u64 = if CHUNK > 32 { 32 } else { 1 };

/// Set in the `seq` of a history that is not in use, that of a static edge; it is odd then.
const UNUSED: u64 = 1 << 63;

/// The `switch` of a history whose samples all have the same parent.
const PLAIN: u32 = 0;

/// A sample as it is stored.
pub(crate) type Words = [u64; WORDS];

#[repr(C, align(64))]
pub(crate) struct Slot([AtomicU64; WORDS]);

/// Some slots in a row, and the parents of their samples if these were ever of different ones.
pub(crate) struct Chunk {
    slots: [Slot; CHUNK as usize],
    parents: Link<Parents>,
}

/// The numbers of the frames in which the samples of a chunk are given.
pub(crate) struct Parents([AtomicU32; CHUNK as usize]);

/// How much an edge may keep.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Nanoseconds behind the newest sample; `i64::MAX` for no bound.
    pub(crate) window: i64,
    /// Samples; `u64::MAX` for no bound.
    pub(crate) count: u64,
}

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// It is the newest.
    Appended,
    /// It found its place among others.
    InPlace,
    /// It took the place of one with the same stamp.
    Replaced,
    /// It is older than all that may be kept.
    TooOld,
}

/// The samples of an edge. `B` is what their readers want as well, on the same line of the cache, and `W`
/// what their writers want.
#[repr(C, align(64))]
pub(crate) struct History<B = (), W = ()> {
    // Read by every reader: one line.
    head: AtomicU64,
    tail: AtomicU64,
    seq: AtomicU64,
    /// The slot of the newest sample.
    newest: Link<Slot>,
    /// Its stamp, or that of an earlier one; `i64::MIN` where that is not known.
    stamp: AtomicU64,
    table: Link<Table<Chunk>>,
    /// Samples in 2^64 nanoseconds: where to start a search.
    rate: AtomicU64,
    pub(crate) beside: B,
    writer: Writer<W>,
}

/// What only the holder of the latch looks at: a line of its own.
#[repr(align(64))]
struct Writer<W> {
    latch: SpinLock,
    /// In a mixed history, the low half of an index: no sample behind it has another parent than the one
    /// before it.
    switch: AtomicU32,
    /// The oldest chunk (index / CHUNK) that is still linked; at most the chunk of `tail`.
    first_chunk: AtomicU64,
    /// The chunk of the newest sample, and the first index behind it.
    chunk: Link<Chunk>,
    end: AtomicU64,
    evicted: AtomicU64,
    beside: W,
}

impl Slot {
    fn new() -> Self {
        Slot(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn of(words: &Words) -> Self {
        Slot(std::array::from_fn(|index| AtomicU64::new(words[index])))
    }

    #[inline(always)]
    pub(crate) fn stamp(&self) -> i64 {
        self.word(0) as i64
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn number(&self, index: usize) -> f64 {
        f64::from_bits(self.word(index))
    }

    #[inline]
    pub(crate) fn words(&self) -> Words {
        std::array::from_fn(|index| self.word(index))
    }

    #[inline]
    fn set(&self, words: &Words) {
        for (atom, word) in self.0.iter().zip(words) {
            atom.store(*word, Ordering::Relaxed);
        }
    }
}

impl Chunk {
    pub(crate) fn new() -> Self {
        Chunk {
            slots: std::array::from_fn(|_| Slot::new()),
            parents: Link::empty(),
        }
    }

    #[inline(always)]
    fn slot(&self, index: u64) -> &Slot {
        &self.slots[(index % CHUNK) as usize]
    }

    /// The parent of the sample at an index.
    fn parent<'a>(&self, pool: &'a Pool, index: u64) -> Option<&'a AtomicU32> {
        let parents = pool.parents.at(self.parents.load(Ordering::Acquire)?);
        Some(&parents.0[(index % CHUNK) as usize])
    }
}

impl Parents {
    pub(crate) fn new() -> Self {
        Parents(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl<B, W> History<B, W> {
    /// An empty history; `colour` is any number, best a different one for each.
    pub(crate) fn new(beside: B, beside_writer: W, colour: u32) -> Self {
        let start = ORIGIN + u64::from(colour) * 5 % COLOURS;
        History {
            head: AtomicU64::new(start),
            tail: AtomicU64::new(start),
            seq: AtomicU64::new(0),
            newest: Link::empty(),
            stamp: AtomicU64::new(i64::MIN as u64),
            table: Link::empty(),
            rate: AtomicU64::new(0),
            beside,
            writer: Writer {
                latch: SpinLock::new(),
                switch: AtomicU32::new(PLAIN),
                first_chunk: AtomicU64::new(start / CHUNK),
                chunk: Link::empty(),
                end: AtomicU64::new(start),
                evicted: AtomicU64::new(0),
                beside: beside_writer,
            },
        }
    }

    /// One that has no sample until it is [used](History::use_again).
    pub(crate) fn unused(beside: B, beside_writer: W) -> Self {
        let history = History::new(beside, beside_writer, 0);
        history.seq.store(UNUSED | 1, Ordering::Relaxed);
        history
    }

    /// Whether it is out of use, and has no samples.
    #[inline(always)]
    pub(crate) fn is_unused(&self) -> bool {
        self.seq.load(Ordering::Relaxed) & UNUSED != 0
    }

    /// What stands on the writers' line besides.
    #[inline(always)]
    pub(crate) fn beside_writer(&self) -> &W {
        &self.writer.beside
    }

    /// How many samples there are.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        let tail = self.tail.load(Ordering::Acquire);
        self.head.load(Ordering::Acquire).saturating_sub(tail)
    }

    /// Samples that the bounds pushed out so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.writer.evicted.load(Ordering::Relaxed)
    }

    /// The history as it is now, for one read without another try; see [`History::is_whole`].
    #[inline(always)]
    pub(crate) fn glance<'a>(&'a self, pool: &'a Pool) -> Option<View<'a>> {
        self.view(pool, self.seq.load(Ordering::Acquire))
    }

    /// Whether what was read through `view`, at `lowest` and behind, was whole.
    #[inline(always)]
    pub(crate) fn is_whole(&self, view: &View<'_>, lowest: u64) -> bool {
        self.is_same(view.seq, lowest)
    }

    #[inline(always)]
    fn is_same(&self, seq: u64, lowest: u64) -> bool {
        fence(Ordering::Acquire);
        seq & 1 == 0
            && self.seq.load(Ordering::Relaxed) == seq
            && self.tail.load(Ordering::Relaxed) <= lowest
    }

    /// What `take` makes of the newest sample, if there is one and nothing is in the way.
    #[inline(always)]
    pub(crate) fn newest_once<R>(&self, pool: &Pool, take: impl FnOnce(&Slot) -> R) -> Option<R> {
        let seq = self.seq.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        if tail >= head {
            return None;
        }
        let slot = pool.chunks.within(self.newest.load(Ordering::Acquire)?);
        let taken = take(slot);
        let stamp = slot.stamp();
        // It was the newest when `head` was read, or is a newer one; one that `head` does not cover yet
        // could not be found again by its stamp.
        let is_covered = self.stamp.load(Ordering::Acquire) as i64 >= stamp;
        (self.is_same(seq, head - 1) && is_covered).then_some(taken)
    }

    /// Whether samples have parents of their own. A reader asks between two looks at `seq`.
    #[inline]
    pub(crate) fn is_mixed(&self) -> bool {
        self.writer.switch.load(Ordering::Relaxed) != PLAIN
    }

    /// Reads without a lock. `attempt` returns what it made of the view and the lowest index that it
    /// relied on, or `None` if it met something that cannot be (a link not yet there).
    ///
    /// `attempt` may see torn samples; its answer is thrown away then.
    #[inline]
    pub(crate) fn read<'a, R>(
        &'a self,
        pool: &'a Pool,
        attempt: impl Fn(&View<'a>) -> Option<(R, u64)>,
    ) -> Option<R> {
        for tries in 0..MAX_READ_TRIES {
            let seq = self.seq.load(Ordering::Acquire);
            if seq & 1 == 0 {
                // No table means that nothing was ever written.
                let view = self.view(pool, seq)?;
                if let Some((answer, lowest)) = attempt(&view)
                    && self.is_whole(&view, lowest)
                {
                    return Some(answer);
                }
            }
            pause(tries);
        }
        self.read_latched(pool, attempt)
    }

    #[cold]
    #[inline(never)]
    fn read_latched<'a, R>(
        &'a self,
        pool: &'a Pool,
        attempt: impl Fn(&View<'a>) -> Option<(R, u64)>,
    ) -> Option<R> {
        let _held = self.hold();
        let view = self.view(pool, 0)?;
        attempt(&view).map(|(answer, _)| answer)
    }

    #[inline(always)]
    fn view<'a>(&'a self, pool: &'a Pool, seq: u64) -> Option<View<'a>> {
        // `stamp` before `head`: see above. `head` before `table`: a reader that sees an index sees a table
        // that links its chunk.
        let stamp = self.stamp.load(Ordering::Acquire) as i64;
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        let table = pool.tables.at(self.table.load(Ordering::Acquire)?);
        Some(View {
            pool,
            links: table.links(),
            rate: &self.rate,
            head,
            tail,
            seq,
            stamp,
        })
    }

    /// Takes the right to write. Everything below that takes a [`Held`] is for its holder only.
    #[inline]
    pub(crate) fn hold(&self) -> Held<'_> {
        self.writer.latch.hold()
    }

    /// The same, if nobody has it.
    pub(crate) fn try_hold(&self) -> Option<Held<'_>> {
        self.writer.latch.try_hold()
    }

    /// Whether somebody has the right to write, or had a moment ago.
    #[cfg(not(loom))]
    pub(crate) fn is_held(&self) -> bool {
        self.writer.latch.is_held()
    }
}
