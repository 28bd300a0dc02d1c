//! A file that is being written, read as it grows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use asof_core::{Batch, Problem, ProblemKind, Row, SourceError};
use bytes::Bytes;
use mcap::records::{Record, op};

use super::Mcap;
use super::chunk::{row_at, unpack_rows};
use super::definitions::Definitions;
use super::record::{ChunkHeader, HEADER_LEN, MAGIC_LEN, RecordHeader, name_of, parse};
use crate::buffers::BufferPool;
use crate::decompress::decompress;
use crate::limits::DecompressionLimits;
use crate::problems::Problems;
use crate::sections::Loaded;
use crate::storage::{PlainFile, Storage};

/// A cursor in an MCAP file that another process is writing, for [`GrowingMcapFile`](super::GrowingMcapFile).
///
/// [`poll`](McapFollower::poll) returns what has been written since the last call, chunk by chunk, each sorted by
/// log time. It waits for a record that is incomplete, or whose length its writer has yet to fill in. When the writer
/// closes the file, the follower [is finished](McapFollower::is_finished).
pub(super) struct McapFollower {
    path: PathBuf,
    storage: PlainFile,
    /// The offset of the next record.
    at: u64,
    /// Chunks, and runs of messages outside of chunks, that were returned.
    batches: usize,
    definitions: Definitions,
    problems: Problems,
    pool: Arc<BufferPool>,
    limits: DecompressionLimits,
    /// The file up to where this follower began, for channels that only its chunks define.
    earlier: Option<Arc<Mcap>>,
    is_finished: bool,
}

/// A run of messages outside of chunks is returned at about this size.
pub(super) const RUN_BYTES: u64 = 1 << 20;

/// The state of the next record.
enum Next {
    /// It is not complete yet.
    Wait,
    /// It has been handled.
    Done,
    Batch(Batch),
}

impl McapFollower {
    /// Starts after the known part of a file.
    pub fn from_place(
        path: &Path,
        at: u64,
        earlier: Option<Arc<Mcap>>,
        limits: DecompressionLimits,
    ) -> Result<Self, SourceError> {
        let storage = PlainFile::open(path).map_err(|cause| SourceError::Io {
            place: path.display().to_string(),
            offset: 0,
            cause,
        })?;
        let mut definitions = Definitions::default();
        let mut batches = 0;
        if let Some(earlier) = &earlier {
            batches = earlier.directory.sections.len();
            definitions.adopt(&earlier.definitions());
        }
        Ok(McapFollower {
            path: path.to_owned(),
            storage,
            at,
            batches,
            definitions,
            problems: Problems::default(),
            pool: Arc::default(),
            limits,
            earlier,
            is_finished: false,
        })
    }

    /// The next messages; `None` if there is nothing new yet, or the file is finished.
    ///
    /// # Errors
    /// When the file cannot be read, is not an MCAP file, became shorter than it was, or was removed or replaced.
    pub fn poll(&mut self) -> Result<Option<Batch>, SourceError> {
        self.storage.refresh().map_err(|cause| SourceError::Io {
            place: self.storage.name().to_owned(),
            offset: self.at,
            cause,
        })?;
        if self.storage.size() < self.at {
            return Err(
                self.unreadable("it became shorter while it was being followed; start again")
            );
        }
        while !self.is_finished {
            match self.step()? {
                Next::Wait => {
                    self.refuse_another_file()?;
                    break;
                }
                Next::Done => {}
                Next::Batch(batch) if batch.is_empty() => {}
                Next::Batch(batch) => return Ok(Some(batch)),
            }
        }
        Ok(None)
    }

