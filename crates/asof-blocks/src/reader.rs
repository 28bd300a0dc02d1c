//! Reading forwards: from memory where data is held, from the source where it is not.

use std::collections::VecDeque;
use std::sync::Arc;

use asof_core::{Batch, Query, Row, SourceError, Stamp, TimeRange};
use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::around::Around;
use crate::block::Block;
use crate::coverage::{after, before};
use crate::fetch::{Advance, Fetch, Origin, Piece};
use crate::head::{HeadClass, HeadSlot};
use crate::names::{ChannelTable, TopicId, TopicSet};
use crate::order::{Key, in_order, key};
use crate::shared::Shared;
use crate::store::{Flight, State};

/// The answer to a query: batches in the source's order.
///
/// Dropping it early keeps everything that was read.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    head: Arc<HeadSlot>,
    class: HeadClass,
    moves_head: bool,
    wanted: TopicSet,
    /// The rest among `topics`, if it is unknown whether it has any messages.
    doubt: Option<TopicId>,
    /// If set, everything comes from the source and nothing is cached.
    around: Option<Around>,
    /// The next instant to deliver; `None` at the end.
    position: Option<Stamp>,
    start: Stamp,
    end: Stamp,
    /// By fetch, its last piece whose late messages were handed out.
    late: FxHashMap<u64, u64>,
    ready: VecDeque<Ready>,
    /// The remainder of a block that is handed out in parts.
    rest: Option<Rest>,
    attached: Vec<Arc<Fetch>>,
    is_last_read: bool,
}

/// Something to hand out.
#[derive(Debug)]
struct Ready {
    batch: Result<Batch, SourceError>,
    /// Some of it came from the source just now.
    is_read: bool,
}

#[derive(Debug)]
struct Rest {
    block: Arc<Block>,
    span: std::ops::Range<usize>,
    table: Arc<ChannelTable>,
}

/// The result of a look at the store.
enum Step {
    /// First find out whether there are topics that the summary does not list.
    Doubt(TopicId),
    /// Everything up to `through` is in these blocks.
    Held {
        blocks: Vec<Arc<Block>>,
        through: Stamp,
        table: Arc<ChannelTable>,
    },
    /// These topics are being read; the others are in the blocks.
    Missing {
        blocks: Vec<Arc<Block>>,
        missing: TopicSet,
        through: Stamp,
        fetches: Vec<Arc<Fetch>>,
    },
}

/// A failed read of the source, and the last message up to which everything wanted is known.
struct Failure {
    error: SourceError,
    /// `None` if not even the first instant is complete in any part.
    last: Option<Key>,
}

impl Failure {
    /// Another read of the same instants goes only this far.
    fn cut_at(self, last: Option<Key>) -> Self {
        let last = self.last.zip(last).map(|(own, other)| own.min(other));
        Failure { last, ..self }
    }
}

/// Blocks are handed out in parts of this many messages, so that a batch fits the processor's cache.
const ROWS_AT_ONCE: usize = 2048;

