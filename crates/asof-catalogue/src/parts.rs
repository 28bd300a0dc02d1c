//! Writing the files of a catalogue.

use std::fmt::Write as _;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::take::take_record_batch;
use asof_formats::Store;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::error::CatalogueError;
use crate::head::PartFile;
use crate::tables::{Table, column, wrong_type};

/// Writes a table to a file of its own, which nobody else writes.
pub(crate) fn write(
    store: &Store,
    table: Table,
    generation: u64,
    batch: &RecordBatch,
) -> Result<PartFile, CatalogueError> {
    let file = format!("{}-{generation:08}-{}.parquet", table.name(), unique()?);
    let bytes = encoded(table, batch).map_err(|error| CatalogueError::BadTable {
        place: store.shown_address_of(&file),
        reason: error.to_string(),
    })?;
    let part = PartFile {
        rows: batch.num_rows() as u64,
        bytes: bytes.len() as u64,
        file,
    };
    store.create(&part.file, bytes)?;
    Ok(part)
}

fn encoded(table: Table, batch: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("asof ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_max_row_group_row_count(Some(table.rows_per_group()))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(batch)?;
    writer.into_inner()
}

/// A text that no other file has.
fn unique() -> Result<String, CatalogueError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| CatalogueError::Random(error.to_string()))?;
    let mut text = String::with_capacity(16);
    for byte in bytes {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// A table in the order that its files have: topics by topic and start, sections by recording and offset.
pub(crate) fn sorted(table: Table, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (first, second) = match table {
        Table::Topics => ("topic", "start_ns"),
        Table::Sections => ("recording", "offset"),
        Table::Recordings | Table::Schemas => return Ok(batch.clone()),
    };
    let texts = column(batch, first)?
        .as_string_opt::<i32>()
        .ok_or_else(|| wrong_type(first, "texts"))?;
    let numbers = column(batch, second)?
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| wrong_type(second, "numbers"))?;
    let number = |row: usize| numbers.is_valid(row).then(|| numbers.value(row));
    let mut rows: Vec<u32> = (0..batch.num_rows() as u32).collect();
    rows.sort_by(|&a, &b| {
        let (a, b) = (a as usize, b as usize);
        let by_text = texts.value(a).cmp(texts.value(b));
        by_text.then_with(|| number(a).cmp(&number(b)))
    });
    take_record_batch(batch, &UInt32Array::from(rows))
}
