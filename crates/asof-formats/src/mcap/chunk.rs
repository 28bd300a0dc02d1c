//! Reading one section of the file: its messages in order, with the buffer that holds them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{Problem, ProblemKind, Row, SourceError, Stamp, TimeRange};
use bytes::Bytes;
use mcap::records::{Record, op};

use super::Mcap;
use super::directory::{Contents, Origin, Section, SectionKind, clamped};
use super::hidden::PRIVATE;
use super::inner::{Gap, InnerRecords, Step};
use super::record::{
    ChunkHeader, HEADER_LEN, MESSAGE_HEADER_LEN, MessageHeader, RecordHeader, parse,
};
use crate::buffers::BufferPool;
use crate::decompress::{decompress, decompress_front};
use crate::filling::{Filling, ZSTD};
use crate::limits::DecompressionLimits;
use crate::sections::{ChannelTable, Loaded, SectionQuery, order_of};

impl Mcap {
    /// Reads a section. What cannot be read is reported and skipped; only a failing disk is an error.
    pub(super) fn load_section(
        &self,
        index: usize,
        wanted: &SectionQuery,
    ) -> Result<Loaded, SourceError> {
        let section = &self.directory.sections[index];
        if section.kind == SectionKind::Chunk
            && !wanted.is_everything()
            && let Some(places) = self.places_by_index(index, wanted)?
        {
            let Some(last) = places.iter().map(|place| place.offset).max() else {
                return Ok(Loaded::default());
            };
            if let Some(buffer) = self.contents_through(section, last)?
                && let Some(rows) = self.rows_at(index, &buffer, &places)
            {
                return Ok(self.unpacked(section, buffer, rows));
            }
        }
        let Some((buffer, base)) = self.contents(section, Checksum::Compared)? else {
            return Ok(Loaded::default());
        };
        let rows = Walk::new(self, index, base, &buffer).run(wanted)?;
        Ok(self.unpacked(section, buffer, rows))
    }

    /// The uncompressed bytes of a section, and the offset to add to positions in them in problems.
    fn contents(
        &self,
        section: &Section,
        checksum: Checksum,
    ) -> Result<Option<(Bytes, u64)>, SourceError> {
        if section.kind == SectionKind::Bare {
            let bytes = self
                .storage()
                .get(section.offset, section.end - section.offset)?;
            return Ok(Some((bytes, section.offset)));
        }
        if section.offset >= self.refused_from && !section.compression.is_empty() {
            return Ok(None);
        }
        let Some((header, data)) = self.chunk_data(section)? else {
            return Ok(None);
        };
        let is_cut = (data.len() as u64) < header.compressed_size;
        let decompress = |compression: &str, declared| {
            decompress(compression, &data, declared, &self.limits, &self.pool)
        };
        let mut result = decompress(&header.compression, header.uncompressed_size);
        let told = (&*section.compression, section.uncompressed_size);
        // If the chunk's own header is damaged, its index is used.
        if result.fault.is_some()
            && section.origin == Origin::Index
            && told != (&*header.compression, header.uncompressed_size)
        {
            let again = decompress(&section.compression, section.uncompressed_size);
            if again.fault.is_none() || again.bytes.len() > result.bytes.len() {
                result.bytes = again.bytes;
            }
        }
        self.stats
            .count_chunk(!header.compression.is_empty(), result.bytes.len());
        let is_whole = result.fault.is_none();
        if let Some((kind, message)) = result.fault.filter(|_| !is_cut) {
            self.report(Problem::at(
                kind,
                section.offset,
                format!("chunk: {message}"),
            ));
        }
        let is_compared = is_whole && header.crc != 0 && checksum == Checksum::Compared;
        if is_compared && crc32fast::hash(&result.bytes) != header.crc {
            let message =
                "chunk: its checksum is wrong; its messages were read anyway and may be damaged";
            self.report(Problem::at(
                ProblemKind::BadChecksum,
                section.offset,
                message,
            ));
        }
        Ok(Some((result.bytes, section.offset)))
    }

