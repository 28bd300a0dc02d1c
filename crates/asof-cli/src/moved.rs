//! A recording under other names and at other times, to be shown beside another.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use asof::formats::{Progress, Recording};
use asof::{
    AttachmentEntry, Batch, Batches, Channel, MetadataEntry, Portion, Problem, Query, Source,
    SourceError, Stamp, Summary, TimeRange, Topics,
};
use bytes::Bytes;

/// A finished recording whose topics have a prefix and whose log times are shifted by a number of nanoseconds.
///
/// Times inside of messages, such as their stamps, stay as recorded.
pub struct Moved {
    recording: Box<dyn Recording>,
    mover: Arc<Mover>,
}

struct Mover {
    /// `/before`, or nothing.
    prefix: String,
    by: i64,
    /// The renamed channels, by the addresses of the originals, which are kept so that their
    /// addresses are not reused.
    channels: Mutex<HashMap<usize, Renamed>>,
}

/// A channel, and its renamed copy.
type Renamed = (Arc<Channel>, Arc<Channel>);

impl Moved {
    /// The recording with `prefix` before each of its topics, `by` nanoseconds later.
    pub fn new(recording: Box<dyn Recording>, prefix: String, by: i64) -> Self {
        let mover = Mover {
            prefix,
            by,
            channels: Mutex::default(),
        };
        Moved {
            recording,
            mover: Arc::new(mover),
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
        let back = |at: Stamp| match at {
            // The ends of time are not shifted.
            Stamp::MIN | Stamp::MAX => at,
            at => at.plus_nanos(self.by.saturating_neg()),
        };
        Query {
            topics: self.topics(&query.topics, source),
            range: TimeRange::new(back(query.range.start), back(query.range.end)),
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

impl Source for Moved {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = Summary::clone(&self.recording.summary());
        summary.range = self.mover.range(summary.range);
        for entry in &mut summary.channels {
            entry.channel = self.mover.channel(&entry.channel);
        }
        for problem in &mut summary.problems {
            if let Some(topic) = &mut problem.topic {
                *topic = self.mover.topic(topic);
            }
        }
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let query = self.mover.asked(query, &*self.recording);
        Ok(self.mover.batches(self.recording.read(&query)?))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let query = Query {
            topics: topics.clone(),
            range: TimeRange::new(at, at),
        };
        let query = self.mover.asked(&query, &*self.recording);
        let batch = self.recording.latest_at(&query.topics, query.range.end)?;
        Ok(self.mover.batch(&batch))
    }

    fn outline(&self, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        let portions = self.recording.outline(grain)?;
        let moved = |portion: Portion| Portion {
            channel: self.mover.channel(&portion.channel),
            range: self.mover.range(portion.range),
            messages: portion.messages,
        };
        Ok(portions.map(|portions| portions.into_iter().map(moved).collect()))
    }
}

impl Recording for Moved {
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
        let query = self.mover.asked(query, &*self.recording);
        Ok(self
            .mover
            .batches(self.recording.read_in_file_order(&query)?))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        let query = self.mover.asked(query, &*self.recording);
        self.recording.bytes_held_by_order(&query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof::Message;
    use asof::formats::{McapFile, McapWriter, McapWriterOptions};

    fn recording(topics: &[&str], start: i64) -> Box<dyn Recording> {
        let options = McapWriterOptions::default();
        let out = std::io::Cursor::new(Vec::new());
        let mut writer = McapWriter::new(out, options).expect("a writer");
        for (index, topic) in topics.iter().enumerate() {
            let channel = Channel {
                topic: (*topic).to_owned(),
                message_encoding: "json".to_owned(),
                ..Channel::default()
            };
            let channel = Arc::new(channel);
            for round in 0..20 {
                let at = Stamp::from_nanos(start + round * 10 + index as i64);
                let message = Message {
                    channel: Arc::clone(&channel),
                    log_time: at,
                    publish_time: at,
                    sequence: round as u32,
                    payload: format!("{round}").into(),
                };
                writer.write(&message).expect("written");
            }
        }
        let bytes = writer.finish().expect("finished").into_inner();
        Box::new(McapFile::from_bytes("run.mcap".to_owned(), bytes).expect("a file"))
    }

    #[test]
    fn what_is_moved_keeps_every_promise_of_a_source() {
        let moved = Moved::new(recording(&["/a", "b"], 1000), "/x".to_owned(), 500);
        asof_core::testing::assert_source(&moved, "a moved recording");
    }

    #[test]
    fn topics_and_times_are_others_and_messages_the_same() {
        let own = recording(&["/a", "b"], 1000);
        let moved = Moved::new(recording(&["/a", "b"], 1000), "/x".to_owned(), -400);
        let all = |source: &dyn Source, query: &Query| -> Vec<(String, i64, Bytes)> {
            let batches = source.read(query).expect("read");
            batches
                .flat_map(|batch| {
                    let batch = batch.expect("a batch");
                    let one = |message: asof::MessageRef<'_>| {
                        let message = message.to_message();
                        let topic = message.channel.topic.clone();
                        (topic, message.log_time.nanos(), message.payload)
                    };
                    batch.iter().map(one).collect::<Vec<_>>()
                })
                .collect()
        };
        let wanted: Vec<_> = all(&*own, &Query::all())
            .into_iter()
            .map(|(topic, at, payload)| {
                (
                    format!("/x/{}", topic.trim_start_matches('/')),
                    at - 400,
                    payload,
                )
            })
            .collect();
        assert_eq!(all(&moved, &Query::all()), wanted);
        let one = Query::topics(["/x/b"]).between(TimeRange::new(
            Stamp::from_nanos(700),
            Stamp::from_nanos(751),
        ));
        let some: Vec<_> = wanted
            .iter()
            .filter(|(topic, at, _)| topic == "/x/b" && (700..=751).contains(at))
            .cloned()
            .collect();
        assert_eq!(some.len(), 6);
        assert_eq!(all(&moved, &one), some);
        // A name without the prefix is not one of its topics.
        assert_eq!(all(&moved, &Query::topics(["/a"])).len(), 0);
    }
}
