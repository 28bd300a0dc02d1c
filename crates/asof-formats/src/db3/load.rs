//! Loading a section: its messages in order, with the buffers that hold them.

use std::fmt::Write as _;
use std::ops::Range;

use asof_core::{Problem, ProblemKind, Row, SourceError, Stamp, TimeRange};
use rusqlite::types::ValueRef;

use super::Db3;
use super::directory::{Found, Section, for_each};
use super::mapped::{MappedMessages, Unusable};
use super::pages::{PageRow, Payload};
use crate::filling::{Filling, ZSTD};
use crate::sections::{Loaded, SectionQuery, order_of};
use crate::storage::{PAGE_CLUSTER_BYTES, Storage};

/// At most this many of SQLite's findings are reported; more add nothing.
const FINDINGS_TOLD: usize = 100;
/// A range of the file is returned as it is while it is at most this much larger than its messages.
const FITTING: u64 = 4;
const FITTING_AND: u64 = 1 << 20;

impl Db3 {
    /// Reads a section. What cannot be read is reported and skipped.
    pub(super) fn load_section(
        &self,
        index: usize,
        wanted: &SectionQuery,
    ) -> Result<Loaded, SourceError> {
        if let Some(salvaged) = &self.salvaged {
            return self.load_salvaged(salvaged, index, wanted);
        }
        if let Some(pages) = &self.mapped {
            match self.load_from_pages(pages, index, wanted) {
                Ok(loaded) => return Ok(loaded),
                Err(reason) => {
                    tracing::debug!(place = self.name, index, %reason, "left to SQLite");
                }
            }
        }
        self.load_by_sqlite(index, wanted)
    }

    /// A message on a single page stays where it is; others are assembled in a buffer of their own.
    fn load_from_pages(
        &self,
        pages: &MappedMessages,
        index: usize,
        wanted: &SectionQuery,
    ) -> Result<Loaded, Unusable> {
        let section = &self.directory.sections[index];
        self.database.unchanging(|| {
            if !pages.is_unchanged() {
                return Err(Unusable::Changed);
            }
            let mut gathered = Gathered {
                shared: self,
                pages,
                section,
                index,
                rows: Vec::with_capacity(section.rows as usize),
                apart: Vec::new(),
                stretch: 0..0,
                stretch_at_most: section
                    .bytes
                    .saturating_mul(FITTING)
                    .saturating_add(FITTING_AND),
                touched: 0..0,
                seen: Seen::new(self.topics.len()),
            };
            let mut rows = pages.rows(section.first, section.last);
            let mut last_page = 0;
            while let Some(row) = rows.next() {
                let row = row?;
                if rows.page() != last_page {
                    last_page = rows.page();
                    gathered.touch(last_page);
                }
                gathered.meet(&row, wanted)?;
            }
            Ok(gathered.finish())
        })?
    }

    fn load_by_sqlite(&self, index: usize, wanted: &SectionQuery) -> Result<Loaded, SourceError> {
        let section = &self.directory.sections[index];
        let mut filling = Filling::new(&self.pool, &self.limits, section.bytes);
        let mut rows: Vec<Row> = Vec::new();
        let sql = self.sql(wanted);
        let losses = self.database.with(|connection| {
            Ok(for_each(
                connection,
                &sql,
                section.first,
                section.last,
                |id, row| {
                    let (Ok(topic), Ok(time)) = (row.get::<_, i64>(1), row.get::<_, i64>(2)) else {
                        return Ok(());
                    };
                    let Some(channel) = self.channel_of(topic) else {
                        return Ok(());
                    };
                    let payload = match row.get_ref(3)? {
                        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes,
                        _ => &[],
                    };
                    let offset = filling.used as u64;
                    if let Err(fault) = filling.push(payload) {
                        self.report_message(id, &fault);
                        return Ok(());
                    }
                    rows.push(Row {
                        offset,
                        len: filling.used as u64 - offset,
                        ..self.row(index, id, channel, Stamp::from_nanos(time))
                    });
                    Ok(())
                },
            ))
        })?;
        for loss in losses {
            self.report(loss.problem());
        }
        put_in_order(&mut rows);
        Ok(Loaded::of(filling.seal(), rows))
    }

    /// A message without its payload.
    #[inline]
    pub(super) fn row(&self, section: usize, id: i64, channel: u32, log_time: Stamp) -> Row {
        let base = self.directory.sections[section].base;
        Row {
            log_time,
            publish_time: log_time,
            order: order_of(section, id.saturating_sub(base).max(0) as u64),
            offset: 0,
            len: 0,
            sequence: 0,
            channel,
            buffer: 0,
        }
    }

