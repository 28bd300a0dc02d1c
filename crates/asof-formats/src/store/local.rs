//! A folder on disk as a store.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use asof_core::{Source, SourceError, Stamp};
use bytes::Bytes;

use super::{FilePiece, Listing, Replaced, StoredFile};
use crate::folder::{is_hidden_name, is_named_recording};
use crate::open::open_known_file;
use crate::pieces::{KnownFile, Noted};
use crate::storage::failed;
use crate::{MappedFile, OpenOptions, Storage, open_with};

#[derive(Debug)]
pub(super) struct LocalStore {
    root: PathBuf,
}

/// How deep folders are searched.
const MAX_FOLDER_DEPTH: usize = 32;
/// How many files and folders are looked at.
const MAX_ENTRIES: usize = 10_000_000;
/// The prefix of a file that is being written.
const UNFINISHED: &str = ".asof-";

impl LocalStore {
    pub fn at(root: &Path) -> Self {
        LocalStore {
            root: root.to_owned(),
        }
    }

    pub fn address(&self) -> String {
        self.root.display().to_string()
    }

    pub fn path_of(&self, path: &str) -> PathBuf {
        let mut whole = self.root.clone();
        whole.extend(path.split('/').filter(|part| !part.is_empty()));
        whole
    }

    pub fn recordings(&self) -> Result<Listing, SourceError> {
        let mut walk = Walk {
            root: fs::canonicalize(&self.root).map_err(|cause| no_folder(&self.root, cause))?,
            listing: Listing::default(),
            entries: 0,
            linked: HashSet::new(),
        };
        let entries = fs::read_dir(&self.root).map_err(|cause| no_folder(&self.root, cause))?;
        walk.entries(entries, "", 0);
        let mut listing = walk.listing;
        listing.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    pub fn files(&self) -> Result<Vec<StoredFile>, SourceError> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(no_folder(&self.root, cause)),
        };
        let file = |entry: fs::DirEntry| {
            let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some(stored(entry.file_name().to_str()?.to_owned(), &found))
        };
        Ok(entries.flatten().filter_map(file).collect())
    }

    pub fn open(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<Box<dyn Source>, SourceError> {
        open_with(self.path_of(&file.path), options)
    }

    pub fn open_noting(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<(Box<dyn Source>, Vec<FilePiece>), SourceError> {
        let (path, noted) = (self.path_of(&file.path), Arc::new(Noted::new()));
        let known = KnownFile::noting(&path, options.map, &noted);
        let known = known.map_err(|cause| failed(&path, cause))?;
        match open_known_file(known, options)? {
            Some(recording) => Ok((recording, noted.take())),
            None => Ok((self.open(file, options)?, Vec::new())),
        }
    }

    pub fn open_known(
        &self,
        file: &StoredFile,
        pieces: Vec<FilePiece>,
        options: &OpenOptions,
    ) -> Result<Box<dyn Source>, SourceError> {
        if !pieces.is_empty() {
            let path = self.path_of(&file.path);
            let known = KnownFile::new(&path, file.size, pieces, options.map);
            if let Some(recording) = open_known_file(known, options)? {
                return Ok(recording);
            }
        }
        self.open(file, options)
    }

    pub fn is_version(&self, file: &StoredFile) -> Result<bool, SourceError> {
        let path = self.path_of(&file.path);
        let found = fs::metadata(&path).map_err(|cause| SourceError::Io {
            place: path.display().to_string(),
            offset: 0,
            cause,
        })?;
        let found = stored(file.path.clone(), &found);
        Ok(found.size == file.size && found.modified == file.modified)
    }

    pub fn storage(&self, path: &str) -> Result<Box<dyn Storage>, SourceError> {
        let path = self.path_of(path);
        let mapped = MappedFile::open(&path).map_err(|cause| SourceError::Io {
            place: path.display().to_string(),
            offset: 0,
            cause,
        })?;
        Ok(Box::new(mapped))
    }

    pub fn read(&self, path: &str) -> Result<Option<Bytes>, SourceError> {
        let path = self.path_of(path);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(SourceError::Io {
                place: path.display().to_string(),
                offset: 0,
                cause,
            }),
        }
    }

    pub fn create(&self, path: &str, bytes: &[u8]) -> Result<(), SourceError> {
        let path = self.path_of(path);
        write_whole(&path, bytes).map_err(|error| unwritable(&path, &error))
    }

    pub fn replace(
        &self,
        path: &str,
        bytes: &[u8],
        seen: Option<&Bytes>,
    ) -> Result<Replaced, SourceError> {
        let path = self.path_of(path);
        replace(&path, bytes, seen).map_err(|error| unwritable(&path, &error))
    }

    pub fn remove(&self, path: &str) -> Result<(), SourceError> {
        let path = self.path_of(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(SourceError::Unreadable {
                place: path.display().to_string(),
                reason: format!("it cannot be removed: {error}"),
            }),
            _ => Ok(()),
        }
    }
}

