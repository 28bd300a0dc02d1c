//! A recording that lies in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{
    Batch, Batches, Channel, ChannelSummary, Message, Problem, Query, Row, Source, SourceError,
    Stamp, Summary, TimeRange, Topics,
};

pub struct Tape {
    messages: Arc<Vec<Message>>,
    summary: Arc<Summary>,
}

/// Messages of one batch.
const AT_ONCE: usize = 256;

impl Tape {
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        Tape::with(&[], messages, Vec::new())
    }

    /// The same, as if it had so many bytes.
    #[allow(dead_code)] // Not every test has a use for a large one.
    pub fn sized(self, size: u64) -> Self {
        let summary = Summary {
            size,
            ..Summary::clone(&self.summary)
        };
        Tape {
            summary: Arc::new(summary),
            ..self
        }
    }

    /// The same, with a topic that its summary does not list.
    #[allow(dead_code)] // Not every test has a use for one.
    pub fn without_listing(self, topic: &str) -> Self {
        let mut summary = Summary::clone(&self.summary);
        summary
            .channels
            .retain(|entry| entry.channel.topic != topic);
        Tape {
            summary: Arc::new(summary),
            ..self
        }
    }

    /// With channels that may have no messages, and with problems.
    pub fn with(
        channels: &[Arc<Channel>],
        messages: impl IntoIterator<Item = Message>,
        problems: Vec<Problem>,
    ) -> Self {
        let mut messages: Vec<Message> = messages.into_iter().collect();
        messages.sort_by_key(|message| message.log_time);
        let mut known: Vec<ChannelSummary> = Vec::new();
        let counted = channels.iter().map(|channel| (channel, 0));
        let counted = counted.chain(messages.iter().map(|one| (&one.channel, 1)));
        for (channel, count) in counted {
            let same = |entry: &&mut ChannelSummary| {
                Arc::ptr_eq(&entry.channel, channel) || entry.channel == *channel
            };
            match known.iter_mut().find(same) {
                Some(entry) => entry.messages = entry.messages.map(|before| before + count),
                None => known.push(ChannelSummary {
                    channel: Arc::clone(channel),
                    messages: Some(count),
                }),
            }
        }
        let range = match (messages.first(), messages.last()) {
            (Some(first), Some(last)) => TimeRange::new(first.log_time, last.log_time),
            _ => TimeRange::EMPTY,
        };
        let summary = Summary {
            range,
            messages: Some(messages.len() as u64),
            channels: known,
            problems,
            ..Summary::empty("tape")
        };
        Tape {
            messages: Arc::new(messages),
            summary: Arc::new(summary),
        }
    }
}

impl Source for Tape {
    fn summary(&self) -> Arc<Summary> {
        Arc::clone(&self.summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let (messages, query) = (Arc::clone(&self.messages), query.clone());
        let mut at = messages.partition_point(|one| one.log_time < query.range.start);
        Ok(Box::new(std::iter::from_fn(move || {
            let mut chosen = Vec::new();
            while let Some(message) = messages.get(at)
                && message.log_time <= query.range.end
                && chosen.len() < AT_ONCE
            {
                if query.topics.contains(&message.channel.topic) {
                    chosen.push((at, message));
                }
                at += 1;
            }
            (!chosen.is_empty()).then(|| Ok(batch(&chosen)))
        })))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let mut known = BTreeMap::new();
        let all = self.messages.iter().enumerate();
        for (place, message) in all.take_while(|(_, one)| one.log_time <= at) {
            if topics.contains(&message.channel.topic) {
                known.insert(&message.channel.topic, (place, message));
            }
        }
        let chosen: Vec<(usize, &Message)> = known.into_values().collect();
        Ok(batch(&chosen))
    }
}

fn batch(chosen: &[(usize, &Message)]) -> Batch {
    let mut channels: Vec<Arc<Channel>> = Vec::new();
    let mut buffers = Vec::new();
    let mut rows = Vec::new();
    for (place, message) in chosen {
        let known = channels
            .iter()
            .position(|known| Arc::ptr_eq(known, &message.channel));
        let channel = known.unwrap_or_else(|| {
            channels.push(Arc::clone(&message.channel));
            channels.len() - 1
        });
        rows.push(Row {
            log_time: message.log_time,
            publish_time: message.publish_time,
            order: *place as u64,
            offset: 0,
            len: message.payload.len() as u64,
            sequence: message.sequence,
            channel: channel as u32,
            buffer: buffers.len() as u32,
        });
        buffers.push(message.payload.clone());
    }
    Batch::new(channels.into(), buffers, rows)
}
