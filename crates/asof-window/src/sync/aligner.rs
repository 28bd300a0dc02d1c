//! Merging several topics in order of their stamps.

use std::collections::BTreeMap;
use std::time::Duration;

use asof_core::Stamp;

use super::{DropReason, Stamped};

/// Passes the messages of several topics on in the order of their stamps, whatever their delays.
///
/// Like message_filters' `InputAligner`. A message is passed on when no topic can have an earlier one: each topic that
/// has sent something is waited for, up to the time of its next message if its period is known
/// ([`InputAligner::with_period`]). A topic that lags the newest message by the timeout is not waited for until it
/// sends again. A message older than the last one passed on is dropped, and so is the oldest of a topic with too many
/// waiting. Time is that of the messages; no clock is used.
///
/// ```
/// use asof_window::sync::{AlignerEvent, InputAligner};
/// use std::time::Duration;
///
/// let mut aligner = InputAligner::new(2, 100, Duration::from_millis(100));
/// let mut order = Vec::new();
/// let mut emit = |event| {
///     if let AlignerEvent::Passed { topic, message } = event {
///         order.push((topic, message.value));
///     }
/// };
/// aligner.add(0, 3.into(), "scan 3", &mut emit);
/// aligner.add(1, 2.into(), "imu 2", &mut emit);
/// aligner.add(1, 4.into(), "imu 4", &mut emit);
/// aligner.dispatch(&mut emit);
/// assert_eq!(order, [(1, "imu 2"), (0, "scan 3")]);
/// ```
pub struct InputAligner<V> {
    inputs: Vec<Input<V>>,
    queue_size: usize,
    timeout: i64,
    last_in: Option<i64>,
    last_out: Option<i64>,
    arrivals: u64,
}

struct Input<V> {
    waiting: BTreeMap<(i64, u64), V>,
    /// When the next message is expected, once one was seen.
    next: i64,
    period: i64,
    stats: InputStats,
}

/// An event of an [`InputAligner`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlignerEvent<V> {
    /// The next message in order.
    Passed {
        /// Its topic.
        topic: usize,
        /// The message.
        message: Stamped<V>,
    },
    /// This message is not passed on.
    Dropped {
        /// Its topic.
        topic: usize,
        /// The message.
        message: Stamped<V>,
        /// Why it was dropped.
        reason: DropReason,
    },
}

/// The state and counts of a topic of an [`InputAligner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputStats {
    /// Whether it is waited for.
    pub is_active: bool,
    /// Waiting messages.
    pub waiting: usize,
    /// Messages that were passed on.
    pub passed: u64,
    /// Messages that were dropped: too late, or too many.
    pub dropped: u64,
}

impl<V> InputAligner<V> {
    /// Aligns `topics` topics, each with at most `queue_size` messages waiting (at least one). A topic that lags by
    /// `timeout` is not waited for.
    pub fn new(topics: usize, queue_size: usize, timeout: Duration) -> Self {
        let input = || Input {
            waiting: BTreeMap::new(),
            next: i64::MAX,
            period: 0,
            stats: InputStats::default(),
        };
        InputAligner {
            inputs: (0..topics).map(|_| input()).collect(),
            queue_size: queue_size.max(1),
            timeout: nanos(timeout),
            last_in: None,
            last_out: None,
            arrivals: 0,
        }
    }

    /// Declares that two messages of this topic are never closer than this: others need not wait for it that long.
    #[must_use]
    pub fn with_period(mut self, topic: usize, period: Duration) -> Self {
        if let Some(input) = self.inputs.get_mut(topic) {
            input.period = nanos(period);
        }
        self
    }

    /// Adds a message. [`InputAligner::dispatch`] passes it on.
    pub fn add(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        emit: &mut dyn FnMut(AlignerEvent<V>),
    ) {
        let message = Stamped::new(stamp, value);
        let dropped = |message, reason| AlignerEvent::Dropped {
            topic,
            message,
            reason,
        };
        let Some(input) = self.inputs.get_mut(topic) else {
            emit(dropped(message, DropReason::UnknownTopic));
            return;
        };
        let nanos = stamp.nanos();
        if self.last_out.is_some_and(|last| nanos < last) {
            input.stats.dropped += 1;
            emit(dropped(message, DropReason::TooLate));
            return;
        }
        self.last_in = self.last_in.max(Some(nanos));
        input.waiting.insert((nanos, self.arrivals), message.value);
        self.arrivals += 1;
        if input.waiting.len() > self.queue_size
            && let Some(((stamp, _), value)) = input.waiting.pop_first()
        {
            input.stats.dropped += 1;
            let oldest = Stamped::new(stamp.into(), value);
            emit(dropped(oldest, DropReason::QueueFull));
        }
    }

    /// Passes on every message that no earlier one can precede.
    pub fn dispatch(&mut self, emit: &mut dyn FnMut(AlignerEvent<V>)) {
        if self.inputs.iter().all(|input| input.waiting.is_empty()) {
            return;
        }
        while let Some(first) = self.first() {
            let input = &mut self.inputs[first];
            if let Some(((stamp, _), value)) = input.waiting.pop_first() {
                input.stats.passed += 1;
                self.last_out = Some(stamp);
                emit(AlignerEvent::Passed {
                    topic: first,
                    message: Stamped::new(stamp.into(), value),
                });
                continue;
            }
            let lag = self
                .last_in
                .map_or(0, |last| last.saturating_sub(input.next));
            if lag < self.timeout {
                return;
            }
            input.stats.is_active = false;
        }
    }

    /// The state and counts of a topic.
    pub fn stats(&self, topic: usize) -> Option<InputStats> {
        let input = self.inputs.get(topic)?;
        Some(InputStats {
            waiting: input.waiting.len(),
            ..input.stats
        })
    }

    /// The topic with the next message, present or expected; `None` if there is none.
    fn first(&mut self) -> Option<usize> {
        let expected = self.inputs.iter_mut().map(|input| {
            if let Some((&(stamp, _), _)) = input.waiting.first_key_value() {
                input.next = stamp.saturating_add(input.period);
                input.stats.is_active = true;
                return Some(stamp);
            }
            input.stats.is_active.then_some(input.next)
        });
        let expected = expected.enumerate();
        let known = expected.filter_map(|(topic, stamp)| Some((stamp?, topic)));
        known.min().map(|(_, topic)| topic)
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
