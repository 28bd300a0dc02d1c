//! Opening a ULog: it has no index, so it is scanned once from front to back.

use std::collections::{BTreeMap, HashMap};

use asof_core::{Problem, ProblemKind, SourceError, Stamp, TimeRange};
use bytes::Bytes;

use super::format::Formats;
use super::record::{FILE_HEADER_LEN, Fields, Head, MAGIC, Pair, kind};
use super::streams::{Beside, Streams};
use super::walk::{Met, Walk};
use crate::problems::Problems;
use crate::storage::Storage;

/// A section ends with the first message that reaches past this size.
const SECTION_BYTES: u64 = 1 << 20;
/// The longest message.
const MAX_MESSAGE_BYTES: u64 = 3 + 0xffff;

/// A run of messages of a file.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub offset: u64,
    pub end: u64,
    /// The end of the part of the file that it is in: more may have been appended after it.
    stretch_end: u64,
    pub range: TimeRange,
    /// Channels and counts of messages, sorted.
    pub counts: Vec<(u32, u64)>,
    /// The latest time before it, in microseconds.
    pub time: u64,
    /// Whether it begins among the definitions, where parameters are the initial ones.
    pub is_definitions: bool,
}

impl Section {
    /// Its bytes, and as many after them as its last message may need.
    pub fn fetch(&self, storage: &dyn Storage) -> Result<Bytes, SourceError> {
        let len = (SECTION_BYTES + MAX_MESSAGE_BYTES).min(self.stretch_end - self.offset);
        storage.get(self.offset, len)
    }

    pub fn walk<'a>(&self, bytes: &'a [u8]) -> Walk<'a> {
        let is_last = self.offset + bytes.len() as u64 == self.stretch_end;
        Walk::new(bytes, self.offset, SECTION_BYTES, is_last)
    }
}

/// The result of scanning the file.
pub(crate) struct Scan {
    pub sections: Vec<Section>,
    pub streams: Streams,
    /// Information by key, as text.
    pub info: BTreeMap<String, String>,
    pub problems: Problems,
    /// The ids of the channels beside the topics, in the order of [`Beside::ALL`].
    pub beside: [u32; 3],
    formats: Formats,
    /// How often the logger could not keep up, and for how many milliseconds in total.
    pub dropouts: (u64, u64),
    unsubscribed: u64,
    bad_times: u64,
    last_multiple: Option<String>,
    /// How often a key occurred that may occur several times.
    repeated: HashMap<String, usize>,
}

pub(crate) fn scan(storage: &dyn Storage) -> Result<Scan, SourceError> {
    let header = storage.get(0, FILE_HEADER_LEN)?;
    let unreadable = |reason: &str| SourceError::Unreadable {
        place: storage.name().to_owned(),
        reason: reason.to_owned(),
    };
    if header.starts_with(b"ULogEnc") {
        return Err(unreadable(
            "this ULog is encrypted; decrypt it with PX4's decrypt_ulog.py first",
        ));
    }
    if !header.starts_with(MAGIC) || header.len() < FILE_HEADER_LEN as usize {
        return Err(unreadable("this is not a ULog: it does not start like one"));
    }
    let start = header[8..].try_into().map_or(0, u64::from_le_bytes);
    let mut streams = Streams::default();
    let beside = Beside::ALL.map(|beside| streams.channel(beside.channel()));
    let mut scan = Scan {
        sections: Vec::new(),
        streams,
        info: BTreeMap::new(),
        problems: Problems::default(),
        beside,
        formats: Formats::default(),
        dropouts: (0, 0),
        unsubscribed: 0,
        bad_times: 0,
        last_multiple: None,
        repeated: HashMap::new(),
    };
    let appended = flags(storage)?.map_err(|reason| unreadable(&reason))?;
    let mut time = start;
    let mut is_definitions = true;
    let mut from = FILE_HEADER_LEN;
    for stretch_end in appended.into_iter().chain([storage.size()]) {
        while from < stretch_end {
            let section = scan.section(storage, (from, stretch_end), time, is_definitions)?;
            (time, is_definitions) = (section.1, section.2);
            from = section.0.end.max(from + 1);
            if !section.0.counts.is_empty() {
                scan.sections.push(section.0);
            }
        }
        from = stretch_end;
    }
    scan.conclude();
    Ok(scan)
}

