//! Tables of several recordings: each row says which of them it is from.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use asof_core::TimeRange;
use asof_decode::{TopicBatches, TopicOptions, TopicTable};

use crate::table::LostCount;
use crate::{Error, Recording, Table, TableBatches};

/// The column of the recording's name.
const RECORDING: &str = "recording";
/// The column of a message's own field of this name.
const OWN_RECORDING: &str = "recording_";
/// The time by which rows are merged.
const LOG_TIME: &str = "log_time";

/// The rows of one recording after another, the earliest first; `table` makes that of one. Before the columns of `schema` is that of
/// the recording.
pub fn one_after_another(
    schema: &Schema,
    mut parts: Vec<Recording>,
    table: impl Fn(&Recording) -> Result<Table, Error> + Send + Sync + 'static,
) -> Table {
    let columns = with_recording(schema);
    parts.sort_by_key(Recording::start);
    let table = Arc::new(table);
    Table::new(Arc::clone(&columns), move |rows, lost| {
        let (columns, table) = (Arc::clone(&columns), Arc::clone(&table));
        let lost = Arc::clone(lost);
        let mut parts = parts.clone().into_iter();
        let mut current: Option<(String, TableBatches)> = None;
        let mut lost_before = 0;
        let mut next = move || -> Result<Option<RecordBatch>, Error> {
            loop {
                let Some((name, batches)) = &mut current else {
                    let Some(part) = parts.next() else {
                        return Ok(None);
                    };
                    current = Some((part.name(), table(&part)?.batches_of(rows)?));
                    continue;
                };
                let batch = batches.next().transpose()?;
                lost.store(lost_before + batches.lost(), Ordering::Relaxed);
                if let Some(batch) = batch {
                    return Ok(Some(of(&batch, Some(name.as_str()), &columns)?));
                }
                lost_before += batches.lost();
                current = None;
            }
        };
        Ok(std::iter::from_fn(move || next().transpose()))
    })
}

/// Rows of recordings that were made together: a row is of no single one.
pub fn of_together(table: &Table) -> Table {
    let columns = with_recording(table.schema());
    let table = table.clone();
    Table::new(Arc::clone(&columns), move |rows, lost| {
        let columns = Arc::clone(&columns);
        let mut batches = table.batches_of(rows)?;
        let lost = Arc::clone(lost);
        Ok(std::iter::from_fn(move || {
            let batch = batches.next();
            lost.store(batches.lost(), Ordering::Relaxed);
            batch.map(|batch| of(&batch?, None, &columns))
        }))
    })
}

/// The messages of a topic of several recordings, merged by log time.
pub fn of_topic(
    recording: &Recording,
    topic: &str,
    columns: Option<&[String]>,
    range: TimeRange,
) -> Result<Table, Error> {
    let is_own = |name: &&String| *name != RECORDING;
    let field = |name: &String| match name.as_str() {
        OWN_RECORDING => RECORDING.to_owned(),
        _ => name.clone(),
    };
    let fields = columns.map(|columns| {
        let fields = columns.iter().filter(is_own).map(field);
        fields.chain([LOG_TIME.to_owned()]).collect()
    });
    let options = TopicOptions {
        columns: fields,
        range,
        ..TopicOptions::default()
    };
    let table = TopicTable::new(recording, topic, options)?;
    let read = table.schema();
    let mut columns_read = read.fields().iter().enumerate();
    let mut chosen: Vec<(Option<usize>, Arc<Field>)> = Vec::new();
    let mut time = 0;
    if let Some(columns) = columns {
        for name in columns {
            let own = is_own(&name).then(|| columns_read.next()).flatten();
            chosen.push(match own {
                Some((place, field)) => (Some(place), named(field, name)),
                None => (None, recording_field()),
            });
        }
        time = read.fields().len() - 1;
    } else {
        chosen.push((None, recording_field()));
        chosen.extend(columns_read.map(|(place, field)| {
            let is_taken = field.name() == RECORDING;
            let name = if is_taken {
                OWN_RECORDING
            } else {
                field.name()
            };
            (Some(place), named(field, name))
        }));
    }
    let (places, fields): (Vec<_>, Vec<_>) = chosen.into_iter().unzip();
    let schema = Schema::new_with_metadata(fields, read.metadata().clone());
    let schema = Arc::new(schema);
    let parts: Arc<[Recording]> = recording.parts().into();
    Ok(Table::new(Arc::clone(&schema), move |rows, lost| {
        let table = table.clone().with_rows(rows);
        let rows = rows.unwrap_or(TopicOptions::default().rows).max(1);
        let mut merge = Merge {
            lanes: parts
                .iter()
                .map(|part| Lane::new(part, table.schema()))
                .collect(),
            table,
            time,
            rows,
            lost: Arc::clone(lost),
        };
        let (schema, places) = (Arc::clone(&schema), places.clone());
        let mut next = move || -> Result<Option<RecordBatch>, Error> {
            let Some((batch, names)) = merge.next()? else {
                return Ok(None);
            };
            let names: ArrayRef = Arc::new(names);
            let column = |place: &Option<usize>| match place {
                Some(place) => Arc::clone(batch.column(*place)),
                None => Arc::clone(&names),
            };
            let columns = places.iter().map(column).collect();
            Ok(Some(RecordBatch::try_new(Arc::clone(&schema), columns)?))
        };
        Ok(std::iter::from_fn(move || next().transpose()))
    }))
}

