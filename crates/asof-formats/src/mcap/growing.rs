//! A file that is being written, as a source that grows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use asof_core::{
    AttachmentEntry, Batch, Batches, FileOrder, FileParts, Follow, FollowEnd, FollowFinished,
    FollowFused, Followed, Growth, HiddenRecords, MetadataEntry, Problem, ProblemKind, Progress,
    Query, ReadStats, Source, SourceError, Stamp, Summary, Topics,
};
use bytes::Bytes;
use mcap::records::op;

use super::follow::{McapFollower, RUN_BYTES, whole_record};
use super::record::{MAGIC_LEN, RecordHeader};
use super::walked::Walked;
use super::{Mcap, McapFile};
use crate::file::FormatFile;
use crate::options::OpenOptions;
use crate::problems::Problems;
use crate::storage::{PlainFile, Storage, failed};

/// An MCAP file that another process is writing, as a [`Source`] that [grows](Growth).
///
/// It holds the records that are complete. [`read`](Source::read) and [`latest_at`](Source::latest_at) answer from what
/// the file holds when they are called; [`follow`](Source::follow) continues with what is written next, chunk by chunk.
/// When its writer closes the file, it is finished like any other. A writer that was killed never does: nothing new
/// comes, and the caller decides how long to wait.
///
/// [`open_with`](crate::open_with) opens one if [`OpenOptions::growing`](crate::OpenOptions::growing) is set and the
/// file has no footer.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use asof_core::{Followed, Query, Source};
/// use asof_formats::GrowingMcapFile;
///
/// let file = GrowingMcapFile::open("recording.mcap", &Default::default())?;
/// let mut follower = file.follow(&Query::topics(["/odom"]))?;
/// loop {
///     match follower.next(Instant::now() + Duration::from_secs(1))? {
///         Followed::Batch(batch) => println!("{} messages", batch.len()),
///         Followed::CaughtUp | Followed::Restarted => println!("waiting"),
///         Followed::End(_) => break,
///     }
/// }
/// # Ok::<(), asof_core::SourceError>(())
/// ```
pub struct GrowingMcapFile {
    path: PathBuf,
    options: OpenOptions,
    state: Mutex<State>,
    /// Problems that followers found: they have read further than anyone else.
    problems: Arc<Mutex<Problems>>,
    /// The summary that was returned last, where it is not that of the file so far.
    summary: Mutex<Arc<Summary>>,
}

struct State {
    storage: PlainFile,
    /// The end of the last complete record.
    end: u64,
    /// The file up to there; `None` before its first bytes are written.
    whole: Option<Arc<McapFile>>,
    /// The length of the file that `whole` covers.
    opened: u64,
    /// The result of scanning the part that will not change.
    walked: Walked,
    /// The end of that part: the last record that may still be extended.
    settled: u64,
    /// Whether that record is a message, which others may follow in one run.
    is_run: bool,
    is_finished: bool,
}

