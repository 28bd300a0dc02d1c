//! Many late samples at once. Everything here is for the holder of the latch.

use super::{Bounds, CHUNK, Chunk, History, Words};
use crate::pool::Pool;
use crate::shelf::Spot;
use crate::sync::{Ordering, fence};

/// The result of a merge: each sample with its parent, the last old ones and the late ones in order.
struct Merged<'a> {
    old: std::iter::Peekable<std::vec::IntoIter<(Words, u32)>>,
    late: std::iter::Peekable<std::slice::Iter<'a, Words>>,
    parent: u32,
}

impl Iterator for Merged<'_> {
    /// A sample, its parent, and whether it is one of the late ones.
    type Item = (Words, u32, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let stamp = |words: &Words| words[0] as i64;
        let is_old = match (self.old.peek(), self.late.peek()) {
            (Some((old, _)), Some(late)) if stamp(old) == stamp(late) => {
                // The late one replaces it.
                self.old.next();
                false
            }
            (Some((old, _)), Some(late)) => stamp(old) < stamp(late),
            (old, _) => old.is_some(),
        };
        if is_old {
            return self
                .old
                .next()
                .map(|(words, parent)| (words, parent, false));
        }
        self.late.next().map(|words| (*words, self.parent, true))
    }
}

impl<B, W> History<B, W> {
    /// Sorts in late samples, ordered by strictly increasing stamps and none newer than the newest. Returns
    /// how many exceeded the bounds at once.
    ///
    /// Chunks before the first of them stay unchanged. Later chunks are copied with the late samples in them;
    /// readers see the old ones until all copies are linked.
    pub(super) fn rewrite(
        &self,
        pool: &Pool,
        bounds: Bounds,
        (late, parent): (&[Words], u32),
        room: impl Fn(i64) + Copy,
        stored: &mut impl FnMut(&Words),
    ) -> u64 {
        let (tail, head) = (self.tail_now(), self.head_now());
        let first = late.first().map_or(i64::MAX, |words| words[0] as i64);
        let place = self.first_not_before(pool, tail, head, first);
        let start = (place / CHUNK * CHUNK).max(tail);
        let sample = |index| {
            let parent = if self.is_mixed() {
                self.parent_at(pool, index)
            } else {
                parent
            };
            (self.slot(pool, index).words(), parent)
        };
        let old: Vec<(Words, u32)> = (start..head).map(sample).collect();
        let merged = Merged {
            old: old.into_iter().peekable(),
            late: late.iter().peekable(),
            parent,
        };
        let most = (start + (head - start) + late.len() as u64).div_ceil(CHUNK) - start / CHUNK;
        match self.chunks_for(pool, most, room) {
            Some(chunks) => self.relink(pool, bounds, start, merged, &chunks, stored),
            None => self.overwrite(pool, bounds, start, merged, room, stored),
        }
    }

    /// Allocates the chunks, if the budget allows them.
    fn chunks_for(
        &self,
        pool: &Pool,
        count: u64,
        room: impl Fn(i64) + Copy,
    ) -> Option<Vec<Spot<Chunk>>> {
        let mut chunks = Vec::new();
        let mut tries = 0;
        while (chunks.len() as u64) < count {
            match pool.take_within_budget() {
                Some(chunk) => chunks.push(chunk),
                None if tries < 4 => {
                    tries += 1;
                    room(self.oldest_end(pool).unwrap_or(i64::MAX));
                }
                None => {
                    for chunk in chunks {
                        pool.give(chunk);
                    }
                    return None;
                }
            }
        }
        Some(chunks)
    }

    /// Writes everything from `start` on into `chunks` and links them in one change.
    fn relink(
        &self,
        pool: &Pool,
        bounds: Bounds,
        start: u64,
        merged: Merged<'_>,
        chunks: &[Spot<Chunk>],
        stored: &mut impl FnMut(&Words),
    ) -> u64 {
        let (tail, head) = (self.tail_now(), self.head_now());
        let number = start / CHUNK;
        let is_mixed = self.is_mixed();
        // Between the stores of the threads that freed them and ours.
        fence(Ordering::Release);
        let mut index = start;
        let (mut switch, mut previous) = (None, None);
        let mut late: Vec<(u64, Words)> = Vec::new();
        for (words, parent, is_late) in merged {
            let chunk = pool.chunks.at(chunks[(index / CHUNK - number) as usize]);
            chunk.slot(index).set(&words);
            if is_mixed {
                let parents = pool.parents.at(super::write::parents_of(pool, chunk));
                parents.0[(index % CHUNK) as usize].store(parent, Ordering::Relaxed);
                if previous.replace(parent).is_none_or(|one| one != parent) {
                    switch = Some(index);
                }
            }
            if is_late {
                late.push((index, words));
            }
            index += 1;
        }
        let end = index.div_ceil(CHUNK);
        let used = (end - number) as usize;
        let first = self.first_chunk();
        let old = self.linked(pool, number..head.div_ceil(CHUNK));
        let evicted = (index - tail).saturating_sub(bounds.count);
        self.begin_change();
        let table = self.table_for(pool, first..end, first..number);
        for (at, chunk) in chunks[..used].iter().enumerate() {
            let link = pool.tables.at(table).link(number + at as u64);
            link.store(*chunk, Ordering::Release);
        }
        self.end_with(pool, index, chunks[used - 1]);
        if let Some(switch) = switch {
            self.set_switch(switch);
        }
        if evicted > 0 {
            self.raise_floor(self.slot(pool, tail + evicted - 1).stamp());
            self.tail.store(tail + evicted, Ordering::Release);
        }
        self.end_change();
        for chunk in chunks[used..].iter().copied().chain(old) {
            pool.give(chunk);
        }
        let dropped = late.partition_point(|(at, _)| *at < tail + evicted);
        for (_, words) in &late[dropped..] {
            stored(words);
        }
        self.count_evicted(evicted - dropped as u64);
        self.measure(pool, self.tail_now(), index - 1);
        self.give_back(pool);
        dropped as u64
    }

    /// Writes everything from `start` on in place, for lack of memory: readers wait for the latch.
    fn overwrite(
        &self,
        pool: &Pool,
        bounds: Bounds,
        start: u64,
        merged: Merged<'_>,
        room: impl Fn(i64) + Copy,
        stored: &mut impl FnMut(&Words),
    ) -> u64 {
        let merged: Vec<_> = merged.collect();
        let excess = (start - self.tail_now() + merged.len() as u64).saturating_sub(bounds.count);
        let gone = excess.saturating_sub(start - self.tail_now()) as usize;
        let head = self.head_now();
        self.begin_change();
        let kept = start.div_ceil(CHUNK);
        for chunk in self.linked(pool, kept..head.div_ceil(CHUNK)) {
            pool.give(chunk);
        }
        self.cut(pool, start);
        let (gone, kept) = merged.split_at(gone.min(merged.len()));
        if let Some((words, ..)) = gone.last() {
            self.raise_floor(words[0] as i64);
        }
        for (words, parent, _) in kept {
            self.append(pool, bounds, (words, *parent), room);
        }
        self.end_change();
        let oldest = self.slot(pool, self.tail_now()).stamp();
        let mut dropped = 0;
        for (words, _, _) in merged.iter().filter(|(_, _, is_late)| *is_late) {
            if words[0] as i64 >= oldest {
                stored(words);
            } else {
                dropped += 1;
            }
        }
        dropped
    }
}
