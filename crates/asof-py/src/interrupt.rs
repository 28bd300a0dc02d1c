//! Ctrl-C, while something takes long.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use asof::{Batch, Batches, Growth, Query, Recording, Source, SourceError, Stamp, Summary, Topics};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};

/// How often it is looked whether Ctrl-C was pressed, while something is waited for.
pub(crate) const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether this thread let go of Python, and may have it back for a moment. Any other thread might wait for it in vain:
    /// a library that reads a stream on threads of its own can hold it all the while.
    static MAY_ASK: Cell<bool> = const { Cell::new(false) };
    /// What a signal's handler raised, until it can be raised here.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Works without Python; Ctrl-C interrupts a [`Heeding`] source that is read in it.
///
/// # Errors
/// What the signal's handler raised, whatever was made of the interrupted read.
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

/// Does something that cannot be interrupted on a thread of its own. Ctrl-C ends the wait for it; it is not wanted then.
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
                let message = "the thread that did it ended early, which is a fault of asof";
                return Err(Failure::new("SourceError", message).into());
            }
        }
    }
}

/// A recording whose reading Ctrl-C interrupts, as often as a batch of messages comes out of it.
pub struct Heeding(pub Arc<dyn Recording>);

impl Source for Heeding {
    fn summary(&self) -> Arc<Summary> {
        self.0.summary()
    }

    fn read(&self, query: &Query) -> std::result::Result<Batches, SourceError> {
        let mut batches = self.0.read(query)?;
        let heeding = std::iter::from_fn(move || match interrupted() {
            Ok(()) => batches.next(),
            Err(error) => Some(Err(error)),
        });
        Ok(Box::new(heeding))
    }

    fn backfill(&self, topics: &Topics, at: Stamp) -> std::result::Result<Batch, SourceError> {
        self.0.backfill(topics, at)
    }

    fn growth(&self) -> Growth {
        self.0.growth()
    }
}

/// An error if Ctrl-C was pressed, on a thread that works [`detached`]; nothing on any other.
pub fn interrupted() -> std::result::Result<(), SourceError> {
    if !MAY_ASK.get() {
        return Ok(());
    }
    if let Err(raised) = Python::attach(|py| py.check_signals()) {
        RAISED.set(Some(raised));
    }
    if RAISED.with_borrow(Option::is_none) {
        return Ok(());
    }
    Err(SourceError::Io {
        place: String::new(),
        offset: 0,
        cause: io::ErrorKind::Interrupted.into(),
    })
}
