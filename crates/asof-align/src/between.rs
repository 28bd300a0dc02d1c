//! What lies between two values: the only place that interpolates.
//!
//! A part is from 0, the first value, to 1, the second. Rotations are unit quaternions x, y, z, w, as in ROS.

// The compiler would not inline these; inlined, a pose stays in registers.
#![allow(clippy::inline_always)]

/// The position of `t` between `a` (0) and `b` (1); zero if both are the same.
#[inline(always)]
pub fn part(a: i64, b: i64, t: i64) -> f64 {
    let (past, span) = (t.wrapping_sub(a), b.wrapping_sub(a));
    if span <= 0 {
        return wide_part(past, span);
    }
    past as f64 / span as f64
}

/// Spans of three centuries overflow into the sign; as unsigned numbers they are right.
#[cold]
#[inline(never)]
fn wide_part(past: i64, span: i64) -> f64 {
    if span == 0 {
        return 0.0;
    }
    past as u64 as f64 / span as u64 as f64
}

/// Between two numbers. Equal ones stay the same, infinities included.
#[inline]
pub fn number(a: f64, b: f64, part: f64) -> f64 {
    if part >= 1.0 {
        return b;
    }
    let step = b - a;
    if step.is_finite() {
        a + part * step
    } else if a.to_bits() == b.to_bits() {
        a
    } else {
        a * (1.0 - part) + b * part
    }
}

/// Between two times in nanoseconds, rounded to the nearest.
pub fn time(a: i128, b: i128, part: f64) -> i128 {
    a + ((b - a) as f64 * part).round() as i128
}

/// Between two vectors whose components are finite.
#[inline(always)]
pub fn vector(a: [f64; 3], b: [f64; 3], part: f64) -> [f64; 3] {
    [
        a[0] + part * (b[0] - a[0]),
        a[1] + part * (b[1] - a[1]),
        a[2] + part * (b[2] - a[2]),
    ]
}

/// Between two rotations, along the shorter arc. Both are normalised first; what is no rotation, such as four zeros, stays as the first.
pub fn rotation(a: [f64; 4], b: [f64; 4], part: f64) -> [f64; 4] {
    match (normalised(a), normalised(b)) {
        (Some(p), Some(q)) => unit_rotation(p, q, part),
        _ => a,
    }
}

/// Between two rotations of unit length, along the shorter arc. The result has unit length.
#[inline(always)]
pub fn unit_rotation(a: [f64; 4], b: [f64; 4], part: f64) -> [f64; 4] {
    let cosine = dot(a, b);
    // Neither weight is negative.
    let (x, y) = arc_weights(cosine.abs(), part);
    mixed(x, a, y.copysign(cosine), b)
}

/// A quaternion of unit length; one that has it up to rounding stays as it is. `None` if it has no direction.
#[inline]
pub fn normalised(q: [f64; 4]) -> Option<[f64; 4]> {
    let [x, y, z, w] = q;
    let square = x * x + y * y + z * z + w * w;
    if (square - 1.0).abs() <= 4.0 * f64::EPSILON {
        return Some(q);
    }
    (square.is_normal() && square > 0.0).then(|| q.map(|part| part / square.sqrt()))
}

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
        number(*self, *later, fraction)
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
        Rotation(rotation(self.0, later.0, fraction))
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
        Isometry2, Isometry3, Point, Quaternion, SVector, Translation, UnitComplex, UnitQuaternion,
    };

    use super::{Interpolate, number, rotation};

    impl<const N: usize> Interpolate for SVector<f64, N> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            self.zip_map(later, |a, b| number(a, b, fraction))
        }
    }

    impl<const N: usize> Interpolate for Point<f64, N> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            self.coords.interpolate(&later.coords, fraction).into()
        }
    }

    impl<const N: usize> Interpolate for Translation<f64, N> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            self.vector.interpolate(&later.vector, fraction).into()
        }
    }

    impl Interpolate for UnitQuaternion<f64> {
        fn interpolate(&self, later: &Self, fraction: f64) -> Self {
            let numbers = |q: &Self| [q.i, q.j, q.k, q.w];
            let [x, y, z, w] = rotation(numbers(self), numbers(later), fraction);
            UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z))
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

