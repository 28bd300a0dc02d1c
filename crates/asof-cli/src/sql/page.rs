//! Queries from the page.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use asof::Stamp;
use asof::sql::{Database, SqlOptions, Waited};
use asof_serve::{QueryAnswer, QueryColumn, QueryEngine, QueryKind, QueryLimits, Refusal};

use super::running::{NamedRecording, Places, opened};
use crate::fleet::CataloguePlace;
use crate::place::{Opening, robots_in};
use crate::screen::Screen;
use asof::rows::{Reader, write, write_json_text};
use asof::text::counted;

/// Memory limit of the page's queries; the server has its own budget.
const QUERY_MEMORY_BYTES: usize = 256 << 20;
/// How often a running query is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A database over the served places, opened at the first query.
pub struct PageQueries {
    places: Vec<PathBuf>,
    catalogue: CataloguePlace,
    opening: Opening,
    screen: Screen,
    /// Opened by the first query that can; one that cannot is not remembered.
    database: Mutex<Option<Arc<Database>>>,
}

impl PageQueries {
    /// `None` for running robots, which grow while they are queried.
    pub fn over(
        (places, catalogue): (&[PathBuf], &CataloguePlace),
        opening: &Opening,
        screen: &Screen,
    ) -> Option<Arc<Self>> {
        if places.is_empty() || robots_in(places).next().is_some() {
            return None;
        }
        Some(Arc::new(PageQueries {
            places: places.to_vec(),
            catalogue: catalogue.clone(),
            opening: opening.clone(),
            screen: screen.clone(),
            database: Mutex::default(),
        }))
    }

    /// The database, which is opened now if it has not been yet.
    pub fn database(&self) -> Result<Arc<Database>, String> {
        let open = || -> anyhow::Result<Arc<Database>> {
            let Places {
                recordings, fleets, ..
            } = opened(&self.places, &self.catalogue, &self.opening, &self.screen)?;
            let options = SqlOptions {
                memory: QUERY_MEMORY_BYTES,
                fleets,
                ..SqlOptions::default()
            };
            let recordings = recordings.iter().map(NamedRecording::named).collect();
            Ok(Arc::new(Database::new(recordings, options)?))
        };
        let mut known = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = &*known {
            return Ok(Arc::clone(database));
        }
        let database = open().map_err(|error| format!("{error:#}"))?;
        *known = Some(Arc::clone(&database));
        Ok(database)
    }
}

impl QueryEngine for PageQueries {
    fn answer(&self, query: &str, limits: &QueryLimits) -> Result<QueryAnswer, Refusal> {
        let database = self.database()?;
        let query = query.trim().trim_end_matches(';');
        let end = Instant::now() + limits.time;
        let mut coming = database.query(query).map_err(|error| error.to_string())?;
        let mut answer = QueryAnswer {
            columns: columns_of(&coming.schema()),
            ..QueryAnswer::default()
        };
        let mut bytes = 0;
        loop {
            match coming.wait(POLL_INTERVAL) {
                Waited::End => break,
                Waited::Nothing => {}
                Waited::Rows(batch) => {
                    let batch = batch.map_err(|error| error.to_string())?;
                    for row in 0..batch.num_rows() {
                        if answer.rows.len() >= limits.rows {
                            let rows = counted(limits.rows as u64, "row");
                            answer.cut = Some(format!("there are more than {rows}"));
                            return Ok(answer);
                        }
                        let text = row_of(&batch, row, &answer.columns, limits.start);
                        bytes += text.len() + 1;
                        if bytes > limits.bytes {
                            answer.cut = Some("the rows are too large to show more".to_owned());
                            return Ok(answer);
                        }
                        answer.rows.push(text);
                    }
                }
            }
            if limits.is_given_up() {
                return Err("the query was cancelled".into());
            }
            if Instant::now() >= end {
                let seconds = limits.time.as_secs();
                answer.cut = Some(format!("the query was stopped after {seconds} s"));
                return Ok(answer);
            }
        }
        Ok(answer)
    }
}

fn columns_of(schema: &SchemaRef) -> Vec<QueryColumn> {
    let column = |field: &Arc<arrow_schema::Field>| QueryColumn {
        name: field.name().clone(),
        kind: match field.data_type() {
            DataType::Timestamp(TimeUnit::Nanosecond, _) => QueryKind::Time,
            kind if kind.is_numeric() => QueryKind::Number,
            _ => QueryKind::Text,
        },
    };
    schema.fields().iter().map(column).collect()
}

fn row_of(batch: &RecordBatch, row: usize, columns: &[QueryColumn], start: Stamp) -> String {
    let mut out = vec![b'['];
    for (place, (array, column)) in batch.columns().iter().zip(columns).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_cell(array, row, column.kind, start, &mut out);
    }
    out.push(b']');
    String::from_utf8_lossy(&out).into_owned()
}

fn write_cell(array: &dyn Array, row: usize, kind: QueryKind, start: Stamp, out: &mut Vec<u8>) {
    if array.is_null(row) {
        out.extend_from_slice(b"null");
        return;
    }
    match kind {
        QueryKind::Time => {
            let at = array.as_primitive::<TimestampNanosecondType>().value(row);
            let since = Stamp::from_nanos(at).since(start);
            out.extend_from_slice(since.to_string().as_bytes());
        }
        QueryKind::Number => {
            let before = out.len();
            write(array, row, Reader::Program, out);
            // Values that are not finite are strings in JSON.
            if out.get(before) == Some(&b'"') {
                out.truncate(before);
                out.extend_from_slice(b"null");
            }
        }
        QueryKind::Text => {
            let mut text = Vec::new();
            write(array, row, Reader::Person, &mut text);
            write_json_text(&String::from_utf8_lossy(&text), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::ColorChoice;

    #[test]
    fn a_first_opening_that_fails_is_tried_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("run.mcap");
        let catalogue = CataloguePlace::default();
        let places = [place.clone()];
        let page = PageQueries::over(
            (&places, &catalogue),
            &Opening::default(),
            &Screen::new(ColorChoice::Never, 0, true),
        );
        let page = page.expect("there is no robot");
        assert!(page.database().is_err(), "there is no such file");
        std::fs::write(&place, "not a recording").expect("it is written");
        assert!(page.database().is_err(), "nor is this one");
        let options = asof::formats::McapWriterOptions::default();
        let writer = asof::formats::McapWriter::create(&place, options).expect("a file");
        writer.finish().expect("it is written");
        let first = page.database().expect("it is there now");
        let rows = first.collect("SELECT count(*) FROM topics");
        assert_eq!(rows.expect("rows").len(), 1);
        assert!(Arc::ptr_eq(&first, &page.database().expect("the same")));
    }
}
