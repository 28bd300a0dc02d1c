//! Waiting until a transform can be had.
//!
//! A wait is registered with the one thing that it waits for: an edge and the stamp that it must
//! reach, or, where frames are missing or not connected, the tree. An update looks at one number of
//! its own edge and nothing else, so waits on other edges cost it nothing. Every wait is also woken when an
//! edge comes under another parent, since its way may be another then. Wakers are called with no lock held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::error::LookupError;
use crate::graph::{Edge, Extrapolation, Stop};
use crate::name::FrameName;
use crate::shelf::Spot;
use crate::sync::locked;
use crate::timer;

/// Why a wait ended without a transform.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformWaitError {
    /// Time is up; what was missing last.
    #[error("waited {waited:?} in vain: {missing}")]
    TimedOut {
        /// How long the wait was.
        waited: Duration,
        /// What was missing when it ended.
        #[source]
        missing: LookupError,
    },
    /// It can never be had: the time is before all that the buffer may keep, so that not even a late sample
    /// could answer.
    #[error("waiting cannot help: {0}")]
    Never(#[source] LookupError),
}

/// A wait in progress: a future of no executor in particular. Made by [`TransformBuffer::wait`].
pub struct Wait {
    buffer: TransformBuffer,
    target: FrameName,
    source: FrameName,
    at: Stamp,
    started: Instant,
    deadline: Option<Instant>,
    registered: Vec<(Registry, u64)>,
    alarm: Option<timer::Alarm>,
}

/// Where a wait is registered.
#[derive(Clone, Copy)]
enum Registry {
    Tree,
    Edge(Spot<Edge>),
}

/// Those who wait for one edge, or for the tree.
pub(crate) struct Waiters {
    /// The least stamp that any of them needs; `i64::MAX` when there is none.
    soonest: AtomicI64,
    waiting: Mutex<Vec<(u64, i64, Waker)>>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// What those who wait for the tree need: a new edge,
pub(crate) const NEW_EDGE: i64 = 0;
/// or that an edge has come under another parent, has become another kind or has gone.
pub(crate) const MOVED: i64 = 1;

impl Default for Waiters {
    fn default() -> Self {
        Waiters {
            soonest: AtomicI64::new(i64::MAX),
            waiting: Mutex::new(Vec::new()),
        }
    }
}

impl Waiters {
    /// Whether someone waits for `newest` or less. Asked under the same lock under which waits are
    /// added, so that none is missed.
    #[inline]
    pub(crate) fn is_due(&self, newest: i64) -> bool {
        let soonest = self.soonest.load(Ordering::Relaxed);
        soonest <= newest && soonest != i64::MAX
    }

    /// The same, where it is not known whether anyone does.
    pub(crate) fn wake_if_due(&self, newest: i64) {
        if self.is_due(newest) {
            self.wake(newest);
        }
    }

    /// Wakes those who wait for `newest` or less.
    #[cold]
    pub(crate) fn wake(&self, newest: i64) {
        let mut due = Vec::new();
        let mut waiting = locked(&self.waiting);
        waiting.retain(|(_, needed, waker)| {
            if *needed <= newest {
                due.push(waker.clone());
            }
            *needed > newest
        });
        self.note(&waiting);
        drop(waiting);
        due.into_iter().for_each(Waker::wake);
    }

    fn add(&self, id: u64, needed: i64, waker: Waker) {
        let mut waiting = locked(&self.waiting);
        // `i64::MAX` means nobody; a wait for the end of time is woken a nanosecond early.
        waiting.push((id, needed.min(i64::MAX - 1), waker));
        self.note(&waiting);
    }

    fn remove(&self, id: u64) {
        let mut waiting = locked(&self.waiting);
        waiting.retain(|(other, _, _)| *other != id);
        self.note(&waiting);
    }

