//! Statistics of a recording: the times and numbers of each topic, in one pass.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, RecordBatch, TimestampNanosecondArray};
use arrow_schema::{DataType, Fields};
use asof_core::{Query, Stamp, TimeRange};
use asof_decode::{FieldPath, Layers, Projection, TableOptions, Tables, numbers};

use crate::{Error, Recording};

/// What is measured besides the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Times,
    /// Every numeric field, except in lists.
    Fields,
}

/// Statistics of one topic.
#[derive(Debug, Clone, Default)]
pub struct TopicSurvey {
    pub types: Vec<String>,
    pub messages: u64,
    pub range: Option<TimeRange>,
    /// Without the ends of the recording.
    pub gap: Extreme,
    pub latency: Numbers,
    /// The largest change of latency between neighbours.
    pub jump: Extreme,
    pub fields: BTreeMap<String, Numbers>,
    /// The first frame in its messages.
    pub frame: Option<String>,
    pub(super) last: Option<(i64, Option<i64>)>,
}

/// The largest of some durations, in nanoseconds, and its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extreme {
    pub nanos: Option<i64>,
    pub at: Stamp,
}

impl Extreme {
    pub fn see(&mut self, nanos: i64, at: i64) {
        if self.nanos.is_none_or(|known| nanos > known) {
            self.nanos = Some(nanos);
            self.at = Stamp::from_nanos(at);
        }
    }
}

/// Statistics of finite numbers; others are only counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers {
    pub count: u64,
    pub strange: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    squares: f64,
}

impl Numbers {
    pub fn see(&mut self, value: f64) {
        if !value.is_finite() {
            self.strange += 1;
            return;
        }
        self.count += 1;
        if self.count == 1 {
            (self.min, self.max) = (value, value);
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        // Welford: exact for long recordings.
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// The standard deviation.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        (self.squares / self.count as f64).sqrt()
    }
}

/// Statistics of a recording.
#[derive(Debug, Clone)]
pub struct Survey {
    pub range: TimeRange,
    pub topics: BTreeMap<String, TopicSurvey>,
    pub undecoded: u64,
}

impl Survey {
    pub fn of(recording: &Recording, depth: Depth) -> Result<Self, Error> {
        let projection = match depth {
            Depth::Times => Projection::stamp(),
            Depth::Fields => Projection::All,
        };
        let mut topics: BTreeMap<String, TopicSurvey> = BTreeMap::new();
        for entry in &recording.summary().channels {
            let topic = topics.entry(entry.channel.topic.clone()).or_default();
            let name = entry.channel.type_name().to_owned();
            if !topic.types.contains(&name) {
                topic.types.push(name);
            }
        }
        let mut undecoded = 0;
        let mut range = TimeRange::EMPTY;
        each_batch(
            recording,
            &Query::all(),
            projection,
            &mut undecoded,
            |name, batch| {
                let topic = topics.entry(name.to_owned()).or_default();
                topic.see_times(batch);
                if depth == Depth::Fields {
                    topic.see_fields(batch);
                }
                Ok(())
            },
        )?;
        for topic in topics.values() {
            range = topic.range.map_or(range, |own| range.cover(own));
        }
        Ok(Survey {
            range,
            topics,
            undecoded,
        })
    }

    /// Messages per second of the recording.
    pub fn rate(&self, topic: &TopicSurvey) -> f64 {
        let seconds = self.range.duration_nanos() as f64 / 1e9;
        if seconds <= 0.0 {
            return 0.0;
        }
        topic.messages as f64 / seconds
    }

