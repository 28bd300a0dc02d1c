//! Opening: by the summary if there is a good one, otherwise by scanning the file.

use std::sync::Arc;

use asof_core::{AttachmentEntry, MetadataEntry, Problem, ProblemKind, SourceError, Stamp};
use mcap::records::{self, Record, op};

use super::directory::{Contents, Origin, Section, SectionKind, clamped_range};
use super::record::{HEADER_LEN, MAGIC_LEN, MESSAGE_HEADER_LEN, RecordHeader, parse};
use super::scan::{Scan, no_footer};
use crate::Storage;

const FOOTER_LEN: u64 = 20;

/// The contents of a file, from its summary or from a scan.
pub(crate) struct Opened<'a> {
    pub scan: Scan<'a>,
    pub statistics: Option<records::Statistics>,
    /// Whether there are statistics and nothing contradicts them.
    pub is_trusted: bool,
}

pub(crate) fn open(storage: &dyn Storage) -> Result<Opened<'_>, SourceError> {
    let start = check_magic(storage)?;
    let mut complaints = Vec::new();
    match read_summary(storage) {
        Ok(Some(summary)) => match by_summary(storage, start, summary) {
            Ok(opened) => return Ok(opened),
            Err(Setback::Stop(error)) => return Err(error),
            Err(Setback::Scan(problem)) => complaints.push(problem),
        },
        Ok(None) => {}
        Err(Setback::Stop(error)) => return Err(error),
        Err(Setback::Scan(problem)) => complaints.push(problem),
    }
    by_walking(storage, start, complaints)
}

/// Why the summary cannot be used.
enum Setback {
    /// It is wrong: the file has to be scanned.
    Scan(Problem),
    /// The bytes cannot be read at all.
    Stop(SourceError),
}

impl From<SourceError> for Setback {
    fn from(error: SourceError) -> Self {
        Setback::Stop(error)
    }
}

/// How MCAP's first bytes, which are made to show that, look after a copy in text mode: the CR LF in them has lost its CR, or
/// has another one.
const TEXT_MODE: [&[u8]; 2] = [b"\x89MCAP0\n", b"\x89MCAP0\r\r"];

/// The offset of the first record. A file with other first bytes is not an MCAP file, unless it ends like one.
fn check_magic(storage: &dyn Storage) -> Result<u64, SourceError> {
    let unreadable = |reason: String| SourceError::Unreadable {
        place: storage.name().to_owned(),
        reason,
    };
    let front = storage.get(0, MAGIC_LEN)?;
    if front.is_empty() {
        return Err(unreadable(
            "the file is empty (0 bytes), so there is nothing to read".to_owned(),
        ));
    }
    if front == mcap::MAGIC {
        return Ok(MAGIC_LEN);
    }
    if TEXT_MODE.iter().any(|changed| front.starts_with(changed)) {
        return Err(unreadable(
            "this MCAP file was copied in text mode, which changed its line ends (CRLF) and cannot be undone; copy it again as binary"
                .to_owned(),
        ));
    }
    if mcap::MAGIC.starts_with(&front) {
        return Err(unreadable(format!(
            "the file ends after {} bytes, within MCAP's first 8",
            front.len()
        )));
    }
    if ends_with_magic(storage)? {
        return Ok(MAGIC_LEN);
    }
    Err(unreadable(
        "this is not an MCAP file: neither its first nor its last 8 bytes are MCAP's".to_owned(),
    ))
}

fn ends_with_magic(storage: &dyn Storage) -> Result<bool, SourceError> {
    let size = storage.size();
    Ok(size >= 2 * MAGIC_LEN && storage.get(size - MAGIC_LEN, MAGIC_LEN)? == mcap::MAGIC)
}

/// The end of the records: the magic after them, or the end of the file.
pub(crate) fn records_end(storage: &dyn Storage) -> Result<u64, SourceError> {
    Ok(if ends_with_magic(storage)? {
        storage.size() - MAGIC_LEN
    } else {
        storage.size()
    })
}

