//! Interpolation between two messages.

/// A type with values between two others.
///
/// Implemented for scalars, arrays, vectors, tuples of two and three, for the usual parts of robot messages
/// ([`Rotation`], [`PoseSample`], [`TwistSample`], [`OdometrySample`], [`JointSample`]), and with the feature `nalgebra` for its vectors,
/// points, rotations and poses. Implement it for your own messages field by field.
pub trait Interpolate: Sized {
    /// The value at `fraction` of the way from `self` (0) to `later` (1).
    #[must_use]
    fn interpolate(&self, later: &Self, fraction: f64) -> Self;
}

impl Interpolate for f64 {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        // Exact at both ends, unlike `a + (b - a) * f`.
        self * (1.0 - fraction) + later * fraction
    }
}

impl Interpolate for f32 {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        f64::from(*self).interpolate(&f64::from(*later), fraction) as f32
    }
}

impl<T: Interpolate, const N: usize> Interpolate for [T; N] {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        std::array::from_fn(|index| self[index].interpolate(&later[index], fraction))
    }
}

/// Element by element; if the lengths differ, holds the earlier value until the later one.
impl<T: Interpolate + Clone> Interpolate for Vec<T> {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        if self.len() != later.len() {
            return held(self, later, fraction);
        }
        let pairs = self.iter().zip(later);
        pairs
            .map(|(earlier, later)| earlier.interpolate(later, fraction))
            .collect()
    }
}

/// For what cannot be interpolated: holds the earlier value until the later one.
fn held<T: Clone>(earlier: &T, later: &T, fraction: f64) -> T {
    if fraction < 1.0 { earlier } else { later }.clone()
}

/// A rotation as a unit quaternion, in the order of ROS: x, y, z, w.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotation(pub [f64; 4]);

impl Rotation {
    /// No rotation.
    pub const IDENTITY: Rotation = Rotation([0.0, 0.0, 0.0, 1.0]);
}

/// Along the shorter arc.
impl Interpolate for Rotation {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        /// Rotations closer than this are interpolated linearly: the arc's sine is lost in rounding.
        const NEARLY_EQUAL: f64 = 1.0 - 1e-12;
        let (a, b) = (self.0, later.0);
        let cosine: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
        // Both signs are the same rotation; this one is on the shorter arc.
        let sign = if cosine < 0.0 { -1.0 } else { 1.0 };
        let cosine = (cosine * sign).min(1.0);
        let (of_a, of_b) = if cosine > NEARLY_EQUAL {
            (1.0 - fraction, fraction)
        } else {
            let angle = cosine.acos();
            let part = |fraction: f64| (fraction * angle).sin() / angle.sin();
            (part(1.0 - fraction), part(fraction))
        };
        let mixed: [f64; 4] = std::array::from_fn(|i| a[i] * of_a + b[i] * of_b * sign);
        let length = mixed.iter().map(|x| x * x).sum::<f64>().sqrt();
        // A quaternion of zero length is not a rotation and stays as it is.
        if length > 0.0 {
            Rotation(mixed.map(|x| x / length))
        } else {
            *self
        }
    }
}

/// A position and an orientation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoseSample {
    /// The position: x, y, z.
    pub position: [f64; 3],
    /// The orientation.
    pub rotation: Rotation,
}

impl Interpolate for PoseSample {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        PoseSample {
            position: self.position.interpolate(&later.position, fraction),
            rotation: self.rotation.interpolate(&later.rotation, fraction),
        }
    }
}

/// A linear and an angular velocity.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TwistSample {
    /// Metres per second.
    pub linear: [f64; 3],
    /// Radians per second about each axis.
    pub angular: [f64; 3],
}

impl Interpolate for TwistSample {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        TwistSample {
            linear: self.linear.interpolate(&later.linear, fraction),
            angular: self.angular.interpolate(&later.angular, fraction),
        }
    }
}

/// A pose and a twist, as in odometry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OdometrySample {
    /// The pose.
    pub pose: PoseSample,
    /// The twist.
    pub twist: TwistSample,
}

impl Interpolate for OdometrySample {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        OdometrySample {
            pose: self.pose.interpolate(&later.pose, fraction),
            twist: self.twist.interpolate(&later.twist, fraction),
        }
    }
}

/// The joints of a robot. Any of the lists of numbers may be empty, as in ROS.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JointSample {
    /// The names of the joints.
    pub names: Vec<String>,
    /// Radians or metres.
    pub positions: Vec<f64>,
    /// Radians or metres per second.
    pub velocities: Vec<f64>,
    /// Newton metres or newtons.
    pub efforts: Vec<f64>,
}

/// Joint by joint; if the joints differ, holds the earlier state until the later one.
impl Interpolate for JointSample {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        if self.names != later.names {
            return held(self, later, fraction);
        }
        JointSample {
            names: self.names.clone(),
            positions: self.positions.interpolate(&later.positions, fraction),
            velocities: self.velocities.interpolate(&later.velocities, fraction),
            efforts: self.efforts.interpolate(&later.efforts, fraction),
        }
    }
}

impl<A: Interpolate, B: Interpolate> Interpolate for (A, B) {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        (
            self.0.interpolate(&later.0, fraction),
            self.1.interpolate(&later.1, fraction),
        )
    }
}

