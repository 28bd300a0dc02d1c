//! Waiting for messages, blocking or async. Nothing polls: an insert wakes the waiters that it satisfies.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use asof_core::Stamp;

use crate::window::State;
use crate::{Entry, Window};

/// Why a wait ended without a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The timeout expired.
    #[error("no such message came in time")]
    Timeout,
    /// The window was closed: no more messages will come.
    #[error("the window was closed, no more messages will come")]
    Closed,
}

impl<T> Window<T> {
    /// Waits for a message at `t` or later and returns the first one.
    ///
    /// # Errors
    /// If `timeout` expires or the window is closed.
    pub fn wait_for(&self, t: Stamp, timeout: Duration) -> Result<Entry<T>, WaitError> {
        block_on(self.reached(t), timeout)
    }

    /// Waits for the next inserted message, whatever its stamp; returns the new [`Window::version`].
    ///
    /// # Errors
    /// If `timeout` expires or the window is closed.
    pub fn wait_for_change(&self, timeout: Duration) -> Result<u64, WaitError> {
        block_on(self.changed(), timeout)
    }

    /// The async form of [`Window::wait_for`]. Dropping the future ends the wait.
    ///
    /// ```
    /// # use asof_window::{Bounds, Window};
    /// # async fn example(imu: Window<f64>) -> Result<(), asof_window::WaitError> {
    /// let entry = imu.reached(1_000.into()).await?;
    /// # Ok(()) }
    /// ```
    pub fn reached(&self, t: Stamp) -> Reached<T> {
        Reached {
            window: self.clone(),
            t,
            ticket: None,
        }
    }

    /// Resolves when a message is inserted after this call.
    pub fn changed(&self) -> Changed<T> {
        self.changed_since(self.version())
    }

    /// Resolves when [`Window::version`] is greater than `version`. A loop that passes on the last result misses
    /// nothing.
    pub fn changed_since(&self, version: u64) -> Changed<T> {
        Changed {
            window: self.clone(),
            version,
            ticket: None,
        }
    }
}

/// The future of [`Window::reached`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Reached<T> {
    window: Window<T>,
    t: Stamp,
    ticket: Option<u64>,
}

/// The future of [`Window::changed`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Changed<T> {
    window: Window<T>,
    version: u64,
    ticket: Option<u64>,
}

impl<T> Future for Reached<T> {
    type Output = Result<Entry<T>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Declared before the lock is taken, so dropped after it: a waker is foreign code.
        let _old;
        let mut state = this.window.lock();
        _old = state.waiters.remove(&mut this.ticket);
        let at = state.runs.first_from(this.t.nanos());
        if let Some((stamp, value)) = state.runs.get(at) {
            return Poll::Ready(Ok(Entry::new(stamp.into(), Arc::clone(value))));
        }
        wait(
            &mut state,
            Condition::Reach(this.t.nanos()),
            &mut this.ticket,
            context,
        )
    }
}

impl<T> Future for Changed<T> {
    type Output = Result<u64, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // As above.
        let _old;
        let mut state = this.window.lock();
        _old = state.waiters.remove(&mut this.ticket);
        let version = state.version();
        if version > this.version {
            return Poll::Ready(Ok(version));
        }
        wait(
            &mut state,
            Condition::Pass(this.version),
            &mut this.ticket,
            context,
        )
    }
}

impl<T> Drop for Reached<T> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let mut state = self.window.lock();
            let old = state.waiters.remove(&mut self.ticket);
            drop(state);
            drop(old);
        }
    }
}

impl<T> Drop for Changed<T> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let mut state = self.window.lock();
            let old = state.waiters.remove(&mut self.ticket);
            drop(state);
            drop(old);
        }
    }
}

fn wait<T, R>(
    state: &mut State<T>,
    wish: Condition,
    ticket: &mut Option<u64>,
    context: &Context<'_>,
) -> Poll<Result<R, WaitError>> {
    if state.is_closed {
        return Poll::Ready(Err(WaitError::Closed));
    }
    *ticket = Some(state.waiters.add(wish, context.waker().clone()));
    Poll::Pending
}

/// What a waiter waits for.
#[derive(Clone, Copy)]
pub(crate) enum Condition {
    /// A message at this stamp or later.
    Reach(i64),
    /// A version greater than this.
    Pass(u64),
}

/// The waiters of a window.
#[derive(Default)]
pub(crate) struct Waiters {
    next: u64,
    list: Vec<(u64, Condition, Waker)>,
}

impl Waiters {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn add(&mut self, wish: Condition, waker: Waker) -> u64 {
        self.next += 1;
        self.list.push((self.next, wish, waker));
        self.next
    }

    /// Cancels a ticket; returns its waker if it is still there.
    fn remove(&mut self, ticket: &mut Option<u64>) -> Option<Waker> {
        let ticket = ticket.take()?;
        let place = self.list.iter().position(|(id, ..)| *id == ticket)?;
        Some(self.list.remove(place).2)
    }

    /// Takes out the satisfied waiters, to be woken outside of the lock.
    pub(crate) fn take_ready(&mut self, newest: Option<i64>, version: u64) -> Vec<Waker> {
        let is_ready = |wish: &Condition| match *wish {
            Condition::Reach(t) => newest.is_some_and(|newest| newest >= t),
            Condition::Pass(seen) => version > seen,
        };
        let ready = self.list.extract_if(.., |(_, wish, _)| is_ready(wish));
        ready.map(|(_, _, waker)| waker).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        self.list.drain(..).map(|(_, _, waker)| waker).collect()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<R>(
    mut future: impl Future<Output = Result<R, WaitError>> + Unpin,
    timeout: Duration,
) -> Result<R, WaitError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let deadline = Instant::now().checked_add(timeout);
    loop {
        if let Poll::Ready(result) = Pin::new(&mut future).poll(&mut context) {
            return result;
        }
        // A deadline beyond the clock's range means no deadline.
        let Some(deadline) = deadline else {
            thread::park();
            continue;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(WaitError::Timeout);
        }
        thread::park_timeout(left);
    }
}
