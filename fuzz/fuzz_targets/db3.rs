//! Any bytes at all, as a ROS 2 bag in SQLite: opened, read, searched and checked without a panic.

#![no_main]

use asof_formats::{Db3File, Definitions, OpenOptions};

#[path = "../../crates/asof-formats/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("asof-fuzz-{}.db3", std::process::id()));
    // Most inputs would be refused for their first bytes alone.
    let file = [&b"SQLite format 3\0"[..], bytes].concat();
    std::fs::write(&path, file).expect("a file to try");
    let options = OpenOptions {
        definitions: Definitions::default(),
        ..OpenOptions::default()
    };
    if let Ok(recording) = Db3File::open_with(&path, &options) {
        common::exercise_recording(&recording);
    }
});
