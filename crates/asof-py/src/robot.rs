//! A running robot into files, and a recording to a running robot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof::catalogue::NamePattern;
use asof::live::Publisher;
use asof::record::{
    Priorities, RecordOptions, RecordReport, Recorder as Inner, SnapshotOptions, SplitOptions,
    Trigger, TriggerError,
};
use asof::{PlayOptions, PlayReport, Query, RecordFiles, Recording};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Failure, Result};
use crate::interrupt::SIGNAL_POLL_INTERVAL;
use crate::live::Robot;
use crate::source::Source;
use crate::time::{Length, Time, from_items};
use crate::verbs::{collected, compression};

/// How often due messages are published.
const PACE: Duration = Duration::from_millis(1);

/// Whether a topic matches one of these names and globs, if there are any, and none of those.
pub fn wants(
    topics: &[String],
    exclude: &[String],
) -> impl Fn(&Publisher) -> bool + Send + Sync + use<> {
    let [topics, exclude] = [topics, exclude].map(|names| -> Vec<NamePattern> {
        names.iter().map(|name| NamePattern::new(name)).collect()
    });
    move |publisher| {
        let topic = &publisher.channel.topic;
        let is_match = |pattern: &NamePattern| pattern.is_match(topic);
        (topics.is_empty() || topics.iter().any(is_match)) && !exclude.iter().any(is_match)
    }
}

from_items! {
    /// What is recorded, and how it is written.
    pub struct RecordArguments {
        topics: Vec<String>,
        exclude: Vec<String>,
        tags: BTreeMap<String, String>,
        /// By name or glob; the last that matches counts.
        priorities: Vec<(String, i32)>,
        sim_time: bool,
        compression: String,
        level: u32,
        queue_bytes: u64,
    }
}

impl RecordArguments {
    fn options(&self) -> PyResult<RecordOptions> {
        let priorities: Vec<(NamePattern, i32)> = self
            .priorities
            .iter()
            .map(|(name, priority)| (NamePattern::new(name), *priority))
            .collect();
        let mut options = RecordOptions {
            queue_bytes: self.queue_bytes,
            tags: self.tags.clone(),
            priorities: Priorities::new(move |topic| {
                let fit = priorities.iter().rfind(|(name, _)| name.is_match(topic));
                fit.map_or(0, |(_, priority)| *priority)
            }),
            sim_time: self.sim_time,
            ..RecordOptions::default()
        };
        options.writer.level = self.level;
        options.writer.compression = compression(&self.compression)?;
        Ok(options)
    }
}

/// Records a robot into one file, or, with a size or a time, into several one after another.
#[pyfunction]
pub fn record(
    py: Python<'_>,
    robot: &Robot,
    path: PathBuf,
    parts: (Option<u64>, Option<Length>, Option<u64>),
    force: bool,
    arguments: RecordArguments,
) -> PyResult<Recorder> {
    let (bytes, time, quota) = parts;
    let files = if bytes.is_none() && time.is_none() {
        RecordFiles::One { replace: force }
    } else {
        RecordFiles::Parts(SplitOptions {
            bytes,
            time: time.map(|Length(time)| time),
            quota,
        })
    };
    Recorder::start(py, robot, path, files, &arguments)
}

/// Keeps the newest messages of a robot, and writes them when something triggers that.
#[pyfunction]
pub fn snapshots(
    py: Python<'_>,
    robot: &Robot,
    path: PathBuf,
    kept: (Length, Length, u64),
    triggers: Vec<String>,
    ring: Option<PathBuf>,
    arguments: RecordArguments,
) -> PyResult<Recorder> {
    let (Length(keep), Length(after), bytes) = kept;
    let triggers = triggers.iter().map(|text| text.parse());
    let triggers = triggers.collect::<std::result::Result<Vec<Trigger>, TriggerError>>();
    let triggers = triggers.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let files = RecordFiles::Snapshots(SnapshotOptions {
        keep,
        after,
        bytes,
        triggers,
        ring,
    });
    Recorder::start(py, robot, path, files, &arguments)
}

