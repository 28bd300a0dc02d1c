//! Scanning a bag from front to back, past any damage.

use std::collections::BTreeMap;

use asof_core::{Problem, ProblemKind, SourceError, TimeRange};

use super::connections::Connections;
use super::record::{
    Fields, Frame, INDEX_ENTRY_LEN, LONGEST_HEADER, LOOK_BACK, find_record, index_entries, name_of,
    op,
};
use super::{Contents, Section, SectionKind};
use crate::problems::Problems;
use crate::storage::Storage;

/// Bytes searched at a time for the next record after damage.
const SEARCH_WINDOW: u64 = 1 << 20;
/// A run of bare messages is closed at about this size, so that it is loaded in parts.
const BARE_RUN_BYTES: u64 = 1 << 20;

/// The contents of a bag, from its index or from a scan.
pub(crate) struct Opened {
    pub sections: Vec<Section>,
    pub connections: Connections,
    pub problems: Problems,
}

pub(crate) struct Scan<'a> {
    storage: &'a dyn Storage,
    sections: Vec<Section>,
    connections: Connections,
    problems: Problems,
    /// The index records found so far after the last chunk.
    indexes: Option<Indexes>,
    bare: Option<(u64, u64)>,
}

struct Indexes {
    counts: BTreeMap<u32, u64>,
    range: TimeRange,
}

impl<'a> Scan<'a> {
    pub fn new(storage: &'a dyn Storage, problems: Problems) -> Self {
        Scan {
            storage,
            sections: Vec::new(),
            connections: Connections::default(),
            problems,
            indexes: None,
            bare: None,
        }
    }

    pub fn finish(self) -> Opened {
        Opened {
            sections: self.sections,
            connections: self.connections,
            problems: self.problems,
        }
    }

    pub fn walk(&mut self, from: u64) -> Result<(), SourceError> {
        let end = self.storage.size();
        let mut at = from;
        while at < end {
            at = self.step(at, end)?;
        }
        self.close_bare();
        // A file that ends here may have been truncated among the index records: their number is unknown.
        self.indexes = None;
        Ok(())
    }

    /// Handles the record at `at`, and returns the offset of the next one.
    fn step(&mut self, at: u64, end: u64) -> Result<u64, SourceError> {
        let head = self.storage.get(at, 4 + LONGEST_HEADER.min(4096) + 4)?;
        let parsed = Frame::parse(at, &head)
            .and_then(|(frame, header)| Some((frame, Fields::parse(header)?)));
        let Some((frame, fields)) = parsed else {
            return self.step_over_garbage(at, end);
        };
        if fields.op != Some(op::MESSAGE) {
            self.close_bare();
        }
        if fields.op != Some(op::INDEX) {
            self.close_indexes(at);
        }
        if frame.end() > end {
            self.indexes = None;
            return self.meet_overlong(frame, &fields, end);
        }
        match fields.op {
            Some(op::CHUNK) => return Ok(self.meet_chunk(frame, &fields, end)),
            Some(op::INDEX) => self.meet_index(frame, &fields)?,
            Some(op::CONNECTION) => {
                if let (Some(id), Some(topic)) = (fields.conn, fields.topic) {
                    let data = self.storage.get(frame.data(), frame.data_len)?;
                    let problem = self.connections.add(at, id, topic, &data);
                    self.problems.extend(problem);
                }
            }
            Some(op::MESSAGE) => {
                let run = self.bare.get_or_insert((at, at));
                run.1 = frame.end();
                if run.1 - run.0 >= BARE_RUN_BYTES {
                    self.close_bare();
                }
            }
            Some(op::CHUNK_INFO | op::BAG_HEADER) => {}
            _ => return self.step_over_garbage(at, end),
        }
        Ok(frame.end())
    }

    fn meet_chunk(&mut self, frame: Frame, fields: &Fields<'_>, end: u64) -> u64 {
        let size = u64::from(fields.size.unwrap_or(0));
        // A recorder writes a chunk's lengths when it closes the chunk. A chunk that was never closed has none: what
        // follows is its data, as it was written.
        let is_open = frame.data_len == 0 && size == 0 && frame.end() < end;
        if is_open && fields.compression == Some(b"none") {
            return frame.end();
        }
        let (kind, next) = if is_open {
            let message = "the last chunk was not closed; what is readable of it is kept";
            self.problems
                .push(Problem::at(ProblemKind::Incomplete, frame.at, message));
            (SectionKind::OpenChunk, end)
        } else {
            (SectionKind::Chunk, frame.end())
        };
        self.push(kind, frame.at, next, size);
        if kind == SectionKind::Chunk {
            self.indexes = Some(Indexes {
                counts: BTreeMap::new(),
                range: TimeRange::EMPTY,
            });
        }
        next
    }