    /// The contents of a chunk at least through the message record at `last`.
    fn contents_through(&self, section: &Section, last: u64) -> Result<Option<Bytes>, SourceError> {
        let is_enough = |front: &[u8]| {
            let record = front.get(last as usize..);
            let record = record.and_then(|record| RecordHeader::parse(last, record));
            record.is_some_and(|record| record.end() <= front.len() as u64)
        };
        self.contents_until(section, last, is_enough)
    }

    /// The contents of a chunk until they are enough, which they are at about `end`. Of an uncompressed chunk only what is
    /// used is touched, and a compressed one is decompressed no further than it takes, where that is less work. The
    /// checksum is one of all contents: a part is not compared with it.
    pub(super) fn contents_until(
        &self,
        section: &Section,
        end: u64,
        is_enough: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Bytes>, SourceError> {
        // At once, zstd is faster than in steps.
        let parts = if *section.compression == *"zstd" {
            2
        } else {
            1
        };
        let is_far = end > section.uncompressed_size / parts;
        if section.kind == SectionKind::Chunk
            && section.offset < self.refused_from
            && !is_far
            && let Some((header, data)) = self.chunk_data(section)?
        {
            if header.compression.is_empty() {
                return Ok(Some(data));
            }
            let ChunkHeader {
                compression,
                uncompressed_size,
                ..
            } = &header;
            let front = decompress_front(
                compression,
                &data,
                *uncompressed_size,
                &self.limits,
                &self.pool,
                is_enough,
            );
            if let Some(front) = front {
                self.stats.count_chunk(true, front.len());
                return Ok(Some(front));
            }
        }
        let contents = self.contents(section, Checksum::Ignored)?;
        Ok(contents.map(|(bytes, _)| bytes))
    }

    /// The header and the compressed data of a chunk, truncated at the end of the file.
    pub(super) fn chunk_data(
        &self,
        section: &Section,
    ) -> Result<Option<(ChunkHeader, Bytes)>, SourceError> {
        let size = self.storage().size();
        let front = self
            .storage()
            .get(section.offset, HEADER_LEN + ChunkHeader::MAX_LEN)?;
        let record =
            RecordHeader::parse(section.offset, &front).filter(|record| record.opcode == op::CHUNK);
        let chunk = front
            .get(HEADER_LEN as usize..)
            .and_then(ChunkHeader::parse);
        let by_index = section.origin == Origin::Index;
        let (chunk, record_end) = match (record, chunk) {
            (Some(record), Some(chunk)) => (chunk, record.end()),
            // Half of the header is damaged; the rest comes from the index.
            (Some(_), None) if by_index => {
                self.report_head(section);
                (ChunkHeader::by_index(section), section.end)
            }
            (None, Some(chunk)) if by_index && *chunk.compression == *section.compression => {
                self.report_head(section);
                (chunk, section.end)
            }
            _ => {
                let message =
                    "an index points to a chunk here, but there is none; its messages are missing";
                self.report(Problem::at(ProblemKind::BadIndex, section.offset, message));
                return Ok(None);
            }
        };
        let start = section
            .offset
            .saturating_add(HEADER_LEN)
            .saturating_add(chunk.len());
        let end = start.saturating_add(chunk.compressed_size);
        let room = match section.origin {
            Origin::Cut => section.end,
            // The record's own length takes precedence; one of the two may be damaged.
            _ => record_end.max(section.end),
        };
        let room = room.min(size);
        // A scan that found the file truncated here has already reported it.
        if end > room && section.origin != Origin::Cut {
            let message = format!(
                "chunk: {} of its {} compressed bytes are there",
                room.saturating_sub(start),
                chunk.compressed_size
            );
            self.report(Problem::at(ProblemKind::Truncated, section.offset, message));
        } else if by_index && record_end != section.end {
            let message = format!(
                "chunk: it is {} bytes long, not the {} that its index gives",
                record_end.saturating_sub(section.offset),
                section.end.saturating_sub(section.offset)
            );
            self.report(Problem::at(ProblemKind::BadIndex, section.offset, message));
        }
        let data = self
            .storage()
            .get(start, end.min(room).saturating_sub(start))?;
        Ok(Some((chunk, data)))
    }

    fn report_head(&self, section: &Section) {
        let message = "chunk: its header is damaged; it was read by its index instead";
        self.report(Problem::at(ProblemKind::BadRecord, section.offset, message));
    }

    /// Rows of one buffer; payloads that were compressed one by one are decompressed into another.
    fn unpacked(&self, section: &Section, buffer: Bytes, rows: Vec<Row>) -> Loaded {
        let (loaded, fault) = unpack_rows(buffer, rows, (&self.pool, &self.limits), |channel| {
            self.is_cdr(channel)
        });
        if loaded.buffers.len() > 1 {
            self.has_packed.store(true, Ordering::Relaxed);
        }
        if let Some(fault) = fault {
            self.report(Problem::at(ProblemKind::BadRecord, section.offset, fault));
        }
        loaded
    }

    fn is_cdr(&self, channel: u32) -> bool {
        let channels = &self.table().channels;
        let channel = channels.get(channel as usize);
        channel.is_some_and(|channel| channel.message_encoding == "cdr")
    }

    /// Where the wanted messages of a chunk are by its message indexes. `None` if the chunk has none, or they cannot be
    /// read.
    fn places_by_index(
        &self,
        index: usize,
        wanted: &SectionQuery,
    ) -> Result<Option<Vec<Place>>, SourceError> {
        let Contents::Indexed(entries) = &self.directory.sections[index].contents else {
            return Ok(None);
        };
        let table = self.table();
        let mut places = Vec::new();
        for &(id, place) in entries {
            let Some(channel) = table.index_of(id) else {
                return Ok(None);
            };
            if !wanted.wants(channel, &table.channels) {
                continue;
            }
            let Some(times) = self.message_index(id, place)? else {
                return Ok(None);
            };
            for (log_time, offset) in times.iter() {
                let Ok(log_time) = Stamp::from_unsigned_nanos(log_time) else {
                    return Ok(None);
                };
                if wanted.range.contains(log_time) {
                    places.push(Place {
                        channel,
                        log_time,
                        offset,
                    });
                }
            }
        }
        Ok(Some(places))
    }

    /// The messages at these places, in order, without walking all the others. `None` if one of them is not there.
    fn rows_at(&self, index: usize, buffer: &[u8], places: &[Place]) -> Option<Vec<Row>> {
        let table = self.table();
        let row = |place: &Place| {
            let row = row_at(buffer, place.offset, index, |id| table.index_of(id));
            row.filter(|row| (row.channel, row.log_time) == (place.channel, place.log_time))
        };
        let mut rows: Vec<Row> = places.iter().map(row).collect::<Option<_>>()?;
        rows.sort_by_key(|row| (row.log_time, row.order));
        Some(rows)
    }

    /// All bytes of a section that was read before, decompressed; empty if there is none.
    pub(super) fn bytes_of(&self, index: usize) -> Result<Bytes, SourceError> {
        let contents = self.contents(&self.directory.sections[index], Checksum::Ignored)?;
        Ok(contents.map(|(bytes, _)| bytes).unwrap_or_default())
    }

    /// The messages at these positions of a section's contents, from message indexes, each with its buffer; `None`
    /// where there is no message.
    pub(super) fn load_at(
        &self,
        index: usize,
        places: &[u64],
    ) -> Result<Vec<Option<(Bytes, Row)>>, SourceError> {
        let section = &self.directory.sections[index];
        let last = places.iter().copied().max().unwrap_or(0);
        let buffer = self.contents_through(section, last)?.unwrap_or_default();
        let table = self.table();
        let found = |&place: &u64| {
            let row = row_at(&buffer, place, index, |id| table.index_of(id))?;
            let mut loaded = self.unpacked(section, buffer.clone(), vec![row]);
            let row = loaded.rows.pop()?;
            Some((loaded.buffers.swap_remove(row.buffer as usize), row))
        };
        Ok(places.iter().map(found).collect())
    }

    /// The message index of a channel at an offset of the file; `None` if there is none.
    pub(super) fn message_index(
        &self,
        channel: u16,
        offset: u64,
    ) -> Result<Option<MessageTimes>, SourceError> {
        let front = self.storage().get(offset, HEADER_LEN + 6)?;
        let header =
            RecordHeader::parse(offset, &front).filter(|header| header.opcode == op::MESSAGE_INDEX);
        let Some(header) = header else {
            return Ok(None);
        };
        let mut fields =
            super::record::Fields(front.get(HEADER_LEN as usize..).unwrap_or_default());
        let (Some(found), Some(len)) = (fields.u16(), fields.u32()) else {
            return Ok(None);
        };
        if found != channel || len % 16 != 0 || u64::from(len) + 6 > header.len {
            return Ok(None);
        }
        let entries = self.storage().get(header.body() + 6, u64::from(len))?;
        Ok((entries.len() == len as usize).then_some(MessageTimes(entries)))
    }
}

/// A message, by a message index.
struct Place {
    channel: u32,
    log_time: Stamp,
    offset: u64,
}

/// Whether the checksum of a chunk is compared: not where it was when the chunk was read before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checksum {
    Compared,
    Ignored,
}

