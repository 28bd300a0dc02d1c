//! Messages one by one.

use std::sync::Arc;
use std::time::Instant;

use asof::decode::Record;
use asof::{Batch, Batches, Channel, Follow, FollowEnd, Followed, MessageRef};
use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::errors::{Failure, Result};
use crate::fields::{Format, SharedDecoders, StructView, Touched};
use crate::interrupt::SIGNAL_POLL_INTERVAL;
use crate::value;

/// One message: `topic`, `log_time`, `publish_time`, `sequence`, `raw`, and its fields, which are attributes as well.
///
/// A field is read when it is touched; `data`, all of them, is decoded at the first access.
#[pyclass(frozen, module = "asof")]
pub struct Message {
    format: Arc<Format>,
    log_time: i64,
    publish_time: i64,
    sequence: u32,
    payload: Bytes,
    touched: Touched,
    data: PyOnceLock<Py<PyAny>>,
}

/// A payload of at least this size stays in the buffer that it was read into, if it is a large enough part of it.
const MIN_SHARED_BYTES: usize = 64 << 10;
/// The smallest part of its buffer that something shared takes: one in this many.
pub const MAX_BUFFER_RATIO: usize = 16;

impl Message {
    /// A message of a batch. It keeps alive at most a few times its own size: a small one is copied.
    pub fn new(message: MessageRef<'_>, buffer: Option<&Bytes>, decoders: &SharedDecoders) -> Self {
        let payload = message.payload;
        let is_shared = |buffer: &&Bytes| {
            payload.len() >= MIN_SHARED_BYTES.max(buffer.len() / MAX_BUFFER_RATIO)
        };
        let payload = match buffer.filter(is_shared) {
            Some(buffer) => buffer.slice_ref(payload),
            None => Bytes::copy_from_slice(payload),
        };
        Message {
            format: decoders.format(message.channel),
            log_time: message.log_time.nanos(),
            publish_time: message.publish_time.nanos(),
            sequence: message.sequence,
            payload,
            touched: Touched::default(),
            data: PyOnceLock::new(),
        }
    }

    fn channel(&self) -> &Arc<Channel> {
        &self.format.channel
    }

    /// The same message as a type of asof's crates.
    pub fn to_message(&self) -> asof::Message {
        asof::Message {
            channel: Arc::clone(self.channel()),
            log_time: asof::Stamp::from_nanos(self.log_time),
            publish_time: asof::Stamp::from_nanos(self.publish_time),
            sequence: self.sequence,
            payload: self.payload.clone(),
        }
    }

    /// Its meaning.
    pub fn meaning(&self) -> Result<Record> {
        let message = self.to_message();
        let meaning = self
            .format
            .with_decoders(|decoders| decoders.meaning(&message));
        meaning.map_err(|error| self.refused(&error))
    }

    /// Why it cannot be converted as requested.
    pub fn refused(&self, reason: &dyn std::fmt::Display) -> Failure {
        self.format.refused(self.log_time, reason)
    }

    /// Where its fields are, if they can be read one by one.
    fn view(&self) -> Option<StructView<'_>> {
        Some(StructView {
            format: &self.format,
            payload: &self.payload,
            place: self.format.message(&self.payload)?,
            log_time: self.log_time,
        })
    }

    fn decode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let data = self.data.get_or_try_init(py, || {
            if let Some(view) = self.view() {
                return Ok::<_, PyErr>(view.record(py)?.unbind());
            }
            let message = self.to_message();
            let record = py.detach(|| {
                self.format
                    .with_decoders(|decoders| decoders.record(&message))
            });
            let record = record.map_err(|error| self.refused(&error))?;
            let batch = record.batch();
            let times = batch.schema_ref().fields().iter().take(3);
            let is_time = |field: &&Arc<arrow_schema::Field>| {
                matches!(field.data_type(), arrow_schema::DataType::Timestamp(..))
            };
            let times = times.take_while(is_time).count();
            Ok(value::record(py, batch, 0, times)?.unbind())
        })?;
        Ok(data.bind(py).clone())
    }

    /// A field; of a message that has to be decoded whole, an entry of its data.
    fn field<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.view() {
            Some(view) => view.field(py, &self.touched, name),
            None => self.decode(py)?.cast::<PyDict>()?.get_item(name),
        }
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        match self.view() {
            Some(view) => Ok(view.names().into_iter().map(str::to_owned).collect()),
            None => self.decode(py)?.cast::<PyDict>()?.keys().extract(),
        }
    }
}

