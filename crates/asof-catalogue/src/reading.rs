//! Reading the files of a catalogue: only the row groups that can hold an answer.

use std::io::{self, Read};
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use asof_formats::{Storage, Store};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicate, ArrowPredicateFn, ArrowReaderMetadata, ArrowReaderOptions,
    ParquetRecordBatchReaderBuilder, RowFilter,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;

use crate::error::CatalogueError;
use crate::head::PartFile;
use crate::tables::Table;

/// What to read of a file.
pub(crate) struct Reading<'a> {
    /// The table that the file is a part of.
    pub table: Table,
    /// The columns; `None` for all.
    pub columns: Option<&'a [&'a str]>,
    /// Whether a row group can hold a match.
    pub may_hold: &'a dyn Fn(&RowGroupMetaData) -> bool,
    /// Filters on rows by a few columns, which are read before the others; each is asked of the rows that the ones before leave.
    pub filters: Vec<RowChoice<'a>>,
}

/// A filter on rows by some columns.
pub(crate) struct RowChoice<'a> {
    pub columns: Vec<&'a str>,
    pub choose: Chooser,
}

/// Returns for each row whether it is wanted.
pub(crate) type Chooser =
    Box<dyn FnMut(RecordBatch) -> Result<BooleanArray, ArrowError> + Send + 'static>;

/// The cost of reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    pub read: u64,
    pub all: u64,
}

/// Reads all of a file.
pub(crate) fn read_all(
    store: &Store,
    file: &PartFile,
    table: Table,
) -> Result<RecordBatch, CatalogueError> {
    let everything = Reading {
        table,
        columns: None,
        may_hold: &|_| true,
        filters: Vec::new(),
    };
    let mut batches = Vec::new();
    each(store, file, everything, &mut |batch| {
        batches.push(batch);
        Ok(())
    })?;
    concat_batches(&table.schema(), &batches).map_err(|error| bad(store, file, &error))
}

/// Rows with the columns of a schema; those that a file of an earlier version lacks are null.
fn whole(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let column = |field: &Arc<Field>| match batch.column_by_name(field.name()) {
        Some(column) => Arc::clone(column),
        None => new_null_array(field.data_type(), batch.num_rows()),
    };
    let columns = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(Arc::clone(schema), columns)
}

/// The schema of some columns, in the order of the table.
fn schema_of(table: Table, columns: Option<&[&str]>) -> SchemaRef {
    let all = table.schema();
    let Some(columns) = columns else { return all };
    let fields = all.fields().iter().cloned();
    let wanted = fields.filter(|field| columns.contains(&field.name().as_str()));
    Arc::new(Schema::new(wanted.collect::<Vec<_>>()))
}

/// A file whose row groups are read one at a time.
pub(crate) struct PartReader {
    table: Table,
    bytes: PartBytes,
    metadata: ArrowReaderMetadata,
}

impl PartReader {
    pub fn open(store: &Store, file: &PartFile, table: Table) -> Result<Self, CatalogueError> {
        let bytes = PartBytes(Arc::from(store.storage(&file.file, file.bytes)?));
        let metadata = ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::default());
        let metadata = metadata.map_err(|error| bad(store, file, &error))?;
        Ok(PartReader {
            table,
            bytes,
            metadata,
        })
    }

    pub fn groups(&self) -> &[RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }

    pub fn read_group(&self, group: usize) -> Result<Vec<RecordBatch>, ParquetError> {
        self.read_columns(group, &[])
    }

    /// Some columns of a group; all without any. Those that the file was written without are null.
    pub fn read_columns(
        &self,
        group: usize,
        columns: &[&str],
    ) -> Result<Vec<RecordBatch>, ParquetError> {
        let (bytes, metadata) = (self.bytes.clone(), self.metadata.clone());
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata);
        if !columns.is_empty() {
            let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
            builder = builder.with_projection(mask);
        }
        let schema = schema_of(self.table, (!columns.is_empty()).then_some(columns));
        let reader = builder.with_row_groups(vec![group]).build()?;
        let batches = reader.map(|batch| whole(&schema, &batch?));
        Ok(batches.collect::<Result<Vec<_>, _>>()?)
    }
}

/// Reads the wanted part of a file, batch by batch. Columns that it was written without are null.
pub(crate) fn each(
    store: &Store,
    file: &PartFile,
    reading: Reading<'_>,
    take: TakeRows<'_>,
) -> Result<Groups, CatalogueError> {
    if file.rows == 0 {
        return Ok(Groups::default());
    }
    let storage = store.storage(&file.file, file.bytes)?;
    let bytes = PartBytes(Arc::from(storage));
    each_from(bytes, reading, take).map_err(|error| bad(store, file, &error))
}

/// Takes a batch of rows.
type TakeRows<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<(), ArrowError>;

