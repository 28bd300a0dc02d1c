//! Any bytes at all, as a PX4 log: opened, read, searched and checked without a panic.

#![no_main]

use asof_formats::UlogFile;

#[path = "../../crates/asof-formats/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Most inputs would be refused for their first bytes alone.
    let file = [&b"ULog\x01\x12\x35\x01"[..], bytes].concat();
    if let Ok(recording) = UlogFile::from_bytes("fuzzed.ulg", file) {
        common::exercise_recording(&recording);
    }
});
