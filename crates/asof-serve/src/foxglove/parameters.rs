//! The parameters of a recording: those of PX4 logs, and the events of ROS 2 nodes.

use std::collections::{BTreeMap, HashSet};

use asof_blocks::HeadClass;
use asof_core::{Channel, Query, Source, Stamp, Summary, TimeRange};
use asof_decode::Decoders;
use asof_foxglove::ParameterValue;
use serde_json::{Value, json};

use crate::app::App;
use crate::record::json_of;
use crate::tracks::size_of_value;

/// The most parameters that are known. Others are left out, and counted; the values of these stay current.
const MOST_PARAMETERS: usize = 10_000;
/// About the bytes of all parameters, with their text.
pub(crate) const PARAMETER_BYTES: usize = 16 << 20;
/// The largest message with parameters.
const LARGEST_EVENT: usize = 1 << 20;

/// The topics of parameters.
pub(super) fn topics(summary: &Summary) -> Vec<String> {
    let all = summary.channels.iter().map(|entry| &entry.channel);
    let mut topics: Vec<String> = all
        .filter(|channel| Kind::of(channel).is_some())
        .map(|channel| channel.topic.clone())
        .collect();
    topics.sort();
    topics.dedup();
    topics
}

/// The parameters as of a time, or the named ones, as values of the protocol; and what to tell of others.
pub(super) fn as_of(
    app: &App,
    at: Stamp,
    names: &[String],
) -> Result<(Vec<ParameterValue>, Option<String>), String> {
    let wanted: HashSet<&String> = names.iter().collect();
    let is_wanted = |name: &String| wanted.is_empty() || wanted.contains(name);
    let known = values_as_of(app, at, || true)?;
    let cut = known.cut();
    let told = known.values.into_iter().filter(|(name, _)| is_wanted(name));
    Ok((
        told.map(|(name, value)| told_as(&name, &value)).collect(),
        cut,
    ))
}

/// The parameters as of a time, by name, as long as somebody waits for them.
pub(crate) fn values_as_of(
    app: &App,
    at: Stamp,
    is_wanted: impl Fn() -> bool,
) -> Result<ParameterStore, String> {
    let query = Query::topics(topics(&app.cache.summary()));
    let query = query.between(TimeRange::new(Stamp::MIN, at));
    let mut decoders = Decoders::default();
    let mut known = ParameterStore::default();
    crate::series::each(&app.cache, &query, HeadClass::Scrub, |message| {
        if let Some(kind) = Kind::of(&message.channel) {
            if message.payload.len() <= LARGEST_EVENT
                && let Ok(json) = json_of(&mut decoders, &message)
                && let Ok(value) = serde_json::from_slice(&json)
            {
                kind.take(&value, &mut known);
            } else {
                known.unread += 1;
            }
        }
        is_wanted()
    })?;
    Ok(known)
}

/// The format of parameter messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One per message: `name`, `type`, `value`, `source`.
    Px4,
    /// A node's changes: rcl_interfaces/msg/ParameterEvent.
    Ros2,
}

impl Kind {
    fn of(channel: &Channel) -> Option<Self> {
        match channel.type_name() {
            "rcl_interfaces/msg/ParameterEvent" => Some(Kind::Ros2),
            "ulog/msg/Parameter" => Some(Kind::Px4),
            _ => None,
        }
    }

    fn take(self, message: &Value, known: &mut ParameterStore) {
        match self {
            Kind::Px4 => {
                // A default is not the value that was set.
                if message["source"] != "default"
                    && let Some(name) = message["name"].as_str()
                {
                    let value = match message["type"].as_str() {
                        Some("int32_t") => json!(message["value"].as_f64().map(|n| n as i64)),
                        _ => message["value"].clone(),
                    };
                    known.put(name.to_owned(), value);
                }
            }
            Kind::Ros2 => {
                let node = message["node"].as_str().unwrap_or_default();
                let named = |one: &Value| one["name"].as_str().map(|name| format!("{node}.{name}"));
                let list = |field: &str| message[field].as_array().into_iter().flatten();
                for one in list("new_parameters").chain(list("changed_parameters")) {
                    if let Some((name, value)) = named(one).zip(value_of(&one["value"])) {
                        known.put(name, value);
                    }
                }
                for name in list("deleted_parameters").filter_map(named) {
                    known.remove(&name);
                }
            }
        }
    }
}

/// The parameters so far, within their limits.
#[derive(Default)]
pub(crate) struct ParameterStore {
    pub values: BTreeMap<String, Value>,
    bytes: usize,
    /// How many values there was no room for.
    left_out: u64,
    /// How many messages are too large or cannot be decoded.
    unread: u64,
}

