//! What a message is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Where messages of one kind come from: a topic, and how to read what is on it.
///
/// Shared by [`Arc`]. Two channels may carry the same topic, with different schemas or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Channel {
    /// The name that people know it by, such as `/scan`.
    pub topic: String,
    /// How a payload is encoded: `cdr`, `ros1`, `protobuf`, `json`, … Empty when nobody said.
    pub message_encoding: String,
    /// What a payload means; `None` for a channel without a schema.
    pub schema: Option<Arc<Schema>>,
    /// Whatever else the writer had to say, such as `offered_qos_profiles`.
    pub metadata: BTreeMap<String, String>,
}

impl Channel {
    /// The name of the message type, or an empty string where there is no schema.
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
