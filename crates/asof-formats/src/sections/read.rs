//! Messages in log-time order, from sections that may overlap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use asof_core::{Batch, Row, SourceError, Stamp, TimeRange};
use bytes::Bytes;

use super::{Loaded, Prefetch, SectionQuery, Sections};

/// The answer to a query.
///
/// Sections are taken in the order in which they start. Those that overlap are merged; a section without overlap, the
/// common case, is returned as it is.
pub(crate) struct Reader {
    file: Arc<dyn Sections>,
    prefetch: Prefetch,
    /// The times at which the planned sections start, in order.
    starts: Vec<Stamp>,
    plan: Vec<usize>,
    taken: usize,
    open: Vec<Cursor>,
    /// The bytes of the parked sections' rows above which these are shortened: more than their share where even the fewest rows
    /// of each are more, so that not each further section shortens all of them.
    most_parked: usize,
    is_finished: bool,
}

/// A section that has been read up to `at`.
struct Cursor {
    section: usize,
    /// Its contents; `None` while it is parked, because too many others overlap with it.
    buffers: Option<Vec<Bytes>>,
    /// The number of buffers, also while the section is parked, and their bytes.
    buffer_count: u32,
    buffer_bytes: usize,
    rows: Vec<Row>,
    at: usize,
    /// Whether the section has rows after these, which are loaded when these run out.
    is_short: bool,
    /// The last row that was handed out before `rows`.
    done: Option<Place>,
}

/// The order of messages.
type Place = (Stamp, u64);

fn place(row: &Row) -> Place {
    (row.log_time, row.order)
}

/// A merged batch is closed at this many messages, or at this many bytes of payload.
const MERGED_ROWS: usize = 16 << 10;
const MERGED_BYTES: u64 = 16 << 20;
/// The same while sections are parked: each batch loads them again, so that the fewer batches there are, the better.
const PARKED_ROWS: usize = 256 << 10;
const PARKED_BYTES: u64 = 32 << 20;
/// Bytes that the open sections may hold, with their rows. In a file whose chunks overlap more, further sections are
/// parked: each batch opens them again for the messages that it needs, which costs time instead of memory.
const OPEN_BYTES: usize = 48 << 20;
/// Where sections of more bytes overlap, all of them are parked, and batches take the memory of the open ones: then fewer
/// batches load more sections again, which is less.
const OVERLAP_BYTES: usize = 2 * OPEN_BYTES;
/// While sections are parked, this part of their number is admitted before it has to be, so that where sections start one
/// after the other a batch does not end at each start.
const ADMITTED_EARLY: usize = 4;
/// Bytes that the rows of all parked sections may take: each keeps its next ones, but at least a few.
const PARKED_ROW_BYTES: usize = 24 << 20;
const FEWEST_PARKED_ROWS: usize = 16;

impl Reader {
    /// Reads the sections of `plan`, which may be in any order.
    pub fn new(file: &Arc<dyn Sections>, wanted: SectionQuery, mut plan: Vec<usize>) -> Self {
        plan.sort_by_key(|&index| file.range_of(index).start);
        let starts = plan
            .iter()
            .map(|&index| file.range_of(index).start)
            .collect();
        Reader {
            file: Arc::clone(file),
            prefetch: Prefetch::new(file, wanted, plan.clone()),
            starts,
            plan,
            taken: 0,
            open: Vec::new(),
            most_parked: PARKED_ROW_BYTES,
            is_finished: false,
        }
    }

