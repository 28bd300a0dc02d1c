//! Rows of messages that were joined as they arrived: as lines, JSON and comma-separated values, and in tables.

mod fields;
mod rows;
mod table;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asof_align::On;
use asof_core::{Message, Source, Stamp};
use asof_window::sync::{AlignedRow, Stamped};

use self::fields::{FieldChoice, Fields, sample};
use self::rows::TextRows;
use self::table::JoinedTable;
use self::text::Text;
use crate::{Error, Progress};

/// A message that waits for its row, or is part of it.
pub type Item = Arc<Message>;

/// What joined rows show.
#[derive(Debug, Clone)]
pub struct JoinedOptions {
    /// The topics, of which the first makes the rows.
    pub topics: Vec<String>,
    /// The time that they are joined by.
    pub on: On,
    /// Only these fields, by path; all if none is named.
    pub fields: Vec<String>,
    /// Also bytes, such as those of pictures; a table has them in any case.
    pub with_bytes: bool,
}

/// How joined rows are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinedForm {
    /// A line for people.
    Lines {
        /// The most characters of a message.
        room: usize,
    },
    /// An object for each row, one per line: the first topic's message, and under `with` those of the others.
    Json,
    /// Comma-separated values below a line of names.
    Csv,
}

/// Where joined rows go. An existing file is replaced if `force` is set; a new one appears when it is complete.
pub enum JoinedOutput {
    /// Text.
    Text(Box<dyn Write>, JoinedForm),
    /// A file of the kind that its name says: .parquet, .arrow, .csv, .ndjson.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether to replace it.
        force: bool,
    },
    /// A Parquet file, whatever its name.
    Parquet {
        /// Its path.
        path: PathBuf,
        /// Whether to replace it.
        force: bool,
    },
}

/// Writes rows of messages that were joined as they arrived.
pub struct JoinedWriter {
    rows: Box<dyn Sink>,
    /// The file that they go to.
    path: Option<PathBuf>,
}

/// A form of rows.
trait Sink {
    fn write(&mut self, row: &AlignedRow<Item>) -> Result<(), Error>;

    fn flush(&mut self) -> Result<(), Error>;

    fn finish(self: Box<Self>, progress: &Progress) -> Result<bool, Error>;
}

impl JoinedWriter {
    /// Starts rows of topics of a source.
    ///
    /// # Errors
    /// When no topic has a field that is named, there is no such kind of file, or it cannot be created.
    pub fn new(
        source: &dyn Source,
        options: JoinedOptions,
        output: JoinedOutput,
    ) -> Result<Self, Error> {
        let fields = Fields::new(FieldChoice {
            paths: options.fields.clone(),
            with_bytes: options.with_bytes,
        });
        fields.check(source, &options.topics)?;
        let is_table = matches!(output, JoinedOutput::Parquet { .. });
        let (path, force) = match output {
            JoinedOutput::Text(out, form) => {
                let rows = TextRows::start(Text::Screen(out), form, source, options, fields)?;
                return Ok(JoinedWriter {
                    rows: Box::new(rows),
                    path: None,
                });
            }
            JoinedOutput::File { path, force } | JoinedOutput::Parquet { path, force } => {
                (path, force)
            }
        };
        let extension = path.extension().and_then(|text| text.to_str());
        let form = match extension.filter(|_| !is_table).unwrap_or("parquet") {
            "csv" => JoinedForm::Csv,
            "ndjson" | "jsonl" => JoinedForm::Json,
            "parquet" | "arrow" => {
                let topics = options.topics.iter();
                let topics = topics.map(|topic| (topic.clone(), sample(source, topic)));
                let table = JoinedTable::start(&path, topics.collect(), &options.fields, force)?;
                return Ok(JoinedWriter {
                    rows: Box::new(table),
                    path: Some(path),
                });
            }
            other => {
                return Err(Error::Option(format!(
                    "there is no table of the kind '{other}'; name a file .parquet, .arrow, .csv or .ndjson"
                )));
            }
        };
        let out = Text::create(&path, force)?;
        let rows = TextRows::start(out, form, source, options, fields)?;
        Ok(JoinedWriter {
            rows: Box::new(rows),
            path: Some(path),
        })
    }

    /// Writes a row.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, row: &AlignedRow<Item>) -> Result<(), Error> {
        let written = self.rows.write(row);
        written.map_err(|error| named(error, self.path.as_deref()))
    }

    /// Flushes what was written so far, because nothing arrives for a while.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.rows.flush();
        flushed.map_err(|error| named(error, self.path.as_deref()))
    }

    /// Ends the rows. Reports what could not be decoded, and returns whether everything could be.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(self, progress: &Progress) -> Result<bool, Error> {
        let finished = self.rows.finish(progress);
        finished.map_err(|error| named(error, self.path.as_deref()))
    }
}

/// The error of a file, with its name.
fn named(error: Error, path: Option<&Path>) -> Error {
    match (error, path) {
        (Error::Io(cause), Some(path)) => {
            Error::file(format!("cannot write {}", path.display()), cause)
        }
        (error, _) => error,
    }
}

/// The nearer of two; the earlier where both are equally near.
fn nearer<'a, T>(before: &'a Stamped<T>, after: &'a Stamped<T>, at: Stamp) -> &'a Stamped<T> {
    if after.stamp.since(at) < at.since(before.stamp) {
        after
    } else {
        before
    }
}
