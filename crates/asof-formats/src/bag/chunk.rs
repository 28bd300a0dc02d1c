//! Reading one section of a bag: its messages in order, with the buffer that holds them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use asof_core::{Problem, ProblemKind, Row, SourceError, TimeRange};
use bytes::Bytes;

use super::record::{Fields, Frame, find_record, index_entries, message_of, name_of, op};
use super::{Bag, Contents, Section, SectionKind};
use crate::decompress::{Decompressed, decompress, decompress_bz2};
use crate::sections::{ChannelTable, Loaded, SectionQuery, order_of};

/// The maximum length of the header of a chunk record.
const LONGEST_HEAD: usize = 256;

/// The index records after a chunk: connection, and pairs of time and position; sorted by connection, as every
/// connection of the chunk is looked up and there may be as many records as connections.
pub(crate) struct ChunkIndex(Vec<(u32, Bytes)>);

impl ChunkIndex {
    fn new(mut records: Vec<(u32, Bytes)>) -> Self {
        records.sort_by_key(|(conn, _)| *conn);
        ChunkIndex(records)
    }

    /// Times and positions of the messages of a connection.
    pub fn of(&self, conn: u32) -> impl Iterator<Item = (asof_core::Stamp, u64)> + '_ {
        let first = self.0.partition_point(|(found, _)| *found < conn);
        self.0[first..]
            .iter()
            .take_while(move |(found, _)| *found == conn)
            .flat_map(|(_, entries)| index_entries(entries))
    }

    fn count(&self, conn: u32) -> u64 {
        self.of(conn).count() as u64
    }
}

/// The result of a walk over a section that keeps no message.
pub(crate) struct Glance {
    pub range: TimeRange,
    pub counts: BTreeMap<u32, u64>,
    pub bytes: u64,
}

/// The header of a chunk record.
pub(crate) struct ChunkHead {
    frame: Frame,
    pub compression: String,
    pub size: u64,
}

impl Bag {
    /// Reads a section. What cannot be read is reported and skipped; only a failing disk is an error.
    pub(super) fn load_section(
        &self,
        index: usize,
        wanted: &SectionQuery,
    ) -> Result<Loaded, SourceError> {
        let section = &self.sections[index];
        if !wanted.is_everything()
            && matches!(section.contents, Contents::Indexed(_))
            && let Some(loaded) = self.load_by_index(index, wanted)?
        {
            return Ok(loaded);
        }
        let Some((buffer, base)) = self.contents(section)? else {
            return Ok(Loaded::default());
        };
        let rows = Walk::new(self, index, base, &buffer).run(wanted);
        Ok(Loaded::of(buffer, rows))
    }

    /// Walks a section for what an index would hold, and adds its connections.
    pub(super) fn glance(&self, index: usize) -> Result<Glance, SourceError> {
        let mut glance = Glance {
            range: TimeRange::EMPTY,
            counts: BTreeMap::new(),
            bytes: 0,
        };
        let Some((buffer, base)) = self.contents(&self.sections[index])? else {
            return Ok(glance);
        };
        glance.bytes = buffer.len() as u64;
        let mut walk = Walk::new(self, index, base, &buffer);
        while let Some((_, conn, time)) = walk.next_message() {
            *glance.counts.entry(conn).or_default() += 1;
            glance.range = glance.range.cover_stamp(time);
        }
        Ok(glance)
    }

    /// The messages at these positions of a section's contents.
    pub(super) fn load_at(
        &self,
        index: usize,
        places: &[u64],
    ) -> Result<(Bytes, Vec<Option<Row>>), SourceError> {
        let Some((buffer, _)) = self.contents(&self.sections[index])? else {
            return Ok((Bytes::new(), vec![None; places.len()]));
        };
        let table = self.table();
        let row = |&place: &u64| row_at(&buffer, place, index, &table);
        let rows = places.iter().map(row).collect();
        Ok((buffer, rows))
    }

