//! A file that is synced to disk soon after each write, so that it survives a power cut.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The shortest time between two syncs: the disk has to write, too.
const MIN_SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// A file that a background thread syncs to disk, again and again, while writing continues.
///
/// Written data survives the end of the process, but not a power cut: the operating system may keep it in memory for
/// half a minute. A sync error is returned by the next write.
#[derive(Debug)]
pub struct DurableFile {
    file: File,
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
    /// Wraps a file that is open for writing.
    ///
    /// # Errors
    /// When the file handle cannot be cloned, or the thread cannot be started.
    pub fn new(file: File) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (other, synced) = (file.try_clone()?, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("asof disk".to_owned())
            .spawn(move || synced.keep_syncing(|| on_disk(&other)))?;
        Ok(DurableFile {
            file,
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
}

/// Syncs the file. A pipe or a terminal cannot be synced, which is not an error.
fn on_disk(file: &File) -> io::Result<()> {
    match file.sync_data() {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        outcome => outcome,
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
        let count = self.file.write(bytes)?;
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

/// Waits until everything is synced.
impl Drop for DurableFile {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(error) = self.shared.state.lock().error.take() {
            tracing::error!("the end of the recording may not be on the disk: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_brought_to_the_disk_by_itself_and_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut file = DurableFile::new(File::create(&path).expect("a file")).expect("shared");
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
        let file = File::create(folder.path().join("file")).expect("a file");
        let mut file = DurableFile::new(file).expect("shared");
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
