//! The map from a recording to a dataset, given as a file or by a program.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use asof_align::{On, Pick, Rule, UnknownWord};
use asof_core::When;
use serde::{Deserialize, Deserializer};

use super::LerobotError;

/// Columns that every dataset has.
pub(super) const OWN: [&str; 5] = [
    "timestamp",
    "frame_index",
    "episode_index",
    "index",
    "task_index",
];

/// Which parts of a recording become which features of a dataset, and how.
///
/// ```
/// let map = asof::lerobot::DatasetMap::from_toml(r#"
///     hz = 30
///     task = "pick up the cube"
///
///     [features]
///     "observation.state" = ["/joint_states.position"]
///     "observation.images.front" = "/camera/image"
///     action = { paths = ["/cmd_vel.linear.x", "/cmd_vel.angular.z"], method = "interpolate" }
/// "#)?;
/// assert_eq!(map.features.len(), 3);
/// # Ok::<(), asof::lerobot::LerobotError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetMap {
    /// Frames per second.
    pub hz: u32,
    /// The robot's task; `unnamed` without it. Episodes that begin with a text use that instead.
    #[serde(default)]
    pub task: String,
    /// The kind of robot.
    #[serde(default)]
    pub robot_type: Option<String>,
    /// Where episodes begin and end.
    #[serde(default)]
    pub episodes: Episodes,
    /// Which message belongs to a frame, unless a feature has its own method. Pictures are not interpolated, but the nearest.
    #[serde(default = "last", deserialize_with = "word")]
    pub method: Pick,
    /// Whether interpolation takes the nearest message before the first and after the last one; without it, such frames are left out.
    #[serde(default)]
    pub or_nearest: bool,
    /// The time to align by.
    #[serde(default = "by_log_time", deserialize_with = "word")]
    pub on: On,
    /// The largest distance between a frame and its messages; a frame without a match is left out.
    #[serde(default, deserialize_with = "length")]
    pub tolerance: Option<Duration>,
    /// Whether pictures become videos; by default if ffmpeg is installed.
    #[serde(default)]
    pub videos: Option<bool>,
    /// The features by name.
    pub features: BTreeMap<String, Feature>,
}

/// The origin of a feature.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "a feature is a topic of pictures, or a list of paths such as \"/joint_states.position\", or a table with `paths` and `method`"
)]
pub enum Feature {
    /// The pictures of a topic.
    Pictures(String),
    /// Numbers, one after the other: each path is a topic, a dot, and a path into its messages.
    Numbers(Vec<String>),
    /// The same, with its own method.
    Aligned {
        /// The paths.
        paths: Vec<String>,
        /// Which message belongs to a frame.
        #[serde(deserialize_with = "word")]
        method: Pick,
    },
}

/// Where episodes begin and end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Episodes {
    /// Each recording is one.
    #[default]
    Recording,
    /// Each has this duration; the last of a recording may be shorter.
    Every(Duration),
    /// Each message of a topic begins one. One with `data: false` ends it instead, and a text names its task.
    Topic(String),
}

impl DatasetMap {
    /// A map from a file.
    ///
    /// # Errors
    /// When it is not TOML, or not a map.
    pub fn from_toml(text: &str) -> Result<Self, LerobotError> {
        let map: DatasetMap = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            LerobotError::Map(format!("{line}{}", error.message().trim()))
        })?;
        map.checked()
    }

    /// A map from a program.
    ///
    /// # Errors
    /// When it is not JSON, or not a map.
    pub fn from_json(text: &str) -> Result<Self, LerobotError> {
        let map: DatasetMap =
            serde_json::from_str(text).map_err(|error| LerobotError::Map(error.to_string()))?;
        map.checked()
    }

    fn checked(self) -> Result<Self, LerobotError> {
        let wrong = |reason: String| Err(LerobotError::Map(reason));
        if !(1..=10_000).contains(&self.hz) {
            return wrong(format!(
                "hz is {}: it must be an integer from 1 to 10,000 frames per second",
                self.hz
            ));
        }
        if self.features.is_empty() {
            return wrong("it has no feature; [features] maps topics to features".to_owned());
        }
        for (name, feature) in &self.features {
            // It becomes part of file paths.
            if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
                return wrong(format!(
                    "'{name}' is not a valid name of a feature, such as observation.state"
                ));
            }
            if OWN.contains(&name.as_str()) {
                return wrong(format!(
                    "'{name}' is a column of every dataset; choose another name"
                ));
            }
            if feature.paths().is_some_and(<[_]>::is_empty) {
                return wrong(format!("'{name}' has no path"));
            }
        }
        Ok(self)
    }

    /// How messages are matched with frames.
    pub(super) fn rule(&self, method: Pick) -> Rule {
        let rule = Rule::new(method);
        let rule = if self.or_nearest {
            rule.or_nearest()
        } else {
            rule
        };
        self.tolerance
            .map_or(rule, |tolerance| rule.within(tolerance))
    }

    /// How pictures are matched with frames.
    pub(super) fn picture_rule(&self) -> Rule {
        self.rule(match self.method {
            Pick::Interpolate => Pick::Nearest,
            other => other,
        })
    }

    /// The task of episodes without their own.
    pub(super) fn task(&self) -> &str {
        if self.task.is_empty() {
            "unnamed"
        } else {
            &self.task
        }
    }
}

