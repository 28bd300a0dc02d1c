//! The transform buffer: frames, histories, lookups, interpolation.

mod history;
#[cfg(all(test, loom))]
mod models;
mod pool;
mod shelf;
mod sync;

#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod frame_ref;
#[cfg(not(loom))]
mod graph;
#[cfg(not(loom))]
mod lookup;
#[cfg(not(loom))]
mod many;
#[cfg(not(loom))]
mod name;
#[cfg(not(loom))]
mod observe;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod path;
#[cfg(not(loom))]
mod pose;
#[cfg(not(loom))]
mod timer;
#[cfg(not(loom))]
mod wait;

#[cfg(not(loom))]
pub use {
    buffer::TransformBuffer,
    error::{LookupError, UpdateError},
    frame_ref::{FrameId, FrameRef},
    graph::Extrapolation,
    lookup::{ChainLink, Latest, Newest, Twist},
    name::FrameName,
    observe::{Observer, Update},
    options::{Limits, Options, Stats},
    path::{Many, Path},
    wait::{Wait, WaitError},
};
