//! What a source holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{Channel, Problem, Stamp, TimeRange};

/// What a source holds, as far as it can be known without reading every message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The kind of file or stream: `mcap`, `bag`, `db3`, …
    pub format: String,
    /// Who wrote it, in the writer's words; empty where nobody said.
    pub library: String,
    /// The conventions that it follows (`ros2`); empty where nobody said.
    pub profile: String,
    /// Bytes on disk.
    pub size: u64,
    /// From the first log time to the last; empty where there is no message.
    pub range: TimeRange,
    /// Messages in all; `None` where only reading would tell.
    pub messages: Option<u64>,
    /// Chunks in all.
    pub chunks: u64,
    /// How many chunks use which compression; `none` for those that use none.
    pub compression: BTreeMap<String, u64>,
    /// The channels, in the order of their numbers.
    pub channels: Vec<ChannelSummary>,
    /// Files that lie within the recording.
    pub attachments: Vec<AttachmentEntry>,
    /// Named sets of text within the recording.
    pub metadata: Vec<MetadataEntry>,
    /// What was wrong, as far as it has been met.
    pub problems: Vec<Problem>,
    /// What is kept of a source that holds only its newest messages; `None` for one that holds everything.
    pub recent: Option<RecentSummary>,
}

/// What a source keeps that holds only its newest messages, such as a running robot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentSummary {
    /// How far back messages are kept, from the newest; `None` without a bound.
    pub age: Option<Duration>,
    /// How many bytes are kept; `None` without a bound.
    pub budget: Option<u64>,
    /// How many bytes are held now, with everything that they keep alive.
    pub bytes: u64,
    /// Messages that were let go, to stay within the bounds.
    pub evicted: u64,
    /// Of those, the ones that had to go before they were too old: for the bytes, or the count.
    pub crowded_out: u64,
    /// Messages that were not taken in.
    pub refused: u64,
    /// Messages that were let go, by topic.
    pub evicted_by_topic: BTreeMap<String, u64>,
    /// Whether the robot is there at the moment.
    pub is_connected: bool,
}

impl RecentSummary {
    /// What two such sources keep together.
    #[must_use]
    pub fn and(mut self, other: &RecentSummary) -> Self {
        // As far back as one of them goes, there is something.
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

/// A channel, and how much is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSummary {
    /// The channel itself.
    pub channel: Arc<Channel>,
    /// Messages on it; `None` where only reading would tell.
    pub messages: Option<u64>,
}

/// A file that lies within a recording.
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
    /// Where its record starts in the recording.
    pub offset: u64,
}

/// A named set of text within a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataEntry {
    /// Its name. Names may repeat.
    pub name: String,
    /// Where its record starts in the recording.
    pub offset: u64,
}

impl Summary {
    /// A summary of nothing, to be filled in.
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

    /// The topics' names, sorted, each once.
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