impl Feature {
    /// The topic of pictures.
    pub fn topic(&self) -> Option<&str> {
        match self {
            Feature::Pictures(topic) => Some(topic),
            _ => None,
        }
    }

    /// The paths of numbers.
    pub fn paths(&self) -> Option<&[String]> {
        match self {
            Feature::Pictures(_) => None,
            Feature::Numbers(paths) | Feature::Aligned { paths, .. } => Some(paths),
        }
    }

    /// Its own method.
    pub(super) fn method(&self) -> Option<Pick> {
        match self {
            Feature::Aligned { method, .. } => Some(*method),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Episodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if ["recording", "by_recording"].contains(&text.as_str()) {
            return Ok(Episodes::Recording);
        }
        if text.starts_with('/') {
            return Ok(Episodes::Topic(text));
        }
        match parse_length(&text).filter(|length| *length >= Duration::from_millis(1)) {
            Some(length) => Ok(Episodes::Every(length)),
            None => Err(serde::de::Error::custom(format!(
                "episodes = \"{text}\" is not \"recording\", a duration such as \"30s\", or a topic such as \"/episode\""
            ))),
        }
    }
}

const fn last() -> Pick {
    Pick::Last
}

fn word<'de, D: Deserializer<'de>, T: FromStr<Err = UnknownWord>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

const fn by_log_time() -> On {
    On::LogTime
}

fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let length = parse_length(&text);
    let wrong = || format!("tolerance = \"{text}\" is not a duration, such as \"50ms\"");
    length
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom(wrong()))
}

fn parse_length(text: &str) -> Option<Duration> {
    match format!("+{text}").parse() {
        Ok(When::AfterStart(nanos)) => u64::try_from(nanos).ok().map(Duration::from_nanos),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        DatasetMap::from_toml(text).expect_err(text).to_string()
    }

    #[test]
    fn a_map_says_which_word_is_wrong_and_in_which_line() {
        let features = "[features]\naction = [\"/a.x\"]";
        assert!(error(&format!("hz = 0\n{features}")).contains("from 1 to 10,000"));
        assert!(error("hz = 30\n[features]").contains("no feature"));
        assert!(error(&format!("hz = 30\nhow = 1\n{features}")).contains("line 2"));
        assert!(error(&format!("hz = 30\nepisodes = \"often\"\n{features}")).contains("\"30s\""));
        assert!(error(&format!("hz = 30\ntolerance = \"far\"\n{features}")).contains("50ms"));
        assert!(error("hz = 30\n[features]\naction = 3").contains("paths"));
        assert!(error("hz = 30\n[features]\naction = []").contains("no path"));
        assert!(
            error("hz = 30\n[features]\nindex = [\"/a.x\"]").contains("column of every dataset")
        );
        for name in ["../up", "a/b", ""] {
            assert!(
                error(&format!("hz = 30\n[features]\n\"{name}\" = [\"/a.x\"]"))
                    .contains("not a valid name")
            );
        }
    }

    #[test]
    fn episodes_are_by_recording_by_time_or_by_topic() {
        let of = |text: &str| {
            let text =
                format!(r#"{{"hz": 1, "episodes": "{text}", "features": {{"action": ["/a.x"]}}}}"#);
            DatasetMap::from_json(&text).expect(&text).episodes
        };
        assert_eq!(of("recording"), Episodes::Recording);
        assert_eq!(of("1.5s"), Episodes::Every(Duration::from_millis(1500)));
        assert_eq!(of("/episode"), Episodes::Topic("/episode".into()));
    }
}
