//! Running robots.

use std::sync::Arc;
use std::time::Duration;

use asof::live::{LiveError, LiveWindow, RecentOptions, Sample};
use asof::window::{Bounds, Entry, Recent, WaitError};
use asof::{Batch, Stamp, When};
use parking_lot::Mutex;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::fields::SharedDecoders;
use crate::interrupt::waited;
use crate::message::Message;
use crate::robot::wants;
use crate::source::Source;
use crate::tf::{Filled, TransformBuffer};
use crate::time::{Length, Time};

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Self {
        let class = match error {
            LiveError::NoSuchTopic { .. } => "TopicError",
            _ => "LiveError",
        };
        Failure::new(class, error)
    }
}

/// The largest size of a window, in bytes, unless another is asked for.
const MOST_BYTES: u64 = 512 << 20;

/// A session with a running robot.
#[pyclass(frozen, module = "asof._asof")]
pub struct Robot(Mutex<Option<asof::Robot>>);

impl Robot {
    /// The robot, until it is closed.
    pub fn session(&self) -> Result<asof::Robot, Failure> {
        let session = self.0.lock().clone();
        session.ok_or_else(|| Failure::new("LiveError", "the connection was closed"))
    }
}

#[pymethods]
impl Robot {
    /// Opens a session.
    #[staticmethod]
    fn connect(py: Python<'_>, address: &str) -> PyResult<Self> {
        let robot = py.detach(|| asof::connect(address).map_err(Failure::from))?;
        Ok(Robot(Mutex::new(Some(robot))))
    }

    /// The topics and their types.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let session = self.session()?;
        let topics = py.detach(|| session.topics());
        let typed = |topic: asof::live::Topic| {
            let kind = topic
                .publishers
                .first()
                .map(|one| one.channel.type_name().to_owned());
            (topic.name, kind.unwrap_or_default())
        };
        Ok(topics.into_iter().map(typed).collect())
    }

    /// Whether the robot is connected at the moment.
    #[getter]
    fn is_connected(&self) -> PyResult<bool> {
        Ok(self.session()?.is_connected())
    }

    /// Waits for a topic; returns whether it exists.
    fn wait_for_topic(&self, py: Python<'_>, topic: &str, timeout: Length) -> PyResult<bool> {
        let session = self.session()?;
        let step = |rest| session.wait_for_topic(topic, rest).map(drop);
        Ok(waited(py, Some(timeout), step)?.is_some())
    }

    /// Keeps the newest messages of a topic.
    #[pyo3(signature = (topic, last = None, count = None, bytes = None))]
    fn window(
        &self,
        py: Python<'_>,
        topic: &str,
        last: Option<Length>,
        count: Option<usize>,
        bytes: Option<u64>,
    ) -> PyResult<Window> {
        let session = self.session()?;
        let bounds = match (last, count) {
            (Some(Length(age)), Some(count)) => Bounds::age(age).and_count(count),
            (Some(Length(age)), None) => Bounds::age(age),
            (None, Some(count)) => Bounds::count(count),
            (None, None) => Bounds::age(Duration::from_secs(10)),
        };
        let bounds = bounds.and_bytes(bytes.unwrap_or(MOST_BYTES));
        let window = py.detach(|| {
            let window = session.create_window::<Sample>(topic, 1);
            let window =
                window.with_stamp(|sample: &Sample| sample.header_stamp().or(sample.source));
            let window = window.with_bounds(bounds);
            window.build().map_err(Failure::from)
        })?;
        Ok(Window {
            topic: topic.to_owned(),
            kept: Arc::new(window),
            decoders: SharedDecoders::default(),
        })
    }

    /// The newest messages of topics, of all where none is named, as a recording that grows.
    #[pyo3(signature = (topics = Vec::new(), last = None, bytes = None))]
    fn recent(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        last: Option<Length>,
        bytes: Option<u64>,
    ) -> PyResult<Source> {
        let session = self.session()?;
        let mut bounds = Recent::default().bounds();
        if let Some(Length(last)) = last {
            bounds = bounds.and_age(last);
        }
        if let Some(bytes) = bytes {
            bounds = bounds.and_bytes(bytes);
        }
        let options = RecentOptions::default().with_bounds(bounds);
        let options = options.with_topics(wants(&topics, &[]));
        let recent = py.detach(|| session.recent(&options).map_err(Failure::from))?;
        Ok(Source::from(&recent))
    }

    /// The robot's transforms, updated as they arrive.
    #[pyo3(signature = (cache_time = None, namespace = None))]
    fn tf(
        &self,
        py: Python<'_>,
        cache_time: Option<Length>,
        namespace: Option<String>,
    ) -> PyResult<Filled> {
        let session = self.session()?;
        let conflicts = asof::tf::Conflicts::LastWins;
        let mut options = asof::tf::BufferOptions::default().conflicts(conflicts);
        if let Some(Length(window)) = cache_time {
            options = options.window(window);
        }
        let is_in = move |topic: &str| match &namespace {
            Some(name) => topic
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('/')),
            None => true,
        };
        let live = py.detach(|| session.transforms_of(options, is_in));
        let buffer = asof::tf::TransformBuffer::clone(&live);
        Ok(Filled::new(TransformBuffer::filled(buffer, live)))
    }

    /// Ends the session, and closes its windows.
    fn close(&self, py: Python<'_>) {
        let session = self.0.lock().take();
        py.detach(|| drop(session));
    }
}

