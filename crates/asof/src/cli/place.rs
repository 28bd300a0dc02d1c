//! What a person names on the command line, opened.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use asof_core::SourceError;
use asof_formats::{Definitions, McapFollower, Merged, Notices, OpenOptions, Recording};
use clap::Args;

use super::newfile::clean_up_on_interrupt;
use super::screen::Screen;

/// Flags of every verb that opens recordings.
#[derive(Debug, Default, Args)]
pub struct Opening {
    /// Look for definitions of ROS 2 types in this folder too, such as /opt/ros/humble/share; for bags
    /// that have none of their own
    #[arg(long, value_name = "DIR")]
    msg_path: Vec<PathBuf>,
}

impl Opening {
    /// The folders of definitions.
    #[cfg(feature = "live")]
    pub fn folders(&self) -> &[PathBuf] {
        &self.msg_path
    }

    /// The standard types, and those that the folders define.
    pub fn definitions(&self, screen: &Screen) -> anyhow::Result<Definitions> {
        definitions_in(&self.msg_path, screen)
    }

    /// Opens one place, or several as one.
    pub fn open(&self, places: &[PathBuf], screen: &Screen) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            definitions: self.definitions(screen)?,
            ..OpenOptions::default()
        };
        self.open_with(places, options, screen)
    }

    /// Opens places that are read once from front to back. Mapping them brings nothing then, but for a db3,
    /// whose pages are read faster than SQLite reads them.
    pub fn open_once(
        &self,
        places: &[PathBuf],
        definitions: Definitions,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            definitions,
            map: false,
            ..OpenOptions::default()
        };
        self.open_with(places, options, screen)
    }

    /// Opens places without mapping anything of them into memory: those that stay open for long, where a file
    /// that is cut meanwhile must be an error and no signal, and those that hold much else in memory.
    pub fn open_unmapped(
        &self,
        places: &[PathBuf],
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            definitions: self.definitions(screen)?,
            map: false,
            map_pages: false,
            ..OpenOptions::default()
        };
        self.open_with(places, options, screen)
    }

    fn open_with(
        &self,
        places: &[PathBuf],
        mut options: OpenOptions,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let told = screen.clone();
        options.notices = Notices::to(move |sentence| told.note(sentence));
        if places.iter().any(|place| may_be_unpacked(place)) {
            clean_up_on_interrupt();
        }
        let open = |place: &PathBuf| {
            let recording = open_one(place, &options)?;
            Ok((place.display().to_string(), recording))
        };
        let mut parts = places
            .iter()
            .map(open)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let recording = if parts.len() == 1 {
            parts.remove(0).1
        } else {
            Box::new(Merged::new(parts))
        };
        if !self.msg_path.is_empty() {
            note_missing(&*recording, &options.definitions, screen);
        }
        Ok(recording)
    }
}

/// Whether a place may be, or may hold, a file that is written to a temporary one before it is read.
fn may_be_unpacked(place: &Path) -> bool {
    let extension = place.extension().and_then(|extension| extension.to_str());
    is_address(place) || place.is_dir() || matches!(extension, Some("zst" | "zstd" | "yaml"))
}

/// The definitions below folders that a person has named. Says so where there are none.
pub fn definitions_in(folders: &[PathBuf], screen: &Screen) -> anyhow::Result<Definitions> {
    let mut definitions = Definitions::standard();
    for folder in folders {
        let found = definitions.add_folder(folder).map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::NotFound => "there is no such folder".to_owned(),
                ErrorKind::NotADirectory => {
                    "it is no folder; name the one that it lies in".to_owned()
                }
                ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => error.to_string(),
            };
            let folder = folder.display();
            anyhow::Error::new(error)
                .context(format!("cannot look for definitions in {folder}: {reason}"))
        })?;
        if found == 0 {
            let folder = folder.display();
            screen.note(format_args!("there is no .msg or .idl file below {folder}"));
        }
    }
    Ok(definitions)
}

/// Says which types are found in the folders but cannot be used, for want of another.
fn note_missing(recording: &dyn Recording, definitions: &Definitions, screen: &Screen) {
    let summary = recording.summary();
    let undefined: BTreeSet<&str> = summary
        .channels
        .iter()
        .filter_map(|entry| entry.channel.schema.as_ref())
        .filter(|schema| schema.encoding.is_empty() && schema.data.is_empty())
        .map(|schema| schema.name.as_str())
        .collect();
    for name in undefined {
        if let Some(missing) = definitions
            .missing_for(name)
            .filter(|missing| missing != name)
        {
            screen.note(format_args!(
                "the definition of {name} needs {missing}, which is in no folder of --msg-path"
            ));
        }
    }
}

/// Follows a file that is being written.
pub fn follow(place: &Path) -> anyhow::Result<McapFollower> {
    McapFollower::open(place).map_err(|error| explained(place, error))
}

/// Whether a place is an address rather than a path.
pub fn is_address(place: &Path) -> bool {
    scheme_of(place).is_some()
}

/// Opens one place.
pub fn open(place: &Path) -> anyhow::Result<Box<dyn Recording>> {
    open_one(place, &OpenOptions::default())
}

/// Opens a place, with an error that a person can act upon.
fn open_one(place: &Path, options: &OpenOptions) -> anyhow::Result<Box<dyn Recording>> {
    if let Some(scheme) = scheme_of(place).filter(|scheme| !is_readable(scheme)) {
        let place = place.display();
        if is_remote(scheme) {
            return Err(anyhow!(
                "cannot open {place}: this asof was built without {scheme} addresses; build it with `--features remote`, or download the file"
            ));
        }
        if scheme == "zenoh" {
            return Err(anyhow!(
                "cannot open {place}: it is a running robot and no recording; record it first: \
                 asof record {place} -o run.mcap"
            ));
        }
        return Err(anyhow!(
            "cannot open {place}: {scheme} addresses are not supported; name a file, or an http, s3, gs or az address"
        ));
    }
    // A pipe would be waited for, and cannot be read anywhere but at its front.
    let is_stream = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
    if std::fs::metadata(place).is_ok_and(is_stream) {
        let place = place.display();
        return Err(anyhow!(
            "cannot open {place}: it is no ordinary file; save what comes out of it to a file first"
        ));
    }
    match asof_formats::open_with(place, options) {
        Ok(file) => Ok(file),
        Err(error) => Err(explained(place, error)),
    }
}

/// Whether files at such addresses are read in place, which takes the feature `remote`.
fn is_readable(scheme: &str) -> bool {
    cfg!(feature = "remote") && is_remote(scheme)
}

fn is_remote(scheme: &str) -> bool {
    asof_formats::REMOTE_SCHEMES.contains(&scheme)
}

fn explained(place: &Path, error: SourceError) -> anyhow::Error {
    let SourceError::Io { cause, .. } = &error else {
        return error.into();
    };
    let place = place.display();
    let line = match cause.kind() {
        ErrorKind::NotFound => {
            format!("cannot open {place}: there is no such file; check the path")
        }
        ErrorKind::PermissionDenied => {
            format!("cannot open {place}: permission denied; check who may read it (ls -l)")
        }
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(line)
}

fn scheme_of(place: &Path) -> Option<&str> {
    let (scheme, _) = place.to_str()?.split_once("://")?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (!scheme.is_empty() && scheme.chars().all(is_word)).then_some(scheme)
}

/// A path that a shell reads as one word, for commands that are shown to people.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
