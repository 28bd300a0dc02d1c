//! Steps of one message, in both directions.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Batch, Query, Row, Source, SourceError, Stamp, TimeRange, Topics};

use crate::cursor::Cursor;

/// The first message after the cursor.
pub(crate) fn next(
    cache: &BlockCache,
    topics: &Topics,
    cursor: Cursor,
) -> Result<Option<Batch>, SourceError> {
    let ahead = TimeRange::new(cursor.time, Stamp::MAX);
    for batch in cache.read_as(&query(topics, ahead), HeadClass::Scrub) {
        let batch = batch?;
        let passed = batch.rows().partition_point(|row| cursor.has_passed(row));
        if passed < batch.len() {
            return Ok(Some(part(&batch, passed..passed + 1)));
        }
    }
    Ok(None)
}

/// The last message before the cursor; with `including`, the one right before it counts.
pub(crate) fn previous(
    cache: &BlockCache,
    topics: &Topics,
    cursor: Cursor,
    including: bool,
) -> Result<Option<Batch>, SourceError> {
    let passed = TimeRange::new(Stamp::MIN, cursor.time);
    let is_before = |row: &Row| {
        let is_itself = cursor.order == Some(row.order) && row.log_time == cursor.time;
        cursor.has_passed(row) && (including || !is_itself)
    };
    for batch in cache.reverse(&query(topics, passed), HeadClass::Scrub) {
        let batch = batch?;
        let count = batch.rows().partition_point(is_before);
        if count > 0 {
            return Ok(Some(part(&batch, count - 1..count)));
        }
    }
    Ok(None)
}

/// What was known on each topic at the cursor, which may be between two messages of one stamp.
pub(crate) fn known(
    cache: &BlockCache,
    topics: &Topics,
    cursor: Cursor,
) -> Result<Batch, SourceError> {
    let Some(_) = cursor.order else {
        return cache.latest_at(topics, cursor.time);
    };
    let before = cache.latest_at(topics, cursor.time.plus_nanos(-1))?;
    let instant = TimeRange::new(cursor.time, cursor.time);
    let mut last = BTreeMap::new();
    let mut batches = vec![before];
    for batch in cache.read_as(&query(topics, instant), HeadClass::Scrub) {
        batches.push(batch?);
    }
    for batch in &batches {
        for message in batch.iter() {
            let place = Row {
                log_time: message.log_time,
                order: message.order,
                ..EMPTY
            };
            if cursor.has_passed(&place) {
                last.insert(
                    message.channel.topic.clone(),
                    (message.order, message.to_message()),
                );
            }
        }
    }
    let mut messages: Vec<_> = last.into_values().collect();
    messages.sort_by_key(|(order, message)| (message.log_time, *order));
    Ok(messages.into_iter().map(|(_, message)| message).collect())
}

/// What is between a cursor and a time.
pub(crate) enum Between {
    All(Vec<Batch>),
    /// More than is handed out at once.
    TooMuch,
}

/// The most bytes that a step hands out.
const STEP_BYTES: u64 = 8 << 20;

/// Everything after the cursor, up to `end`.
pub(crate) fn between(
    cache: &BlockCache,
    topics: &Topics,
    cursor: Cursor,
    end: Stamp,
) -> Result<Between, SourceError> {
    let mut parts = Vec::new();
    let mut bytes = 0;
    let range = TimeRange::new(cursor.time, end);
    for batch in cache.read_as(&query(topics, range), HeadClass::Scrub) {
        let batch = batch?;
        let passed = batch.rows().partition_point(|row| cursor.has_passed(row));
        if passed < batch.len() {
            let part = part(&batch, passed..batch.len()).compacted();
            bytes += part.held_bytes();
            if bytes > STEP_BYTES {
                return Ok(Between::TooMuch);
            }
            parts.push(part);
        }
    }
    Ok(Between::All(parts))
}

/// Some rows of a batch, sharing its buffers.
pub(crate) fn part(batch: &Batch, rows: std::ops::Range<usize>) -> Batch {
    Batch::new(
        Arc::clone(batch.channels()),
        batch.buffers().to_vec(),
        batch.rows()[rows].to_vec(),
    )
}

/// An empty row, to compare positions with.
const EMPTY: Row = Row {
    log_time: Stamp::EPOCH,
    publish_time: Stamp::EPOCH,
    order: 0,
    offset: 0,
    len: 0,
    sequence: 0,
    channel: 0,
    buffer: 0,
};

fn query(topics: &Topics, range: TimeRange) -> Query {
    Query {
        topics: topics.clone(),
        range,
    }
}
