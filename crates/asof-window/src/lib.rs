//! Live, time-indexed windows of messages, and the synchronizers that join topics by time.
//!
//! A [`Window`] keeps the newest part of a stream, ordered by stamp, and answers "what was there at t?" with handles
//! that carry their stamps. A [`Recent`] keeps the newest messages of all topics of a running robot and is a
//! [`Source`](asof_core::Source), like a recording. [`sync`] joins topics by time.
//!
//! ```
//! use asof_window::{Bounds, Window};
//!
//! let imu = Window::new(Bounds::count(200));
//! imu.insert(10.into(), "first");
//! imu.insert(20.into(), "second");
//! assert_eq!(imu.nearest(14.into()).as_deref(), Some(&"first"));
//! assert_eq!(imu.interval(10.into(), 20.into()).len(), 2);
//! ```

#![forbid(unsafe_code)]

mod bounds;
mod entry;
mod health;
mod lock;
#[cfg(all(test, loom))]
mod models;
mod names;
mod observe;
mod query;
mod recent;
mod runs;
mod stamping;
pub mod sync;
mod view;
mod wait;
mod window;

pub use asof_align::Duplicates;
pub use asof_align::between::{
    Interpolate, JointSample, OdometrySample, PoseSample, Rotation, TwistSample,
};
pub use bounds::Bounds;
pub use entry::{Bracket, Entry};
pub use health::StampOptions;
pub use names::{MessageFiltersCache, ZCache};
pub use observe::Connection;
pub use recent::{Recent, RecentStats};
pub use stamping::{
    Arrival, MessageStamp, ReceiveStamp, SourceStamp, Stamping, TransportStamp, header_stamp,
};
pub use view::View;
pub use wait::{Changed, Reached, WaitError};
pub use window::{Insertion, Window, WindowStats};

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
