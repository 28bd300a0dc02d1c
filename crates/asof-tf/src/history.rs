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
//! - *Append* writes a slot nobody looks at and publishes it with a release store of `head`.
//! - *Eviction* moves `tail` first; a release fence stands between that store and any later write to
//!   a recycled slot. A reader checks `tail` behind an acquire fence, after its loads: if it saw any
//!   new word in the slot, it sees the new `tail` too, and tries again. Appends alone never disturb a
//!   reader of other slots.
//! - *Everything else* (late insert, replacement, merge, clear) makes `seq` odd, changes, and makes it
//!   even again: a seqlock.
//!
//! A reader tries [`TRIES`] times and then takes the writer's latch for one read, so neither a fast
//! writer nor a long merge can hold it up for ever. Every search loop is bounded by `tail` and `head`
//! as they were read once, so torn stamps cannot make it run on.

// The compiler would keep these apart from their callers; together, a pose stays in registers.
#![allow(clippy::inline_always)]

use crate::pool::Pool;
use crate::shelf::{Link, Spot, Table};
use crate::sync::{AtomicU64, Held, Latch, Ordering, fence, pause};

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
const TRIES: u32 = if cfg!(loom) { 1 } else { 64 };

/// The first index: far from zero, so that samples can be put in front of the oldest one.
const ORIGIN: u64 = 1 << 40;

/// A sample as it is stored.
pub(crate) type Words = [u64; WORDS];

#[repr(C, align(64))]
pub(crate) struct Slot([AtomicU64; WORDS]);

/// Some slots in a row.
pub(crate) struct Chunk([Slot; CHUNK as usize]);

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

#[repr(C, align(64))]
pub(crate) struct History {
    // Read by every reader: one line.
    head: AtomicU64,
    tail: AtomicU64,
    seq: AtomicU64,
    table: Link<Table<Chunk>>,
    /// Samples per nanosecond, as bits of an `f64`: where to start a search.
    rate: AtomicU64,
    writer: Writer,
}

/// What only the holder of the latch looks at: a line of its own.
#[repr(align(64))]
struct Writer {
    latch: Latch,
    /// The oldest chunk (index / CHUNK) that is still linked; at most the chunk of `tail`.
    first_chunk: AtomicU64,
    evicted: AtomicU64,
}

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
    pub(crate) fn read<R>(&self, latch: &History, attempt: impl Fn(&Slot) -> R) -> R {
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

/// Where `t` falls in a history.
pub(crate) enum Place<'a> {
    /// There is no sample.
    Empty,
    /// A sample has this very stamp.
    At(&'a Slot),
    /// Between these two neighbours.
    Between(&'a Slot, &'a Slot),
    /// Before the oldest; also the sample behind it, if there is one.
    Before(&'a Slot, Option<&'a Slot>),
    /// After the newest; also the sample before it, if there is one.
    After(&'a Slot, Option<&'a Slot>),
}

/// The history as a reader found it.
pub(crate) struct View<'a> {
    pool: &'a Pool,
    table: &'a Table<Chunk>,
    rate: &'a AtomicU64,
    head: u64,
    tail: u64,
    seq: u64,
}