    fn meet_index(&mut self, frame: Frame, fields: &Fields<'_>) -> Result<(), SourceError> {
        let (Some(indexes), Some(conn)) = (&mut self.indexes, fields.conn) else {
            return Ok(());
        };
        let count = frame.data_len / INDEX_ENTRY_LEN;
        let is_even = frame.data_len.is_multiple_of(INDEX_ENTRY_LEN);
        if fields.count.map(u64::from) != Some(count) || !is_even {
            // The index contradicts itself: the chunk is read instead.
            self.indexes = None;
            return Ok(());
        }
        let data = self.storage.get(frame.data(), frame.data_len)?;
        for (time, _) in index_entries(&data) {
            indexes.range = indexes.range.cover_stamp(time);
        }
        *indexes.counts.entry(conn).or_default() += count;
        Ok(())
    }

    /// Assigns index records to the chunk before them, once another record shows that they are complete.
    fn close_indexes(&mut self, at: u64) {
        let Some(indexes) = self.indexes.take().filter(|i| !i.counts.is_empty()) else {
            return;
        };
        if let Some(section) = self.sections.last_mut() {
            section.contents = Contents::Indexed(indexes.counts.into_iter().collect());
            section.range = indexes.range;
            section.end = at;
        }
    }

    fn close_bare(&mut self) {
        if let Some((start, end)) = self.bare.take() {
            self.push(SectionKind::Bare, start, end, end - start);
        }
    }

    fn push(&mut self, kind: SectionKind, offset: u64, end: u64, size: u64) {
        self.sections.push(Section {
            kind,
            offset,
            end,
            range: TimeRange::ALL,
            contents: Contents::Unknown,
            size,
            compression: String::new(),
        });
    }

    /// A record whose length reaches past the end: the file was truncated within it, or its length is wrong.
    fn meet_overlong(
        &mut self,
        frame: Frame,
        fields: &Fields<'_>,
        end: u64,
    ) -> Result<u64, SourceError> {
        if fields.op == Some(op::CHUNK) {
            return self.salvage_chunk(frame, fields, end);
        }
        let next = self.find(frame.data(), end)?;
        let what = name_of(fields.op);
        let (kind, message) = match next {
            Some(next) => (
                ProblemKind::BadRecord,
                format!(
                    "{what} says that it is {} bytes long, but another record starts {} bytes after it; it is skipped",
                    frame.data_len,
                    next - frame.at
                ),
            ),
            None => (
                ProblemKind::Truncated,
                format!("the file ends in the middle of {what}; it is skipped"),
            ),
        };
        self.problems.push(Problem::at(kind, frame.at, message));
        Ok(next.unwrap_or(end))
    }

    /// Keeps what is readable of a chunk that reaches past the end, and continues after it.
    fn salvage_chunk(
        &mut self,
        frame: Frame,
        fields: &Fields<'_>,
        end: u64,
    ) -> Result<u64, SourceError> {
        let message = format!(
            "a chunk record of {} bytes reaches past the end of the file, which holds {} of them; what is readable of it is kept",
            frame.data_len,
            end.saturating_sub(frame.data())
        );
        self.problems
            .push(Problem::at(ProblemKind::Truncated, frame.at, message));
        if fields.compression == Some(b"none") {
            // The records found after its header are its own messages.
            return Ok(frame.data());
        }
        let chunk_end = self.find_behind_chunk(frame.data(), end)?.unwrap_or(end);
        let size = u64::from(fields.size.unwrap_or(0));
        self.push(SectionKind::Chunk, frame.at, chunk_end, size);
        Ok(chunk_end)
    }

    fn step_over_garbage(&mut self, at: u64, end: u64) -> Result<u64, SourceError> {
        self.close_bare();
        // The damage may have been one of them.
        self.indexes = None;
        let next = self.find(at + 1, end)?.unwrap_or(end);
        let message = format!("{} bytes are not a record; they are skipped", next - at);
        self.problems
            .push(Problem::at(ProblemKind::Garbage, at, message));
        Ok(next)
    }

    /// The first record from `from` on that cannot be part of a compressed chunk. Connections and messages can:
    /// compressed data contains parts of its contents verbatim.
    fn find_behind_chunk(&self, from: u64, end: u64) -> Result<Option<u64>, SourceError> {
        let mut from = from;
        while let Some(at) = self.find(from, end)? {
            let head = self.storage.get(at, 4 + LONGEST_HEADER.min(4096) + 4)?;
            let parsed = Frame::parse(at, &head).and_then(|(_, header)| Fields::parse(header));
            let found = parsed.and_then(|fields| fields.op);
            if matches!(found, Some(op::CHUNK | op::INDEX | op::CHUNK_INFO)) {
                return Ok(Some(at));
            }
            from = at + 1;
        }
        Ok(None)
    }

    /// The offset of the first certain record from `from` on.
    fn find(&self, from: u64, end: u64) -> Result<Option<u64>, SourceError> {
        let mut base = from;
        while base < end {
            let window = self.storage.get(base, SEARCH_WINDOW + LONGEST_HEADER)?;
            if let Some(place) = find_record(&window, 0, end - base) {
                return Ok(Some(base + place as u64));
            }
            base += SEARCH_WINDOW - LOOK_BACK as u64;
        }
        Ok(None)
    }
}
