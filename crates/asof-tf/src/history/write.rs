//! Insertion and eviction of samples. Everything here is for the holder of the latch.

use std::ops::Range;

use super::{Bounds, CHUNK, Chunk, History, Inserted, PLAIN, Parents, Slot, UNUSED, Words};
use crate::pool::Pool;
use crate::shelf::{Spot, Table};
use crate::sync::{Ordering, SpinGuard, fence};

/// Chunks that a history keeps, whatever the budget.
pub(super) const MIN_CHUNKS: u64 = 2;

/// The most late samples inserted one by one; more are merged.
const MAX_SINGLE_INSERTS: usize = if cfg!(loom) { 1 } else { 8 };

impl<B, W> History<B, W> {
    /// Inserts a sample. `parent` is used only in a mixed history. `room` is called when another chunk is
    /// needed, with the time where this history's oldest chunk ends: it may evict older chunks of other
    /// histories.
    #[inline]
    pub(crate) fn insert(
        &self,
        held: &SpinGuard<'_>,
        pool: &Pool,
        bounds: Bounds,
        (words, parent): (&Words, u32),
        room: impl Fn(i64) + Copy,
    ) -> Inserted {
        let stamp = words[0] as i64;
        let (tail, head) = (self.tail_now(), self.head_now());
        if head > tail && stamp <= self.stamp_now() {
            return self.insert_late(held, pool, bounds, (words, parent), room);
        }
        self.append(pool, bounds, (words, parent), room);
        Inserted::Appended
    }

    /// Whether a sample with this stamp would be refused.
    #[cfg(not(loom))]
    pub(crate) fn is_too_old(
        &self,
        _held: &SpinGuard<'_>,
        pool: &Pool,
        bounds: Bounds,
        stamp: i64,
    ) -> bool {
        let (tail, head) = (self.tail_now(), self.head_now());
        if head == tail || stamp > self.stamp_now() {
            return false;
        }
        let is_full = head - tail >= bounds.count;
        stamp <= self.floor()
            || stamp < self.stamp_now().saturating_sub(bounds.window)
            || (is_full && stamp < self.slot(pool, tail).stamp())
    }

    /// Inserts samples ordered by strictly increasing stamps and calls `stored` for each that is kept.
    /// Returns how many were too old.
    pub(crate) fn merge(
        &self,
        held: &SpinGuard<'_>,
        pool: &Pool,
        bounds: Bounds,
        (sorted, parent): (&[Words], u32),
        room: impl Fn(i64) + Copy,
        stored: &mut impl FnMut(&Words),
    ) -> u64 {
        let Some(last) = sorted.last().map(|words| words[0] as i64) else {
            return 0;
        };
        let is_empty = self.head_now() == self.tail_now();
        let newest = if is_empty { i64::MIN } else { self.stamp_now() };
        let horizon = newest.max(last).saturating_sub(bounds.window);
        let horizon = horizon.max(self.floor().saturating_add(1));
        let start = sorted.partition_point(|words| (words[0] as i64) < horizon);
        let kept = &sorted[start..];
        let is_late = |words: &Words| !is_empty && words[0] as i64 <= newest;
        let (late, fresh) = kept.split_at(kept.partition_point(is_late));
        let mut too_old = start as u64;
        if late.len() > MAX_SINGLE_INSERTS {
            too_old += self.rewrite(pool, bounds, (late, parent), room, stored);
        } else {
            for words in late {
                match self.insert(held, pool, bounds, (words, parent), room) {
                    Inserted::TooOld => too_old += 1,
                    _ => stored(words),
                }
            }
        }
        for words in fresh {
            self.insert(held, pool, bounds, (words, parent), room);
            stored(words);
        }
        too_old
    }

    /// Drops every sample.
    pub(crate) fn clear(&self, _held: &SpinGuard<'_>, pool: &Pool) {
        self.begin_change();
        self.forget_all();
        self.end_change();
        self.give_back(pool);
    }

