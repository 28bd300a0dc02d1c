//! `asof export`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use arrow_array::RecordBatch;
use asof_core::{MessageRef, Query, Source};
use asof_decode::{Layers, Projection, TableOptions, Tables, Timeline, TopicBatch};
use asof_formats::Recording;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{LogicalType, Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::Outcome;
use super::cat::tell_problems;
use super::decoded::{Decoders, missing_definition};
use super::failure::Usage;
use super::layers::{Contents, LayerChoice};
use super::newfile::NewFile;
use super::numbers::{bytes, counted};
use super::place::Opening;
use super::screen::Screen;
use super::select::Select;

/// Write one table per topic: Parquet, Arrow, CSV or JSON lines
///
/// Each topic becomes a file in the folder, named after it. A file appears when it is complete. Parquet and
/// Arrow keep the message's nesting and its types; CSV spreads structs over columns.
///
/// With --file-tables, what the file says about itself becomes tables as well: _recording, _channels,
/// _statistics, _metadata, _attachments (with their contents).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof export run.mcap -o tables --format parquet
  asof export run.mcap -o poses --format csv --topics /odom --fields pose.pose.position,header.stamp")]
pub struct Export {
    /// A recording, or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The folder for the tables; it is made if it is not there
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// What to write
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    opening: Opening,

    /// Only these fields of each message, by path, with commas between them
    #[arg(long, value_name = "A.B,C", value_delimiter = ',')]
    fields: Vec<String>,

    /// Which times each row has, with commas between them: log_time and publish_time, and in Parquet and
    /// Arrow the stamp, which is when the message itself says that it was measured
    #[arg(long, value_enum, value_name = "A,B", value_delimiter = ',', default_values = ["log_time", "publish_time", "stamp"])]
    times: Vec<TimeColumn>,

    /// What the columns are: the message's own fields, or those of what it means
    #[arg(long, value_enum, default_value_t)]
    layer: Layer,

    #[command(flatten)]
    choice: LayerChoice,

    /// Also write what the file says about itself, in Parquet and Arrow
    #[arg(long)]
    file_tables: bool,

    /// Replace files that are there
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    #[default]
    Parquet,
    Arrow,
    Csv,
    Ndjson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Layer {
    #[default]
    Reflection,
    Semantic,
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum TimeColumn {
    LogTime,
    PublishTime,
    Stamp,
}

impl From<TimeColumn> for Timeline {
    fn from(time: TimeColumn) -> Self {
        match time {
            TimeColumn::LogTime => Timeline::LogTime,
            TimeColumn::PublishTime => Timeline::PublishTime,
            TimeColumn::Stamp => Timeline::Stamp,
        }
    }
}

impl Format {
    const fn extension(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
            Format::Csv => "csv",
            Format::Ndjson => "ndjson",
        }
    }
}

impl Export {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let layers = self.layers()?;
        let file = self.opening.open_unmapped(&self.places)?;
        let query = self.select.query(&self.places[0], &file.summary(), screen);
        std::fs::create_dir_all(&self.output)
            .with_context(|| format!("cannot make the folder {}", self.output.display()))?;
        let total = file.summary().messages.unwrap_or(0);
        let progress = screen.progress(total, "{bar:30} {pos}/{len} messages  {eta} left");
        let has_damage = match self.format {
            Format::Parquet | Format::Arrow => {
                self.tables(layers, &*file, &query, screen, &progress)?
            }
            Format::Csv | Format::Ndjson => self.lines(&*file, &query, screen, &progress)?,
        };
        progress.finish_and_clear();
        let problems = &file.summary().problems;
        tell_problems(problems, screen);
        Ok(if has_damage {
            Outcome::Damaged
        } else {
            Outcome::of(problems)
        })
    }

    /// The layers that were chosen, by what the columns are to be and by name.
    fn layers(&self) -> anyhow::Result<Layers> {
        let chosen = self.choice.of(Layers::standard())?;
        let layers = match self.layer {
            // A layer that is asked for by its name is there whatever the columns are to be.
            _ if self.choice.is_one_alone() => chosen,
            Layer::Reflection => chosen.without("semantic"),
            Layer::Semantic => chosen,
            Layer::Raw => chosen.without("semantic").without("reflection"),
        };
        let is_of_messages = !layers.names().is_empty();
        let is_lines = matches!(self.format, Format::Csv | Format::Ndjson);
        if is_lines && (self.file_tables || !is_of_messages) {
            return Err(Usage::error(
                "what a file says about itself is written as parquet or arrow: --format parquet",
            ));
        }
        if is_lines && (self.layer != Layer::Reflection || self.choice.is_one_alone()) {
            return Err(Usage::error(
                "CSV and JSON lines have the message's own fields; layers are chosen with --format parquet or arrow",
            ));
        }
        Ok(layers)
    }

    fn projection(&self) -> Projection {
        if self.fields.is_empty() {
            Projection::All
        } else {
            Projection::paths(self.fields.iter().map(String::as_str))
        }
    }

    /// The chosen ones of the times that every message has.
    fn times_of(&self, message: MessageRef<'_>) -> impl Iterator<Item = (&'static str, i64)> {
        let known = [
            (TimeColumn::LogTime, "log_time", message.log_time.nanos()),
            (
                TimeColumn::PublishTime,
                "publish_time",
                message.publish_time.nanos(),
            ),
        ];
        known
            .into_iter()
            .filter(|(time, _, _)| self.times.contains(time))
            .map(|(_, name, nanos)| (name, nanos))
    }

    /// The file of a topic: slashes become points, and what no file name may have an underscore.
    fn new_file(&self, topic: &str, number: usize) -> anyhow::Result<(NewFile, PathBuf)> {
        let path = self.output.join(file_name(topic, number, self.format));
        let new = NewFile::create(&path, |_| self.force)?;
        Ok((new, path))
    }

    fn tables(
        &self,
        layers: Layers,
        file: &dyn Recording,
        query: &Query,
        screen: &Screen,
        progress: &ProgressBar,
    ) -> anyhow::Result<bool> {
        let is_of_messages = !layers.names().is_empty();
        let mut files = 0;
        if self.file_tables || !is_of_messages {
            for table in layers.file_tables(file, &Contents(file)) {
                let (name, table) = table?;
                let (new, _) = self.new_file(&format!("_{name}"), 0)?;
                let mut writer = TableFile::start(new, &table, self.format)?;
                writer.write(&table)?;
                writer.finish()?;
                files += 1;
            }
        }
        if !is_of_messages {
            self.tell(files, screen);
            return Ok(false);
        }
        let wants_bytes = layers.names() == ["raw"];
        let options = TableOptions {
            layers,
            projection: self.projection(),
            timelines: self.times.iter().copied().map(Timeline::from).collect(),
            bytes: BATCH_BYTES,
            // Arrow's files hold buffers as they are, and these would be whole chunks.
            shares_buffers: self.format != Format::Arrow,
            ..TableOptions::default()
        };
        let mut tables = Tables::read(file, query, options)?;
        let mut writers: BTreeMap<(String, usize), TableFile> = BTreeMap::new();
        for batch in &mut tables {
            let batch = batch?;
            progress.inc(batch.batch.num_rows() as u64);
            self.write(&batch, &mut writers)?;
            drop(batch);
            close_row_groups(&mut writers)?;
        }
        files += writers.len() as u64;
        for (_, writer) in writers {
            writer.finish()?;
        }
        let mut has_damage = false;
        for report in tables.report() {
            let topic = &report.assignment.channel.topic;
            if let Some((at, error)) = report.failures.first() {
                has_damage = true;
                let what = counted(report.failed, "message");
                screen.warning(format_args!(
                    "{what} on {topic} not decoded; the first: at {at}, {error}"
                ));
            }
            if report.assignment.layer.is_none() {
                let what = counted(report.messages, "message");
                screen.note(format_args!(
                    "{what} on {topic} left out: no chosen layer takes them"
                ));
            }
            if report.assignment.layer.as_deref() == Some("raw") && !wants_bytes {
                let reason = report.assignment.declined.last();
                let reason = reason.map_or("", |(_, reason)| reason.as_str());
                let lacking = missing_definition(&report.assignment.channel);
                let reason = lacking.as_deref().unwrap_or(reason);
                screen.note(format_args!("{topic} is written as bytes: {reason}"));
            }
        }
        self.tell(files, screen);
        Ok(has_damage)
    }

    fn write(
        &self,
        batch: &TopicBatch,
        writers: &mut BTreeMap<(String, usize), TableFile>,
    ) -> anyhow::Result<()> {
        let topic = &batch.channel.topic;
        // Two channels of one topic share a file if their tables are alike.
        let mut number = 0;
        let key = loop {
            let key = (topic.clone(), number);
            match writers.get(&key) {
                Some(writer) if !writer.fits(batch) => number += 1,
                _ => break key,
            }
        };
        if !writers.contains_key(&key) {
            let (new, _) = self.new_file(topic, number)?;
            writers.insert(
                key.clone(),
                TableFile::start(new, &batch.batch, self.format)?,
            );
        }
        match writers.get_mut(&key) {
            Some(writer) => writer.write(&batch.batch),
            None => Ok(()),
        }
    }

    fn lines(
        &self,
        file: &dyn Recording,
        query: &Query,
        screen: &Screen,
        progress: &ProgressBar,
    ) -> anyhow::Result<bool> {
        let mut decoders = Decoders::new(self.projection());
        let mut files: BTreeMap<String, (NewFile, BufWriter<File>)> = BTreeMap::new();
        let mut line = Vec::new();
        for batch in file.read(query)? {
            let batch = batch?;
            for message in batch.iter() {
                let topic = &message.channel.topic;
                line.clear();
                let done = if self.format == Format::Csv {
                    for (_, nanos) in self.times_of(message) {
                        write!(line, ",{nanos}")?;
                    }
                    let done = decoders.csv(message, &mut line);
                    // Each value has a comma before it, which the first needs not.
                    line.drain(..1.min(line.len()));
                    done
                } else {
                    line.push(b'{');
                    for (name, nanos) in self.times_of(message) {
                        write!(line, "\"{name}\":{nanos},")?;
                    }
                    let start = line.len();
                    decoders.json(message, &mut line).map(|()| {
                        // The object's own brace is there already.
                        line.remove(start);
                        if line.get(start) == Some(&b'}') && line.get(start - 1) == Some(&b',') {
                            line.remove(start - 1);
                        }
                    })
                };
                if done.is_err() {
                    continue;
                }
                line.push(b'\n');
                if !files.contains_key(topic) {
                    let (new, _) = self.new_file(topic, 0)?;
                    let mut writer = new.writer()?;
                    if self.format == Format::Csv {
                        let times = self.times_of(message);
                        let mut names: Vec<String> =
                            times.map(|(name, _)| name.to_owned()).collect();
                        names.extend(decoders.csv_names(message).unwrap_or_default());
                        writeln!(writer, "{}", names.join(","))?;
                    }
                    files.insert(topic.clone(), (new, writer));
                }
                if let Some((_, writer)) = files.get_mut(topic) {
                    writer.write_all(&line)?;
                }
            }
            progress.inc(batch.len() as u64);
        }
        let count = files.len() as u64;
        for (_, (new, mut writer)) in files {
            writer.flush()?;
            new.finish()?;
        }
        self.tell(count, screen);
        Ok(decoders.tell(screen))
    }

    fn tell(&self, files: u64, screen: &Screen) {
        let size: u64 = std::fs::read_dir(&self.output)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.metadata().ok())
            .map(|found| found.len())
            .sum();
        screen.note(format_args!(
            "{} in {} ({})",
            counted(files, "table"),
            self.output.display(),
            bytes(size)
        ));
    }
}

