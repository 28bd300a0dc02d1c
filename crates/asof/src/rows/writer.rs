//! Rows of Arrow batches, written as text.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, SchemaRef};

use super::grid::Grid;
use super::values::{is_json, is_left_out, write_row};
use super::{EscapeWriter, Escapes, Reader, write, write_csv, write_pretty};
use crate::text::{cut, shown};
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
    /// The values of each row on a line for people.
    Lines {
        /// The most characters of a value that is JSON.
        room: usize,
        /// Whether values that are JSON follow on lines of their own.
        is_pretty: bool,
    },
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
    /// The columns under unique names.
    Json(W, Vec<Arc<Field>>),
    Csv(W),
    Lines(W, usize, bool),
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
                let names = unique_names(schema).into_iter().zip(schema.fields());
                let named = names.map(|(name, field)| Field::clone(field).with_name(name));
                Form::Json(out, named.map(Arc::new).collect())
            }
            RowForm::Lines { room, is_pretty } => Form::Lines(out, room, is_pretty),
            RowForm::Csv => {
                let names = unique_names(schema);
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                writeln!(out, "{}", names.join(","))?;
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
            Form::Json(out, fields) => {
                for row in 0..batch.num_rows() {
                    line.clear();
                    let columns = fields.iter().zip(batch.columns());
                    write_row(columns, row, Reader::Program, &mut line);
                    line.push(b'\n');
                    out.write_all(&line)?;
                }
            }
            Form::Lines(out, room, is_pretty) => {
                for row in 0..batch.num_rows() {
                    line.clear();
                    write_line(batch, row, *room, *is_pretty, &mut line);
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

    /// Flushes what was written so far. The first rows of a table still wait for others.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Form::Table(_) => Ok(()),
            Form::Json(out, _) | Form::Csv(out) | Form::Lines(out, ..) => out.flush(),
        }
    }

    /// Ends the rows, and returns what they were written to.
    ///
    /// # Errors
    /// When the last rows of a table cannot be written, or it cannot be flushed.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Form::Table(grid) => grid.finish(),
            Form::Json(mut out, _) | Form::Csv(mut out) | Form::Lines(mut out, ..) => {
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

/// The values of a row, two spaces between them.
fn write_line(batch: &RecordBatch, row: usize, room: usize, is_pretty: bool, line: &mut Vec<u8>) {
    let schema = batch.schema_ref();
    let mut value = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let json = column.as_string_opt::<i32>().filter(|_| is_json(field));
        if is_left_out(field, column, row) || json.is_some_and(|json| json.is_null(row)) {
            continue;
        }
        let json = json.map(|json| json.value(row));
        if let Some(json) = json.filter(|_| is_pretty) {
            value.clear();
            write_pretty(json.as_bytes(), 1, &mut value);
            if !value.ends_with(b"\n") {
                value.push(b'\n');
            }
            escape(&value, line);
            return;
        }
        if !line.is_empty() {
            line.extend_from_slice(b"  ");
        }
        if let Some(json) = json {
            escape(cut(json, room).as_bytes(), line);
        } else {
            value.clear();
            write(column, row, Reader::Person, &mut value);
            line.extend_from_slice(shown(&String::from_utf8_lossy(&value)).as_bytes());
        }
    }
    line.truncate(line.trim_ascii_end().len());
    line.push(b'\n');
}

/// Adds JSON to a line, without what could control a terminal.
fn escape(json: &[u8], line: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = EscapeWriter::new(&mut *line, Escapes::Controls).write_all(json);
}

/// A name as a field of a CSV line.
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

/// A name that is taken gets up to this many underscores; then a number.
const UNDERSCORES: usize = 4;

/// A query may give two columns one name; an object or a table may not.
fn unique_names(schema: &SchemaRef) -> Vec<String> {
    let mut known = HashSet::new();
    // How often a name was extended.
    let mut tried: HashMap<&str, usize> = HashMap::new();
    let mut names = Vec::new();
    for field in schema.fields() {
        let mut name = field.name().clone();
        let mut tries = tried.get(field.name().as_str()).copied().unwrap_or(0);
        while !known.insert(name.clone()) {
            tries += 1;
            name = match tries {
                ..=UNDERSCORES => format!("{}{}", field.name(), "_".repeat(tries)),
                _ => format!("{}_{tries}", field.name()),
            };
        }
        tried.insert(field.name(), tries);
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
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
    fn every_column_has_a_name_of_its_own() {
        let names = ["log_time", "log_time", "log_time_", "a,b", "x"];
        let fields = names.map(|name| Field::new(name, arrow_schema::DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let rows = RowWriter::new(Vec::new(), RowForm::Csv, &schema).expect("memory");
        assert_eq!(
            rows.finish().expect("memory"),
            b"log_time,log_time_,log_time__,\"a,b\",x\n"
        );
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
