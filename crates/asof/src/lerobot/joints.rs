//! Joints by their names: `/joint_states.position[shoulder]`.
//!
//! The messages of joint states need not list the same joints: an arm and its gripper often share the topic. The value of a joint
//! is that of the messages that have it.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use asof_align::{Match, On, Rule, Track, between};
use asof_core::{Source, Stamp};
use asof_decode::{TopicOptions, TopicTable, numbers};

use super::LerobotError;
use crate::align::{AlignError, AlignOptions, range_of};

/// The lists of numbers beside the names of joints.
pub(super) const FIELDS: [&str; 3] = ["position", "velocity", "effort"];

/// The field and the joint of a path into a message, if it has one: `position[shoulder]`. A number is an index as elsewhere.
pub(super) fn joint_of(way: &str) -> Option<(&str, &str)> {
    let (field, joint) = way.strip_suffix(']')?.split_once('[')?;
    let is_name = !joint.is_empty() && joint.parse::<usize>().is_err();
    (is_name && FIELDS.contains(&field)).then_some((field, joint))
}

/// A way on for joints that vary.
pub(super) fn hint(path: &str) -> String {
    if FIELDS
        .iter()
        .any(|field| path.ends_with(&format!(".{field}")))
    {
        format!("; select joints by name: '{path}[shoulder]'")
    } else {
        String::new()
    }
}

/// The values of joints of one topic, by field and joint.
pub(super) struct Joints {
    tracks: BTreeMap<(String, String), Track<f64>>,
    /// Messages that could not be decoded, or have no stamp.
    pub(super) left_out: u64,
}

impl Joints {
    /// Reads the values of some joints: fields with the names of joints, and the paths by which they were asked for.
    pub(super) fn read(
        source: &dyn Source,
        topic: &str,
        on: On,
        wanted: &BTreeMap<(String, String), String>,
        align: &AlignOptions,
    ) -> Result<Self, LerobotError> {
        let fields: BTreeSet<&str> = wanted.keys().map(|(field, _)| field.as_str()).collect();
        let mut columns = vec![on.word().to_owned(), "name".to_owned()];
        columns.extend(fields.iter().map(|field| (*field).to_owned()));
        let options = TopicOptions {
            columns: Some(columns),
            range: range_of(source, topic, align)?,
            ..TopicOptions::default()
        };
        let table = TopicTable::new(source, topic, options).map_err(AlignError::from)?;
        if !matches!(table.schema().field(0).data_type(), DataType::Timestamp(..)) {
            let topic = topic.to_owned();
            return Err(AlignError::NoStamp { topic }.into());
        }
        let mut values: BTreeMap<&(String, String), Vec<(Stamp, f64)>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut left_out = 0;
        let mut batches = table.read(source).map_err(AlignError::from)?;
        for batch in &mut batches {
            let batch = batch.map_err(AlignError::from)?;
            left_out += add(&batch, on, wanted, &mut values, &mut seen)
                .ok_or_else(|| not_joints(topic, wanted))?;
        }
        left_out += batches.failed();
        if let Some((key, path)) = wanted.iter().find(|(key, _)| !seen.contains(&key.1)) {
            return Err(LerobotError::NoJoint {
                path: path.clone(),
                joint: key.1.clone(),
                joints: seen.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        let tracks = values.into_iter();
        Ok(Joints {
            tracks: tracks
                .map(|(key, values)| (key.clone(), values.into_iter().collect()))
                .collect(),
            left_out,
        })
    }

    /// The values of a joint at these times, which are in order.
    pub(super) fn at(&self, key: &(String, String), times: &[i64], rule: Rule) -> Vec<Option<f64>> {
        let Some(track) = self.tracks.get(key) else {
            return vec![None; times.len()];
        };
        let mut cursor = track.cursor();
        let value = |time: &i64| match cursor.pick(Stamp::from_nanos(*time), rule) {
            Match::Found(found) => Some(*found.value),
            Match::Between {
                before,
                after,
                fraction,
            } => Some(between::number(*before.value, *after.value, fraction)),
            Match::Missing(_) => None,
        };
        times.iter().map(value).collect()
    }
}

/// Adds the values of a batch; returns how many messages have no time. `None` where it is not a batch of joints.
fn add<'a>(
    batch: &RecordBatch,
    on: On,
    wanted: &'a BTreeMap<(String, String), String>,
    values: &mut BTreeMap<&'a (String, String), Vec<(Stamp, f64)>>,
    seen: &mut BTreeSet<String>,
) -> Option<u64> {
    let times = batch
        .column(0)
        .as_primitive_opt::<TimestampNanosecondType>()?;
    let names = batch.column(1).as_list_opt::<i32>()?;
    let mut left_out = 0;
    for row in 0..batch.num_rows() {
        let time = times.is_valid(row).then(|| times.value(row));
        let Some(time) = on.known(time) else {
            left_out += 1;
            continue;
        };
        let joints = names.value(row);
        let joints = joints.as_string_opt::<i32>()?;
        seen.extend(joints.iter().flatten().map(str::to_owned));
        for key in wanted.keys() {
            let place = joints.iter().position(|name| name == Some(&key.1));
            let list = batch.column_by_name(&key.0)?.as_list_opt::<i32>()?;
            // A message may have no efforts at all.
            let value = place.and_then(|at| numbers(&*list.value(row)).get(at).copied());
            if let Some(value) = value.filter(|value| value.is_finite()) {
                let stamped = (Stamp::from_nanos(time), value);
                values.entry(key).or_default().push(stamped);
            }
        }
    }
    Some(left_out)
}

fn not_joints(topic: &str, wanted: &BTreeMap<(String, String), String>) -> LerobotError {
    let path = wanted.values().next().cloned();
    LerobotError::NotNumbers {
        path: path.unwrap_or_else(|| topic.to_owned()),
    }
}
