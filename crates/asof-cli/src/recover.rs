//! `asof recover`

use std::io::{self, Write};
use std::path::PathBuf;

use asof_core::Problem;
use asof_formats::{ConvertOptions, McapWriterOptions, Recording};
use clap::Args;
use serde::Serialize;

use super::Outcome;
use super::numbers::{bytes, counted};
use super::place::FileOpening;
use super::report::problems_as_json;
use super::screen::{Palette, Screen};
use super::writing::{CompressionChoice, Written, refuse_input, refuse_other_format, tell, write};

/// Save what a damaged recording still holds, with new indexes
///
/// The new file appears when it is complete. The exit code is 3 if the recording was
/// damaged, and 0 if nothing was wrong with it.
///
/// With --json, one object: path, output, size, messages, attachments, metadata, lost (messages that the
/// recording declares but that cannot be read), problems.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof recover broken.mcap -o saved.mcap
  asof recover broken.mcap -o saved.mcap --compression lz4 --force")]
pub struct Recover {
    /// A recording
    #[arg(value_name = "PLACE")]
    place: PathBuf,

    /// The file to write
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// How to compress it
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    compression: CompressionChoice,

    #[command(flatten)]
    opening: FileOpening,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `recover --json` prints.
#[derive(Serialize)]
struct Rescue {
    path: String,
    output: String,
    size: u64,
    messages: u64,
    attachments: u64,
    metadata: u64,
    lost: u64,
    #[serde(serialize_with = "problems_as_json")]
    problems: Vec<Problem>,
}

const BAR: &str = "saving [{bar:40}] {human_pos}/{human_len} messages {eta}";

impl Recover {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        refuse_other_format(&self.output)?;
        refuse_input(&self.place, &self.output, "recovered")?;
        let definitions = self.opening.definitions(screen)?;
        let places = std::slice::from_ref(&self.place);
        let file = self.opening.open_once(places, definitions, screen)?;
        let writer_options = McapWriterOptions {
            compression: self.compression.into(),
            ..McapWriterOptions::default()
        };
        let writing = (writer_options, &ConvertOptions::default());
        let written = write(&*file, &self.output, self.force, writing, (screen, BAR))?;
        let rescue = self.rescue(&*file, written);
        tell(&rescue, &rescue.problems, self.json, screen, print)
    }

    fn rescue(&self, file: &dyn Recording, written: Written) -> Rescue {
        let summary = file.summary();
        let copied = written.converted;
        Rescue {
            path: self.place.display().to_string(),
            output: self.output.display().to_string(),
            size: written.size,
            messages: copied.messages,
            attachments: copied.attachments,
            metadata: copied.metadata,
            lost: summary
                .messages
                .unwrap_or(0)
                .saturating_sub(copied.messages),
            problems: [summary.problems.clone(), copied.problems].concat(),
        }
    }
}

fn print(out: &mut dyn Write, rescue: &Rescue, colors: Palette) -> io::Result<()> {
    let Palette { good, bad, .. } = colors;
    writeln!(
        out,
        "{good}saved{good:#} {}: {}, {}, {}, {}",
        rescue.output,
        counted(rescue.messages, "message"),
        counted(rescue.attachments, "attachment"),
        counted(rescue.metadata, "metadata record"),
        bytes(rescue.size),
    )?;
    if rescue.problems.is_empty() {
        return writeln!(out, "nothing was wrong with {}", rescue.path);
    }
    let lost = if rescue.lost > 0 {
        format!("at least {}", counted(rescue.lost, "message"))
    } else {
        "only what the problems above describe".to_owned()
    };
    writeln!(out, "{bad}lost{bad:#} {lost}")
}
