//! The contents of a recording: topics, types, counts, rates, sizes.

use std::collections::BTreeMap;

use asof_core::{
    AttachmentEntry, Channel, MetadataEntry, Problem, Query, Source, SourceError, Stamp, Summary,
    TimeRange, Topics,
};
use serde::Serialize;

use crate::Recording;
use crate::problems::problems_as_json;
use crate::text::seconds_between;

/// What is in a recording. As JSON it is what `asof info --json` prints; the names and their order are stable.
#[derive(Debug, Serialize)]
pub struct RecordingInfo {
    /// Its places.
    pub path: String,
    /// The kind of file or stream.
    pub format: String,
    /// Bytes on disk.
    pub size: u64,
    /// The first log time, in nanoseconds since the epoch; `None` without messages.
    pub start: Option<i64>,
    /// The last log time.
    pub end: Option<i64>,
    /// Seconds.
    pub duration: f64,
    /// Messages, where they are known.
    pub messages: Option<u64>,
    /// Chunks.
    pub chunks: u64,
    /// The names of its compressions.
    pub compression: String,
    /// Its topics.
    pub topics: Vec<TopicInfo>,
    /// Files in it.
    pub attachments: Vec<AttachmentInfo>,
    /// Named sets of texts in it.
    pub metadata: Vec<MetadataInfo>,
    /// Parameters of a running robot, as JSON; left out where there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// What a running robot reports about itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub robot: BTreeMap<String, String>,
    /// The nodes that publish each topic of a running robot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub publishers: BTreeMap<String, String>,
    /// The topics of a running robot whose stamps are far from their arrival, zero, or jump.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stamps: BTreeMap<String, String>,
    /// What is wrong with it.
    #[serde(serialize_with = "problems_as_json")]
    pub problems: Vec<Problem>,
    /// The library that wrote it.
    #[serde(skip)]
    pub library: String,
    /// The conventions that it follows.
    #[serde(skip)]
    pub profile: String,
}

/// A topic; one that has several types or encodings is listed once for each.
#[derive(Debug, Serialize)]
pub struct TopicInfo {
    /// Its name.
    pub topic: String,
    /// The type of its messages.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How they are encoded.
    pub encoding: String,
    /// The language of their definition.
    pub schema_encoding: String,
    /// How many there are, where it is known.
    pub messages: Option<u64>,
    /// Messages per second of the recording; 0 for fewer than two.
    pub hz: Option<f64>,
    /// Bytes of payload, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes of payload, estimated from a few messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_estimate: Option<u64>,
}

/// A file in a recording.
#[derive(Debug, Serialize)]
pub struct AttachmentInfo {
    /// Its name.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// When it was added, in nanoseconds since the epoch.
    pub log_time: Option<i64>,
    /// When it was made.
    pub create_time: Option<i64>,
    /// Where it is in the file.
    pub offset: u64,
}

/// A named set of texts in a recording.
#[derive(Debug, Serialize)]
pub struct MetadataInfo {
    /// Its name.
    pub name: String,
    /// Where it is in the file.
    pub offset: u64,
}

/// At how many instants messages are looked at, to estimate their sizes.
const SAMPLED_INSTANTS: i64 = 8;
/// After how many decompressed bytes no more are looked at.
const MOST_SAMPLED_BYTES: u64 = 64 << 20;

/// What makes two channels one entry: topic, type, encoding, schema encoding.
type Key = [String; 4];

/// Messages and bytes of payload, as far as known.
#[derive(Default)]
struct Tally {
    messages: Option<u64>,
    bytes: Option<u64>,
}

impl Recording {
    /// What is in it, by its summary and a few messages, from which the bytes of topics are estimated unless it is far away.
    /// Of a running robot also what it reports about itself.
    ///
    /// # Errors
    /// When a robot's reports cannot be read.
    pub fn info(&self, query: &Query) -> Result<RecordingInfo, SourceError> {
        let mut info =
            RecordingInfo::of_summary(self.place_names().join(", "), &self.summary(), query);
        if !self.places().iter().any(|place| crate::is_address(place)) {
            info.estimate(self, query);
        }
        info.add_reports(self)?;
        Ok(info)
    }

