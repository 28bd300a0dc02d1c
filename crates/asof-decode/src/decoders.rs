//! Decodes messages of many channels, with one decoder per channel.

use std::fmt;
use std::sync::Arc;

use asof_core::{Channel, Message, MessageRef, Schema, Stamp};
use rustc_hash::FxHashMap;

use crate::error::DecodeError;
use crate::layers::{Layers, Table};
use crate::schema::shape::Inference;
use crate::survey::is_open;
use crate::tables::columns_of;
use crate::wire::json::add_sample;
use crate::{Decoder, Payload, Projection, Record, SchemaError, Survey};

/// One value per channel, created when its first message comes.
///
/// Channels are identified by address, so that a lookup does not compare schemas; each channel is kept alive with its
/// value, so that its address is not reused.
pub struct ByChannel<T> {
    known: FxHashMap<usize, (Arc<Channel>, T)>,
    most: usize,
}

/// How many channels are remembered by default.
const MOST_CHANNELS: usize = 4096;

impl<T> Default for ByChannel<T> {
    fn default() -> Self {
        ByChannel::with_most(MOST_CHANNELS)
    }
}

impl<T> fmt::Debug for ByChannel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByChannel({} channels)", self.known.len())
    }
}

impl<T> ByChannel<T> {
    /// Remembers this many channels; when there is one more, all are discarded and created again.
    pub fn with_most(most: usize) -> Self {
        ByChannel {
            known: FxHashMap::default(),
            most,
        }
    }

    /// The value of a channel, created with `make` if there is none.
    pub fn get(&mut self, channel: &Arc<Channel>, make: impl FnOnce() -> T) -> &mut T {
        let key = Arc::as_ptr(channel) as usize;
        if self.known.len() >= self.most && !self.known.contains_key(&key) {
            self.known.clear();
        }
        let entry = self.known.entry(key);
        &mut entry.or_insert_with(|| (Arc::clone(channel), make())).1
    }

    /// Every channel with its value, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Channel>, &T)> {
        self.known.values().map(|(channel, value)| (channel, value))
    }
}

/// One value for all channels with the same definition; channels without one, and those of JSON or CBOR, have one each.
struct BySchema<T> {
    /// By channel.
    places: ByChannel<usize>,
    /// By the address of the schema, which is kept so that its address is not reused.
    known: FxHashMap<usize, Vec<(Arc<Schema>, String, usize)>>,
    values: Vec<Made<T>>,
    /// The columns of all of them, with those within others.
    columns: usize,
}

/// A value, its columns, and the state of the types that it was made of.
struct Made<T> {
    value: T,
    columns: usize,
    state: State,
}

/// Which inference, and how often its types have changed; nothing else where there is a schema.
type State = Option<(usize, usize)>;

/// When values have more columns than this, all are discarded and created again.
const MOST_COLUMNS: usize = 500_000;

impl<T> Default for BySchema<T> {
    fn default() -> Self {
        BySchema {
            places: ByChannel::default(),
            known: FxHashMap::default(),
            values: Vec::new(),
            columns: 0,
        }
    }
}

