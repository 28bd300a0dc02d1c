//! What a file may hold beside messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::{AttachmentEntry, Batches, Channel, MetadataEntry, Query, Source, SourceError, Topics};

/// What a file holds beside the messages that readers see; see [`Source::parts`].
pub trait FileParts: Send + Sync {
    /// The contents of an attachment that the summary lists.
    ///
    /// # Errors
    /// When there is no attachment at the entry's offset.
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError>;

    /// The contents of a metadata record that the summary lists.
    ///
    /// # Errors
    /// When there is no metadata at the entry's offset.
    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError>;

    /// Records that a copy must keep although readers do not see them: messages whose time does not fit a
    /// [`Stamp`](crate::Stamp), and private records of the writer. Some are found only when messages are read.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError>;
}

/// Messages in the order of the file, for callers that sort themselves; see [`Source::file_order`].
pub trait FileOrder: Send + Sync {
    /// The matching messages in file order: each batch is sorted, but the next one may start earlier. The memory that
    /// this takes does not depend on how disordered the file is.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError>;

    /// About how many bytes [`read`](Source::read) holds at once, where the parts of the file overlap most.
    fn bytes_held_by_order(&self, query: &Query) -> u64;
}

/// See [`FileParts::hidden`].
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

/// The same questions for any source: one without the capability has none of these.
impl dyn Source + '_ {
    /// See [`FileParts::attachment`].
    ///
    /// # Errors
    /// When there is no such attachment.
    pub fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        match self.parts() {
            Some(parts) => parts.attachment(entry),
            None => Err(self.without("attachment", &entry.name)),
        }
    }

    /// See [`FileParts::metadata`].
    ///
    /// # Errors
    /// When there is no such record.
    pub fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        match self.parts() {
            Some(parts) => parts.metadata(entry),
            None => Err(self.without("metadata", &entry.name)),
        }
    }

    /// See [`FileParts::hidden`].
    ///
    /// # Errors
    /// When the source cannot be read at all.
    pub fn hidden(&self, topics: &Topics) -> Result<HiddenRecords, SourceError> {
        match self.parts() {
            Some(parts) => parts.hidden(topics),
            None => Ok(Box::new(std::iter::empty())),
        }
    }

    /// See [`FileOrder::read_in_file_order`]; in order of time for a source without another.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    pub fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        match self.file_order() {
            Some(file) => file.read_in_file_order(query),
            None => self.read(query),
        }
    }

    /// See [`FileOrder::bytes_held_by_order`].
    pub fn bytes_held_by_order(&self, query: &Query) -> u64 {
        let file = self.file_order();
        file.map_or(0, |file| file.bytes_held_by_order(query))
    }

    fn without(&self, what: &'static str, name: &str) -> SourceError {
        SourceError::without(&self.summary().format, what, name)
    }
}
