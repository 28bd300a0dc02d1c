//! Scanning messages, past any damage.

use super::record::{HEADER_LEN, Head, SYNC, kind};
use super::streams::Streams;

/// A scan of the messages of one section.
///
/// The bytes extend a little past the section, so that its last message is complete.
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    /// Where the bytes start in the file.
    base: u64,
    at: usize,
    /// Messages that start here or later belong to the next section.
    limit: usize,
    /// Whether the part of the file that contains the section ends with these bytes.
    is_last: bool,
}

/// What a scan finds.
pub(crate) enum Met<'a> {
    Message(Head, &'a [u8]),
    /// Bytes that are not a message.
    Garbage {
        offset: u64,
        len: u64,
    },
    /// The file, or this part of it, ends within a message.
    Cut(Head),
}

/// The number of consecutive plausible messages after which damage counts as over.
const CHAIN: usize = 4;

impl<'a> Walk<'a> {
    pub fn new(bytes: &'a [u8], base: u64, limit: u64, is_last: bool) -> Self {
        Walk {
            bytes,
            base,
            at: 0,
            limit: (limit as usize).min(bytes.len()),
            is_last,
        }
    }

    /// Where the next message starts.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The next message of the section, or the damage in its place.
    pub fn next(&mut self, streams: &Streams) -> Option<Met<'a>> {
        if self.at >= self.limit {
            return None;
        }
        let at = self.at;
        let head = Head::parse(self.offset(), &self.bytes[at..]);
        let Some(head) = head else {
            self.at = self.bytes.len();
            return Some(self.garbage(at));
        };
        let body_at = at + HEADER_LEN as usize;
        let body = self.bytes.get(body_at..body_at + head.len as usize);
        let (Some(body), true) = (body, self.is_credible(head, streams, self.offset())) else {
            return Some(self.step_over(head, streams));
        };
        self.at = body_at + body.len();
        Some(Met::Message(head, body))
    }

    /// Whether such a message is credible here: of a known kind, or followed by one.
    fn is_credible(&self, head: Head, streams: &Streams, as_of: u64) -> bool {
        if head.is_plausible() {
            let Some(body) = self.body(head) else {
                return false;
            };
            return match (head.kind, body) {
                (kind::SYNC, body) => body == SYNC,
                // Data on an id without a subscription is meaningless, but a log that began late has some.
                (kind::DATA, &[low, high, ..]) => {
                    let id = u16::from_le_bytes([low, high]);
                    streams
                        .fits(id, body.len() - 2, as_of)
                        .unwrap_or_else(|| self.is_followed(head))
                }
                (kind::LOGGED | kind::LOGGED_TAGGED, &[level, ..]) => {
                    (b'0'..=b'7').contains(&level) || level < 8
                }
                _ => true,
            };
        }
        head.may_be_newer() && self.is_followed(head)
    }

    fn body(&self, head: Head) -> Option<&'a [u8]> {
        let from = (head.body() - self.base) as usize;
        self.bytes.get(from..from + head.len as usize)
    }

    /// Whether a message of a known kind, or the end, follows this one.
    fn is_followed(&self, head: Head) -> bool {
        let next = (head.end() - self.base) as usize;
        if next == self.bytes.len() {
            return true;
        }
        let rest = self.bytes.get(next..).unwrap_or_default();
        Head::parse(head.end(), rest).is_some_and(|next| next.is_plausible())
    }

    fn step_over(&mut self, head: Head, streams: &Streams) -> Met<'a> {
        let at = self.at;
        let next = self.find(at + 1, streams);
        self.at = next.unwrap_or(self.bytes.len());
        let reaches_out = head.end() > self.base + self.bytes.len() as u64;
        if next.is_none() && reaches_out && self.is_last && head.is_plausible() {
            return Met::Cut(head);
        }
        self.garbage(at)
    }

    fn garbage(&self, from: usize) -> Met<'a> {
        Met::Garbage {
            offset: self.base + from as u64,
            len: (self.at - from) as u64,
        }
    }

    /// The first position from `from` on at which messages certainly start again.
    fn find(&self, from: usize, streams: &Streams) -> Option<usize> {
        let as_of = self.offset();
        (from..self.bytes.len()).find(|&at| {
            let mut place = at;
            for step in 0..CHAIN {
                if place == self.bytes.len() {
                    return step > 1;
                }
                let head = Head::parse(self.base + place as u64, &self.bytes[place..]);
                let Some(head) = head.filter(|head| {
                    // Of a known kind, with contents that random bytes rarely have.
                    head.is_plausible()
                        && self.is_credible(*head, streams, as_of)
                        && is_believable(*head, self.body(*head).unwrap_or_default())
                }) else {
                    return false;
                };
                if head.kind == kind::SYNC {
                    return true;
                }
                place = (head.end() - self.base) as usize;
            }
            true
        })
    }
}

/// Whether the contents of a message are plausible for its kind.
fn is_believable(head: Head, body: &[u8]) -> bool {
    let is_name = |bytes: &[u8]| {
        let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"_ []".contains(byte);
        !bytes.is_empty() && bytes.iter().all(is_usual)
    };
    let is_pair = |body: &[u8]| match body {
        [len, rest @ ..] => rest.get(..usize::from(*len)).is_some_and(is_name),
        [] => false,
    };
    match head.kind {
        kind::SUBSCRIPTION => body.get(3..).is_some_and(is_name),
        kind::INFO | kind::PARAMETER => is_pair(body),
        kind::INFO_MULTIPLE | kind::DEFAULT_PARAMETER => is_pair(&body[1..]),
        kind::FORMAT => body.contains(&b':') && body.is_ascii(),
        _ => true,
    }
}
