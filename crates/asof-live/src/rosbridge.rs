//! The rosbridge protocol (version 2) as text and bytes, without a socket.
//!
//! Messages are JSON with an `op`, or CBOR of the same shape. With the compression `cbor-raw` a message has the bytes
//! of the robot's own wire format and the server's time; with `cbor` or without compression it has values. Fragments
//! and PNG are accepted, but never requested.

mod cbor;
mod fragments;
mod picture;

use asof_core::Stamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

pub use fragments::{FragmentError, Fragments};

/// A server's message.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A message of a topic.
    Publish {
        /// The topic.
        topic: String,
        /// The message.
        body: Body,
    },
    /// The response of a service.
    ServiceResponse {
        /// The id of the call.
        id: String,
        /// The response, or the error.
        values: Value,
        /// Whether the call succeeded.
        is_success: bool,
    },
    /// A fragment of a long message.
    Fragment {
        /// The id of the message.
        id: String,
        /// The text.
        data: String,
        /// The fragment's number, from 0.
        number: usize,
        /// The number of fragments.
        total: usize,
    },
    /// A status for the user.
    Status {
        /// `error`, `warning`, `info`, `none`.
        level: String,
        /// The text.
        message: String,
    },
    /// Anything else.
    Other,
}

/// A message, in the form that the server sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// In the robot's own wire format.
    Raw {
        /// The encoded message.
        bytes: Vec<u8>,
        /// The server's time.
        time: Option<Stamp>,
    },
    /// Decoded fields.
    Values(Value),
}

/// Why text or bytes are not a valid message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RosbridgeError {
    /// The text is not JSON, or its JSON has an unexpected shape.
    #[error("not a rosbridge message: {0}")]
    Text(#[from] serde_json::Error),
    /// The bytes are not CBOR, or their CBOR has an unexpected shape.
    #[error("not a rosbridge message in CBOR: {0}")]
    Cbor(String),
    /// A PNG does not hold text.
    #[error("a message in a PNG cannot be decoded: {0}")]
    Png(String),
}

/// The most levels of messages within messages: a PNG may hold a fragment, and vice versa.
const MAX_NESTING: usize = 4;
/// The largest decoded PNG, in bytes.
const MOST_PNG: usize = 256 << 20;

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Text {
    Publish {
        topic: String,
        msg: Value,
    },
    ServiceResponse {
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        values: Value,
        #[serde(default = "succeeded")]
        result: bool,
    },
    Fragment {
        #[serde(default)]
        id: Value,
        data: String,
        num: usize,
        total: usize,
    },
    Png {
        data: String,
    },
    Status {
        #[serde(default)]
        level: String,
        #[serde(default)]
        msg: String,
    },
    #[serde(other)]
    Other,
}

fn succeeded() -> bool {
    true
}

impl Incoming {
    /// Parses a text message.
    ///
    /// # Errors
    /// When it is not JSON, or a known `op` has an unexpected shape.
    pub fn parse(text: &str) -> Result<Self, RosbridgeError> {
        Self::parse_within(text, 0)
    }

    /// Parses a binary message.
    ///
    /// # Errors
    /// When it is not CBOR, or a known `op` has an unexpected shape.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, RosbridgeError> {
        cbor::parse(bytes)
    }

    fn parse_within(text: &str, depth: usize) -> Result<Self, RosbridgeError> {
        Ok(match serde_json::from_str(text)? {
            Text::Publish { topic, msg } => Incoming::Publish {
                topic,
                body: Body::Values(msg),
            },
            Text::ServiceResponse { id, values, result } => Incoming::ServiceResponse {
                id: id.unwrap_or_default(),
                values,
                is_success: result,
            },
            Text::Fragment {
                id,
                data,
                num,
                total,
            } => Incoming::Fragment {
                id: id.as_str().map_or_else(|| id.to_string(), str::to_owned),
                data,
                number: num,
                total,
            },
            Text::Png { data } => {
                if depth >= MAX_NESTING {
                    return Err(RosbridgeError::Png("it is nested too deeply".into()));
                }
                return Self::parse_within(&text_in_png(&data)?, depth + 1);
            }
            Text::Status { level, msg } => Incoming::Status {
                level,
                message: msg,
            },
            Text::Other => Incoming::Other,
        })
    }
}

