//! What every recording can do, whatever its format.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, Batches, Channel, ChannelSummary, MetadataEntry, Problem, ProblemKind, Query,
    Source, SourceError, Stamp, TimeRange, Topics,
};
use bytes::Bytes;

/// How far a long look has come: bytes done, bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// A recording: a [`Source`] with what lies beside its messages.
///
/// [`open`](crate::open) returns one, and everything above this crate speaks to it alone. A running robot is one too:
/// what only files have is empty by default.
pub trait Recording: Source {
    /// The contents of an attachment that the summary lists.
    ///
    /// # Errors
    /// When there is no attachment where the entry says.
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        Err(has_none(&self.summary().format, "attachment", &entry.name))
    }

    /// The contents of a named set of text that the summary lists.
    ///
    /// # Errors
    /// When there is none where the entry says.
    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        Err(has_none(&self.summary().format, "metadata", &entry.name))
    }

    /// Reads everything, and holds every part against every other as far as the format can. Returns all
    /// problems, those of opening included.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        check_by_reading(self, progress)
    }

    /// The messages that match, as they lie in the file: each batch is in order, but the next one may start
    /// earlier. For those who sort for themselves, in memory that does not depend on the file's disorder.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        self.read(query)
    }

    /// About how many bytes [`read`](Source::read) holds at once, where the file's parts overlap most.
    fn bytes_held_by_order(&self, _query: &Query) -> u64 {
        0
    }

    /// What a copy of the recording keeps although no reader is shown it: messages whose time no
    /// [`Stamp`](asof_core::Stamp) can hold, and records that are private to the writer. Some are known
    /// once the messages were read.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        let _ = topics;
        Ok(Box::new(std::iter::empty()))
    }

    /// What reading has cost so far, for formats that count it.
    fn read_stats(&self) -> Option<ReadStats> {
        None
    }

    /// Where in the file which messages lie, in file order, as far as its indexes tell: nothing is read for it. Empty
    /// where a format has no such parts (a db3), and where they lie in no file of their own (several as one, files that
    /// were compressed as a whole).
    fn sections(&self) -> Vec<SectionEntry> {
        Vec::new()
    }

    /// The log times of a topic's messages within a range, in order, by the indexes alone: nothing is decompressed for
    /// them. `None` where only reading tells: without indexes, where they do not add up to what the summary counts, in a
    /// damaged file, on a network (where each index is a request), and where there are more of them than memory should
    /// hold at once.
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

/// What reading has cost so far, over all readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    /// Chunks that were opened.
    pub chunks: u64,
    /// Chunks among them that had to be decompressed.
    pub decompressed_chunks: u64,
    /// Bytes that decompression made.
    pub decompressed_bytes: u64,
}

/// A part of a file that is read as one: a chunk, or messages that follow each other outside of any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionEntry {
    /// Where it starts in the file.
    pub offset: u64,
    /// Its length in the file.
    pub length: u64,
    /// Its length once decompressed, as declared.
    pub uncompressed: u64,
    /// Its compression; empty for none.
    pub compression: String,
    /// No message in it is earlier or later than this.
    pub range: TimeRange,
    /// The channels whose messages lie in it; `None` where only reading would tell.
    pub channels: Option<Vec<Arc<Channel>>>,
}

/// See [`Recording::hidden`].
pub type HiddenRecords = Box<dyn Iterator<Item = Result<HiddenRecord, SourceError>> + Send>;

/// Something in a recording that reading does not show.
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
    /// A record of a kind that the format leaves to writers.
    Private {
        /// Its kind, from 0x80 on.
        opcode: u8,
        /// Its contents.
        data: Bytes,
    },
}

impl<R: Recording + ?Sized> Recording for Arc<R> {
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

/// Reads every message, for formats whose reader meets all that can be wrong; and holds the summary's counts
/// against what came.
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
            "{before_epoch} messages have a time before 1970: a clock that was not set, or damage; MCAP cannot hold such times"
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
                format!("{declared} messages are said to be on it, but {read} can be read");
            let problem = Problem::whole(ProblemKind::BadStatistics, message);
            problems.push(problem.on_topic(&entry.channel.topic));
        }
    }
    Ok(problems)
}

/// The channels of a file with their counts, in the order of the file's numbers for them.
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

/// The error of a format that has nothing beside its messages.
pub(crate) fn has_none(place: &str, what: &str, name: &str) -> SourceError {
    SourceError::Unreadable {
        place: place.to_owned(),
        reason: format!("there is no {what} '{name}' in it"),
    }
}