/// `x a + y b`.
#[inline(always)]
pub fn mixed(x: f64, a: [f64; 4], y: f64, b: [f64; 4]) -> [f64; 4] {
    [
        x * a[0] + y * b[0],
        x * a[1] + y * b[1],
        x * a[2] + y * b[2],
        x * a[3] + y * b[3],
    ]
}

/// The cosine of half of the angle between two rotations; negative if they have opposite signs.
#[inline(always)]
pub fn dot(a: [f64; 4], b: [f64; 4]) -> f64 {
    (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3])
}

/// Coefficients of the series below: `(1 / (i (2 i + 1)), i / (2 i + 1))` for i = 1, 2, …
const SERIES: [(f64, f64); 10] = {
    let mut series = [(0.0, 0.0); 10];
    let mut i = 1;
    while i <= series.len() {
        let n = i as f64;
        series[i - 1] = (1.0 / (n * (2.0 * n + 1.0)), n / (2.0 * n + 1.0));
        i += 1;
    }
    series
};

/// Precomputed [`arc_weights`] for one cosine: the coefficients of the series multiplied by what does not
/// change, last term first.
#[derive(Clone, Copy)]
pub enum Weights {
    /// Two terms.
    Series2([(f64, f64); 2]),
    /// Three terms.
    Series3([(f64, f64); 3]),
    /// Six terms.
    Series6([(f64, f64); 6]),
    /// The formula itself.
    Exact,
}

impl Weights {
    /// The weights of rotations whose angle has this cosine.
    pub fn new(cosine: f64) -> Self {
        let x = cosine - 1.0;
        if x > -6.0e-6 {
            Weights::Series2(terms(x))
        } else if x > -1.4e-4 {
            Weights::Series3(terms(x))
        } else if x > -8.0e-3 {
            Weights::Series6(terms(x))
        } else {
            Weights::Exact
        }
    }
}

fn terms<const TERMS: usize>(x: f64) -> [(f64, f64); TERMS] {
    std::array::from_fn(|i| {
        let (u, v) = SERIES[TERMS - 1 - i];
        (u * x, v * x)
    })
}

/// The slerp weights of two rotations whose angle has the cosine `cosine`, at `part` of the way.
///
/// They are `sin((1 - part) angle) / sin(angle)` and `sin(part angle) / sin(angle)`. Both are power
/// series in `cosine - 1` with polynomials of `part` as coefficients (Eberly, "A Fast and Accurate
/// Algorithm for Computing SLERP"), which have no small divisor: where the textbook formula through
/// `acos` loses half of the digits, for nearly equal rotations, two or three terms are exact. The
/// number of terms keeps the remainder under 1e-17.
#[inline(always)]
pub fn arc_weights(cosine: f64, part: f64) -> (f64, f64) {
    let x = cosine - 1.0;
    if x > -6.0e-6 {
        series_weights::<2>(x, part)
    } else if x > -1.4e-4 {
        series_weights::<3>(x, part)
    } else if x > -8.0e-3 {
        series_weights::<6>(x, part)
    } else if x > -6.0e-2 {
        series_weights::<10>(x, part)
    } else {
        exact_weights(cosine, part)
    }
}

#[inline(always)]
fn series_weights<const TERMS: usize>(x: f64, part: f64) -> (f64, f64) {
    // Both at once, for SIMD.
    let way = [1.0 - part, part];
    let square = [x * way[0] * way[0], x * way[1] * way[1]];
    let mut sum = [1.0; 2];
    let mut term = TERMS;
    while term > 0 {
        term -= 1;
        let (u, v) = SERIES[term];
        sum = [
            1.0 + (u * square[0] - v * x) * sum[0],
            1.0 + (u * square[1] - v * x) * sum[1],
        ];
    }
    (way[0] * sum[0], way[1] * sum[1])
}

/// The weights by the formula itself; also for parts beyond 0 and 1.
#[cold]
#[inline(never)]
pub fn exact_weights(cosine: f64, part: f64) -> (f64, f64) {
    let cosine = cosine.min(1.0);
    // sqrt((1 - c)(1 + c)) and atan2 keep all digits at both ends of the range.
    let sine = ((1.0 - cosine) * (1.0 + cosine)).sqrt();
    if sine < 1e-9 {
        return (1.0 - part, part);
    }
    let angle = sine.atan2(cosine);
    (
        ((1.0 - part) * angle).sin() / sine,
        (part * angle).sin() / sine,
    )
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