/// How long a follower sleeps between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl GrowingMcapFile {
    /// Opens a file, which may still be empty.
    ///
    /// # Errors
    /// When it cannot be opened, or does not start like an MCAP file.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, SourceError> {
        let path = path.as_ref();
        let storage = PlainFile::open(path).map_err(|cause| failed(path, cause))?;
        let file = GrowingMcapFile {
            path: path.to_owned(),
            options: options.clone(),
            state: Mutex::new(State {
                storage,
                end: 0,
                whole: None,
                opened: 0,
                walked: Walked::start(),
                settled: MAGIC_LEN,
                is_run: false,
                is_finished: false,
            }),
            problems: Arc::default(),
            summary: Mutex::new(Arc::new(Summary::empty("mcap"))),
        };
        drop(file.up_to_now()?);
        Ok(file)
    }

    /// Whether a file may become an MCAP file, or is one without a footer.
    pub(crate) fn is_one(path: &Path) -> Result<bool, SourceError> {
        let plain = PlainFile::open(path).map_err(|cause| failed(path, cause))?;
        let storage: &dyn Storage = &plain;
        let front = storage.get(0, MAGIC_LEN)?;
        let back = storage.size().saturating_sub(MAGIC_LEN);
        let has_end = back > 0 && storage.get(back, MAGIC_LEN)? == mcap::MAGIC;
        Ok(mcap::MAGIC.starts_with(&front) && !has_end)
    }

    /// The file as it is now; `None` before its first bytes are written.
    fn up_to_now(&self) -> Result<MutexGuard<'_, State>, SourceError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_finished {
            state.look()?;
        }
        let size = if state.is_finished {
            state.storage.size()
        } else {
            state.end
        };
        if size > state.opened {
            let front = state.storage.front(size);
            let front = front.map_err(|cause| failed(&self.path, cause))?;
            let (front, options) = (Box::new(front), &self.options);
            let file = if state.is_finished {
                McapFile::from_storage(front, options)?
            } else {
                state.go_on(front, options)?
            };
            state.whole = Some(Arc::new(file));
            state.opened = size;
        }
        Ok(state)
    }

    fn whole(&self) -> Result<Option<Arc<McapFile>>, SourceError> {
        Ok(self.up_to_now()?.whole.clone())
    }

    /// The problems that followers found.
    fn met(&self) -> Vec<Problem> {
        let problems = self.problems.lock();
        problems.unwrap_or_else(PoisonError::into_inner).to_vec()
    }

    /// The state without another look at the file, for calls that cannot fail.
    fn known(&self) -> MutexGuard<'_, State> {
        match self.up_to_now() {
            Ok(state) => state,
            Err(error) => {
                tracing::debug!(%error, "the file can no longer be read");
                self.state.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}

impl State {
    /// Steps over the records that were completed since the last look.
    fn look(&mut self) -> Result<(), SourceError> {
        let (place, offset) = (self.storage.name().to_owned(), self.end);
        self.storage.refresh().map_err(|cause| SourceError::Io {
            place,
            offset,
            cause,
        })?;
        let storage: &dyn Storage = &self.storage;
        if storage.size() < self.end {
            return Err(SourceError::Unreadable {
                place: storage.name().to_owned(),
                reason: "it became shorter while it was being read; open it again".to_owned(),
            });
        }
        if self.end == 0 {
            let front = storage.get(0, MAGIC_LEN)?;
            if front == mcap::MAGIC {
                self.end = MAGIC_LEN;
            } else if !mcap::MAGIC.starts_with(&front) {
                return Err(SourceError::Unreadable {
                    place: storage.name().to_owned(),
                    reason: "only an MCAP file can be followed while it is written, and this is not one; read it without following it".to_owned(),
                });
            }
        }
        while self.end > 0
            && let Some(header) = whole_record(&self.storage, self.end)?
        {
            if header.opcode == op::FOOTER {
                // The magic after it is the last thing that is written.
                let storage: &dyn Storage = &self.storage;
                let magic = storage.get(header.end(), MAGIC_LEN)?;
                self.is_finished = magic == mcap::MAGIC;
                break;
            }
            self.settle_before(header);
            self.end = header.end();
        }
        Ok(())
    }

    /// Settles what a record completes: everything before it, unless both belong to one chunk or one run.
    fn settle_before(&mut self, header: RecordHeader) {
        let is_message = header.opcode == op::MESSAGE;
        let goes_on = is_message && self.is_run && header.offset - self.settled < RUN_BYTES;
        if !goes_on && header.opcode != op::MESSAGE_INDEX {
            self.settled = header.offset;
        }
        self.is_run = is_message;
    }

    /// The file up to `end`; only the new part is scanned.
    fn go_on(
        &mut self,
        front: Box<PlainFile>,
        options: &OpenOptions,
    ) -> Result<McapFile, SourceError> {
        if let Some(before) = &self.whole {
            // A scan does not repeat problems that reading has found since.
            self.walked
                .keep_problems(before.summary().problems.iter().cloned());
        }
        Mcap::open_grown(front, options, &mut self.walked, self.settled).map(FormatFile::new)
    }

    /// Whether a problem is only that the rest is not yet written.
    fn is_to_come(&self, problem: &Problem) -> bool {
        let at_the_end = problem.offset.is_some_and(|offset| offset >= self.opened);
        !self.is_finished && problem.kind == ProblemKind::Truncated && at_the_end
    }
}

impl Source for GrowingMcapFile {
    fn summary(&self) -> Arc<Summary> {
        let state = self.known();
        let empty = || Arc::new(Summary::empty("mcap"));
        let whole = state.whole.as_ref();
        let summary = whole.map_or_else(empty, Source::summary);
        let met = self.met();
        let is_to_come = |problem: &Problem| state.is_to_come(problem);
        if whole.is_some() && met.is_empty() && !summary.problems.iter().any(is_to_come) {
            return summary;
        }
        let mut summary = Summary::clone(&summary);
        summary.problems.retain(|problem| !is_to_come(problem));
        add_unknown(&mut summary.problems, met);
        let mut last = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
        if **last != summary {
            *last = Arc::new(summary);
        }
        Arc::clone(&last)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        match self.whole()? {
            Some(whole) => whole.read(query),
            None => Ok(Box::new(std::iter::empty())),
        }
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        match self.whole()? {
            Some(whole) => whole.latest_at(topics, at),
            None => Ok(Batch::default()),
        }
    }

    fn growth(&self) -> Growth {
        if self.known().is_finished {
            Growth::Finished
        } else {
            Growth::Growing
        }
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        let state = self.up_to_now()?;
        let held: Batches = match &state.whole {
            Some(whole) => whole.read(query)?,
            None => Box::new(std::iter::empty()),
        };
        if state.is_finished {
            return Ok(Box::new(FollowFinished::new(held)));
        }
        let shared = state.whole.as_ref().map(|whole| Arc::clone(&whole.shared));
        let follower =
            McapFollower::from_place(&self.path, state.end, shared, self.options.limits)?;
        Ok(Box::new(FollowFused::new(FollowGrowing {
            held: Some(held),
            follower,
            query: query.clone(),
            problems: Arc::clone(&self.problems),
        })))
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        Some(self)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        let state = self.up_to_now()?;
        let Some(whole) = state.whole.clone() else {
            return Ok(Vec::new());
        };
        let mut problems = whole.check(progress)?;
        problems.retain(|problem| !state.is_to_come(problem));
        add_unknown(&mut problems, self.met());
        Ok(problems)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        let whole = self.known().whole.clone();
        whole.and_then(|whole| whole.read_stats())
    }
}

impl FileParts for GrowingMcapFile {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        match self.whole()? {
            Some(whole) => whole.attachment(entry),
            None => Err(SourceError::without("mcap", "attachment", &entry.name)),
        }
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        match self.whole()? {
            Some(whole) => whole.metadata(entry),
            None => Err(SourceError::without("mcap", "metadata", &entry.name)),
        }
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        match self.whole()? {
            Some(whole) => whole.hidden(topics),
            None => Ok(Box::new(std::iter::empty())),
        }
    }
}

