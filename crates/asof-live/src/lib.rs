//! Subscribe to a running robot, and keep its newest messages in windows.
//!
//! [`connect`] opens a [`Robot`] and discovers its topics. [`Robot::create_window`] keeps the newest messages of one topic,
//! [`Robot::recent`] those of all topics as a `Source` that is read and followed like a recording; the crate asof-record writes
//! them to files. Robots are reached over Zenoh, with the keys of `rmw_zenoh` and `zenoh-bridge-ros2dds` (module [`ros`])
//! or plain keys; through a Foxglove server; through a rosbridge server (module [`rosbridge`]); or over DDS, with the feature `dds`.
//!
//! Memory is bounded everywhere, every dropped message is counted, and sessions reconnect on their own.
//!
//! ```no_run
//! use asof_live::{Sample, connect};
//! use std::time::Duration;
//!
//! let robot = connect("zenoh://192.168.1.5:7447")?;
//! let images = robot
//!     .create_window::<Sample>("/camera/image", 30)
//!     .with_stamp(|image: &Sample| image.header_stamp())
//!     .build()?;
//! images.wait_for_change(Duration::from_secs(5))?;
//! let newest = images.newest().expect("one came");
//! println!("{} bytes from {}", newest.payload.len(), newest.stamp);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod describe;
mod error;
mod graph;
mod publish;
mod robot;
pub mod ros;
pub mod rosbridge;
mod sample;
mod source;
mod subscribe;
mod transforms;
mod transport;
mod typed;
mod watch;
mod window;

use std::time::{Duration, Instant};

pub use address::{Address, AddressError, DdsAddress, Mode, SocketAddress, ZenohAddress};
pub use asof_core::StampHealth;
pub use error::LiveError;
pub use graph::Publisher;
pub use publish::{PublisherOptions, TopicPublisher};
pub use robot::{Robot, RobotInfo, Topic};
pub use sample::{Sample, SamplePayload};
pub use source::{LiveSource, RecentOptions};
pub use subscribe::Subscription;
pub use transforms::{
    Broadcaster, FilterFailure, FilterOptions, FilterStats, LiveTransforms, TransformFilter,
    TransformStats,
};
pub use watch::{SequenceGaps, TopicRate, Watch};
pub use window::{FromSample, LiveWindow, SampleError, WindowBuilder};

/// Opens a session with the robot at an address; see [`Address`] for its forms.
///
/// A robot that is not there yet is waited for in the background, and one that goes away is found again when it comes
/// back: subscriptions and windows stay valid. Only in client mode must the router be there from the start.
///
/// # Errors
/// When the text is not an address, or the session cannot be opened: an endpoint to listen on is taken, or a client's
/// router does not answer within two seconds.
pub fn connect(address: &str) -> Result<Robot, LiveError> {
    Robot::open(&address.parse()?)
}

/// Opens the robot at an address as a source that grows, like a recording that is being written. It keeps all topics, for
/// five minutes and within 600 MB. Waits up to two seconds for the topics to be discovered; a robot that is not there yet
/// is waited for in the background.
///
/// # Errors
/// As [`connect`].
pub fn open(address: &str) -> Result<LiveSource, LiveError> {
    let source = connect(address)?.recent(&RecentOptions::default())?;
    source.wait_for_topics(Instant::now() + Duration::from_secs(2));
    Ok(source)
}

/// Compiles the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
