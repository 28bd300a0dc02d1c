//! Scans the records of a range of a file, past any damage.
//!
//! This is how a file without a summary is opened, how the ranges that a summary does not describe are read, and how
//! damage is skipped. Chunks are not opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, MetadataEntry, Problem, ProblemKind, SourceError, Stamp, TimeRange,
};
use mcap::records::{Record, op};

use super::definitions::Definitions;
use super::directory::{Contents, Directory, Origin, Section, SectionKind, clamped, clamped_range};
use super::hidden::PRIVATE;
use super::inner::is_of_a_chunk;
use super::record::{
    AttachmentHeader, ChunkHeader, Fields, HEADER_LEN, MESSAGE_HEADER_LEN, MessageHeader,
    RecordHeader, name_of, parse,
};
use crate::Storage;
use crate::problems::Problems;

/// What a scan collects.
pub(crate) struct Scan<'a> {
    storage: &'a dyn Storage,
    pub directory: Directory,
    pub definitions: Definitions,
    pub problems: Problems,
    /// Message counts by the file's channel ids, from message indexes and messages outside of chunks.
    pub counts: BTreeMap<u16, u64>,
    bare: Option<Bare>,
    /// After a chunk: the message indexes seen so far, which belong to the last section.
    indexes: Option<Vec<MessageIndexPlace>>,
    /// Where the data section ends, and its checksum.
    pub data_end: Option<(u64, u32)>,
    /// Whether the footer was found: nothing may follow.
    pub saw_footer: bool,
}

/// A run of messages outside of chunks that is still growing.
struct Bare {
    offset: u64,
    end: u64,
    range: TimeRange,
    channels: Vec<u16>,
}

/// A message index after a chunk: its channel, its offset, and how many messages it lists.
struct MessageIndexPlace {
    channel: u16,
    offset: u64,
    messages: u64,
}

/// A run of bare messages is closed at this size, so that reading it stays bounded.
const BARE_RUN_BYTES: u64 = 1 << 20;
/// Bytes searched at a time for the next record.
const SEARCH_WINDOW: u64 = 1 << 20;
/// At most this many private records are kept for copies of the file.
const PRIVATE_AT_MOST: usize = 1 << 20;
/// A longer small record (a schema, a channel, metadata) is treated as damage.
const LARGEST_SMALL_RECORD: u64 = 256 << 20;

/// The problem of a file of this size that was never closed.
pub(super) fn no_footer(size: u64) -> Problem {
    Problem::at(
        ProblemKind::Truncated,
        size,
        "the file has no footer at its end: it was cut, or never closed; the file was scanned instead",
    )
}

impl<'a> Scan<'a> {
    pub fn new(storage: &'a dyn Storage) -> Self {
        Scan {
            storage,
            directory: Directory::default(),
            definitions: Definitions::default(),
            problems: Problems::default(),
            counts: BTreeMap::new(),
            bare: None,
            indexes: None,
            data_end: None,
            saw_footer: false,
        }
    }

    /// Scans the records from `start` to `end`.
    pub fn walk(&mut self, start: u64, end: u64) -> Result<(), SourceError> {
        let mut at = start;
        // Where to search from if no record follows: the length that led there may be wrong.
        let mut doubt = start;
        while at < end && !self.saw_footer {
            let head = self.storage.get(at, HEADER_LEN)?;
            let header = RecordHeader::parse(at, &head).filter(|header| header.opcode != 0);
            let Some(header) = header else {
                at = self.step_over_garbage(at, doubt, end)?;
                doubt = at;
                continue;
            };
            if header.end() > end {
                at = self.meet_overlong(header, end)?;
                doubt = at;
            } else if self.meet(header)? {
                at = header.end();
                doubt = if self.is_trusted(header)? {
                    at
                } else {
                    header.body()
                };
            } else {
                at = self.step_over_garbage(at, at + 1, end)?;
                doubt = at;
            }
        }
        self.close_bare();
        // At the end of a truncated file, some of the last chunk's indexes may be missing.
        self.close_indexes(end < self.storage.size());
        Ok(())
    }

    /// Whether a record's length is certain: a chunk contains it twice.
    fn is_trusted(&self, header: RecordHeader) -> Result<bool, SourceError> {
        if header.opcode != op::CHUNK {
            return Ok(false);
        }
        let front = self
            .storage
            .get(header.body(), ChunkHeader::MAX_LEN.min(header.len))?;
        Ok(ChunkHeader::parse(&front).is_some_and(|chunk| chunk.is_plausible(header.len)))
    }

