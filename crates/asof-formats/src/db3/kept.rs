//! Pages that stay in memory after files were opened, for all files of the process together.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::storage::MappedFile;

/// Bytes that may stay. Opening a file touches its pages, and reading soon touches them again, so they stay; but the
/// files of a folder are all opened before the first is read, so there is a limit.
const MAX_KEPT_BYTES: usize = 128 << 20;

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The pages of one file that stay in memory, counted while the file is open.
#[derive(Debug)]
pub(crate) struct KeptPages(usize);

impl KeptPages {
    /// No pages.
    pub fn none() -> Self {
        KeptPages(0)
    }

    /// Keeps the touched pages of a file, or releases them if other files have reached the limit.
    pub fn of(map: &MappedFile) -> Self {
        let bytes = map.bytes().len().min(MAX_KEPT_BYTES);
        if KEPT.fetch_add(bytes, Relaxed) + bytes <= MAX_KEPT_BYTES {
            return KeptPages(bytes);
        }
        KEPT.fetch_sub(bytes, Relaxed);
        map.give_up_pages();
        KeptPages(0)
    }
}

impl Drop for KeptPages {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_large_files_do_not_both_stay() {
        let large = MappedFile::from_bytes("large", vec![0; 100 << 20].into());
        let (one, other) = (KeptPages::of(&large), KeptPages::of(&large));
        assert!(one.0 == 0 || other.0 == 0);
    }
}
