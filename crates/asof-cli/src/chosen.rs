//! A recording restricted to some topics, when not all of its topics are known yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use asof::{
    AttachmentEntry, Batch, Batches, DerivedSummary, FileOrder, FileParts, Follow, Followed,
    HiddenRecords, Index, MetadataEntry, Portion, Query, SectionEntry, Source, SourceError, Stamp,
    Summary, TimeRange, Topics,
};
use bytes::Bytes;

use super::place::Wanted;

/// A recording without the unwanted topics, such as a running robot.
pub struct Chosen {
    recording: Box<dyn Source>,
    wanted: Wanted,
    summary: DerivedSummary,
}

impl Chosen {
    pub fn new(recording: Box<dyn Source>, wanted: &Wanted) -> Self {
        Chosen {
            recording,
            wanted: wanted.clone(),
            summary: DerivedSummary::default(),
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

impl asof::SourceLayer for Chosen {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.recording
    }

    fn summary(&self) -> Arc<Summary> {
        self.summary.changed(self.inner().summary(), |summary| {
            summary
                .channels
                .retain(|entry| self.wanted.is_match(&entry.channel));
            let counts = summary.channels.iter().map(|entry| entry.messages);
            summary.messages = counts.sum();
        })
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.inner().read(&self.asked(query))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.inner().latest_at(&self.wanted(topics), at)
    }

    /// Includes topics that appear later.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        if !self.inner().growth().is_growing() {
            return self.inner().follow(&self.asked(query));
        }
        Ok(Box::new(FollowChosen {
            follow: self.inner().follow(query)?,
            wanted: self.wanted.clone(),
        }))
    }

    fn index(&self) -> Option<&dyn Index> {
        self.inner().index().map(|_| self as _)
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        self.inner().parts().map(|_| self as _)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        self.inner().file_order().map(|_| self as _)
    }
}

impl Index for Chosen {
    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        let mut portions = self.recording.outline(range, grain)?;
        let wanted = self.wanted(&Topics::All);
        if let Some(portions) = &mut portions {
            portions.retain(|portion| wanted.contains(&portion.channel.topic));
        }
        Ok(portions)
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        if self.wanted(&Topics::named([topic])).contains(topic) {
            return self.recording.log_times(topic, range);
        }
        Ok(Some(Vec::new()))
    }

    fn sections(&self) -> Vec<SectionEntry> {
        let wanted = self.wanted(&Topics::All);
        let mut sections = self.recording.sections();
        for channels in sections.iter_mut().filter_map(|one| one.channels.as_mut()) {
            channels.retain(|channel| wanted.contains(&channel.topic));
        }
        sections
    }
}

impl FileParts for Chosen {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.recording.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.recording.metadata(entry)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        self.recording.hidden(&self.wanted(topics))
    }
}

impl FileOrder for Chosen {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        self.recording.read_in_file_order(&self.asked(query))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        self.recording.bytes_held_by_order(&self.asked(query))
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
