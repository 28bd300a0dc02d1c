//! Where messages are: from the timestamp index, or from the topic, time and length of each message.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use asof_core::{Problem, ProblemKind, SourceError, Stamp, TimeRange};
use rusqlite::Connection;

use super::database::Database;
use super::mapped::{MappedMessages, Unusable};
use super::pages::{PageError, PageRow, Payload};
use crate::filling::ZSTD;
use crate::problems::Problems;
use crate::storage::read_exact_at;

/// The messages of a file in sections, each a range of ids.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub sections: Vec<Section>,
    /// Message counts by the file's topic ids.
    pub counts: BTreeMap<i64, u64>,
}

/// The messages in a range of ids, loaded together.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub first: i64,
    pub last: i64,
    /// Positions within the section count from this id.
    pub base: i64,
    pub range: TimeRange,
    /// Topics by the file's ids, sorted, with the count of messages; not set until the section is read.
    pub topics: OnceLock<Vec<(i64, u64)>>,
    /// Payload bytes as stored; an estimate until the section is read.
    pub bytes: u64,
    pub rows: u64,
}

/// A message, and where its payload is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub payload: Payload,
    pub id: i64,
    pub time: Stamp,
    pub topic: i64,
    /// Its bytes are the message, contiguous and not compressed.
    pub is_plain: bool,
}

impl Found {
    /// A row, if it is a message.
    #[inline]
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
/// A thread is worth it for this many bytes, or messages in an index. It may start late on a busy machine, and opening
/// a file waits for it.
const BYTES_WORTH_A_THREAD: usize = 32 << 20;
const MESSAGES_WORTH_A_THREAD: u64 = 500_000;
/// Files of at least this size are opened by their timestamp index where that suffices; a smaller one is scanned as
/// fast, which yields more.
const MIN_INDEXED_BYTES: usize = 16 << 20;

impl Directory {
    /// The messages of a file. `declared` is the file's own message count by topic, if it has one.
    ///
    /// A large file with declared counts and a timestamp index is not scanned; in others every message is, in the
    /// mapped pages where possible.
    pub fn of(
        database: &Database,
        mapped: &mut Option<MappedMessages>,
        declared: Option<BTreeMap<i64, u64>>,
        threads: usize,
        problems: &mut Problems,
    ) -> Result<Scanned, SourceError> {
        let large = mapped
            .as_ref()
            .filter(|pages| pages.map().bytes().len() >= MIN_INDEXED_BYTES);
        if let (Some(pages), Some(counts)) = (large, declared) {
            match Self::by_index(database, pages, counts, threads) {
                Ok(directory) => return Ok(Scanned::whole(directory)),
                Err(reason) => {
                    tracing::debug!(place = database.name(), %reason, "every message is looked at");
                }
            }
        }
        Self::scan(database, mapped, threads, problems)
    }

    /// Reads the interior pages above the messages, and the timestamp index.
    pub fn by_index(
        database: &Database,
        pages: &MappedMessages,
        counts: BTreeMap<i64, u64>,
        threads: usize,
    ) -> Result<Self, Unusable> {
        let root = pages.times().ok_or(Unusable::NoIndex)?;
        let look = || {
            if !pages.is_unchanged() {
                return Err(Unusable::Changed);
            }
            let mut sections = sections_by_leaves(pages)?;
            let worth = counts.values().sum::<u64>() / MESSAGES_WORTH_A_THREAD;
            let parts = threads.min(worth as usize).max(1);
            let each: Vec<usize> = (0..parts).collect();
            let found = in_threads(&each, |&part| times_of(pages, root, &sections, part, parts));
            for times in found {
                for (section, times) in sections.iter_mut().zip(times?) {
                    section.rows += times.rows;
                    section.base = section.base.min(times.first);
                    section.range = section.range.cover(times.range);
                }
            }
            let rows = sections.iter().map(|section| section.rows).sum::<u64>();
            let has_all = sections.iter().all(|section| section.rows > 0);
            if !has_all || counts.values().sum::<u64>() != rows {
                return Err(Unusable::Stale);
            }
            Ok(Directory { sections, counts })
        };
        database.unchanging(look)?
    }