    /// Whether the writer has closed the file, and all of it was returned.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The problems found since the last call.
    pub fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems).to_vec()
    }

    /// Fails if the path leads to another file: a follower would wait forever.
    fn refuse_another_file(&self) -> Result<(), SourceError> {
        match self.storage.is_still_at(&self.path) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let reason = "another file took its place while it was being followed; start again";
                Err(self.unreadable(reason))
            }
            Err(_) => {
                let reason = "it was removed before its writer closed it";
                Err(self.unreadable(reason))
            }
        }
    }

    fn step(&mut self) -> Result<Next, SourceError> {
        if self.at == 0 {
            return self.check_magic();
        }
        let Some(header) = whole_record(&self.storage, self.at)? else {
            return Ok(Next::Wait);
        };
        match header.opcode {
            op::MESSAGE => self.run_of_messages(header),
            op::CHUNK => self.chunk(header),
            op::SCHEMA | op::CHANNEL => {
                let body = self.get(header.body(), header.len)?;
                self.define(header, &body);
                self.at = header.end();
                Ok(Next::Done)
            }
            // Only the summary follows, which holds nothing new.
            op::DATA_END | op::FOOTER => {
                self.is_finished = true;
                Ok(Next::Done)
            }
            _ => {
                self.at = header.end();
                Ok(Next::Done)
            }
        }
    }

    fn check_magic(&mut self) -> Result<Next, SourceError> {
        let front = self.get(0, MAGIC_LEN)?;
        if front == mcap::MAGIC {
            self.at = MAGIC_LEN;
            return Ok(Next::Done);
        }
        if mcap::MAGIC.starts_with(&front) {
            return Ok(Next::Wait);
        }
        Err(self.unreadable(
            "only an MCAP file can be followed, and this is not one; read it without following it",
        ))
    }

    fn chunk(&mut self, header: RecordHeader) -> Result<Next, SourceError> {
        let body = self.get(header.body(), header.len)?;
        // Later versions may add fields after the data.
        let Some(chunk) = ChunkHeader::parse(&body) else {
            self.report(header, "a chunk's lengths do not agree; it was skipped");
            self.at = header.end();
            return Ok(Next::Done);
        };
        let start = chunk.len().min(header.len);
        let end = start.saturating_add(chunk.compressed_size);
        if end > header.len {
            let (there, all) = (header.len - start, chunk.compressed_size);
            let message = format!("chunk: {there} of its {all} compressed bytes are there");
            self.report(header, &message);
        }
        let data = body.slice(start as usize..end.min(header.len) as usize);
        let found = decompress(
            &chunk.compression,
            &data,
            chunk.uncompressed_size,
            &self.limits,
            &self.pool,
        );
        if let Some((_, fault)) = &found.fault {
            self.report(header, &format!("chunk: {fault}"));
        } else if chunk.crc != 0 && crc32fast::hash(&found.bytes) != chunk.crc {
            self.report(
                header,
                "chunk: its checksum is wrong; its messages may be damaged",
            );
        }
        self.at = header.end();
        Ok(Next::Batch(self.batch(header, found.bytes)))
    }

    /// The messages outside of chunks that are complete.
    fn run_of_messages(&mut self, first: RecordHeader) -> Result<Next, SourceError> {
        let mut end = first.end();
        while end - first.offset < RUN_BYTES {
            let head = self.get(end, HEADER_LEN)?;
            let next = RecordHeader::parse(end, &head)
                .filter(|next| next.opcode == op::MESSAGE && next.end() <= self.storage.size());
            let Some(next) = next else { break };
            end = next.end();
        }
        let bytes = self.get(first.offset, end - first.offset)?;
        self.at = end;
        Ok(Next::Batch(self.batch(first, bytes)))
    }

    /// The messages in a run of records.
    fn batch(&mut self, place: RecordHeader, bytes: Bytes) -> Batch {
        let mut rows: Vec<Row> = Vec::new();
        let mut lost = 0u64;
        let mut at = 0;
        while let Some(header) = bytes
            .get(at..)
            .and_then(|rest| RecordHeader::parse(at as u64, rest))
            .filter(|header| header.opcode != 0 && header.end() <= bytes.len() as u64)
        {
            match header.opcode {
                op::MESSAGE => match self.row(&bytes, at as u64) {
                    Some(row) => rows.push(row),
                    None => lost += 1,
                },
                op::SCHEMA | op::CHANNEL => {
                    let body = bytes.slice(header.body() as usize..header.end() as usize);
                    self.define(header, &body);
                }
                _ => {}
            }
            at = header.end() as usize;
        }
        if lost > 0 {
            let message =
                format!("{lost} messages have no channel or an invalid time and were skipped");
            self.report(place, &message);
        }
        self.batches += 1;
        let channels = Arc::clone(&self.definitions.table().channels);
        let is_cdr = |channel: u32| channels[channel as usize].message_encoding == "cdr";
        let (Loaded { buffers, rows }, fault) =
            unpack_rows(bytes, rows, (&self.pool, &self.limits), is_cdr);
        if let Some(fault) = fault {
            self.report(place, &fault);
        }
        Batch::new(channels, buffers, rows)
    }

    fn row(&mut self, bytes: &Bytes, place: u64) -> Option<Row> {
        let number = self.batches;
        let find = |definitions: &Definitions| {
            row_at(bytes, place, number, |id| Some(definitions.find(id)?.0))
        };
        if let Some(row) = find(&self.definitions) {
            return Some(row);
        }
        let earlier = self.earlier.take()?;
        if let Err(error) = earlier.harvest_all() {
            tracing::debug!(%error, "the earlier part of the file can no longer be read");
        }
        self.definitions.adopt(&earlier.definitions());
        find(&self.definitions)
    }

    fn define(&mut self, header: RecordHeader, body: &[u8]) {
        let problem = match parse(header.opcode, body) {
            Ok(Record::Schema {
                header: found,
                data,
            }) => self.definitions.add_schema(header.offset, found, &data),
            Ok(Record::Channel(found)) => self.definitions.add_channel(header.offset, found),
            Ok(_) => None,
            Err(error) => {
                let what = name_of(header.opcode);
                let message = format!("{what} cannot be read ({error}); it was skipped");
                Some(Problem::at(ProblemKind::BadRecord, header.offset, message))
            }
        };
        self.problems.extend(problem);
    }

    fn report(&mut self, place: RecordHeader, message: &str) {
        self.problems
            .push(Problem::at(ProblemKind::BadRecord, place.offset, message));
    }

    fn get(&self, offset: u64, len: u64) -> Result<Bytes, SourceError> {
        (&self.storage as &dyn Storage).get(offset, len)
    }

    fn unreadable(&self, reason: &str) -> SourceError {
        SourceError::Unreadable {
            place: self.storage.name().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The record at an offset, if it is complete and its writer will not change it.
pub(super) fn whole_record(
    storage: &dyn Storage,
    at: u64,
) -> Result<Option<RecordHeader>, SourceError> {
    // A preallocated file is zero where nothing was written.
    let header = RecordHeader::parse(at, &storage.get(at, HEADER_LEN)?)
        .filter(|header| header.opcode != 0 && header.end() <= storage.size());
    let Some(header) = header else {
        return Ok(None);
    };
    // A writer may still fill in the header of the last chunk; once something follows it, it will not.
    if header.opcode == op::CHUNK && header.end() == storage.size() {
        let front = storage.get(header.body(), header.len.min(ChunkHeader::MAX_LEN))?;
        let chunk = ChunkHeader::parse(&front).filter(|chunk| chunk.is_plausible(header.len));
        return Ok(chunk.map(|_| header));
    }
    Ok(Some(header))
}
