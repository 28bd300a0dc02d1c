//! A synchronizer that several threads feed.

use std::collections::VecDeque;
use std::sync::Arc;

use asof_core::Stamp;

use super::{Event, Stamped, Synchronizer};
use crate::lock::Lock;
use crate::{Connection, Window};

/// A synchronizer behind a lock, with a callback that is called outside of it.
///
/// Events are delivered one at a time and in order, on a thread that adds. A callback may add messages itself: what
/// follows from them is delivered when it has returned. Clones share the same synchronizer.
pub struct SharedSynchronizer<V, S> {
    inner: Arc<Inner<V, S>>,
}

struct Inner<V, S> {
    state: Lock<State<V, S>>,
    callback: Box<dyn Fn(Event<V>) + Send + Sync>,
}

struct State<V, S> {
    synchronizer: S,
    outbox: VecDeque<Event<V>>,
    /// Messages in no set that nobody wants to know of. Each thread that adds takes one along and drops it behind the
    /// lock: what a message does then is not for others to wait for. One in, one out: together with those that wait
    /// they are never more than the queues hold, and the allocator gets its memory back as evenly as it gave it.
    gone: Vec<V>,
    is_delivering: bool,
    wants_drops: bool,
}

impl<V, S: Synchronizer<V>> SharedSynchronizer<V, S> {
    /// Calls `callback` with every event of `synchronizer`.
    pub fn new(synchronizer: S, callback: impl Fn(Event<V>) + Send + Sync + 'static) -> Self {
        Self::with(synchronizer, true, Box::new(callback))
    }

    /// Calls `callback` with every set that `synchronizer` finds, and with nothing else: cheaper where most
    /// messages end up in none.
    pub fn sets(
        synchronizer: S,
        callback: impl Fn(Vec<Stamped<V>>) + Send + Sync + 'static,
    ) -> Self {
        let callback = move |event| {
            if let Event::Matched(set) = event {
                callback(set);
            }
        };
        Self::with(synchronizer, false, Box::new(callback))
    }

    fn with(
        synchronizer: S,
        wants_drops: bool,
        callback: Box<dyn Fn(Event<V>) + Send + Sync>,
    ) -> Self {
        let state = State {
            synchronizer,
            outbox: VecDeque::new(),
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

    /// Takes in a message of topic `topic`, counted from zero.
    pub fn add(&self, topic: usize, stamp: Stamp, value: V) {
        // Declared before the lock is taken, so dropped behind it.
        let _one_gone;
        let mut guard = self.inner.state.lock();
        let state = &mut *guard;
        let (outbox, gone) = (&mut state.outbox, &mut state.gone);
        if state.wants_drops {
            let mut emit = |event| outbox.push_back(event);
            state.synchronizer.add(topic, stamp, value, &mut emit);
        } else {
            let mut found = |set| outbox.push_back(Event::Matched(set));
            let synchronizer = &mut state.synchronizer;
            synchronizer.add_for_sets(topic, stamp, value, &mut found, gone);
        }
        _one_gone = state.gone.pop();
        // Whoever delivers already will find these, in order.
        if state.is_delivering || state.outbox.is_empty() {
            return;
        }
        state.is_delivering = true;
        let mut batch = VecDeque::new();
        let mut turn = Delivering {
            inner: &self.inner,
            is_done: false,
        };
        loop {
            std::mem::swap(&mut batch, &mut guard.outbox);
            drop(guard);
            for event in batch.drain(..) {
                (self.inner.callback)(event);
            }
            guard = self.inner.state.lock();
            if guard.outbox.is_empty() {
                guard.is_delivering = false;
                turn.is_done = true;
                // Kept for the next time, so that delivering allocates nothing.
                std::mem::swap(&mut batch, &mut guard.outbox);
                return;
            }
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
