//! Files that are dropped onto the page.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof::Source;
use asof_serve::{OpenedRecording, Opener, Refusal};

use super::compare::Compare;
use super::place::{Purpose, open};
use asof::files::{TemporaryFolder, remove_abandoned};

/// How many drops wait for all of their files, which bounds temporary files; the oldest is removed.
const MOST_WAITING: usize = 2;

/// Opens dropped files.
#[derive(Default)]
pub struct DropOpener {
    waiting: Mutex<Drops>,
}

#[derive(Default)]
struct Drops {
    last: u64,
    all: Vec<(u64, TemporaryFolder)>,
}

impl DropOpener {
    /// Files of earlier servers that were killed are removed first.
    pub fn new() -> Self {
        remove_abandoned();
        DropOpener::default()
    }

    fn waiting(&self) -> MutexGuard<'_, Drops> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of a folder as one recording; several are side by side, each under its name.
fn opened(files: &[PathBuf], folder: TemporaryFolder) -> anyhow::Result<OpenedRecording> {
    let shown = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let names: Vec<String> = files.iter().map(shown).collect();
    let mut robots = Vec::new();
    let recording: Box<dyn Source> = match files {
        [one] => open(one, Purpose::Hold)?,
        several => {
            let compared = Compare::by_name().open(several, |file| open(file, Purpose::Hold))?;
            robots = compared.robots;
            compared.recording
        }
    };
    Ok(OpenedRecording {
        source: Arc::new(recording),
        name: names.join(" and "),
        robots,
        annotations: None,
        disk: None,
        keep: Some(Box::new(folder)),
    })
}

const CLOSED: &str = "this drop was closed; drop the files again";

impl Opener for DropOpener {
    fn folder(&self, look: Option<u64>) -> Result<(u64, PathBuf), Refusal> {
        let mut waiting = self.waiting();
        if let Some(number) = look {
            let known = waiting.all.iter().find(|(known, _)| *known == number);
            let (_, folder) = known.ok_or(CLOSED)?;
            return Ok((number, folder.path().to_owned()));
        }
        let folder = TemporaryFolder::new()
            .map_err(|error| format!("there is no temporary folder for it: {error}"))?;
        waiting.last += 1;
        let number = waiting.last;
        let path = folder.path().to_owned();
        waiting.all.push((number, folder));
        if waiting.all.len() > MOST_WAITING {
            waiting.all.remove(0);
        }
        Ok((number, path))
    }

    fn open(&self, look: u64) -> Result<OpenedRecording, Refusal> {
        let mut waiting = self.waiting();
        let at = waiting.all.iter().position(|(known, _)| *known == look);
        let (_, folder) = waiting.all.remove(at.ok_or(CLOSED)?);
        drop(waiting);
        let entries = std::fs::read_dir(folder.path()).map_err(|error| error.to_string())?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        if files.is_empty() {
            return Err("no file was received".into());
        }
        opened(&files, folder).map_err(|error| format!("{error:#}").into())
    }
}
