//! The file format of a block.
//!
//! Little-endian throughout: the magic, the length of the head, the head (fingerprint, range, topics,
//! channels, counts) and its checksum, then the rows, the payloads in the order of the rows, and a
//! checksum of both. Nothing is trusted: every length is checked, and any mismatch makes the block
//! unusable.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Batch, Channel, Problem, ProblemKind, Query, Row, Schema, Stamp, TimeRange};
use bytes::Bytes;

use crate::block::Block;
use crate::names::ChannelTable;

const MAGIC: &[u8; 8] = b"asofblk1";
/// The magic and the length of the head.
pub(super) const PREFIX: usize = 12;
/// Bytes of a row in a file.
const ROW: u64 = 40;
const CHECKSUM: u64 = 4;

/// What a file must hold to be used.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub fingerprint: Arc<str>,
    pub range: TimeRange,
    pub topics: Arc<[Arc<str>]>,
}

/// The head of a file.
pub(super) struct Head {
    pub fingerprint: String,
    pub range: TimeRange,
    pub topics: Vec<Arc<str>>,
    pub file_bytes: u64,
    channels: Vec<Arc<Channel>>,
    rows: u64,
    payload: u64,
}

pub(super) fn encode(
    fingerprint: &str,
    topics: &[Arc<str>],
    block: &Block,
    table: &ChannelTable,
) -> Vec<u8> {
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    for row in &block.rows {
        let next = numbers.len() as u32;
        numbers.entry(row.channel).or_insert(next);
    }
    let mut channels: Vec<(u32, u32)> = numbers.iter().map(|(&known, &own)| (own, known)).collect();
    channels.sort_unstable();
    let payload: u64 = block.rows.iter().map(|row| row.len).sum();
    let mut head = Writer::default();
    head.text(fingerprint);
    head.i64(block.range.start.nanos());
    head.i64(block.range.end.nanos());
    head.u32(topics.len() as u32);
    for topic in topics {
        head.text(topic);
    }
    head.u32(channels.len() as u32);
    for (_, known) in channels {
        head.channel(&table.channels[known as usize]);
    }
    head.u64(block.rows.len() as u64);
    head.u64(payload);

    let mut file = Writer::default();
    file.0.extend_from_slice(MAGIC);
    file.u32(head.0.len() as u32);
    file.0.extend_from_slice(&head.0);
    file.u32(crc32fast::hash(&head.0));
    let body = file.0.len();
    for row in &block.rows {
        file.i64(row.log_time.nanos());
        file.i64(row.publish_time.nanos());
        file.u64(row.order);
        file.u64(row.len);
        file.u32(row.sequence);
        file.u32(numbers[&row.channel]);
    }
    for row in &block.rows {
        let buffer = &block.buffers[row.buffer as usize];
        let payload = &buffer[row.offset as usize..(row.offset + row.len) as usize];
        file.0.extend_from_slice(payload);
    }
    let checksum = crc32fast::hash(&file.0[body..]);
    file.u32(checksum);
    file.0
}

/// The size in bytes of a file's head, with prefix and checksum.
pub(super) fn head_length(prefix: &[u8; PREFIX]) -> Option<u64> {
    let mut reader = Reader(prefix);
    if reader.take(8)? != MAGIC {
        return None;
    }
    Some(PREFIX as u64 + u64::from(reader.u32()?) + CHECKSUM)
}

pub(super) fn decode_head(bytes: &[u8]) -> Option<Head> {
    let prefix: &[u8; PREFIX] = bytes.first_chunk()?;
    let length = head_length(prefix)?;
    let text = bytes.get(PREFIX..usize::try_from(length - CHECKSUM).ok()?)?;
    let mut checksum = Reader(bytes.get((length - CHECKSUM) as usize..)?);
    if checksum.u32()? != crc32fast::hash(text) {
        return None;
    }
    let mut reader = Reader(text);
    let fingerprint = reader.text()?.to_owned();
    let range = TimeRange::new(reader.stamp()?, reader.stamp()?);
    let topics: Option<Vec<_>> = (0..reader.u32()?)
        .map(|_| reader.text().map(Arc::from))
        .collect();
    let channels: Option<Vec<_>> = (0..reader.u32()?)
        .map(|_| reader.channel().map(Arc::new))
        .collect();
    let (rows, payload) = (reader.u64()?, reader.u64()?);
    let body = rows.checked_mul(ROW)?.checked_add(payload)?;
    Some(Head {
        fingerprint,
        range,
        topics: topics?,
        channels: channels?,
        rows,
        payload,
        file_bytes: length.checked_add(body)?.checked_add(CHECKSUM)?,
    })
}

