//! A ring of files on disk, for snapshots.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asof_core::{Message, Query, Source, Stamp, TimeRange};
use asof_formats::{Compression, McapFile, McapWriteError, McapWriter, McapWriterOptions};

use crate::backlog::{BacklogStats, wrote};

/// About how many files a ring has: the oldest is deleted as a whole.
const RING_FILES: u32 = 8;
/// At most this many files, after many snapshots: then the oldest is deleted too.
const MOST_FILES: usize = 64;
/// The shortest time that a file of a ring covers.
const MIN_FILE_DURATION: Duration = Duration::from_millis(250);

/// A clock that is ahead of the one of receipt by more or less than before, by more than this, was set.
const CLOCK_SET: u64 = 1_000_000_000;

/// Numbers the rings of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Files in a folder of their own, the newest messages in the last one.
///
/// They are MCAP files: those that a killed recorder leaves can be opened.
pub(crate) struct Ring {
    folder: PathBuf,
    keep: Duration,
    limit: u64,
    options: McapWriterOptions,
    open: Option<Open>,
    closed: VecDeque<Closed>,
    /// When the last message came.
    now: Stamp,
    next: u64,
    crowded_out: u64,
}

struct Open {
    path: PathBuf,
    writer: McapWriter<BufWriter<File>>,
    times: Times,
}

struct Closed {
    path: PathBuf,
    times: Times,
    /// When it was closed.
    ended: Stamp,
    messages: u64,
    bytes: u64,
}

/// The times of a file's messages.
#[derive(Clone, Copy)]
struct Times {
    /// When its first message came.
    begun: Stamp,
    /// Their log times.
    logged: TimeRange,
    /// How far log times are ahead of the clock of receipt; `None` if their clock was set meanwhile.
    ahead: Option<i64>,
}

impl Times {
    fn add(&mut self, logged: Stamp, came: Stamp) {
        let (start, end) = (self.logged.start, self.logged.end);
        self.logged = TimeRange::new(start.min(logged), end.max(logged));
        let ahead = logged.since(came);
        self.ahead = self
            .ahead
            .filter(|before| ahead.abs_diff(*before) <= CLOCK_SET);
    }

    /// The log times of the messages that came since a time; of a file in which the clock was set, all.
    fn logged_since(&self, cut: Stamp) -> TimeRange {
        let cut = match self.ahead {
            Some(ahead) => cut.plus_nanos(ahead),
            None => Stamp::MIN,
        };
        TimeRange::new(cut, Stamp::MAX).intersect(self.logged)
    }
}

