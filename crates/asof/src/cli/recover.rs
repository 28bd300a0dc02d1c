//! `asof recover`

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use asof_core::Problem;
use asof_formats::{
    Compression, ConvertOptions, Converted, McapWriter, McapWriterOptions, Recording, convert,
};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Outcome;
use super::newfile::{NewFile, refuse_same};
use super::numbers::{bytes, counted, shown};
use super::place::Opening;
use super::report::problems_as_json;
use super::screen::{Palette, Screen, output};

/// Save what can be saved of a damaged recording, with fresh indexes
///
/// The new file appears when it is complete, and not before. The exit code is 3 if the recording was
/// damaged, and 0 if nothing was wrong with it.
///
/// With --json, one object: path, output, size, messages, attachments, metadata, lost (messages that the
/// recording says it has and that cannot be read), problems.
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
    opening: Opening,

    /// Replace a file that is there already
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum CompressionChoice {
    /// Small, quick to read
    #[default]
    Zstd,
    /// Larger, quicker to write and to read
    Lz4,
    /// As it is
    None,
}

impl From<CompressionChoice> for Compression {
    fn from(choice: CompressionChoice) -> Self {
        match choice {
            CompressionChoice::Zstd => Compression::Zstd,
            CompressionChoice::Lz4 => Compression::Lz4,
            CompressionChoice::None => Compression::None,
        }
    }
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
        refuse_same(&self.place, &self.output)?;
        let file = self
            .opening
            .open_unmapped(std::slice::from_ref(&self.place))?;
        let new = NewFile::create(&self.output, |_| self.force)?;
        let copied = self.copy(&*file, &new, screen)?;
        new.finish()?;
        let rescue = self.rescue(&*file, copied)?;
        let mut out = output();
        if self.json {
            serde_json::to_writer(&mut out, &rescue).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            print(&mut out, &rescue, screen.palette())?;
        }
        out.flush()?;
        Ok(Outcome::of(&rescue.problems))
    }

    fn copy(
        &self,
        file: &dyn Recording,
        new: &NewFile,
        screen: &Screen,
    ) -> anyhow::Result<Converted> {
        let summary = file.summary();
        let failed = || format!("cannot write {}: is the disk full?", self.output.display());
        let options = McapWriterOptions {
            compression: self.compression.into(),
            profile: summary.profile.clone(),
            ..McapWriterOptions::default()
        };
        let mut writer = McapWriter::new(new.writer()?, options).with_context(failed)?;
        let bar = screen.progress(summary.messages.unwrap_or(0), BAR);
        let copied = convert(file, &mut writer, &ConvertOptions::default(), &mut |done| {
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let copied = copied?;
        writer.finish().with_context(failed)?;
        Ok(copied)
    }

    fn rescue(&self, file: &dyn Recording, copied: Converted) -> anyhow::Result<Rescue> {
        let summary = file.summary();
        let written = std::fs::metadata(&self.output);
        let size = written
            .with_context(|| format!("cannot find {} any more", self.output.display()))?
            .len();
        Ok(Rescue {
            path: self.place.display().to_string(),
            output: self.output.display().to_string(),
            size,
            messages: copied.messages,
            attachments: copied.attachments,
            metadata: copied.metadata,
            lost: summary
                .messages
                .unwrap_or(0)
                .saturating_sub(copied.messages),
            problems: [summary.problems.clone(), copied.problems].concat(),
        })
    }
}

/// A flood of problems is cut short for people; JSON and `asof doctor` have them all.
const PROBLEMS_SHOWN: usize = 20;

fn print(out: &mut impl Write, rescue: &Rescue, colors: Palette) -> io::Result<()> {
    let Palette { good, bad, .. } = colors;
    for problem in rescue.problems.iter().take(PROBLEMS_SHOWN) {
        writeln!(out, "  {}", shown(&problem.to_string()))?;
    }
    if rescue.problems.len() > PROBLEMS_SHOWN {
        writeln!(out, "  and {} more", rescue.problems.len() - PROBLEMS_SHOWN)?;
    }
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
        "only what the problems above say".to_owned()
    };
    writeln!(out, "{bad}lost{bad:#} {lost}")
}
