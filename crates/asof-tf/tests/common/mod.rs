//! What several tests need.

use std::sync::Arc;

use asof_core::{
    Batch, Batches, ChannelSummary, Message, Query, Source, SourceError, Stamp, Summary, Topics,
};

/// Messages in memory.
pub struct Recording(pub Vec<Message>);

impl Source for Recording {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = Summary::empty("memory");
        for message in &self.0 {
            if !summary
                .channels
                .iter()
                .any(|entry| entry.channel == message.channel)
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
        let wanted = |m: &&Message| query.matches(&m.channel.topic, m.log_time);
        let batch: Batch = self.0.iter().filter(wanted).cloned().collect();
        let batches: Vec<_> = (!batch.is_empty())
            .then_some(Ok(batch))
            .into_iter()
            .collect();
        Ok(Box::new(batches.into_iter()))
    }

    fn latest_at(&self, _topics: &Topics, _at: Stamp) -> Result<Batch, SourceError> {
        Ok(Batch::default())
    }
}