/// The records of a summary section, and where it starts.
struct RawSummary {
    start: u64,
    definitions: Vec<(u64, Record<'static>)>,
    statistics: Option<records::Statistics>,
    sections: Vec<Section>,
    attachments: Vec<(records::AttachmentIndex, u64)>,
    metadata: Vec<records::MetadataIndex>,
    /// Where each chunk's message indexes end.
    chunk_ends: Vec<u64>,
}

/// Parses the summary section; `None` if the footer declares that there is none.
fn read_summary(storage: &dyn Storage) -> Result<Option<RawSummary>, Setback> {
    let size = storage.size();
    let footer_offset = size
        .checked_sub(MAGIC_LEN + FOOTER_LEN + HEADER_LEN)
        .filter(|&at| at >= MAGIC_LEN);
    let Some(footer_offset) = footer_offset else {
        return Err(Setback::Scan(no_footer(size)));
    };
    let tail = storage.get(footer_offset, HEADER_LEN + FOOTER_LEN + MAGIC_LEN)?;
    let header = RecordHeader::parse(footer_offset, &tail);
    let is_footer =
        header.is_some_and(|header| header.opcode == op::FOOTER && header.len == FOOTER_LEN);
    if !is_footer || !tail.ends_with(mcap::MAGIC) {
        return Err(Setback::Scan(no_footer(size)));
    }
    let Ok(Record::Footer(footer)) = parse(op::FOOTER, &tail[HEADER_LEN as usize..]) else {
        return Err(Setback::Scan(no_footer(size)));
    };
    if footer.summary_start == 0 {
        return Ok(None);
    }
    if footer.summary_start < MAGIC_LEN || footer.summary_start > footer_offset {
        let message = format!(
            "the footer puts the summary at byte {}, which is outside of the file; the file was scanned instead",
            footer.summary_start
        );
        return Err(Setback::Scan(Problem::at(
            ProblemKind::BadIndex,
            footer_offset,
            message,
        )));
    }
    let section = storage.get(footer.summary_start, footer_offset - footer.summary_start)?;
    if footer.summary_crc != 0 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&section);
        crc.update(&tail[..(HEADER_LEN + FOOTER_LEN - 4) as usize]);
        if crc.finalize() != footer.summary_crc {
            return Err(Setback::Scan(Problem::at(
                ProblemKind::BadChecksum,
                footer.summary_start,
                "the summary's checksum is wrong; the file was scanned instead",
            )));
        }
    }
    parse_summary(footer.summary_start, &section).map(Some)
}

fn parse_summary(start: u64, section: &[u8]) -> Result<RawSummary, Setback> {
    let mut summary = RawSummary {
        start,
        definitions: Vec::new(),
        statistics: None,
        sections: Vec::new(),
        attachments: Vec::new(),
        metadata: Vec::new(),
        chunk_ends: Vec::new(),
    };
    let mut at = 0;
    while at < section.len() {
        let offset = start + at as u64;
        let bad = |why: &str| {
            let message = format!(
                "a record of the summary cannot be read ({why}); the file was scanned instead"
            );
            Setback::Scan(Problem::at(ProblemKind::BadRecord, offset, message))
        };
        let header =
            RecordHeader::parse(offset, &section[at..]).ok_or_else(|| bad("its header is cut"))?;
        let body_start = at + HEADER_LEN as usize;
        let body_end = usize::try_from(header.len)
            .ok()
            .and_then(|len| body_start.checked_add(len));
        let body = body_end.and_then(|end| section.get(body_start..end));
        let body = body.ok_or_else(|| bad("it reaches past the summary's end"))?;
        at = body_start + body.len();
        match header.opcode {
            op::SCHEMA | op::CHANNEL => {
                let record = parse(header.opcode, body).map_err(|error| bad(&error.to_string()))?;
                summary.definitions.push((offset, record.into_owned()));
            }
            op::CHUNK_INDEX => {
                let (section, end) = parse_chunk_index(body, summary.sections.last())
                    .ok_or_else(|| bad("a chunk index is malformed"))?;
                summary.sections.push(section);
                summary.chunk_ends.push(end);
            }
            op::STATISTICS | op::ATTACHMENT_INDEX | op::METADATA_INDEX => {
                match parse(header.opcode, body).map_err(|error| bad(&error.to_string()))? {
                    Record::Statistics(statistics) => summary.statistics = Some(statistics),
                    Record::AttachmentIndex(index) => {
                        let end = index.offset.saturating_add(index.length);
                        summary.attachments.push((index, end));
                    }
                    Record::MetadataIndex(index) => summary.metadata.push(index),
                    _ => {}
                }
            }
            0 => return Err(bad("its opcode is 0")),
            _ => {}
        }
    }
    Ok(summary)
}

