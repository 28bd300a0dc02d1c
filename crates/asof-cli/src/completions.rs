//! `asof completions`, and what it completes: verbs, flags, files, and the topics and fields of the recordings on the line.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Error, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use asof::Summary;
use asof::export::field_paths;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use super::Outcome;
use super::select::split_at_commas;

/// Print completions for a shell
///
/// They also complete the names of topics and fields of the recordings on the line. The script asks `asof` for them, so it
/// needs no update when asof has one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof completions bash > ~/.local/share/bash-completion/completions/asof
  asof completions zsh > \"${fpath[1]}/_asof\"")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// With this variable, a shell asks for completions.
const VARIABLE: &str = "ASOF_COMPLETE";
/// How long a recording may take to open before its names are not offered: someone waits for the key to have an effect.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of how many recordings on a line the names are offered.
const MOST_RECORDINGS: usize = 8;

impl Completions {
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let shells = Shells::builtins();
        let name = self.shell.to_string();
        let shell = shells
            .completer(&name)
            .ok_or_else(|| Error::other(format!("there are no completions for {name}")))?;
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, "asof", "asof", "asof", &mut script)?;
        let mut out = std::io::stdout().lock();
        if self.shell == Shell::Zsh {
            // A file of this name in a folder of $fpath begins so.
            out.write_all(b"#compdef asof\n")?;
        }
        out.write_all(&script)?;
        out.flush()?;
        Ok(Outcome::Done)
    }
}

/// Answers a shell that asks for completions; returns whether it was one.
pub fn answer() -> bool {
    let env = CompleteEnv::with_factory(super::Cli::command).var(VARIABLE);
    let here = std::env::current_dir().ok();
    // An error is printed, and there are no completions then.
    env.try_complete(super::words(), here.as_deref())
        .unwrap_or_else(|error| error.exit())
}

/// Completes topics, separated by commas.
pub fn topics() -> ArgValueCompleter {
    let names = |summary: &Summary| summary.topics().into_iter().map(str::to_owned).collect();
    ArgValueCompleter::new(move |begun: &OsStr| candidates(begun, names))
}

/// Completes paths of fields, separated by commas.
pub fn fields() -> ArgValueCompleter {
    let names =
        |summary: &Summary| field_paths(summary.channels.iter().map(|entry| &*entry.channel));
    ArgValueCompleter::new(move |begun: &OsStr| candidates(begun, names))
}

/// The names that go on from the last part of what was typed.
fn candidates(begun: &OsStr, names: fn(&Summary) -> BTreeSet<String>) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let last = split_at_commas(&begun).last().map_or(0, |last| last.len());
    let (before, last) = begun.split_at(begun.len() - last);
    let mut found = BTreeSet::new();
    for summary in recordings_on_the_line() {
        found.extend(names(&summary));
    }
    let found = found.into_iter().filter(|name| name.starts_with(last));
    // A shell would show what a name from a file says to a terminal.
    let safe = found.filter(|name| asof::text::shown(name) == *name);
    safe.map(|name| CompletionCandidate::new(format!("{before}{name}")))
        .collect()
}

/// What the recordings that are named on the line hold, as far as that is known soon.
fn recordings_on_the_line() -> Vec<Arc<Summary>> {
    let words = super::words().into_iter();
    let line = words.skip_while(|word| word != "--").skip(2);
    let places: Vec<PathBuf> = line
        .map(PathBuf::from)
        .filter(|place| is_recording(place))
        .take(MOST_RECORDINGS)
        .collect();
    let (sender, opened) = mpsc::channel();
    // It ends with the process.
    std::thread::spawn(move || {
        let opened = places.iter().map(|place| asof::formats::open(place));
        for recording in opened.flatten() {
            if sender.send(recording.summary()).is_err() {
                return;
            }
        }
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    std::iter::from_fn(|| {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        opened.recv_timeout(left).ok()
    })
    .collect()
}

/// Whether a word is a recording on this machine: a file, or the folder of a ROS 2 bag.
fn is_recording(place: &Path) -> bool {
    place.is_file() || place.join("metadata.yaml").is_file()
}