    /// The index records after a chunk; `None` if they are not all there.
    pub(super) fn chunk_index(&self, section: &Section) -> Result<Option<ChunkIndex>, SourceError> {
        let Contents::Indexed(counts) = &section.contents else {
            return Ok(None);
        };
        let Some(head) = self.chunk_head(section)? else {
            return Ok(None);
        };
        let start = head.frame.end();
        let bytes = self.storage.get(start, section.end.saturating_sub(start))?;
        let mut found = Vec::new();
        let mut at = 0;
        while let Some((frame, header)) = bytes
            .get(at..)
            .and_then(|rest| Frame::parse(at as u64, rest))
        {
            let fields = Fields::parse(header).filter(|fields| fields.op == Some(op::INDEX));
            let (Some(fields), true) = (fields, frame.end() <= bytes.len() as u64) else {
                break;
            };
            at = frame.end() as usize;
            if let Some(conn) = fields.conn {
                found.push((conn, bytes.slice(frame.data() as usize..at)));
            }
        }
        let index = ChunkIndex::new(found);
        let is_whole = counts
            .iter()
            .all(|&(conn, count)| index.count(conn) == count);
        Ok(is_whole.then_some(index))
    }

    /// An uncompressed chunk with a valid index is not walked: only the wanted messages are touched.
    fn load_by_index(
        &self,
        index: usize,
        wanted: &SectionQuery,
    ) -> Result<Option<Loaded>, SourceError> {
        let section = &self.sections[index];
        let Some(head) = self.chunk_head(section)? else {
            return Ok(None);
        };
        if head.compression != "none" {
            return Ok(None);
        }
        let (Some(entries), Some(counts)) = (self.chunk_index(section)?, section.contents.known())
        else {
            return Ok(None);
        };
        let Some((buffer, _)) = self.contents(section)? else {
            return Ok(None);
        };
        let table = self.table();
        let mut rows = Vec::new();
        for &(conn, _) in counts {
            let Some(channel) = table.index_of(conn) else {
                return Ok(None);
            };
            if !wanted.wants(channel, &table.channels) {
                continue;
            }
            for (time, place) in entries.of(conn) {
                if !wanted.range.contains(time) {
                    continue;
                }
                let row = row_at(&buffer, place, index, &table)
                    .filter(|row| row.channel == channel && row.log_time == time);
                let Some(row) = row else { return Ok(None) };
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| (row.log_time, row.order));
        Ok(Some(Loaded::of(buffer, rows)))
    }

    /// The uncompressed bytes of a section, and its offset in the file.
    fn contents(&self, section: &Section) -> Result<Option<(Bytes, u64)>, SourceError> {
        if section.kind == SectionKind::Bare {
            let len = section.end.saturating_sub(section.offset);
            return Ok(Some((
                self.storage.get(section.offset, len)?,
                section.offset,
            )));
        }
        if section.offset >= self.refused_from && section.compression != "none" {
            return Ok(None);
        }
        let Some(head) = self.chunk_head(section)? else {
            return self.headless(section);
        };
        let start = head.frame.data();
        let room = section.end.min(self.storage.size()).saturating_sub(start);
        let is_open = section.kind == SectionKind::OpenChunk;
        let len = if is_open {
            room
        } else {
            head.frame.data_len.min(room)
        };
        let data = self.storage.get(start, len)?;
        let is_cut = is_open || (data.len() as u64) < head.frame.data_len;
        let Decompressed { bytes, fault } = match head.compression.as_str() {
            "none" => decompress("", &data, head.size, &self.limits, &self.pool),
            "bz2" => decompress_bz2(&data, head.size, &self.limits, &self.pool),
            "lz4" => decompress("lz4", &data, head.size, &self.limits, &self.pool),
            other => Decompressed {
                bytes: Bytes::new(),
                fault: Some((
                    ProblemKind::UnknownCompression,
                    format!(
                        "compression '{other}' is not supported (bz2, lz4 and none are); the chunk was skipped"
                    ),
                )),
            },
        };
        self.stats
            .count_chunk(head.compression != "none", bytes.len());
        // That the file was truncated here has been reported already.
        if let Some((kind, message)) = fault.filter(|_| !is_cut) {
            let message = format!("chunk: {message}");
            self.report(Problem::at(kind, section.offset, message));
        }
        Ok(Some((bytes, section.offset)))
    }

    /// What is readable of a chunk that the index names and whose header is damaged: compressed data is found by its
    /// first bytes, and uncompressed records by themselves.
    fn headless(&self, section: &Section) -> Result<Option<(Bytes, u64)>, SourceError> {
        let len = section.end.saturating_sub(section.offset);
        let data = self.storage.get(section.offset, len)?;
        let head = &data[..data.len().min(LONGEST_HEAD)];
        let starts = |magic: &[u8]| memchr::memmem::find(head, magic);
        // Its size is no longer known.
        let likely = self.limits.of_chunk(data.len() as u64).min(16 << 20);
        let found = if let Some(at) = starts(b"\x04\x22\x4d\x18") {
            decompress("lz4", &data.slice(at..), likely, &self.limits, &self.pool).bytes
        } else if let Some(at) = starts(b"BZh") {
            decompress_bz2(&data.slice(at..), likely, &self.limits, &self.pool).bytes
        } else {
            // Its lengths may be all that is left of it.
            let frame = Frame::parse(0, &data).map(|(frame, _)| frame);
            let frame = frame.filter(|frame| frame.end() <= data.len() as u64);
            frame.map_or(data.clone(), |frame| {
                data.slice(frame.data() as usize..frame.end() as usize)
            })
        };
        let message = "the index points to a chunk here, but its header is damaged; what is readable of it is kept";
        self.report(Problem::at(ProblemKind::BadIndex, section.offset, message));
        Ok(Some((found, section.offset)))
    }

    pub(super) fn chunk_head(&self, section: &Section) -> Result<Option<ChunkHead>, SourceError> {
        let front = self.storage.get(section.offset, 4 + 256 + 4)?;
        let parsed = Frame::parse(section.offset, &front).and_then(|(frame, header)| {
            let fields = Fields::parse(header).filter(|fields| fields.op == Some(op::CHUNK))?;
            Some(ChunkHead {
                frame,
                compression: String::from_utf8_lossy(fields.compression?).into_owned(),
                size: fields.size?.into(),
            })
        });
        Ok(parsed)
    }

    /// Checks the index records after every chunk against the bag's index, and against the messages in the chunk.
    pub(super) fn check_indexes(&self) -> Result<(), SourceError> {
        for (number, section) in self.sections.iter().enumerate() {
            let Contents::Indexed(counts) = &section.contents else {
                continue;
            };
            let message = match self.chunk_index(section)? {
                None => "the index records after this chunk do not match the bag's index",
                Some(index) if !self.leads_to_messages(number, counts, &index)? => {
                    "an index record of this chunk points to something that is not its message"
                }
                Some(_) => continue,
            };
            self.report(Problem::at(ProblemKind::BadIndex, section.offset, message));
        }
        Ok(())
    }

    /// Whether every entry of a chunk's index is the time and the position of a message of its connection.
    fn leads_to_messages(
        &self,
        number: usize,
        counts: &[(u32, u64)],
        index: &ChunkIndex,
    ) -> Result<bool, SourceError> {
        let Some((buffer, _)) = self.contents(&self.sections[number])? else {
            // That it cannot be read is reported by its readers.
            return Ok(true);
        };
        let table = self.table();
        let mut entries = counts
            .iter()
            .flat_map(|&(conn, _)| index.of(conn).map(move |entry| (conn, entry)));
        Ok(entries.all(|(conn, (time, place))| {
            row_at(&buffer, place, number, &table).is_some_and(|row| {
                table.index_of(conn) == Some(row.channel) && row.log_time == time
            })
        }))
    }
}

/// The message record at `place`, if there is one with a known connection.
fn row_at(buffer: &[u8], place: u64, section: usize, table: &ChannelTable<u32>) -> Option<Row> {
    let record = buffer.get(usize::try_from(place).ok()?..)?;
    let (frame, header) = Frame::parse(place, record)?;
    let (conn, time) = message_of(header)?;
    let channel = table.index_of(conn)?;
    (frame.end() <= buffer.len() as u64).then(|| row(frame, channel, time, section))
}

fn row(frame: Frame, channel: u32, time: asof_core::Stamp, section: usize) -> Row {
    Row {
        log_time: time,
        publish_time: time,
        order: order_of(section, frame.at),
        offset: frame.data(),
        len: frame.data_len,
        sequence: 0,
        channel,
        buffer: 0,
    }
}

/// A walk over the records of one section.
struct Walk<'a> {
    bag: &'a Bag,
    section: usize,
    /// The offset that problems name: that of the section in the file.
    base: u64,
    buffer: &'a Bytes,
    at: usize,
    /// Lacks the connections that this walk itself has found; see [`Walk::channel`].
    table: Arc<ChannelTable<u32>>,
    /// How often a connection was not in the table.
    misses: usize,
}

