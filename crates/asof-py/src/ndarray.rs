//! Arrow arrays as numpy arrays, which share their memory wherever the layouts agree.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, TimeUnit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::value::value;

static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Bytes that numpy looks at in place. Python 3.10 has no buffer protocol in its stable ABI; numpy's own is a dictionary.
#[pyclass(module = "asof._asof", frozen)]
struct Memory(Buffer);

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("shape", (self.0.len(),))?;
        let is_read_only = true;
        interface.set_item("data", (self.0.as_ptr().addr(), is_read_only))?;
        Ok(interface)
    }
}

/// A buffer as an array of numbers. Nothing is copied: the array keeps the buffer alive, and is read-only.
pub fn from_buffer<'py>(
    py: Python<'py>,
    buffer: Buffer,
    dtype: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let function = AS_ARRAY.get_or_try_init(py, || {
        let function = py.import("numpy")?.getattr("asarray")?;
        Ok::<_, PyErr>(function.unbind())
    })?;
    let bytes = function
        .bind(py)
        .call1((Bound::new(py, Memory(buffer))?,))?;
    bytes.call_method1("view", (dtype,))
}

/// The numpy type for Arrow numbers.
fn dtype(kind: &DataType) -> Option<(&'static str, usize)> {
    Some(match kind {
        DataType::Float64 => ("<f8", 8),
        DataType::Float32 => ("<f4", 4),
        DataType::Int8 => ("<i1", 1),
        DataType::Int16 => ("<i2", 2),
        DataType::Int32 => ("<i4", 4),
        DataType::Int64 => ("<i8", 8),
        DataType::UInt8 => ("<u1", 1),
        DataType::UInt16 => ("<u2", 2),
        DataType::UInt32 => ("<u4", 4),
        DataType::UInt64 => ("<u8", 8),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => ("<M8[ns]", 8),
        _ => return None,
    })
}

/// Whether an array is numbers or booleans, without nulls.
pub fn is_plain(array: &ArrayRef) -> bool {
    let is_number = dtype(array.data_type()).is_some();
    (is_number || array.data_type() == &DataType::Boolean) && array.null_count() == 0
}

/// An array of numbers, without nulls.
pub fn plain<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    if let Some(truths) = array.as_boolean_opt() {
        return booleans(py, truths);
    }
    let Some((dtype, width)) = dtype(array.data_type()) else {
        return objects(py, array);
    };
    let data = array.to_data();
    let values = data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width);
    from_buffer(py, values, dtype)
}

fn booleans<'py>(py: Python<'py>, truths: &BooleanArray) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = truths.values().iter().map(u8::from).collect();
    from_buffer(py, Buffer::from_vec(bytes), "?")
}

/// A complete column: numbers with NaN and NaT for nulls; lists of one length as rows of a matrix;
/// structs as structured arrays; everything else as objects.
pub fn column<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    if is_plain(array) {
        return plain(py, array);
    }
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let times = array.as_primitive::<TimestampNanosecondType>().iter();
            let times: Vec<i64> = times.map(|time| time.unwrap_or(i64::MIN)).collect();
            from_buffer(py, Buffer::from_vec(times), "<M8[ns]")
        }
        kind if dtype(kind).is_some() => {
            let wide = arrow_cast::cast(array, &DataType::Float64)
                .map_err(crate::errors::Failure::from)?;
            let values = wide.as_primitive::<Float64Type>().iter();
            let values: Vec<f64> = values.map(|value| value.unwrap_or(f64::NAN)).collect();
            from_buffer(py, Buffer::from_vec(values), "<f8")
        }
        DataType::FixedSizeBinary(size) if array.null_count() == 0 => {
            let data = array.to_data();
            let size = *size as usize;
            let bytes =
                data.buffers()[0].slice_with_length(data.offset() * size, data.len() * size);
            reshaped(py, &from_buffer(py, bytes, "<u1")?, array.len(), size)
        }
        DataType::FixedSizeList(_, size) if array.null_count() == 0 => {
            let list = array.as_fixed_size_list();
            let size = *size as usize;
            let values = list
                .values()
                .slice(list.value_offset(0) as usize, list.len() * size);
            matrix(py, array, &values, size)
        }
        DataType::List(_) if array.null_count() == 0 => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let first = offsets.windows(2).map(|pair| pair[1] - pair[0]).next();
            let size = first.unwrap_or(0);
            if offsets.windows(2).any(|pair| pair[1] - pair[0] != size) {
                return objects(py, array);
            }
            let count = size as usize * list.len();
            let values = list.values().slice(offsets[0] as usize, count);
            matrix(py, array, &values, size as usize)
        }
        DataType::Struct(fields) if array.null_count() == 0 => {
            let columns = array.as_struct().columns().iter();
            let columns: Vec<Bound<'_, PyAny>> = columns
                .map(|inner| column(py, inner))
                .collect::<PyResult<_>>()?;
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            let helper = py.import("asof._ndarray")?.getattr("structured")?;
            helper.call1((array.len(), names, columns))
        }
        _ => objects(py, array),
    }
}

fn matrix<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    values: &ArrayRef,
    size: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let inner = column(py, values)?;
    let is_object: bool = inner.getattr("dtype")?.getattr("hasobject")?.extract()?;
    if is_object {
        return objects(py, array);
    }
    reshaped(py, &inner, array.len(), size)
}

fn reshaped<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    rows: usize,
    size: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let inner = values.getattr("shape")?;
    let mut shape: Vec<usize> = vec![rows, size];
    shape.extend(
        inner
            .cast::<PyTuple>()?
            .iter()
            .skip(1)
            .map(|length| length.extract::<usize>())
            .collect::<PyResult<Vec<_>>>()?,
    );
    values.call_method1("reshape", (PyTuple::new(py, shape)?,))
}

fn objects<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    let values: Vec<Bound<'_, PyAny>> = (0..array.len())
        .map(|row| value(py, array, row))
        .collect::<PyResult<_>>()?;
    let helper = py.import("asof._ndarray")?.getattr("objects")?;
    helper.call1((PyList::new(py, values)?,))
}

/// The bytes of one row, which are not copied unless they are few.
pub fn bytes_at<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    from_buffer(py, buffer_at(array, row), "<u1")
}

fn buffer_at(array: &ArrayRef, row: usize) -> Buffer {
    match array.data_type() {
        DataType::BinaryView => {
            let views = array.as_binary_view();
            let view = views.views()[row];
            let length = view as u32;
            // Up to twelve bytes are in the view itself.
            if length <= 12 {
                return Buffer::from(views.value(row));
            }
            let (at, offset) = ((view >> 64) as u32, (view >> 96) as u32);
            let buffer = &views.data_buffers()[at as usize];
            buffer.slice_with_length(offset as usize, length as usize)
        }
        DataType::Binary => {
            let bytes = array.as_binary::<i32>();
            let offsets = bytes.value_offsets();
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            bytes.values().slice_with_length(start, end - start)
        }
        _ => {
            let data = array.to_data();
            let size = array.as_fixed_size_binary().value_length() as usize;
            data.buffers()[0].slice_with_length((data.offset() + row) * size, size)
        }
    }
}