    /// The same, by reading and counting the messages that the query selects; also with topics that have none, if wanted.
    ///
    /// # Errors
    /// When it cannot be read further.
    pub fn counted_info(
        &self,
        query: &Query,
        with_silent: bool,
    ) -> Result<RecordingInfo, SourceError> {
        let mut info =
            RecordingInfo::of_messages(self.place_names().join(", "), self, query, with_silent)?;
        info.add_reports(self)?;
        Ok(info)
    }
}

impl RecordingInfo {
    /// Adds what a robot reports about itself: its metadata is its current state.
    fn add_reports(&mut self, recording: &Recording) -> Result<(), SourceError> {
        let summary = recording.summary();
        for entry in summary.metadata.iter().filter(|_| summary.recent.is_some()) {
            let reports = match entry.name.as_str() {
                "parameters" => &mut self.parameters,
                "robot" => &mut self.robot,
                "publishers" => &mut self.publishers,
                "stamps" => &mut self.stamps,
                _ => continue,
            };
            *reports = recording.metadata(entry)?;
        }
        Ok(())
    }

    /// From the summary: no message is read.
    fn of_summary(path: String, summary: &Summary, query: &Query) -> Self {
        let mut tallies: BTreeMap<Key, Tally> = BTreeMap::new();
        for entry in &summary.channels {
            if !query.topics.contains(&entry.channel.topic) {
                continue;
            }
            let tally = tallies.entry(key(&entry.channel)).or_insert(Tally {
                messages: Some(0),
                bytes: None,
            });
            tally.messages = tally.messages.zip(entry.messages).map(|(a, b)| a + b);
        }
        let mut info = RecordingInfo::new(path, summary, summary.range, tallies);
        if query.topics == Topics::All {
            // The file may declare the total but not its parts.
            info.messages = summary.messages;
        }
        info
    }

    /// By reading the messages that the query selects; also with topics that have none, if wanted.
    fn of_messages(
        path: String,
        source: &dyn Source,
        query: &Query,
        with_silent: bool,
    ) -> Result<Self, SourceError> {
        let mut tallies: BTreeMap<Key, Tally> = BTreeMap::new();
        if with_silent {
            let none = || Tally {
                messages: Some(0),
                bytes: Some(0),
            };
            let summary = source.summary();
            let channels = summary.channels.iter().map(|entry| &entry.channel);
            let chosen = channels.filter(|channel| query.topics.contains(&channel.topic));
            tallies.extend(chosen.map(|channel| (key(channel), none())));
        }
        let mut range = TimeRange::EMPTY;
        for batch in source.read(query)? {
            let batch = batch?;
            range = range.cover(batch.range());
            let mut counts = vec![(0, 0); batch.channels().len()];
            for row in batch.rows() {
                let (messages, bytes) = &mut counts[row.channel as usize];
                *messages += 1;
                *bytes += row.len;
            }
            for (channel, (messages, bytes)) in batch.channels().iter().zip(counts) {
                if messages > 0 {
                    let tally = tallies.entry(key(channel)).or_default();
                    *tally.messages.get_or_insert(0) += messages;
                    *tally.bytes.get_or_insert(0) += bytes;
                }
            }
        }
        Ok(RecordingInfo::new(path, &source.summary(), range, tallies))
    }

