//! Tables that are read on demand, and their batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::ffi::{
    ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule,
};

use crate::errors::{Failure, Result};
use crate::interrupt::detached;
use crate::ndarray;

/// Rows as they are produced.
pub type Rows = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Opens the rows again, in batches of at most this many.
type Open = dyn Fn(Option<usize>, &Lost) -> Result<Rows> + Send + Sync;

/// Messages that could not be decoded, counted while a table is read.
pub type Lost = Arc<AtomicU64>;

/// A table that is read on demand, any number of times. It implements the Arrow PyCapsule protocol.
#[pyclass(frozen, module = "asof")]
pub struct Table {
    schema: SchemaRef,
    open: Arc<Open>,
    /// Messages that the last reading could not decode.
    lost: Lost,
    has_views: bool,
}

impl Table {
    /// A table with these columns, and a way to read its rows.
    pub fn new(
        schema: SchemaRef,
        open: impl Fn(Option<usize>, &Lost) -> Result<Rows> + Send + Sync + 'static,
    ) -> Self {
        Table {
            schema,
            open: Arc::new(open),
            lost: Lost::default(),
            has_views: true,
        }
    }

    /// A table of rows in memory.
    pub fn made(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Table::new(schema, move |rows, _| {
            let most = rows.unwrap_or(usize::MAX).max(1);
            let batches = batches.clone().into_iter().flat_map(move |batch| {
                let count = batch.num_rows();
                let starts = (0..count).step_by(most);
                starts.map(move |start| Ok(batch.slice(start, most.min(count - start))))
            });
            Ok(Box::new(batches))
        })
    }

    fn rows(&self, most: Option<usize>) -> Result<Rows> {
        self.lost.store(0, Ordering::Relaxed);
        let rows = (self.open)(most, &self.lost)?;
        if self.has_views {
            return Ok(rows);
        }
        let schema = Arc::clone(&self.schema);
        Ok(Box::new(
            rows.map(move |batch| without_views(&batch?, &schema)),
        ))
    }

    /// All rows, read without the GIL. Ctrl-C interrupts it.
    fn collect_rows(&self, py: Python<'_>) -> PyResult<Vec<RecordBatch>> {
        let mut rows = detached(py, || self.rows(None))??;
        let mut batches = Vec::new();
        while let Some(batch) = detached(py, || rows.next())? {
            py.check_signals()?;
            batches.push(batch?);
        }
        Ok(batches)
    }
}

#[pymethods]
impl Table {
    /// The names of its columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// The names of its columns, each with its Arrow type.
    #[getter]
    fn types(&self) -> Vec<(String, String)> {
        let fields = self.schema.fields().iter();
        fields
            .map(|field| (field.name().clone(), field.data_type().to_string()))
            .collect()
    }

    /// Whether it has Arrow's view types.
    #[getter]
    fn has_views(&self) -> bool {
        self.has_views
    }

    /// How many messages the last reading could not decode.
    #[getter]
    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The same table; with `views` false, without Arrow's view types, which some libraries do not support.
    fn with_views(&self, views: bool) -> Self {
        let schema = if views {
            Arc::clone(&self.schema)
        } else {
            let fields = self.schema.fields().iter();
            let fields: Vec<FieldRef> = fields.map(field_without_views).collect();
            Arc::new(Schema::new(fields).with_metadata(self.schema.metadata().clone()))
        };
        Table {
            schema,
            open: Arc::clone(&self.open),
            lost: Lost::default(),
            has_views: views,
        }
    }

    /// Reads all of it into memory.
    fn collect(&self, py: Python<'_>) -> PyResult<Self> {
        let batches = self.collect_rows(py)?;
        let made = Table::made(Arc::clone(&self.schema), batches);
        made.lost.store(self.lost(), Ordering::Relaxed);
        Ok(made)
    }

    /// Its batches, of at most this many rows each.
    #[pyo3(signature = (rows = None))]
    fn batches(&self, py: Python<'_>, rows: Option<usize>) -> PyResult<Batches> {
        if rows == Some(0) {
            let message = "a batch has at least one row; give rows=1 or more";
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
        let rows = detached(py, || self.rows(rows))??;
        let lost = Arc::clone(&self.lost);
        let rows = Mutex::new(rows);
        Ok(Batches { rows, lost })
    }

    /// A column as a numpy array.
    fn numpy<'py>(&self, py: Python<'py>, column: usize) -> PyResult<Bound<'py, PyAny>> {
        let batches = self.collect_rows(py)?;
        let arrays: Vec<&dyn Array> = batches
            .iter()
            .map(|batch| &**batch.column(column))
            .collect();
        let array: ArrayRef = match arrays.as_slice() {
            [] => arrow_array::new_empty_array(self.schema.field(column).data_type()),
            [_] => Arc::clone(batches[0].column(column)),
            arrays => py
                .detach(|| arrow_select::concat::concat(arrays))
                .map_err(Failure::from)?,
        };
        ndarray::column(py, &array)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, &*self.schema)?)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let rows = py.detach(|| self.rows(None))?;
        let asked_by = std::thread::current().id();
        let batches = rows.map(move |batch| {
            interrupted(asked_by)?;
            let batch = batch.map_err(|failure| {
                ArrowError::ExternalError(failure.message().to_owned().into())
            })?;
            Ok(Arc::new(StructArray::from(batch)) as ArrayRef)
        });
        let fields = self.schema.fields().clone();
        let field =
            Field::new_struct("", fields, false).with_metadata(self.schema.metadata().clone());
        let stream = ArrayIterator::new(batches, Arc::new(field));
        Ok(to_stream_pycapsule(py, Box::new(stream), requested_schema)?)
    }
}

