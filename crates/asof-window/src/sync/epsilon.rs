//! Approximate time with a fixed tolerance.

use std::collections::VecDeque;
use std::time::Duration;

use asof_core::Stamp;

use super::{DropReason, Stamped, SyncEvent, Synchronizer, unknown};

/// Finds sets of messages that are all within `epsilon` of the oldest of them, one of each topic.
///
/// The sets of message_filters' `ApproximateEpsilonTime`. Each topic's oldest messages are compared: if all are near
/// enough they are a set; if not, those near the oldest are dropped. It decides at once, which
/// [`ApproximateTime`](super::ApproximateTime) cannot, and takes the first set within the tolerance, not the best.
///
/// ```
/// use asof_window::sync::{ApproximateEpsilonTime, SyncEvent, Synchronizer};
/// use std::time::Duration;
///
/// let mut sync = ApproximateEpsilonTime::new(2, 10, Duration::from_nanos(5));
/// let mut sets = Vec::new();
/// for (topic, stamp) in [(0, 100), (1, 104), (0, 200), (1, 206), (0, 207)] {
///     sync.add(topic, stamp.into(), stamp, &mut |event| {
///         if let SyncEvent::Matched(set) = event {
///             sets.push((set[0].value, set[1].value));
///         }
///     });
/// }
/// assert_eq!(sets, [(100, 104), (207, 206)]);
/// ```
pub struct ApproximateEpsilonTime<V> {
    queues: Vec<VecDeque<Stamped<V>>>,
    queue_size: usize,
    epsilon: u64,
}

impl<V> ApproximateEpsilonTime<V> {
    /// Joins `topics` topics, each with at most `queue_size` messages waiting (at least one).
    pub fn new(topics: usize, queue_size: usize, epsilon: Duration) -> Self {
        ApproximateEpsilonTime {
            queues: (0..topics).map(|_| VecDeque::new()).collect(),
            queue_size: queue_size.max(1),
            epsilon: u64::try_from(epsilon.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Drops all waiting messages.
    pub fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
    }

    pub(super) fn with_topics(self, topics: usize) -> Self {
        ApproximateEpsilonTime {
            queues: (0..topics).map(|_| VecDeque::new()).collect(),
            ..self
        }
    }

    fn is_near(&self, oldest: Stamp, stamp: Stamp) -> bool {
        stamp.nanos().abs_diff(oldest.nanos()) <= self.epsilon
    }

    /// The oldest of the messages at the fronts; `None` while a topic has none.
    fn oldest(&self) -> Option<Stamp> {
        let fronts = self.queues.iter().map(|queue| Some(queue.front()?.stamp));
        let fronts: Option<Vec<Stamp>> = fronts.collect();
        fronts?.into_iter().min()
    }

    fn process(&mut self, emit: &mut dyn FnMut(SyncEvent<V>)) {
        while let Some(oldest) = self.oldest() {
            let fronts = self.queues.iter().filter_map(VecDeque::front);
            if fronts
                .clone()
                .all(|front| self.is_near(oldest, front.stamp))
            {
                let set = self.queues.iter_mut().filter_map(VecDeque::pop_front);
                emit(SyncEvent::Matched(set.collect()));
                continue;
            }
            for topic in 0..self.queues.len() {
                let front = self.queues[topic].front();
                if !front.is_some_and(|front| self.is_near(oldest, front.stamp)) {
                    continue;
                }
                if let Some(message) = self.queues[topic].pop_front() {
                    emit(SyncEvent::Dropped {
                        topic,
                        message,
                        reason: DropReason::IntervalTooLong,
                    });
                }
            }
        }
    }
}

impl<V> Synchronizer<V> for ApproximateEpsilonTime<V> {
    fn clear(&mut self) {
        ApproximateEpsilonTime::clear(self);
    }

    fn topics(&self) -> usize {
        self.queues.len()
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>)) {
        let Some(queue) = self.queues.get_mut(topic) else {
            emit(unknown(topic, stamp, value));
            return;
        };
        queue.push_back(Stamped::new(stamp, value));
        let is_full = queue.len() > self.queue_size;
        self.process(emit);
        if is_full
            && self.queues[topic].len() > self.queue_size
            && let Some(message) = self.queues[topic].pop_front()
        {
            emit(SyncEvent::Dropped {
                topic,
                message,
                reason: DropReason::QueueFull,
            });
        }
    }
}
