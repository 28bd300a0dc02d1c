//! A block cache of a remote file: blocks that are cached, pending, and to be requested next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

/// Bytes of a block.
const BLOCK: u64 = 256 << 10;
/// At most this many blocks are cached.
const KEPT_BLOCKS: usize = 128;
/// The largest request, in blocks.
const LARGEST_REQUEST: u64 = 32;
/// Sequential reads prefetch up to this many blocks.
const FURTHEST_AHEAD: u64 = 16;

/// The blocks of one file, shared by all its readers.
pub(super) struct Blocks {
    size: u64,
    state: Mutex<State>,
    /// Signalled when a block has arrived or failed.
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    kept: HashMap<u64, Bytes>,
    /// Blocks by their last use, to evict the oldest.
    by_use: BTreeMap<u64, u64>,
    used_at: HashMap<u64, u64>,
    clock: u64,
    pending: HashSet<u64>,
    /// The block after the last one that was requested, and how far ahead that was.
    next: u64,
    ahead: u64,
}

impl Blocks {
    pub fn new(size: u64) -> Self {
        Blocks {
            size,
            state: Mutex::default(),
            arrived: Condvar::new(),
        }
    }

    /// The bytes from `offset` on; `fetch` receives all missing ranges together.
    pub fn read(
        &self,
        offset: u64,
        len: u64,
        fetch: impl Fn(Vec<Range<u64>>) -> io::Result<Vec<Bytes>>,
    ) -> io::Result<Bytes> {
        let start = offset.min(self.size);
        let end = start.saturating_add(len).min(self.size);
        if start == end {
            return Ok(Bytes::new());
        }
        let wanted = start / BLOCK..(end - 1) / BLOCK + 1;
        let mut found: BTreeMap<u64, Bytes> = BTreeMap::new();
        let mut state = self.lock();
        loop {
            for block in wanted.clone() {
                if !found.contains_key(&block)
                    && let Some(bytes) = state.touch(block)
                {
                    found.insert(block, bytes);
                }
            }
            let is_missing = |block: &u64| !found.contains_key(block);
            let missing: Vec<u64> = wanted.clone().filter(is_missing).collect();
            if missing.is_empty() {
                break;
            }
            let unasked: Vec<u64> = missing
                .into_iter()
                .filter(|block| !state.pending.contains(block))
                .collect();
            if unasked.is_empty() {
                state = self
                    .arrived
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let requests = state.requests(&unasked, self.size.div_ceil(BLOCK));
            drop(state);
            let fetched = self.fetch(&requests, &fetch);
            state = self.lock();
            for block in requests.iter().cloned().flatten() {
                state.pending.remove(&block);
            }
            self.arrived.notify_all();
            for (block, bytes) in fetched? {
                state.keep(block, bytes.clone());
                if wanted.contains(&block) {
                    found.insert(block, bytes);
                }
            }
        }
        drop(state);
        Ok(assembled(&found, start, end))
    }

    fn fetch(
        &self,
        requests: &[Range<u64>],
        fetch: impl Fn(Vec<Range<u64>>) -> io::Result<Vec<Bytes>>,
    ) -> io::Result<Vec<(u64, Bytes)>> {
        let ranges = requests
            .iter()
            .map(|blocks| blocks.start * BLOCK..(blocks.end * BLOCK).min(self.size))
            .collect();
        let answers = fetch(ranges)?;
        let mut fetched = Vec::new();
        for (blocks, bytes) in requests.iter().cloned().zip(answers) {
            for block in blocks.clone() {
                let from = ((block - blocks.start) * BLOCK) as usize;
                let to = (from + BLOCK as usize).min(bytes.len());
                let part = bytes.get(from..to).unwrap_or_default();
                // A copy, so that a cached block does not keep its neighbours alive.
                fetched.push((block, Bytes::copy_from_slice(part)));
            }
        }
        Ok(fetched)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, block: u64) -> Option<Bytes> {
        let bytes = self.kept.get(&block)?.clone();
        self.note_use(block);
        Some(bytes)
    }

    fn note_use(&mut self, block: u64) {
        self.clock += 1;
        if let Some(before) = self.used_at.insert(block, self.clock) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.clock, block);
    }

