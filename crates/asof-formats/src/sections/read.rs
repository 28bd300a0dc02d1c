//! Messages in log-time order, from sections that may overlap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use asof_core::{Batch, Row, SourceError, Stamp, TimeRange};
use bytes::Bytes;

use super::{Loaded, Prefetch, Sections, Wanted};

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
    is_finished: bool,
}

/// A section that has been read up to `at`.
struct Cursor {
    section: usize,
    /// Its contents; `None` while it is parked, because too many others overlap with it.
    buffers: Option<Vec<Bytes>>,
    /// The number of buffers, also while the section is parked.
    buffer_count: u32,
    rows: Vec<Row>,
    at: usize,
}

/// A merged batch is closed at this many messages, or at this many bytes of payload.
const MERGED_ROWS: usize = 16 << 10;
const MERGED_BYTES: u64 = 16 << 20;
/// Bytes that the open sections may hold. In a file whose chunks overlap more, further sections are parked: each batch
/// opens them again for the messages that it needs, which costs time instead of memory.
const OPEN_BYTES: usize = 48 << 20;

impl Reader {
    /// Reads the sections of `plan`, which may be in any order.
    pub fn new(file: &Arc<dyn Sections>, wanted: Wanted, mut plan: Vec<usize>) -> Self {
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
            is_finished: false,
        }
    }

    /// Opens every section that may hold a message at or before the earliest open one.
    fn admit(&mut self) -> Result<(), SourceError> {
        while let Some(&start) = self.starts.get(self.taken) {
            if self.open.iter().any(|cursor| cursor.head() < start) {
                break;
            }
            let section = self.plan[self.taken];
            self.taken += 1;
            match self.prefetch.next() {
                Some(Ok(Loaded { rows, .. })) if rows.is_empty() => {}
                Some(Ok(Loaded { buffers, rows })) => {
                    let open = self
                        .open
                        .iter()
                        .filter_map(|cursor| cursor.buffers.as_ref());
                    let held: usize = open.chain([&buffers]).flatten().map(Bytes::len).sum();
                    self.open.push(Cursor {
                        section,
                        buffer_count: buffers.len() as u32,
                        buffers: (self.open.is_empty() || held <= OPEN_BYTES).then_some(buffers),
                        rows,
                        at: 0,
                    });
                }
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        Ok(())
    }

    /// Everything of the only open section before `horizon`.
    fn cut_single(&mut self, horizon: Option<Stamp>) -> Result<Batch, SourceError> {
        let channels = self.file.channels();
        let cursor = &mut self.open[0];
        let buffers = if let Some(buffers) = cursor.buffers.take() {
            buffers
        } else {
            let mut buffers = self.prefetch.reload(cursor.section)?;
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
        let key = |row: &Row| (row.log_time, row.order);
        let head = |cursor: &Cursor| {
            cursor
                .rows
                .get(cursor.at)
                .filter(|row| is_before(row))
                .map(key)
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
        let mut merged =
            Vec::with_capacity(MERGED_ROWS.min(self.open.iter().map(Cursor::left).sum()));
        let mut bytes = 0;
        while let Some(Reverse((_, index))) = heap.pop()
            && merged.len() < MERGED_ROWS
            && bytes < MERGED_BYTES
        {
            // Neighbours often come from one section: take its run up to the next section's head at once.
            let limit = heap.peek().map(|Reverse((limit, _))| *limit);
            let cursor = &mut self.open[index];
            while let Some(row) = cursor.rows.get(cursor.at).filter(|row| is_before(row)) {
                if limit.is_some_and(|limit| key(row) > limit)
                    || merged.len() >= MERGED_ROWS
                    || bytes >= MERGED_BYTES
                {
                    break;
                }
                bytes += row.len;
                merged.push(Row {
                    buffer: first_buffers[index] + row.buffer,
                    ..*row
                });
                cursor.at += 1;
            }
            if let Some(head) = head(cursor) {
                heap.push(Reverse((head, index)));
            }
        }
        let mut buffers = Vec::with_capacity(buffer_count as usize);
        for (cursor, &first) in self.open.iter().zip(&first_buffers) {
            match &cursor.buffers {
                Some(own) => buffers.extend_from_slice(own),
                None => buffers.extend(self.fetch_parked(cursor, first, &mut merged)?),
            }
        }
        self.open.retain(|cursor| cursor.left() > 0);
        Ok(Batch::new(self.file.channels(), buffers, merged))
    }

    /// The payloads of the rows in a parked section, copied into its first buffer.
    fn fetch_parked(
        &self,
        cursor: &Cursor,
        first: u32,
        rows: &mut [Row],
    ) -> Result<Vec<Bytes>, SourceError> {
        let its_own = first..first + cursor.buffer_count;
        let mut buffers = vec![Bytes::new(); its_own.len()];
        if !rows.iter().any(|row| its_own.contains(&row.buffer)) {
            return Ok(buffers);
        }
        let contents = self.prefetch.reload(cursor.section)?;
        let mut cut = Vec::new();
        for row in rows.iter_mut().filter(|row| its_own.contains(&row.buffer)) {
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
    pub fn new(file: &Arc<dyn Sections>, wanted: Wanted, mut plan: Vec<usize>) -> Self {
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
    use super::*;

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
