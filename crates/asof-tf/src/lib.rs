//! A transform buffer, like tf2's: the pose of every frame of a robot at any time in its history.
//!
//! A [`TransformBuffer`] keeps a tree of coordinate frames. Each edge is the pose of a child in its parent, either
//! static or as a history of samples. A lookup composes the edges between two frames at a time, interpolated.
//! Readers never wait for writers: a lookup takes `&self` and no lock, and sees every edge in a consistent state
//! while other threads write.
//!
//! ```
//! use asof_core::Stamp;
//! use asof_tf::TransformBuffer;
//! use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};
//!
//! let buffer = TransformBuffer::new();
//! let pose = Isometry3::from_parts(
//!     Translation3::new(1.0, 2.0, 3.0),
//!     UnitQuaternion::new_normalize(Quaternion::new(0.0, 0.0, 0.0, 1.0)),
//! );
//! buffer.update_static("base_link", "target_link", pose)?;
//! let one_second = Stamp::from_nanos(1_000_000_000);
//! let transform = buffer.lookup("base_link", "target_link", one_second)?;
//! assert_eq!(transform, pose);
//!
//! // A moving frame is interpolated between its samples.
//! let at = |seconds: f64| Stamp::from_nanos((seconds * 1e9) as i64);
//! buffer.update("odom", "base_link", at(0.0), Isometry3::translation(0.0, 0.0, 0.0))?;
//! buffer.update("odom", "base_link", at(2.0), Isometry3::translation(4.0, 0.0, 0.0))?;
//! let transform = buffer.lookup("odom", "target_link", one_second)?;
//! assert_eq!(transform.translation.x, 2.0 + 1.0);
//!
//! // Outside the range of the samples, the error says by how much.
//! let late = buffer.lookup("odom", "base_link", at(2.5)).unwrap_err();
//! assert!(late.to_string().contains("0.500000000 s after its newest sample"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - Names and ids: everything takes `&str` or a [`FrameId`]; a [`LookupPath`] prepares one pair of frames.
//! - [`lookup_many`](TransformBuffer::lookup_many) and
//!   [`transform_points`](TransformBuffer::transform_points) look up many times at once.
//! - [`deskew`](TransformBuffer::deskew) undoes a sensor's motion in a `PointCloud2`; [`geometry`] transforms poses,
//!   twists, wrenches and covariances.
//! - [`wait_for`](TransformBuffer::wait_for) blocks, [`wait`](TransformBuffer::wait) is a future,
//!   [`on_transform`](TransformBuffer::on_transform) calls back.
//! - [`observe`](TransformBuffer::observe) watches all edges, [`rivals`](TransformBuffer::rivals) lists writers of
//!   the same edge.
//! - [`from_source`](TransformBuffer::from_source) reads a complete recording with ROS's or Foxglove's transforms,
//!   [`TransformLoader`] reads messages as they arrive; [`ros`] decodes single messages, `RobotModel` reads URDF.

// Empty under loom: tests/models.rs builds the concurrent core by itself.
#![cfg(not(loom))]

mod answers;
mod authority;
mod buffer;
mod callback;
mod cloud;
#[cfg(feature = "decode")]
mod decoded;
mod draw;
mod error;
mod frame_ref;
pub mod geometry;
mod graph;
mod history;
mod loader;
mod lookup;
mod many;
mod monitor;
mod name;
mod namespace;
mod observe;
mod options;
mod path;
mod pool;
mod pose;
pub mod ros;
mod shelf;
mod source;
mod store;
mod sync;
mod timer;
mod trajectory;
#[cfg(feature = "urdf")]
mod urdf;
mod wait;
#[cfg(feature = "glam")]
mod with_glam;
#[cfg(feature = "serde")]
mod with_serde;

#[cfg(feature = "urdf")]
pub use urdf::{RobotModel, UrdfError};
#[cfg(feature = "glam")]
pub use with_glam::{ToGlam, from_glam};
pub use {
    answers::{ChainLink, FrameTwist, LatestTransform, Newest},
    authority::{Rivals, TransformWriter},
    buffer::TransformBuffer,
    callback::WaitCallback,
    cloud::{CloudError, CloudLayout, CloudStats, PointTime},
    draw::{DrawError, EdgeFacts, TreeFormat},
    error::{LookupError, UpdateError},
    frame_ref::{FrameId, FrameRef},
    graph::Extrapolation,
    loader::{
        Absorbed, ClockJump, LoaderOptions, ParentChange, TransformLoader, feeds_transforms,
        has_transforms, transform_topics,
    },
    monitor::{EdgeStats, TransformMonitor},
    name::{BadFrameName, FrameName},
    namespace::{Namespaces, TransformLoaders},
    observe::{Observer, Update},
    options::{BufferOptions, BufferStats, Conflicts, Limits},
    path::{LookupPath, Many},
    source::Loaded,
    trajectory::{TrajectoryFormat, TrajectoryFormatError, every},
    wait::{TransformWaitError, Wait},
};

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
