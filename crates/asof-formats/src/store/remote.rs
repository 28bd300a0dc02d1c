//! A folder of a bucket, or of a web server, as a store.

use std::sync::Arc;

use asof_core::{Source, SourceError, Stamp};
use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::path::Path as ObjectPath;
use object_store::{
    Error, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion,
};

use super::{FilePiece, Listing, Replaced, StoredFile};
use crate::folder::{is_hidden_name, is_named_recording};
use crate::open::open_remote_file;
use crate::pieces::Noted;
use crate::remote::{RETRY_TIME, RemoteFile, RemotePlace, failed, in_time, too_many_than, wait};
use crate::{OpenOptions, Storage};

/// A folder of a bucket or a web server.
pub(crate) struct RemoteStore {
    place: RemotePlace,
}

/// The server's name of a version of a file.
#[derive(Debug, Clone)]
pub(crate) struct RemoteVersion(UpdateVersion);

/// The most recordings of one folder that are listed.
const LONGEST_LISTING: usize = 5_000_000;
/// A larger file is sent in parts, so that each fits the timeout on a slow network.
const PIECE: usize = 8 << 20;

impl RemoteStore {
    pub fn at(address: &str) -> Result<Self, SourceError> {
        Ok(RemoteStore {
            place: RemotePlace::of(address)?,
        })
    }

    pub fn address(&self) -> String {
        self.place.address.clone()
    }

    pub fn full_address_of(&self, path: &str) -> String {
        self.place.address_of(path)
    }

