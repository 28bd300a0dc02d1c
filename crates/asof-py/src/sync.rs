//! Messages of several topics that belong together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use asof::Stamp;
use asof::live::{LiveWindow, Sample};
use asof::window::Connection;
use asof::window::sync::{
    ApproximateEpsilonTime, ApproximateTime, ExactTime, LatestTime, SharedSynchronizer, Shifted,
    Sorted, Stamped, SyncEvent, Synchronizer,
};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::fields::SharedDecoders;
use crate::interrupt::waited;
use crate::live::{Window, message};
use crate::message::Message;
use crate::time::{Length, from_items};

/// How many sets may wait to be read.
const MOST_SETS: usize = 64;
/// How many messages may wait to be put in order, for each that may wait for a set.
const MOST_DISORDERED: usize = 16;

type Value = Arc<Sample>;

from_items! {
    /// How messages are put together. Topics are numbered.
    pub struct SyncArguments {
        policy: Option<String>,
        /// The largest distance within a set.
        slop: Option<Length>,
        queue_size: usize,
        /// Topics that sets do not wait for.
        optional: Vec<usize>,
        /// How long a set waits for what is missing.
        longest_wait: Option<Length>,
        /// What is added to the stamps of topics, in nanoseconds.
        offsets: Vec<(usize, i64)>,
        /// A set within this is not kept waiting for a better one.
        early: Option<Length>,
        /// How late messages may be, that they are put in order.
        lateness: Option<Length>,
    }
}

impl SyncArguments {
    /// The synchronizer for a number of topics.
    fn synchronizer(&self, topics: usize) -> Result<Box<dyn Synchronizer<Value> + Send>> {
        let is_partial = !self.optional.is_empty() || self.longest_wait.is_some();
        let policy = match (self.policy.as_deref(), self.slop) {
            (Some(policy), _) => policy,
            (None, _) if is_partial => "epsilon",
            (None, Some(_)) => "approximate",
            (None, None) => "exact",
        };
        let refused = |options: &str, policies: &str| {
            let message = format_args!("{options} is for policy={policies}, not '{policy}'");
            Err(Failure::new("AlignError", message))
        };
        if !matches!(policy, "exact" | "approximate" | "epsilon" | "latest") {
            let message = format_args!(
                "policy='{policy}' is unknown; there are exact, approximate, epsilon and latest"
            );
            return Err(Failure::new("AlignError", message));
        }
        if is_partial && policy != "epsilon" {
            return refused("optional= and longest_wait=", "'epsilon'");
        }
        if self.early.is_some() && policy != "approximate" {
            return refused("early=", "'approximate'");
        }
        if self.slop.is_some() && !matches!(policy, "approximate" | "epsilon") {
            return refused("slop=", "'approximate' or 'epsilon'");
        }
        let size = self.queue_size;
        Ok(match policy {
            "exact" => self.around(ExactTime::new(topics, size)),
            "latest" => self.around(LatestTime::new(topics)),
            "approximate" => {
                let mut made = ApproximateTime::new(topics, size);
                if let Some(Length(slop)) = self.slop {
                    made = made.with_max_interval(slop);
                }
                if let Some(Length(early)) = self.early {
                    made = made.with_early(early);
                }
                self.around(made)
            }
            _ => {
                let near = self.slop.map_or(Duration::ZERO, |Length(slop)| slop);
                let mut made = ApproximateEpsilonTime::new(topics, size, near);
                for topic in &self.optional {
                    made = made.with_optional(*topic);
                }
                if let Some(Length(wait)) = self.longest_wait {
                    made = made.with_max_wait(wait);
                }
                self.around(made)
            }
        })
    }

    /// With what changes the order and the stamps of messages around it.
    fn around(
        &self,
        inner: impl Synchronizer<Value> + Send + 'static,
    ) -> Box<dyn Synchronizer<Value> + Send> {
        match self.lateness {
            Some(Length(lateness)) => {
                let most = self.queue_size.saturating_mul(MOST_DISORDERED);
                self.shifted(Sorted::new(inner, most, lateness))
            }
            None => self.shifted(inner),
        }
    }

    fn shifted(
        &self,
        inner: impl Synchronizer<Value> + Send + 'static,
    ) -> Box<dyn Synchronizer<Value> + Send> {
        if self.offsets.is_empty() {
            return Box::new(inner);
        }
        let mut made = Shifted::new(inner);
        for (topic, nanos) in &self.offsets {
            made = made.with_offset(*topic, *nanos);
        }
        Box::new(made)
    }
}

