//! Exact time.

use std::collections::BTreeMap;

use asof_core::Stamp;

use super::{DropReason, Event, Stamped, Synchronizer, unknown};

/// Finds sets of messages with the same stamp, one of each topic, as message_filters' `ExactTime` does.
///
/// A complete set drops everything older. At most `queue_size` incomplete sets wait; zero is no limit.
pub struct ExactTime<V> {
    topics: usize,
    queue_size: usize,
    waiting: BTreeMap<Stamp, Slots<V>>,
}

struct Slots<V> {
    values: Vec<Option<V>>,
    filled: usize,
}

impl<V> ExactTime<V> {
    /// Joins `topics` topics, with at most `queue_size` incomplete sets waiting; zero is no limit.
    pub fn new(topics: usize, queue_size: usize) -> Self {
        ExactTime {
            topics,
            queue_size,
            waiting: BTreeMap::new(),
        }
    }

    /// Forgets everything that waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    fn drop_set(stamp: Stamp, slots: Slots<V>, reason: DropReason, emit: &mut dyn FnMut(Event<V>)) {
        for (topic, value) in slots.values.into_iter().enumerate() {
            if let Some(value) = value {
                let message = Stamped::new(stamp, value);
                emit(Event::Dropped {
                    topic,
                    message,
                    reason,
                });
            }
        }
    }
}

impl<V> Synchronizer<V> for ExactTime<V> {
    fn topics(&self) -> usize {
        self.topics
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(Event<V>)) {
        if topic >= self.topics {
            emit(unknown(topic, stamp, value));
            return;
        }
        let slots = self.waiting.entry(stamp).or_insert_with(|| Slots {
            values: (0..self.topics).map(|_| None).collect(),
            filled: 0,
        });
        match slots.values[topic].replace(value) {
            None => slots.filled += 1,
            Some(value) => emit(Event::Dropped {
                topic,
                message: Stamped::new(stamp, value),
                reason: DropReason::Replaced,
            }),
        }
        if slots.filled == self.topics {
            if let Some(complete) = self.waiting.remove(&stamp) {
                let values = complete.values.into_iter().flatten();
                emit(Event::Matched(
                    values.map(|value| Stamped::new(stamp, value)).collect(),
                ));
            }
            while let Some(first) = self.waiting.first_entry() {
                if *first.key() > stamp {
                    break;
                }
                let (stamp, slots) = first.remove_entry();
                Self::drop_set(stamp, slots, DropReason::Overtaken, emit);
            }
        }
        while self.queue_size > 0 && self.waiting.len() > self.queue_size {
            if let Some((stamp, slots)) = self.waiting.pop_first() {
                Self::drop_set(stamp, slots, DropReason::QueueFull, emit);
            }
        }
    }
}