/// A message index: pairs of log time and position, as stored in the file.
pub(crate) struct MessageTimes(Bytes);

impl MessageTimes {
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.chunks_exact(16).map(|pair| {
            let (time, place) = pair.split_at(8);
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            (word(time), word(place))
        })
    }
}

impl Mcap {
    /// Whether a section may hold a wanted message.
    pub(super) fn holds_wanted(
        &self,
        section: usize,
        wanted: &SectionQuery,
        table: &ChannelTable<u16>,
    ) -> bool {
        let section = &self.directory.sections[section];
        wanted.range.overlaps(section.range)
            && section.contents.may_hold(|id| {
                table
                    .index_of(id)
                    .is_none_or(|channel| wanted.wants(channel, &table.channels))
            })
    }
}

/// The message record at `place`, if there is one with a known channel and valid times.
pub(super) fn row_at(
    buffer: &[u8],
    place: u64,
    section: usize,
    channel_of: impl Fn(u16) -> Option<u32>,
) -> Option<Row> {
    let record = buffer.get(usize::try_from(place).ok()?..)?;
    let header =
        RecordHeader::parse(place, record).filter(|header| header.opcode == op::MESSAGE)?;
    let len = header.len.checked_sub(MESSAGE_HEADER_LEN)?;
    if header.end() > buffer.len() as u64 {
        return None;
    }
    let message = MessageHeader::parse(&record[HEADER_LEN as usize..])?;
    Some(Row {
        log_time: Stamp::from_unsigned_nanos(message.log_time).ok()?,
        publish_time: clamped(message.publish_time),
        order: order_of(section, place),
        offset: place + HEADER_LEN + MESSAGE_HEADER_LEN,
        len,
        sequence: message.sequence,
        channel: channel_of(message.channel)?,
        buffer: 0,
    })
}