impl Slot {
    fn new() -> Self {
        Slot(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[inline(always)]
    pub(crate) fn stamp(&self) -> i64 {
        self.word(0) as i64
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
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
        Chunk(std::array::from_fn(|_| Slot::new()))
    }
}

impl History {
    pub(crate) fn new() -> Self {
        History {
            head: AtomicU64::new(ORIGIN),
            tail: AtomicU64::new(ORIGIN),
            seq: AtomicU64::new(0),
            table: Link::empty(),
            rate: AtomicU64::new(0),
            writer: Writer {
                latch: Latch::new(),
                first_chunk: AtomicU64::new(ORIGIN / CHUNK),
                evicted: AtomicU64::new(0),
            },
        }
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
        fence(Ordering::Acquire);
        view.seq & 1 == 0
            && self.seq.load(Ordering::Relaxed) == view.seq
            && self.tail.load(Ordering::Relaxed) <= lowest
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
        for tries in 0..TRIES {
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
        // `head` before `table`: whoever sees an index sees a table that links its chunk.
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        let table = pool.tables.at(self.table.load(Ordering::Acquire)?);
        Some(View {
            pool,
            table,
            rate: &self.rate,
            head,
            tail,
            seq,
        })
    }

    /// Takes the right to write. Everything below that takes a [`Held`] is for its holder only.
    #[inline]
    pub(crate) fn hold(&self) -> Held<'_> {
        self.writer.latch.hold()
    }

    /// Puts a sample in its place.
    #[inline]
    pub(crate) fn insert(
        &self,
        held: &Held<'_>,
        pool: &Pool,
        bounds: Bounds,
        words: &Words,
    ) -> Inserted {
        let stamp = words[0] as i64;
        let (tail, head) = (self.tail_now(), self.head_now());
        if head > tail {
            let newest = self.slot(pool, head - 1).stamp();
            if stamp <= newest {
                return self.insert_late(held, pool, bounds, words);
            }
        }
        self.append(pool, bounds, tail, head, words);
        Inserted::Appended
    }

    /// Puts samples, ordered by strictly growing stamps, in their places; returns how many were too
    /// old. The history as it was and the samples are merged in one pass.
    pub(crate) fn merge(
        &self,
        held: &Held<'_>,
        pool: &Pool,
        bounds: Bounds,
        sorted: &[Words],
    ) -> u64 {
        let (tail, head) = (self.tail_now(), self.head_now());
        let Some(first) = sorted.first() else {
            return 0;
        };
        let is_append = head == tail || self.slot(pool, head - 1).stamp() < first[0] as i64;
        if is_append {
            for words in sorted {
                self.insert(held, pool, bounds, words);
            }
            return 0;
        }
        let newest = self.slot(pool, head - 1).stamp();
        let last = sorted.last().map_or(newest, |words| words[0] as i64);
        let horizon = newest.max(last).saturating_sub(bounds.window);
        let keeps = |words: &&Words| words[0] as i64 >= horizon;
        let fresh: Vec<Words> = sorted.iter().filter(keeps).copied().collect();
        let kept: Vec<Words> = (tail..head).map(|i| self.slot(pool, i).words()).collect();
        self.begin_change();
        self.tail.store(head, Ordering::Relaxed);
        let (mut old, mut new) = (kept.iter().peekable(), fresh.iter().peekable());
        while let Some(words) = next_merged(&mut old, &mut new) {
            self.append(pool, bounds, self.tail_now(), self.head_now(), words);
        }
        self.end_change();
        (sorted.len() - fresh.len()) as u64
    }

    /// Forgets every sample.
    pub(crate) fn clear(&self, _held: &Held<'_>, pool: &Pool) {
        self.begin_change();
        self.tail.store(self.head_now(), Ordering::Relaxed);
        self.end_change();
        self.give_back(pool);
    }

    /// Chunks that are linked.
    pub(crate) fn chunks(&self) -> u64 {
        let head = self.head.load(Ordering::Relaxed);
        let first = self.writer.first_chunk.load(Ordering::Relaxed);
        head.div_ceil(CHUNK).saturating_sub(first)
    }

    #[inline]
    fn append(&self, pool: &Pool, bounds: Bounds, tail: u64, head: u64, words: &Words) {
        let stamp = words[0] as i64;
        let mut tail = self.evict(pool, bounds, tail, head, stamp, head - tail + 1);
        if head.is_multiple_of(CHUNK) {
            self.make_room(pool);
            self.link_chunk(pool, head / CHUNK);
            tail = self.tail_now();
        }
        // Between the store of `tail` above and the stores to a slot that it set free.
        fence(Ordering::Release);
        self.slot(pool, head).set(words);
        self.head.store(head + 1, Ordering::Release);
        if head.is_multiple_of(16) || head - tail < 8 {
            self.measure(pool, tail, head);
        }
    }

    /// When the pool's budget is spent, gives up the oldest chunk's samples: it is used next. Two chunks
    /// are every history's own, whatever the budget.
    #[cold]
    #[inline(never)]
    fn make_room(&self, pool: &Pool) {
        let (tail, head) = (self.tail_now(), self.head_now());
        let first = self.writer.first_chunk.load(Ordering::Relaxed);
        let boundary = (tail / CHUNK + 1) * CHUNK;
        if first == tail / CHUNK && self.chunks() > 2 && boundary < head && pool.is_spent() {
            self.evict_to(tail, boundary);
        }
    }

    /// Moves the tail until `count` samples are inside of the bounds, `newest` being the newest stamp.
    #[inline]
    fn evict(
        &self,
        pool: &Pool,
        bounds: Bounds,
        tail: u64,
        head: u64,
        newest: i64,
        count: u64,
    ) -> u64 {
        let horizon = newest.saturating_sub(bounds.window);
        let mut kept = tail + count.saturating_sub(bounds.count).min(head - tail);
        while kept < head && self.slot(pool, kept).stamp() < horizon {
            kept += 1;
        }
        if kept > tail {
            self.evict_to(tail, kept);
        }
        kept
    }

    #[inline]
    fn evict_to(&self, tail: u64, kept: u64) {
        self.tail.store(kept, Ordering::Release);
        let evicted = &self.writer.evicted;
        evicted.store(
            evicted.load(Ordering::Relaxed) + (kept - tail),
            Ordering::Relaxed,
        );
    }

    /// A sample that is not newer than the newest. Shifts the shorter side by one slot.
    #[cold]
    #[inline(never)]
    fn insert_late(
        &self,
        _held: &Held<'_>,
        pool: &Pool,
        bounds: Bounds,
        words: &Words,
    ) -> Inserted {
        let stamp = words[0] as i64;
        if self.head_now().is_multiple_of(CHUNK) {
            self.make_room(pool);
        }
        let (tail, head) = (self.tail_now(), self.head_now());
        let newest = self.slot(pool, head - 1).stamp();
        let place = self.first_not_before(pool, tail, head, stamp);
        if self.slot(pool, place).stamp() == stamp {
            self.begin_change();
            self.slot(pool, place).set(words);
            self.end_change();
            return Inserted::Replaced;
        }
        let is_full = head - tail >= bounds.count;
        if stamp < newest.saturating_sub(bounds.window) || (is_full && place == tail) {
            return Inserted::TooOld;
        }
        self.begin_change();
        let tail = self.evict(pool, bounds, tail, head, newest, head - tail + 1);
        let chunk = (tail - 1) / CHUNK;
        let needs_front = chunk < self.writer.first_chunk.load(Ordering::Relaxed);
        if place < tail || (place == tail && needs_front && self.chunks() > 2 && pool.is_spent()) {
            self.end_change();
            return Inserted::TooOld;
        }
        fence(Ordering::Release);
        if place - tail < head - place {
            if needs_front {
                self.link_chunk(pool, chunk);
            }
            for index in tail..place {
                self.slot(pool, index - 1)
                    .set(&self.slot(pool, index).words());
            }
            self.slot(pool, place - 1).set(words);
            self.tail.store(tail - 1, Ordering::Release);
        } else {
            if head.is_multiple_of(CHUNK) {
                self.link_chunk(pool, head / CHUNK);
            }
            for index in (place..head).rev() {
                self.slot(pool, index + 1)
                    .set(&self.slot(pool, index).words());
            }
            self.slot(pool, place).set(words);
            self.head.store(head + 1, Ordering::Release);
        }
        self.end_change();
        self.measure(pool, self.tail_now(), self.head_now() - 1);
        Inserted::InPlace
    }

    /// The first index whose stamp is at or after `stamp`; the newest one's is.
    fn first_not_before(&self, pool: &Pool, tail: u64, head: u64, stamp: i64) -> u64 {
        // Late samples are a little late as a rule: gallop from the newest end.
        let (mut low, mut high, mut step) = (tail, head - 1, 1);
        while high > low && self.slot(pool, high - 1).stamp() >= stamp {
            high = high.saturating_sub(step).max(tail);
            if self.slot(pool, high).stamp() < stamp {
                low = high + 1;
                high = (high + step).min(head - 1);
                break;
            }
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.slot(pool, middle).stamp() < stamp {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.max(tail)
    }

    fn begin_change(&self) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    fn end_change(&self) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Release);
    }

    /// Notes the mean rate from `tail` to the newest index, for readers' first guess.
    #[inline]
    fn measure(&self, pool: &Pool, tail: u64, newest: u64) {
        let first = self.slot(pool, tail).stamp();
        let span = self.slot(pool, newest).stamp().wrapping_sub(first);
        if span > 0 {
            let rate = (newest - tail) as f64 / span as f64;
            self.rate.store(rate.to_bits(), Ordering::Relaxed);
        }
    }

    /// Links a chunk at `chunk`: one that has fallen out of the window, or one of the pool's.
    #[cold]
    #[inline(never)]
    fn link_chunk(&self, pool: &Pool, chunk: u64) {
        let first = self.writer.first_chunk.load(Ordering::Relaxed);
        let is_front = chunk < first;
        let tail_chunk = self.tail_now() / CHUNK;
        let spot = if !is_front && first < tail_chunk.min(chunk) {
            self.writer.first_chunk.store(first + 1, Ordering::Relaxed);
            let old = self
                .table()
                .and_then(|table| pool.tables.at(table).link(first).load(Ordering::Relaxed));
            old.unwrap_or_else(|| pool.take())
        } else {
            pool.take()
        };
        let first = self.writer.first_chunk.load(Ordering::Relaxed);
        let (low, high) = if is_front {
            (chunk, self.head_now().div_ceil(CHUNK))
        } else {
            (first, chunk + 1)
        };
        let table = self.table_for(pool, low, high, first, chunk);
        pool.tables
            .at(table)
            .link(chunk)
            .store(spot, Ordering::Release);
        if is_front {
            self.writer.first_chunk.store(chunk, Ordering::Relaxed);
        }
        self.give_back(pool);
    }

    /// A table with room for the chunks `low..high`, a larger one if the present one is too small.
    fn table_for(
        &self,
        pool: &Pool,
        low: u64,
        high: u64,
        first: u64,
        skip: u64,
    ) -> Spot<Table<Chunk>> {
        let needed = (high - low) as usize;
        let present = self.table();
        if let Some(table) = present
            && pool.tables.at(table).len() >= needed
        {
            return table;
        }
        let larger = pool.tables.put(Table::new(needed.max(2)));
        if let Some(present) = present {
            let (old, new) = (pool.tables.at(present), pool.tables.at(larger));
            for chunk in (first..high).filter(|chunk| *chunk != skip) {
                if let Some(spot) = old.link(chunk).load(Ordering::Relaxed) {
                    new.link(chunk).store(spot, Ordering::Relaxed);
                }
            }
        }
        self.table.store(larger, Ordering::Release);
        larger
    }

    /// Gives chunks that hold no sample any more back to the pool, but for one to be used next.
    fn give_back(&self, pool: &Pool) {
        let Some(table) = self.table() else { return };
        let table = pool.tables.at(table);
        let mut first = self.writer.first_chunk.load(Ordering::Relaxed);
        let tail_chunk = self.tail_now() / CHUNK;
        while first + 1 < tail_chunk {
            if let Some(spot) = table.link(first).load(Ordering::Relaxed) {
                pool.give(spot);
            }
            first += 1;
        }
        self.writer.first_chunk.store(first, Ordering::Relaxed);
    }

    fn table(&self) -> Option<Spot<Table<Chunk>>> {
        self.table.load(Ordering::Relaxed)
    }

    #[inline]
    fn head_now(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    #[inline]
    fn tail_now(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    /// The slot at an index whose chunk the writer has linked.
    #[inline]
    fn slot<'a>(&'a self, pool: &'a Pool, index: u64) -> &'a Slot {
        let table = self.table().expect("a writer links before it looks");
        let chunk = pool.tables.at(table).link(index / CHUNK);
        let spot = chunk.load(Ordering::Relaxed);
        &pool
            .chunks
            .at(spot.expect("a writer links before it looks"))
            .0[(index % CHUNK) as usize]
    }
}

/// The next of two sorted runs; of equal stamps the fresh one, and the old one is passed over.
fn next_merged<'a>(
    old: &mut std::iter::Peekable<std::slice::Iter<'a, Words>>,
    new: &mut std::iter::Peekable<std::slice::Iter<'a, Words>>,
) -> Option<&'a Words> {
    match (old.peek(), new.peek()) {
        (Some(a), Some(b)) if (a[0] as i64) < (b[0] as i64) => old.next(),
        (Some(a), Some(b)) if a[0] == b[0] => {
            old.next();
            new.next()
        }
        (_, Some(_)) => new.next(),
        _ => old.next(),
    }
}

impl<'a> View<'a> {
    /// Oldest index.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        self.head.saturating_sub(self.tail)
    }

    /// The slot at an index; `None` if it is not linked (any more).
    #[inline(always)]
    pub(crate) fn slot(&self, index: u64) -> Option<&'a Slot> {
        let spot = self.table.link(index / CHUNK).load(Ordering::Acquire)?;
        Some(&self.pool.chunks.at(spot).0[(index % CHUNK) as usize])
    }

