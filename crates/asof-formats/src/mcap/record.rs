//! Parsing of single records of an MCAP file from untrusted bytes.
//!
//! The `mcap` crate parses the rare records. Records that are read by the million (messages), or even if their length
//! is wrong (chunks, attachments), are parsed here.

use std::io;

use mcap::records::{Record, op};

use super::directory::Section;

/// What a file starts and ends with.
pub(crate) const MAGIC_LEN: u64 = mcap::MAGIC.len() as u64;
/// Record header: opcode and length.
pub(crate) const HEADER_LEN: u64 = 9;
/// Message header: channel, sequence and two times, before the payload.
pub(crate) const MESSAGE_HEADER_LEN: u64 = 22;

/// Opcode and length of a record, and where it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub offset: u64,
    pub opcode: u8,
    pub len: u64,
}

impl RecordHeader {
    /// Parses the first nine bytes of `bytes`, which start at `offset` of the file.
    pub fn parse(offset: u64, bytes: &[u8]) -> Option<Self> {
        let (&opcode, rest) = bytes.split_first()?;
        let len = u64::from_le_bytes(*rest.first_chunk()?);
        Some(RecordHeader {
            offset,
            opcode,
            len,
        })
    }

    /// Where the record's contents start.
    pub fn body(&self) -> u64 {
        self.offset.saturating_add(HEADER_LEN)
    }

    /// Where the next record starts; `u64::MAX` if the length is absurd.
    pub fn end(&self) -> u64 {
        self.body().saturating_add(self.len)
    }
}

/// Takes little-endian fields off the front of a record.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn skip_text(&mut self) -> Option<()> {
        let len = self.u32()?;
        self.bytes(len as usize).map(drop)
    }

    /// Skips the strings of a map, which declares their total length.
    fn skip_texts(&mut self) -> Option<()> {
        let len = self.u32()? as usize;
        let end = self.0.len().checked_sub(len)?;
        while self.0.len() > end {
            self.skip_text()?;
        }
        Some(())
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let len = self.u32()?;
        std::str::from_utf8(self.bytes(len as usize)?).ok()
    }
}

/// The fixed part of a message record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageHeader {
    pub channel: u16,
    pub sequence: u32,
    pub log_time: u64,
    pub publish_time: u64,
}

impl MessageHeader {
    #[inline]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let fixed: &[u8; MESSAGE_HEADER_LEN as usize] = body.first_chunk()?;
        let mut fields = Fields(fixed);
        Some(MessageHeader {
            channel: fields.u16()?,
            sequence: fields.u32()?,
            log_time: fields.u64()?,
            publish_time: fields.u64()?,
        })
    }
}

/// The front of a chunk record, up to its compressed data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub start_time: u64,
    pub end_time: u64,
    pub uncompressed_size: u64,
    pub crc: u32,
    pub compression: String,
    pub compressed_size: u64,
}

impl ChunkHeader {
    /// The longest plausible name of a compression.
    const LONGEST_NAME: usize = 32;
    /// Later versions may add fields after the data, at most this many bytes.
    const LATER_FIELDS: u64 = 4096;
    /// Enough bytes to parse any header whose compression has a plausible name.
    pub const MAX_LEN: u64 = 8 * 3 + 4 + 4 + Self::LONGEST_NAME as u64 + 8;

    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let start_time = fields.u64()?;
        let end_time = fields.u64()?;
        let uncompressed_size = fields.u64()?;
        let crc = fields.u32()?;
        let compression = fields
            .text()
            .filter(|name| name.len() <= Self::LONGEST_NAME)?
            .to_owned();
        let compressed_size = fields.u64()?;
        Some(ChunkHeader {
            start_time,
            end_time,
            uncompressed_size,
            crc,
            compression,
            compressed_size,
        })
    }

    /// The header that a chunk must have had, reconstructed from its index.
    pub fn by_index(section: &Section) -> Self {
        let mut header = ChunkHeader {
            start_time: 0,
            end_time: 0,
            uncompressed_size: section.uncompressed_size,
            crc: 0,
            compression: section.compression.to_string(),
            compressed_size: 0,
        };
        let data = section.offset + HEADER_LEN + header.len();
        header.compressed_size = section.end.saturating_sub(data);
        header
    }

    /// Bytes from the start of the record's contents to the compressed data.
    pub fn len(&self) -> u64 {
        8 * 3 + 4 + 4 + self.compression.len() as u64 + 8
    }

    /// Whether this is the header of a chunk of exactly `record_len` bytes, and not of a later version.
    pub fn is_exact(&self, record_len: u64) -> bool {
        let is_even = match self.compression.as_str() {
            "" => self.compressed_size == self.uncompressed_size,
            _ => self.compressed_size > 0,
        };
        is_even
            && self.is_plausible(record_len)
            && i64::try_from(self.end_time).is_ok()
            && self.len().checked_add(self.compressed_size) == Some(record_len)
    }

    /// Whether this can be the header of a chunk of `record_len` bytes.
    pub fn is_plausible(&self, record_len: u64) -> bool {
        self.start_time <= self.end_time
            && matches!(self.compression.as_str(), "" | "lz4" | "zstd")
            && self
                .len()
                .checked_add(self.compressed_size)
                .and_then(|known| record_len.checked_sub(known))
                .is_some_and(|unknown| unknown <= Self::LATER_FIELDS)
    }
}

