//! Folders for files that are removed when the program ends, or when the next one starts.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::{TempDir, TempPath};

use super::new_file::removed_on_interrupt;

const PREFIX: &str = "asof-";
/// The extension of the file beside a folder that is locked while the folder is in use.
const HELD: &str = "held";

/// A folder that is removed when it is dropped or the program is interrupted. After a kill, the next program removes it:
/// see [`remove_abandoned`].
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: TempDir,
    /// Removed after the folder.
    _lock: (TempPath, File),
}

impl TemporaryFolder {
    /// Makes a folder where the system keeps temporary files.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    fn within(place: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let folder = removed_on_interrupt(|| builder.prefix(PREFIX).tempdir_in(place))?;
        // Locked before it has its name: nobody finds it unlocked.
        let lock = tempfile::Builder::new().prefix(PREFIX).tempfile_in(place)?;
        lock.as_file().lock()?;
        let held = folder.path().with_extension(HELD);
        let lock = removed_on_interrupt(|| {
            let file = lock.persist_noclobber(&held)?;
            Ok(Lock(TempPath::try_from_path(&held)?, file))
        })?;
        Ok(TemporaryFolder {
            folder,
            _lock: (lock.0, lock.1),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

struct Lock(TempPath, File);

impl AsRef<Path> for Lock {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// Removes the temporary folders of programs that were killed: those that nobody holds.
pub fn remove_abandoned() {
    remove_abandoned_in(&std::env::temp_dir());
}

fn remove_abandoned_in(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let is_lock = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
            && path.extension().is_some_and(|found| found == HELD)
    };
    for lock in entries.map(|entry| entry.path()).filter(is_lock) {
        let is_abandoned = File::open(&lock).is_ok_and(|file| file.try_lock().is_ok());
        if is_abandoned {
            // What another user left stays.
            drop(fs::remove_dir_all(lock.with_extension("")));
            drop(fs::remove_file(&lock));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let count = || fs::read_dir(place.path()).expect("listed").count();
        let kept = TemporaryFolder::within(place.path()).expect("made");
        fs::write(kept.path().join("run.mcap"), "mine").expect("written");
        let dropped = TemporaryFolder::within(place.path()).expect("made");
        assert_eq!(count(), 4);
        drop(dropped);
        assert_eq!(count(), 2);
        // As after a kill: the folder and its lock are there, and nobody holds it.
        fs::create_dir(place.path().join("asof-gone")).expect("made");
        fs::write(place.path().join("asof-gone/run.mcap"), "theirs").expect("written");
        fs::write(place.path().join("asof-gone.held"), "").expect("written");
        // Of others.
        fs::create_dir(place.path().join("asof-other")).expect("made");
        remove_abandoned_in(place.path());
        assert!(kept.path().join("run.mcap").exists());
        assert!(!place.path().join("asof-gone").exists());
        assert!(place.path().join("asof-other").exists());
        assert_eq!(count(), 3);
    }
}
