//! The first and the last message of a topic.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use asof_core::{Query, Stamp, TimeRange, Topics};

use crate::database::Shared;

/// The ends of topics, by recording and topic; `None` where they cannot be determined.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<BTreeMap<(usize, String), Option<TimeRange>>>);

impl Shared {
    /// From the first message of a topic to its last, without reading those between them.
    pub fn ends_of(&self, recording: usize, topic: &str) -> Option<TimeRange> {
        // Recordings that other processes read are not opened here for it.
        #[cfg(feature = "distributed")]
        if self.is_distributed {
            return None;
        }
        let key = (recording, topic.to_owned());
        let lock = || self.ends.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return *known;
        }
        let found = self.look_at_ends(recording, topic);
        lock().insert(key, found);
        found
    }

    fn look_at_ends(&self, recording: usize, topic: &str) -> Option<TimeRange> {
        let recording = &self.opened(recording).recording;
        let summary = recording.summary();
        // A damaged recording may have messages before or between the known ones.
        if !summary.problems.is_empty() {
            return None;
        }
        if let [only] = &summary.channels[..]
            && only.channel.topic == topic
        {
            return (!summary.range.is_empty()).then_some(summary.range);
        }
        let mut batches = recording.read(&Query::topics([topic])).ok()?;
        let first = batches.next()?.ok()?.get(0)?.log_time;
        let last = recording
            .latest_at(&Topics::named([topic]), Stamp::MAX)
            .ok()?;
        let last = last.get(0)?.log_time;
        // Damage that was met on the way.
        let is_whole = recording.summary().problems.is_empty();
        is_whole.then(|| TimeRange::new(first, last))
    }
}
