//! One read of the source, shared by any number of readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use asof_core::{Batch, Batches, Channel, Query, Row, SourceError, Stamp, TimeRange};
use bytes::Bytes;

use crate::block::{OpenBlock, ROW_COST};
use crate::coverage::{after, before};
use crate::head::HeadClass;
use crate::names::{ChannelTable, TopicSet};
use crate::order::key;
use crate::shared::Shared;
use crate::store::State;

/// A read of some topics that continues as long as a reader wants more.
///
/// The reader at its frontier drives it, with its lock held: other readers that want the same wait for that lock
/// and find the result. The lock of the store is taken within it, never around it.
pub(crate) struct Fetch {
    pub id: u64,
    pub topics: TopicSet,
    class: HeadClass,
    origin: Origin,
    progress: Mutex<Progress>,
}

/// Where a fetch reads from.
pub(crate) enum Origin {
    Source(Query),
    Disk { key: u64, query: Query },
}

struct Progress {
    batches: Option<Batches>,
    is_started: bool,
    /// Set while foreign code runs. If found set, that code has panicked.
    is_reading: bool,
    /// The group of messages with the latest stamp, of which more may come.
    held: Messages,
    /// Complete but not yet sealed.
    open: Option<OpenBlock>,
    /// The piece read last, for readers positioned at its start.
    tail: Option<Arc<Piece>>,
    frontier: Option<Stamp>,
    is_orderly: bool,
    /// The number of pieces so far.
    pieces: u64,
    known: Option<KnownChannels>,
}

/// Rows, and the buffers that they point into.
#[derive(Debug, Default)]
struct Messages {
    rows: Vec<Row>,
    buffers: Vec<Bytes>,
}

/// Everything that a fetch read within a time range, in the source's order.
#[derive(Debug)]
pub(crate) struct Piece {
    pub range: TimeRange,
    pub rows: Vec<Row>,
    pub buffers: Vec<Bytes>,
    /// Messages that should have come earlier: the source broke its order.
    pub late: Vec<Row>,
    /// Its number among the pieces of its fetch, starting at 1.
    pub serial: u64,
}

/// The cache's numbers for the channels of a source's table.
struct KnownChannels {
    table: Arc<[Arc<Channel>]>,
    /// By the source's number; `None` for topics that were not asked for.
    numbers: Vec<Option<u32>>,
    /// The cache's own table, which has all of them.
    own: Arc<ChannelTable>,
}

/// The result of [`Fetch::advance`].
pub(crate) enum Advance {
    /// The piece that covers the instant.
    Ready(Arc<Piece>),
    /// The store has changed: look again.
    Retry,
    /// The source failed, after these last messages.
    Failed(SourceError, Piece),
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fetch({})", self.id)
    }
}

impl Fetch {
    pub fn new(id: u64, topics: TopicSet, class: HeadClass, start: Stamp, origin: Origin) -> Self {
        Fetch {
            id,
            topics,
            class,
            origin,
            progress: Mutex::new(Progress {
                batches: None,
                is_started: false,
                is_reading: false,
                held: Messages::default(),
                open: None,
                tail: None,
                frontier: Some(start),
                is_orderly: true,
                pieces: 0,
                known: None,
            }),
        }
    }

    /// Makes sure that `at` has been read.
    pub fn advance(&self, shared: &Shared, at: Stamp) -> Advance {
        let mut progress = self.lock();
        if progress.is_reading {
            self.give_up(shared, &mut progress);
            return Advance::Retry;
        }
        if let Some(tail) = &progress.tail
            && tail.range.contains(at)
        {
            return Advance::Ready(Arc::clone(tail));
        }
        if progress.frontier != Some(at) {
            self.seal(shared, &mut progress);
            return Advance::Retry;
        }
        let advanced = self.pump(shared, &mut progress);
        if shared.budget.is_over() {
            // The budget was lowered while the source was read.
            self.seal(shared, &mut progress);
            shared.state().fit();
        }
        drop(progress);
        shared.spill();
        advanced
    }