impl Reader {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        query: &Query,
        head: Arc<HeadSlot>,
        moves_head: bool,
    ) -> Self {
        let is_growing = shared.is_growing();
        let wanted = shared.resolve(&query.topics);
        let state = shared.state();
        let class = state.heads.iter().find(|known| known.id == head.id);
        let class = class.map_or(HeadClass::default(), |known| known.options.class);
        let goes_around = is_growing || state.is_disorderly || !wanted.around.is_empty();
        drop(state);
        let has_topics = goes_around || !wanted.topics.is_empty();
        let is_empty = query.range.is_empty() || !has_topics;
        Reader {
            shared: Arc::clone(shared),
            head,
            class,
            moves_head,
            wanted: wanted.topics,
            doubt: wanted.doubt,
            around: goes_around.then(|| Around::new(query)),
            position: (!is_empty).then_some(query.range.start),
            start: query.range.start,
            end: query.range.end,
            late: FxHashMap::default(),
            ready: VecDeque::new(),
            rest: None,
            attached: Vec::new(),
            is_last_read: false,
        }
    }

    /// The next instant that it will deliver; `None` at the end.
    ///
    /// Everything before it has been handed out, except for what the last call to `next` left over.
    pub fn at(&self) -> Option<Stamp> {
        match (&self.rest, self.ready.front()) {
            (Some(rest), _) => Some(rest.block.rows[rest.span.start].log_time),
            (
                None,
                Some(Ready {
                    batch: Ok(batch), ..
                }),
            ) => Some(batch.range().start),
            _ => self.position,
        }
    }

    /// Whether the last batch was read, at least in part, from the source rather than from memory or disk.
    pub fn was_read(&self) -> bool {
        self.is_last_read
    }

    /// Whether nothing more will come, not even an error.
    pub fn is_finished(&self) -> bool {
        self.position.is_none() && self.rest.is_none() && self.ready.is_empty()
    }

    fn advance(&mut self, at: Stamp) {
        match self.look(at) {
            Step::Doubt(rest) => {
                self.doubt = None;
                if !self.shared.ask_about(rest) {
                    self.wanted.remove(rest);
                }
            }
            Step::Held {
                blocks,
                through,
                table,
            } => {
                let through = short_of(&blocks, TimeRange::new(at, through));
                self.position = self.next_after(through);
                self.deliver_blocks(&blocks, TimeRange::new(at, through), table);
            }
            Step::Missing {
                blocks,
                missing,
                through,
                fetches,
            } => self.follow(at, &blocks, &missing, through, &fetches),
        }
    }

    /// Looks at the store, joins reads in progress, and starts those that are needed.
    fn look(&mut self, at: Stamp) -> Step {
        let shared = Arc::clone(&self.shared);
        let mut guard = shared.state();
        let state = &mut *guard;
        self.move_head(state, at);
        let view = state.view(&self.wanted, at, self.end);
        // Where nothing is held, everything is requested, listed or not. Elsewhere that would be a second read.
        if let Some(rest) = self.doubt
            && view.missing.contains(rest)
            && view.missing != self.wanted
        {
            return Step::Doubt(rest);
        }
        for (block, set) in &view.blocks {
            state.promote(*set, block.range.start, self.class);
        }
        let blocks: Vec<_> = view.blocks.into_iter().map(|(block, _)| block).collect();
        if view.missing.is_empty() {
            return Step::Held {
                blocks,
                through: view.through,
                table: state.names.table(),
            };
        }
        let fetches = self.join(state, &view.missing, at);
        Step::Missing {
            blocks,
            missing: view.missing,
            through: view.through,
            fetches,
        }
    }

    fn move_head(&self, state: &mut State, at: Stamp) {
        let own = state.heads.iter_mut().find(|head| head.id == self.head.id);
        if let Some(head) = own.filter(|_| self.moves_head) {
            head.options.position = at;
        }
    }

    fn join(&mut self, state: &mut State, missing: &TopicSet, at: Stamp) -> Vec<Arc<Fetch>> {
        let mut joined = Vec::new();
        let mut flying = TopicSet::default();
        for flight in &mut state.fetches {
            let is_there = flight.open_start <= at && at <= flight.end;
            if !is_there || !flight.fetch.topics.intersects(missing) {
                continue;
            }
            if flight.frontier.is_some_and(|frontier| frontier < at) {
                // That read would take a while to get here: leave it what is before `at`.
                flight.end = before(at).unwrap_or(at);
                continue;
            }
            flying.add(&flight.fetch.topics);
            if !self.attached.iter().any(|own| own.id == flight.fetch.id) {
                flight.readers += 1;
                self.attached.push(Arc::clone(&flight.fetch));
            }
            joined.push(Arc::clone(&flight.fetch));
        }
        let mut left = missing.without(&flying);
        while !left.is_empty() {
            let fetch = self.open(state, missing, &left, at);
            left = left.without(&fetch.topics);
            joined.push(fetch);
        }
        joined
    }

    /// Starts a read of `topics`, or of some of them.
    fn open(
        &mut self,
        state: &mut State,
        missing: &TopicSet,
        topics: &TopicSet,
        at: Stamp,
    ) -> Arc<Fetch> {
        let mut end = state.hole_end(&self.wanted, missing, at, self.end);
        let mut topics = topics.clone();
        let mut on_disk = None;
        if let Some(disk) = &self.shared.disk {
            let spilled = disk.find(state, &topics, at);
            end = end.min(spilled.through);
            if let Some((key, held)) = spilled.block {
                topics = held;
                on_disk = Some(key);
            }
        }
        let query = Query {
            topics: Shared::names_of(state, &topics),
            range: TimeRange::new(at, end),
        };
        let origin = match on_disk {
            Some(key) => Origin::Disk { key, query },
            None => Origin::Source(query),
        };
        let id = state.fresh_id();
        let fetch = Arc::new(Fetch::new(id, topics, self.class, at, origin));
        state.fetches.push(Flight {
            fetch: Arc::clone(&fetch),
            open_start: at,
            frontier: Some(at),
            end,
            open: None,
            readers: 1,
        });
        self.attached.push(Arc::clone(&fetch));
        fetch
    }

    /// Waits for the reads in progress and delivers as far as all of them have come.
    fn follow(
        &mut self,
        at: Stamp,
        blocks: &[Arc<Block>],
        missing: &TopicSet,
        through: Stamp,
        fetches: &[Arc<Fetch>],
    ) {
        let mut pieces = Vec::new();
        let is_read = fetches.iter().any(|fetch| fetch.is_of_source());
        let mut through = through;
        let mut failure: Option<Failure> = None;
        for fetch in fetches {
            match fetch.advance(&self.shared, at) {
                Advance::Ready(piece) => {
                    if piece.range.start == at && self.is_first_look(fetch.id, &piece) {
                        self.deliver_late(&piece, missing, is_read);
                    }
                    if !piece.range.is_empty() {
                        through = through.min(piece.range.end);
                        pieces.push(piece);
                        continue;
                    }
                }
                Advance::Retry => {}
                Advance::Failed(error, piece) => {
                    let last = piece.rows.last().map(key);
                    failure = Some(match failure {
                        Some(first) => first.cut_at(last),
                        None => Failure { error, last },
                    });
                    pieces.push(Arc::new(piece));
                    continue;
                }
            }
            // This read has nothing at `at` yet.
            match failure {
                Some(first) => failure = Some(first.cut_at(None)),
                None => return,
            }
        }
        let range = TimeRange::new(at, through);
        if let Some(failure) = failure {
            self.fail(blocks, pieces, missing, range, failure, is_read);
            return;
        }
        self.position = self.next_after(through);
        // A sole reader takes the rows themselves.
        for fetch in fetches {
            fetch.release(&self.shared, self.position);
        }
        self.deliver(blocks, pieces, missing, range, None, is_read);
        self.let_go();
    }

    fn next_after(&self, through: Stamp) -> Option<Stamp> {
        after(through).filter(|&next| next <= self.end)
    }

    /// Hands out messages from blocks; a single block goes out in parts.
    fn deliver_blocks(
        &mut self,
        blocks: &[Arc<Block>],
        range: TimeRange,
        table: Arc<ChannelTable>,
    ) {
        if let [block] = blocks
            && block.has_only(&self.wanted)
        {
            let span = block.span(range);
            if !span.is_empty() {
                self.rest = Some(Rest {
                    block: Arc::clone(block),
                    span,
                    table,
                });
            }
            return;
        }
        let mut rows = Vec::new();
        let mut buffers = Vec::new();
        for block in blocks {
            let base = buffers.len() as u32;
            block.select(&self.wanted, range, &table, base, &mut rows);
            buffers.extend_from_slice(&block.buffers);
        }
        self.tally(rows.len(), 0);
        self.push(&table, buffers, rows, false);
    }

    /// Hands out blocks and pieces together, in order, up to `last` if set.
    fn deliver(
        &mut self,
        blocks: &[Arc<Block>],
        pieces: Vec<Arc<Piece>>,
        missing: &TopicSet,
        range: TimeRange,
        last: Option<Key>,
        is_read: bool,
    ) {
        let table = self.shared.state().names.table();
        let mut rows = Vec::new();
        let mut buffers: Vec<Bytes> = Vec::new();
        for block in blocks {
            let base = buffers.len() as u32;
            block.select(&self.wanted, range, &table, base, &mut rows);
            buffers.extend_from_slice(&block.buffers);
        }
        let hits = rows.len();
        for piece in pieces {
            append_piece(piece, missing, range, &table, &mut buffers, &mut rows);
        }
        self.tally(hits, rows.len() - hits);
        if let Some(last) = last {
            rows.retain(|row| key(row) <= last);
        }
        self.push(&table, buffers, rows, is_read);
    }

    /// Whether the piece has late messages that this reader has not handed out yet: it may look at a piece several
    /// times while it waits for another.
    fn is_first_look(&mut self, fetch: u64, piece: &Piece) -> bool {
        if piece.late.is_empty() {
            return false;
        }
        let seen = self.late.entry(fetch).or_default();
        let is_first = piece.serial > *seen;
        *seen = piece.serial;
        is_first
    }

    fn deliver_late(&mut self, piece: &Piece, missing: &TopicSet, is_read: bool) {
        let table = self.shared.state().names.table();
        // The read is shared and may have begun before this reader's range.
        let own = TimeRange::new(self.start, self.end);
        let is_wanted = |row: &&Row| {
            own.contains(row.log_time) && missing.contains(table.topics[row.channel as usize])
        };
        let rows: Vec<Row> = piece.late.iter().filter(is_wanted).copied().collect();
        self.tally(0, rows.len());
        self.push(&table, piece.buffers.clone(), rows, is_read);
    }

    /// Hands out what came before the failure, then the failure, then nothing more.
    fn fail(
        &mut self,
        blocks: &[Arc<Block>],
        pieces: Vec<Arc<Piece>>,
        missing: &TopicSet,
        range: TimeRange,
        failure: Failure,
        is_read: bool,
    ) {
        if let Some(last) = failure.last {
            self.deliver(blocks, pieces, missing, range, Some(last), is_read);
        }
        self.ready.push_back(Ready {
            batch: Err(failure.error),
            is_read,
        });
        self.position = None;
        self.let_go();
    }

    fn push(&mut self, table: &ChannelTable, buffers: Vec<Bytes>, rows: Vec<Row>, is_read: bool) {
        if !rows.is_empty() {
            let batch = Batch::new(Arc::clone(&table.channels), buffers, in_order(rows));
            self.ready.push_back(Ready {
                batch: Ok(batch),
                is_read,
            });
        }
    }

    fn tally(&self, hits: usize, misses: usize) {
        let mut state = self.shared.state();
        state.counters.hits += hits as u64;
        state.counters.misses += misses as u64;
    }

    /// Detaches from the reads that the reader has passed.
    fn let_go(&mut self) {
        if self.attached.is_empty() {
            return;
        }
        let position = self.position;
        let mut state = self.shared.state();
        let (kept, left) = self.attached.drain(..).partition(|fetch| {
            let end = state.flight(fetch.id).map(|flight| flight.end);
            end.zip(position)
                .is_some_and(|(end, position)| position <= end)
        });
        drop(state);
        self.attached = kept;
        let left: Vec<Arc<Fetch>> = left;
        for fetch in left {
            fetch.detach(&self.shared);
        }
    }

    /// The source's next batch, unchanged.
    fn next_around(&mut self) -> Option<Result<Batch, SourceError>> {
        let at = self.position?;
        if self.moves_head {
            self.move_head(&mut self.shared.state(), at);
        }
        let next = self.around.as_mut()?.next(&self.shared);
        self.is_last_read = true;
        self.position = match &next {
            // More may share its last stamp.
            Some(Ok(batch)) => Some(batch.range().end.max(at)),
            _ => None,
        };
        next
    }

    fn next_part(&mut self) -> Option<Batch> {
        let rest = self.rest.as_mut()?;
        let end = rest.span.end.min(rest.span.start + ROWS_AT_ONCE);
        let rows = rest.block.rows[rest.span.start..end].to_vec();
        rest.span.start = end;
        let batch = Batch::new(
            Arc::clone(&rest.table.channels),
            rest.block.buffers.to_vec(),
            rows,
        );
        let is_last = rest.span.is_empty();
        if is_last {
            self.rest = None;
        }
        self.tally(batch.len(), 0);
        Some(batch)
    }
}

