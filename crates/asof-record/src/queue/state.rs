//! What waits, and what gives way when there is no room.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use asof_core::{Channel, Stamp};
use asof_live::ros::is_latched;
use asof_live::{Sample, SequenceGaps, StampHealth};

use crate::options::Priorities;
use crate::report::TopicReport;
use crate::sink::Tags;

/// At most this many topics have their priority, and their numbers and stamps, remembered.
pub(super) const MOST_TOPICS: usize = 65_536;

/// A queued message.
pub(super) struct Waiting {
    /// The weight at arrival: it may grow when the payload's pieces are joined.
    pub weight: u64,
    pub priority: i32,
    /// The prefix of its topic's name in the recording.
    pub prefix: Arc<str>,
    /// When it came, since the recording began.
    pub at: Stamp,
    pub sample: Sample,
}

impl Waiting {
    pub fn topic(&self) -> String {
        named(&self.prefix, &self.sample.channel.topic)
    }
}

/// The name of a topic in the recording. A raw key has no slash of its own.
pub(super) fn named(prefix: &str, topic: &str) -> String {
    let needs_slash = !prefix.is_empty() && !topic.starts_with('/');
    format!("{prefix}{}{topic}", if needs_slash { "/" } else { "" })
}

#[derive(Default)]
pub(super) struct State {
    pub samples: VecDeque<Waiting>,
    /// Bytes of queued messages, and of those that the writer has taken and not yet written.
    pub bytes: u64,
    /// Bytes of queued messages by priority.
    pub by_priority: BTreeMap<i32, u64>,
    /// Priorities by topic.
    known: HashMap<String, i32>,
    pub topics: BTreeMap<String, TopicReport>,
    /// Sequence numbers and stamps, by topic.
    pub arrivals: HashMap<String, (SequenceGaps, StampHealth)>,
    pub notes: Vec<(String, Tags)>,
    /// Reasons of snapshots to be written.
    pub triggers: Vec<String>,
    /// Messages for late joiners that came before the robot's clock.
    pub before_clock: Vec<(Arc<str>, Sample)>,
    pub is_closed: bool,
    /// Whether the disk failed: what comes is dropped.
    pub is_broken: bool,
    pub warned: Option<Instant>,
}

impl State {
    pub fn close(&mut self) {
        self.is_closed = true;
        // The clock that these waited for never came.
        for (prefix, sample) in std::mem::take(&mut self.before_clock) {
            self.report_of(&named(&prefix, &sample.channel.topic)).early += 1;
        }
    }

    pub fn report_of(&mut self, topic: &str) -> &mut TopicReport {
        self.topics.entry(topic.to_owned()).or_default()
    }

    /// The priority of a topic. What is meant for late subscribers comes once, and is worth the most.
    pub fn priority_of(&mut self, channel: &Channel, priorities: &Priorities) -> i32 {
        let topic = channel.topic.as_str();
        if let Some(known) = self.known.get(topic) {
            return *known;
        }
        let priority = if is_latched(channel) {
            i32::MAX
        } else {
            priorities.of(topic)
        };
        if self.known.len() < MOST_TOPICS {
            self.known.insert(topic.to_owned(), priority);
        }
        priority
    }

    pub fn uncount(&mut self, priority: i32, weight: u64) {
        if let Some(bytes) = self.by_priority.get_mut(&priority) {
            *bytes = bytes.saturating_sub(weight);
        }
    }

    /// Drops less important messages, the least important and oldest first, until `missing` bytes are free, and `more`
    /// on top, so that this does not run for every message. Returns whether enough bytes were freed.
    pub fn make_room(&mut self, missing: u64, priority: i32, more: u64) -> bool {
        let lower: u64 = self
            .by_priority
            .range(..priority)
            .map(|(_, bytes)| bytes)
            .sum();
        if lower < missing {
            return false;
        }
        let mut wanted = missing.max(more).min(lower);
        let mut quotas: BTreeMap<i32, u64> = BTreeMap::new();
        for (&one, &bytes) in self.by_priority.range(..priority) {
            let quota = bytes.min(wanted);
            quotas.insert(one, quota);
            wanted -= quota;
        }
        let samples = std::mem::take(&mut self.samples);
        for waiting in samples {
            let quota = quotas.get_mut(&waiting.priority);
            let Some(quota) = quota.filter(|quota| **quota > 0) else {
                self.samples.push_back(waiting);
                continue;
            };
            *quota = quota.saturating_sub(waiting.weight);
            self.bytes = self.bytes.saturating_sub(waiting.weight);
            self.uncount(waiting.priority, waiting.weight);
            self.report_of(&waiting.topic()).dropped += 1;
        }
        true
    }
}
