//! A topic that is looked up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{ArrayRef, RecordBatch, TimestampNanosecondArray, UInt32Array};
use arrow_schema::{ArrowError, Field};
use arrow_select::concat::{concat, concat_batches};
use arrow_select::take::{take, take_record_batch};
use asof_align::{LATENESS, Match, Pick, Rule, Stamped, Track};
use asof_core::{Channel, Query, Source, Stamp, TimeRange, Topics};
use asof_decode::{Decoder, RowsError, TopicOptions, TopicTable};
use bytes::Bytes;

use super::held::{Pieces, RowWindow};
use super::{AlignError, AlignOptions, On, named_after};

/// The least rows of the batches in which a topic is read, whatever the size of those that are made.
const LEAST_ROWS: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct Side {
    table: TopicTable,
    on: On,
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
        Ok(Side {
            table,
            on,
            time,
            shown,
        })
    }

    pub(super) fn topic(&self) -> &str {
        self.table.topic()
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        named_after(self.topic(), &self.table.schema().fields()[self.shown..])
    }

    /// Reads the times of all of it, and holds the rows as far as `most_bytes` go.
    pub(super) fn load(
        &self,
        source: &dyn Source,
        options: &AlignOptions,
        most_bytes: usize,
        left_out: &mut u64,
    ) -> Result<LoadedSide, AlignError> {
        let mut side = self.clone();
        side.table = side.table.with_rows(Some(options.rows.max(LEAST_ROWS)));
        let mut batches = side.table.read(source)?;
        let mut times: Vec<(Stamp, usize)> = Vec::new();
        let pieces = batches
            .by_ref()
            .map(|batch| batch.map_err(AlignError::from));
        let rows = RowWindow::read(pieces, most_bytes, |batch, first| {
            let found = self.times(batch);
            let timed = found.iter().enumerate().filter_map(|(row, time)| {
                let time = self.on.known(time)?;
                Some((Stamp::from_nanos(time), first + row))
            });
            times.extend(timed);
        })?;
        *left_out += batches.failed();
        *left_out += (rows.rows() - times.len()) as u64;
        let between = (options.rule.pick() == Pick::Interpolate)
            .then(|| Between::new(&side, source, rows.rows(), most_bytes))
            .transpose()?
            .flatten();
        Ok(LoadedSide {
            side,
            track: times.into_iter().collect(),
            rows,
            between,
        })
    }

    fn times<'a>(&self, batch: &'a RecordBatch) -> &'a TimestampNanosecondArray {
        batch
            .column(self.time)
            .as_primitive::<TimestampNanosecondType>()
    }

    /// Its batches, from the first one.
    fn batches(&self, source: &dyn Source) -> Result<Pieces<RecordBatch>, AlignError> {
        let batches = self.table.read(source)?;
        Ok(Box::new(
            batches.map(|batch| batch.map_err(AlignError::from)),
        ))
    }

    /// The payloads of its messages, from the first one. Those of another type than the channel's are the end.
    fn payloads(
        &self,
        source: &dyn Source,
        channel: &Arc<Channel>,
    ) -> Result<Pieces<Vec<Bytes>>, AlignError> {
        let query = Query::topics([self.topic()]).between(self.table.range());
        let channel = Arc::clone(channel);
        let payloads = source.read(&query)?.map(move |batch| {
            let batch = batch?;
            let alike = batch.iter().take_while(|message| {
                message.channel.schema == channel.schema
                    && message.channel.message_encoding == channel.message_encoding
            });
            Ok(alike
                .map(|message| Bytes::copy_from_slice(message.payload))
                .collect())
        });
        Ok(Box::new(payloads))
    }

    fn changed(&self) -> AlignError {
        AlignError::Changed {
            topic: self.topic().to_owned(),
        }
    }
}

/// A topic whose times are known, and whose rows are read when they are needed.
pub(super) struct LoadedSide {
    side: Side,
    /// The numbers of rows, by their time.
    track: Track<usize>,
    rows: RowWindow<RecordBatch>,
    between: Option<Between>,
}

