//! SQL over recordings. One program, as each would link the engine anew.
#![cfg(feature = "engine")]

mod common;

mod align;
mod calls;
#[cfg(feature = "distributed")]
mod distributed;
mod fleets;
#[cfg(feature = "flight")]
mod flight;
mod labels;
mod many;
mod missing;
mod one_pass;
mod own;
mod pushdown;
mod queries;
