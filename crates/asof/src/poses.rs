//! The poses of a topic as a trajectory.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use asof_core::{Query, Stamp, TimeRange};
use asof_decode::{Layers, TableOptions, Tables};
use asof_tf::TrajectoryFormat;
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

use crate::text::counted;
use crate::{Error, Topic};

/// A quaternion whose norm is closer to one than this is not normalized.
const NORM_TOLERANCE: f64 = 1e-6;

impl Topic {
    /// Writes every pose at its stamp, or at its log time where it has none, as far as that is in the range. Returns how many
    /// there are.
    ///
    /// # Errors
    /// When its messages have no poses, or the output cannot be written.
    pub fn write_poses(
        &self,
        range: TimeRange,
        format: TrajectoryFormat,
        out: &mut impl Write,
    ) -> Result<u64, Error> {
        let (topic, progress) = (self.name(), self.recording().progress());
        let options = TableOptions {
            layers: Layers::standard().without("raw").without("reflection"),
            ..TableOptions::default()
        };
        let mut tables = Tables::read(self.recording(), &Query::topics([topic]), options)?;
        let (mut written, mut turned, mut empty) = (0_u64, 0_u64, 0_u64);
        for batch in &mut tables {
            let batch = batch?.batch;
            let Some(poses) = Poses::of(&batch) else {
                return Err(Error::Invalid(format!(
                    "{topic} has no poses: it needs a position and an orientation, as Odometry, PoseStamped and PoseInFrame have"
                )));
            };
            if written == 0 {
                out.write_all(format.header().as_bytes())?;
            }
            for row in 0..batch.num_rows() {
                let Some((stamp, pose, is_turned)) = poses.at(row) else {
                    empty += 1;
                    continue;
                };
                if !range.contains(stamp) {
                    continue;
                }
                turned += u64::from(!is_turned);
                written += 1;
                out.write_all(format.line(stamp, &pose).as_bytes())?;
            }
        }
        out.flush()?;
        for report in tables.report() {
            if let Some((at, error)) = report.failures.first() {
                let what = counted(report.failed, "message");
                progress.warning(format_args!(
                    "{what} on {topic} not decoded; the first: at {at}, {error}"
                ));
            }
            if report.assignment.layer.is_none() {
                let name = report.assignment.channel.type_name();
                return Err(Error::Invalid(format!(
                    "{topic} has no poses: its type is {name}"
                )));
            }
        }
        if turned > 0 {
            let what = counted(turned, "pose");
            progress.note(format_args!(
                "{what} on {topic} without a rotation: written as the identity"
            ));
        }
        if empty > 0 {
            let what = counted(empty, "message");
            progress.note(format_args!(
                "{what} on {topic} without a position: left out"
            ));
        }
        Ok(written)
    }
}

/// The columns of poses.
struct Poses<'a> {
    batch: &'a RecordBatch,
    position: &'a ArrayRef,
    orientation: &'a ArrayRef,
}

impl<'a> Poses<'a> {
    fn of(batch: &'a RecordBatch) -> Option<Self> {
        let column = |name: &str, width: i32| {
            let column = batch.column_by_name(name)?;
            let list = column.as_fixed_size_list_opt()?;
            let is_right = list.value_length() == width
                && list.values().as_primitive_opt::<Float64Type>().is_some();
            is_right.then_some(column)
        };
        Some(Poses {
            batch,
            position: column("position", 3)?,
            orientation: column("orientation", 4)?,
        })
    }

    /// Time, pose, and whether it has a rotation; `None` where it has no position.
    fn at(&self, row: usize) -> Option<(Stamp, Isometry3<f64>, bool)> {
        let [x, y, z] = numbers(self.position, row)?;
        let place = Translation3::new(x, y, z);
        let turn = numbers(self.orientation, row).map(|[x, y, z, w]| Quaternion::new(w, x, y, z));
        let turn = turn.filter(|turn| turn.norm().is_finite() && turn.norm() > NORM_TOLERANCE);
        let rotation = match turn {
            Some(turn) if (turn.norm() - 1.0).abs() < NORM_TOLERANCE => {
                UnitQuaternion::new_unchecked(turn)
            }
            Some(turn) => UnitQuaternion::new_normalize(turn),
            None => UnitQuaternion::identity(),
        };
        let pose = Isometry3::from_parts(place, rotation);
        Some((self.stamp(row)?, pose, turn.is_some()))
    }

    fn stamp(&self, row: usize) -> Option<Stamp> {
        let of = |name: &str| {
            let times = self.batch.column_by_name(name)?;
            let times = times.as_primitive_opt::<TimestampNanosecondType>()?;
            times
                .is_valid(row)
                .then(|| Stamp::from_nanos(times.value(row)))
        };
        let said = of("stamp").filter(|&stamp| stamp != Stamp::EPOCH);
        said.or_else(|| of("log_time"))
    }
}

/// The numbers of a vector, if none of them is null.
fn numbers<const N: usize>(column: &ArrayRef, row: usize) -> Option<[f64; N]> {
    let list = column.as_fixed_size_list();
    if list.is_null(row) {
        return None;
    }
    let values = list.value(row);
    let values = values.as_primitive::<Float64Type>();
    let all: [f64; N] = values.values().get(..N)?.try_into().ok()?;
    all.iter().all(|one| one.is_finite()).then_some(all)
}