/// What Parquet may hold back of all tables until it is written.
const HELD_BYTES: usize = 6 << 20;
/// Rows of a page: what Parquet keeps beside the values until a page is whole is in no count of its own.
const PAGE_ROWS: usize = 4 << 10;
/// What a batch of rows may hold; the decoder's own measure would fill all the memory that there is for both.
const BATCH_BYTES: usize = 2 << 20;

/// Writes down the row groups of the largest tables, so that memory does not grow with the recording.
fn close_row_groups(writers: &mut BTreeMap<(String, usize), TableFile>) -> anyhow::Result<()> {
    while writers.values().map(TableFile::held).sum::<usize>() > HELD_BYTES {
        let Some(largest) = writers.values_mut().max_by_key(|writer| writer.held()) else {
            break;
        };
        let before = largest.held();
        largest.close_row_group()?;
        if largest.held() >= before {
            break;
        }
    }
    Ok(())
}

fn file_name(topic: &str, number: usize, format: Format) -> String {
    let name: String = topic
        .trim_start_matches('/')
        .chars()
        .map(|c| match c {
            '/' => '.',
            c if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') => c,
            _ => '_',
        })
        .collect();
    let name = if name.is_empty() {
        "topic".to_owned()
    } else {
        name
    };
    let number = if number == 0 {
        String::new()
    } else {
        format!("-{}", number + 1)
    };
    Path::new(&format!("{name}{number}.{}", format.extension()))
        .display()
        .to_string()
}

