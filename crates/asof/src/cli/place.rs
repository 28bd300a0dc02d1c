//! What a person names on the command line, opened.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use asof_core::SourceError;
use asof_formats::{Definitions, McapFollower, Merged, OpenOptions, Recording};
use clap::Args;

/// Schemes of places that are not files.
const SCHEMES: [&str; 9] = [
    "http",
    "https",
    "s3",
    "gs",
    "az",
    "zenoh",
    "rosbridge",
    "foxglove",
    "ws",
];

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

    /// Opens one place, or several as one.
    pub fn open(&self, places: &[PathBuf]) -> anyhow::Result<Box<dyn Recording>> {
        self.open_with(places, OpenOptions::default())
    }

    /// Opens places without mapping them into memory: those that will be read once from front to back, and
    /// those that stay open for long, where a file that is cut meanwhile must be an error and no signal.
    pub fn open_unmapped(&self, places: &[PathBuf]) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            map: false,
            ..OpenOptions::default()
        };
        self.open_with(places, options)
    }

    fn open_with(
        &self,
        places: &[PathBuf],
        mut options: OpenOptions,
    ) -> anyhow::Result<Box<dyn Recording>> {
        options.definitions = Definitions::with_folders(&self.msg_path)
            .context("cannot look for definitions there; check the folder of --msg-path")?;
        let open = |place: &PathBuf| {
            let recording = open_one(place, &options)?;
            Ok((place.display().to_string(), recording))
        };
        let mut parts = places
            .iter()
            .map(open)
            .collect::<anyhow::Result<Vec<_>>>()?;
        if parts.len() == 1 {
            return Ok(parts.remove(0).1);
        }
        Ok(Box::new(Merged::new(parts)))
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
            "cannot open {place}: {scheme} addresses are not supported here; name a file on this machine"
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

/// Schemes of files on web servers and in buckets.
fn is_remote(scheme: &str) -> bool {
    ["http", "https", "s3", "gs", "az"].contains(&scheme)
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
    SCHEMES.contains(&scheme).then_some(scheme)
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
