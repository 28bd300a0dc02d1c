//! Quality of service, as encoded in a liveliness token.

use std::str::FromStr;

use asof_core::Channel;

/// The quality of service of a publisher or subscriber: the policies that matter to a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QosProfile {
    /// Whether lost messages are resent.
    pub reliability: Reliability,
    /// Whether late joiners receive earlier messages.
    pub durability: Durability,
    /// Which messages the publisher keeps.
    pub history: History,
    /// How many messages it keeps, with [`History::KeepLast`].
    pub depth: usize,
}

/// Whether lost messages are resent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reliability {
    /// Lost messages are resent.
    Reliable,
    /// Lost messages are not resent.
    BestEffort,
}

/// Whether late joiners receive earlier messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// They do, as for `/tf_static`.
    TransientLocal,
    /// They do not.
    Volatile,
}

/// Which messages a publisher keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// The last ones.
    KeepLast,
    /// All of them.
    KeepAll,
}

/// Quality of service to request from a topic's publishers instead of what they offer.
///
/// ```
/// use asof_live::ros::{QosOverride, Reliability};
///
/// let asked: QosOverride = "reliable".parse().expect("a quality");
/// assert_eq!(asked.reliability, Some(Reliability::Reliable));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QosOverride {
    /// Whether lost messages are requested again. DDS only: Zenoh does not lose messages on the way.
    pub reliability: Option<Reliability>,
    /// Whether earlier messages are requested.
    pub durability: Option<Durability>,
}

impl QosOverride {
    /// Applies the override to a profile.
    pub fn over(self, profile: QosProfile) -> QosProfile {
        QosProfile {
            reliability: self.reliability.unwrap_or(profile.reliability),
            durability: self.durability.unwrap_or(profile.durability),
            ..profile
        }
    }
}

/// `reliable`, `best_effort`, `transient_local` and `volatile`, joined by `+`.
impl FromStr for QosOverride {
    type Err = QosError;

    fn from_str(text: &str) -> Result<Self, QosError> {
        let mut asked = QosOverride::default();
        for word in text.split('+') {
            match word.trim().to_ascii_lowercase().replace('-', "_").as_str() {
                "reliable" => asked.reliability = Some(Reliability::Reliable),
                "best_effort" => asked.reliability = Some(Reliability::BestEffort),
                "transient_local" => asked.durability = Some(Durability::TransientLocal),
                "volatile" => asked.durability = Some(Durability::Volatile),
                _ => {
                    return Err(QosError {
                        text: text.to_owned(),
                        reason: "give reliable or best_effort, and transient_local or volatile, with + between them",
                    });
                }
            }
        }
        Ok(asked)
    }
}

/// Why text is not a quality of service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a quality of service: {reason}")]
pub struct QosError {
    text: String,
    reason: &'static str,
}

const DEFAULT_DEPTH: usize = 42;
/// The number of ROS 2 for an unknown policy: the publisher is subscribed all the same.
const UNKNOWN: &str = "3";

impl Default for QosProfile {
    fn default() -> Self {
        QosProfile {
            reliability: Reliability::Reliable,
            durability: Durability::Volatile,
            history: History::KeepLast,
            depth: DEFAULT_DEPTH,
        }
    }
}

impl QosProfile {
    /// Parses `reliability:durability:history,depth:deadline:lifespan:liveliness`. An empty field is the default; a
    /// depth that is empty or zero is 42.
    ///
    /// ```
    /// use asof_live::ros::{Durability, QosProfile};
    ///
    /// let latched = QosProfile::parse(":1:,1:,:,:,,").expect("a profile");
    /// assert_eq!((latched.durability, latched.depth), (Durability::TransientLocal, 1));
    /// assert_eq!(QosProfile::parse("::,:,:,:,,").expect("a profile"), QosProfile::default());
    /// ```
    pub fn parse(text: &str) -> Result<Self, QosError> {
        let error = |reason| QosError {
            text: text.to_owned(),
            reason,
        };
        let mut fields = text.split(':');
        let mut next = || fields.next().ok_or_else(|| error("fields are missing"));
        let reliability = match next()? {
            "" | "0" | "1" | UNKNOWN => Reliability::Reliable,
            "2" => Reliability::BestEffort,
            _ => return Err(error("its reliability is unknown")),
        };
        let durability = match next()? {
            "1" => Durability::TransientLocal,
            "" | "0" | "2" | UNKNOWN => Durability::Volatile,
            _ => return Err(error("its durability is unknown")),
        };
        let history = next()?;
        let (history, depth) = history.split_once(',').unwrap_or((history, ""));
        let history = match history {
            "" | "0" | "1" | UNKNOWN => History::KeepLast,
            "2" => History::KeepAll,
            _ => return Err(error("its history is unknown")),
        };
        let depth = match depth {
            "" | "0" => DEFAULT_DEPTH,
            digits => digits
                .parse()
                .map_err(|_| error("its depth is not a number"))?,
        };
        Ok(QosProfile {
            reliability,
            durability,
            history,
            depth,
        })
    }

