//! The version of what is at an address.

use std::fmt::Write as _;

use asof_core::SourceError;
use object_store::{Error, ObjectMeta};

use super::place::RemotePlace;

/// A text that changes with the contents of an address: for caches that outlive a process.
///
/// It consists of the server's etag, or else the time of the last change, and the size; for a folder of a bucket, of
/// those of each file in it. It takes one request for each file, and no contents are read.
///
/// # Errors
/// When the address cannot be reached, or the server does not identify versions.
pub fn version_at(address: &str) -> Result<String, SourceError> {
    let place = RemotePlace::of(address)?;
    if !place.is_folder() {
        match place.look() {
            Ok(found) => return version(&place, &found),
            // It may be the name of a folder.
            Err(Error::NotFound { .. }) if place.is_in_bucket() => {}
            Err(error) => return Err(place.unreadable(&error)),
        }
    }
    let paths = place.list().map_err(|error| place.unreadable(&error))?;
    let mut all = String::new();
    for path in paths {
        let inside = RemotePlace::of(&place.address_of(&path))?;
        let found = inside.look().map_err(|error| inside.unreadable(&error))?;
        // Writing to a text cannot fail.
        let _ = writeln!(all, "{path} {}", version(&inside, &found)?);
    }
    Ok(all)
}

fn version(place: &RemotePlace, found: &ObjectMeta) -> Result<String, SourceError> {
    let size = found.size;
    let modified = found.last_modified.timestamp();
    match &found.e_tag {
        Some(tag) => Ok(format!("{size} etag {tag}")),
        None if modified != 0 => Ok(format!("{size} modified {modified}")),
        None => Err(SourceError::Unreadable {
            place: place.address.clone(),
            reason: "its server sends neither an etag nor a modification time, so \
                     nothing of it can be kept for later"
                .to_owned(),
        }),
    }
}
