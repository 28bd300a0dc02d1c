//! Which messages lie where: one look at topic, time and length of each.

use std::ops::RangeInclusive;

use asof_core::{Problem, ProblemKind, SourceError, Stamp, TimeRange};
use rusqlite::Connection;

use super::database::Database;
use super::filling::ZSTD;
use super::mapped::{MappedMessages, Unusable};
use super::pages::{PageRow, Payload};
use crate::problems::Problems;

/// The messages of a file in parts that are loaded at once, by id.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub sections: Vec<Section>,
}

/// Messages whose ids follow each other.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub first: i64,
    pub last: i64,
    pub range: TimeRange,
    /// Topics by the file's numbers, sorted, with the count of messages.
    pub topics: Vec<(i64, u64)>,
    /// Bytes of payload, as stored.
    pub bytes: u64,
    pub rows: u64,
    /// Bytes of payload that cannot be handed out where they lie, as far as the scan could tell.
    pub apart: u64,
    /// Its messages, where the scan could keep them: their pages need no second look then.
    pub found: Option<Vec<Found>>,
}

/// A message, and where its payload is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub payload: Payload,
    pub id: i64,
    pub time: Stamp,
    pub topic: i64,
    /// Its bytes are the message, and lie at one place.
    pub is_plain: bool,
}

impl Found {
    /// A row, if it is a message.
    pub fn new(row: &PageRow, file: &[u8]) -> Option<Self> {
        let on_one_page = row.payload.on_one_page(file);
        Some(Found {
            id: row.id,
            time: Stamp::from_nanos(row.time?),
            topic: row.topic?,
            payload: row.payload,
            is_plain: on_one_page.is_some_and(|bytes| !bytes.starts_with(&ZSTD)),
        })
    }
}

/// A section is closed at this many bytes, or messages.
const SECTION_BYTES: u64 = 1 << 20;
const SECTION_ROWS: u64 = 8 << 10;
/// So many messages are kept in memory, of 56 bytes each; those beyond are found again when they are read.
const KEPT_ROWS: usize = 1 << 19;
/// Files from this size on are scanned by several threads.
const WORTH_A_THREAD: usize = 4 << 20;

impl Directory {
    /// Looks at every message, in the mapped pages where that goes.
    pub fn scan(
        database: &Database,
        mapped: &mut Option<MappedMessages>,
        threads: usize,
        problems: &mut Problems,
    ) -> Result<Self, SourceError> {
        let by_pages = mapped
            .as_ref()
            .map(|pages| Self::scan_pages(database, pages, threads));
        let (directory, odd) = match by_pages {
            Some(Ok(scanned)) => scanned,
            by_pages => {
                if let Some(Err(reason)) = by_pages {
                    tracing::debug!(place = database.name(), %reason, "left to SQLite");
                    *mapped = None;
                }
                Self::scan_by_sqlite(database, problems)?
            }
        };
        if odd > 0 {
            let message =
                format!("{odd} messages have no number as topic or time; they are left out");
            problems.push(Problem::whole(ProblemKind::BadRecord, message));
        }
        Ok(directory)
    }

    /// Returns how many messages have no number as topic or time beside the directory of those that do.
    fn scan_pages(
        database: &Database,
        pages: &MappedMessages,
        threads: usize,
    ) -> Result<(Self, u64), Unusable> {
        let file = pages.map().bytes();
        let scan = || {
            if !pages.is_unchanged() {
                return Err(Unusable::Changed);
            }
            let threads = threads.min(file.len() / WORTH_A_THREAD).max(1);
            let parts = pages.table().parts(file, threads);
            let keep = KEPT_ROWS / parts.len();
            let scanned: Vec<Result<PartialScan, Unusable>> = std::thread::scope(|scope| {
                let (own, others) = parts
                    .split_last()
                    .map_or((None, &[][..]), |(own, others)| (Some(own), others));
                let others: Vec<_> = others
                    .iter()
                    .map(|part| scope.spawn(move || PartialScan::run(pages, part, keep)))
                    .collect();
                let own = own.map(|part| PartialScan::run(pages, part, keep));
                let others = others
                    .into_iter()
                    .map(|other| other.join().unwrap_or(Err(Unusable::Panicked)));
                others.chain(own).collect()
            });
            let (mut directory, mut odd, mut overflow) = (Directory::default(), 0, 0);
            for part in scanned {
                let part = part?;
                directory.sections.extend(part.directory.sections);
                odd += part.odd;
                overflow += part.overflow;
            }
            // As within each part.
            if overflow > file.len() as u64 {
                return Err(Unusable::TooMuch);
            }
            Ok((directory, odd))
        };
        database.unchanging(scan)?
    }

    fn scan_by_sqlite(
        database: &Database,
        problems: &mut Problems,
    ) -> Result<(Self, u64), SourceError> {
        let mut directory = Directory::default();
        let mut odd = 0u64;
        let losses = database.with(|connection| {
            let sql = "SELECT id, topic_id, timestamp, length(data) FROM messages WHERE id >= ? AND id <= ? ORDER BY id";
            Ok(for_each(connection, sql, i64::MIN, i64::MAX, |id, row| {
                let fields = (row.get(1), row.get(2), row.get::<_, Option<i64>>(3));
                let (Ok(topic), Ok(time), Ok(len)) = fields else {
                    odd += 1;
                    return Ok(());
                };
                directory.add(id, topic, Stamp::from_nanos(time), len.unwrap_or(0).unsigned_abs());
                Ok(())
            }))
        })?;
        problems.extend(losses.into_iter().map(Loss::problem));
        Ok((directory, odd))
    }