/// The section that a chunk index describes, and where its message indexes end.
///
/// An hour of recording has thousands of these and they dominate opening, so they are parsed directly into the form
/// that is kept. `before` is the section of the last one.
fn parse_chunk_index(body: &[u8], before: Option<&Section>) -> Option<(Section, u64)> {
    let mut fields = super::record::Fields(body);
    let range = clamped_range(fields.u64()?, fields.u64()?);
    let offset = fields.u64()?;
    let end = offset.checked_add(fields.u64()?)?;
    let map_len = fields.u32()? as usize;
    let map = fields.bytes(map_len)?;
    let (pairs, []) = map.as_chunks::<10>() else {
        return None;
    };
    let entry =
        |&[a, b, place @ ..]: &[u8; 10]| (u16::from_le_bytes([a, b]), u64::from_le_bytes(place));
    let entries: Box<[(u16, u64)]> = pairs.iter().map(entry).collect();
    let message_index_len = fields.u64()?;
    let compression = fields.text()?;
    let before = before.map(|section| &section.compression);
    let compression = match before.filter(|before| ***before == *compression) {
        Some(same) => Arc::clone(same),
        None => Arc::from(compression),
    };
    let _compressed_size = fields.u64()?;
    let uncompressed_size = fields.u64()?;
    let contents = if entries.is_empty() {
        Contents::Unknown
    } else {
        Contents::Indexed(entries)
    };
    let indexes_end = end.checked_add(message_index_len)?;
    let section = Section {
        kind: SectionKind::Chunk,
        offset,
        end,
        range,
        contents,
        indexes_end,
        uncompressed_size,
        compression,
        origin: Origin::Index,
    };
    Some((section, indexes_end))
}

