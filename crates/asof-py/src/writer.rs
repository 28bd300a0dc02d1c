//! Recordings written from Python.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use asof::formats::{McapWriteError, McapWriter, McapWriterOptions};
use asof::{Channel, Message as Written, Query, Schema, Source as _, Stamp};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::errors::{Failure, Result};
use crate::json;
use crate::message::Message;
use crate::source::Source;
use crate::time::Time;

impl From<McapWriteError> for Failure {
    fn from(error: McapWriteError) -> Self {
        Failure::new("WriteError", error)
    }
}

/// Writes an MCAP file, which appears under its name when it is complete.
#[pyclass(frozen, module = "asof._asof")]
pub struct Writer(Mutex<Option<Open>>);

struct Open {
    writer: McapWriter<BufWriter<File>>,
    /// The file while it is being written, and its name when it is complete.
    partial: PathBuf,
    path: PathBuf,
    /// Channels by the topics that they are written to.
    channels: HashMap<(usize, String), (Arc<Channel>, Arc<Channel>)>,
}

impl Writer {
    fn with<T>(&self, work: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
        let mut open = self.0.lock();
        let closed = || {
            Failure::new(
                "WriteError",
                "the writer was closed; nothing more can be written",
            )
        };
        work(open.as_mut().ok_or_else(closed)?)
    }
}

impl Open {
    /// The channel of a message, under another topic.
    fn channel(&mut self, channel: &Arc<Channel>, topic: &str) -> Arc<Channel> {
        let key = (Arc::as_ptr(channel) as usize, topic.to_owned());
        let made = self.channels.entry(key).or_insert_with(|| {
            let renamed = Channel {
                topic: topic.to_owned(),
                ..Channel::clone(channel)
            };
            // The channel is kept, so that its address is not reused.
            (Arc::clone(channel), Arc::new(renamed))
        });
        Arc::clone(&made.1)
    }

    fn finish(self) -> Result<u64> {
        let written = self.writer.written();
        self.writer.finish()?;
        fs::rename(&self.partial, &self.path).map_err(|error| {
            let path = self.path.display();
            Failure::new("WriteError", format_args!("cannot write {path}: {error}"))
        })?;
        Ok(written)
    }
}

/// A file that was not closed keeps what was written.
impl Drop for Writer {
    fn drop(&mut self) {
        let open = self.0.get_mut();
        if let Some(open) = open.take() {
            let _ = open.finish();
        }
    }
}

#[pymethods]
impl Writer {
    /// Starts a file.
    #[new]
    #[pyo3(signature = (path, compression = "zstd", level = 0, profile = ""))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        compression: &str,
        level: u32,
        profile: &str,
    ) -> PyResult<Self> {
        let options = McapWriterOptions {
            compression: crate::verbs::compression(compression)?,
            level,
            profile: profile.to_owned(),
            ..McapWriterOptions::default()
        };
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::new(
                "WriteError",
                format_args!("cannot write {}: {error}", path.display()),
            )
        };
        if path.is_dir() {
            return Err(cannot(&"it is a folder; name a file in it").into());
        }
        let name = path
            .file_name()
            .ok_or_else(|| cannot(&"it is not the name of a file"))?;
        let partial = path.with_file_name(format!(
            ".{}.{}.partial",
            name.to_string_lossy(),
            std::process::id()
        ));
        let writer = py.detach(|| McapWriter::create(&partial, options));
        let writer = writer.map_err(|error| cannot(&error))?;
        Ok(Writer(Mutex::new(Some(Open {
            writer,
            partial,
            path,
            channels: HashMap::new(),
        }))))
    }

    /// Writes a message to a topic, as recorded.
    fn message(&self, py: Python<'_>, topic: &str, message: &Bound<'_, Message>) -> PyResult<()> {
        let message = message.get().to_message();
        Ok(py.detach(|| {
            self.with(|open| {
                let channel = open.channel(&message.channel, topic);
                Ok(open.writer.write(&Written { channel, ..message })?)
            })
        })?)
    }

    /// Writes bytes to a topic, with a type given by its name, its language and its text.
    #[pyo3(signature = (topic, log_time, payload, encoding, schema = None))]
    fn raw(
        &self,
        py: Python<'_>,
        topic: &str,
        log_time: Time,
        payload: Vec<u8>,
        encoding: &str,
        schema: Option<(String, String, Vec<u8>)>,
    ) -> PyResult<()> {
        let at = log_time.absolute()?;
        let channel = Channel {
            topic: topic.to_owned(),
            message_encoding: encoding.to_owned(),
            schema: schema.map(|(name, encoding, data)| {
                let data = data.into();
                Arc::new(Schema {
                    name,
                    encoding,
                    data,
                })
            }),
            ..Channel::default()
        };
        Ok(py.detach(|| {
            self.with(|open| {
                let written = Written {
                    channel: Arc::new(channel),
                    log_time: at,
                    publish_time: at,
                    sequence: 0,
                    payload: payload.into(),
                };
                Ok(open.writer.write(&written)?)
            })
        })?)
    }

    /// Writes the messages of another recording's topic, as recorded.
    #[pyo3(signature = (topic, source, of, start = None, end = None))]
    fn copy(
        &self,
        py: Python<'_>,
        topic: &str,
        source: &Bound<'_, Source>,
        of: &str,
        start: Option<Time>,
        end: Option<Time>,
    ) -> PyResult<()> {
        let recording = Arc::clone(&source.get().recording);
        let range = crate::time::range(recording.summary().range, start, end);
        let query = Query::topics([of]).between(range);
        let mut batches = py
            .detach(|| recording.read(&query))
            .map_err(Failure::from)?;
        while let Some(batch) = py.detach(|| batches.next()) {
            py.check_signals()?;
            let batch = batch.map_err(Failure::from)?;
            py.detach(|| {
                self.with(|open| {
                    for message in batch.iter() {
                        let channel = open.channel(message.channel, topic);
                        let message = message.to_message();
                        open.writer.write(&Written { channel, ..message })?;
                    }
                    Ok(())
                })
            })?;
        }
        Ok(())
    }

    /// Writes the rows of any Arrow table as JSON messages, with a schema; `log_time` is one of the columns.
    #[pyo3(signature = (topic, table, log_time = None))]
    fn rows(
        &self,
        py: Python<'_>,
        topic: &str,
        table: PyRecordBatchReader,
        log_time: Option<String>,
    ) -> PyResult<()> {
        let mut reader = table.into_reader()?;
        let layout = Layout::of(topic, &reader.schema(), log_time.as_deref())?;
        loop {
            py.check_signals()?;
            // A Python stream may need the GIL.
            let Some(batch) = reader.next() else {
                return Ok(());
            };
            let batch = batch.map_err(Failure::from)?;
            py.detach(|| self.with(|open| layout.write(&batch, &mut open.writer)))?;
        }
    }

    /// How many messages were written.
    #[getter]
    fn written(&self) -> PyResult<u64> {
        Ok(self.with(|open| Ok(open.writer.written()))?)
    }

    /// Ends the file; returns how many messages it has. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let open = self.0.lock().take();
        Ok(py.detach(|| open.map(Open::finish).transpose())?)
    }
}

