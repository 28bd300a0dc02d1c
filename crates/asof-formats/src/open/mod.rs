//! Opening a place: a file, a folder, or several; on this machine, on a web server or in a bucket.

mod file;
mod folder;
#[cfg(feature = "remote")]
mod remote;

use std::path::Path;

use asof_core::{Source, SourceError};

use crate::{Merged, OpenOptions, without_secrets};
pub(crate) use file::open_known_file;
#[cfg(feature = "remote")]
pub(crate) use remote::open_remote_file;

/// URL schemes of web servers and buckets, which need the feature `remote`.
pub const REMOTE_SCHEMES: [&str; 9] = [
    "http", "https", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss",
];

/// Opens a recording. The first bytes decide its format, not its name.
///
/// A folder is a ROS 2 bag if it has a `metadata.yaml`, and otherwise all recordings in it as one; the path of a
/// `metadata.yaml` opens the bag that it describes.
///
/// # Errors
/// When it cannot be read, or asof does not support it; the error says what it is.
pub fn open(place: impl AsRef<Path>) -> Result<Box<dyn Source>, SourceError> {
    open_with(place, &OpenOptions::default())
}

/// [`open`], with options.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    place: impl AsRef<Path>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, SourceError> {
    let path = place.as_ref();
    if let Some(address) = remote_address(path) {
        #[cfg(feature = "remote")]
        return remote::open(address, options);
        #[cfg(not(feature = "remote"))]
        return Err(built_without_remote(address));
    }
    if path.is_dir() {
        return folder::open_folder(path, options);
    }
    if let Some(opened) = folder::open_described(path, options) {
        return opened;
    }
    file::open_file(path, path.display().to_string(), options)
}

/// Opens several places as one recording, merged by time.
///
/// # Errors
/// When one of them cannot be opened, or none is given.
pub fn open_all<P: AsRef<Path>>(
    places: &[P],
    options: &OpenOptions,
) -> Result<Box<dyn Source>, SourceError> {
    match places {
        [] => Err(SourceError::Unreadable {
            place: "(nothing)".into(),
            reason: "name at least one recording".into(),
        }),
        [place] => open_with(place, options),
        places => {
            let open = |place: &P| {
                let name = without_secrets(&place.as_ref().display().to_string());
                Ok((name, open_with(place, options)?))
            };
            let parts = places
                .iter()
                .map(open)
                .collect::<Result<_, SourceError>>()?;
            Ok(Box::new(Merged::new(parts)))
        }
    }
}

/// The error of a build that has no HTTP client.
#[cfg(not(feature = "remote"))]
pub(crate) fn built_without_remote(address: &str) -> SourceError {
    SourceError::Unsupported {
        place: without_secrets(address),
        reason: "this build opens files on this machine only; the ready-made packages of asof open addresses, and so does a \
                 build with `--features remote`; or download the file"
            .to_owned(),
        feature: "remote",
    }
}

/// A place as text, where it is an address of a file on a network.
fn remote_address(place: &Path) -> Option<&str> {
    let text = place.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    REMOTE_SCHEMES.contains(&scheme).then_some(text)
}
