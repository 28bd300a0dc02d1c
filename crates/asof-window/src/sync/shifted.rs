//! Topics whose stamps are off by a constant.

use asof_core::Stamp;

use super::{Stamped, SyncEvent, Synchronizer};

/// A synchronizer that adds an offset to the stamps of a topic before it compares them: for a sensor whose clock or whose
/// exposure is off by a known time. Messages in sets have their own stamps.
///
/// ```
/// use asof_window::sync::{ExactTime, Shifted, SyncEvent, Synchronizer};
///
/// // The camera stamps the end of an exposure of 30 ns.
/// let mut sync = Shifted::new(ExactTime::new(2, 10)).with_offset(1, -30);
/// let mut sets = Vec::new();
/// for (topic, stamp) in [(0, 100), (1, 130)] {
///     sync.add(topic, stamp.into(), stamp, &mut |event| {
///         if let SyncEvent::Matched(set) = event {
///             sets.push((set[0].stamp, set[1].stamp));
///         }
///     });
/// }
/// assert_eq!(sets, [(100.into(), 130.into())]);
/// ```
pub struct Shifted<S> {
    inner: S,
    /// By topic; zero for those that are not there.
    offsets: Vec<i64>,
}

impl<S> Shifted<S> {
    /// Compares the stamps unchanged, until offsets are set.
    pub fn new(synchronizer: S) -> Self {
        Shifted {
            inner: synchronizer,
            offsets: Vec::new(),
        }
    }

    /// Sets what is added to the stamps of a topic, in nanoseconds.
    #[must_use]
    pub fn with_offset(mut self, topic: usize, nanos: i64) -> Self {
        if self.offsets.len() <= topic {
            self.offsets.resize(topic + 1, 0);
        }
        self.offsets[topic] = nanos;
        self
    }

    /// The synchronizer inside.
    pub fn inner(&mut self) -> &mut S {
        &mut self.inner
    }
}

fn offset(offsets: &[i64], topic: usize) -> i64 {
    offsets.get(topic).copied().unwrap_or(0)
}

fn back<V>(offsets: &[i64], topic: usize, message: Stamped<V>) -> Stamped<V> {
    let own = offset(offsets, topic).saturating_neg();
    Stamped::new(message.stamp.plus_nanos(own), message.value)
}

/// An event whose messages have their own stamps again.
fn unshifted<V>(offsets: &[i64], event: SyncEvent<V>) -> SyncEvent<V> {
    match event {
        SyncEvent::Matched(set) => {
            let set = set.into_iter().enumerate();
            let set = set.map(|(topic, message)| back(offsets, topic, message));
            SyncEvent::Matched(set.collect())
        }
        SyncEvent::Partial(set) => {
            let set = set.into_iter().enumerate();
            let set =
                set.map(|(topic, message)| message.map(|message| back(offsets, topic, message)));
            SyncEvent::Partial(set.collect())
        }
        SyncEvent::Dropped {
            topic,
            message,
            reason,
        } => SyncEvent::Dropped {
            topic,
            message: back(offsets, topic, message),
            reason,
        },
    }
}

impl<V, S: Synchronizer<V>> Synchronizer<V> for Shifted<S> {
    fn topics(&self) -> usize {
        self.inner.topics()
    }

    fn take_waiting(&mut self, gone: &mut Vec<V>) {
        self.inner.take_waiting(gone);
    }

    fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(SyncEvent<V>)) {
        self.advance_with_gone(now, emit, &mut Vec::new());
    }

    fn advance_with_gone(
        &mut self,
        now: Stamp,
        emit: &mut dyn FnMut(SyncEvent<V>),
        gone: &mut Vec<V>,
    ) {
        let offsets = &self.offsets;
        let mut own = |event| emit(unshifted(offsets, event));
        self.inner.advance_with_gone(now, &mut own, gone);
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
        let offsets = &self.offsets;
        let shifted = stamp.plus_nanos(offset(offsets, topic));
        let mut own = |event| emit(unshifted(offsets, event));
        self.inner
            .add_with_gone(topic, shifted, value, &mut own, gone);
    }
}