/// The offsets of appended data, from the message that declares which parts of the format a file uses; the inner error
/// is a message that cannot be read.
fn flags(storage: &dyn Storage) -> Result<Result<Vec<u64>, String>, SourceError> {
    let bytes = storage.get(FILE_HEADER_LEN, 3 + 40)?;
    let Some(head) = Head::parse(FILE_HEADER_LEN, &bytes) else {
        return Ok(Ok(Vec::new()));
    };
    if head.kind != kind::FLAGS || bytes.len() < 43 {
        return Ok(Ok(Vec::new()));
    }
    let incompatible = &bytes[11..19];
    if incompatible[0] & !1 != 0 || incompatible[1..].iter().any(|&byte| byte != 0) {
        let reason =
            "this ULog uses features of the format that this version does not support; update asof";
        return Ok(Err(reason.to_owned()));
    }
    let mut offsets = Vec::new();
    let mut fields = Fields(&bytes[19..]);
    while let Some(offset) = fields.u64() {
        let is_behind = offset > offsets.last().copied().unwrap_or(FILE_HEADER_LEN);
        if incompatible[0] & 1 != 0 && is_behind && offset < storage.size() {
            offsets.push(offset);
        }
    }
    Ok(Ok(offsets))
}

impl Scan {
    /// Walks one section; also returns the latest time in it, and whether definitions continue after it.
    fn section(
        &mut self,
        storage: &dyn Storage,
        (offset, stretch_end): (u64, u64),
        mut time: u64,
        mut is_definitions: bool,
    ) -> Result<(Section, u64, bool), SourceError> {
        let mut section = Section {
            offset,
            end: stretch_end,
            stretch_end,
            range: TimeRange::EMPTY,
            counts: Vec::new(),
            time,
            is_definitions,
        };
        let bytes = section.fetch(storage)?;
        let mut walk = section.walk(&bytes);
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        while let Some(met) = walk.next(&self.streams) {
            let (head, body) = match met {
                Met::Message(head, body) => (head, body),
                other => {
                    self.report(&other, stretch_end == storage.size());
                    continue;
                }
            };
            if ends_definitions(head) {
                is_definitions = false;
            }
            let Some((channel, at)) = self.meet(head, body, &mut time) else {
                continue;
            };
            let Some(stamp) = stamp_of(at) else {
                self.bad_times += 1;
                continue;
            };
            *counts.entry(channel).or_default() += 1;
            section.range = section.range.cover_stamp(stamp);
        }
        section.end = walk.offset();
        section.counts = counts.into_iter().collect();
        Ok((section, time, is_definitions))
    }

    /// Handles a message; returns its channel and time if it is one that readers see.
    fn meet(&mut self, head: Head, body: &[u8], time: &mut u64) -> Option<(u32, u64)> {
        let [parameters, logged, dropouts] = self.beside;
        match head.kind {
            kind::FORMAT => {
                if let Err(reason) = self.formats.add(body) {
                    self.bad(head, "a format", &reason);
                }
            }
            kind::INFO => match Pair::parse(body) {
                Some(pair) => drop(self.info.insert(pair.key.to_owned(), pair.text())),
                None => self.bad(head, "a piece of information", "it has no key"),
            },
            kind::INFO_MULTIPLE => self.meet_multiple(head, body),
            kind::SUBSCRIPTION => self.meet_subscription(head, body),
            kind::UNSUBSCRIPTION => {
                let id = Fields(body).u16()?;
                self.streams.unsubscribe(head.offset, id);
            }
            kind::DATA => {
                let mut fields = Fields(body);
                let id = fields.u16()?;
                let Some(stream) = self.streams.find(id, head.offset) else {
                    self.unsubscribed += 1;
                    return None;
                };
                let at = stream.layout.time_of(fields.0).unwrap_or(*time);
                *time = (*time).max(at.min(LATEST));
                return Some((stream.channel, at));
            }
            kind::LOGGED => return Some((logged, Fields(body.get(1..)?).u64()?)),
            kind::LOGGED_TAGGED => return Some((logged, Fields(body.get(3..)?).u64()?)),
            kind::PARAMETER | kind::DEFAULT_PARAMETER => {
                let body = if head.kind == kind::PARAMETER {
                    body
                } else {
                    &body[1..]
                };
                match Pair::parse(body).and_then(|pair| pair.number()) {
                    Some(_) => return Some((parameters, *time)),
                    None => self.bad(
                        head,
                        "a parameter",
                        "it has no key, or a value of an unknown type",
                    ),
                }
            }
            kind::DROPOUT => {
                self.dropouts.0 += 1;
                self.dropouts.1 += u64::from(Fields(body).u16()?);
                return Some((dropouts, *time));
            }
            _ => {}
        }
        None
    }

