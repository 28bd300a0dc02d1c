//! A synchronizer for several threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asof_core::Stamp;

use super::{Stamped, SyncEvent, Synchronizer};
use crate::lock::Lock;
use crate::{Connection, Window};

/// A synchronizer under a lock, with a callback that is called outside of it.
///
/// Events are delivered one at a time and in order, on a thread that adds. A callback may add messages itself: the
/// resulting events are delivered after it returns. Clones share the same synchronizer.
///
/// While a callback is busy, further events wait in an outbox: 64 by default, see [`SharedSynchronizer::set_outbox`].
/// Beyond that events are dropped and counted ([`SharedSynchronizer::stats`]).
pub struct SharedSynchronizer<V, S> {
    inner: Arc<Inner<V, S>>,
}

/// Which event is dropped when too many wait for a busy callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overflow {
    /// The one that has waited longest: the callback sees the newest.
    #[default]
    DropOldest,
    /// The one that has just arrived: the callback sees events without a gap as long as there is room.
    DropNewest,
}

/// Counts of the events of a [`SharedSynchronizer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedStats {
    /// Events that the callback was called with, or is being called with.
    pub delivered: u64,
    /// Events that wait for the callback.
    pub waiting: usize,
    /// Sets dropped because too many events waited.
    pub sets_dropped: u64,
    /// Other events dropped because too many waited.
    pub drops_untold: u64,
    /// Messages that are in no set: dropped by the synchronizer, or waiting when it was cleared.
    pub unmatched: u64,
}

const DEFAULT_OUTBOX: usize = 64;

struct Inner<V, S> {
    state: Lock<State<V, S>>,
    callback: Box<dyn Fn(SyncEvent<V>) + Send + Sync>,
}

struct State<V, S> {
    synchronizer: S,
    outbox: Outbox<V>,
    /// Messages in no set, without a listener, and messages that were replaced. Each thread that adds takes one out and drops it after the lock, so
    /// other threads do not wait for its destructor. One in, one out: together with the waiting messages they are
    /// never more than the queues hold, and memory is freed as evenly as it was allocated.
    gone: Vec<V>,
    is_delivering: bool,
    wants_drops: bool,
}

/// Events that wait for the callback. Invariant: when the lock is released there are at most `capacity`.
struct Outbox<V> {
    events: VecDeque<SyncEvent<V>>,
    capacity: usize,
    overflow: Overflow,
    stats: SharedStats,
}

impl<V> Outbox<V> {
    fn push(&mut self, event: SyncEvent<V>) {
        self.stats.unmatched += u64::from(matches!(event, SyncEvent::Dropped { .. }));
        self.events.push_back(event);
    }

    /// Removes one event above the capacity.
    #[cold]
    fn spill(&mut self) -> Option<SyncEvent<V>> {
        let event = match self.overflow {
            Overflow::DropOldest => self.events.pop_front(),
            Overflow::DropNewest => self.events.pop_back(),
        };
        match &event {
            Some(SyncEvent::Matched(_) | SyncEvent::Partial(_)) => self.stats.sets_dropped += 1,
            Some(SyncEvent::Dropped { .. }) => self.stats.drops_untold += 1,
            None => {}
        }
        event
    }

    fn is_full(&self) -> bool {
        self.events.len() > self.capacity
    }
}

impl<V, S: Synchronizer<V>> SharedSynchronizer<V, S> {
    /// Calls `callback` with every event of `synchronizer`.
    pub fn new(synchronizer: S, callback: impl Fn(SyncEvent<V>) + Send + Sync + 'static) -> Self {
        Self::with(synchronizer, true, Box::new(callback))
    }

    /// Calls `callback` only with the sets that `synchronizer` finds: cheaper if most messages are in none.
    pub fn sets(
        synchronizer: S,
        callback: impl Fn(Vec<Stamped<V>>) + Send + Sync + 'static,
    ) -> Self {
        let callback = move |event| {
            if let SyncEvent::Matched(set) = event {
                callback(set);
            }
        };
        Self::with(synchronizer, false, Box::new(callback))
    }

    fn with(
        synchronizer: S,
        wants_drops: bool,
        callback: Box<dyn Fn(SyncEvent<V>) + Send + Sync>,
    ) -> Self {
        let state = State {
            synchronizer,
            outbox: Outbox {
                events: VecDeque::new(),
                capacity: DEFAULT_OUTBOX,
                overflow: Overflow::default(),
                stats: SharedStats::default(),
            },
            gone: Vec::new(),
            is_delivering: false,
            wants_drops,
        };
        SharedSynchronizer {
            inner: Arc::new(Inner {
                state: Lock::new(state),
                callback,
            }),
        }
    }

    /// Sets how many events may wait while the callback is busy (at least one), and which are dropped when there are
    /// more.
    pub fn set_outbox(&self, events: usize, overflow: Overflow) {
        let mut spilt = Vec::new();
        let mut state = self.inner.state.lock();
        state.outbox.capacity = events.max(1);
        state.outbox.overflow = overflow;
        while state.outbox.is_full() {
            spilt.extend(state.outbox.spill());
        }
        drop(state);
    }

