//! How long work is going.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asof_core::SourceError;

/// What long work reports on its way, and whether it should stop. Clones share both.
///
/// ```
/// use asof::{Event, Progress};
/// let progress = Progress::to(|event| match event {
///     Event::Done { done, total } => println!("{done} of {total}"),
///     Event::Note(text) | Event::Warning(text) => println!("{text}"),
///     _ => {}
/// });
/// let stop = progress.clone();
/// std::thread::spawn(move || stop.cancel());
/// # let _ = progress;
/// ```
#[derive(Clone, Default)]
pub struct Progress {
    listener: Option<Arc<Listener>>,
    probe: Option<Arc<Probe>>,
    is_cancelled: Arc<AtomicBool>,
}

type Listener = dyn Fn(Event<'_>) + Send + Sync;
type Probe = dyn Fn() -> bool + Send + Sync;

/// One report of long work.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Information that is not a result.
    Note(&'a str),
    /// Something in the input is not as it should be.
    Warning(&'a str),
    /// How far it is, in messages or bytes; a total of zero is not known.
    Done {
        /// Done so far.
        done: u64,
        /// Of this many.
        total: u64,
    },
}

impl Progress {
    /// Reports to a callback, from the thread that works.
    pub fn to(listener: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Progress {
            listener: Some(Arc::new(listener)),
            ..Progress::default()
        }
    }

    /// The same, which is also cancelled once this is true: it is asked often, from the thread that works.
    #[must_use]
    pub fn cancelled_when(self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Progress {
            probe: Some(Arc::new(is_cancelled)),
            ..self
        }
    }

    /// Stops the work as soon as possible: reading fails with [`SourceError::Cancelled`](crate::SourceError::Cancelled).
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || self.probe.as_ref().is_some_and(|is| is())
    }

    /// An error once the work was cancelled.
    pub(crate) fn refuse_if_cancelled(&self) -> Result<(), SourceError> {
        if self.is_cancelled() {
            return Err(SourceError::Cancelled);
        }
        Ok(())
    }

    /// The same, which is also cancelled with another one.
    pub(crate) fn or_cancelled_with(&self, other: &Progress) -> Progress {
        let (this, other) = (self.clone(), other.clone());
        Progress {
            listener: self.listener.clone(),
            probe: Some(Arc::new(move || {
                this.is_cancelled() || other.is_cancelled()
            })),
            is_cancelled: Arc::default(),
        }
    }

    /// True once it was cancelled.
    #[cfg(feature = "fleet")]
    pub(crate) fn cancelled(&self) -> &Arc<AtomicBool> {
        &self.is_cancelled
    }

    /// Reports how far the work is.
    pub fn done(&self, done: u64, total: u64) {
        self.tell(Event::Done { done, total });
    }

    /// Reports information that is not a result.
    pub fn note(&self, text: impl fmt::Display) {
        self.tell(Event::Note(&text.to_string()));
    }

    /// Reports something about the input.
    pub fn warning(&self, text: impl fmt::Display) {
        self.tell(Event::Warning(&text.to_string()));
    }

    fn tell(&self, event: Event<'_>) {
        if let Some(listener) = &self.listener {
            listener(event);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("is_cancelled", &self.is_cancelled)
            .finish_non_exhaustive()
    }
}