impl Section {
    /// The records in its contents.
    pub(super) fn records_in<'a>(&self, contents: &'a [u8]) -> InnerRecords<'a> {
        InnerRecords::new(contents, self.range, self.origin == Origin::Cut)
    }
}

/// A walk over the records of one section.
struct Walk<'a> {
    file: &'a Mcap,
    section: usize,
    /// The offset that problems name: that of the section in the file.
    base: u64,
    buffer: &'a Bytes,
    /// Lacks the channels that this walk itself has found; see [`Walk::channel`].
    table: Arc<ChannelTable<u16>>,
    /// How often a channel was not in the table.
    misses: usize,
    losses: Losses,
}

/// The text about messages whose log time does not fit a stamp.
const PAST_2262: &str = "have a time past the year 2262, which asof cannot hold; they are skipped here, and copied unchanged by `asof recover` and `asof convert`";

/// Counts of faulty messages.
#[derive(Default)]
struct Losses {
    unknown_channel: u64,
    bad_time: u64,
    bad_publish_time: u64,
    outside_range: u64,
}

impl<'a> Walk<'a> {
    fn new(file: &'a Mcap, section: usize, base: u64, buffer: &'a Bytes) -> Self {
        Walk {
            file,
            section,
            base,
            buffer,
            table: file.table(),
            misses: 0,
            losses: Losses::default(),
        }
    }