/// Trusts the summary for what it describes, and scans the rest.
fn by_summary(
    storage: &dyn Storage,
    start: u64,
    summary: RawSummary,
) -> Result<Opened<'_>, Setback> {
    let mut scan = Scan::new(storage);
    for (offset, record) in summary.definitions {
        let problem = match record {
            Record::Schema { header, data } => scan.definitions.add_schema(offset, header, &data),
            Record::Channel(channel) => scan.definitions.add_channel(offset, channel),
            _ => None,
        };
        scan.problems.extend(problem);
    }
    let mut known: Vec<(u64, u64)> =
        Vec::with_capacity(summary.sections.len() + summary.attachments.len());
    let mut sections = Vec::with_capacity(summary.sections.len());
    for (section, end) in summary.sections.into_iter().zip(summary.chunk_ends) {
        if section.offset < start || end > summary.start {
            let message = format!(
                "a chunk index points to bytes {} to {end}, outside of the file's data; the file was scanned instead",
                section.offset
            );
            return Err(Setback::Scan(Problem::at(
                ProblemKind::BadIndex,
                summary.start,
                message,
            )));
        }
        known.push((section.offset, end));
        sections.push(section);
    }
    let mut extra = |what, opcode, name: &str, (offset, end): (u64, u64)| {
        if offset < start || end > summary.start {
            return Err(Setback::Scan(bad_pointer(summary.start, what, name)));
        }
        known.push((offset, scan.end_of_extra(offset, end, opcode)?));
        Ok(())
    };
    let mut attachments = Vec::new();
    for (index, end) in summary.attachments {
        let place = (index.offset, end);
        extra("attachment", op::ATTACHMENT, &index.name, place)?;
        attachments.push(AttachmentEntry {
            name: index.name,
            media_type: index.media_type,
            log_time: Stamp::from_unsigned_nanos(index.log_time).ok(),
            create_time: Stamp::from_unsigned_nanos(index.create_time).ok(),
            size: index.data_size,
            offset: index.offset,
        });
    }
    let mut metadata = Vec::new();
    for index in summary.metadata {
        let place = (index.offset, index.offset.saturating_add(index.length));
        extra("metadata", op::METADATA, &index.name, place)?;
        metadata.push(MetadataEntry {
            name: index.name,
            offset: index.offset,
        });
    }
    known.sort_unstable();
    let mut at = start;
    for (from, to) in known {
        if from < at {
            let message =
                format!("two indexes claim the bytes at {from}; the file was scanned instead");
            return Err(Setback::Scan(Problem::at(
                ProblemKind::BadIndex,
                summary.start,
                message,
            )));
        }
        scan.walk(at, from)?;
        at = to;
    }
    scan.walk(at, summary.start)?;
    let is_trusted = scan.problems.is_empty()
        && summary
            .statistics
            .as_ref()
            .is_some_and(|found| is_believable(found, &sections, &scan.directory.sections));
    if !is_trusted {
        for section in &sections {
            scan.count_indexed(section)?;
        }
    }
    scan.directory.sections.extend(sections);
    scan.directory.attachments.extend(attachments);
    scan.directory.attachments.sort_by_key(|entry| entry.offset);
    scan.directory.metadata.extend(metadata);
    scan.directory.metadata.sort_by_key(|entry| entry.offset);
    Ok(Opened {
        scan,
        statistics: summary.statistics,
        is_trusted,
    })
}

/// Whether statistics are consistent, and the sections have room for the messages that they count.
fn is_believable(statistics: &records::Statistics, chunks: &[Section], others: &[Section]) -> bool {
    let sections = || chunks.iter().chain(others);
    let by_channel = statistics.channel_message_counts.values();
    let counted = by_channel.fold(0u64, |sum, &count| sum.saturating_add(count));
    let agrees =
        statistics.channel_message_counts.is_empty() || counted == statistics.message_count;
    let room = sections().fold(0u64, |sum, section| {
        sum.saturating_add(section.uncompressed_size)
    });
    let least = HEADER_LEN + MESSAGE_HEADER_LEN;
    let fits = statistics.message_count <= room / least;
    // A writer that does not count leaves zeros.
    let is_counted = statistics.message_count > 0
        || sections().all(|section| match &section.contents {
            Contents::Indexed(entries) => entries.is_empty(),
            Contents::Listed(ids) => ids.is_empty(),
            Contents::Unknown => section.uncompressed_size < least,
        });
    agrees && fits && is_counted
}

fn bad_pointer(offset: u64, what: &str, name: &str) -> Problem {
    let message = format!(
        "the index of {what} '{name}' points outside of the file's data; the file was scanned instead"
    );
    Problem::at(ProblemKind::BadIndex, offset, message)
}

fn by_walking(
    storage: &dyn Storage,
    start: u64,
    complaints: Vec<Problem>,
) -> Result<Opened<'_>, SourceError> {
    let mut scan = Scan::new(storage);
    scan.problems.extend(complaints);
    if storage.get(0, MAGIC_LEN)? != mcap::MAGIC {
        scan.problems.push(Problem::at(
            ProblemKind::BadRecord,
            0,
            "the file does not begin as an MCAP file does",
        ));
    }
    scan.walk(start, records_end(storage)?)?;
    Ok(Opened {
        scan,
        statistics: None,
        is_trusted: false,
    })
}
