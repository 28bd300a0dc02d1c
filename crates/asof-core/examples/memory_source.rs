//! A custom source: messages in memory, asked what was known as of a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{
    Batch, Batches, Channel, ChannelSummary, Message, Query, Source, SourceError, Stamp, Summary,
    Topics,
};

/// Messages in log-time order.
struct Memory(Vec<Message>);

impl Source for Memory {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = Summary::empty("memory");
        summary.messages = Some(self.0.len() as u64);
        for message in &self.0 {
            summary.range = summary.range.cover_stamp(message.log_time);
            if !summary
                .channels
                .iter()
                .any(|known| known.channel == message.channel)
            {
                let channel = Arc::clone(&message.channel);
                summary.channels.push(ChannelSummary {
                    channel,
                    messages: None,
                });
            }
        }
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let matching = self
            .0
            .iter()
            .filter(|m| query.matches(&m.channel.topic, m.log_time));
        let batch: Batch = matching.cloned().collect();
        Ok(Box::new(
            (!batch.is_empty()).then_some(Ok(batch)).into_iter(),
        ))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let earlier = self
            .0
            .iter()
            .filter(|m| m.log_time <= at && topics.contains(&m.channel.topic));
        let last: BTreeMap<&str, &Message> =
            earlier.map(|m| (m.channel.topic.as_str(), m)).collect();
        Ok(last.into_values().cloned().collect())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let channel = |topic: &str| {
        Arc::new(Channel {
            topic: topic.into(),
            ..Channel::default()
        })
    };
    let (door, lamp) = (channel("/door"), channel("/lamp"));
    let message = |channel: &Arc<Channel>, second: i64, payload: &'static str| {
        let at = Stamp::from_nanos(second * 1_000_000_000);
        let channel = Arc::clone(channel);
        Message {
            channel,
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: payload.into(),
        }
    };
    let house = Memory(vec![
        message(&door, 1, "closed"),
        message(&lamp, 2, "on"),
        message(&door, 3, "open"),
    ]);
    let at: Stamp = "2.5".parse()?;
    println!("as of {at}:");
    for known in house.latest_at(&Topics::All, at)?.iter() {
        println!(
            "  {} is {}",
            known.channel.topic,
            String::from_utf8_lossy(known.payload)
        );
    }
    Ok(())
}
