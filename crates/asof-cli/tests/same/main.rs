//! Every door gives the same answers by the same words: the library, the command, SQL. One program, as each would link the engine anew.

#[path = "../common/mod.rs"]
mod common;

mod alignment;
mod same_bits;
mod words;
