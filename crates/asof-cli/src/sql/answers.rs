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
use asof::rows::{Grid, Reader, header, write, write_csv, write_json_text};

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
    Table(Grid<Output>),
    /// The output of `EXPLAIN`: texts of many lines.
    Plan(Output),
    Json(Output, Vec<Vec<u8>>),
    Csv(Output),
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
                Answer::Table(Grid::new(output_of_values(), schema, room))
            }
            Form::Json => {
                let keys = unique_names(schema).into_iter().map(|name| {
                    let mut key = Vec::new();
                    write_json_text(&name, &mut key);
                    key.push(b':');
                    key
                });
                Answer::Json(output(), keys.collect())
            }
            Form::Csv => {
                let mut out = output_of_values();
                writeln!(out, "{}", header(&[], &unique_names(schema)))?;
                Answer::Csv(out)
            }
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
            Answer::Table(grid) => grid.write(&batch)?,
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
            Answer::Json(out, keys) => {
                let mut line = Vec::new();
                for row in 0..batch.num_rows() {
                    line.clear();
                    line.push(b'{');
                    for (place, (key, column)) in keys.iter().zip(batch.columns()).enumerate() {
                        if place > 0 {
                            line.push(b',');
                        }
                        line.extend_from_slice(key);
                        write(column, row, Reader::Program, &mut line);
                    }
                    line.extend_from_slice(b"}\n");
                    out.write_all(&line)?;
                }
            }
            Answer::Csv(out) => {
                let mut line = Vec::new();
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
            Answer::Table(grid) => grid.finish()?,
            Answer::Json(mut out, _) | Answer::Csv(mut out) | Answer::Plan(mut out) => {
                out.flush()?;
            }
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

/// The form of a file, by the flag that named it.
pub fn to_file(container: Container, path: &Path, force: bool) -> Form {
    if container == Container::Arrow && path == Path::new("-") {
        return Form::ArrowStream;
    }
    Form::File(container, path.to_owned(), force)
}
