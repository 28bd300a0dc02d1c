//! MCAP as a [`Recording`].

use std::collections::BTreeMap;

use asof_core::{AttachmentEntry, Batches, MetadataEntry, Problem, Query, SourceError, Topics};
use bytes::Bytes;

use super::directory::{Contents, Section};
use super::{McapCounters, McapFile};
use crate::recording::{HiddenRecords, Progress, Recording, SectionEntry};
use crate::sections;

impl Recording for McapFile {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        McapFile::attachment(self, entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        McapFile::metadata(self, entry)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        McapFile::check(self, progress)
    }

    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(sections::read_in_file_order(&self.shared, query))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        sections::bytes_held_by_order(&self.shared, query)
    }

    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        Ok(self.hidden_records(topics))
    }

    fn counters(&self) -> Option<McapCounters> {
        Some(McapFile::counters(self))
    }

    fn sections(&self) -> Vec<SectionEntry> {
        let table = self.shared.table();
        let channel = |id: u16| {
            let index = table.index_of(id)? as usize;
            table.channels.get(index).cloned()
        };
        let sections = self.shared.directory.sections.iter();
        let entry = |section: &Section| SectionEntry {
            offset: section.offset,
            length: section.end.saturating_sub(section.offset),
            uncompressed: section.uncompressed_size,
            compression: section.compression.clone(),
            range: section.range,
            channels: match &section.contents {
                Contents::Indexed(entries) => {
                    Some(entries.iter().filter_map(|&(id, _)| channel(id)).collect())
                }
                Contents::Listed(ids) => Some(ids.iter().filter_map(|&id| channel(id)).collect()),
                Contents::Unknown => None,
            },
        };
        sections.map(entry).collect()
    }
}