    /// Seals what has been read, so that it is found in the store. Skipped while the source is being read, which
    /// may take arbitrarily long.
    pub fn settle(&self, shared: &Shared) {
        let mut progress = match self.progress.try_lock() {
            Ok(progress) => progress,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if !progress.is_reading {
            self.seal(shared, &mut progress);
        }
    }

    /// Releases the piece read last if it is before `at` and no other reader can want it.
    pub fn release(&self, shared: &Shared, at: Option<Stamp>) {
        let mut progress = self.lock();
        let is_past = |tail: &Arc<Piece>| at.is_none_or(|at| tail.range.end < at);
        if !progress.tail.as_ref().is_some_and(is_past) {
            return;
        }
        let mut state = shared.state();
        if state
            .flight(self.id)
            .is_none_or(|flight| flight.readers <= 1)
        {
            progress.tail = None;
            publish(&progress, &mut state, self.id);
        }
    }

    /// Whether it reads the source rather than the disk tier.
    pub fn is_of_source(&self) -> bool {
        matches!(self.origin, Origin::Source(_))
    }

    /// Detaches a reader. The last one seals what was read and ends the read.
    pub fn detach(&self, shared: &Shared) {
        let mut state = shared.state();
        let Some(flight) = state.flight(self.id) else {
            return;
        };
        flight.readers -= 1;
        if flight.readers > 0 {
            return;
        }
        drop(state);
        let mut progress = self.lock();
        let is_wanted = shared
            .state()
            .flight(self.id)
            .is_none_or(|flight| flight.readers > 0);
        if is_wanted {
            // Another reader joined between the two locks, or has already ended it.
            return;
        }
        if progress.is_reading {
            self.give_up(shared, &mut progress);
            return;
        }
        self.seal(shared, &mut progress);
        self.unregister(shared);
        let batches = progress.batches.take();
        progress.tail = None;
        progress.held = Messages::default();
        drop(progress);
        drop(batches);
    }

    /// Bytes reserved for what is not sealed yet; for the audit.
    pub fn reserved(&self) -> u64 {
        self.lock().open.as_ref().map_or(0, OpenBlock::reserved)
    }

    /// Unlike the store, a fetch may be left in an intermediate state by a panic in foreign code; `is_reading`
    /// detects that.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until a piece is complete.
    fn pump(&self, shared: &Shared, progress: &mut Progress) -> Advance {
        loop {
            let limit = shared.state().flight(self.id).map(|flight| flight.end);
            let (Some(limit), Some(frontier)) = (limit, progress.frontier) else {
                return Advance::Retry;
            };
            if frontier > limit {
                self.seal(shared, progress);
                self.unregister(shared);
                return Advance::Retry;
            }
            if let Origin::Disk { key, query } = &self.origin
                && !progress.is_started
            {
                progress.is_started = true;
                progress.batches = shared.disk.as_ref().and_then(|disk| disk.read(*key, query));
                if progress.batches.is_none() {
                    // The block is unusable and gone from the tier: read the source instead.
                    self.unregister(shared);
                    return Advance::Retry;
                }
                shared.state().counters.disk_reads += 1;
            }
            match self.pull(shared, progress) {
                Some(Ok(batch)) => {
                    let late = self.absorb(shared, progress, &batch, frontier);
                    let complete = complete_through(&progress.held, limit);
                    let is_last = complete == Some(limit);
                    if is_last {
                        progress.batches = None;
                    }
                    let complete = complete.filter(|&through| through >= frontier);
                    if complete.is_none() && late.is_empty() {
                        continue;
                    }
                    let through = complete.or_else(|| before(frontier)).unwrap_or(frontier);
                    let range = TimeRange::new(frontier, through);
                    return self.deliver(shared, progress, range, late);
                }
                None => {
                    progress.batches = None;
                    let range = TimeRange::new(frontier, limit);
                    return self.deliver(shared, progress, range, Vec::new());
                }
                Some(Err(error)) => {
                    let Messages { rows, buffers } = std::mem::take(&mut progress.held);
                    let last = rows.last().map_or(frontier, |row| row.log_time);
                    self.seal(shared, progress);
                    self.unregister(shared);
                    progress.batches = None;
                    progress.tail = None;
                    let piece = Piece {
                        range: TimeRange::new(frontier, last),
                        rows,
                        buffers,
                        late: Vec::new(),
                        serial: progress.pieces + 1,
                    };
                    return Advance::Failed(error, piece);
                }
            }
        }
    }

    /// The next batch of the source.
    fn pull(&self, shared: &Shared, progress: &mut Progress) -> Option<Result<Batch, SourceError>> {
        let _span = tracing::trace_span!("fetch", id = self.id).entered();
        let start = Instant::now();
        progress.is_reading = true;
        let mut is_new = false;
        let mut next = None;
        if let Origin::Source(query) = &self.origin
            && !progress.is_started
        {
            tracing::debug!(id = self.id, range = ?query.range, topics = self.topics.len(), "reading the source");
            progress.is_started = true;
            is_new = true;
            match shared.source.read(query) {
                Ok(batches) => progress.batches = Some(batches),
                Err(error) => next = Some(Err(error)),
            }
        }
        if next.is_none() {
            next = progress.batches.as_mut().and_then(Iterator::next);
        }
        progress.is_reading = false;
        let waited = start.elapsed();
        let mut state = shared.state();
        let counters = &mut state.counters;
        counters.add_wait(is_new, waited);
        if let (Origin::Source(_), Some(Ok(batch))) = (&self.origin, &next) {
            counters.source_messages += batch.len() as u64;
        }
        next
    }

    /// Takes in a batch; all of it is held at first. Returns the rows that came too late.
    fn absorb(
        &self,
        shared: &Shared,
        progress: &mut Progress,
        batch: &Batch,
        frontier: Stamp,
    ) -> Vec<Row> {
        let known = self.known_channels(shared, progress.known.take(), batch);
        let held = &mut progress.held;
        let base = held.buffers.len() as u32;
        held.buffers.extend_from_slice(batch.buffers());
        held.rows.reserve(batch.len());
        let asked = self.asked();
        let mut late = Vec::new();
        for row in batch.rows() {
            let Some(channel) = known.numbers[row.channel as usize] else {
                continue;
            };
            let row = Row {
                channel,
                buffer: row.buffer + base,
                ..*row
            };
            if row.log_time >= frontier {
                if row.log_time <= asked.end {
                    held.rows.push(row);
                }
            } else if row.log_time >= asked.start {
                late.push(row);
            }
        }
        if !held.rows.is_sorted_by_key(key) {
            held.rows.sort_by_key(key);
        }
        progress.known = Some(known);
        late
    }

    fn asked(&self) -> TimeRange {
        match &self.origin {
            Origin::Source(query) | Origin::Disk { query, .. } => query.range,
        }
    }

    /// Moves everything in `range` from the held messages to a piece, and caches a copy of it.
    fn deliver(
        &self,
        shared: &Shared,
        progress: &mut Progress,
        range: TimeRange,
        late: Vec<Row>,
    ) -> Advance {
        let held = &mut progress.held;
        let rest = held.rows.partition_point(|row| row.log_time <= range.end);
        let is_done = progress.batches.is_none();
        progress.pieces += 1;
        let serial = progress.pieces;
        let piece = if is_done || rest == held.rows.len() {
            let mut all = std::mem::take(held);
            all.rows.truncate(rest);
            Piece {
                range,
                rows: all.rows,
                buffers: all.buffers,
                late,
                serial,
            }
        } else {
            let left = held.rows[rest..].to_vec();
            let left = compact(left, &held.buffers);
            let mut all = std::mem::replace(held, left);
            all.rows.truncate(rest);
            Piece {
                range,
                rows: all.rows,
                buffers: all.buffers,
                late,
                serial,
            }
        };
        if !piece.late.is_empty() {
            self.distrust(shared, progress, &piece);
        }
        progress.frontier = if range.is_empty() {
            Some(range.start)
        } else {
            after(range.end)
        };
        let piece = Arc::new(piece);
        // Before any of it is sealed: a concurrent lookup must find the read in progress.
        progress.tail = Some(Arc::clone(&piece));
        if progress.is_orderly && !shared.state().is_disorderly {
            self.keep(shared, progress, &piece);
        } else {
            shared.state().counters.passed_through += piece.rows.len() as u64;
        }
        if is_done {
            self.seal(shared, progress);
        }
        publish(progress, &mut shared.state(), self.id);
        Advance::Ready(piece)
    }

    /// The source has broken its order: what was cached of it may be incomplete, and so would anything cached
    /// from now on.
    fn distrust(&self, shared: &Shared, progress: &mut Progress, piece: &Piece) {
        let first = piece.late.iter().map(|row| row.log_time).min();
        let first = first.unwrap_or(piece.range.start);
        tracing::warn!(id = self.id, at = %first, "the source delivers messages out of order; it is no longer cached");
        progress.is_orderly = false;
        progress.open = None;
        let mut state = shared.state();
        state.counters.disorders += 1;
        state.is_disorderly = true;
        let all = (0..state.names.len() as u32).collect();
        state.forget(&all, TimeRange::ALL);
        drop(state);
        if let Some(disk) = &shared.disk {
            disk.give_up();
        }
    }

    /// Copies a piece into blocks, as far as there is room.
    fn keep(&self, shared: &Shared, progress: &mut Progress, piece: &Piece) {
        let block_bytes = shared.block_bytes();
        let end = piece.range.end;
        let mut start = piece.range.start;
        let mut rows = &piece.rows[..];
        let mut passed = 0;
        while !rows.is_empty() {
            if !self.ensure_open(shared, progress, start) {
                passed += rows.len();
                break;
            }
            let Some(open) = &mut progress.open else {
                break;
            };
            let room = block_bytes.saturating_sub(open.size());
            let mut run = run_within(rows, room);
            if run == 0 {
                if !open.is_empty() {
                    // The block ends right before the next message.
                    open.end = before(rows[0].log_time).unwrap_or(open.end).max(open.end);
                    start = after(open.end).unwrap_or(start);
                    self.seal(shared, progress);
                    continue;
                }
                run = group(rows);
            }
            let taken = take(shared, open, &rows[..run], &piece.buffers, self.class);
            if taken > 0 {
                start = after(rows[taken - 1].log_time).unwrap_or(start);
                rows = &rows[taken..];
                continue;
            }
            let at = rows[0].log_time;
            if !open.is_empty() {
                // Sealed, it may be evicted to make room.
                open.end = before(at).unwrap_or(open.end).max(open.end);
                start = after(open.end).unwrap_or(start);
                self.seal(shared, progress);
                continue;
            }
            // It does not fit even on its own: it passes through and leaves a gap of one instant.
            match before(at) {
                Some(end) if end >= open.start => {
                    open.end = end;
                    self.seal(shared, progress);
                }
                _ => progress.open = None,
            }
            let skipped = group(rows);
            passed += skipped;
            rows = &rows[skipped..];
            match after(at) {
                Some(next) => start = next,
                None => return,
            }
        }
        if rows.is_empty()
            && start <= end
            && self.ensure_open(shared, progress, start)
            && let Some(open) = &mut progress.open
        {
            open.end = open.end.max(end);
        }
        if !rows.is_empty() {
            // What follows is not contiguous with this block.
            self.seal(shared, progress);
        }
        if passed > 0 {
            shared.state().counters.passed_through += passed as u64;
        }
    }

    /// A block to fill from `start` on.
    fn ensure_open(&self, shared: &Shared, progress: &mut Progress, start: Stamp) -> bool {
        if progress.open.is_some() {
            return true;
        }
        let mut state = shared.state();
        let mut reservation = state.budget.nothing();
        let cost = OpenBlock::opening_cost(self.topics.len());
        if !state.reserve(&mut reservation, cost, self.class) {
            return false;
        }
        progress.open = Some(OpenBlock::new(start, self.class, reservation));
        true
    }

    fn seal(&self, shared: &Shared, progress: &mut Progress) {
        // The indexes of a block are built outside of the lock.
        let sealed = progress.open.take().map(|open| {
            let class = open.class;
            let sealed = match &progress.known {
                Some(known) => open.seal(&known.own),
                // The block is empty: there is nothing to look up.
                None => open.seal(&ChannelTable::default()),
            };
            (sealed, class)
        });
        let mut state = shared.state();
        if let Some(((block, charge), class)) = sealed
            && !state.is_disorderly
        {
            state.commit(&self.topics, block, class, charge);
        }
        publish(progress, &mut state, self.id);
    }

    /// Foreign code panicked during a read: nothing of it can be trusted.
    fn give_up(&self, shared: &Shared, progress: &mut Progress) {
        progress.open = None;
        progress.tail = None;
        progress.held = Messages::default();
        progress.batches = None;
        self.unregister(shared);
    }

    fn unregister(&self, shared: &Shared) {
        let mut state = shared.state();
        state.fetches.retain(|flight| flight.fetch.id != self.id);
    }

    fn known_channels(
        &self,
        shared: &Shared,
        known: Option<KnownChannels>,
        batch: &Batch,
    ) -> KnownChannels {
        if let Some(known) = known
            && Arc::ptr_eq(&known.table, batch.channels())
        {
            return known;
        }
        let mut state = shared.state();
        let number = |channel: &Arc<Channel>| {
            let topic = state.names.place_in(&self.topics, &channel.topic)?;
            if state.names.is_rest(topic) {
                state.settle_doubt(topic, true);
            }
            Some(state.names.channel(channel, topic))
        };
        let numbers = batch.channels().iter().map(number).collect();
        KnownChannels {
            table: Arc::clone(batch.channels()),
            numbers,
            own: state.names.table(),
        }
    }
}

/// Copies as many complete groups of `rows` as there is room for. Returns the number of rows.
fn take(
    shared: &Shared,
    open: &mut OpenBlock,
    rows: &[Row],
    buffers: &[Bytes],
    class: HeadClass,
) -> usize {
    let mut count = rows.len();
    loop {
        let part = &rows[..count];
        let growth = open.cost_of(count, part.iter().map(|row| row.len).sum());
        let reserve = |reservation: &mut _| {
            growth.bytes == 0 || shared.state().reserve(reservation, growth.bytes, class)
        };
        if open.grow(&growth, reserve) {
            open.append(part, buffers);
            return count;
        }
        // Half of it, in complete groups.
        let half = rows[..count].partition_point(|row| row.log_time < rows[count / 2].log_time);
        if half == 0 {
            let first = group(rows);
            if first >= count {
                return 0;
            }
            count = first;
        } else {
            count = half;
        }
    }
}

/// How many rows share the first one's stamp.
fn group(rows: &[Row]) -> usize {
    let first = rows[0].log_time;
    rows.iter().take_while(|row| row.log_time == first).count()
}

/// How many rows, in complete groups, fit into `room` bytes.
fn run_within(rows: &[Row], room: u64) -> usize {
    let mut used = 0u64;
    let over = rows.iter().position(|row| {
        used = used.saturating_add(row.len + ROW_COST);
        used > room
    });
    match over {
        None => rows.len(),
        Some(end) => {
            let stamp = rows[end].log_time;
            rows[..end].partition_point(|row| row.log_time < stamp)
        }
    }
}

/// The last instant that is complete, if the source keeps its order.
fn complete_through(held: &Messages, limit: Stamp) -> Option<Stamp> {
    let last = held.rows.last()?.log_time;
    if last > limit {
        return Some(limit);
    }
    before(last)
}

/// Rows with only the buffers that they need.
fn compact(mut rows: Vec<Row>, buffers: &[Bytes]) -> Messages {
    let mut used: Vec<u32> = rows.iter().map(|row| row.buffer).collect();
    used.sort_unstable();
    used.dedup();
    for row in &mut rows {
        row.buffer = used.partition_point(|&buffer| buffer < row.buffer) as u32;
    }
    Messages {
        rows,
        buffers: used
            .iter()
            .map(|&buffer| buffers[buffer as usize].clone())
            .collect(),
    }
}

/// Publishes this read's progress in the store.
fn publish(progress: &Progress, state: &mut State, id: u64) {
    let Some(flight) = state.flight(id) else {
        return;
    };
    let kept = progress.open.as_ref();
    let kept = kept.map(|open| TimeRange::new(open.start, open.end));
    let has_changed = flight.open != kept;
    flight.open = kept;
    let open = kept.map(|kept| kept.start);
    let tail = progress.tail.as_ref().map(|tail| tail.range.start);
    flight.frontier = progress.frontier;
    let read = progress.frontier.unwrap_or(Stamp::MAX);
    flight.open_start = [open, tail].into_iter().flatten().fold(read, Stamp::min);
    state.version += u64::from(has_changed);
}