/// How a table of this schema is written to Parquet.
///
/// Dictionaries are for texts alone: each takes 70 KB from its first value on, a message has hundreds of columns,
/// and a sensor seldom says a number twice. Times are not written as differences: that encoder takes a megabyte for
/// each column, whatever is in it.
fn parquet_properties(schema: &arrow_schema::Schema) -> anyhow::Result<WriterProperties> {
    let columns = ArrowSchemaConverter::new().convert(schema)?;
    let properties = WriterProperties::builder()
        .set_compression(parquet::basic::Compression::SNAPPY)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_dictionary_enabled(false);
    let columns = columns.columns().iter();
    let properties = columns.fold(properties, |properties, column| {
        let path = column.path().clone();
        match column.logical_type_ref() {
            Some(LogicalType::String) => properties.set_column_dictionary_enabled(path, true),
            // The smallest and the largest picture help nobody, and are held until they are known.
            None if column.physical_type() == Type::BYTE_ARRAY => {
                properties.set_column_statistics_enabled(path, EnabledStatistics::None)
            }
            _ => properties,
        }
    });
    Ok(properties.build())
}

/// A table in the making.
struct TableFile {
    new: NewFile,
    writer: Writer,
    schema: arrow_schema::SchemaRef,
}

enum Writer {
    Parquet(Box<parquet::arrow::ArrowWriter<BufWriter<File>>>),
    Arrow(Box<arrow_ipc::writer::FileWriter<BufWriter<File>>>),
}

