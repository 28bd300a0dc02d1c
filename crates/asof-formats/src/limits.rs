//! How much compressed data may become.

/// How much compressed data may become before it is left out, so that a small file cannot fill the memory or the disk.
///
/// What is beyond a limit is among the problems of the recording, with its place; a file that was compressed as a whole
/// is refused. Limits are for compressed data alone: what a file holds as it is, it holds.
///
/// ```
/// use asof_formats::{DecompressionLimits, OpenOptions};
///
/// // A recording of one's own, of which each chunk is a gigabyte of zeros.
/// let options = OpenOptions { limits: DecompressionLimits::NONE, ..OpenOptions::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecompressionLimits {
    /// How many bytes one compressed byte may become, in a chunk and in a whole file.
    pub ratio: u64,
    /// A chunk, or the messages that are loaded together, may become so large whatever the ratio.
    pub chunk_at_least: u64,
    /// No chunk may become larger, whatever the ratio.
    pub chunk_at_most: u64,
    /// A file may become so large whatever the ratio: all of its chunks together, or the file itself where it was
    /// compressed as a whole.
    pub file_at_least: u64,
}

impl Default for DecompressionLimits {
    /// A ratio of 256; 64 MiB of a chunk and 1 GiB of a file in any case; and never more than 1 GiB of a chunk.
    fn default() -> Self {
        DecompressionLimits {
            ratio: 256,
            chunk_at_least: 64 << 20,
            chunk_at_most: 1 << 30,
            file_at_least: 1 << 30,
        }
    }
}

impl DecompressionLimits {
    /// No limits but those of memory and disk.
    pub const NONE: Self = DecompressionLimits {
        ratio: u64::MAX,
        chunk_at_least: u64::MAX,
        chunk_at_most: u64::MAX,
        file_at_least: u64::MAX,
    };

    /// What a chunk of so many compressed bytes may become.
    pub(crate) fn of_chunk(&self, compressed: u64) -> u64 {
        compressed
            .saturating_mul(self.ratio)
            .max(self.chunk_at_least)
            .min(self.chunk_at_most)
    }

    /// What a file of so many bytes may become.
    pub(crate) fn of_file(&self, size: u64) -> u64 {
        size.saturating_mul(self.ratio).max(self.file_at_least)
    }

    /// Where the first of a file's compressed chunks starts with which they become too much in all. `chunks` are their
    /// places, in order, with the bytes that each becomes.
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

/// What to do about data that is beyond a limit, at the end of a sentence that says so.
pub(crate) const LIFT: &str = "open it without limits if it is to be trusted (--no-limits)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_data_may_become_much_and_large_data_so_many_times_its_size() {
        let limits = DecompressionLimits::default();
        assert_eq!(limits.of_chunk(100), 64 << 20);
        assert_eq!(limits.of_chunk(1 << 20), 256 << 20);
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
