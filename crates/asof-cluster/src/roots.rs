//! The recordings that an executor may open.

use std::collections::VecDeque;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use asof_catalogue::{Catalogue, CatalogueError, FOLDER, SummaryOpener};
use asof_core::{Source, SourceError};
use asof_formats::{OpenOptions, REMOTE_SCHEMES, Store, StoredFile, without_secrets};
use asof_sql::{FleetVersion, RecordingAddress, RecordingOpener};

use crate::ClusterError;

/// How many recordings stay open for the slices that follow.
const MOST_OPEN: usize = 64;
/// How many catalogues.
const MOST_FLEETS: usize = 4;
/// How long: a recording in a bucket that was replaced meanwhile is reopened after that.
const KEEP_OPEN_TIME: Duration = Duration::from_secs(30);

/// The deepest folder that can be a recording.
const MAX_FOLDER_DEPTH: usize = 8;

/// The folders, buckets and servers from which an executor reads recordings. Nothing else is opened, whatever a plan names.
#[derive(Debug)]
pub struct Roots {
    places: Vec<Root>,
    options: OpenOptions,
    open: Mutex<VecDeque<OpenRecording>>,
    fleets: Mutex<VecDeque<KnownFleet>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Root {
    /// A folder, or one file, with all links followed.
    Folder(PathBuf),
    /// An address that ends in a slash.
    Address(String),
}

/// The catalogue of a fleet.
#[derive(Debug)]
struct KnownFleet {
    address: String,
    generation: u64,
    /// `None` where it does not help.
    opener: Option<Arc<SummaryOpener>>,
}

/// An open recording.
struct OpenRecording {
    address: String,
    /// On disk, its size and time.
    version: Option<(u64, SystemTime)>,
    /// In a fleet on a server.
    e_tag: Option<String>,
    since: Instant,
    recording: Arc<dyn Source>,
}

impl std::fmt::Debug for OpenRecording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenRecording({})", self.address)
    }
}

impl Roots {
    /// These folders and addresses, with everything below them.
    ///
    /// # Errors
    /// When there is none, a folder does not exist, or an address is of a kind that cannot be read.
    pub fn new<P: AsRef<Path>>(places: &[P]) -> Result<Self, ClusterError> {
        let roots: Vec<Root> = places
            .iter()
            .map(|place| Root::of(place.as_ref()))
            .collect::<Result<_, _>>()?;
        if roots.is_empty() {
            return Err(ClusterError::Root {
                root: String::new(),
                reason: "an executor opens only recordings under its roots, so it needs one"
                    .to_owned(),
            });
        }
        Ok(Roots {
            places: roots,
            options: OpenOptions {
                // Slices are read in parallel, each on its own thread.
                threads: 1,
                // It runs for long: a file that is truncated meanwhile is an error, not a signal.
                map: false,
                map_pages: false,
                ..OpenOptions::default()
            },
            open: Mutex::default(),
            fleets: Mutex::default(),
        })
    }

