//! A file that is synced to disk soon after each write, so that it survives a power cut.

use std::fs::File;
use std::io::{self, BufWriter, Cursor, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The shortest time between two syncs: the disk has to write, too.
const MIN_SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// What a recording is written to, and closed at its end.
pub trait RecordOutput: Write + Seek + Send + 'static {
    /// Ends the output: flushes it, and waits until everything is where it is kept.
    ///
    /// # Errors
    /// When what was written may be lost.
    fn close(mut self) -> io::Result<()>
    where
        Self: Sized,
    {
        self.flush()
    }
}

impl RecordOutput for File {}
impl RecordOutput for Cursor<Vec<u8>> {}

impl<W: RecordOutput> RecordOutput for BufWriter<W> {
    fn close(self) -> io::Result<()> {
        self.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .close()
    }
}

/// A file that a background thread syncs to disk, again and again, while writing continues.
///
/// Written data survives the end of the process, but not a power cut: the operating system may keep it in memory for
/// half a minute. A sync error is returned by the next write, or by [`close`](RecordOutput::close); errors name the file.
#[derive(Debug)]
pub struct DurableFile {
    file: File,
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether something was written that is not synced yet.
    is_dirty: bool,
    is_closed: bool,
    error: Option<io::Error>,
    /// How many syncs were done.
    syncs: u64,
}

impl DurableFile {
    /// Wraps a file that is open for writing, with its path.
    ///
    /// # Errors
    /// When the file handle cannot be cloned, or the thread cannot be started.
    pub fn new(file: File, path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let shared = Arc::<Shared>::default();
        let (other, synced, place) = (file.try_clone()?, Arc::clone(&shared), path.clone());
        let thread = thread::Builder::new()
            .name("asof disk".to_owned())
            .spawn(move || synced.keep_syncing(|| on_disk(&other, &place)))?;
        Ok(DurableFile {
            file,
            path,
            shared,
            thread: Some(thread),
        })
    }

    fn wrote(&self) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        state.is_dirty = true;
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Waits until everything is synced; a second time it does nothing.
    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_all();
        if thread.join().is_err() {
            let gone = io::Error::other("the thread that syncs it stopped unexpectedly");
            return Err(unsynced(&self.path, &gone));
        }
        match self.shared.state.lock().error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// An error of a file, with its path.
fn of_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn unsynced(path: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "{}: its end may not be on the disk: {error}",
        path.display()
    );
    io::Error::new(error.kind(), text)
}

/// Syncs the file. A pipe or a terminal cannot be synced, which is not an error.
fn on_disk(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::refuse(path)?;
    match file.sync_data() {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        outcome => outcome.map_err(|error| unsynced(path, &error)),
    }
}

impl Shared {
    fn keep_syncing(&self, mut sync: impl FnMut() -> io::Result<()>) {
        loop {
            let began = Instant::now();
            let is_closed = {
                let mut state = self.state.lock();
                while !state.is_dirty && !state.is_closed {
                    self.changed.wait(&mut state);
                }
                state.is_dirty = false;
                state.is_closed
            };
            let outcome = sync();
            let mut state = self.state.lock();
            state.syncs += 1;
            if let Err(error) = outcome {
                state.error = Some(error);
            }
            if is_closed {
                return;
            }
            let until = began + MIN_SYNC_INTERVAL;
            while !state.is_closed && !self.changed.wait_until(&mut state, until).timed_out() {}
        }
    }
}

impl Write for DurableFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes);
        let count = count.map_err(|error| of_file(&self.path, &error))?;
        self.wrote()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for DurableFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl RecordOutput for DurableFile {
    fn close(mut self) -> io::Result<()> {
        self.end()
    }
}

/// Waits until everything is synced, where it was not closed.
impl Drop for DurableFile {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("{error}");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Files with names that begin like this are on a disk that fails when it is synced, though it takes all writes.
    pub(crate) const REFUSED: &str = "refused";

    pub(super) fn refuse(path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(REFUSED) {
            let error = io::Error::from(ErrorKind::HostUnreachable);
            return Err(unsynced(path, &error));
        }
        Ok(())
    }

    #[test]
    fn a_disk_that_refuses_the_end_is_told_with_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("refused.mcap");
        let file = DurableFile::new(File::create(&path).expect("a file"), &path).expect("shared");
        let mut file = BufWriter::new(file);
        file.write_all(b"one").expect("kept in memory");
        let error = file.close().expect_err("refused").to_string();
        assert!(
            error.contains("refused.mcap: its end may not be on the disk"),
            "{error}"
        );
    }

    #[test]
    fn a_disk_that_refuses_a_write_is_told_with_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file.mcap");
        std::fs::write(&path, "").expect("written");
        // Open for reading only.
        let mut file = DurableFile::new(File::open(&path).expect("a file"), &path).expect("shared");
        let error = file.write(b"one").expect_err("refused").to_string();
        assert!(error.contains("file.mcap: "), "{error}");
    }

    #[test]
    fn what_is_written_is_brought_to_the_disk_by_itself_and_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut file =
            DurableFile::new(File::create(&path).expect("a file"), &path).expect("shared");
        let shared = Arc::clone(&file.shared);
        file.write_all(b"one").expect("written");
        let patience = Instant::now() + Duration::from_secs(20);
        while shared.state.lock().syncs == 0 {
            assert!(Instant::now() < patience, "the file was not synced");
            thread::sleep(Duration::from_millis(5));
        }
        file.write_all(b"two").expect("written");
        let before = shared.state.lock().syncs;
        drop(file);
        assert!(shared.state.lock().syncs > before, "once more at the end");
        assert!(!shared.state.lock().is_dirty);
        assert_eq!(std::fs::read(&path).expect("read"), b"onetwo");
    }

    #[test]
    fn a_disk_that_refuses_is_told_by_the_next_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut file =
            DurableFile::new(File::create(&path).expect("a file"), &path).expect("shared");
        file.shared.state.lock().error = Some(io::Error::other("the disk is gone"));
        let error = file.write(b"one").expect_err("refused");
        assert_eq!(error.to_string(), "the disk is gone");
        file.write_all(b"one").expect("told once");
    }

    #[test]
    fn the_disk_is_not_asked_for_every_write() {
        let shared = Arc::<Shared>::default();
        let synced = Arc::clone(&shared);
        let thread = thread::spawn(move || synced.keep_syncing(|| Ok(())));
        for _ in 0..1_000 {
            shared.state.lock().is_dirty = true;
            shared.changed.notify_one();
        }
        shared.state.lock().is_closed = true;
        shared.changed.notify_all();
        thread.join().expect("ended");
        let syncs = shared.state.lock().syncs;
        assert!((1..500).contains(&syncs), "{syncs}");
    }
}