    fn run(mut self, wanted: &SectionQuery) -> Result<Vec<Row>, SourceError> {
        let buffer: &[u8] = self.buffer;
        let declared = self.file.directory.sections[self.section].range;
        let mut rows: Vec<Row> = Vec::with_capacity(self.file.likely_rows(buffer.len()));
        let mut is_sorted = true;
        let mut last = Stamp::MIN;
        let mut records = self.file.directory.sections[self.section].records_in(buffer);
        loop {
            let header = match records.next() {
                Step::Record(header) => header,
                Step::Gap(gap) => {
                    self.report_gap(&gap);
                    continue;
                }
                Step::End => break,
            };
            let place = header.offset as usize;
            let body = &buffer[header.body() as usize..header.end() as usize];
            if header.opcode != op::MESSAGE {
                self.meet_other(header, body);
                continue;
            }
            let Some(message) = MessageHeader::parse(body) else {
                continue;
            };
            let Some((channel, is_wanted)) = self.channel(message.channel, wanted)? else {
                self.losses.unknown_channel += 1;
                continue;
            };
            if !is_wanted {
                continue;
            }
            let Ok(log_time) = Stamp::from_unsigned_nanos(message.log_time) else {
                self.losses.bad_time += 1;
                continue;
            };
            let publish_time = clamped(message.publish_time);
            self.losses.bad_publish_time += u64::from(i64::try_from(message.publish_time).is_err());
            self.losses.outside_range += u64::from(!declared.contains(log_time));
            if !wanted.range.contains(log_time) {
                continue;
            }
            is_sorted &= log_time >= last;
            last = log_time;
            rows.push(Row {
                log_time,
                publish_time,
                order: order_of(self.section, place as u64),
                offset: (place as u64) + HEADER_LEN + MESSAGE_HEADER_LEN,
                len: header.len - MESSAGE_HEADER_LEN,
                sequence: message.sequence,
                channel,
                buffer: 0,
            });
        }
        if !is_sorted {
            rows.sort_by_key(|row| (row.log_time, row.order));
        }
        self.file.learn_density(rows.len());
        self.report_losses(declared);
        Ok(rows)
    }

    /// The index of a channel, and whether it is wanted; if the channel is unknown, every definition in the file is
    /// searched.
    ///
    /// A chunk may define very many channels, each before its first message. So the table is not copied for each:
    /// channels that it lacks are looked up one by one, and it is copied after as many lookups as it has channels.
    #[inline]
    fn channel(
        &mut self,
        id: u16,
        wanted: &SectionQuery,
    ) -> Result<Option<(u32, bool)>, SourceError> {
        if let Some(index) = self.table.index_of(id) {
            return Ok(Some((index, wanted.wants(index, &self.table.channels))));
        }
        self.newer_channel(id, wanted)
    }