/// Where a row's values come from.
enum Found {
    Nothing,
    /// A row by its number.
    Row(usize),
    /// Two rows by their numbers, how far it is between them, and which of them is the nearest.
    Pair([usize; 2], f64, Stamped<usize>),
}

impl LoadedSide {
    /// About how many bytes a row takes.
    pub(super) fn bytes_per_row(&self) -> usize {
        self.rows.bytes_per_row()
    }

    /// For each time, how much later the match is, and the columns.
    pub(super) fn rows(
        &mut self,
        source: &dyn Source,
        times: &[i64],
        rule: Rule,
    ) -> Result<(Vec<Option<i64>>, Vec<ArrayRef>), AlignError> {
        let mut cursor = self.track.cursor();
        let mut offsets = Vec::with_capacity(times.len());
        let mut found = Vec::with_capacity(times.len());
        for &time in times {
            let stamp = Stamp::from_nanos(time);
            let (offset, place) = match cursor.pick(stamp, rule) {
                Match::Found(message) => {
                    (Some(message.stamp.since(stamp)), Found::Row(*message.value))
                }
                Match::Between {
                    before,
                    after,
                    fraction,
                } => {
                    let nearest = if fraction <= 0.5 { &before } else { &after };
                    let nearest = Stamped::new(nearest.stamp, *nearest.value);
                    let pair = [*before.value, *after.value];
                    (Some(0), Found::Pair(pair, fraction, nearest))
                }
                Match::Missing(_) => (None, Found::Nothing),
            };
            offsets.push(offset);
            found.push(place);
        }
        let made = match &mut self.between {
            Some(between) => between.make(&self.side, source, times, &found)?,
            None => InterpolatedRows::default(),
        };
        for ((found, offset), time) in found.iter_mut().zip(&mut offsets).zip(times) {
            // Nothing can be interpolated between them: take the nearest.
            if let Found::Pair(pair, _, nearest) = found
                && !made.numbers.contains_key(&(*pair, *time))
            {
                *offset = Some(nearest.stamp.since(Stamp::from_nanos(*time)));
                *found = Found::Row(nearest.value);
            }
        }
        let columns = self.columns(source, times, &offsets, &found, &made)?;
        Ok((offsets, columns))
    }

    fn columns(
        &mut self,
        source: &dyn Source,
        times: &[i64],
        offsets: &[Option<i64>],
        found: &[Found],
        made: &InterpolatedRows,
    ) -> Result<Vec<ArrayRef>, AlignError> {
        let mut wanted: Vec<usize> = found.iter().filter_map(Found::row).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let taken = self.take(source, &wanted)?;
        // A source that grows may have other rows at these numbers by now.
        let stamps = self.side.times(&taken);
        for ((found, time), offset) in found.iter().zip(times).zip(offsets) {
            let place = found.row().and_then(|row| wanted.binary_search(&row).ok());
            if place.is_some_and(|at| Some(stamps.value(at)) != offset.map(|offset| time + offset))
            {
                return Err(self.side.changed());
            }
        }
        // First the interpolated rows, then the recorded ones: one index addresses both.
        let count = made.rows.as_ref().map_or(0, RecordBatch::num_rows);
        let place = |(found, time): (&Found, &i64)| match found {
            Found::Nothing => None,
            Found::Row(row) => wanted.binary_search(row).ok().map(|at| (count + at) as u32),
            Found::Pair(pair, _, _) => made.numbers.get(&(*pair, *time)).copied(),
        };
        let places: UInt32Array = found.iter().zip(times).map(place).collect();
        let shown = self.side.shown;
        let columns = taken.columns()[shown..].iter().enumerate();
        let columns = columns.map(|(at, own)| match &made.rows {
            None => take(&**own, &places, None),
            Some(made) => {
                let both = concat(&[&**made.column(shown + at), &**own])?;
                take(&*both, &places, None)
            }
        });
        Ok(columns.collect::<Result<_, ArrowError>>()?)
    }

