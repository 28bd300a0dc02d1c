//! Attachments and metadata.

use std::collections::BTreeMap;

use asof_core::{AttachmentEntry, MetadataEntry, Problem, ProblemKind, SourceError};
use bytes::Bytes;
use mcap::records::{Record, op};

use super::Mcap;
use super::record::{AttachmentHeader, HEADER_LEN, RecordHeader, parse};

impl Mcap {
    /// The contents of an attachment that the summary lists.
    ///
    /// A wrong checksum is added to the problems; the contents are returned as they are.
    ///
    /// # Errors
    /// When there is no attachment at the entry's offset.
    pub(super) fn read_attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        let missing = || self.nothing_there("attachment", &entry.name, entry.offset);
        let (header, body) = self
            .record(entry.offset)?
            .filter(|(h, _)| h.opcode == op::ATTACHMENT)
            .ok_or_else(missing)?;
        let attachment = AttachmentHeader::parse(&body).ok_or_else(missing)?;
        let end = attachment
            .end()
            .filter(|&end| end <= header.len)
            .ok_or_else(missing)? as usize;
        let (data_start, data_end) = (attachment.data_start as usize, end - 4);
        let crc = body
            .get(data_end..end)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_le_bytes);
        let crc = crc.ok_or_else(missing)?;
        if crc != 0 && crc32fast::hash(&body[..data_end]) != crc {
            let message = format!(
                "the checksum of attachment '{}' is wrong; it may be damaged",
                entry.name
            );
            self.report(Problem::at(ProblemKind::BadChecksum, entry.offset, message));
        }
        Ok(body.slice(data_start..data_end))
    }

    /// The contents of a metadata record that the summary lists.
    ///
    /// # Errors
    /// When there is no metadata at the entry's offset.
    pub(super) fn read_metadata(
        &self,
        entry: &MetadataEntry,
    ) -> Result<BTreeMap<String, String>, SourceError> {
        let missing = || self.nothing_there("metadata", &entry.name, entry.offset);
        let (_, body) = self
            .record(entry.offset)?
            .filter(|(h, _)| h.opcode == op::METADATA)
            .ok_or_else(missing)?;
        match parse(op::METADATA, &body) {
            Ok(Record::Metadata(found)) => Ok(found.metadata),
            _ => Err(missing()),
        }
    }

    /// The record at `offset`, if it is complete.
    fn record(&self, offset: u64) -> Result<Option<(RecordHeader, Bytes)>, SourceError> {
        let storage = self.storage();
        let Some(header) = RecordHeader::parse(offset, &storage.get(offset, HEADER_LEN)?) else {
            return Ok(None);
        };
        if header.end() > storage.size() {
            return Ok(None);
        }
        Ok(Some((header, storage.get(header.body(), header.len)?)))
    }

    fn nothing_there(&self, what: &str, name: &str, offset: u64) -> SourceError {
        SourceError::Unreadable {
            place: self.storage().name().to_owned(),
            reason: format!(
                "there is no {what} '{name}' at byte {offset}, where an index points; run `asof doctor` for details"
            ),
        }
    }
}
