//! For each row of one side, all rows of the other within a time range around it.

use asof_align::{Span, SpanMerge};
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use tokio::sync::mpsc::Sender;

use crate::assemble::BATCH_ROWS;
use crate::matching::{Batches, Key, RowAt};
use crate::merge::{Joined, Keyed, Side};

/// Merges two sides that are in order of time. It holds the rows of the right side that are in the window of the current
/// left row.
pub(crate) struct Windows {
    left: Side,
    right: Side,
    known: SpanMerge<Key, RowAt>,
    batches: Batches,
    joined: Joined,
    memory: MemoryReservation,
    /// Rows of the right side that have arrived and are not added yet.
    coming: Option<(Keyed, usize)>,
    is_over: bool,
}

impl Windows {
    /// The span is around the time of the left row.
    pub fn new(
        left: Side,
        right: Side,
        span: Span,
        joined: Joined,
        memory: MemoryReservation,
    ) -> Self {
        Windows {
            left,
            right,
            known: SpanMerge::new(span),
            batches: Batches::default(),
            joined,
            memory,
            coming: None,
            is_over: false,
        }
    }

    pub async fn run(mut self, sender: Sender<Result<RecordBatch>>) -> Result<()> {
        while let Some(left) = self.left.next().await? {
            let mut pairs = Pairs::default();
            for row in 0..left.batch.num_rows() {
                let Some((time, key)) = left.matchable(row) else {
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
                    self.batches.begin();
                    self.coming = Some((batch, 0));
                    self.tidy(time, &left)?;
                }
                pairs.add(row, self.known.pick(&key, time).copied().collect());
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
        let Some((batch, at)) = &mut self.coming else {
            return !self.is_over;
        };
        while *at < batch.batch.num_rows() {
            if let Some((next, key)) = batch.matchable(*at) {
                if !self.known.needs(time, next) {
                    return false;
                }
                let place = self.batches.hold(&batch.batch, *at);
                self.known.add(key, next, place);
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
        self.known.forget(time);
        self.batches.retain(self.known.values());
        let places = self.known.values().count() * size_of::<(i64, RowAt)>();
        let sides = self.coming.iter().map(|(batch, _)| batch).chain([left]);
        let sides: usize = sides.map(Keyed::bytes).sum();
        self.memory
            .try_resize(self.batches.bytes() + places + sides)
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
