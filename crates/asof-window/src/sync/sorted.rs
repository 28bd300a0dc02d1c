//! Messages in order for a synchronizer.

use std::collections::BTreeMap;
use std::time::Duration;

use asof_align::Progress;
use asof_core::Stamp;

use super::{DropReason, Stamped, SyncEvent, Synchronizer};

/// A synchronizer that gets its messages in the order of their stamps: each waits until a message of any topic is ahead of it
/// by the lateness.
///
/// The sets of [`ApproximateTime`](super::ApproximateTime) are the best ones only for messages in order. A message that
/// arrives later than that is dropped ([`DropReason::TooLate`]). One stamp far ahead of all others lets nothing pass.
///
/// ```
/// use asof_window::sync::{ApproximateTime, Sorted, SyncEvent, Synchronizer};
/// use std::time::Duration;
///
/// let mut sync = Sorted::new(ApproximateTime::new(2, 10), 100, Duration::from_nanos(50));
/// let mut sets = Vec::new();
/// for (topic, stamp) in [(0, 200), (0, 190), (1, 191), (1, 201), (0, 300), (1, 301), (0, 400)] {
///     sync.add(topic, stamp.into(), stamp, &mut |event| {
///         if let SyncEvent::Matched(set) = event {
///             sets.push((set[0].value, set[1].value));
///         }
///     });
/// }
/// assert_eq!(sets, [(190, 191), (200, 201)]);
/// ```
pub struct Sorted<V, S> {
    inner: S,
    queue_size: usize,
    lateness: i64,
    /// By stamp, then by arrival.
    waiting: BTreeMap<(i64, u64), (usize, V)>,
    arrivals: u64,
    now: Progress,
    released: Option<i64>,
}

impl<V, S: Synchronizer<V>> Sorted<V, S> {
    /// Holds messages for this lateness, and at most `queue_size` of them: of more, the earliest passes at once.
    pub fn new(synchronizer: S, queue_size: usize, lateness: Duration) -> Self {
        Sorted {
            inner: synchronizer,
            queue_size: queue_size.max(1),
            lateness: i64::try_from(lateness.as_nanos()).unwrap_or(i64::MAX),
            waiting: BTreeMap::new(),
            arrivals: 0,
            now: Progress::default(),
            released: None,
        }
    }

    /// Advances time to `now`, by the clock of the stamps: messages pass although nothing arrives.
    pub fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(SyncEvent<V>)) {
        self.advance_with_gone(now, emit, &mut Vec::new());
    }

    /// The synchronizer inside.
    pub fn inner(&mut self) -> &mut S {
        &mut self.inner
    }

    fn release(&mut self, emit: &mut dyn FnMut(SyncEvent<V>), gone: &mut Vec<V>) {
        let now = self.now.newest().unwrap_or(i64::MIN);
        while let Some(first) = self.waiting.first_entry() {
            let (stamp, _) = *first.key();
            let is_old = now.saturating_sub(stamp) >= self.lateness;
            if !is_old && self.waiting.len() <= self.queue_size {
                return;
            }
            if let Some(((stamp, _), (topic, value))) = self.waiting.pop_first() {
                self.released = Some(stamp);
                self.inner
                    .add_with_gone(topic, stamp.into(), value, emit, gone);
            }
        }
    }
}

impl<V, S: Synchronizer<V>> Synchronizer<V> for Sorted<V, S> {
    fn topics(&self) -> usize {
        self.inner.topics()
    }

    fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(SyncEvent<V>)) {
        Sorted::advance(self, now, emit);
    }

    fn advance_with_gone(
        &mut self,
        now: Stamp,
        emit: &mut dyn FnMut(SyncEvent<V>),
        gone: &mut Vec<V>,
    ) {
        self.now.note(now.nanos());
        self.release(emit, gone);
        // What it is given is older than this.
        let passed = now.plus_nanos(self.lateness.saturating_neg());
        self.inner.advance_with_gone(passed, emit, gone);
    }

    fn take_waiting(&mut self, gone: &mut Vec<V>) {
        self.inner.take_waiting(gone);
        let waiting = std::mem::take(&mut self.waiting);
        gone.extend(waiting.into_values().map(|(_, value)| value));
        self.now = Progress::default();
        self.released = None;
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>)) {
        self.add_with_gone(topic, stamp, value, emit, &mut Vec::new());
    }

    fn add_with_gone(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        emit: &mut dyn FnMut(SyncEvent<V>),
        gone: &mut Vec<V>,
    ) {
        let nanos = stamp.nanos();
        if self.released.is_some_and(|released| nanos < released) {
            emit(SyncEvent::Dropped {
                topic,
                message: Stamped::new(stamp, value),
                reason: DropReason::TooLate,
            });
            return;
        }
        self.now.note(nanos);
        self.waiting.insert((nanos, self.arrivals), (topic, value));
        self.arrivals += 1;
        self.release(emit, gone);
    }
}