    /// Opens every section that may hold a message at or before the earliest open one.
    fn admit(&mut self) -> Result<(), SourceError> {
        let mut earliest = self.open.iter().map(Cursor::head).min();
        let mut held: usize = self.open.iter().map(Cursor::bytes).sum();
        let mut parked = self.parked_row_bytes();
        let most_early = self.parked().count() / ADMITTED_EARLY;
        let (mut is_due, mut early) = (false, 0);
        while let Some(&start) = self.starts.get(self.taken) {
            if earliest.is_some_and(|head| head < start) {
                if !is_due || early >= most_early {
                    break;
                }
                early += 1;
            }
            is_due = true;
            let section = self.plan[self.taken];
            self.taken += 1;
            match self.prefetch.next() {
                Some(Ok(Loaded { rows, .. })) if rows.is_empty() => {}
                Some(Ok(Loaded { buffers, rows })) => {
                    let buffer_count = buffers.len() as u32;
                    let mut cursor = Cursor {
                        section,
                        buffer_count,
                        buffer_bytes: buffers.iter().map(Bytes::len).sum(),
                        buffers: Some(buffers),
                        rows,
                        at: 0,
                        is_short: false,
                        done: None,
                    };
                    let bytes = cursor.bytes();
                    if !self.open.is_empty() && held + bytes > OPEN_BYTES {
                        cursor.buffers = None;
                        parked += row_bytes(&cursor.rows);
                    } else {
                        held += bytes;
                    }
                    let head = cursor.head();
                    earliest = Some(earliest.map_or(head, |earliest| earliest.min(head)));
                    self.open.push(cursor);
                    if parked > self.most_parked {
                        self.shorten_parked();
                        parked = self.parked_row_bytes();
                        self.most_parked = PARKED_ROW_BYTES.max(2 * parked);
                    }
                }
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        if self.overlaps_much() {
            self.open
                .iter_mut()
                .for_each(|cursor| cursor.buffers = None);
            if self.parked_row_bytes() > self.most_parked {
                self.shorten_parked();
            }
        }
        Ok(())
    }

    fn parked(&self) -> impl Iterator<Item = &Cursor> {
        self.open.iter().filter(|cursor| cursor.is_parked())
    }

    fn overlaps_much(&self) -> bool {
        let bytes = self.open.iter().map(|cursor| cursor.buffer_bytes);
        bytes.sum::<usize>() > OVERLAP_BYTES
    }

    fn parked_row_bytes(&self) -> usize {
        self.parked().map(|cursor| row_bytes(&cursor.rows)).sum()
    }

    /// Keeps the rows of parked sections within their share of memory.
    fn shorten_parked(&mut self) {
        let most = self.most_parked_rows();
        for cursor in self.open.iter_mut().filter(|cursor| cursor.is_parked()) {
            cursor.keep(most);
        }
    }

    /// Half of what each may keep, so that not each further section shortens all of them again.
    fn most_parked_rows(&self) -> usize {
        let most = PARKED_ROW_BYTES / size_of::<Row>() / self.parked().count().max(1) / 2;
        most.max(FEWEST_PARKED_ROWS)
    }

    /// Everything of the only open section before `horizon`.
    fn cut_single(&mut self, horizon: Option<Stamp>) -> Result<Batch, SourceError> {
        let channels = self.file.channels();
        let cursor = &mut self.open[0];
        if cursor.is_short {
            // Nothing overlaps with it any more.
            cursor.load_rest(&self.prefetch)?;
        }
        let buffers = if let Some(buffers) = cursor.buffers.take() {
            buffers
        } else {
            let mut buffers = self.prefetch.reload(cursor.section, u64::MAX)?;
            buffers.resize(cursor.buffer_count as usize, Bytes::new());
            for row in &mut cursor.rows {
                // As below: the file changed since.
                if row.offset + row.len > buffers[row.buffer as usize].len() as u64 {
                    (row.offset, row.len) = (0, 0);
                }
            }
            buffers
        };
        let end = match horizon {
            Some(horizon) => {
                cursor.at + cursor.rows[cursor.at..].partition_point(|row| row.log_time < horizon)
            }
            None => cursor.rows.len(),
        };
        if end < cursor.rows.len() {
            let rows = cursor.rows[cursor.at..end].to_vec();
            cursor.at = end;
            cursor.buffers = Some(buffers.clone());
            return Ok(Batch::new(channels, buffers, rows));
        }
        let cursor = self.open.swap_remove(0);
        let rows = if cursor.at == 0 {
            cursor.rows
        } else {
            cursor.rows[cursor.at..].to_vec()
        };
        Ok(Batch::new(channels, buffers, rows))
    }

    /// The next messages of all open sections together, before `horizon`.
    fn merge(&mut self, horizon: Option<Stamp>) -> Result<Batch, SourceError> {
        let is_before = |row: &Row| horizon.is_none_or(|horizon| row.log_time < horizon);
        let head = |cursor: &Cursor| {
            cursor
                .rows
                .get(cursor.at)
                .filter(|row| is_before(row))
                .map(place)
        };
        let heads = self
            .open
            .iter()
            .enumerate()
            .filter_map(|(index, cursor)| Some(Reverse((head(cursor)?, index))));
        let mut heap: BinaryHeap<_> = heads.collect();
        // A section's buffers follow those of the sections before it.
        let mut buffer_count = 0;
        let first_buffers: Vec<u32> = self
            .open
            .iter()
            .map(|cursor| {
                buffer_count += cursor.buffer_count;
                buffer_count - cursor.buffer_count
            })
            .collect();
        let most_parked = self.most_parked_rows();
        let (most_rows, most_bytes) = match self.parked().count() {
            0 => (MERGED_ROWS, MERGED_BYTES),
            all if all == self.open.len() => (PARKED_ROWS, PARKED_BYTES + OPEN_BYTES as u64),
            _ => (PARKED_ROWS, PARKED_BYTES),
        };
        let mut merged =
            Vec::with_capacity(most_rows.min(self.open.iter().map(Cursor::left).sum()));
        // Which of the merged rows are of each parked section.
        let mut of_parked: Vec<Vec<usize>> = vec![Vec::new(); self.open.len()];
        let mut bytes = 0;
        while let Some(Reverse((_, index))) = heap.pop()
            && merged.len() < most_rows
            && bytes < most_bytes
        {
            // Neighbours often come from one section: take its run up to the next section's head at once.
            let limit = heap.peek().map(|Reverse((limit, _))| *limit);
            let cursor = &mut self.open[index];
            while let Some(row) = cursor.rows.get(cursor.at).filter(|row| is_before(row)) {
                if limit.is_some_and(|limit| place(row) > limit)
                    || merged.len() >= most_rows
                    || bytes >= most_bytes
                {
                    break;
                }
                bytes += row.len;
                if cursor.is_parked() {
                    of_parked[index].push(merged.len());
                }
                merged.push(Row {
                    buffer: first_buffers[index] + row.buffer,
                    ..*row
                });
                cursor.at += 1;
            }
            if cursor.is_short && cursor.left() == 0 {
                cursor.load_rest(&self.prefetch)?;
                cursor.buffers = None;
                cursor.keep(most_parked);
            }
            if let Some(head) = head(cursor) {
                heap.push(Reverse((head, index)));
            }
        }
        let mut buffers = Vec::with_capacity(buffer_count as usize);
        for (index, cursor) in self.open.iter().enumerate() {
            if let Some(own) = &cursor.buffers {
                buffers.extend_from_slice(own);
                continue;
            }
            let rows = of_parked[index].iter();
            buffers.extend(self.fetch_parked(cursor, first_buffers[index], rows, &mut merged)?);
        }
        self.open.retain(|cursor| cursor.left() > 0);
        Ok(Batch::new(self.file.channels(), buffers, merged))
    }

    /// The payloads of these rows of a parked section, copied into its first buffer.
    fn fetch_parked<'a>(
        &self,
        cursor: &Cursor,
        first: u32,
        own: impl ExactSizeIterator<Item = &'a usize> + Clone,
        rows: &mut [Row],
    ) -> Result<Vec<Bytes>, SourceError> {
        let mut buffers = vec![Bytes::new(); cursor.buffer_count as usize];
        if own.len() == 0 {
            return Ok(buffers);
        }
        let end = own.clone().map(|&row| rows[row].offset + rows[row].len);
        let end = end.max().unwrap_or(0);
        let contents = self.prefetch.reload(cursor.section, end)?;
        let mut cut = Vec::new();
        for &row in own {
            let row = &mut rows[row];
            let payload = contents
                .get((row.buffer - first) as usize)
                .and_then(|all| all.get(row.offset as usize..(row.offset + row.len) as usize));
            row.offset = cut.len() as u64;
            row.buffer = first;
            // A payload is missing only if the file changed since; the row stays, empty.
            row.len = payload.map_or(0, |payload| payload.len() as u64);
            cut.extend_from_slice(payload.unwrap_or_default());
        }
        buffers[0] = cut.into();
        Ok(buffers)
    }
}

impl Cursor {
    fn head(&self) -> Stamp {
        self.rows
            .get(self.at)
            .map_or(Stamp::MAX, |row| row.log_time)
    }

