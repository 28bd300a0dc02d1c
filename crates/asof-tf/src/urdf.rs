//! Robots as URDF describes them.

use std::collections::HashMap;

use asof_core::Stamp;
use nalgebra::{Isometry3, Translation3, Unit, UnitQuaternion, Vector3};
use urdf_rs::{Joint, JointType};

use crate::buffer::TransformBuffer;
use crate::error::UpdateError;
use crate::ros::JointState;

/// A robot's joints, from a URDF: fixed ones become static edges, [`JointState`]s move the others.
///
/// A joint's transform is its origin, then its motion along or about its axis. Mimic joints follow the
/// joint that they mimic. Floating, planar and spherical joints have no single position: someone else
/// has to publish those.
pub struct Robot {
    joints: Vec<Joint>,
    /// Places of joints, by their own name and by that of the joint that they mimic.
    moved_by: HashMap<String, Vec<usize>>,
}

/// Why a URDF is not a robot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UrdfError {
    /// It cannot be read.
    #[error("the URDF cannot be read: {0}")]
    Unreadable(String),
}

impl Robot {
    /// Reads a URDF.
    ///
    /// # Errors
    /// When the text is not a URDF.
    pub fn from_urdf(text: &str) -> Result<Self, UrdfError> {
        let robot = urdf_rs::read_from_string(text)
            .map_err(|error| UrdfError::Unreadable(error.to_string()))?;
        let mut moved_by: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, joint) in robot.joints.iter().enumerate() {
            let mover = joint
                .mimic
                .as_ref()
                .map_or(&joint.name, |mimic| &mimic.joint);
            moved_by.entry(mover.clone()).or_default().push(place);
        }
        Ok(Robot {
            joints: robot.joints,
            moved_by,
        })
    }

    /// Stores all fixed joints as static edges. Returns what was refused.
    pub fn publish_fixed(&self, buffer: &TransformBuffer) -> Vec<UpdateError> {
        let fixed = self
            .joints
            .iter()
            .filter(|joint| joint.joint_type == JointType::Fixed);
        fixed
            .filter_map(|joint| {
                let (parent, child) = (&joint.parent.link, &joint.child.link);
                buffer.update_static(parent, child, origin(joint)).err()
            })
            .collect()
    }

    /// Stores where a message puts the joints, and those that mimic them. Names that are no joints of
    /// this robot are passed over. Returns what was refused.
    pub fn move_joints(&self, buffer: &TransformBuffer, state: &JointState) -> Vec<UpdateError> {
        let mut refused = Vec::new();
        for (name, position) in state.names.iter().zip(&state.positions) {
            for place in self.moved_by.get(name).into_iter().flatten() {
                let moved = self.move_joint(buffer, *place, *position, state.stamp);
                refused.extend(moved.err());
            }
        }
        refused
    }

    /// The frames of joints that no position can move: floating, planar and spherical ones.
    pub fn free_frames(&self) -> impl Iterator<Item = &str> {
        let is_free = |joint: &&Joint| {
            matches!(
                joint.joint_type,
                JointType::Floating | JointType::Planar | JointType::Spherical
            )
        };
        self.joints
            .iter()
            .filter(is_free)
            .map(|joint| joint.child.link.as_str())
    }

    fn move_joint(
        &self,
        buffer: &TransformBuffer,
        place: usize,
        position: f64,
        stamp: Stamp,
    ) -> Result<(), UpdateError> {
        let joint = &self.joints[place];
        let position = match &joint.mimic {
            Some(mimic) => position * mimic.multiplier.unwrap_or(1.0) + mimic.offset.unwrap_or(0.0),
            None => position,
        };
        let axis = Unit::new_normalize(Vector3::from(joint.axis.xyz.0));
        let motion = match joint.joint_type {
            JointType::Revolute | JointType::Continuous => Isometry3::from_parts(
                Translation3::identity(),
                UnitQuaternion::from_axis_angle(&axis, position),
            ),
            JointType::Prismatic => Isometry3::from_parts(
                Translation3::from(axis.into_inner() * position),
                UnitQuaternion::identity(),
            ),
            _ => return Ok(()),
        };
        let (parent, child) = (&joint.parent.link, &joint.child.link);
        buffer.update(parent, child, stamp, origin(joint) * motion)
    }
}

/// `xyz`, and `rpy` about fixed axes.
fn origin(joint: &Joint) -> Isometry3<f64> {
    let [roll, pitch, yaw] = joint.origin.rpy.0;
    Isometry3::from_parts(
        Translation3::from(joint.origin.xyz.0),
        UnitQuaternion::from_euler_angles(roll, pitch, yaw),
    )
}
