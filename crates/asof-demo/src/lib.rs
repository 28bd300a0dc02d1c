//! A small simulated robot, for demos, tests and benchmarks.
//!
//! A wheeled robot drives a loop through the four rooms of a [`House`]. Its laser, camera, wheels,
//! IMU and bumper all see the same simulated world, so their messages agree: the odometry
//! integrates the wheels' motion, the scan matches the map from the robot's pose, the bumper is
//! pressed when it touches a wall. The same seed gives the same bytes on every machine.
//!
//! This crate makes channels and messages; it does not write files.
//!
//! ```
//! use std::time::Duration;
//! use asof_demo::{Demo, DemoOptions};
//!
//! let demo = Demo::new(DemoOptions { duration: Duration::from_secs(1), ..DemoOptions::default() });
//! let scans = demo.messages().filter(|message| message.channel.topic == "/scan");
//! assert_eq!(scans.count(), 10);
//! ```
//!
//! For benchmarks, [`small_messages`] and [`large_messages`] make any number of bytes, in
//! the shapes of real recordings.

#![forbid(unsafe_code)]

mod camera;
mod drive;
mod foxglove;
mod house;
mod mapper;
mod navigator;
mod paint;
mod pictures;
mod pose;
mod random;
mod readings;
mod recording;
mod robot;
mod ros2;
mod sensors;
mod shapes;

use std::sync::Arc;
use std::time::Duration;

use asof_core::{Channel, Stamp};

pub use house::{House, Room};
pub use pose::PlanarPose;
pub use recording::DemoMessages;
pub use shapes::{Shapes, large_messages, small_messages};

use drive::Drive;
use readings::Topic;

/// How messages are encoded, and the schemas that go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DemoEncoding {
    /// ROS 2's types in CDR, with `ros2msg` schemas.
    #[default]
    Cdr,
    /// Foxglove's types in protobuf, with a descriptor set as the schema.
    Protobuf,
    /// Foxglove's types in JSON, with JSON Schema.
    Json,
}

/// The options of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoOptions {
    /// The seed of all randomness.
    pub seed: u64,
    /// When the drive starts; by default noon of 1 May 2024 (UTC).
    pub start: Stamp,
    /// How long it takes: any length; by default 30 seconds.
    pub duration: Duration,
    /// How messages are encoded.
    pub encoding: DemoEncoding,
}

impl Default for DemoOptions {
    fn default() -> Self {
        DemoOptions {
            seed: 1,
            start: Stamp::from_nanos(1_714_564_800_000_000_000),
            duration: Duration::from_secs(30),
            encoding: DemoEncoding::Cdr,
        }
    }
}

/// A simulated drive, as channels and messages.
#[derive(Debug, Clone)]
pub struct Demo {
    options: DemoOptions,
    channels: Arc<[Arc<Channel>]>,
}

impl Demo {
    /// The radius of the round robot, in metres.
    pub const RADIUS: f64 = robot::RADIUS;
    /// The distance between its two wheels, in metres.
    pub const WHEEL_BASE: f64 = robot::WHEEL_BASE;
    /// The radius of its wheels, in metres.
    pub const WHEEL_RADIUS: f64 = robot::WHEEL_RADIUS;

    /// A drive with these options. Nothing is simulated yet.
    pub fn new(options: DemoOptions) -> Self {
        let channel = |topic| match options.encoding {
            DemoEncoding::Cdr => ros2::channel(topic),
            DemoEncoding::Protobuf => foxglove::protobuf_channel(topic),
            DemoEncoding::Json => foxglove::json_channel(topic),
        };
        let channels = Topic::ALL.map(channel).map(Arc::new);
        Demo {
            options,
            channels: Arc::new(channels),
        }
    }

    /// The options of this drive.
    pub fn options(&self) -> &DemoOptions {
        &self.options
    }

    /// Every channel of the messages.
    pub fn channels(&self) -> &[Arc<Channel>] {
        &self.channels
    }

    /// The profile for an MCAP header: `ros2`, or empty.
    pub fn profile(&self) -> &'static str {
        match self.options.encoding {
            DemoEncoding::Cdr => "ros2",
            DemoEncoding::Protobuf | DemoEncoding::Json => "",
        }
    }

    /// The messages, sorted by log time, simulated lazily.
    ///
    /// A message's publish time is its header's stamp; its log time is a little later.
    pub fn messages(&self) -> DemoMessages {
        DemoMessages::new(&self.options, Arc::clone(&self.channels))
    }

    /// The true pose of the robot, 200 times a second, which no recording of a real robot holds.
    pub fn truth(&self) -> impl Iterator<Item = (Stamp, PlanarPose)> + use<> {
        let start = self.options.start;
        let end = i64::try_from(self.options.duration.as_nanos()).unwrap_or(i64::MAX);
        let mut drive = Drive::new(&self.options);
        std::iter::from_fn(move || {
            let nanos = drive.steps() as i64 * recording::STEP_NANOS;
            if nanos >= end {
                return None;
            }
            drive.decide();
            let pose = drive.robot.truth;
            drive.advance();
            Some((start.plus_nanos(nanos), pose))
        })
    }
}

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
