//! The last messages of a topic.

use std::sync::Arc;

use asof_core::{Batch, Channel, Query, Row, SourceError, Stamp, TimeRange, Topics};
use rustc_hash::FxHashMap;

use crate::head::{Direction, HeadClass, HeadOptions, ReadHead};
use crate::latest_at::Answers;
use crate::names::TopicId;
use crate::order::in_order;
use crate::reverse::Reverse;
use crate::shared::Shared;
use crate::store::State;

/// Length of the first look back if the topic's rate is unknown.
const FIRST_SPAN_NANOS: i64 = 100_000_000;
/// The longest first look back, however rare the topic; longer gaps are skipped by `latest_at`.
const MAX_FIRST_SPAN_NANOS: i64 = 60_000_000_000;

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

/// From memory alone, if everything needed is held.
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

/// Long enough for `count` messages at the topic's average rate, if the summary has it.
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
    i64::try_from(look).map_or(MAX_FIRST_SPAN_NANOS, |nanos| {
        nanos.clamp(1, MAX_FIRST_SPAN_NANOS)
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

/// Concatenates consecutive batches. Their channel tables may differ.
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
