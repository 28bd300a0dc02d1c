//! Tables, lines and pictures in files: one for each topic.

mod decoders;
mod fields;
mod film;
mod line_files;
mod pictures;
mod plain_columns;
mod seen;
mod shape;
mod table_file;
mod topic_files;

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use asof_core::{Query, read_through};
use asof_decode::{Layers, Projection, Survey, TableOptions, Tables, Timeline};

pub use decoders::ReportingDecoders;
use decoders::missing_definition;
#[cfg(feature = "sql")]
pub(crate) use fields::add_paths;
pub use fields::{field_paths, meant_field, narrow};
use line_files::LineFiles;
pub use shape::{Shape, TimeZone};
use table_file::TableFiles;
pub use table_file::{BATCH_BYTES, Container, TableFile};
use topic_files::{Names, make_folder};

use crate::files::NewFile;
use crate::text::{bytes, counted};
use crate::{Error, Recording};

/// What is exported, and how.
#[derive(Clone)]
pub struct ExportOptions {
    /// What is written.
    pub format: ExportFormat,
    /// The topics and times.
    pub query: Query,
    /// Only these fields, by path; all if there are none. Topics without any of them are left out.
    pub fields: Vec<String>,
    /// The times of each row; lines have no stamp.
    pub timelines: Vec<Timeline>,
    /// The layers that make columns of messages.
    pub layers: Layers,
    /// Whether the file's own information becomes tables, too.
    pub file_tables: bool,
    /// The shape of Parquet and Arrow tables.
    pub shape: Shape,
    /// Whether existing files are replaced.
    pub force: bool,
    /// Whether messages that arrive meanwhile are written too, until the recording ends or the range of the query has passed.
    pub follow: bool,
}

impl Default for ExportOptions {
    /// Everything as Parquet, with the message's own fields.
    fn default() -> Self {
        ExportOptions {
            format: ExportFormat::default(),
            query: Query::all(),
            fields: Vec::new(),
            timelines: vec![Timeline::LogTime, Timeline::PublishTime, Timeline::Stamp],
            layers: Layers::standard().without("semantic"),
            file_tables: false,
            shape: Shape::default(),
            force: false,
            follow: false,
        }
    }
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExportFormat {
    /// A Parquet table for each topic.
    #[default]
    Parquet,
    /// An Arrow table for each topic.
    Arrow,
    /// Comma-separated values for each topic.
    Csv,
    /// JSON lines for each topic.
    Ndjson,
    /// A file for each picture.
    Images,
    /// A video for each topic of pictures.
    Video,
}

impl ExportFormat {
    const fn extension(self) -> &'static str {
        match self {
            ExportFormat::Parquet => "parquet",
            ExportFormat::Arrow => "arrow",
            ExportFormat::Csv => "csv",
            ExportFormat::Ndjson => "ndjson",
            ExportFormat::Images => "png",
            ExportFormat::Video => "mp4",
        }
    }
}

impl Recording {
    /// Writes one table per topic into a folder, or its pictures. A file appears when it is complete. Returns whether
    /// everything could be decoded and written; what could not is a warning.
    ///
    /// # Errors
    /// When a file exists or cannot be written, or no topic has one of the fields.
    pub fn export(&self, folder: impl AsRef<Path>, options: &ExportOptions) -> Result<bool, Error> {
        let folder = folder.as_ref();
        let mut query = options.query.clone();
        let is_of_fields = options.layers.names().iter().any(|&name| name != "raw");
        if !options.fields.is_empty() && is_of_fields {
            narrow(
                &mut query,
                &options.fields,
                &self.summary(),
                self.progress(),
            )?;
        }
        make_folder(folder)?;
        let has_damage = match options.format {
            ExportFormat::Parquet | ExportFormat::Arrow => options.tables(folder, self, &query)?,
            ExportFormat::Csv | ExportFormat::Ndjson => options.lines(folder, self, &query)?,
            ExportFormat::Images => {
                options.pictures(pictures::Kind::Images, folder, self, &query)?
            }
            ExportFormat::Video => options.pictures(pictures::Kind::Video, folder, self, &query)?,
        };
        Ok(!has_damage)
    }
}

impl ExportOptions {
    fn projection(&self) -> Projection {
        if self.fields.is_empty() {
            Projection::All
        } else {
            Projection::any_of(&self.fields)
        }
    }

    /// Starts the file of a topic.
    fn new_file(
        &self,
        folder: &Path,
        topic: &str,
        names: &mut Names,
    ) -> Result<(NewFile, PathBuf), Error> {
        let name = format!("{}.{}", names.of(topic), self.format.extension());
        let path = folder.join(name);
        let new = NewFile::create(&path, |_| self.force)?;
        Ok((new, path))
    }

    /// Starts the table of a topic: failing to create the file is an error, failing to make the table is an inner one.
    fn new_table(
        &self,
        folder: &Path,
        topic: &str,
        batch: &RecordBatch,
        names: &mut Names,
    ) -> Result<Result<TableFile, Error>, Error> {
        let (new, path) = self.new_file(folder, topic, names)?;
        let container = match self.format {
            ExportFormat::Arrow => Container::Arrow,
            _ => Container::Parquet,
        };
        Ok(TableFile::start(new, path, batch.schema_ref(), container))
    }

