//! A folder on disk or in a bucket, whose files are listed, opened and written.

mod local;
#[cfg(feature = "remote")]
mod remote;

use std::path::Path;

use asof_core::{Source, SourceError, Stamp};
use bytes::Bytes;

use crate::folder::{METADATA, listed_in};
use crate::{OpenOptions, REMOTE_SCHEMES, Storage, without_secrets};
use local::LocalStore;
#[cfg(feature = "remote")]
use remote::{RemoteStore, RemoteVersion};

/// A folder on disk, in a bucket, or on a web server, with many recordings and the files beside them.
///
/// Recordings are listed by name with their versions, so that changes are found without opening anything. Small
/// files are read and written in one piece; one that several processes write is [replaced](Store::replace) only if it
/// is still the version that the writer has seen.
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

/// A file of a [`Store`], from a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its path from the store's root, with `/` between its parts.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was last modified, if known.
    pub modified: Option<Stamp>,
    /// The server's ETag of this version; `None` on disk.
    pub e_tag: Option<String>,
}

/// A range of bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePiece {
    /// Byte offset in the file.
    pub offset: u64,
    /// The bytes from that offset on.
    pub bytes: Bytes,
}

/// The files of a [`Store`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The files, sorted by path.
    pub files: Vec<StoredFile>,
    /// Folders that could not be listed, a sentence each: their files are not in `files`.
    pub problems: Vec<String>,
}

/// A file that was read completely.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its contents.
    pub bytes: Bytes,
    /// The version that was read.
    pub version: StoredVersion,
}

/// A version of a file that a caller has seen: see [`Store::replace`].
#[derive(Debug, Clone)]
pub struct StoredVersion(Version);

#[derive(Debug, Clone)]
enum Version {
    /// On disk, the contents themselves.
    Contents(Bytes),
    #[cfg(feature = "remote")]
    Remote(RemoteVersion),
}

/// The result of [`Store::replace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The file was replaced.
    Done,
    /// Another writer has changed the file since it was seen; nothing was written.
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
    /// The store at a folder or an address. No request is made yet.
    ///
    /// # Errors
    /// When an address is not valid, or this build does not support addresses.
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

    /// Its address, without secrets.
    pub fn address(&self) -> String {
        forward!(self, store => store.address())
    }

    /// The address of a file in it, as every command accepts it; it may contain secrets.
    pub fn address_of(&self, path: &str) -> String {
        match &self.0 {
            Inner::Local(store) => store.path_of(path).display().to_string(),
            #[cfg(feature = "remote")]
            Inner::Remote(store) => store.full_address_of(path),
        }
    }

    /// The same, without secrets.
    pub fn shown_address_of(&self, path: &str) -> String {
        without_secrets(&self.address_of(path))
    }

    /// Whether requests go over a network.
    pub fn is_remote(&self) -> bool {
        !matches!(self.0, Inner::Local(_))
    }

    /// Whether it is one recording itself: the folder of a ROS 2 bag, with its `metadata.yaml`.
    ///
    /// # Errors
    /// When that exists and cannot be read.
    pub fn is_bag(&self) -> Result<bool, SourceError> {
        let description = self.read(METADATA)?;
        let text = description
            .as_ref()
            .map(|found| std::str::from_utf8(&found.bytes));
        Ok(text.is_some_and(|text| text.is_ok_and(|text| listed_in(text).is_some())))
    }

    /// Every file with the name of a recording (`.mcap`, `.bag`, `.db3`, `.ulg`, and these with `.zst`), in all folders
    /// but hidden ones. None is opened.
    ///
    /// # Errors
    /// When there is no such folder, or a web server does not list it.
    pub fn recordings(&self) -> Result<Listing, SourceError> {
        forward!(self, store => store.recordings())
    }

    /// The files directly in it, whatever their names. Empty if there is no such folder.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn files(&self) -> Result<Vec<StoredFile>, SourceError> {
        forward!(self, store => store.files())
    }

    /// Opens a recording from a listing. Only the ranges that are needed are fetched; its version is not checked first.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<Box<dyn Source>, SourceError> {
        forward!(self, store => store.open(file, options))
    }

    /// [`Store::open`], also returning the pieces of the file that were read: with them,
    /// [`open_known`](Store::open_known) makes no request, and does not touch a disk. Empty if opening read more than a megabyte, and
    /// on disk for formats without a summary.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open_noting(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<(Box<dyn Source>, Vec<FilePiece>), SourceError> {
        forward!(self, store => store.open_noting(file, options))
    }

    /// [`Store::open`] with pieces of this version of the file that were read before: they are not fetched again.
    /// Whether the file is still this version shows when more of it is read.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open_known(
        &self,
        file: &StoredFile,
        pieces: Vec<FilePiece>,
        options: &OpenOptions,
    ) -> Result<Box<dyn Source>, SourceError> {
        forward!(self, store => store.open_known(file, pieces, options))
    }

    /// Whether a listed file is still the same version, as far as that is known without a request: on a server, every
    /// request for an older version fails by itself.
    ///
    /// # Errors
    /// When it no longer exists.
    pub fn is_version(&self, file: &StoredFile) -> Result<bool, SourceError> {
        match &self.0 {
            Inner::Local(store) => store.is_version(file),
            #[cfg(feature = "remote")]
            Inner::Remote(_) => Ok(true),
        }
    }

    /// The bytes of an immutable file of known size.
    ///
    /// # Errors
    /// When it does not exist.
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

    /// A small file, read completely; `None` if it does not exist.
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

    /// Writes a new file. It appears complete or not at all, and is on the disk when this returns.
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

    /// Replaces a small file if it is still the version that the caller has seen: `None` for one that did not exist. If
    /// several writers replace the same version, in this process or another, one succeeds and all others conflict.
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
            // A version from another store does not match.
            #[cfg(feature = "remote")]
            _ => Ok(Replaced::Conflict),
        }
    }

    /// Removes a file; succeeds if it does not exist.
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
    Err(crate::open::built_without_remote(address))
}