impl FileOrder for GrowingMcapFile {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        match self.whole()? {
            Some(whole) => whole.read_in_file_order(query),
            None => Ok(Box::new(std::iter::empty())),
        }
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        let whole = self.known().whole.clone();
        whole.map_or(0, |whole| whole.bytes_held_by_order(query))
    }
}

impl std::fmt::Debug for GrowingMcapFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GrowingMcapFile({})", self.path.display())
    }
}

/// Adds problems at offsets that have none yet.
fn add_unknown(problems: &mut Vec<Problem>, met: Vec<Problem>) {
    for problem in met {
        let is_same =
            |known: &Problem| known.kind == problem.kind && known.offset == problem.offset;
        if !problems.iter().any(is_same) {
            problems.push(problem);
        }
    }
}

/// First what the file held, then what is written.
struct FollowGrowing {
    held: Option<Batches>,
    follower: McapFollower,
    query: Query,
    /// The problems of the file.
    problems: Arc<Mutex<Problems>>,
}

impl FollowGrowing {
    /// The messages written since the last poll.
    fn poll(&mut self) -> Result<Option<Batch>, SourceError> {
        let polled = self.follower.poll();
        let met = self.follower.take_problems();
        if !met.is_empty() {
            let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
            problems.extend(met);
        }
        polled
    }
}