    /// The newest sample and its index.
    #[inline(always)]
    pub(crate) fn newest(&self) -> Option<(&'a Slot, u64)> {
        let index = self.head - 1;
        Some((self.slot(index)?, index))
    }

    /// Where `t` falls, and the lowest index that this rests on.
    #[inline(always)]
    pub(crate) fn place(&self, t: i64) -> Option<(Place<'a>, u64)> {
        if self.len() == 0 {
            return Some((Place::Empty, self.tail));
        }
        let (newest, last) = self.newest()?;
        let newest_stamp = newest.stamp();
        if t >= newest_stamp {
            if t == newest_stamp {
                return Some((Place::At(newest), last));
            }
            let before = if self.len() > 1 {
                Some(self.slot(last - 1)?)
            } else {
                None
            };
            return Some((
                Place::After(newest, before),
                last - u64::from(before.is_some()),
            ));
        }
        if self.len() == 1 {
            return Some((Place::Before(newest, None), self.tail));
        }
        self.search(t, newest_stamp, last)
    }

    /// `t` is before the newest of two or more samples.
    #[inline(always)]
    fn search(&self, t: i64, newest_stamp: i64, last: u64) -> Option<(Place<'a>, u64)> {
        let rate = f64::from_bits(self.rate.load(Ordering::Relaxed));
        let back = newest_stamp.wrapping_sub(t) as f64 * rate;
        // Casting saturates; NaN becomes zero. Whatever the guess, the check below decides.
        let mut low = (last - 1).saturating_sub(back as i64 as u64).max(self.tail);
        let mut slot = self.slot(low)?;
        let mut next = self.slot(low + 1)?;
        if !(slot.stamp() <= t && t < next.stamp()) {
            low = self.hunt(t, low, last)?;
            if low < self.tail {
                let oldest = self.slot(self.tail)?;
                let next = self.slot(self.tail + 1)?;
                return Some((Place::Before(oldest, Some(next)), self.tail));
            }
            slot = self.slot(low)?;
            next = self.slot(low + 1)?;
            // Torn stamps can have led astray; a bracket that holds is right however it was found.
            if !(slot.stamp() <= t && t < next.stamp()) {
                return None;
            }
        }
        Some((placed(slot, next, t), low))
    }

