//! Any bytes at all, as a ROS 1 bag: opened, read, searched and checked without a panic.

#![no_main]

use asof_formats::BagFile;

#[path = "../../crates/asof-formats/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Most inputs would be refused for their first bytes alone.
    let file = [&b"#ROSBAG V2.0\n"[..], bytes].concat();
    if let Ok(recording) = BagFile::from_bytes("fuzzed.bag", file) {
        common::exercise_recording(&recording);
    }
});