impl ParameterStore {
    /// What is missing, for the user.
    pub fn cut(&self) -> Option<String> {
        let mut said = Vec::new();
        if self.left_out > 0 {
            said.push(format!(
                "{} values of parameters are left out: at most {MOST_PARAMETERS} parameters and {} MB are kept",
                self.left_out,
                PARAMETER_BYTES >> 21
            ));
        }
        if self.unread > 0 {
            said.push(format!(
                "{} messages with parameters were not read: they cannot be decoded, or are larger than {} MB",
                self.unread,
                LARGEST_EVENT >> 20
            ));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    fn put(&mut self, name: String, value: Value) {
        self.remove(&name);
        let bytes = size(&name, &value);
        if self.values.len() < MOST_PARAMETERS && self.bytes + bytes <= PARAMETER_BYTES / 2 {
            self.bytes += bytes;
            self.values.insert(name, value);
        } else {
            self.left_out += 1;
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(value) = self.values.remove(name) {
            self.bytes -= size(name, &value);
        }
    }
}

/// About the memory that a parameter takes.
fn size(name: &str, value: &Value) -> usize {
    64 + name.len() + size_of_value(value)
}

/// The value in an rcl_interfaces/msg/ParameterValue, according to its type.
fn value_of(value: &Value) -> Option<Value> {
    let field = match value["type"].as_u64()? {
        1 => "bool_value",
        2 => "integer_value",
        3 => "double_value",
        4 => "string_value",
        5 => "byte_array_value",
        6 => "bool_array_value",
        7 => "integer_array_value",
        8 => "double_array_value",
        9 => "string_array_value",
        _ => return None,
    };
    value.get(field).cloned()
}

/// A parameter as a value of the protocol. Floats that are whole numbers are marked: JSON does not distinguish them
/// from integers.
fn told_as(name: &str, value: &Value) -> ParameterValue {
    let is_float = |value: &Value| value.is_f64();
    let kind = match value {
        one if is_float(one) => Some("float64"),
        Value::Array(all) if !all.is_empty() && all.iter().all(is_float) => Some("float64_array"),
        _ => None,
    };
    ParameterValue {
        name: name.to_owned(),
        value: Some(value.clone()),
        kind: kind.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_a_default_is_none() {
        let mut known = ParameterStore::default();
        for (source, value) in [("initial", 1.0), ("default", 7.0), ("changed", 2.0)] {
            let message =
                json!({ "name": "SPEED", "type": "float", "value": value, "source": source });
            Kind::Px4.take(&message, &mut known);
        }
        let count =
            json!({ "name": "COUNT", "type": "int32_t", "value": 3.0, "source": "initial" });
        Kind::Px4.take(&count, &mut known);
        let expected = [
            ("COUNT".to_owned(), json!(3)),
            ("SPEED".to_owned(), json!(2.0)),
        ];
        assert_eq!(known.values, BTreeMap::from(expected));
        assert_eq!(
            told_as("SPEED", &json!(2.0)).kind.as_deref(),
            Some("float64")
        );
    }

    #[test]
    fn with_too_many_parameters_those_that_are_known_stay_current() {
        let mut known = ParameterStore::default();
        let mut tell = |name: &str, value: f64| {
            let message =
                json!({ "name": name, "type": "float", "value": value, "source": "changed" });
            Kind::Px4.take(&message, &mut known);
        };
        for number in 0..2 * MOST_PARAMETERS {
            tell(&number.to_string(), 1.0);
        }
        tell("7", 2.0);
        assert_eq!(known.left_out, MOST_PARAMETERS as u64);
        let said = known.cut().expect("what is left out");
        assert!(said.starts_with("10000 values of parameters"), "{said}");
        let known = known.values;
        assert_eq!((known.len(), &known["7"]), (MOST_PARAMETERS, &json!(2.0)));
    }

    #[test]
    fn a_nodes_parameters_come_change_and_go() {
        let value = |name: &str, number: i64| json!({ "name": name, "value": { "type": 2, "integer_value": number } });
        let mut known = ParameterStore::default();
        let new = json!({ "node": "/a", "new_parameters": [value("x", 1), value("y", 1)] });
        Kind::Ros2.take(&new, &mut known);
        let changed = json!({
            "node": "/a", "changed_parameters": [value("x", 2)], "deleted_parameters": [value("y", 0)],
        });
        Kind::Ros2.take(&changed, &mut known);
        let expected = BTreeMap::from([("/a.x".to_owned(), json!(2))]);
        assert_eq!(known.values, expected);
    }

    #[test]
    fn parameters_that_are_very_long_do_not_add_up() {
        let mut known = ParameterStore::default();
        for number in 0..100 {
            known.put(number.to_string(), "x".repeat(1 << 20).into());
        }
        assert!(known.bytes <= PARAMETER_BYTES && known.values.len() < 20);
        known.put("0".to_owned(), 1.into());
        assert_eq!(known.values["0"], 1);
        assert!(known.left_out > 80);
    }
}
