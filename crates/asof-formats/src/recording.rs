//! What every recording can do, whatever its format.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, Batches, Channel, ChannelSummary, MetadataEntry, Problem, ProblemKind, Query,
    Source, SourceError,
};
use bytes::Bytes;

use crate::McapCounters;

/// How far a long look has come: bytes done, bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// A recording: a [`Source`] with what lies beside its messages.
///
/// [`open`](crate::open) returns one, and everything above this crate speaks to it alone.
pub trait Recording: Source {
    /// The contents of an attachment that the summary lists.
    ///
    /// # Errors
    /// When there is no attachment where the entry says.
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError>;

    /// The contents of a named set of text that the summary lists.
    ///
    /// # Errors
    /// When there is none where the entry says.
    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError>;

    /// Reads everything, and holds every part against every other as far as the format can. Returns all
    /// problems, those of opening included.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError>;

    /// The messages that match, as they lie in the file: each batch is in order, but the next one may start
    /// earlier. For those who sort for themselves, in memory that does not depend on the file's disorder.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError>;

    /// About how many bytes [`read`](Source::read) holds at once, where the file's parts overlap most.
    fn bytes_held_by_order(&self, query: &Query) -> u64;

    /// What reading has cost so far, for formats that count it.
    fn counters(&self) -> Option<McapCounters> {
        None
    }
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

    fn counters(&self) -> Option<McapCounters> {
        (**self).counters()
    }
}

/// Reads every message, for formats whose reader meets all that can be wrong; and holds the summary's counts
/// against what came.
pub(crate) fn check_by_reading(
    recording: &dyn Recording,
    progress: Progress<'_>,
) -> Result<Vec<Problem>, SourceError> {
    let before = recording.summary();
    let mut messages = 0;
    let mut bytes = 0;
    let mut by_channel: HashMap<*const Channel, u64> = HashMap::new();
    for batch in recording.read_in_file_order(&Query::all())? {
        let batch = batch?;
        messages += batch.len() as u64;
        bytes += batch.payload_bytes();
        for row in batch.rows() {
            let channel = Arc::as_ptr(&batch.channels()[row.channel as usize]);
            *by_channel.entry(channel).or_default() += 1;
        }
        progress(bytes.min(before.size), before.size);
    }
    progress(before.size, before.size);
    let mut problems = recording.summary().problems.clone();
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
