//! Queries over recordings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use arrow_array::RecordBatch;
use asof_core::Source;
use asof_sql::{Database, SqlOptions, Waited};

use crate::table::LostCount;
use crate::{Error, Progress, Table};

/// How often a running query looks whether its rows are still wanted, and who waits for them whether it was cancelled.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The rows of a query over named recordings. Waiting for them ends with an error when the work is cancelled.
pub fn query(
    recordings: Vec<(String, Arc<dyn Source>)>,
    options: SqlOptions,
    sql: &str,
    progress: &Progress,
) -> Result<Table, Error> {
    let database = Arc::new(Database::new(recordings, options)?);
    let schema = database.describe(sql, &[])?.columns;
    let (sql, progress) = (sql.to_owned(), progress.clone());
    Ok(Table::new(schema, move |_, lost| {
        QueryBatches::start(
            Arc::clone(&database),
            sql.clone(),
            progress.clone(),
            Arc::clone(lost),
        )
    }))
}

/// The rows of a query, from a thread that owns the database: a query borrows it.
struct QueryBatches {
    coming: Receiver<Result<RecordBatch, Error>>,
    /// The thread ends when this is dropped, however long the query would run.
    _wanted: Arc<()>,
    progress: Progress,
}

impl QueryBatches {
    fn start(
        database: Arc<Database>,
        sql: String,
        progress: Progress,
        lost: LostCount,
    ) -> Result<Self, Error> {
        // Rows that were not requested yet: the query waits then.
        let (sender, coming) = sync_channel(1);
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let run = move || {
            let before = database.undecoded().0;
            let mut found = match database.query(&sql) {
                Ok(found) => found,
                Err(error) => return drop(sender.send(Err(error.into()))),
            };
            while is_wanted.strong_count() > 0 {
                let rows = match found.wait(POLL_INTERVAL) {
                    Waited::Rows(rows) => rows.map_err(Error::from),
                    Waited::Nothing => continue,
                    Waited::End => break,
                };
                lost.store(database.undecoded().0 - before, Ordering::Relaxed);
                if sender.send(rows).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("asof-sql".to_owned());
        let started = thread.spawn(run);
        started.map_err(|error| Error::file("cannot start a thread for the query", error))?;
        Ok(QueryBatches {
            coming,
            _wanted: wanted,
            progress,
        })
    }
}

impl Iterator for QueryBatches {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Err(cancelled) = self.progress.refuse_if_cancelled() {
                return Some(Err(cancelled.into()));
            }
            match self.coming.recv_timeout(POLL_INTERVAL) {
                Ok(batch) => return Some(batch),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