impl<'a> Walk<'a> {
    fn new(bag: &'a Bag, section: usize, base: u64, buffer: &'a Bytes) -> Self {
        Walk {
            bag,
            section,
            base,
            buffer,
            at: 0,
            table: bag.table(),
            misses: 0,
        }
    }

    fn run(mut self, wanted: &SectionQuery) -> Vec<Row> {
        let expected = self.bag.sections[self.section]
            .contents
            .known()
            .map_or(0, |counts| counts.iter().map(|&(_, count)| count).sum());
        // A record takes 46 bytes at least, whatever the index counts.
        let mut rows = Vec::with_capacity((expected as usize).min(self.buffer.len() / 46 + 1));
        let declared = self.bag.sections[self.section].range;
        let (mut unknown, mut outside) = (0u64, 0u64);
        while let Some((frame, conn, time)) = self.next_message() {
            let Some((channel, is_wanted)) = self.channel(conn, wanted) else {
                unknown += 1;
                continue;
            };
            if !is_wanted {
                continue;
            }
            outside += u64::from(!declared.contains(time));
            if wanted.range.contains(time) {
                rows.push(row(frame, channel, time, self.section));
            }
        }
        if !rows.is_sorted_by_key(|row: &Row| row.log_time) {
            rows.sort_by_key(|row| (row.log_time, row.order));
        }
        self.report_losses(unknown, outside, declared);
        rows
    }

