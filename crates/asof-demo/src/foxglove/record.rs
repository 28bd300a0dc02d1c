//! Messages as trees of values, before they become protobuf or JSON.

use std::borrow::Cow;

use asof_core::Stamp;

use super::types::{self, MessageType};
use crate::readings::{
    Imu, Joints, Level, Log, Map, Odometry, Quaternion, Reading, Scan, Status, Topic, Transform,
    Vector, frame, rounded, yaw,
};

/// A message: its type, and a value for each of the type's fields, in order.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: &'static MessageType,
    pub(crate) values: Vec<Value<'a>>,
}

/// The value of a field.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    /// An optional field that is not set.
    Absent,
    Double(f64),
    Doubles(Vec<f64>),
    /// A number, or the number of an enum's value.
    Integer(u32),
    Boolean(bool),
    Text(&'a str),
    Bytes(Cow<'a, [u8]>),
    Time(Stamp),
    Message(Record<'a>),
    Messages(Vec<Record<'a>>),
}

use Value::{Absent, Boolean, Bytes, Double, Doubles, Integer, Messages, Text, Time};

/// The message type of a topic.
pub(crate) fn type_of(topic: Topic) -> &'static MessageType {
    match topic {
        Topic::Tf | Topic::TfStatic => &types::FRAME_TRANSFORMS,
        Topic::Scan => &types::LASER_SCAN,
        Topic::Odom => &types::ODOMETRY,
        Topic::Imu => &types::IMU,
        Topic::Map => &types::GRID,
        Topic::Image => &types::COMPRESSED_IMAGE,
        Topic::CmdVel => &types::VELOCITY_COMMAND,
        Topic::JointStates => &types::JOINT_STATES,
        Topic::Bumper => &types::BUMPER,
        Topic::Rosout => &types::LOG,
        Topic::Diagnostics => &types::DIAGNOSTICS,
    }
}

/// A reading in the shape of [`type_of`] its topic.
pub(crate) fn record(stamp: Stamp, reading: &Reading) -> Record<'_> {
    match reading {
        Reading::Scan(scan) => laser_scan(stamp, scan),
        Reading::Odometry(reading) => odometry(stamp, reading),
        Reading::Imu(reading) => imu(stamp, reading),
        Reading::Transforms(transforms) => {
            let transforms = transforms.iter().map(|one| frame_transform(stamp, one));
            filled(&types::FRAME_TRANSFORMS, [Messages(transforms.collect())])
        }
        Reading::Map(map) => grid(stamp, map),
        Reading::Image(jpeg) => filled(
            &types::COMPRESSED_IMAGE,
            [
                Time(stamp),
                Text(frame::CAMERA_OPTICAL),
                Bytes(Cow::Borrowed(jpeg)),
                Text("jpeg"),
            ],
        ),
        Reading::Command(linear, angular) => filled(
            &types::VELOCITY_COMMAND,
            [
                Time(stamp),
                vector([*linear, 0.0, 0.0]),
                vector([0.0, 0.0, *angular]),
            ],
        ),
        Reading::Joints(joints) => joint_states(stamp, joints),
        Reading::Bumper(is_pressed) => filled(
            &types::BUMPER,
            [Time(stamp), Text(frame::BUMPER), Boolean(*is_pressed)],
        ),
        Reading::Log(line) => log(stamp, line),
        Reading::Diagnostics(statuses) => {
            let statuses = statuses.iter().map(status).collect();
            filled(&types::DIAGNOSTICS, [Time(stamp), Messages(statuses)])
        }
    }
}

fn filled<'a, const N: usize>(kind: &'static MessageType, values: [Value<'a>; N]) -> Record<'a> {
    debug_assert_eq!(kind.fields.len(), N, "{} has other fields", kind.name);
    Record {
        kind,
        values: values.into(),
    }
}

fn vector<'a>([x, y, z]: Vector) -> Value<'a> {
    Value::Message(filled(&types::VECTOR3, [Double(x), Double(y), Double(z)]))
}

fn quaternion<'a>(rotation: Quaternion) -> Value<'a> {
    Value::Message(filled(&types::QUATERNION, rotation.map(Double)))
}

fn pose<'a>(position: Vector, rotation: Quaternion) -> Value<'a> {
    Value::Message(filled(
        &types::POSE,
        [vector(position), quaternion(rotation)],
    ))
}

const LEVEL: Quaternion = [0.0, 0.0, 0.0, 1.0];

fn laser_scan(stamp: Stamp, scan: &Scan) -> Record<'_> {
    // A millimetre as a 32-bit float has a long tail in 64 bits, so it is rounded.
    let millimetres = |&range: &f32| (range as f64 * 1000.0).round() / 1000.0;
    filled(
        &types::LASER_SCAN,
        [
            Time(stamp),
            Text(frame::LASER),
            pose([0.0; 3], LEVEL),
            Double(scan.angle_min),
            Double(scan.angle_max),
            Doubles(scan.ranges.iter().map(millimetres).collect()),
            Doubles(scan.intensities.iter().map(|&one| one as f64).collect()),
        ],
    )
}

fn odometry(stamp: Stamp, odom: &Odometry) -> Record<'_> {
    use crate::ros2::diagonal;
    filled(
        &types::ODOMETRY,
        [
            Time(stamp),
            Text(frame::ODOM),
            Text(frame::BASE),
            pose(
                [rounded(odom.pose.x), rounded(odom.pose.y), 0.0],
                yaw(odom.pose.heading),
            ),
            vector([odom.linear, 0.0, 0.0]),
            vector([0.0, 0.0, odom.angular]),
            Doubles(diagonal(Odometry::POSE_VARIANCES)),
            Doubles(diagonal(Odometry::VELOCITY_VARIANCES)),
            Messages(Vec::new()),
        ],
    )
}