#[pymethods]
impl Message {
    /// The topic.
    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, &self.channel().topic)
    }

    /// When it was recorded, in nanoseconds since 1970.
    #[getter]
    fn log_time(&self) -> i64 {
        self.log_time
    }

    /// When it was sent, by its sender's clock.
    #[getter]
    fn publish_time(&self) -> i64 {
        self.publish_time
    }

    /// The sequence number of its sender.
    #[getter]
    fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The name of its type.
    #[getter]
    fn r#type(&self) -> &str {
        self.channel().type_name()
    }

    /// Its encoding: `cdr`, `ros1`, `protobuf`, `json`, …
    #[getter]
    fn encoding(&self) -> &str {
        &self.channel().message_encoding
    }

    /// Its bytes, as recorded.
    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.payload)
    }

    /// Its fields: a dict, whose entries are attributes too.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.decode(py)
    }

    /// Its stamp, the time of measurement, in nanoseconds; None where it has none.
    #[getter]
    fn stamp(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        let stamp = py.detach(|| {
            let batch: Batch = [self.to_message()].into_iter().collect();
            let stamp = |message| {
                self.format
                    .with_decoders(|decoders| decoders.stamp(message))
            };
            batch.get(0).map_or(Ok(None), stamp)
        });
        Ok(stamp.map_err(Failure::from)?.map(asof::Stamp::nanos))
    }

    /// Its picture as an array of height x width, or height x width x 3 in the order red, green, blue.
    fn image<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let helper = slf.py().import("asof._image")?.getattr("image")?;
        helper.call1((slf,))
    }

    /// Its points as a structured array, one entry per point, which shares the message's memory.
    fn cloud<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let helper = slf.py().import("asof._image")?.getattr("cloud")?;
        helper.call1((slf,))
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = self.field(py, name)? {
            return Ok(value);
        }
        Err(PyAttributeError::new_err(format!(
            "a message on {} has no field '{name}'; it has {}",
            self.channel().topic,
            self.names(py)?.join(", ")
        )))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.field(py, name)?;
        found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn __dir__(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let mut names: Vec<String> = slf.get_type().dir()?.extract()?;
        names.extend(slf.get().names(slf.py())?);
        Ok(names)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Parts<'py>)> {
        let again = py.import("asof._asof")?.getattr("message_of")?;
        let channel = self.channel();
        let schema = channel.schema.as_deref().map(|schema| {
            let text = PyBytes::new(py, &schema.data);
            (schema.name.clone(), schema.encoding.clone(), text)
        });
        let named = (
            channel.topic.clone(),
            channel.message_encoding.clone(),
            schema,
        );
        let times = (self.log_time, self.publish_time, self.sequence);
        Ok((again, (named, times, self.raw(py))))
    }

    fn __len__(&self) -> usize {
        self.payload.len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!(
            "<asof.Message {} {} at {}, {} bytes>",
            self.channel().topic,
            self.channel().type_name(),
            asof::Stamp::from_nanos(self.log_time),
            self.payload.len()
        )
    }
}

/// A pickled channel: its topic, its encoding, and the name, the language and the text of its schema.
type Named<B> = (String, String, Option<(String, String, B)>);
/// The parts of a pickled message: its channel, its times and number, and its bytes.
type Parts<'py> = (
    Named<Bound<'py, PyBytes>>,
    (i64, i64, u32),
    Bound<'py, PyBytes>,
);

/// Restores a pickled message.
#[pyfunction]
pub fn message_of(channel: Named<Vec<u8>>, times: (i64, i64, u32), payload: Vec<u8>) -> Message {
    let (topic, message_encoding, schema) = channel;
    let schema = schema.map(|(name, encoding, data)| {
        let data = data.into();
        Arc::new(asof::Schema {
            name,
            encoding,
            data,
        })
    });
    let channel = Channel {
        topic,
        message_encoding,
        schema,
        ..Channel::default()
    };
    let (log_time, publish_time, sequence) = times;
    Message {
        format: SharedDecoders::default().format(&Arc::new(channel)),
        log_time,
        publish_time,
        sequence,
        payload: payload.into(),
        touched: Touched::default(),
        data: PyOnceLock::new(),
    }
}

/// Where messages come from.
enum Feed {
    Read(Batches),
    Follow(Box<dyn Follow>),
}

impl Feed {
    /// More messages; an empty batch where there are none yet, `None` after the last one.
    fn next(&mut self) -> Result<Option<Batch>> {
        match self {
            Feed::Read(batches) => Ok(batches.next().transpose()?),
            Feed::Follow(follow) => match follow.next(Instant::now() + SIGNAL_POLL_INTERVAL)? {
                Followed::Batch(batch) => Ok(Some(batch)),
                Followed::CaughtUp | Followed::Restarted => Ok(Some(Batch::default())),
                Followed::End(FollowEnd::Lost(reason)) => Err(Failure::new("LiveError", reason)),
                Followed::End(_) => Ok(None),
            },
        }
    }
}

/// Messages of a recording in order of log time, read on demand.
#[pyclass(module = "asof")]
pub struct Messages {
    /// Only one thread at a time has it: its contents need not be `Sync`.
    feed: Mutex<Feed>,
    batch: Batch,
    next: usize,
    decoders: SharedDecoders,
}

impl Messages {
    /// The messages of these batches.
    pub fn read(batches: Batches) -> Self {
        Messages::of(Feed::Read(batches))
    }

    /// The messages of a source that grows.
    pub fn follow(follow: Box<dyn Follow>) -> Self {
        Messages::of(Feed::Follow(follow))
    }

    fn of(feed: Feed) -> Self {
        Messages {
            feed: Mutex::new(feed),
            batch: Batch::default(),
            next: 0,
            decoders: SharedDecoders::default(),
        }
    }
}

#[pymethods]
impl Messages {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(mut slf: PyRefMut<'_, Self>, py: Python<'_>) -> PyResult<Option<Message>> {
        let this = &mut *slf;
        while this.next >= this.batch.len() {
            py.check_signals()?;
            let feed = this.feed.get_mut();
            let batch = py.detach(|| feed.next())?;
            let is_over = batch.is_none();
            this.next = 0;
            this.batch = batch.unwrap_or_default();
            if is_over {
                return Ok(None);
            }
        }
        let at = this.next;
        this.next += 1;
        let row = &this.batch.rows()[at];
        let buffer = this.batch.buffers().get(row.buffer as usize);
        let message = this.batch.get(at);
        Ok(message.map(|message| Message::new(message, buffer, &this.decoders)))
    }
}
