//! Text messages: JSON with an `op`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Advertised, ProtocolError};

/// A server's text message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum ServerText {
    /// The server's name and capabilities; the first message on a connection.
    ServerInfo(ServerInfo),
    /// A status for the user.
    #[serde(rename_all = "camelCase")]
    Status {
        /// 0 is information, 1 a warning, 2 an error.
        level: u8,
        /// The text.
        message: String,
        /// The identifier by which the status can be removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Channels that can be subscribed to.
    Advertise {
        /// The channels.
        channels: Vec<Advertised>,
    },
    /// Channels that are no longer offered.
    #[serde(rename_all = "camelCase")]
    Unadvertise {
        /// Their identifiers.
        channel_ids: Vec<u64>,
    },
    /// Parameter values.
    ParameterValues {
        /// The parameters.
        parameters: Vec<ParameterValue>,
        /// The request that this answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// A change of the connection graph.
    #[serde(rename_all = "camelCase")]
    ConnectionGraphUpdate {
        /// Topics and their current publishers.
        #[serde(default)]
        published_topics: Vec<PublishedTopic>,
        /// Topics and their subscribers.
        #[serde(default)]
        subscribed_topics: Vec<Value>,
        /// Services and their providers.
        #[serde(default)]
        advertised_services: Vec<Value>,
        /// Topics that are gone.
        #[serde(default)]
        removed_topics: Vec<String>,
        /// Services that are gone.
        #[serde(default)]
        removed_services: Vec<String>,
    },
    /// Any other operation, of this version of the protocol or a newer one.
    #[serde(other)]
    Unknown,
}

/// A field that is null is absent, as some servers have it.
fn null_is_absent<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A server's name and capabilities.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// Its name.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub name: String,
    /// The server's capabilities: `time`, `parameters`, `connectionGraph`, ….
    #[serde(default, deserialize_with = "null_is_absent")]
    pub capabilities: Vec<String>,
    /// Message encodings that clients may publish.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub supported_encodings: Vec<String>,
    /// Further metadata. Values may be of any type: some servers send numbers.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub metadata: serde_json::Map<String, Value>,
    /// An identifier that stays the same for as long as the channel identifiers are valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The start of the recording that is played.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_start_time: Option<ProtocolTime>,
    /// The end of the recording that is played.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_end_time: Option<ProtocolTime>,
}

/// A time in a text message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolTime {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

/// A parameter and its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParameterValue {
    /// Its name.
    pub name: String,
    /// Its value; `None` where the parameter is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Its type, where JSON is ambiguous: `float64`, `byte_array`, `float64_array`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A topic and its publishers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedTopic {
    /// The topic.
    pub name: String,
    /// Its publishers.
    pub publisher_ids: Vec<String>,
}

/// A client's text message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum ClientText {
    /// Subscribes to channels.
    Subscribe {
        /// The channels, each with a subscription identifier that the client chooses.
        subscriptions: Vec<Subscribe>,
    },
    /// Ends subscriptions.
    #[serde(rename_all = "camelCase")]
    Unsubscribe {
        /// The subscription identifiers.
        subscription_ids: Vec<u32>,
    },
    /// Requests a file.
    FetchAsset(FetchAsset),
    /// Requests parameters; all of them if no name is given.
    #[serde(rename_all = "camelCase")]
    GetParameters {
        /// Their names.
        #[serde(default)]
        parameter_names: Vec<String>,
        /// The request's identifier, repeated in the response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Subscribes to the connection graph.
    SubscribeConnectionGraph,
    /// Ends the subscription to the connection graph.
    UnsubscribeConnectionGraph,
    /// Any other operation.
    #[serde(other)]
    Unknown,
}

/// A subscription to one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscribe {
    /// The channel's identifier.
    pub channel_id: u64,
    /// The subscription's identifier, chosen by the client.
    pub id: u32,
}

/// A request for a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchAsset {
    /// Its URI.
    pub uri: String,
    /// The request's identifier, repeated in the response.
    pub request_id: u32,
}

impl ServerText {
    /// Parses a server's text message.
    ///
    /// # Errors
    /// When it is not JSON, or a known `op` has an unexpected shape.
    pub fn parse(text: &str) -> Result<Self, ProtocolError> {
        Ok(serde_json::from_str(text)?)
    }

    /// Encodes the message as JSON.
    pub fn to_text(&self) -> String {
        to_text(self)
    }
}

impl ClientText {
    /// Parses a client's text message.
    ///
    /// # Errors
    /// When it is not JSON, or a known `op` has an unexpected shape.
    pub fn parse(text: &str) -> Result<Self, ProtocolError> {
        Ok(serde_json::from_str(text)?)
    }

    /// Encodes the message as JSON.
    pub fn to_text(&self) -> String {
        to_text(self)
    }
}

/// The `op` of an unsupported message, for the response that declines it. Truncated; empty where there is none.
pub fn decline_of(text: &str) -> String {
    #[derive(Deserialize)]
    struct Op {
        op: String,
    }
    let op = serde_json::from_str(text).map_or_else(|_| String::new(), |Op { op }| op);
    op.chars().take(60).collect()
}

fn to_text<T: Serialize>(said: &T) -> String {
    // Through a value, so that the order of keys does not depend on the enum's representation.
    serde_json::to_value(said).map_or_else(|_| String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_greeting_of_an_older_bridge_is_read() {
        let text = r#"{"op":"serverInfo","name":"foxglove_bridge","capabilities":["clientPublish","time"],
            "metadata":{"ROS_DISTRO":"humble"},"supportedEncodings":["cdr"],"sessionId":"1663760648"}"#;
        let ServerText::ServerInfo(info) = ServerText::parse(text).expect("a greeting") else {
            panic!("a greeting");
        };
        assert_eq!(info.name, "foxglove_bridge");
        assert_eq!(info.metadata["ROS_DISTRO"], "humble");
    }

    #[test]
    fn what_is_not_known_yet_is_unknown_and_what_is_wrong_is_an_error() {
        let newer = ServerText::parse(r#"{"op":"advertiseServices","services":[]}"#);
        assert_eq!(newer.expect("read"), ServerText::Unknown);
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"op":"advertise"}"#,
            r#"{"op":"status","level":"x"}"#,
        ] {
            assert!(ServerText::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_client_writes_a_server_reads() {
        let all = [
            ClientText::Subscribe {
                subscriptions: vec![Subscribe {
                    channel_id: 3,
                    id: 9,
                }],
            },
            ClientText::Unsubscribe {
                subscription_ids: vec![9],
            },
            ClientText::GetParameters {
                parameter_names: Vec::new(),
                id: Some("all".to_owned()),
            },
            ClientText::SubscribeConnectionGraph,
        ];
        for said in all {
            assert_eq!(ClientText::parse(&said.to_text()).expect("read"), said);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = ServerText::parse(&text);
            let _ = ClientText::parse(&text);
            let _ = decline_of(&text);
        }
    }
}