impl<T> BySchema<T> {
    /// The value of a channel; `make` creates it, and counts its columns. Another state of its types asks for another value.
    fn get(
        &mut self,
        channel: &Arc<Channel>,
        state: State,
        mut make: impl FnMut() -> (T, usize),
    ) -> &mut T {
        if self.values.len() >= MOST_CHANNELS || self.columns > MOST_COLUMNS {
            *self = BySchema::default();
        }
        let BySchema {
            places,
            known,
            values,
            columns,
        } = self;
        let place = *places.get(channel, || {
            let schema = channel.schema.as_ref();
            let encoding = &channel.message_encoding;
            // Types that a schema leaves open are those of the channel's own messages.
            let is_open = matches!(encoding.as_str(), "json" | "cbor");
            let schema = schema.filter(|schema| !schema.data.is_empty() && !is_open);
            let mut alike =
                schema.map(|schema| known.entry(Arc::as_ptr(schema) as usize).or_default());
            let mut same = alike.iter().flat_map(|alike| alike.iter());
            if let Some((_, _, place)) = same.find(|(_, known, _)| known == encoding) {
                return *place;
            }
            let (value, count) = make();
            *columns += count;
            values.push(Made {
                value,
                columns: count,
                state,
            });
            let place = values.len() - 1;
            if let (Some(alike), Some(schema)) = (&mut alike, schema) {
                alike.push((Arc::clone(schema), encoding.clone(), place));
            }
            place
        });
        let made = &mut values[place];
        if made.state != state {
            let (value, count) = make();
            *columns = (*columns - made.columns).saturating_add(count);
            *made = Made {
                value,
                columns: count,
                state,
            };
        }
        &mut made.value
    }
}

/// Decodes messages of any number of channels, and counts those that cannot be decoded.
///
/// ```
/// use asof_core::{Batch, Channel, Message, Stamp};
/// use asof_decode::Decoders;
///
/// let channel = Channel {
///     topic: "/battery".into(),
///     message_encoding: "json".into(),
///     ..Channel::default()
/// };
/// let message = Message {
///     channel: channel.into(),
///     log_time: Stamp::EPOCH,
///     publish_time: Stamp::EPOCH,
///     sequence: 0,
///     payload: br#"{"cells":[3.9,4.1]}"#[..].into(),
/// };
/// let mut decoders = Decoders::default();
/// assert_eq!(decoders.record(&message)?.number("cells[1]"), Some(4.1));
/// assert_eq!(decoders.failures().count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Decoders {
    projection: Projection,
    survey: Survey,
    /// What the messages so far show of channels without a schema; of others nothing.
    shown: Shown,
    is_fixed: bool,
    fields: BySchema<Result<Decoder, SchemaError>>,
    meanings: BySchema<Result<Box<dyn Table>, SchemaError>>,
    failures: FxHashMap<usize, ChannelFailures>,
    /// Failures of channels that are no longer remembered.
    other_failures: u64,
}

/// The messages of one channel that could not be decoded.
#[derive(Debug, Clone)]
pub struct ChannelFailures {
    /// The channel.
    pub channel: Arc<Channel>,
    /// Their number.
    pub count: u64,
    /// The log time of the first.
    pub first_at: Stamp,
    /// Why the first could not be decoded.
    pub first: DecodeError,
}

impl Decoders {
    /// Decodes these fields of each message.
    pub fn new(projection: Projection) -> Self {
        Decoders {
            projection,
            ..Decoders::default()
        }
    }

    /// The same, with the types that a survey found for channels without a schema.
    #[must_use]
    pub fn with_survey(self, survey: Survey) -> Self {
        Decoders { survey, ..self }
    }

    /// The same, whose columns stay those of a channel's first message where there is no schema: for a table whose header is
    /// written. What does not fit is in the column of all that has none.
    #[must_use]
    pub fn with_fixed_columns(self) -> Self {
        let is_fixed = true;
        Decoders { is_fixed, ..self }
    }

    /// The decoder of a channel for these payloads; only channels without a schema look at them. The types of their fields
    /// widen with each: 0 may be followed by 0.5.
    ///
    /// # Errors
    /// When none can be created; it is not tried again.
    pub fn of(
        &mut self,
        channel: &Arc<Channel>,
        samples: &[&[u8]],
    ) -> Result<&mut Decoder, SchemaError> {
        let (projection, survey) = (&self.projection, &self.survey);
        let (state, shown) = self.shown.with(channel, samples, survey, self.is_fixed);
        let decoder = self.fields.get(channel, state, || {
            let made = with_samples(channel, samples, survey, shown, |samples| {
                Decoder::new(channel, projection, samples)
            });
            let columns = made.as_ref().map_or(0, Decoder::columns);
            (made, columns)
        });
        decoder.as_mut().map_err(|error| error.clone())
    }

