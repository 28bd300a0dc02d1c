//! The columns of channels without a schema, inferred from all of their messages.

use asof_core::{Channel, Query, Source, SourceError, Topics};
use rustc_hash::FxHashMap;

use crate::decoders::ByChannel;
use crate::schema::jsonschema;
use crate::schema::shape::Inference;
use crate::wire::json::add_sample;

/// The types of fields in channels without a schema, found by reading all of their messages once.
///
/// JSON and CBOR need no schema; a column's type is then known only after the last message: 0 may be followed by 0.5.
/// Integers widen to floats, and values that no single type holds without loss stay JSON text. Channels with a schema
/// are not read.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// Two messages for each kind of channel, which together have everything that occurs in its messages.
    witnesses: FxHashMap<Key, [Vec<u8>; 2]>,
}

/// Channels of one topic with the same encoding share a table, so they share its types.
type Key = (String, String);

fn key_of(channel: &Channel) -> Key {
    (channel.topic.clone(), channel.message_encoding.clone())
}

impl Survey {
    /// Reads the messages of a query on the channels that need it. Nothing is read where none does.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn of(source: &dyn Source, query: &Query) -> Result<Self, SourceError> {
        let summary = source.summary();
        let channels = summary.channels.iter().map(|entry| &entry.channel);
        let topics: Vec<String> = channels
            .filter(|channel| query.topics.contains(&channel.topic) && is_open(channel))
            .map(|channel| channel.topic.clone())
            .collect();
        if topics.is_empty() {
            return Ok(Survey::default());
        }
        let query = Query {
            topics: Topics::named(topics),
            range: query.range,
        };
        let mut found: FxHashMap<Key, Inference> = FxHashMap::default();
        let mut open = ByChannel::default();
        for batch in source.read(&query)? {
            for message in batch?.iter() {
                let channel = message.channel;
                if *open.get(channel, || is_open(channel)) {
                    let inference = found.entry(key_of(message.channel)).or_default();
                    let is_cbor = message.channel.message_encoding == "cbor";
                    add_sample(inference, message.payload, is_cbor);
                }
            }
        }
        let witnesses = found.into_iter();
        Ok(Survey {
            witnesses: witnesses
                .map(|(key, inference)| (key, inference.witnesses()))
                .collect(),
        })
    }

    /// Whether the types of a channel's fields are known from its messages alone.
    pub fn is_needed(channel: &Channel) -> bool {
        is_open(channel)
    }

    /// Messages that show a channel's columns, to create a decoder from; `None` where it has a schema, or was not
    /// read.
    pub fn samples(&self, channel: &Channel) -> Option<[&[u8]; 2]> {
        if self.witnesses.is_empty() || !is_open(channel) {
            return None;
        }
        let [first, second] = self.witnesses.get(&key_of(channel))?;
        Some([first, second])
    }
}

/// Whether a channel's columns have to be inferred from its messages.
pub(crate) fn is_open(channel: &Channel) -> bool {
    if !matches!(channel.message_encoding.as_str(), "json" | "cbor") {
        return false;
    }
    match &channel.schema {
        None => true,
        Some(schema) => match schema.encoding.as_str() {
            "" => true,
            // A schema without fields is treated as no schema.
            "jsonschema" => jsonschema::parse(&schema.name, &schema.data)
                .is_ok_and(|types| types.root().fields.len() <= 1),
            _ => false,
        },
    }
}
