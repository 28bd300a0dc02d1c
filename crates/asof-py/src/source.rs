//! Open recordings and running robots.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use asof::catalogue::NamePattern;
use asof::{Query, Source as _, Stamp, TimeRange, Topics};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::align::{self, AlignArguments};
use crate::errors::{Failure, Result};
use crate::fields::SharedDecoders;
use crate::interrupt::{awaited, detached, interrupting};
use crate::message::{Message, Messages};
use crate::sql::OwnTables;
use crate::table::Table;
use crate::time::{Time, range};

/// A recording, several as one, or a running robot.
#[pyclass(frozen, module = "asof._asof")]
pub struct Source {
    /// The recording.
    pub recording: Arc<dyn asof::Source>,
    /// The same where it was merged from several, which are kept apart.
    several: Option<asof::Recording>,
}

impl From<Arc<dyn asof::Source>> for Source {
    fn from(recording: Arc<dyn asof::Source>) -> Self {
        Source {
            recording,
            several: None,
        }
    }
}

impl From<&asof::Recording> for Source {
    fn from(recording: &asof::Recording) -> Self {
        Source {
            recording: Arc::clone(recording.source()),
            several: (!recording.parts().is_empty()).then(|| recording.clone()),
        }
    }
}

impl Source {
    fn interruptible(&self) -> asof::Recording {
        self.named("").with_progress(interrupting())
    }

    /// The recording under this name; of several, each has its own.
    fn named(&self, name: &str) -> asof::Recording {
        let one = || asof::Recording::new(Arc::clone(&self.recording), &[name.into()]);
        self.several.clone().unwrap_or_else(one)
    }

    pub(crate) fn span(&self, start: Option<Time>, end: Option<Time>) -> TimeRange {
        range(self.recording.summary().range, start, end)
    }

    /// The topics that names and globs match; all where none is given. One without a match is an error.
    pub(crate) fn topics(&self, patterns: &[String]) -> Result<Topics> {
        if patterns.is_empty() {
            return Ok(Topics::All);
        }
        let summary = self.recording.summary();
        let known = summary.topics();
        let mut found: Vec<&str> = Vec::new();
        for pattern in patterns {
            let meant = NamePattern::new(pattern);
            let count = found.len();
            found.extend(known.iter().filter(|topic| meant.is_match(topic)));
            if found.len() == count {
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                let message = format_args!("no topic matches '{pattern}'; there are {known}");
                return Err(Failure::new("TopicError", message));
            }
        }
        Ok(Topics::named(found))
    }
}

#[pymethods]
impl Source {
    /// Opens places: files, folders, addresses; several are merged by time.
    #[staticmethod]
    fn open(py: Python<'_>, places: Vec<PathBuf>) -> PyResult<Self> {
        let open = move || asof::open_all(&places).map_err(Failure::from);
        Ok(Source::from(&awaited(py, open)?))
    }

    /// The same as a single recording.
    fn as_one(&self) -> Self {
        Arc::clone(&self.recording).into()
    }

    /// The same with a prefix before each topic, and with log times that are this many nanoseconds later.
    fn shifted(&self, prefix: &str, by: i64) -> Self {
        Source::from(&self.named("").shifted(prefix, by))
    }

    /// Whether it has a topic.
    fn has_topic(&self, topic: &str) -> bool {
        let summary = self.recording.summary();
        let mut channels = summary.channels.iter();
        channels.any(|entry| entry.channel.topic == topic)
    }

    /// The names of its topics, sorted.
    fn topic_names(&self) -> Vec<String> {
        let summary = self.recording.summary();
        let topics = summary.topics().into_iter();
        topics.map(str::to_owned).collect()
    }

