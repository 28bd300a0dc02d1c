//! A recording in several files, one after another, within a quota of disk space.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Message, Stamp};
use asof_formats::{McapWriteError, McapWriter, McapWriterOptions};
use parking_lot::Mutex;

use crate::backlog::wrote;
use crate::last::{LastMessages, Scope};
use crate::sink::{Receipt, Sink, Tags};
use crate::{DurableFile, RecordOutput};

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
    /// The duration of a file, by a clock that never goes back; by the robot's clock where messages are logged by it.
    pub time: Option<Duration>,
    /// The most bytes for all files together, with those of earlier runs under the same name: the oldest are deleted
    /// to make room. What another recorder under this name is writing meanwhile is not deleted.
    pub quota: Option<u64>,
}

/// The files of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartsReport {
    /// The files of this run that exist, oldest first; the last one is being written.
    pub files: Vec<PathBuf>,
    /// How many files were deleted to stay within the quota, of earlier runs too.
    pub deleted: u64,
    /// The size of the deleted files.
    pub deleted_bytes: u64,
}

/// The place of `{time}` in a name: a run is named by its start.
const TIME: &str = "{time}";
/// At most this many bytes of latched messages are repeated in each file.
const MOST_LATCHED_BYTES: u64 = 64 << 20;

/// The path of a recording that starts now: `{time}` in its name becomes the start, as in `20240131T235959Z`.
///
/// ```
/// use asof_core::Stamp;
/// use asof_record::started_path;
///
/// let path = started_path("run-{time}.mcap", Stamp::from_nanos(1_700_000_000_000_000_000));
/// assert_eq!(path.to_str(), Some("run-20231114T221320Z.mcap"));
/// ```
pub fn started_path(path: impl AsRef<Path>, start: Stamp) -> PathBuf {
    let path = path.as_ref();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(TIME) {
        path.with_file_name(name.replace(TIME, &text_of(start)))
    } else {
        path.to_owned()
    }
}

/// A time in a file's name, in seconds.
fn text_of(start: Stamp) -> String {
    let text = start.to_string();
    let digits = text.chars().take(19).filter(|one| !"-:".contains(*one));
    digits.chain(['Z']).collect()
}

