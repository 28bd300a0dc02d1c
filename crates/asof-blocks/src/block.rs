//! Blocks: immutable pieces of the cache.

use std::mem::size_of;
use std::sync::Arc;

use asof_core::{Row, Stamp, TimeRange};
use bytes::Bytes;

use crate::budget::Reservation;
use crate::head::HeadClass;
use crate::names::{ChannelTable, TopicId, TopicSet};

/// Every message of some topics within a range of time. Immutable.
///
/// Invariant: rows are in the source's order and within `range`; for each topic of the block's set
/// they are *all* of its messages there. Payloads are in the block's own buffers.
#[derive(Debug)]
pub(crate) struct Block {
    pub range: TimeRange,
    pub rows: Box<[Row]>,
    pub buffers: Box<[Bytes]>,
    /// The topics that have rows, by number.
    pub topics: Box<[TopicRows]>,
    /// Indexes into `rows`, topic by topic; empty if all rows are on one topic.
    postings: Box<[u32]>,
}

/// Where a topic's rows are listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopicRows {
    pub topic: TopicId,
    first: u32,
    count: u32,
    pub payload_bytes: u64,
}

/// Overhead of a buffer's shared handle.
const BUFFER_HANDLE: u64 = 32;
/// Cost of a block in the cache's indexes: search tree entries at their usual fill.
pub(crate) const INDEX_ENTRY: u64 = 80;
/// Cost in the indexes of each topic with rows in a block.
pub(crate) const TOPIC_ENTRY: u64 = 30;
/// Cost of a row: itself and its entry in the postings.
pub(crate) const ROW_COST: u64 = (size_of::<Row>() + size_of::<u32>()) as u64;

impl Block {
    /// Bytes that this block keeps alive, including its share of the cache's indexes.
    pub fn footprint(&self) -> u64 {
        let buffers: u64 = self.buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let handles = self.buffers.len() as u64 * (BUFFER_HANDLE + size_of::<Bytes>() as u64);
        let topics = self.topics.len() as u64 * (size_of::<TopicRows>() as u64 + TOPIC_ENTRY);
        let postings = size_of::<u32>() * self.postings.len();
        let rows = size_of::<Row>() * self.rows.len();
        buffers + handles + topics + (rows + postings) as u64 + fixed_cost()
    }

    /// The same block with only these topics, in buffers of its own.
    pub fn only(&self, wanted: &TopicSet, table: &ChannelTable) -> Block {
        let mut rows = Vec::new();
        self.select(wanted, self.range, table, 0, &mut rows);
        let bytes: u64 = rows.iter().map(|row| row.len).sum();
        let mut payloads = Vec::with_capacity(bytes as usize);
        for row in &mut rows {
            let buffer = &self.buffers[row.buffer as usize];
            let start = payloads.len() as u64;
            payloads.extend_from_slice(&buffer[row.offset as usize..][..row.len as usize]);
            (row.offset, row.buffer) = (start, 0);
        }
        let (topics, postings) = index(&rows, table);
        let buffer = Bytes::from(payloads.into_boxed_slice());
        Block {
            range: self.range,
            buffers: if rows.is_empty() {
                Box::default()
            } else {
                Box::new([buffer])
            },
            rows: rows.into_boxed_slice(),
            topics,
            postings,
        }
    }

    /// About how many bytes dropping all topics but these would free.
    pub fn cost_without(&self, wanted: &TopicSet) -> u64 {
        let others = self
            .topics
            .iter()
            .filter(|entry| !wanted.contains(entry.topic));
        others
            .map(|entry| entry.payload_bytes + u64::from(entry.count) * ROW_COST)
            .sum()
    }

