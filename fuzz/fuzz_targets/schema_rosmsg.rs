//! Any bytes at all, as a ROS message definition: the channel has columns, or its bytes alone.

#![no_main]

#[path = "../../crates/asof-decode/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::fuzz::any_schema(
    &["ros1msg", "ros2msg"],
    bytes
));
