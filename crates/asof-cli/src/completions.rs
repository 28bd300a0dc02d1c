//! `asof completions`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Outcome;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof completions bash > ~/.local/share/bash-completion/completions/asof
  asof completions zsh > \"${fpath[1]}/_asof\"")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(&self) -> anyhow::Result<Outcome> {
        // Into memory first: the generator panics when its writer fails.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::Cli::command(), "asof", &mut script);
        let mut out = std::io::stdout().lock();
        std::io::Write::write_all(&mut out, &script)?;
        std::io::Write::flush(&mut out)?;
        Ok(Outcome::Done)
    }
}
