//! Recordings, fleets and robots by the front door. One program, as each would link the engine anew.

mod align;
mod cancelling;
mod contract;
mod facade;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "lerobot")]
mod lerobot;
#[cfg(feature = "live")]
mod robot;
mod transforms;
mod vocabulary;
