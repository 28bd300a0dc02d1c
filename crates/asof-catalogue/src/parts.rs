//! Writing the files of a catalogue.

use std::fmt::Write as _;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use asof_formats::Store;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::error::CatalogueError;
use crate::head::PartFile;
use crate::reading::{PartReader, bad};
use crate::tables::{SummaryRow, Table, column, wrong_type};

/// Writes a table to a new file with a unique name.
pub(crate) fn write(
    store: &Store,
    table: Table,
    generation: u64,
    batch: &RecordBatch,
) -> Result<PartFile, CatalogueError> {
    let bytes = encoded(table, batch).map_err(|error| unwritten(store, &error))?;
    create(store, table, generation, batch.num_rows() as u64, bytes)
}

/// Copies the summaries of several files, without those of some recordings, to a new file, one row group at a time,
/// since all of them may not fit into memory. `None` if nothing is left.
pub(crate) fn write_summaries(
    store: &Store,
    generation: u64,
    files: &[&PartFile],
    is_gone: impl Fn(&str) -> bool,
) -> Result<Option<PartFile>, CatalogueError> {
    let unwritten = |error: ParquetError| unwritten(store, &error);
    let mut writer = writer(Table::Summaries, SummaryRow::schema()).map_err(unwritten)?;
    let mut rows = 0;
    for file in files {
        let reader = PartReader::open(store, file, Table::Summaries)?;
        for group in 0..reader.groups().len() {
            for batch in reader
                .read_group(group)
                .map_err(|error| bad(store, file, &error))?
            {
                let kept = without_recordings(&batch, &is_gone);
                let kept = kept.map_err(|error| bad(store, file, &error))?;
                rows += kept.num_rows() as u64;
                writer.write(&kept).map_err(unwritten)?;
            }
        }
    }
    if rows == 0 {
        return Ok(None);
    }
    let bytes = writer.into_inner().map_err(unwritten)?;
    create(store, Table::Summaries, generation, rows, bytes).map(Some)
}

/// The rows of the other recordings.
pub(crate) fn without_recordings(
    batch: &RecordBatch,
    is_gone: impl Fn(&str) -> bool,
) -> Result<RecordBatch, ArrowError> {
    let names = column(batch, "recording")?
        .as_string_opt::<i32>()
        .ok_or_else(|| wrong_type("recording", "texts"))?;
    let kept: BooleanArray = names
        .iter()
        .map(|name| name.map(|name| !is_gone(name)))
        .collect();
    filter_record_batch(batch, &kept)
}

fn create(
    store: &Store,
    table: Table,
    generation: u64,
    rows: u64,
    bytes: Vec<u8>,
) -> Result<PartFile, CatalogueError> {
    let file = format!("{}-{generation:08}-{}.parquet", table.name(), unique()?);
    let part = PartFile {
        rows,
        bytes: bytes.len() as u64,
        file,
    };
    store.create(&part.file, bytes)?;
    Ok(part)
}

fn unwritten(store: &Store, error: &ParquetError) -> CatalogueError {
    CatalogueError::BadTable {
        place: store.address(),
        reason: error.to_string(),
    }
}

fn encoded(table: Table, batch: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    let mut writer = writer(table, batch.schema())?;
    writer.write(batch)?;
    writer.into_inner()
}

fn writer(table: Table, schema: SchemaRef) -> Result<ArrowWriter<Vec<u8>>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("asof ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_max_row_group_row_count(Some(table.rows_per_group()))
        .build();
    ArrowWriter::try_new(Vec::new(), schema, Some(properties))
}

/// A text that no other file name contains.
fn unique() -> Result<String, CatalogueError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| CatalogueError::Random(error.to_string()))?;
    let mut text = String::with_capacity(16);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// A table in the sort order of its files: topics by topic and start, sections by recording and offset.
pub(crate) fn sorted(table: Table, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (first, second) = match table {
        Table::Topics => ("topic", "start_ns"),
        Table::Sections => ("recording", "offset"),
        Table::Recordings | Table::Summaries | Table::Schemas => return Ok(batch.clone()),
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
