//! Channels as they are advertised.

use std::sync::Arc;

use asof_core::{Channel, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::ProtocolError;

/// A channel as a server offers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Advertised {
    /// The server's number for it.
    pub id: u64,
    /// Its topic.
    pub topic: String,
    /// How its messages are encoded.
    pub encoding: String,
    /// The name of its type.
    #[serde(default)]
    pub schema_name: String,
    /// Its type: as text, or in base64 where it is not text.
    #[serde(default)]
    pub schema: String,
    /// The language of its type; older servers leave out what follows from the encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_encoding: Option<String>,
}

/// Schema languages that are not text.
const BINARY: [&str; 2] = ["protobuf", "flatbuffer"];

impl Advertised {
    /// The channel as a recording would have it.
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
        // A type that is only named is named; one that is neither is none.
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

/// A channel as it is advertised, under a name and a number.
pub fn advertised(id: u64, topic: &str, channel: &Channel) -> Advertised {
    let any = Schema {
        encoding: "jsonschema".to_owned(),
        data: "{\"type\":\"object\"}".into(),
        ..Schema::default()
    };
    let schema = match channel.schema.as_deref() {
        Some(schema) if !schema.data.is_empty() => schema,
        // JSON describes itself, and viewers want to see a schema all the same.
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

/// The schema language that goes with a message encoding.
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