    #[cold]
    fn newer_channel(
        &mut self,
        id: u16,
        wanted: &SectionQuery,
    ) -> Result<Option<(u32, bool)>, SourceError> {
        let find = |file: &Mcap| {
            let definitions = file.definitions();
            let (index, channel) = definitions.find(id)?;
            Some((index, wanted.topics.contains(&channel.topic)))
        };
        self.misses += 1;
        if self.misses > self.table.channels.len() {
            self.misses = 0;
            self.table = self.file.table();
        }
        if let Some(found) = find(self.file) {
            return Ok(Some(found));
        }
        self.file.harvest_all()?;
        Ok(find(self.file))
    }

    fn meet_other(&self, header: RecordHeader, body: &[u8]) {
        match header.opcode {
            op::SCHEMA | op::CHANNEL => self.file.define(self.base, parse(header.opcode, body)),
            PRIVATE.. => self.file.hidden.note(self.section),
            _ => {}
        }
    }

    fn report_gap(&self, gap: &Gap) {
        let Gap { at, next, what } = gap;
        let rest = match next.checked_sub(*at) {
            Some(len) if *next == self.buffer.len() => {
                format!("the {len} bytes from there are skipped")
            }
            Some(len) => format!("{len} bytes are skipped"),
            None => "the record before it has a wrong length: others were found within it".into(),
        };
        let message = format!("chunk: {what} at byte {at} of its contents; {rest}");
        self.file
            .report(Problem::at(ProblemKind::BadRecord, self.base, message));
    }

    fn report_losses(&self, declared: TimeRange) {
        let report = |kind, count: u64, what: String| {
            if count > 0 {
                self.file.report(Problem::at(
                    kind,
                    self.base,
                    format!("{count} messages {what}"),
                ));
            }
        };
        let Losses {
            unknown_channel,
            bad_time,
            bad_publish_time,
            outside_range,
        } = self.losses;
        let what = "are on undefined channels and were skipped".to_owned();
        report(ProblemKind::UnknownReference, unknown_channel, what);
        if bad_time > 0 {
            self.file.hidden.note(self.section);
        }
        report(ProblemKind::BadTime, bad_time, PAST_2262.to_owned());
        let what = "have a publish time after the year 2262; it is read as the latest time that asof can hold";
        report(ProblemKind::BadTime, bad_publish_time, what.to_owned());
        let what = format!(
            "are outside of the times {declared:?} that their chunk declares, and may come out of order"
        );
        report(ProblemKind::BadIndex, outside_range, what);
    }
}

/// Reads definitions only: the records of a section that are not messages, and the channels of those that are.
pub(crate) struct Glance {
    pub range: TimeRange,
    pub counts: std::collections::BTreeMap<u16, u64>,
}

impl Mcap {
    /// Scans a section for what a message index would contain, and adds its definitions.
    pub(super) fn glance(&self, index: usize) -> Result<Glance, SourceError> {
        let mut glance = Glance {
            range: TimeRange::EMPTY,
            counts: std::collections::BTreeMap::new(),
        };
        let section = &self.directory.sections[index];
        let Some((buffer, base)) = self.contents(section, Checksum::Compared)? else {
            return Ok(glance);
        };
        let mut records = section.records_in(&buffer);
        loop {
            let header = match records.next() {
                Step::Record(header) => header,
                Step::Gap(_) => continue,
                Step::End => break,
            };
            let body = &buffer[header.body() as usize..header.end() as usize];
            match header.opcode {
                op::MESSAGE => {
                    let Some(message) = MessageHeader::parse(body) else {
                        continue;
                    };
                    *glance.counts.entry(message.channel).or_default() += 1;
                    glance.range = glance.range.cover_stamp(clamped(message.log_time));
                }
                op::SCHEMA | op::CHANNEL => {
                    self.define(base, parse(header.opcode, body));
                }
                _ => {}
            }
        }
        Ok(glance)
    }

