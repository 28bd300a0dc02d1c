//! What is worth a plot at first sight: fields that vary.

use std::collections::BTreeMap;

use asof_core::{Channel, Message, Source as _, Stamp, Summary, TimeRange, Topics};
use asof_decode::{Archetype, Decoders};
use serde::Serialize;

use crate::app::{App, role_of};
use crate::record::{fields_of, plot_of};
use crate::reply::{Failure, Reply};

/// A plot for the first view: fields of one topic that vary, no two of them alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Plot {
    pub topic: String,
    pub fields: Vec<String>,
}

/// The most topics that are looked at, and fields of each.
const MOST_TOPICS: usize = 48;
const MOST_FIELDS: usize = 64;
/// The messages of a topic that are looked at: those as of this many instants, from the start to the end.
const INSTANTS: i64 = 16;
/// The most fields of a plot whose type has no known meaning.
const MOST_LINES: usize = 3;
/// The most plots.
const MOST_PLOTS: usize = 12;
/// Larger messages are hardly numbers to plot.
const LARGEST: usize = 256 << 10;
/// Values that differ by no more than this differ by rounding: 1e-17 where a robot computes a zero.
const NOISE: f64 = 1e-12;
/// About the bytes of one topic's decoded messages.
const PLOT_BYTES: usize = 4 << 20;

/// Plots of the fields that vary, the best first: odometry, poses and sensors before types of no known meaning, and those
/// before commands. A pose is known by its type, or else by its name.
pub(crate) fn plots(app: &App, reply: &Reply) -> Result<Vec<Plot>, Failure> {
    let summary = app.cache.summary();
    let candidates = candidates(&summary);
    let names = Topics::named(candidates.iter().map(|channel| channel.topic.as_str()));
    let mut samples: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    let mut room = reply.room(PLOT_BYTES)?;
    for at in instants(summary.range) {
        let known = app.cache.latest_at(&names, at);
        for message in known.map_err(|error| error.to_string())?.iter() {
            let message = message.to_message();
            let known = samples.entry(message.channel.topic.clone()).or_default();
            let is_new = known.last().is_none_or(|last| {
                (last.log_time, last.sequence) != (message.log_time, message.sequence)
            });
            if is_new && message.payload.len() <= LARGEST {
                room.join(reply.room(message.payload.len())?);
                known.push(message);
            }
        }
    }
    let mut plots = Vec::new();
    let mut curves = Vec::new();
    for channel in &candidates {
        let Some(messages) = samples.get(&channel.topic) else {
            continue;
        };
        let fields = varying(channel, messages, &mut curves);
        if !fields.is_empty() && plots.len() < MOST_PLOTS {
            let topic = channel.topic.clone();
            plots.push(Plot { topic, fields });
        }
    }
    Ok(plots)
}

/// The topics that may have numbers to plot, the best first.
fn candidates(summary: &Summary) -> Vec<&Channel> {
    let mut topics: BTreeMap<&str, (&Channel, u64)> = BTreeMap::new();
    for entry in &summary.channels {
        let known = topics.entry(&entry.channel.topic);
        let (_, count) = known.or_insert((&entry.channel, 0));
        *count = count.saturating_add(entry.messages.unwrap_or(u64::MAX));
    }
    let mut ranked: Vec<(u8, &Channel)> = topics
        .into_values()
        .filter(|(_, count)| *count > 1)
        .filter_map(|(channel, _)| Some((rank(channel)?, channel)))
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let channels = ranked.into_iter().map(|(_, channel)| channel);
    channels.take(MOST_TOPICS).collect()
}

/// The rank of a topic, the lower the better; `None` where it has a panel of its own instead of a plot.
fn rank(channel: &Channel) -> Option<u8> {
    let name = channel.topic.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let is_command = has(&["cmd", "command", "goal", "setpoint"]);
    let archetype = Archetype::of(channel.type_name());
    let is_known = archetype.is_some_and(|archetype| archetype.list().is_none());
    let rank = match role_of(channel) {
        None if is_known || has(&["odom", "pose", "position"]) => 2,
        None => 5,
        Some("pose") if archetype.is_some_and(|archetype| archetype.name == "Odometry") => 0,
        Some("pose" | "point") => 1,
        Some("range" | "wrench" | "joints") => 3,
        Some("velocity") => 4,
        Some(_) => return None,
    };
    // What the robot did comes before what it was told to do.
    Some(if is_command { 6 } else { rank })
}

fn instants(range: TimeRange) -> impl Iterator<Item = Stamp> {
    let step = range.duration_nanos().max(0) / (INSTANTS - 1);
    let has_any = !range.is_empty();
    let middle = (1..INSTANTS - 1).map(move |at| range.start.plus_nanos(at * step));
    [range.start]
        .into_iter()
        .chain(middle)
        .chain([range.end])
        .filter(move |_| has_any)
}

