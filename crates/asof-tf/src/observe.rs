//! Watching a buffer: the latest transform of every edge, and then every update.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::name::FrameName;
use crate::sync::locked;

/// One transform, as it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The parent frame.
    pub parent: FrameName,
    /// The child frame.
    pub child: FrameName,
    /// The stamp; `None` for a static edge, which holds for all times.
    pub stamp: Option<Stamp>,
    /// The pose of the child in the parent.
    pub isometry: Isometry3<f64>,
}

/// Receives the latest transform of every edge, and then every update, each once.
///
/// Updates wait in a bounded queue. An observer that is too slow loses the oldest;
/// [`missed`](Observer::missed) counts them. Writers never wait for an observer.
pub struct Observer {
    queue: Arc<Queue>,
    /// The latest of every edge, at the time of registration.
    first: VecDeque<Update>,
}

/// All observers of a buffer.
#[derive(Default)]
pub(crate) struct Observers {
    count: AtomicUsize,
    queues: Mutex<Vec<Arc<Queue>>>,
}

pub(crate) struct Queue {
    capacity: usize,
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

struct Waiting {
    updates: VecDeque<Update>,
    missed: u64,
    is_closed: bool,
    /// While the first transforms are being collected: the edges (by number of the child) that are
    /// done. Updates of others will be among the first transforms.
    gathered: Option<HashSet<u32>>,
}

impl Observer {
    pub(crate) fn new(queue: Arc<Queue>, first: VecDeque<Update>) -> Self {
        Observer { queue, first }
    }

    /// The next transform, if there is one now.
    pub fn try_next(&mut self) -> Option<Update> {
        self.first
            .pop_front()
            .or_else(|| locked(&self.queue.waiting).updates.pop_front())
    }

    /// The next transform; waits up to `timeout` for it.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Update> {
        if let Some(update) = self.try_next() {
            return Some(update);
        }
        let deadline = Instant::now().checked_add(timeout);
        let mut waiting = locked(&self.queue.waiting);
        loop {
            if let Some(update) = waiting.updates.pop_front() {
                return Some(update);
            }
            let left = match deadline {
                Some(deadline) => deadline.checked_duration_since(Instant::now())?,
                None => Duration::from_hours(1),
            };
            waiting = self
                .queue
                .ready
                .wait_timeout(waiting, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// All transforms available now, oldest first.
    pub fn drain(&mut self) -> Vec<Update> {
        let mut all: Vec<Update> = self.first.drain(..).collect();
        all.extend(locked(&self.queue.waiting).updates.drain(..));
        all
    }

    /// The number of updates lost because this observer was too slow.
    pub fn missed(&self) -> u64 {
        locked(&self.queue.waiting).missed
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        locked(&self.queue.waiting).is_closed = true;
    }
}

impl Observers {
    /// Whether there is an observer. Called by a writer that holds its edge's latch.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// A new queue, which accepts updates of an edge once [`Queue::gather`] was called for it.
    pub(crate) fn add(&self, capacity: usize) -> Arc<Queue> {
        let queue = Arc::new(Queue {
            capacity: capacity.max(1),
            waiting: Mutex::new(Waiting {
                updates: VecDeque::new(),
                missed: 0,
                is_closed: false,
                gathered: Some(HashSet::new()),
            }),
            ready: Condvar::new(),
        });
        let mut queues = locked(&self.queues);
        queues.push(Arc::clone(&queue));
        self.count.store(queues.len(), Ordering::Relaxed);
        queue
    }

    /// Sends an update to every observer. The writer holds the edge's latch, so updates of an edge
    /// stay in order.
    #[cold]
    pub(crate) fn publish(&self, child: u32, update: &Update) {
        let mut queues = locked(&self.queues);
        queues.retain(|queue| queue.push(child, update));
        self.count.store(queues.len(), Ordering::Relaxed);
    }
}

impl Queue {
    /// Accepts updates of this edge from now on. The caller holds the edge's latch.
    pub(crate) fn gather(&self, child: u32) {
        if let Some(gathered) = &mut locked(&self.waiting).gathered {
            gathered.insert(child);
        }
    }

    /// Every edge has been collected.
    pub(crate) fn gathered_all(&self) {
        locked(&self.waiting).gathered = None;
    }

    /// Whether the observer still exists.
    fn push(&self, child: u32, update: &Update) -> bool {
        let mut waiting = locked(&self.waiting);
        if waiting.is_closed {
            return false;
        }
        let is_early = waiting
            .gathered
            .as_ref()
            .is_some_and(|gathered| !gathered.contains(&child));
        if is_early {
            return true;
        }
        if waiting.updates.len() >= self.capacity {
            waiting.updates.pop_front();
            waiting.missed += 1;
        }
        waiting.updates.push_back(update.clone());
        drop(waiting);
        self.ready.notify_one();
        true
    }
}