    /// The places of a topic's rows, in order.
    pub fn rows_of(&self, topic: TopicId) -> Places<'_> {
        let Ok(index) = self
            .topics
            .binary_search_by_key(&topic, |entry| entry.topic)
        else {
            return Places::None;
        };
        if self.postings.is_empty() {
            return Places::All;
        }
        let entry = self.topics[index];
        Places::Listed(&self.postings[entry.first as usize..(entry.first + entry.count) as usize])
    }

    /// Like [`Block::rows_of`], for a topic that is known to have rows here.
    pub fn rows_of_filled(&self, topic: TopicId) -> Places<'_> {
        if self.postings.is_empty() {
            Places::All
        } else {
            self.rows_of(topic)
        }
    }

    /// How many of a topic's rows are at or before `t`.
    pub fn count_through(&self, places: Places<'_>, t: Stamp) -> usize {
        let is_by = |place: usize| self.rows[place].log_time <= t;
        match places {
            Places::None => 0,
            Places::All => self.rows.partition_point(|row| row.log_time <= t),
            Places::Listed(list) => list.partition_point(|&place| is_by(place as usize)),
        }
    }

    /// The indexes of the rows within `range`.
    pub fn span(&self, range: TimeRange) -> std::ops::Range<usize> {
        let start = match self.rows.first() {
            Some(first) if first.log_time < range.start => {
                self.rows.partition_point(|row| row.log_time < range.start)
            }
            _ => 0,
        };
        let end = match self.rows.last() {
            Some(last) if last.log_time > range.end => {
                self.rows.partition_point(|row| row.log_time <= range.end)
            }
            _ => self.rows.len(),
        };
        start..end.max(start)
    }

    /// Whether every row is on one of these topics.
    pub fn has_only(&self, wanted: &TopicSet) -> bool {
        self.topics.iter().all(|entry| wanted.contains(entry.topic))
    }

    /// Adds the rows of the wanted topics within `range` to `out`; their buffers start at `base`.
    pub fn select(
        &self,
        wanted: &TopicSet,
        range: TimeRange,
        table: &ChannelTable,
        base: u32,
        out: &mut Vec<Row>,
    ) {
        let span = self.span(range);
        let rebased = |row: &Row| Row {
            buffer: row.buffer + base,
            ..*row
        };
        if self.has_only(wanted) {
            out.extend(self.rows[span].iter().map(rebased));
            return;
        }
        let wanted_topics = self
            .topics
            .iter()
            .filter(|entry| wanted.contains(entry.topic));
        let listed: usize = wanted_topics
            .clone()
            .map(|entry| entry.count as usize)
            .sum();
        if listed * 16 >= self.rows.len() {
            let is_wanted = |row: &&Row| wanted.contains(table.topics[row.channel as usize]);
            out.extend(self.rows[span].iter().filter(is_wanted).map(rebased));
            return;
        }
        let mut places = Vec::new();
        for entry in wanted_topics {
            let list = &self.postings[entry.first as usize..(entry.first + entry.count) as usize];
            let first = list.partition_point(|&place| (place as usize) < span.start);
            let last = list.partition_point(|&place| (place as usize) < span.end);
            places.extend_from_slice(&list[first..last]);
        }
        places.sort_unstable();
        out.extend(
            places
                .iter()
                .map(|&place| rebased(&self.rows[place as usize])),
        );
    }
}

/// A list of row indexes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Places<'a> {
    None,
    All,
    Listed(&'a [u32]),
}

impl Places<'_> {
    /// How many of them are below `place`.
    pub fn count_below(&self, place: usize) -> usize {
        match self {
            Places::None => 0,
            Places::All => place,
            Places::Listed(list) => list.partition_point(|&at| (at as usize) < place),
        }
    }

    pub fn get(&self, index: usize) -> usize {
        match self {
            Places::None | Places::All => index,
            Places::Listed(list) => list[index] as usize,
        }
    }
}

/// The cost of an empty block.
fn fixed_cost() -> u64 {
    let handle = size_of::<Arc<Block>>() as u64 + 16;
    size_of::<Block>() as u64 + handle + INDEX_ENTRY
}

/// A block being filled.
///
/// Invariant: `reservation` covers at least the cost of the sealed block.
#[derive(Debug)]
pub(crate) struct OpenBlock {
    pub start: Stamp,
    /// Everything up to and including this instant has been read.
    pub end: Stamp,
    pub class: HeadClass,
    rows: Vec<Row>,
    segments: Vec<Vec<u8>>,
    payload_bytes: u64,
    reservation: Reservation,
}

/// Segments grow with the block, up to this size: few of them, and little spare room in each.
const MAX_SEGMENT_BYTES: u64 = 256 << 10;

impl OpenBlock {
    /// The cost of opening a block for this many topics, to be reserved beforehand.
    pub fn opening_cost(topics: usize) -> u64 {
        fixed_cost() + topics as u64 * (size_of::<TopicRows>() as u64 + TOPIC_ENTRY)
    }

