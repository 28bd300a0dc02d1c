//! A folder on disk or in a bucket, whose files are listed, opened, and written whole.

mod local;
#[cfg(feature = "remote")]
mod remote;

use std::path::Path;

use asof_core::{SourceError, Stamp};
use bytes::Bytes;

use crate::{OpenOptions, REMOTE_SCHEMES, Recording, Storage, without_secrets};
use local::LocalStore;
#[cfg(feature = "remote")]
use remote::{RemoteStore, RemoteVersion};

/// A folder on disk, in a bucket, or on a web server: what many recordings lie in, and what is kept beside them.
///
/// Recordings are listed by name with their versions, so that nothing has to be opened to see what has changed. Small
/// files are read and written whole; one that several processes write is [replaced](Store::replace) only if it is
/// still what the writer has seen.
///
/// ```
/// use asof_formats::{Replaced, Store};
///
/// let folder = tempfile::tempdir()?;
/// let store = Store::at(folder.path())?;
/// let first = store.replace("head.json", b"1", None)?;
/// assert!(matches!(first, Replaced::Done));
/// let seen = store.read("head.json")?.expect("it is there");
/// assert!(matches!(store.replace("head.json", b"2", Some(&seen.version))?, Replaced::Done));
/// assert!(matches!(store.replace("head.json", b"3", Some(&seen.version))?, Replaced::Conflict));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store(Inner);

#[derive(Debug)]
enum Inner {
    Local(LocalStore),
    #[cfg(feature = "remote")]
    Remote(RemoteStore),
}

/// A file of a [`Store`], as a listing has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its path from the store's root, with `/` between its parts.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was last changed, where that is known.
    pub modified: Option<Stamp>,
    /// What the server calls this version of it; `None` on disk.
    pub e_tag: Option<String>,
}

/// Bytes of a file, and where in it they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePiece {
    /// Where in the file.
    pub offset: u64,
    /// The bytes from there on.
    pub bytes: Bytes,
}

/// What a [`Store`] holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The files, by path.
    pub files: Vec<StoredFile>,
    /// Folders that could not be looked into, a sentence each: what is in them is not in `files`.
    pub problems: Vec<String>,
}

/// A file that was read whole.
#[derive(Debug, Clone)]
pub struct Stored {
    /// What is in it.
    pub bytes: Bytes,
    /// Which version of it this is.
    pub version: StoredVersion,
}

/// Which version of a file somebody has seen: see [`Store::replace`].
#[derive(Debug, Clone)]
pub struct StoredVersion(Version);

#[derive(Debug, Clone)]
enum Version {
    /// On disk, the contents themselves.
    Contents(Bytes),
    #[cfg(feature = "remote")]
    Remote(RemoteVersion),
}

/// How [`Store::replace`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The file is what was given.
    Done,
    /// Somebody else has changed the file since it was seen; nothing was written.
    Conflict,
}

macro_rules! forward {
    ($self:ident, $store:ident => $call:expr) => {
        match &$self.0 {
            Inner::Local($store) => $call,
            #[cfg(feature = "remote")]
            Inner::Remote($store) => $call,
        }
    };
}