/// Rows of several recordings in order of log time; of equal times, in the order of the recordings.
struct Merge {
    lanes: Vec<Lane>,
    table: TopicTable,
    /// The place of the time among the columns.
    time: usize,
    /// A batch has at most this many rows.
    rows: usize,
    lost: LostCount,
}

/// One of several recordings. It is read from when its time has come, until it is over.
struct Lane {
    name: String,
    recording: Recording,
    /// When it begins.
    start: i64,
    is_begun: bool,
    batches: Option<TopicBatches>,
    failed: u64,
    batch: RecordBatch,
    /// The first row of the batch that is still to come.
    row: usize,
}

impl Lane {
    fn new(recording: &Recording, schema: &SchemaRef) -> Self {
        Lane {
            name: recording.name(),
            recording: recording.clone(),
            start: recording.summary().range.start.nanos(),
            is_begun: false,
            batches: None,
            failed: 0,
            batch: RecordBatch::new_empty(Arc::clone(schema)),
            row: 0,
        }
    }

    /// The times of the rows that are still to come, as far as they are read.
    fn times(&self, column: usize) -> &[i64] {
        if self.row == self.batch.num_rows() {
            return &[];
        }
        let times = self.batch.column(column);
        &times.as_primitive::<TimestampNanosecondType>().values()[self.row..]
    }

    /// The time of its next row, or, before it is read from, a time before that; `None` after the last one.
    fn head(&self, column: usize) -> Option<i64> {
        let next = self.times(column).first().copied();
        next.or((!self.is_begun).then_some(self.start))
    }

    /// Reads until there is a next row.
    fn load(&mut self, table: &TopicTable) -> Result<(), Error> {
        if !self.is_begun {
            self.batches = Some(table.read(&self.recording)?);
            self.is_begun = true;
        }
        while let Some(batches) = &mut self.batches
            && self.row == self.batch.num_rows()
        {
            let next = batches.next().transpose()?;
            self.failed = batches.failed();
            self.row = 0;
            self.batch = if let Some(batch) = next {
                batch
            } else {
                self.batches = None;
                self.batch.slice(0, 0)
            };
        }
        Ok(())
    }
}

impl Merge {
    /// The next rows, with the names of their recordings.
    fn next(&mut self) -> Result<Option<(RecordBatch, StringArray)>, Error> {
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_begun) {
            lane.load(&self.table)?;
        }
        let mut found: Vec<(usize, usize)> = Vec::new();
        while found.len() < self.rows {
            let Some(at) = self.first()? else {
                break;
            };
            // Until another one has the next row.
            let others = self
                .lanes
                .iter()
                .enumerate()
                .filter(|(place, _)| *place != at);
            let ends = others.filter_map(|(place, lane)| Some((lane.head(self.time)?, place)));
            let end = ends.min().unwrap_or((i64::MAX, usize::MAX));
            let times = self.lanes[at].times(self.time);
            let count = times.partition_point(|time| (*time, at) < end);
            let count = count.min(self.rows - found.len());
            let lane = &mut self.lanes[at];
            found.extend((lane.row..lane.row + count).map(|row| (at, row)));
            lane.row += count;
            if lane.row == lane.batch.num_rows() {
                break;
            }
        }
        let failed = self.lanes.iter().map(|lane| lane.failed).sum();
        self.lost.store(failed, Ordering::Relaxed);
        let (Some(&first), Some(&last)) = (found.first(), found.last()) else {
            return Ok(None);
        };
        let names = found
            .iter()
            .map(|(at, _)| Some(self.lanes[*at].name.as_str()));
        let names = names.collect();
        if found.iter().all(|(at, _)| *at == first.0) {
            let rows = self.lanes[first.0]
                .batch
                .slice(first.1, last.1 + 1 - first.1);
            return Ok(Some((rows, names)));
        }
        let batches: Vec<&RecordBatch> = self.lanes.iter().map(|lane| &lane.batch).collect();
        let rows = interleave_record_batch(&batches, &found)?;
        Ok(Some((rows, names)))
    }

    /// The recording with the next row.
    fn first(&mut self) -> Result<Option<usize>, Error> {
        loop {
            let lanes = self.lanes.iter().enumerate();
            let heads = lanes.filter_map(|(place, lane)| Some((lane.head(self.time)?, place)));
            let Some((_, at)) = heads.min() else {
                return Ok(None);
            };
            if self.lanes[at].is_begun {
                return Ok(Some(at));
            }
            self.lanes[at].load(&self.table)?;
        }
    }
}

fn recording_field() -> Arc<Field> {
    Arc::new(Field::new(RECORDING, DataType::Utf8, true))
}

/// The same field under another name.
fn named(field: &Arc<Field>, name: &str) -> Arc<Field> {
    Arc::new(Field::clone(field).with_name(name))
}

fn with_recording(schema: &Schema) -> SchemaRef {
    let mut fields = vec![recording_field()];
    fields.extend(schema.fields().iter().cloned());
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A batch of one recording with these columns. Those that its topics do not have make an error.
fn of(batch: &RecordBatch, name: Option<&str>, columns: &SchemaRef) -> Result<RecordBatch, Error> {
    let names = std::iter::repeat_n(name, batch.num_rows());
    let names: ArrayRef = Arc::new(names.collect::<StringArray>());
    let arrays = std::iter::once(names).chain(batch.columns().iter().cloned());
    Ok(RecordBatch::try_new(Arc::clone(columns), arrays.collect())?)
}