/// A recording that is being written.
#[pyclass(frozen, module = "asof._asof")]
pub struct Recorder {
    inner: Mutex<Option<Inner>>,
    /// The last report of one that was stopped.
    last: Mutex<RecordReport>,
    path: PathBuf,
}

impl Recorder {
    fn start(
        py: Python<'_>,
        robot: &Robot,
        path: PathBuf,
        files: RecordFiles,
        arguments: &RecordArguments,
    ) -> PyResult<Self> {
        let session = robot.session()?;
        let options = arguments.options()?;
        let wants = wants(&arguments.topics, &arguments.exclude);
        let path = match files {
            RecordFiles::One { .. } => asof::record::started_path(path, asof::Stamp::now()),
            _ => path,
        };
        let recorder = py.detach(|| -> Result<Inner> {
            files.check(&path)?;
            Ok(session.record(&path, files, options, wants)?)
        })?;
        Ok(Recorder {
            inner: Mutex::new(Some(recorder)),
            last: Mutex::default(),
            path,
        })
    }

    fn with<T>(&self, work: impl FnOnce(&Inner) -> T) -> Result<T> {
        let inner = self.inner.lock();
        let stopped = || Failure::new("LiveError", "the recording was stopped");
        inner.as_ref().map(work).ok_or_else(stopped)
    }
}

#[pymethods]
impl Recorder {
    /// The file; of several, the name that theirs are made of.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Whether it is being written.
    #[getter]
    fn is_recording(&self) -> bool {
        self.with(Inner::is_recording).unwrap_or(false)
    }

    /// What was recorded so far.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = py.detach(|| {
            let last = || self.last.lock().clone();
            self.with(Inner::report).unwrap_or_else(|_| last())
        });
        shown(py, &report)
    }

    /// Writes texts into the recording.
    fn note(&self, name: &str, values: BTreeMap<String, String>) -> PyResult<()> {
        Ok(self.with(|recorder| recorder.note(name, values))?)
    }

    /// Writes a snapshot.
    fn trigger(&self, reason: &str) -> PyResult<()> {
        Ok(self.with(|recorder| recorder.trigger(reason))?)
    }

    /// Writes what waits, and finishes the file. Stopped again it does nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.lock().take();
        if let Some(recorder) = inner {
            let stopped = py.detach(|| recorder.stop());
            let report = stopped.map_err(|error| Failure::new("WriteError", error))?;
            *self.last.lock() = report;
        }
        Ok(())
    }
}

fn shown<'py>(py: Python<'py>, report: &RecordReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("written", report.written())?;
    dict.set_item("dropped", report.dropped())?;
    dict.set_item("waiting_bytes", report.waiting_bytes)?;
    let topics = PyDict::new(py);
    for (name, topic) in &report.topics {
        let counts = PyDict::new(py);
        for (what, count) in [
            ("written", topic.written),
            ("dropped", topic.dropped),
            ("early", topic.early),
            ("refused", topic.refused),
            ("lost", topic.lost),
            ("mistimed", topic.mistimed),
        ] {
            counts.set_item(what, count)?;
        }
        counts.set_item("is_undefined", topic.is_undefined)?;
        topics.set_item(name, counts)?;
    }
    dict.set_item("topics", topics)?;
    let snapshots = &report.snapshots;
    let files = report.parts.files.iter().chain(&snapshots.files);
    dict.set_item("files", files.collect::<Vec<_>>())?;
    dict.set_item("deleted", report.parts.deleted)?;
    dict.set_item("triggered", snapshots.triggered)?;
    dict.set_item("last_trigger", snapshots.last.as_deref())?;
    dict.set_item("is_writing", snapshots.is_writing)?;
    dict.set_item("kept", snapshots.kept)?;
    dict.set_item("kept_bytes", snapshots.kept_bytes)?;
    dict.set_item("crowded_out", snapshots.crowded_out)?;
    dict.set_item("problems", &snapshots.problems)?;
    Ok(dict)
}