/// The messages that match; `None` if the file is damaged or not the expected block.
pub(super) fn decode(expected: &Expected, bytes: Vec<u8>, query: &Query) -> Option<Batch> {
    let head = decode_head(&bytes)?;
    let is_expected = head.fingerprint == *expected.fingerprint
        && head.range == expected.range
        && *head.topics == *expected.topics;
    if !is_expected || head.file_bytes != bytes.len() as u64 {
        return None;
    }
    let payload_start = head.file_bytes - CHECKSUM - head.payload;
    let rows_start = payload_start - head.rows * ROW;
    let body = &bytes[rows_start as usize..(head.file_bytes - CHECKSUM) as usize];
    let checksum = Reader(&bytes[(head.file_bytes - CHECKSUM) as usize..]).u32()?;
    if checksum != crc32fast::hash(body) {
        return None;
    }
    let mut reader = Reader(body);
    let mut rows = Vec::new();
    let mut offset = payload_start;
    for _ in 0..head.rows {
        let row = Row {
            log_time: reader.stamp()?,
            publish_time: reader.stamp()?,
            order: reader.u64()?,
            offset,
            len: reader.u64()?,
            sequence: reader.u32()?,
            channel: reader.u32()?,
            buffer: 0,
        };
        offset = offset.checked_add(row.len)?;
        let channel = head.channels.get(row.channel as usize)?;
        if !head.range.contains(row.log_time) || offset > head.file_bytes - CHECKSUM {
            return None;
        }
        if query.matches(&channel.topic, row.log_time) {
            rows.push(row);
        }
    }
    Some(Batch::new(
        head.channels.into(),
        vec![Bytes::from(bytes)],
        rows,
    ))
}

const PROBLEMS_MAGIC: &[u8; 8] = b"asofprb1";

/// A file of the problems that were found while blocks were read: magic, fingerprint, problems, checksum.
pub(super) fn encode_problems<'a>(
    fingerprint: &str,
    problems: impl IntoIterator<Item = &'a Problem>,
) -> Vec<u8> {
    let mut file = Writer(PROBLEMS_MAGIC.to_vec());
    file.text(fingerprint);
    for problem in problems {
        file.text(problem.kind.name());
        file.u64(problem.offset.unwrap_or(u64::MAX));
        file.u32(u32::from(problem.topic.is_some()));
        file.text(problem.topic.as_deref().unwrap_or_default());
        file.text(&problem.message);
    }
    file.u32(crc32fast::hash(&file.0));
    file.0
}

/// The problems in such a file; `None` if it is damaged or of another source.
pub(super) fn decode_problems(fingerprint: &str, bytes: &[u8]) -> Option<Vec<Problem>> {
    let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM as usize)?)?;
    if Reader(checksum).u32()? != crc32fast::hash(body) {
        return None;
    }
    let mut reader = Reader(body);
    if reader.take(8)? != PROBLEMS_MAGIC || reader.text()? != fingerprint {
        return None;
    }
    let mut problems = Vec::new();
    while !reader.0.is_empty() {
        let kind = ProblemKind::from_name(reader.text()?)?;
        let offset = Some(reader.u64()?).filter(|&offset| offset != u64::MAX);
        let has_topic = reader.u32()? != 0;
        let topic = Some(reader.text()?.to_owned()).filter(|_| has_topic);
        let message = reader.text()?.to_owned();
        problems.push(Problem {
            kind,
            offset,
            topic,
            message,
        });
    }
    Some(problems)
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn channel(&mut self, channel: &Channel) {
        self.text(&channel.topic);
        self.text(&channel.message_encoding);
        self.u32(u32::from(channel.schema.is_some()));
        if let Some(schema) = &channel.schema {
            self.text(&schema.name);
            self.text(&schema.encoding);
            self.bytes(&schema.data);
        }
        self.u32(channel.metadata.len() as u32);
        for (key, value) in &channel.metadata {
            self.text(key);
            self.text(value);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn stamp(&mut self) -> Option<Stamp> {
        let bytes = self.take(8)?.try_into().ok()?;
        Some(Stamp::from_nanos(i64::from_le_bytes(bytes)))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn channel(&mut self) -> Option<Channel> {
        let topic = self.text()?.to_owned();
        let message_encoding = self.text()?.to_owned();
        let schema = match self.u32()? {
            0 => None,
            _ => Some(Arc::new(Schema {
                name: self.text()?.to_owned(),
                encoding: self.text()?.to_owned(),
                data: Bytes::copy_from_slice(self.bytes()?),
            })),
        };
        let mut metadata = BTreeMap::new();
        for _ in 0..self.u32()? {
            metadata.insert(self.text()?.to_owned(), self.text()?.to_owned());
        }
        Some(Channel {
            topic,
            message_encoding,
            schema,
            metadata,
        })
    }
}
