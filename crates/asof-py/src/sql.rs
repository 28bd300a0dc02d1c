//! SQL queries, if the build has an engine for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use asof::formats::Recording;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::errors::{Failure, Result};
#[cfg(feature = "sql")]
use crate::interrupt::SIGNAL_POLL_INTERVAL;
use crate::table::Table;

/// A table of the user's own, beside the topics.
pub enum OwnTable {
    /// The path of a file.
    File(PathBuf),
    /// Any Arrow table.
    Rows(SchemaRef, Vec<RecordBatch>),
}

/// Tables of the user's own, by name.
pub type OwnTables = BTreeMap<String, OwnTable>;

impl FromPyObject<'_, '_> for OwnTable {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(path) = given.extract() {
            return Ok(OwnTable::File(path));
        }
        let reader: PyRecordBatchReader = given.extract()?;
        let reader = reader.into_reader()?;
        let schema = reader.schema();
        let rows = reader.collect::<std::result::Result<_, _>>();
        Ok(OwnTable::Rows(schema, rows.map_err(Failure::from)?))
    }
}

#[cfg(feature = "sql")]
impl OwnTable {
    fn opened(self) -> Result<asof::sql::OwnTable> {
        match self {
            OwnTable::File(path) => {
                asof::own_table(path).map_err(|error| Failure::new("QueryError", error))
            }
            OwnTable::Rows(schema, rows) => Ok(asof::sql::OwnTable::of_rows(schema, rows)),
        }
    }
}

/// The rows of a query over a recording.
#[cfg(feature = "sql")]
pub fn query(
    recording: &Arc<dyn Recording>,
    name: String,
    tables: OwnTables,
    sql: &str,
) -> Result<Table> {
    let recordings = vec![(name, Arc::clone(recording))];
    over(recordings, BTreeMap::new(), tables, sql)
}

/// The rows of a query over all recordings of a fleet.
#[cfg(feature = "sql")]
pub fn of_fleet(fleet: &asof::Fleet, tables: OwnTables, sql: &str) -> Result<Table> {
    let found = fleet.recordings(&asof::catalogue::Search::default());
    let found = found.map_err(|error| Failure::new("FleetError", error))?;
    let recordings = found.recordings.iter();
    let labels = recordings.clone().map(|one| (one.name(), one.labels()));
    let named = recordings.map(|one| (one.name(), Arc::clone(one.recording.source())));
    over(named.collect(), labels.collect(), tables, sql)
}

#[cfg(feature = "sql")]
fn over(
    recordings: Vec<(String, Arc<dyn Recording>)>,
    labels: BTreeMap<String, asof::sql::RecordingLabels>,
    tables: OwnTables,
    sql: &str,
) -> Result<Table> {
    use asof::sql::{Database, SqlOptions};

    let wrong = |error| Failure::new("QueryError", error);
    let tables = tables.into_iter();
    let options = SqlOptions {
        labels,
        tables: tables
            .map(|(name, table)| Ok((name, table.opened()?)))
            .collect::<Result<_>>()?,
        ..SqlOptions::default()
    };
    let database = Database::new(recordings, options).map_err(wrong)?;
    let schema = database.describe(sql, &[]).map_err(wrong)?.columns;
    let sql = sql.to_owned();
    let database = Arc::new(database);
    Ok(Table::new(schema, move |_, lost| {
        let rows = Rows::start(Arc::clone(&database), sql.clone(), Arc::clone(lost))?;
        Ok(Box::new(rows))
    }))
}

/// The rows of a query, from a thread that owns the database: a query borrows it.
#[cfg(feature = "sql")]
struct Rows {
    coming: std::sync::mpsc::Receiver<Result<RecordBatch>>,
    /// The thread ends when this is dropped, however long the query would run.
    _wanted: Arc<()>,
}

#[cfg(feature = "sql")]
impl Rows {
    fn start(
        database: Arc<asof::sql::Database>,
        sql: String,
        lost: crate::table::Lost,
    ) -> Result<Self> {
        use asof::sql::Waited;

        // Rows that were not requested yet: the query waits then.
        let (sender, coming) = std::sync::mpsc::sync_channel(1);
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let run = move || {
            let wrong = |error| Failure::new("QueryError", error);
            let before = database.undecoded().0;
            let mut found = match database.query(&sql) {
                Ok(found) => found,
                Err(error) => return drop(sender.send(Err(wrong(error)))),
            };
            while is_wanted.strong_count() > 0 {
                let rows = match found.wait(SIGNAL_POLL_INTERVAL) {
                    Waited::Rows(rows) => rows.map_err(wrong),
                    Waited::Nothing => continue,
                    Waited::End => break,
                };
                let undecoded = database.undecoded().0 - before;
                lost.store(undecoded, std::sync::atomic::Ordering::Relaxed);
                if sender.send(rows).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("asof-sql".to_owned());
        let started = thread.spawn(run);
        started.map_err(|error| Failure::new("QueryError", error))?;
        Ok(Rows {
            coming,
            _wanted: wanted,
        })
    }
}

#[cfg(feature = "sql")]
impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        use std::sync::mpsc::RecvTimeoutError;
        loop {
            match self.coming.recv_timeout(SIGNAL_POLL_INTERVAL) {
                Ok(batch) => return Some(batch),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // Libraries read rows on their own threads, which must not wait for the GIL.
            if let Err(error) = crate::interrupt::interrupted() {
                return Some(Err(error.into()));
            }
        }
    }
}

/// Compiled without the engine.
#[cfg(not(feature = "sql"))]
pub fn query(_: &Arc<dyn Recording>, _: String, _: OwnTables, _: &str) -> Result<Table> {
    Err(no_engine())
}

/// Compiled without the engine.
#[cfg(not(feature = "sql"))]
pub fn of_fleet(_: &asof::Fleet, _: OwnTables, _: &str) -> Result<Table> {
    Err(no_engine())
}

#[cfg(not(feature = "sql"))]
fn no_engine() -> Failure {
    Failure::new(
        "UnavailableError",
        "this wheel was built without the SQL engine; the ready-made wheel has it (`pip install asof`), and so has one that is built by \
         maturin build --release --manifest-path crates/asof-py/Cargo.toml. \
         DuckDB takes topics as they are: odom = rec['/odom'].read(); duckdb.sql('SELECT … FROM odom')",
    )
}
