//! What is said in text, which is JSON with an `op`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Advertised, ProtocolError};

/// What a server says in text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum ServerText {
    /// Who it is and what it can do; the first that it says.
    ServerInfo(ServerInfo),
    /// Something for a person.
    #[serde(rename_all = "camelCase")]
    Status {
        /// 0 is a note, 1 a warning, 2 an error.
        level: u8,
        /// What is said.
        message: String,
        /// By which it can be taken back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Channels that can be subscribed to.
    Advertise {
        /// The channels.
        channels: Vec<Advertised>,
    },
    /// Channels that have gone.
    #[serde(rename_all = "camelCase")]
    Unadvertise {
        /// Their numbers.
        channel_ids: Vec<u64>,
    },
    /// Values of parameters.
    ParameterValues {
        /// The parameters.
        parameters: Vec<ParameterValue>,
        /// Which request this answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Who publishes and subscribes what.
    #[serde(rename_all = "camelCase")]
    ConnectionGraphUpdate {
        /// Topics and their publishers, as they are now.
        #[serde(default)]
        published_topics: Vec<PublishedTopic>,
        /// Topics and their subscribers.
        #[serde(default)]
        subscribed_topics: Vec<Value>,
        /// Services and their providers.
        #[serde(default)]
        advertised_services: Vec<Value>,
        /// Topics that have gone.
        #[serde(default)]
        removed_topics: Vec<String>,
        /// Services that have gone.
        #[serde(default)]
        removed_services: Vec<String>,
    },
    /// Anything else that the protocol knows, or will.
    #[serde(other)]
    Unknown,
}

/// Who a server is and what it can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// What can be asked of it: `time`, `parameters`, `connectionGraph`, ….
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Encodings that clients may publish in.
    #[serde(default)]
    pub supported_encodings: Vec<String>,
    /// More about it. Any values: a server may say numbers.
    #[serde(default)]
    pub metadata: serde_json::Map<String, Value>,
    /// The same for as long as its channels keep their numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// When what it plays begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_start_time: Option<Time>,
    /// When what it plays ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_end_time: Option<Time>,
}

/// A time as the protocol's text has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since the epoch.
    pub sec: i64,
    /// And nanoseconds.
    pub nsec: u32,
}

/// A parameter and its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParameterValue {
    /// Its name.
    pub name: String,
    /// Its value; none is a parameter that is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Its type, where JSON does not tell: `float64`, `byte_array`, `float64_array`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A topic and who publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedTopic {
    /// The topic.
    pub name: String,
    /// Its publishers.
    pub publisher_ids: Vec<String>,
}

/// What a client says in text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum ClientText {
    /// Asks for the messages of channels.
    Subscribe {
        /// Each with a number of the client's own.
        subscriptions: Vec<Subscribe>,
    },
    /// Asks for no more.
    #[serde(rename_all = "camelCase")]
    Unsubscribe {
        /// The client's numbers.
        subscription_ids: Vec<u32>,
    },
    /// Asks for a file.
    FetchAsset(FetchAsset),
    /// Asks for parameters; all of them where none is named.
    #[serde(rename_all = "camelCase")]
    GetParameters {
        /// Their names.
        #[serde(default)]
        parameter_names: Vec<String>,
        /// By which the answer is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Asks to be told who publishes what.
    SubscribeConnectionGraph,
    /// Asks not to be told any more.
    UnsubscribeConnectionGraph,
    /// Anything else.
    #[serde(other)]
    Unknown,
}

/// One channel that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscribe {
    /// Which channel.
    pub channel_id: u64,
    /// The client's number for it.
    pub id: u32,
}

/// A request for a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchAsset {
    /// Its address.
    pub uri: String,
    /// By which the answer is known.
    pub request_id: u32,
}

impl ServerText {
    /// Reads what a server said.
    ///
    /// # Errors
    /// When it is not JSON, or an `op` that is known has another shape.
    pub fn parse(text: &str) -> Result<Self, ProtocolError> {
        Ok(serde_json::from_str(text)?)
    }

    /// The text.
    pub fn to_text(&self) -> String {
        to_text(self)
    }
}

impl ClientText {
    /// Reads what a client said.
    ///
    /// # Errors
    /// When it is not JSON, or an `op` that is known has another shape.
    pub fn parse(text: &str) -> Result<Self, ProtocolError> {
        Ok(serde_json::from_str(text)?)
    }

    /// The text.
    pub fn to_text(&self) -> String {
        to_text(self)
    }
}

/// The `op` of text that is not understood, for an answer that names it; shortened, and empty where there is none.
pub fn decline_of(text: &str) -> String {
    #[derive(Deserialize)]
    struct Op {
        op: String,
    }
    let op = serde_json::from_str(text).map_or_else(|_| String::new(), |Op { op }| op);
    op.chars().take(60).collect()
}

fn to_text<T: Serialize>(said: &T) -> String {
    // Through a value, so that keys are in one order whatever the enum's representation does.
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