    fn keep(&mut self, block: u64, bytes: Bytes) {
        self.kept.insert(block, bytes);
        self.note_use(block);
        while self.kept.len() > KEPT_BLOCKS
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.kept.remove(&oldest);
            self.used_at.remove(&oldest);
        }
    }

    /// The requests to send: the missing blocks, neighbours joined, and blocks ahead where reads are sequential. Marks
    /// them as pending.
    fn requests(&mut self, missing: &[u64], blocks: u64) -> Vec<Range<u64>> {
        let (first, last) = (missing[0], missing[missing.len() - 1]);
        let follows = first == self.next || first + 1 == self.next;
        self.ahead = if follows {
            (self.ahead * 2).clamp(1, FURTHEST_AHEAD)
        } else {
            0
        };
        let mut all = missing.to_vec();
        for block in last + 1..(last + 1 + self.ahead).min(blocks) {
            if self.kept.contains_key(&block) || self.pending.contains(&block) {
                break;
            }
            all.push(block);
        }
        self.next = all[all.len() - 1] + 1;
        let mut requests: Vec<Range<u64>> = Vec::new();
        for block in all {
            self.pending.insert(block);
            match requests.last_mut() {
                Some(run) if run.end == block && run.end - run.start < LARGEST_REQUEST => {
                    run.end += 1;
                }
                _ => requests.push(block..block + 1),
            }
        }
        requests
    }
}

fn assembled(blocks: &BTreeMap<u64, Bytes>, start: u64, end: u64) -> Bytes {
    let cut = |block: u64, bytes: &Bytes| {
        let base = block * BLOCK;
        let from = (start.max(base) - base).min(bytes.len() as u64) as usize;
        let to = (end - base).min(bytes.len() as u64) as usize;
        bytes.slice(from..to.max(from))
    };
    if let (1, Some((&block, bytes))) = (blocks.len(), blocks.first_key_value()) {
        return cut(block, bytes);
    }
    let mut whole = BytesMut::with_capacity((end - start) as usize);
    for (&block, bytes) in blocks {
        whole.extend_from_slice(&cut(block, bytes));
    }
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const SIZE: u64 = 40 * BLOCK + 1000;

    fn file(range: Range<u64>) -> Bytes {
        range.map(|place| (place / 7 + place) as u8).collect()
    }

    #[test]
    fn every_range_is_what_the_file_holds() {
        let blocks = Blocks::new(SIZE);
        for (offset, len) in [
            (0, 10),
            (BLOCK - 5, 10),
            (SIZE - 3, 100),
            (SIZE, 5),
            (5, 3 * BLOCK),
            (7 * BLOCK + 1, BLOCK),
        ] {
            let found = blocks.read(offset, len, |ranges| {
                Ok(ranges.into_iter().map(file).collect())
            });
            let wanted = file(offset..(offset + len).min(SIZE));
            assert!(found.expect("reads") == wanted, "{offset} {len}");
        }
    }

    #[test]
    fn neighbours_are_asked_for_together_and_nothing_twice() {
        let blocks = Blocks::new(SIZE);
        let asked = RefCell::new(Vec::new());
        let fetch = |ranges: Vec<Range<u64>>| {
            asked.borrow_mut().extend(ranges.clone());
            Ok(ranges.into_iter().map(file).collect())
        };
        blocks.read(10 * BLOCK, 3 * BLOCK, fetch).expect("reads");
        blocks.read(9 * BLOCK, 5 * BLOCK, fetch).expect("reads");
        let wanted = [10..13, 9..10, 13..14].map(|run| run.start * BLOCK..run.end * BLOCK);
        assert_eq!(asked.into_inner(), wanted);
    }

    #[test]
    fn reads_that_follow_each_other_fetch_ahead() {
        let blocks = Blocks::new(SIZE);
        let requests = RefCell::new(0);
        for block in 0..40 {
            let fetch = |ranges: Vec<Range<u64>>| {
                *requests.borrow_mut() += ranges.len();
                Ok(ranges.into_iter().map(file).collect())
            };
            blocks.read(block * BLOCK, BLOCK, fetch).expect("reads");
        }
        assert!(requests.into_inner() <= 8);
    }

    #[test]
    fn a_failure_is_told_and_the_next_reader_asks_again() {
        let blocks = Blocks::new(SIZE);
        let failed = blocks.read(0, 10, |_| Err(io::Error::other("no network")));
        assert!(failed.is_err());
        let found = blocks.read(0, 10, |ranges| Ok(ranges.into_iter().map(file).collect()));
        assert_eq!(found.expect("reads"), file(0..10));
    }
}
