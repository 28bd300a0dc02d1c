//! Limits on the size of decompressed data.

use crate::reserve::Reserve;

/// How large compressed data may become before it is skipped, so that a small file cannot fill the memory or the disk.
///
/// What exceeds a limit is among the problems of the recording, with its offset; a file that is compressed as a whole
/// is rejected. Uncompressed data is not limited.
///
/// ```
/// use asof_formats::{DecompressionLimits, OpenOptions};
///
// A recording that you trust, in which each chunk is a gigabyte of zeros.
/// let options = OpenOptions { limits: DecompressionLimits::NONE, ..OpenOptions::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecompressionLimits {
    /// The maximum ratio of decompressed to compressed bytes, in a chunk and in a complete file.
    pub ratio: u64,
    /// The maximum of bytes that data which becomes more than [`UNLIKELY_RATIO`](Self::UNLIKELY_RATIO) times its size
    /// holds at once, over all threads and recordings of this process. Data that finds no room waits for other data to
    /// be dropped; it is skipped when nothing is.
    ///
    /// A chunk that becomes more than [`USUAL_RATIO`](Self::USUAL_RATIO) times its size may take half of it.
    pub alive_at_most: u64,
    /// The size that a chunk, or the messages that are loaded together, may always have, whatever the ratio.
    pub chunk_at_least: u64,
    /// The maximum size of a chunk, whatever the ratio.
    pub chunk_at_most: u64,
    /// The size that a file may always have, whatever the ratio: all of its chunks together, or the file itself if it
    /// is compressed as a whole.
    pub file_at_least: u64,
}

impl Default for DecompressionLimits {
    /// A ratio of 256; always 64 MiB for a chunk and 1 GiB for a file; at most 1 GiB for a chunk, and 128 MiB for one that
    /// becomes more than 16 times its size; 256 MiB at once of what becomes more than 64 times its size.
    fn default() -> Self {
        DecompressionLimits {
            ratio: 256,
            alive_at_most: 256 << 20,
            chunk_at_least: 64 << 20,
            chunk_at_most: 1 << 30,
            file_at_least: 1 << 30,
        }
    }
}

impl DecompressionLimits {
    /// No recording of sensors that we know is compressed to less than one part in this many, except for empty images.
    pub const USUAL_RATIO: u64 = 16;

    /// What becomes more than so many times its size counts to [`alive_at_most`](Self::alive_at_most).
    pub const UNLIKELY_RATIO: u64 = 64;

    /// No limits except memory and disk.
    pub const NONE: Self = DecompressionLimits {
        ratio: u64::MAX,
        alive_at_most: u64::MAX,
        chunk_at_least: u64::MAX,
        chunk_at_most: u64::MAX,
        file_at_least: u64::MAX,
    };

    /// The bytes that count to [`alive_at_most`](Self::alive_at_most) in this process: those that are held now, and the
    /// most that ever were at once.
    pub fn alive() -> (u64, u64) {
        Reserve::shared().held()
    }

    /// The limit for a chunk of this many compressed bytes.
    pub(crate) fn of_chunk(&self, compressed: u64) -> u64 {
        let usual = compressed.saturating_mul(self.ratio.min(Self::USUAL_RATIO));
        let unusual = compressed.saturating_mul(self.ratio);
        usual
            .max(unusual.min(self.alive_at_most / 2))
            .max(self.chunk_at_least)
            .min(self.chunk_at_most)
    }

    /// The limit for a file of this many bytes.
    pub(crate) fn of_file(&self, size: u64) -> u64 {
        size.saturating_mul(self.ratio).max(self.file_at_least)
    }

    /// The offset of the first compressed chunk at which the total of a file exceeds the limit. `chunks` are their
    /// offsets, in order, with the decompressed size of each.
    pub(crate) fn first_beyond(
        &self,
        size: u64,
        chunks: impl Iterator<Item = (u64, u64)>,
    ) -> Option<u64> {
        let allowed = self.of_file(size);
        let mut total = 0u64;
        for (place, becomes) in chunks {
            total = total.saturating_add(becomes);
            if total > allowed {
                return Some(place);
            }
        }
        None
    }
}

/// The way on, at the end of an error about a limit.
pub(crate) const LIFT: &str = "if you trust the file, open it without limits (--no-limits)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_data_may_become_much_and_large_data_so_many_times_its_size() {
        let limits = DecompressionLimits::default();
        assert_eq!(limits.of_chunk(100), 64 << 20);
        assert_eq!(limits.of_chunk(400 << 10), 100 << 20);
        // LZ4 can make 1 GiB of this; it is bounded in bytes.
        assert_eq!(limits.of_chunk(4 << 20), 128 << 20);
        assert_eq!(limits.of_chunk(20 << 20), 320 << 20);
        assert_eq!(limits.of_chunk(1 << 40), 1 << 30);
        assert_eq!(limits.of_file(1 << 40), 256 << 40);
        assert_eq!(DecompressionLimits::NONE.of_chunk(1), u64::MAX);
    }

    #[test]
    fn chunks_that_are_harmless_by_themselves_are_counted_together() {
        let limits = DecompressionLimits::default();
        let chunks = || (0..40).map(|chunk| (chunk * 1000, 50 << 20));
        assert_eq!(limits.first_beyond(40_000, chunks()), Some(20_000));
        assert_eq!(limits.first_beyond(40_000_000, chunks()), None);
        let none = DecompressionLimits::NONE;
        assert_eq!(none.first_beyond(40_000, chunks()), None);
    }
}
