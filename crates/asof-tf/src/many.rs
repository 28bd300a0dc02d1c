//! Two neighbouring samples, prepared for many times between them.

// The compiler would not inline these; inlined, a pose stays in registers.
#![allow(clippy::inline_always)]

use asof_core::Stamp;

use crate::error::LookupError;
use crate::graph::{Edge, Miss};
use crate::history::Neighbours;
use crate::pool::Pool;
use asof_align::between::{Weights, arc_weights, dot, mixed, vector};

use crate::pose::{Pose, multiply, rotate};

/// Two neighbouring samples.
#[derive(Clone, Copy)]
pub(crate) struct Bracket {
    from: i64,
    to: i64,
    a: Pose,
    /// With the sign of its rotation matched to that of `a`.
    b: Pose,
    /// One over the nanoseconds between the two.
    rate: f64,
    /// Cosine of the angle between the two rotations.
    cosine: f64,
}

impl Bracket {
    /// Covers no time.
    pub(crate) const NONE: Bracket = Bracket {
        from: i64::MAX,
        to: i64::MIN,
        a: Pose::IDENTITY,
        b: Pose::IDENTITY,
        rate: 0.0,
        cosine: 1.0,
    };

    #[inline(always)]
    fn new(from: i64, to: i64, a: Pose, b: Pose) -> Self {
        let cosine = dot(a.q, b.q);
        let sign = if cosine < 0.0 { -1.0 } else { 1.0 };
        // Samples three centuries apart count as one: their difference does not fit.
        let span = to.wrapping_sub(from) as f64;
        Bracket {
            from,
            to,
            a,
            b: Pose {
                q: [sign * b.q[0], sign * b.q[1], sign * b.q[2], sign * b.q[3]],
                ..b
            },
            rate: if span > 0.0 { 1.0 / span } else { 0.0 },
            cosine: cosine.abs(),
        }
    }

    #[inline(always)]
    pub(crate) fn covers(&self, t: i64) -> bool {
        self.from <= t && t <= self.to
    }

    #[inline(always)]
    fn part(&self, t: i64) -> f64 {
        t.wrapping_sub(self.from) as f64 * self.rate
    }

    #[inline(always)]
    pub(crate) fn at(&self, t: i64) -> Pose {
        let part = self.part(t);
        let (x, y) = arc_weights(self.cosine, part);
        Pose {
            q: mixed(x, self.a.q, y, self.b.q),
            t: vector(self.a.t, self.b.t, part),
        }
    }
}

impl Edge {
    /// The samples around `t`.
    #[inline(always)]
    pub(crate) fn bracket(&self, pool: &Pool, t: i64) -> Result<Bracket, Miss> {
        match self.bracket_once(pool, t) {
            Some(bracket) => Ok(bracket),
            None => self.bracket_carefully(pool, t),
        }
    }

    #[inline(always)]
    fn bracket_once(&self, pool: &Pool, t: i64) -> Option<Bracket> {
        let view = self.history.glance(pool)?;
        let (a, b, lowest) = view.expected(t)?;
        let bracket = Bracket::new(a.stamp(), b.stamp(), Pose::of(a), Pose::of(b));
        self.history.is_whole(&view, lowest).then_some(bracket)
    }

    #[cold]
    #[inline(never)]
    fn bracket_carefully(&self, pool: &Pool, t: i64) -> Result<Bracket, Miss> {
        if let Some(bracket) = self.bracket_apart(pool, t) {
            return Ok(bracket);
        }
        self.at(pool, t).map(|pose| Bracket::new(t, t, pose, pose))
    }

    /// The same as [`Edge::bracket_once`] if the samples are not where they are expected.
    fn bracket_apart(&self, pool: &Pool, t: i64) -> Option<Bracket> {
        let view = self.history.glance(pool)?;
        let (place, lowest) = view.place(t)?;
        let Neighbours::Between(a, b) = place else {
            return None;
        };
        let bracket = Bracket::new(a.stamp(), b.stamp(), Pose::of(a), Pose::of(b));
        self.history.is_whole(&view, lowest).then_some(bracket)
    }
}

/// `before * sample(t) * after`, with everything that does not depend on the time precomputed.
///
/// Rotations between `p` and `q` keep their position between them when both are rotated alike, so the fixed
/// rotations are folded into the samples. A vector rotated by `x p + y q` is a sum of three vectors,
/// weighted by `x x`, `x y` and `y y`, and so is the rotated fixed translation after the sample. What
/// remains per time are the weights and some sums.
pub(crate) struct Folded {
    before: Pose,
    after: Pose,
    is_inverse: bool,
    /// Whether `before` is the identity.
    is_first: bool,
    bracket: Bracket,
    /// The second sample of the bracket as it was given.
    last: Pose,
    weights: Weights,
    /// The translation of `after`, given along the axes of the result.
    arm: [f64; 3],
    /// `arm`, rotated by each rotation and by both together.
    turned: [[f64; 3]; 3],
}

