//! Other names and other times.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, DerivedSummary, FileOrder, FileParts, Follow,
    Followed, HiddenRecord, HiddenRecords, Index, MetadataEntry, Portion, Query, SectionEntry,
    Source, SourceError, Stamp, Summary, TimeRange, Topics,
};
use bytes::Bytes;

/// A recording whose topics have a prefix and whose log times are shifted by a number of nanoseconds, to be shown beside
/// another.
///
/// Times inside of messages, such as their stamps, stay as recorded.
pub struct Shift {
    recording: Arc<dyn Source>,
    mover: Arc<Mover>,
    summary: DerivedSummary,
}

struct Mover {
    /// `/before`, or nothing.
    prefix: String,
    by: i64,
    /// The renamed channels, by the addresses of the originals, which are kept so that their
    /// addresses are not reused.
    channels: Mutex<HashMap<usize, ChannelCopy>>,
}

/// A channel, and its renamed copy.
type ChannelCopy = (Arc<Channel>, Arc<Channel>);

impl Shift {
    /// The recording with `prefix` before each of its topics, `by` nanoseconds later.
    pub fn new(recording: impl Into<Arc<dyn Source>>, prefix: impl Into<String>, by: i64) -> Self {
        let mover = Mover {
            prefix: prefix.into(),
            by,
            channels: Mutex::default(),
        };
        Shift {
            recording: recording.into(),
            mover: Arc::new(mover),
            summary: DerivedSummary::default(),
        }
    }
}

impl Mover {
    fn channel(&self, channel: &Arc<Channel>) -> Arc<Channel> {
        let mut known = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::as_ptr(channel) as usize;
        let (_, moved) = known.entry(key).or_insert_with(|| {
            let topic = self.topic(&channel.topic);
            let moved = Channel {
                topic,
                ..Channel::clone(channel)
            };
            (Arc::clone(channel), Arc::new(moved))
        });
        Arc::clone(moved)
    }

    fn topic(&self, topic: &str) -> String {
        let slash = if topic.starts_with('/') || self.prefix.is_empty() {
            ""
        } else {
            "/"
        };
        format!("{}{slash}{topic}", self.prefix)
    }

    fn later(&self, at: Stamp) -> Stamp {
        at.plus_nanos(self.by)
    }

    fn range(&self, range: TimeRange) -> TimeRange {
        if range.is_empty() {
            return range;
        }
        TimeRange::new(self.later(range.start), self.later(range.end))
    }

    /// Translates a query on the moved recording into one on the original.
    fn asked(&self, query: &Query, source: &dyn Source) -> Query {
        Query {
            topics: self.topics(&query.topics, source),
            range: self.range_back(query.range),
        }
    }

    fn range_back(&self, range: TimeRange) -> TimeRange {
        TimeRange::new(self.back(range.start), self.back(range.end))
    }

    fn back(&self, at: Stamp) -> Stamp {
        match at {
            // The ends of time are not shifted.
            Stamp::MIN | Stamp::MAX => at,
            at => at.plus_nanos(self.by.saturating_neg()),
        }
    }

    fn topics(&self, topics: &Topics, source: &dyn Source) -> Topics {
        if matches!(topics, Topics::All) {
            return Topics::All;
        }
        let summary = source.summary();
        let known = summary.topics();
        let meant = known
            .iter()
            .filter(|topic| topics.contains(&self.topic(topic)));
        Topics::named(meant.copied())
    }

    fn batch(&self, batch: &Batch) -> Batch {
        let channels = batch.channels().iter().map(|channel| self.channel(channel));
        let mut rows = batch.rows().to_vec();
        for row in &mut rows {
            row.log_time = self.later(row.log_time);
            row.publish_time = self.later(row.publish_time);
        }
        Batch::new(channels.collect(), batch.buffers().to_vec(), rows)
    }