    /// Handles a record that is complete in the file; `false` if it is not a record after all.
    fn meet(&mut self, header: RecordHeader) -> Result<bool, SourceError> {
        if header.opcode != op::MESSAGE {
            self.close_bare();
        }
        if header.opcode != op::MESSAGE_INDEX {
            self.close_indexes(true);
        }
        match header.opcode {
            op::MESSAGE => return self.meet_message(header),
            op::CHUNK => return self.meet_chunk(header, header.end()),
            op::MESSAGE_INDEX => return self.meet_message_index(header),
            op::ATTACHMENT => return self.meet_attachment(header),
            op::HEADER | op::SCHEMA | op::CHANNEL | op::METADATA => return self.meet_small(header),
            op::DATA_END => {
                let crc = Fields(&self.storage.get(header.body(), 4)?)
                    .u32()
                    .unwrap_or(0);
                self.data_end = Some((header.offset, crc));
            }
            op::FOOTER => self.saw_footer = true,
            PRIVATE.. if self.directory.private.len() < PRIVATE_AT_MOST => {
                self.directory.private.push(header.offset);
            }
            // Records of a later version are ignored.
            _ => {}
        }
        Ok(true)
    }

    fn meet_message(&mut self, header: RecordHeader) -> Result<bool, SourceError> {
        let body = self.storage.get(header.body(), MESSAGE_HEADER_LEN)?;
        let Some(message) =
            MessageHeader::parse(&body).filter(|_| header.len >= MESSAGE_HEADER_LEN)
        else {
            self.report_bad_record(header, "it is too short");
            return Ok(true);
        };
        *self.counts.entry(message.channel).or_default() += 1;
        let stamp = clamped(message.log_time);
        let run = self.bare.get_or_insert(Bare {
            offset: header.offset,
            end: header.offset,
            range: TimeRange::EMPTY,
            channels: Vec::new(),
        });
        run.end = header.end();
        run.range = run.range.cover_stamp(stamp);
        if let Err(place) = run.channels.binary_search(&message.channel) {
            run.channels.insert(place, message.channel);
        }
        if run.end - run.offset >= BARE_RUN_BYTES {
            self.close_bare();
        }
        Ok(true)
    }

    fn close_bare(&mut self) {
        let Some(run) = self.bare.take() else { return };
        self.directory.sections.push(Section {
            kind: SectionKind::Bare,
            offset: run.offset,
            end: run.end,
            range: run.range,
            contents: Contents::Listed(run.channels.into()),
            indexes_end: run.end,
            uncompressed_size: run.end - run.offset,
            compression: Arc::default(),
            origin: Origin::Walk,
        });
    }

    /// A chunk of which the file holds the bytes up to `end`.
    fn meet_chunk(&mut self, header: RecordHeader, end: u64) -> Result<bool, SourceError> {
        let origin = if end < header.end() {
            Origin::Cut
        } else {
            Origin::Walk
        };
        let front = self
            .storage
            .get(header.body(), ChunkHeader::MAX_LEN.min(header.len))?;
        let Some(chunk) = ChunkHeader::parse(&front) else {
            return Ok(false);
        };
        self.directory.sections.push(Section {
            kind: SectionKind::Chunk,
            offset: header.offset,
            end,
            range: clamped_range(chunk.start_time, chunk.end_time),
            contents: Contents::Unknown,
            indexes_end: end,
            uncompressed_size: chunk.uncompressed_size,
            compression: chunk.compression.into(),
            origin,
        });
        self.indexes = Some(Vec::new());
        Ok(true)
    }

    /// Message indexes list the channels of the chunk before them, and their messages.
    fn meet_message_index(&mut self, header: RecordHeader) -> Result<bool, SourceError> {
        let body = self.storage.get(header.body(), 6.min(header.len))?;
        let mut fields = Fields(&body);
        let (Some(channel), Some(bytes)) = (fields.u16(), fields.u32()) else {
            self.report_bad_record(header, "it is too short");
            return Ok(true);
        };
        if let (Some(indexes), true) = (&mut self.indexes, bytes > 0) {
            indexes.push(MessageIndexPlace {
                channel,
                offset: header.offset,
                messages: u64::from(bytes / 16),
            });
        }
        Ok(true)
    }

    /// Assigns message indexes to the chunk before them, if they are complete.
    fn close_indexes(&mut self, are_complete: bool) {
        let Some(indexes) = self
            .indexes
            .take()
            .filter(|indexes| are_complete && !indexes.is_empty())
        else {
            return;
        };
        let Some(section) = self.directory.sections.last_mut() else {
            return;
        };
        section.contents = Contents::Indexed(
            indexes
                .iter()
                .map(|index| (index.channel, index.offset))
                .collect(),
        );
        for index in indexes {
            *self.counts.entry(index.channel).or_default() += index.messages;
        }
    }

