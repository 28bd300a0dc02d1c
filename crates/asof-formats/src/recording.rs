//! The interface of every recording, whatever its format.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, Batches, Channel, ChannelSummary, MetadataEntry, Problem, ProblemKind, Query,
    Source, SourceError, Stamp, TimeRange, Topics,
};
use bytes::Bytes;

/// A progress callback: bytes done, bytes in total.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// A recording: a [`Source`] with attachments, metadata and checks.
///
/// [`open`](crate::open) returns one, and all other crates use it through this trait. A running robot is one too:
/// what only files have is empty by default.
pub trait Recording: Source {
    /// Whether it still is what its summary describes, where that is known from elsewhere.
    ///
    /// # Errors
    /// When it has changed, or is gone.
    fn verify(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// The contents of an attachment that the summary lists.
    ///
    /// # Errors
    /// When there is no attachment at the entry's offset.
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        Err(has_none(&self.summary().format, "attachment", &entry.name))
    }

    /// The contents of a metadata record that the summary lists.
    ///
    /// # Errors
    /// When there is no metadata at the entry's offset.
    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        Err(has_none(&self.summary().format, "metadata", &entry.name))
    }

    /// Reads everything, and checks all parts against each other as far as the format allows. Returns all problems,
    /// including those found when the recording was opened.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        check_by_reading(self, progress)
    }

    /// The matching messages in file order: each batch is sorted, but the next one may start earlier. For callers that
    /// sort themselves, in memory that does not depend on how disordered the file is.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        self.read(query)
    }

    /// About how many bytes [`read`](Source::read) holds at once, where the parts of the file overlap most.
    fn bytes_held_by_order(&self, _query: &Query) -> u64 {
        0
    }

    /// Records that a copy must keep although readers do not see them: messages whose time does not fit a
    /// [`Stamp`](asof_core::Stamp), and private records of the writer. Some are found only when messages are read.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        let _ = topics;
        Ok(Box::new(std::iter::empty()))
    }

    /// The cost of reading so far, for formats that count it.
    fn read_stats(&self) -> Option<ReadStats> {
        None
    }

    /// The parts of the file that hold messages, in file order, from its indexes alone: nothing is read. Empty for a
    /// format without such parts (db3), and when they are not in a file of their own (several as one, files that are
    /// compressed as a whole).
    fn sections(&self) -> Vec<SectionEntry> {
        Vec::new()
    }

    /// The log times of a topic's messages in a range, sorted, from the indexes alone: nothing is decompressed. `None`
    /// if the messages must be read: without indexes, if the indexes do not add up to the summary's count, in a damaged
    /// file, on a network (where each index is a request), and if there are too many times to hold in memory.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn log_times(
        &self,
        _topic: &str,
        _range: TimeRange,
    ) -> Result<Option<Vec<Stamp>>, SourceError> {
        Ok(None)
    }
}

/// The cost of reading so far, for all readers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    /// Chunks that were read.
    pub chunks: u64,
    /// Of these, chunks that were decompressed.
    pub decompressed_chunks: u64,
    /// Bytes after decompression.
    pub decompressed_bytes: u64,
}

/// A part of a file that is read as one: a chunk, or a run of messages outside of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionEntry {
    /// Byte offset in the file.
    pub offset: u64,
    /// Its length in the file.
    pub length: u64,
    /// Its declared length once decompressed.
    pub uncompressed: u64,
    /// Its compression; empty for none.
    pub compression: String,
    /// All messages in it are within this range.
    pub range: TimeRange,
    /// The channels with messages in it; `None` if only reading could list them.
    pub channels: Option<Vec<Arc<Channel>>>,
}

/// See [`Recording::hidden`].
pub type HiddenRecords = Box<dyn Iterator<Item = Result<HiddenRecord, SourceError>> + Send>;

