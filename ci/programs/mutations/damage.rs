//! Kinds of damage to a file.

use asof_core::testing::Random;

/// The damaged file of a number; the same in every run.
pub struct Dice(Random);

impl Dice {
    pub fn new(format: &str, number: u64) -> Self {
        let salt = format
            .bytes()
            .fold(7, |sum, byte| sum * 31 + u64::from(byte));
        let seed = Random::new(salt).next();
        Dice(Random::new(
            seed.wrapping_add(number.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        ))
    }

    fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Less than the limit; 0 where that is 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// One of the seeds. Small ones are chosen more often: in a large one, most damage is to payloads.
    pub fn seed<'a>(&mut self, seeds: &'a [Vec<u8>]) -> &'a [u8] {
        let weight = |seed: &Vec<u8>| (1 << 30) / (seed.len() as u64 + 2000);
        let total: u64 = seeds.iter().map(weight).sum();
        let mut at = self.next() % total.max(1);
        for seed in seeds {
            match at.checked_sub(weight(seed)) {
                Some(left) => at = left,
                None => return seed,
            }
        }
        &[]
    }

    /// One to four kinds of damage, one after the other.
    pub fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut data = self.seed(seeds).to_vec();
        for _ in 0..=self.below(4) {
            if data.is_empty() {
                break;
            }
            self.damage(&mut data, seeds);
        }
        data
    }

    fn damage(&mut self, data: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let len = data.len();
        let at = self.below(len);
        match self.below(9) {
            0 => {
                for _ in 0..=self.below(20) {
                    data[self.below(len)] ^= 1 << self.below(8);
                }
            }
            1 => data.truncate(at),
            2 => {
                let lie = self.one_of(&[0, 1, 7, 1 << 16, i32::MAX as u32, 1 << 31, u32::MAX]);
                let lie = self.one_of(&[lie.to_le_bytes(), lie.to_be_bytes()]);
                overwrite(data, at, &lie);
            }
            3 => {
                let lie = self.one_of(&[0, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX]);
                overwrite(data, at, &lie.to_le_bytes());
            }
            4 => {
                let end = (at + self.below(4000)).min(len);
                data[at..end].fill(self.one_of(&[0, 0xff, 6]));
            }
            5 => {
                let piece = data[at..(at + self.below(3000)).min(len)].to_vec();
                let to = self.below(len);
                data.splice(to..to, piece);
            }
            6 => drop(data.drain(at..(at + 1 + self.below(200)).min(len))),
            7 => {
                let piece: Vec<u8> = (0..self.below(200)).map(|_| self.next() as u8).collect();
                data.splice(at..at, piece);
            }
            // The beginning of one file and the end of another.
            _ => {
                let other = self.seed(seeds);
                let from = self.below(other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
        }
    }
}

fn overwrite(data: &mut [u8], at: usize, lie: &[u8]) {
    let end = (at + lie.len()).min(data.len());
    data[at..end].copy_from_slice(&lie[..end - at]);
}
