//! The rows of a catalogue, and their Arrow schemas.

mod recordings;
mod schemas;
mod sections;
mod summaries;
mod topics;

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, TimestampMicrosecondBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef, TimeUnit};
use asof_core::{Stamp, TimeRange};

pub use recordings::{ProblemRow, RecordingRow};
pub use schemas::{SchemaRow, schema_hash};
pub use sections::SectionRow;
pub use summaries::SummaryRow;
pub use topics::TopicRow;

/// A table of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    Recordings,
    Topics,
    Sections,
    Summaries,
    Schemas,
}

impl Table {
    /// The prefix of its files.
    pub fn name(self) -> &'static str {
        match self {
            Table::Recordings => "recordings",
            Table::Topics => "topics",
            Table::Sections => "sections",
            Table::Summaries => "summaries",
            Table::Schemas => "schemas",
        }
    }

    /// Its columns.
    pub fn schema(self) -> SchemaRef {
        match self {
            Table::Recordings => RecordingRow::schema(),
            Table::Topics => TopicRow::schema(),
            Table::Sections => SectionRow::schema(),
            Table::Summaries => SummaryRow::schema(),
            Table::Schemas => SchemaRow::schema(),
        }
    }

    /// Rows per row group, the unit that is read or skipped.
    pub fn rows_per_group(self) -> usize {
        match self {
            Table::Recordings | Table::Schemas => 4_096,
            Table::Topics => 2_048,
            Table::Sections => 65_536,
            // Each is about ten thousand bytes.
            Table::Summaries => 64,
        }
    }
}

/// A recording with all its rows in the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedRecording {
    /// The recording itself.
    pub row: RecordingRow,
    /// Its topics.
    pub topics: Vec<TopicRow>,
    /// The definitions of its types.
    pub schemas: Vec<SchemaRow>,
    /// Its chunks.
    pub sections: Vec<SectionRow>,
    /// The bytes that opening it reads, if they are worth storing.
    pub summary: Option<SummaryRow>,
}

/// Four columns for a time range: `start` and `end` in microseconds, rounded outwards, and exact in nanoseconds.
struct RangeColumns {
    start: TimestampMicrosecondBuilder,
    end: TimestampMicrosecondBuilder,
    start_ns: Int64Builder,
    end_ns: Int64Builder,
}

impl RangeColumns {
    fn new() -> Self {
        RangeColumns {
            start: micros(),
            end: micros(),
            start_ns: Int64Builder::new(),
            end_ns: Int64Builder::new(),
        }
    }

    fn append(&mut self, range: TimeRange) {
        let known = (!range.is_empty()).then_some(range);
        let start = known.map(|range| range.start.nanos());
        let end = known.map(|range| range.end.nanos());
        self.start
            .append_option(start.map(|nanos| nanos.div_euclid(1_000)));
        self.end.append_option(
            end.map(|nanos| nanos.div_euclid(1_000) + i64::from(nanos.rem_euclid(1_000) != 0)),
        );
        self.start_ns.append_option(start);
        self.end_ns.append_option(end);
    }

    fn finish(mut self) -> [ArrayRef; 4] {
        [
            Arc::new(self.start.finish()),
            Arc::new(self.end.finish()),
            Arc::new(self.start_ns.finish()),
            Arc::new(self.end_ns.finish()),
        ]
    }
}

fn micros() -> TimestampMicrosecondBuilder {
    TimestampMicrosecondBuilder::new().with_timezone("UTC")
}

fn micros_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn range_fields() -> [Field; 4] {
    [
        Field::new("start", micros_type(), true),
        Field::new("end", micros_type(), true),
        Field::new("start_ns", DataType::Int64, true),
        Field::new("end_ns", DataType::Int64, true),
    ]
}

/// The time range of a row.
pub(crate) fn range_at(batch: &RecordBatch, row: usize) -> Result<TimeRange, ArrowError> {
    let (starts, ends) = (ints(batch, "start_ns")?, ints(batch, "end_ns")?);
    Ok(range_of(starts, ends, row))
}

/// The time range of a row, from the columns of its ends.
pub(crate) fn range_of(starts: &Int64Array, ends: &Int64Array, row: usize) -> TimeRange {
    if starts.is_null(row) || ends.is_null(row) {
        return TimeRange::EMPTY;
    }
    let stamp = |column: &Int64Array| Stamp::from_nanos(column.value(row));
    TimeRange::new(stamp(starts), stamp(ends))
}

/// A column by its name.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, ArrowError> {
    batch
        .column_by_name(name)
        .ok_or_else(|| ArrowError::SchemaError(format!("the column {name} is missing")))
}

/// A column of numbers.
pub(crate) fn ints<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array, ArrowError> {
    let numbers = column(batch, name)?.as_primitive_opt::<Int64Type>();
    numbers.ok_or_else(|| wrong_type(name, "numbers"))
}

/// A number of a row.
pub(crate) fn int(batch: &RecordBatch, name: &str, row: usize) -> Result<Option<i64>, ArrowError> {
    let column = ints(batch, name)?;
    Ok(column.is_valid(row).then(|| column.value(row)))
}

/// A column of texts.
pub(crate) fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray, ArrowError> {
    let texts = column(batch, name)?.as_string_opt::<i32>();
    texts.ok_or_else(|| wrong_type(name, "texts"))
}

/// A text of a row.
pub(crate) fn text<'a>(
    batch: &'a RecordBatch,
    name: &str,
    row: usize,
) -> Result<Option<&'a str>, ArrowError> {
    let column = texts(batch, name)?;
    Ok(column.is_valid(row).then(|| column.value(row)))
}

/// A column of lists.
pub(crate) fn lists<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ListArray, ArrowError> {
    let lists = column(batch, name)?.as_list_opt::<i32>();
    lists.ok_or_else(|| wrong_type(name, "lists"))
}

pub(crate) fn wrong_type(name: &str, wanted: &str) -> ArrowError {
    ArrowError::SchemaError(format!("the column {name} does not hold {wanted}"))
}

fn as_int(count: Option<u64>) -> Option<i64> {
    count.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
}
