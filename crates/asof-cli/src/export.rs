//! `asof export`

use std::path::PathBuf;

use anyhow::anyhow;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use asof_core::{Query, Source};
use asof_decode::{Layers, Projection, Survey, TableOptions, Tables, Timeline};
use asof_formats::Recording;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use super::Outcome;
use super::cat::tell_problems;
use super::decoded::{Decoders, missing_definition};
use super::failure::Usage;
use super::fields;
use super::layers::{Contents, LayerChoice};
use super::line_files::LineFiles;
use super::memory;
use super::newfile::NewFile;
use super::numbers::{bytes, counted};
use super::pictures;
use super::place::{Opening, Wanted};
use super::screen::Screen;
use super::select::Select;
use super::shaped::{Shape, TimeZone};
use super::table_file::{BATCH_BYTES, Container, TableFile, TableFiles};
use super::topic_files::{Names, make_folder};

/// Write one table per topic: Parquet, Arrow, CSV or JSON lines; or its pictures
///
/// Each topic becomes a file in the folder, named after it. A file appears when it is complete. Parquet and
/// Arrow keep the message's nesting and its types; CSV spreads structs over columns.
///
/// With --file-tables, the file's own information becomes tables as well: _recording, _channels,
/// _statistics, _metadata, _attachments (with their contents, up to 64 MB each).
///
/// With --format images, each picture is a file named by its log time in a folder of its topic: as it was compressed,
/// raw ones as PNG. With --format video, each topic is a video file: H.264 and H.265 are copied into an .mp4 whose pictures
/// are shown at their log times; VP9 and AV1 are copied into an .mp4 if ffmpeg is installed, and into a bare stream
/// otherwise; pictures are encoded by ffmpeg.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof export run.mcap -o tables --format parquet
  asof export run.mcap -o poses --format csv --topics /odom --fields pose.pose.position,header.stamp
  asof export run.mcap -o tables --flatten --time-zone none
  asof export run.mcap -o pictures --format images --topics /camera/image
  asof export zenoh://192.168.1.5:7447 -o tables --for 30s")]
pub struct Export {
    /// A recording or a running robot (zenoh://host:port), or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    /// The folder for the tables; it is created if it does not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// What to write
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    opening: Opening,

    /// Only these fields, by path, separated by commas; topics without any of them are left out
    #[arg(long, value_name = "A.B,C", value_delimiter = ',')]
    fields: Vec<String>,

    /// The times of each row, separated by commas: log_time and publish_time, and in Parquet and
    /// Arrow the stamp, the time of measurement in the message
    #[arg(long, value_enum, value_name = "A,B", value_delimiter = ',', default_values = ["log_time", "publish_time", "stamp"])]
    times: Vec<TimeColumn>,

    /// The time zone of times in Parquet and Arrow. DuckDB 2 can neither subtract nor compare TIMESTAMPTZ_NS, its type
    /// for nanoseconds in UTC
    #[arg(long, value_enum, value_name = "ZONE", default_value_t)]
    time_zone: TimeZone,

    /// Also spread structs over columns in Parquet and Arrow: pose.position.x instead of a struct pose
    #[arg(long)]
    flatten: bool,

    /// What the columns are: the message's own fields, or those of its meaning
    #[arg(long, value_enum, default_value_t)]
    layer: Layer,

    #[command(flatten)]
    choice: LayerChoice,

    /// Also write the file's own information, in Parquet and Arrow
    #[arg(long)]
    file_tables: bool,

    /// Replace existing files
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
    Images,
    Video,
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
            Format::Images => "png",
            Format::Video => "mp4",
        }
    }
}

