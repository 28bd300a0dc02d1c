//! Liveliness tokens: the entities of a robot, and what they publish.

use super::TopicKey;
use super::qos::{QosError, QosProfile};

/// An entity, as announced by a liveliness token.
///
/// `@ros2_lv/domain/session/node id/entity id/kind/enclave/namespace/node[/topic/type/hash/qos]`, with `%` for the
/// slashes within a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The ROS domain.
    pub domain: u32,
    /// The Zenoh session that declared it.
    pub session: String,
    /// The entity's number within that session.
    pub entity: String,
    /// The kind of entity.
    pub kind: EntityKind,
    /// The node it belongs to, with its namespace: `/robot/driver`.
    pub node: String,
    /// The topic or service; `None` for a node.
    pub topic: Option<TopicInfo>,
}

/// A kind of entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntityKind {
    /// A node itself.
    Node,
    /// A publisher.
    Publisher,
    /// A subscriber.
    Subscriber,
    /// A service's server.
    Server,
    /// A service's client.
    Client,
}

/// The topic or service of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its name: `/imu/data`.
    pub name: String,
    /// Its type in the spelling of DDS: `sensor_msgs::msg::dds_::Imu_`.
    pub dds_type: String,
    /// The hash of its type's definition.
    pub type_hash: String,
    /// Its quality of service.
    pub qos: QosProfile,
    /// Whether it can hand over GPU buffers, which publishers of 2026 append to their tokens.
    pub has_buffers: bool,
}

/// Why a key is not a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It has an unexpected shape.
    #[error("'{0}' is not a liveliness token of rmw_zenoh")]
    Shape(String),
    /// Its quality of service is invalid.
    #[error("liveliness token '{token}': {cause}")]
    Qos {
        /// The token.
        token: String,
        /// What is wrong.
        #[source]
        cause: QosError,
    },
}

/// The key expression that matches every token of a domain.
pub fn tokens_of_domain(domain: u32) -> String {
    format!("@ros2_lv/{domain}/**")
}

impl Token {
    /// Parses a token. Parts that newer versions append are ignored.
    pub fn parse(key: &str) -> Result<Self, TokenError> {
        let shape = || TokenError::Shape(key.to_owned());
        let mut parts = key.split('/');
        let mut next = || parts.next().ok_or_else(shape);
        if next()? != "@ros2_lv" {
            return Err(shape());
        }
        let domain = next()?.parse().map_err(|_| shape())?;
        let session = next()?.to_owned();
        let _node_id = next()?;
        let entity = next()?.to_owned();
        let kind = match next()? {
            "NN" => EntityKind::Node,
            "MP" => EntityKind::Publisher,
            "MS" => EntityKind::Subscriber,
            "SS" => EntityKind::Server,
            "SC" => EntityKind::Client,
            _ => return Err(shape()),
        };
        let _enclave = next()?;
        let namespace = unmangle(next()?);
        let node = format!("{}/{}", namespace.trim_end_matches('/'), next()?);
        let topic = if kind == EntityKind::Node {
            None
        } else {
            let name = unmangle(next()?);
            let (dds_type, type_hash) = (unmangle(next()?), next()?.to_owned());
            let qos = QosProfile::parse(next()?).map_err(|cause| TokenError::Qos {
                token: key.to_owned(),
                cause,
            })?;
            Some(TopicInfo {
                name,
                dds_type,
                type_hash,
                qos,
                has_buffers: parts.next().is_some_and(|part| !part.is_empty()),
            })
        };
        Ok(Token {
            domain,
            session,
            entity,
            kind,
            node,
            topic,
        })
    }

    /// The key of a node's type description service; `None` for any other entity.
    pub fn description_key(&self) -> Option<TopicKey> {
        let topic = self.topic.as_ref()?;
        let is_server =
            self.kind == EntityKind::Server && topic.dds_type == super::GET_TYPE_DESCRIPTION;
        is_server.then(|| self.key(topic))
    }

    /// The key of a publisher's messages; `None` for anything that is not a publisher.
    pub fn topic_key(&self) -> Option<TopicKey> {
        let topic = self.topic.as_ref()?;
        (self.kind == EntityKind::Publisher).then(|| self.key(topic))
    }

    /// The token of a subscriber of the same topic, in a session, with a number of its own.
    pub(crate) fn subscriber(&self, session: &str, number: u64) -> Option<String> {
        let topic = self.topic.as_ref()?;
        Some(format!(
            "@ros2_lv/{}/{session}/0/{number}/MS/%/%/asof/{}/{}/{}/{}",
            self.domain,
            mangle(&topic.name),
            mangle(&topic.dds_type),
            topic.type_hash,
            topic.qos.to_text(),
        ))
    }

    fn key(&self, topic: &TopicInfo) -> TopicKey {
        TopicKey {
            domain: self.domain,
            topic: topic.name.clone(),
            dds_type: topic.dds_type.clone(),
            type_hash: topic.type_hash.clone(),
        }
    }
}

/// The token of one of our publishers: on a key, in a session, with a number of its own.
pub(crate) fn publisher_token(
    key: &TopicKey,
    session: &str,
    number: u64,
    node: &str,
    qos: QosProfile,
) -> String {
    format!(
        "@ros2_lv/{}/{session}/0/{number}/MP/%/%/{}/{}/{}/{}/{}",
        key.domain,
        node.trim_matches('/').replace('/', "_"),
        mangle(&key.topic),
        mangle(&key.dds_type),
        key.type_hash,
        qos.to_text(),
    )
}

