//! Poses on the floor.

use std::f64::consts::{PI, TAU};

/// A position on the floor and a heading, in metres and radians, counter-clockwise from the x axis.
///
/// Sine and cosine come from the `libm` crate: those of the platform differ in their last bit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PlanarPose {
    /// Metres to the east.
    pub x: f64,
    /// Metres to the north.
    pub y: f64,
    /// Radians, counter-clockwise from east, between minus and plus pi.
    pub heading: f64,
}

impl PlanarPose {
    /// A pose from its parts; the heading may be off by any number of turns.
    pub fn new(x: f64, y: f64, heading: f64) -> Self {
        PlanarPose {
            x,
            y,
            heading: wrapped(heading),
        }
    }

    /// The pose `local`, given relative to this one, in the frame of this one.
    #[must_use]
    pub fn then(self, local: PlanarPose) -> PlanarPose {
        let (sin, cos) = libm::sincos(self.heading);
        PlanarPose::new(
            self.x + cos * local.x - sin * local.y,
            self.y + sin * local.x + cos * local.y,
            self.heading + local.heading,
        )
    }

    /// The inverse: `pose.then(pose.inverse())` is the origin.
    #[must_use]
    pub fn inverse(self) -> PlanarPose {
        let (sin, cos) = libm::sincos(self.heading);
        PlanarPose::new(
            -cos * self.x - sin * self.y,
            sin * self.x - cos * self.y,
            -self.heading,
        )
    }

    /// Metres to a point.
    pub fn distance_to(self, x: f64, y: f64) -> f64 {
        let (dx, dy) = (x - self.x, y - self.y);
        (dx * dx + dy * dy).sqrt()
    }

    /// Radians to turn left (right if negative) to face a point.
    pub fn bearing_to(self, x: f64, y: f64) -> f64 {
        wrapped(libm::atan2(y - self.y, x - self.x) - self.heading)
    }

    /// The pose after driving `forward` metres while turning `turn` radians, along an arc.
    #[must_use]
    pub(crate) fn driven(self, forward: f64, turn: f64) -> PlanarPose {
        let (sin, cos) = libm::sincos(self.heading + turn / 2.0);
        // A chord is shorter than its arc; below a ten-thousandth of a radian the difference is negligible.
        let chord = if turn.abs() < 1e-4 {
            forward
        } else {
            forward * libm::sin(turn / 2.0) / (turn / 2.0)
        };
        PlanarPose::new(
            self.x + chord * cos,
            self.y + chord * sin,
            self.heading + turn,
        )
    }
}

/// The same angle, wrapped to between minus and plus pi.
pub(crate) fn wrapped(angle: f64) -> f64 {
    if angle.abs() <= PI {
        return angle;
    }
    let turned = (angle + PI) % TAU;
    if turned < 0.0 {
        turned + PI
    } else {
        turned - PI
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pose_and_its_inverse_cancel() {
        let pose = PlanarPose::new(1.5, -2.0, 2.5);
        let origin = pose.then(pose.inverse());
        assert!(origin.x.abs() < 1e-12 && origin.y.abs() < 1e-12 && origin.heading.abs() < 1e-12);
    }

    #[test]
    fn a_quarter_circle_ends_a_radius_ahead_and_a_radius_to_the_left() {
        let end = PlanarPose::default().driven(PI, PI / 2.0);
        assert!((end.x - 2.0).abs() < 1e-12 && (end.y - 2.0).abs() < 1e-12);
        assert!((end.heading - PI / 2.0).abs() < 1e-12);
    }

    #[test]
    fn many_turns_come_back_between_minus_and_plus_pi() {
        for turns in -5..=5 {
            let angle = wrapped(0.7 + TAU * f64::from(turns));
            assert!((angle - 0.7).abs() < 1e-12, "{angle}");
        }
    }
}
