//! MCAP as a [`Recording`].

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{AttachmentEntry, Batches, MetadataEntry, Problem, Query, SourceError};
use bytes::Bytes;

use super::{McapCounters, McapFile, McapShared};
use crate::recording::{Progress, Recording};
use crate::sections::{InFileOrder, Sections, deepest_overlap};

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
        let (wanted, plan) = self.shared.plan(query);
        let sections: Arc<dyn Sections> = Arc::<McapShared>::clone(&self.shared);
        Ok(Box::new(InFileOrder::new(&sections, wanted, plan)))
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        let (_, plan) = self.shared.plan(query);
        let file = &self.shared;
        deepest_overlap(
            plan.into_iter()
                .map(|section| (file.range_of(section), file.expected_bytes(section))),
        )
    }
    fn counters(&self) -> Option<McapCounters> {
        Some(McapFile::counters(self))
    }
}
