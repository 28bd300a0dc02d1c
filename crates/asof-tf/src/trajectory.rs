//! Trajectories: a frame's poses over time, in common file formats.

use std::fmt::Write as _;

use asof_core::{Stamp, TimeRange};
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::error::LookupError;
use crate::frame_ref::FrameRef;

/// The format of a trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrajectoryFormat {
    /// A header line, then `stamp,x,y,z,qx,qy,qz,qw`, the stamp in nanoseconds.
    Csv,
    /// `seconds x y z qx qy qz qw`, as in the TUM RGB-D benchmark.
    Tum,
    /// The upper three rows of the matrix, row by row, as in KITTI odometry. It has no times.
    Kitti,
}

impl TrajectoryFormat {
    /// The header line, if the format has one.
    pub fn header(self) -> &'static str {
        match self {
            TrajectoryFormat::Csv => "stamp,x,y,z,qx,qy,qz,qw\n",
            TrajectoryFormat::Tum | TrajectoryFormat::Kitti => "",
        }
    }

    /// One pose as a line. Numbers parse back to the same bits.
    pub fn line(self, stamp: Stamp, pose: &Isometry3<f64>) -> String {
        let t = pose.translation.vector;
        let q = pose.rotation.coords;
        let seven = [t.x, t.y, t.z, q.x, q.y, q.z, q.w];
        let mut line = String::new();
        match self {
            TrajectoryFormat::Csv => {
                let _ = write!(line, "{}", stamp.nanos());
                for part in seven {
                    let _ = write!(line, ",{part}");
                }
            }
            TrajectoryFormat::Tum => {
                line.push_str(&stamp.as_seconds_text());
                for part in seven {
                    let _ = write!(line, " {part}");
                }
            }
            TrajectoryFormat::Kitti => {
                let matrix = pose.to_homogeneous();
                for row in 0..3 {
                    for column in 0..4 {
                        let space = if row + column == 0 { "" } else { " " };
                        let _ = write!(line, "{space}{}", matrix[(row, column)]);
                    }
                }
            }
        }
        line.push('\n');
        line
    }
}

/// A name that is not a [`TrajectoryFormat`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not one of csv, tum, kitti")]
pub struct TrajectoryFormatError(String);

impl std::str::FromStr for TrajectoryFormat {
    type Err = TrajectoryFormatError;

    fn from_str(text: &str) -> Result<Self, TrajectoryFormatError> {
        match text {
            "csv" => Ok(TrajectoryFormat::Csv),
            "tum" => Ok(TrajectoryFormat::Tum),
            "kitti" => Ok(TrajectoryFormat::Kitti),
            _ => Err(TrajectoryFormatError(text.to_owned())),
        }
    }
}

/// Stamps from the start of a range to its end, `step` nanoseconds apart; none if the step is not
/// positive.
pub fn every(range: TimeRange, step: i64) -> impl Iterator<Item = Stamp> {
    let is_sound = step > 0 && !range.is_empty();
    let first = is_sound.then_some(range.start.nanos());
    std::iter::successors(first, move |t| {
        t.checked_add(step).filter(|t| *t <= range.end.nanos())
    })
    .map(Stamp::from_nanos)
}

impl TransformBuffer {
    /// The times for which every dynamic edge between the two has samples; all of time if every edge is
    /// static.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update_static("base_link", "lidar", Isometry3::translation(0.0, 0.0, 0.3))?;
    /// # // One metre a second, forward.
    /// # buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// # buffer.update("odom", "base_link", at(2), Isometry3::translation(2.0, 0.0, 0.0))?;
    /// use asof_tf::{TrajectoryFormat, every};
    ///
    /// let range = buffer.covered("odom", "lidar")?;
    /// let half_second = 500_000_000;
    /// for stamp in every(range, half_second) {
    ///     print!("{}", TrajectoryFormat::Tum.line(stamp, &buffer.lookup("odom", "lidar", stamp)?));
    /// }
    /// assert_eq!(every(range, half_second).count(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a frame is unknown, or they are not connected.
    pub fn covered(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
    ) -> Result<TimeRange, LookupError> {
        let links = self.chain(target, source)?;
        let ranges = links.iter().filter(|link| !link.is_static);
        Ok(ranges.fold(TimeRange::ALL, |all, link| {
            all.intersect(link.range.unwrap_or(TimeRange::EMPTY))
        }))
    }
}