    /// Estimates the bytes of each topic from what was known at a few instants. Where these are all messages of a topic, they
    /// are counted.
    fn estimate(&mut self, source: &dyn Source, query: &Query) {
        let Some((start, end)) = self.start.zip(self.end) else {
            return;
        };
        let mut seen: BTreeMap<Key, BTreeMap<(i64, u32), u64>> = BTreeMap::new();
        let step = end.saturating_sub(start) / (SAMPLED_INSTANTS - 1);
        for instant in (0..SAMPLED_INSTANTS).rev() {
            // The last first: it is known of every topic then.
            let at = if instant == SAMPLED_INSTANTS - 1 {
                end
            } else {
                start + instant * step
            };
            let at = Stamp::from_nanos(at);
            let Ok(known) = source.latest_at(&query.topics, at) else {
                break;
            };
            for message in known.iter() {
                let sizes = seen.entry(key(message.channel)).or_default();
                let id = (message.log_time.nanos(), message.sequence);
                sizes.insert(id, message.payload.len() as u64);
            }
            let read = source
                .read_stats()
                .map_or(0, |stats| stats.decompressed_bytes);
            if read > MOST_SAMPLED_BYTES {
                break;
            }
        }
        for topic in &mut self.topics {
            let key = [
                topic.topic.clone(),
                topic.type_name.clone(),
                topic.encoding.clone(),
                topic.schema_encoding.clone(),
            ];
            let (Some(sizes), Some(messages)) = (seen.get(&key), topic.messages) else {
                continue;
            };
            let (count, sum) = (sizes.len() as u64, sizes.values().sum::<u64>());
            if count == messages {
                topic.bytes = Some(sum);
            } else {
                let mean = sum as f64 / count as f64;
                topic.bytes_estimate = Some((mean * messages as f64).round() as u64);
            }
        }
    }

    fn new(
        path: String,
        summary: &Summary,
        range: TimeRange,
        tallies: BTreeMap<Key, Tally>,
    ) -> Self {
        let nanos = |stamp: Stamp| (!range.is_empty()).then(|| stamp.nanos());
        let duration = if range.is_empty() {
            0.0
        } else {
            seconds_between(range.start, range.end)
        };
        let messages = tallies
            .values()
            .try_fold(0, |sum, tally| Some(sum + tally.messages?));
        let topics = tallies.into_iter().map(|(key, tally)| {
            let [topic, type_name, encoding, schema_encoding] = key;
            TopicInfo {
                topic,
                type_name,
                encoding,
                schema_encoding,
                messages: tally.messages,
                hz: tally.messages.map(|messages| rate(messages, duration)),
                bytes: tally.bytes,
                bytes_estimate: None,
            }
        });
        RecordingInfo {
            path,
            format: summary.format.clone(),
            size: summary.size,
            start: nanos(range.start),
            end: nanos(range.end),
            duration,
            messages,
            chunks: summary.chunks,
            compression: compression(summary),
            topics: topics.collect(),
            attachments: attachments(summary),
            metadata: metadata(summary),
            parameters: BTreeMap::new(),
            robot: BTreeMap::new(),
            publishers: BTreeMap::new(),
            stamps: BTreeMap::new(),
            problems: summary.problems.clone(),
            library: summary.library.clone(),
            profile: summary.profile.clone(),
        }
    }
}

fn key(channel: &Channel) -> Key {
    [
        channel.topic.clone(),
        channel.type_name().to_owned(),
        channel.message_encoding.clone(),
        channel
            .schema
            .as_ref()
            .map(|schema| schema.encoding.clone())
            .unwrap_or_default(),
    ]
}

/// Messages per second of the recording, as other tools count it; 0 where a rate is undefined.
fn rate(messages: u64, duration: f64) -> f64 {
    if messages < 2 || duration <= 0.0 {
        0.0
    } else {
        messages as f64 / duration
    }
}

fn compression(summary: &Summary) -> String {
    if summary.compression.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<&str> = summary.compression.keys().map(String::as_str).collect();
    names.join(", ")
}

fn attachments(summary: &Summary) -> Vec<AttachmentInfo> {
    let report = |entry: &AttachmentEntry| AttachmentInfo {
        name: entry.name.clone(),
        media_type: entry.media_type.clone(),
        size: entry.size,
        log_time: entry.log_time.map(Stamp::nanos),
        create_time: entry.create_time.map(Stamp::nanos),
        offset: entry.offset,
    };
    summary.attachments.iter().map(report).collect()
}

fn metadata(summary: &Summary) -> Vec<MetadataInfo> {
    let report = |entry: &MetadataEntry| MetadataInfo {
        name: entry.name.clone(),
        offset: entry.offset,
    };
    summary.metadata.iter().map(report).collect()
}
