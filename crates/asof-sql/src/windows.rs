//! For each row of one side, all rows of the other within a time range around it.

use std::collections::{HashMap, HashSet, VecDeque};

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::row::OwnedRow;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use tokio::sync::mpsc::Sender;

use crate::assemble::BATCH_ROWS;
use crate::matching::RowAt;
use crate::merge::{Joined, Keyed, Side};

/// Merges two sides that are in order of time. It holds the rows of the right side that are in the window of the current
/// left row.
pub(crate) struct Windows {
    left: Side,
    right: Side,
    from: i64,
    to: i64,
    joined: Joined,
    memory: MemoryReservation,
    rows: HashMap<Option<OwnedRow>, VecDeque<(i64, RowAt)>>,
    batches: HashMap<u64, RecordBatch>,
    newest: u64,
    /// Rows of the right side that have arrived and are not added yet.
    coming: Option<(Keyed, usize)>,
    is_over: bool,
}

impl Windows {
    /// The ends of the window are in nanoseconds from the time of the left row.
    pub fn new(
        left: Side,
        right: Side,
        (from, to): (i64, i64),
        joined: Joined,
        memory: MemoryReservation,
    ) -> Self {
        Windows {
            left,
            right,
            from,
            to,
            joined,
            memory,
            rows: HashMap::new(),
            batches: HashMap::new(),
            newest: 0,
            coming: None,
            is_over: false,
        }
    }

    pub async fn run(mut self, sender: Sender<Result<RecordBatch>>) -> Result<()> {
        while let Some(left) = self.left.next().await? {
            let mut pairs = Pairs::default();
            for row in 0..left.batch.num_rows() {
                let Some(time) = left.time(row) else {
                    pairs.add(row, Vec::new());
                    continue;
                };
                while self.needs_more(time) {
                    let Some(batch) = self.right.next().await? else {
                        self.is_over = true;
                        break;
                    };
                    // Matches so far are sent, so that they keep no batch of the right side alive.
                    if !self.hand_out(&left, &mut pairs, 1, &sender).await? {
                        return Ok(());
                    }
                    self.coming = Some((batch, 0));
                    self.tidy(time, &left)?;
                }
                let window = self.window(&left.key(row), time);
                pairs.add(row, window);
                if !self
                    .hand_out(&left, &mut pairs, BATCH_ROWS, &sender)
                    .await?
                {
                    return Ok(());
                }
            }
            if !self.hand_out(&left, &mut pairs, 1, &sender).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Adds arrived rows of the right side up to the end of the window of this time. Returns whether there may be more.
    fn needs_more(&mut self, time: i64) -> bool {
        let end = time.saturating_add(self.to);
        let Some((batch, at)) = &mut self.coming else {
            return !self.is_over;
        };
        while *at < batch.batch.num_rows() {
            let next = batch.time(*at);
            if next.is_some_and(|next| next > end) {
                return false;
            }
            // Rows without a time are at the end, and in no window.
            if let Some(next) = next {
                if *at == 0 {
                    self.newest += 1;
                    self.batches.insert(self.newest, batch.batch.clone());
                }
                let place = RowAt {
                    batch: self.newest,
                    row: *at,
                };
                let rows = self.rows.entry(batch.key(*at)).or_default();
                rows.push_back((next, place));
            }
            *at += 1;
        }
        self.coming = None;
        true
    }

    /// Sends pairs, if there are this many. Returns whether more are wanted.
    async fn hand_out(
        &mut self,
        left: &Keyed,
        pairs: &mut Pairs,
        least: usize,
        sender: &Sender<Result<RecordBatch>>,
    ) -> Result<bool> {
        while pairs.lefts.len() >= least {
            let count = pairs.lefts.len().min(BATCH_ROWS);
            let lefts: Vec<u32> = pairs.lefts.drain(..count).collect();
            let rights: Vec<Option<RowAt>> = pairs.rights.drain(..count).collect();
            let batch = self.join(&left.batch, lefts, &rights)?;
            if sender.send(Ok(batch)).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[expect(clippy::ref_option, reason = "the map has it so")]
    /// The rows within the window around this time. The left side advances, so earlier rows are done for this key.
    fn window(&mut self, key: &Option<OwnedRow>, time: i64) -> Vec<RowAt> {
        let start = time.saturating_add(self.from);
        let Some(rows) = self.rows.get_mut(key) else {
            return Vec::new();
        };
        while rows.front().is_some_and(|(at, _)| *at < start) {
            rows.pop_front();
        }
        rows.iter().map(|(_, place)| *place).collect()
    }

    fn join(
        &self,
        left: &RecordBatch,
        lefts: Vec<u32>,
        rights: &[Option<RowAt>],
    ) -> Result<RecordBatch> {
        let lefts = UInt32Array::from(lefts);
        let columns = left.columns().iter();
        let taken = columns.map(|column| Ok(take(column, &lefts, None)?));
        let mut columns = taken.collect::<Result<Vec<ArrayRef>>>()?;
        columns.extend(self.joined.taken(&self.batches, rights)?);
        self.joined.batch(columns, rights.len())
    }

    /// Drops what is before the window of this time, for any key, and batches without remaining rows.
    fn tidy(&mut self, time: i64, left: &Keyed) -> Result<()> {
        let start = time.saturating_add(self.from);
        for rows in self.rows.values_mut() {
            while rows.front().is_some_and(|(at, _)| *at < start) {
                rows.pop_front();
            }
        }
        self.rows.retain(|_, rows| !rows.is_empty());
        let needed: HashSet<u64> = self
            .rows
            .values()
            .flatten()
            .map(|(_, place)| place.batch)
            .collect();
        self.batches.retain(|number, _| needed.contains(number));
        let batches = self.batches.values();
        let held: usize = batches.map(RecordBatch::get_array_memory_size).sum();
        let rows: usize = self.rows.values().map(VecDeque::len).sum();
        let places = rows * size_of::<(i64, RowAt)>();
        let sides = self.coming.iter().map(|(batch, _)| batch).chain([left]);
        let sides: usize = sides.map(Keyed::bytes).sum();
        self.memory.try_resize(held + places + sides)
    }
}

/// Rows of the left side, and their matches.
#[derive(Default)]
struct Pairs {
    lefts: Vec<u32>,
    rights: Vec<Option<RowAt>>,
}

impl Pairs {
    /// Adds a row with all rows in its window; one without any stays.
    fn add(&mut self, left: usize, window: Vec<RowAt>) {
        if window.is_empty() {
            self.rights.push(None);
        }
        self.rights.extend(window.into_iter().map(Some));
        self.lefts.resize(self.rights.len(), left as u32);
    }
}