/// How rows become messages.
struct Layout {
    channel: Arc<Channel>,
    log_time: usize,
    publish_time: Option<usize>,
    /// The columns of the message, and their names.
    shown: Vec<(usize, String)>,
}

impl Layout {
    fn of(topic: &str, schema: &SchemaRef, log_time: Option<&str>) -> Result<Self> {
        let fields = schema.fields();
        let place = |name: &str| fields.iter().position(|field| field.name() == name);
        let names = || {
            fields
                .iter()
                .map(|field| field.name().as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let found = match log_time {
            Some(name) => place(name),
            None => ["log_time", "time", "stamp"].into_iter().find_map(place),
        };
        let found = found.filter(|at| is_time(fields[*at].data_type()));
        let log_time = found.ok_or_else(|| {
            let wanted = log_time.unwrap_or("log_time");
            let message = format_args!(
                "the table for {topic} has no time column '{wanted}' with the log time of each row; it has {}",
                names()
            );
            Failure::new("FieldError", message)
        })?;
        let publish_time = place("publish_time").filter(|at| is_time(fields[*at].data_type()));
        let is_shown = |at: &usize| {
            let is_log_time = *at == log_time && fields[*at].name() != "stamp";
            !is_log_time && Some(*at) != publish_time
        };
        let shown = (0..fields.len()).filter(is_shown);
        let shown: Vec<(usize, String)> = shown.map(|at| (at, fields[at].name().clone())).collect();
        let own: Vec<&Field> = shown.iter().map(|(at, _)| &*fields[*at]).collect();
        let name = schema.metadata().get("asof:type").cloned();
        let channel = Channel {
            topic: topic.to_owned(),
            message_encoding: "json".to_owned(),
            schema: Some(Arc::new(Schema {
                name: name.unwrap_or_else(|| topic.trim_start_matches('/').to_owned()),
                encoding: "jsonschema".to_owned(),
                data: json::schema(&own)?.into(),
            })),
            ..Channel::default()
        };
        Ok(Layout {
            channel: Arc::new(channel),
            log_time,
            publish_time,
            shown,
        })
    }

    fn write(&self, batch: &RecordBatch, writer: &mut McapWriter<BufWriter<File>>) -> Result<()> {
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let times = |at: usize| arrow_cast::cast(batch.column(at), &nanos);
        let log_times = times(self.log_time)?;
        let publish_times = self.publish_time.map(times).transpose()?;
        let stamp = |times: &ArrayRef, row: usize| {
            let times = times.as_primitive::<TimestampNanosecondType>();
            times
                .is_valid(row)
                .then(|| Stamp::from_nanos(times.value(row)))
        };
        for row in 0..batch.num_rows() {
            let log_time = stamp(&log_times, row).ok_or_else(|| {
                let topic = &self.channel.topic;
                Failure::new(
                    "WriteError",
                    format_args!("row {row} for {topic} has no time"),
                )
            })?;
            let sent = publish_times.as_ref().and_then(|times| stamp(times, row));
            let columns = self
                .shown
                .iter()
                .map(|(at, name)| (name.as_str(), batch.column(*at)));
            let mut payload = Vec::new();
            json::object(&mut payload, columns, row)?;
            writer.write(&Written {
                channel: Arc::clone(&self.channel),
                log_time,
                publish_time: sent.unwrap_or(log_time),
                sequence: 0,
                payload: payload.into(),
            })?;
        }
        Ok(())
    }
}

fn is_time(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(..) | DataType::Int64)
}
