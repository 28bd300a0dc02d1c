//! Results of lookups that are more than a transform.

use asof_core::{Stamp, TimeRange};
use nalgebra::{Isometry3, Vector3};

#[cfg(doc)]
use crate::buffer::TransformBuffer;
use crate::name::FrameName;

/// The transform at the latest time that every edge on the way has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatestTransform {
    /// The time; `None` if every edge on the way is static, so that any time is as good.
    pub stamp: Option<Stamp>,
    /// Transforms a point from the source frame to the target frame.
    pub isometry: Isometry3<f64>,
}

/// The composition of the newest sample of every edge on the way, whatever their ages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Newest {
    /// The stamps of the oldest and the newest of those samples; `None` if every edge is static.
    pub stamps: Option<TimeRange>,
    /// Transforms a point from the source frame to the target frame.
    pub isometry: Isometry3<f64>,
}

/// One edge of a [`chain`](TransformBuffer::chain).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// The parent frame.
    pub parent: FrameName,
    /// The child frame.
    pub child: FrameName,
    /// Whether it holds for all times.
    pub is_static: bool,
    /// Whether the way from source to target goes down this edge, from parent to child.
    pub is_inverse: bool,
    /// The times of its samples; `None` for a static edge, or one without samples.
    pub range: Option<TimeRange>,
}

/// A velocity: how a frame moves relative to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameTwist {
    /// Of the moving frame's origin, in metres per second, along the axes of the observing frame.
    pub linear: Vector3<f64>,
    /// In radians per second, about the axes of the observing frame.
    pub angular: Vector3<f64>,
    /// The time range that it is the mean over.
    pub over: TimeRange,
}

impl FrameTwist {
    /// The same motion along the axes of another frame; `rotation` transforms directions of the
    /// observing frame to that frame.
    #[must_use]
    pub fn along(&self, rotation: &nalgebra::UnitQuaternion<f64>) -> FrameTwist {
        FrameTwist {
            linear: rotation * self.linear,
            angular: rotation * self.angular,
            ..*self
        }
    }

    /// The motion of a point fixed to the moving body, `offset` from the moving frame's origin,
    /// along the axes of this twist.
    #[must_use]
    pub fn at_offset(&self, offset: &Vector3<f64>) -> FrameTwist {
        FrameTwist {
            linear: self.linear + self.angular.cross(offset),
            ..*self
        }
    }
}
