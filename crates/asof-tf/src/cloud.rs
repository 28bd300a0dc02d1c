//! Point clouds whose points have individual times: ROS's `PointCloud2`, in place.

use asof_core::Stamp;
use nalgebra::Point3;

use crate::buffer::TransformBuffer;
use crate::error::LookupError;
use crate::frame_ref::FrameRef;

/// The layout of a `PointCloud2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudLayout {
    /// Bytes from one point to the next.
    pub point_step: usize,
    /// The offsets of x, y and z in a point: `f32` each.
    pub xyz: [usize; 3],
    /// The offset and the meaning of a point's time; without it, all points have the cloud's stamp.
    pub time: Option<PointTime>,
    /// Whether numbers are big-endian.
    pub is_big_endian: bool,
}

/// How the time of a point is encoded. Drivers differ: see the field's name and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointTime {
    /// `f32` seconds after the cloud's stamp (`time` of Velodyne).
    SecondsF32(usize),
    /// `f64` seconds: after the cloud's stamp, or since the epoch where they are more than a year (`timestamp` of
    /// Hesai and RoboSense).
    SecondsF64(usize),
    /// `u32` nanoseconds after the cloud's stamp (`t` of Ouster).
    NanosecondsU32(usize),
}

/// The result of transforming a cloud.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CloudStats {
    /// The number of points.
    pub points: usize,
    /// Points without a transform at their time: their coordinates are now NaN.
    pub failed: usize,
    /// Why the first of them has none.
    pub first_error: Option<LookupError>,
}

/// Why the bytes do not match the layout.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CloudError {
    /// A field is outside its point.
    #[error(
        "a field at byte {offset} with {size} bytes does not fit into points of {point_step} bytes"
    )]
    FieldOutside {
        /// Its offset.
        offset: usize,
        /// Its size.
        size: usize,
        /// The size of a point.
        point_step: usize,
    },
    /// The bytes are not a whole number of points.
    #[error("{len} bytes are not a whole number of points of {point_step} bytes")]
    NotWhole {
        /// Bytes.
        len: usize,
        /// The size of a point.
        point_step: usize,
    },
    /// A frame is unknown.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

/// Points transformed at once.
const POINTS_AT_ONCE: usize = 4096;

/// Seconds in a year: larger times are since the epoch.
const YEAR: f64 = 365.0 * 86_400.0;

impl TransformBuffer {
    /// Transforms the points of a cloud, each at its own time, from `source` to `target`. `stamp` is the cloud's.
    ///
    /// # Errors
    /// [`CloudError`] if the layout does not fit the bytes, which are then unchanged, or a frame is unknown.
    pub fn transform_cloud(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        stamp: Stamp,
        layout: &CloudLayout,
        data: &mut [u8],
    ) -> Result<CloudStats, CloudError> {
        layout.check(data.len())?;
        let mut path = self.path(target, source)?;
        let mut stats = CloudStats::default();
        let mut points: Vec<(Stamp, Point3<f64>)> = Vec::with_capacity(POINTS_AT_ONCE);
        for part in data.chunks_mut(layout.point_step * POINTS_AT_ONCE) {
            points.clear();
            points.extend(
                part.chunks_exact(layout.point_step)
                    .map(|point| (layout.time(point, stamp), layout.point(point))),
            );
            let failures = path.transform_points(&mut points);
            stats.points += points.len();
            stats.failed += failures.len();
            if stats.first_error.is_none() {
                stats.first_error = failures.into_iter().next().map(|(_, error)| error);
            }
            let moved = part.chunks_exact_mut(layout.point_step).zip(&points);
            for (point, (_, place)) in moved {
                layout.set_point(point, place);
            }
        }
        Ok(stats)
    }