    /// Encodes it for a token; defaults are left empty, as rmw_zenoh does.
    pub fn to_text(&self) -> String {
        let reliability = if self.reliability == Reliability::BestEffort {
            "2"
        } else {
            ""
        };
        let durability = if self.durability == Durability::TransientLocal {
            "1"
        } else {
            ""
        };
        let history = if self.history == History::KeepAll {
            "2"
        } else {
            ""
        };
        let depth = if self.depth == DEFAULT_DEPTH {
            String::new()
        } else {
            self.depth.to_string()
        };
        format!("{reliability}:{durability}:{history},{depth}:,:,:,,")
    }
}

/// Whether a topic's messages are kept for late joiners, according to its recorder or its transport.
///
/// ```
/// use asof_core::Channel;
/// use asof_live::ros::is_latched;
///
/// let mut map = Channel { topic: "/map".to_owned(), ..Channel::default() };
/// assert!(!is_latched(&map));
/// map.metadata.insert("dds_qos".to_owned(), ":1:,1:,:,:,,".to_owned());
/// assert!(is_latched(&map));
/// ```
pub fn is_latched(channel: &Channel) -> bool {
    let profiles = ["rmw_zenoh_qos", "bridge_qos", "dds_qos"];
    let mut said = profiles
        .iter()
        .filter_map(|name| channel.metadata.get(*name));
    let is_said = said.any(|text| {
        let profile = QosProfile::parse(text);
        profile.is_ok_and(|qos| qos.durability == Durability::TransientLocal)
    });
    is_said || channel.topic.ends_with("/tf_static") || asof_formats::is_latched(channel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_depth_is_the_default() {
        assert_eq!(QosProfile::parse("2:::,:,:,,").map(|qos| qos.depth), Ok(42));
        assert_eq!(
            QosProfile::parse("2::1,7:,:,:,,").map(|qos| qos.depth),
            Ok(7)
        );
    }

    #[test]
    fn a_policy_that_the_node_itself_does_not_know_is_the_default() {
        assert_eq!(
            QosProfile::parse("3:3:3,:,:,:,,"),
            Ok(QosProfile::default())
        );
    }

    #[test]
    fn what_is_unknown_is_said() {
        let error = QosProfile::parse("9::,:").expect_err("no such reliability");
        assert!(error.to_string().contains("reliability"));
        assert!(QosProfile::parse("").is_err());
    }

    #[test]
    fn what_is_asked_for_takes_the_place_of_what_is_offered() {
        let asked: QosOverride = "best-effort+volatile".parse().expect("read");
        let latched = QosProfile::parse(":1:,1:,:,:,,").expect("a profile");
        let over = asked.over(latched);
        assert_eq!(
            (over.reliability, over.durability),
            (Reliability::BestEffort, Durability::Volatile)
        );
        assert_eq!(QosOverride::default().over(latched), latched);
        for wrong in ["", "reliable+", "loud"] {
            let error = wrong.parse::<QosOverride>().expect_err("not a quality");
            assert!(error.to_string().contains("best_effort"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9:,]{0,30}") {
            let _ = QosProfile::parse(&text);
        }

        #[test]
        fn a_profile_parses_back(reliable: bool, latched: bool, all: bool, depth in 1usize..1000) {
            let profile = QosProfile {
                reliability: if reliable { Reliability::Reliable } else { Reliability::BestEffort },
                durability: if latched { Durability::TransientLocal } else { Durability::Volatile },
                history: if all { History::KeepAll } else { History::KeepLast },
                depth,
            };
            prop_assert_eq!(QosProfile::parse(&profile.to_text()), Ok(profile));
        }
    }
}
