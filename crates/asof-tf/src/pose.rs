//! Rotations, translations and interpolation.

// The compiler would not inline these; inlined, a pose stays in registers.
#![allow(clippy::inline_always)]

use asof_align::between::{self, dot, exact_weights, part, unit_rotation, vector};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

use crate::history::{Slot, Words};

/// A rigid transform as plain numbers: unit quaternion x, y, z, w and translation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pose {
    pub(crate) q: [f64; 4],
    pub(crate) t: [f64; 3],
}

/// How far the squared length of a rotation may be from one, as in tf2.
pub(crate) const UNIT_TOLERANCE: f64 = 0.01;

impl Pose {
    pub(crate) const IDENTITY: Pose = Pose {
        q: [0.0, 0.0, 0.0, 1.0],
        t: [0.0; 3],
    };

    /// The numbers unchecked; see [`Pose::checked`] for input from outside.
    #[inline]
    pub(crate) fn new(isometry: &Isometry3<f64>) -> Self {
        let q = isometry.rotation.coords;
        let t = isometry.translation.vector;
        Pose {
            q: [q.x, q.y, q.z, q.w],
            t: [t.x, t.y, t.z],
        }
    }

    /// The pose with its rotation normalized, or what is wrong with it.
    #[inline]
    pub(crate) fn checked(isometry: &Isometry3<f64>) -> Result<Self, BadPose> {
        let pose = Pose::new(isometry);
        let [x, y, z] = pose.t;
        // Zero times anything finite is zero; times anything else it is not.
        if x * 0.0 + y * 0.0 + z * 0.0 != 0.0 {
            return Err(BadPose::Translation);
        }
        let [a, b, c, d] = pose.q;
        let square = a * a + b * b + c * c + d * d;
        // NaN is refused too.
        let is_unit = (square - 1.0).abs() < UNIT_TOLERANCE;
        match between::normalised(pose.q).filter(|_| is_unit) {
            Some(q) => Ok(Pose { q, ..pose }),
            None => Err(BadPose::Rotation(square.sqrt())),
        }
    }

    #[inline(always)]
    pub(crate) fn isometry(&self) -> Isometry3<f64> {
        let [x, y, z, w] = self.q;
        let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
        Isometry3::from_parts(Translation3::from(self.t), rotation)
    }

    #[inline]
    pub(crate) fn words(&self, stamp: i64) -> Words {
        let [x, y, z, w] = self.q.map(f64::to_bits);
        let [a, b, c] = self.t.map(f64::to_bits);
        [stamp as u64, x, y, z, w, a, b, c]
    }

    #[inline(always)]
    pub(crate) fn of(slot: &Slot) -> Self {
        Pose {
            q: rotation_of(slot),
            t: translation_of(slot),
        }
    }

    #[inline(always)]
    pub(crate) fn of_words(words: &Words) -> Self {
        let word = |index: usize| f64::from_bits(words[index]);
        Pose {
            q: [word(1), word(2), word(3), word(4)],
            t: [word(5), word(6), word(7)],
        }
    }

    /// First `other`, then `self`.
    #[inline(always)]
    pub(crate) fn times(&self, other: &Pose) -> Pose {
        let turned = rotate(self.q, other.t);
        Pose {
            q: multiply(self.q, other.q),
            t: sum(self.t, turned),
        }
    }

    /// Transforms a point.
    #[inline(always)]
    pub(crate) fn apply(&self, point: [f64; 3]) -> [f64; 3] {
        sum(self.t, rotate(self.q, point))
    }

    #[inline(always)]
    pub(crate) fn inverse(&self) -> Pose {
        let q = conjugate(self.q);
        Pose {
            q,
            t: rotate(q, minus(self.t)),
        }
    }

    /// `self` where `part` is 0, `other` where it is 1: linear in translation, along the shorter arc in
    /// rotation. The reference for [`Pose::between_slots`].
    #[cfg(test)]
    pub(crate) fn between(&self, other: &Pose, part: f64) -> Pose {
        Pose {
            q: unit_rotation(self.q, other.q, part),
            t: vector(self.t, other.t, part),
        }
    }

    /// Interpolates two samples at `t`, which is not before the first nor after the second: linear in
    /// translation, along the shorter arc in rotation. Numbers are read when they are needed: all at once
    /// would not fit the registers.
    #[inline(always)]
    pub(crate) fn between_slots(a: &Slot, b: &Slot, t: i64) -> Pose {
        let part = part(a.stamp(), b.stamp(), t);
        Pose {
            q: unit_rotation(rotation_of(a), rotation_of(b), part),
            t: vector(translation_of(a), translation_of(b), part),
        }
    }

