//! Statistics of a recording: the times and numbers of each topic, in one pass.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, RecordBatch, TimestampNanosecondArray};
use arrow_schema::{DataType, Fields};
use asof_core::{Channel, Query, Stamp, TimeRange};
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
    /// From stamps to log times, without messages that were latched before the recording began.
    pub latency: Numbers,
    /// From each message to the next.
    pub pauses: Numbers,
    /// Whether late subscribers get the last message: such topics have no rate of their own.
    pub is_latched: bool,
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
        let summary = recording.summary();
        for entry in &summary.channels {
            let topic = topics.entry(entry.channel.topic.clone()).or_default();
            topic.is_latched |= asof_formats::is_latched(&entry.channel);
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
            |channel, batch| {
                let topic = topics.entry(channel.topic.clone()).or_default();
                topic.see_times(&Times::of(channel, summary.range, batch));
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
    mut each: impl FnMut(&Channel, &RecordBatch) -> Result<(), Error>,
) -> Result<(), Error> {
    let options = TableOptions {
        layers: Layers::standard().without("semantic"),
        projection,
        ..TableOptions::default()
    };
    let mut tables = Tables::read(recording, query, options)?;
    for batch in &mut tables {
        let batch = batch?;
        each(&batch.channel, &batch.batch)?;
    }
    *undecoded += tables
        .report()
        .iter()
        .map(|report| report.failed)
        .sum::<u64>();
    Ok(())
}

/// The stamps of a topic, some at a time, and when their messages were logged. A message that does not say when it was
/// measured is as of when it was logged; one that was latched before the recording began is left out.
pub fn each_stamp(
    recording: &Recording,
    topic: &str,
    mut see: impl FnMut(&[Stamp], &[i64]),
) -> Result<(), Error> {
    let query = Query::topics([topic]);
    let projection = Projection::stamp();
    let range = recording.summary().range;
    each_batch(recording, &query, projection, &mut 0, |channel, batch| {
        let times = Times::of(channel, range, batch);
        let (stamps, logged): (Vec<Stamp>, Vec<i64>) = times.stamps().unzip();
        see(&stamps, &logged);
        Ok(())
    })
}

/// A column of times; `None` where the table has none.
pub fn times<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a TimestampNanosecondArray> {
    batch
        .column_by_name(name)?
        .as_primitive_opt::<TimestampNanosecondType>()
}

/// When the messages of a batch were logged, and how long after their stamps.
pub struct Times<'a> {
    pub logged: Option<&'a TimestampNanosecondArray>,
    stamps: Option<&'a TimestampNanosecondArray>,
    /// Stamps before this one are of messages that were latched, and say nothing about the way here.
    since: i64,
}

impl<'a> Times<'a> {
    pub fn of(channel: &Channel, recording: TimeRange, batch: &'a RecordBatch) -> Self {
        let is_latched = asof_formats::is_latched(channel);
        Times {
            logged: times(batch, "log_time"),
            stamps: times(batch, "stamp"),
            since: if is_latched {
                recording.start.nanos()
            } else {
                i64::MIN
            },
        }
    }

    /// The stamp and the log time of each message, without those that were latched before.
    fn stamps(&self) -> impl Iterator<Item = (Stamp, i64)> {
        let logged = self.logged.map_or(&[][..], |logged| logged.values());
        let each = logged.iter().enumerate().map(|(row, at)| {
            let own = self.stamps.filter(|stamps| stamps.is_valid(row));
            (own.map_or(*at, |stamps| stamps.value(row)), *at)
        });
        each.filter(|(stamp, _)| *stamp >= self.since)
            .map(|(stamp, at)| (Stamp::from_nanos(stamp), at))
    }

    /// The log time and the latency of each message.
    pub fn all(&self) -> impl Iterator<Item = (i64, Option<i64>)> {
        let logged = self.logged.map_or(&[][..], |logged| logged.values());
        logged.iter().enumerate().map(|(row, at)| {
            let stamp = self.stamps.filter(|stamps| stamps.is_valid(row));
            let stamp = stamp.map(|stamps| stamps.value(row));
            let stamp = stamp.filter(|stamp| *stamp >= self.since);
            (*at, stamp.map(|stamp| at.saturating_sub(stamp)))
        })
    }
}

/// How many messages a topic needs before its rate is meaningful.
const MIN_RATE_MESSAGES: u64 = 10;
/// Stamps that are further than this from their log times are from another clock: no network takes a minute.
const MOST_LATENCY: f64 = 60e9;

impl TopicSurvey {
    /// Whether its stamps are from another clock than its log times, such as that of a simulation.
    pub fn has_another_clock(&self) -> bool {
        let Numbers { min, max, .. } = self.latency;
        self.latency.count > 0 && (min < -MOST_LATENCY || max > MOST_LATENCY)
    }

    /// Whether its messages come at a rate: so evenly that a third of the recording has the same, within a tenth.
    pub fn is_regular(&self) -> bool {
        if self.messages < MIN_RATE_MESSAGES || self.is_latched || self.pauses.mean <= 0.0 {
            return false;
        }
        // By how much the count of a third varies, as far as pauses do not depend on each other.
        let unevenness = self.pauses.deviation() / self.pauses.mean;
        let deviation = unevenness * (3.0 / self.messages as f64).sqrt();
        2.0 * deviation <= 0.1
    }

    /// Takes the times of a batch in.
    pub fn see_times(&mut self, times: &Times<'_>) {
        for (at, latency) in times.all() {
            self.messages += 1;
            let here = TimeRange::new(Stamp::from_nanos(at), Stamp::from_nanos(at));
            self.range = Some(self.range.map_or(here, |range| range.cover(here)));
            if let Some(latency) = latency {
                self.latency.see(latency as f64);
            }
            if let Some((before, latency_before)) = self.last {
                let pause = at.saturating_sub(before);
                self.gap.see(pause, at);
                self.pauses.see(pause as f64);
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
