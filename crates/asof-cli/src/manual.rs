//! `asof manual`: for packagers, hidden from the list of verbs.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use super::Outcome;

/// Write the manual pages into a folder: asof(1), and a page for each verb
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Manual {
    /// The folder; it is created if it does not exist
    folder: PathBuf,
}

impl Manual {
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let place = || format!("cannot write the manual to {}", self.folder.display());
        fs::create_dir_all(&self.folder).with_context(place)?;
        clap_mangen::generate_to(super::Cli::command(), &self.folder).with_context(place)?;
        Ok(Outcome::Done)
    }
}