    /// Its contents, as far as they are known without reading it; of one topic, if one is named.
    #[pyo3(signature = (topic = None))]
    fn summary<'py>(&self, py: Python<'py>, topic: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
        let summary = py.detach(|| self.recording.summary());
        let dict = PyDict::new(py);
        dict.set_item("format", &summary.format)?;
        dict.set_item("library", &summary.library)?;
        dict.set_item("profile", &summary.profile)?;
        dict.set_item("size", summary.size)?;
        dict.set_item("messages", summary.messages)?;
        let range = (!summary.range.is_empty()).then_some(summary.range);
        dict.set_item("start", range.map(|range| range.start.nanos()))?;
        dict.set_item("end", range.map(|range| range.end.nanos()))?;
        dict.set_item("is_growing", self.recording.growth().is_growing())?;
        let is_wanted = |name: &str| topic.is_none_or(|topic| topic == name);
        let channels = summary.channels.iter();
        let channels = channels.filter(|entry| is_wanted(&entry.channel.topic));
        let channels = channels.map(|entry| {
            let channel = &entry.channel;
            let schema = channel.schema.as_deref();
            let schema = schema.map(|schema| {
                let text = String::from_utf8_lossy(&schema.data).into_owned();
                (schema.encoding.clone(), text)
            });
            (
                channel.topic.clone(),
                channel.type_name().to_owned(),
                channel.message_encoding.clone(),
                entry.messages,
                schema,
            )
        });
        dict.set_item("channels", channels.collect::<Vec<_>>())?;
        let problems = summary.problems.iter().map(|problem| {
            let (kind, offset) = (problem.kind.name(), problem.offset);
            (kind, offset, problem.topic.clone(), problem.message.clone())
        });
        dict.set_item("problems", problems.collect::<Vec<_>>())?;
        let attachments = summary.attachments.iter();
        let attachments =
            attachments.map(|entry| (entry.name.clone(), entry.media_type.clone(), entry.size));
        dict.set_item("attachments", attachments.collect::<Vec<_>>())?;
        let metadata = summary.metadata.iter().map(|entry| entry.name.clone());
        dict.set_item("metadata", metadata.collect::<Vec<_>>())?;
        let recent = summary.recent.as_ref();
        let recent = recent.map(|recent| {
            (
                recent.bytes,
                recent.evicted,
                recent.refused,
                recent.is_connected,
            )
        });
        dict.set_item("recent", recent)?;
        Ok(dict)
    }

    /// The contents of an attachment, by its index in the summary.
    fn attachment<'py>(
        &self,
        py: Python<'py>,
        place: usize,
    ) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let bytes = py.detach(|| -> Result<_> {
            let summary = self.recording.summary();
            let entry = summary.attachments.get(place);
            let entry =
                entry.ok_or_else(|| Failure::new("SourceError", "there is no such attachment"))?;
            Ok(self.recording.attachment(entry)?)
        })?;
        Ok(pyo3::types::PyBytes::new(py, &bytes))
    }

    /// A metadata record, by its index in the summary.
    fn metadata(&self, py: Python<'_>, place: usize) -> PyResult<BTreeMap<String, String>> {
        let texts = py.detach(|| -> Result<_> {
            let summary = self.recording.summary();
            let entry = summary.metadata.get(place);
            let entry =
                entry.ok_or_else(|| Failure::new("SourceError", "there is no such metadata"))?;
            Ok(self.recording.metadata(entry)?)
        })?;
        Ok(texts)
    }

    /// The resolved time, in nanoseconds.
    fn resolve(&self, time: Time) -> i64 {
        time.0.resolve(self.recording.summary().range).nanos()
    }

    /// One topic as a table that is read on demand.
    #[pyo3(signature = (topic, columns = None, start = None, end = None))]
    fn table(
        &self,
        py: Python<'_>,
        topic: &str,
        columns: Option<Vec<String>>,
        start: Option<Time>,
        end: Option<Time>,
    ) -> PyResult<Table> {
        let (recording, range) = (self.interruptible(), self.span(start, end));
        Ok(detached(py, || {
            let topic = recording.topic(topic)?.between(range);
            align::table(match columns {
                Some(columns) => topic.columns(&columns),
                None => topic.read(),
            })
        })??)
    }

    /// The messages of some topics, in order of log time.
    #[pyo3(signature = (topics, start = None, end = None))]
    fn messages(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        start: Option<Time>,
        end: Option<Time>,
    ) -> PyResult<Messages> {
        let query = Query {
            topics: self.topics(&topics)?,
            range: self.span(start, end),
        };
        let batches = py.detach(|| self.recording.read(&query).map_err(Failure::from))?;
        Ok(Messages::read(batches))
    }

    /// The same, then new ones as they arrive.
    #[pyo3(signature = (topics, start = None, end = None))]
    fn follow(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        start: Option<Time>,
        end: Option<Time>,
    ) -> PyResult<Messages> {
        // A topic that is not there yet may come.
        let query = Query {
            topics: self
                .topics(&topics)
                .unwrap_or_else(|_| Topics::named(topics)),
            range: self.span(start, end),
        };
        let follow = py.detach(|| self.recording.follow(&query).map_err(Failure::from))?;
        Ok(Messages::follow(follow))
    }

    /// For each message of a topic, the matching rows of others.
    fn join(
        &self,
        py: Python<'_>,
        anchor: &str,
        others: Vec<String>,
        arguments: AlignArguments,
    ) -> PyResult<Table> {
        let options = arguments.options(self.recording.summary().range)?;
        let recording = self.interruptible();
        Ok(detached(py, || {
            align::table(recording.join(anchor, &others, options))
        })??)
    }

    /// For each instant of a grid, the matching rows of topics.
    fn resample(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        hz: f64,
        arguments: AlignArguments,
    ) -> PyResult<Table> {
        let options = arguments.options(self.recording.summary().range)?;
        let recording = self.interruptible();
        Ok(detached(py, || {
            align::table(recording.resample(&topics, hz, options))
        })??)
    }

    /// The rows of an SQL query, over the topics and tables of the user's own; `name` is the name of the recording in them.
    #[pyo3(signature = (name, query, tables = OwnTables::new()))]
    fn sql(&self, py: Python<'_>, name: String, query: &str, tables: OwnTables) -> PyResult<Table> {
        let recording = self.named(&name).with_progress(interrupting());
        Ok(py.detach(|| crate::sql::query(&recording, tables, query))?)
    }

    /// All transforms in a buffer; how many were read, and what could not be used.
    #[pyo3(signature = (topics = Vec::new()))]
    fn tf(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
    ) -> PyResult<(crate::tf::Filled, u64, Vec<String>)> {
        let topics = self.topics(&topics)?;
        Ok(detached(py, || {
            crate::tf::of_recording(&self.interruptible(), &topics)
        })??)
    }

    /// The last message of each topic at or before a time.
    #[pyo3(signature = (time, topics = Vec::new()))]
    fn at(&self, py: Python<'_>, time: Time, topics: Vec<String>) -> PyResult<Vec<Message>> {
        let topics = self.topics(&topics)?;
        let at: Stamp = time.0.resolve(self.recording.summary().range);
        let known = py.detach(|| self.recording.latest_at(&topics, at).map_err(Failure::from))?;
        let decoders = SharedDecoders::default();
        let messages = known.iter();
        Ok(messages
            .map(|message| Message::new(message, None, &decoders))
            .collect())
    }
}
