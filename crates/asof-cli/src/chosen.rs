//! A recording restricted to some topics, when not all of its topics are known yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use asof::formats::{HiddenRecords, Progress, ReadStats, Recording};
use asof::{
    AttachmentEntry, Batch, Batches, Follow, Followed, Growth, MetadataEntry, Problem, Query,
    Source, SourceError, Stamp, Summary, Topics,
};
use bytes::Bytes;

use super::place::Wanted;

/// A recording without the unwanted topics, such as a running robot.
pub struct Chosen {
    recording: Box<dyn Recording>,
    wanted: Wanted,
}

impl Chosen {
    pub fn new(recording: Box<dyn Recording>, wanted: &Wanted) -> Self {
        Chosen {
            recording,
            wanted: wanted.clone(),
        }
    }

    /// The wanted ones among these topics, as known so far.
    fn wanted(&self, topics: &Topics) -> Topics {
        let summary = self.recording.summary();
        let channels = summary.channels.iter().map(|entry| &entry.channel);
        let chosen = channels
            .filter(|channel| topics.contains(&channel.topic) && self.wanted.is_match(channel));
        Topics::named(chosen.map(|channel| channel.topic.as_str()))
    }

    fn asked(&self, query: &Query) -> Query {
        Query {
            topics: self.wanted(&query.topics),
            range: query.range,
        }
    }
}

impl Source for Chosen {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = Summary::clone(&self.recording.summary());
        summary
            .channels
            .retain(|entry| self.wanted.is_match(&entry.channel));
        let counts = summary.channels.iter().map(|entry| entry.messages);
        summary.messages = counts.sum();
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.recording.read(&self.asked(query))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.recording.latest_at(&self.wanted(topics), at)
    }

    fn growth(&self) -> Growth {
        self.recording.growth()
    }

    /// Includes topics that appear later.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        if !self.growth().is_growing() {
            return self.recording.follow(&self.asked(query));
        }
        Ok(Box::new(FollowChosen {
            follow: self.recording.follow(query)?,
            wanted: self.wanted.clone(),
        }))
    }
}

impl Recording for Chosen {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.recording.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.recording.metadata(entry)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        self.recording.check(progress)
    }

    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        self.recording.read_in_file_order(&self.asked(query))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        self.recording.bytes_held_by_order(&self.asked(query))
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        self.recording.hidden(&self.wanted(topics))
    }

    fn read_stats(&self) -> Option<ReadStats> {
        self.recording.read_stats()
    }
}

struct FollowChosen {
    follow: Box<dyn Follow>,
    wanted: Wanted,
}

impl Follow for FollowChosen {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        loop {
            let batch = match self.follow.next(deadline)? {
                Followed::Batch(batch) => batch,
                other => return Ok(other),
            };
            let chosen = batch.only(|message| self.wanted.is_match(message.channel));
            if let Some(batch) = chosen {
                return Ok(Followed::Batch(batch));
            }
        }
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        self.follow.missed()
    }
}
