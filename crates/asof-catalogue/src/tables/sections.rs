//! The table of sections.

use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use asof_core::TimeRange;

use super::as_int;

/// A chunk of a recording, or a run of messages outside of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionRow {
    /// The recording's path from the root.
    pub recording: String,
    /// Its number, in file order.
    pub section: u64,
    /// Byte offset in the file.
    pub offset: u64,
    /// Its length in the file.
    pub length: u64,
    /// Its declared length once decompressed.
    pub uncompressed: u64,
    /// Its compression; empty for none.
    pub compression: String,
    /// All messages in it are within this range.
    pub range: TimeRange,
    /// The topics in it; `None` if only reading could list them.
    pub topics: Option<Vec<String>>,
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let int = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
    Arc::new(Schema::new(vec![
        Field::new("recording", DataType::Utf8, false),
        int("section", false),
        int("offset", false),
        int("length", false),
        int("uncompressed", false),
        Field::new("compression", DataType::Utf8, false),
        int("start_ns", true),
        int("end_ns", true),
        Field::new("topics", DataType::List(topic_field()), true),
    ]))
});

fn topic_field() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Utf8, false))
}

impl SectionRow {
    pub(crate) fn schema() -> SchemaRef {
        Arc::clone(&SCHEMA)
    }

    /// Rows as a table, in the given order.
    pub(crate) fn batch<'a>(
        rows: impl IntoIterator<Item = &'a SectionRow>,
    ) -> Result<RecordBatch, ArrowError> {
        let mut recording = StringBuilder::new();
        let mut compression = StringBuilder::new();
        let mut numbers: [Int64Builder; 6] = std::array::from_fn(|_| Int64Builder::new());
        let mut topics = ListBuilder::new(StringBuilder::new()).with_field(topic_field());
        for row in rows {
            recording.append_value(&row.recording);
            compression.append_value(&row.compression);
            let known = (!row.range.is_empty()).then_some(row.range);
            let values = [
                as_int(Some(row.section)),
                as_int(Some(row.offset)),
                as_int(Some(row.length)),
                as_int(Some(row.uncompressed)),
                known.map(|range| range.start.nanos()),
                known.map(|range| range.end.nanos()),
            ];
            for (column, value) in numbers.iter_mut().zip(values) {
                column.append_option(value);
            }
            for topic in row.topics.iter().flatten() {
                topics.values().append_value(topic);
            }
            topics.append(row.topics.is_some());
        }
        let [section, offset, length, uncompressed, start, end] =
            numbers.each_mut().map(|column| Arc::new(column.finish()));
        RecordBatch::try_new(
            Self::schema(),
            vec![
                Arc::new(recording.finish()),
                section,
                offset,
                length,
                uncompressed,
                Arc::new(compression.finish()),
                start,
                end,
                Arc::new(topics.finish()),
            ],
        )
    }
}
