//! Approximate time with a fixed tolerance.

use std::collections::VecDeque;
use std::time::Duration;

use asof_align::Progress;
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
///
/// Beyond message_filters, a topic can be [optional](Self::with_optional), and sets can be emitted
/// [without the topics that are silent](Self::with_max_wait). Both give [`SyncEvent::Partial`]. Wrap it in
/// [`Shifted`](super::Shifted) for topics whose stamps are off by a constant, and in [`Sorted`](super::Sorted) for messages
/// that arrive out of order.
///
/// ```
/// use asof_window::sync::{ApproximateEpsilonTime, SyncEvent, Synchronizer};
/// use std::time::Duration;
///
/// let [near, wait] = [5, 50].map(Duration::from_nanos);
/// let mut sync = ApproximateEpsilonTime::new(3, 10, near).with_optional(2).with_max_wait(wait);
/// let mut sets = Vec::new();
/// for (topic, stamp) in [(0, 100), (1, 104), (0, 200), (0, 251)] {
///     sync.add(topic, stamp.into(), stamp, &mut |event: SyncEvent<i64>| {
///         let set = event.into_set().into_iter().flatten();
///         sets.push(set.map(|message| message.map(|message| message.value)).collect::<Vec<_>>());
///     });
/// }
/// assert_eq!(sets, [[Some(100), Some(104), None], [Some(200), None, None]]);
/// ```
pub struct ApproximateEpsilonTime<V> {
    queues: Vec<VecDeque<Stamped<V>>>,
    queue_size: usize,
    epsilon: u64,
    optional: Vec<bool>,
    max_wait: Option<i64>,
    /// The progress of all topics together.
    now: Progress,
}

impl<V> ApproximateEpsilonTime<V> {
    /// Joins `topics` topics, each with at most `queue_size` messages waiting (at least one).
    pub fn new(topics: usize, queue_size: usize, epsilon: Duration) -> Self {
        ApproximateEpsilonTime {
            queues: (0..topics).map(|_| VecDeque::new()).collect(),
            queue_size: queue_size.max(1),
            epsilon: u64::try_from(epsilon.as_nanos()).unwrap_or(u64::MAX),
            optional: vec![false; topics],
            max_wait: None,
            now: Progress::default(),
        }
    }

    /// Makes a topic optional: a set does not wait for it, and has its message where that has arrived by then.
    #[must_use]
    pub fn with_optional(mut self, topic: usize) -> Self {
        if let Some(is_optional) = self.optional.get_mut(topic) {
            *is_optional = true;
        }
        self
    }

    /// Sets the longest wait: once some topic is ahead of a message by more than this, its set is emitted without the topics
    /// that are missing. So is a set for which the other topics have only later messages. A set without any topic that
    /// is not optional is dropped.
    #[must_use]
    pub fn with_max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX));
        self
    }

    /// Advances time to `now`, by the clock of the stamps: waits end although nothing arrives.
    pub fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(SyncEvent<V>)) {
        self.now.note(now.nanos());
        self.process(emit);
    }

    pub(super) fn with_topics(mut self, topics: usize) -> Self {
        self.optional.resize(topics, false);
        ApproximateEpsilonTime {
            queues: (0..topics).map(|_| VecDeque::new()).collect(),
            ..self
        }
    }

    fn is_near(&self, oldest: Stamp, stamp: Stamp) -> bool {
        stamp.nanos().abs_diff(oldest.nanos()) <= self.epsilon
    }

    /// The oldest of the messages at the fronts; `None` while a topic is waited for.
    fn oldest(&self) -> Option<Stamp> {
        let fronts = self.queues.iter().filter_map(VecDeque::front);
        let oldest = fronts.map(|front| front.stamp).min()?;
        let is_over = self
            .max_wait
            .zip(self.now.newest())
            .is_some_and(|(wait, now)| now.saturating_sub(oldest.nanos()) > wait);
        let mut topics = self.queues.iter().zip(&self.optional);
        let is_ready = topics.all(|(queue, is_optional)| *is_optional || !queue.is_empty());
        (is_over || is_ready).then_some(oldest)
    }

    fn process(&mut self, emit: &mut dyn FnMut(SyncEvent<V>)) {
        while let Some(oldest) = self.oldest() {
            let is_near = |queue: &VecDeque<Stamped<V>>| {
                let front = queue.front();
                front.is_some_and(|front| self.is_near(oldest, front.stamp))
            };
            let near: Vec<bool> = self.queues.iter().map(is_near).collect();
            if near.iter().all(|is_near| *is_near) {
                let set = self.queues.iter_mut().filter_map(VecDeque::pop_front);
                emit(SyncEvent::Matched(set.collect()));
                continue;
            }
            let required = || near.iter().zip(&self.optional).filter(|(_, is)| !**is);
            let has_all = required().all(|(is_near, _)| *is_near);
            let has_any = required().any(|(is_near, _)| *is_near);
            let is_set = has_any && (has_all || self.max_wait.is_some());
            let fronts = self.queues.iter_mut().zip(near);
            let set = fronts.map(|(queue, is_near)| queue.pop_front_if(|_| is_near));
            let set: Vec<Option<Stamped<V>>> = set.collect();
            if is_set {
                emit(SyncEvent::Partial(set));
                continue;
            }
            for (topic, message) in set.into_iter().enumerate() {
                if let Some(message) = message {
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
    fn take_waiting(&mut self, gone: &mut Vec<V>) {
        let all = self.queues.iter_mut().flat_map(|queue| queue.drain(..));
        gone.extend(all.map(|message| message.value));
        self.now = Progress::default();
    }

    fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(SyncEvent<V>)) {
        ApproximateEpsilonTime::advance(self, now, emit);
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
        self.now.note(stamp.nanos());
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
