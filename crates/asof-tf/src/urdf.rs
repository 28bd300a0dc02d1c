//! Robots from URDF.

use std::collections::HashMap;

use asof_core::Stamp;
use nalgebra::{Isometry3, Translation3, Unit, UnitQuaternion, Vector3};
use urdf_rs::{Joint, JointType};

use crate::buffer::TransformBuffer;
use crate::error::UpdateError;
use crate::ros::JointPositions;

/// A robot's joints, from a URDF: fixed ones become static edges, [`JointPositions`]s move the others.
///
/// A joint's transform is its origin, then its motion along or about its axis. Mimic joints follow the
/// joint that they mimic. Floating, planar and spherical joints have no single position: their transforms
/// have to be published.
pub struct RobotModel {
    joints: Vec<Joint>,
    /// Indexes of joints, by their own name and by that of the joint that they mimic.
    moved_by: HashMap<String, Vec<usize>>,
}

/// Why a URDF cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UrdfError {
    /// It cannot be read.
    #[error("the URDF cannot be read: {0}")]
    Unreadable(String),
}

/// How deep elements may be nested. A robot has a handful of levels; some thousands would overflow the
/// parser's stack.
const MAX_DEPTH: usize = 100;

impl RobotModel {
    /// Reads a URDF.
    ///
    /// ```
    /// use asof_tf::{RobotModel, TransformBuffer};
    ///
    /// let robot = RobotModel::from_urdf(r#"<robot name="small">
    ///     <link name="base_link"/> <link name="lidar"/>
    ///     <joint name="mount" type="fixed">
    ///         <parent link="base_link"/> <child link="lidar"/> <origin xyz="0 0 0.3"/>
    ///     </joint>
    /// </robot>"#)?;
    /// let buffer = TransformBuffer::new();
    /// assert!(robot.publish_fixed(&buffer).is_empty());
    /// assert_eq!(buffer.lookup("base_link", "lidar", 0.into())?.translation.z, 0.3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the text is not a URDF.
    pub fn from_urdf(text: &str) -> Result<Self, UrdfError> {
        if depth(text) > MAX_DEPTH {
            let reason = format!("its elements are nested more than {MAX_DEPTH} deep");
            return Err(UrdfError::Unreadable(reason));
        }
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
        Ok(RobotModel {
            joints: robot.joints,
            moved_by,
        })
    }

    /// The same with other names of its frames.
    pub(crate) fn renamed(mut self, rename: impl Fn(&str) -> String) -> Self {
        for joint in &mut self.joints {
            joint.parent.link = rename(&joint.parent.link);
            joint.child.link = rename(&joint.child.link);
        }
        self
    }

    /// Stores all fixed joints as static edges. Returns the refused updates.
    pub fn publish_fixed(&self, buffer: &TransformBuffer) -> Vec<UpdateError> {
        let placed = self.place_fixed(buffer, |_| true);
        placed.into_iter().filter_map(|(_, error)| error).collect()
    }

    /// The same for the wanted children; returns each with its refusal.
    pub(crate) fn place_fixed(
        &self,
        buffer: &TransformBuffer,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<(String, Option<UpdateError>)> {
        let fixed = self
            .joints
            .iter()
            .filter(|joint| joint.joint_type == JointType::Fixed && is_wanted(&joint.child.link));
        fixed
            .map(|joint| {
                let (parent, child) = (&joint.parent.link, &joint.child.link);
                let refused = buffer.update_static(parent, child, origin(joint)).err();
                (child.clone(), refused)
            })
            .collect()
    }

    /// Stores the positions of the joints in a message, and of the joints that mimic them. Names that are
    /// not joints of this robot are ignored. Returns the refused updates.
    pub fn move_joints(
        &self,
        buffer: &TransformBuffer,
        state: &JointPositions,
    ) -> Vec<UpdateError> {
        let placed = self.place_joints(buffer, state, |_| true);
        placed.into_iter().filter_map(|(_, error)| error).collect()
    }

    /// The same for the wanted children; returns each with its refusal.
    pub(crate) fn place_joints(
        &self,
        buffer: &TransformBuffer,
        state: &JointPositions,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<(&str, Option<UpdateError>)> {
        let mut placed = Vec::new();
        for (name, position) in state.names.iter().zip(&state.positions) {
            for place in self.moved_by.get(name).into_iter().flatten() {
                let joint = &self.joints[*place];
                let child = joint.child.link.as_str();
                if is_movable(joint) && is_wanted(child) {
                    let moved = self.move_joint(buffer, *place, *position, state.stamp);
                    placed.push((child, moved.err()));
                }
            }
        }
        placed
    }

    /// The names of the joints that a [`JointPositions`] moves, without mimic joints.
    pub fn movable_joints(&self) -> impl Iterator<Item = &str> {
        let is_mover = |joint: &&Joint| is_movable(joint) && joint.mimic.is_none();
        self.joints
            .iter()
            .filter(is_mover)
            .map(|joint| joint.name.as_str())
    }

    /// The frames of joints without a single position: floating, planar and spherical ones.
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

/// Whether a joint has a single position.
fn is_movable(joint: &Joint) -> bool {
    matches!(
        joint.joint_type,
        JointType::Revolute | JointType::Continuous | JointType::Prismatic
    )
}

/// The nesting depth of an XML text.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut rest = text;
    while let Some((_, tag)) = rest.split_once('<') {
        let after = |end| tag.split_once(end).map_or("", |(_, rest)| rest);
        if tag.starts_with("!--") {
            rest = after("-->");
        } else if tag.starts_with("![CDATA[") {
            rest = after("]]>");
        } else {
            let end = end_of_tag(tag);
            let inside = &tag[..end];
            rest = &tag[end..];
            if inside.starts_with('/') {
                depth = depth.saturating_sub(1);
            } else if !inside.starts_with(['!', '?']) && !inside.ends_with('/') {
                depth += 1;
                deepest = deepest.max(depth);
            }
        }
    }
    deepest
}

/// The index of a tag's closing `>`, ignoring those within quotes.
fn end_of_tag(tag: &str) -> usize {
    let mut quote = None;
    let end = tag.bytes().position(|byte| match quote {
        Some(open) => {
            quote = (byte != open).then_some(open);
            false
        }
        None if matches!(byte, b'"' | b'\'') => {
            quote = Some(byte);
            false
        }
        None => byte == b'>',
    });
    end.unwrap_or(tag.len())
}

/// `xyz`, and `rpy` about fixed axes.
fn origin(joint: &Joint) -> Isometry3<f64> {
    let [roll, pitch, yaw] = joint.origin.rpy.0;
    Isometry3::from_parts(
        Translation3::from(joint.origin.xyz.0),
        UnitQuaternion::from_euler_angles(roll, pitch, yaw),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_elements_and_nothing_else() {
        let text = r#"<?xml version="1.0"?><!DOCTYPE robot><robot name="a > b"><!-- <a><a> -->
            <link name="x"/><link name='y'><visual a="/"></visual><![CDATA[<b><b>]]></link></robot>"#;
        assert_eq!(depth(text), 3);
        assert_eq!(depth("no tags, 1 < 2"), 1);
        assert_eq!(depth("<a"), 1);
        assert_eq!(depth(""), 0);
    }

    #[test]
    fn elements_without_end_are_refused() {
        let text = format!("<robot name='r'>{}", "<a>".repeat(100_000));
        let error = RobotModel::from_urdf(&text).err().expect("is refused");
        assert!(
            error.to_string().contains("nested more than 100 deep"),
            "{error}"
        );
    }
}