fn imu(stamp: Stamp, imu: &Imu) -> Record<'_> {
    filled(
        &types::IMU,
        [
            Time(stamp),
            Text(frame::IMU),
            quaternion(imu.orientation),
            vector(imu.angular_velocity),
            vector(imu.linear_acceleration),
        ],
    )
}

fn frame_transform(stamp: Stamp, transform: &Transform) -> Record<'_> {
    filled(
        &types::FRAME_TRANSFORM,
        [
            Time(stamp),
            Text(transform.parent),
            Text(transform.child),
            vector(transform.translation),
            quaternion(transform.rotation),
        ],
    )
}

fn grid(stamp: Stamp, map: &Map) -> Record<'_> {
    let cell_size = filled(
        &types::VECTOR2,
        [Double(map.resolution), Double(map.resolution)],
    );
    let occupancy = filled(
        &types::PACKED_ELEMENT_FIELD,
        [Text("occupancy"), Integer(0), Integer(types::NUMERIC_INT8)],
    );
    let cells: Vec<u8> = map.cells.iter().map(|cell| cell.cast_unsigned()).collect();
    filled(
        &types::GRID,
        [
            Time(stamp),
            Text(frame::MAP),
            pose([map.origin.0, map.origin.1, 0.0], LEVEL),
            Integer(map.width),
            Value::Message(cell_size),
            Integer(map.width),
            Integer(1),
            Messages(vec![occupancy]),
            Bytes(Cow::Owned(cells)),
        ],
    )
}

fn joint_states(stamp: Stamp, joints: &Joints) -> Record<'_> {
    let joint = |wheel: usize| {
        filled(
            &types::JOINT_STATE,
            [
                Text(joints.names[wheel]),
                Double(joints.positions[wheel]),
                Double(joints.velocities[wheel]),
                Absent,
                Absent,
            ],
        )
    };
    filled(
        &types::JOINT_STATES,
        [Time(stamp), Messages(vec![joint(0), joint(1)])],
    )
}

fn log(stamp: Stamp, log: &Log) -> Record<'_> {
    let level = match log.level {
        Level::Debug => 1,
        Level::Info => 2,
        Level::Warning => 3,
    };
    filled(
        &types::LOG,
        [
            Time(stamp),
            Integer(level),
            Text(&log.message),
            Text(log.name),
            Text(log.file),
            Integer(log.line),
        ],
    )
}

fn status(status: &Status) -> Record<'_> {
    let values = status
        .values
        .iter()
        .map(|(key, value)| filled(&types::KEY_VALUE_PAIR, [Text(key), Text(value)]));
    filled(
        &types::STATUS,
        [
            Integer(u32::from(status.level)),
            Text(status.name),
            Text(&status.message),
            Text(status.hardware),
            Messages(values.collect()),
        ],
    )
}
