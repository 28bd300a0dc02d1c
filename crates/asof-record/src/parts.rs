//! A recording in several files, one after another, within a quota of disk space.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Message, Stamp};
use asof_formats::{McapWriteError, McapWriter, McapWriterOptions};
use parking_lot::Mutex;

use crate::DurableFile;
use crate::sink::{Sink, Tags};

/// When a recording starts its next file, and how many files are kept.
///
/// ```
/// use std::time::Duration;
/// use asof_record::SplitOptions;
///
/// let hourly = SplitOptions {
///     time: Some(Duration::from_secs(3600)),
///     quota: Some(500_000_000_000),
///     ..SplitOptions::default()
/// };
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// The approximate size of a file, in bytes.
    pub bytes: Option<u64>,
    /// The duration of a file, by receipt time.
    pub time: Option<Duration>,
    /// The most bytes for all files together: the oldest are deleted to make room.
    pub quota: Option<u64>,
}

/// The files of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartsReport {
    /// The files that exist, oldest first; the last one is being written.
    pub files: Vec<PathBuf>,
    /// How many files were deleted to stay within the quota.
    pub deleted: u64,
    /// The size of the deleted files.
    pub deleted_bytes: u64,
}

/// The name of a part: `run.mcap` becomes `run_0.mcap`, `run_1.mcap`, ….
pub fn part_path(path: &Path, number: u64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map_or("mcap".into(), |one| one.to_string_lossy());
    path.with_file_name(format!("{stem}_{number}.{extension}"))
}

/// Writes one file after another.
pub(crate) struct Parts {
    path: PathBuf,
    split: SplitOptions,
    writer: McapWriterOptions,
    tags: Tags,
    open: Option<Open>,
    next: u64,
    /// Finished files and their sizes, oldest first.
    done: Vec<(PathBuf, u64)>,
    report: Arc<Mutex<PartsReport>>,
}

struct Open {
    writer: McapWriter<BufWriter<DurableFile>>,
    path: PathBuf,
    start: Option<Stamp>,
}

impl Parts {
    /// Creates the first file.
    pub fn create(
        path: &Path,
        split: SplitOptions,
        writer: McapWriterOptions,
        tags: Tags,
    ) -> Result<(Self, Arc<Mutex<PartsReport>>), McapWriteError> {
        let report = Arc::<Mutex<PartsReport>>::default();
        let mut parts = Parts {
            path: path.to_owned(),
            split,
            writer,
            tags,
            open: None,
            next: 0,
            done: Vec::new(),
            report: Arc::clone(&report),
        };
        parts.begin()?;
        Ok((parts, report))
    }

    fn begin(&mut self) -> Result<&mut Open, McapWriteError> {
        let path = part_path(&self.path, self.next);
        self.next += 1;
        // An existing file is never overwritten: it may be the only recording of something.
        let file = DurableFile::new(File::create_new(&path)?)?;
        let file = BufWriter::with_capacity(1 << 17, file);
        let mut writer = McapWriter::new(file, self.writer.clone())?;
        if !self.tags.is_empty() {
            writer.write_metadata("tags", self.tags.clone())?;
        }
        self.report.lock().files.push(path.clone());
        Ok(self.open.insert(Open {
            writer,
            path,
            start: None,
        }))
    }

    /// The file for a message of this time.
    fn file_for(&mut self, at: Stamp) -> Result<&mut Open, McapWriteError> {
        let is_full = self.open.as_ref().is_some_and(|open| {
            let is_large = self
                .split
                .bytes
                .is_some_and(|most| open.writer.bytes() >= most);
            let is_long = self
                .split
                .time
                .zip(open.start)
                .is_some_and(|(most, start)| {
                    at.since(start) >= i64::try_from(most.as_nanos()).unwrap_or(i64::MAX)
                });
            // Without this, a file with no messages would be followed by empty files without end.
            open.start.is_some() && (is_large || is_long)
        });
        if is_full {
            self.end()?;
        }
        if self.open.is_none() {
            self.begin()?;
        }
        match &mut self.open {
            Some(open) => Ok(open),
            None => Err(std::io::Error::other("no file is open").into()),
        }
    }

    fn end(&mut self) -> Result<(), McapWriteError> {
        if let Some(open) = self.open.take() {
            open.writer.finish()?;
            let size = std::fs::metadata(&open.path).map_or(0, |found| found.len());
            self.done.push((open.path, size));
            self.make_room(0);
        }
        Ok(())
    }

    /// Deletes the oldest files until all fit, counting what the open file has so far.
    fn make_room(&mut self, open: u64) {
        let Some(quota) = self.split.quota else {
            return;
        };
        let mut all = open + self.done.iter().map(|(_, size)| size).sum::<u64>();
        while all > quota && !self.done.is_empty() {
            let (path, size) = self.done.remove(0);
            all -= size;
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!("cannot delete {}: {error}", path.display());
            }
            let mut report = self.report.lock();
            report.files.retain(|known| *known != path);
            report.deleted += 1;
            report.deleted_bytes += size;
        }
    }
}

