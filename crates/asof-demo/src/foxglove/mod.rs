//! The robot's messages in Foxglove's types, as protobuf and as JSON.

mod json;
mod protobuf;
mod record;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Channel, Schema, Stamp};
use bytes::Bytes;

use crate::readings::{Reading, Topic};

/// The channel of a topic, in protobuf.
pub(crate) fn protobuf_channel(topic: Topic) -> Channel {
    let kind = record::type_of(topic);
    let set = protobuf::descriptor_set(kind);
    channel(topic, "protobuf", "protobuf", kind.name, set.into())
}

/// The channel of a topic, in JSON.
pub(crate) fn json_channel(topic: Topic) -> Channel {
    let kind = record::type_of(topic);
    let schema = json::schema(kind);
    channel(topic, "json", "jsonschema", kind.name, schema.into())
}

/// One message in protobuf.
pub(crate) fn protobuf(stamp: Stamp, reading: &Reading) -> Bytes {
    protobuf::encode(&record::record(stamp, reading)).into()
}

/// One message in JSON.
pub(crate) fn json(stamp: Stamp, reading: &Reading) -> Bytes {
    json::encode(&record::record(stamp, reading)).into()
}

fn channel(topic: Topic, encoding: &str, language: &str, name: &str, data: Bytes) -> Channel {
    Channel {
        topic: topic.name().to_owned(),
        message_encoding: encoding.to_owned(),
        schema: Some(Arc::new(Schema {
            name: name.to_owned(),
            encoding: language.to_owned(),
            data,
        })),
        metadata: BTreeMap::new(),
    }
}

/// Whole seconds since 1970, and the nanoseconds after them.
fn seconds_and_nanos(stamp: Stamp) -> (i64, u32) {
    let second = 1_000_000_000;
    let nanos = stamp.nanos();
    (nanos.div_euclid(second), nanos.rem_euclid(second) as u32)
}