impl Follow for FollowGrowing {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        if let Some(held) = &mut self.held {
            match held.next() {
                Some(batch) => return batch.map(Followed::Batch),
                None => self.held = None,
            }
        }
        loop {
            match self.poll() {
                Ok(Some(batch)) => {
                    if batch.range().start > self.query.range.end {
                        return Ok(Followed::End(FollowEnd::Complete));
                    }
                    let query = &self.query;
                    let chosen = batch.only(|one| query.matches(&one.channel.topic, one.log_time));
                    if let Some(batch) = chosen {
                        return Ok(Followed::Batch(batch));
                    }
                    continue;
                }
                Ok(None) if self.follower.is_finished() => {
                    return Ok(Followed::End(FollowEnd::Complete));
                }
                Ok(None) => {}
                Err(error @ SourceError::Unreadable { .. }) => {
                    return Ok(Followed::End(FollowEnd::Lost(error.to_string())));
                }
                Err(error) => return Err(error),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Followed::CaughtUp);
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

#[cfg(test)]
mod tests {
    use asof_core::{Channel, Message};

    use super::*;
    use crate::{Compression, McapWriter, McapWriterOptions};

    /// Writes a chunk with a message on every topic.
    fn write(
        writer: &mut McapWriter<std::io::BufWriter<std::fs::File>>,
        channels: &[Arc<Channel>],
        second: i64,
    ) {
        let at = Stamp::from_nanos(second * 1_000_000_000);
        for channel in channels {
            let message = Message {
                channel: Arc::clone(channel),
                log_time: at,
                publish_time: at,
                sequence: second as u32,
                payload: vec![7; 500].into(),
            };
            writer.write(&message).expect("written");
        }
        writer.tick(Stamp::MAX).expect("written");
        writer.flush().expect("flushed");
    }

    #[test]
    fn a_look_at_what_was_added_reads_no_more_in_a_long_file_than_in_a_short_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.mcap");
        let options = McapWriterOptions {
            compression: Compression::Zstd,
            chunk_age: Some(Duration::from_nanos(1)),
            ..McapWriterOptions::default()
        };
        let mut writer = McapWriter::create(&path, options).expect("creates");
        writer.flush().expect("flushed");
        let channel = |number: usize| {
            Arc::new(Channel {
                topic: format!("/{number}"),
                ..Channel::default()
            })
        };
        let channels: Vec<_> = (0..20).map(channel).collect();
        let file = GrowingMcapFile::open(&path, &OpenOptions::default()).expect("opens");
        let read = || file.state.lock().expect("no panic").storage.read_bytes();
        let mut looks = Vec::new();
        for second in 1..=200 {
            write(&mut writer, &channels, second);
            let before = read();
            let summary = file.summary();
            looks.push(read() - before);
            assert_eq!(summary.messages, Some(20 * second as u64));
            assert_eq!(summary.chunks, second as u64);
            assert_eq!(summary.range.end, Stamp::from_nanos(second * 1_000_000_000));
            assert_eq!(summary.problems, []);
        }
        let most = |looks: &[u64]| looks.iter().max().copied().unwrap_or(0);
        let (early, late) = (most(&looks[5..15]), most(&looks[190..]));
        assert!(
            early > 0 && late < early + early / 10,
            "{early}, then {late} bytes"
        );
    }
}
