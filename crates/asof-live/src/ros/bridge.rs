//! Liveliness tokens of `zenoh-bridge-ros2dds`: the publishers of a robot on DDS, on bare keys.

use super::TokenError;
use super::qos::{Durability, History, QosProfile, Reliability};

/// The key expressions that match the tokens of bridges: those of 1.0 and later, and those before.
pub const BRIDGE_TOKENS: [&str; 2] = ["@/*/@ros2_lv/**", "@ros2_lv/*/MP/*/*/*"];

/// Replaces slashes within a part of a token.
const SLASH: char = '§';

/// A publisher, as announced by a bridge's token.
///
/// `@/zid/@ros2_lv/MP/topic/type/qos`, with `§` for the slashes within a part. The messages are CDR, on the topic
/// itself as a key, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeToken {
    /// The bridge's Zenoh id.
    pub session: String,
    /// The key that the messages are on: `imu/data`.
    pub key: String,
    /// The type in its usual spelling: `sensor_msgs/msg/Imu`.
    pub type_name: String,
    /// Whether the type has keys in the sense of DDS.
    pub is_keyed: bool,
    /// Its quality of service.
    pub qos: QosProfile,
}

impl BridgeToken {
    /// Parses a token; `None` for tokens that do not announce a publisher.
    ///
    /// ```
    /// use asof_live::ros::BridgeToken;
    ///
    /// let token = "@/6a8f/@ros2_lv/MP/imu§data/sensor_msgs§msg§Imu/:1::1,10";
    /// let token = BridgeToken::parse(token)?.expect("a publisher");
    /// assert_eq!((token.key.as_str(), token.type_name.as_str()), ("imu/data", "sensor_msgs/msg/Imu"));
    /// # Ok::<(), asof_live::ros::TokenError>(())
    /// ```
    ///
    /// # Errors
    /// When it has an unexpected shape.
    pub fn parse(key: &str) -> Result<Option<Self>, TokenError> {
        let shape = || TokenError::Shape(key.to_owned());
        let (session, rest) = if let Some(rest) = key.strip_prefix("@/") {
            let (session, rest) = rest.split_once('/').ok_or_else(shape)?;
            let rest = rest.strip_prefix("@ros2_lv").ok_or_else(shape)?;
            (session, rest.strip_prefix('/').unwrap_or(rest))
        } else {
            let rest = key.strip_prefix("@ros2_lv/").ok_or_else(shape)?;
            rest.split_once('/').ok_or_else(shape)?
        };
        let mut parts = rest.split('/');
        match parts.next() {
            Some("MP") => {}
            Some("" | "MS" | "SS" | "SC" | "AS" | "AC") => return Ok(None),
            _ => return Err(shape()),
        }
        let (topic, kind, qos) = (parts.next(), parts.next(), parts.next());
        let (Some(topic), Some(kind), Some(qos)) = (topic, kind, qos) else {
            return Err(shape());
        };
        let key_of_topic = topic.replace(SLASH, "/");
        if key_of_topic.trim_matches('/').is_empty() || session.is_empty() || kind.is_empty() {
            return Err(shape());
        }
        let (is_keyed, qos) = quality(qos).ok_or_else(shape)?;
        Ok(Some(BridgeToken {
            session: session.to_owned(),
            key: key_of_topic,
            type_name: kind.replace(SLASH, "/"),
            is_keyed,
            qos,
        }))
    }

    /// Whether a key is a token of a bridge before 1.0, whose tokens resemble those of rmw_zenoh.
    pub(crate) fn is_older(key: &str) -> bool {
        key.strip_prefix("@ros2_lv/")
            .is_some_and(|rest| rest.split('/').nth(1) == Some("MP"))
    }

    /// The topic, with its leading slash.
    pub fn topic(&self) -> String {
        format!("/{}", self.key.trim_start_matches('/'))
    }

    /// The key to query the bridge's cache for late joiners on.
    pub fn cache_key(&self) -> String {
        format!("@/{}/@ros2_pub_cache/{}", self.session, self.key)
    }

    /// Encodes the token as a bridge does.
    pub fn to_text(&self) -> String {
        let mangled = |text: &str| text.replace('/', "§");
        format!(
            "@/{}/@ros2_lv/MP/{}/{}/{}",
            self.session,
            mangled(&self.key),
            mangled(&self.type_name),
            self.quality_text(),
        )
    }

    fn quality_text(&self) -> String {
        let qos = &self.qos;
        format!(
            "{}:{}:{}:{},{}",
            if self.is_keyed { "K" } else { "" },
            u8::from(qos.reliability == Reliability::Reliable),
            u8::from(qos.durability == Durability::TransientLocal),
            u8::from(qos.history == History::KeepAll),
            qos.depth,
        )
    }
}

