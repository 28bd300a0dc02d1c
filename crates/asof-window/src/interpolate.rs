//! What lies between two messages.

/// A type for which "half way between these two" has a meaning.
///
/// Implemented for scalars, arrays, tuples of two and three, and with the feature `nalgebra` for vectors,
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
            // Half a turn has no shortest way; the earlier rotation stands until the later one is there.
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