fn each_from(
    bytes: PartBytes,
    reading: Reading<'_>,
    take: TakeRows<'_>,
) -> Result<Groups, ParquetError> {
    let mut builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let groups = builder.metadata().row_groups();
    let all = groups.len();
    let wanted: Vec<usize> = (0..all)
        .filter(|&group| (reading.may_hold)(&groups[group]))
        .collect();
    let counted = Groups {
        read: wanted.len() as u64,
        all: all as u64,
    };
    if wanted.is_empty() {
        return Ok(counted);
    }
    let schema = schema_of(reading.table, reading.columns);
    let descriptor = Arc::clone(builder.metadata())
        .file_metadata()
        .schema_descr_ptr();
    builder = builder.with_row_groups(wanted).with_batch_size(8_192);
    if !reading.filters.is_empty() {
        let predicate = |filter: RowChoice<'_>| -> Box<dyn ArrowPredicate> {
            let mask = ProjectionMask::columns(&descriptor, filter.columns);
            Box::new(ArrowPredicateFn::new(mask, filter.choose))
        };
        let predicates = reading.filters.into_iter().map(predicate).collect();
        builder = builder.with_row_filter(RowFilter::new(predicates));
    }
    if let Some(columns) = reading.columns {
        builder = builder.with_projection(ProjectionMask::columns(
            &descriptor,
            columns.iter().copied(),
        ));
    }
    for batch in builder.build()? {
        take(whole(&schema, &batch?)?)?;
    }
    Ok(counted)
}

pub(crate) fn bad(store: &Store, file: &PartFile, error: &dyn std::error::Error) -> CatalogueError {
    CatalogueError::BadTable {
        place: store.shown_address_of(&file.file),
        reason: error.to_string(),
    }
}

/// Whether a group may hold a text in this range, both ends included.
pub(crate) fn may_hold_text(
    group: &RowGroupMetaData,
    column: &str,
    least: &[u8],
    most: Option<&[u8]>,
) -> bool {
    let Some(Statistics::ByteArray(found)) = statistics(group, column) else {
        return true;
    };
    let is_below = found.max_opt().is_some_and(|max| max.data() < least);
    let is_above = most.is_some_and(|most| found.min_opt().is_some_and(|min| min.data() > most));
    !(is_below || is_above)
}

/// The minimum and maximum of a column in a group.
pub(crate) fn bounds(group: &RowGroupMetaData, column: &str) -> Option<(i64, i64)> {
    match statistics(group, column)? {
        Statistics::Int64(found) => Some((*found.min_opt()?, *found.max_opt()?)),
        _ => None,
    }
}

/// Whether a recording of a group may have problems.
pub(crate) fn may_hold_problems(group: &RowGroupMetaData) -> bool {
    let mut columns = group.columns().iter();
    let kinds = columns.find(|found| {
        let parts = found.column_path().parts();
        parts.first().is_some_and(|first| first == "problems")
            && parts.last().is_some_and(|last| last == "kind")
    });
    match kinds.and_then(|kinds| kinds.statistics()) {
        Some(Statistics::ByteArray(found)) => found.max_opt().is_some(),
        _ => true,
    }
}

/// The number of rows of a group in which a column is NULL.
pub(crate) fn nulls(group: &RowGroupMetaData, column: &str) -> Option<u64> {
    statistics(group, column)?.null_count_opt()
}

/// The only text of a column in a group, if all rows have the same.
pub(crate) fn only_text<'a>(group: &'a RowGroupMetaData, column: &str) -> Option<&'a str> {
    let Some(Statistics::ByteArray(found)) = statistics(group, column) else {
        return None;
    };
    let (least, most) = (found.min_opt()?, found.max_opt()?);
    let is_only = least == most
        && found.min_is_exact()
        && found.max_is_exact()
        && found.null_count_opt() == Some(0);
    std::str::from_utf8(least.data()).ok().filter(|_| is_only)
}

fn statistics<'a>(group: &'a RowGroupMetaData, column: &str) -> Option<&'a Statistics> {
    let mut columns = group.columns().iter();
    let found =
        columns.find(|found| matches!(found.column_path().parts(), [only] if only == column))?;
    found.statistics()
}

/// The bytes of a file, for Parquet's reader.
#[derive(Clone)]
struct PartBytes(Arc<dyn Storage>);

impl Length for PartBytes {
    fn len(&self) -> u64 {
        self.0.size()
    }
}

impl ChunkReader for PartBytes {
    type T = From;

    fn get_read(&self, start: u64) -> Result<From, ParquetError> {
        Ok(From {
            storage: Arc::clone(&self.0),
            at: start,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.0.fetch(start, length as u64)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!(
                "the file ends {} bytes too early",
                length - bytes.len()
            )));
        }
        Ok(bytes)
    }
}

/// A file from an offset on.
struct From {
    storage: Arc<dyn Storage>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.storage.fetch(self.at, buffer.len() as u64)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;

    use super::*;
    use crate::tables::TopicRow;

    #[test]
    fn rows_of_an_earlier_version_are_without_the_columns_that_it_lacks() {
        let schema = TopicRow::schema();
        let row = TopicRow {
            recording: "a.mcap".to_owned(),
            topic: "/tf".to_owned(),
            type_name: String::new(),
            schema_hash: None,
            encoding: String::new(),
            schema_encoding: String::new(),
            messages: Some(2),
            bytes: None,
            bytes_estimate: Some(7),
            range: asof_core::TimeRange::EMPTY,
        };
        let now = TopicRow::batch([&row]).expect("rows");
        let columns: Vec<usize> = (0..schema.fields().len() - 1).collect();
        let earlier = now.project(&columns).expect("columns");
        let some = schema_of(Table::Topics, Some(&["bytes_estimate", "topic"]));
        for (rows, is_known) in [(earlier, false), (now, true)] {
            for schema in [&schema, &some] {
                let rows = whole(schema, &rows).expect("rows");
                assert_eq!(rows.schema_ref(), schema);
                let bytes = rows.column_by_name("bytes_estimate").expect("a column");
                assert_eq!(bytes.is_valid(0), is_known);
            }
        }
    }
}
