//! Parsing of single records of a ROS 1 bag, version 2.0, from untrusted bytes.
//!
//! A record is a header and data, each preceded by its length. A header is a list of `name=value` fields in any order,
//! each preceded by its length.

use asof_core::Stamp;

/// The first line of a bag of the supported version.
pub(crate) const MAGIC: &[u8] = b"#ROSBAG V2.0\n";

/// The kinds of records, by their `op` field.
pub(crate) mod op {
    pub const MESSAGE: u8 = 0x02;
    pub const BAG_HEADER: u8 = 0x03;
    pub const INDEX: u8 = 0x04;
    pub const CHUNK: u8 = 0x05;
    pub const CHUNK_INFO: u8 = 0x06;
    pub const CONNECTION: u8 = 0x07;
}

/// A longer header is treated as damage: the longest ones hold a topic's name.
pub(crate) const LONGEST_HEADER: u64 = 64 << 10;
/// Bytes of one message in an index record: seconds, nanoseconds, offset.
pub(crate) const INDEX_ENTRY_LEN: u64 = 12;

/// Bytes of a message record without a payload, with its three required fields.
pub(crate) const SHORTEST_MESSAGE: u64 = 46;

/// The offsets of a record's parts, relative to the same origin as `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub at: u64,
    pub header_len: u64,
    pub data_len: u64,
}

impl Frame {
    /// The record at the start of `bytes`, which is at `at`, with its header; the data need not be present.
    pub fn parse(at: u64, bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header_len, rest) = take_u32(bytes)?;
        if u64::from(header_len) > LONGEST_HEADER {
            return None;
        }
        let (header, rest) = rest.split_at_checked(header_len as usize)?;
        let (data_len, _) = take_u32(rest)?;
        let frame = Frame {
            at,
            header_len: header_len.into(),
            data_len: data_len.into(),
        };
        Some((frame, header))
    }

    /// Where the data starts.
    pub fn data(&self) -> u64 {
        self.at + 4 + self.header_len + 4
    }

    /// Where the next record starts.
    pub fn end(&self) -> u64 {
        self.data() + self.data_len
    }
}

/// The header fields of all kinds of records.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub op: Option<u8>,
    pub conn: Option<u32>,
    pub time: Option<Stamp>,
    pub count: Option<u32>,
    pub size: Option<u32>,
    pub compression: Option<&'a [u8]>,
    pub chunk_pos: Option<u64>,
    pub start_time: Option<Stamp>,
    pub end_time: Option<Stamp>,
    pub index_pos: Option<u64>,
    pub chunk_count: Option<u32>,
    pub conn_count: Option<u32>,
    pub topic: Option<&'a [u8]>,
    pub encryptor: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// `None` if the fields do not fill the header exactly, or a value has the wrong length.
    pub fn parse(header: &'a [u8]) -> Option<Self> {
        let mut found = Fields::default();
        for field in fields(header) {
            let (name, value) = field?;
            match name {
                b"op" => found.op = Some(*value.first().filter(|_| value.len() == 1)?),
                b"conn" => found.conn = Some(u32_of(value)?),
                b"time" => found.time = Some(stamp_of(value)?),
                b"count" => found.count = Some(u32_of(value)?),
                b"size" => found.size = Some(u32_of(value)?),
                b"compression" => found.compression = Some(value),
                b"chunk_pos" => found.chunk_pos = Some(u64_of(value)?),
                b"start_time" => found.start_time = Some(stamp_of(value)?),
                b"end_time" => found.end_time = Some(stamp_of(value)?),
                b"index_pos" => found.index_pos = Some(u64_of(value)?),
                b"chunk_count" => found.chunk_count = Some(u32_of(value)?),
                b"conn_count" => found.conn_count = Some(u32_of(value)?),
                b"topic" => found.topic = Some(value),
                b"encryptor" => found.encryptor = Some(value),
                _ => {}
            }
        }
        found.op.map(|_| found)
    }

    /// Whether the fields that this kind of record requires are present.
    pub fn is_complete(&self) -> bool {
        match self.op {
            Some(op::MESSAGE) => self.conn.is_some() && self.time.is_some(),
            Some(op::BAG_HEADER) => self.index_pos.is_some(),
            Some(op::INDEX) => self.conn.is_some() && self.count.is_some(),
            Some(op::CHUNK) => self.compression.is_some() && self.size.is_some(),
            Some(op::CHUNK_INFO) => {
                self.chunk_pos.is_some() && self.start_time.is_some() && self.end_time.is_some()
            }
            Some(op::CONNECTION) => self.conn.is_some() && self.topic.is_some(),
            _ => false,
        }
    }
}

/// The connection and the time of a message record; `None` if the header is another record's or damaged.
#[inline]
pub(crate) fn message_of(header: &[u8]) -> Option<(u32, Stamp)> {
    let (mut conn, mut time, mut is_message) = (None, None, false);
    let mut rest = header;
    while !rest.is_empty() {
        let (len, behind) = take_u32(rest)?;
        let (field, behind) = behind.split_at_checked(len as usize)?;
        rest = behind;
        match field {
            [b'o', b'p', b'=', op] => is_message = *op == op::MESSAGE,
            [b'c', b'o', b'n', b'n', b'=', value @ ..] => conn = Some(u32_of(value)?),
            [b't', b'i', b'm', b'e', b'=', value @ ..] => time = Some(stamp_of(value)?),
            _ if field.contains(&b'=') => {}
            _ => return None,
        }
    }
    if is_message { conn.zip(time) } else { None }
}