/// The fields of a topic that vary: those that its meaning names, or else the first few. A curve that is there
/// already is left out.
fn varying(channel: &Channel, messages: &[Message], curves: &mut Vec<Vec<u64>>) -> Vec<String> {
    let mut decoders = Decoders::default();
    let named = plot_of(channel);
    let Some(last) = messages.last() else {
        return Vec::new();
    };
    let sample = decoders.record(last).ok();
    let Ok(decoder) = decoders.of(&last.channel, &[&last.payload]) else {
        return Vec::new();
    };
    let fields = fields_of(decoder, sample.as_ref()).into_iter();
    let numbers = fields.filter(|field| field.kind == "number" && is_measured(&field.path));
    let others: Vec<String> = numbers.take(MOST_FIELDS).map(|field| field.path).collect();
    let paths: Vec<&String> = named.iter().chain(&others).collect();
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); paths.len()];
    for message in messages {
        let Ok(record) = decoders.record(message) else {
            continue;
        };
        for (values, path) in values.iter_mut().zip(&paths) {
            values.extend(record.number(path).filter(|value| value.is_finite()));
        }
    }
    let mut take = |range: std::ops::Range<usize>, most: usize| {
        let mut found = Vec::new();
        for index in range {
            let curve: Vec<u64> = values[index].iter().map(|value| value.to_bits()).collect();
            if found.len() < most && varies(&values[index]) && !curves.contains(&curve) {
                curves.push(curve);
                found.push(paths[index].clone());
            }
        }
        found
    };
    let known = take(0..named.len(), usize::MAX);
    if known.is_empty() {
        take(named.len()..values.len(), MOST_LINES)
    } else {
        known
    }
}

/// Whether values are neither constant nor a count of messages or of time.
fn varies(values: &[f64]) -> bool {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_constant = most - least <= (1e-9 * most.abs().max(least.abs())).max(NOISE);
    // Seconds and nanoseconds since 1970 are no measurements.
    let is_time = least > 1e9 && values.is_sorted();
    values.len() > 1 && !is_constant && !is_time
}

/// Whether a name is not that of a header, of a count or of an uncertainty.
fn is_measured(path: &str) -> bool {
    const OTHERS: [&str; 16] = [
        "header",
        "stamp",
        "timestamp",
        "time",
        "sec",
        "secs",
        "nsec",
        "nsecs",
        "nanosec",
        "nanos",
        "seq",
        "sequence",
        "sequence_number",
        "type",
        "id",
        "covariance",
    ];
    path.split('.').all(|part| {
        let name = part.split('[').next().unwrap_or(part).to_ascii_lowercase();
        !OTHERS.contains(&name.as_str())
            && !name.ends_with("covariance")
            && !name.starts_with("timestamp")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_counts_of_time_and_single_values_do_not_vary() {
        assert!(varies(&[0.0, 0.1, 0.0]));
        assert!(!varies(&[5.5, 5.5, 5.5]));
        assert!(!varies(&[0.0, 1.2e-17, 7.9e-17]));
        assert!(varies(&[0.0, 2e-9, 1e-9]));
        assert!(!varies(&[5.5]));
        assert!(!varies(&[]));
        assert!(!varies(&[1.7e18, 1.8e18, 1.9e18]));
        // A frequency in hertz goes up and down.
        assert!(varies(&[2.4e9, 2.5e9, 2.4e9]));
    }

    #[test]
    fn what_a_robot_did_comes_before_what_it_was_told_to_do() {
        let rank = |topic: &str, name: &str| {
            let schema = asof_core::Schema {
                name: name.to_owned(),
                ..asof_core::Schema::default()
            };
            rank(&Channel {
                topic: topic.to_owned(),
                schema: Some(std::sync::Arc::new(schema)),
                ..Channel::default()
            })
        };
        let ranks = [
            ("/odom", "nav_msgs/Odometry"),
            ("/pose", "geometry_msgs/PoseStamped"),
            ("/imu", "sensor_msgs/Imu"),
            ("/turtle1/pose", "turtlesim/Pose"),
            ("/joints", "sensor_msgs/JointState"),
            ("/velocity", "geometry_msgs/TwistStamped"),
            ("/turtle1/color_sensor", "turtlesim/Color"),
            ("/turtle1/cmd_vel", "geometry_msgs/Twist"),
        ]
        .map(|(topic, name)| rank(topic, name));
        assert!(ranks.is_sorted() && ranks[6] < ranks[7], "{ranks:?}");
        assert_eq!(rank("/goal_pose", "geometry_msgs/PoseStamped"), ranks[7]);
        assert_eq!(rank("/camera", "sensor_msgs/Image"), None);
    }

    #[test]
    fn headers_and_uncertainties_are_not_measured() {
        for path in [
            "header.stamp.sec",
            "pose.covariance[3]",
            "seq",
            "new_parameters[0].value.type",
            "timestamp_ns",
        ] {
            assert!(!is_measured(path), "{path}");
        }
        for path in ["linear.x", "speed", "cells[2].voltage"] {
            assert!(is_measured(path), "{path}");
        }
    }

    #[test]
    fn instants_go_from_the_first_to_the_last_message() {
        let range = TimeRange::new(Stamp::from_nanos(10), Stamp::from_nanos(20));
        let all: Vec<Stamp> = instants(range).collect();
        assert_eq!(
            (all.first(), all.last()),
            (Some(&range.start), Some(&range.end))
        );
        assert!(all.is_sorted());
        assert_eq!(instants(TimeRange::EMPTY).count(), 0);
    }
}
