//! What several recordings have beside ordered messages: that of each of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, Batches, Channel, FileOrder, FileParts, HiddenRecords, Index, MetadataEntry,
    Portion, Query, SectionEntry, SourceError, Stamp, TimeRange, Topics,
};
use bytes::Bytes;

use super::{Merged, PART_SHIFT, Part, read};
use crate::counts::MOST_LOG_TIMES;
use crate::sections::deepest_overlap;

/// The offset of an entry of a part, among those of all parts.
pub(super) fn offset_of(part: usize, offset: u64) -> u64 {
    (part as u64) << PART_SHIFT | offset
}

impl Merged {
    /// The part of an entry, and the entry's offset in it.
    fn part(&self, offset: u64) -> Option<(&Part, u64)> {
        let part = self.shared.parts.get((offset >> PART_SHIFT) as usize)?;
        Some((part, offset & ((1 << PART_SHIFT) - 1)))
    }

    fn parts_in(&self, range: TimeRange) -> impl Iterator<Item = &Part> {
        let parts = self.shared.parts.iter();
        parts.filter(move |part| part.recording.summary().range.overlaps(range))
    }
}

/// That of all parts in the range; where one of them must be read, all are.
impl Index for Merged {
    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        let mut all = Vec::new();
        for part in self.parts_in(range) {
            let Some(portions) = part.recording.outline(range, grain)? else {
                return Ok(None);
            };
            all.extend(portions.into_iter().map(|portion| Portion {
                channel: self.shared.channel(&portion.channel),
                ..portion
            }));
        }
        Ok(Some(all))
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        let mut all = Vec::new();
        for part in self.parts_in(range).filter(|part| part.may_have(topic)) {
            let Some(times) = part.recording.log_times(topic, range)? else {
                return Ok(None);
            };
            all.extend(times);
            if all.len() > MOST_LOG_TIMES {
                return Ok(None);
            }
        }
        // Merges the parts, each of which is sorted.
        all.sort();
        Ok(Some(all))
    }

    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        let mut all: HashMap<*const Channel, (Arc<Channel>, Option<u64>)> = HashMap::new();
        for part in &self.shared.parts {
            let known = part.recording.payload_estimates()?;
            let known: HashMap<*const Channel, u64> = known
                .iter()
                .map(|(channel, bytes)| (Arc::as_ptr(channel), *bytes))
                .collect();
            let summary = part.recording.summary();
            let channels = summary.channels.iter();
            for entry in channels.filter(|entry| entry.messages != Some(0)) {
                // Parts may have a channel together: it is known where all of them know it.
                let channel = self.shared.channel(&entry.channel);
                let bytes = known.get(&Arc::as_ptr(&entry.channel));
                let (_, sum) = all
                    .entry(Arc::as_ptr(&channel))
                    .or_insert((channel, Some(0)));
                *sum = sum.zip(bytes).map(|(sum, bytes)| sum + bytes);
            }
        }
        let known = all.into_values();
        Ok(known
            .filter_map(|(channel, bytes)| Some((channel, bytes?)))
            .collect())
    }

    fn sections(&self) -> Vec<SectionEntry> {
        let parts = self.shared.parts.iter().enumerate();
        let sections = parts.flat_map(|(index, part)| {
            let sections = part.recording.sections().into_iter();
            sections.map(move |section| SectionEntry {
                offset: offset_of(index, section.offset),
                channels: section
                    .channels
                    .map(|all| all.iter().map(|one| self.shared.channel(one)).collect()),
                ..section
            })
        });
        // A part without sections has its messages elsewhere.
        let parts = self.shared.parts.iter();
        let has_all = |part: &Part| {
            !part.recording.sections().is_empty() || part.recording.summary().range.is_empty()
        };
        if parts.clone().all(has_all) {
            sections.collect()
        } else {
            Vec::new()
        }
    }
}

impl Part {
    fn may_have(&self, topic: &str) -> bool {
        let summary = self.recording.summary();
        !summary.problems.is_empty() || summary.topics().contains(&topic)
    }
}

impl FileParts for Merged {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        let (part, offset) = self
            .part(entry.offset)
            .ok_or_else(|| SourceError::without("these", "attachment", &entry.name))?;
        part.recording.attachment(&AttachmentEntry {
            offset,
            ..entry.clone()
        })
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        let (part, offset) = self
            .part(entry.offset)
            .ok_or_else(|| SourceError::without("these", "metadata", &entry.name))?;
        part.recording.metadata(&MetadataEntry {
            offset,
            ..entry.clone()
        })
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        let parts = self.shared.parts.iter();
        let found: Vec<HiddenRecords> = parts
            .map(|part| part.recording.hidden(topics))
            .collect::<Result<_, _>>()?;
        Ok(Box::new(found.into_iter().flatten()))
    }
}

/// One part after another.
impl FileOrder for Merged {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(Box::new(read::OneByOne::new(&self.shared, query)))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        let held = self.shared.parts.iter().map(|part| {
            let range = part.recording.summary().range.intersect(query.range);
            (range, part.recording.bytes_held_by_order(query))
        });
        deepest_overlap(held)
    }
}