    /// The path or address of a recording, if it is under a root.
    fn permitted(&self, address: &str) -> Result<PathBuf, String> {
        if address.contains("://") {
            let is_plain = is_plain_address(address);
            let is_under = |root: &Root| match root {
                Root::Address(root) => {
                    address.starts_with(root) || address == root.trim_end_matches('/')
                }
                Root::Folder(_) => false,
            };
            return if is_plain && self.places.iter().any(is_under) {
                Ok(PathBuf::from(address))
            } else {
                Err(self.refusal())
            };
        }
        let path = Path::new(address);
        let has_parent = path.components().any(|part| part == Component::ParentDir);
        if !path.is_absolute() || has_parent {
            return Err(self.refusal());
        }
        let is_under = |path: &Path| {
            let mut roots = self.places.iter();
            roots.any(|root| matches!(root, Root::Folder(root) if path.starts_with(root)))
        };
        // Whether something exists outside of the roots is not revealed.
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(cause) if is_under(path) => return Err(cause.to_string()),
            Err(_) => return Err(self.refusal()),
        };
        if !is_under(&real) {
            return Err(self.refusal());
        }
        let found = fs::metadata(&real).map_err(|cause| cause.to_string())?;
        if !found.is_file() && !found.is_dir() {
            return Err("it is not an ordinary file".to_owned());
        }
        // A folder is a recording made of its contents, and so is the description of a bag.
        let described = real.file_name().is_some_and(|name| name == "metadata.yaml");
        let folder = if described {
            real.parent()
        } else {
            Some(&*real)
        };
        let folder = folder.filter(|folder| folder.is_dir());
        match folder.map(|folder| links_stay(folder, MAX_FOLDER_DEPTH, &is_under)) {
            Some(Err(cause)) => Err(cause.to_string()),
            Some(Ok(false)) => Err(self.refusal()),
            _ => Ok(real),
        }
    }

    /// Opens a version of a recording from what a fleet's catalogue has of it; `None` where that does not help.
    fn open_version(
        &self,
        recording: &RecordingAddress,
        version: &FleetVersion,
    ) -> Option<Result<Box<dyn Source>, SourceError>> {
        let fleet = version.fleet.trim_end_matches('/');
        let path = recording.address.strip_prefix(fleet)?.strip_prefix('/')?;
        let opener = self.fleet(fleet, version.generation)?;
        let file = StoredFile {
            path: path.to_owned(),
            size: recording.size?,
            modified: version.modified,
            e_tag: version.e_tag.clone(),
        };
        opener.is_version(&file).then(|| opener.open(&file))
    }

    /// The catalogue of a fleet; `None` where it may not or cannot be read, or is of another generation than a plan.
    fn fleet(&self, address: &str, generation: u64) -> Option<Arc<SummaryOpener>> {
        // Not the folder itself: all links in it would be followed.
        self.permitted(&format!("{address}/{FOLDER}")).ok()?;
        let mut fleets = self.fleets.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |fleet: &&KnownFleet| fleet.address == address && fleet.generation == generation;
        if let Some(known) = fleets.iter().find(is_it) {
            return known.opener.clone();
        }
        // Under the lock: all slices of a query ask at the same time.
        let opener = Store::at(address).map_err(CatalogueError::from);
        let opener = opener.and_then(Catalogue::beside);
        let opener = opener.and_then(|catalogue| catalogue.opener(&self.options));
        let opener = opener.inspect_err(|error| {
            ::log::warn!("recordings are opened without the catalogue of {address}: {error}");
        });
        let opener = opener.ok().filter(|found| found.generation() == generation);
        let opener = opener.map(Arc::new);
        fleets.push_back(KnownFleet {
            address: address.to_owned(),
            generation,
            opener: opener.clone(),
        });
        if fleets.len() > MOST_FLEETS {
            fleets.pop_front();
        }
        opener
    }

    fn refusal(&self) -> String {
        let roots = self.places.iter().map(|root| match root {
            Root::Folder(path) => path.display().to_string(),
            Root::Address(address) => without_secrets(address),
        });
        let roots: Vec<String> = roots.collect();
        format!(
            "this executor opens only recordings under its roots ({}); start it with --root to allow more",
            roots.join(", ")
        )
    }
}

