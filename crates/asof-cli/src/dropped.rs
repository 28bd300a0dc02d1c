//! Files that are dropped onto the page: each drop gets its own server, on this machine only.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof::formats::Recording;
use asof_serve::{Opener, Refusal, ServeOptions, Server};

use super::compare::Compare;
use super::place::{Purpose, open};
use asof::files::{TemporaryFolder, remove_abandoned};

/// How many drops are open at once, which bounds temporary files; the oldest is closed and its files removed.
const MOST_LOOKS: usize = 2;

/// Opens dropped files.
pub struct Dropped {
    options: ServeOptions,
    looks: Mutex<Looks>,
}

#[derive(Default)]
struct Looks {
    last: u64,
    all: Vec<Look>,
}

struct Look {
    number: u64,
    /// Declared before the folder, so that it is closed first.
    server: Option<Server>,
    folder: TemporaryFolder,
}

impl Dropped {
    /// Dropped files are shown according to `options`.
    pub fn new(options: &ServeOptions) -> Self {
        remove_abandoned();
        let options = ServeOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            any_port: true,
            start: None,
            disk: None,
            annotations: None,
            robots: Vec::new(),
            // These options are about what the first server shows.
            queries: None,
            snapshots: None,
            recordings: None,
            ..options.clone()
        };
        Dropped {
            options,
            looks: Mutex::default(),
        }
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, files: &[PathBuf]) -> anyhow::Result<Server> {
        let shown = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let names: Vec<String> = files.iter().map(shown).collect();
        let mut options = self.options.clone();
        let recording: Box<dyn Recording> = match files {
            [one] => open(one, Purpose::Hold)?,
            several => {
                let compared =
                    Compare::by_name().open(several, |file| open(file, Purpose::Hold))?;
                options.robots = compared.robots;
                compared.recording
            }
        };
        Ok(Server::start(
            Arc::new(recording),
            &names.join(" and "),
            &options,
        )?)
    }
}

impl Opener for Dropped {
    fn folder(&self, look: Option<u64>) -> Result<(u64, PathBuf), Refusal> {
        let mut looks = self.looks();
        if let Some(number) = look {
            let known = looks.all.iter().find(|look| look.number == number);
            let known = known.filter(|look| look.server.is_none());
            let known = known.ok_or("this drop was closed; drop the files again")?;
            return Ok((number, known.folder.path().to_owned()));
        }
        let folder = TemporaryFolder::new()
            .map_err(|error| format!("there is no temporary folder for it: {error}"))?;
        looks.last += 1;
        let number = looks.last;
        let path = folder.path().to_owned();
        looks.all.push(Look {
            number,
            server: None,
            folder,
        });
        if looks.all.len() > MOST_LOOKS {
            looks.all.remove(0);
        }
        Ok((number, path))
    }

    fn open(&self, look: u64) -> Result<String, Refusal> {
        let (_, folder) = self.folder(Some(look))?;
        let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        if files.is_empty() {
            return Err("no file was received".into());
        }
        let server = self.serve(&files).map_err(|error| format!("{error:#}"))?;
        let address = server.url();
        let mut looks = self.looks();
        let known = looks.all.iter_mut().find(|known| known.number == look);
        known
            .ok_or("this drop was closed; drop the files again")?
            .server = Some(server);
        Ok(address)
    }
}
