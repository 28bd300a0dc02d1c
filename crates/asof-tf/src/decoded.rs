//! Transforms in any encoding that asof-decode reads: Foxglove's `FrameTransform` and `FrameTransforms` in protobuf,
//! JSON, FlatBuffers and the ROS serializations, and `TFMessage` in an encoding that is not ROS's own.
//!
//! asof-decode turns them into columns, by their schemas or, in JSON without one, by their content. Its transform
//! archetype gives the possible names of each column. JSON writes 1 for 1.0 and fields in any order, so neither the
//! type of a number nor the position of a field is relied on.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, TimestampNanosecondArray};
use asof_core::{Channel, MessageRef, Stamp};
use asof_decode::{Archetype, Decoders, FieldPath, PathColumn, Payload, Timed, numbers, stamps_of};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

use crate::ros::StampedTransform;

/// The decoders of channels seen so far.
pub(crate) struct Decoded {
    decoders: Decoders,
}

/// The result of decoding consecutive messages of one channel.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) transforms: Vec<StampedTransform>,
    /// Why messages were skipped.
    pub(crate) failures: Vec<String>,
}

impl Decoded {
    pub(crate) fn new() -> Self {
        Decoded {
            decoders: Decoders::default(),
        }
    }

    /// Decodes messages of one channel.
    pub(crate) fn take(&mut self, channel: &Arc<Channel>, run: &[MessageRef<'_>]) -> Taken {
        let mut taken = Taken::default();
        let samples: Vec<&[u8]> = run.iter().take(8).map(|message| message.payload).collect();
        let decoder = self.decoders.of(channel, &samples);
        let archetype = Archetype::of(channel.type_name());
        let (decoder, archetype) = match (decoder, archetype) {
            (Ok(decoder), Some(archetype)) => (decoder, archetype),
            (decoder, _) => {
                let reason = decoder.map_or_else(
                    |error| error.to_string(),
                    |_| "its type is not a transform".to_owned(),
                );
                taken.failures.resize(run.len(), reason);
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
            Ok(Some(batch)) => messages(batch, archetype, &mut taken.transforms),
            Ok(None) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        taken.failures.extend(told.err());
        taken
    }
}

/// The transforms of decoded messages, each of which is a transform or a list of them.
fn messages(
    batch: RecordBatch,
    archetype: &Archetype,
    found: &mut Vec<StampedTransform>,
) -> Result<(), String> {
    let logged = batch
        .column_by_name("log_time")
        .and_then(|column| column.as_primitive_opt::<TimestampNanosecondType>())
        .cloned()
        .ok_or("its messages have no log time")?;
    let batch = StructArray::from(batch);
    let Some(list) = archetype.list() else {
        let log_times: Vec<i64> = logged.values().to_vec();
        return rows(&batch, archetype, &log_times, found);
    };
    let list = batch
        .column_by_name(list)
        .and_then(|list| list.as_list_opt::<i32>())
        .ok_or("its transforms are not a list")?;
    let items = match list.values().as_struct_opt() {
        Some(items) => items,
        // Nothing but empty lists.
        None if list.values().is_empty() => return Ok(()),
        None => return Err("its transforms are not messages".to_owned()),
    };
    let mut log_times = Vec::with_capacity(items.len());
    for (row, ends) in list.offsets().windows(2).enumerate() {
        log_times.resize(ends[1].max(0) as usize, logged.value(row));
    }
    log_times.resize(items.len(), 0);
    rows(items, archetype, &log_times, found)
}

fn rows(
    table: &StructArray,
    archetype: &Archetype,
    log_times: &[i64],
    found: &mut Vec<StampedTransform>,
) -> Result<(), String> {
    let at = |column: &str| {
        let mut paths = archetype.paths_of(column).iter();
        paths.find_map(|path| FieldPath::parse(path).ok()?.column_of(table).ok())
    };
    let texts = |what: &str| {
        let column = at(what).ok_or_else(|| format!("its messages have no {what}"))?;
        let is_text = column.array().as_string_opt::<i32>().is_some();
        is_text
            .then_some(column)
            .ok_or_else(|| format!("the {what} of its messages is not text"))
    };
    let parents = texts("parent_frame")?;
    let children = texts("child_frame")?;
    let stamps = Stamps::of(table, at("stamp"));
    let translations = Vectors::of(at("translation"));
    let rotations = Vectors::of(at("rotation"));
    for (row, log_time) in log_times.iter().enumerate() {
        // Protobuf omits zeros, and JSON may: a missing number is zero.
        let [x, y, z, _] = translations.at(row);
        let translation = Translation3::new(x, y, z);
        // But a missing rotation is the identity.
        let [x, y, z, w] = rotations.at(row);
        let is_turned = [x, y, z, w].iter().any(|part| *part != 0.0);
        let w = if is_turned { w } else { 1.0 };
        let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
        let text = |column: &PathColumn| column.text(row).unwrap_or_default().to_owned();
        found.push(StampedTransform {
            // A message without a stamp has the time of its recording.
            stamp: Stamp::from_nanos(stamps.at(row).unwrap_or(*log_time)),
            parent: text(&parents),
            child: text(&children),
            isometry: Isometry3::from_parts(translation, rotation),
        });
    }
    Ok(())
}

/// The stamps of all rows.
struct Stamps {
    /// Which of the times belongs to which row, if they are not in row order.
    column: Option<PathColumn>,
    times: Option<TimestampNanosecondArray>,
}

impl Stamps {
    /// The stamps of a column; else those that asof-decode found, as it does in messages that are a single transform.
    fn of(table: &StructArray, column: Option<PathColumn>) -> Self {
        let times = match &column {
            Some(column) => stamps_of(&**column.array()),
            None => table
                .column_by_name("stamp")
                .and_then(|stamps| stamps.as_primitive_opt().cloned()),
        };
        Stamps { column, times }
    }

    fn at(&self, row: usize) -> Option<i64> {
        let times = self.times.as_ref()?;
        let place = match &self.column {
            Some(column) => column.place(row)?,
            None => row,
        };
        times.is_valid(place).then(|| times.value(place))
    }
}

/// The components of all rows' vectors.
struct Vectors {
    column: Option<PathColumn>,
    /// x, y, z and w, each with its validity.
    parts: [Option<(ArrayRef, Vec<f64>)>; 4],
}

impl Vectors {
    fn of(column: Option<PathColumn>) -> Self {
        let vectors = column.as_ref().and_then(|c| c.array().as_struct_opt());
        let parts = ["x", "y", "z", "w"].map(|name| {
            let part = vectors?.column_by_name(name)?;
            Some((Arc::clone(part), numbers(part)))
        });
        Vectors { column, parts }
    }

    /// Zero for missing values.
    fn at(&self, row: usize) -> [f64; 4] {
        let place = self.column.as_ref().and_then(|column| column.place(row));
        self.parts
            .each_ref()
            .map(|part| {
                let (part, place) = part.as_ref().zip(place)?;
                let is_there = part.0.is_valid(place);
                is_there.then(|| part.1.get(place).copied())?
            })
            .map(Option::unwrap_or_default)
    }
}
