//! A robot into files.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use asof_core::Stamp;
use asof_live::Publisher;
use asof_record::{
    DurableFile, RecordOptions, RecordOutput, Recorder, SnapshotOptions, SplitOptions, started_path,
};

use super::Robot;
use crate::Error;
use crate::files::unwritable;

/// The files of a recording of a robot.
#[derive(Debug, Clone)]
pub enum RecordFiles {
    /// One file.
    One {
        /// Whether an existing file is replaced. It stays as it is until the first message comes.
        replace: bool,
    },
    /// One after another: `run.mcap` becomes `run_0.mcap`, `run_1.mcap`, …, after those of earlier runs, within a quota.
    Parts(SplitOptions),
    /// One for each event, with the time before it.
    Snapshots(SnapshotOptions),
}

impl Default for RecordFiles {
    /// One file that does not exist yet.
    fn default() -> Self {
        RecordFiles::One { replace: false }
    }
}

impl RecordFiles {
    /// Checks what can be checked before a robot is there; nothing is created.
    ///
    /// # Errors
    /// When there is no such folder, or the file exists.
    pub fn check(&self, path: &Path) -> Result<(), Error> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(unwritable(path, ErrorKind::NotFound.into()));
        }
        match self {
            RecordFiles::One { replace: false } if path.exists() => {
                Err(unwritable(path, ErrorKind::AlreadyExists.into()))
            }
            _ => Ok(()),
        }
    }
}

impl Robot {
    /// Records the topics that `wants` accepts, until the recorder is stopped or dropped. `{time}` in the name is the start of
    /// the recording. More topics, other robots and raw keys can be added to the recorder.
    ///
    /// ```no_run
    /// use asof::RecordFiles;
    /// use asof::record::{RecordOptions, SnapshotOptions};
    /// let robot = asof::connect("zenoh://192.168.1.5:7447")?;
    /// let files = RecordFiles::Snapshots(SnapshotOptions {
    ///     triggers: vec!["/bumper.data == true".parse()?],
    ///     ..SnapshotOptions::default()
    /// });
    /// let recorder = robot.record("crash.mcap", files, RecordOptions::default(), |_| true)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a file cannot be created.
    pub fn record(
        &self,
        path: impl AsRef<Path>,
        files: RecordFiles,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Recorder, Error> {
        let (robot, path) = (self.session(), path.as_ref());
        Ok(match files {
            RecordFiles::Snapshots(snapshots) => {
                Recorder::create_snapshots(robot, path, snapshots, options, wants)?
            }
            RecordFiles::Parts(split) => {
                Recorder::create_parts(robot, path, split, options, wants)?
            }
            RecordFiles::One { replace } => {
                let path = started_path(path, Stamp::now());
                let refused = |error| unwritable(&path, error);
                if replace && path.is_file() {
                    // What cannot be written is refused now.
                    File::options().write(true).open(&path).map_err(refused)?;
                    let open = move || create(&path, true);
                    return Ok(Recorder::start_late(robot, open, &options, wants)?);
                }
                let file = create(&path, replace).map_err(refused)?;
                Recorder::start(robot, file, options, wants)?
            }
        })
    }

    /// Keeps the newest messages of the topics that `wants` accepts, and writes them to a file when a trigger fires, or
    /// [`Recorder::trigger`] is called.
    ///
    /// # Errors
    /// When the folder of the ring cannot be created.
    pub fn snapshots(
        &self,
        path: impl AsRef<Path>,
        snapshots: SnapshotOptions,
        options: RecordOptions,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
    ) -> Result<Recorder, Error> {
        self.record(path, RecordFiles::Snapshots(snapshots), options, wants)
    }
}

/// Written in place from the start: whatever happens, the recording is at the requested path.
fn create(path: &PathBuf, replace: bool) -> io::Result<FrontToBack> {
    let mut options = File::options();
    options.write(true);
    if replace {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let file = DurableFile::new(options.open(path)?, path)?;
    Ok(FrontToBack {
        file: BufWriter::with_capacity(1 << 17, file),
        position: 0,
    })
}

/// Written from front to back: its position is known without asking, which a pipe could not answer.
struct FrontToBack {
    file: BufWriter<DurableFile>,
    position: u64,
}

impl Write for FrontToBack {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for FrontToBack {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let is_here = matches!(to, SeekFrom::Current(0)) || to == SeekFrom::Start(self.position);
        if !is_here {
            self.position = self.file.seek(to)?;
        }
        Ok(self.position)
    }
}

impl RecordOutput for FrontToBack {
    fn close(self) -> io::Result<()> {
        self.file.close()
    }
}
