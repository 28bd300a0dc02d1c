//! How samples get in, and out again. Everything here is for the holder of the latch.

use super::{Bounds, CHUNK, Chunk, History, Inserted, Slot, Words};
use crate::pool::Pool;
use crate::shelf::{Spot, Table};
use crate::sync::{Held, Ordering, fence};

/// Chunks that a history keeps, whatever the budget.
const KEPT: u64 = 2;

impl<B, W> History<B, W> {
    /// Puts a sample in its place. `room` is called when another chunk is needed, with the time where this
    /// history's oldest chunk ends: it may let other histories give older ones up.
    #[inline]
    pub(crate) fn insert(
        &self,
        held: &Held<'_>,
        pool: &Pool,
        bounds: Bounds,
        words: &Words,
        room: impl Fn(i64) + Copy,
    ) -> Inserted {
        let stamp = words[0] as i64;
        let (tail, head) = (self.tail_now(), self.head_now());
        if head > tail && stamp <= self.stamp_now() {
            return self.insert_late(held, pool, bounds, words, room);
        }
        self.append(pool, bounds, words, room);
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
        room: impl Fn(i64) + Copy,
    ) -> u64 {
        let (tail, head) = (self.tail_now(), self.head_now());
        let Some(first) = sorted.first() else {
            return 0;
        };
        let is_append = head == tail || self.stamp_now() < first[0] as i64;
        if is_append {
            for words in sorted {
                self.insert(held, pool, bounds, words, room);
            }
            return 0;
        }
        let newest = self.stamp_now();
        let last = sorted.last().map_or(newest, |words| words[0] as i64);
        let horizon = newest.max(last).saturating_sub(bounds.window);
        let keeps = |words: &&Words| words[0] as i64 >= horizon;
        let fresh: Vec<Words> = sorted.iter().filter(keeps).copied().collect();
        let kept: Vec<Words> = (tail..head).map(|i| self.slot(pool, i).words()).collect();
        self.begin_change();
        self.tail.store(head, Ordering::Relaxed);
        let (mut old, mut new) = (kept.iter().peekable(), fresh.iter().peekable());
        while let Some(words) = next_merged(&mut old, &mut new) {
            self.append(pool, bounds, words, room);
        }
        self.end_change();
        (sorted.len() - fresh.len()) as u64
    }

