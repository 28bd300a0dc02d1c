//! Tables that are read on demand.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::Error;
use crate::views::{PlainBatches, plain_schema};

/// Rows as Arrow batches, read on demand, any number of times. Its columns are known before anything is read.
#[derive(Clone)]
pub struct Table {
    schema: SchemaRef,
    open: Arc<Open>,
}

/// Opens the rows again, in batches of at most this many.
type Open = dyn Fn(Option<usize>, &LostCount) -> Result<RowBatches, Error> + Send + Sync;
pub(crate) type RowBatches = Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send>;
/// Messages that could not be decoded.
pub(crate) type LostCount = Arc<AtomicU64>;

impl Table {
    pub(crate) fn new<I>(
        schema: SchemaRef,
        open: impl Fn(Option<usize>, &LostCount) -> Result<I, Error> + Send + Sync + 'static,
    ) -> Self
    where
        I: Iterator<Item = Result<RecordBatch, Error>> + Send + 'static,
    {
        Table {
            schema,
            open: Arc::new(move |rows, lost| Ok(Box::new(open(rows, lost)?))),
        }
    }

    /// The same of rows that know by themselves how many messages are lost.
    pub(crate) fn counting<I, E: Into<Error>>(
        schema: SchemaRef,
        open: impl Fn(Option<usize>) -> Result<I, Error> + Send + Sync + 'static,
        lost_of: fn(&I) -> u64,
    ) -> Self
    where
        I: Iterator<Item = Result<RecordBatch, E>> + Send + 'static,
    {
        Table::new(schema, move |rows, lost| {
            let (mut batches, lost) = (open(rows)?, Arc::clone(lost));
            Ok(std::iter::from_fn(move || {
                let batch = batches.next();
                lost.store(lost_of(&batches), Ordering::Relaxed);
                batch.map(|batch| batch.map_err(Into::into))
            }))
        })
    }

    /// Its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The names of its columns.
    pub fn columns(&self) -> Vec<&str> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    /// The rows, one batch at a time: only that is in memory.
    ///
    /// # Errors
    /// When reading cannot start.
    pub fn batches(&self) -> Result<TableBatches, Error> {
        self.batches_of(None)
    }

    /// The same in batches of at most this many rows; `None` for the usual number.
    ///
    /// # Errors
    /// When reading cannot start.
    pub fn batches_of(&self, rows: Option<usize>) -> Result<TableBatches, Error> {
        let lost = LostCount::default();
        Ok(TableBatches {
            batches: (self.open)(rows, &lost)?,
            lost,
        })
    }

    /// The same rows without Arrow's view types, which readers of Arrow data from before 2024 do not know: a column "binary view"
    /// becomes "binary", by a copy.
    #[must_use]
    pub fn without_views(self) -> Table {
        let Some(schema) = plain_schema(&self.schema) else {
            return self;
        };
        let plain = Arc::clone(&schema);
        Table::new(plain, move |rows, lost| {
            Ok(PlainBatches {
                batches: (self.open)(rows, lost)?,
                schema: Arc::clone(&schema),
                waiting: VecDeque::new(),
            })
        })
    }

    /// All rows.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn collect(&self) -> Result<Vec<RecordBatch>, Error> {
        self.batches()?.collect()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// The rows of a [`Table`].
pub struct TableBatches {
    batches: RowBatches,
    lost: LostCount,
}

impl TableBatches {
    /// Messages so far that could not be decoded, or have no stamp to align them by.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Iterator for TableBatches {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}
