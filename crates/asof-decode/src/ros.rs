//! The common ROS types, for [`TypedDecoder`](crate::TypedDecoder) and [`messages`](crate::messages).
//!
//! Each has the fields that ROS 1 and ROS 2 have in common, under the names of ROS 2, and decodes both. Your own type
//! needs only the fields that you want.

use std::fmt;

use asof_core::Stamp;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// `builtin_interfaces/Time`, ROS 1's `time`, protobuf's `Timestamp`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// Whole seconds.
    #[serde(alias = "secs", alias = "seconds")]
    pub sec: i64,
    /// Nanoseconds within the second.
    #[serde(
        alias = "nsec",
        alias = "nsecs",
        alias = "nanos",
        alias = "nanoseconds"
    )]
    pub nanosec: u32,
}

impl Time {
    /// As nanoseconds; a time beyond their range is the latest stamp.
    pub fn stamp(self) -> Stamp {
        let nanos = self.sec.saturating_mul(1_000_000_000);
        Stamp::from_nanos(nanos.saturating_add(i64::from(self.nanosec)))
    }
}

impl From<Time> for Stamp {
    fn from(time: Time) -> Self {
        time.stamp()
    }
}

/// An array of any length; serde itself supports up to 32 elements.
fn array<'de, D: Deserializer<'de>, const N: usize>(deserializer: D) -> Result<[f64; N], D::Error> {
    struct Elements<const N: usize>;
    impl<'de, const N: usize> Visitor<'de> for Elements<N> {
        type Value = [f64; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an array of {N} numbers")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<[f64; N], A::Error> {
            let mut all = [0.0; N];
            for (at, element) in all.iter_mut().enumerate() {
                *element = seq
                    .next_element()?
                    .ok_or_else(|| serde::de::Error::invalid_length(at, &self))?;
            }
            Ok(all)
        }
    }
    deserializer.deserialize_tuple(N, Elements::<N>)
}

/// Defines the structs: a line of documentation, a name, and the fields as in ROS.
macro_rules! types {
    ($($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$outer])*
            #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
            pub struct $name {
                $(
                    #[allow(missing_docs)]
                    $(#[$inner])*
                    pub $field: $kind,
                )*
            }
        )*
    };
}