/// `K:reliability:durability:history,depth`, with the numbers of DDS; an empty field is the default of a DDS writer.
fn quality(text: &str) -> Option<(bool, QosProfile)> {
    let mut fields = text.split(':');
    let is_keyed = match fields.next()? {
        "" => false,
        "K" => true,
        _ => return None,
    };
    let reliability = match fields.next()? {
        "" | "1" => Reliability::Reliable,
        "0" => Reliability::BestEffort,
        _ => return None,
    };
    let durability = match fields.next()? {
        "" | "0" => Durability::Volatile,
        // Transient and persistent writers keep messages for late joiners too.
        "1" | "2" | "3" => Durability::TransientLocal,
        _ => return None,
    };
    let (history, depth) = match fields.next()? {
        "" => (History::KeepLast, 1),
        history => {
            let (kind, depth) = history.split_once(',')?;
            let kind = match kind {
                "0" => History::KeepLast,
                "1" => History::KeepAll,
                _ => return None,
            };
            // A writer that keeps all has no depth, or -1.
            (kind, depth.parse::<i64>().ok()?.clamp(1, 1 << 20) as usize)
        }
    };
    let qos = QosProfile {
        reliability,
        durability,
        history,
        depth,
    };
    Some((is_keyed, qos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> BridgeToken {
        let token = BridgeToken::parse(text).expect("a token");
        token.expect("a publisher")
    }

    #[test]
    fn a_latched_topic_in_a_namespace_is_read() {
        let token = read("@/6a8f2c/@ros2_lv/MP/robot1§tf_static/tf2_msgs§msg§TFMessage/:1:1:0,1");
        assert_eq!(token.topic(), "/robot1/tf_static");
        assert_eq!(token.type_name, "tf2_msgs/msg/TFMessage");
        assert_eq!(token.qos.durability, Durability::TransientLocal);
        assert_eq!((token.qos.depth, token.is_keyed), (1, false));
        assert_eq!(
            token.cache_key(),
            "@/6a8f2c/@ros2_pub_cache/robot1/tf_static"
        );
    }

    #[test]
    fn what_is_empty_is_what_dds_has_for_a_writer() {
        let token = read("@/6a8f2c/@ros2_lv/MP/chatter/std_msgs§msg§String/:::");
        assert_eq!(token.qos.reliability, Reliability::Reliable);
        assert_eq!(token.qos.durability, Durability::Volatile);
        let keyed = read("@/6a8f2c/@ros2_lv/MP/chatter/std_msgs§msg§String/K:0:0:1,-1");
        assert!(keyed.is_keyed);
        assert_eq!(keyed.qos.reliability, Reliability::BestEffort);
        assert_eq!(keyed.qos.history, History::KeepAll);
    }

    #[test]
    fn the_form_before_the_admin_space_is_read_too() {
        let text = "@ros2_lv/6a8f2c/MP/imu§data/sensor_msgs§msg§Imu/:1::0,10";
        assert!(BridgeToken::is_older(text));
        assert_eq!(read(text).key, "imu/data");
        let rmw = "@ros2_lv/0/aac3/0/10/MP/%/%/n/%imu/a::msg::dds_::B_/h/::,:,:,:,,";
        assert!(!BridgeToken::is_older(rmw));
    }

    #[test]
    fn everything_but_a_publisher_is_none_and_nonsense_is_an_error() {
        for other in [
            "@/6a/@ros2_lv",
            "@/6a/@ros2_lv/MS/a/b§msg§C/:::",
            "@/6a/@ros2_lv/SS/a/b§srv§C",
            "@/6a/@ros2_lv/AC/a/b§action§C",
        ] {
            assert_eq!(BridgeToken::parse(other).expect("read"), None, "{other}");
        }
        for wrong in [
            "",
            "@/",
            "@/6a/x",
            "@/6a/@ros2_lv/MP",
            "@/6a/@ros2_lv/MP/a/b",
            "@/6a/@ros2_lv/MP/§/b/:::",
            "@/6a/@ros2_lv/MP/a/b/::",
            "@/6a/@ros2_lv/MP/a/b/:9::",
            "@/6a/@ros2_lv/MP/a/b/:::0,x",
            "@/6a/@ros2_lv/XX/a/b/:::",
        ] {
            assert!(BridgeToken::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(@/)?[0-9a-zA-Z§/:,@_-]{0,60}") {
            let _ = BridgeToken::parse(&text);
        }

        #[test]
        fn a_token_reads_back(
            key in "[a-z_]{1,8}(/[a-z_]{1,8}){0,2}",
            is_keyed: bool, reliable: bool, latched: bool, all: bool, depth in 1usize..1000,
        ) {
            let token = BridgeToken {
                session: "6a8f".to_owned(),
                key,
                type_name: "a_msgs/msg/B".to_owned(),
                is_keyed,
                qos: QosProfile {
                    reliability: if reliable { Reliability::Reliable } else { Reliability::BestEffort },
                    durability: if latched { Durability::TransientLocal } else { Durability::Volatile },
                    history: if all { History::KeepAll } else { History::KeepLast },
                    depth,
                },
            };
            prop_assert_eq!(BridgeToken::parse(&token.to_text()).expect("read"), Some(token));
        }
    }
}
