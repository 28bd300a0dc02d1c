//! Ctrl-C during long operations.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use asof::Progress;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::time::Length;

/// How often a wait checks for Ctrl-C.
pub(crate) const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether this thread released the GIL, and may take it back for a moment. Other threads might wait for it in vain:
    /// a library that reads a stream on its own threads can hold it all the while.
    static MAY_ASK: Cell<bool> = const { Cell::new(false) };
    /// The exception of a signal handler, until it can be raised here.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Works without the GIL; Ctrl-C ends work in it whose progress is [`interrupting`].
///
/// # Errors
/// The exception of the signal handler, whatever became of the interrupted read.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let done = py.detach(|| {
        MAY_ASK.set(true);
        let done = work();
        MAY_ASK.set(false);
        done
    });
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => Ok(done),
    }
}

/// Runs something that cannot be interrupted on its own thread. Ctrl-C ends the wait for it; the result is dropped then.
pub fn awaited<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, done) = sync_channel(1);
    let thread = std::thread::Builder::new().name("asof-open".to_owned());
    let started = thread.spawn(move || drop(sender.send(work())));
    started.map_err(|error| Failure::new("SourceError", error))?;
    let mut done = done;
    loop {
        let (back, waited) = py.detach(move || {
            let waited = done.recv_timeout(SIGNAL_POLL_INTERVAL);
            (done, waited)
        });
        done = back;
        match waited {
            Ok(made) => return Ok(made?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                let message = "the worker thread ended early, which is a defect of asof";
                return Err(Failure::new("SourceError", message).into());
            }
        }
    }
}

/// Waits until `step`, which is given how long it may wait, has something; in short steps, so that Ctrl-C can interrupt it. `None` once
/// the timeout is over.
pub fn waited<T: Send>(
    py: Python<'_>,
    timeout: Option<Length>,
    mut step: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    let deadline = timeout.map(|Length(timeout)| Instant::now() + timeout);
    loop {
        py.check_signals()?;
        let rest = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let rest = rest.map_or(SIGNAL_POLL_INTERVAL, |rest| rest.min(SIGNAL_POLL_INTERVAL));
        if let Some(found) = py.detach(|| step(rest)) {
            return Ok(Some(found));
        }
        if deadline.is_some_and(|end| Instant::now() >= end) {
            return Ok(None);
        }
    }
}

/// A progress of work that Ctrl-C interrupts, such as reading, after any batch of messages.
pub fn interrupting() -> Progress {
    Progress::default().cancelled_when(is_interrupted)
}

/// Whether Ctrl-C was pressed, on a thread that works [`detached`]; never on any other.
fn is_interrupted() -> bool {
    if !MAY_ASK.get() {
        return false;
    }
    if let Err(raised) = Python::attach(|py| py.check_signals()) {
        RAISED.set(Some(raised));
    }
    RAISED.with_borrow(Option::is_some)
}
