//! Rows that wait until they are written together, as an Arrow batch.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, Int64Builder, StringBuilder, TimestampNanosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_buffer::{NullBuffer, NullBufferBuilder};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use asof_core::Stamp;

use super::RowWriter;

/// A value of a row.
pub(crate) enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    Number(i64),
    Time(Stamp),
    Bytes(&'a [u8]),
    /// The values of a struct.
    Struct(Vec<Cell<'a>>),
}

impl<'a> Cell<'a> {
    pub(crate) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Cell::Text(text.into())
    }

    /// A text that may be missing.
    pub(crate) fn of(text: Option<impl Into<Cow<'a, str>>>) -> Self {
        text.map_or(Cell::Null, Cell::text)
    }
}

/// A column of texts.
pub(crate) fn text_field(name: impl Into<String>) -> Field {
    Field::new(name, DataType::Utf8, true)
}

/// A column of whole numbers.
pub(crate) fn number_field(name: impl Into<String>) -> Field {
    Field::new(name, DataType::Int64, true)
}

/// A column of times.
pub(crate) fn time_field(name: impl Into<String>) -> Field {
    let kind = DataType::Timestamp(TimeUnit::Nanosecond, None);
    Field::new(name, kind, true)
}

/// Rows that are not written yet.
pub(crate) struct WaitingRows {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

enum Column {
    Text(StringBuilder),
    Number(Int64Builder),
    Time(TimestampNanosecondBuilder),
    Bytes(BinaryBuilder),
    Struct(Fields, Vec<Column>, NullBufferBuilder),
}

/// From so many bytes on, rows do not wait for others.
const MOST_BYTES: usize = 256 << 10;
/// The same for rows.
const MOST_ROWS: usize = 1024;

impl WaitingRows {
    /// Rows of these columns: texts, whole numbers, times, bytes, and structs of these.
    pub(crate) fn new(fields: Vec<Field>) -> Self {
        let schema = Arc::new(Schema::new(fields));
        WaitingRows {
            columns: Column::all(schema.fields()),
            schema,
            rows: 0,
            bytes: 0,
        }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds a row, with a value for each column; those at the end that are missing are NULL.
    pub(crate) fn push<'a>(&mut self, cells: impl IntoIterator<Item = Cell<'a>>) {
        self.rows += 1;
        self.bytes += push_all(&mut self.columns, cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether the rows should wait no longer.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= MOST_ROWS || self.bytes >= MOST_BYTES
    }

    /// Writes them all.
    pub(crate) fn write_to<W: Write>(&mut self, out: &mut RowWriter<W>) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        (self.rows, self.bytes) = (0, 0);
        let columns = self.columns.iter_mut().map(Column::take);
        let columns = columns.collect::<Result<Vec<_>, _>>();
        let batch =
            columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns));
        out.write(&batch.map_err(io::Error::other)?)
    }
}

/// Adds a value to each column, NULL where there is none; returns about how many bytes they have.
fn push_all<'a>(columns: &mut [Column], cells: impl IntoIterator<Item = Cell<'a>>) -> usize {
    let cells = cells
        .into_iter()
        .chain(std::iter::repeat_with(|| Cell::Null));
    let both = columns.iter_mut().zip(cells);
    both.map(|(column, cell)| column.push(cell)).sum()
}

impl Column {
    /// Columns without room: there may be thousands of them that hardly have a row.
    fn all(fields: &Fields) -> Vec<Column> {
        let column = |field: &Arc<Field>| match field.data_type() {
            DataType::Int64 => Column::Number(Int64Builder::with_capacity(0)),
            DataType::Timestamp(..) => Column::Time(TimestampNanosecondBuilder::with_capacity(0)),
            DataType::Binary => Column::Bytes(BinaryBuilder::with_capacity(0, 0)),
            DataType::Struct(fields) => {
                let columns = Column::all(fields);
                Column::Struct(fields.clone(), columns, NullBufferBuilder::new(0))
            }
            _ => Column::Text(StringBuilder::with_capacity(0, 0)),
        };
        fields.iter().map(column).collect()
    }

    /// Adds a value; returns about how many bytes it has.
    fn push(&mut self, cell: Cell<'_>) -> usize {
        match (self, cell) {
            (Column::Text(texts), Cell::Text(text)) => {
                texts.append_value(&text);
                return text.len();
            }
            (Column::Bytes(all), Cell::Bytes(bytes)) => {
                all.append_value(bytes);
                return bytes.len();
            }
            (Column::Struct(_, columns, nulls), Cell::Struct(cells)) => {
                nulls.append_non_null();
                return push_all(columns, cells);
            }
            (Column::Number(numbers), Cell::Number(number)) => numbers.append_value(number),
            (Column::Time(times), Cell::Time(time)) => times.append_value(time.nanos()),
            (Column::Text(texts), _) => texts.append_null(),
            (Column::Bytes(all), _) => all.append_null(),
            (Column::Number(numbers), _) => numbers.append_null(),
            (Column::Time(times), _) => times.append_null(),
            (Column::Struct(_, columns, nulls), _) => {
                nulls.append_null();
                for column in columns {
                    column.push(Cell::Null);
                }
            }
        }
        size_of::<i64>()
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Column::Text(texts) => Arc::new(texts.finish()),
            Column::Number(numbers) => Arc::new(numbers.finish()),
            Column::Time(times) => Arc::new(times.finish()),
            Column::Bytes(all) => Arc::new(all.finish()),
            Column::Struct(fields, columns, nulls) => {
                let rows = nulls.len();
                let nulls: Option<NullBuffer> = nulls.finish();
                let columns = columns.iter_mut().map(Column::take);
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let structs =
                    StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?;
                Arc::new(structs)
            }
        })
    }
}

/// The texts of a message, one for each of its columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellTexts {
    text: String,
    /// The end of each in the text; `None` for one that is missing.
    ends: Vec<Option<usize>>,
}

impl CellTexts {
    /// So many that are missing.
    pub(crate) fn missing(count: usize) -> Self {
        CellTexts {
            text: String::new(),
            ends: vec![None; count],
        }
    }

    pub(crate) fn push(&mut self, text: Option<&str>) {
        self.text.push_str(text.unwrap_or_default());
        self.ends.push(text.map(|_| self.text.len()));
    }

    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let text = end.map(|end| &self.text[start..end]);
            start = end.unwrap_or(start);
            Cell::of(text)
        })
    }
}
