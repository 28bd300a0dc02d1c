//! `asof export`

use std::path::PathBuf;

use asof::Recording;
use asof::decode::{Layers, Timeline};
use asof::export::{ExportFormat, ExportOptions, Shape, TimeZone};
use clap::{Args, ValueEnum};

use super::Outcome;
use super::cat::told;
use super::choices::{Choice, one_of};
use super::completions;
use super::failure::Usage;
use super::layers::LayerChoice;
use super::memory;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::Screen;
use super::select::Select;

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
    #[arg(long, value_parser = one_of(FORMATS), default_value = "parquet")]
    format: ExportFormat,

    #[command(flatten)]
    select: Select,

    #[command(flatten)]
    opening: Opening,

    /// Only these fields, by path, separated by commas; topics without any of them are left out
    #[arg(long, value_name = "A.B,C", value_delimiter = ',', add = completions::fields())]
    fields: Vec<String>,

    /// The times of each row, separated by commas: log_time and publish_time, and in Parquet and
    /// Arrow the stamp, the time of measurement in the message
    #[arg(long, value_parser = one_of(TIMES), value_name = "A,B", value_delimiter = ',', default_values = ["log_time", "publish_time", "stamp"])]
    times: Vec<Timeline>,

    /// The time zone of times in Parquet and Arrow. DuckDB 2 can neither subtract nor compare TIMESTAMPTZ_NS, its type
    /// for nanoseconds in UTC
    #[arg(long, value_parser = one_of(ZONES), value_name = "ZONE", default_value = "utc")]
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

const FORMATS: &[Choice<ExportFormat>] = &[
    ("parquet", "", ExportFormat::Parquet),
    ("arrow", "", ExportFormat::Arrow),
    ("csv", "", ExportFormat::Csv),
    ("ndjson", "", ExportFormat::Ndjson),
    ("images", "", ExportFormat::Images),
    ("video", "", ExportFormat::Video),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Layer {
    #[default]
    Reflection,
    Semantic,
    Raw,
}

const TIMES: &[Choice<Timeline>] = &[
    ("log_time", "", Timeline::LogTime),
    ("publish_time", "", Timeline::PublishTime),
    ("stamp", "", Timeline::Stamp),
];

const ZONES: &[Choice<TimeZone>] = &[
    (
        "utc",
        "Timestamps with the zone UTC, as pandas and polars expect them",
        TimeZone::Utc,
    ),
    (
        "none",
        "The same nanoseconds without a zone: the only ones that DuckDB 2 subtracts and compares",
        TimeZone::None,
    ),
];

impl Export {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let layers = self.layers()?;
        if self.format == ExportFormat::Parquet {
            // Its encoders allocate blocks of all sizes: this takes about 80 MB instead of 90 for a recording of 1.7 GB.
            memory::give_back_what_is_large();
        }
        let wanted = TopicRequest::chosen(self.select.patterns());
        let file = self
            .opening
            .open(&self.places, &wanted, Purpose::Hold, screen)?;
        let bar = match self.format {
            ExportFormat::Images | ExportFormat::Video => "{bar:30} {pos} pictures  {elapsed}",
            _ => "{bar:30} {pos}/{len} messages  {eta} left",
        };
        let file = Recording::new(file, &self.places).with_progress(screen.reports(bar));
        let options = ExportOptions {
            format: self.format,
            query: self.select.query(&self.places[0], &file, screen)?,
            fields: self.fields.clone(),
            timelines: self.times.clone(),
            layers,
            file_tables: self.file_tables,
            shape: Shape {
                flatten: self.flatten,
                zone: self.time_zone,
            },
            force: self.force,
            follow: true,
        };
        let is_complete = file.export(&self.output, &options)?;
        Ok(told(&file.problems(), !is_complete, screen))
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
        let is_seen = matches!(self.format, ExportFormat::Images | ExportFormat::Video);
        let is_table = matches!(self.format, ExportFormat::Parquet | ExportFormat::Arrow);
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
        let is_lines = matches!(self.format, ExportFormat::Csv | ExportFormat::Ndjson);
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
}