impl Sink for Parts {
    fn write(&mut self, message: &Message) -> Result<(), McapWriteError> {
        let open = self.file_for(message.log_time)?;
        open.writer.write(message)?;
        open.start.get_or_insert(message.log_time);
        let bytes = open.writer.bytes();
        self.make_room(bytes);
        Ok(())
    }

    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError> {
        match &mut self.open {
            Some(open) => open.writer.write_metadata(name, values.clone()),
            None => self.begin()?.writer.write_metadata(name, values.clone()),
        }
    }

    fn tick(&mut self, now: Stamp) -> Result<(), McapWriteError> {
        match &mut self.open {
            Some(open) => open.writer.tick(now),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), McapWriteError> {
        match &mut self.open {
            Some(open) => open.writer.flush(),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), McapWriteError> {
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::{Channel, Query, Source};
    use bytes::Bytes;

    fn message(at: i64, size: usize) -> Message {
        // What does not shrink when it is compressed.
        let noise = (0..size).map(|n| ((at as usize ^ n).wrapping_mul(2_654_435_761) >> 13) as u8);
        Message {
            channel: Arc::new(Channel {
                topic: "/t".to_owned(),
                message_encoding: "raw".to_owned(),
                ..Channel::default()
            }),
            log_time: at.into(),
            publish_time: at.into(),
            sequence: 0,
            payload: noise.collect::<Bytes>(),
        }
    }

    fn options() -> McapWriterOptions {
        McapWriterOptions {
            compression: asof_formats::Compression::None,
            chunk_size: 1_000,
            ..McapWriterOptions::default()
        }
    }

    fn times(path: &Path) -> Vec<i64> {
        let file = asof_formats::open(path).expect("a recording");
        let batches = file.read(&Query::all()).expect("read");
        let batches: Vec<_> = batches.map(|batch| batch.expect("a batch")).collect();
        let messages = batches.iter().flat_map(asof_core::Batch::iter);
        messages.map(|message| message.log_time.nanos()).collect()
    }

    #[test]
    fn files_are_split_by_time_and_hold_every_message_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let split = SplitOptions {
            time: Some(Duration::from_nanos(10)),
            ..SplitOptions::default()
        };
        let path = folder.path().join("run.mcap");
        let tags = Tags::from([("robot".to_owned(), "seven".to_owned())]);
        let (mut parts, report) = Parts::create(&path, split, options(), tags).expect("begun");
        for at in 0..25 {
            parts.write(&message(at, 10)).expect("written");
        }
        Box::new(parts).finish().expect("finished");
        let files = report.lock().files.clone();
        let names: Vec<_> = files.iter().filter_map(|one| one.file_name()).collect();
        assert_eq!(names, ["run_0.mcap", "run_1.mcap", "run_2.mcap"]);
        let all: Vec<Vec<i64>> = files.iter().map(|one| times(one)).collect();
        assert_eq!(all.concat(), (0..25).collect::<Vec<_>>());
        assert_eq!(all[1], (10..20).collect::<Vec<_>>());
        for file in &files {
            let summary = asof_formats::open(file).expect("a recording").summary();
            assert_eq!(summary.metadata[0].name, "tags");
        }
    }

    #[test]
    fn the_oldest_files_give_way_to_the_quota_and_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let split = SplitOptions {
            bytes: Some(10_000),
            quota: Some(50_000),
            ..SplitOptions::default()
        };
        let path = folder.path().join("run.mcap");
        let begun = Parts::create(&path, split, options(), Tags::new());
        let (mut parts, report) = begun.expect("begun");
        let on_disk = || -> u64 {
            let files = std::fs::read_dir(folder.path()).expect("a folder");
            files
                .map(|one| {
                    one.and_then(|one| one.metadata())
                        .map_or(0, |one| one.len())
                })
                .sum()
        };
        for at in 0..400 {
            parts.write(&message(at, 500)).expect("written");
            assert!(on_disk() <= 60_000, "{} bytes", on_disk());
        }
        Box::new(parts).finish().expect("finished");
        let report = report.lock().clone();
        assert!(report.deleted >= 10, "{report:?}");
        let all: Vec<Vec<i64>> = report.files.iter().map(|one| times(one)).collect();
        let all = all.concat();
        assert_eq!(all.last(), Some(&399), "the newest are there");
        assert!(
            all.windows(2).all(|two| two[1] == two[0] + 1),
            "without a gap"
        );
    }

    #[test]
    fn a_file_that_is_there_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("run_0.mcap"), "precious").expect("written");
        let path = folder.path().join("run.mcap");
        let begun = Parts::create(&path, SplitOptions::default(), options(), Tags::new());
        assert!(begun.is_err());
        let kept = std::fs::read(folder.path().join("run_0.mcap"));
        assert_eq!(kept.expect("read"), b"precious");
    }
}
