//! Numbers of a feature, one row for each frame.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use asof_core::{Source, TimeRange, Topics};
use asof_decode::{Decoders, is_number, numbers};

use super::joints::{FIELDS, Joints, joint_of};
use super::map::Feature;
use super::{DatasetMap, LerobotError};
use crate::align::{AlignOptions, Alignment};

/// A feature's numbers, row by row.
pub(super) struct Rows {
    pub(super) width: usize,
    pub(super) values: Vec<f32>,
    /// Whether all numbers of a row are known.
    pub(super) known: Vec<bool>,
    /// Messages that could not be decoded, or have no stamp.
    pub(super) left_out: u64,
}

impl Rows {
    /// The numbers of a range of rows.
    pub(super) fn between(&self, start: usize, end: usize) -> &[f32] {
        &self.values[start * self.width..end * self.width]
    }
}

/// The values of a feature at these times.
pub(super) fn rows(
    source: &dyn Source,
    map: &DatasetMap,
    feature: &Feature,
    paths: &[String],
    times: &Arc<[i64]>,
) -> Result<Rows, LerobotError> {
    let mut topics: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut columns = Vec::new();
    // The paths by the positions of their numbers, and the joints among them by topic.
    let mut places = Vec::new();
    let mut joints: BTreeMap<String, BTreeMap<JointKey, String>> = BTreeMap::new();
    for path in paths {
        let (topic, way) = split(source, path)?;
        if let Some((field, joint)) = joint_of(&way) {
            let key = (field.to_owned(), joint.to_owned());
            let wanted = joints.entry(topic.clone()).or_default();
            wanted.insert(key.clone(), path.clone());
            places.push(Place::Joint(topic, key));
            continue;
        }
        places.push(Place::Column(columns.len()));
        columns.push(format!("{topic}.{way}"));
        let ways = topics.entry(topic).or_default();
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let names: Vec<String> = topics.keys().cloned().collect();
    let (first, last) = (times.first().copied(), times.last().copied());
    let rule = map.rule(feature.method().unwrap_or(map.method));
    let options = AlignOptions {
        rule,
        on: Some(map.on),
        columns: topics,
        range: TimeRange::new(first.unwrap_or(0).into(), last.unwrap_or(-1).into()),
        ..AlignOptions::default()
    };
    let mut rows = Rows {
        width: 0,
        values: Vec::new(),
        known: Vec::with_capacity(times.len()),
        left_out: 0,
    };
    let mut parts: Vec<Part> = vec![Part::default(); columns.len()];
    if !names.is_empty() {
        let aligned = Alignment::at(source, Arc::clone(times), &names, options.clone())?;
        let mut batches = aligned.read(source)?;
        for batch in &mut batches {
            let batch = batch?;
            for (part, column) in parts.iter_mut().zip(&columns) {
                part.add(&column_of(&batch, column)?, column)?;
            }
        }
        rows.left_out = batches.left_out();
    }
    let mut joined = BTreeMap::new();
    for (topic, wanted) in &joints {
        let found = Joints::read(source, topic, map.on, wanted, &options)?;
        rows.left_out += found.left_out;
        joined.insert(topic, found);
    }
    let parts: Vec<Part> = (places.iter())
        .map(|place| match place {
            Place::Column(at) => std::mem::take(&mut parts[*at]),
            Place::Joint(topic, key) => Part::of(joined[topic].at(key, times, rule)),
        })
        .collect();
    rows.width = parts.iter().map(|part| part.width.unwrap_or(0)).sum();
    for row in 0..times.len() {
        let is_known = parts.iter().all(|part| part.is_known(row));
        rows.known.push(is_known);
        if is_known {
            rows.values
                .extend(parts.iter().flat_map(|part| &part.rows[row]));
        } else {
            rows.values.extend(std::iter::repeat_n(0.0, rows.width));
        }
    }
    Ok(rows)
}

/// A field and a joint.
type JointKey = (String, String);

/// Where the numbers of a path come from.
enum Place {
    Column(usize),
    Joint(String, JointKey),
}

/// The numbers of one path, row by row.
#[derive(Clone, Default)]
struct Part {
    width: Option<usize>,
    /// None where they are not all known.
    rows: Vec<Vec<f32>>,
}

impl Part {
    fn of(values: Vec<Option<f64>>) -> Self {
        let rows = values.into_iter();
        Part {
            width: Some(1),
            rows: rows
                .map(|value| value.map(|value| value as f32).into_iter().collect())
                .collect(),
        }
    }

    fn add(&mut self, array: &ArrayRef, path: &str) -> Result<(), LerobotError> {
        let spread = Spread::of(array).ok_or_else(|| not_numbers(path))?;
        for row in 0..array.len() {
            let mut values = Vec::new();
            let is_known =
                spread.push(row, &mut values) && values.iter().all(|value| value.is_finite());
            if is_known {
                let width = *self.width.get_or_insert(values.len());
                if width != values.len() {
                    return Err(LerobotError::Uneven {
                        path: path.to_owned(),
                        one: width,
                        other: values.len(),
                    });
                }
            } else {
                values.clear();
            }
            self.rows.push(values);
        }
        Ok(())
    }

    fn is_known(&self, row: usize) -> bool {
        let width = self.width.filter(|width| *width > 0);
        width.is_some_and(|width| self.rows.get(row).is_some_and(|row| row.len() == width))
    }
}

/// The names of the numbers of a feature: its joints, else paths and indexes.
pub(super) fn names(source: &dyn Source, paths: &[String], widths: usize) -> Vec<String> {
    let mut names = Vec::new();
    for path in paths {
        let Ok((topic, way)) = split(source, path) else {
            continue;
        };
        let own = joint_of(&way).map(|(_, joint)| vec![joint.to_owned()]);
        let own = own.or_else(|| joints(source, &topic, &way));
        names.extend(own.unwrap_or_else(|| vec![path.clone()]));
    }
    if names.len() == widths {
        return names;
    }
    if let [path] = paths {
        return (0..widths).map(|at| format!("{path}[{at}]")).collect();
    }
    (0..widths).map(|at| at.to_string()).collect()
}

/// The names of the joints of a topic, if it has them.
fn joints(source: &dyn Source, topic: &str, way: &str) -> Option<Vec<String>> {
    if !FIELDS.contains(&way) {
        return None;
    }
    let end = source.summary().range.end;
    let last = source.latest_at(&Topics::named([topic]), end).ok()?;
    let record = Decoders::default()
        .record(&last.get(0)?.to_message())
        .ok()?;
    let names = record.items("name")?;
    let names = names.as_string_opt::<i32>()?;
    let names = names.iter().map(|name| name.map(str::to_owned));
    names.collect()
}

/// The topic of a path, which may contain dots, and the path into its messages.
pub(super) fn split(source: &dyn Source, path: &str) -> Result<(String, String), LerobotError> {
    let summary = source.summary();
    let known = summary.topics();
    let points = path.match_indices('.').map(|(at, _)| at);
    for at in points {
        if known.contains(&&path[..at]) {
            return Ok((path[..at].to_owned(), path[at + 1..].to_owned()));
        }
    }
    Err(LerobotError::NoPath {
        path: path.to_owned(),
        topics: known.join(", "),
    })
}

fn column_of(batch: &RecordBatch, name: &str) -> Result<ArrayRef, LerobotError> {
    let column = batch.column_by_name(name);
    column.cloned().ok_or_else(|| not_numbers(name))
}

fn not_numbers(path: &str) -> LerobotError {
    LerobotError::NotNumbers {
        path: path.to_owned(),
    }
}

/// An array whose rows are numbers, or lists or structs of them.
enum Spread {
    Numbers(Vec<f64>),
    Lists(ArrayRef, Vec<(usize, usize)>, Box<Spread>),
    Structs(ArrayRef, Vec<Spread>),
}

impl Spread {
    fn of(array: &ArrayRef) -> Option<Self> {
        match array.data_type() {
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                let ends = lists.value_offsets().windows(2);
                let ends = ends
                    .map(|pair| (pair[0] as usize, pair[1] as usize))
                    .collect();
                let inner = Spread::of(lists.values())?;
                Some(Spread::Lists(Arc::clone(array), ends, Box::new(inner)))
            }
            DataType::FixedSizeList(_, size) => {
                let lists = array.as_fixed_size_list();
                let size = usize::try_from(*size).ok()?;
                // The values of a sliced array start with those before the slice.
                let ends = (0..array.len()).map(|row| {
                    let start = lists.value_offset(row) as usize;
                    (start, start + size)
                });
                let ends = ends.collect();
                let inner = Spread::of(lists.values())?;
                Some(Spread::Lists(Arc::clone(array), ends, Box::new(inner)))
            }
            DataType::Struct(_) => {
                let fields = array.as_struct().columns().iter().map(Spread::of);
                let fields = fields.collect::<Option<Vec<_>>>()?;
                Some(Spread::Structs(Arc::clone(array), fields))
            }
            kind if is_number(kind) => Some(Spread::Numbers(numbers(&**array))),
            _ => None,
        }
    }

    /// Adds the numbers of a row; returns whether all are known.
    fn push(&self, row: usize, out: &mut Vec<f32>) -> bool {
        match self {
            Spread::Numbers(numbers) => {
                let value = numbers.get(row).copied().unwrap_or(f64::NAN);
                out.push(value as f32);
                !value.is_nan()
            }
            Spread::Lists(array, ends, inner) => {
                let (start, end) = ends[row];
                array.is_valid(row) && (start..end).all(|at| inner.push(at, out))
            }
            Spread::Structs(array, fields) => {
                array.is_valid(row) && fields.iter().all(|field| field.push(row, out))
            }
        }
    }
}