/// A synchronizer of any kind, which remembers what time it is by the stamps.
struct Any {
    inner: Box<dyn Synchronizer<Value> + Send>,
    newest: Arc<Mutex<Option<(Stamp, Instant)>>>,
}

impl Synchronizer<Value> for Any {
    fn topics(&self) -> usize {
        self.inner.topics()
    }

    fn add(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: Value,
        emit: &mut dyn FnMut(SyncEvent<Value>),
    ) {
        self.add_with_gone(topic, stamp, value, emit, &mut Vec::new());
    }

    fn add_with_gone(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: Value,
        emit: &mut dyn FnMut(SyncEvent<Value>),
        gone: &mut Vec<Value>,
    ) {
        let mut newest = self.newest.lock();
        if newest.is_none_or(|(newest, _)| newest < stamp) {
            *newest = Some((stamp, Instant::now()));
        }
        drop(newest);
        self.inner.add_with_gone(topic, stamp, value, emit, gone);
    }

    fn advance(&mut self, now: Stamp, emit: &mut dyn FnMut(SyncEvent<Value>)) {
        self.inner.advance(now, emit);
    }

    fn advance_with_gone(
        &mut self,
        now: Stamp,
        emit: &mut dyn FnMut(SyncEvent<Value>),
        gone: &mut Vec<Value>,
    ) {
        self.inner.advance_with_gone(now, emit, gone);
    }

    fn take_waiting(&mut self, gone: &mut Vec<Value>) {
        *self.newest.lock() = None;
        self.inner.take_waiting(gone);
    }
}

/// A set of matching messages, by topic.
type Set = Vec<Option<Stamped<Value>>>;

/// Sets of matching messages, as they arrive.
#[pyclass(frozen, module = "asof._asof")]
pub struct Synchronized {
    sets: Mutex<Receiver<Set>>,
    /// Sets that were dropped because they were not read in time.
    missed: Arc<AtomicU64>,
    decoders: SharedDecoders,
    shared: SharedSynchronizer<Value, Any>,
    newest: Arc<Mutex<Option<(Stamp, Instant)>>>,
    _connections: Vec<Connection>,
    _windows: Vec<Arc<LiveWindow<Sample>>>,
}

impl Synchronized {
    /// Waits end although nothing arrives: since the newest message as much time has passed as on this machine's clock.
    fn advance(&self) {
        let newest = *self.newest.lock();
        if let Some((stamp, at)) = newest {
            let nanos = i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX);
            self.shared.advance(stamp.plus_nanos(nanos));
        }
    }
}

#[pymethods]
impl Synchronized {
    /// Joins windows.
    #[new]
    fn new(windows: Vec<PyRef<'_, Window>>, arguments: SyncArguments) -> PyResult<Self> {
        let windows: Vec<_> = windows
            .iter()
            .map(|window| Arc::clone(&window.kept))
            .collect();
        let newest = Arc::default();
        let policy = Any {
            inner: arguments.synchronizer(windows.len())?,
            newest: Arc::clone(&newest),
        };
        let (sender, sets) = sync_channel(MOST_SETS);
        let missed = Arc::new(AtomicU64::new(0));
        let not_read = Arc::clone(&missed);
        let shared = SharedSynchronizer::new(policy, move |event: SyncEvent<Value>| {
            if let Some(set) = event.into_set()
                && sender.try_send(set).is_err()
            {
                not_read.fetch_add(1, Ordering::Relaxed);
            }
        });
        let connections = windows.iter().enumerate();
        let connections = connections.map(|(topic, window)| shared.follow(topic, window));
        Ok(Synchronized {
            sets: Mutex::new(sets),
            missed,
            decoders: SharedDecoders::default(),
            _connections: connections.collect(),
            shared,
            newest,
            _windows: windows,
        })
    }

    /// Sets that were dropped because they were not read in time.
    #[getter]
    fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// The next set; None where none arrives in time.
    #[pyo3(signature = (timeout = None))]
    fn next(
        &self,
        py: Python<'_>,
        timeout: Option<Length>,
    ) -> PyResult<Option<Vec<Option<Message>>>> {
        let set = waited(py, timeout, |wait| {
            self.advance();
            match self.sets.lock().recv_timeout(wait) {
                Ok(set) => Some(Some(set)),
                Err(RecvTimeoutError::Disconnected) => Some(None),
                Err(RecvTimeoutError::Timeout) => None,
            }
        })?;
        let one = |found: &Option<Stamped<Value>>| {
            let found = found.as_ref();
            found.map(|found| message(&found.value, &self.decoders))
        };
        Ok(set.flatten().map(|set| set.iter().map(one).collect()))
    }
}