    /// The longest time without a message, the ends of the recording included.
    pub fn gap(&self, topic: &TopicSurvey) -> Extreme {
        let mut gap = topic.gap;
        match topic.range {
            Some(own) => {
                gap.see(own.start.since(self.range.start), own.start.nanos());
                gap.see(self.range.end.since(own.end), self.range.end.nanos());
            }
            None => gap.see(self.range.duration_nanos(), self.range.start.nanos()),
        }
        gap
    }
}

/// Hands out the messages of a recording as batches, topic by topic, in order within each.
pub fn each_batch(
    recording: &Recording,
    query: &Query,
    projection: Projection,
    undecoded: &mut u64,
    mut each: impl FnMut(&str, &RecordBatch) -> Result<(), Error>,
) -> Result<(), Error> {
    let options = TableOptions {
        layers: Layers::standard().without("semantic"),
        projection,
        ..TableOptions::default()
    };
    let mut tables = Tables::read(recording, query, options)?;
    for batch in &mut tables {
        let batch = batch.map_err(|error| {
            Error::from(error).context("cannot read the recording on".to_owned())
        })?;
        each(&batch.channel.topic, &batch.batch)?;
    }
    *undecoded += tables
        .report()
        .iter()
        .map(|report| report.failed)
        .sum::<u64>();
    Ok(())
}

/// The stamps of a topic, some at a time, each beside when its message was logged. A message that does not say when it was
/// measured is as of when it was logged.
pub fn each_stamp(
    recording: &Recording,
    topic: &str,
    mut see: impl FnMut(&[Stamp], &TimestampNanosecondArray),
) -> Result<(), Error> {
    let query = Query::topics([topic]);
    let projection = Projection::stamp();
    each_batch(recording, &query, projection, &mut 0, |_, batch| {
        let Some(logged) = times(batch, "log_time") else {
            return Ok(());
        };
        let stamps = times(batch, "stamp");
        let stamp = |row: usize| {
            let own = stamps.filter(|stamps| stamps.is_valid(row));
            Stamp::from_nanos(own.unwrap_or(logged).value(row))
        };
        let all: Vec<Stamp> = (0..batch.num_rows()).map(stamp).collect();
        see(&all, logged);
        Ok(())
    })
}

/// A column of times; `None` where the table has none.
pub fn times<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a TimestampNanosecondArray> {
    batch
        .column_by_name(name)?
        .as_primitive_opt::<TimestampNanosecondType>()
}

impl TopicSurvey {
    /// Takes the times of a batch in.
    pub fn see_times(&mut self, batch: &RecordBatch) {
        let Some(logged) = times(batch, "log_time") else {
            return;
        };
        let stamps = times(batch, "stamp");
        self.messages += batch.num_rows() as u64;
        for row in 0..batch.num_rows() {
            let at = logged.value(row);
            let here = TimeRange::new(Stamp::from_nanos(at), Stamp::from_nanos(at));
            self.range = Some(self.range.map_or(here, |range| range.cover(here)));
            let stamp = stamps.filter(|stamps| stamps.is_valid(row));
            let latency = stamp.map(|stamps| at.saturating_sub(stamps.value(row)));
            if let Some(latency) = latency {
                self.latency.see(latency as f64);
            }
            if let Some((before, latency_before)) = self.last {
                self.gap.see(at.saturating_sub(before), at);
                if let (Some(latency), Some(before)) = (latency, latency_before) {
                    let change = latency.saturating_sub(before);
                    self.jump.see(change.saturating_abs(), at);
                }
            }
            self.last = Some((at, latency));
        }
    }

    fn see_fields(&mut self, batch: &RecordBatch) {
        let mut paths = Vec::new();
        number_paths(batch.schema_ref().fields(), "", &mut paths);
        for path in paths {
            let Ok(found) = FieldPath::parse(&path).and_then(|path| path.column(batch)) else {
                continue;
            };
            let stats = self.fields.entry(path).or_default();
            let all = found.numbers().unwrap_or_default();
            for value in all {
                stats.see(value);
            }
        }
        if self.frame.is_none()
            && let Ok(frames) =
                FieldPath::parse("header.frame_id").and_then(|path| path.column(batch))
        {
            let named = (0..frames.len()).filter_map(|row| frames.text(row));
            self.frame = named.map(str::to_owned).find(|frame| !frame.is_empty());
        }
    }
}

/// The paths of all numbers outside of lists. Times do not count as numbers: they differ in every recording.
fn number_paths(fields: &Fields, before: &str, paths: &mut Vec<String>) {
    for field in fields {
        let path = format!("{before}{}", field.name());
        match field.data_type() {
            DataType::Struct(inner) if !is_time(inner) => {
                number_paths(inner, &format!("{path}."), paths);
            }
            DataType::Boolean => paths.push(path),
            kind if kind.is_numeric() => paths.push(path),
            _ => {}
        }
    }
}

/// Whether these are seconds and their fraction, as messages write times.
fn is_time(fields: &Fields) -> bool {
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    matches!(
        names[..],
        ["sec" | "secs", "nanosec" | "nsec" | "nsecs"] | ["seconds", "nanos"]
    )
}

/// The values of a path in each row; those of lists one after the other.
pub fn values(path: &FieldPath, batch: &RecordBatch) -> Option<Vec<(usize, f64)>> {
    let column = path.column(batch).ok()?;
    let mut found = Vec::new();
    for row in 0..column.len() {
        let Some(value) = column.at(row) else {
            continue;
        };
        let inner = list_of(&*value);
        let all = numbers(inner.as_deref().unwrap_or(&*value));
        found.extend(all.into_iter().map(|value| (row, value)));
    }
    Some(found)
}

/// The elements, if it is a list.
fn list_of(value: &dyn Array) -> Option<std::sync::Arc<dyn Array>> {
    match value.data_type() {
        DataType::List(_) => Some(value.as_list::<i32>().value(0)),
        DataType::LargeList(_) => Some(value.as_list::<i64>().value(0)),
        DataType::FixedSizeList(..) => Some(value.as_fixed_size_list().value(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_summed_up_and_strange_ones_counted_apart() {
        let mut found = Numbers::default();
        for value in [
            2.0,
            4.0,
            4.0,
            4.0,
            5.0,
            5.0,
            7.0,
            9.0,
            f64::NAN,
            f64::INFINITY,
        ] {
            found.see(value);
        }
        assert_eq!((found.count, found.strange), (8, 2));
        assert_eq!((found.min, found.max, found.mean), (2.0, 9.0, 5.0));
        assert!((found.deviation() - 2.0).abs() < 1e-12);
    }
}
