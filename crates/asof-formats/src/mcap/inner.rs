//! The records inside of a section, past damage: a record that is none costs itself, not those after it.

use asof_core::{Stamp, TimeRange};
use mcap::records::op;

use super::record::{HEADER_LEN, MESSAGE_HEADER_LEN, MessageHeader, RecordHeader, name_of};

/// Steps through the records of a section's contents.
pub(super) struct InnerRecords<'a> {
    buffer: &'a [u8],
    /// The times that the section declares: what its messages must have to be found past damage.
    range: TimeRange,
    /// Whether the end of the contents is missing.
    is_cut: bool,
    at: usize,
    /// Where to search from if no record follows: the length that led there may be wrong.
    doubt: usize,
}

/// What is at a place of the contents.
pub(super) enum Step {
    /// A record that is complete.
    Record(RecordHeader),
    /// No record; the next is at `next`.
    Gap(Gap),
    End,
}

/// Bytes that are not a record.
pub(super) struct Gap {
    pub at: usize,
    pub next: usize,
    pub what: String,
}

/// How many records must follow each other for the first of them to be believed.
const CHAIN: usize = 4;

impl<'a> InnerRecords<'a> {
    pub fn new(buffer: &'a [u8], range: TimeRange, is_cut: bool) -> Self {
        InnerRecords {
            buffer,
            range,
            is_cut,
            at: 0,
            doubt: 0,
        }
    }

    #[inline]
    pub fn next(&mut self) -> Step {
        let at = self.at;
        if at >= self.buffer.len() {
            return Step::End;
        }
        let header = RecordHeader::parse(at as u64, &self.buffer[at..]);
        match header {
            Some(header) if self.is_whole(header) => {
                self.at = header.end() as usize;
                self.doubt = at + HEADER_LEN as usize;
                Step::Record(header)
            }
            _ => Step::Gap(self.step_over(header)),
        }
    }

    #[inline]
    fn is_whole(&self, header: RecordHeader) -> bool {
        header.opcode != 0
            && header.end() <= self.buffer.len() as u64
            && (header.opcode != op::MESSAGE || header.len >= MESSAGE_HEADER_LEN)
    }

    #[cold]
    fn step_over(&mut self, header: Option<RecordHeader>) -> Gap {
        let (at, len) = (self.at, self.buffer.len());
        let is_long = header.is_none_or(|header| header.end() > len as u64);
        let what = match header.filter(|header| header.opcode != 0) {
            Some(header) if is_long => format!("{} reaches past the end", name_of(header.opcode)),
            Some(_) => "a message record is too short".to_owned(),
            None => "there is no record".to_owned(),
        };
        let is_known = header.is_none_or(|header| is_of_a_chunk(header.opcode));
        let intact = header.filter(|_| !is_long).map(|header| header.end());
        let next = match intact {
            // Only the opcode is damaged.
            Some(end) if self.leads_on(end as usize, 1) => end as usize,
            // The last record of what was cut is not searched: any bytes may be in it.
            _ if self.is_cut && is_long && is_known => len,
            _ => self.search(self.doubt.min(at + 1)).unwrap_or(len),
        };
        (self.at, self.doubt) = (next, next);
        Gap { at, next, what }
    }

    /// The first record from `from` on that others follow.
    fn search(&self, from: usize) -> Option<usize> {
        let rest = self.buffer.get(from..)?;
        memchr::memchr3_iter(op::SCHEMA, op::CHANNEL, op::MESSAGE, rest)
            .map(|place| from + place)
            .find(|&place| {
                // No record is that long: cheap to check first.
                self.buffer.get(place + 6..place + 9) == Some(&[0, 0, 0]) && self.leads_on(place, 0)
            })
    }

    /// Whether records follow each other from `at` on, up to the end; some were there before.
    fn leads_on(&self, mut at: usize, before: usize) -> bool {
        for step in before..CHAIN {
            let Some(header) = self
                .buffer
                .get(at..)
                .and_then(|rest| RecordHeader::parse(at as u64, rest))
            else {
                // At the end, or where it was cut.
                return step > 0 && (at == self.buffer.len() || self.is_cut);
            };
            let is_believable = match header.opcode {
                op::MESSAGE => MessageHeader::parse(&self.buffer[header.body() as usize..])
                    .is_some_and(|message| {
                        header.len >= MESSAGE_HEADER_LEN
                            && i64::try_from(message.log_time)
                                .is_ok_and(|time| self.range.contains(Stamp::from_nanos(time)))
                    }),
                op::CHANNEL => (16..1 << 20).contains(&header.len),
                op::SCHEMA => (14..1 << 24).contains(&header.len),
                0x80.. => step > 0,
                _ => false,
            };
            if !is_believable {
                return false;
            }
            if header.end() > self.buffer.len() as u64 {
                return step > 0 && self.is_cut;
            }
            at = header.end() as usize;
        }
        true
    }
}

/// Whether a chunk may contain such records.
pub(super) fn is_of_a_chunk(opcode: u8) -> bool {
    matches!(opcode, op::SCHEMA | op::CHANNEL | op::MESSAGE | 0x80..)
}