    fn meet_subscription(&mut self, head: Head, body: &[u8]) {
        let mut fields = Fields(body);
        let (Some(instance), Some(id)) = (fields.u8(), fields.u16()) else {
            return;
        };
        let subscribed = match std::str::from_utf8(fields.0) {
            Ok(name) => {
                self.streams
                    .subscribe(head.offset, (id, instance), name, &mut self.formats)
            }
            Err(_) => Err("its name is not text".to_owned()),
        };
        if let Err(reason) = subscribed {
            self.streams.unsubscribe(head.offset, id);
            self.bad(head, "a subscription", &reason);
        }
    }

    /// Information in several parts, or several times under one key.
    fn meet_multiple(&mut self, head: Head, body: &[u8]) {
        let Some((&is_continued, pair)) = body
            .split_first()
            .and_then(|(first, rest)| Some((first, Pair::parse(rest)?)))
        else {
            self.bad(head, "a piece of information", "it has no key");
            return;
        };
        if is_continued != 0
            && let Some(last) = self
                .last_multiple
                .as_ref()
                .and_then(|key| self.info.get_mut(key))
        {
            // Bounds the memory for one value.
            if last.len() < 4 << 20 {
                last.push_str(&pair.text());
            }
            return;
        }
        let count = self.repeated.entry(pair.key.to_owned()).or_default();
        let key = format!("{}[{count}]", pair.key);
        *count += 1;
        self.info.insert(key.clone(), pair.text());
        self.last_multiple = Some(key);
    }

    fn bad(&mut self, head: Head, what: &str, why: &str) {
        let message = format!("{what} cannot be read: {why}; it is skipped");
        self.problems
            .push(Problem::at(ProblemKind::BadRecord, head.offset, message));
    }

    fn report(&mut self, met: &Met<'_>, is_end_of_file: bool) {
        let problem = match met {
            Met::Garbage { offset, len } => Problem::at(
                ProblemKind::Garbage,
                *offset,
                format!("{len} bytes are not a message; they are skipped"),
            ),
            Met::Cut(head) if is_end_of_file => Problem::at(
                ProblemKind::Truncated,
                head.offset,
                "the file ends in the middle of a message; it is skipped",
            ),
            Met::Cut(head) => Problem::at(
                ProblemKind::Truncated,
                head.offset,
                "the log was cut in the middle of a message before more was appended; it is skipped",
            ),
            Met::Message(..) => return,
        };
        self.problems.push(problem);
    }

    fn conclude(&mut self) {
        let lines = [
            (
                self.unsubscribed,
                ProblemKind::UnknownReference,
                format!(
                    "{} messages are on ids without a subscription and were skipped",
                    self.unsubscribed
                ),
            ),
            (
                self.bad_times,
                ProblemKind::BadTime,
                format!(
                    "{} messages have times that cannot be represented and were skipped",
                    self.bad_times
                ),
            ),
        ];
        for (count, kind, message) in lines {
            if count > 0 {
                self.problems.push(Problem::whole(kind, message));
            }
        }
    }
}

/// The first message that ends the definitions.
pub(crate) fn ends_definitions(head: Head) -> bool {
    matches!(
        head.kind,
        kind::SUBSCRIPTION | kind::LOGGED | kind::LOGGED_TAGGED
    )
}

/// The latest time that fits a stamp, in microseconds.
const LATEST: u64 = i64::MAX as u64 / 1000;

/// A ULog counts microseconds from the boot of the vehicle's computer.
pub(crate) fn stamp_of(microseconds: u64) -> Option<Stamp> {
    (microseconds <= LATEST).then(|| Stamp::from_nanos(microseconds as i64 * 1000))
}