    /// Stores which topics a section has, and reports where it contradicts the directory.
    fn take_note(&self, index: usize, seen: &Seen) {
        let section = &self.directory.sections[index];
        let is_news = section.topics.get().is_none();
        section.topics.get_or_init(|| {
            let counts = self.topics.iter().copied().zip(seen.counts.iter().copied());
            counts.filter(|&(_, count)| count > 0).collect()
        });
        let rows = seen.counts.iter().sum::<u64>() + seen.unknown;
        let (first, last) = (section.first, section.last);
        let report = |kind, count: u64, what: &str| {
            if count > 0 {
                let message = format!("{count} messages with ids from {first} to {last} {what}");
                self.report(Problem::whole(kind, message));
            }
        };
        let what =
            "are earlier or later than the index of times has them, and may come out of order";
        report(ProblemKind::BadIndex, seen.outside, what);
        // A scan has reported these already.
        if is_news {
            let what = "have no number as topic or time; they are skipped";
            report(ProblemKind::BadRecord, seen.odd, what);
            let what = "are on undefined topics and were skipped";
            report(ProblemKind::UnknownReference, seen.unknown, what);
            let difference = rows.abs_diff(section.rows);
            let what = "are in the index of times or in the file, but not in both";
            report(ProblemKind::BadIndex, difference, what);
        }
    }

    pub(super) fn report_message(&self, id: i64, fault: &str) {
        let message = format!("message id {id}: {fault}; it is skipped");
        self.report(Problem::whole(ProblemKind::BadRecord, message));
    }

    /// SQLite filters out unwanted messages, and then does not touch their payloads.
    fn sql(&self, wanted: &SectionQuery) -> String {
        let mut sql = String::from(
            "SELECT id, topic_id, timestamp, data FROM messages WHERE id >= ? AND id <= ?",
        );
        if !wanted.is_everything() {
            let ids: Vec<String> = self
                .topics
                .iter()
                .enumerate()
                .filter(|(index, _)| wanted.wants(*index as u32, &self.channels))
                .map(|(_, id)| id.to_string())
                .collect();
            let _ = write!(sql, " AND topic_id IN ({})", ids.join(","));
        }
        let TimeRange { start, end } = wanted.range;
        if start != Stamp::MIN {
            let _ = write!(sql, " AND timestamp >= {}", literal(start));
        }
        if end != Stamp::MAX {
            let _ = write!(sql, " AND timestamp <= {}", literal(end));
        }
        sql.push_str(" ORDER BY id");
        sql
    }

    /// Runs SQLite's own check of its pages.
    pub(super) fn check_pages(&self) -> Result<(), SourceError> {
        let found = self.database.with(|connection| {
            let mut statement = connection.prepare("PRAGMA quick_check(100)")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            lines.collect::<Result<Vec<_>, _>>()
        });
        let lines = match found {
            Ok(lines) => lines,
            Err(SourceError::Unreadable { reason, .. }) => vec![reason],
            Err(error) => return Err(error),
        };
        // SQLite returns its findings as one text of many lines.
        let lines = lines.iter().flat_map(|text| text.lines()).map(str::trim);
        let is_told = |line: &&str| !line.is_empty() && *line != "ok" && !line.starts_with("***");
        for line in lines.filter(is_told).take(FINDINGS_TOLD) {
            self.report(Problem::whole(
                ProblemKind::BadRecord,
                format!("SQLite: {line}"),
            ));
        }
        Ok(())
    }
}

/// A stamp as an SQL literal; `i64::MIN` cannot be written as one.
fn literal(stamp: Stamp) -> String {
    match stamp.nanos() {
        i64::MIN => "(-9223372036854775807 - 1)".to_owned(),
        nanos => nanos.to_string(),
    }
}

/// The wanted messages of a section's pages, as they are found.
struct Gathered<'a> {
    shared: &'a Db3,
    pages: &'a MappedMessages,
    section: &'a Section,
    index: usize,
    /// Offsets of rows in buffer [`ON_PAGES`] are those in the file.
    rows: Vec<Row>,
    /// The rows that have to be assembled or decompressed.
    apart: Vec<(usize, Found)>,
    /// The range of the file that holds the others.
    stretch: Range<usize>,
    stretch_at_most: u64,
    /// The range of the file that was touched.
    touched: Range<usize>,
    seen: Seen,
}

/// The buffers of a section: a range of the file, and the assembled payloads.
const ON_PAGES: u32 = 0;
const FILLED: u32 = 1;

/// What a walk over all messages of a section has found.
struct Seen {
    /// By channel.
    counts: Vec<u64>,
    /// Bytes of overflow pages.
    overflow: u64,
    /// Messages whose topic or time is not a number.
    odd: u64,
    /// On undefined topics.
    unknown: u64,
    /// Outside of the section's range of times.
    outside: u64,
}

impl Seen {
    fn new(channels: usize) -> Self {
        Seen {
            counts: vec![0; channels],
            overflow: 0,
            odd: 0,
            unknown: 0,
            outside: 0,
        }
    }
}

