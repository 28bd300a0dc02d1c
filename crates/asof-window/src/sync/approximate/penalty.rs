//! The age penalty: by how much a later set must be better.

/// Fractional bits of [`Penalty::fixed`].
const FRACTION_BITS: u32 = 20;

/// The age penalty: a set that ends later must gain more at its start than it loses at its end, times a factor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Penalty {
    factor: f64,
    /// The factor in fixed point, for a result that is right except near a tie.
    fixed: i64,
    /// The largest value it can be multiplied with.
    fixed_limit: u64,
}

impl Penalty {
    pub(super) fn new(penalty: f64) -> Self {
        let factor = 1.0 + penalty;
        let fixed = (factor * f64::from(1 << FRACTION_BITS)) as i64;
        // A factor too large for fixed point may only be multiplied with zero.
        let fixed_limit = if factor < 1e6 { i64::MAX / fixed } else { 0 };
        Penalty {
            factor,
            fixed,
            fixed_limit: fixed_limit.unsigned_abs(),
        }
    }

    /// Whether a set that ends `grown` nanoseconds later has lost what it gained at its start.
    #[inline]
    pub(super) fn outweighs(&self, grown: i64, won: i64) -> bool {
        // Often the latest message is the same.
        if grown == 0 {
            return won <= 0;
        }
        let size = grown.unsigned_abs();
        if size <= self.fixed_limit {
            let surplus = ((grown * self.fixed) >> FRACTION_BITS).saturating_sub(won);
            // Far from a tie, rounding does not matter: neither ours nor that of the seconds, which is much finer.
            if surplus.unsigned_abs() > 16 + (size >> (FRACTION_BITS - 1)) {
                return surplus > 0;
            }
        }
        self.times(grown) >= won
    }

    /// `nanos * factor`, rounded as `ros::Duration` rounds it: the same sets to the last nanosecond.
    #[cold]
    fn times(&self, nanos: i64) -> i64 {
        if nanos == 0 {
            return 0;
        }
        let (seconds, rest) = (
            nanos.div_euclid(1_000_000_000),
            nanos.rem_euclid(1_000_000_000),
        );
        let scaled = (seconds as f64 + 1e-9 * rest as f64) * self.factor;
        let whole = scaled.floor();
        (whole as i64)
            .saturating_mul(1_000_000_000)
            .saturating_add(((scaled - whole) * 1e9).round() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_quick_answer_is_the_exact_one(
            penalty in prop_oneof![Just(0.0), Just(0.1), Just(0.5), Just(2.0), 0.0..1e4, Just(f64::INFINITY)],
            grown in prop_oneof![-100i64..100, -50_000_000i64..50_000_000, any::<i64>()],
            off in prop_oneof![-100i64..100, -10_000_000i64..10_000_000, any::<i64>()],
        ) {
            let penalty = Penalty::new(penalty);
            let won = penalty.times(grown).saturating_add(off);
            prop_assert_eq!(penalty.outweighs(grown, won), penalty.times(grown) >= won);
        }
    }
}