impl Export {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let layers = self.layers()?;
        if self.format == Format::Parquet {
            // Its encoders allocate blocks of all sizes: this takes about 80 MB instead of 90 for a recording of 1.7 GB.
            memory::give_back_what_is_large();
        }
        let file = self.opening.open_unmapped(
            &self.places,
            &Wanted::chosen(self.select.patterns()),
            screen,
        )?;
        let mut query = self.select.query(&self.places[0], &*file, screen);
        let is_of_fields = layers.names().iter().any(|&name| name != "raw");
        if !self.fields.is_empty() && is_of_fields {
            fields::narrow(&mut query, &self.fields, &file.summary(), screen)?;
        }
        make_folder(&self.output)?;
        let total = file.summary().messages.unwrap_or(0);
        let progress = screen.progress(total, "{bar:30} {pos}/{len} messages  {eta} left");
        let has_damage = match self.format {
            Format::Parquet | Format::Arrow => {
                self.tables(layers, &*file, &query, screen, &progress)?
            }
            Format::Csv | Format::Ndjson => self.lines(&*file, &query, screen, &progress)?,
            Format::Images => self.pictures(pictures::Kind::Images, &*file, &query, screen)?,
            Format::Video => self.pictures(pictures::Kind::Video, &*file, &query, screen)?,
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

    /// The chosen layers, by the kind of columns and by name.
    fn layers(&self) -> anyhow::Result<Layers> {
        let chosen = self.choice.of(Layers::standard())?;
        let layers = match self.layer {
            // A layer that is requested by name is used for any kind of columns.
            _ if self.choice.is_one_alone() => chosen,
            Layer::Reflection => chosen.without("semantic"),
            Layer::Semantic => chosen,
            Layer::Raw => chosen.without("semantic").without("reflection"),
        };
        let is_seen = matches!(self.format, Format::Images | Format::Video);
        let is_table = matches!(self.format, Format::Parquet | Format::Arrow);
        if !is_table && (self.flatten || self.time_zone != TimeZone::Utc) {
            return Err(Usage::error(
                "--flatten and --time-zone are for --format parquet and arrow; CSV has no structs, and its times no zone",
            ));
        }
        if is_seen
            && (self.file_tables || !self.fields.is_empty() || self.layer != Layer::Reflection)
        {
            return Err(Usage::error(
                "pictures and videos have no columns: leave out --fields, --layer and --file-tables",
            ));
        }
        let is_of_messages = !layers.names().is_empty();
        let is_lines = matches!(self.format, Format::Csv | Format::Ndjson);
        if is_lines && (self.file_tables || !is_of_messages) {
            return Err(Usage::error(
                "the tables of --file-tables are written as parquet or arrow: --format parquet",
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
            Projection::any_of(&self.fields)
        }
    }

    /// Starts the file of a topic.
    fn new_file(&self, topic: &str, names: &mut Names) -> anyhow::Result<(NewFile, PathBuf)> {
        let name = format!("{}.{}", names.of(topic), self.format.extension());
        let path = self.output.join(name);
        let new = NewFile::create(&path, |_| self.force)?;
        Ok((new, path))
    }

    /// Starts the table of a topic: failing to create the file is an error, failing to make the table is an inner one.
    fn new_table(
        &self,
        topic: &str,
        batch: &RecordBatch,
        names: &mut Names,
    ) -> anyhow::Result<anyhow::Result<TableFile>> {
        let (new, path) = self.new_file(topic, names)?;
        let container = match self.format {
            Format::Arrow => Container::Arrow,
            _ => Container::Parquet,
        };
        Ok(TableFile::start(new, path, batch.schema_ref(), container))
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
        let mut names = Names::default();
        let mut files = 0;
        let mut has_damage = false;
        if self.file_tables || !is_of_messages {
            files += self.file_tables(&layers, file, &mut names, screen, &mut has_damage)?;
        }
        if !is_of_messages {
            self.tell(files, screen);
            return Ok(has_damage);
        }
        let wants_bytes = layers.names() == ["raw"];
        let options = TableOptions {
            layers,
            projection: self.projection(),
            timelines: self.times.iter().copied().map(Timeline::from).collect(),
            bytes: BATCH_BYTES,
            // What is kept are complete buffers, which would otherwise be complete chunks.
            shares_buffers: false,
            ..TableOptions::default()
        };
        let mut tables = Tables::read(file, query, options)?;
        let mut writers = TableFiles::default();
        let shape = self.shape();
        for batch in &mut tables {
            let mut batch = batch?;
            batch.batch = shape.of(batch.batch)?;
            progress.inc(batch.batch.num_rows() as u64);
            let start = |topic: &str, batch: &RecordBatch| self.new_table(topic, batch, &mut names);
            writers.write(batch, start, screen)?;
        }
        let (finished, failed) = writers.finish(screen);
        files += finished;
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
                let declined = report.assignment.declined.iter();
                let mut declined = declined.filter(|(layer, _)| &**layer == "reflection");
                match declined.next() {
                    // It would have decoded them if it could.
                    Some((_, reason)) => {
                        has_damage = true;
                        screen.warning(format_args!(
                            "{what} on {topic} not decoded, and left out: {reason}"
                        ));
                    }
                    None => screen.note(format_args!(
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
                screen.warning(format_args!(
                    "{what} on {topic} not decoded, and written as bytes: {reason}"
                ));
            }
        }
        self.tell(files, screen);
        match failed {
            0 => Ok(has_damage),
            failed => Err(anyhow!(
                "{} could not be written; the others are complete",
                counted(failed, "table")
            )),
        }
    }

    /// Writes the tables of the file itself; returns how many there are.
    fn file_tables(
        &self,
        layers: &Layers,
        file: &dyn Recording,
        names: &mut Names,
        screen: &Screen,
        has_damage: &mut bool,
    ) -> anyhow::Result<u64> {
        let mut files = 0;
        let mut current: Option<(String, TableFile)> = None;
        for batch in layers.file_tables(file, &Contents(file)) {
            let (layer, batch) = batch?;
            for reason in errors_of(&batch) {
                *has_damage = true;
                screen.warning(format_args!("{layer}: {reason}"));
            }
            let batch = self.shape().of(batch)?;
            let table = match &mut current {
                Some((name, table)) if name == layer => table,
                _ => {
                    if let Some((_, table)) = current.take() {
                        table.finish()?;
                    }
                    files += 1;
                    let table = self.new_table(&format!("_{layer}"), &batch, names)??;
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

    fn lines(
        &self,
        file: &dyn Recording,
        query: &Query,
        screen: &Screen,
        progress: &ProgressBar,
    ) -> anyhow::Result<bool> {
        let survey = Survey::of(file, query)?;
        let decoders = Decoders::new(self.projection()).with_survey(survey);
        let times = [TimeColumn::LogTime, TimeColumn::PublishTime];
        let times = times.map(|time| self.times.contains(&time));
        let mut names = Names::default();
        let mut files = LineFiles::new(self.format == Format::Csv, times, decoders, |topic| {
            Ok(self.new_file(topic, &mut names)?.0)
        });
        for batch in file.read(query)? {
            let batch = batch?;
            for message in batch.iter() {
                files.write(message)?;
            }
            progress.inc(batch.len() as u64);
        }
        let (count, decoders) = files.finish()?;
        self.tell(count, screen);
        Ok(decoders.tell(screen))
    }

    fn shape(&self) -> Shape {
        Shape {
            flatten: self.flatten,
            zone: self.time_zone,
        }
    }

    fn pictures(
        &self,
        kind: pictures::Kind,
        file: &dyn Recording,
        query: &Query,
        screen: &Screen,
    ) -> anyhow::Result<bool> {
        let total = file.summary().messages.unwrap_or(0);
        let progress = screen.progress(total, "{bar:30} {pos} pictures  {elapsed}");
        let place = pictures::PictureFolder {
            folder: &self.output,
            force: self.force,
        };
        let has_damage = pictures::export(kind, &place, file, query, screen, &progress);
        progress.finish_and_clear();
        has_damage
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

/// The errors in a table of the file about what it could not read.
fn errors_of(batch: &RecordBatch) -> impl Iterator<Item = &str> {
    let column = batch.column_by_name("error");
    let texts = column.and_then(|column| column.as_string_opt::<i32>());
    texts.into_iter().flat_map(|texts| texts.iter().flatten())
}
