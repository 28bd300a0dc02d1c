//! The fields of a message, read when they are touched.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;
use asof::Channel;
use asof::decode::{
    ByChannel, Decoders, FieldReader, FieldValue, NumberList, PayloadError, Scalar, StructPlace,
};
use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::errors::Failure;
use crate::ndarray::from_buffer;
use crate::value::empty_record;

/// The decoders of a reader's channels, shared by all of its messages.
#[derive(Clone, Default)]
pub struct SharedDecoders {
    decoders: Arc<Mutex<Decoders>>,
    formats: Arc<Mutex<ByChannel<Arc<Format>>>>,
}

impl SharedDecoders {
    /// How messages of a channel are decoded.
    pub fn format(&self, channel: &Arc<Channel>) -> Arc<Format> {
        let mut formats = self.formats.lock();
        let made = formats.get(channel, || {
            Arc::new(Format {
                channel: Arc::clone(channel),
                decoders: Arc::clone(&self.decoders),
                reader: OnceLock::new(),
            })
        });
        Arc::clone(made)
    }
}

/// How messages of a channel are decoded.
pub struct Format {
    pub channel: Arc<Channel>,
    decoders: Arc<Mutex<Decoders>>,
    /// `None` for messages that have to be decoded whole.
    reader: OnceLock<Option<FieldReader>>,
}

impl Format {
    /// Decodes with the decoders of all channels.
    pub fn with_decoders<T>(&self, work: impl FnOnce(&mut Decoders) -> T) -> T {
        work(&mut self.decoders.lock())
    }

    /// The message in a payload, if its fields can be read one by one.
    pub fn message(&self, payload: &[u8]) -> Option<StructPlace> {
        self.reader()?.message(payload)
    }

    fn reader(&self) -> Option<&FieldReader> {
        let reader = self.reader.get_or_init(|| FieldReader::new(&self.channel));
        reader.as_ref()
    }

    /// Why a message cannot be decoded as requested.
    pub fn refused(&self, log_time: i64, reason: &dyn std::fmt::Display) -> Failure {
        let at = asof::Stamp::from_nanos(log_time);
        let (topic, kind) = (&self.channel.topic, self.channel.type_name());
        Failure::new(
            "DecodeError",
            format_args!("{topic} at {at} ({kind}): {reason}"),
        )
    }
}

/// Values of fields that were touched: touched again they are the same objects.
#[derive(Default)]
pub struct Touched(Mutex<Vec<(usize, Py<PyAny>)>>);

impl Touched {
    fn get<'py>(&self, py: Python<'py>, index: usize) -> Option<Bound<'py, PyAny>> {
        let values = self.0.lock();
        let mut values = values.iter();
        let found = values.find(|(known, _)| *known == index);
        found.map(|(_, value)| value.bind(py).clone())
    }

    fn keep(&self, index: usize, value: &Bound<'_, PyAny>) {
        let mut values = self.0.lock();
        values.push((index, value.clone().unbind()));
    }
}

/// A struct in a payload.
pub struct StructView<'a> {
    pub format: &'a Arc<Format>,
    pub payload: &'a Bytes,
    pub place: StructPlace,
    pub log_time: i64,
}

