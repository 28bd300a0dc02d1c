//! What was known as of a time.

use std::sync::Arc;

use asof_core::{Batch, Row, SourceError, Stamp, Topics};
use bytes::Bytes;
use rustc_hash::FxHashSet;

use crate::block::Block;
use crate::names::TopicSet;
use crate::order::in_order;
use crate::shared::Shared;
use crate::store::{Hint, LastMessage, Remembered, State};

/// Messages being assembled into a batch.
#[derive(Default)]
pub(crate) struct Answers {
    pub rows: Vec<Row>,
    pub buffers: Vec<Bytes>,
}

impl Answers {
    fn add(&mut self, row: &Row, buffer: &Bytes) {
        // Neighbours mostly share a buffer.
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

    pub fn into_batch(self, state: &State) -> Batch {
        let channels = Arc::clone(&state.names.table().channels);
        Batch::new(channels, self.buffers, in_order(self.rows))
    }
}

/// The last message at or before `at` for each topic: from memory where it is certain, otherwise from
/// the source, in one call.
pub(crate) fn latest_at(shared: &Shared, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
    let _span = tracing::trace_span!("latest_at", at = at.nanos()).entered();
    if shared.is_growing() {
        let mut state = shared.state();
        state.counters.source_lookups += 1;
        drop(state);
        return shared.source.latest_at(topics, at);
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
        Arc::make_mut(names).extend(around.iter().cloned());
    }
    let said = shared.source.latest_at(&names, at)?;
    let mut state = shared.state();
    state.counters.source_lookups += 1;
    state.counters.latest_misses += unknown.len() as u64;
    let mut found = TopicSet::default();
    let mut told: FxHashSet<&str> = FxHashSet::default();
    // In reverse, in case a source returns more than one message for a topic.
    for (row, message) in said.rows().iter().zip(said.iter()).rev() {
        let name = message.channel.topic.as_str();
        let topic = match state.names.place_in(&unknown, name) {
            Some(topic) => topic,
            // The topic exists after all.
            None if around.contains(name) => state.topic(name),
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
        // The rest is many topics: its answer is not a single message.
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

/// Answers what memory can prove; returns the other topics.
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
            LastMessage::InBlock(block, place) => answers.add_from(block, place),
            LastMessage::Remembered(known) => answers.add(&known.row, &known.payload),
            LastMessage::Nothing => {}
            LastMessage::Unknown => {
                hits -= 1;
                unknown.insert(topic);
            }
        }
    }
    state.counters.latest_hits += hits;
    unknown
}

/// Reads in progress may hold the answer already: seals and searches them.
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
