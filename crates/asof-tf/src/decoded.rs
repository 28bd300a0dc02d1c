//! Transforms from whatever asof-decode can read: Foxglove's `FrameTransform` and `FrameTransforms` in protobuf,
//! JSON, FlatBuffers and the ROS serializations, and `TFMessage` in an encoding that is not ROS's own.
//!
//! asof-decode makes columns of them, by their schemas or, in JSON without one, by what is in them; here the
//! columns are found by their names. JSON writes 1 for 1.0 and fields in any order, so neither the type of a
//! number nor the place of a field is relied on.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::DataType;
use asof_core::{Channel, MessageRef, Stamp};
use asof_decode::{Decoder, Payload, Projection, Timed};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

use crate::ros::StampedTransform;

/// The decoders of channels met so far.
pub(crate) struct Decoded {
    channels: Vec<(Arc<Channel>, Result<Decoder, String>)>,
}

/// What a run of messages of one channel came to.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) transforms: Vec<StampedTransform>,
    /// Why messages were left out.
    pub(crate) failures: Vec<String>,
}

impl Decoded {
    pub(crate) fn new() -> Self {
        Decoded {
            channels: Vec::new(),
        }
    }

    /// Decodes messages of one channel.
    pub(crate) fn take(&mut self, channel: &Arc<Channel>, run: &[MessageRef<'_>]) -> Taken {
        let mut taken = Taken::default();
        let samples: Vec<&[u8]> = run.iter().take(8).map(|message| message.payload).collect();
        let decoder = match self.decoder_of(channel, &samples) {
            Ok(decoder) => decoder,
            Err(reason) => {
                let all = std::iter::repeat_n(reason.clone(), run.len());
                taken.failures.extend(all);
                return taken;
            }
        };
        let timed: Vec<Timed<'_>> = run
            .iter()
            .map(|m| (m.log_time, m.publish_time, Payload::from(m.payload)))
            .collect();
        let failures = &mut taken.failures;
        decoder.append(&timed, |_, error| failures.push(error.to_string()));
        let told = match decoder.take() {
            Ok(Some(batch)) => messages(batch, &mut taken.transforms),
            Ok(None) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        taken.failures.extend(told.err());
        taken
    }

    fn decoder_of(
        &mut self,
        channel: &Arc<Channel>,
        samples: &[&[u8]],
    ) -> &mut Result<Decoder, String> {
        let known = self
            .channels
            .iter()
            .position(|(other, _)| Arc::ptr_eq(other, channel));
        let place = known.unwrap_or_else(|| {
            let decoder = Decoder::new(channel, &Projection::All, samples);
            let decoder = decoder.map_err(|error| error.to_string());
            self.channels.push((Arc::clone(channel), decoder));
            self.channels.len() - 1
        });
        &mut self.channels[place].1
    }
}

/// The transforms of decoded messages, each of which is one or has a list of them.
fn messages(batch: RecordBatch, found: &mut Vec<StampedTransform>) -> Result<(), String> {
    let logged = batch
        .column_by_name("log_time")
        .and_then(|column| column.as_primitive_opt::<TimestampNanosecondType>())
        .cloned()
        .ok_or("its messages have no log time")?;
    let batch = StructArray::from(batch);
    let Some(list) = batch.column_by_name("transforms") else {
        let log_times: Vec<i64> = logged.values().to_vec();
        return rows(&batch, &log_times, found);
    };
    let list = list
        .as_list_opt::<i32>()
        .ok_or("its transforms are no list")?;
    let items = match list.values().as_struct_opt() {
        Some(items) => items,
        // Nothing but empty lists.
        None if list.values().is_empty() => return Ok(()),
        None => return Err("its transforms are no messages".to_owned()),
    };
    let mut log_times = Vec::with_capacity(items.len());
    for (row, ends) in list.offsets().windows(2).enumerate() {
        log_times.resize(ends[1].max(0) as usize, logged.value(row));
    }
    log_times.resize(items.len(), 0);
    rows(items, &log_times, found)
}

fn rows(
    table: &StructArray,
    log_times: &[i64],
    found: &mut Vec<StampedTransform>,
) -> Result<(), String> {
    let at = |paths: [&[&str]; 2]| paths.iter().find_map(|path| column(table, path));
    let texts = |what: &str, paths: [&[&str]; 2]| {
        let column = at(paths).ok_or_else(|| format!("its messages have no {what}"))?;
        let texts = column.as_string_opt::<i32>().cloned();
        texts.ok_or_else(|| format!("the {what} of its messages is no text"))
    };
    let parents = texts(
        "parent frame",
        [&["parent_frame_id"], &["header", "frame_id"]],
    )?;
    let children = texts("child frame", [&["child_frame_id"], &[]])?;
    let stamps = at([&["timestamp"], &["header", "stamp"]]);
    let seconds = stamps.map(|stamp| part(stamp, &["sec", "seconds"]));
    let nanos = stamps.map(|stamp| part(stamp, &["nsec", "nanos", "nanosec"]));
    let vector = |paths, names: &[&str]| -> Vec<Vec<Option<f64>>> {
        let vector = at(paths);
        let part = |name: &&str| vector.map_or_else(Vec::new, |vector| part(vector, &[name]));
        names.iter().map(part).collect()
    };
    let translations = vector(
        [&["translation"], &["transform", "translation"]],
        &["x", "y", "z"],
    );
    let rotations = vector(
        [&["rotation"], &["transform", "rotation"]],
        &["x", "y", "z", "w"],
    );
    for (row, log_time) in log_times.iter().enumerate() {
        // Protobuf does not write a zero, and JSON need not: what is missing is zero.
        let number = |column: &Vec<Option<f64>>| column.get(row).copied().flatten();
        let three: Vec<f64> = translations
            .iter()
            .map(|c| number(c).unwrap_or(0.0))
            .collect();
        let four: Vec<Option<f64>> = rotations.iter().map(number).collect();
        // But a rotation of which nothing is there is none.
        let is_turned = four.iter().any(|part| part.is_some_and(|part| part != 0.0));
        let [x, y, z, w] = [0, 1, 2, 3].map(|i| four[i].unwrap_or(0.0));
        let w = if is_turned { w } else { 1.0 };
        let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
        let translation = Translation3::new(three[0], three[1], three[2]);
        let text = |column: &arrow_array::StringArray| {
            let is_there = column.is_valid(row);
            if is_there { column.value(row) } else { "" }.to_owned()
        };
        let time = |column: &Option<Vec<Option<f64>>>| column.as_ref().and_then(number);
        // A message that does not say when it was true is true when it was recorded.
        let stamp = match (time(&seconds), time(&nanos)) {
            (None, None) => *log_time,
            (seconds, nanos) => {
                // Both are whole numbers far below 2^53.
                let seconds = seconds.unwrap_or(0.0) as i64;
                let nanos = nanos.unwrap_or(0.0) as i64;
                seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
            }
        };
        found.push(StampedTransform {
            stamp: Stamp::from_nanos(stamp),
            parent: text(&parents),
            child: text(&children),
            isometry: Isometry3::from_parts(translation, rotation),
        });
    }
    Ok(())
}

/// A field of a struct, and of a struct in it.
fn column<'a>(table: &'a StructArray, path: &[&str]) -> Option<&'a ArrayRef> {
    let (name, rest) = path.split_first()?;
    let column = table.column_by_name(name)?;
    if rest.is_empty() {
        return Some(column);
    }
    self::column(column.as_struct_opt()?, rest)
}

/// A field of a column of structs, by one of its names, as numbers; nothing where there is no such.
fn part(array: &ArrayRef, names: &[&str]) -> Vec<Option<f64>> {
    let Some(outer) = array.as_struct_opt() else {
        return Vec::new();
    };
    let Some(inner) = names.iter().find_map(|name| outer.column_by_name(name)) else {
        return Vec::new();
    };
    let value = |row: usize| {
        Some(match inner.data_type() {
            DataType::Float64 => inner.as_primitive::<Float64Type>().value(row),
            DataType::Float32 => inner.as_primitive::<Float32Type>().value(row).into(),
            DataType::Int32 => inner.as_primitive::<Int32Type>().value(row).into(),
            DataType::UInt32 => inner.as_primitive::<UInt32Type>().value(row).into(),
            DataType::Int64 => inner.as_primitive::<Int64Type>().value(row) as f64,
            DataType::UInt64 => inner.as_primitive::<UInt64Type>().value(row) as f64,
            _ => return None,
        })
    };
    (0..outer.len())
        .map(|row| {
            let is_there = outer.is_valid(row) && inner.is_valid(row);
            is_there.then(|| value(row)).flatten()
        })
        .collect()
}