    /// Where an attachment or metadata record really ends; an index that differs is noted among the doubts.
    pub fn end_of_extra(
        &mut self,
        offset: u64,
        indexed_end: u64,
        opcode: u8,
    ) -> Result<u64, SourceError> {
        let head = self.storage.get(offset, HEADER_LEN)?;
        let header = RecordHeader::parse(offset, &head).filter(|header| header.opcode == opcode);
        let Some(header) = header.filter(|header| header.end() <= self.storage.size()) else {
            return Ok(indexed_end);
        };
        if header.end() != indexed_end {
            let message = format!(
                "{} is {} bytes long here, not the {} that its index gives",
                name_of(opcode),
                header.end() - offset,
                indexed_end - offset
            );
            self.directory
                .doubts
                .push(Problem::at(ProblemKind::BadIndex, offset, message));
        }
        Ok(header.end())
    }

    /// Counts the messages of a section by its message indexes' lengths.
    pub fn count_indexed(&mut self, section: &Section) -> Result<(), SourceError> {
        let Contents::Indexed(entries) = &section.contents else {
            return Ok(());
        };
        for &(channel, offset) in entries {
            let front = self.storage.get(offset, HEADER_LEN + 6)?;
            let header = RecordHeader::parse(offset, &front)
                .filter(|header| header.opcode == op::MESSAGE_INDEX);
            let len = header
                .and_then(|header| header.len.checked_sub(6))
                .unwrap_or(0);
            *self.counts.entry(channel).or_default() += len.min(section.uncompressed_size) / 16;
        }
        Ok(())
    }

    fn meet_attachment(&mut self, header: RecordHeader) -> Result<bool, SourceError> {
        // Name and media type are short; the data after them is not touched.
        let front = self.storage.get(header.body(), header.len.min(64 << 10))?;
        let attachment = AttachmentHeader::parse(&front)
            .filter(|a| a.end().is_some_and(|end| end <= header.len));
        let Some(attachment) = attachment else {
            self.report_bad_record(header, "its lengths do not fit into it");
            return Ok(true);
        };
        self.directory.attachments.push(AttachmentEntry {
            name: attachment.name,
            media_type: attachment.media_type,
            log_time: Stamp::from_unsigned_nanos(attachment.log_time).ok(),
            create_time: Stamp::from_unsigned_nanos(attachment.create_time).ok(),
            size: attachment.data_len,
            offset: header.offset,
        });
        Ok(true)
    }

    fn meet_small(&mut self, header: RecordHeader) -> Result<bool, SourceError> {
        if header.len > LARGEST_SMALL_RECORD {
            return Ok(false);
        }
        let body = self.storage.get(header.body(), header.len)?;
        let problem = match parse(header.opcode, &body) {
            Ok(Record::Header(found)) => {
                self.directory.profile = found.profile;
                self.directory.library = found.library;
                None
            }
            Ok(Record::Schema {
                header: found,
                data,
            }) => self.definitions.add_schema(header.offset, found, &data),
            Ok(Record::Channel(found)) => self.definitions.add_channel(header.offset, found),
            Ok(Record::Metadata(found)) => {
                self.directory.metadata.push(MetadataEntry {
                    name: found.name,
                    offset: header.offset,
                });
                None
            }
            Ok(_) => None,
            Err(error) => {
                self.report_bad_record(header, &error.to_string());
                None
            }
        };
        self.problems.extend(problem);
        Ok(true)
    }

    /// A record whose length reaches past the end: either the file was truncated within it, or the length is wrong and
    /// more records follow.
    fn meet_overlong(&mut self, header: RecordHeader, end: u64) -> Result<u64, SourceError> {
        let next = match self.search_from(header, end)? {
            Some(from) => self.find_record(from, end)?,
            None => None,
        };
        let reach = next.unwrap_or(end);
        self.close_bare();
        self.close_indexes(false);
        let salvaged = header.opcode == op::CHUNK && self.meet_chunk(header, reach)?;
        self.close_indexes(false);
        let (name, len) = (name_of(header.opcode), header.len);
        let (kind, message, kept) = if let Some(next) = next {
            let message = format!(
                "{name} says that it is {len} bytes long, but another record starts {} bytes after it",
                next - header.offset
            );
            (
                ProblemKind::BadRecord,
                message,
                "what is readable of it is kept",
            )
        } else {
            let there = end.saturating_sub(header.body());
            let message = format!(
                "the file ends in the middle of {name} of {len} bytes, of which {there} are there"
            );
            (
                ProblemKind::Truncated,
                message,
                "its readable front is kept",
            )
        };
        let what = if salvaged { kept } else { "it is skipped" };
        let problem = Problem::at(kind, header.offset, format!("{message}; {what}"));
        self.problems.push(problem);
        Ok(reach)
    }

