//! Channels and their schemas.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A topic with the encoding and schema of its messages.
///
/// Shared by [`Arc`]. Two channels may have the same topic, with equal or different schemas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Channel {
    /// The topic's name, such as `/scan`.
    pub topic: String,
    /// How a payload is encoded: `cdr`, `ros1`, `protobuf`, `json`, … Empty when unknown.
    pub message_encoding: String,
    /// The type of the payloads; `None` for a channel without a schema.
    pub schema: Option<Arc<Schema>>,
    /// Everything else that the writer recorded, such as `offered_qos_profiles`.
    pub metadata: BTreeMap<String, String>,
}

impl Channel {
    /// The name of the message type; empty without a schema.
    pub fn type_name(&self) -> &str {
        self.schema.as_ref().map_or("", |schema| &schema.name)
    }
}

/// The definition of a message type, as its writer gave it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The type's name: `sensor_msgs/msg/LaserScan`.
    pub name: String,
    /// The language of the definition: `ros2msg`, `ros1msg`, `protobuf`, `jsonschema`, …
    pub encoding: String,
    /// The definition itself.
    pub data: Bytes,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Schema({}, {}, {} bytes)",
            self.name,
            self.encoding,
            self.data.len()
        )
    }
}