    /// The channel of a connection, and whether it is wanted.
    ///
    /// A chunk may define very many connections, each before its first message. So the table is not copied for each:
    /// connections that it lacks are looked up one by one, and it is copied after as many lookups as it has channels.
    #[inline]
    fn channel(&mut self, conn: u32, wanted: &SectionQuery) -> Option<(u32, bool)> {
        if let Some(index) = self.table.index_of(conn) {
            return Some((index, wanted.wants(index, &self.table.channels)));
        }
        self.misses += 1;
        if self.misses > self.table.channels.len() {
            self.misses = 0;
            self.table = self.bag.table();
        }
        let connections = self.bag.connections();
        let (index, channel) = connections.find(conn)?;
        Some((index, wanted.topics.contains(&channel.topic)))
    }

    /// The next message; connections on the way are added.
    #[inline]
    fn next_message(&mut self) -> Option<(Frame, u32, asof_core::Stamp)> {
        loop {
            let at = self.at;
            let rest = self.buffer.get(at..).filter(|rest| !rest.is_empty())?;
            let parsed = Frame::parse(at as u64, rest)
                .filter(|(frame, _)| frame.end() <= self.buffer.len() as u64);
            let Some((frame, header)) = parsed else {
                self.step_over(at);
                continue;
            };
            self.at = frame.end() as usize;
            if let Some((conn, time)) = message_of(header) {
                return Some((frame, conn, time));
            }
            match Fields::parse(header) {
                Some(fields) => self.meet_other(frame, &fields),
                None => self.step_over(at),
            }
        }
    }

    fn meet_other(&mut self, frame: Frame, fields: &Fields<'_>) {
        if let (Some(op::CONNECTION), Some(id), Some(topic)) =
            (fields.op, fields.conn, fields.topic)
        {
            let data = &self.buffer[frame.data() as usize..frame.end() as usize];
            let problem = self
                .bag
                .connections
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .add(self.base, id, topic, data);
            if let Some(problem) = problem {
                self.bag.report(problem);
            }
        } else if fields.op == Some(op::MESSAGE) {
            let message = format!(
                "chunk: {} at byte {} of its contents has no connection or time; it is skipped",
                name_of(fields.op),
                frame.at
            );
            self.bag
                .report(Problem::at(ProblemKind::BadRecord, self.base, message));
        }
    }

    /// Resumes at the next record that is valid beyond doubt.
    fn step_over(&mut self, at: usize) {
        let len = self.buffer.len();
        let next = find_record(self.buffer, at + 1, len as u64).unwrap_or(len);
        let message = format!(
            "chunk: {} bytes from byte {at} of its contents are not a record; they are skipped",
            next - at
        );
        self.bag
            .report(Problem::at(ProblemKind::BadRecord, self.base, message));
        self.at = next;
    }

    fn report_losses(&self, unknown: u64, outside: u64, declared: TimeRange) {
        if unknown > 0 {
            let message =
                format!("{unknown} messages are on undefined connections and were skipped");
            self.bag.report(Problem::at(
                ProblemKind::UnknownReference,
                self.base,
                message,
            ));
        }
        if outside > 0 {
            let message = format!(
                "{outside} messages are outside of the times {declared:?} that the index gives their chunk, and may come out of order"
            );
            self.bag
                .report(Problem::at(ProblemKind::BadIndex, self.base, message));
        }
    }
}