/// The fields of a header, or of the data of a connection record; a `None` is the last, and means damage.
pub(crate) fn fields(header: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    let mut rest = header;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = take_u32(rest).and_then(|(len, behind)| {
            let (field, behind) = behind.split_at_checked(len as usize)?;
            let equals = field.iter().position(|&byte| byte == b'=')?;
            rest = behind;
            Some((&field[..equals], &field[equals + 1..]))
        });
        if field.is_none() {
            rest = &[];
        }
        Some(field)
    })
}

/// Time and offset of each message in an index record.
pub(crate) fn index_entries(data: &[u8]) -> impl Iterator<Item = (Stamp, u64)> + '_ {
    data.chunks_exact(INDEX_ENTRY_LEN as usize)
        .filter_map(|entry| {
            let (time, place) = entry.split_at(8);
            Some((stamp_of(time)?, u32_of(place)?.into()))
        })
}

/// The offset of the first certain record from `from` on: its fields fill the header, are those of its kind, and its
/// data can end by `limit`. Offsets are relative to `bytes`.
pub(crate) fn find_record(bytes: &[u8], from: usize, limit: u64) -> Option<usize> {
    let pattern = b"\x04\x00\x00\x00op=";
    let searched = bytes.get(from..)?;
    for found in memchr::memmem::find_iter(searched, pattern) {
        let op_place = from + found;
        let earliest = op_place.saturating_sub(LOOK_BACK).max(from);
        // The op may be anywhere among the fields, so the header may start well before it.
        for start in (earliest..=op_place.saturating_sub(4)).rev() {
            if is_record(bytes, start, op_place, limit) {
                return Some(start);
            }
        }
    }
    None
}

/// How far before its `op` field the start of a header is searched.
pub(crate) const LOOK_BACK: usize = 512;

fn is_record(bytes: &[u8], start: usize, op_place: usize, limit: u64) -> bool {
    let Some((header_len, _)) = take_u32(&bytes[start..]) else {
        return false;
    };
    let end = start as u64 + 4 + u64::from(header_len);
    if u64::from(header_len) > LONGEST_HEADER || end < op_place as u64 + 8 {
        return false;
    }
    let Some((frame, header)) = Frame::parse(start as u64, &bytes[start..]) else {
        return false;
    };
    let Some(fields) = Fields::parse(header).filter(Fields::is_complete) else {
        return false;
    };
    fields.op == Some(op::CHUNK) || frame.end() <= limit
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (front, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*front), rest))
}

fn u32_of(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_le_bytes)
}

fn u64_of(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_le_bytes)
}

/// Seconds and nanoseconds, 32 bits each: every such time fits a stamp.
fn stamp_of(value: &[u8]) -> Option<Stamp> {
    let (seconds, nanos) = value.split_at_checked(4)?;
    let nanos = i64::from(u32_of(seconds)?) * 1_000_000_000 + i64::from(u32_of(nanos)?);
    Some(Stamp::from_nanos(nanos))
}

/// The name of a record in messages.
pub(crate) fn name_of(op: Option<u8>) -> &'static str {
    match op {
        Some(op::MESSAGE) => "a message record",
        Some(op::BAG_HEADER) => "the bag's header",
        Some(op::INDEX) => "an index record",
        Some(op::CHUNK) => "a chunk record",
        Some(op::CHUNK_INFO) => "a chunk info record",
        Some(op::CONNECTION) => "a connection record",
        _ => "a record of unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &[u8]) -> Vec<u8> {
        let mut field = ((name.len() + 1 + value.len()) as u32)
            .to_le_bytes()
            .to_vec();
        field.extend_from_slice(name.as_bytes());
        field.push(b'=');
        field.extend_from_slice(value);
        field
    }

    fn message(data: &[u8]) -> Vec<u8> {
        let mut header = field("conn", &7u32.to_le_bytes());
        header.extend(field("op", &[op::MESSAGE]));
        header.extend(field("time", &[1, 0, 0, 0, 5, 0, 0, 0]));
        let mut record = (header.len() as u32).to_le_bytes().to_vec();
        record.extend(header);
        record.extend((data.len() as u32).to_le_bytes());
        record.extend_from_slice(data);
        record
    }

    #[test]
    fn a_message_header_gives_connection_and_time() {
        let record = message(b"hello");
        let (frame, header) = Frame::parse(0, &record).expect("a record");
        assert_eq!(
            message_of(header),
            Some((7, Stamp::from_nanos(1_000_000_005)))
        );
        assert_eq!(frame.end(), record.len() as u64);
    }

    #[test]
    fn a_header_cut_short_is_no_header() {
        let record = message(b"");
        let (_, header) = Frame::parse(0, &record).expect("a record");
        for cut in 1..header.len() {
            assert_eq!(message_of(&header[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn a_record_is_found_behind_garbage() {
        let mut bytes = vec![0xaa; 1000];
        bytes.extend(message(b"payload"));
        let limit = bytes.len() as u64;
        assert_eq!(find_record(&bytes, 0, limit), Some(1000));
        assert_eq!(find_record(&bytes, 1001, limit), None);
        assert_eq!(find_record(&bytes, 0, limit - 1), None);
    }
}
