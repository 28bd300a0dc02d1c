//! Waiting until a transform can be had.
//!
//! A wait is registered with the one thing that it waits for: an edge and the stamp that it must
//! reach, or, where frames are missing or not connected, the tree. An update looks at one number of
//! its own edge and nothing else, so waits on other edges cost it nothing. Wakers are called with no
//! lock held.

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
use crate::graph::{Edge, Miss, Stop};
use crate::name::FrameName;
use crate::shelf::Spot;
use crate::sync::locked;
use crate::timer;

/// Why a wait ended without a transform.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Time is up; what was missing last.
    #[error("waited {waited:?} in vain: {missing}")]
    TimedOut {
        /// How long the wait was.
        waited: Duration,
        /// What was missing when it ended.
        #[source]
        missing: LookupError,
    },
    /// It can never be had: the time is before what the buffer still keeps.
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
    registered: Option<(Registry, u64)>,
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
            registered: None,
            alarm: None,
        }
    }

    /// Waits on this thread.
    pub(crate) fn block(mut self) -> Result<Isometry3<f64>, WaitError> {
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
    fn check(&mut self, waker: &Waker) -> Option<Result<Isometry3<f64>, WaitError>> {
        self.unregister();
        loop {
            let missing = match self.buffer.lookup(&self.target, &self.source, self.at) {
                Ok(isometry) => return Some(Ok(isometry)),
                Err(missing) => missing,
            };
            if missing.kind() == "extrapolation_past" {
                return Some(Err(WaitError::Never(missing)));
            }
            if self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
            {
                let waited = self.started.elapsed();
                return Some(Err(WaitError::TimedOut { waited, missing }));
            }
            if self.register(waker) {
                return None;
            }
        }
    }

    /// Registers with what is missing; `false` if something has changed meanwhile.
    fn register(&mut self, waker: &Waker) -> bool {
        let graph = self.buffer.graph();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let t = self.at.nanos();
        let frames = (graph.find(&self.target), graph.find(&self.source));
        if let (Some(target), Some(source)) = frames {
            match self.buffer.stopped_by(target, source, t) {
                Ok(_) => return false,
                Err(Stop::At(edge, _)) => {
                    let _held = edge.history.hold();
                    let newest = edge.range(&graph.pool).map(|(_, newest)| newest);
                    if matches!(
                        edge.at(&graph.pool, t),
                        Err(Miss::Empty | Miss::Outside { .. })
                    ) && newest.is_none_or(|newest| newest < t)
                    {
                        edge.waiters.add(id, t, waker.clone());
                        self.registered = Some((Registry::Edge(Spot::of(edge)), id));
                        return true;
                    }
                    return false;
                }
                Err(Stop::Disconnected) => {}
            }
        }
        let change = graph.change();
        let frames = (graph.find(&self.target), graph.find(&self.source));
        let is_connected =
            matches!(frames, (Some(a), Some(b)) if graph.trace(a, b, None).is_some());
        if is_connected {
            return false;
        }
        graph.waiters.add(id, i64::MIN, waker.clone());
        drop(change);
        self.registered = Some((Registry::Tree, id));
        true
    }

    fn unregister(&mut self) {
        let graph = self.buffer.graph();
        match self.registered.take() {
            Some((Registry::Tree, id)) => graph.waiters.remove(id),
            Some((Registry::Edge(spot), id)) => {
                let edge = graph.edges.at(spot);
                let _held = edge.history.hold();
                edge.waiters.remove(id);
            }
            None => {}
        }
    }
}

impl Future for Wait {
    type Output = Result<Isometry3<f64>, WaitError>;

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