    fn add(&mut self, id: i64, topic: i64, time: Stamp, bytes: u64) -> Option<&mut Section> {
        let is_full = self
            .sections
            .last()
            .is_none_or(|last| last.bytes >= SECTION_BYTES || last.rows >= SECTION_ROWS);
        if is_full {
            self.sections.push(Section {
                first: id,
                last: id,
                range: TimeRange::EMPTY,
                topics: Vec::new(),
                bytes: 0,
                rows: 0,
                apart: 0,
                found: None,
            });
        }
        let section = self.sections.last_mut()?;
        section.last = id;
        section.rows += 1;
        section.bytes = section.bytes.saturating_add(bytes);
        section.range = section.range.cover_stamp(time);
        match section.topics.binary_search_by_key(&topic, |&(id, _)| id) {
            Ok(place) => section.topics[place].1 += 1,
            Err(place) => section.topics.insert(place, (topic, 1)),
        }
        Some(section)
    }
}

/// What one thread finds out about its part of the messages.
#[derive(Default)]
struct PartialScan {
    directory: Directory,
    /// Messages without a number as topic or time.
    odd: u64,
    /// Bytes of pages that payloads continue on.
    overflow: u64,
}

impl PartialScan {
    fn run(
        pages: &MappedMessages,
        part: &RangeInclusive<i64>,
        mut keep: usize,
    ) -> Result<Self, Unusable> {
        let file = pages.map().bytes();
        let mut scan = PartialScan::default();
        let (mut last_page, mut last_rows) = (0, 0);
        let mut rows = pages.rows(*part.start(), *part.end());
        while let Some(row) = rows.next() {
            let row = row?;
            if rows.page() != last_page {
                last_page = rows.page();
                pages.map().look_at(pages.table().place_of(last_page).start);
            }
            // No two messages share a page of overflow, so all of them together fit into the file. That bounds
            // what reading it costs, whatever its chains are.
            scan.overflow += pages.table().overflow_bytes(&row.payload);
            if scan.overflow > file.len() as u64 {
                return Err(Unusable::TooMuch);
            }
            let Some(found) = Found::new(&row, file) else {
                scan.odd += 1;
                continue;
            };
            let len = found.payload.len.into();
            let section = scan.directory.add(found.id, found.topic, found.time, len);
            let Some(section) = section else { continue };
            if !found.is_plain {
                section.apart += u64::from(found.payload.len);
            }
            if section.rows == 1 && keep > 0 {
                // Neighbours are about alike.
                section.found = Some(Vec::with_capacity(last_rows));
            }
            last_rows = section.rows as usize + 16;
            if let Some(list) = &mut section.found {
                list.push(found);
                keep = keep.saturating_sub(1);
            }
        }
        Ok(scan)
    }
}

/// A part of the table that SQLite could not read.
#[derive(Debug)]
pub(crate) struct Loss {
    behind: i64,
    error: String,
}

impl Loss {
    pub fn problem(self) -> Problem {
        let message = format!(
            "the file is damaged behind message id {} ({}); what could not be read is left out",
            self.behind, self.error
        );
        Problem::whole(ProblemKind::BadRecord, message)
    }
}

/// Runs a query over messages by id, which is its first column, from `first` to `last`. Where SQLite meets
/// damage, it starts again further on, in steps that grow, until there is something to read.
pub(crate) fn for_each(
    connection: &Connection,
    sql: &str,
    first: i64,
    last: i64,
    mut visit: impl FnMut(i64, &rusqlite::Row<'_>) -> Result<(), rusqlite::Error>,
) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    let (mut from, mut last, mut step) = (first, last, 1i64);
    loop {
        let mut behind = from.saturating_sub(1);
        let mut has_moved = false;
        let result = connection.prepare_cached(sql).and_then(|mut statement| {
            let mut rows = statement.query([from, last])?;
            while let Some(row) = rows.next()? {
                let id = row.get(0)?;
                if has_moved && id <= behind {
                    // A damaged tree may come back to where it was.
                    return Err(rusqlite::Error::SqliteFailure(
                        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
                        Some("its rows are not in order".into()),
                    ));
                }
                behind = id;
                has_moved = true;
                visit(behind, row)?;
            }
            Ok(())
        });
        let Err(error) = result else { return losses };
        if losses.is_empty() && last == i64::MAX {
            // Without an end in sight the steps would never end.
            let end = connection.query_row("SELECT max(id) FROM messages", [], |row| row.get(0));
            let Ok(end) = end else {
                losses.push(Loss {
                    behind,
                    error: error.to_string(),
                });
                return losses;
            };
            last = end;
        }
        if has_moved || losses.is_empty() {
            step = 1;
            losses.push(Loss {
                behind,
                error: error.to_string(),
            });
        } else {
            step = step.saturating_mul(2);
        }
        from = behind.saturating_add(1).max(first).saturating_add(step);
        if from > last || losses.len() > 100 {
            return losses;
        }
    }
}