    /// Drops every sample and returns all memory to the pool.
    #[cfg(not(loom))]
    pub(crate) fn release(&self, _held: &SpinGuard<'_>, pool: &Pool) {
        self.begin_change();
        self.forget_all();
        // From the next chunk on, so that none of these is read again.
        let end = self.head_now().next_multiple_of(CHUNK);
        self.head.store(end, Ordering::Relaxed);
        self.tail.store(end, Ordering::Relaxed);
        self.writer.end.store(end, Ordering::Relaxed);
        self.end_change();
        self.give_back_to(pool, end / CHUNK);
        let first = end / CHUNK;
        self.writer.first_chunk.store(first, Ordering::Relaxed);
    }

    /// Drops every sample and goes out of use. Concurrent readers retry.
    #[cfg(not(loom))]
    pub(crate) fn retire(&self, held: &SpinGuard<'_>, pool: &Pool) {
        if self.is_unused() {
            return;
        }
        self.release(held, pool);
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store((seq + 1) | UNUSED, Ordering::Release);
    }

    /// Comes back into use, without a sample.
    #[cfg(not(loom))]
    pub(crate) fn use_again(&self, _held: &SpinGuard<'_>) {
        let seq = self.seq.load(Ordering::Relaxed);
        if seq & UNUSED != 0 {
            self.seq.store((seq & !UNUSED) + 1, Ordering::Release);
        }
    }

    /// Stores a parent with every sample from now on; existing samples have `parent`.
    pub(crate) fn mix(&self, _held: &SpinGuard<'_>, pool: &Pool, parent: u32) {
        if self.is_mixed() {
            return;
        }
        let (tail, head) = (self.tail_now(), self.head_now());
        // No reader uses them yet.
        if let Some(table) = self.table() {
            let first = self.writer.first_chunk.load(Ordering::Relaxed);
            for number in first..head.div_ceil(CHUNK) {
                if let Some(spot) = pool.tables.at(table).link(number).load(Ordering::Relaxed) {
                    let parents = pool.parents.at(parents_of(pool, pool.chunks.at(spot)));
                    parents
                        .0
                        .iter()
                        .for_each(|one| one.store(parent, Ordering::Relaxed));
                }
            }
        }
        self.begin_change();
        self.set_switch(tail);
        self.end_change();
    }