/// Whether all links in a folder lead to permitted files.
fn links_stay(
    folder: &Path,
    depth: usize,
    is_permitted: &dyn Fn(&Path) -> bool,
) -> std::io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let stays = if kind.is_symlink() {
            // A dangling link leads nowhere; one to a folder is not followed, because it may lead back.
            match fs::canonicalize(entry.path()) {
                Ok(real) => is_permitted(&real) && !real.is_dir(),
                Err(_) => true,
            }
        } else if kind.is_dir() {
            depth > 0 && links_stay(&entry.path(), depth - 1, is_permitted)?
        } else {
            true
        };
        if !stays {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Root {
    fn of(place: &Path) -> Result<Self, ClusterError> {
        let text = place.display().to_string();
        let wrong = |reason: String| ClusterError::Root {
            root: without_secrets(&text),
            reason,
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return match fs::canonicalize(place) {
                Ok(path) => Ok(Root::Folder(path)),
                Err(cause) => Err(wrong(cause.to_string())),
            };
        };
        if !REMOTE_SCHEMES.contains(&scheme) {
            return Err(wrong(format!(
                "{scheme} addresses are not supported; name a folder, or an http, s3, gs or az address"
            )));
        }
        if rest.is_empty() || !is_plain_address(&text) {
            return Err(wrong(
                "use a scheme, a host and a path, without a user name, a query or dots".to_owned(),
            ));
        }
        Ok(Root::Address(format!("{}/", text.trim_end_matches('/'))))
    }
}

/// Whether an address is unambiguous: nothing in it can lead out of the folder that it begins with.
fn is_plain_address(address: &str) -> bool {
    let lower = address.to_ascii_lowercase();
    let Some((_, path)) = lower.split_once("://") else {
        return false;
    };
    let is_odd = |c: char| c.is_control() || "?#@\\".contains(c);
    let parts = path.trim_end_matches('/').split('/');
    let is_dots = |part: &str| part.is_empty() || part == "." || part == "..";
    !path.contains(is_odd)
        && !path.contains("%2e")
        && !path.contains("%2f")
        && !path.contains("%5c")
        && !parts.into_iter().any(is_dots)
}

impl RecordingOpener for Roots {
    fn open(&self, recording: &RecordingAddress) -> Result<Arc<dyn Source>, SourceError> {
        let address = &recording.address;
        let unreadable = |reason: String| SourceError::Unreadable {
            place: without_secrets(address),
            reason,
        };
        let place = self.permitted(address).map_err(unreadable)?;
        let version = fs::metadata(&place).ok().and_then(|found| {
            let modified = found.modified().ok()?;
            Some((found.len(), modified))
        });
        let indexed = recording.version.as_ref();
        let e_tag = indexed.and_then(|version| version.e_tag.clone());
        let is_it = |kept: &&OpenRecording| {
            kept.address == *address
                && kept.version == version
                && kept.e_tag == e_tag
                && kept.since.elapsed() < KEEP_OPEN_TIME
        };
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = open().iter().find(is_it) {
            return Ok(Arc::clone(&kept.recording));
        }
        // Not under the lock: others read meanwhile.
        let opened = indexed.and_then(|version| self.open_version(recording, version));
        let opened = opened.unwrap_or_else(|| asof_formats::open_with(&place, &self.options))?;
        let opened: Arc<dyn Source> = Arc::from(opened);
        let mut open = open();
        open.retain(|kept| kept.address != *address && kept.since.elapsed() < KEEP_OPEN_TIME);
        open.push_back(OpenRecording {
            address: address.clone(),
            version,
            e_tag,
            since: Instant::now(),
            recording: Arc::clone(&opened),
        });
        if open.len() > MOST_OPEN {
            open.pop_front();
        }
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(roots: &Roots, address: &str) -> bool {
        let refused = roots.permitted(address);
        refused.is_err_and(|reason| reason.contains("under its roots"))
    }

    #[test]
    fn only_what_lies_under_a_folder_is_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (folder.path().join("fleet"), folder.path().join("fleet2"));
        fs::create_dir_all(&inside).expect("a folder");
        fs::create_dir_all(&outside).expect("a folder");
        fs::write(inside.join("a.mcap"), "a").expect("a file");
        fs::write(outside.join("b.mcap"), "b").expect("a file");
        let roots = Roots::new(&[&inside]).expect("roots");
        let text = |path: PathBuf| path.display().to_string();
        assert!(roots.permitted(&text(inside.join("a.mcap"))).is_ok());
        // Its name begins alike, and is another folder.
        assert!(refused(&roots, &text(outside.join("b.mcap"))));
        assert!(refused(&roots, &text(inside.join("../fleet2/b.mcap"))));
        assert!(refused(&roots, &text(inside.join("../fleet/a.mcap"))));
        assert!(refused(&roots, "fleet/a.mcap"));
        assert!(refused(&roots, "/etc/passwd"));
        // Missing and forbidden paths are distinguished only within the roots.
        assert!(refused(&roots, &text(outside.join("none.mcap"))));
        assert!(!refused(&roots, &text(inside.join("none.mcap"))));
        assert!(roots.permitted(&text(inside.join("none.mcap"))).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_does_not_lead_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir_all(&inside).expect("a folder");
        fs::create_dir_all(&outside).expect("a folder");
        fs::write(outside.join("b.mcap"), "b").expect("a file");
        fs::write(inside.join("a.mcap"), "a").expect("a file");
        let link = |to: PathBuf, name: &str| {
            std::os::unix::fs::symlink(to, inside.join(name)).expect("a link");
        };
        link(outside.join("b.mcap"), "file.mcap");
        link(outside.clone(), "folder");
        link(inside.join("a.mcap"), "again.mcap");
        let roots = Roots::new(&[&inside]).expect("roots");
        let at = |name: &str| inside.join(name).display().to_string();
        assert!(refused(&roots, &at("file.mcap")));
        assert!(refused(&roots, &at("folder/b.mcap")));
        assert!(roots.permitted(&at("again.mcap")).is_ok());
        // A folder that is opened as one recording has what its links lead to.
        let folder = |name: &str| {
            let folder = inside.join(name);
            fs::create_dir_all(&folder).expect("a folder");
            folder
        };
        let (good, bad) = (folder("good"), folder("bad"));
        std::os::unix::fs::symlink(inside.join("a.mcap"), good.join("a.mcap")).expect("a link");
        std::os::unix::fs::symlink(outside.join("b.mcap"), bad.join("b.mcap")).expect("a link");
        fs::write(bad.join("metadata.yaml"), "").expect("a file");
        assert!(roots.permitted(&at("good")).is_ok());
        assert!(refused(&roots, &at("bad")));
        assert!(refused(&roots, &at("bad/metadata.yaml")));
        assert!(refused(&roots, &inside.display().to_string()));
    }

    #[test]
    fn addresses_are_compared_as_they_are_written_and_must_be_plain() {
        let roots = Roots::new(&["s3://bucket/fleet", "https://host/data/"]).expect("roots");
        for good in ["s3://bucket/fleet/r1/a.mcap", "https://host/data/a.mcap"] {
            assert!(roots.permitted(good).is_ok(), "{good}");
        }
        for bad in [
            "s3://bucket/fleet2/a.mcap",
            "s3://other/fleet/a.mcap",
            "gs://bucket/fleet/a.mcap",
            "s3://bucket/fleet/../secret/a.mcap",
            "s3://bucket/fleet/%2e%2E/secret/a.mcap",
            "s3://bucket/fleet//a.mcap",
            "https://host/data/a.mcap?to=http://169.254.169.254/",
            "https://user@host/data/a.mcap",
            "https://host.evil/data/a.mcap",
            "http://host/data/a.mcap",
            "file:///etc/passwd",
            "zenoh://localhost:7447",
            "/data/a.mcap",
        ] {
            assert!(refused(&roots, bad), "{bad}");
        }
    }

    #[test]
    fn a_root_is_a_folder_that_exists_or_an_address_that_can_be_read() {
        for bad in ["/no/such/folder", "ftp://host/x", "s3://", "s3://b/../c"] {
            assert!(Roots::new(&[bad]).is_err(), "{bad}");
        }
        assert!(Roots::new::<&str>(&[]).is_err());
    }
}
