//! Any bytes at all, as CDR messages: each is a row or an error, in every way of decoding.

#![no_main]

#[path = "../../crates/asof-decode/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::fuzz::any_payload("cdr", bytes));
