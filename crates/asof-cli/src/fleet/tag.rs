//! `asof tag`

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::CataloguePlace;
use crate::Outcome;
use crate::failure::Usage;
use crate::screen::{Screen, output};
use asof::text::shown;

/// Tag a recording, without touching the file
///
/// Tags are kept in the catalogue of `asof index`, and outlive changes of the recording. The tags robot, site and date override
/// those from path and metadata. A key without a value removes the tag. Prints all tags of the recording.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof tag s3://bucket/fleet r7/2024-05-01/run.mcap weather=rain operator=night-shift
  asof tag /data/fleet run.mcap weather=")]
pub struct Tag {
    /// The folder or bucket of the recording
    #[arg(value_name = "PLACE")]
    place: PathBuf,

    /// The recording: its path from there, its address, or the end of its path
    #[arg(value_name = "RECORDING")]
    recording: String,

    /// The tag: key=value, or key= to remove it
    #[arg(value_name = "KEY=VALUE", required = true)]
    tags: Vec<String>,

    #[command(flatten)]
    catalogue: CataloguePlace,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Tag {
    pub fn run(&self, _screen: &Screen) -> anyhow::Result<Outcome> {
        let tags = self.tags.iter().map(|tag| tag_in(tag));
        let tags = tags.collect::<anyhow::Result<Vec<_>>>()?;
        let fleet = self.catalogue.of(&self.place)?;
        let row = fleet.tag(&self.recording, tags)?;
        let mut out = output();
        if self.json {
            writeln!(out, "{}", fleet.row_as_json(&row))?;
        } else {
            let columns = [
                ("robot", &row.robot),
                ("site", &row.site),
                ("date", &row.date),
            ];
            let columns = columns
                .into_iter()
                .filter_map(|(key, value)| Some((key, value.as_ref()?)));
            let tags = row.tags.iter().map(|(key, value)| (key.as_str(), value));
            for (key, value) in columns.chain(tags) {
                writeln!(out, "{}={}", shown(key), shown(value))?;
            }
        }
        out.flush()?;
        Ok(Outcome::Done)
    }
}

/// A tag and its value; without a value it is removed.
fn tag_in(text: &str) -> anyhow::Result<(&str, Option<&str>)> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim(), (!value.is_empty()).then_some(value)))
        }
        _ => Err(Usage::error(format!(
            "'{text}' is not a tag; write it as key=value"
        ))),
    }
}
