//! The target of an address: a file, or a folder of a bucket.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use asof_core::SourceError;
use futures_util::StreamExt as _;
use object_store::path::Path as ObjectPath;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, Result,
};
use url::Url;

use super::faults::{explained, is_denied, is_refusal, too_slow};
use super::store::{Provider, store_of};
use super::{RETRY_TIME, finish, start};
use crate::without_secrets;

/// An address, and its client.
pub(crate) struct RemotePlace {
    /// The address without secrets.
    pub address: String,
    url: Url,
    /// The provider of the bucket; `None` for a web server.
    provider: Option<Provider>,
    pub store: Arc<dyn ObjectStore>,
    pub path: ObjectPath,
}

impl RemotePlace {
    pub fn of(address: &str) -> std::result::Result<Self, SourceError> {
        let unreadable = |reason: String| SourceError::Unreadable {
            place: without_secrets(address),
            reason: without_secrets(&reason),
        };
        let url = Url::parse(address).map_err(|error| {
            unreadable(format!(
                "this is not an address ({error}); check its spelling"
            ))
        })?;
        let provider = Provider::of(url.scheme());
        let known: Vec<(String, String)> = std::env::vars().collect();
        let unsigned = provider.and_then(|provider| provider.unsigned(&known));
        let options = known
            .into_iter()
            .chain((url.scheme() == "http").then(|| ("allow_http".to_owned(), "true".to_owned())))
            .chain(unsigned.map(|name| (name.to_owned(), "true".to_owned())))
            .map(|(name, value)| (name.to_ascii_lowercase(), value));
        let (store, path) = store_of(&url, options).map_err(|error| {
            let hint = provider.map_or("check its spelling", Provider::hint);
            unreadable(format!("cannot reach it: {error}; {hint}"))
        })?;
        Ok(RemotePlace {
            address: without_secrets(address),
            url,
            provider,
            store,
            path,
        })
    }

    /// Whether it is in a bucket: buckets list their contents, web servers do not.
    pub fn is_in_bucket(&self) -> bool {
        self.provider.is_some()
    }

    /// Whether it can only be a folder.
    pub fn is_folder(&self) -> bool {
        let ends_so = self.url.path().is_empty() || self.url.path().ends_with('/');
        // A server may generate a file from a query.
        ends_so && self.url.query().is_none()
    }

    /// The last part of its path.
    pub fn file_name(&self) -> &str {
        self.path.filename().unwrap_or_default()
    }

    /// Why it cannot be read, explained to the user who gave the address.
    pub fn unreadable(&self, error: &Error) -> SourceError {
        let mut reason = explained(error);
        if is_denied(error) {
            let hint = self.provider.map_or(
                "where it needs a login, use an address that is signed, or download the file",
                Provider::hint,
            );
            reason = format!("{reason}; {hint}");
        }
        SourceError::Unreadable {
            place: self.address.clone(),
            reason,
        }
    }

    /// The address of something in this folder, by its path from here.
    pub fn address_of(&self, inside: &str) -> String {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(inside.split('/'));
        }
        url.into()
    }

    /// Something in this folder, by its path from here, read by the same client.
    pub fn inside(&self, path: &str) -> RemotePlace {
        let inside = path.split('/').filter(|part| !part.is_empty());
        let address = self.address_of(path);
        RemotePlace {
            address: without_secrets(&address),
            url: Url::parse(&address).unwrap_or_else(|_| self.url.clone()),
            provider: self.provider,
            store: Arc::clone(&self.store),
            path: self.path.parts().chain(inside.map(Into::into)).collect(),
        }
    }

    /// The address of a file beside this one.
    pub fn address_beside(&self, name: &str) -> String {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop().push(name);
        }
        url.into()
    }

    /// The size and version of a file.
    pub fn look(&self) -> Result<ObjectMeta> {
        let (store, path) = (Arc::clone(&self.store), self.path.clone());
        wait(async move { in_time(2 * RETRY_TIME, look(&*store, &path)).await? })
    }

    /// The paths of everything in this folder and the folders in it, from here, in order.
    pub fn list(&self) -> Result<Vec<String>> {
        let (store, path) = (Arc::clone(&self.store), self.path.clone());
        let found: Vec<ObjectMeta> = wait(async move {
            let mut listing = store.list(Some(&path));
            let mut found = Vec::new();
            while let Some(next) = in_time(RETRY_TIME, listing.next()).await? {
                if found.len() >= LONGEST_LISTING {
                    return Err(failed(too_many_than(LONGEST_LISTING)));
                }
                found.push(next?);
            }
            Ok(found)
        })?;
        let from_here = |found: ObjectMeta| -> Option<String> {
            let parts: Vec<_> = found.location.prefix_match(&self.path)?.collect();
            let names: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            Some(names.join("/")).filter(|path| !path.is_empty())
        };
        let mut paths: Vec<String> = found.into_iter().filter_map(from_here).collect();
        paths.sort();
        Ok(paths)
    }
}

/// The size and version of a file. Some servers send a file and do not answer this request, such as those whose
/// addresses are signed for reading only; then its first byte is requested.
async fn look(store: &dyn ObjectStore, path: &ObjectPath) -> Result<ObjectMeta> {
    let refused = match store.head(path).await {
        Err(error) if is_refusal(&error) => error,
        other => return other,
    };
    let first_byte = GetOptions {
        range: Some(GetRange::Bounded(0..1)),
        ..GetOptions::default()
    };
    match store.get_opts(path, first_byte).await {
        Ok(found) => Ok(found.meta),
        Err(error @ Error::NotSupported { .. }) => Err(error),
        Err(_) => Err(refused),
    }
}

pub(crate) fn wait<T: Send + 'static>(
    request: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    finish(start(async move { Ok(request.await) })).map_err(failed)?
}

/// Bounds the time of an answer that comes byte by byte.
pub(crate) async fn in_time<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T> {
    let answered = tokio::time::timeout(limit, answer).await;
    answered.map_err(|_| failed(too_slow(limit)))
}

pub(crate) fn failed(error: io::Error) -> Error {
    Error::Generic {
        store: "network",
        source: Box::new(error),
    }
}

/// A folder with more files than this is not opened as one recording.
const LONGEST_LISTING: usize = 50_000;

pub(crate) fn too_many_than(most: usize) -> io::Error {
    io::Error::other(format!(
        "there are more than {most} files in this folder and those in it; name a folder further in, or a recording"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_folder_and_beside_a_file_has_an_address() {
        let place = |address| RemotePlace::of(address).expect("an address");
        let folder = place("s3://bucket/day one");
        assert_eq!(folder.path.as_ref(), "day one");
        assert_eq!(
            folder.address_of("run 1/a.mcap"),
            "s3://bucket/day%20one/run%201/a.mcap"
        );
        assert_eq!(
            place("s3://bucket").address_of("a.mcap"),
            "s3://bucket/a.mcap"
        );
        assert_eq!(
            place("https://example.com/bag/").address_of("metadata.yaml"),
            "https://example.com/bag/metadata.yaml"
        );
        assert_eq!(
            place("https://example.com/bag/metadata.yaml?token=x").address_beside("a.db3"),
            "https://example.com/bag/a.db3?token=x"
        );
    }

    #[test]
    fn a_folder_is_known_by_how_its_address_ends() {
        let is_folder = |address| RemotePlace::of(address).expect("an address").is_folder();
        assert!(is_folder("s3://bucket"));
        assert!(is_folder("s3://bucket/day/"));
        assert!(!is_folder("s3://bucket/day"));
        assert!(is_folder("https://example.com/bag/"));
        assert!(!is_folder("https://example.com/download/?id=5"));
    }
}