    /// Whether it is mixed, but all remaining samples have the same parent.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_mixed() && self.switch_index() <= self.tail_now()
    }

    /// Stops storing parents. For a history that [is settled](History::is_settled).
    pub(crate) fn settle(&self, _held: &SpinGuard<'_>) {
        self.begin_change();
        self.writer.switch.store(PLAIN, Ordering::Relaxed);
        self.end_change();
    }

    /// The parent of the newest sample, in a mixed history that has one.
    #[cfg(not(loom))]
    pub(crate) fn newest_parent(&self, _held: &SpinGuard<'_>, pool: &Pool) -> Option<u32> {
        let (tail, head) = (self.tail_now(), self.head_now());
        (self.is_mixed() && head > tail).then(|| self.parent_at(pool, head - 1))
    }

    /// The number of linked chunks.
    pub(crate) fn chunks(&self) -> u64 {
        let head = self.head.load(Ordering::Relaxed);
        let first = self.writer.first_chunk.load(Ordering::Relaxed);
        head.div_ceil(CHUNK).saturating_sub(first)
    }

    #[inline]
    pub(super) fn append(
        &self,
        pool: &Pool,
        bounds: Bounds,
        (words, parent): (&Words, u32),
        room: impl Fn(i64),
    ) {
        let (tail, head) = (self.tail_now(), self.head_now());
        let stamp = words[0] as i64;
        let is_empty = head == tail;
        let wanted = self.bounded(pool, bounds, tail, head, stamp, head - tail + 1);
        // The last one is evicted after the new one is in place, so that no reader finds none.
        let mut tail = self.evict_to(pool, tail, wanted.min((head - 1).max(tail)));
        if head == self.writer.end.load(Ordering::Relaxed) {
            let chunk = self.chunk_within_budget(pool, room);
            self.link_chunk(pool, head / CHUNK, chunk);
            tail = self.tail_now();
        }
        // Between the store of `tail` above and the stores to a slot that it freed.
        fence(Ordering::Release);
        let slot = self.slot_at_head(pool, head);
        slot.set(words);
        if self.is_mixed() {
            self.append_parent(pool, head, parent);
        }
        self.newest.store(Spot::of(slot), Ordering::Release);
        self.head.store(head + 1, Ordering::Release);
        self.stamp.store(stamp as u64, Ordering::Release);
        if wanted == head && !is_empty {
            tail = self.evict_to(pool, tail, head);
        }
        if head.is_multiple_of(16) || head - tail < 8 {
            self.measure(pool, tail, head);
        }
    }

    /// The first index after its oldest chunk, if it has more than [`MIN_CHUNKS`] chunks: that many are reserved
    /// for every history, whatever the budget.
    fn spare_end(&self) -> Option<u64> {
        let end = (self.tail_now() / CHUNK + 1) * CHUNK;
        (self.chunks() > MIN_CHUNKS && end < self.head_now()).then_some(end)
    }

    /// The time where its oldest chunk ends, if that may be evicted.
    pub(crate) fn oldest_end(&self, pool: &Pool) -> Option<i64> {
        // Read concurrently with the writer, so it can be wrong: only a hint.
        let last = self.spare_end()? - 1;
        let table = pool.tables.at(self.table.load(Ordering::Acquire)?);
        let chunk = table.link(last / CHUNK).load(Ordering::Acquire)?;
        Some(pool.chunks.at(chunk).slot(last).stamp())
    }

    /// Evicts its oldest chunk and returns it to the pool; `false` if it may not.
    pub(crate) fn give_up_chunk(&self, _held: &SpinGuard<'_>, pool: &Pool) -> bool {
        let Some(end) = self.spare_end() else {
            return false;
        };
        self.evict_to(pool, self.tail_now(), end);
        self.give_back_to(pool, end / CHUNK);
        true
    }

    /// A chunk within the pool's budget. If the budget is spent, others are asked for room; if none of them
    /// has older samples, the oldest chunk here is evicted and used next.
    #[cold]
    #[inline(never)]
    fn chunk_within_budget(&self, pool: &Pool, room: impl Fn(i64)) -> Option<Spot<Chunk>> {
        let tail = self.tail_now();
        if self.writer.first_chunk.load(Ordering::Relaxed) < tail / CHUNK {
            // It has one of its own.
            return None;
        }
        // Another writer may take what was freed for this one.
        for _ in 0..4 {
            if let Some(chunk) = pool.take_within_budget() {
                return Some(chunk);
            }
            // If this one may evict nothing, others have to, whatever their age.
            room(self.oldest_end(pool).unwrap_or(i64::MAX));
        }
        if let Some(end) = self.spare_end() {
            self.evict_to(pool, tail, end);
        }
        None
    }

    /// Where the tail has to be so that `count` samples are within the bounds, with `newest` as the newest
    /// stamp.
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
    fn evict_to(&self, pool: &Pool, tail: u64, kept: u64) -> u64 {
        if kept > tail {
            self.raise_floor(self.slot(pool, kept - 1).stamp());
            self.tail.store(kept, Ordering::Release);
            self.count_evicted(kept - tail);
        }
        kept
    }

    /// A sample that is not newer than the newest. Shifts the shorter side by one slot.
    #[cold]
    #[inline(never)]
    fn insert_late(
        &self,
        _held: &SpinGuard<'_>,
        pool: &Pool,
        bounds: Bounds,
        (words, parent): (&Words, u32),
        room: impl Fn(i64),
    ) -> Inserted {
        let is_full = self.head_now() == self.writer.end.load(Ordering::Relaxed);
        let chunk = is_full.then(|| self.chunk_within_budget(pool, room));
        let mut chunk = chunk.flatten();
        let inserted = self.insert_before(pool, bounds, (words, parent), &mut chunk);
        if let Some(unused) = chunk {
            pool.give(unused);
        }
        inserted
    }

    fn insert_before(
        &self,
        pool: &Pool,
        bounds: Bounds,
        (words, parent): (&Words, u32),
        chunk: &mut Option<Spot<Chunk>>,
    ) -> Inserted {
        let stamp = words[0] as i64;
        let (tail, head) = (self.tail_now(), self.head_now());
        let newest = self.stamp_now();
        let place = self.first_not_before(pool, tail, head, stamp);
        if self.slot(pool, place).stamp() == stamp {
            self.begin_change();
            self.put(pool, place, words, parent);
            self.note_switch(pool, place);
            self.end_change();
            return Inserted::Replaced;
        }
        let is_full = head - tail >= bounds.count;
        if stamp <= self.floor()
            || stamp < newest.saturating_sub(bounds.window)
            || (is_full && place == tail)
        {
            return Inserted::TooOld;
        }
        self.begin_change();
        let kept = self.bounded(pool, bounds, tail, head, newest, head - tail + 1);
        let mut tail = self.evict_to(pool, tail, kept);
        let front = (tail - 1) / CHUNK;
        let mut needs_front = front < self.writer.first_chunk.load(Ordering::Relaxed);
        let has_room = || chunk.is_some() || self.chunks() <= MIN_CHUNKS || !pool.is_spent();
        let is_at_front = place - tail.min(place) < head - place;
        if needs_front && is_at_front && place > tail && !has_room() {
            // The budget is spent: the oldest sample makes room for a newer one.
            tail = self.evict_to(pool, tail, tail + 1);
            needs_front = false;
        }
        if place < tail || (place == tail && needs_front && !has_room()) {
            self.raise_floor(stamp);
            self.end_change();
            return Inserted::TooOld;
        }
        fence(Ordering::Release);
        if is_at_front {
            if needs_front {
                self.link_chunk(pool, front, chunk.take());
            }
            for index in tail..place {
                self.copy(pool, index, index - 1);
            }
            self.put(pool, place - 1, words, parent);
            self.tail.store(tail - 1, Ordering::Release);
            self.note_switch(pool, place - 1);
        } else {
            if head == self.writer.end.load(Ordering::Relaxed) {
                self.link_chunk(pool, head / CHUNK, chunk.take());
            }
            for index in (place..head).rev() {
                self.copy(pool, index, index + 1);
            }
            self.put(pool, place, words, parent);
            let newest = self.slot_at_head(pool, head);
            self.newest.store(Spot::of(newest), Ordering::Release);
            self.head.store(head + 1, Ordering::Release);
            if self.is_mixed() && self.switch_index() > place {
                self.set_switch(self.switch_index() + 1);
            }
            self.note_switch(pool, place);
        }
        self.end_change();
        self.measure(pool, self.tail_now(), self.head_now() - 1);
        Inserted::InPlace
    }

    /// The first index whose stamp is at or after `stamp`; the newest one's is.
    pub(super) fn first_not_before(&self, pool: &Pool, tail: u64, head: u64, stamp: i64) -> u64 {
        // Late samples are usually only slightly late: gallop from the newest end.
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

    pub(super) fn begin_change(&self) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    pub(super) fn end_change(&self) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Release);
    }

    /// Stores the mean rate from `tail` to the newest index, for readers' first guess.
    #[inline]
    pub(super) fn measure(&self, pool: &Pool, tail: u64, newest: u64) {
        let first = self.slot(pool, tail).stamp();
        let span = self.slot(pool, newest).stamp().wrapping_sub(first);
        if span > 0 {
            // Less than one per nanosecond: stamps differ. Casting saturates.
            let rate = (newest - tail) as f64 / span as f64 * 2.0_f64.powi(64);
            self.rate.store(rate as u64, Ordering::Relaxed);
        }
    }

    /// Links a chunk at `chunk`: one that left the window, the one given, or one from the pool.
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
        if self.is_mixed() {
            parents_of(pool, pool.chunks.at(spot));
        }
        let first = self.writer.first_chunk.load(Ordering::Relaxed);
        let (wanted, linked) = if is_front {
            let end = self.head_now().div_ceil(CHUNK);
            (chunk..end, first..end)
        } else {
            (first..chunk + 1, first..chunk)
        };
        let table = self.table_for(pool, wanted, linked);
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

    /// A table with room for the chunks `wanted`: a larger one if the current one, with `linked`, is too
    /// small.
    pub(super) fn table_for(
        &self,
        pool: &Pool,
        wanted: Range<u64>,
        linked: Range<u64>,
    ) -> Spot<Table<Chunk>> {
        let needed = (wanted.end - wanted.start) as usize;
        let present = self.table();
        if let Some(table) = present
            && pool.tables.at(table).len() >= needed
        {
            return table;
        }
        let larger = pool.make_table(needed.max(2));
        if let Some(present) = present {
            let (old, new) = (pool.tables.at(present), pool.tables.at(larger));
            for chunk in linked {
                if let Some(spot) = old.link(chunk).load(Ordering::Relaxed) {
                    new.link(chunk).store(spot, Ordering::Relaxed);
                }
            }
        }
        self.table.store(larger, Ordering::Release);
        larger
    }

    /// Returns empty chunks to the pool, except for one to be used next.
    pub(super) fn give_back(&self, pool: &Pool) {
        self.give_back_to(pool, (self.tail_now() / CHUNK).saturating_sub(1));
    }

    /// Returns the chunks before `end`, which are empty.
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

    pub(super) fn table(&self) -> Option<Spot<Table<Chunk>>> {
        self.table.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn head_now(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    #[inline]
    fn stamp_now(&self) -> i64 {
        self.stamp.load(Ordering::Relaxed) as i64
    }

    #[inline]
    pub(super) fn tail_now(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    pub(super) fn first_chunk(&self) -> u64 {
        self.writer.first_chunk.load(Ordering::Relaxed)
    }

    /// The chunks with these numbers.
    pub(super) fn linked(&self, pool: &Pool, numbers: Range<u64>) -> Vec<Spot<Chunk>> {
        let Some(table) = self.table() else {
            return Vec::new();
        };
        let table = pool.tables.at(table);
        numbers
            .filter_map(|number| table.link(number).load(Ordering::Relaxed))
            .collect()
    }

    /// Records that the samples end at `head`, in this chunk.
    pub(super) fn end_with(&self, pool: &Pool, head: u64, chunk: Spot<Chunk>) {
        self.writer.chunk.store(chunk, Ordering::Relaxed);
        let end = head.div_ceil(CHUNK) * CHUNK;
        self.writer.end.store(end, Ordering::Relaxed);
        let newest = pool.chunks.at(chunk).slot(head - 1);
        self.newest.store(Spot::of(newest), Ordering::Release);
        self.head.store(head, Ordering::Release);
    }

    /// Cuts off all samples from `head` on; chunks after that of `head - 1` are already unlinked.
    pub(super) fn cut(&self, pool: &Pool, head: u64) {
        let end = head.div_ceil(CHUNK) * CHUNK;
        if self.is_mixed() && self.switch_index() > head {
            self.set_switch(head);
        }
        self.writer.end.store(end, Ordering::Relaxed);
        self.head.store(head, Ordering::Relaxed);
        if end > head {
            let chunk = Spot::of(self.chunk(pool, head));
            self.writer.chunk.store(chunk, Ordering::Relaxed);
        }
    }

    pub(crate) fn floor(&self) -> i64 {
        self.writer.floor.load(Ordering::Relaxed) as i64
    }

    /// Records that a sample with this stamp is missing.
    #[inline]
    pub(super) fn raise_floor(&self, stamp: i64) {
        let floor = self.floor().max(stamp);
        self.writer.floor.store(floor as u64, Ordering::Relaxed);
    }

    pub(super) fn count_evicted(&self, count: u64) {
        let evicted = &self.writer.evicted;
        evicted.store(evicted.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn forget_all(&self) {
        self.tail.store(self.head_now(), Ordering::Relaxed);
        self.stamp.store(i64::MIN as u64, Ordering::Relaxed);
        (self.writer.floor).store(i64::MIN as u64, Ordering::Relaxed);
        self.writer.switch.store(PLAIN, Ordering::Relaxed);
    }

    /// Writes a sample at an index whose chunk is linked.
    fn put(&self, pool: &Pool, index: u64, words: &Words, parent: u32) {
        self.slot(pool, index).set(words);
        if self.is_mixed() {
            self.set_parent(pool, index, parent);
        }
    }

    /// Copies a sample from one index to another.
    fn copy(&self, pool: &Pool, from: u64, to: u64) {
        self.slot(pool, to).set(&self.slot(pool, from).words());
        if self.is_mixed() {
            self.set_parent(pool, to, self.parent_at(pool, from));
        }
    }

    #[cold]
    #[inline(never)]
    fn append_parent(&self, pool: &Pool, head: u64, parent: u32) {
        self.set_parent(pool, head, parent);
        if head > self.tail_now() && self.parent_at(pool, head - 1) != parent {
            self.set_switch(head);
        }
    }

    fn set_parent(&self, pool: &Pool, index: u64, parent: u32) {
        let chunk = self.chunk(pool, index);
        let parents = pool.parents.at(parents_of(pool, chunk));
        parents.0[(index % CHUNK) as usize].store(parent, Ordering::Relaxed);
    }

    pub(super) fn parent_at(&self, pool: &Pool, index: u64) -> u32 {
        let parent = self.chunk(pool, index).parent(pool, index);
        parent.map_or(0, |parent| parent.load(Ordering::Relaxed))
    }

    /// Records where the parents change around a written index.
    fn note_switch(&self, pool: &Pool, place: u64) {
        if !self.is_mixed() {
            return;
        }
        let (tail, head) = (self.tail_now(), self.head_now());
        for index in [place, place + 1] {
            if index > tail
                && index < head
                && self.parent_at(pool, index) != self.parent_at(pool, index - 1)
                && index > self.switch_index()
            {
                self.set_switch(index);
            }
        }
    }

    pub(super) fn set_switch(&self, index: u64) {
        // One later would do as well.
        let low = (index as u32).max(1);
        self.writer.switch.store(low, Ordering::Relaxed);
    }

    pub(super) fn switch_index(&self) -> u64 {
        let head = self.head_now();
        let low = self.writer.switch.load(Ordering::Relaxed);
        // It can be one ahead of the head.
        (head + 1) - u64::from((head as u32).wrapping_add(1).wrapping_sub(low))
    }

    /// The slot after the newest sample's, whose chunk the writer has linked.
    #[inline]
    fn slot_at_head<'a>(&'a self, pool: &'a Pool, head: u64) -> &'a Slot {
        let chunk = self.writer.chunk.load(Ordering::Relaxed);
        pool.chunks
            .at(chunk.expect("a writer links before it looks"))
            .slot(head)
    }

    /// The slot at an index whose chunk the writer has linked.
    #[inline]
    pub(super) fn slot<'a>(&'a self, pool: &'a Pool, index: u64) -> &'a Slot {
        self.chunk(pool, index).slot(index)
    }

    /// The chunk of an index, which the writer has linked.
    #[inline]
    fn chunk<'a>(&'a self, pool: &'a Pool, index: u64) -> &'a Chunk {
        let table = self.table().expect("a writer links before it looks");
        let chunk = pool.tables.at(table).link(index / CHUNK);
        let spot = chunk.load(Ordering::Relaxed);
        pool.chunks
            .at(spot.expect("a writer links before it looks"))
    }
}

/// The location of the parents of a chunk's samples.
pub(super) fn parents_of(pool: &Pool, chunk: &Chunk) -> Spot<Parents> {
    if let Some(parents) = chunk.parents.load(Ordering::Relaxed) {
        return parents;
    }
    let parents = pool.make_parents();
    chunk.parents.store(parents, Ordering::Release);
    parents
}
