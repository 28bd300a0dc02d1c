//! A recording in memory that costs next to nothing to read.

use std::sync::Arc;

use asof_core::{
    Batch, Batches, Channel, ChannelSummary, Query, Row, Source, SourceError, Stamp, Summary,
    TimeRange, Topics,
};
use bytes::Bytes;

/// Message `i` is on topic `i % topics`, at `i` times the period. Batches are made as they are asked for,
/// all over one buffer.
pub struct Ticks {
    channels: Arc<[Arc<Channel>]>,
    summary: Arc<Summary>,
    period: i64,
    messages: i64,
    payload: u64,
    buffer: Bytes,
}

/// Messages in a batch of a source.
const BATCH: i64 = 4096;

pub fn topic(number: usize) -> String {
    format!("/sensor/{number:03}")
}

impl Ticks {
    pub fn new(topics: usize, messages: i64, period: i64, payload: usize) -> Arc<Self> {
        let channel = |number| {
            Arc::new(Channel {
                topic: topic(number),
                ..Channel::default()
            })
        };
        let channels: Arc<[Arc<Channel>]> = (0..topics).map(channel).collect();
        let mut summary = Summary::empty("ticks");
        summary.range = TimeRange::new(Stamp::EPOCH, Stamp::from_nanos((messages - 1) * period));
        summary.messages = Some(messages as u64 / topics as u64 * topics as u64);
        summary.channels = channels
            .iter()
            .map(|channel| ChannelSummary {
                channel: Arc::clone(channel),
                messages: Some(messages as u64 / topics as u64),
            })
            .collect();
        Arc::new(Ticks {
            channels,
            summary: Arc::new(summary),
            period,
            messages,
            payload: payload as u64,
            buffer: vec![7u8; payload * BATCH as usize].into(),
        })
    }

    pub fn end(&self) -> Stamp {
        self.summary.range.end
    }
}

/// The source as a cache takes it.
pub struct TicksSource(pub Arc<Ticks>);

impl Source for TicksSource {
    fn summary(&self) -> Arc<Summary> {
        Arc::clone(&self.0.summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let ticks = Arc::clone(&self.0);
        let topics = ticks.channels.len() as i64;
        let wanted: Vec<bool> = ticks
            .channels
            .iter()
            .map(|channel| query.topics.contains(&channel.topic))
            .collect();
        let all = wanted.iter().all(|&wanted| wanted);
        let first = query
            .range
            .start
            .nanos()
            .max(0)
            .unsigned_abs()
            .div_ceil(ticks.period as u64) as i64;
        let last = (query.range.end.nanos().max(-1))
            .div_euclid(ticks.period)
            .min(ticks.messages - 1);
        let mut at = first;
        Ok(Box::new(std::iter::from_fn(move || {
            let mut rows = Vec::with_capacity(BATCH as usize);
            while at <= last && (rows.len() as i64) < BATCH {
                let channel = (at % topics) as u32;
                if all || wanted[channel as usize] {
                    rows.push(Row {
                        log_time: Stamp::from_nanos(at * ticks.period),
                        publish_time: Stamp::from_nanos(at * ticks.period),
                        order: at as u64,
                        offset: rows.len() as u64 * ticks.payload,
                        len: ticks.payload,
                        sequence: at as u32,
                        channel,
                        buffer: 0,
                    });
                }
                at += 1;
            }
            if rows.is_empty() {
                return None;
            }
            Some(Ok(Batch::new(
                Arc::clone(&ticks.channels),
                vec![ticks.buffer.clone()],
                rows,
            )))
        })))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let ticks = &self.0;
        let last = at.nanos().div_euclid(ticks.period).min(ticks.messages - 1);
        let count = ticks.channels.len() as i64;
        let mut rows = Vec::new();
        for number in ((last - count + 1).max(0)..=last).filter(|_| last >= 0) {
            let channel = (number % count) as u32;
            if topics.contains(&ticks.channels[channel as usize].topic) {
                rows.push(Row {
                    log_time: Stamp::from_nanos(number * ticks.period),
                    publish_time: Stamp::from_nanos(number * ticks.period),
                    order: number as u64,
                    offset: 0,
                    len: ticks.payload,
                    sequence: number as u32,
                    channel,
                    buffer: 0,
                });
            }
        }
        Ok(Batch::new(
            Arc::clone(&ticks.channels),
            vec![ticks.buffer.clone()],
            rows,
        ))
    }
}
