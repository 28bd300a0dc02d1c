//! The table of topics.

use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use asof_core::TimeRange;

use super::{RangeColumns, as_int, range_fields};

/// A topic of a recording with one type and encoding: a topic with several has a row for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRow {
    /// The recording's path from the root.
    pub recording: String,
    /// The topic's name.
    pub topic: String,
    /// Its type; empty without a schema.
    pub type_name: String,
    /// The hash of its definition; `None` without a schema.
    pub schema_hash: Option<String>,
    /// How its payloads are encoded.
    pub encoding: String,
    /// The language of its definition; empty without one.
    pub schema_encoding: String,
    /// The number of its messages; `None` if only reading could count them.
    pub messages: Option<u64>,
    /// The bytes of its payloads; `None` if only reading could count them.
    pub bytes: Option<u64>,
    /// About how many bytes its payloads have, by the indexes of the file; `None` where these tell nothing.
    pub bytes_estimate: Option<u64>,
    /// All its messages are within this range.
    pub range: TimeRange,
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let int = |name: &str| Field::new(name, DataType::Int64, true);
    let [start, end, start_ns, end_ns] = range_fields();
    Arc::new(Schema::new(vec![
        text("recording", false),
        text("topic", false),
        text("type", false),
        text("schema_hash", true),
        text("encoding", false),
        text("schema_encoding", false),
        int("messages"),
        int("bytes"),
        start,
        end,
        start_ns,
        end_ns,
        int("bytes_estimate"),
    ]))
});

impl TopicRow {
    pub(crate) fn schema() -> SchemaRef {
        Arc::clone(&SCHEMA)
    }

    /// Rows as a table, in the given order.
    pub(crate) fn batch<'a>(
        rows: impl IntoIterator<Item = &'a TopicRow>,
    ) -> Result<RecordBatch, ArrowError> {
        let mut texts: [StringBuilder; 6] = std::array::from_fn(|_| StringBuilder::new());
        let mut messages = Int64Builder::new();
        let mut bytes = Int64Builder::new();
        let mut estimates = Int64Builder::new();
        let mut range = RangeColumns::new();
        for row in rows {
            let values = [
                Some(&row.recording),
                Some(&row.topic),
                Some(&row.type_name),
                row.schema_hash.as_ref(),
                Some(&row.encoding),
                Some(&row.schema_encoding),
            ];
            for (column, value) in texts.iter_mut().zip(values) {
                column.append_option(value);
            }
            messages.append_option(as_int(row.messages));
            bytes.append_option(as_int(row.bytes));
            estimates.append_option(as_int(row.bytes_estimate));
            range.append(row.range);
        }
        let [recording, topic, type_name, hash, encoding, schema_encoding] =
            texts.each_mut().map(|column| Arc::new(column.finish()));
        let [start, end, start_ns, end_ns] = range.finish();
        RecordBatch::try_new(
            Self::schema(),
            vec![
                recording,
                topic,
                type_name,
                hash,
                encoding,
                schema_encoding,
                Arc::new(messages.finish()),
                Arc::new(bytes.finish()),
                start,
                end,
                start_ns,
                end_ns,
                Arc::new(estimates.finish()),
            ],
        )
    }
}
