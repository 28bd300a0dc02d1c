//! Some of the topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, DerivedSummary, FileOrder, FileParts, Follow,
    Followed, HiddenRecords, Index, MetadataEntry, Portion, Query, SectionEntry, Source,
    SourceError, Stamp, Summary, TimeRange, Topics,
};
use bytes::Bytes;

/// Which channels are in a selection.
pub type ChannelFilter = Arc<dyn Fn(&Channel) -> bool + Send + Sync>;

/// A recording restricted to some channels, also to those that appear later.
pub struct Selection {
    recording: Arc<dyn Source>,
    wants: ChannelFilter,
    summary: DerivedSummary,
}

impl Selection {
    /// The recording with the channels that `wants` accepts.
    pub fn new(recording: impl Into<Arc<dyn Source>>, wants: ChannelFilter) -> Self {
        Selection {
            recording: recording.into(),
            wants,
            summary: DerivedSummary::default(),
        }
    }

    /// The wanted ones among these topics, as known so far.
    fn wanted(&self, topics: &Topics) -> Topics {
        let summary = self.recording.summary();
        let channels = summary.channels.iter().map(|entry| &entry.channel);
        let chosen =
            channels.filter(|channel| topics.contains(&channel.topic) && (self.wants)(channel));
        Topics::named(chosen.map(|channel| channel.topic.as_str()))
    }

    /// From the first selected message to the last. Reads the sections that hold the two.
    fn range(&self) -> Result<TimeRange, SourceError> {
        let query = self.asked(&Query::all());
        let Some(first) = self.recording.read(&query)?.next() else {
            return Ok(TimeRange::EMPTY);
        };
        let last = self.recording.latest_at(&query.topics, Stamp::MAX)?;
        Ok(TimeRange::new(first?.range().start, last.range().end))
    }

    fn asked(&self, query: &Query) -> Query {
        Query {
            topics: self.wanted(&query.topics),
            range: query.range,
        }
    }
}

impl asof_core::SourceLayer for Selection {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.recording
    }

    fn summary(&self) -> Arc<Summary> {
        self.summary.changed(self.inner().summary(), |summary| {
            let all = summary.channels.len();
            summary
                .channels
                .retain(|entry| (self.wants)(&entry.channel));
            if summary.channels.len() == all {
                return;
            }
            let counts = summary.channels.iter().map(|entry| entry.messages);
            summary.messages = counts.sum();
            if let Ok(range) = self.range() {
                summary.range = range;
            }
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
        Ok(Box::new(FollowSelection {
            follow: self.inner().follow(query)?,
            wants: Arc::clone(&self.wants),
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

impl Index for Selection {
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

    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        let wanted = self.wanted(&Topics::All);
        let mut known = self.recording.payload_estimates()?;
        known.retain(|(channel, _)| wanted.contains(&channel.topic));
        Ok(known)
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

impl FileParts for Selection {
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

impl FileOrder for Selection {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        self.recording.read_in_file_order(&self.asked(query))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        self.recording.bytes_held_by_order(&self.asked(query))
    }
}

/// Follows the selected channels.
struct FollowSelection {
    follow: Box<dyn Follow>,
    wants: ChannelFilter,
}

impl Follow for FollowSelection {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        loop {
            let batch = match self.follow.next(deadline)? {
                Followed::Batch(batch) => batch,
                other => return Ok(other),
            };
            let chosen = batch.only(|message| (self.wants)(message.channel));
            if let Some(batch) = chosen {
                return Ok(Followed::Batch(batch));
            }
        }
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        self.follow.missed()
    }
}
