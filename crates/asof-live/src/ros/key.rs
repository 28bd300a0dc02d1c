//! The key that a topic's messages are published on.

use std::fmt;

/// The parts of a topic's key: `0/imu/data/sensor_msgs::msg::dds_::Imu_/RIHS01_…`.
///
/// A wrong type or hash matches nothing, without an error: take both from a liveliness token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopicKey {
    /// The ROS domain.
    pub domain: u32,
    /// The topic, with its leading slash: `/imu/data`.
    pub topic: String,
    /// The type in the spelling of DDS: `sensor_msgs::msg::dds_::Imu_`.
    pub dds_type: String,
    /// The hash of the type's definition.
    pub type_hash: String,
}

impl TopicKey {
    /// Parses a key; `None` if it is not a key of rmw_zenoh.
    ///
    /// ```
    /// use asof_live::ros::TopicKey;
    ///
    /// let key = TopicKey::parse("0/imu/data/sensor_msgs::msg::dds_::Imu_/RIHS01_00").expect("a key");
    /// assert_eq!((key.topic.as_str(), key.domain), ("/imu/data", 0));
    /// assert_eq!(key.to_string(), "0/imu/data/sensor_msgs::msg::dds_::Imu_/RIHS01_00");
    /// ```
    pub fn parse(key: &str) -> Option<Self> {
        let (domain, rest) = key.split_once('/')?;
        let (rest, type_hash) = rest.rsplit_once('/')?;
        let (topic, dds_type) = rest.rsplit_once('/')?;
        let is_named = !topic.is_empty() && dds_type.contains("::") && !type_hash.is_empty();
        is_named.then_some(TopicKey {
            domain: domain.parse().ok()?,
            topic: format!("/{topic}"),
            dds_type: dds_type.to_owned(),
            type_hash: type_hash.to_owned(),
        })
    }
}

impl fmt::Display for TopicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = self.topic.trim_matches('/');
        write!(
            f,
            "{}/{topic}/{}/{}",
            self.domain, self.dds_type, self.type_hash
        )
    }
}

/// Converts `sensor_msgs::msg::dds_::Imu_` to its usual spelling, `sensor_msgs/msg/Imu`. Other text is unchanged.
pub fn ros_type_name(dds_type: &str) -> String {
    let Some((package, name)) = dds_type.split_once("::dds_::") else {
        return dds_type.replace("::", "/");
    };
    let name = name.strip_suffix('_').unwrap_or(name);
    format!("{}/{name}", package.replace("::", "/"))
}

/// Converts `sensor_msgs/msg/Imu` to the spelling of DDS, `sensor_msgs::msg::dds_::Imu_`.
pub fn dds_type_name(ros_type: &str) -> String {
    match ros_type.rsplit_once('/') {
        Some((package, name)) => format!("{}::dds_::{name}_", package.replace('/', "::")),
        None => ros_type.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn type_names_go_both_ways() {
        assert_eq!(
            ros_type_name("sensor_msgs::msg::dds_::Imu_"),
            "sensor_msgs/msg/Imu"
        );
        assert_eq!(
            dds_type_name("sensor_msgs/msg/Imu"),
            "sensor_msgs::msg::dds_::Imu_"
        );
    }

    #[test]
    fn keys_of_others_are_none_of_ours() {
        for key in [
            "",
            "demo/example",
            "0/chatter",
            "x/chatter/a::b/RIHS01",
            "0//a::b/h",
            "0/a/b/c",
        ] {
            assert_eq!(TopicKey::parse(key), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = TopicKey::parse(&text);
            let _ = ros_type_name(&text);
        }

        #[test]
        fn a_key_parses_back(domain: u32, topic in "(/[a-z_]{1,8}){1,3}", hash in "RIHS01_[0-9a-f]{8}") {
            let key = TopicKey { domain, topic, dds_type: dds_type_name("a_msgs/msg/B"), type_hash: hash };
            prop_assert_eq!(TopicKey::parse(&key.to_string()), Some(key));
        }
    }
}