from_items! {
    /// What is played, and how.
    pub struct PlayArguments {
        topics: Vec<String>,
        start: Option<Time>,
        end: Option<Time>,
        rate: f64,
        repeat: bool,
        names: BTreeMap<String, String>,
        clock: Option<f64>,
        paused: bool,
    }
}

impl PlayArguments {
    fn options(self, source: &Source) -> PyResult<PlayOptions> {
        for (name, number) in [("rate", Some(self.rate)), ("clock", self.clock)] {
            if number.is_some_and(|number| !number.is_finite() || number <= 0.0) {
                let message = format!("{name}= is a number above 0");
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(PlayOptions {
            query: Query {
                topics: source.topics(&self.topics)?,
                range: source.span(self.start, self.end),
            },
            rate: self.rate,
            repeat: self.repeat,
            names: self.names,
            clock: self.clock,
            paused: self.paused,
        })
    }
}

/// A recording that is published to a robot's network.
#[pyclass(frozen, module = "asof._asof")]
pub struct Playback {
    inner: Mutex<asof::Playback>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Playback {
    fn with<T>(&self, work: impl FnOnce(&mut asof::Playback) -> T) -> T {
        work(&mut self.inner.lock())
    }
}

#[pymethods]
impl Playback {
    /// Announces the topics of a recording.
    #[new]
    fn new(
        py: Python<'_>,
        robot: &Robot,
        source: &Source,
        places: Vec<PathBuf>,
        arguments: PlayArguments,
    ) -> PyResult<Self> {
        let (progress, warnings) = collected();
        let session = robot.session()?.with_progress(progress);
        let options = arguments.options(source)?;
        let recording = Recording::new(Arc::clone(&source.recording), &places);
        let playback = py.detach(|| -> Result<_> { Ok(session.playback(&recording, options)?) })?;
        Ok(Playback {
            inner: Mutex::new(playback),
            warnings,
        })
    }

    /// Publishes what is due until a time has passed, or the end is reached.
    #[pyo3(signature = (time = None))]
    fn run(&self, py: Python<'_>, time: Option<Length>) -> PyResult<()> {
        let deadline = time.map(|Length(time)| Instant::now() + time);
        loop {
            py.check_signals()?;
            let pause = Instant::now() + SIGNAL_POLL_INTERVAL;
            let until = deadline.map_or(pause, |end| end.min(pause));
            let is_ended = py.detach(|| self.run_until(until))?;
            if is_ended || deadline.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
        }
    }

    /// Stops publishing until it is resumed.
    fn pause(&self) {
        self.with(asof::Playback::pause);
    }

    /// Continues.
    fn resume(&self) {
        self.with(asof::Playback::resume);
    }

    #[getter]
    fn is_paused(&self) -> bool {
        self.with(|playback| playback.is_paused())
    }

    #[getter]
    fn is_ended(&self) -> bool {
        self.with(|playback| playback.is_ended())
    }

    /// The time of the recording that is played.
    #[getter]
    fn position(&self) -> i64 {
        self.with(|playback| playback.position()).nanos()
    }

    /// What was played so far.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report: PlayReport = self.with(|playback| playback.report());
        let dict = PyDict::new(py);
        dict.set_item("published", report.published)?;
        dict.set_item("undecoded", report.undecoded)?;
        dict.set_item("left_out", report.left_out)?;
        dict.set_item("behind", report.behind.as_secs_f64())?;
        Ok(dict)
    }

    /// The warnings since the last call.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.lock();
        std::mem::take(&mut warnings)
    }
}

impl Playback {
    /// Whether the end was reached before that.
    fn run_until(&self, end: Instant) -> Result<bool> {
        loop {
            let is_ended = self.with(|playback| -> Result<bool> {
                playback.tick(Instant::now())?;
                Ok(playback.is_ended())
            })?;
            if is_ended || Instant::now() >= end {
                return Ok(is_ended);
            }
            std::thread::sleep(PACE);
        }
    }
}
