//! Where messages are in the file.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use asof_core::{AttachmentEntry, MetadataEntry, Problem, Stamp, TimeRange};
use mcap::records::Statistics;

use crate::limits::DecompressionLimits;

/// The sections of a file that hold messages, in file order, and everything else that was found.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub sections: Vec<Section>,
    pub attachments: Vec<AttachmentEntry>,
    pub metadata: Vec<MetadataEntry>,
    /// Offsets of records that are private to the writer, up to a limit.
    pub private: Vec<u64>,
    pub profile: String,
    pub library: String,
    /// Small contradictions that cost no message, reported by the doctor.
    pub doubts: Vec<Problem>,
    by_channel: OnceLock<ByChannel>,
}

/// A chunk, or a run of messages outside of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub kind: SectionKind,
    /// Where its first record starts.
    pub offset: u64,
    /// Where its last byte ends.
    pub end: u64,
    /// No message in it is earlier or later than this.
    pub range: TimeRange,
    pub contents: Contents,
    /// Where the message indexes after a chunk end, if it has some.
    pub indexes_end: u64,
    /// Bytes once decompressed, as declared.
    pub uncompressed_size: u64,
    /// Shared with other sections.
    pub compression: Arc<str>,
    /// Where the section's bounds come from.
    pub origin: Origin,
}

/// Where the bounds of a section come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A chunk index of the summary.
    Index,
    /// A scan found its records complete.
    Walk,
    /// A scan found that it is cut off by the end of the file or by another record.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionKind {
    Chunk,
    /// Consecutive message records outside of chunks.
    Bare,
}

/// Which channels have messages in a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Contents {
    /// These, by the file's ids, with the offset of each channel's message index.
    Indexed(Box<[(u16, u64)]>),
    /// These, sorted; the positions of their messages are not recorded.
    Listed(Box<[u16]>),
    /// Unknown until the section is read.
    Unknown,
}

impl Contents {
    /// Whether the section may hold a message on one of the channels that `is_wanted`.
    pub fn may_hold(&self, is_wanted: impl Fn(u16) -> bool) -> bool {
        match self {
            Contents::Indexed(entries) => entries.iter().any(|&(id, _)| is_wanted(id)),
            Contents::Listed(ids) => ids.iter().any(|&id| is_wanted(id)),
            Contents::Unknown => true,
        }
    }
}

/// Sections by the channels in them, each list ordered by the end of the section's range.
#[derive(Debug, Default)]
pub(crate) struct ByChannel {
    pub indexed: BTreeMap<u16, Vec<u32>>,
    /// Sections without message indexes: any channel may be in them.
    pub unindexed: Vec<u32>,
}

impl Directory {
    /// A copy without the derived parts, which are rebuilt on demand.
    pub fn copy(&self) -> Self {
        Directory {
            sections: self.sections.clone(),
            attachments: self.attachments.clone(),
            metadata: self.metadata.clone(),
            private: self.private.clone(),
            profile: self.profile.clone(),
            library: self.library.clone(),
            doubts: self.doubts.clone(),
            by_channel: OnceLock::new(),
        }
    }

    /// Puts the sections into file order. Call once, when all are known.
    pub fn arrange(&mut self) {
        self.sections.sort_by_key(|section| section.offset);
    }

    /// From the first message to the last.
    pub fn range(&self) -> TimeRange {
        self.sections
            .iter()
            .fold(TimeRange::EMPTY, |all, section| all.cover(section.range))
    }

    /// From the first message to the last, from the statistics unless the chunks contradict them: the chunks' times
    /// decide what is read.
    pub fn range_by(&self, statistics: &Statistics) -> TimeRange {
        let said = clamped_range(statistics.message_start_time, statistics.message_end_time);
        // A chunk with both times at zero has no messages, or messages at that time only.
        let zero = clamped_range(0, 0);
        let (zeros, others): (Vec<TimeRange>, Vec<TimeRange>) = self
            .sections
            .iter()
            .map(|section| section.range)
            .partition(|&range| range == zero);
        let found = others.into_iter().fold(TimeRange::EMPTY, TimeRange::cover);
        let is_right = found == said || (!zeros.is_empty() && found.cover(zero) == said);
        if found.is_empty() || is_right {
            return said;
        }
        found
    }

    /// The compressed chunks in file order: the offset of each, and its largest decompressed size.
    pub fn decompressed(&self, limits: &DecompressionLimits) -> impl Iterator<Item = (u64, u64)> {
        let compressed = self
            .sections
            .iter()
            .filter(|section| !section.compression.is_empty());
        compressed.map(|section| {
            let allowed = limits.of_chunk(section.end.saturating_sub(section.offset));
            // A chunk that declares more is skipped anyway.
            let becomes = section.uncompressed_size;
            (section.offset, if becomes > allowed { 0 } else { becomes })
        })
    }

    pub fn by_channel(&self) -> &ByChannel {
        self.by_channel.get_or_init(|| {
            let mut by_end: Vec<u32> = (0..self.sections.len() as u32).collect();
            by_end.sort_by_key(|&index| self.sections[index as usize].range.end);
            let mut sorted = ByChannel::default();
            for index in by_end {
                match &self.sections[index as usize].contents {
                    Contents::Indexed(entries) => {
                        for &(id, _) in entries {
                            sorted.indexed.entry(id).or_default().push(index);
                        }
                    }
                    _ => sorted.unindexed.push(index),
                }
            }
            sorted
        })
    }
}

/// A time of the file, clamped to the last representable time; for ranges, where that is harmless.
pub(crate) fn clamped(nanos: u64) -> Stamp {
    Stamp::from_unsigned_nanos(nanos).unwrap_or(Stamp::MAX)
}

/// A range of the file's times. Chunks without messages have both ends at zero.
pub(crate) fn clamped_range(start: u64, end: u64) -> TimeRange {
    TimeRange::new(clamped(start), clamped(end))
}