    /// A block that covers only the instant `start`.
    pub fn new(start: Stamp, class: HeadClass, reservation: Reservation) -> Self {
        OpenBlock {
            start,
            end: start,
            class,
            rows: Vec::new(),
            segments: Vec::new(),
            payload_bytes: 0,
            reservation,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of payload and rows so far, the measure for block size.
    pub fn size(&self) -> u64 {
        self.payload_bytes + self.rows.len() as u64 * ROW_COST
    }

    pub fn reserved(&self) -> u64 {
        self.reservation.bytes()
    }

    /// What has to be reserved to add this much.
    pub fn cost_of(&self, rows: usize, payload_bytes: u64) -> Growth {
        let capacity = self.rows.capacity();
        let needed = self.rows.len() + rows;
        let rows_after = if needed <= capacity {
            capacity
        } else {
            needed.max((capacity * 2).min(capacity + (1 << 14)))
        };
        let spare = self
            .segments
            .last()
            .map_or(0, |last| (last.capacity() - last.len()) as u64);
        let segment = if payload_bytes <= spare {
            0
        } else {
            payload_bytes.max(self.payload_bytes.min(MAX_SEGMENT_BYTES))
        };
        let handle = if segment > 0 || self.segments.is_empty() {
            BUFFER_HANDLE + size_of::<Bytes>() as u64
        } else {
            0
        };
        Growth {
            rows_after,
            segment,
            bytes: (rows_after - capacity) as u64 * ROW_COST + segment + handle,
        }
    }

    /// Adds a reservation made for [`OpenBlock::cost_of`] and allocates the room it paid for.
    pub fn grow(
        &mut self,
        growth: &Growth,
        reserve: impl FnOnce(&mut Reservation) -> bool,
    ) -> bool {
        if !reserve(&mut self.reservation) {
            return false;
        }
        self.rows.reserve_exact(growth.rows_after - self.rows.len());
        if growth.segment > 0 || self.segments.is_empty() {
            if let Some(last) = self.segments.last_mut() {
                last.shrink_to_fit();
            }
            self.segments
                .push(Vec::with_capacity(growth.segment as usize));
        }
        true
    }

    /// Copies messages in. [`OpenBlock::grow`] must have made room for them.
    pub fn append(&mut self, rows: &[Row], buffers: &[Bytes]) {
        let index = self.segments.len() as u32 - 1;
        let Some(segment) = self.segments.last_mut() else {
            return;
        };
        let before = segment.len();
        for row in rows {
            let payload = &buffers[row.buffer as usize][row.offset as usize..][..row.len as usize];
            self.rows.push(Row {
                offset: segment.len() as u64,
                buffer: index,
                ..*row
            });
            segment.extend_from_slice(payload);
        }
        self.payload_bytes += (segment.len() - before) as u64;
        if let Some(last) = rows.last() {
            self.end = self.end.max(last.log_time);
        }
    }

    /// Seals the block and returns the unused part of its reservation.
    pub fn seal(self, table: &ChannelTable) -> (Block, Reservation) {
        let OpenBlock {
            start, end, rows, ..
        } = self;
        let (topics, postings) = index(&rows, table);
        let seal = |segment: Vec<u8>| Bytes::from(segment.into_boxed_slice());
        let block = Block {
            range: TimeRange::new(start, end),
            rows: rows.into_boxed_slice(),
            buffers: self.segments.into_iter().map(seal).collect(),
            topics,
            postings,
        };
        let mut reservation = self.reservation;
        reservation.shrink_to(block.footprint());
        (block, reservation)
    }
}

/// Room that adding messages needs.
#[derive(Debug)]
pub(crate) struct Growth {
    rows_after: usize,
    segment: u64,
    pub bytes: u64,
}

/// Lists the rows by topic.
fn index(rows: &[Row], table: &ChannelTable) -> (Box<[TopicRows]>, Box<[u32]>) {
    if let Some((first, rest)) = rows.split_first()
        && rest.iter().all(|row| row.channel == first.channel)
    {
        let only = TopicRows {
            topic: table.topics[first.channel as usize],
            first: 0,
            count: rows.len() as u32,
            payload_bytes: rows.iter().map(|row| row.len).sum(),
        };
        return (Box::new([only]), Box::default());
    }
    // Counted by channel: there are few, and their numbers are small.
    let mut counts = vec![(0u32, 0u64); table.channels.len()];
    for row in rows {
        let (count, bytes) = &mut counts[row.channel as usize];
        *count += 1;
        *bytes += row.len;
    }
    let mut topics: Vec<TopicRows> = counts
        .iter()
        .zip(&table.topics)
        .filter(|((count, _), _)| *count > 0)
        .map(|(&(count, payload_bytes), &topic)| TopicRows {
            topic,
            first: 0,
            count,
            payload_bytes,
        })
        .collect();
    topics.sort_unstable_by_key(|entry| entry.topic);
    topics.dedup_by(|next, kept| {
        let is_same = next.topic == kept.topic;
        if is_same {
            kept.count += next.count;
            kept.payload_bytes += next.payload_bytes;
        }
        is_same
    });
    let mut first = 0;
    for entry in &mut topics {
        entry.first = first;
        first += entry.count;
    }
    if topics.len() <= 1 {
        return (topics.into_boxed_slice(), Box::default());
    }
    let mut next = vec![0u32; table.channels.len()];
    let mut slot_of = vec![0u32; table.channels.len()];
    for (channel, topic) in table.topics.iter().enumerate() {
        if let Ok(slot) = topics.binary_search_by_key(topic, |entry| entry.topic) {
            slot_of[channel] = slot as u32;
        }
    }
    for (slot, entry) in topics.iter().enumerate() {
        next[slot] = entry.first;
    }
    let mut postings = vec![0u32; rows.len()];
    for (place, row) in rows.iter().enumerate() {
        let at = &mut next[slot_of[row.channel as usize] as usize];
        postings[*at as usize] = place as u32;
        *at += 1;
    }
    (topics.into_boxed_slice(), postings.into_boxed_slice())
}