fn is_time(text: &str) -> bool {
    let is_right = |(place, byte): (usize, u8)| match place {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 16 && text.bytes().enumerate().all(is_right)
}

/// The names of parts: `run.mcap` becomes `run_0.mcap`, `run_1.mcap`, …. Those of earlier runs are of the same series.
pub(crate) struct PartNames {
    folder: PathBuf,
    /// The name as it was given, without the extension.
    pattern: String,
    /// The same with the start of this run.
    stem: String,
    extension: String,
    next: u64,
}

impl PartNames {
    pub fn new(path: &Path, start: Stamp) -> Self {
        let pattern = path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = path.extension().map(|one| one.to_string_lossy());
        PartNames {
            folder: path.parent().unwrap_or(Path::new("")).to_owned(),
            stem: pattern.replace(TIME, &text_of(start)),
            pattern: pattern.into_owned(),
            extension: extension.map_or("mcap".to_owned(), Into::into),
            next: 0,
        }
    }

    pub fn path(&self, number: u64) -> PathBuf {
        let name = format!("{}_{number}.{}", self.stem, self.extension);
        self.folder.join(name)
    }

    /// Creates the next file. Numbers that are taken are skipped: an existing file may be the only recording of
    /// something.
    pub fn create(&mut self) -> io::Result<(PathBuf, File)> {
        loop {
            let path = self.path(self.next);
            self.next = self.next.wrapping_add(1);
            match File::create_new(&path) {
                Ok(file) => {
                    hold(&file);
                    return Ok((path, file));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let text = format!("{}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
    }

    /// The files of earlier runs and their sizes, oldest first. The next number is above theirs.
    pub fn find_earlier(&mut self) -> io::Result<Vec<(PathBuf, u64)>> {
        let here = Path::new(".");
        let is_here = self.folder.as_os_str().is_empty();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(if is_here { here } else { &self.folder })? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((stem, number)) = name.to_str().and_then(|name| self.number_in(name)) else {
                continue;
            };
            if stem == self.stem {
                self.next = self.next.max(number.saturating_add(1));
            }
            // One that is gone by now was somebody else's to delete, and a folder is no part.
            if let Ok(of) = entry.metadata()
                && of.is_file()
            {
                found.push(((stem, number), (self.folder.join(&name), of.len())));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, file)| file).collect())
    }

    /// The stem and the number in the name of a part of this series.
    fn number_in(&self, name: &str) -> Option<(String, u64)> {
        let name = name.strip_suffix(&self.extension)?.strip_suffix('.')?;
        let (stem, digits) = name.rsplit_once('_')?;
        let number: u64 = digits.parse().ok()?;
        let is_ours = match self.pattern.split_once(TIME) {
            None => stem == self.pattern,
            Some((before, after)) => {
                let rest = stem.strip_prefix(before);
                rest.and_then(|rest| rest.strip_suffix(after))
                    .is_some_and(is_time)
            }
        };
        (is_ours && number.to_string() == digits).then(|| (stem.to_owned(), number))
    }
}

/// Locks a file for as long as it is open: another recorder of the same name does not delete it. A file system without locks
/// protects nothing.
fn hold(file: &File) {
    // Elsewhere a lock would keep readers out, too.
    if cfg!(unix)
        && let Err(error) = file.lock()
    {
        tracing::debug!("a part cannot be locked: {error}");
    }
}

/// Whether a recorder is writing this file.
fn is_held(path: &Path) -> bool {
    let lock = File::open(path).map(|file| file.try_lock());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

fn size_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).map(|found| found.len()).ok()
}

/// Writes one file after another.
pub(crate) struct Parts {
    names: PartNames,
    split: SplitOptions,
    writer: McapWriterOptions,
    tags: Tags,
    open: Option<Open>,
    /// Finished files and their sizes, oldest first; with those of earlier runs, if there is a quota.
    done: VecDeque<(PathBuf, u64)>,
    /// The sum of these sizes.
    done_bytes: u64,
    /// What each file begins with.
    latched: LastMessages,
    /// The log time of the last message.
    last: Stamp,
    report: Arc<Mutex<PartsReport>>,
}

struct Open {
    writer: McapWriter<BufWriter<DurableFile>>,
    path: PathBuf,
    /// The size of what the file began with.
    head: u64,
    /// When its first message came.
    start: Option<Stamp>,
}

impl Parts {
    /// Creates the first file, of a run that starts now.
    pub fn create(
        path: &Path,
        now: Stamp,
        split: SplitOptions,
        writer: McapWriterOptions,
        tags: Tags,
    ) -> Result<(Self, Arc<Mutex<PartsReport>>), McapWriteError> {
        let report = Arc::<Mutex<PartsReport>>::default();
        let mut names = PartNames::new(path, now);
        let earlier = names.find_earlier()?;
        let done: VecDeque<_> = match split.quota {
            Some(_) => earlier.into(),
            None => VecDeque::new(),
        };
        let mut parts = Parts {
            names,
            done_bytes: done.iter().map(|(_, size)| size).sum(),
            done,
            split,
            writer,
            tags,
            open: None,
            latched: LastMessages::new(Scope::Latched, MOST_LATCHED_BYTES),
            last: now,
            report: Arc::clone(&report),
        };
        parts.begin()?;
        parts.make_room(0);
        Ok((parts, report))
    }

    fn begin(&mut self) -> Result<&mut Open, McapWriteError> {
        let (path, file) = self.names.create()?;
        let file = BufWriter::with_capacity(1 << 17, DurableFile::new(file, &path)?);
        let mut writer = McapWriter::new(file, self.writer.clone())?;
        if !self.tags.is_empty() {
            writer.write_metadata("tags", self.tags.clone())?;
        }
        for message in self.latched.at(self.last) {
            wrote(writer.write(&message))?;
        }
        writer.flush()?;
        self.report.lock().files.push(path.clone());
        Ok(self.open.insert(Open {
            head: writer.bytes(),
            writer,
            path,
            start: None,
        }))
    }

    /// The file for a message that came at this time.
    fn file_for(&mut self, at: Stamp) -> Result<&mut Open, McapWriteError> {
        let is_full = self.open.as_ref().is_some_and(|open| {
            let size = open.writer.bytes() - open.head;
            let is_large = self.split.bytes.is_some_and(|most| size >= most);
            // Without a message there is no start: no file without messages is followed by another.
            let age = open.start.map(|start| at.since(start));
            let age = age.and_then(|age| u128::try_from(age).ok());
            let is_long = |most: Duration| age.is_some_and(|age| age >= most.as_nanos());
            open.start.is_some() && (is_large || self.split.time.is_some_and(is_long))
        });
        if is_full {
            self.end()?;
        }
        if self.open.is_none() {
            self.begin()?;
        }
        match &mut self.open {
            Some(open) => Ok(open),
            None => Err(io::Error::other("no file is open").into()),
        }
    }

    fn end(&mut self) -> Result<(), McapWriteError> {
        // While it is open it tells what a full disk costs.
        self.flush()?;
        if let Some(open) = self.open.take() {
            open.writer.finish()?.close()?;
            let size = size_of(&open.path).unwrap_or(0);
            self.done_bytes += size;
            self.done.push_back((open.path, size));
            self.make_room(0);
        }
        Ok(())
    }

    /// Deletes the oldest files until all fit, counting what the open file has so far.
    fn make_room(&mut self, open: u64) {
        let Some(quota) = self.split.quota else {
            return;
        };
        if open + self.done_bytes <= quota {
            return;
        }
        // Somebody may have moved files away meanwhile: then there is room.
        for (path, size) in &mut self.done {
            *size = size_of(path).unwrap_or(0);
        }
        self.done_bytes = self.done.iter().map(|(_, size)| size).sum();
        while open + self.done_bytes > quota
            && let Some((path, size)) = self.done.pop_front()
        {
            self.done_bytes -= size;
            if is_held(&path) {
                continue;
            }
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                // Another recorder of this name was first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!("cannot delete {}: {error}", path.display());
                    continue;
                }
            }
            let mut report = self.report.lock();
            report.files.retain(|known| *known != path);
            report.deleted += 1;
            report.deleted_bytes += size;
        }
    }
}