    /// Where the next record can start if this one reaches past the end; `None` if the file was cut within it.
    ///
    /// What a chunk declares as its data is its own: uncompressed, it is walked as messages, and only what is none is
    /// searched.
    fn search_from(&self, header: RecordHeader, end: u64) -> Result<Option<u64>, SourceError> {
        let chunk = if header.opcode == op::CHUNK {
            let front = self.storage.get(header.body(), ChunkHeader::MAX_LEN)?;
            ChunkHeader::parse(&front).filter(|chunk| chunk.is_plausible(header.len))
        } else {
            None
        };
        let Some(chunk) = chunk else {
            return Ok(Some(header.offset + 1));
        };
        let mut at = header.body().saturating_add(chunk.len());
        let data_end = at.saturating_add(chunk.compressed_size);
        if !chunk.compression.is_empty() {
            return Ok(Some(at));
        }
        while let Some(record) = RecordHeader::parse(at, &self.storage.get(at, HEADER_LEN)?) {
            if !is_of_a_chunk(record.opcode) || record.end() > data_end {
                return Ok(Some(at));
            }
            if record.end() > end {
                break;
            }
            at = record.end();
        }
        Ok(None)
    }

    /// Continues at the next certain record, from `doubt` on.
    fn step_over_garbage(&mut self, at: u64, doubt: u64, end: u64) -> Result<u64, SourceError> {
        self.close_bare();
        self.close_indexes(false);
        let next = self.find_record(doubt.min(at + 1), end)?.unwrap_or(end);
        if next < at {
            let message = "the record before this has a wrong length: others were found within it";
            self.problems
                .push(Problem::at(ProblemKind::BadRecord, at, message));
            return Ok(next);
        }
        let message = format!("{} bytes are not a record; they are skipped", next - at);
        let is_cut = next == end && next - at < HEADER_LEN;
        let kind = if is_cut {
            ProblemKind::Truncated
        } else {
            ProblemKind::Garbage
        };
        self.problems.push(Problem::at(kind, at, message));
        Ok(next)
    }

    /// The offset of the first certain record from `from` on.
    fn find_record(&self, from: u64, end: u64) -> Result<Option<u64>, SourceError> {
        let mut base = from;
        while base < end {
            let window = self.storage.get(base, SEARCH_WINDOW.min(end - base))?;
            for place in memchr::memchr3_iter(op::CHUNK, op::MESSAGE, op::CHANNEL, &window) {
                let offset = base + place as u64;
                // A record's length is below 2^40, so three of its bytes are zero: cheap to check first.
                let looks_possible = window
                    .get(place + 6..place + 9)
                    .is_none_or(|high| high == [0, 0, 0]);
                if looks_possible && self.is_surely_record(offset, end)? {
                    return Ok(Some(offset));
                }
            }
            base += SEARCH_WINDOW;
        }
        Ok(None)
    }

    /// Whether this is a record that leads to others, or to the end. At the end, the last of them may be cut.
    fn is_surely_record(&self, offset: u64, end: u64) -> Result<bool, SourceError> {
        let mut at = offset;
        for step in 0..4 {
            let Some(header) = RecordHeader::parse(at, &self.storage.get(at, HEADER_LEN)?) else {
                return Ok(step > 0 && at <= end);
            };
            let front = self
                .storage
                .get(header.body(), header.len.min(ChunkHeader::MAX_LEN))?;
            let mut is_exact = false;
            let is_believable = match header.opcode {
                op::CHUNK => ChunkHeader::parse(&front).is_some_and(|chunk| {
                    is_exact = chunk.is_exact(header.len);
                    is_exact || chunk.is_plausible(header.len)
                }),
                op::MESSAGE => MessageHeader::parse(&front).is_some_and(|m| {
                    i64::try_from(m.log_time).is_ok() && self.definitions.find(m.channel).is_some()
                }),
                op::CHANNEL => header.len >= 16 && header.len < 1 << 20,
                op::SCHEMA => header.len >= 14 && header.len < 1 << 24,
                op::MESSAGE_INDEX => header.len >= 6 && (header.len - 6).is_multiple_of(16),
                op::CHUNK_INDEX
                | op::ATTACHMENT
                | op::METADATA
                | op::STATISTICS
                | op::DATA_END
                | op::FOOTER
                | 0x80.. => step > 0,
                _ => false,
            };
            if !is_believable {
                return Ok(false);
            }
            if header.end() > end {
                let may_be_cut = header.opcode < PRIVATE && header.len <= LARGEST_SMALL_RECORD;
                return Ok(is_exact || step > 0 && may_be_cut);
            }
            at = header.end();
            if at == end {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn report_bad_record(&mut self, header: RecordHeader, why: &str) {
        let message = format!(
            "{} cannot be read ({why}); it is skipped",
            name_of(header.opcode)
        );
        self.problems
            .push(Problem::at(ProblemKind::BadRecord, header.offset, message));
    }
}