types! {
    /// `std_msgs/Header`
    Header {
        stamp: Time,
        frame_id: String,
    }
    /// `geometry_msgs/Vector3`
    Vector3 {
        x: f64,
        y: f64,
        z: f64,
    }
    /// `geometry_msgs/Point`
    Point {
        x: f64,
        y: f64,
        z: f64,
    }
    /// `geometry_msgs/PointStamped`
    PointStamped {
        header: Header,
        point: Point,
    }
    /// `geometry_msgs/Pose`
    Pose {
        position: Point,
        orientation: Quaternion,
    }
    /// `geometry_msgs/PoseStamped`
    PoseStamped {
        header: Header,
        pose: Pose,
    }
    /// `geometry_msgs/PoseArray`
    PoseArray {
        header: Header,
        poses: Vec<Pose>,
    }
    /// `geometry_msgs/PoseWithCovarianceStamped`
    PoseWithCovarianceStamped {
        header: Header,
        pose: PoseWithCovariance,
    }
    /// `geometry_msgs/Twist`
    Twist {
        linear: Vector3,
        angular: Vector3,
    }
    /// `geometry_msgs/TwistStamped`
    TwistStamped {
        header: Header,
        twist: Twist,
    }
    /// `geometry_msgs/Wrench`
    Wrench {
        force: Vector3,
        torque: Vector3,
    }
    /// `geometry_msgs/WrenchStamped`
    WrenchStamped {
        header: Header,
        wrench: Wrench,
    }
    /// `geometry_msgs/Transform`
    Transform {
        translation: Vector3,
        rotation: Quaternion,
    }
    /// `geometry_msgs/TransformStamped`
    TransformStamped {
        header: Header,
        child_frame_id: String,
        transform: Transform,
    }
    /// `tf2_msgs/TFMessage`, `tf/tfMessage`
    TFMessage {
        transforms: Vec<TransformStamped>,
    }
    /// `nav_msgs/Odometry`
    Odometry {
        header: Header,
        child_frame_id: String,
        pose: PoseWithCovariance,
        twist: TwistWithCovariance,
    }
    /// `nav_msgs/Path`
    Path {
        header: Header,
        poses: Vec<PoseStamped>,
    }
    /// `nav_msgs/MapMetaData`
    MapMetaData {
        map_load_time: Time,
        resolution: f32,
        width: u32,
        height: u32,
        origin: Pose,
    }
    /// `nav_msgs/OccupancyGrid`
    OccupancyGrid {
        header: Header,
        info: MapMetaData,
        /// From 0, free, to 100, occupied; -1 is unknown.
        data: Vec<i8>,
    }
    /// `sensor_msgs/Imu`
    Imu {
        header: Header,
        orientation: Quaternion,
        orientation_covariance: [f64; 9],
        angular_velocity: Vector3,
        angular_velocity_covariance: [f64; 9],
        linear_acceleration: Vector3,
        linear_acceleration_covariance: [f64; 9],
    }
    /// `sensor_msgs/MagneticField`
    MagneticField {
        header: Header,
        magnetic_field: Vector3,
        magnetic_field_covariance: [f64; 9],
    }
    /// `sensor_msgs/LaserScan`
    LaserScan {
        header: Header,
        angle_min: f32,
        angle_max: f32,
        angle_increment: f32,
        time_increment: f32,
        scan_time: f32,
        range_min: f32,
        range_max: f32,
        ranges: Vec<f32>,
        intensities: Vec<f32>,
    }
    /// `sensor_msgs/Range`
    Range {
        header: Header,
        radiation_type: u8,
        field_of_view: f32,
        min_range: f32,
        max_range: f32,
        range: f32,
    }
    /// `sensor_msgs/JointState`
    JointState {
        header: Header,
        name: Vec<String>,
        position: Vec<f64>,
        velocity: Vec<f64>,
        effort: Vec<f64>,
    }
    /// `sensor_msgs/Image`
    Image {
        header: Header,
        height: u32,
        width: u32,
        encoding: String,
        is_bigendian: u8,
        step: u32,
        #[serde(deserialize_with = "crate::bytes")]
        data: Vec<u8>,
    }
    /// `sensor_msgs/CompressedImage`
    CompressedImage {
        header: Header,
        format: String,
        #[serde(deserialize_with = "crate::bytes")]
        data: Vec<u8>,
    }
    /// `sensor_msgs/CameraInfo`
    CameraInfo {
        header: Header,
        height: u32,
        width: u32,
        distortion_model: String,
        #[serde(alias = "D")]
        d: Vec<f64>,
        #[serde(alias = "K")]
        k: [f64; 9],
        #[serde(alias = "R")]
        r: [f64; 9],
        #[serde(alias = "P")]
        p: [f64; 12],
        binning_x: u32,
        binning_y: u32,
    }
    /// `sensor_msgs/PointField`
    PointField {
        name: String,
        offset: u32,
        datatype: u8,
        count: u32,
    }
    /// `sensor_msgs/PointCloud2`
    PointCloud2 {
        header: Header,
        height: u32,
        width: u32,
        fields: Vec<PointField>,
        is_bigendian: bool,
        point_step: u32,
        row_step: u32,
        #[serde(deserialize_with = "crate::bytes")]
        data: Vec<u8>,
        is_dense: bool,
    }
    /// `sensor_msgs/NavSatStatus`
    NavSatStatus {
        status: i8,
        service: u16,
    }
    /// `sensor_msgs/NavSatFix`
    NavSatFix {
        header: Header,
        status: NavSatStatus,
        latitude: f64,
        longitude: f64,
        altitude: f64,
        position_covariance: [f64; 9],
        position_covariance_type: u8,
    }
    /// `sensor_msgs/Temperature`
    Temperature {
        header: Header,
        temperature: f64,
        variance: f64,
    }
    /// `sensor_msgs/FluidPressure`
    FluidPressure {
        header: Header,
        fluid_pressure: f64,
        variance: f64,
    }
    /// `sensor_msgs/Joy`
    Joy {
        header: Header,
        axes: Vec<f32>,
        buttons: Vec<i32>,
    }
    /// `sensor_msgs/BatteryState`
    BatteryState {
        header: Header,
        voltage: f32,
        current: f32,
        charge: f32,
        capacity: f32,
        percentage: f32,
        present: bool,
    }
}

/// `geometry_msgs/Quaternion`
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct Quaternion {
    pub x: f64,
    pub y: f64,
    pub z: f64,
    pub w: f64,
}

impl Default for Quaternion {
    /// No rotation.
    fn default() -> Self {
        Quaternion {
            x: 0.0,
            y: 0.0,
            z: 0.0,
            w: 1.0,
        }
    }
}

/// `geometry_msgs/PoseWithCovariance`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct PoseWithCovariance {
    pub pose: Pose,
    /// Six by six, row by row: x, y, z, and rotation about x, y, z.
    #[serde(deserialize_with = "array")]
    pub covariance: [f64; 36],
}

/// `geometry_msgs/TwistWithCovariance`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(missing_docs)]
pub struct TwistWithCovariance {
    pub twist: Twist,
    /// Six by six, row by row: linear x, y, z, and angular x, y, z.
    #[serde(deserialize_with = "array")]
    pub covariance: [f64; 36],
}

macro_rules! default_without_covariance {
    ($($name:ident { $value:ident })*) => {
        $(impl Default for $name {
            fn default() -> Self {
                $name {
                    $value: Default::default(),
                    covariance: [0.0; 36],
                }
            }
        })*
    };
}

default_without_covariance! {
    PoseWithCovariance { pose }
    TwistWithCovariance { twist }
}

/// `std_msgs/Bool`, `Float64`, `String` and the others that have one field, `data`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Data<T> {
    /// The value.
    pub data: T,
}
