//! Transforms of poses, velocities, forces and covariances between frames.
//!
//! An isometry here is the result of a [lookup](crate::TransformBuffer::lookup) of `target` and `source`: it
//! transforms from `source` to `target`.

use nalgebra::{Isometry3, Matrix3, Matrix6, Vector3};

/// A velocity or a force, like ROS's `Twist` and `Wrench`: two vectors along the axes of one frame.
///
/// As a *twist*, `linear` is the velocity of the body at the frame's origin and `angular` its angular velocity.
/// As a *wrench*, `linear` is the force and `angular` the torque about the frame's origin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Screw {
    /// Velocity in metres per second, or force in newtons.
    pub linear: Vector3<f64>,
    /// Angular velocity in radians per second, or torque in newton metres.
    pub angular: Vector3<f64>,
}

/// A pose with its covariance, like ROS's `PoseWithCovariance`: x, y, z, then the rotations about the fixed
/// axes x, y and z.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UncertainPose {
    /// The pose.
    pub pose: Isometry3<f64>,
    /// Its covariance.
    pub covariance: Matrix6<f64>,
}

/// Transforms a pose from `source` to `target`.
#[must_use]
pub fn transform_pose(isometry: &Isometry3<f64>, pose: &Isometry3<f64>) -> Isometry3<f64> {
    isometry * pose
}

/// Transforms a free vector, such as a direction, a velocity or gravity, to `target`.
#[must_use]
pub fn transform_vector(isometry: &Isometry3<f64>, vector: &Vector3<f64>) -> Vector3<f64> {
    isometry.rotation * vector
}

/// The twist of a rigid body at `target`'s origin, along `target`'s axes, from that at `source`'s: both frames
/// are fixed to the body, as a sensor is to its base.
#[must_use]
pub fn transform_twist(isometry: &Isometry3<f64>, twist: &Screw) -> Screw {
    let angular = isometry.rotation * twist.angular;
    let arm = isometry.translation.vector;
    Screw {
        // The origin of `target` is at -arm from that of `source`, along `target`'s axes.
        linear: isometry.rotation * twist.linear + arm.cross(&angular),
        angular,
    }
}

/// The wrench equivalent to one given in `source`: the force along `target`'s axes, the torque about `target`'s
/// origin.
#[must_use]
pub fn transform_wrench(isometry: &Isometry3<f64>, wrench: &Screw) -> Screw {
    let force = isometry.rotation * wrench.linear;
    let arm = isometry.translation.vector;
    Screw {
        linear: force,
        angular: isometry.rotation * wrench.angular + arm.cross(&force),
    }
}

/// A covariance of x, y, z and the rotations about fixed axes, or of a twist's linear and angular part, along
/// the axes of `target`: like tf2's `transformCovariance`, it is only rotated.
#[must_use]
pub fn transform_covariance(isometry: &Isometry3<f64>, covariance: &Matrix6<f64>) -> Matrix6<f64> {
    let turn = turn_of(isometry);
    turn * covariance * turn.transpose()
}

/// Transforms a pose and its covariance to `target`.
#[must_use]
pub fn transform_pose_with_covariance(
    isometry: &Isometry3<f64>,
    given: &UncertainPose,
) -> UncertainPose {
    UncertainPose {
        pose: isometry * given.pose,
        covariance: transform_covariance(isometry, &given.covariance),
    }
}

fn turn_of(isometry: &Isometry3<f64>) -> Matrix6<f64> {
    let turn: Matrix3<f64> = isometry.rotation.to_rotation_matrix().into_inner();
    let mut both = Matrix6::zeros();
    both.fixed_view_mut::<3, 3>(0, 0).copy_from(&turn);
    both.fixed_view_mut::<3, 3>(3, 3).copy_from(&turn);
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{Translation3, UnitQuaternion, Vector6};

    /// Source is 2 m ahead of target and turned to the left by a right angle.
    fn ahead() -> Isometry3<f64> {
        Isometry3::from_parts(
            Translation3::new(2.0, 0.0, 0.0),
            UnitQuaternion::from_euler_angles(0.0, 0.0, std::f64::consts::FRAC_PI_2),
        )
    }

    fn near(a: &Vector3<f64>, b: [f64; 3]) -> bool {
        (a - Vector3::from(b)).norm() < 1e-12
    }

    #[test]
    fn a_body_that_spins_moves_at_its_rim() {
        // It turns about target's z with 1 rad/s: 2 m ahead it moves to the left, which is source's x.
        let at_rim = Screw {
            linear: Vector3::new(2.0, 0.0, 0.0),
            angular: Vector3::z(),
        };
        let found = transform_twist(&ahead(), &at_rim);
        assert!(near(&found.linear, [0.0; 3]) && near(&found.angular, [0.0, 0.0, 1.0]));
        let back = transform_twist(&ahead().inverse(), &found);
        assert!(near(&back.linear, [2.0, 0.0, 0.0]), "{back:?}");
    }

    #[test]
    fn a_force_at_the_end_of_an_arm_is_a_torque_at_its_root() {
        let push = Screw {
            linear: Vector3::new(3.0, 0.0, 0.0),
            angular: Vector3::zeros(),
        };
        let found = transform_wrench(&ahead(), &push);
        assert!(near(&found.linear, [0.0, 3.0, 0.0]) && near(&found.angular, [0.0, 0.0, 6.0]));
    }

    #[test]
    fn power_is_the_same_in_every_frame() {
        let isometry = Isometry3::from_parts(
            Translation3::new(0.3, -1.2, 2.0),
            UnitQuaternion::from_euler_angles(0.4, -0.8, 1.9),
        );
        let twist = Screw {
            linear: Vector3::new(1.0, 2.0, 3.0),
            angular: Vector3::new(-0.5, 0.1, 0.7),
        };
        let wrench = Screw {
            linear: Vector3::new(-2.0, 0.4, 1.0),
            angular: Vector3::new(0.3, 0.9, -1.1),
        };
        let power = |t: &Screw, w: &Screw| t.linear.dot(&w.linear) + t.angular.dot(&w.angular);
        let moved = power(
            &transform_twist(&isometry, &twist),
            &transform_wrench(&isometry, &wrench),
        );
        assert!((moved - power(&twist, &wrench)).abs() < 1e-12);
    }

    #[test]
    fn a_covariance_is_turned_with_its_axes() {
        let sure = Matrix6::from_diagonal(&Vector6::new(4.0, 1.0, 0.5, 0.1, 0.2, 0.3));
        let given = UncertainPose {
            pose: Isometry3::translation(1.0, 0.0, 0.0),
            covariance: sure,
        };
        let found = transform_pose_with_covariance(&ahead(), &given);
        assert!(near(&found.pose.translation.vector, [2.0, 1.0, 0.0]));
        let wanted = Matrix6::from_diagonal(&Vector6::new(1.0, 4.0, 0.5, 0.2, 0.1, 0.3));
        assert!((found.covariance - wanted).norm() < 1e-12);
    }
}
