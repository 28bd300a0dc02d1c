//! The robot's messages in ROS 2's types: CDR with `ros2msg` schemas.

pub(crate) mod schemas;

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Channel, Schema, Stamp};
use bytes::Bytes;

use crate::readings::{
    Imu, Joints, Level, Log, Map, Odometry, Quaternion, Reading, Scan, Status, Topic, Transform,
    Vector, frame, rounded, yaw,
};
use asof_ros::CdrWriter;

/// The channel of a topic of the robot.
pub(crate) fn channel(topic: Topic) -> Channel {
    let durability = if topic.is_latched() {
        "transient_local"
    } else {
        "volatile"
    };
    channel_of(topic.name(), type_name(topic), durability)
}

/// A channel as rosbag2 would describe it.
pub(crate) fn channel_of(topic: &str, type_name: &str, durability: &str) -> Channel {
    Channel {
        topic: topic.to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(Arc::new(Schema {
            name: type_name.to_owned(),
            encoding: "ros2msg".to_owned(),
            data: schemas::definition(type_name).into(),
        })),
        metadata: BTreeMap::from([("offered_qos_profiles".to_owned(), qos(durability))]),
    }
}

/// One message in CDR.
pub(crate) fn encode(stamp: Stamp, reading: &Reading) -> Bytes {
    let mut cdr = CdrWriter::with_capacity(size_hint(reading));
    match reading {
        Reading::Scan(scan) => laser_scan(&mut cdr, stamp, scan),
        Reading::Odometry(odom) => odometry(&mut cdr, stamp, odom),
        Reading::Imu(reading) => imu(&mut cdr, stamp, reading),
        Reading::Transforms(transforms) => tf_message(&mut cdr, stamp, transforms),
        Reading::Map(map) => occupancy_grid(&mut cdr, stamp, map),
        Reading::Image(jpeg) => compressed_image(&mut cdr, stamp, frame::CAMERA_OPTICAL, jpeg),
        Reading::Command(linear, angular) => {
            vector(&mut cdr, [*linear, 0.0, 0.0]);
            vector(&mut cdr, [0.0, 0.0, *angular]);
        }
        Reading::Joints(joints) => wheels(&mut cdr, stamp, joints),
        Reading::Bumper(is_pressed) => {
            cdr.boolean(*is_pressed);
        }
        Reading::Log(line) => log(&mut cdr, stamp, line),
        Reading::Diagnostics(statuses) => diagnostic_array(&mut cdr, stamp, statuses),
    }
    cdr.finish().into()
}

fn type_name(topic: Topic) -> &'static str {
    match topic {
        Topic::Tf | Topic::TfStatic => "tf2_msgs/msg/TFMessage",
        Topic::Scan => "sensor_msgs/msg/LaserScan",
        Topic::Odom => "nav_msgs/msg/Odometry",
        Topic::Imu => "sensor_msgs/msg/Imu",
        Topic::Map => "nav_msgs/msg/OccupancyGrid",
        Topic::Image => "sensor_msgs/msg/CompressedImage",
        Topic::CmdVel => "geometry_msgs/msg/Twist",
        Topic::JointStates => "sensor_msgs/msg/JointState",
        Topic::Bumper => "std_msgs/msg/Bool",
        Topic::Rosout => "rcl_interfaces/msg/Log",
        Topic::Diagnostics => "diagnostic_msgs/msg/DiagnosticArray",
    }
}

fn size_hint(reading: &Reading) -> usize {
    match reading {
        Reading::Image(jpeg) => jpeg.len() + 64,
        Reading::Map(map) => map.cells.len() + 128,
        Reading::Scan(scan) => scan.ranges.len() * 8 + 96,
        Reading::Odometry(_) => 736,
        _ => 336,
    }
}

/// A publisher's quality of service, as rosbag2 records it.
fn qos(durability: &str) -> String {
    let forever = "    sec: 9223372036\n    nsec: 854775807\n";
    format!(
        "- history: keep_last\n  depth: 10\n  reliability: reliable\n  durability: {durability}\n  \
         deadline:\n{forever}  lifespan:\n{forever}  liveliness: automatic\n  \
         liveliness_lease_duration:\n{forever}  avoid_ros_namespace_conventions: false\n"
    )
}

pub(crate) fn time(cdr: &mut CdrWriter, stamp: Stamp) {
    // ROS 2 counts seconds in 32 bits; a drive after 2038 saturates.
    let (sec, nanosec) = stamp.to_ros2().unwrap_or((i32::MAX, 0));
    cdr.int32(sec).uint32(nanosec);
}

pub(crate) fn header(cdr: &mut CdrWriter, stamp: Stamp, frame: &str) {
    time(cdr, stamp);
    cdr.string(frame);
}

pub(crate) fn vector(cdr: &mut CdrWriter, value: Vector) {
    cdr.float64s(&value);
}

pub(crate) fn quaternion(cdr: &mut CdrWriter, value: Quaternion) {
    cdr.float64s(&value);
}

