//! rosbridge's protocol (version 2) as text and bytes, without a socket.
//!
//! JSON with an `op`, or CBOR of the same shape. With the compression `cbor-raw` a message is the bytes that were on the
//! robot's own wire, beside the server's time; with `cbor` or without compression it is values. Fragments and PNG are read,
//! where a server sends them, and never asked for.

mod cbor;
mod fragments;
mod picture;

use asof_core::Stamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

pub use fragments::{FragmentError, Fragments};

/// What a server says.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A message of a topic.
    Publish {
        /// The topic.
        topic: String,
        /// The message.
        body: Body,
    },
    /// The answer of a service.
    ServiceResponse {
        /// Which call it answers.
        id: String,
        /// The answer, or why there is none.
        values: Value,
        /// Whether the service answered.
        is_success: bool,
    },
    /// A part of something that is too long for one.
    Fragment {
        /// Of which.
        id: String,
        /// The text.
        data: String,
        /// Which part, from 0.
        number: usize,
        /// Of how many.
        total: usize,
    },
    /// Something for a person.
    Status {
        /// `error`, `warning`, `info`, `none`.
        level: String,
        /// What is said.
        message: String,
    },
    /// Anything else.
    Other,
}

/// A message, as the server could send it.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// As it was on the robot's own wire.
    Raw {
        /// The encoded message.
        bytes: Vec<u8>,
        /// The server's time.
        time: Option<Stamp>,
    },
    /// Decoded: its fields.
    Values(Value),
}

/// Why text or bytes are not of the protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RosbridgeError {
    /// The text is not JSON, or JSON of another shape.
    #[error("this is not a message of rosbridge: {0}")]
    Text(#[from] serde_json::Error),
    /// The bytes are not CBOR, or CBOR of another shape.
    #[error("this is not a message of rosbridge in CBOR: {0}")]
    Cbor(String),
    /// A picture that should hold text does not.
    #[error("a message in a PNG cannot be read: {0}")]
    Png(String),
}

/// Messages within messages that are looked into: a PNG may hold a fragment, and the other way round.
const MAX_NESTING: usize = 4;
/// The most bytes that a picture may become.
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
    /// Reads text.
    ///
    /// # Errors
    /// When it is not JSON, or an `op` that is known has another shape.
    pub fn parse(text: &str) -> Result<Self, RosbridgeError> {
        Self::parse_within(text, 0)
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// When they are not CBOR, or an `op` that is known has another shape.
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
                    return Err(RosbridgeError::Png("it is within too many others".into()));
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

/// Asks for the messages of a topic, as they are on the robot's own wire where the server can.
pub fn subscribe(id: &str, topic: &str, type_name: &str) -> String {
    json!({
        "op": "subscribe", "id": id, "topic": topic, "type": type_name, "compression": "cbor-raw",
        "throttle_rate": 0, "queue_length": 0,
    })
    .to_string()
}

/// Asks for no more of a topic.
pub fn unsubscribe(id: &str, topic: &str) -> String {
    json!({ "op": "unsubscribe", "id": id, "topic": topic }).to_string()
}

/// Calls a service without arguments.
pub fn call_service(id: &str, service: &str) -> String {
    json!({ "op": "call_service", "id": id, "service": service, "args": {} }).to_string()
}

/// Text that a server has packed into the pixels of a picture, padded with line ends.
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
        assert!(error.contains("too many"), "{error}");
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
