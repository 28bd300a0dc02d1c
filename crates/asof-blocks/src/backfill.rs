//! What was known as of a time.

use std::sync::Arc;

use asof_core::{Batch, Channel, Query, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::block::Block;
use crate::head::{Direction, HeadClass, HeadOptions, ReadHead};
use crate::names::{TopicId, TopicSet};
use crate::order::in_order;
use crate::reverse::Reverse;
use crate::shared::Shared;
use crate::store::{Hint, Known, Remembered, State};

/// Messages that are being put together into a batch.
#[derive(Default)]
struct Answers {
    rows: Vec<Row>,
    buffers: Vec<Bytes>,
}

impl Answers {
    fn add(&mut self, row: &Row, buffer: &Bytes) {
        // Neighbours mostly lie in one buffer.
        let start = self.buffers.len().saturating_sub(4);
        let known = self.buffers[start..]
            .iter()
            .position(|known| known.as_ptr() == buffer.as_ptr() && known.len() == buffer.len());
        let index = known.map_or_else(
            || {
                self.buffers.push(buffer.clone());
                self.buffers.len() - 1
            },
            |place| start + place,
        );
        self.rows.push(Row {
            buffer: index as u32,
            ..*row
        });
    }

    fn add_from(&mut self, block: &Block, place: usize) {
        let row = &block.rows[place];
        self.add(row, &block.buffers[row.buffer as usize]);
    }

    fn into_batch(self, state: &State) -> Batch {
        let channels = Arc::clone(&state.names.table().channels);
        Batch::new(channels, self.buffers, in_order(self.rows))
    }
}

/// The last message at or before `at` for each topic: from memory where it is proved, from the source,
/// in one call, for the rest.
pub(crate) fn backfill(shared: &Shared, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
    let _span = tracing::trace_span!("backfill", at = at.nanos()).entered();
    if shared.is_growing() {
        let mut state = shared.state();
        state.counters.source_backfills += 1;
        drop(state);
        return shared.source.backfill(topics, at);
    }
    let mut answers = Answers::default();
    let summary = shared.source.summary();
    let (unknown, wanted) = {
        let mut state = shared.state();
        let wanted = state.resolve(&summary, topics);
        let unknown = look_up(&mut state, &wanted.topics, at, &mut answers);
        if unknown.is_empty() && wanted.around.is_empty() {
            return Ok(answers.into_batch(&state));
        }
        (unknown, wanted)
    };
    let around = wanted.around;
    let mut unknown = look_up_in_flight(shared, unknown, at, &mut answers);
    if let Some(rest) = wanted.doubt
        && unknown.contains(rest)
        && unknown.len() == 1
        && !shared.ask_about(rest)
    {
        unknown.remove(rest);
    }
    if unknown.is_empty() && around.is_empty() {
        return Ok(answers.into_batch(&shared.state()));
    }
    let mut names = Shared::names_of(&shared.state(), &unknown);
    if let Topics::Named(names) = &mut names {
        names.extend_from_slice(&around);
    }
    let said = shared.source.backfill(&names, at)?;
    let mut state = shared.state();
    state.counters.source_backfills += 1;
    state.counters.backfill_misses += unknown.len() as u64;
    let mut found = TopicSet::default();
    let mut told: FxHashSet<&str> = FxHashSet::default();
    // The last first, should a source say more than one for a topic.
    for (row, message) in said.rows().iter().zip(said.iter()).rev() {
        let name = message.channel.topic.as_str();
        let topic = match state.names.place_in(&unknown, name) {
            Some(topic) => topic,
            // There is such a topic after all.
            None if around.iter().any(|known| known == name) => state.topic(name),
            None => continue,
        };
        if row.log_time > at || !told.insert(name) {
            continue;
        }
        let channel = state.names.channel(message.channel, topic);
        // A buffer of its own, so that one message does not keep a chunk alive.
        let payload = Bytes::copy_from_slice(message.payload);
        let row = Row {
            channel,
            offset: 0,
            buffer: 0,
            ..*row
        };
        answers.add(&row, &payload);
        // The rest is many topics: what is known of it is not one message.
        if unknown.contains(topic) && !state.names.is_rest(topic) {
            found.insert(topic);
            state.remember(topic, at, Some(Remembered { row, payload }));
        }
    }
    for topic in unknown.without(&found).iter() {
        if !state.names.is_rest(topic) {
            state.remember(topic, at, None);
        }
    }
    let batch = answers.into_batch(&state);
    drop(state);
    shared.spill();
    Ok(batch)
}

/// Answers what memory can prove; returns the topics for which it cannot.
fn look_up(state: &mut State, wanted: &TopicSet, at: Stamp, answers: &mut Answers) -> TopicSet {
    let mut unknown = TopicSet::default();
    let mut hint = Hint::default();
    let mut hits = 0;
    let count = wanted.len();
    answers.rows.reserve(count);
    for topic in wanted.iter() {
        if state.names.is_rest(topic) {
            if !state.is_known_empty(topic, at) {
                unknown.insert(topic);
            }
            continue;
        }
        hits += 1;
        match state.last_known(topic, at, &mut hint) {
            Known::InBlock(block, place) => answers.add_from(block, place),
            Known::Remembered(known) => answers.add(&known.row, &known.payload),
            Known::Nothing => {}
            Known::Unknown => {
                hits -= 1;
                unknown.insert(topic);
            }
        }
    }
    state.counters.backfill_hits += hits;
    unknown
}

/// Reads on their way may hold the answer already: they are sealed and looked at.
fn look_up_in_flight(
    shared: &Shared,
    unknown: TopicSet,
    at: Stamp,
    answers: &mut Answers,
) -> TopicSet {
    let state = shared.state();
    let holds = |open: Stamp, frontier: Option<Stamp>| {
        open <= at && frontier.is_none_or(|frontier| at < frontier)
    };
    let fetches: Vec<_> = state
        .fetches
        .iter()
        .filter(|flight| holds(flight.open_start, flight.frontier))
        .filter(|flight| flight.fetch.topics.intersects(&unknown))
        .map(|flight| Arc::clone(&flight.fetch))
        .collect();
    drop(state);
    if fetches.is_empty() {
        return unknown;
    }
    for fetch in fetches {
        fetch.settle(shared);
    }
    look_up(&mut shared.state(), &unknown, at, answers)
}

/// The first look back is over this long, where nothing says how dense a topic is.
const FIRST_SPAN_NANOS: i64 = 100_000_000;
/// However rare a topic is said to be: from here on a gap is leapt over.
const LONGEST_FIRST_LOOK: i64 = 60_000_000_000;

pub(crate) fn last_n(
    shared: &Arc<Shared>,
    topic: &str,
    at: Stamp,
    count: usize,
) -> Result<Batch, SourceError> {
    let _span = tracing::trace_span!("last_n", topic, at = at.nanos(), count).entered();
    if count == 0 {
        return Ok(Batch::default());
    }
    let topics = Topics::named([topic]);
    let wanted = shared.resolve(&topics);
    let only = wanted.topics.iter().next().filter(|_| !shared.is_growing());
    if let Some(only) = only
        && let Some(batch) = last_n_held(&shared.state(), only, at, count)
    {
        return Ok(batch);
    }
    let options = HeadOptions {
        class: HeadClass::Scrub,
        position: at,
        direction: Direction::Backward,
        ..HeadOptions::default()
    };
    let head = ReadHead::new(shared, &topics, options);
    let range = TimeRange::new(Stamp::MIN, at);
    let query = Query { topics, range };
    let looks = Reverse::new(shared, &query, head);
    let mut answers: Vec<Batch> = Vec::new();
    let mut missing = count;
    for batch in looks.with_first_look(first_look(shared, topic, count)) {
        let batch = batch?;
        let taken = batch.len().min(missing);
        missing -= taken;
        answers.push(last_of(batch, taken).compacted());
        if missing == 0 {
            break;
        }
    }
    answers.reverse();
    Ok(joined(&answers))
}

/// From memory alone, if everything that is needed is held.
fn last_n_held(state: &State, topic: TopicId, at: Stamp, count: usize) -> Option<Batch> {
    let floor = state.unbroken_from(topic, at)?;
    let mut answers = Answers::default();
    let filled = &state.topics[topic as usize].filled;
    'blocks: for (_, block) in filled.range(..=at).rev() {
        let base = answers.buffers.len() as u32;
        let places = block.rows_of(topic);
        let through = block.count_through(places, at);
        for index in (0..through).rev() {
            let row = &block.rows[places.get(index)];
            if row.log_time < floor || answers.rows.len() == count {
                break 'blocks;
            }
            answers.rows.push(Row {
                buffer: row.buffer + base,
                ..*row
            });
            if answers.buffers.len() == base as usize {
                answers.buffers.extend_from_slice(&block.buffers);
            }
        }
    }
    let is_enough = answers.rows.len() == count || floor == Stamp::MIN;
    if !is_enough {
        return None;
    }
    answers.rows.reverse();
    Some(answers.into_batch(state))
}