    /// Writes a message as a JSON object; nothing is written where that fails.
    ///
    /// # Errors
    /// When it cannot be decoded; it is counted among the [`failures`](Self::failures).
    pub fn write_json(
        &mut self,
        message: MessageRef<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        self.with(message, |decoder| decoder.write_json(message.payload, out))
    }

    /// Passes on the text of each column that a message is spread over, as [`Decoder::cells`].
    ///
    /// # Errors
    /// When it cannot be decoded; it is counted among the [`failures`](Self::failures).
    pub fn cells(
        &mut self,
        message: MessageRef<'_>,
        each: impl FnMut(Option<&str>),
    ) -> Result<(), DecodeError> {
        self.with(message, |decoder| decoder.cells(message.payload, each))
    }

    /// A message's stamp: when it was measured. `None` where it has none.
    ///
    /// # Errors
    /// When it cannot be decoded; it is counted among the [`failures`](Self::failures).
    pub fn stamp(&mut self, message: MessageRef<'_>) -> Result<Option<Stamp>, DecodeError> {
        // A decoder for stamps only refuses a type that has none.
        if let Err(SchemaError::NoSuchField { .. }) = self.of(message.channel, &[message.payload]) {
            return Ok(None);
        }
        self.with(message, |decoder| decoder.stamp(message.payload))
    }

    /// Writes a message interpolated `part` of the way from one to the next, as [`Decoder::write_json_between`].
    /// `false` where they cannot be interpolated, or one of them cannot be decoded.
    pub fn write_json_between(
        &mut self,
        before: MessageRef<'_>,
        after: MessageRef<'_>,
        part: f64,
        out: &mut Vec<u8>,
    ) -> bool {
        let pair = (before.payload, after.payload);
        Arc::ptr_eq(before.channel, after.channel)
            && self
                .of(before.channel, &[before.payload])
                .is_ok_and(|decoder| decoder.write_json_between(pair, part, out).unwrap_or(false))
    }

    /// A message's own fields, to be read by path.
    ///
    /// # Errors
    /// When it cannot be decoded; it is counted among the [`failures`](Self::failures).
    pub fn record(&mut self, message: &Message) -> Result<Record, DecodeError> {
        let decoder = self.of(&message.channel, &[&message.payload]);
        let record = match decoder {
            Ok(decoder) => row_of(decoder, message),
            Err(error) => Err(error.into()),
        };
        record.inspect_err(|error| self.count(&message.channel, message.log_time, error))
    }

    /// A message's [`Archetype`](crate::Archetype), to be read by its columns, which are the same for ROS and
    /// Foxglove; the message's own fields where its type has no archetype.
    ///
    /// # Errors
    /// When it cannot be decoded; it is counted among the [`failures`](Self::failures).
    pub fn meaning(&mut self, message: &Message) -> Result<Record, DecodeError> {
        let channel = &message.channel;
        let samples: &[&[u8]] = &[&message.payload];
        let (state, shown) = (self.shown).with(channel, samples, &self.survey, self.is_fixed);
        let table = self.meanings.get(channel, state, || {
            let made = with_samples(channel, samples, &self.survey, shown, |samples| {
                let layers = Layers::standard().without("raw");
                let (_, table) = layers.assign(channel, &Projection::All, samples);
                // Reflection had the reason, in a type that the layers do not pass on.
                table.ok_or_else(|| {
                    Decoder::new(channel, &Projection::All, samples)
                        .err()
                        .unwrap_or_else(|| SchemaError::NoDefinition {
                            name: channel.type_name().to_owned(),
                        })
                })
            });
            let table = made.as_ref().ok();
            let columns = table.map_or(0, |table| columns_of(table.schema().fields()));
            (made, columns)
        });
        let record = match table {
            Ok(table) => row_of(&mut **table, message),
            Err(error) => Err(error.clone().into()),
        };
        record.inspect_err(|error| self.count(channel, message.log_time, error))
    }

