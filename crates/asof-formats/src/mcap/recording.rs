//! MCAP as a [`Recording`].

use std::collections::BTreeMap;

use asof_core::{AttachmentEntry, Batches, MetadataEntry, Problem, Query, SourceError, Topics};
use bytes::Bytes;

use super::{McapCounters, McapFile};
use crate::recording::{HiddenRecords, Progress, Recording};
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
}
