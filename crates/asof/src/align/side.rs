//! A topic that is looked up.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::Field;
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use asof_align::{LATENESS, Match, Pick, Rule, Track};
use asof_core::{Query, Source, Stamp, TimeRange, Topics};
use asof_decode::{Decoder, RowsError, TopicOptions, TopicTable};
use bytes::Bytes;

use super::{AlignError, AlignOptions, On, named_after};

#[derive(Debug, Clone)]
pub(super) struct Side {
    table: TopicTable,
    /// The index of the time column, and of the first column that is shown.
    time: usize,
    shown: usize,
}

impl Side {
    pub(super) fn new(
        source: &dyn Source,
        topic: &str,
        on: On,
        options: &AlignOptions,
    ) -> Result<Self, AlignError> {
        let range = range_of(source, topic, options)?;
        let table = table_of(source, topic, on, options, range)?;
        let (time, shown) = value_columns(&table, on, options)?;
        Ok(Side { table, time, shown })
    }

    pub(super) fn topic(&self) -> &str {
        self.table.topic()
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        named_after(self.topic(), &self.table.schema().fields()[self.shown..])
    }

    /// Reads all of it; `room` is how many bytes may still be held.
    pub(super) fn load(
        &self,
        source: &dyn Source,
        options: &AlignOptions,
        room: &mut usize,
        left_out: &mut u64,
    ) -> Result<LoadedSide, AlignError> {
        let mut hold = |bytes: usize| match room.checked_sub(bytes) {
            Some(rest) => {
                *room = rest;
                Ok(())
            }
            None => Err(AlignError::TooLarge {
                topic: self.topic().to_owned(),
                most: options.most_bytes,
            }),
        };
        let mut batches = self.table.read(source)?;
        let mut rows = Vec::new();
        for batch in &mut batches {
            let batch = batch?;
            hold(batch.get_array_memory_size())?;
            rows.push(batch);
        }
        *left_out += batches.failed();
        let rows = concat_batches(self.table.schema(), &rows)?;
        let times = rows
            .column(self.time)
            .as_primitive::<TimestampNanosecondType>();
        let timed = |(row, time): (usize, Option<i64>)| {
            let time = time.filter(|&time| time != 0)?;
            Some((Stamp::from_nanos(time), row as u32))
        };
        let track: Track<u32> = times.iter().enumerate().filter_map(timed).collect();
        *left_out += (times.len() - track.len()) as u64;
        let between = (options.rule.pick() == Pick::Interpolate)
            .then(|| self.between(source, rows.num_rows(), &mut hold))
            .transpose()?
            .flatten();
        Ok(LoadedSide {
            rows,
            shown: self.shown,
            track,
            between,
        })
    }

    /// The messages for interpolation between rows. `None` where they do not correspond to the rows.
    fn between(
        &self,
        source: &dyn Source,
        rows: usize,
        hold: &mut dyn FnMut(usize) -> Result<(), AlignError>,
    ) -> Result<Option<Between>, AlignError> {
        let (first, decoder) = self.table.decoder(source)?;
        let query = Query::topics([self.topic()]).between(self.table.range());
        let mut payloads: Vec<Bytes> = Vec::with_capacity(rows);
        for batch in source.read(&query)? {
            let batch = batch?;
            for message in batch.iter() {
                let is_alike = message.channel.schema == first.schema
                    && message.channel.message_encoding == first.message_encoding;
                if !is_alike {
                    return Ok(None);
                }
                hold(message.payload.len() + size_of::<Bytes>())?;
                payloads.push(Bytes::copy_from_slice(message.payload));
            }
        }
        // Where some could not be decoded, or arrived meanwhile, rows and messages have different indexes.
        Ok((payloads.len() == rows).then(|| Between {
            payloads,
            decoder,
            table: self.table.clone(),
        }))
    }
}

/// A topic in memory.
pub(super) struct LoadedSide {
    rows: RecordBatch,
    shown: usize,
    /// Indexes of rows, by their time.
    track: Track<u32>,
    between: Option<Between>,
}

/// Where a row's values come from.
enum Found {
    Nothing,
    Row(u32),
    /// An interpolated row, by its index among those.
    Made(u32),
}

impl LoadedSide {
    /// For each time, how much later the match is, and the columns.
    pub(super) fn rows(
        &mut self,
        times: &[i64],
        rule: Rule,
    ) -> Result<(Vec<Option<i64>>, Vec<ArrayRef>), AlignError> {
        let mut offsets = Vec::with_capacity(times.len());
        let mut found = Vec::with_capacity(times.len());
        let mut made = 0;
        let mut cursor = self.track.cursor();
        for &time in times {
            let stamp = Stamp::from_nanos(time);
            let (offset, place) = match cursor.pick(stamp, rule) {
                Match::Found(message) => {
                    let offset = message.stamp.since(stamp);
                    (Some(offset), Found::Row(*message.value))
                }
                Match::Between {
                    before,
                    after,
                    fraction,
                } => {
                    let between = self.between.as_mut();
                    let pair = (*before.value, *after.value);
                    let is_made = match between {
                        Some(between) => between.make(stamp, pair, fraction),
                        None => false,
                    };
                    if is_made {
                        made += 1;
                        (Some(0), Found::Made(made - 1))
                    } else {
                        // Nothing can be interpolated between them: take the nearest.
                        let nearest = if fraction <= 0.5 { before } else { after };
                        let offset = nearest.stamp.since(stamp);
                        (Some(offset), Found::Row(*nearest.value))
                    }
                }
                Match::Missing(_) => (None, Found::Nothing),
            };
            offsets.push(offset);
            found.push(place);
        }
        Ok((offsets, self.columns(&found)?))
    }

