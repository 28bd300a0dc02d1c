//! The stamps of messages.

use std::sync::Arc;

use asof_align::On;
use asof_core::{Batch, Channel, MessageRef, Query, Source, SourceError, Stamp, Topics};
use asof_decode::{Decoders, Projection};

/// Reads only the stamps of messages.
pub struct Stamps(Decoders);

impl Default for Stamps {
    fn default() -> Self {
        Stamps(Decoders::new(Projection::stamp()))
    }
}

impl Stamps {
    /// The stamp of a message; `None` where it has none, or zero: an unset header.
    pub fn of(&mut self, message: MessageRef<'_>) -> Option<Stamp> {
        let stamp = self.0.stamp(message).ok().flatten();
        On::Stamp
            .known(stamp.map(Stamp::nanos))
            .map(Stamp::from_nanos)
    }

    /// Whether the type of a channel has a stamp.
    fn has_stamp(&mut self, channel: &Arc<Channel>) -> bool {
        let decoder = self.0.of(channel, &[]);
        decoder.is_ok_and(|decoder| decoder.has_stamp())
    }
}

/// The first of these topics that cannot be joined by its stamps: neither its last message nor its first one has any, or, where there
/// is no message yet, its type. `None` if all can: they are joined by them where nothing else is wanted. `last` are the last messages
/// of the topics.
pub fn topic_without_stamp<'a>(
    source: &dyn Source,
    last: &Batch,
    topics: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let mut stamps = Stamps::default();
    let summary = source.summary();
    let mut is_stamped = |topic: &str| {
        let last = last.iter().find(|last| last.channel.topic == topic);
        if last.is_some_and(|last| stamps.of(last).is_some()) {
            return true;
        }
        let channels = summary.channels.iter().map(|entry| &entry.channel);
        let mut channels = channels.filter(|channel| channel.topic == topic);
        if !channels.any(|channel| stamps.has_stamp(channel)) {
            return false;
        }
        let read = || source.read(&Query::topics([topic])).ok()?.next()?.ok();
        let first = last.and_then(|_| read());
        let first = first.as_ref().and_then(|batch| batch.get(0));
        last.is_none() || first.is_some_and(|first| stamps.of(first).is_some())
    };
    topics.into_iter().find(|topic| !is_stamped(topic))
}

/// The last messages of topics.
pub(super) fn last_of(source: &dyn Source, topics: &[&str]) -> Result<Batch, SourceError> {
    source.latest_at(&Topics::named(topics.iter().copied()), Stamp::MAX)
}