impl Folded {
    /// `before * sample(t) * after`, or with the inverse of the sample.
    pub(crate) fn new(before: Pose, after: Pose, is_inverse: bool) -> Self {
        // before * sample^-1 * after = (after^-1 * sample * before^-1)^-1
        let (before, after) = if is_inverse {
            (after.inverse(), before.inverse())
        } else {
            (before, after)
        };
        Folded {
            before,
            after,
            is_inverse,
            is_first: before == Pose::IDENTITY,
            bracket: Bracket::NONE,
            // Equal to nothing.
            last: Pose {
                t: [f64::NAN; 3],
                ..Pose::IDENTITY
            },
            weights: Weights::new(1.0),
            arm: rotate(after.inverse().q, after.t),
            turned: [[0.0; 3]; 3],
        }
    }

    #[inline(always)]
    pub(crate) fn covers(&self, t: i64) -> bool {
        self.bracket.covers(t)
    }

    /// Reads the samples of an edge around `t`.
    #[inline(always)]
    pub(crate) fn find(&mut self, edge: &Edge, pool: &Pool, t: i64) -> Result<(), Miss> {
        // Separate code for the common case and the exceptions, so that the common case stays in registers.
        match edge.bracket_once(pool, t) {
            Some(bracket) => self.enter(&bracket),
            None => self.enter_apart(&edge.bracket_carefully(pool, t)?),
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn enter_apart(&mut self, bracket: &Bracket) {
        self.enter(bracket);
    }

    #[inline(always)]
    fn enter(&mut self, bracket: &Bracket) {
        let fold = |pose: &Pose| {
            // A path often starts with a moving edge.
            let moved = if self.is_first {
                *pose
            } else {
                self.before.times(pose)
            };
            Pose {
                q: multiply(moved.q, self.after.q),
                ..moved
            }
        };
        // Usually it starts where the last one ended.
        let (a, turned_a) = if bracket.a == self.last {
            (self.bracket.b, self.turned[2])
        } else {
            let a = fold(&bracket.a);
            (a, rotate(a.q, self.arm))
        };
        let b = fold(&bracket.b);
        let cross = turned_by_both(a.q, b.q, self.arm);
        self.last = bracket.b;
        self.bracket = Bracket { a, b, ..*bracket };
        self.weights = Weights::new(bracket.cosine);
        self.turned = [turned_a, cross, rotate(b.q, self.arm)];
    }

    /// The poses at times that this [covers](Folded::covers).
    #[inline]
    pub(crate) fn run(&self, stamps: &[Stamp], tell: &mut impl Tell) {
        let cosine = self.bracket.cosine;
        match self.weights {
            Weights::Series2(terms) => self.tell(stamps, tell, Series(terms)),
            Weights::Series3(terms) => self.tell(stamps, tell, Series(terms)),
            Weights::Series6(terms) => self.tell(stamps, tell, Series(terms)),
            Weights::Exact => self.tell(stamps, tell, Arc(cosine)),
        }
    }

    #[inline(always)]
    fn tell(&self, stamps: &[Stamp], tell: &mut impl Tell, weigh: impl Weigh) {
        let curve = Curve::new(self, weigh);
        if self.is_inverse {
            tell.run(stamps, Inverse(curve));
        } else {
            tell.run(stamps, curve);
        }
    }
}

/// A pose for every time. A trait, like `ReadEdge`, so that it is always inlined.
pub(crate) trait Motion: Copy {
    fn at(&self, t: i64) -> Pose;
}

/// The weights of two rotations at a part of the way.
trait Weigh: Copy {
    fn at(&self, part: f64) -> (f64, f64);
}

/// What [`Folded::run`] needs for each time and nothing else: a copy, so that stores of results do not
/// force reloads.
#[derive(Clone, Copy)]
struct Curve<W> {
    from: i64,
    rate: f64,
    a: [f64; 4],
    b: [f64; 4],
    start: [f64; 3],
    way: [f64; 3],
    turned: [[f64; 3]; 3],
    weigh: W,
}

impl<W: Weigh> Curve<W> {
    #[inline(always)]
    fn new(folded: &Folded, weigh: W) -> Self {
        let Bracket {
            from, rate, a, b, ..
        } = folded.bracket;
        Curve {
            from,
            rate,
            a: a.q,
            b: b.q,
            start: a.t,
            way: [b.t[0] - a.t[0], b.t[1] - a.t[1], b.t[2] - a.t[2]],
            turned: folded.turned,
            weigh,
        }
    }
}

impl<W: Weigh> Motion for Curve<W> {
    #[inline(always)]
    fn at(&self, t: i64) -> Pose {
        let part = t.wrapping_sub(self.from) as f64 * self.rate;
        let (x, y) = self.weigh.at(part);
        let (xx, xy, yy) = (x * x, x * y, y * y);
        let [p, r, q] = &self.turned;
        let (start, way) = (&self.start, &self.way);
        Pose {
            q: mixed(x, self.a, y, self.b),
            t: [
                (start[0] + part * way[0]) + ((xx * p[0] + yy * q[0]) + xy * r[0]),
                (start[1] + part * way[1]) + ((xx * p[1] + yy * q[1]) + xy * r[1]),
                (start[2] + part * way[2]) + ((xx * p[2] + yy * q[2]) + xy * r[2]),
            ],
        }
    }
}

#[derive(Clone, Copy)]
struct Inverse<M>(M);

impl<M: Motion> Motion for Inverse<M> {
    #[inline(always)]
    fn at(&self, t: i64) -> Pose {
        self.0.at(t).inverse()
    }
}

/// [`arc_weights`] with precomputed coefficients.
#[derive(Clone, Copy)]
struct Series<const TERMS: usize>([(f64, f64); TERMS]);

impl<const TERMS: usize> Weigh for Series<TERMS> {
    #[inline(always)]
    fn at(&self, part: f64) -> (f64, f64) {
        let way = [1.0 - part, part];
        let square = [way[0] * way[0], way[1] * way[1]];
        let mut sum = [1.0; 2];
        for (u, v) in &self.0 {
            sum = [
                1.0 + (u * square[0] - v) * sum[0],
                1.0 + (u * square[1] - v) * sum[1],
            ];
        }
        (way[0] * sum[0], way[1] * sum[1])
    }
}

/// [`arc_weights`] for a cosine.
#[derive(Clone, Copy)]
struct Arc(f64);

impl Weigh for Arc {
    #[inline(always)]
    fn at(&self, part: f64) -> (f64, f64) {
        arc_weights(self.0, part)
    }
}

/// Receives the results of many lookups, one after the other.
pub(crate) trait Tell {
    fn run(&mut self, stamps: &[Stamp], motion: impl Motion);
    fn one(&mut self, pose: &Pose);
    fn failed(&mut self, error: LookupError);
}

/// The mixed term of `v` rotated by `x p + y q`: `x y` times this, besides `x x` times `v` rotated by `p`
/// and `y y` times `v` rotated by `q`.
#[inline(always)]
fn turned_by_both(p: [f64; 4], q: [f64; 4], v: [f64; 3]) -> [f64; 3] {
    let inner = |a: [f64; 4]| a[0] * v[0] + a[1] * v[1] + a[2] * v[2];
    let straight = p[3] * q[3] - (p[0] * q[0] + p[1] * q[1] + p[2] * q[2]);
    let (on_p, on_q) = (inner(p), inner(q));
    let axis = [
        p[3] * q[0] + q[3] * p[0],
        p[3] * q[1] + q[3] * p[1],
        p[3] * q[2] + q[3] * p[2],
    ];
    let around = [
        axis[1] * v[2] - axis[2] * v[1],
        axis[2] * v[0] - axis[0] * v[2],
        axis[0] * v[1] - axis[1] * v[0],
    ];
    [
        2.0 * ((straight * v[0] + on_p * q[0]) + (on_q * p[0] + around[0])),
        2.0 * ((straight * v[1] + on_p * q[1]) + (on_q * p[1] + around[1])),
        2.0 * ((straight * v[2] + on_p * q[2]) + (on_q * p[2] + around[2])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{Isometry3, Translation3, UnitQuaternion};

    fn pose(x: f64) -> Pose {
        let rotation = UnitQuaternion::from_euler_angles(x, 0.4 * x.sin(), 1.0 - x);
        Pose::new(&Isometry3::from_parts(
            Translation3::new(x, -2.0 * x, 1.0),
            rotation,
        ))
    }

    struct Poses(Vec<Pose>);

    impl Tell for Poses {
        fn run(&mut self, stamps: &[Stamp], motion: impl Motion) {
            self.0.extend(stamps.iter().map(|t| motion.at(t.nanos())));
        }

        fn one(&mut self, pose: &Pose) {
            self.0.push(*pose);
        }

        fn failed(&mut self, error: LookupError) {
            panic!("{error}");
        }
    }

    #[test]
    fn a_run_is_the_product_of_its_poses_at_every_time_and_angle() {
        let (before, after) = (pose(0.3), pose(2.1));
        let stamps: Vec<Stamp> = (0..=100).map(Stamp::from_nanos).collect();
        // From nearly the same to far apart: every number of terms, and none.
        for apart in [1e-9, 1e-3, 5e-3, 0.02, 0.2, 0.6, 2.0] {
            for is_inverse in [false, true] {
                let (a, b) = (pose(0.7), pose(0.7 + apart));
                let bracket = Bracket::new(0, 100, a, b);
                let mut folded = Folded::new(before, after, is_inverse);
                folded.enter(&bracket);
                let mut told = Poses(Vec::new());
                folded.run(&stamps, &mut told);
                for (t, found) in told.0.iter().enumerate() {
                    let between = a.between(&b, t as f64 / 100.0);
                    let middle = if is_inverse {
                        between.inverse()
                    } else {
                        between
                    };
                    let wanted = before.times(&middle).times(&after).isometry();
                    let off = (wanted.inverse() * found.isometry())
                        .translation
                        .vector
                        .norm();
                    let turn = wanted.rotation.angle_to(&found.isometry().rotation);
                    assert!(off < 1e-14 && turn < 1e-7, "{apart} {t}: {off} {turn}");
                }
            }
        }
    }
}
