//! Waiting for a transform.
//!
//! A wait is registered with the one thing that it waits for: an edge and the stamp that it must
//! reach, or, where frames are missing or not connected, the tree. An update checks one number of its own
//! edge and nothing else, so waits on other edges cost it nothing. Every wait is also woken when an edge
//! changes its parent, since its path may change too. Wakers are called with no lock held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::answers::LatestTransform;
use crate::buffer::TransformBuffer;
use crate::error::LookupError;
use crate::frame_ref::FrameRef;
use crate::graph::{Edge, Extrapolation, Graph, Stop};
use crate::name::FrameName;
use crate::shelf::Spot;
use crate::sync::{locked, wake};
use crate::timer;

/// Why a wait ended without a transform.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformWaitError {
    /// The timeout expired.
    #[error("timed out after {waited:?}: {missing}")]
    TimedOut {
        /// How long the wait was.
        waited: Duration,
        /// What was missing when it ended.
        #[source]
        missing: LookupError,
    },
    /// There will never be a transform: the time is before everything that the buffer may keep, so not even
    /// a late sample could help.
    #[error("waiting cannot help: {0}")]
    Never(#[source] LookupError),
}

/// A wait in progress: a future for any executor. Created by [`TransformBuffer::wait`].
pub struct Wait {
    buffer: TransformBuffer,
    target: FrameName,
    source: FrameName,
    /// `None` for the latest time that every edge on the way has.
    at: Option<Stamp>,
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

/// The waiters for one edge or for the tree.
pub(crate) struct Waiters {
    /// The smallest stamp that any of them needs; `i64::MAX` if there is none.
    soonest: AtomicI64,
    waiting: Mutex<Vec<(u64, i64, Waker)>>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// What waiters for the tree need: a new edge,
pub(crate) const NEW_EDGE: i64 = 0;
/// or an edge that has changed its parent or kind, or was removed.
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
    /// Whether a waiter needs `newest` or less. Checked under the lock under which waits are added, so none
    /// is missed.
    #[inline]
    pub(crate) fn is_due(&self, newest: i64) -> bool {
        let soonest = self.soonest.load(Ordering::Relaxed);
        soonest <= newest && soonest != i64::MAX
    }

    /// Checks [`Waiters::is_due`] and wakes.
    pub(crate) fn wake_if_due(&self, newest: i64) {
        if self.is_due(newest) {
            self.wake(newest);
        }
    }

    /// Wakes the waiters that need `newest` or less.
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
        due.into_iter().for_each(wake);
    }

    fn add(&self, id: u64, needed: i64, waker: Waker) {
        let mut waiting = locked(&self.waiting);
        // `i64::MAX` means no waiter; a wait for the end of time is woken a nanosecond early.
        waiting.push((id, needed.min(i64::MAX - 1), waker));
        self.note(&waiting);
    }

    /// The waker that was removed, to be dropped with no lock held: what it wakes may end with it.
    fn remove(&self, id: u64) -> Option<Waker> {
        let mut waiting = locked(&self.waiting);
        let place = waiting.iter().position(|(other, _, _)| *other == id)?;
        let (_, _, waker) = waiting.remove(place);
        self.note(&waiting);
        Some(waker)
    }