/// Whether Ctrl-C was pressed. Only the thread that requested the rows may ask: it can take the GIL, others might wait for
/// it in vain.
fn interrupted(asked_by: ThreadId) -> std::result::Result<(), ArrowError> {
    if std::thread::current().id() != asked_by {
        return Ok(());
    }
    #[allow(
        clippy::redundant_closure_for_method_calls,
        reason = "a method is not general enough in its lifetime"
    )]
    let checked = Python::attach(|py| py.check_signals());
    checked.map_err(|error| ArrowError::ExternalError(error.into()))
}

/// The batches of a table, read on demand.
#[pyclass(module = "asof")]
pub struct Batches {
    /// Only one thread at a time has it: its contents need not be `Sync`.
    rows: Mutex<Rows>,
    lost: Lost,
}

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(mut slf: PyRefMut<'_, Self>, py: Python<'_>) -> PyResult<Option<Batch>> {
        py.check_signals()?;
        let rows = slf.rows.get_mut();
        match detached(py, || rows.next())? {
            Some(batch) => Ok(Some(Batch(batch?))),
            None => Ok(None),
        }
    }

    /// How many messages could not be decoded so far.
    #[getter]
    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Some rows of a table, in memory. It implements the Arrow PyCapsule protocol.
#[pyclass(frozen, module = "asof")]
pub struct Batch(RecordBatch);

#[pymethods]
impl Batch {
    /// The names of its columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.0.schema_ref().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// How many rows it has.
    #[getter]
    fn num_rows(&self) -> usize {
        self.__len__()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// A column as a numpy array.
    fn to_numpy<'py>(&self, py: Python<'py>, column: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.0.column_by_name(column);
        let array = found.ok_or_else(|| {
            let known = self.columns().join(", ");
            Failure::new(
                "FieldError",
                format_args!("there is no column '{column}'; there are {known}"),
            )
        })?;
        ndarray::column(py, array)
    }

    /// The addresses of a column's buffers: without a copy they are the same in Python.
    fn addresses(&self, column: &str) -> Vec<usize> {
        let array = self.0.column_by_name(column);
        let data = array.map(Array::to_data);
        let buffers = data.iter().flat_map(|data| data.buffers().to_vec());
        buffers.map(|buffer| buffer.as_ptr() as usize).collect()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, &**self.0.schema_ref())?)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let schema = self.0.schema_ref();
        let field = Field::new_struct("", schema.fields().clone(), false)
            .with_metadata(schema.metadata().clone());
        let table: ArrayRef = Arc::new(StructArray::from(self.0.clone()));
        Ok(to_array_pycapsules(
            py,
            Arc::new(field),
            &table,
            requested_schema,
        )?)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let table = Table::made(Arc::clone(self.0.schema_ref()), vec![self.0.clone()]);
        table.__arrow_c_stream__(py, requested_schema)
    }

    fn __repr__(&self) -> String {
        format!(
            "<asof.Batch of {} rows: {}>",
            self.0.num_rows(),
            self.columns().join(", ")
        )
    }
}

/// The same rows, without Arrow's view types.
fn without_views(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(array, field)| {
        if array.data_type() == field.data_type() {
            Ok(Arc::clone(array))
        } else {
            arrow_cast::cast(array, field.data_type())
        }
    });
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

fn field_without_views(field: &FieldRef) -> FieldRef {
    let kind = kind_without_views(field.data_type());
    Arc::new(Field::clone(field).with_data_type(kind))
}

fn kind_without_views(kind: &DataType) -> DataType {
    match kind {
        DataType::BinaryView => DataType::Binary,
        DataType::Utf8View => DataType::Utf8,
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(field_without_views).collect())
        }
        DataType::List(item) => DataType::List(field_without_views(item)),
        DataType::FixedSizeList(item, size) => {
            DataType::FixedSizeList(field_without_views(item), *size)
        }
        DataType::Map(entries, is_sorted) => {
            DataType::Map(field_without_views(entries), *is_sorted)
        }
        kind => kind.clone(),
    }
}