    /// Scans every message.
    fn scan(
        database: &Database,
        mapped: &mut Option<MappedMessages>,
        threads: usize,
        problems: &mut Problems,
    ) -> Result<Scanned, SourceError> {
        let by_pages = mapped
            .as_ref()
            .map(|pages| Self::scan_pages(database, pages, threads));
        let (mut directory, odd, losses) = match by_pages {
            Some(Ok((directory, odd))) => (directory, odd, Vec::new()),
            by_pages => {
                if let Some(Err(reason)) = by_pages {
                    tracing::debug!(place = database.name(), %reason, "left to SQLite");
                    *mapped = None;
                }
                Self::scan_by_sqlite(database)?
            }
        };
        if odd > 0 {
            let message =
                format!("{odd} messages have no number as topic or time; they are skipped");
            problems.push(Problem::whole(ProblemKind::BadRecord, message));
        }
        directory.count();
        Ok(Scanned { directory, losses })
    }

    /// Counts the messages by topic. Call it when all are in sections.
    pub fn count(&mut self) {
        let sections = self.sections.iter();
        for &(topic, count) in sections
            .filter_map(|section| section.topics.get())
            .flatten()
        {
            *self.counts.entry(topic).or_default() += count;
        }
    }

    /// Returns the directory, and how many messages were skipped because topic or time is not a number.
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
            let threads = threads.min(file.len() / BYTES_WORTH_A_THREAD).max(1);
            let parts = pages.table().parts(file, threads);
            let scanned = in_threads(&parts, |part| PartialScan::run(pages, part));
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

    fn scan_by_sqlite(database: &Database) -> Result<(Self, u64, Vec<Loss>), SourceError> {
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
        Ok((directory, odd, losses))
    }

    pub fn add(&mut self, id: i64, topic: i64, time: Stamp, bytes: u64) {
        let last = self.sections.last_mut().filter(|last| !last.is_full());
        let section = if let Some(last) = last {
            last
        } else {
            self.sections.push(Section::from(id));
            let last = self.sections.len() - 1;
            &mut self.sections[last]
        };
        section.last = id;
        section.rows += 1;
        section.bytes = section.bytes.saturating_add(bytes);
        section.range = section.range.cover_stamp(time);
        section.topics.get_or_init(Vec::new);
        let Some(topics) = section.topics.get_mut() else {
            return;
        };
        match topics.binary_search_by_key(&topic, |&(id, _)| id) {
            Ok(place) => topics[place].1 += 1,
            Err(place) => topics.insert(place, (topic, 1)),
        }
    }
}

/// The result of scanning every message.
pub(crate) struct Scanned {
    pub directory: Directory,
    /// What SQLite could not read.
    pub losses: Vec<Loss>,
}

impl Scanned {
    fn whole(directory: Directory) -> Self {
        Scanned {
            directory,
            losses: Vec::new(),
        }
    }
}

impl Section {
    /// A section without messages yet.
    fn from(first: i64) -> Self {
        Section {
            first,
            last: first,
            base: first,
            range: TimeRange::EMPTY,
            topics: OnceLock::new(),
            bytes: 0,
            rows: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= SECTION_BYTES || self.rows >= SECTION_ROWS
    }
}

/// Sections of complete leaves, without their messages yet. SQLite writes what does not fit on a leaf before or after
/// it, so the distance to the next leaf is the number of bytes; only where it is large are the rows of a leaf divided
/// too.
fn sections_by_leaves(pages: &MappedMessages) -> Result<Vec<Section>, PageError> {
    let (table, file) = (pages.table(), pages.map().bytes());
    let leaves = table.leaves(file)?;
    let page_size = table.place_of(1).len() as u64;
    let bytes_between = |one: u32, other: u32| u64::from(one.abs_diff(other)) * page_size;
    let mut sections: Vec<Section> = Vec::new();
    let (mut first, mut before) = (i64::MIN, table.root());
    let mut close = |first: &mut i64, last: i64, bytes: u64| {
        sections.push(Section {
            last,
            base: i64::MAX,
            bytes,
            ..Section::from(*first)
        });
        *first = last.saturating_add(1);
    };
    let mut bytes = 0;
    for (index, leaf) in leaves.iter().enumerate() {
        let behind = leaves
            .get(index + 1)
            .map_or(table.pages(), |next| next.page);
        let around = [
            bytes_between(before, leaf.page),
            bytes_between(leaf.page, behind),
        ];
        before = leaf.page;
        if around.iter().all(|&bytes| bytes < SECTION_BYTES) {
            bytes += around[1];
        } else {
            for row in table.rows(file, first, leaf.last) {
                let row = row?;
                if bytes >= SECTION_BYTES {
                    close(&mut first, row.id.saturating_sub(1), bytes);
                    bytes = 0;
                }
                bytes += u64::from(row.payload.len);
            }
        }
        let is_last = index + 1 == leaves.len();
        if bytes >= SECTION_BYTES || is_last {
            close(&mut first, leaf.last, bytes);
            bytes = 0;
        }
    }
    Ok(sections)
}

/// Runs `work` on each part, each on its own thread except the last.
fn in_threads<P: Sync, T: Send>(
    parts: &[P],
    work: impl Fn(&P) -> Result<T, Unusable> + Sync,
) -> Vec<Result<T, Unusable>> {
    let Some((own, others)) = parts.split_last() else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = others
            .iter()
            .map(|part| scope.spawn(move || work(part)))
            .collect();
        let own = work(own);
        let others = others
            .into_iter()
            .map(|other| other.join().unwrap_or(Err(Unusable::Panicked)));
        others.chain([own]).collect()
    })
}