impl Sink for Parts {
    fn write(&mut self, message: &Message, receipt: &Receipt) -> Result<(), McapWriteError> {
        self.last = message.log_time;
        let open = self.file_for(receipt.at)?;
        open.writer.write(message)?;
        open.start.get_or_insert(receipt.at);
        let bytes = open.writer.bytes();
        self.latched.keep(message, receipt);
        self.make_room(bytes);
        Ok(())
    }

    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError> {
        match &mut self.open {
            Some(open) => open.writer.write_metadata(name, values.clone()),
            None => self.begin()?.writer.write_metadata(name, values.clone()),
        }
    }

    fn flush(&mut self) -> Result<(), McapWriteError> {
        match &mut self.open {
            Some(open) => open.writer.flush(),
            None => Ok(()),
        }
    }

    fn unflushed(&self) -> u64 {
        let open = self.open.as_ref();
        open.map_or(0, |open| open.writer.open_messages())
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

    /// When the runs start.
    const START: i64 = 1_700_000_000_000_000_000;

    /// A message that came when it was logged.
    fn write(parts: &mut Parts, message: &Message) -> Result<(), McapWriteError> {
        let receipt = Receipt {
            at: message.log_time,
            publisher: None,
        };
        parts.write(message, &receipt)
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
        let (mut parts, report) =
            Parts::create(&path, START.into(), split, options(), tags).expect("begun");
        for at in 0..25 {
            write(&mut parts, &message(at, 10)).expect("written");
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
        let begun = Parts::create(&path, START.into(), split, options(), Tags::new());
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
            write(&mut parts, &message(at, 500)).expect("written");
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
    fn a_run_goes_on_after_those_before_and_never_replaces_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["run_7.mcap", "run_12.mcap", "run_x.mcap", "walk_90.mcap"] {
            std::fs::write(folder.path().join(name), "precious").expect("written");
        }
        // Neither is a folder.
        std::fs::create_dir(folder.path().join("run_13.mcap")).expect("made");
        let path = folder.path().join("run.mcap");
        let begun = Parts::create(
            &path,
            START.into(),
            SplitOptions::default(),
            options(),
            Tags::new(),
        );
        let (parts, report) = begun.expect("begun");
        Box::new(parts).finish().expect("finished");
        assert_eq!(report.lock().files, [folder.path().join("run_14.mcap")]);
        for name in ["run_7.mcap", "run_12.mcap", "run_x.mcap"] {
            let kept = std::fs::read(folder.path().join(name));
            assert_eq!(kept.expect("read"), b"precious");
        }
    }

    #[test]
    fn files_of_earlier_runs_count_into_the_quota_and_go_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let split = || SplitOptions {
            bytes: Some(10_000),
            quota: Some(50_000),
            ..SplitOptions::default()
        };
        for pattern in ["run.mcap", "walk-{time}.mcap"] {
            let path = folder.path().join(pattern);
            let mut names = Vec::new();
            for run in 0..4_i64 {
                let now = (START + run * 1_000_000_000).into();
                let begun = Parts::create(&path, now, split(), options(), Tags::new());
                let (mut parts, report) = begun.expect("begun");
                for at in 0..60 {
                    write(&mut parts, &message(run * 1_000 + at, 500)).expect("written");
                }
                Box::new(parts).finish().expect("finished");
                names.extend(report.lock().files.clone());
                let left: Vec<_> = names.iter().filter(|one| one.exists()).collect();
                let size = |path: &&PathBuf| path.metadata().map_or(0, |found| found.len());
                assert!(left.iter().map(size).sum::<u64>() <= 50_000);
                let newest: Vec<_> = names.iter().rev().take(left.len()).rev().collect();
                assert_eq!(left, newest, "the oldest went first");
            }
            assert!(names.len() >= 16 && !names[0].exists());
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_another_recorder_is_writing_is_not_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.mcap");
        let split = |bytes| SplitOptions {
            bytes: Some(bytes),
            quota: Some(20_000),
            ..SplitOptions::default()
        };
        let begin = |bytes| {
            let begun = Parts::create(&path, START.into(), split(bytes), options(), Tags::new());
            begun.expect("begun")
        };
        let (mut slow, of_slow) = begin(1 << 20);
        for at in 0..20 {
            write(&mut slow, &message(at, 500)).expect("written");
        }
        slow.flush().expect("flushed");
        let (mut fast, of_fast) = begin(2_000);
        for at in 100..300 {
            write(&mut fast, &message(at, 500)).expect("written");
        }
        Box::new(fast).finish().expect("finished");
        let report = of_fast.lock().clone();
        assert!(report.deleted > 5, "{report:?}");
        assert_eq!(
            times(&report.files[report.files.len() - 1]).last(),
            Some(&299)
        );
        for at in 20..25 {
            write(&mut slow, &message(at, 500)).expect("written");
        }
        Box::new(slow).finish().expect("finished");
        let files = of_slow.lock().files.clone();
        assert_eq!(times(&files[0]), (0..25).collect::<Vec<_>>());
        // From now on it may be.
        let (mut third, _) = begin(2_000);
        for at in 300..400 {
            write(&mut third, &message(at, 500)).expect("written");
        }
        Box::new(third).finish().expect("finished");
        assert!(!files[0].exists());
    }

    #[test]
    fn every_file_begins_with_the_last_latched_message_of_each_publisher() {
        let folder = tempfile::tempdir().expect("a folder");
        let split = SplitOptions {
            bytes: Some(10_000),
            quota: Some(50_000),
            ..SplitOptions::default()
        };
        let path = folder.path().join("run.mcap");
        let begun = Parts::create(&path, START.into(), split, options(), Tags::new());
        let (mut parts, report) = begun.expect("begun");
        let latched = |publisher: u8, at: i64| {
            let mut one = message(at, 600 + usize::from(publisher));
            one.channel = Arc::new(Channel {
                topic: "/tf_static".to_owned(),
                ..Channel::default()
            });
            let receipt = Receipt {
                at: at.into(),
                publisher: Some([publisher; 16]),
            };
            (one, receipt)
        };
        // The first one says it again, and the last counts.
        for (publisher, at) in [(1, 0), (2, 0), (1, 1)] {
            let (one, receipt) = latched(publisher, at);
            parts.write(&one, &receipt).expect("written");
        }
        for at in 2..400 {
            write(&mut parts, &message(at, 500)).expect("written");
        }
        Box::new(parts).finish().expect("finished");
        let report = report.lock().clone();
        assert!(report.deleted >= 10, "{report:?}");
        for file in &report.files {
            let file = asof_formats::open(file).expect("a recording");
            let batches = file.read(&Query::topics(["/tf_static"])).expect("read");
            let found = batches.flat_map(|batch| {
                let batch = batch.expect("a batch");
                let rows = batch.iter().map(|row| (row.log_time, row.payload.len()));
                rows.collect::<Vec<_>>()
            });
            let found: Vec<_> = found.collect();
            let start = file.summary().range.start;
            assert_eq!(found, [(start, 602), (start, 601)]);
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_keep_a_file_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let split = SplitOptions {
            time: Some(Duration::from_nanos(10)),
            ..SplitOptions::default()
        };
        let path = folder.path().join("run.mcap");
        let begun = Parts::create(&path, START.into(), split, options(), Tags::new());
        let (mut parts, report) = begun.expect("begun");
        for at in 0..500 {
            // An hour back after the first span.
            let logged = if at < 10 { 3_600_000_000_000 + at } else { at };
            let receipt = Receipt {
                at: at.into(),
                publisher: None,
            };
            parts
                .write(&message(logged, 10), &receipt)
                .expect("written");
        }
        Box::new(parts).finish().expect("finished");
        assert_eq!(report.lock().files.len(), 50);
    }

    #[test]
    fn files_that_were_moved_away_make_room_for_those_that_are_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let split = SplitOptions {
            bytes: Some(10_000),
            quota: Some(120_000),
            ..SplitOptions::default()
        };
        let path = folder.path().join("run.mcap");
        let begun = Parts::create(&path, START.into(), split, options(), Tags::new());
        let (mut parts, report) = begun.expect("begun");
        let mut at = 0;
        let mut until = |parts: &mut Parts, files: usize| {
            while report.lock().files.len() < files {
                write(parts, &message(at, 500)).expect("written");
                at += 1;
            }
        };
        until(&mut parts, 8);
        // All but the first one, which is still looked at.
        let files = report.lock().files.clone();
        for file in &files[1..7] {
            std::fs::remove_file(file).expect("removed");
        }
        until(&mut parts, 14);
        assert_eq!(report.lock().deleted, 0);
        assert!(files[0].exists());
        Box::new(parts).finish().expect("finished");
    }

    #[test]
    fn runs_after_one_another_go_on_though_files_were_removed_between_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.mcap");
        let spans = SplitOptions {
            time: Some(Duration::from_nanos(10)),
            ..SplitOptions::default()
        };
        let sizes = SplitOptions {
            bytes: Some(4_000),
            quota: Some(1 << 30),
            ..SplitOptions::default()
        };
        let mut at = 0;
        let mut removed = Vec::new();
        for (run, split) in [spans.clone(), sizes.clone(), spans, sizes]
            .into_iter()
            .enumerate()
        {
            let begun = Parts::create(&path, START.into(), split, options(), Tags::new());
            let (mut parts, report) = begun.expect("begun");
            for _ in 0..35 {
                write(&mut parts, &message(at, 500)).expect("written");
                at += 1;
            }
            Box::new(parts).finish().expect("finished");
            let files = report.lock().files.clone();
            assert!(files.len() >= 3, "{files:?}");
            // The first one, one in the middle, or the last one.
            let gone = &files[[0, 1, files.len() - 1, 0][run]];
            removed.extend(times(gone));
            std::fs::remove_file(gone).expect("removed");
        }
        let mut found = removed;
        for entry in std::fs::read_dir(folder.path()).expect("a folder") {
            found.extend(times(&entry.expect("a file").path()));
        }
        found.sort_unstable();
        assert_eq!(found, (0..at).collect::<Vec<_>>());
    }
}
