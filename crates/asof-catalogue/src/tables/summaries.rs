//! The table of summaries.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{BinaryBuilder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ListArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use asof_formats::FilePiece;
use bytes::Bytes;

use super::{as_int, column, text, wrong_type};

/// The bytes that opening a recording reads, mostly its summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryRow {
    /// The recording's path from the root.
    pub recording: String,
    /// The pieces of the file, by offset.
    pub pieces: Vec<FilePiece>,
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let list = |name: &str, of: DataType| {
        let element = Field::new("element", of, false);
        Field::new(name, DataType::List(Arc::new(element)), false)
    };
    Arc::new(Schema::new(vec![
        Field::new("recording", DataType::Utf8, false),
        list("offsets", DataType::Int64),
        list("pieces", DataType::Binary),
    ]))
});

impl SummaryRow {
    pub(crate) fn schema() -> SchemaRef {
        Arc::clone(&SCHEMA)
    }

    /// The bytes of all pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// Rows as a table, sorted by recording.
    pub(crate) fn batch(rows: &mut [&SummaryRow]) -> Result<RecordBatch, ArrowError> {
        rows.sort_by(|a, b| a.recording.cmp(&b.recording));
        let field = |of| Arc::new(Field::new("element", of, false));
        let mut recording = StringBuilder::new();
        let mut offsets = ListBuilder::new(Int64Builder::new()).with_field(field(DataType::Int64));
        let mut pieces = ListBuilder::new(BinaryBuilder::new()).with_field(field(DataType::Binary));
        for row in rows {
            recording.append_value(&row.recording);
            for piece in &row.pieces {
                offsets.values().append_option(as_int(Some(piece.offset)));
                pieces.values().append_value(&piece.bytes);
            }
            offsets.append(true);
            pieces.append(true);
        }
        RecordBatch::try_new(
            Self::schema(),
            vec![
                Arc::new(recording.finish()),
                Arc::new(offsets.finish()),
                Arc::new(pieces.finish()),
            ],
        )
    }

    /// All rows of a table.
    pub(crate) fn rows(batch: &RecordBatch) -> Result<Vec<SummaryRow>, ArrowError> {
        let lists = |name: &'static str| -> Result<&ListArray, ArrowError> {
            let column = column(batch, name)?.as_list_opt::<i32>();
            column.ok_or_else(|| wrong_type(name, "lists"))
        };
        let (offsets, pieces) = (lists("offsets")?, lists("pieces")?);
        let row = |row: usize| {
            let (offsets, pieces) = (offsets.value(row), pieces.value(row));
            let offsets = offsets
                .as_primitive_opt::<Int64Type>()
                .ok_or_else(|| wrong_type("offsets", "numbers"))?;
            let pieces = pieces
                .as_binary_opt::<i32>()
                .ok_or_else(|| wrong_type("pieces", "bytes"))?;
            let piece = |(&offset, bytes): (&i64, Option<&[u8]>)| FilePiece {
                offset: offset.unsigned_abs(),
                bytes: Bytes::copy_from_slice(bytes.unwrap_or_default()),
            };
            Ok(SummaryRow {
                recording: text(batch, "recording", row)?
                    .unwrap_or_default()
                    .to_owned(),
                pieces: offsets
                    .values()
                    .iter()
                    .zip(pieces.iter())
                    .map(piece)
                    .collect(),
            })
        };
        (0..batch.num_rows()).map(row).collect()
    }
}