    /// `self` where `part` is 0, `other` where it is 1, and constant velocity beyond.
    pub(crate) fn beyond(&self, other: &Pose, part: f64) -> Pose {
        let dot = dot(self.q, other.q);
        let (a, b) = exact_weights(dot.abs(), part);
        let b = if dot < 0.0 { -b } else { b };
        let q: [f64; 4] = std::array::from_fn(|i| a * self.q[i] + b * other.q[i]);
        let length = between::dot(q, q).sqrt();
        Pose {
            q: q.map(|part| part / length),
            t: std::array::from_fn(|i| self.t[i] + part * (other.t[i] - self.t[i])),
        }
    }
}

/// The product of poses that are added from right to left, as in a climb.
///
/// What is kept is the inverse of the product: its rotation and its translation. Then a new pose costs one
/// quaternion product and one rotated vector, of which only the former depends on the previous result; a
/// chain of plain products depends on both, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Climbed {
    /// Rotation of the product.
    q: [f64; 4],
    /// Translation of its inverse.
    s: [f64; 3],
}

impl Climbed {
    #[inline(always)]
    pub(crate) fn new(first: &Pose) -> Self {
        Climbed {
            q: first.q,
            s: rotate(conjugate(first.q), minus(first.t)),
        }
    }

    /// Multiplies by `pose` from the left.
    #[inline(always)]
    pub(crate) fn add(&mut self, pose: &Pose) {
        self.q = multiply(pose.q, self.q);
        let turned = rotate(conjugate(self.q), pose.t);
        self.s = sum(self.s, minus(turned));
    }

    #[inline(always)]
    pub(crate) fn product(&self) -> Pose {
        Pose {
            q: self.q,
            t: rotate(self.q, minus(self.s)),
        }
    }

    #[inline(always)]
    pub(crate) fn inverse(&self) -> Pose {
        Pose {
            q: conjugate(self.q),
            t: self.s,
        }
    }
}

/// What is wrong with a pose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BadPose {
    /// A component of the translation is not finite.
    Translation,
    /// The rotation has this length.
    Rotation(f64),
}

#[inline(always)]
fn rotation_of(slot: &Slot) -> [f64; 4] {
    [
        slot.number(1),
        slot.number(2),
        slot.number(3),
        slot.number(4),
    ]
}

#[inline(always)]
fn translation_of(slot: &Slot) -> [f64; 3] {
    [slot.number(5), slot.number(6), slot.number(7)]
}

// Written out, all of these: closures over arrays put them into memory.

