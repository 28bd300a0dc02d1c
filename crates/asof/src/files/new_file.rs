//! Files that appear complete or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempPath;

use crate::Error;
use crate::text::quoted;

/// A file in progress: written beside its target under another name, and moved there when it is complete.
/// Otherwise it is removed. It is open only while there is a writer.
pub struct NewFile {
    temporary: TempPath,
    target: PathBuf,
    replaces: bool,
}

impl NewFile {
    /// Starts a file that will be `path`. An existing file is replaced only if `may_replace` returns true for
    /// it; what is being read, and anything that is not an ordinary file, is never replaced.
    ///
    /// # Errors
    /// When the file exists, or cannot be created.
    pub fn create(path: &Path, may_replace: impl FnOnce(&Path) -> bool) -> Result<Self, Error> {
        // Links are followed, as in every other program.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let found = fs::symlink_metadata(&target).ok();
        if let Some(found) = &found {
            let shown = path.display();
            let refused = if found.is_dir() {
                format!("cannot write {shown}: it is a folder; name a file in it with -o")
            } else if !found.is_file() {
                format!("cannot write {shown}: it is not an ordinary file; name another with -o")
            } else if is_input(&target) {
                format!("cannot write {shown}: it is being read; name another file")
            } else if !may_replace(&target) {
                already_there(path)
            } else {
                String::new()
            };
            if !refused.is_empty() {
                return Err(Error::file(refused, None));
            }
        }
        let folder = folder_of(&target);
        let temporary = unfinished_file(&folder).map_err(|error| unwritable(path, error))?;
        Ok(NewFile {
            temporary,
            target,
            replaces: found.is_some(),
        })
    }

    /// The path until it is finished, for other programs.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// A writer to the file.
    ///
    /// # Errors
    /// When the system refuses to open it.
    pub fn writer(&self) -> Result<BufWriter<File>, Error> {
        let file = File::options().write(true).open(self.path());
        let file = file.map_err(|error| self.failed(error))?;
        Ok(BufWriter::with_capacity(1 << 17, file))
    }

    /// Writes all of the file, and moves it to its target.
    ///
    /// # Errors
    /// When the system refuses it, such as on a full disk, or another process has created one meanwhile.
    pub fn write(self, bytes: &[u8]) -> Result<(), Error> {
        fs::write(self.path(), bytes).map_err(|error| self.failed(error))?;
        self.finish()
    }

    /// Why it cannot be written, with its name.
    pub(crate) fn failed(&self, cause: io::Error) -> Error {
        Error::file(format!("cannot write {}", self.target.display()), cause)
    }

    /// A writer that opens the file only while it writes, for more files than a process may have open.
    pub fn appender(&self) -> BufWriter<Appender> {
        Appender::buffered(self.path())
    }

    /// Moves the file to its target.
    ///
    /// # Errors
    /// When the system refuses it, or another process has created one meanwhile.
    pub fn finish(self) -> Result<(), Error> {
        let target = self.target.display().to_string();
        let placed = if self.replaces {
            self.temporary.persist(&self.target)
        } else {
            // Another process may have created it meanwhile.
            self.temporary.persist_noclobber(&self.target)
        };
        placed.map(drop).map_err(|error| {
            let message = format!("cannot put the finished file at {target}; nothing was written");
            Error::file(message, error.error)
        })
    }
}

/// Adds to the end of a file, which is open only meanwhile.
#[derive(Debug)]
pub struct Appender {
    path: PathBuf,
}

impl Appender {
    pub(crate) fn buffered(path: &Path) -> BufWriter<Self> {
        let path = path.to_owned();
        BufWriter::with_capacity(1 << 15, Appender { path })
    }
}

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = File::options().append(true).open(&self.path)?;
        file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The folder of a file that exists or will exist.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Says that a file exists, and may not be replaced.
pub(crate) fn already_there(path: &Path) -> String {
    let path = path.display();
    format!("{path} exists already; name another file with -o, or replace it with --force")
}

/// The error of a file that cannot be created.
pub(crate) fn unwritable(path: &Path, error: io::Error) -> Error {
    let shown = path.display();
    let message = match error.kind() {
        ErrorKind::AlreadyExists => already_there(path),
        ErrorKind::NotFound => {
            let folder = folder_of(path);
            let folder = folder.display();
            format!("cannot write {shown}: there is no folder {folder}; make it first")
        }
        ErrorKind::PermissionDenied => {
            format!("cannot write {shown}: permission denied; choose another folder with -o")
        }
        _ => format!("cannot write {shown}: {error}"),
    };
    let cause = Some(error);
    Error::File { message, cause }
}

/// The files that this process reads, by what identifies them.
static INPUTS: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

/// Notes a file that is read, or a folder whose recordings are: no [`NewFile`] replaces it.
pub fn note_input(place: &Path) {
    let inside = fs::read_dir(place).into_iter().flatten().flatten();
    let inside = inside.map(|entry| entry.path());
    let files = inside.filter(|path| is_of_a_recording(path));
    let found = files.chain([place.to_owned()]);
    let found = found.filter_map(|path| identity(&path));
    let mut inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    inputs.extend(found);
}