    /// Undoes the motion of a sensor during a scan: moves each point, seen at its own time, to where the sensor
    /// would have seen it at `at`. `fixed` is a frame that does not move in the meantime, such as `odom`.
    ///
    /// # Errors
    /// As for [`transform_cloud`](TransformBuffer::transform_cloud); also if the sensor's own pose at `at` is
    /// unknown.
    pub fn deskew(
        &self,
        fixed: impl FrameRef,
        sensor: impl FrameRef,
        (stamp, at): (Stamp, Stamp),
        layout: &CloudLayout,
        data: &mut [u8],
    ) -> Result<CloudStats, CloudError> {
        layout.check(data.len())?;
        let back = self.lookup(sensor, fixed, at)?;
        let stats = self.transform_cloud(fixed, sensor, stamp, layout, data)?;
        for point in data.chunks_exact_mut(layout.point_step) {
            let place = back * layout.point(point);
            layout.set_point(point, &place);
        }
        Ok(stats)
    }
}

impl CloudLayout {
    fn check(&self, len: usize) -> Result<(), CloudError> {
        let point_step = self.point_step;
        let time = self.time.map(|time| match time {
            PointTime::SecondsF32(offset) | PointTime::NanosecondsU32(offset) => (offset, 4),
            PointTime::SecondsF64(offset) => (offset, 8),
        });
        for (offset, size) in self.xyz.map(|offset| (offset, 4)).into_iter().chain(time) {
            if offset.checked_add(size).is_none_or(|end| end > point_step) {
                return Err(CloudError::FieldOutside {
                    offset,
                    size,
                    point_step,
                });
            }
        }
        if !len.is_multiple_of(point_step) {
            return Err(CloudError::NotWhole { len, point_step });
        }
        Ok(())
    }

    /// The bytes of a field in little-endian order.
    fn bytes<const N: usize>(&self, point: &[u8], offset: usize) -> [u8; N] {
        let mut bytes: [u8; N] = std::array::from_fn(|i| point[offset + i]);
        if self.is_big_endian {
            bytes.reverse();
        }
        bytes
    }

    fn point(&self, point: &[u8]) -> Point3<f64> {
        let [x, y, z] = self
            .xyz
            .map(|offset| f64::from(f32::from_le_bytes(self.bytes(point, offset))));
        Point3::new(x, y, z)
    }

    fn set_point(&self, point: &mut [u8], place: &Point3<f64>) {
        for (offset, part) in self.xyz.into_iter().zip([place.x, place.y, place.z]) {
            let mut bytes = (part as f32).to_le_bytes();
            if self.is_big_endian {
                bytes.reverse();
            }
            point[offset..offset + 4].copy_from_slice(&bytes);
        }
    }