fn laser_scan(cdr: &mut CdrWriter, stamp: Stamp, scan: &Scan) {
    header(cdr, stamp, frame::LASER);
    cdr.float32(scan.angle_min as f32)
        .float32(scan.angle_max as f32)
        .float32(scan.angle_increment as f32)
        .float32(0.0)
        .float32(scan.period)
        .float32(scan.range_min)
        .float32(scan.range_max)
        .float32_sequence(&scan.ranges)
        .float32_sequence(&scan.intensities);
}

fn odometry(cdr: &mut CdrWriter, stamp: Stamp, odom: &Odometry) {
    header(cdr, stamp, frame::ODOM);
    cdr.string(frame::BASE);
    vector(cdr, [rounded(odom.pose.x), rounded(odom.pose.y), 0.0]);
    quaternion(cdr, yaw(odom.pose.heading));
    cdr.float64s(&diagonal(Odometry::POSE_VARIANCES));
    vector(cdr, [odom.linear, 0.0, 0.0]);
    vector(cdr, [0.0, 0.0, odom.angular]);
    cdr.float64s(&diagonal(Odometry::VELOCITY_VARIANCES));
}

fn imu(cdr: &mut CdrWriter, stamp: Stamp, imu: &Imu) {
    imu_in(cdr, stamp, frame::IMU, imu);
}

pub(crate) fn imu_in(cdr: &mut CdrWriter, stamp: Stamp, frame: &str, imu: &Imu) {
    header(cdr, stamp, frame);
    quaternion(cdr, imu.orientation);
    cdr.float64s(&diagonal([2e-4, 2e-4, 4e-4]));
    vector(cdr, imu.angular_velocity);
    cdr.float64s(&diagonal([6.25e-6; 3]));
    vector(cdr, imu.linear_acceleration);
    cdr.float64s(&diagonal([9e-4; 3]));
}

fn tf_message(cdr: &mut CdrWriter, stamp: Stamp, transforms: &[Transform]) {
    cdr.length(transforms.len());
    for transform in transforms {
        transform_stamped(
            cdr,
            stamp,
            (transform.parent, transform.child),
            transform.translation,
            transform.rotation,
        );
    }
}

pub(crate) fn transform_stamped(
    cdr: &mut CdrWriter,
    stamp: Stamp,
    (parent, child): (&str, &str),
    translation: Vector,
    rotation: Quaternion,
) {
    header(cdr, stamp, parent);
    cdr.string(child);
    vector(cdr, translation);
    quaternion(cdr, rotation);
}

fn occupancy_grid(cdr: &mut CdrWriter, stamp: Stamp, map: &Map) {
    header(cdr, stamp, frame::MAP);
    time(cdr, map.loaded);
    cdr.float32(map.resolution as f32)
        .uint32(map.width)
        .uint32(map.height);
    vector(cdr, [map.origin.0, map.origin.1, 0.0]);
    quaternion(cdr, [0.0, 0.0, 0.0, 1.0]);
    let cells: Vec<u8> = map.cells.iter().map(|cell| cell.cast_unsigned()).collect();
    cdr.blob(&cells);
}

pub(crate) fn compressed_image(cdr: &mut CdrWriter, stamp: Stamp, frame: &str, jpeg: &[u8]) {
    header(cdr, stamp, frame);
    cdr.string("jpeg").blob(jpeg);
}

fn wheels(cdr: &mut CdrWriter, stamp: Stamp, joints: &Joints) {
    joint_state(
        cdr,
        stamp,
        &joints.names,
        &joints.positions,
        &joints.velocities,
        &[],
    );
}

pub(crate) fn joint_state(
    cdr: &mut CdrWriter,
    stamp: Stamp,
    names: &[&str],
    positions: &[f64],
    velocities: &[f64],
    efforts: &[f64],
) {
    header(cdr, stamp, "");
    cdr.length(names.len());
    for name in names {
        cdr.string(name);
    }
    cdr.float64_sequence(positions)
        .float64_sequence(velocities)
        .float64_sequence(efforts);
}

fn log(cdr: &mut CdrWriter, stamp: Stamp, log: &Log) {
    time(cdr, stamp);
    cdr.byte(match log.level {
        Level::Debug => 10,
        Level::Info => 20,
        Level::Warning => 30,
    });
    cdr.string(log.name)
        .string(&log.message)
        .string(log.file)
        .string(log.function)
        .uint32(log.line);
}

fn diagnostic_array(cdr: &mut CdrWriter, stamp: Stamp, statuses: &[Status]) {
    header(cdr, stamp, "");
    cdr.length(statuses.len());
    for status in statuses {
        cdr.byte(status.level)
            .string(status.name)
            .string(&status.message)
            .string(status.hardware)
            .length(status.values.len());
        for (key, value) in &status.values {
            cdr.string(key).string(value);
        }
    }
}

/// A square matrix with these numbers on its diagonal, row by row.
pub(crate) fn diagonal<const N: usize>(values: [f64; N]) -> Vec<f64> {
    let mut matrix = vec![0.0; N * N];
    for (index, value) in values.into_iter().enumerate() {
        matrix[index * (N + 1)] = value;
    }
    matrix
}