/// A walk through folders.
struct Walk {
    root: PathBuf,
    listing: Listing,
    /// How many files and folders were looked at.
    entries: usize,
    /// The folders since the first that a link leads to, by their real paths: each is walked once.
    linked: HashSet<PathBuf>,
}

impl Walk {
    fn entries(&mut self, entries: fs::ReadDir, prefix: &str, depth: usize) {
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.problem(prefix, &error.to_string());
                    continue;
                }
            };
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                // Names of recordings are UTF-8 everywhere else.
                if is_named_recording(&entry.path()) {
                    let name = name.to_string_lossy();
                    self.problem(&format!("{prefix}{name}"), "its name is not UTF-8 text");
                }
                continue;
            };
            if is_hidden_name(name) {
                continue;
            }
            self.entries += 1;
            match self.entries.cmp(&MAX_ENTRIES) {
                Ordering::Less => self.entry(&entry, &format!("{prefix}{name}"), depth),
                Ordering::Equal => {
                    self.problem(
                        prefix,
                        &format!("there are more than {MAX_ENTRIES} entries"),
                    );
                }
                Ordering::Greater => return,
            }
        }
    }

    fn entry(&mut self, entry: &fs::DirEntry, path: &str, depth: usize) {
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        // A link to a file in this folder, such as to the latest recording, would list it twice.
        if is_link {
            match fs::canonicalize(entry.path()) {
                Ok(real) if real.starts_with(&self.root) => return,
                Ok(_) => {}
                // A broken link.
                Err(_) => return,
            }
        }
        let Ok(found) = fs::metadata(entry.path()) else {
            // It was removed meanwhile.
            return;
        };
        if found.is_dir() {
            let is_outside = is_link || !self.linked.is_empty();
            if is_outside
                && let Ok(real) = fs::canonicalize(entry.path())
                && !self.linked.insert(real)
            {
                return;
            }
            if depth >= MAX_FOLDER_DEPTH {
                self.problem(path, "it is nested too deeply");
                return;
            }
            match fs::read_dir(entry.path()) {
                Ok(entries) => self.entries(entries, &format!("{path}/"), depth + 1),
                Err(error) => self.problem(path, &error.to_string()),
            }
        } else if found.is_file() && is_named_recording(&entry.path()) {
            self.listing.files.push(stored(path.to_owned(), &found));
        }
    }

    fn problem(&mut self, path: &str, reason: &str) {
        let place = self.root.join(path);
        let message = format!("{} was not searched: {reason}", place.display());
        self.listing.problems.push(message);
    }
}

fn stored(path: String, found: &fs::Metadata) -> StoredFile {
    let modified = found.modified().ok().map(|time| {
        let nanos = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos)
            }
        };
        Stamp::from_nanos(nanos)
    });
    StoredFile {
        path,
        size: found.len(),
        modified,
        e_tag: None,
    }
}

/// Under a lock that the system releases when its owner dies, so that a crash needs no cleanup.
fn replace(path: &Path, bytes: &[u8], seen: Option<&Bytes>) -> io::Result<Replaced> {
    let folder = made_folder_of(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(format!("{name}.lock")))?;
    lock.lock()?;
    let found = match fs::read(path) {
        Ok(found) => Some(Bytes::from(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if found.as_ref() != seen {
        return Ok(Replaced::Conflict);
    }
    write_whole(path, bytes)?;
    Ok(Replaced::Done)
}

/// Written to a temporary name, synced, then renamed: after a crash it is complete, or as it was.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = made_folder_of(path)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED).suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // The system applies the user's umask.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(&folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    #[cfg(unix)]
    File::open(&folder)?.sync_all()?;
    Ok(())
}

fn made_folder_of(path: &Path) -> io::Result<PathBuf> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn no_folder(path: &Path, cause: io::Error) -> SourceError {
    let reason = match cause.kind() {
        ErrorKind::NotFound => "there is no such folder; check the path".to_owned(),
        ErrorKind::NotADirectory => {
            "this is a file; name the folder with the recordings".to_owned()
        }
        _ => {
            return SourceError::Io {
                place: path.display().to_string(),
                offset: 0,
                cause,
            };
        }
    };
    SourceError::Unreadable {
        place: path.display().to_string(),
        reason,
    }
}

fn unwritable(path: &Path, error: &io::Error) -> SourceError {
    SourceError::Unreadable {
        place: path.display().to_string(),
        reason: format!("it cannot be written: {error}"),
    }
}
