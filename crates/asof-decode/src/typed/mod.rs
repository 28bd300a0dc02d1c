//! Messages as Rust structs.

mod de;
mod error;

use std::marker::PhantomData;

use asof_core::{Channel, Query, Source, Stamp};
use serde::de::DeserializeOwned;

use crate::decoders::ByChannel;
use crate::survey::is_open;
use crate::wire::json::to_json;
use crate::{Decoder, Projection};

pub use de::bytes;
pub(crate) use de::{NodeReader, Probe};
pub use error::TypedError;

/// Decodes the messages of one channel into a struct with serde's `Deserialize`.
///
/// Name the fields that you want, as in the schema; others are not decoded. The struct is checked against the schema
/// when the decoder is created, whatever the encoding: the error names the field that does not fit. Numbers may be
/// wider than the schema's, arrays have its length, and a struct of numbers such as `{x, y, z}` may be read as an
/// array.
///
/// Only JSON and CBOR without a schema cannot be checked in advance: there, each message is checked.
///
/// ```
/// use asof_core::{Channel, Schema};
/// use asof_decode::TypedDecoder;
///
/// #[derive(serde::Deserialize)]
/// struct Battery {
///     percentage: f64,
///     name: String,
/// }
///
/// let schema = Schema {
///     name: "robot/msg/Battery".into(),
///     encoding: "ros2msg".into(),
///     data: "uint8 cells\nfloat32 percentage\nstring name\n".into(),
/// };
/// let channel = Channel {
///     topic: "/battery".into(),
///     message_encoding: "cdr".into(),
///     schema: Some(schema.into()),
///     ..Channel::default()
/// };
/// let mut batteries = TypedDecoder::<Battery>::new(&channel)?;
/// let battery = batteries.decode(b"\0\x01\0\0\x06\0\0\0\0\0\0\x3f\x05\0\0\0left\0")?;
/// assert_eq!((battery.percentage, battery.name.as_str()), (0.5, "left"));
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Wrong {
///     #[allow(dead_code)]
///     percentage: String,
/// }
/// let error = TypedDecoder::<Wrong>::new(&channel).err().expect("a number is not a text");
/// assert!(error.to_string().contains("'percentage'"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedDecoder<T> {
    how: How,
    of: PhantomData<fn() -> T>,
}

enum How {
    /// With a schema.
    Columns(Box<Decoder>),
    /// JSON as it is; CBOR is converted first.
    Text { is_cbor: bool },
}

impl<T: DeserializeOwned> TypedDecoder<T> {
    /// Creates a decoder for the messages of a channel.
    ///
    /// # Errors
    /// When the schema cannot be used, or a field of the struct does not fit it.
    pub fn new(channel: &Channel) -> Result<Self, TypedError> {
        let of = PhantomData;
        if is_open(channel) {
            let is_cbor = channel.message_encoding == "cbor";
            let how = How::Text { is_cbor };
            return Ok(TypedDecoder { how, of });
        }
        let whole = Decoder::new(channel, &Projection::All, &[])?;
        // JSON has one type of number: the reader decides what it is.
        let is_loose = matches!(channel.message_encoding.as_str(), "json" | "cbor");
        let probe = Probe::new(is_loose);
        let misfit = |fault: de::Fault| fault.of_type::<T>(channel);
        if let Err(fault) = T::deserialize(probe.root(whole.root()))
            && fault.is_of_types()
        {
            return Err(misfit(fault));
        }
        let decoder = match probe.projection() {
            // A struct that cannot be probed may need any field.
            None => whole,
            Some(projection) => Decoder::new(channel, &projection, &[]).unwrap_or(whole),
        };
        Ok(TypedDecoder {
            how: How::Columns(Box::new(decoder)),
            of,
        })
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// When the payload cannot be decoded, or a value does not fit its field, such as 300 into a `u8`; the error names
    /// the field.
    pub fn decode(&mut self, payload: &[u8]) -> Result<T, TypedError> {
        match &mut self.how {
            How::Text { is_cbor } => {
                let text = to_json(payload, *is_cbor)?;
                serde_json::from_slice(&text).map_err(|error| TypedError::Value {
                    path: String::new(),
                    reason: error.to_string(),
                })
            }
            How::Columns(decoder) => {
                let mut found = None;
                decoder.with_row(payload, |root, columns, row, shown| {
                    found = Some(T::deserialize(NodeReader::row(root, columns, row, shown)));
                })?;
                match found {
                    Some(value) => value.map_err(de::Fault::of_value),
                    None => Err(TypedError::Value {
                        path: String::new(),
                        reason: "nothing was decoded".to_owned(),
                    }),
                }
            }
        }
    }
}

/// A decoded message with its times.
#[derive(Debug, Clone, PartialEq)]
pub struct StampedMessage<T> {
    /// When it was recorded.
    pub log_time: Stamp,
    /// When it was published, by the publisher's clock.
    pub publish_time: Stamp,
    /// The message.
    pub message: T,
}

/// Iterates over the messages of a query as structs, in order of log time.
///
/// Every channel of the query that the source lists is checked before the first message is read.
///
/// # Errors
/// When the source cannot be read, has no such topic, or a channel's schema does not fit the struct.
pub fn messages<T: DeserializeOwned>(
    source: &dyn Source,
    query: &Query,
) -> Result<Messages<T>, TypedError> {
    let summary = source.summary();
    let mut decoders: ByChannel<Result<TypedDecoder<T>, TypedError>> = ByChannel::default();
    let channels = summary.channels.iter().map(|entry| &entry.channel);
    for channel in channels.filter(|channel| query.topics.contains(&channel.topic)) {
        if let Err(error) = decoders.get(channel, || TypedDecoder::new(channel)) {
            return Err(error.clone());
        }
    }
    if let asof_core::Topics::Named(names) = &query.topics
        && !summary.channels.is_empty()
        && decoders.iter().next().is_none()
    {
        let topics: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        return Err(TypedError::NoSuchTopic {
            topics: topics.join(", "),
        });
    }
    Ok(Messages {
        batches: source.read(query)?,
        decoders,
        ready: Vec::new().into_iter(),
    })
}

/// An iterator over decoded messages, made by [`messages`]. A message that cannot be decoded is an error in its place,
/// and the iteration continues.
pub struct Messages<T> {
    batches: asof_core::Batches,
    decoders: ByChannel<Result<TypedDecoder<T>, TypedError>>,
    ready: std::vec::IntoIter<Result<StampedMessage<T>, TypedError>>,
}

impl<T: DeserializeOwned> Iterator for Messages<T> {
    type Item = Result<StampedMessage<T>, TypedError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(message) = self.ready.next() {
                return Some(message);
            }
            let batch = match self.batches.next()? {
                Ok(batch) => batch,
                Err(error) => return Some(Err(error.into())),
            };
            let decoders = &mut self.decoders;
            let messages = batch.iter().map(|message| {
                let channel = message.channel;
                let decoded = match decoders.get(channel, || TypedDecoder::new(channel)) {
                    Ok(decoder) => decoder.decode(message.payload),
                    Err(error) => Err(error.clone()),
                };
                decoded.map(|decoded| StampedMessage {
                    log_time: message.log_time,
                    publish_time: message.publish_time,
                    message: decoded,
                })
            });
            self.ready = messages.collect::<Vec<_>>().into_iter();
        }
    }
}