    fn time(&self, point: &[u8], stamp: Stamp) -> Stamp {
        let after = |seconds: f64| stamp.plus_nanos((seconds * 1e9).round() as i64);
        match self.time {
            None => stamp,
            Some(PointTime::SecondsF32(offset)) => {
                after(f32::from_le_bytes(self.bytes(point, offset)).into())
            }
            Some(PointTime::SecondsF64(offset)) => {
                let seconds = f64::from_le_bytes(self.bytes(point, offset));
                if seconds.abs() > YEAR {
                    Stamp::from_nanos((seconds * 1e9).round() as i64)
                } else {
                    after(seconds)
                }
            }
            Some(PointTime::NanosecondsU32(offset)) => {
                stamp.plus_nanos(u32::from_le_bytes(self.bytes(point, offset)).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{Isometry3, Translation3, UnitQuaternion};

    const STAMP: i64 = 1_700_000_000_000_000_000;
    const SCAN: i64 = 100_000_000;

    /// A robot that drives and turns for the time of a scan.
    fn moving() -> TransformBuffer {
        let buffer = TransformBuffer::new();
        for step in 0..=20 {
            let part = f64::from(step) / 20.0;
            let pose = Isometry3::from_parts(
                Translation3::new(2.0 * part, 0.0, 0.0),
                UnitQuaternion::from_euler_angles(0.0, 0.0, 0.5 * part),
            );
            let stamp = Stamp::from_nanos(STAMP + i64::from(step) * SCAN / 20);
            buffer.update("odom", "base", stamp, pose).expect("good");
        }
        let up = Isometry3::translation(0.0, 0.0, 1.5);
        buffer.update_static("base", "lidar", up).expect("good");
        buffer
    }

    fn layouts() -> Vec<CloudLayout> {
        let layout = |time, is_big_endian| CloudLayout {
            point_step: 26,
            xyz: [0, 4, 8],
            time: Some(time),
            is_big_endian,
        };
        let times = [
            PointTime::SecondsF32(16),
            PointTime::SecondsF64(16),
            PointTime::NanosecondsU32(16),
        ];
        times
            .into_iter()
            .flat_map(|time| [layout(time, false), layout(time, true)])
            .collect()
    }

    /// What a spinning lidar sees of one place in `odom`, over a scan.
    fn seen(buffer: &TransformBuffer, layout: &CloudLayout, place: &Point3<f64>) -> Vec<u8> {
        let mut data = Vec::new();
        for n in 0..10_000_i64 {
            let after = n * SCAN / 10_000 / 1_000 * 1_000;
            let stamp = Stamp::from_nanos(STAMP + after);
            let point = buffer.lookup("lidar", "odom", stamp).expect("there") * place;
            let mut bytes = vec![7; layout.point_step];
            layout.set_point(&mut bytes, &point);
            let mut time = match layout.time {
                Some(PointTime::SecondsF32(_)) => (after as f32 * 1e-9).to_le_bytes().to_vec(),
                Some(PointTime::SecondsF64(_)) => (after as f64 * 1e-9).to_le_bytes().to_vec(),
                _ => (after as u32).to_le_bytes().to_vec(),
            };
            if layout.is_big_endian {
                time.reverse();
            }
            bytes[16..16 + time.len()].copy_from_slice(&time);
            data.extend(bytes);
        }
        data
    }

    #[test]
    fn a_place_seen_on_the_move_is_one_place_again() {
        let buffer = moving();
        let place = Point3::new(10.0, 4.0, 1.0);
        let at = Stamp::from_nanos(STAMP + SCAN / 2);
        let wanted = buffer.lookup("lidar", "odom", at).expect("there") * place;
        for layout in layouts() {
            let mut data = seen(&buffer, &layout, &place);
            let stamp = Stamp::from_nanos(STAMP);
            let stats = buffer.deskew("odom", "lidar", (stamp, at), &layout, &mut data);
            assert_eq!(stats.expect("fits").failed, 0);
            for point in data.chunks_exact(layout.point_step) {
                assert!((layout.point(point) - wanted).norm() < 1e-4, "{layout:?}");
                assert_eq!(point[12..16], [7; 4], "other fields stay as they are");
            }
        }
    }

    #[test]
    fn points_without_a_transform_are_counted_and_layouts_that_do_not_fit_are_refused() {
        let buffer = moving();
        let layout = layouts()[0];
        let late = Stamp::from_nanos(STAMP + SCAN / 2);
        let mut data = seen(&buffer, &layout, &Point3::origin());
        let stats = buffer
            .transform_cloud("odom", "lidar", late, &layout, &mut data)
            .expect("fits");
        assert_eq!(stats.points, 10_000);
        assert!((4_900..=5_000).contains(&stats.failed), "{stats:?}");
        assert!(stats.first_error.is_some());
        let outside = CloudLayout {
            xyz: [0, 4, 23],
            ..layout
        };
        let mut data = vec![0; 26];
        let refused = |layout: &CloudLayout, data: &mut [u8]| {
            buffer.transform_cloud("odom", "lidar", late, layout, data)
        };
        assert!(matches!(
            refused(&outside, &mut data),
            Err(CloudError::FieldOutside { .. })
        ));
        assert!(matches!(
            refused(&layout, &mut data[..25]),
            Err(CloudError::NotWhole { .. })
        ));
        let none = CloudLayout {
            point_step: 0,
            ..layout
        };
        assert!(refused(&none, &mut data).is_err());
    }
}
