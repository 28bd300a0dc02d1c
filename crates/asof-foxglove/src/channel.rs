//! Channels as they are advertised.

use std::sync::Arc;

use asof_core::{Channel, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::ProtocolError;

/// A channel as a server advertises it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Advertised {
    /// The server's identifier for it.
    pub id: u64,
    /// Its topic.
    pub topic: String,
    /// How its messages are encoded.
    pub encoding: String,
    /// The name of its type.
    #[serde(default)]
    pub schema_name: String,
    /// The schema: as text, or in base64 where it is binary.
    #[serde(default)]
    pub schema: String,
    /// The schema's encoding. Older servers omit it where it follows from the message encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_encoding: Option<String>,
}

/// Schema encodings that are binary.
const BINARY: [&str; 2] = ["protobuf", "flatbuffer"];

impl Advertised {
    /// Converts it to a channel of a recording.
    ///
    /// # Errors
    /// When its schema should be base64 and is not.
    pub fn to_channel(&self) -> Result<Channel, ProtocolError> {
        let encoding = match self.schema_encoding.as_deref() {
            Some(encoding) if !encoding.is_empty() => encoding,
            _ => language_of(&self.encoding),
        };
        let is_binary = BINARY.contains(&encoding);
        let data = if is_binary {
            let decoded = STANDARD.decode(self.schema.trim());
            decoded.map_err(|cause| ProtocolError::Schema {
                id: self.id,
                topic: self.topic.clone(),
                cause,
            })?
        } else {
            self.schema.clone().into_bytes()
        };
        // A type may have a name without a definition; without either there is no schema.
        let has_schema = !self.schema_name.is_empty() || !data.is_empty();
        let encoding = if data.is_empty() { "" } else { encoding };
        let schema = Schema {
            name: self.schema_name.clone(),
            encoding: encoding.to_owned(),
            data: data.into(),
        };
        Ok(Channel {
            topic: self.topic.clone(),
            message_encoding: self.encoding.clone(),
            schema: has_schema.then(|| Arc::new(schema)),
            ..Channel::default()
        })
    }
}

/// The advertisement of a channel, under a topic name and an identifier.
pub fn advertised(id: u64, topic: &str, channel: &Channel) -> Advertised {
    let any = Schema {
        encoding: "jsonschema".to_owned(),
        data: "{\"type\":\"object\"}".into(),
        ..Schema::default()
    };
    let schema = match channel.schema.as_deref() {
        Some(schema) if !schema.data.is_empty() => schema,
        // JSON is self-describing, but viewers expect a schema.
        _ if channel.message_encoding == "json" => &any,
        Some(schema) => schema,
        None => &any,
    };
    let text = match (schema.encoding.as_str(), std::str::from_utf8(&schema.data)) {
        (encoding, _) if BINARY.contains(&encoding) => STANDARD.encode(&schema.data),
        (_, Err(_)) => STANDARD.encode(&schema.data),
        (_, Ok(text)) => text.to_owned(),
    };
    Advertised {
        id,
        topic: topic.to_owned(),
        encoding: channel.message_encoding.clone(),
        schema_name: channel.type_name().to_owned(),
        schema: text,
        schema_encoding: Some(schema.encoding.clone()),
    }
}

/// The schema encoding that belongs to a message encoding.
fn language_of(encoding: &str) -> &str {
    match encoding {
        "json" => "jsonschema",
        "ros1" => "ros1msg",
        "cdr" => "ros2msg",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(encoding: &str, language: &str, data: &[u8]) -> Channel {
        Channel {
            topic: "/t".to_owned(),
            message_encoding: encoding.to_owned(),
            schema: Some(Arc::new(Schema {
                name: "a/B".to_owned(),
                encoding: language.to_owned(),
                data: data.to_vec().into(),
            })),
            ..Channel::default()
        }
    }

    #[test]
    fn every_schema_language_comes_back_as_it_was() {
        let all = [
            ("cdr", "ros2msg", &b"float64 x"[..]),
            ("ros1", "ros1msg", b"float64 x"),
            ("json", "jsonschema", b"{}"),
            ("protobuf", "protobuf", b"\x0a\xff\x00"),
            ("flatbuffer", "flatbuffer", b"\x00\x01\xfe"),
            ("cdr", "ros2idl", b"module a {};"),
            ("cdr", "omgidl", b"module a {};"),
        ];
        for (encoding, language, data) in all {
            let known = channel(encoding, language, data);
            let back = advertised(3, "/t", &known).to_channel().expect("read");
            assert_eq!(back, known, "{language}");
        }
    }

    #[test]
    fn an_older_server_leaves_the_language_out() {
        let mut told = advertised(3, "/t", &channel("ros1", "ros1msg", b"float64 x"));
        told.schema_encoding = None;
        let schema = told.to_channel().expect("read").schema.expect("one");
        assert_eq!(schema.encoding, "ros1msg");
    }

    #[test]
    fn a_binary_schema_that_is_not_base64_is_named_with_its_channel() {
        let mut told = advertised(3, "/t", &channel("protobuf", "protobuf", b"\x0a"));
        told.schema = "no base64!".to_owned();
        let error = told.to_channel().expect_err("not base64").to_string();
        assert!(error.contains("channel 3 ('/t')"), "{error}");
    }

    #[test]
    fn a_channel_without_a_type_has_no_schema() {
        let told = Advertised {
            id: 1,
            topic: "/raw".to_owned(),
            encoding: "x".to_owned(),
            schema_name: String::new(),
            schema: String::new(),
            schema_encoding: None,
        };
        assert_eq!(told.to_channel().expect("read").schema, None);
    }
}