/// A record that readers do not see.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HiddenRecord {
    /// A message whose log time is past the year 2262.
    Message {
        /// Its channel.
        channel: Arc<Channel>,
        /// Nanoseconds since 1970.
        log_time: u64,
        /// Nanoseconds since 1970.
        publish_time: u64,
        /// Its sequence number.
        sequence: u32,
        /// Its payload.
        payload: Bytes,
    },
    /// A record with an opcode that the format reserves for writers.
    Private {
        /// Its opcode, 0x80 or higher.
        opcode: u8,
        /// Its contents.
        data: Bytes,
    },
}

impl<R: Recording + ?Sized> Recording for Arc<R> {
    fn verify(&self) -> Result<(), SourceError> {
        (**self).verify()
    }

    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        (**self).attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        (**self).metadata(entry)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        (**self).check(progress)
    }

    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        (**self).read_in_file_order(query)
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        (**self).bytes_held_by_order(query)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        (**self).hidden(topics)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        (**self).read_stats()
    }

    fn sections(&self) -> Vec<SectionEntry> {
        (**self).sections()
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        (**self).log_times(topic, range)
    }
}

/// Reads every message, for formats whose reader finds all damage, and compares the summary's counts with what was
/// read.
pub(crate) fn check_by_reading<R: Recording + ?Sized>(
    recording: &R,
    progress: Progress<'_>,
) -> Result<Vec<Problem>, SourceError> {
    let before = recording.summary();
    let mut messages = 0;
    let mut bytes = 0;
    let mut by_channel: HashMap<*const Channel, u64> = HashMap::new();
    let mut before_epoch = 0u64;
    for batch in recording.read_in_file_order(&Query::all())? {
        let batch = batch?;
        messages += batch.len() as u64;
        bytes += batch.payload_bytes();
        for row in batch.rows() {
            let channel = Arc::as_ptr(&batch.channels()[row.channel as usize]);
            *by_channel.entry(channel).or_default() += 1;
            before_epoch += u64::from(row.log_time.min(row.publish_time) < Stamp::EPOCH);
        }
        progress(bytes.min(before.size), before.size);
    }
    progress(before.size, before.size);
    let mut problems = recording.summary().problems.clone();
    if before_epoch > 0 {
        let message = format!(
            "{before_epoch} messages have a time before 1970: the clock was not set, or the file is damaged; MCAP cannot hold such times"
        );
        problems.push(Problem::whole(ProblemKind::BadTime, message));
    }
    if let Some(declared) = before.messages.filter(|&declared| declared != messages) {
        let message = format!("the index counts {declared} messages, but {messages} can be read");
        problems.push(Problem::whole(ProblemKind::BadStatistics, message));
        return Ok(problems);
    }
    for entry in &before.channels {
        let read = by_channel.get(&Arc::as_ptr(&entry.channel)).copied();
        let read = read.unwrap_or(0);
        if let Some(declared) = entry.messages.filter(|&declared| declared != read) {
            let message =
                format!("the index counts {declared} messages on it, but {read} can be read");
            let problem = Problem::whole(ProblemKind::BadStatistics, message);
            problems.push(problem.on_topic(&entry.channel.topic));
        }
    }
    Ok(problems)
}

/// The channels of a file with their counts, sorted by their ids in the file.
pub(crate) fn counted_channels<N: Ord + Copy>(
    ids: &[N],
    channels: &[Arc<Channel>],
    counts: &BTreeMap<N, u64>,
) -> Vec<ChannelSummary> {
    let mut channels: Vec<_> = ids.iter().zip(channels).collect();
    channels.sort_by_key(|&(id, _)| *id);
    channels
        .into_iter()
        .map(|(id, channel)| ChannelSummary {
            channel: Arc::clone(channel),
            messages: Some(counts.get(id).copied().unwrap_or(0)),
        })
        .collect()
}

/// The error of a format without attachments or metadata.
pub(crate) fn has_none(place: &str, what: &str, name: &str) -> SourceError {
    SourceError::Unreadable {
        place: place.to_owned(),
        reason: format!("it has no {what} '{name}'"),
    }
}
