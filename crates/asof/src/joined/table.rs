//! Joined rows in a table: Parquet or Arrow.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StructArray, TimestampNanosecondArray,
    UInt32Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::{concat::concat_batches, take::take};
use asof_core::{Channel, Message, Stamp};
use asof_decode::{Decoder, Projection, SchemaError};
use asof_window::sync::{AlignedRow, Match};

use super::{Item, Sink, nearer};
use crate::export::{BATCH_BYTES, Container, TableFile};
use crate::files::NewFile;
use crate::text::{counted, shown};
use crate::{Error, Progress};

/// At most this many rows are written together.
const BATCH_ROWS: usize = 4096;

/// One table row per joined row: `time`, the anchor's message as a struct, and for each other topic its offset and its
/// message.
///
/// The columns are those of the last message of each topic; messages of another type are null, and counted.
pub(super) struct JoinedTable {
    table: TableFile,
    schema: SchemaRef,
    /// The anchor, then the others.
    sides: Vec<Side>,
    times: Vec<i64>,
    early: Vec<bool>,
    /// Approximate size of the collected rows.
    bytes: usize,
}

struct Side {
    topic: String,
    channel: Option<Arc<Channel>>,
    /// `None` where none of its fields is shown.
    decoder: Option<Decoder>,
    fields: SchemaRef,
    /// The row of the last message, from the batch before.
    carried: Option<RecordBatch>,
    last: Option<(Item, Option<u32>)>,
    /// For each row, the index of its message among the decoded ones.
    places: Vec<Option<u32>>,
    offsets: Vec<Option<i64>>,
    decoded: u32,
    failed: u64,
    /// Without a decoder, the reason; `None` if none of its fields was requested.
    first_failure: Option<String>,
}

impl JoinedTable {
    /// Starts a table of topics, the anchor first, each with a message that shows its columns; only of these fields, if any are
    /// named. An existing file is replaced if `force` is set.
    pub(super) fn start(
        path: &Path,
        topics: Vec<(String, Option<Message>)>,
        paths: &[String],
        force: bool,
    ) -> Result<Self, Error> {
        let sides = topics.into_iter();
        let sides: Vec<Side> = sides
            .map(|(topic, sample)| Side::new(topic, sample, paths))
            .collect();
        let schema = schema_of(&sides);
        let new = NewFile::create(path, |_| force)?;
        let container = match path.extension().and_then(|text| text.to_str()) {
            Some("arrow") => Container::Arrow,
            _ => Container::Parquet,
        };
        let table = TableFile::start(new, path.to_owned(), &schema, container)?;
        Ok(JoinedTable {
            table,
            schema,
            sides,
            times: Vec::new(),
            early: Vec::new(),
            bytes: 0,
        })
    }

    fn write_batch(&mut self) -> Result<(), Error> {
        if self.times.is_empty() {
            return Ok(());
        }
        let times = TimestampNanosecondArray::from(std::mem::take(&mut self.times));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(times.with_timezone("UTC"))];
        for (number, side) in self.sides.iter_mut().enumerate() {
            let offsets = std::mem::take(&mut side.offsets);
            if number > 0 {
                columns.push(Arc::new(Int64Array::from(offsets)));
            }
            columns.extend(side.take()?);
        }
        let early = BooleanArray::from(std::mem::take(&mut self.early));
        columns.push(Arc::new(early));
        self.bytes = 0;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.table.write(batch)
    }
}

