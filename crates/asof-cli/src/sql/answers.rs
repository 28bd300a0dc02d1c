//! The output of a query's rows.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;

use crate::screen::{Output, is_watched, output, output_of_values};
use crate::signals::clean_up_on_interrupt;
use asof::export::{Container, TableFile};
use asof::files::NewFile;
use asof::rows::{Reader, RowForm, RowWriter, write};

/// How many characters a cell has on a terminal, and in a pipe.
const CELL_ON_TERMINAL: usize = 60;
const CELL_IN_PIPE: usize = 1000;

/// The requested form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    Table,
    Json,
    Csv,
    /// A file; whether an existing one may be replaced.
    File(Container, PathBuf, bool),
    ArrowStream,
}

/// An answer in progress. A file appears when it is complete.
pub enum Answer {
    Rows(RowWriter<Output>),
    /// The output of `EXPLAIN`: texts of many lines.
    Plan(Output),
    File(Box<TableFile>, PathBuf, u64),
    ArrowStream(Box<StreamWriter<Output>>),
}

impl Answer {
    pub fn start(form: &Form, schema: &SchemaRef) -> anyhow::Result<Self> {
        Ok(match form {
            Form::Table if is_plan(schema) => Answer::Plan(output_of_values()),
            Form::Table => {
                let room = if is_watched() {
                    CELL_ON_TERMINAL
                } else {
                    CELL_IN_PIPE
                };
                let form = RowForm::Table { room };
                Answer::Rows(RowWriter::new(output_of_values(), form, schema)?)
            }
            Form::Json => Answer::Rows(RowWriter::new(output(), RowForm::Json, schema)?),
            Form::Csv => Answer::Rows(RowWriter::new(output_of_values(), RowForm::Csv, schema)?),
            Form::File(container, path, force) => {
                clean_up_on_interrupt();
                let new = NewFile::create(path, |_| *force)?;
                let table = TableFile::start(new, path.clone(), schema, *container)?;
                Answer::File(Box::new(table), path.clone(), 0)
            }
            Form::ArrowStream => {
                let stream = StreamWriter::try_new(output_of_values(), schema);
                Answer::ArrowStream(Box::new(stream.context("cannot write an Arrow stream")?))
            }
        })
    }

    pub fn write(&mut self, batch: RecordBatch) -> anyhow::Result<()> {
        match self {
            Answer::Rows(rows) => rows.write(&batch)?,
            Answer::Plan(out) => {
                for row in 0..batch.num_rows() {
                    let mut text = Vec::new();
                    for column in batch.columns() {
                        write(column, row, Reader::Person, &mut text);
                        text.push(b'\n');
                    }
                    out.write_all(&text)?;
                }
            }
            Answer::File(table, _, rows) => {
                *rows += batch.num_rows() as u64;
                table.write(batch)?;
            }
            Answer::ArrowStream(stream) => stream.write(&batch).map_err(unwrapped)?,
        }
        Ok(())
    }

    /// Ends it; for a file, returns its path and number of rows.
    pub fn finish(self) -> anyhow::Result<Option<(PathBuf, u64)>> {
        match self {
            Answer::Rows(rows) => drop(rows.finish()?),
            Answer::Plan(mut out) => out.flush()?,
            Answer::File(table, path, rows) => {
                table.finish()?;
                return Ok(Some((path, rows)));
            }
            Answer::ArrowStream(mut stream) => {
                stream.finish().map_err(unwrapped)?;
                stream.get_mut().flush()?;
            }
        }
        Ok(None)
    }
}

fn is_plan(schema: &SchemaRef) -> bool {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    names.eq(["plan_type", "plan"])
}

/// An output error by itself, so that a closed pipe is recognized.
fn unwrapped(error: arrow_schema::ArrowError) -> anyhow::Error {
    match error {
        arrow_schema::ArrowError::IoError(_, cause) => cause.into(),
        other => anyhow::Error::new(other).context("cannot write an Arrow stream"),
    }
}

/// The form of a file, by the flag that named it.
pub fn to_file(container: Container, path: &Path, force: bool) -> Form {
    if container == Container::Arrow && path == Path::new("-") {
        return Form::ArrowStream;
    }
    Form::File(container, path.to_owned(), force)
}