/// The files of a folder that may belong to a recording.
const OF_A_RECORDING: [&str; 10] = [
    "mcap", "bag", "db3", "db3-wal", "ulg", "ulog", "yaml", "zst", "zstd", "active",
];

fn is_of_a_recording(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| OF_A_RECORDING.contains(&extension))
}

fn is_input(path: &Path) -> bool {
    let inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_noted = |path: &Path| identity(path).is_some_and(|found| inputs.contains(&found));
    // Folders are read with those in them.
    is_noted(path) || is_of_a_recording(path) && path.ancestors().skip(1).any(is_noted)
}

/// Refuses to overwrite the recording that is being read, under any name.
///
/// `word` goes into the name that is suggested instead.
///
/// # Errors
/// When they are the same file.
pub fn refuse_same(input: &Path, output: &Path, word: &str) -> Result<(), Error> {
    if is_same(input, output) {
        let message = format!(
            "{} is the recording that is being read; write to another file: -o {}",
            output.display(),
            quoted(&beside(input, word))
        );
        return Err(Error::Invalid(message));
    }
    Ok(())
}

/// `run.bag` and `recovered` make `run.recovered.mcap`: every format is written as MCAP.
pub fn beside(path: &Path, word: &str) -> PathBuf {
    path.with_extension(format!("{word}.mcap"))
}

fn is_same(one: &Path, other: &Path) -> bool {
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// What a file has under each of its names.
#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = PathBuf;

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    // Follows links; two hard links share the number of their inode.
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    fs::canonicalize(path).ok()
}

/// Temporary files are private by default; this one becomes an ordinary file.
#[cfg(unix)]
fn builder() -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    // The system applies the user's mask.
    builder
        .prefix(".asof-")
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666));
    builder
}

#[cfg(not(unix))]
fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".asof-").suffix(".part");
    builder
}

/// The files that an interrupt must remove. Locked while one is created, so that there is no moment
/// in which it exists and is not listed here.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called before temporary files are created.
static BEFORE_TEMPORARY: OnceLock<fn()> = OnceLock::new();

/// Calls `arrange` before each temporary file is created, for programs that end at signals: what they arrange calls
/// [`remove_unfinished`]. Only the first call has an effect.
pub fn before_temporary_files(arrange: fn()) {
    let _ = BEFORE_TEMPORARY.set(arrange);
}

fn arrange_removal() {
    if let Some(arrange) = BEFORE_TEMPORARY.get() {
        arrange();
    }
}

/// Removes every unfinished file, before the program ends at once.
pub fn remove_unfinished() {
    for path in unfinished().drain(..) {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    asof_formats::remove_temporary_files();
}

/// Makes a file or folder that an interrupt removes. Where no handler can be installed, it stays then.
pub(super) fn removed_on_interrupt<T: AsRef<Path>>(
    make: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    arrange_removal();
    let mut known = unfinished();
    let made = make()?;
    known.push(made.as_ref().to_owned());
    Ok(made)
}

/// A file that is removed with its path, and by an interrupt.
pub(crate) fn unfinished_file(folder: &Path) -> io::Result<TempPath> {
    removed_on_interrupt(|| Ok(builder().tempfile_in(folder)?.into_temp_path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_beside_is_that_of_an_mcap_file() {
        assert_eq!(
            beside(Path::new("a/run.bag"), "recovered"),
            Path::new("a/run.recovered.mcap")
        );
        assert_eq!(
            beside(Path::new("run"), "recovered"),
            Path::new("run.recovered.mcap")
        );
    }

    #[test]
    fn an_unfinished_file_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("out.mcap");
        drop(NewFile::create(&path, |_| false).expect("new file"));
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 0);
    }

    #[test]
    fn a_file_that_appeared_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("out.mcap");
        let new = NewFile::create(&path, |_| false).expect("new file");
        fs::write(&path, "mine").expect("write");
        assert!(new.finish().is_err());
        assert_eq!(fs::read(&path).expect("read"), b"mine");
    }

    #[test]
    fn what_is_read_is_never_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["run.mcap", "bag_0.db3", "metadata.yaml", "old.csv"] {
            fs::write(at(name), "x").expect("write");
        }
        fs::create_dir(at("deeper")).expect("a folder");
        for name in ["deeper/run.mcap", "deeper/old.csv"] {
            fs::write(at(name), "x").expect("write");
        }
        note_input(folder.path());
        for (name, is_free) in [
            ("run.mcap", false),
            ("bag_0.db3", false),
            ("metadata.yaml", false),
            ("old.csv", true),
            ("new.mcap", true),
            ("deeper/run.mcap", false),
            ("deeper/old.csv", true),
        ] {
            let made = NewFile::create(&at(name), |_| true);
            assert_eq!(made.is_ok(), is_free, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_recording_is_recognized_under_every_name() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("run"), "x").expect("write");
        fs::hard_link(at("run"), at("hard")).expect("link");
        std::os::unix::fs::symlink(at("run"), at("soft")).expect("link");
        for name in ["run", "hard", "soft", "../run"] {
            let name = if name.starts_with("..") {
                let folder = folder.path().file_name().expect("name");
                at("..").join(folder).join("run")
            } else {
                at(name)
            };
            assert!(is_same(&at("run"), &name), "{}", name.display());
        }
        assert!(!is_same(&at("run"), &at("other")));
    }
}
