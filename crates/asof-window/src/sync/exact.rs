//! Exact time.

use std::collections::BTreeMap;

use asof_core::Stamp;

use super::{DropReason, Stamped, SyncEvent, Synchronizer, unknown};
use crate::Duplicates;

/// Finds sets of messages with the same stamp, one of each topic, as message_filters' `ExactTime` does.
///
/// A complete set drops everything older. At most `queue_size` incomplete sets wait; zero means no limit. Of two
/// messages of one topic with the same stamp the later replaces the earlier, as in message_filters, unless
/// [`ExactTime::with_duplicates`] changes that.
pub struct ExactTime<V> {
    topics: usize,
    queue_size: usize,
    duplicates: Duplicates,
    waiting: BTreeMap<Stamp, Slots<V>>,
}

struct Slots<V> {
    values: Vec<Option<V>>,
    filled: usize,
    /// Further messages of topics that already have one: each waits for its own set.
    further: Vec<(usize, V)>,
}

impl<V> Slots<V> {
    fn new(topics: usize) -> Self {
        Slots {
            values: (0..topics).map(|_| None).collect(),
            filled: 0,
            further: Vec::new(),
        }
    }

    /// Adds a message; one that is refused or replaced is returned.
    fn put(&mut self, topic: usize, value: V, duplicates: Duplicates) -> Option<V> {
        let place = &mut self.values[topic];
        match (duplicates, &place) {
            (_, None) => {
                *place = Some(value);
                self.filled += 1;
                None
            }
            (Duplicates::LastWins, Some(_)) => place.replace(value),
            (Duplicates::FirstWins, Some(_)) => Some(value),
            (Duplicates::KeepAll, Some(_)) => {
                self.further.push((topic, value));
                None
            }
        }
    }
}

impl<V> ExactTime<V> {
    /// Joins `topics` topics, with at most `queue_size` incomplete sets waiting; zero means no limit.
    pub fn new(topics: usize, queue_size: usize) -> Self {
        ExactTime {
            topics,
            queue_size,
            duplicates: Duplicates::LastWins,
            waiting: BTreeMap::new(),
        }
    }

    /// Sets what happens to messages of one topic with the same stamp. With [`Duplicates::KeepAll`] each waits for its
    /// own set; beside the first of each topic, at most `queue_size` messages of one stamp wait.
    #[must_use]
    pub fn with_duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// An empty one with the same settings for another number of topics.
    pub(super) fn with_topics(self, topics: usize) -> Self {
        ExactTime::new(topics, self.queue_size).with_duplicates(self.duplicates)
    }

    fn complete(&mut self, stamp: Stamp, emit: &mut dyn FnMut(SyncEvent<V>)) {
        let Some(complete) = self.waiting.remove(&stamp) else {
            return;
        };
        let values = complete.values.into_iter().flatten();
        let set = values.map(|value| Stamped::new(stamp, value)).collect();
        emit(SyncEvent::Matched(set));
        while let Some(first) = self.waiting.first_entry() {
            if *first.key() > stamp {
                break;
            }
            let (stamp, slots) = first.remove_entry();
            Self::drop_set(stamp, slots, DropReason::Overtaken, emit);
        }
        if !complete.further.is_empty() {
            let mut rest = Slots::new(self.topics);
            for (topic, value) in complete.further {
                // All are kept, so none is returned.
                rest.put(topic, value, Duplicates::KeepAll);
            }
            self.waiting.insert(stamp, rest);
        }
    }

    fn drop_set(
        stamp: Stamp,
        slots: Slots<V>,
        reason: DropReason,
        emit: &mut dyn FnMut(SyncEvent<V>),
    ) {
        let values = slots.values.into_iter().enumerate();
        let values = values.filter_map(|(topic, value)| Some((topic, value?)));
        for (topic, value) in values.chain(slots.further) {
            let message = Stamped::new(stamp, value);
            emit(SyncEvent::Dropped {
                topic,
                message,
                reason,
            });
        }
    }
}

impl<V> Synchronizer<V> for ExactTime<V> {
    fn take_waiting(&mut self, gone: &mut Vec<V>) {
        for (_, slots) in std::mem::take(&mut self.waiting) {
            gone.extend(slots.values.into_iter().flatten());
            gone.extend(slots.further.into_iter().map(|(_, value)| value));
        }
    }

    fn topics(&self) -> usize {
        self.topics
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>)) {
        if topic >= self.topics {
            emit(unknown(topic, stamp, value));
            return;
        }
        let topics = self.topics;
        let slots = self.waiting.entry(stamp);
        let slots = slots.or_insert_with(|| Slots::new(topics));
        if let Some(value) = slots.put(topic, value, self.duplicates) {
            emit(SyncEvent::Dropped {
                topic,
                message: Stamped::new(stamp, value),
                reason: DropReason::Replaced,
            });
        }
        if self.queue_size > 0 && slots.further.len() > self.queue_size {
            let (topic, value) = slots.further.remove(0);
            emit(SyncEvent::Dropped {
                topic,
                message: Stamped::new(stamp, value),
                reason: DropReason::QueueFull,
            });
        }
        if slots.filled == topics {
            self.complete(stamp, emit);
        }
        while self.queue_size > 0 && self.waiting.len() > self.queue_size {
            if let Some((stamp, slots)) = self.waiting.pop_first() {
                Self::drop_set(stamp, slots, DropReason::QueueFull, emit);
            }
        }
    }
}
