//! Any bytes at all, as an MCAP file: opened, read, searched and checked without a panic.

#![no_main]

#[path = "../../crates/asof-formats/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Most inputs would be refused for their first bytes alone; let the fuzzer spend its time behind them.
    let mut file = mcap::MAGIC.to_vec();
    file.extend_from_slice(bytes);
    common::exercise(file);
});
