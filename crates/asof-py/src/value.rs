//! Values of decoded messages as Python values.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Fields};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString};

use crate::ndarray;

static RECORD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A `Record` without entries.
pub fn empty_record(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let class = RECORD.get_or_try_init(py, || {
        let class = py.import("asof._record")?.getattr("Record")?;
        Ok::<_, PyErr>(class.unbind())
    })?;
    class.bind(py).call0()
}

/// A row of a table as a `Record`: a dict whose fields are attributes too. The first `skipped` columns are left out.
pub fn record<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    row: usize,
    skipped: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let fields = batch.schema_ref().fields();
    fill(py, fields, batch.columns(), row, skipped)
}

fn fill<'py>(
    py: Python<'py>,
    fields: &Fields,
    columns: &[ArrayRef],
    row: usize,
    skipped: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let record = empty_record(py)?;
    let entries = record.cast::<PyDict>()?;
    for (field, column) in fields.iter().zip(columns).skip(skipped) {
        // A time that the table adds may have taken the field's name.
        let own = field.metadata().get("asof:name");
        let name = PyString::intern(py, own.unwrap_or(field.name()));
        entries.set_item(name, value(py, column, row)?)?;
    }
    Ok(record)
}

/// One value of an array: numbers, texts and booleans as Python's, lists of numbers and bytes as numpy arrays that
/// share the memory, structs as records, times as nanoseconds.
pub fn value<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! number {
        ($kind:ty) => {{
            let values = array.as_primitive::<$kind>();
            native::<$kind>(py, values.value(row))
        }};
    }
    if array.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    match array.data_type() {
        DataType::Float64 => number!(Float64Type),
        DataType::Float32 => number!(Float32Type),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Timestamp(..) => number!(TimestampNanosecondType),
        DataType::Boolean => {
            let value = array.as_boolean().value(row);
            Ok(value.into_pyobject(py)?.to_owned().into_any())
        }
        DataType::Utf8 => Ok(PyString::new(py, array.as_string::<i32>().value(row)).into_any()),
        DataType::Struct(fields) => {
            let table = array.as_struct();
            fill(py, fields, table.columns(), row, 0)
        }
        DataType::List(_) => items(py, &array.as_list::<i32>().value(row)),
        DataType::FixedSizeList(..) => items(py, &array.as_fixed_size_list().value(row)),
        DataType::BinaryView | DataType::Binary | DataType::FixedSizeBinary(_) => {
            ndarray::bytes_at(py, array, row)
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let dict = PyDict::new(py);
            for at in 0..entries.len() {
                dict.set_item(
                    value(py, entries.column(0), at)?,
                    value(py, entries.column(1), at)?,
                )?;
            }
            Ok(dict.into_any())
        }
        other => Err(crate::errors::Failure::new(
            "DecodeError",
            format_args!("a value of the Arrow type {other} cannot be converted to Python"),
        )
        .into()),
    }
}

fn native<'py, T: ArrowPrimitiveType>(
    py: Python<'py>,
    value: T::Native,
) -> PyResult<Bound<'py, PyAny>>
where
    T::Native: IntoPyObject<'py>,
{
    value.into_bound_py_any(py)
}

/// The elements of a list: an array if they are numbers, else a list.
fn items<'py>(py: Python<'py>, items: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    if ndarray::is_plain(items) {
        return ndarray::plain(py, items);
    }
    let values: Vec<Bound<'_, PyAny>> = (0..items.len())
        .map(|at| value(py, items, at))
        .collect::<PyResult<_>>()?;
    Ok(PyList::new(py, values)?.into_any())
}