impl StructView<'_> {
    fn failed(&self, error: &PayloadError) -> PyErr {
        self.format.refused(self.log_time, error).into()
    }

    /// The names of its fields.
    pub fn names(&self) -> Vec<&str> {
        let reader = self.format.reader();
        reader.map_or_else(Vec::new, |reader| reader.names(self.place).collect())
    }

    /// A field by its name, if there is one.
    pub fn field<'py>(
        &self,
        py: Python<'py>,
        touched: &Touched,
        name: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.format.reader();
        let index = reader.and_then(|reader| reader.index(self.place, name));
        index
            .map(|index| self.field_at(py, touched, index))
            .transpose()
    }

    fn field_at<'py>(
        &self,
        py: Python<'py>,
        touched: &Touched,
        index: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = touched.get(py, index) {
            return Ok(value);
        }
        let value = self.read(index)?;
        let is_number = matches!(
            value,
            FieldValue::Bool(_) | FieldValue::Int(_) | FieldValue::Uint(_) | FieldValue::Float(_)
        );
        let object = self.object(py, value, false)?;
        if !is_number {
            touched.keep(index, &object);
        }
        Ok(object)
    }

    fn read(&self, index: usize) -> PyResult<FieldValue<'_>> {
        let Some(reader) = self.format.reader() else {
            return Ok(FieldValue::List(Vec::new()));
        };
        let value = reader.value_at(self.payload, self.place, index);
        value.map_err(|error| self.failed(&error))
    }

    /// All fields, as a `Record`.
    pub fn record<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let record = empty_record(py)?;
        let entries = record.cast::<PyDict>()?;
        for (index, name) in self.names().into_iter().enumerate() {
            let value = self.object(py, self.read(index)?, true)?;
            entries.set_item(PyString::intern(py, name), value)?;
        }
        Ok(record)
    }

    /// A value; structs are `Fields`, or `Record`s where all of it is wanted.
    fn object<'py>(
        &self,
        py: Python<'py>,
        value: FieldValue<'_>,
        is_whole: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        match value {
            FieldValue::Bool(value) => value.into_bound_py_any(py),
            FieldValue::Int(value) => value.into_bound_py_any(py),
            FieldValue::Uint(value) => value.into_bound_py_any(py),
            FieldValue::Float(value) => value.into_bound_py_any(py),
            FieldValue::Text(value) => Ok(PyString::new(py, &value).into_any()),
            FieldValue::Bytes(bytes) => from_buffer(py, self.buffer(bytes), "<u1"),
            FieldValue::Numbers(list) => self.numbers(py, &list),
            FieldValue::List(items) => {
                let items = items.into_iter();
                let items: Vec<_> = items
                    .map(|item| self.object(py, item, is_whole))
                    .collect::<PyResult<_>>()?;
                Ok(PyList::new(py, items)?.into_any())
            }
            FieldValue::Struct(place) if is_whole => StructView { place, ..*self }.record(py),
            FieldValue::Struct(place) => Fields {
                format: Arc::clone(self.format),
                payload: self.payload.clone(),
                place,
                log_time: self.log_time,
                touched: Touched::default(),
            }
            .into_bound_py_any(py),
        }
    }

    /// Bytes of the payload, which are shared unless they are a small part of it.
    fn buffer(&self, bytes: &[u8]) -> Buffer {
        if bytes.len() * crate::message::MAX_BUFFER_RATIO < self.payload.len() {
            return Buffer::from(bytes);
        }
        Buffer::from(self.payload.slice_ref(bytes))
    }

    /// Numbers as an array. Those of several bytes are copied to where they are aligned.
    fn numbers<'py>(&self, py: Python<'py>, list: &NumberList<'_>) -> PyResult<Bound<'py, PyAny>> {
        let width = list.scalar.width();
        let dtype = match list.scalar {
            Scalar::Bool => "?",
            Scalar::Int8 => "<i1",
            Scalar::Int16 => "<i2",
            Scalar::Int32 => "<i4",
            Scalar::Int64 => "<i8",
            Scalar::Uint8 => "<u1",
            Scalar::Uint16 => "<u2",
            Scalar::Uint32 => "<u4",
            Scalar::Uint64 => "<u8",
            Scalar::Float32 => "<f4",
            Scalar::Float64 => "<f8",
        };
        let buffer = if list.scalar == Scalar::Bool {
            let truths = list.bytes.iter().map(|byte| u8::from(*byte != 0));
            Buffer::from_vec(truths.collect::<Vec<u8>>())
        } else if width == 1 {
            self.buffer(list.bytes)
        } else if list.is_big_endian {
            let mut swapped = list.bytes.to_vec();
            swapped.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            Buffer::from(&*swapped)
        } else {
            Buffer::from(list.bytes)
        };
        from_buffer(py, buffer, dtype)
    }
}

/// The fields of a struct within a message, as attributes and by key. Each is read when it is touched; `to_dict()` reads all.
#[pyclass(frozen, mapping, module = "asof")]
pub struct Fields {
    format: Arc<Format>,
    payload: Bytes,
    place: StructPlace,
    log_time: i64,
    touched: Touched,
}

impl Fields {
    fn view(&self) -> StructView<'_> {
        StructView {
            format: &self.format,
            payload: &self.payload,
            place: self.place,
            log_time: self.log_time,
        }
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let view = self.view();
        let count = view.names().len();
        (0..count)
            .map(|index| view.field_at(py, &self.touched, index))
            .collect()
    }
}

#[pymethods]
impl Fields {
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let view = self.view();
        if let Some(value) = view.field(py, &self.touched, name)? {
            return Ok(value);
        }
        let known = view.names();
        let known = if known.is_empty() {
            Cow::Borrowed("none")
        } else {
            known.join(", ").into()
        };
        Err(PyAttributeError::new_err(format!(
            "there is no field '{name}'; there are {known}"
        )))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.view().field(py, &self.touched, name)?;
        found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    /// A field, or something else where there is none of this name.
    #[pyo3(signature = (name, default = None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.view().field(py, &self.touched, name)?.or(default))
    }

    /// The names of the fields.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let view = self.view();
        let names = view.names().into_iter();
        PyList::new(py, names.map(|name| PyString::intern(py, name)))
    }

    /// All values.
    #[pyo3(name = "values")]
    fn all_values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.values(py)?)
    }

    /// All names, each with its value.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values = self.values(py)?;
        let view = self.view();
        let names = view.names().into_iter();
        let pairs: Vec<Bound<'py, PyTuple>> = names
            .zip(values)
            .map(|(name, value)| PyTuple::new(py, [PyString::intern(py, name).into_any(), value]))
            .collect::<PyResult<_>>()?;
        PyList::new(py, pairs)
    }

    /// All of it, as a dict whose entries are attributes too.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.view().record(py)
    }

    fn __len__(&self) -> usize {
        self.view().names().len()
    }

    fn __bool__(&self) -> bool {
        self.__len__() > 0
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        let Ok(name) = name.cast::<PyString>() else {
            return false;
        };
        let name = name.to_string_lossy();
        let reader = self.format.reader();
        reader.is_some_and(|reader| reader.index(self.place, &name).is_some())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.keys(py)?.try_iter()?.into_any())
    }

    fn __eq__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<bool> {
        let own = self.to_dict(py)?;
        match other.cast::<Fields>() {
            Ok(other) => own.eq(other.get().to_dict(py)?),
            Err(_) => own.eq(other),
        }
    }

    fn __dir__(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let mut names: Vec<String> = slf.get_type().dir()?.extract()?;
        let own = slf.get().view();
        names.extend(own.names().into_iter().map(str::to_owned));
        Ok(names)
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        let record = self.to_dict(py)?;
        let class = record.get_type().into_any();
        Ok((class, (record.cast::<PyDict>()?.copy()?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.to_dict(py)?.repr()?.to_string())
    }
}
