//! Putting one topic in order.

use std::collections::BTreeMap;
use std::time::Duration;

use asof_core::Stamp;

use super::{DropReason, Stamped, SyncEvent};

/// Passes messages on in the order of their stamps, each as soon as it is `delay` old.
///
/// Like message_filters' `TimeSequencer`, but the caller provides the time ([`TimeSequencer::advance`]), and
/// dropped messages are returned with a reason. Equal stamps are passed on in order of arrival.
///
/// ```
/// use asof_window::sync::{SyncEvent, TimeSequencer};
/// use std::time::Duration;
///
/// let mut sequencer = TimeSequencer::new(Duration::from_nanos(10), 100);
/// let mut out = Vec::new();
/// let mut emit = |event| if let SyncEvent::Matched(set) = event { out.push(set[0].value) };
/// sequencer.add(2.into(), "second", &mut emit);
/// sequencer.add(1.into(), "first", &mut emit);
/// sequencer.advance(12.into(), &mut emit);
/// assert_eq!(out, ["first", "second"]);
/// ```
pub struct TimeSequencer<V> {
    delay: i64,
    queue_size: usize,
    waiting: BTreeMap<(Stamp, u64), V>,
    arrivals: u64,
    released: Option<Stamp>,
}

impl<V> TimeSequencer<V> {
    /// Holds each message until it is `delay` old, and at most `queue_size` of them (zero means no limit).
    pub fn new(delay: Duration, queue_size: usize) -> Self {
        TimeSequencer {
            delay: i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX),
            queue_size,
            waiting: BTreeMap::new(),
            arrivals: 0,
            released: None,
        }
    }

    /// Adds a message. One that is older than the last one passed on is dropped.
    pub fn add(&mut self, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>)) {
        if self.released.is_some_and(|released| stamp < released) {
            emit(drop_event(stamp, value, DropReason::TooLate));
            return;
        }
        self.waiting.insert((stamp, self.arrivals), value);
        self.arrivals += 1;
        while self.queue_size > 0 && self.waiting.len() > self.queue_size {
            if let Some(((stamp, _), value)) = self.waiting.pop_first() {
                emit(drop_event(stamp, value, DropReason::QueueFull));
            }
        }
    }

    /// Passes on the messages that are old enough at `now`, each as a set of one.
    pub fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(SyncEvent<V>)) {
        while let Some(first) = self.waiting.first_entry() {
            let (stamp, _) = *first.key();
            if stamp.plus_nanos(self.delay) > now {
                return;
            }
            self.released = Some(stamp);
            let value = first.remove();
            emit(SyncEvent::Matched(vec![Stamped::new(stamp, value)]));
        }
    }

    /// The number of waiting messages.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

fn drop_event<V>(stamp: Stamp, value: V, reason: DropReason) -> SyncEvent<V> {
    SyncEvent::Dropped {
        topic: 0,
        message: Stamped::new(stamp, value),
        reason,
    }
}