impl Store {
    /// The store at a folder or an address. Nothing is asked yet.
    ///
    /// # Errors
    /// When an address is none, or this build reads no addresses.
    pub fn at(place: impl AsRef<Path>) -> Result<Self, SourceError> {
        let place = place.as_ref();
        let text = place.to_str().unwrap_or_default();
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some(scheme) if REMOTE_SCHEMES.contains(&scheme) => remote(text),
            _ => Ok(Store(Inner::Local(LocalStore::at(place)))),
        }
    }

    /// The store in a folder of this one.
    ///
    /// # Errors
    /// As [`Store::at`].
    pub fn inside(&self, folder: &str) -> Result<Self, SourceError> {
        match &self.0 {
            Inner::Local(store) => Ok(Store(Inner::Local(LocalStore::at(&store.path_of(folder))))),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => remote(&store.full_address_of(folder)),
        }
    }

    /// Where it is, as it may be shown.
    pub fn address(&self) -> String {
        forward!(self, store => store.address())
    }

    /// Where a file of it is, in words that every verb opens; what it needs to be opened may be in it.
    pub fn address_of(&self, path: &str) -> String {
        match &self.0 {
            Inner::Local(store) => store.path_of(path).display().to_string(),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => store.full_address_of(path),
        }
    }

    /// The same, as it may be shown and kept.
    pub fn shown_address_of(&self, path: &str) -> String {
        without_secrets(&self.address_of(path))
    }

    /// Whether requests go over a network.
    pub fn is_remote(&self) -> bool {
        !matches!(self.0, Inner::Local(_))
    }

    /// Every file that is named like a recording (`.mcap`, `.bag`, `.db3`, `.ulg`, and these with `.zst`), in all folders
    /// but hidden ones. None is opened.
    ///
    /// # Errors
    /// When there is no such folder, or a web server does not say what it holds.
    pub fn recordings(&self) -> Result<Listing, SourceError> {
        forward!(self, store => store.recordings())
    }

    /// The files that lie in it directly, whatever their names. None where there is no such folder.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn files(&self) -> Result<Vec<StoredFile>, SourceError> {
        forward!(self, store => store.files())
    }

    /// Opens a recording that was listed. Where only a part of it is needed, only that is fetched; its version is not
    /// asked for again.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<Box<dyn Recording>, SourceError> {
        forward!(self, store => store.open(file, options))
    }

    /// [`Store::open`], together with the pieces of the file that this took: with them,
    /// [`open_known`](Store::open_known) asks for nothing. There are none on disk, where opening costs little, and none
    /// where opening took more than a megabyte.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open_noting(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<(Box<dyn Recording>, Vec<FilePiece>), SourceError> {
        match &self.0 {
            Inner::Local(store) => Ok((store.open(file, options)?, Vec::new())),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => store.open_noting(file, options),
        }
    }

    /// [`Store::open`] with pieces of the file that were read before, of this very version: they are not asked for again.
    /// That the file is still this version shows when more of it is read.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    #[cfg_attr(
        not(feature = "remote"),
        allow(unused_variables, reason = "a disk is asked again")
    )]
    pub fn open_known(
        &self,
        file: &StoredFile,
        pieces: Vec<FilePiece>,
        options: &OpenOptions,
    ) -> Result<Box<dyn Recording>, SourceError> {
        match &self.0 {
            Inner::Local(store) => store.open(file, options),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => store.open_known(file, pieces, options),
        }
    }

    /// Whether a file that was listed is still what it was, as far as that can be told without asking a server: there,
    /// every request for an older version fails by itself.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn is_version(&self, file: &StoredFile) -> Result<bool, SourceError> {
        match &self.0 {
            Inner::Local(store) => store.is_version(file),
            #[cfg(feature = "remote")]
            Inner::Remote(_) => Ok(true),
        }
    }

    /// The bytes of a file that nobody changes any more, whose size is known.
    ///
    /// # Errors
    /// When it is not there.
    #[cfg_attr(
        not(feature = "remote"),
        allow(unused_variables, reason = "a disk knows how large its files are")
    )]
    pub fn storage(&self, path: &str, size: u64) -> Result<Box<dyn Storage>, SourceError> {
        match &self.0 {
            Inner::Local(store) => store.storage(path),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => Ok(store.storage(path, size)),
        }
    }

    /// A small file, whole; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<Stored>, SourceError> {
        match &self.0 {
            Inner::Local(store) => Ok(store.read(path)?.map(|bytes| Stored {
                version: StoredVersion(Version::Contents(bytes.clone())),
                bytes,
            })),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => Ok(store.read(path)?.map(|(bytes, version)| Stored {
                version: StoredVersion(Version::Remote(version)),
                bytes,
            })),
        }
    }

    /// Writes a file that was not there before. It appears whole or not at all, and is on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(&self, path: &str, bytes: impl Into<Bytes>) -> Result<(), SourceError> {
        match &self.0 {
            Inner::Local(store) => store.create(path, &bytes.into()),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => store.create(path, bytes.into()),
        }
    }

    /// Replaces a small file if it is still what the caller has seen: `None` for one that was not there. Of several
    /// that replace the same version, in this process or any other, one is done and all others conflict.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn replace(
        &self,
        path: &str,
        bytes: &[u8],
        seen: Option<&StoredVersion>,
    ) -> Result<Replaced, SourceError> {
        match (&self.0, seen) {
            (Inner::Local(store), None) => store.replace(path, bytes, None),
            (Inner::Local(store), Some(StoredVersion(Version::Contents(seen)))) => {
                store.replace(path, bytes, Some(seen))
            }
            #[cfg(feature = "remote")]
            (Inner::Remote(store), None) => store.replace(path, bytes, None),
            #[cfg(feature = "remote")]
            (Inner::Remote(store), Some(StoredVersion(Version::Remote(seen)))) => {
                store.replace(path, bytes, Some(seen))
            }
            // A version of another store was never seen here.
            #[cfg(feature = "remote")]
            _ => Ok(Replaced::Conflict),
        }
    }

    /// Removes a file; one that is not there is removed already.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn remove(&self, path: &str) -> Result<(), SourceError> {
        forward!(self, store => store.remove(path))
    }
}

#[cfg(feature = "remote")]
fn remote(address: &str) -> Result<Store, SourceError> {
    Ok(Store(Inner::Remote(RemoteStore::at(address)?)))
}

#[cfg(not(feature = "remote"))]
fn remote(address: &str) -> Result<Store, SourceError> {
    Err(SourceError::Unreadable {
        place: without_secrets(address),
        reason: "this build reads no addresses; build it with the feature `remote`".to_owned(),
    })
}
