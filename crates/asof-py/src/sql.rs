//! SQL queries, if the build has an engine for them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use asof::Recording;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

#[cfg(feature = "sql")]
use crate::align;
use crate::errors::{Failure, Result};
#[cfg(feature = "sql")]
use crate::interrupt::interrupting;
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

/// The rows of a query over recordings.
#[cfg(feature = "sql")]
pub fn query(recording: &Recording, tables: OwnTables, sql: &str) -> Result<Table> {
    align::table(recording.sql_with(sql, opened(tables)?))
}

/// The rows of a query over all recordings of a fleet.
#[cfg(feature = "sql")]
pub fn of_fleet(fleet: &asof::Fleet, tables: OwnTables, sql: &str) -> Result<Table> {
    let fleet = fleet.clone().with_progress(interrupting());
    align::table(fleet.sql_with(sql, opened(tables)?))
}

#[cfg(feature = "sql")]
fn opened(tables: OwnTables) -> Result<BTreeMap<String, asof::sql::OwnTable>> {
    let tables = tables.into_iter();
    let opened = tables.map(|(name, table)| Ok((name, table.opened()?)));
    opened.collect()
}

/// Compiled without the engine.
#[cfg(not(feature = "sql"))]
pub fn query(_: &Recording, _: OwnTables, _: &str) -> Result<Table> {
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
