//! Rows of Arrow batches, written as text.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::{Grid, Reader, header, write, write_csv, write_json_text};
use crate::{Error, Table};

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowForm {
    /// A table for people.
    Table {
        /// The most characters of a cell.
        room: usize,
    },
    /// An object for each row, one per line. Times are nanoseconds, bytes are base64.
    Json,
    /// Comma-separated values below a line of names.
    Csv,
}

/// Writes rows as text. Floats are exact; NULL is `null` in JSON and nothing in CSV.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Float64Array, RecordBatch};
/// use asof::rows::{RowForm, RowWriter};
/// let x: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.1), None]));
/// let batch = RecordBatch::try_from_iter([("x", x)])?;
/// let mut rows = RowWriter::new(Vec::new(), RowForm::Json, &batch.schema())?;
/// rows.write(&batch)?;
/// assert_eq!(rows.finish()?, b"{\"x\":0.1}\n{\"x\":null}\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowWriter<W: Write>(Form<W>);

enum Form<W: Write> {
    Table(Grid<W>),
    /// The keys, each with its colon.
    Json(W, Vec<Vec<u8>>),
    Csv(W),
}

impl<W: Write> RowWriter<W> {
    /// A writer of rows of these columns. Columns of the same name get underscores.
    ///
    /// # Errors
    /// When the line of names cannot be written.
    pub fn new(mut out: W, form: RowForm, schema: &SchemaRef) -> io::Result<Self> {
        Ok(RowWriter(match form {
            RowForm::Table { room } => Form::Table(Grid::new(out, schema, room)),
            RowForm::Json => {
                let keys = unique_names(schema).into_iter().map(|name| {
                    let mut key = Vec::new();
                    write_json_text(&name, &mut key);
                    key.push(b':');
                    key
                });
                Form::Json(out, keys.collect())
            }
            RowForm::Csv => {
                writeln!(out, "{}", header(&[], &unique_names(schema)))?;
                Form::Csv(out)
            }
        }))
    }

    /// Writes rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let mut line = Vec::new();
        match &mut self.0 {
            Form::Table(grid) => grid.write(batch)?,
            Form::Json(out, keys) => {
                for row in 0..batch.num_rows() {
                    line.clear();
                    for (key, column) in keys.iter().zip(batch.columns()) {
                        line.push(if line.is_empty() { b'{' } else { b',' });
                        line.extend_from_slice(key);
                        write(column, row, Reader::Program, &mut line);
                    }
                    line.extend_from_slice(if line.is_empty() { b"{}\n" } else { b"}\n" });
                    out.write_all(&line)?;
                }
            }
            Form::Csv(out) => {
                for row in 0..batch.num_rows() {
                    line.clear();
                    for (place, column) in batch.columns().iter().enumerate() {
                        if place > 0 {
                            line.push(b',');
                        }
                        write_csv(column, row, &mut line);
                    }
                    line.push(b'\n');
                    out.write_all(&line)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the rows, and returns what they were written to.
    ///
    /// # Errors
    /// When the last rows of a table cannot be written, or it cannot be flushed.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Form::Table(grid) => grid.finish(),
            Form::Json(mut out, _) | Form::Csv(mut out) => {
                out.flush()?;
                Ok(out)
            }
        }
    }
}

impl Table {
    /// Writes all rows as text; returns how many there are.
    ///
    /// # Errors
    /// When something cannot be read or written.
    pub fn write(&self, out: impl Write, form: RowForm) -> Result<u64, Error> {
        let mut rows = RowWriter::new(out, form, self.schema())?;
        let mut count = 0;
        for batch in self.batches()? {
            let batch = batch?;
            rows.write(&batch)?;
            count += batch.num_rows() as u64;
        }
        rows.finish()?;
        Ok(count)
    }
}

/// A query may give two columns one name; an object or a table may not.
fn unique_names(schema: &SchemaRef) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for field in schema.fields() {
        let mut name = field.name().clone();
        while names.contains(&name) {
            name.push('_');
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, StringArray, TimestampNanosecondArray};
    use arrow_schema::{Field, Schema};

    use super::*;

    /// Two columns of one name, exact floats, times, control characters and NULL.
    fn batch() -> RecordBatch {
        let columns: [ArrayRef; 3] = [
            Arc::new(Float64Array::from(vec![Some(0.1 + 0.2), None])),
            Arc::new(TimestampNanosecondArray::from(vec![
                1_700_000_000_000_000_001,
                -1,
            ])),
            Arc::new(StringArray::from(vec!["a,\"b\"\u{1b}[31m", ""])),
        ];
        let names = ["x", "at", "x"];
        let fields = names.iter().zip(&columns);
        let fields =
            fields.map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new(schema, columns.to_vec()).expect("a batch")
    }

    fn written(form: RowForm) -> String {
        let batch = batch();
        let mut rows = RowWriter::new(Vec::new(), form, &batch.schema()).expect("memory");
        rows.write(&batch.slice(0, 1)).expect("memory");
        rows.write(&batch.slice(1, 1)).expect("memory");
        String::from_utf8(rows.finish().expect("memory")).expect("text")
    }

    #[test]
    fn each_form_has_every_row_with_exact_values_and_unique_names() {
        assert_eq!(
            written(RowForm::Json),
            "{\"x\":0.30000000000000004,\"at\":1700000000000000001,\"x_\":\"a,\\\"b\\\"\\u001b[31m\"}\n\
             {\"x\":null,\"at\":-1,\"x_\":\"\"}\n"
        );
        assert_eq!(
            written(RowForm::Csv),
            "x,at,x_\n0.30000000000000004,1700000000000000001,\"a,\"\"b\"\"\u{1b}[31m\"\n,-1,\"\"\n"
        );
        let table = written(RowForm::Table { room: 60 });
        assert!(table.ends_with("(2 rows)\n"), "{table}");
        assert!(!table.contains('\u{1b}'), "{table}");
    }

    #[test]
    fn rows_without_columns_are_empty_objects() {
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(2));
        let schema = Arc::new(Schema::empty());
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), vec![], &options);
        let mut rows = RowWriter::new(Vec::new(), RowForm::Json, &schema).expect("memory");
        rows.write(&batch.expect("a batch")).expect("memory");
        assert_eq!(rows.finish().expect("memory"), b"{}\n{}\n");
    }
}
