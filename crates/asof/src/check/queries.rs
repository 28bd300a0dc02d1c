//! Queries that must return no rows.

use super::expectations::OfQuery;
#[cfg(not(feature = "sql"))]
use super::judge::Ruling;
use super::judge::Verdict;
use crate::{Error, Recording};

/// Compiled without the engine.
#[cfg(not(feature = "sql"))]
#[expect(clippy::unnecessary_wraps, reason = "the other build can fail")]
pub fn judge(queries: &[OfQuery], _recording: &Recording) -> Result<Vec<Verdict>, Error> {
    let skipped = queries.iter().map(|query| Verdict {
        outcome: Ruling::Skipped,
        ..Verdict::new(subject(query), "sql", crate::text::absent("SQL", "sql"))
    });
    Ok(skipped.collect())
}

/// Runs each query; its rows are the failures.
#[cfg(feature = "sql")]
pub fn judge(queries: &[OfQuery], recording: &Recording) -> Result<Vec<Verdict>, Error> {
    use std::sync::Arc;

    use asof_sql::{Database, SqlOptions};
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let named = vec![(recording.name(), Arc::clone(recording.source()))];
    let database = Database::new(named, SqlOptions::default())?;
    let verdicts = queries.iter().map(|query| {
        let mut verdict = Verdict::new(subject(query), "sql", String::new());
        match rows_of(&database, query, recording.progress(), &mut verdict) {
            Ok(()) => verdict.message = format!("{} rows, expected none", verdict.count),
            Err(error) if error.is_cancelled() => return Err(error),
            Err(error) => {
                verdict.breaks(None, || error.to_string());
                verdict.message = error.to_string();
            }
        }
        Ok(verdict)
    });
    verdicts.collect()
}

#[cfg(feature = "sql")]
fn rows_of(
    database: &asof_sql::Database,
    query: &OfQuery,
    progress: &crate::Progress,
    verdict: &mut Verdict,
) -> Result<(), Error> {
    use arrow_array::Array;
    use asof_sql::Waited;

    use super::survey::times;
    use crate::query::POLL_INTERVAL;
    use crate::rows::{Reader, write};
    let mut found = database.query(&query.query)?;
    loop {
        progress.refuse_if_cancelled()?;
        let batch = match found.wait(POLL_INTERVAL) {
            Waited::Rows(rows) => rows?,
            Waited::Nothing => continue,
            Waited::End => return Ok(()),
        };
        // The time of the failure: the first time column of the query.
        let time = batch.schema().fields().iter().find_map(|field| {
            let is_time = matches!(field.data_type(), arrow_schema::DataType::Timestamp(..));
            is_time.then(|| field.name().clone())
        });
        let time = time.and_then(|name| times(&batch, &name).cloned());
        for row in 0..batch.num_rows() {
            let at = time.as_ref().filter(|time| time.is_valid(row));
            verdict.breaks(at.map(|time| time.value(row)), || {
                let mut text = Vec::new();
                for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                    if !text.is_empty() {
                        text.extend_from_slice(b", ");
                    }
                    text.extend_from_slice(field.name().as_bytes());
                    text.extend_from_slice(b": ");
                    write(column, row, Reader::Person, &mut text);
                }
                String::from_utf8_lossy(&text).into_owned()
            });
        }
    }
}

/// The name of a query.
fn subject(query: &OfQuery) -> &str {
    if query.name.is_empty() {
        &query.query
    } else {
        &query.name
    }
}
