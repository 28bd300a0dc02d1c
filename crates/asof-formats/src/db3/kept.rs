//! What opening files leaves in memory, for all files of the process together.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::storage::MappedFile;

/// Opening a file looks at its pages, and reading looks at them again soon, so they stay. Of a folder of a day's
/// files, all of which are opened before the first is read, only so much may.
const MAX_KEPT_BYTES: usize = 128 << 20;

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The pages of one file that stay in memory, counted for as long as the file is open.
#[derive(Debug)]
pub(crate) struct KeptPages(usize);

impl KeptPages {
    /// Nothing.
    pub fn none() -> Self {
        KeptPages(0)
    }

    /// Keeps what was looked at of a file, or gives it up where the others have kept too much already.
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
