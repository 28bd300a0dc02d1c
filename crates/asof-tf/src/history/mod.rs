//! One edge's samples, ordered by stamp: written by one thread at a time, read by any without waiting.
//!
//! # Layout
//!
//! A sample is one cache line, [`Slot`]: stamp and pose arrive together. Slots are in [`Chunk`]s of 4 KiB,
//! found through a small table of links, so growing copies no sample and a full history needs about 64 bytes
//! per transform. Samples have absolute, ever increasing indexes `tail..head`; index `i` is slot `i % CHUNK`
//! of the chunk linked at `i / CHUNK` (modulo the table's length). A chunk that left the window is linked
//! again at the head end: a steady history allocates nothing.
//!
//! # How a reader detects torn reads
//!
//! Every word is an atomic, so a torn read is a wrong value, never undefined behaviour.
//!
//! - *Append* writes a slot that no reader uses and publishes it with a release store of `head`. Before that
//!   `newest` links the slot itself, so that the newest sample is one step away: a reader that sees a `head`
//!   sees the link of its last index, or of a later one. After it `stamp` holds the newest time, so that a
//!   search need not touch the newest slot, which is in the writer core's cache: a reader that sees a stamp
//!   sees a `head` that covers it. So a sample that was reached through `newest` counts only once `stamp`
//!   has reached it too: before that, a search for its time would not find it.
//! - *Eviction* moves `tail` first; a release fence is between that store and any later write to a recycled
//!   slot. A reader checks `tail` after an acquire fence, after its loads: if it saw any new word in the
//!   slot, it sees the new `tail` too, and retries. Appends alone never disturb a reader of other slots.
//! - *Everything else* (late insert, replacement, merge, clear) makes `seq` odd, changes, and makes it
//!   even again: a seqlock.
//!
//! A *merge* of many late samples writes copies of the chunks that change, while readers continue in the old
//! ones, and links them in one short change.
//!
//! # Parents
//!
//! Usually all samples of a history have one parent frame, which is not stored with them. A
//! [mixed](History::is_mixed) history has the number of its parent beside each sample ([`Parents`]), written
//! and read by the same rules as the sample. Once all samples with another parent are evicted, it is plain
//! again.
//!
//! A reader tries [`MAX_READ_TRIES`] times and then takes the writer's latch for one read, so neither a fast
//! writer nor a long merge can starve it. Every search loop is bounded by `tail` and `head` as they were
//! read once, so torn stamps cannot make it run on.

// The compiler would not inline these; inlined, a pose stays in registers.
#![allow(clippy::inline_always)]

mod fixed;
mod rewrite;
mod view;
mod write;

pub(crate) use fixed::Fixed;
pub(crate) use view::{Neighbours, View, placed};

use crate::pool::Pool;
use crate::shelf::{Link, Table};
use crate::sync::{AtomicU32, AtomicU64, Ordering, SpinGuard, SpinLock, fence, pause};

/// The words of a sample: its stamp, then the rotation x, y, z, w and the translation x, y, z as bits.
#[cfg(not(loom))]
pub(crate) const WORDS: usize = 8;
#[cfg(loom)]
pub(crate) const WORDS: usize = 2;

/// Samples in a chunk.
#[cfg(not(loom))]
pub(crate) const CHUNK: u64 = 64;
#[cfg(loom)]
pub(crate) const CHUNK: u64 = 1;

/// The most optimistic tries of a reader before it takes the latch.
const MAX_READ_TRIES: u32 = if cfg!(loom) { 1 } else { 64 };

/// The first index: far from zero, so that samples can be inserted before the oldest one.
const ORIGIN: u64 = 1 << 40;

/// The most slots of the first chunk left free. Edges that are written together, such as those of one
/// robot's joints, would have their newest samples at the same offset in their chunks, and so in the same
/// few cache sets: they start at different offsets instead.
const COLOURS: u64 = if CHUNK > 32 { 32 } else { 1 };

/// Set in the `seq` of an unused history, that of a static edge; it is odd then.
const UNUSED: u64 = 1 << 63;

/// The `switch` of a history whose samples all have the same parent.
const PLAIN: u32 = 0;

/// A sample as it is stored.
pub(crate) type Words = [u64; WORDS];

#[repr(C, align(64))]
pub(crate) struct Slot([AtomicU64; WORDS]);

/// Consecutive slots, and the parents of their samples if these ever differed.
pub(crate) struct Chunk {
    slots: [Slot; CHUNK as usize],
    parents: Link<Parents>,
}

/// The numbers of the parent frames of a chunk's samples.
pub(crate) struct Parents([AtomicU32; CHUNK as usize]);