fn mangle(text: &str) -> String {
    text.replace('/', "%")
}

fn unmangle(part: &str) -> String {
    part.replace('%', "/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IMU: &str = "@ros2_lv/0/aac3178e146ba6f1fc6e6a4085e77f21/0/10/MP/%/%robot/imu_driver/%imu%data/\
        sensor_msgs::msg::dds_::Imu_/RIHS01_7d9a/2:1:,5:,:,:,,";

    #[test]
    fn a_publisher_says_what_it_publishes_and_where() {
        let token = Token::parse(IMU).expect("a token");
        assert_eq!(token.node, "/robot/imu_driver");
        let key = token.topic_key().expect("a publisher");
        assert_eq!(
            key.to_string(),
            "0/imu/data/sensor_msgs::msg::dds_::Imu_/RIHS01_7d9a"
        );
        assert_eq!(token.topic.expect("a topic").qos.depth, 5);
    }

    #[test]
    fn a_subscriber_of_the_same_topic_is_known_by_a_token_of_its_own() {
        let publisher = Token::parse(IMU).expect("a token");
        let text = publisher.subscriber("abc", 7).expect("a topic");
        let subscriber = Token::parse(&text).expect("a token");
        assert_eq!(subscriber.kind, EntityKind::Subscriber);
        assert_eq!(subscriber.topic, publisher.topic);
        assert_eq!(subscriber.topic_key(), None);
    }

    #[test]
    fn a_publisher_of_ours_reads_back() {
        let key = Token::parse(IMU).expect("a token").topic_key();
        let key = key.expect("a publisher");
        let text = publisher_token(&key, "abc", 7, "/player", QosProfile::default());
        let token = Token::parse(&text).expect("a token");
        assert_eq!(token.topic_key(), Some(key));
        assert_eq!(
            (token.node.as_str(), token.entity.as_str()),
            ("/player", "7")
        );
    }

    /// From the design document of rmw_zenoh for Jazzy and Kilted.
    const CHATTER: &str = "@ros2_lv/0/8b20917502ee955ac4476e0266340d5c/0/10/MP/%/%/talker/%chatter/\
        std_msgs::msg::dds_::String_/RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18/::,7:,:,:,,";

    #[test]
    fn the_example_of_its_design_document_is_read() {
        let token = Token::parse(CHATTER).expect("a token");
        assert_eq!(
            (token.domain, token.kind, token.node.as_str()),
            (0, EntityKind::Publisher, "/talker")
        );
        assert_eq!(
            token.topic_key().expect("a publisher").to_string(),
            "0/chatter/std_msgs::msg::dds_::String_/\
            RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"
        );
        let topic = token.topic.expect("a topic");
        assert_eq!((topic.qos.depth, topic.has_buffers), (7, false));
        assert_eq!(topic.qos.to_text(), "::,7:,:,:,,");
    }

    #[test]
    fn a_node_of_humble_has_no_hash_and_may_have_namespace_and_enclave() {
        let text = "@ros2_lv/7/1c2d/3/12/MP/%talker_listener%talker/%robots%one/driver/%robots%one%scan/\
            sensor_msgs::msg::dds_::LaserScan_/TypeHashNotSupported/2:1:2,5:10,0:,:1,,";
        let token = Token::parse(text).expect("a token");
        assert_eq!(token.node, "/robots/one/driver");
        assert_eq!(
            token.topic_key().expect("a publisher").to_string(),
            "7/robots/one/scan/sensor_msgs::msg::dds_::LaserScan_/TypeHashNotSupported"
        );
    }

    #[test]
    fn buffers_that_publishers_since_lyrical_append_are_noticed() {
        let newer = Token::parse(&format!("{CHATTER}/backends:cpu:;cuda:device%3A0"));
        let newer = newer.expect("a token").topic.expect("a topic");
        let older = Token::parse(CHATTER).expect("a token").topic;
        assert!(newer.has_buffers);
        assert_eq!(
            Some(newer.qos),
            older.map(|topic| topic.qos),
            "the rest is as it was"
        );
    }

    #[test]
    fn a_node_has_no_topic() {
        let token = Token::parse("@ros2_lv/3/abc/0/0/NN/%/%/talker").expect("a token");
        assert_eq!(
            (token.kind, token.node.as_str(), token.domain),
            (EntityKind::Node, "/talker", 3)
        );
        assert_eq!(token.topic_key(), None);
    }

    #[test]
    fn what_newer_versions_append_is_passed_over() {
        let newer = Token::parse(&format!("{IMU}/more/parts")).expect("a token");
        let older = Token::parse(IMU).expect("a token");
        assert_eq!(newer.topic_key(), older.topic_key());
    }

    #[test]
    fn other_keys_are_errors() {
        for key in [
            "",
            "@ros2_lv",
            "@ros2_lv/x/a",
            "demo/a/b",
            "@ros2_lv/0/z/0/1/XX/%/%/n",
        ] {
            assert!(Token::parse(key).is_err(), "{key}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(@ros2_lv/)?[0-9a-zA-Z%/:,]{0,80}") {
            let _ = Token::parse(&text);
        }
    }
}