    /// Decoding failures by channel, in no particular order.
    pub fn failures(&self) -> impl Iterator<Item = &ChannelFailures> {
        self.failures.values()
    }

    /// The number of messages that could not be decoded, on all channels together.
    pub fn failed(&self) -> u64 {
        let counts = self.failures.values().map(|failures| failures.count);
        counts.sum::<u64>() + self.other_failures
    }

    fn with<T>(
        &mut self,
        message: MessageRef<'_>,
        work: impl FnOnce(&mut Decoder) -> Result<T, crate::PayloadError>,
    ) -> Result<T, DecodeError> {
        let result = match self.of(message.channel, &[message.payload]) {
            Ok(decoder) => work(decoder).map_err(DecodeError::from),
            Err(error) => Err(error.into()),
        };
        result.inspect_err(|error| self.count(message.channel, message.log_time, error))
    }

    fn count(&mut self, channel: &Arc<Channel>, at: Stamp, error: &DecodeError) {
        let key = Arc::as_ptr(channel) as usize;
        if self.failures.len() >= MOST_CHANNELS && !self.failures.contains_key(&key) {
            self.other_failures += 1;
            return;
        }
        let failures = self.failures.entry(key).or_insert_with(|| ChannelFailures {
            channel: Arc::clone(channel),
            count: 0,
            first_at: at,
            first: error.clone(),
        });
        failures.count += 1;
    }
}

/// What messages so far show of channels without a schema; of others nothing.
#[derive(Default)]
struct Shown {
    by_channel: ByChannel<Option<(usize, Inference)>>,
    made: usize,
}

impl Shown {
    /// Widens a channel's types by these messages, where neither a schema nor a survey has them.
    fn with(
        &mut self,
        channel: &Arc<Channel>,
        samples: &[&[u8]],
        survey: &Survey,
        is_fixed: bool,
    ) -> (State, Option<&Inference>) {
        let made = &mut self.made;
        let shown = self.by_channel.get(channel, || {
            let is_open = !is_fixed && is_open(channel) && survey.samples(channel).is_none();
            *made += 1;
            is_open.then(|| (*made, Inference::default()))
        });
        let Some((number, types)) = shown else {
            return (None, None);
        };
        for sample in samples {
            add_sample(types, sample, channel.message_encoding == "cbor");
        }
        (Some((*number, types.changes())), Some(types))
    }
}

/// Makes something of messages that show a channel's types: those of a survey, or what was shown so far, or these.
fn with_samples<T>(
    channel: &Channel,
    samples: &[&[u8]],
    survey: &Survey,
    shown: Option<&Inference>,
    make: impl FnOnce(&[&[u8]]) -> T,
) -> T {
    if let Some(types) = shown {
        return make(&types.witnesses().each_ref().map(Vec::as_slice));
    }
    match survey.samples(channel) {
        Some(surveyed) => make(&surveyed),
        None => make(samples),
    }
}