/// The newest messages of a topic, by their stamps.
#[pyclass(frozen, module = "asof")]
pub struct Window {
    topic: String,
    pub(crate) kept: Arc<LiveWindow<Sample>>,
    decoders: SharedDecoders,
}

impl Window {
    fn message(&self, sample: &Sample) -> Message {
        message(sample, &self.decoders)
    }

    fn found(&self, entry: Option<Entry<Sample>>) -> Option<Message> {
        entry.map(|entry| self.message(&entry))
    }

    fn at(time: Time) -> Result<Stamp, Failure> {
        match time.0 {
            // The end of a running robot is now.
            When::BeforeEnd(nanos) => Ok(Stamp::now().plus_nanos(nanos.saturating_neg())),
            _ => time.absolute(),
        }
    }
}

/// A sample as a message.
pub fn message(sample: &Sample, decoders: &SharedDecoders) -> Message {
    let batch: Batch = [sample.to_message()].into_iter().collect();
    let buffer = batch.buffers().first();
    let first = batch.iter().next();
    // A batch of one message has one.
    #[allow(clippy::expect_used, reason = "it was made of one message")]
    let first = first.expect("a message");
    Message::new(first, buffer, decoders)
}

#[pymethods]
impl Window {
    /// The message nearest to a time.
    fn nearest(&self, time: Time) -> PyResult<Option<Message>> {
        Ok(self.found(self.kept.nearest(Self::at(time)?)))
    }

    /// The last message at or before a time.
    fn before(&self, time: Time) -> PyResult<Option<Message>> {
        Ok(self.found(self.kept.before(Self::at(time)?)))
    }

    /// The first message at or after a time.
    fn after(&self, time: Time) -> PyResult<Option<Message>> {
        Ok(self.found(self.kept.after(Self::at(time)?)))
    }

    /// The newest message.
    #[getter]
    fn newest(&self) -> Option<Message> {
        self.found(self.kept.newest())
    }

    /// The oldest message that is kept.
    #[getter]
    fn oldest(&self) -> Option<Message> {
        self.found(self.kept.oldest())
    }

    /// The messages between two times, both inclusive; all that are kept without them.
    #[pyo3(signature = (start = None, end = None))]
    fn interval(&self, start: Option<Time>, end: Option<Time>) -> PyResult<Vec<Message>> {
        let start = start.map(Self::at).transpose()?.unwrap_or(Stamp::MIN);
        let end = end.map(Self::at).transpose()?.unwrap_or(Stamp::MAX);
        let entries = self.kept.interval(start, end);
        Ok(entries.iter().map(|entry| self.message(entry)).collect())
    }

    /// Waits for a message that was measured after a time; `TimeoutError` where none arrives.
    #[pyo3(signature = (time, timeout = None))]
    fn wait_after(&self, py: Python<'_>, time: Time, timeout: Option<Length>) -> PyResult<Message> {
        let after = Self::at(time)?.plus_nanos(1);
        let found = waited(py, timeout, |rest| match self.kept.wait_for(after, rest) {
            Err(WaitError::Timeout) => None,
            found => Some(found),
        })?;
        let late =
            || PyTimeoutError::new_err(format!("no message on {} arrived in time", self.topic));
        let entry = found.ok_or_else(late)?;
        let entry = entry.map_err(|error| Failure::new("LiveError", error))?;
        Ok(self.message(&entry))
    }

    /// What is kept now, as a recording of this topic.
    fn snapshot(&self, py: Python<'_>) -> Source {
        let recording = py.detach(|| {
            let recent = Recent::new(Bounds::count(usize::MAX));
            for entry in self.kept.iter() {
                recent.push(entry.to_message());
            }
            recent
        });
        let recording: Arc<dyn asof::Source> = Arc::new(recording);
        recording.into()
    }

    fn __len__(&self) -> usize {
        self.kept.len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// Counters of evicted and rejected messages.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        let counters = self.kept.stats();
        let dict = pyo3::types::PyDict::new(py);
        dict.set_item("held", self.kept.len())?;
        dict.set_item("bytes", self.kept.bytes())?;
        dict.set_item("evicted", counters.evicted)?;
        dict.set_item("without_stamp", self.kept.stamp_fallbacks())?;
        dict.set_item("undecodable", self.kept.undecodable())?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<asof.Window {}: {} messages>", self.topic, self.kept.len())
    }
}