    /// The counts so far.
    pub fn stats(&self) -> SharedStats {
        let state = self.inner.state.lock();
        SharedStats {
            waiting: state.outbox.events.len(),
            ..state.outbox.stats
        }
    }

    /// Drops all messages that wait for a set, as for a clock that was set back. Events that wait for the callback stay.
    pub fn clear(&self) {
        // Dropped after the lock.
        let mut gone = Vec::new();
        let mut state = self.inner.state.lock();
        state.synchronizer.take_waiting(&mut gone);
        state.outbox.stats.unmatched += gone.len() as u64;
        gone.append(&mut state.gone);
        drop(state);
    }

    /// Adds a message of topic `topic`, counted from zero.
    pub fn add(&self, topic: usize, stamp: Stamp, value: V) {
        self.change(|state| {
            let (outbox, gone) = (&mut state.outbox, &mut state.gone);
            if state.wants_drops {
                let mut emit = |event| outbox.push(event);
                let synchronizer = &mut state.synchronizer;
                synchronizer.add_with_gone(topic, stamp, value, &mut emit, gone);
            } else {
                let before = gone.len();
                let mut found = |set| outbox.push(SyncEvent::Matched(set));
                let synchronizer = &mut state.synchronizer;
                synchronizer.add_for_sets(topic, stamp, value, &mut found, gone);
                outbox.stats.unmatched += (gone.len() - before) as u64;
            }
        });
    }

    /// Advances time to `now`, see [`Synchronizer::advance`].
    pub fn advance(&self, now: Stamp) {
        // Dropped after the lock.
        let (mut gone, mut unmatched) = (Vec::new(), Vec::new());
        self.change(|state| {
            let (outbox, wants_drops) = (&mut state.outbox, state.wants_drops);
            let mut emit = |event| match event {
                SyncEvent::Dropped { message, .. } if !wants_drops => {
                    outbox.stats.unmatched += 1;
                    unmatched.push(message.value);
                }
                event => outbox.push(event),
            };
            let synchronizer = &mut state.synchronizer;
            synchronizer.advance_with_gone(now, &mut emit, &mut gone);
        });
    }

    /// Changes the state, and delivers the events that come of it.
    #[inline]
    fn change(&self, change: impl FnOnce(&mut State<V, S>)) {
        // Declared before the lock is taken, so dropped after it.
        let _one_gone;
        let mut spilt = Vec::new();
        let mut guard = self.inner.state.lock();
        let state = &mut *guard;
        change(state);
        _one_gone = state.gone.pop();
        while state.outbox.is_full() {
            spilt.extend(state.outbox.spill());
        }
        // The thread that is already delivering will find these, in order.
        if state.is_delivering || state.outbox.events.is_empty() {
            return;
        }
        state.is_delivering = true;
        let mut turn = DeliveryTurn {
            inner: &self.inner,
            is_done: false,
        };
        loop {
            let Some(event) = guard.outbox.events.pop_front() else {
                guard.is_delivering = false;
                turn.is_done = true;
                return;
            };
            guard.outbox.stats.delivered += 1;
            drop(guard);
            (self.inner.callback)(event);
            guard = self.inner.state.lock();
        }
    }
}

/// Passes delivery on to the next thread even if a callback panics.
struct DeliveryTurn<'a, V, S> {
    inner: &'a Inner<V, S>,
    is_done: bool,
}

impl<V, S> Drop for DeliveryTurn<'_, V, S> {
    fn drop(&mut self) {
        if !self.is_done {
            self.inner.state.lock().is_delivering = false;
        }
    }
}

impl<T, S> SharedSynchronizer<Arc<T>, S>
where
    T: Send + Sync + 'static,
    S: Synchronizer<Arc<T>> + Send + 'static,
{
    /// Feeds every message inserted into `window` from now on to topic `topic`, until the connection is dropped. When the
    /// window starts over, because its clock was set back, the synchronizer does too.
    pub fn follow(&self, topic: usize, window: &Window<T>) -> Connection {
        self.follow_as(topic, window, |value| value)
    }
}

impl<V, S> SharedSynchronizer<V, S>
where
    V: Send + 'static,
    S: Synchronizer<V> + Send + 'static,
{
    /// The same with messages made of those of the window.
    pub(super) fn follow_as<T: Send + Sync + 'static>(
        &self,
        topic: usize,
        window: &Window<T>,
        wrap: fn(Arc<T>) -> V,
    ) -> Connection {
        let this = self.clone();
        let known = AtomicU64::new(window.stats().restarts);
        window.on_insert_counted(move |entry, restarts| {
            if known.fetch_max(restarts, Ordering::Relaxed) < restarts {
                this.clear();
            }
            this.add(topic, entry.stamp, wrap(Arc::clone(&entry.value)));
        })
    }
}

impl<V, S> Clone for SharedSynchronizer<V, S> {
    fn clone(&self) -> Self {
        SharedSynchronizer {
            inner: Arc::clone(&self.inner),
        }
    }
}