impl Iterator for Reader {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.around.is_some() {
            return self.next_around();
        }
        loop {
            if let Some(batch) = self.next_part() {
                self.is_last_read = false;
                return Some(Ok(batch));
            }
            if let Some(next) = self.ready.pop_front() {
                self.is_last_read = next.is_read;
                return Some(next.batch);
            }
            let Some(at) = self.position else {
                self.let_go();
                return None;
            };
            self.advance(at);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.position = None;
        self.let_go();
        self.shared.spill();
    }
}

/// Where to stop so that merging several blocks stays in the processor's cache.
fn short_of(blocks: &[Arc<Block>], range: TimeRange) -> Stamp {
    if blocks.len() < 2 {
        return range.end;
    }
    let quota = (ROWS_AT_ONCE / blocks.len()).max(16);
    let ends = blocks.iter().filter_map(|block| {
        let first = block.span(range).start;
        let row = block.rows.get(first + quota)?;
        // Messages of one stamp stay together.
        Some(
            before(row.log_time)
                .unwrap_or(row.log_time)
                .max(range.start),
        )
    });
    ends.fold(range.end, Stamp::min)
}

fn append_piece(
    piece: Arc<Piece>,
    missing: &TopicSet,
    range: TimeRange,
    table: &ChannelTable,
    buffers: &mut Vec<Bytes>,
    rows: &mut Vec<Row>,
) {
    let base = buffers.len() as u32;
    let is_wanted = |row: &Row| {
        range.contains(row.log_time) && missing.contains(table.topics[row.channel as usize])
    };
    match Arc::try_unwrap(piece) {
        Ok(mut own) if base == 0 => {
            own.rows.retain(is_wanted);
            if rows.is_empty() {
                *rows = own.rows;
            } else {
                rows.append(&mut own.rows);
            }
            *buffers = own.buffers;
        }
        Ok(own) => extend(&own, base, is_wanted, buffers, rows),
        Err(shared) => extend(&shared, base, is_wanted, buffers, rows),
    }
}

fn extend(
    piece: &Piece,
    base: u32,
    is_wanted: impl Fn(&Row) -> bool,
    buffers: &mut Vec<Bytes>,
    rows: &mut Vec<Row>,
) {
    let wanted = piece.rows.iter().filter(|row| is_wanted(row));
    rows.extend(wanted.map(|row| Row {
        buffer: row.buffer + base,
        ..*row
    }));
    buffers.extend_from_slice(&piece.buffers);
}