/// How much an edge may keep.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Nanoseconds before the newest sample; `i64::MAX` for no bound.
    pub(crate) window: i64,
    /// Samples; `u64::MAX` for no bound.
    pub(crate) count: u64,
}

/// The result of inserting a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// It is the newest.
    Appended,
    /// It was inserted among others.
    InPlace,
    /// It replaced one with the same stamp.
    Replaced,
    /// It is older than everything that may be kept.
    TooOld,
}

/// The samples of an edge. `B` is further data for readers, on the same cache line, and `W` for writers.
#[repr(C, align(64))]
pub(crate) struct History<B = (), W = ()> {
    // Read by every reader: one cache line.
    head: AtomicU64,
    tail: AtomicU64,
    seq: AtomicU64,
    /// The slot of the newest sample.
    newest: Link<Slot>,
    /// Its stamp, or that of an earlier one; `i64::MIN` if unknown.
    stamp: AtomicU64,
    table: Link<Table<Chunk>>,
    /// Samples in 2^64 nanoseconds: where to start a search.
    rate: AtomicU64,
    pub(crate) beside: B,
    writer: Writer<W>,
}

/// Used only by the holder of the latch: a separate cache line.
#[repr(align(64))]
struct Writer<W> {
    latch: SpinLock,
    /// In a mixed history, the low half of an index: every sample after it has the same parent as the one
    /// before it.
    switch: AtomicU32,
    /// The oldest chunk (index / CHUNK) that is still linked; at most the chunk of `tail`.
    first_chunk: AtomicU64,
    /// The chunk of the newest sample, and the first index after it.
    chunk: Link<Chunk>,
    end: AtomicU64,
    evicted: AtomicU64,
    /// The newest stamp that was evicted, or refused for lack of memory; `i64::MIN` if there was none. A sample at or
    /// before it would leave a hole.
    floor: AtomicU64,
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
    /// An empty history; `colour` is any number, ideally different for each.
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
                floor: AtomicU64::new(i64::MIN as u64),
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

    /// The further data on the writers' cache line.
    #[inline(always)]
    pub(crate) fn beside_writer(&self) -> &W {
        &self.writer.beside
    }

    /// The number of samples.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        let tail = self.tail.load(Ordering::Acquire);
        self.head.load(Ordering::Acquire).saturating_sub(tail)
    }

    /// The number of samples evicted by the bounds so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.writer.evicted.load(Ordering::Relaxed)
    }

    /// The current history, for one read without a retry; see [`History::is_whole`].
    #[inline(always)]
    pub(crate) fn glance<'a>(&'a self, pool: &'a Pool) -> Option<View<'a>> {
        self.view(pool, self.seq.load(Ordering::Acquire))
    }

    /// Whether what was read through `view`, at `lowest` and after, was not torn.
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

    /// The result of `take` for the newest sample, if there is one and no writer interferes.
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

    /// The stamp of the newest sample, if it is known and no writer interferes. Touches no sample.
    #[inline(always)]
    pub(crate) fn newest_stamp_once(&self) -> Option<i64> {
        let seq = self.seq.load(Ordering::Acquire);
        let stamp = self.stamp.load(Ordering::Acquire) as i64;
        (self.is_same(seq, u64::MAX) && stamp != i64::MIN).then_some(stamp)
    }

    /// The result of `take` for the newest sample, if `t` is its time and no writer interferes.
    #[inline(always)]
    pub(crate) fn newest_at_once<R>(
        &self,
        pool: &Pool,
        t: i64,
        take: impl FnOnce(&Slot) -> R,
    ) -> Option<R> {
        if self.stamp.load(Ordering::Relaxed) as i64 != t {
            return None;
        }
        let taken = self.newest_once(pool, |slot| (slot.stamp() == t).then(|| take(slot)));
        taken.flatten()
    }

    /// Whether samples have their own parents. A reader checks this between two loads of `seq`.
    #[inline]
    pub(crate) fn is_mixed(&self) -> bool {
        self.writer.switch.load(Ordering::Relaxed) != PLAIN
    }

    /// Reads without a lock. `attempt` returns its result for the view and the lowest index that it relied
    /// on, or `None` if it found an inconsistency (a link not yet there).
    ///
    /// `attempt` may see torn samples; its result is then discarded.
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

    /// Takes the latch for writing. Everything below that takes a [`SpinGuard`] is only for its holder.
    #[inline]
    pub(crate) fn hold(&self) -> SpinGuard<'_> {
        self.writer.latch.hold()
    }

    /// The same, if it is free.
    pub(crate) fn try_hold(&self) -> Option<SpinGuard<'_>> {
        self.writer.latch.try_hold()
    }

    /// Whether the latch is held, or was a moment ago.
    #[cfg(not(loom))]
    pub(crate) fn is_held(&self) -> bool {
        self.writer.latch.is_held()
    }
}
