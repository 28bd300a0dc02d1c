//! What a source holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{Channel, Problem, Stamp, TimeRange};

/// What a source holds, as far as it is known without reading every message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The kind of file or stream: `mcap`, `bag`, `db3`, …
    pub format: String,
    /// The library that wrote it, as it named itself; empty when unknown.
    pub library: String,
    /// The conventions that it follows (`ros2`); empty when unknown.
    pub profile: String,
    /// Bytes on disk.
    pub size: u64,
    /// From the first log time to the last; empty where there is no message.
    pub range: TimeRange,
    /// The number of messages; `None` if only reading could count them.
    pub messages: Option<u64>,
    /// The number of chunks.
    pub chunks: u64,
    /// The number of chunks per compression; `none` for uncompressed chunks.
    pub compression: BTreeMap<String, u64>,
    /// The channels, sorted by id.
    pub channels: Vec<ChannelSummary>,
    /// Files embedded in the recording.
    pub attachments: Vec<AttachmentEntry>,
    /// Named sets of key-value text in the recording.
    pub metadata: Vec<MetadataEntry>,
    /// The problems found so far.
    pub problems: Vec<Problem>,
    /// The retention of a source that holds only its newest messages; `None` for one that holds everything.
    pub recent: Option<RecentSummary>,
}

/// The retention of a source that holds only its newest messages, such as a running robot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentSummary {
    /// The maximum age of a message, relative to the newest; `None` without a limit.
    pub age: Option<Duration>,
    /// The maximum of bytes held; `None` without a limit.
    pub budget: Option<u64>,
    /// Bytes held now, with everything that they keep alive.
    pub bytes: u64,
    /// Messages evicted to stay within the limits.
    pub evicted: u64,
    /// Of those, messages evicted before their maximum age, because of the byte or count limit.
    pub crowded_out: u64,
    /// Messages rejected on arrival.
    pub refused: u64,
    /// Messages evicted, by topic.
    pub evicted_by_topic: BTreeMap<String, u64>,
    /// Whether the robot is connected at the moment.
    pub is_connected: bool,
}

impl RecentSummary {
    /// The combined retention of two such sources.
    #[must_use]
    pub fn and(mut self, other: &RecentSummary) -> Self {
        // The combined source goes back as far as the longer of the two.
        self.age = self.age.zip(other.age).map(|(a, b)| a.max(b));
        self.budget = self
            .budget
            .zip(other.budget)
            .map(|(a, b)| a.saturating_add(b));
        self.bytes += other.bytes;
        self.evicted += other.evicted;
        self.crowded_out += other.crowded_out;
        self.refused += other.refused;
        for (topic, count) in &other.evicted_by_topic {
            *self.evicted_by_topic.entry(topic.clone()).or_default() += count;
        }
        self.is_connected &= other.is_connected;
        self
    }
}

/// A channel and its message count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSummary {
    /// The channel itself.
    pub channel: Arc<Channel>,
    /// Messages on it; `None` if only reading could count them.
    pub messages: Option<u64>,
}

/// A file embedded in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentEntry {
    /// Its name. Names may repeat.
    pub name: String,
    /// Its media type: `text/yaml`.
    pub media_type: String,
    /// When it was added to the recording, if that time can be represented.
    pub log_time: Option<Stamp>,
    /// When the file itself was made, if that time can be represented.
    pub create_time: Option<Stamp>,
    /// Its length in bytes.
    pub size: u64,
    /// Byte offset of its record in the recording.
    pub offset: u64,
}

/// A named set of key-value text in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataEntry {
    /// Its name. Names may repeat.
    pub name: String,
    /// Byte offset of its record in the recording.
    pub offset: u64,
}

impl Summary {
    /// An empty summary, to be filled in.
    pub fn empty(format: impl Into<String>) -> Self {
        Summary {
            format: format.into(),
            library: String::new(),
            profile: String::new(),
            size: 0,
            range: TimeRange::EMPTY,
            messages: Some(0),
            chunks: 0,
            compression: BTreeMap::new(),
            channels: Vec::new(),
            attachments: Vec::new(),
            metadata: Vec::new(),
            problems: Vec::new(),
            recent: None,
        }
    }

    /// The topic names, sorted and without duplicates.
    pub fn topics(&self) -> Vec<&str> {
        let mut topics: Vec<&str> = self
            .channels
            .iter()
            .map(|entry| entry.channel.topic.as_str())
            .collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }
}