/// The front of an attachment record, and where its data and checksum are within the record's contents.
#[derive(Debug, Clone)]
pub(crate) struct AttachmentHeader {
    pub log_time: u64,
    pub create_time: u64,
    pub name: String,
    pub media_type: String,
    pub data_start: u64,
    pub data_len: u64,
}

impl AttachmentHeader {
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let log_time = fields.u64()?;
        let create_time = fields.u64()?;
        let name = fields.text()?.to_owned();
        let media_type = fields.text()?.to_owned();
        let data_len = fields.u64()?;
        let data_start = (body.len() - fields.0.len()) as u64;
        Some(AttachmentHeader {
            log_time,
            create_time,
            name,
            media_type,
            data_start,
            data_len,
        })
    }

    /// Bytes of the record's contents that are not data: this header and the checksum after the data.
    pub fn end(&self) -> Option<u64> {
        self.data_start.checked_add(self.data_len)?.checked_add(4)
    }
}

/// Parses a record with the `mcap` crate.
///
/// # Errors
/// Those of the crate; attachments and records with a length past their end are refused (the crate would index past the
/// end of a short attachment).
pub(crate) fn parse(opcode: u8, body: &[u8]) -> Result<Record<'_>, mcap::McapError> {
    if opcode == op::ATTACHMENT {
        return Err(mcap::McapError::Io(io::Error::other(
            "attachments have a parser of their own",
        )));
    }
    if !lengths_fit(opcode, body) {
        return Err(mcap::McapError::Io(io::Error::other(
            "a length in it reaches past its end",
        )));
    }
    mcap::parse_record(opcode, body)
}

/// Whether the strings of a record end within it. The crate allocates for a string before it checks its length: a few
/// bytes would take gigabytes.
fn lengths_fit(opcode: u8, body: &[u8]) -> bool {
    let (fixed, texts, has_map) = match opcode {
        op::HEADER => (0, 2, false),
        op::SCHEMA => (2, 2, false),
        op::CHANNEL => (4, 2, true),
        op::METADATA => (0, 1, true),
        op::ATTACHMENT_INDEX => (40, 2, false),
        op::METADATA_INDEX => (16, 1, false),
        _ => return true,
    };
    let mut fields = Fields(body);
    let mut is_whole = fields.bytes(fixed).is_some();
    for _ in 0..texts {
        is_whole = is_whole && fields.skip_text().is_some();
    }
    is_whole && (!has_map || fields.skip_texts().is_some())
}

/// The name of a record in messages.
pub(crate) fn name_of(opcode: u8) -> &'static str {
    match opcode {
        op::HEADER => "a header record",
        op::FOOTER => "a footer record",
        op::SCHEMA => "a schema record",
        op::CHANNEL => "a channel record",
        op::MESSAGE => "a message record",
        op::CHUNK => "a chunk record",
        op::MESSAGE_INDEX => "a message index record",
        op::CHUNK_INDEX => "a chunk index record",
        op::ATTACHMENT => "an attachment record",
        op::ATTACHMENT_INDEX => "an attachment index record",
        op::STATISTICS => "a statistics record",
        op::METADATA => "a metadata record",
        op::METADATA_INDEX => "a metadata index record",
        op::SUMMARY_OFFSET => "a summary offset record",
        op::DATA_END => "a data end record",
        _ => "a record of unknown kind",
    }
}
