//! Expectations of recordings, as a file states them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use asof_core::When;
use asof_decode::FieldPath;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// All expectations of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// For its topics, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topics: BTreeMap<String, OfTopic>,
    /// For its transforms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<OfTransform>,
    /// Queries that must return no rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sql: Vec<OfQuery>,
}

/// The expectations of a topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfTopic {
    /// Its type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// How many messages it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Bounds<f64>>,
    /// Messages per second of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bounds<f64>>,
    /// The longest time without a message, the ends of the recording included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Span>,
    /// From a message's stamp to its log time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Bounds<Span>>,
    /// How much the latency may change from one message to the next: more means that a clock was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<Span>,
    /// The values of fields, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ranges: BTreeMap<Path, Bounds<f64>>,
}

/// A transform that must be known at every stamp of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfTransform {
    /// The frame that is looked up from.
    pub from: String,
    /// The frame that must be known in it.
    pub to: String,
    /// The topic.
    pub at: String,
}

/// A query that must return no rows: each row is a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfQuery {
    /// Its name in reports; the query itself without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The query.
    pub query: String,
}

/// A range of values, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds<T> {
    /// The least; `None` for no bound.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub min: Option<T>,
    /// The most; `None` for no bound.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub max: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

impl<T: PartialOrd> Bounds<T> {
    /// From one value to another.
    pub fn new(min: T, max: T) -> Self {
        Bounds {
            min: Some(min),
            max: Some(max),
        }
    }

    /// Whether a value is within; false for not-a-number.
    pub fn has(&self, value: &T) -> bool {
        self.min.as_ref().is_none_or(|min| value >= min)
            && self.max.as_ref().is_none_or(|max| value <= max)
            && value.partial_cmp(value).is_some()
    }
}

impl<T: fmt::Display> fmt::Display for Bounds<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.min, &self.max) {
            (Some(min), Some(max)) => write!(f, "{min} to {max}"),
            (Some(min), None) => write!(f, "at least {min}"),
            (None, Some(max)) => write!(f, "at most {max}"),
            (None, None) => f.write_str("anything"),
        }
    }
}

/// A signed duration, in nanoseconds: `25ms`, `-1.5s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub i64);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let signed = if text.starts_with(['+', '-']) {
            text.to_owned()
        } else {
            format!("+{text}")
        };
        match signed.parse() {
            Ok(When::AfterStart(nanos)) => Ok(Span(nanos)),
            Ok(When::BeforeEnd(nanos)) => Ok(Span(-nanos)),
            _ => Err(format!(
                "'{text}' is not a duration, such as 25ms, 1.5s or -3ms"
            )),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0;
        if nanos % 1_000_000_000 == 0 || nanos.unsigned_abs() >= 10_000_000_000 {
            write!(f, "{}s", nanos as f64 / 1e9)
        } else if nanos.unsigned_abs() >= 1_000 {
            write!(f, "{}ms", nanos as f64 / 1e6)
        } else {
            write!(f, "{nanos}ns")
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A path to a field; `[]` selects all elements of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub FieldPath);

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        FieldPath::parse(&text)
            .map(Path)
            .map_err(serde::de::Error::custom)
    }
}

impl Expectations {
    /// How many there are.
    pub fn count(&self) -> usize {
        let of_topic = |topic: &OfTopic| {
            usize::from(topic.type_name.is_some())
                + usize::from(topic.messages.is_some())
                + usize::from(topic.rate.is_some())
                + usize::from(topic.gap.is_some())
                + usize::from(topic.latency.is_some())
                + usize::from(topic.jump.is_some())
                + topic.ranges.len()
        };
        self.topics.values().map(of_topic).sum::<usize>() + self.transforms.len() + self.sql.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_expected_and_is_written_as_it_is_read() {
        let text = r#"
            [topics."/odom"]
            rate = { min = 45, max = 55.5 }
            gap = "60ms"
            latency = { max = "25ms" }
            [topics."/odom".ranges]
            "twist.twist.linear.x" = { min = -1, max = 1 }
            [[transforms]]
            from = "map"
            to = "base_link"
            at = "/scan"
            [[sql]]
            query = 'SELECT 1 WHERE false'
        "#;
        let read: Expectations = toml::from_str(text).expect("TOML");
        assert_eq!(read.count(), 6);
        assert_eq!(read.topics["/odom"].gap, Some(Span(60_000_000)));
        let written = toml::to_string(&read).expect("TOML");
        assert_eq!(toml::from_str::<Expectations>(&written), Ok(read));
    }

    #[test]
    fn what_is_not_known_or_not_a_time_is_an_error_that_names_it() {
        for (text, named) in [
            ("[topics.'/odom']\nrat = {min = 1}", "rat"),
            ("[topics.'/odom']\ngap = 'soon'", "soon"),
            ("[topics.'/odom'.ranges]\n'a..b' = {min = 1}", "a..b"),
            ("[topics.'/odom']\nrate = 50", "rate"),
        ] {
            let error = toml::from_str::<Expectations>(text).expect_err(text);
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn spans_print_as_they_are_read() {
        for nanos in [
            0,
            1,
            999,
            1_000,
            25_000_000,
            -1_500_000_000,
            3_600_000_000_000,
        ] {
            let span = Span(nanos);
            assert_eq!(span.to_string().parse(), Ok(span), "{span}");
        }
    }

    #[test]
    fn bounds_hold_their_ends_and_no_nan() {
        let bounds = Bounds::new(0.0, 1.0);
        assert!(bounds.has(&0.0) && bounds.has(&1.0));
        assert!(!bounds.has(&1.1) && !bounds.has(&f64::NAN));
        let open: Bounds<f64> = Bounds {
            min: None,
            max: None,
        };
        assert!(open.has(&f64::INFINITY) && !open.has(&f64::NAN));
    }
}
