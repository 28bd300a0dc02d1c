//! The tables about the recordings of a catalogue, from its own tables: no recording is loaded.

use std::collections::HashMap;
use std::sync::Arc;

use asof_catalogue::{CatalogueTable, Search};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt64Array,
};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};

use crate::catalogue::{BYTES, Row, problem_rows};
use crate::fleet::{Fleet, failed};

/// Takes rows; returns whether more are wanted.
pub(crate) type SendRows<'a> = &'a mut dyn FnMut(RecordBatch) -> bool;

/// Sends the rows of `topics`, with these columns.
pub(crate) fn topics(fleet: &Fleet, schema: &SchemaRef, send: SendRows<'_>) -> Result<bool> {
    let has = |name: &str| schema.field_with_name(name).is_ok();
    let contents = fleet.contents();
    let is_joined =
        has("recording") || has("hz") || contents.vanished > 0 || contents.unreadable > 0;
    let recordings = is_joined.then(|| readable(fleet)).transpose()?;
    let mut columns = vec!["topic"];
    columns.extend(is_joined.then_some("recording"));
    columns.extend(
        ["type", "encoding", "schema_encoding"]
            .into_iter()
            .filter(|name| has(name)),
    );
    columns.extend((has("messages") || has("hz")).then_some("messages"));
    columns.extend(has(BYTES).then_some(BYTES));
    read(fleet, CatalogueTable::Topics, &columns, &mut |batch| {
        let Some(recordings) = &recordings else {
            return made(schema, &batch, &|_| None).map(&mut *send);
        };
        let names = text_column(&batch, "recording")?;
        let known = names.iter().map(|name| recordings.get(name?));
        let known: Vec<Option<&Readable>> = known.collect();
        let batch = filter_record_batch(
            &batch,
            &known
                .iter()
                .map(|one| Some(one.is_some()))
                .collect::<BooleanArray>(),
        )?;
        let known: Vec<&Readable> = known.into_iter().flatten().collect();
        let of_recordings = |name: &str| -> Option<ArrayRef> {
            Some(match name {
                "recording" => Arc::new(StringArray::from_iter_values(
                    known.iter().map(|one| &one.name),
                )),
                "hz" => {
                    let messages = int_column(&batch, "messages").ok()?;
                    let rate = |(count, one): (Option<i64>, &&Readable)| {
                        let messages = count.filter(|&count| count > 1 && one.seconds > 0.0)?;
                        Some(messages as f64 / one.seconds)
                    };
                    Arc::new(
                        messages
                            .iter()
                            .zip(&known)
                            .map(rate)
                            .collect::<Float64Array>(),
                    )
                }
                _ => return None,
            })
        };
        made(schema, &batch, &of_recordings).map(&mut *send)
    })
}

/// Sends the rows of `recordings`, with these columns.
pub(crate) fn recordings(fleet: &Fleet, schema: &SchemaRef, send: SendRows<'_>) -> Result<bool> {
    let mut columns = vec!["format", "vanished"];
    for field in schema.fields() {
        columns.extend(match field.name().as_str() {
            "start" => Some("start_ns"),
            "end" => Some("end_ns"),
            name @ ("recording" | "size" | "messages" | "problems") => Some(name),
            _ => None,
        });
    }
    read(fleet, CatalogueTable::Recordings, &columns, &mut |batch| {
        let batch = filter_record_batch(&batch, &is_readable(&batch)?)?;
        let of_recordings = |name: &str| -> Option<ArrayRef> {
            let times = |name: &str| -> Option<ArrayRef> {
                let times = int_column(&batch, name).ok()?.iter();
                let times = times.collect::<TimestampNanosecondArray>();
                Some(Arc::new(times.with_timezone("UTC")))
            };
            match name {
                "recording" => {
                    let paths = text_column(&batch, name).ok()?.iter();
                    let names = paths.map(|path| Some(name_of(fleet, path?)));
                    Some(Arc::new(names.collect::<StringArray>()))
                }
                "library" => {
                    let nothing = std::iter::repeat_n("", batch.num_rows());
                    Some(Arc::new(StringArray::from_iter_values(nothing)))
                }
                "start" => times("start_ns"),
                "end" => times("end_ns"),
                "problems" => {
                    let lists = batch.column_by_name(name)?.as_list_opt::<i32>()?;
                    let counts = (0..lists.len()).map(|row| lists.value_length(row).unsigned_abs());
                    Some(Arc::new(UInt64Array::from_iter_values(
                        counts.map(u64::from),
                    )))
                }
                _ => None,
            }
        };
        made(schema, &batch, &of_recordings).map(&mut *send)
    })
}