    fn note(&self, waiting: &[(u64, i64, Waker)]) {
        let soonest = waiting.iter().map(|(_, needed, _)| *needed).min();
        self.soonest
            .store(soonest.unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl TransformBuffer {
    /// Blocks until `lookup_latest(target, source)` succeeds: tf2's `canTransform` at time zero with a timeout.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// use std::time::Duration;
    ///
    /// let buffer = TransformBuffer::new();
    /// let writer = buffer.clone();
    /// let at = Stamp::from_nanos(7);
    /// std::thread::spawn(move || writer.update("odom", "base_link", at, Isometry3::identity()));
    /// let latest = buffer.wait_for_latest("odom", "base_link", Duration::from_secs(60))?;
    /// assert_eq!(latest.stamp, Some(at));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TransformWaitError::TimedOut`] has what was missing last.
    pub fn wait_for_latest(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        timeout: Duration,
    ) -> Result<LatestTransform, TransformWaitError> {
        let [target, source] = [target.text(self.graph()), source.text(self.graph())]
            .map(|text| FrameName::unchecked(&text));
        Wait::new(self.clone(), target, source, None, Some(timeout)).block()
    }
}

impl Wait {
    pub(crate) fn new(
        buffer: TransformBuffer,
        target: FrameName,
        source: FrameName,
        at: Option<Stamp>,
        timeout: Option<Duration>,
    ) -> Self {
        let started = Instant::now();
        Wait {
            buffer,
            target,
            source,
            at,
            started,
            // A deadline beyond the clock's range means no deadline.
            deadline: timeout.and_then(|timeout| started.checked_add(timeout)),
            registered: Vec::new(),
            alarm: None,
        }
    }

    /// Waits on this thread.
    pub(crate) fn block(mut self) -> Result<LatestTransform, TransformWaitError> {
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

    /// The result, if there is one; else registers the wait.
    fn check(&mut self, waker: &Waker) -> Option<Result<LatestTransform, TransformWaitError>> {
        self.unregister();
        loop {
            let missing = match self.look() {
                Ok(found) => return Some(Ok(found)),
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
            if self.register(waker, &missing) {
                return None;
            }
        }
    }

    fn look(&self) -> Result<LatestTransform, LookupError> {
        let (buffer, target, source) = (&self.buffer, &self.target, &self.source);
        match self.at {
            Some(at) => buffer
                .lookup(target, source, at)
                .map(|isometry| LatestTransform {
                    stamp: Some(at),
                    isometry,
                }),
            None => buffer.lookup_latest(target, source),
        }
    }

    /// Whether what is missing is older than everything that its edge may keep.
    fn is_gone(&self, missing: &LookupError) -> bool {
        // There may always be a later time.
        let (LookupError::Extrapolation { child, .. }, Some(at)) = (missing, self.at) else {
            return false;
        };
        let graph = self.buffer.graph();
        let t = at.nanos();
        let is_gone = |edge: &Edge| {
            let bounds = edge.bounds();
            let is_full = edge.history.len() >= bounds.count;
            edge.range(&graph.pool).is_some_and(|(oldest, newest)| {
                let horizon = newest.saturating_sub(bounds.window);
                t < oldest && (t < horizon || is_full || t <= edge.history.floor())
            })
        };
        let frames = (graph.find(&self.target), graph.find(&self.source));
        if let ((Some(target), Some(source)), false) = (frames, graph.is_in_order()) {
            // Which of the edges are needed is unknown.
            let read = |edge: &Edge| edge.step(&graph.pool, t, Extrapolation::Refuse);
            let missed = graph.steady(|| graph.missed([target, source], read));
            return !missed.is_empty() && missed.into_iter().all(is_gone);
        }
        let edge = graph.find(child).and_then(|frame| graph.edge_of(frame));
        edge.is_some_and(is_gone)
    }

    /// Registers with what is missing; `false` if something has changed in the meantime.
    fn register(&mut self, waker: &Waker, missing: &LookupError) -> bool {
        let buffer = self.buffer.clone();
        let graph = buffer.graph();
        // No edge is added, removed or moved while this is held. Samples of existing edges do arrive.
        let change = graph.change();
        let lacks = match self.at {
            Some(at) => self.lacks(graph, at),
            None => Some(self.all_of_the_way(graph, missing)),
        };
        let Some((edges, needs)) = lacks else {
            return false;
        };
        for edge in &edges {
            let _held = edge.history.hold();
            // Until the newest sample reaches it, or any late sample arrives.
            let newest = edge.range(&graph.pool).map(|(_, newest)| newest);
            let needed = match (self.at, newest) {
                (Some(at), Some(newest)) if newest < at.nanos() => at.nanos(),
                (Some(at), None) => at.nanos(),
                _ => i64::MIN,
            };
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            edge.waiters.add(id, needed, waker.clone());
            self.registered.push((Registry::Edge(Spot::of(edge)), id));
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        graph.waiters.add(id, needs, waker.clone());
        self.registered.push((Registry::Tree, id));
        // A sample that arrived before this wait was registered with its edge has woken nothing: without it, other
        // edges are missing, or none. From here on, whatever arrives at these edges wakes.
        let is_same = |(again, needs_again): (Vec<&Edge>, i64)| {
            needs_again == needs
                && again.len() == edges.len()
                && again.iter().zip(&edges).all(|(a, b)| std::ptr::eq(*a, *b))
        };
        let is_registered = if let Some(at) = self.at {
            self.lacks(graph, at).is_some_and(is_same)
        } else {
            // A lookup may need the tree itself.
            drop(change);
            self.look().err().as_ref() == Some(missing)
        };
        if !is_registered {
            self.unregister();
        }
        is_registered
    }

    /// The edges without which there is no transform, and what the tree needs; `None` if nothing is missing. The
    /// edges are read one after the other, so samples that arrive meanwhile may be in only a part of the result.
    fn lacks<'a>(&self, graph: &'a Graph, at: Stamp) -> Option<(Vec<&'a Edge>, i64)> {
        let t = at.nanos();
        let read = |edge: &'a Edge| edge.step(&graph.pool, t, Extrapolation::Refuse);
        let (Some(target), Some(source)) = (graph.find(&self.target), graph.find(&self.source))
        else {
            return Some((Vec::new(), NEW_EDGE));
        };
        match graph.meet(target, source, read) {
            Ok(_) => None,
            Err(Stop::At(..)) if graph.is_in_order() && graph.never_meet(target, source) => {
                Some((Vec::new(), NEW_EDGE))
            }
            Err(Stop::At(..)) => {
                // Both paths end somewhere: one of these edges is needed, but which is unknown.
                let edges = graph.missed([target, source], read);
                let needs = if graph.is_in_order() { MOVED } else { NEW_EDGE };
                Some((edges, needs))
            }
            Err(Stop::Disconnected | Stop::Circle(_)) => Some((Vec::new(), NEW_EDGE)),
        }
    }

    /// The edges of which any sample may make a latest time that all of them have, and what the tree needs.
    fn all_of_the_way<'a>(&self, graph: &'a Graph, missing: &LookupError) -> (Vec<&'a Edge>, i64) {
        let mut edges = Vec::new();
        if let (Some(target), Some(source)) = (graph.find(&self.target), graph.find(&self.source)) {
            if let Ok((near, far)) = graph.trace(target, source) {
                edges.extend(near.into_iter().chain(far));
            }
            if let LookupError::Extrapolation { asked, .. } = missing {
                // At that time a frame may have had another parent than now.
                let t = asked.nanos();
                let read = |edge: &'a Edge| edge.step(&graph.pool, t, Extrapolation::Refuse);
                edges.extend(graph.missed([target, source], read));
            }
        }
        edges.retain(|edge| !edge.is_static());
        (edges, NEW_EDGE)
    }

    fn unregister(&mut self) {
        let graph = self.buffer.graph();
        for (registry, id) in self.registered.drain(..) {
            let gone = match registry {
                Registry::Tree => graph.waiters.remove(id),
                Registry::Edge(spot) => {
                    let edge = graph.edges.at(spot);
                    let _held = edge.history.hold();
                    edge.waiters.remove(id)
                }
            };
            drop(gone);
        }
    }
}

impl Future for Wait {
    type Output = Result<Isometry3<f64>, TransformWaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let wait = &mut *self;
        if let Some(result) = wait.check(context.waker()) {
            wait.alarm = None;
            return Poll::Ready(result.map(|found| found.isometry));
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