    /// The last index whose stamp is at or before `t`, searched from a guess outwards; one less than
    /// the oldest if there is none.
    #[inline(never)]
    fn hunt(&self, t: i64, guess: u64, last: u64) -> Option<u64> {
        let (mut low, mut high, mut step) = (guess, guess, 1);
        if self.slot(guess)?.stamp() <= t {
            high = last;
            while low + step < last {
                if self.slot(low + step)?.stamp() > t {
                    high = low + step;
                    break;
                }
                low += step;
                step *= 2;
            }
        } else {
            loop {
                if high == self.tail {
                    return Some(self.tail - 1);
                }
                low = high.saturating_sub(step).max(self.tail);
                if self.slot(low)?.stamp() <= t {
                    break;
                }
                high = low;
                step *= 2;
            }
        }
        self.bisect(low, high, t)
    }

    /// The last index in `low..high` whose stamp is at or before `t`, given that `low`'s is.
    #[inline]
    fn bisect(&self, mut low: u64, mut high: u64, t: i64) -> Option<u64> {
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.slot(middle)?.stamp() <= t {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }
}

#[inline(always)]
fn placed<'a>(slot: &'a Slot, next: &'a Slot, t: i64) -> Place<'a> {
    if slot.stamp() == t {
        Place::At(slot)
    } else {
        Place::Between(slot, next)
    }
}
