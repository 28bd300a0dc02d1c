//! What was known as of a time.

use std::sync::Arc;

use asof_core::{Batch, Query, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use crate::block::Block;
use crate::coverage::before;
use crate::head::{HeadClass, HeadOptions, ReadHead};
use crate::names::{TopicId, TopicSet};
use crate::order::in_order;
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
    let mut answers = Answers::default();
    let unknown = {
        let mut state = shared.state();
        let wanted = shared.resolve(&mut state, topics);
        let unknown = look_up(&mut state, &wanted, at, &mut answers);
        if unknown.is_empty() {
            return Ok(answers.into_batch(&state));
        }
        unknown
    };
    let unknown = look_up_in_flight(shared, unknown, at, &mut answers);
    if unknown.is_empty() {
        return Ok(answers.into_batch(&shared.state()));
    }
    let settled = shared.settled();
    let names = Shared::names_of(&shared.state(), &unknown);
    let said = shared.source.backfill(&names, at)?;
    let mut state = shared.state();
    state.counters.source_backfills += 1;
    state.counters.backfill_misses += unknown.len() as u64;
    let mut found = TopicSet::default();
    for (row, message) in said.rows().iter().zip(said.iter()) {
        let (channel, topic) = state.names.channel(message.channel);
        state.grow_topics();
        if !unknown.contains(topic) || found.contains(topic) || row.log_time > at {
            continue;
        }
        found.insert(topic);
        // A buffer of its own, so that one message does not keep a chunk alive.
        let payload = Bytes::copy_from_slice(message.payload);
        let row = Row {
            channel,
            offset: 0,
            buffer: 0,
            ..*row
        };
        answers.add(&row, &payload);
        if row.log_time <= settled {
            state.remember(topic, at.min(settled), Some(Remembered { row, payload }));
        }
    }
    for topic in unknown.without(&found).iter() {
        state.remember(topic, at.min(settled), None);
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
const FIRST_LOOK: i64 = 100_000_000;

pub(crate) fn last_n(
    shared: &Arc<Shared>,
    topic: &str,
    at: Stamp,
    count: usize,
) -> Result<Batch, SourceError> {
    let _span = tracing::trace_span!("last_n", topic, at = at.nanos(), count).entered();
    let id = shared.state().topic(topic);
    if count == 0 {
        return Ok(Batch::default());
    }
    if let Some(batch) = last_n_held(&shared.state(), id, at, count) {
        return Ok(batch);
    }
    let topics = Topics::named([topic]);
    let head = ReadHead::new(
        shared,
        &topics,
        HeadOptions {
            class: HeadClass::Scrub,
            position: at,
            ..HeadOptions::default()
        },
    );
    let mut answers: Vec<Batch> = Vec::new();
    let mut found = 0;
    let mut end = Some(at);
    let mut step = first_look(shared, topic, count);
    let source_start = shared.source.summary().range.start;
    while let Some(last) = end.filter(|_| found < count) {
        let start = last.plus_nanos(-step);
        // Before the recording there is, as a rule, nothing: one look takes in all of it.
        let start = if start <= source_start {
            Stamp::MIN
        } else {
            start
        };
        let range = TimeRange::new(start, last);
        let query = Query {
            topics: topics.clone(),
            range,
        };
        let mut window = Vec::new();
        for batch in head.read_ahead(&query) {
            let batch = batch?;
            found += batch.len();
            window.push(batch);
        }
        window.append(&mut answers);
        answers = window;
        end = before(start);
        step = step.saturating_mul(2);
    }
    Ok(join_last(shared, &answers, count))
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
        return FIRST_LOOK;
    }
    let apart = summary.range.duration_nanos() as u128 / u128::from(messages);
    i64::try_from(apart * (count as u128 + 1)).map_or(i64::MAX, |nanos| nanos.max(1))
}

/// The last `count` messages of batches that are in order.
fn join_last(shared: &Shared, batches: &[Batch], count: usize) -> Batch {
    let total: usize = batches.iter().map(Batch::len).sum();
    let mut skip = total.saturating_sub(count);
    let mut answers = Answers::default();
    for batch in batches {
        let skipped = skip.min(batch.len());
        skip -= skipped;
        if skipped == batch.len() {
            continue;
        }
        let base = answers.buffers.len() as u32;
        answers
            .rows
            .extend(batch.rows()[skipped..].iter().map(|row| Row {
                buffer: row.buffer + base,
                ..*row
            }));
        answers.buffers.extend_from_slice(batch.buffers());
    }
    answers.into_batch(&shared.state())
}