impl Ring {
    /// Creates a ring in a new folder within `folder`, which is created where it does not exist.
    pub fn new(
        within: &Path,
        keep: Duration,
        limit: u64,
        options: &McapWriterOptions,
    ) -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = within.join(format!("asof-ring-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Ring {
            folder,
            keep,
            limit,
            options: McapWriterOptions {
                // Most of it is never read again.
                compression: Compression::Lz4,
                level: 0,
                ..options.clone()
            },
            open: None,
            closed: VecDeque::new(),
            now: Stamp::EPOCH,
            next: 0,
            crowded_out: 0,
        })
    }

    /// Keeps a message that came at this time, by a clock that never goes back.
    pub fn push(&mut self, message: &Message, came: Stamp) -> Result<(), McapWriteError> {
        self.now = came;
        if self.open.as_ref().is_some_and(|open| self.is_full(open)) {
            self.close()?;
        }
        if self.open.is_none() {
            self.open = Some(self.begin(message.log_time)?);
        }
        if let Some(open) = &mut self.open {
            open.writer.write(message)?;
            open.times.add(message.log_time, came);
        }
        Ok(())
    }

    fn is_full(&self, open: &Open) -> bool {
        let age = self.now.since(open.times.begun);
        let longest = (self.keep / RING_FILES).max(MIN_FILE_DURATION);
        u128::try_from(age).is_ok_and(|age| age >= longest.as_nanos())
            || open.writer.bytes() >= self.limit / u64::from(RING_FILES)
    }

    fn begin(&mut self, logged: Stamp) -> Result<Open, McapWriteError> {
        let path = self.folder.join(format!("{}.mcap", self.next));
        self.next += 1;
        let file = BufWriter::with_capacity(1 << 17, File::create(&path)?);
        Ok(Open {
            path,
            writer: McapWriter::new(file, self.options.clone())?,
            times: Times {
                begun: self.now,
                logged: TimeRange::new(logged, logged),
                ahead: Some(logged.since(self.now)),
            },
        })
    }

    /// Finishes the current file, and deletes files that are too old or exceed the budget.
    fn close(&mut self) -> Result<(), McapWriteError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let messages = open.writer.written();
        open.writer.finish()?;
        self.closed.push_back(Closed {
            bytes: fs::metadata(&open.path)?.len(),
            path: open.path,
            times: open.times,
            ended: self.now,
            messages,
        });
        self.evict()
    }

    fn evict(&mut self) -> Result<(), McapWriteError> {
        let keep = i64::try_from(self.keep.as_nanos()).unwrap_or(i64::MAX);
        while let Some(file) = self.closed.front() {
            let is_old = self.now.since(file.ended) > keep || self.closed.len() > MOST_FILES;
            let bytes: u64 = self.closed.iter().map(|file| file.bytes).sum();
            if !is_old && bytes <= self.limit {
                return Ok(());
            }
            if !is_old {
                self.crowded_out += file.messages;
            }
            fs::remove_file(&file.path)?;
            self.closed.pop_front();
        }
        Ok(())
    }

    /// When the oldest of its messages came.
    pub fn start(&self) -> Option<Stamp> {
        let oldest = self.closed.front().map(|file| file.times);
        let oldest = oldest.or(self.open.as_ref().map(|open| open.times));
        oldest.map(|times| times.begun)
    }

    /// The earliest log time of the messages that came since a time.
    pub fn first_logged(&self, cut: Stamp) -> Option<Stamp> {
        let closed = self.closed.iter().filter(|file| file.ended >= cut);
        let times = closed
            .map(|file| file.times)
            .chain(self.open.as_ref().map(|open| open.times));
        let ranges = times.map(|times| times.logged_since(cut));
        ranges
            .filter(|range| !range.is_empty())
            .map(|range| range.start)
            .min()
    }

    /// Writes the messages that came since a time; returns how many.
    pub fn copy<W: Write + Seek>(
        &mut self,
        cut: Stamp,
        to: &mut McapWriter<W>,
    ) -> Result<u64, McapWriteError> {
        self.close()?;
        let mut written = 0;
        for file in self.closed.iter().filter(|file| file.ended >= cut) {
            let range = file.times.logged_since(cut);
            if range.is_empty() {
                continue;
            }
            let file = McapFile::open(&file.path).map_err(io::Error::other)?;
            let batches = file.read(&Query::all().between(range));
            for batch in batches.map_err(io::Error::other)? {
                let batch = batch.map_err(io::Error::other)?;
                for message in batch.iter() {
                    written += u64::from(wrote(to.write_ref(message))?);
                }
            }
        }
        Ok(written)
    }

    pub fn stats(&self) -> BacklogStats {
        let open = self.open.as_ref().map(|open| &open.writer);
        let mut stats = BacklogStats {
            messages: open.map_or(0, McapWriter::written),
            bytes: open.map_or(0, McapWriter::bytes),
            crowded_out: self.crowded_out,
        };
        for file in &self.closed {
            stats.messages += file.messages;
            stats.bytes += file.bytes;
        }
        stats
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.open = None;
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!("cannot delete {}: {error}", self.folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asof_core::Channel;

    use super::*;

    fn message(seconds: i64, size: usize) -> Message {
        Message {
            channel: Arc::new(Channel {
                topic: "/scan".to_owned(),
                message_encoding: "cdr".to_owned(),
                ..Channel::default()
            }),
            log_time: (seconds * 1_000_000_000).into(),
            publish_time: (seconds * 1_000_000_000).into(),
            sequence: 0,
            // Bytes that do not compress.
            payload: (0..size)
                .scan(seconds as u64 + 1, |state, _| {
                    *state = state.wrapping_mul(6_364_136_223_846_793_005) ^ (*state >> 29);
                    Some((*state >> 40) as u8)
                })
                .collect::<Vec<u8>>()
                .into(),
        }
    }

    fn ring(folder: &Path, limit: u64) -> Ring {
        let options = McapWriterOptions::default();
        Ring::new(folder, Duration::from_secs(16), limit, &options).expect("a ring")
    }

    /// The seconds that a copy of a range has.
    fn copied(ring: &mut Ring, from: i64) -> Vec<i64> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut writer =
            McapWriter::new(file.reopen().expect("a file"), McapWriterOptions::default())
                .expect("a writer");
        let cut = (from * 1_000_000_000).into();
        let count = ring.copy(cut, &mut writer).expect("copied");
        writer.finish().expect("finished");
        let source = McapFile::open(file.path()).expect("a recording");
        let mut seconds = Vec::new();
        for batch in source.read(&Query::all()).expect("read") {
            let batch = batch.expect("a batch");
            seconds.extend(batch.iter().map(|one| one.log_time.nanos() / 1_000_000_000));
        }
        assert_eq!(count, seconds.len() as u64);
        seconds
    }

    /// A message that came when it was logged.
    fn push(ring: &mut Ring, message: &Message) -> Result<(), McapWriteError> {
        ring.push(message, message.log_time)
    }

    fn on_disk(folder: &Path) -> u64 {
        let mut size = 0;
        for ring in fs::read_dir(folder).expect("a folder") {
            for file in fs::read_dir(ring.expect("a ring").path()).expect("files") {
                size += file.expect("a file").metadata().expect("its size").len();
            }
        }
        size
    }

    #[test]
    fn a_ring_holds_what_is_young_and_lets_go_of_the_rest() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ring = ring(folder.path(), 1 << 30);
        for second in 0..100 {
            push(&mut ring, &message(second, 10)).expect("kept");
        }
        assert_eq!(copied(&mut ring, 90), (90..100).collect::<Vec<_>>());
        let all = copied(&mut ring, 0);
        assert!(all.len() >= 16 && all.len() <= 21, "{all:?}");
        // It goes on after a copy.
        push(&mut ring, &message(100, 10)).expect("kept");
        assert_eq!(copied(&mut ring, 99), [99, 100]);
        assert_eq!(ring.stats().crowded_out, 0);
        drop(ring);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_ring_has_no_more_bytes_than_it_may_and_counts_what_that_costs() {
        let folder = tempfile::tempdir().expect("a folder");
        let (limit, size) = (400_000, 20_000);
        let mut ring = ring(folder.path(), limit);
        for number in 0..200 {
            let mut one = message(0, size);
            one.log_time = (number * 10_000_000).into();
            push(&mut ring, &one).expect("kept");
            let used = on_disk(folder.path());
            assert!(used <= limit + limit / 4, "{used} bytes after {number}");
        }
        let stats = ring.stats();
        assert_eq!(stats.messages + stats.crowded_out, 200, "{stats:?}");
        assert!(stats.messages >= 10, "{stats:?}");
    }

    #[test]
    fn one_time_far_in_the_future_costs_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ring = ring(folder.path(), 1 << 30);
        for second in 0..10 {
            push(&mut ring, &message(second, 10)).expect("kept");
        }
        ring.push(&message(4_000_000_000, 10), (10 * 1_000_000_000).into())
            .expect("kept");
        for second in 10..20 {
            push(&mut ring, &message(second, 10)).expect("kept");
        }
        let near: Vec<i64> = copied(&mut ring, 5);
        assert!(near.starts_with(&(5..20).collect::<Vec<_>>()), "{near:?}");
    }
}