/// Subscribes to a topic, in the robot's own wire format where the server supports it.
pub fn subscribe(id: &str, topic: &str, type_name: &str) -> String {
    json!({
        "op": "subscribe", "id": id, "topic": topic, "type": type_name, "compression": "cbor-raw",
        "throttle_rate": 0, "queue_length": 0,
    })
    .to_string()
}

/// Unsubscribes from a topic.
pub fn unsubscribe(id: &str, topic: &str) -> String {
    json!({ "op": "unsubscribe", "id": id, "topic": topic }).to_string()
}

/// Calls a service without arguments.
pub fn call_service(id: &str, service: &str) -> String {
    json!({ "op": "call_service", "id": id, "service": service, "args": {} }).to_string()
}

/// Extracts the text that a server packed into the pixels of a PNG, padded with line ends.
fn text_in_png(data: &str) -> Result<String, RosbridgeError> {
    let wrong = |cause: &dyn std::fmt::Display| RosbridgeError::Png(cause.to_string());
    let file = STANDARD.decode(data).map_err(|cause| wrong(&cause))?;
    let pixels = picture::pixels(&file, MOST_PNG).map_err(|cause| wrong(&cause))?;
    let text = String::from_utf8(pixels).map_err(|cause| wrong(&cause))?;
    Ok(text.trim_end_matches(['\n', '\0', ' ']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As ROS 1 packs it, in one row of gray; and as ROS 2 does, in rows of colours.
    fn in_png(text: &str, channels: usize) -> String {
        let row = if channels == 1 { text.len() } else { 30 };
        let file = picture::tests::picture(text.as_bytes(), row, channels);
        STANDARD.encode(file)
    }

    #[test]
    fn a_message_of_values_is_read() {
        let text = r#"{"op":"publish","topic":"/chatter","msg":{"data":"hello"}}"#;
        let expected = Incoming::Publish {
            topic: "/chatter".to_owned(),
            body: Body::Values(json!({ "data": "hello" })),
        };
        assert_eq!(Incoming::parse(text).expect("read"), expected);
    }

    #[test]
    fn a_message_in_a_picture_is_the_message() {
        let text = r#"{"op":"publish","topic":"/chatter","msg":{"data":"hello"}}"#;
        let plain = Incoming::parse(text).expect("read");
        for channels in [1, 3] {
            let packed = json!({ "op": "png", "data": in_png(text, channels) }).to_string();
            assert_eq!(Incoming::parse(&packed).expect("read"), plain);
        }
        for wrong in ["", "AAAA", "no base64!"] {
            let packed = json!({ "op": "png", "data": wrong }).to_string();
            assert!(Incoming::parse(&packed).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pictures_within_pictures_end() {
        let mut text = r#"{"op":"status"}"#.to_owned();
        for _ in 0..=MAX_NESTING {
            let data = in_png(&text, 1);
            text = json!({ "op": "png", "data": data }).to_string();
        }
        let error = Incoming::parse(&text).expect_err("too deep").to_string();
        assert!(error.contains("nested too deeply"), "{error}");
    }

    #[test]
    fn answers_and_what_is_not_known_are_told_apart() {
        let text = r#"{"op":"service_response","id":"7","service":"/rosapi/topics","values":{"topics":[]},"result":true}"#;
        let answer = Incoming::parse(text).expect("read");
        assert!(matches!(
            answer,
            Incoming::ServiceResponse {
                is_success: true,
                ..
            }
        ));
        let newer = Incoming::parse(r#"{"op":"action_feedback"}"#);
        assert_eq!(newer.expect("read"), Incoming::Other);
        for wrong in [
            "",
            "{}",
            r#"{"op":"publish"}"#,
            r#"{"op":"fragment","data":1}"#,
        ] {
            assert!(Incoming::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = Incoming::parse(&text);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Incoming::parse_bytes(&bytes);
        }
    }
}
