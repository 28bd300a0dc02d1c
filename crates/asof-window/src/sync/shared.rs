//! A synchronizer that several threads feed.

use std::collections::VecDeque;
use std::sync::Arc;

use asof_core::Stamp;

use super::{Stamped, SyncEvent, Synchronizer};
use crate::lock::Lock;
use crate::{Connection, Window};

/// A synchronizer behind a lock, with a callback that is called outside of it.
///
/// Events are delivered one at a time and in order, on a thread that adds. A callback may add messages itself: what
/// follows from them is delivered when it has returned. Clones share the same synchronizer.
///
/// While a callback is busy, what others add waits: at most so many events as [`SharedSynchronizer::set_outbox`] says,
/// 64 unless told otherwise. Beyond that events are let go, and counted ([`SharedSynchronizer::stats`]).
pub struct SharedSynchronizer<V, S> {
    inner: Arc<Inner<V, S>>,
}

/// Which event goes when too many wait for a busy callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overflow {
    /// The one that has waited longest: the callback sees what is new.
    #[default]
    DropOldest,
    /// The one that has just come: the callback sees what comes without a gap for as long as there is room.
    DropNewest,
}

/// What became of the events of a [`SharedSynchronizer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedStats {
    /// Events that the callback was called with, or is being called with.
    pub delivered: u64,
    /// Events that wait for the callback.
    pub waiting: usize,
    /// Sets that were let go because too many events waited.
    pub sets_dropped: u64,
    /// Other events that were let go because too many waited.
    pub drops_untold: u64,
}

const OUTBOX: usize = 64;

struct Inner<V, S> {
    state: Lock<State<V, S>>,
    callback: Box<dyn Fn(SyncEvent<V>) + Send + Sync>,
}

struct State<V, S> {
    synchronizer: S,
    outbox: Outbox<V>,
    /// Messages in no set that nobody wants to know of. Each thread that adds takes one along and drops it after the
    /// lock: what a message does then is not for others to wait for. One in, one out: together with those that wait
    /// they are never more than the queues hold, and the allocator gets its memory back as evenly as it gave it.
    gone: Vec<V>,
    is_delivering: bool,
    wants_drops: bool,
}

/// Events that wait for the callback. Invariant: when the lock is given back there are at most `capacity`.
struct Outbox<V> {
    events: VecDeque<SyncEvent<V>>,
    capacity: usize,
    overflow: Overflow,
    stats: SharedStats,
}

impl<V> Outbox<V> {
    /// Takes out one event that is too much.
    #[cold]
    fn spill(&mut self) -> Option<SyncEvent<V>> {
        let event = match self.overflow {
            Overflow::DropOldest => self.events.pop_front(),
            Overflow::DropNewest => self.events.pop_back(),
        };
        match &event {
            Some(SyncEvent::Matched(_)) => self.stats.sets_dropped += 1,
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

    /// Calls `callback` with every set that `synchronizer` finds, and with nothing else: cheaper where most
    /// messages end up in none.
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
                capacity: OUTBOX,
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

    /// How many events may wait while the callback is busy (at least one), and which go when there are more.
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

    /// What became of the events so far.
    pub fn stats(&self) -> SharedStats {
        let state = self.inner.state.lock();
        SharedStats {
            waiting: state.outbox.events.len(),
            ..state.outbox.stats
        }
    }

    /// Takes in a message of topic `topic`, counted from zero.
    pub fn add(&self, topic: usize, stamp: Stamp, value: V) {
        // Declared before the lock is taken, so dropped after it.
        let _one_gone;
        let mut spilt = Vec::new();
        let mut guard = self.inner.state.lock();
        let state = &mut *guard;
        let (outbox, gone) = (&mut state.outbox, &mut state.gone);
        if state.wants_drops {
            let mut emit = |event| outbox.events.push_back(event);
            state.synchronizer.add(topic, stamp, value, &mut emit);
        } else {
            let mut found = |set| outbox.events.push_back(SyncEvent::Matched(set));
            let synchronizer = &mut state.synchronizer;
            synchronizer.add_for_sets(topic, stamp, value, &mut found, gone);
        }
        _one_gone = state.gone.pop();
        while state.outbox.is_full() {
            spilt.extend(state.outbox.spill());
        }
        // The thread that delivers already will find these, in order.
        if state.is_delivering || state.outbox.events.is_empty() {
            return;
        }
        state.is_delivering = true;
        let mut turn = Delivering {
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

/// Hands the turn to the next thread even if a callback panics.
struct Delivering<'a, V, S> {
    inner: &'a Inner<V, S>,
    is_done: bool,
}

impl<V, S> Drop for Delivering<'_, V, S> {
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
    /// Feeds every message that `window` takes in from now on to topic `topic`, until the connection is dropped.
    pub fn follow(&self, topic: usize, window: &Window<T>) -> Connection {
        let this = self.clone();
        window.on_insert(move |entry| this.add(topic, entry.stamp, Arc::clone(&entry.value)))
    }
}

impl<V, S> Clone for SharedSynchronizer<V, S> {
    fn clone(&self) -> Self {
        SharedSynchronizer {
            inner: Arc::clone(&self.inner),
        }
    }
}
