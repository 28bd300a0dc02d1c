//! Any bytes at all, as a set of protobuf descriptors: the channel has columns, or its bytes alone.

#![no_main]

#[path = "../../crates/asof-decode/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(
    // prost-reflect panics while it describes some errors. The decoder makes errors of that; the fuzzer's hook would
    // end the process before it can. A panic that nobody catches is found all the same.
    init: std::panic::set_hook(Box::new(|_| {})),
    |bytes: &[u8]| common::fuzz::any_schema(&["protobuf"], bytes)
);