    pub fn recordings(&self) -> Result<Listing, SourceError> {
        let is_wanted = |path: &str| {
            is_named_recording(std::path::Path::new(path)) && !path.split('/').any(is_hidden_name)
        };
        let found = self.place.list_where(LONGEST_LISTING, is_wanted);
        let found = found.map_err(|error| self.place.unreadable(&error))?;
        let mut files: Vec<StoredFile> = found
            .into_iter()
            .map(|(path, found)| stored(path, found))
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Listing {
            files,
            problems: Vec::new(),
        })
    }

    pub fn files(&self) -> Result<Vec<StoredFile>, SourceError> {
        let is_wanted = |path: &str| !path.contains('/');
        let found = self.place.list_where(LONGEST_LISTING, is_wanted);
        let found = found.map_err(|error| self.place.unreadable(&error))?;
        Ok(found
            .into_iter()
            .map(|(path, found)| stored(path, found))
            .collect())
    }

    pub fn open(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<Box<dyn Source>, SourceError> {
        open_remote_file(self.file(file), options)
    }

    pub fn open_noting(
        &self,
        file: &StoredFile,
        options: &OpenOptions,
    ) -> Result<(Box<dyn Source>, Vec<FilePiece>), SourceError> {
        let noted = Arc::new(Noted::new());
        let recording = open_remote_file(self.file(file).noting(&noted), options)?;
        Ok((recording, noted.take()))
    }

    pub fn open_known(
        &self,
        file: &StoredFile,
        pieces: Vec<FilePiece>,
        options: &OpenOptions,
    ) -> Result<Box<dyn Source>, SourceError> {
        open_remote_file(self.file(file).with_pieces(pieces), options)
    }

    pub fn storage(&self, path: &str, size: u64) -> Box<dyn Storage> {
        Box::new(self.file(&StoredFile {
            path: path.to_owned(),
            size,
            modified: None,
            e_tag: None,
        }))
    }

    pub fn read(&self, path: &str) -> Result<Option<(Bytes, RemoteVersion)>, SourceError> {
        let (store, object) = (Arc::clone(&self.place.store), self.object(path));
        let found = wait(async move {
            let read = async {
                let found = store.get(&object).await?;
                let version = UpdateVersion {
                    e_tag: found.meta.e_tag.clone(),
                    version: found.meta.version.clone(),
                };
                Ok((found.bytes().await?, RemoteVersion(version)))
            };
            in_time(2 * RETRY_TIME, read).await?
        });
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.inside(path).unreadable(&error)),
        }
    }

    pub fn create(&self, path: &str, bytes: Bytes) -> Result<(), SourceError> {
        let (store, object) = (Arc::clone(&self.place.store), self.object(path));
        let written = wait(async move {
            if bytes.len() <= PIECE {
                store.put(&object, PutPayload::from_bytes(bytes)).await?;
                return Ok(());
            }
            let mut upload = store.put_multipart(&object).await?;
            for start in (0..bytes.len()).step_by(PIECE) {
                let piece = bytes.slice(start..bytes.len().min(start + PIECE));
                upload.put_part(PutPayload::from_bytes(piece)).await?;
            }
            upload.complete().await?;
            Ok(())
        });
        written.map_err(|error| self.unwritable(path, &error))
    }

    pub fn replace(
        &self,
        path: &str,
        bytes: &[u8],
        seen: Option<&RemoteVersion>,
    ) -> Result<Replaced, SourceError> {
        let (store, object) = (Arc::clone(&self.place.store), self.object(path));
        let payload = PutPayload::from_bytes(Bytes::copy_from_slice(bytes));
        let mode = match seen {
            Some(RemoteVersion(version)) => PutMode::Update(version.clone()),
            None => PutMode::Create,
        };
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let put = wait(async move {
            in_time(2 * RETRY_TIME, store.put_opts(&object, payload, options)).await?
        });
        match put {
            Ok(_) => Ok(Replaced::Done),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Ok(Replaced::Conflict),
            Err(error) => Err(self.unwritable(path, &error)),
        }
    }

    pub fn remove(&self, path: &str) -> Result<(), SourceError> {
        let (store, object) = (Arc::clone(&self.place.store), self.object(path));
        let removed = wait(async move { in_time(2 * RETRY_TIME, store.delete(&object)).await? });
        match removed {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.inside(path).unreadable(&error)),
        }
    }

    /// A file of known size and version: no request is made.
    fn file(&self, file: &StoredFile) -> RemoteFile {
        let modified = file.modified.map_or(0, |at| at.nanos() / 1_000_000_000);
        RemoteFile::known(
            &self.inside(&file.path),
            file.size,
            file.e_tag.clone(),
            modified,
        )
    }

    fn object(&self, path: &str) -> ObjectPath {
        self.place.inside(path).path
    }

    fn inside(&self, path: &str) -> RemotePlace {
        self.place.inside(path)
    }

    fn unwritable(&self, path: &str, error: &Error) -> SourceError {
        let why = match error {
            Error::NotImplemented { .. } | Error::NotSupported { .. } => {
                "nothing can be written there safely".to_owned()
            }
            other => match self.inside(path).unreadable(other) {
                SourceError::Unreadable { reason, .. } => reason,
                other => other.to_string(),
            },
        };
        SourceError::Unreadable {
            place: self.inside(path).address,
            reason: format!("it cannot be written: {why}"),
        }
    }
}

impl std::fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteStore({})", self.place.address)
    }
}

fn stored(path: String, found: ObjectMeta) -> StoredFile {
    StoredFile {
        path,
        size: found.size,
        modified: found
            .last_modified
            .timestamp_nanos_opt()
            .filter(|&nanos| nanos != 0)
            .map(Stamp::from_nanos),
        e_tag: found.e_tag,
    }
}

impl RemotePlace {
    /// The wanted files in this folder and its subfolders, by their paths from here.
    fn list_where(
        &self,
        most: usize,
        is_wanted: impl Fn(&str) -> bool + Send + 'static,
    ) -> object_store::Result<Vec<(String, ObjectMeta)>> {
        let (store, root) = (Arc::clone(&self.store), self.path.clone());
        wait(async move {
            let mut listing = store.list(Some(&root));
            let mut found = Vec::new();
            while let Some(next) = in_time(RETRY_TIME, listing.next()).await? {
                let next = next?;
                let Some(path) = path_from(&root, &next.location) else {
                    continue;
                };
                if !is_wanted(&path) {
                    continue;
                }
                if found.len() >= most {
                    return Err(failed(too_many_than(most)));
                }
                found.push((path, next));
            }
            Ok(found)
        })
    }
}

fn path_from(root: &ObjectPath, location: &ObjectPath) -> Option<String> {
    let parts: Vec<_> = location.prefix_match(root)?.collect();
    let names: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    Some(names.join("/")).filter(|path| !path.is_empty())
}