    /// The messages with a time that no stamp can hold, per defined channel; only sections that declare such a time are
    /// read.
    pub(super) fn count_beyond(&self) -> std::collections::BTreeMap<u16, u64> {
        let mut found = std::collections::BTreeMap::new();
        for section in &self.directory.sections {
            if section.range.end != Stamp::MAX {
                continue;
            }
            // That it cannot be read is told by its readers.
            let Ok(Some((buffer, base))) = self.contents(section, Checksum::Compared) else {
                continue;
            };
            let table = self.table();
            let mut here = 0;
            let mut records = section.records_in(&buffer);
            loop {
                let header = match records.next() {
                    Step::Record(header) => header,
                    Step::Gap(_) => continue,
                    Step::End => break,
                };
                let body = &buffer[header.body() as usize..header.end() as usize];
                let message = MessageHeader::parse(body).filter(|_| header.opcode == op::MESSAGE);
                let message = message.filter(|message| i64::try_from(message.log_time).is_err());
                if let Some(message) = message.filter(|m| table.index_of(m.channel).is_some()) {
                    *found.entry(message.channel).or_default() += 1;
                    here += 1;
                }
            }
            if here > 0 {
                let message = format!("{here} messages {PAST_2262}");
                self.report(Problem::at(ProblemKind::BadTime, base, message));
            }
        }
        found
    }

    /// Adds a definition from within a chunk.
    fn define(&self, offset: u64, parsed: Result<Record<'_>, mcap::McapError>) {
        let mut definitions = self.definitions_mut();
        let problem = match parsed {
            Ok(Record::Schema { header, data }) => definitions.add_schema(offset, header, &data),
            Ok(Record::Channel(channel)) => definitions.add_channel(offset, channel),
            Ok(_) => None,
            Err(error) => {
                let message =
                    format!("chunk: a definition in it cannot be read ({error}); it was skipped");
                Some(Problem::at(ProblemKind::BadRecord, offset, message))
            }
        };
        drop(definitions);
        if let Some(problem) = problem {
            self.report(problem);
        }
    }
}

/// Rows of one buffer; payloads that were compressed one by one, as ROS 2 does with CDR, are decompressed into another.
/// Also the problem of those that cannot be decompressed.
pub(super) fn unpack_rows(
    buffer: Bytes,
    mut rows: Vec<Row>,
    (pool, limits): (&Arc<BufferPool>, &DecompressionLimits),
    is_cdr: impl Fn(u32) -> bool,
) -> (Loaded, Option<String>) {
    let is_packed = |row: &Row| packed_payload(&buffer, row).is_some_and(|_| is_cdr(row.channel));
    if !rows.iter().any(is_packed) {
        return (Loaded::of(buffer, rows), None);
    }
    let mut filling = Filling::new(pool, limits, buffer.len() as u64);
    let mut lost = 0u64;
    let mut reason = String::new();
    rows.retain_mut(|row| {
        let Some(payload) = packed_payload(&buffer, row).filter(|_| is_cdr(row.channel)) else {
            return true;
        };
        let start = filling.used as u64;
        if let Err(fault) = filling.push(payload) {
            lost += 1;
            reason = fault;
            return false;
        }
        (row.buffer, row.offset) = (1, start);
        row.len = filling.used as u64 - start;
        true
    });
    let fault = (lost > 0).then(|| {
        format!(
            "{lost} messages that were compressed one by one cannot be decompressed ({reason}) and were skipped"
        )
    });
    let buffers = vec![buffer, filling.seal()];
    (Loaded { buffers, rows }, fault)
}

/// A payload that is compressed by itself.
fn packed_payload<'a>(buffer: &'a [u8], row: &Row) -> Option<&'a [u8]> {
    let start = usize::try_from(row.offset).ok()?;
    let payload = buffer.get(start..start.checked_add(row.len as usize)?)?;
    payload.starts_with(&ZSTD).then_some(payload)
}
