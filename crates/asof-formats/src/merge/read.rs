//! Messages of several recordings in one order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use asof_core::{Batch, Batches, Channel, Query, Row, SourceError, Stamp};

use super::Shared;

/// A merged batch is closed at this many messages.
const MERGED_ROWS: usize = 16 << 10;

/// Parts are opened in the order in which they start; those that overlap are merged, the others pass through.
pub(super) struct Reader {
    shared: Arc<Shared>,
    query: Query,
    /// The parts that have not been opened yet, by their first instant.
    waiting: VecDeque<(Stamp, usize)>,
    open: Vec<Head>,
    is_finished: bool,
    /// The batches of each part; where there are none, its recording is read.
    given: Vec<Option<Batches>>,
}

/// A part that has been read up to row `at` of its current batch.
struct Head {
    part: usize,
    batches: Batches,
    batch: Batch,
    at: usize,
    table: Translation,
}

/// Maps a part's channel numbers to the merged ones.
#[derive(Default)]
pub(super) struct Translation {
    of: Arc<[Arc<Channel>]>,
    to: Vec<u32>,
}

impl Translation {
    fn update(&mut self, shared: &Shared, batch: &Batch) {
        if Arc::ptr_eq(&self.of, batch.channels()) && !self.to.is_empty() {
            return;
        }
        let mut channels = shared.lock_channels();
        self.of = Arc::clone(batch.channels());
        self.to = self.of.iter().map(|c| channels.intern(c)).collect();
    }

    /// A part's batch with the merged channels and order.
    pub fn translated(&mut self, shared: &Shared, part: usize, batch: &Batch) -> Batch {
        self.update(shared, batch);
        let row = |row| self.row(shared, part, 0, row);
        let rows = batch.rows().iter().map(row).collect();
        let channels = shared.lock_channels().snapshot();
        Batch::new(channels, batch.buffers().to_vec(), rows)
    }

    fn row(&self, shared: &Shared, part: usize, buffer: u32, row: &Row) -> Row {
        Row {
            channel: self.to[row.channel as usize],
            order: shared.order_of(part, row.order),
            buffer: buffer + row.buffer,
            ..*row
        }
    }
}

impl Head {
    fn row(&self) -> Option<&Row> {
        self.batch.rows().get(self.at)
    }

    fn key(&self) -> Option<(Stamp, usize)> {
        self.row().map(|row| (row.log_time, self.part))
    }
}

impl Reader {
    pub fn new(shared: &Arc<Shared>, query: &Query) -> Self {
        let mut waiting: Vec<(Stamp, usize)> = Vec::new();
        for (index, part) in shared.parts.iter().enumerate() {
            let range = part.recording.summary().range;
            if range.overlaps(query.range) {
                waiting.push((range.start, index));
            }
        }
        waiting.sort_unstable();
        Reader {
            shared: Arc::clone(shared),
            query: query.clone(),
            waiting: waiting.into(),
            open: Vec::new(),
            is_finished: false,
            given: Vec::new(),
        }
    }

    /// The same, with the batches of each part given.
    pub fn over(shared: &Arc<Shared>, query: &Query, given: Vec<Option<Batches>>) -> Self {
        Reader {
            given,
            ..Reader::new(shared, query)
        }
    }

    /// Opens every part that may hold a message at or before the earliest open one.
    fn admit(&mut self) -> Result<(), SourceError> {
        while let Some(&(start, part)) = self.waiting.front() {
            let earliest = self.open.iter().filter_map(Head::key).min();
            if earliest.is_some_and(|(time, _)| time < start) {
                break;
            }
            self.waiting.pop_front();
            let given = self.given.get_mut(part).and_then(Option::take);
            let batches = match given {
                Some(batches) => batches,
                None => self.shared.parts[part].recording.read(&self.query)?,
            };
            let mut head = Head {
                part,
                batches,
                batch: Batch::default(),
                at: 0,
                table: Translation::default(),
            };
            if self.refill(&mut head)? {
                self.open.push(head);
            }
        }
        Ok(())
    }

