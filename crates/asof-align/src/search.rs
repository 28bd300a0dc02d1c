//! Finding a stamp among sorted stamps.

/// How many of the sorted `stamps` are below `t`, given a guess.
///
/// A good guess is off by at most one, in an unpredictable direction: four stamps around it are compared without a
/// branch.
#[inline]
pub fn count_below(stamps: &[i64], t: i64, guess: usize) -> usize {
    let low = guess.wrapping_sub(2);
    if let Some(&[a, b, c, d]) = stamps.get(low..).and_then(<[i64]>::first_chunk)
        && a < t
        && t <= d
    {
        return low + 1 + usize::from(b < t) + usize::from(c < t);
    }
    gallop(stamps.len(), t, guess, |index| stamps[index])
}

/// How many of `len` sorted stamps are below `t`, given a guess.
///
/// Stamps of a sensor are close to periodic, so a linear guess is off by a slot or two; from there the
/// search gallops and then halves, so bursts cost a logarithm and no more.
pub fn gallop(len: usize, t: i64, guess: usize, at: impl Fn(usize) -> i64) -> usize {
    let (mut low, mut high);
    let guess = guess.min(len);
    // Invariant: everything before `low` is below t, everything from `high` on is not.
    if guess < len && at(guess) < t {
        low = guess + 1;
        let mut step = 1;
        loop {
            let probe = low + step - 1;
            if probe >= len {
                high = len;
                break;
            }
            if at(probe) >= t {
                high = probe;
                break;
            }
            low = probe + 1;
            step *= 2;
        }
    } else {
        high = guess;
        let mut step = 1;
        loop {
            if high < step {
                low = 0;
                break;
            }
            let probe = high - step;
            if at(probe) < t {
                low = probe + 1;
                break;
            }
            high = probe;
            step *= 2;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if at(middle) < t {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let stamps = [i64::MIN, -1, 0, i64::MAX];
        let count = |t| count_below(&stamps, t, 2);
        assert_eq!((count(i64::MIN), count(0), count(i64::MAX)), (0, 2, 3));
    }

    proptest! {
        #[test]
        fn any_guess_finds_the_same_place(
            mut stamps in proptest::collection::vec(-50i64..50, 0..200), t in -60i64..60, guess in 0usize..250,
        ) {
            stamps.sort_unstable();
            let expected = stamps.partition_point(|&stamp| stamp < t);
            prop_assert_eq!(count_below(&stamps, t, guess), expected);
            prop_assert_eq!(gallop(stamps.len(), t, guess, |i| stamps[i]), expected);
        }
    }
}
