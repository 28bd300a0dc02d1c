//! Random numbers that are the same on every machine.

/// A small pseudo-random generator (xoshiro256++), seeded through splitmix64.
///
/// Part of this crate, so that a seed always gives the same bytes.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// One random stream: every sensor has its own, so that adding one does not change the others.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mix = seed ^ stream.wrapping_mul(0xa076_1d64_78bd_642f);
        Random {
            state: std::array::from_fn(|_| splitmix(&mut mix)),
        }
    }

    /// Sixty-four random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Uniform in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `[low, high)`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Approximately normal around zero with this standard deviation, never beyond 3.5 of them.
    ///
    /// A sum of four 16-bit numbers: one draw and no logarithm, close enough for sensor noise.
    pub(crate) fn noise(&mut self, deviation: f64) -> f64 {
        let bits = self.bits();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        // Four uniform distributions of width 65536 sum to a deviation of 65536 / sqrt(3).
        (sum as f64 - 131_070.0) / 37_837.2 * deviation
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_centred_and_as_wide_as_asked() {
        let mut random = Random::new(7, 0);
        let draws: Vec<f64> = (0..100_000).map(|_| random.noise(2.0)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance.sqrt() - 2.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn two_streams_of_one_seed_differ() {
        assert_ne!(Random::new(1, 1).bits(), Random::new(1, 2).bits());
    }
}