impl Sink for JoinedTable {
    fn write(&mut self, row: &AlignedRow<Item>) -> Result<(), Error> {
        let at = row.anchor.stamp;
        self.times.push(at.nanos());
        self.early.push(row.is_early);
        let (anchor, others) = self.sides.split_at_mut(1);
        self.bytes += anchor[0].put(&row.anchor.value, Some(0));
        for (side, found) in others.iter_mut().zip(&row.matches) {
            self.bytes += match found {
                Match::Missing(_) => side.put_nothing(),
                Match::Found(one) => side.put(&one.value, Some(one.stamp.since(at))),
                Match::Between {
                    before,
                    after,
                    fraction,
                } => {
                    let pair = (&before.value, &after.value);
                    if let Some(bytes) = side.put_between(pair, *fraction, at) {
                        bytes
                    } else {
                        let one = nearer(before, after, at);
                        side.put(&one.value, Some(one.stamp.since(at)))
                    }
                }
            };
        }
        if self.bytes >= BATCH_BYTES || self.times.len() >= BATCH_ROWS {
            self.write_batch()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        // The file appears when it is complete.
        Ok(())
    }

    fn finish(mut self: Box<Self>, progress: &Progress) -> Result<bool, Error> {
        self.write_batch()?;
        let JoinedTable { table, sides, .. } = *self;
        table.finish()?;
        let mut is_complete = true;
        for side in sides.iter().filter(|side| side.failed > 0) {
            is_complete = false;
            progress.warning(format_args!(
                "{} on {} not decoded; the first: {}",
                counted(side.failed, "message"),
                shown(&side.topic),
                shown(side.first_failure.as_deref().unwrap_or_default())
            ));
        }
        Ok(is_complete)
    }
}

impl Side {
    fn new(topic: String, sample: Option<Message>, paths: &[String]) -> Self {
        let projection = match paths {
            [] => Projection::All,
            paths => Projection::any_of(paths),
        };
        let made = sample.as_ref().map(|message| {
            let samples: [&[u8]; 1] = [&message.payload];
            Decoder::new(&message.channel, &projection, &samples)
        });
        let (decoder, failure) = match made {
            Some(Ok(decoder)) => (Some(decoder), None),
            Some(Err(SchemaError::NoSuchField { .. })) | None => (None, None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        let fields = decoder.as_ref().map(|decoder| Arc::clone(decoder.schema()));
        Side {
            topic,
            channel: sample.map(|message| message.channel),
            decoder,
            fields: fields.unwrap_or_else(|| Arc::new(Schema::empty())),
            carried: None,
            last: None,
            places: Vec::new(),
            offsets: Vec::new(),
            decoded: 0,
            failed: 0,
            first_failure: failure,
        }
    }

    fn put_nothing(&mut self) -> usize {
        self.places.push(None);
        self.offsets.push(None);
        16
    }

    /// Adds a message to the row; returns its approximate size in bytes.
    fn put(&mut self, item: &Item, offset: Option<i64>) -> usize {
        let place = match &self.last {
            Some((last, place)) if Arc::ptr_eq(last, item) => *place,
            _ => {
                let place = self.decode(item);
                self.last = Some((Arc::clone(item), place));
                place
            }
        };
        self.places.push(place);
        self.offsets.push(offset);
        item.payload.len() + 32
    }

    fn decode(&mut self, item: &Item) -> Option<u32> {
        let Some(decoder) = self.decoder.as_mut() else {
            self.failed += u64::from(self.first_failure.is_some());
            return None;
        };
        if !self
            .channel
            .as_ref()
            .is_some_and(|known| is_alike(known, &item.channel))
        {
            return self.placed(Some(
                "its type differs from that of the topic's last message".to_owned(),
            ));
        }
        let mut error = None;
        let payload: &[u8] = &item.payload;
        let run = [(item.log_time, item.publish_time, payload.into())];
        decoder.append(&run, |_, failure| error = Some(failure.to_string()));
        self.placed(error)
    }

    /// Adds an interpolated message; `None` if that is not possible.
    fn put_between(
        &mut self,
        (before, after): (&Item, &Item),
        part: f64,
        at: Stamp,
    ) -> Option<usize> {
        let decoder = self.decoder.as_mut()?;
        let known = self.channel.as_ref()?;
        if !is_alike(known, &before.channel) || !is_alike(known, &after.channel) {
            return None;
        }
        let pair: (&[u8], &[u8]) = (&before.payload, &after.payload);
        if !decoder
            .append_between((at, at), pair, part)
            .unwrap_or(false)
        {
            return None;
        }
        let place = self.placed(None);
        self.places.push(place);
        self.offsets.push(Some(0));
        self.last = None;
        Some(before.payload.len() + 32)
    }

    fn placed(&mut self, error: Option<String>) -> Option<u32> {
        if let Some(error) = error {
            self.failed += 1;
            self.first_failure.get_or_insert(error);
            return None;
        }
        let place = self.decoded;
        self.decoded += 1;
        Some(place)
    }

    /// The column of the collected rows; none if it would have no fields.
    fn take(&mut self) -> Result<Option<ArrayRef>, Error> {
        let places = std::mem::take(&mut self.places);
        self.decoded = 0;
        let Some(decoder) = &mut self.decoder else {
            return Ok(None);
        };
        let new = decoder.take()?;
        let known: Vec<RecordBatch> = self.carried.take().into_iter().chain(new).collect();
        let rows = concat_batches(&self.fields, &known)?;
        // What the next rows repeat is not decoded again.
        if let Some((_, Some(place))) = &mut self.last {
            self.carried = Some(rows.slice(*place as usize, 1));
            *place = 0;
            self.decoded = 1;
        }
        let rows: ArrayRef = Arc::new(StructArray::from(rows));
        let places = UInt32Array::from(places);
        if rows.is_empty() {
            let nothing = arrow_array::new_null_array(rows.data_type(), places.len());
            return Ok(Some(nothing));
        }
        Ok(Some(take(&rows, &places, None)?))
    }
}

/// Whether one decoder reads the messages of both.
fn is_alike(a: &Arc<Channel>, b: &Arc<Channel>) -> bool {
    Arc::ptr_eq(a, b) || (a.message_encoding == b.message_encoding && a.schema == b.schema)
}

fn schema_of(sides: &[Side]) -> SchemaRef {
    let mut names = BTreeSet::new();
    let mut unique = |name: String| {
        let mut free = name.clone();
        let mut numbers = 2..;
        while !names.insert(free.clone()) {
            free = format!("{name} {}", numbers.next().unwrap_or(u32::MAX));
        }
        free
    };
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let mut fields = vec![Field::new(unique("time".into()), time, false)];
    for (number, side) in sides.iter().enumerate() {
        if number > 0 {
            let name = unique(format!("{} offset", side.topic));
            fields.push(Field::new(name, DataType::Int64, true));
        }
        if side.decoder.is_some() {
            let kind = DataType::Struct(side.fields.fields().clone());
            fields.push(Field::new(unique(side.topic.clone()), kind, true));
        }
    }
    fields.push(Field::new(unique("early".into()), DataType::Boolean, false));
    Arc::new(Schema::new(fields))
}