impl<A: Interpolate, B: Interpolate, C: Interpolate> Interpolate for (A, B, C) {
    fn interpolate(&self, later: &Self, fraction: f64) -> Self {
        (
            self.0.interpolate(&later.0, fraction),
            self.1.interpolate(&later.1, fraction),
            self.2.interpolate(&later.2, fraction),
        )
    }
}

#[cfg(feature = "nalgebra")]
mod with_nalgebra {
    use nalgebra::{
        Isometry2, Isometry3, Point, SVector, Translation, UnitComplex, UnitQuaternion,
    };

    use super::Interpolate;

    impl<const N: usize> Interpolate for SVector<f64, N> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            self.lerp(later, fraction)
        }
    }

    impl<const N: usize> Interpolate for Point<f64, N> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            self.lerp(later, fraction)
        }
    }

    impl<const N: usize> Interpolate for Translation<f64, N> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            self.vector.lerp(&later.vector, fraction).into()
        }
    }

    impl Interpolate for UnitQuaternion<f64> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            // Half a turn has no shorter arc; holds the earlier rotation until the later one.
            let held = if fraction < 1.0 { *self } else { *later };
            self.try_slerp(later, fraction, 1e-9).unwrap_or(held)
        }
    }

    impl Interpolate for UnitComplex<f64> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            self.slerp(later, fraction)
        }
    }

    impl Interpolate for Isometry3<f64> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            Isometry3::from_parts(
                self.translation.interpolate(&later.translation, fraction),
                self.rotation.interpolate(&later.rotation, fraction),
            )
        }
    }

    impl Interpolate for Isometry2<f64> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            Isometry2::from_parts(
                self.translation.interpolate(&later.translation, fraction),
                self.rotation.interpolate(&later.rotation, fraction),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_exact() {
        let (a, b): (f64, f64) = (0.1, 1e9 + 0.7);
        assert!(a.interpolate(&b, 0.0).to_bits() == a.to_bits());
        assert!(a.interpolate(&b, 1.0).to_bits() == b.to_bits());
    }

    #[test]
    fn arrays_and_tuples_interpolate_in_each_part() {
        let half = ([0.0, 2.0], 4.0f32).interpolate(&([1.0, 4.0], 8.0), 0.5);
        assert_eq!(half, ([0.5, 3.0], 6.0));
    }

    /// A turn about the z axis.
    fn turned(angle: f64) -> Rotation {
        Rotation([0.0, 0.0, (angle / 2.0).sin(), (angle / 2.0).cos()])
    }

    fn is_close(a: Rotation, b: Rotation) -> bool {
        // Both signs are the same rotation.
        let cosine: f64 = a.0.iter().zip(b.0).map(|(a, b)| a * b).sum();
        cosine.abs() > 1.0 - 1e-12
    }

    #[test]
    fn rotations_take_the_shorter_arc() {
        for (from, to) in [
            (0.0_f64, 1.0_f64),
            (3.0, -3.0),
            (-0.2, 0.1),
            (1.0, 1.0 + 1e-9),
        ] {
            let turn = (to - from).sin().atan2((to - from).cos());
            for fraction in [0.0, 0.25, 0.5, 1.0] {
                let wanted = turned(from + turn * fraction);
                let there = turned(to);
                let negated = Rotation(there.0.map(|x| -x));
                for later in [there, negated] {
                    let found = turned(from).interpolate(&later, fraction);
                    assert!(is_close(found, wanted), "{from} {to} {fraction} {found:?}");
                }
            }
        }
    }

    #[test]
    fn odometry_moves_and_turns() {
        let at = |x: f64, angle: f64| OdometrySample {
            pose: PoseSample {
                position: [x, 0.0, 0.0],
                rotation: turned(angle),
            },
            twist: TwistSample {
                linear: [x, 0.0, 0.0],
                ..TwistSample::default()
            },
        };
        let half = at(1.0, 0.0).interpolate(&at(3.0, 1.0), 0.5);
        for x in [half.pose.position[0], half.twist.linear[0]] {
            assert!((x - 2.0).abs() < 1e-12);
        }
        assert!(is_close(half.pose.rotation, turned(0.5)));
        let nothing = Rotation([0.0; 4]);
        assert_eq!(nothing.interpolate(&nothing, 0.5), nothing);
    }

    #[test]
    fn joints_move_where_they_are_the_same() {
        let joints = |names: &[&str], positions: &[f64]| JointSample {
            names: names.iter().map(ToString::to_string).collect(),
            positions: positions.to_vec(),
            ..JointSample::default()
        };
        let start = joints(&["hip", "knee"], &[0.0, 1.0]);
        let half = start.interpolate(&joints(&["hip", "knee"], &[1.0, 3.0]), 0.5);
        assert_eq!(half, joints(&["hip", "knee"], &[0.5, 2.0]));
        let other = joints(&["knee", "hip"], &[1.0, 3.0]);
        assert_eq!(start.interpolate(&other, 0.5), start);
        assert_eq!(start.interpolate(&other, 1.0), other);
    }

    #[cfg(feature = "nalgebra")]
    #[test]
    fn a_pose_turns_and_moves() {
        use nalgebra::{Isometry3, Vector3};
        let start = Isometry3::identity();
        let end = Isometry3::new(Vector3::new(2.0, 0.0, 0.0), Vector3::z() * 1.0);
        let half = start.interpolate(&end, 0.5);
        assert!((half.rotation.angle() - 0.5).abs() < 1e-12);
        assert!((half.translation.x - 1.0).abs() < 1e-12);
    }
}
