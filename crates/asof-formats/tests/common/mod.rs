//! What several tests need.

use std::path::PathBuf;

/// The folder with recordings from elsewhere, if it is there; says so where it is not.
pub fn test_data() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let folder =
        std::env::var_os("ASOF_TEST_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: no recordings in {} (set ASOF_TEST_DATA)",
        folder.display()
    );
    None
}