/// What the timestamp index contains about a section.
#[derive(Clone, Copy)]
struct Times {
    range: TimeRange,
    rows: u64,
    first: i64,
}

/// What one part of the index contains about each section.
fn times_of(
    pages: &MappedMessages,
    root: u32,
    sections: &[Section],
    part: usize,
    parts: usize,
) -> Result<Vec<Times>, Unusable> {
    let nothing = Times {
        range: TimeRange::EMPTY,
        rows: 0,
        first: i64::MAX,
    };
    let mut found = vec![nothing; sections.len()];
    let mut at = 0;
    let visit = |time, id| {
        let is_here = |section: &Section| section.first <= id && id <= section.last;
        if !sections.get(at).is_some_and(is_here) {
            at = sections.partition_point(|section| section.last < id);
        }
        let times: &mut Times = found.get_mut(at).ok_or("an id is of no section")?;
        times.rows += 1;
        times.first = times.first.min(id);
        times.range = times.range.cover_stamp(Stamp::from_nanos(time));
        Ok(())
    };
    let read = |to: &mut [u8], start| read_exact_at(pages.file(), to, start);
    pages.table().times(read, root, part, parts, visit)?;
    Ok(found)
}

/// What one thread finds in its part of the messages.
#[derive(Default)]
struct PartialScan {
    directory: Directory,
    /// Messages whose topic or time is not a number.
    odd: u64,
    /// Bytes of overflow pages.
    overflow: u64,
}

impl PartialScan {
    fn run(pages: &MappedMessages, part: &RangeInclusive<i64>) -> Result<Self, Unusable> {
        let file = pages.map().bytes();
        let mut scan = PartialScan::default();
        let mut last_page = 0;
        let mut walk = pages.map().walk();
        let mut rows = pages.rows(*part.start(), *part.end());
        while let Some(row) = rows.next() {
            let row = row?;
            if rows.page() != last_page {
                last_page = rows.page();
                walk.look_at(pages.table().place_of(last_page).start);
            }
            // No two messages share an overflow page, so all overflow pages together fit into the file. That bounds the
            // cost of reading, whatever the chains are.
            scan.overflow += pages.table().overflow_bytes(&row.payload);
            if scan.overflow > file.len() as u64 {
                return Err(Unusable::TooMuch);
            }
            let (Some(topic), Some(time)) = (row.topic, row.time) else {
                scan.odd += 1;
                continue;
            };
            let time = Stamp::from_nanos(time);
            let len = row.payload.len.into();
            scan.directory.add(row.id, topic, time, len);
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
        let place = match self.behind {
            i64::MIN => "before its first message".to_owned(),
            id => format!("after message id {id}"),
        };
        let message = format!(
            "the file is damaged {place} ({}); what could not be read is skipped",
            self.error
        );
        Problem::whole(ProblemKind::BadRecord, message)
    }
}

/// Runs a query over messages by id, which is its first column, from `first` to `last`. At damage the query is
/// restarted further on, in growing steps, until there is something to read.
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
                    // A damaged tree may loop.
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
            // Without an upper bound the steps would never end.
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