    fn batches(self: &Arc<Self>, batches: Batches) -> Batches {
        let mover = Arc::clone(self);
        Box::new(batches.map(move |batch| batch.map(|batch| mover.batch(&batch))))
    }
}

impl asof_core::SourceLayer for Shift {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.recording
    }

    fn summary(&self) -> Arc<Summary> {
        self.summary.changed(self.inner().summary(), |summary| {
            summary.range = self.mover.range(summary.range);
            for entry in &mut summary.channels {
                entry.channel = self.mover.channel(&entry.channel);
            }
            for problem in &mut summary.problems {
                if let Some(topic) = &mut problem.topic {
                    *topic = self.mover.topic(topic);
                }
            }
        })
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let query = self.mover.asked(query, &*self.recording);
        Ok(self.mover.batches(self.inner().read(&query)?))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let topics = self.mover.topics(topics, &*self.recording);
        let batch = self.inner().latest_at(&topics, self.mover.back(at))?;
        Ok(self.mover.batch(&batch))
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        let query = self.mover.asked(query, &*self.recording);
        Ok(Box::new(FollowShifted {
            follow: self.inner().follow(&query)?,
            mover: Arc::clone(&self.mover),
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

impl Index for Shift {
    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        let portions = self
            .recording
            .outline(self.mover.range_back(range), grain)?;
        let moved = |portion: Portion| Portion {
            channel: self.mover.channel(&portion.channel),
            range: self.mover.range(portion.range),
            messages: portion.messages,
        };
        Ok(portions.map(|portions| portions.into_iter().map(moved).collect()))
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        let topics = self.mover.topics(&Topics::named([topic]), &*self.recording);
        let Topics::Named(names) = topics else {
            return Ok(None);
        };
        let mut all = Vec::new();
        for name in names.iter() {
            let range = self.mover.range_back(range);
            let Some(times) = self.recording.log_times(name, range)? else {
                return Ok(None);
            };
            all.extend(times.into_iter().map(|at| self.mover.later(at)));
        }
        // Topics with and without a slash may become one.
        all.sort();
        Ok(Some(all))
    }

    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        let known = self.recording.payload_estimates()?.into_iter();
        let moved = known.map(|(channel, bytes)| (self.mover.channel(&channel), bytes));
        Ok(moved.collect())
    }

    fn sections(&self) -> Vec<SectionEntry> {
        let sections = self.recording.sections().into_iter();
        let moved = sections.map(|section| SectionEntry {
            range: self.mover.range(section.range),
            channels: section
                .channels
                .map(|all| all.iter().map(|one| self.mover.channel(one)).collect()),
            ..section
        });
        moved.collect()
    }
}

/// A message that readers do not see has no time that could be moved.
impl FileParts for Shift {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.recording.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.recording.metadata(entry)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        let topics = self.mover.topics(topics, &*self.recording);
        let mover = Arc::clone(&self.mover);
        let hidden = self.recording.hidden(&topics)?;
        Ok(Box::new(hidden.map(move |record| {
            record.map(|mut record| {
                if let HiddenRecord::Message { channel, .. } = &mut record {
                    *channel = mover.channel(channel);
                }
                record
            })
        })))
    }
}

impl FileOrder for Shift {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        let query = self.mover.asked(query, &*self.recording);
        let batches = self.recording.read_in_file_order(&query)?;
        Ok(self.mover.batches(batches))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        let query = self.mover.asked(query, &*self.recording);
        self.recording.bytes_held_by_order(&query)
    }
}

/// Shifts what a follower returns.
struct FollowShifted {
    follow: Box<dyn Follow>,
    mover: Arc<Mover>,
}

impl Follow for FollowShifted {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        Ok(match self.follow.next(deadline)? {
            Followed::Batch(batch) => Followed::Batch(self.mover.batch(&batch)),
            other => other,
        })
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        let missed = self.follow.missed().into_iter();
        missed
            .map(|(topic, count)| (self.mover.topic(&topic), count))
            .collect()
    }
}
