//! The ROS messages that carry transforms: `tf2_msgs/TFMessage` and `sensor_msgs/JointState`, as CDR (ROS 2, both
//! byte orders) and in ROS 1's serialization.
//!
//! These are read without a schema: a live `/tf` has none, nor have many recordings, and a buffer on a robot should
//! not need Arrow for it. asof-decode reads messages that have a schema.

use asof_core::Stamp;
use asof_ros::RosReader;
pub use asof_ros::{RosDecodeError, RosEncoding};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

/// One transform of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct StampedTransform {
    /// The stamp.
    pub stamp: Stamp,
    /// The parent frame, `header.frame_id`.
    pub parent: String,
    /// The child frame.
    pub child: String,
    /// The pose of the child in the parent, unchecked.
    pub isometry: Isometry3<f64>,
}

/// Positions of joints at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct JointPositions {
    /// The stamp.
    pub stamp: Stamp,
    /// The joints' names.
    pub names: Vec<String>,
    /// Their positions, in the same order: radians or metres. May be shorter than the names.
    pub positions: Vec<f64>,
}

/// Reads a `tf2_msgs/TFMessage` (or ROS 1's older `tf/tfMessage`, which is the same).
///
/// # Errors
/// [`RosDecodeError`] names what is wrong and where.
pub fn tf_message(
    encoding: RosEncoding,
    payload: &[u8],
) -> Result<Vec<StampedTransform>, RosDecodeError> {
    let mut reader = RosReader::new(encoding, payload)?;
    let count = reader.uint32("the number of transforms")?;
    // The declared count is not trusted for a reservation.
    let mut transforms = Vec::new();
    for _ in 0..count {
        let stamp = reader.header()?;
        let parent = reader.text("header.frame_id")?;
        let child = reader.text("child_frame_id")?;
        let mut parts = [0.0; 7];
        for part in &mut parts {
            *part = reader.float64("a transform")?;
        }
        let [a, b, c, x, y, z, w] = parts;
        let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
        transforms.push(StampedTransform {
            stamp,
            parent,
            child,
            isometry: Isometry3::from_parts(Translation3::new(a, b, c), rotation),
        });
    }
    Ok(transforms)
}

/// Reads a `sensor_msgs/JointState`, up to the positions.
///
/// # Errors
/// [`RosDecodeError`] names what is wrong and where.
pub fn joint_state(
    encoding: RosEncoding,
    payload: &[u8],
) -> Result<JointPositions, RosDecodeError> {
    let mut reader = RosReader::new(encoding, payload)?;
    let stamp = reader.header()?;
    reader.text("header.frame_id")?;
    let count = reader.uint32("the number of names")?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(reader.text("a joint's name")?);
    }
    let count = reader.uint32("the number of positions")?;
    let mut positions = Vec::new();
    for _ in 0..count {
        positions.push(reader.float64("a position")?);
    }
    Ok(JointPositions {
        stamp,
        names,
        positions,
    })
}

/// Reads a `std_msgs/String`.
///
/// # Errors
/// [`RosDecodeError`] names what is wrong and where.
pub fn text_message(encoding: RosEncoding, payload: &[u8]) -> Result<String, RosDecodeError> {
    RosReader::new(encoding, payload)?.text("the text")
}
