//! The Python in which DuckDB and polars are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs them, if they are not there; says so if that failed.
pub fn with_polars() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("target/sql-venv/bin/python");
    if !python.exists() {
        let done = Command::new(root.join("peers/sql.sh")).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("duckdb and polars could not be installed; those peers are left out");
            return None;
        }
    }
    Some(python)
}