    fn columns(&mut self, found: &[Found]) -> Result<Vec<ArrayRef>, AlignError> {
        let between = self.between.as_mut();
        let made = between.map(Between::take).transpose()?.flatten();
        let Some(made) = made else {
            let place = |found: &Found| match found {
                Found::Row(row) | Found::Made(row) => Some(*row),
                Found::Nothing => None,
            };
            let places: UInt32Array = found.iter().map(place).collect();
            let columns = self.rows.columns()[self.shown..].iter();
            let taken = columns.map(|column| take(&**column, &places, None));
            return Ok(taken.collect::<Result<_, _>>()?);
        };
        // First the interpolated rows, then the recorded ones: one index addresses both.
        let count = made.num_rows() as u32;
        let place = |found: &Found| match found {
            Found::Made(row) => Some(*row),
            Found::Row(row) => Some(count + *row),
            Found::Nothing => None,
        };
        let places: UInt32Array = found.iter().map(place).collect();
        let pairs = made.columns().iter().zip(self.rows.columns());
        let taken = pairs.skip(self.shown).map(|(made, own)| {
            let both = arrow_select::concat::concat(&[&**made, &**own])?;
            take(&*both, &places, None)
        });
        Ok(taken.collect::<Result<_, arrow_schema::ArrowError>>()?)
    }
}

/// Interpolates between two messages.
struct Between {
    /// One for each row.
    payloads: Vec<Bytes>,
    decoder: Decoder,
    table: TopicTable,
}

impl Between {
    /// Makes a row; returns whether the two messages can be interpolated.
    fn make(&mut self, at: Stamp, (before, after): (u32, u32), fraction: f64) -> bool {
        let payload = |row: u32| self.payloads.get(row as usize);
        let (Some(before), Some(after)) = (payload(before), payload(after)) else {
            return false;
        };
        let made = self
            .decoder
            .append_between((at, at), (before, after), fraction);
        made.unwrap_or(false)
    }

    fn take(&mut self) -> Result<Option<RecordBatch>, AlignError> {
        let made = self.decoder.take()?;
        Ok(made.map(|made| self.table.select(&made)).transpose()?)
    }
}

/// Whether the messages of a topic carry stamps.
pub(super) fn has_stamp(source: &dyn Source, topic: &str) -> Result<bool, AlignError> {
    let options = TopicOptions::default();
    let table = TopicTable::new(source, topic, options)?;
    Ok(time_place(&table, On::Stamp).is_some())
}

/// A topic with its wanted columns, and the time.
pub(super) fn table_of(
    source: &dyn Source,
    topic: &str,
    on: On,
    options: &AlignOptions,
    range: TimeRange,
) -> Result<TopicTable, RowsError> {
    let columns = options.columns.get(topic).map(|wanted| {
        let mut columns = vec![on.word().to_owned()];
        columns.extend(wanted.iter().cloned());
        columns
    });
    let options = TopicOptions {
        columns,
        range,
        ..TopicOptions::default()
    };
    TopicTable::new(source, topic, options)
}

/// The index of the time column in a table, and that of the first column that is shown.
pub(super) fn value_columns(
    table: &TopicTable,
    on: On,
    options: &AlignOptions,
) -> Result<(usize, usize), AlignError> {
    let topic = table.topic();
    let time = time_place(table, on).ok_or_else(|| AlignError::NoStamp {
        topic: topic.to_owned(),
    })?;
    let shown = usize::from(options.columns.contains_key(topic));
    Ok((time, shown))
}

fn time_place(table: &TopicTable, on: On) -> Option<usize> {
    let is_time = |field: &Arc<Field>| {
        field.name() == on.word()
            && matches!(field.data_type(), arrow_schema::DataType::Timestamp(..))
    };
    table.schema().fields().iter().position(is_time)
}

/// The log times of the messages that may match an anchor in the range of the options.
fn range_of(
    source: &dyn Source,
    topic: &str,
    options: &AlignOptions,
) -> Result<TimeRange, AlignError> {
    let nanos = |length: Duration| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
    let wanted = options.range;
    if wanted == TimeRange::ALL {
        return Ok(wanted);
    }
    let tolerance = options.rule.tolerance();
    // How much later than its stamp a message may have been recorded.
    let margin = LATENESS.saturating_add(tolerance.unwrap_or_default());
    let mut start = wanted.start.plus_nanos(nanos(margin).saturating_neg());
    if tolerance.is_none() {
        // The last message before, however old.
        let known = source.latest_at(&Topics::named([topic]), start)?;
        if let Some(last) = known.get(0) {
            start = start.min(last.log_time);
        }
    }
    let end = match (options.rule.pick(), tolerance) {
        // The next message may come any time after.
        (Pick::Nearest | Pick::Interpolate | Pick::Next | Pick::After, None) => Stamp::MAX,
        _ => wanted.end.plus_nanos(nanos(margin)),
    };
    Ok(TimeRange::new(start, end))
}