/// Long enough for `count` messages at the topic's usual rate, where the summary tells it.
fn first_look(shared: &Shared, topic: &str, count: usize) -> i64 {
    let summary = shared.source.summary();
    let of_topic = summary
        .channels
        .iter()
        .filter(|entry| entry.channel.topic == topic);
    let messages: u64 = of_topic.filter_map(|entry| entry.messages).sum();
    if messages == 0 {
        return FIRST_SPAN_NANOS;
    }
    let apart = summary.range.duration_nanos() as u128 / u128::from(messages);
    let look = apart * (count as u128 + 1);
    i64::try_from(look).map_or(LONGEST_FIRST_LOOK, |nanos| {
        nanos.clamp(1, LONGEST_FIRST_LOOK)
    })
}

/// The last `count` messages of a batch.
fn last_of(batch: Batch, count: usize) -> Batch {
    if count >= batch.len() {
        return batch;
    }
    let rows = batch.rows()[batch.len() - count..].to_vec();
    Batch::new(Arc::clone(batch.channels()), batch.buffers().to_vec(), rows)
}

/// Batches that follow each other as one. Their tables of channels may differ.
fn joined(batches: &[Batch]) -> Batch {
    let mut channels: Vec<Arc<Channel>> = Vec::new();
    let mut numbers: FxHashMap<*const Channel, u32> = FxHashMap::default();
    let mut answers = Answers::default();
    for batch in batches {
        let base = answers.buffers.len() as u32;
        for row in batch.rows() {
            let channel = &batch.channels()[row.channel as usize];
            let number = *numbers.entry(Arc::as_ptr(channel)).or_insert_with(|| {
                channels.push(Arc::clone(channel));
                channels.len() as u32 - 1
            });
            answers.rows.push(Row {
                channel: number,
                buffer: row.buffer + base,
                ..*row
            });
        }
        answers.buffers.extend_from_slice(batch.buffers());
    }
    Batch::new(channels.into(), answers.buffers, in_order(answers.rows))
}