    fn left(&self) -> usize {
        self.rows.len() - self.at
    }

    fn is_parked(&self) -> bool {
        self.buffers.is_none()
    }

    /// What it holds, if it is not parked.
    fn bytes(&self) -> usize {
        let buffers = self.buffers.as_ref();
        buffers.map_or(0, |_| self.buffer_bytes + row_bytes(&self.rows))
    }

    /// Keeps the next rows, and forgets those after them.
    fn keep(&mut self, most: usize) {
        self.done = self.rows[..self.at].last().map(place).or(self.done);
        self.is_short |= self.left() > most;
        let end = self.at + self.left().min(most);
        self.rows = self.rows[self.at..end].to_vec();
        self.at = 0;
    }

    /// Loads all that is left of it, with its buffers.
    fn load_rest(&mut self, prefetch: &Prefetch) -> Result<(), SourceError> {
        self.done = self.rows[..self.at].last().map(place).or(self.done);
        let mut loaded = prefetch.load_again(self.section)?;
        // There are others only if the file changed since.
        loaded.rows.retain(|row| row.buffer < self.buffer_count);
        loaded
            .buffers
            .resize(self.buffer_count as usize, Bytes::new());
        self.at = loaded
            .rows
            .partition_point(|row| Some(place(row)) <= self.done);
        self.rows = loaded.rows;
        self.buffers = Some(loaded.buffers);
        self.is_short = false;
        Ok(())
    }
}

fn row_bytes(rows: &[Row]) -> usize {
    size_of_val(rows)
}

impl Iterator for Reader {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished {
            return None;
        }
        if let Err(error) = self.admit() {
            self.is_finished = true;
            return Some(Err(error));
        }
        let horizon = self.starts.get(self.taken).copied();
        match self.open.len() {
            0 => {
                self.is_finished = true;
                None
            }
            1 => Some(self.cut_single(horizon)),
            _ => Some(self.merge(horizon)),
        }
    }
}

