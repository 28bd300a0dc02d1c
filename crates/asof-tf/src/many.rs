//! Two neighbouring samples, made ready for many times between them.

// The compiler would keep these apart from their callers; together, a pose stays in registers.
#![allow(clippy::inline_always)]

use asof_core::Stamp;

use crate::error::LookupError;
use crate::graph::{Edge, Miss};
use crate::history::Place;
use crate::pool::Pool;
use crate::pose::{Pose, Weights, arc_weights, dot, multiply, rotate};

/// Two neighbouring samples.
#[derive(Clone, Copy)]
pub(crate) struct Bracket {
    from: i64,
    to: i64,
    a: Pose,
    /// With the sign of its rotation turned towards that of `a`.
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
                q: b.q.map(|part| sign * part),
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
            q: std::array::from_fn(|i| x * self.a.q[i] + y * self.b.q[i]),
            t: std::array::from_fn(|i| self.a.t[i] + part * (self.b.t[i] - self.a.t[i])),
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
        let (place, lowest) = view.place(t)?;
        let bracket = match place {
            Place::Between(a, b) => Bracket::new(a.stamp(), b.stamp(), Pose::of(a), Pose::of(b)),
            _ => return None,
        };
        self.history.is_whole(&view, lowest).then_some(bracket)
    }

    #[cold]
    #[inline(never)]
    fn bracket_carefully(&self, pool: &Pool, t: i64) -> Result<Bracket, Miss> {
        self.at(pool, t).map(|pose| Bracket::new(t, t, pose, pose))
    }
}

/// `before * sample(t) * after`, with all that does not depend on the time worked out beforehand.
///
/// Rotations between `p` and `q` keep their place between them when both are turned alike, so the
/// fixed rotations go into the samples. A vector that is turned by `x p + y q` is a sum of three vectors,
/// weighted by `x x`, `x y` and `y y`: so is where the fixed translation behind the sample ends up. What is
/// left per time are the weights and some sums.
pub(crate) struct Folded {
    before: Pose,
    after: Pose,
    is_inverse: bool,
    bracket: Bracket,
    weights: Weights,
    /// The translation of `after`, given along the axes of the result.
    arm: [f64; 3],
    /// `arm`, turned by each rotation and by the two together.
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
            bracket: Bracket::NONE,
            weights: Weights::new(1.0),
            arm: rotate(after.inverse().q, after.t),
            turned: [[0.0; 3]; 3],
        }
    }

    #[inline(always)]
    pub(crate) fn covers(&self, t: i64) -> bool {
        self.bracket.covers(t)
    }

    #[inline]
    pub(crate) fn enter(&mut self, bracket: &Bracket) {
        let fold = |pose: &Pose| {
            let moved = self.before.times(pose);
            Pose {
                q: multiply(moved.q, self.after.q),
                ..moved
            }
        };
        let (a, b) = (fold(&bracket.a), fold(&bracket.b));
        self.bracket = Bracket { a, b, ..*bracket };
        self.weights = Weights::new(bracket.cosine);
        let cross = turned_by_both(a.q, b.q, self.arm);
        self.turned = [rotate(a.q, self.arm), cross, rotate(b.q, self.arm)];
    }

    /// The poses at times that this [covers](Folded::covers).
    pub(crate) fn run(&self, stamps: &[Stamp], tell: &mut impl Tell) {
        match self.weights {
            Weights::Series2(terms) => self.series(&terms, stamps, tell),
            Weights::Series3(terms) => self.series(&terms, stamps, tell),
            Weights::Series6(terms) => self.series(&terms, stamps, tell),
            Weights::Exact => {
                let weights = |part| arc_weights(self.bracket.cosine, part);
                tell.poses(stamps.iter().map(|t| self.at(t.nanos(), weights)));
            }
        }
    }

    #[inline(never)]
    fn series<const TERMS: usize>(
        &self,
        terms: &[(f64, f64); TERMS],
        stamps: &[Stamp],
        tell: &mut impl Tell,
    ) {
        let weights = |part: f64| {
            let rest = 1.0 - part;
            let squares = [rest * rest, part * part];
            let mut sums = [1.0; 2];
            for (u, v) in terms {
                sums = [0, 1].map(|i| 1.0 + (u * squares[i] - v) * sums[i]);
            }
            (rest * sums[0], part * sums[1])
        };
        tell.poses(stamps.iter().map(|t| self.at(t.nanos(), weights)));
    }

    #[inline(always)]
    fn at(&self, t: i64, weights: impl Fn(f64) -> (f64, f64)) -> Pose {
        let (a, b) = (&self.bracket.a, &self.bracket.b);
        let part = self.bracket.part(t);
        let (x, y) = weights(part);
        let (xx, xy, yy) = (x * x, x * y, y * y);
        let [p, r, q] = &self.turned;
        let pose = Pose {
            q: std::array::from_fn(|i| x * a.q[i] + y * b.q[i]),
            t: std::array::from_fn(|i| {
                let straight = a.t[i] + part * (b.t[i] - a.t[i]);
                straight + ((xx * p[i] + yy * q[i]) + xy * r[i])
            }),
        };
        if self.is_inverse {
            pose.inverse()
        } else {
            pose
        }
    }
}

/// Takes the answers to many lookups, one after the other.
pub(crate) trait Tell {
    fn poses(&mut self, poses: impl ExactSizeIterator<Item = Pose>);
    fn failed(&mut self, error: LookupError);
}

/// What `v` turned by `x p + y q` has to do with both: `x y` times this, besides `x x` times `v` turned by
/// `p` and `y y` times `v` turned by `q`.
fn turned_by_both(p: [f64; 4], q: [f64; 4], v: [f64; 3]) -> [f64; 3] {
    let sum = |a: f64, b: f64, c: f64| a + b + c;
    let inner = |a: &[f64], b: &[f64]| sum(a[0] * b[0], a[1] * b[1], a[2] * b[2]);
    let outer = |a: &[f64], i: usize| {
        let (j, k) = ((i + 1) % 3, (i + 2) % 3);
        a[j] * v[k] - a[k] * v[j]
    };
    let along = p[3] * q[3] - inner(&p, &q);
    let (on_p, on_q) = (inner(&p, &v), inner(&q, &v));
    std::array::from_fn(|i| {
        let turned = p[3] * outer(&q, i) + q[3] * outer(&p, i);
        2.0 * (sum(along * v[i], on_p * q[i], on_q * p[i]) + turned)
    })
}