    /// These rows, whose numbers ascend.
    fn take(&mut self, source: &dyn Source, wanted: &[usize]) -> Result<RecordBatch, AlignError> {
        let side = &self.side;
        let mut parts = Vec::new();
        let each = |batch: &RecordBatch, first: usize, rows: &[usize]| {
            let rows: UInt32Array = rows.iter().map(|row| Some((row - first) as u32)).collect();
            parts.push(take_record_batch(batch, &rows)?);
            Ok(())
        };
        let open = || side.batches(source);
        self.rows.visit(&open, wanted, each)?;
        let taken = concat_batches(side.table.schema(), &parts)?;
        if taken.num_rows() != wanted.len() {
            return Err(side.changed());
        }
        Ok(taken)
    }
}

impl Found {
    fn row(&self) -> Option<usize> {
        match self {
            Found::Row(row) => Some(*row),
            _ => None,
        }
    }
}

/// Interpolated rows.
#[derive(Default)]
struct InterpolatedRows {
    rows: Option<RecordBatch>,
    /// Their numbers, by the messages and the time that they are of.
    numbers: HashMap<([usize; 2], i64), u32>,
}

/// Interpolates between two messages.
struct Between {
    payloads: RowWindow<Vec<Bytes>>,
    channel: Arc<Channel>,
    decoder: Decoder,
}

impl Between {
    /// `None` where messages do not correspond to rows: some could not be decoded, or have another type.
    fn new(
        side: &Side,
        source: &dyn Source,
        rows: usize,
        most_bytes: usize,
    ) -> Result<Option<Self>, AlignError> {
        let (channel, decoder) = side.table.decoder(source)?;
        let pieces = side.payloads(source, &channel)?;
        let payloads = RowWindow::read(pieces, most_bytes, |_, _| ())?;
        Ok((payloads.rows() == rows).then_some(Between {
            payloads,
            channel,
            decoder,
        }))
    }

    /// Makes the rows that lie between two messages.
    fn make(
        &mut self,
        side: &Side,
        source: &dyn Source,
        times: &[i64],
        found: &[Found],
    ) -> Result<InterpolatedRows, AlignError> {
        let pairs = found
            .iter()
            .zip(times)
            .filter_map(|(found, time)| match found {
                Found::Pair(pair, fraction, _) => Some((*pair, *time, *fraction)),
                _ => None,
            });
        let pairs: Vec<([usize; 2], i64, f64)> = pairs.collect();
        let mut wanted: Vec<usize> = pairs.iter().flat_map(|(pair, ..)| *pair).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut payloads: HashMap<usize, Bytes> = HashMap::with_capacity(wanted.len());
        let each = |piece: &Vec<Bytes>, first: usize, rows: &[usize]| {
            payloads.extend(rows.iter().map(|row| (*row, piece[row - first].clone())));
            Ok(())
        };
        let open = || side.payloads(source, &self.channel);
        self.payloads.visit(&open, &wanted, each)?;
        let mut made = InterpolatedRows::default();
        for (pair, time, fraction) in pairs {
            let (Some(before), Some(after)) = (payloads.get(&pair[0]), payloads.get(&pair[1]))
            else {
                return Err(side.changed());
            };
            let number = made.numbers.len() as u32;
            if made.numbers.contains_key(&(pair, time)) {
                continue;
            }
            let at = Stamp::from_nanos(time);
            let is_made = self
                .decoder
                .append_between((at, at), (before, after), fraction);
            if is_made.unwrap_or(false) {
                made.numbers.insert((pair, time), number);
            }
        }
        let rows = self.decoder.take()?;
        made.rows = rows.map(|rows| side.table.select(&rows)).transpose()?;
        Ok(made)
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
pub(crate) fn range_of(
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
