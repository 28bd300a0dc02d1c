//! MCAP as a [`Format`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, Batch, Channel, HiddenRecords, MetadataEntry, Portion, Problem, Progress,
    ReadStats, SectionEntry, SourceError, Stamp, Summary, TimeRange, Topics,
};
use bytes::Bytes;

use super::directory::{Contents, Section};
use super::walked::Walked;
use super::{Mcap, McapFile, open, scan};
use crate::file::{Format, StoredFormat};
use crate::options::OpenOptions;
use crate::storage::Storage;

impl Format for Mcap {
    const NAME: &'static str = "McapFile";

    fn open(path: &Path, name: String, options: &OpenOptions) -> Result<Self, SourceError> {
        Self::of_file(path, name, options)
    }

    fn summary(&self) -> Arc<Summary> {
        self.report.summary()
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.last_messages(topics, at)
    }

    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        self.indexed_portions(range, grain)
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        self.indexed_times(topic, range)
    }

    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        let indexed = self.indexed_bytes()?;
        if indexed.is_empty() {
            return crate::sections::payload_estimates(self, &self.summary());
        }
        Ok(indexed)
    }

    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.read_attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.read_metadata(entry)
    }

    fn check(file: &McapFile, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        file.shared.check_all(progress)
    }

    fn hidden(self: &Arc<Self>, topics: &Topics) -> HiddenRecords {
        self.hidden_records(topics)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        Some(self.stats.snapshot())
    }

    fn section_entries(&self) -> Vec<SectionEntry> {
        let table = self.table();
        let channel = |id: u16| table.get(id).cloned();
        let sections = self.directory.sections.iter();
        let entry = |section: &Section| SectionEntry {
            offset: section.offset,
            length: section.end.saturating_sub(section.offset),
            uncompressed: section.uncompressed_size,
            compression: section.compression.to_string(),
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

impl StoredFormat for Mcap {
    fn of(storage: Box<dyn Storage>, options: &OpenOptions) -> Result<Self, SourceError> {
        let open::Opened {
            scan,
            statistics,
            is_trusted,
        } = open::open(&*storage)?;
        let scan::Scan {
            directory,
            definitions,
            problems,
            counts,
            ..
        } = scan;
        let walked = Walked {
            at: storage.size(),
            directory,
            definitions,
            problems,
            counts,
            searched: 0,
        };
        let (mut file, mut counts) = Self::of_walk(storage, options, walked, statistics);
        let is_trusted = is_trusted && file.refused_from == u64::MAX;
        if is_trusted {
            file.distrust_partial_indexes();
        } else {
            for (channel, messages) in file
                .look_into_untold()?
                .into_iter()
                .flat_map(|(_, all)| all)
            {
                *counts.entry(channel).or_default() += messages;
            }
        }
        file.find_missing_channels(0)?;
        file.settle();
        file.summarize(is_trusted, &counts);
        Ok(file)
    }
}
