//! Tables of your own in files, for queries.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_csv::reader::Format;
use arrow_ipc::reader::{FileReader, StreamReader};
use asof_sql::{OwnRows, OwnTable, OwnTableError};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::{Error, is_address};

/// A table in a local file, for [`Recording::sql_with`](crate::Recording::sql_with): Parquet (`.parquet`), comma-separated
/// values with a header (`.csv`), or Arrow (`.arrow`, `.feather`). The types of comma-separated values are those that all of
/// its rows have.
///
/// # Errors
/// When it is not a local file of one of these kinds, or cannot be read.
pub fn own_table(path: impl AsRef<Path>) -> Result<OwnTable, Error> {
    let path = path.as_ref();
    if is_address(path) {
        return Err(Error::Option(format!(
            "{} is not a local file; download it, and name that",
            asof_formats::without_secrets(&path.display().to_string())
        )));
    }
    let opened = |path: &Path| {
        File::open(path)
            .map_err(|error| Error::file(format!("cannot read {}", path.display()), error))
    };
    opened(path)?;
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    let read = match extension.as_deref().and_then(|end| end.to_str()) {
        Some("parquet") => parquet,
        Some("csv") => csv,
        Some("arrow" | "feather") => arrow,
        _ => {
            return Err(Error::Option(format!(
                "{} is not a .parquet, .csv, .arrow or .feather file",
                path.display()
            )));
        }
    };
    let first = read(path).map_err(|error| {
        Error::Invalid(format!(
            "cannot read {} as a table: {error}",
            path.display()
        ))
    })?;
    let path = path.to_owned();
    Ok(OwnTable::new(first.0, move || {
        let wrong = |error| format!("cannot read {}: {error}", path.display());
        Ok(read(&path).map_err(wrong)?.1)
    }))
}

/// Columns and rows.
type TableContents = (arrow_schema::SchemaRef, OwnRows);

fn parquet(path: &Path) -> Result<TableContents, OwnTableError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
    let schema = Arc::clone(builder.schema());
    let rows = builder.build()?;
    Ok((schema, Box::new(rows.map(|rows| Ok(rows?)))))
}

fn csv(path: &Path) -> Result<TableContents, OwnTableError> {
    let format = Format::default().with_header(true);
    let (schema, _) = format.infer_schema(File::open(path)?, None)?;
    let schema = Arc::new(schema);
    let reader = arrow_csv::ReaderBuilder::new(Arc::clone(&schema)).with_format(format);
    let rows = reader.build(File::open(path)?)?;
    Ok((schema, Box::new(rows.map(|rows| Ok(rows?)))))
}

fn arrow(path: &Path) -> Result<TableContents, OwnTableError> {
    // A file of Arrow begins with its own words, a stream with a message.
    if let Ok(reader) = FileReader::try_new_buffered(File::open(path)?, None) {
        let schema = reader.schema();
        return Ok((schema, Box::new(reader.map(|rows| Ok(rows?)))));
    }
    let reader = StreamReader::try_new_buffered(File::open(path)?, None)?;
    let schema = reader.schema();
    Ok((schema, Box::new(reader.map(|rows| Ok(rows?)))))
}