impl TableFile {
    fn start(new: NewFile, batch: &RecordBatch, format: Format) -> anyhow::Result<Self> {
        let schema = batch.schema();
        let out = new.writer()?;
        let writer = if format == Format::Parquet {
            let properties = parquet_properties(&schema)?;
            Writer::Parquet(Box::new(parquet::arrow::ArrowWriter::try_new(
                out,
                schema.clone(),
                Some(properties),
            )?))
        } else {
            Writer::Arrow(Box::new(arrow_ipc::writer::FileWriter::try_new(
                out, &schema,
            )?))
        };
        Ok(TableFile {
            new,
            writer,
            schema,
        })
    }

    fn fits(&self, batch: &TopicBatch) -> bool {
        self.schema.fields() == batch.batch.schema_ref().fields()
    }

    fn write(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        match &mut self.writer {
            Writer::Parquet(writer) => writer.write(batch)?,
            Writer::Arrow(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    /// Bytes that wait for the row group to be closed.
    fn held(&self) -> usize {
        match &self.writer {
            Writer::Parquet(writer) => writer.memory_size(),
            Writer::Arrow(_) => 0,
        }
    }

    fn close_row_group(&mut self) -> anyhow::Result<()> {
        match &mut self.writer {
            Writer::Parquet(writer) => Ok(writer.flush()?),
            Writer::Arrow(_) => Ok(()),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match self.writer {
            Writer::Parquet(writer) => writer.into_inner()?.flush()?,
            Writer::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner()?.flush()?;
            }
        }
        self.new.finish()
    }
}
