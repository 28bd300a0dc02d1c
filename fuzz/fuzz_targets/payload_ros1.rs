//! Any bytes at all, as ROS 1 messages: each is a row or an error, in every way of decoding.

#![no_main]

#[path = "../../crates/asof-decode/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::fuzz::any_payload("ros1", bytes));
