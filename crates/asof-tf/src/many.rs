//! Two neighbouring samples, made ready for many times between them.

// The compiler would keep these apart from their callers; together, a pose stays in registers.
#![allow(clippy::inline_always)]

use crate::graph::{Edge, Miss};
use crate::history::Place;
use crate::pool::Pool;
use crate::pose::{Pose, arc_weights, dot, multiply, rotate};

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
/// fixed rotations go into the samples; what is left per time is one interpolation and one turned
/// vector.
pub(crate) struct Folded {
    before: Pose,
    after: Pose,
    is_inverse: bool,
    bracket: Bracket,
    /// The translation of `after`, given along the axes of the result.
    arm: [f64; 3],
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
            arm: rotate(after.inverse().q, after.t),
        }
    }

    #[inline(always)]
    pub(crate) fn covers(&self, t: i64) -> bool {
        self.bracket.covers(t)
    }

    #[inline(always)]
    pub(crate) fn enter(&mut self, bracket: &Bracket) {
        let fold = |pose: &Pose| {
            let moved = self.before.times(pose);
            Pose {
                q: multiply(moved.q, self.after.q),
                ..moved
            }
        };
        self.bracket = Bracket {
            a: fold(&bracket.a),
            b: fold(&bracket.b),
            ..*bracket
        };
    }

    #[inline(always)]
    pub(crate) fn at(&self, t: i64) -> Pose {
        let mut pose = self.bracket.at(t);
        let turned = rotate(pose.q, self.arm);
        pose.t = std::array::from_fn(|i| pose.t[i] + turned[i]);
        if self.is_inverse {
            pose.inverse()
        } else {
            pose
        }
    }
}