    fn note(&self, waiting: &[(u64, i64, Waker)]) {
        let soonest = waiting.iter().map(|(_, needed, _)| *needed).min();
        self.soonest
            .store(soonest.unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Wait {
    pub(crate) fn new(
        buffer: TransformBuffer,
        target: FrameName,
        source: FrameName,
        at: Stamp,
        timeout: Option<Duration>,
    ) -> Self {
        let started = Instant::now();
        Wait {
            buffer,
            target,
            source,
            at,
            started,
            // Past the end of the clock is the same as no deadline.
            deadline: timeout.and_then(|timeout| started.checked_add(timeout)),
            registered: Vec::new(),
            alarm: None,
        }
    }

    /// Waits on this thread.
    pub(crate) fn block(mut self) -> Result<Isometry3<f64>, TransformWaitError> {
        let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
        loop {
            if let Some(result) = self.check(&waker) {
                return result;
            }
            match self.deadline {
                Some(deadline) => {
                    std::thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
                }
                None => std::thread::park(),
            }
        }
    }

    /// The answer, if there is one; else the wait is registered.
    fn check(&mut self, waker: &Waker) -> Option<Result<Isometry3<f64>, TransformWaitError>> {
        self.unregister();
        loop {
            let missing = match self.buffer.lookup(&self.target, &self.source, self.at) {
                Ok(isometry) => return Some(Ok(isometry)),
                Err(missing) => missing,
            };
            if self.is_gone(&missing) {
                return Some(Err(TransformWaitError::Never(missing)));
            }
            if self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
            {
                let waited = self.started.elapsed();
                return Some(Err(TransformWaitError::TimedOut { waited, missing }));
            }
            if self.register(waker) {
                return None;
            }
        }
    }

    /// Whether what is missing is older than all that its edge may keep.
    fn is_gone(&self, missing: &LookupError) -> bool {
        let LookupError::Extrapolation { child, .. } = missing else {
            return false;
        };
        let graph = self.buffer.graph();
        let t = self.at.nanos();
        let is_gone = |edge: &Edge| {
            let bounds = edge.bounds();
            let is_full = edge.history.len() >= bounds.count;
            edge.range(&graph.pool).is_some_and(|(oldest, newest)| {
                t < oldest && (t < newest.saturating_sub(bounds.window) || is_full)
            })
        };
        let frames = (graph.find(&self.target), graph.find(&self.source));
        if let ((Some(target), Some(source)), false) = (frames, graph.is_in_order()) {
            // It is not known which of the edges are needed.
            let read = |edge: &Edge| edge.step(&graph.pool, t, Extrapolation::Refuse);
            let missed = graph.steady(|| graph.missed([target, source], read));
            return !missed.is_empty() && missed.into_iter().all(is_gone);
        }
        let edge = graph.find(child).and_then(|frame| graph.edge_of(frame));
        edge.is_some_and(is_gone)
    }

    /// Registers with what is missing; `false` if something has changed meanwhile.
    fn register(&mut self, waker: &Waker) -> bool {
        let buffer = self.buffer.clone();
        let graph = buffer.graph();
        let t = self.at.nanos();
        // No edge comes, goes or moves while this is held.
        let change = graph.change();
        let read = |edge: &Edge| edge.step(&graph.pool, t, Extrapolation::Refuse);
        let (mut edges, mut needs) = (Vec::new(), NEW_EDGE);
        if let (Some(target), Some(source)) = (graph.find(&self.target), graph.find(&self.source)) {
            match graph.meet(target, source, read) {
                Ok(_) => return false,
                Err(Stop::At(..)) if graph.is_in_order() && graph.never_meet(target, source) => {}
                Err(Stop::At(..)) => {
                    // Both ways end somewhere: one of these edges is needed, and it is not known which.
                    edges = graph.missed([target, source], read);
                    if graph.is_in_order() {
                        needs = MOVED;
                    }
                }
                Err(Stop::Disconnected | Stop::Circle(_)) => {}
            }
        }
        for edge in edges {
            let held = edge.history.hold();
            if edge.at(&graph.pool, t).is_ok() {
                drop(held);
                drop(change);
                self.unregister();
                return false;
            }
            // Until the newest is as new, or else any that comes late.
            let newest = edge.range(&graph.pool).map(|(_, newest)| newest);
            let needed = match newest {
                Some(newest) if newest >= t => i64::MIN,
                _ => t,
            };
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            edge.waiters.add(id, needed, waker.clone());
            self.registered.push((Registry::Edge(Spot::of(edge)), id));
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        graph.waiters.add(id, needs, waker.clone());
        self.registered.push((Registry::Tree, id));
        drop(change);
        true
    }

    fn unregister(&mut self) {
        let graph = self.buffer.graph();
        for (registry, id) in self.registered.drain(..) {
            match registry {
                Registry::Tree => graph.waiters.remove(id),
                Registry::Edge(spot) => {
                    let edge = graph.edges.at(spot);
                    let _held = edge.history.hold();
                    edge.waiters.remove(id);
                }
            }
        }
    }
}

impl Future for Wait {
    type Output = Result<Isometry3<f64>, TransformWaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let wait = &mut *self;
        if let Some(result) = wait.check(context.waker()) {
            wait.alarm = None;
            return Poll::Ready(result);
        }
        let waker = context.waker();
        wait.alarm = wait
            .deadline
            .map(|deadline| timer::Alarm::set(deadline, waker.clone()));
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.unregister();
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}
