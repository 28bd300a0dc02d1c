//! `asof recover`

use std::io::{self, Write};
use std::path::PathBuf;

use asof::Recording;
use asof::files::{RecoverOptions, RecoverReport, refuse_input, refuse_other_format};
use asof::formats::{Compression, McapWriterOptions};
use clap::Args;

use super::Outcome;
use super::choices::one_of;
use super::place::{FileOpening, Purpose};
use super::screen::{Palette, Screen};
use super::writing::{COMPRESSIONS, tell};
use asof::text::{bytes, counted};

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
    #[arg(long, value_parser = one_of(COMPRESSIONS), value_name = "NAME", default_value = "zstd")]
    compression: Compression,

    #[command(flatten)]
    opening: FileOpening,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const BAR: &str = "saving [{bar:40}] {human_pos}/{human_len} messages {eta}";

impl Recover {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        refuse_other_format(&self.output)?;
        refuse_input(&self.place, &self.output, "recovered")?;
        let places = std::slice::from_ref(&self.place);
        let file = self.opening.open(places, Purpose::ReadOnce, screen)?;
        let file = Recording::new(file, places).with_progress(screen.reports(BAR));
        let options = RecoverOptions {
            writer: McapWriterOptions {
                compression: self.compression,
                ..McapWriterOptions::default()
            },
            force: self.force,
        };
        let rescue = file.recover(&self.output, &options)?;
        tell(&rescue, &rescue.problems, self.json, screen, print)
    }
}

fn print(out: &mut dyn Write, rescue: &RecoverReport, colors: Palette) -> io::Result<()> {
    let Palette { good, bad, .. } = colors;
    writeln!(
        out,
        "{good}saved{good:#} {}: {}, {}, {}, {}",
        rescue.output.display(),
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