/// One message as a row.
fn row_of(table: &mut (impl Table + ?Sized), message: &Message) -> Result<Record, DecodeError> {
    let payload = Payload {
        bytes: &message.payload,
        owner: Some((&message.payload, 0)),
    };
    let mut failure = None;
    table.append(
        &[(message.log_time, message.publish_time, payload)],
        &mut |_, error| failure = Some(error),
    );
    let batch = table
        .take()
        .map_err(|error| DecodeError::Table(error.to_string()))?;
    match (batch, failure) {
        (_, Some(failure)) => Err(failure.into()),
        (Some(batch), None) => Ok(Record::new(batch)),
        (None, None) => Err(DecodeError::Table("the message has no rows".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(topic: &str, encoding: &str) -> Arc<Channel> {
        Arc::new(Channel {
            topic: topic.into(),
            message_encoding: encoding.into(),
            ..Channel::default()
        })
    }

    fn message(channel: &Arc<Channel>, payload: &'static [u8]) -> Message {
        Message {
            channel: Arc::clone(channel),
            log_time: Stamp::from_nanos(7),
            publish_time: Stamp::EPOCH,
            sequence: 0,
            payload: payload.into(),
        }
    }

    #[test]
    fn more_channels_than_are_remembered_are_made_anew() {
        let mut values = ByChannel::with_most(2);
        let channels: Vec<_> = ["/a", "/b", "/c"].map(|t| channel(t, "json")).to_vec();
        let mut made = 0;
        for channel in channels.iter().chain(&channels) {
            values.get(channel, || made += 1);
            assert!(values.iter().count() <= 2);
        }
        assert!(made > 3);
    }

    #[test]
    fn values_with_more_columns_than_are_kept_are_made_anew() {
        let mut values = BySchema::default();
        let channels = ["/a", "/b", "/c"].map(|topic| channel(topic, "json"));
        let mut made = 0;
        for channel in channels.iter().chain(&channels) {
            values.get(channel, None, || {
                made += 1;
                ((), MOST_COLUMNS / 2 + 1)
            });
            assert!(values.values.len() <= 2);
        }
        assert_eq!(made, 6);
    }

    #[test]
    fn without_a_schema_the_fields_are_those_of_all_messages_so_far() {
        let mut decoders = Decoders::default();
        let channels = ["/a", "/b"].map(|topic| channel(topic, "json"));
        for channel in channels.iter().chain(&channels) {
            let texts: [(&[u8], _, _); 5] = [
                (br#"{"x":0}"#, Some(0.0), None),
                (br#"{"x":0.5}"#, Some(0.5), None),
                (br#"{"x":1,"late":7}"#, Some(1.0), Some(7.0)),
                (br#"{"late":-0.25}"#, None, Some(-0.25)),
                (b"2.5", None, None),
            ];
            for (text, x, late) in texts {
                let message = message(channel, text);
                let record = decoders.record(&message).expect("decoded");
                assert_eq!((record.number("x"), record.number("late")), (x, late));
                let record = decoders.meaning(&message).expect("decoded");
                assert_eq!((record.number("x"), record.number("late")), (x, late));
            }
        }
        let last = message(&channels[0], b"2.5");
        let record = decoders.record(&last).expect("decoded");
        assert_eq!(record.number("value"), Some(2.5));
        let mut fixed = Decoders::default().with_fixed_columns();
        let columns = |decoders: &mut Decoders, text| {
            let decoder = decoders.of(&channels[0], &[text]).expect("a decoder");
            decoder.columns()
        };
        let first = columns(&mut fixed, br#"{"x":0}"#);
        assert_eq!(columns(&mut fixed, br#"{"y":0.5,"z":1}"#), first);
        // A field that the first messages lack is found when it comes.
        let mut late = Decoders::new(Projection::paths(["late"]));
        assert!(late.of(&channels[0], &[br#"{"x":0}"#]).is_err());
        assert!(late.of(&channels[0], &[br#"{"late":0}"#]).is_ok());
    }

    #[test]
    fn what_cannot_be_decoded_is_counted_by_channel() {
        let mut decoders = Decoders::default();
        let (json, unknown) = (channel("/json", "json"), channel("/x", "abacus"));
        assert!(decoders.record(&message(&json, br#"{"a":1}"#)).is_ok());
        for _ in 0..2 {
            assert!(decoders.record(&message(&json, b"{")).is_err());
            assert!(decoders.meaning(&message(&unknown, b"{")).is_err());
        }
        assert_eq!(decoders.failed(), 4);
        let mut counts: Vec<_> = decoders
            .failures()
            .map(|failures| (failures.channel.topic.as_str(), failures.count))
            .collect();
        counts.sort_unstable();
        assert_eq!(counts, [("/json", 2), ("/x", 2)]);
    }
}
