//! The robot's messages before they are encoded.
//!
//! One plain struct per topic. Every encoding starts from these, so that all have the same content.

use asof_core::Stamp;

use crate::pose::PlanarPose;

/// The robot's topics; a topic's number is its index in [`Topic::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    TfStatic,
    Scan,
    Odom,
    Imu,
    Tf,
    Map,
    Image,
    CmdVel,
    JointStates,
    Bumper,
    Rosout,
    Diagnostics,
}

impl Topic {
    pub(crate) const ALL: [Topic; 12] = [
        Topic::TfStatic,
        Topic::Scan,
        Topic::Odom,
        Topic::Imu,
        Topic::Tf,
        Topic::Map,
        Topic::Image,
        Topic::CmdVel,
        Topic::JointStates,
        Topic::Bumper,
        Topic::Rosout,
        Topic::Diagnostics,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Topic::TfStatic => "/tf_static",
            Topic::Scan => "/scan",
            Topic::Odom => "/odom",
            Topic::Imu => "/imu",
            Topic::Tf => "/tf",
            Topic::Map => "/map",
            Topic::Image => "/camera/image",
            Topic::CmdVel => "/cmd_vel",
            Topic::JointStates => "/joint_states",
            Topic::Bumper => "/bumper",
            Topic::Rosout => "/rosout",
            Topic::Diagnostics => "/diagnostics",
        }
    }

    /// Microseconds from sending to recording: the minimum, and how much is added at most.
    pub(crate) fn latency(self) -> (f64, f64) {
        match self {
            Topic::Imu | Topic::CmdVel | Topic::Bumper => (110.0, 180.0),
            Topic::Scan => (700.0, 600.0),
            Topic::Map => (1500.0, 1200.0),
            Topic::Image => (2800.0, 1900.0),
            _ => (180.0, 320.0),
        }
    }

    /// Whether a late subscriber still gets the last message.
    pub(crate) fn is_latched(self) -> bool {
        matches!(self, Topic::TfStatic | Topic::Map)
    }
}

/// Three numbers, x, y and z.
pub(crate) type Vector = [f64; 3];
/// A rotation, x, y, z and w.
pub(crate) type Quaternion = [f64; 4];

/// One message, before it is encoded.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    Scan(Scan),
    Odometry(Odometry),
    Imu(Imu),
    Transforms(Vec<Transform>),
    Map(Map),
    /// A JPEG.
    Image(Vec<u8>),
    /// Forward and to the left.
    Command(f64, f64),
    Joints(Joints),
    /// Whether it is pressed.
    Bumper(bool),
    Log(Log),
    Diagnostics(Vec<Status>),
}

#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) angle_min: f64,
    pub(crate) angle_max: f64,
    pub(crate) angle_increment: f64,
    /// Seconds from one scan to the next.
    pub(crate) period: f32,
    pub(crate) range_min: f32,
    pub(crate) range_max: f32,
    /// Infinite without an echo.
    pub(crate) ranges: Vec<f32>,
    pub(crate) intensities: Vec<f32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Odometry {
    pub(crate) pose: PlanarPose,
    pub(crate) linear: f64,
    pub(crate) angular: f64,
}

impl Odometry {
    /// x, y, z, then the rotations around them: a robot on a floor cannot estimate z and tilt.
    pub(crate) const POSE_VARIANCES: [f64; 6] = [1e-3, 1e-3, 1e6, 1e6, 1e6, 3e-3];
    /// The same for its velocity.
    pub(crate) const VELOCITY_VARIANCES: [f64; 6] = [1e-4, 1e-4, 1e6, 1e6, 1e6, 5e-4];
}

#[derive(Debug, Clone)]
pub(crate) struct Imu {
    pub(crate) orientation: Quaternion,
    pub(crate) angular_velocity: Vector,
    pub(crate) linear_acceleration: Vector,
}

#[derive(Debug, Clone)]
pub(crate) struct Transform {
    pub(crate) parent: &'static str,
    pub(crate) child: &'static str,
    pub(crate) translation: Vector,
    pub(crate) rotation: Quaternion,
}

#[derive(Debug, Clone)]
pub(crate) struct Map {
    pub(crate) loaded: Stamp,
    pub(crate) resolution: f64,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) origin: (f64, f64),
    pub(crate) cells: Vec<i8>,
}

#[derive(Debug, Clone)]
pub(crate) struct Joints {
    pub(crate) names: [&'static str; 2],
    pub(crate) positions: [f64; 2],
    pub(crate) velocities: [f64; 2],
}

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Debug,
    Info,
    Warning,
}

#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) level: Level,
    pub(crate) name: &'static str,
    pub(crate) message: String,
    pub(crate) file: &'static str,
    pub(crate) function: &'static str,
    pub(crate) line: u32,
}

/// The health of one part.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    /// 0 is OK, 1 a warning, 2 an error.
    pub(crate) level: u8,
    pub(crate) name: &'static str,
    pub(crate) message: String,
    pub(crate) hardware: &'static str,
    pub(crate) values: Vec<(&'static str, String)>,
}

/// The frames of headers and transforms.
pub(crate) mod frame {
    pub(crate) const MAP: &str = "map";
    pub(crate) const ODOM: &str = "odom";
    pub(crate) const BASE: &str = "base_link";
    pub(crate) const LASER: &str = "laser";
    pub(crate) const CAMERA: &str = "camera";
    pub(crate) const CAMERA_OPTICAL: &str = "camera_optical";
    pub(crate) const IMU: &str = "imu";
    pub(crate) const BUMPER: &str = "bumper";
}

/// Rounded to a millionth: below the resolution of every sensor, and short as text.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// A rotation around the vertical axis.
pub(crate) fn yaw(heading: f64) -> Quaternion {
    let (sin, cos) = libm::sincos(heading / 2.0);
    let nano = |value: f64| (value * 1e9).round() / 1e9;
    [0.0, 0.0, nano(sin), nano(cos)]
}