impl Gathered<'_> {
    fn touch(&mut self, page: u32) {
        self.touched = union(&self.touched, &self.pages.table().place_of(page));
    }

    /// Adds a row, if it is a wanted message.
    #[inline]
    fn meet(&mut self, row: &PageRow, wanted: &SectionQuery) -> Result<(), Unusable> {
        let file = self.pages.map().bytes();
        // As in the scan of a complete file.
        self.seen.overflow += self.pages.table().overflow_bytes(&row.payload);
        if self.seen.overflow > file.len() as u64 {
            return Err(Unusable::TooMuch);
        }
        let Some(found) = Found::new(row, file) else {
            self.seen.odd += 1;
            return Ok(());
        };
        let Some(channel) = self.shared.channel_of(found.topic) else {
            self.seen.unknown += 1;
            return Ok(());
        };
        self.seen.counts[channel as usize] += 1;
        self.seen.outside += u64::from(!self.section.range.contains(found.time));
        if !wanted.wants(channel, &self.shared.channels) || !wanted.range.contains(found.time) {
            return Ok(());
        }
        let mut row = self.shared.row(self.index, found.id, channel, found.time);
        if found.is_plain && self.stretch_to(&found.payload) {
            row.offset = found.payload.offset as u64;
            row.len = found.payload.len.into();
        } else {
            row.buffer = FILLED;
            self.apart.push((self.rows.len(), found));
        }
        self.rows.push(row);
        Ok(())
    }

    /// Whether a payload can stay in place, together with those that already do.
    #[inline]
    fn stretch_to(&mut self, payload: &Payload) -> bool {
        let place = payload.offset..payload.offset + payload.len as usize;
        let stretched = union(&self.stretch, &place);
        let is_fitting = stretched.len() as u64 <= self.stretch_at_most;
        if is_fitting {
            self.stretch = stretched;
        }
        is_fitting
    }

    fn finish(mut self) -> Loaded {
        let lens = self
            .apart
            .iter()
            .map(|(_, found)| u64::from(found.payload.len));
        let mut filling = Filling::new(&self.shared.pool, &self.shared.limits, lens.sum());
        let mut lost = Vec::new();
        for (place, found) in std::mem::take(&mut self.apart) {
            let start = filling.used;
            if let Err(fault) = self.fill(&mut filling, &found.payload) {
                self.shared.report_message(found.id, &fault);
                lost.push(place);
            }
            self.rows[place].offset = start as u64;
            self.rows[place].len = (filling.used - start) as u64;
        }
        if !lost.is_empty() {
            let (mut lost, mut places) = (lost.into_iter().peekable(), 0..);
            self.rows.retain(|_| {
                places
                    .next()
                    .is_none_or(|place| lost.next_if_eq(&place).is_none())
            });
        }
        self.shared.take_note(self.index, &self.seen);
        let fetch = |range: &Range<usize>| {
            let map = self.pages.map();
            map.fetch(range.start as u64, range.len() as u64)
                .unwrap_or_default()
        };
        let stretch = fetch(&self.stretch);
        // The pages of ranges dropped here are released; those close to the returned range are released with it.
        for around in [
            self.touched.start..self.stretch.start,
            self.stretch.end..self.touched.end,
        ] {
            if self.stretch.is_empty() || around.len() > PAGE_CLUSTER_BYTES {
                drop(fetch(&around));
            }
        }
        for row in self.rows.iter_mut().filter(|row| row.buffer == ON_PAGES) {
            row.offset -= self.stretch.start as u64;
        }
        put_in_order(&mut self.rows);
        Loaded {
            buffers: vec![stretch, filling.seal()],
            rows: self.rows,
        }
    }

    /// Assembles a payload, and decompresses it if it was compressed by itself.
    fn fill(&mut self, filling: &mut Filling<'_>, payload: &Payload) -> Result<(), String> {
        let (table, file) = (self.pages.table(), self.pages.map().bytes());
        if let Some(bytes) = payload.on_one_page(file) {
            return filling.push(bytes);
        }
        let room = filling.room(payload.len as usize)?;
        let assembled = table.assemble(file, payload, room, |page| {
            self.touched = union(&self.touched, &table.place_of(page));
        });
        // SQLite would only count the pages; it would not notice that they belong to another payload or loop.
        assembled.map_err(|damage| damage.to_string())?;
        if !room.starts_with(&ZSTD) {
            filling.used += payload.len as usize;
            return Ok(());
        }
        let compressed = room.to_vec();
        filling.push(&compressed)
    }
}

/// The smallest range that holds both.
#[inline]
fn union(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    if one.is_empty() {
        return other.clone();
    }
    one.start.min(other.start)..one.end.max(other.end)
}

pub(super) fn put_in_order(rows: &mut [Row]) {
    if !rows.is_sorted_by_key(|row| row.log_time) {
        rows.sort_by_key(|row| (row.log_time, row.order));
    }
}