    /// Takes the next batch of a part; returns whether there was one.
    fn refill(&self, head: &mut Head) -> Result<bool, SourceError> {
        match head.batches.next() {
            Some(batch) => {
                head.batch = batch?;
                head.at = 0;
                head.table.update(&self.shared, &head.batch);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The rows that can be returned now: those before `horizon`, until a part needs its next batch.
    fn merge(&mut self, horizon: Option<Stamp>) -> Batch {
        let is_before = |row: &Row| horizon.is_none_or(|horizon| row.log_time < horizon);
        let mut buffers = Vec::new();
        let mut bases = Vec::new();
        for head in &self.open {
            bases.push(buffers.len() as u32);
            buffers.extend_from_slice(head.batch.buffers());
        }
        let mut heap: BinaryHeap<_> = self
            .open
            .iter()
            .enumerate()
            .filter_map(|(place, head)| Some(Reverse((head.key()?, place))))
            .collect();
        let mut rows = Vec::new();
        'merge: while let Some(Reverse((_, place))) = heap.pop() {
            let limit = heap.peek().map(|Reverse((limit, _))| *limit);
            let head = &mut self.open[place];
            while let (Some(row), Some(key)) = (head.row(), head.key()) {
                if !is_before(row) || rows.len() >= MERGED_ROWS {
                    break 'merge;
                }
                if limit.is_some_and(|limit| key > limit) {
                    break;
                }
                rows.push(head.table.row(&self.shared, head.part, bases[place], row));
                head.at += 1;
            }
            match head.key() {
                Some(key) => heap.push(Reverse((key, place))),
                None => break,
            }
        }
        let channels = self.shared.lock_channels().snapshot();
        Batch::new(channels, buffers, rows)
    }

    fn advance(&mut self) -> Result<Option<Batch>, SourceError> {
        loop {
            let mut place = 0;
            while place < self.open.len() {
                if self.open[place].row().is_none() {
                    let mut head = self.open.swap_remove(place);
                    if self.refill(&mut head)? {
                        self.open.push(head);
                    }
                } else {
                    place += 1;
                }
            }
            self.admit()?;
            if self.open.is_empty() {
                return Ok(None);
            }
            let horizon = self.waiting.front().map(|&(start, _)| start);
            let batch = self.merge(horizon);
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished {
            return None;
        }
        let next = self.advance().transpose();
        self.is_finished = !matches!(next, Some(Ok(_)));
        next
    }
}

/// One part after the other, each in file order.
pub(super) struct OneByOne {
    shared: Arc<Shared>,
    query: Query,
    next: usize,
    open: Option<(usize, Batches)>,
    table: Translation,
}

impl OneByOne {
    pub fn new(shared: &Arc<Shared>, query: &Query) -> Self {
        OneByOne {
            shared: Arc::clone(shared),
            query: query.clone(),
            next: 0,
            open: None,
            table: Translation::default(),
        }
    }

    fn translated(&mut self, part: usize, batch: &Batch) -> Batch {
        self.table.translated(&self.shared, part, batch)
    }
}

impl Iterator for OneByOne {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((part, batches)) = &mut self.open {
                let part = *part;
                match batches.next() {
                    Some(Ok(batch)) => return Some(Ok(self.translated(part, &batch))),
                    Some(Err(error)) => {
                        self.next = usize::MAX;
                        self.open = None;
                        return Some(Err(error));
                    }
                    None => self.open = None,
                }
            }
            let part = self.next;
            let recording = &self.shared.parts.get(part)?.recording;
            self.next += 1;
            match recording.read_in_file_order(&self.query) {
                Ok(batches) => self.open = Some((part, batches)),
                Err(error) => {
                    self.next = usize::MAX;
                    return Some(Err(error));
                }
            }
        }
    }
}