/// The rows of `problems`.
pub(crate) fn problems(fleet: &Fleet) -> Result<RecordBatch> {
    let damaged = "problems > 0".parse();
    let search = Search {
        predicate: Some(damaged.map_err(|error| internal_datafusion_err!("{error}"))?),
        ..Search::default()
    };
    let found = fleet.place.catalogue.find(&search).map_err(failed)?;
    let mut rows: Vec<Row> = Vec::new();
    for one in found
        .recordings
        .into_iter()
        .filter(|one| one.row.format.is_some())
    {
        let name = name_of(fleet, &one.row.recording);
        let problems = one.row.problems.into_iter();
        rows.extend(problems.map(|problem| {
            (
                name.clone(),
                problem.kind,
                problem.offset,
                problem.topic,
                problem.message,
            )
        }));
    }
    problem_rows(&rows)
}

/// A recording that can be read.
struct Readable {
    name: String,
    seconds: f64,
}

fn readable(fleet: &Fleet) -> Result<HashMap<String, Readable>> {
    let mut all = HashMap::new();
    let columns = ["recording", "start_ns", "end_ns", "format", "vanished"];
    read(fleet, CatalogueTable::Recordings, &columns, &mut |batch| {
        let batch = filter_record_batch(&batch, &is_readable(&batch)?)?;
        let (starts, ends) = (
            int_column(&batch, "start_ns")?,
            int_column(&batch, "end_ns")?,
        );
        for (row, path) in text_column(&batch, "recording")?.iter().enumerate() {
            let path = path.unwrap_or_default();
            let is_known = starts.is_valid(row) && ends.is_valid(row);
            let nanos = is_known.then(|| ends.value(row).saturating_sub(starts.value(row)));
            let one = Readable {
                name: name_of(fleet, path),
                seconds: nanos.unwrap_or_default() as f64 * 1e-9,
            };
            all.insert(path.to_owned(), one);
        }
        Ok(true)
    })?;
    Ok(all)
}

/// Which rows of recordings are there and were readable.
fn is_readable(batch: &RecordBatch) -> Result<BooleanArray> {
    let column = |name: &str| {
        let found = batch.column_by_name(name);
        found.ok_or_else(|| lacking(name))
    };
    let (formats, vanished) = (column("format")?, column("vanished")?);
    let rows = 0..batch.num_rows();
    Ok(rows
        .map(|row| Some(formats.is_valid(row) && vanished.is_null(row)))
        .collect())
}

/// The name of a recording in rows.
fn name_of(fleet: &Fleet, path: &str) -> String {
    fleet.place.catalogue.root().shown_address_of(path)
}

/// Reads columns of a table, until there is an error or no more are wanted. Returns whether more are.
fn read(
    fleet: &Fleet,
    table: CatalogueTable,
    columns: &[&str],
    each: &mut dyn FnMut(RecordBatch) -> Result<bool>,
) -> Result<bool> {
    let mut outcome = Ok(true);
    let read = fleet
        .place
        .catalogue
        .read_table(table, columns, &mut |batch| {
            outcome = each(batch);
            matches!(outcome, Ok(true))
        });
    read.map_err(failed)?;
    outcome
}

/// Rows with the columns of a schema: those that `other` makes, and columns of the catalogue of the same name.
fn made(
    schema: &SchemaRef,
    batch: &RecordBatch,
    other: &dyn Fn(&str) -> Option<ArrayRef>,
) -> Result<RecordBatch> {
    let column = |name: &str| -> Result<ArrayRef> {
        if let Some(column) = other(name) {
            return Ok(column);
        }
        if matches!(name, "messages" | "size" | BYTES) {
            let counts = int_column(batch, name)?.iter();
            let counts = counts.map(|count| count.and_then(|count| u64::try_from(count).ok()));
            return Ok(Arc::new(counts.collect::<UInt64Array>()));
        }
        let found = batch.column_by_name(name).cloned();
        found.ok_or_else(|| lacking(name))
    };
    let columns = schema.fields().iter().map(|field| column(field.name()));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn lacking(name: &str) -> DataFusionError {
    DataFusionError::Execution(format!("the catalogue lacks the column {name}"))
}

fn text_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = batch
        .column_by_name(name)
        .and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| lacking(name))
}

fn int_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let column = batch.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.ok_or_else(|| lacking(name))
}