#[inline(always)]
fn sum(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

#[inline(always)]
fn minus(v: [f64; 3]) -> [f64; 3] {
    [-v[0], -v[1], -v[2]]
}

#[inline(always)]
pub(crate) fn conjugate(q: [f64; 4]) -> [f64; 4] {
    [-q[0], -q[1], -q[2], q[3]]
}

#[inline(always)]
pub(crate) fn multiply(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    [
        (a[3] * b[0] + a[0] * b[3]) + (a[1] * b[2] - a[2] * b[1]),
        (a[3] * b[1] + a[1] * b[3]) + (a[2] * b[0] - a[0] * b[2]),
        (a[3] * b[2] + a[2] * b[3]) + (a[0] * b[1] - a[1] * b[0]),
        (a[3] * b[3] - a[0] * b[0]) - (a[1] * b[1] + a[2] * b[2]),
    ]
}

#[inline(always)]
pub(crate) fn rotate(q: [f64; 4], v: [f64; 3]) -> [f64; 3] {
    let c = [
        2.0 * (q[1] * v[2] - q[2] * v[1]),
        2.0 * (q[2] * v[0] - q[0] * v[2]),
        2.0 * (q[0] * v[1] - q[1] * v[0]),
    ];
    [
        (v[0] + q[3] * c[0]) + (q[1] * c[2] - q[2] * c[1]),
        (v[1] + q[3] * c[1]) + (q[2] * c[0] - q[0] * c[2]),
        (v[2] + q[3] * c[2]) + (q[0] * c[1] - q[1] * c[0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::Vector3;
    use proptest::prelude::*;

    fn pose(axis: [f64; 3], angle: f64, t: [f64; 3]) -> Pose {
        let axis = nalgebra::Unit::new_normalize(Vector3::from(axis));
        Pose::new(&Isometry3::from_parts(
            Translation3::from(t),
            UnitQuaternion::from_axis_angle(&axis, angle),
        ))
    }

    fn distance(a: &Pose, b: &Pose) -> f64 {
        let sign = if dot(a.q, b.q) < 0.0 { -1.0 } else { 1.0 };
        let q = (0..4).map(|i| (a.q[i] - sign * b.q[i]).abs());
        let t = (0..3).map(|i| (a.t[i] - b.t[i]).abs());
        q.chain(t).fold(0.0, f64::max)
    }

    fn any_pose() -> impl Strategy<Value = Pose> {
        let unit = -1.0..1.0_f64;
        (
            [unit.clone(), unit.clone(), 0.01..1.0],
            -3.0..3.0_f64,
            [unit.clone(), unit.clone(), unit],
        )
            .prop_map(|(axis, angle, t)| pose(axis, angle, t))
    }

    proptest! {
        #[test]
        fn a_turn_about_one_axis_is_interpolated_in_its_angle(
            exponent in -9.0..0.49_f64, part in 0.0..1.0_f64, start in -3.0..3.0_f64,
        ) {
            let angle = 10_f64.powf(exponent);
            let axis = [0.3, -0.5, 0.8];
            let (a, b) = (pose(axis, start, [0.0; 3]), pose(axis, start + angle, [0.0; 3]));
            let wanted = pose(axis, start + angle * part, [0.0; 3]);
            let found = a.between(&b, part);
            prop_assert!(distance(&found, &wanted) < 1e-15, "{}", distance(&found, &wanted));
            prop_assert!((dot(found.q, found.q) - 1.0).abs() < 2e-15);
        }

        #[test]
        fn products_and_inverses_are_those_of_nalgebra(a in any_pose(), b in any_pose()) {
            let product = Pose::new(&(a.isometry() * b.isometry()));
            prop_assert!(distance(&a.times(&b), &product) < 1e-15);
            let inverse = Pose::new(&a.isometry().inverse());
            prop_assert!(distance(&a.inverse(), &inverse) < 1e-15);
        }

        #[test]
        fn opposite_signs_of_a_rotation_are_the_same_rotation(a in any_pose(), b in any_pose(), part in 0.0..1.0_f64) {
            let minus = Pose { q: b.q.map(|x| -x), ..b };
            prop_assert!(distance(&a.between(&b, part), &a.between(&minus, part)) < 1e-15);
        }

        #[test]
        fn going_beyond_continues_the_turn(angle in 1e-6..0.3_f64, part in -2.0..3.0_f64) {
            let axis = [0.1, 0.9, -0.2];
            let (a, b) = (pose(axis, 0.2, [1.0, 0.0, 0.0]), pose(axis, 0.2 + angle, [2.0, 0.0, 0.0]));
            let wanted = pose(axis, 0.2 + angle * part, [1.0 + part, 0.0, 0.0]);
            prop_assert!(distance(&a.beyond(&b, part), &wanted) < 1e-9);
        }
    }

    #[test]
    fn a_climb_is_the_product_from_right_to_left() {
        let poses: Vec<Pose> = (0..50)
            .map(|i| {
                let x = f64::from(i);
                pose([x.sin(), x.cos(), 0.4], x, [x.cos(), 0.3, x.sin()])
            })
            .collect();
        let product = poses
            .iter()
            .skip(1)
            .fold(poses[0], |sum, pose| pose.times(&sum));
        let mut climbed = Climbed::new(&poses[0]);
        poses.iter().skip(1).for_each(|pose| climbed.add(pose));
        assert!(distance(&climbed.product(), &product) < 1e-13);
        assert!(distance(&climbed.inverse(), &product.inverse()) < 1e-13);
    }

    #[test]
    fn half_a_turn_apart_is_finite() {
        let (a, b) = (
            pose([0.0, 0.0, 1.0], 0.0, [0.0; 3]),
            pose([0.0, 0.0, 1.0], std::f64::consts::PI, [0.0; 3]),
        );
        let middle = a.between(&b, 0.5);
        assert!((dot(middle.q, middle.q) - 1.0).abs() < 1e-15, "{middle:?}");
    }

    #[test]
    fn numbers_that_are_no_pose_are_refused() {
        let mut isometry = Isometry3::identity();
        isometry.translation.vector.y = f64::INFINITY;
        assert_eq!(Pose::checked(&isometry), Err(BadPose::Translation));
        let with = |w: f64| {
            let q = Quaternion::new(w, 0.0, 0.0, 0.0);
            Pose::checked(&Isometry3::from_parts(
                Translation3::identity(),
                UnitQuaternion::new_unchecked(q),
            ))
        };
        assert_eq!(with(1.2), Err(BadPose::Rotation(1.2)));
        assert_eq!(with(0.0), Err(BadPose::Rotation(0.0)));
        assert!(matches!(with(f64::NAN), Err(BadPose::Rotation(_))));
        assert_eq!(with(1.002), Ok(Pose::IDENTITY));
    }
}