/// The sections one after the other, each sorted within itself: for callers that sort, in memory that does not depend
/// on how much the sections overlap.
pub(crate) struct InFileOrder {
    file: Arc<dyn Sections>,
    prefetch: Prefetch,
}

impl InFileOrder {
    pub fn new(file: &Arc<dyn Sections>, wanted: SectionQuery, mut plan: Vec<usize>) -> Self {
        plan.sort_unstable();
        InFileOrder {
            file: Arc::clone(file),
            prefetch: Prefetch::new(file, wanted, plan),
        }
    }
}

impl Iterator for InFileOrder {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.prefetch.next()? {
                Ok(Loaded { rows, .. }) if rows.is_empty() => {}
                Ok(Loaded { buffers, rows }) => {
                    return Some(Ok(Batch::new(self.file.channels(), buffers, rows)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The most bytes that reading these sections in order of time holds at once.
pub(crate) fn deepest_overlap(sections: impl Iterator<Item = (TimeRange, u64)>) -> u64 {
    let mut changes: Vec<(Stamp, bool, u64)> = Vec::new();
    for (range, bytes) in sections.filter(|(range, _)| !range.is_empty()) {
        // At the same instant, sections open before others close: both ends are in the range.
        changes.push((range.start, false, bytes));
        changes.push((range.end, true, bytes));
    }
    changes.sort_unstable();
    let (mut held, mut deepest) = (0u64, 0u64);
    for (_, is_end, bytes) in changes {
        if is_end {
            held = held.saturating_sub(bytes);
        } else {
            held = held.saturating_add(bytes);
            deepest = deepest.max(held);
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use asof_core::Channel;

    use super::*;

    /// Sections without payloads, whose rows are dealt out in turn: each spans all of time, or overlaps with this many that
    /// start after it.
    struct Dealt {
        sections: usize,
        rows_each: usize,
        depth: Option<usize>,
        contents: Bytes,
        loads: AtomicUsize,
    }

    impl Dealt {
        fn new(sections: usize, rows_each: usize) -> Self {
            Dealt {
                sections,
                rows_each,
                depth: None,
                contents: Bytes::from_static(b"!"),
                loads: AtomicUsize::default(),
            }
        }

        fn time(&self, section: usize, at: usize) -> i64 {
            match self.depth {
                Some(depth) => (section * self.rows_each + at * depth) as i64,
                // Two rows at each time, some of them of one section.
                None => (at * self.sections + section) as i64 / 2,
            }
        }
    }

    impl Sections for Dealt {
        fn name(&self) -> &'static str {
            "dealt"
        }

        fn threads(&self) -> usize {
            1
        }

        fn range_of(&self, section: usize) -> TimeRange {
            let end = |at| Stamp::from_nanos(self.time(section, at));
            let range = TimeRange::new(end(0), end(self.rows_each));
            self.depth.map_or(TimeRange::ALL, |_| range)
        }

        fn expected_bytes(&self, _: usize) -> u64 {
            0
        }

        fn section_count(&self) -> usize {
            self.sections
        }

        fn may_hold(&self, _: usize, _: &SectionQuery) -> bool {
            true
        }

        fn load(&self, section: usize, _: &SectionQuery) -> Result<Loaded, SourceError> {
            self.loads.fetch_add(1, Ordering::Relaxed);
            let row = |at: usize| Row {
                log_time: Stamp::from_nanos(self.time(section, at)),
                publish_time: Stamp::MIN,
                order: super::super::order_of(section, at as u64),
                offset: 0,
                len: 0,
                sequence: 0,
                channel: 0,
                buffer: 0,
            };
            let rows = (0..self.rows_each).map(row).collect();
            Ok(Loaded::of(self.contents.clone(), rows))
        }

        fn channels(&self) -> Arc<[Arc<Channel>]> {
            [Arc::default()].into()
        }
    }

    #[test]
    fn rows_of_sections_that_all_overlap_are_within_a_budget_too() {
        let dealt = Arc::new(Dealt::new(80, 20_000));
        let file: Arc<dyn Sections> = Arc::<Dealt>::clone(&dealt);
        let wanted = SectionQuery::new(asof_core::Topics::All, TimeRange::ALL, &file.channels());
        let mut reader = Reader::new(&file, wanted, (0..80).collect());
        let (mut last, mut count) = (None, 0);
        while let Some(batch) = reader.next() {
            for row in batch.expect("reads").rows() {
                assert!(Some(place(row)) > last, "{:?} after {last:?}", place(row));
                last = Some(place(row));
                count += 1;
            }
            let (parked, open): (Vec<_>, Vec<_>) = reader.open.iter().partition(|c| c.is_parked());
            let held = open.iter().map(|cursor| cursor.bytes()).sum::<usize>();
            assert!(held <= OPEN_BYTES, "{held}");
            let held: usize = parked.iter().map(|cursor| row_bytes(&cursor.rows)).sum();
            assert!(held <= PARKED_ROW_BYTES, "{held}");
        }
        assert_eq!(count, 80 * 20_000);
        let loads = dealt.loads.load(Ordering::Relaxed);
        assert!(loads < 80 * 20, "{loads}");
    }

    #[test]
    fn sections_that_start_one_after_the_other_are_not_all_loaded_at_each_start() {
        let contents = Bytes::from(vec![0; 1 << 20]);
        for depth in [80, 160] {
            let dealt = Arc::new(Dealt {
                depth: Some(depth),
                contents: contents.clone(),
                ..Dealt::new(400, 320)
            });
            let file: Arc<dyn Sections> = Arc::<Dealt>::clone(&dealt);
            let wanted =
                SectionQuery::new(asof_core::Topics::All, TimeRange::ALL, &file.channels());
            let reader = Reader::new(&file, wanted, (0..400).collect());
            let rows = reader.flat_map(|batch| batch.expect("reads").rows().to_vec());
            let places: Vec<Place> = rows.map(|row| place(&row)).collect();
            assert!(places.is_sorted());
            assert_eq!(places.len(), 400 * 320);
            let loads = dealt.loads.load(Ordering::Relaxed);
            assert!(loads < 400 * 8, "{loads} with {depth} at once");
        }
    }

    #[test]
    fn tens_of_thousands_of_sections_that_all_overlap_cost_what_they_hold() {
        let read = |sections| {
            let file: Arc<dyn Sections> = Arc::new(Dealt::new(sections, 3));
            let all = asof_core::Topics::All;
            let wanted = SectionQuery::new(all, TimeRange::ALL, &file.channels());
            let reader = Reader::new(&file, wanted, (0..sections).collect());
            let batches = reader.map(|batch| batch.expect("reads").rows().len());
            assert_eq!(batches.sum::<usize>(), 3 * sections);
        };
        asof_core::testing::assert_linear("overlapping sections", |scale| 2_000 * scale, read);
    }

    #[test]
    fn the_deepest_overlap_counts_what_is_open_at_one_instant() {
        let range = |start: i64, end: i64| TimeRange::new(start.into(), end.into());
        let sections = [
            (range(0, 10), 5),
            (range(10, 20), 7),
            (range(21, 30), 11),
            (TimeRange::EMPTY, 100),
        ];
        assert_eq!(deepest_overlap(sections.into_iter()), 12);
    }
}