    fn tables(&self, folder: &Path, file: &Recording, query: &Query) -> Result<bool, Error> {
        let layers = &self.layers;
        let is_of_messages = !layers.names().is_empty();
        let mut names = Names::default();
        let mut files = 0;
        let mut has_damage = false;
        if self.file_tables || !is_of_messages {
            files += self.write_file_tables(folder, file, &mut names, &mut has_damage)?;
        }
        if !is_of_messages {
            Self::tell(folder, files, file);
            return Ok(has_damage);
        }
        let wants_bytes = layers.names() == ["raw"];
        let options = TableOptions {
            layers: layers.clone(),
            projection: self.projection(),
            timelines: self.timelines.clone(),
            bytes: BATCH_BYTES,
            // What is kept are complete buffers, which would otherwise be complete chunks.
            shares_buffers: false,
            follow: self.follow,
            ..TableOptions::default()
        };
        let mut tables = Tables::read(file, query, options)?;
        let (mut done, total) = (0, file.summary().messages.unwrap_or(0));
        let mut writers = TableFiles::default();
        let shape = self.shape;
        for batch in &mut tables {
            let mut batch = batch?;
            batch.batch = shape.of(batch.batch)?;
            done += batch.batch.num_rows() as u64;
            file.progress().done(done, total);
            let start =
                |topic: &str, batch: &RecordBatch| self.new_table(folder, topic, batch, &mut names);
            writers.write(batch, start, file.progress())?;
        }
        let (finished, others) = writers.finish(file.progress());
        files += finished;
        for report in tables.report() {
            let topic = &report.assignment.channel.topic;
            if let Some((at, error)) = report.failures.first() {
                has_damage = true;
                let what = counted(report.failed, "message");
                file.progress().warning(format_args!(
                    "{what} on {topic} not decoded; the first: at {at}, {error}"
                ));
            }
            if report.assignment.layer.is_none() {
                let what = counted(report.messages, "message");
                let declined = report.assignment.declined.iter();
                let mut declined = declined.filter(|(layer, _)| &**layer == "reflection");
                match declined.next() {
                    // It would have decoded them if it could.
                    Some((_, reason)) => {
                        has_damage = true;
                        file.progress().warning(format_args!(
                            "{what} on {topic} not decoded, and left out: {reason}"
                        ));
                    }
                    None => file.progress().note(format_args!(
                        "{what} on {topic} left out: no chosen layer takes them"
                    )),
                }
            }
            if report.assignment.layer.as_deref() == Some("raw") && !wants_bytes {
                has_damage = true;
                let what = counted(report.messages, "message");
                let reason = report.assignment.declined.last();
                let reason = reason.map_or("", |(_, reason)| reason.as_str());
                let lacking = missing_definition(&report.assignment.channel);
                let reason = lacking.as_deref().unwrap_or(reason);
                file.progress().warning(format_args!(
                    "{what} on {topic} not decoded, and written as bytes: {reason}"
                ));
            }
        }
        Self::tell(folder, files, file);
        others.map(|()| has_damage)
    }

    /// Writes the tables of the file itself; returns how many there are.
    fn write_file_tables(
        &self,
        folder: &Path,
        file: &Recording,
        names: &mut Names,
        has_damage: &mut bool,
    ) -> Result<u64, Error> {
        let mut files = 0;
        let mut current: Option<(String, TableFile)> = None;
        for batch in self.layers.file_tables(file, file.source().parts()) {
            let (layer, batch) = batch?;
            for reason in errors_of(&batch) {
                *has_damage = true;
                file.progress().warning(format_args!("{layer}: {reason}"));
            }
            let batch = self.shape.of(batch)?;
            let table = match &mut current {
                Some((name, table)) if name == layer => table,
                _ => {
                    if let Some((_, table)) = current.take() {
                        table.finish()?;
                    }
                    files += 1;
                    let table = self.new_table(folder, &format!("_{layer}"), &batch, names)??;
                    &mut current.insert((layer.to_owned(), table)).1
                }
            };
            table.write(batch)?;
        }
        if let Some((_, table)) = current {
            table.finish()?;
        }
        Ok(files)
    }

    fn lines(&self, folder: &Path, file: &Recording, query: &Query) -> Result<bool, Error> {
        let survey = Survey::of(file, query)?;
        let decoders = ReportingDecoders::new(self.projection()).with_survey(survey);
        let times = [Timeline::LogTime, Timeline::PublishTime];
        let times = times.map(|time| self.timelines.contains(&time));
        let mut names = Names::default();
        let (mut done, total) = (0, file.summary().messages.unwrap_or(0));
        let mut files =
            LineFiles::new(self.format == ExportFormat::Csv, times, decoders, |topic| {
                Ok(self.new_file(folder, topic, &mut names)?.0)
            });
        for batch in read_through(file, query, self.follow)? {
            let batch = batch?;
            files.write(batch.iter())?;
            done += batch.len() as u64;
            file.progress().done(done, total);
        }
        let (count, decoders) = files.finish()?;
        Self::tell(folder, count, file);
        Ok(decoders.tell(file.progress()))
    }

    fn pictures(
        &self,
        kind: pictures::Kind,
        folder: &Path,
        file: &Recording,
        query: &Query,
    ) -> Result<bool, Error> {
        let place = pictures::PictureFolder {
            folder,
            force: self.force,
            follow: self.follow,
        };
        pictures::export(kind, &place, file, query)
    }

    fn tell(folder: &Path, files: u64, file: &Recording) {
        let size: u64 = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.metadata().ok())
            .map(|found| found.len())
            .sum();
        file.progress().note(format_args!(
            "{} in {} ({})",
            counted(files, "table"),
            folder.display(),
            bytes(size)
        ));
    }
}

/// The errors in a table of the file about what it could not read.
fn errors_of(batch: &RecordBatch) -> impl Iterator<Item = &str> {
    let column = batch.column_by_name("error");
    let texts = column.and_then(|column| column.as_string_opt::<i32>());
    texts.into_iter().flat_map(|texts| texts.iter().flatten())
}