    /// Forgets every sample.
    pub(crate) fn clear(&self, _held: &Held<'_>, pool: &Pool) {
        self.begin_change();
        self.tail.store(self.head_now(), Ordering::Relaxed);
        self.stamp.store(i64::MIN as u64, Ordering::Relaxed);
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
    fn append(&self, pool: &Pool, bounds: Bounds, words: &Words, room: impl Fn(i64)) {
        let (tail, head) = (self.tail_now(), self.head_now());
        let stamp = words[0] as i64;
        let is_empty = head == tail;
        let wanted = self.bounded(pool, bounds, tail, head, stamp, head - tail + 1);
        // The last one goes when the new one is there, so that no reader finds nothing.
        let mut tail = self.evict_to(tail, wanted.min((head - 1).max(tail)));
        if head == self.writer.end.load(Ordering::Relaxed) {
            let chunk = self.chunk_within_budget(pool, room);
            self.link_chunk(pool, head / CHUNK, chunk);
            tail = self.tail_now();
        }
        // Between the store of `tail` above and the stores to a slot that it set free.
        fence(Ordering::Release);
        let slot = self.slot_at_head(pool, head);
        slot.set(words);
        self.newest.store(Spot::of(slot), Ordering::Release);
        self.head.store(head + 1, Ordering::Release);
        self.stamp.store(stamp as u64, Ordering::Release);
        if wanted == head && !is_empty {
            tail = self.evict_to(tail, head);
        }
        if head.is_multiple_of(16) || head - tail < 8 {
            self.measure(pool, tail, head);
        }
    }

    /// The first index behind its oldest chunk, if it has more than [`KEPT`] chunks: those are every
    /// history's own, whatever the budget.
    fn spare_end(&self) -> Option<u64> {
        let end = (self.tail_now() / CHUNK + 1) * CHUNK;
        (self.chunks() > KEPT && end < self.head_now()).then_some(end)
    }

    /// When the samples of its oldest chunk end, if it may give that up.
    pub(crate) fn oldest_end(&self, pool: &Pool) -> Option<i64> {
        // Read beside the writer, so it can be wrong: it is a hint only.
        let last = self.spare_end()? - 1;
        let table = pool.tables.at(self.table.load(Ordering::Acquire)?);
        let chunk = table.link(last / CHUNK).load(Ordering::Acquire)?;
        Some(pool.chunks.at(chunk).0[(last % CHUNK) as usize].stamp())
    }

    /// Gives the samples of its oldest chunk up, and the chunk back to the pool; whether it did.
    pub(crate) fn give_up_chunk(&self, _held: &Held<'_>, pool: &Pool) -> bool {
        let Some(end) = self.spare_end() else {
            return false;
        };
        self.evict_to(self.tail_now(), end);
        self.give_back_to(pool, end / CHUNK);
        true
    }

    /// A chunk that the pool's budget allows. Where it is spent others are asked for room; if none of them
    /// has older samples, the oldest chunk's are given up here, and it is used next.
    #[cold]
    #[inline(never)]
    fn chunk_within_budget(&self, pool: &Pool, room: impl Fn(i64)) -> Option<Spot<Chunk>> {
        let tail = self.tail_now();
        if self.writer.first_chunk.load(Ordering::Relaxed) < tail / CHUNK {
            // It has one of its own.
            return None;
        }
        // Another writer may take what was given up for this one.
        for _ in 0..4 {
            if let Some(chunk) = pool.take_within_budget() {
                return Some(chunk);
            }
            // Where this one may give up nothing others have to, whatever the age of theirs.
            room(self.oldest_end(pool).unwrap_or(i64::MAX));
        }
        if let Some(end) = self.spare_end() {
            self.evict_to(tail, end);
        }
        None
    }

    /// Where the tail has to be so that `count` samples are inside of the bounds, `newest` being the
    /// newest stamp.
    #[inline]
    fn bounded(
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
        kept
    }

    #[inline]
    fn evict_to(&self, tail: u64, kept: u64) -> u64 {
        if kept > tail {
            self.tail.store(kept, Ordering::Release);
            let evicted = &self.writer.evicted;
            evicted.store(
                evicted.load(Ordering::Relaxed) + (kept - tail),
                Ordering::Relaxed,
            );
        }
        kept
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
        room: impl Fn(i64),
    ) -> Inserted {
        let is_full = self.head_now() == self.writer.end.load(Ordering::Relaxed);
        let chunk = is_full.then(|| self.chunk_within_budget(pool, room));
        let mut chunk = chunk.flatten();
        let inserted = self.insert_before(pool, bounds, words, &mut chunk);
        if let Some(unused) = chunk {
            pool.give(unused);
        }
        inserted
    }

    fn insert_before(
        &self,
        pool: &Pool,
        bounds: Bounds,
        words: &Words,
        chunk: &mut Option<Spot<Chunk>>,
    ) -> Inserted {
        let stamp = words[0] as i64;
        let (tail, head) = (self.tail_now(), self.head_now());
        let newest = self.stamp_now();
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
        let kept = self.bounded(pool, bounds, tail, head, newest, head - tail + 1);
        let tail = self.evict_to(tail, kept);
        let front = (tail - 1) / CHUNK;
        let needs_front = front < self.writer.first_chunk.load(Ordering::Relaxed);
        let has_room = || chunk.is_some() || self.chunks() <= KEPT || !pool.is_spent();
        if place < tail || (place == tail && needs_front && !has_room()) {
            self.end_change();
            return Inserted::TooOld;
        }
        fence(Ordering::Release);
        if place - tail < head - place {
            if needs_front {
                self.link_chunk(pool, front, chunk.take());
            }
            for index in tail..place {
                self.slot(pool, index - 1)
                    .set(&self.slot(pool, index).words());
            }
            self.slot(pool, place - 1).set(words);
            self.tail.store(tail - 1, Ordering::Release);
        } else {
            if head == self.writer.end.load(Ordering::Relaxed) {
                self.link_chunk(pool, head / CHUNK, chunk.take());
            }
            for index in (place..head).rev() {
                self.slot(pool, index + 1)
                    .set(&self.slot(pool, index).words());
            }
            self.slot(pool, place).set(words);
            let newest = self.slot_at_head(pool, head);
            self.newest.store(Spot::of(newest), Ordering::Release);
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
            // Less than one for each: stamps differ. Casting saturates.
            let rate = (newest - tail) as f64 / span as f64 * 2.0_f64.powi(64);
            self.rate.store(rate as u64, Ordering::Relaxed);
        }
    }

    /// Links a chunk at `chunk`: one that has fallen out of the window, the one given, or one of the pool's.
    #[cold]
    #[inline(never)]
    fn link_chunk(&self, pool: &Pool, chunk: u64, given: Option<Spot<Chunk>>) {
        let first = self.writer.first_chunk.load(Ordering::Relaxed);
        let is_front = chunk < first;
        let tail_chunk = self.tail_now() / CHUNK;
        let own = if !is_front && given.is_none() && first < tail_chunk.min(chunk) {
            self.writer.first_chunk.store(first + 1, Ordering::Relaxed);
            self.table()
                .and_then(|table| pool.tables.at(table).link(first).load(Ordering::Relaxed))
        } else {
            None
        };
        let spot = given.or(own).unwrap_or_else(|| pool.take());
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
        } else {
            self.writer.chunk.store(spot, Ordering::Relaxed);
            let end = (chunk + 1) * CHUNK;
            self.writer.end.store(end, Ordering::Relaxed);
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
        self.give_back_to(pool, (self.tail_now() / CHUNK).saturating_sub(1));
    }

    /// Gives the chunks before `end` back, which hold no sample any more.
    fn give_back_to(&self, pool: &Pool, end: u64) {
        let Some(table) = self.table() else { return };
        let table = pool.tables.at(table);
        let mut first = self.writer.first_chunk.load(Ordering::Relaxed);
        while first < end {
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
    fn stamp_now(&self) -> i64 {
        self.stamp.load(Ordering::Relaxed) as i64
    }

    #[inline]
    fn tail_now(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    /// The slot behind the newest sample's, whose chunk the writer has linked.
    #[inline]
    fn slot_at_head<'a>(&'a self, pool: &'a Pool, head: u64) -> &'a Slot {
        let chunk = self.writer.chunk.load(Ordering::Relaxed);
        &pool
            .chunks
            .at(chunk.expect("a writer links before it looks"))
            .0[(head % CHUNK) as usize]
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
