//! The message types of the protobuf and JSON recordings.
//!
//! Foxglove's where it has one, with its field numbers (as of its SDK 0.30), and a few of our own
//! for the rest. Descriptor sets and JSON Schemas are both made from these tables.

/// A message type.
#[derive(Debug)]
pub(crate) struct MessageType {
    /// With its package: `foxglove.LaserScan`.
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

impl MessageType {
    /// `foxglove` and `LaserScan`.
    pub(crate) fn package_and_name(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }
}

/// A field of a message type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) label: Label,
}

/// The cardinality of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    One,
    Optional,
    Many,
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Double,
    Fixed32,
    Bool,
    Text,
    Bytes,
    Time,
    Enum(&'static EnumType),
    Message(&'static MessageType),
}

/// An enum of a message type.
#[derive(Debug)]
pub(crate) struct EnumType {
    pub(crate) name: &'static str,
    /// The name of number 0, of number 1, and so on.
    pub(crate) values: &'static [&'static str],
}

const fn one(name: &'static str, number: u32, kind: Kind) -> Field {
    Field {
        name,
        number,
        kind,
        label: Label::One,
    }
}

const fn optional(name: &'static str, number: u32, kind: Kind) -> Field {
    Field {
        name,
        number,
        kind,
        label: Label::Optional,
    }
}

const fn many(name: &'static str, number: u32, kind: Kind) -> Field {
    Field {
        name,
        number,
        kind,
        label: Label::Many,
    }
}

const X: Field = one("x", 1, Kind::Double);
const Y: Field = one("y", 2, Kind::Double);
const Z: Field = one("z", 3, Kind::Double);
/// What most types begin with.
const TIMESTAMP: Field = one("timestamp", 1, Kind::Time);
const FRAME_ID: Field = one("frame_id", 2, Kind::Text);

pub(crate) static VECTOR2: MessageType = MessageType {
    name: "foxglove.Vector2",
    fields: &[X, Y],
};

pub(crate) static VECTOR3: MessageType = MessageType {
    name: "foxglove.Vector3",
    fields: &[X, Y, Z],
};

pub(crate) static QUATERNION: MessageType = MessageType {
    name: "foxglove.Quaternion",
    fields: &[X, Y, Z, one("w", 4, Kind::Double)],
};

pub(crate) static POSE: MessageType = MessageType {
    name: "foxglove.Pose",
    fields: &[
        one("position", 1, Kind::Message(&VECTOR3)),
        one("orientation", 2, Kind::Message(&QUATERNION)),
    ],
};

pub(crate) static KEY_VALUE_PAIR: MessageType = MessageType {
    name: "foxglove.KeyValuePair",
    fields: &[one("key", 1, Kind::Text), one("value", 2, Kind::Text)],
};

pub(crate) static LASER_SCAN: MessageType = MessageType {
    name: "foxglove.LaserScan",
    fields: &[
        TIMESTAMP,
        FRAME_ID,
        one("pose", 3, Kind::Message(&POSE)),
        one("start_angle", 4, Kind::Double),
        one("end_angle", 5, Kind::Double),
        many("ranges", 6, Kind::Double),
        many("intensities", 7, Kind::Double),
    ],
};

pub(crate) static ODOMETRY: MessageType = MessageType {
    name: "foxglove.Odometry",
    fields: &[
        TIMESTAMP,
        FRAME_ID,
        one("body_frame_id", 3, Kind::Text),
        one("pose", 4, Kind::Message(&POSE)),
        one("linear_velocity", 5, Kind::Message(&VECTOR3)),
        one("angular_velocity", 6, Kind::Message(&VECTOR3)),
        many("pose_covariance", 7, Kind::Double),
        many("velocity_covariance", 8, Kind::Double),
        many("metadata", 9, Kind::Message(&KEY_VALUE_PAIR)),
    ],
};

pub(crate) static FRAME_TRANSFORM: MessageType = MessageType {
    name: "foxglove.FrameTransform",
    fields: &[
        TIMESTAMP,
        one("parent_frame_id", 2, Kind::Text),
        one("child_frame_id", 3, Kind::Text),
        one("translation", 4, Kind::Message(&VECTOR3)),
        one("rotation", 5, Kind::Message(&QUATERNION)),
    ],
};

pub(crate) static FRAME_TRANSFORMS: MessageType = MessageType {
    name: "foxglove.FrameTransforms",
    fields: &[many("transforms", 1, Kind::Message(&FRAME_TRANSFORM))],
};

pub(crate) static COMPRESSED_IMAGE: MessageType = MessageType {
    name: "foxglove.CompressedImage",
    fields: &[
        TIMESTAMP,
        one("frame_id", 4, Kind::Text),
        one("data", 2, Kind::Bytes),
        one("format", 3, Kind::Text),
    ],
};

static NUMERIC_TYPE: EnumType = EnumType {
    name: "NumericType",
    values: &[
        "UNKNOWN", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "FLOAT32", "FLOAT64",
    ],
};
/// `INT8` of [`NUMERIC_TYPE`].
pub(crate) const NUMERIC_INT8: u32 = 2;

pub(crate) static PACKED_ELEMENT_FIELD: MessageType = MessageType {
    name: "foxglove.PackedElementField",
    fields: &[
        one("name", 1, Kind::Text),
        one("offset", 2, Kind::Fixed32),
        one("type", 3, Kind::Enum(&NUMERIC_TYPE)),
    ],
};

pub(crate) static GRID: MessageType = MessageType {
    name: "foxglove.Grid",
    fields: &[
        TIMESTAMP,
        FRAME_ID,
        one("pose", 3, Kind::Message(&POSE)),
        one("column_count", 4, Kind::Fixed32),
        one("cell_size", 5, Kind::Message(&VECTOR2)),
        one("row_stride", 6, Kind::Fixed32),
        one("cell_stride", 7, Kind::Fixed32),
        many("fields", 8, Kind::Message(&PACKED_ELEMENT_FIELD)),
        one("data", 9, Kind::Bytes),
    ],
};

static LOG_LEVEL: EnumType = EnumType {
    name: "Level",
    values: &["UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"],
};

pub(crate) static LOG: MessageType = MessageType {
    name: "foxglove.Log",
    fields: &[
        TIMESTAMP,
        one("level", 2, Kind::Enum(&LOG_LEVEL)),
        one("message", 3, Kind::Text),
        one("name", 4, Kind::Text),
        one("file", 5, Kind::Text),
        one("line", 6, Kind::Fixed32),
    ],
};

pub(crate) static JOINT_STATE: MessageType = MessageType {
    name: "foxglove.JointState",
    fields: &[
        one("name", 1, Kind::Text),
        optional("position", 2, Kind::Double),
        optional("velocity", 3, Kind::Double),
        optional("acceleration", 4, Kind::Double),
        optional("effort", 5, Kind::Double),
    ],
};

pub(crate) static JOINT_STATES: MessageType = MessageType {
    name: "foxglove.JointStates",
    fields: &[TIMESTAMP, many("joints", 2, Kind::Message(&JOINT_STATE))],
};

pub(crate) static IMU: MessageType = MessageType {
    name: "asof.demo.Imu",
    fields: &[
        TIMESTAMP,
        FRAME_ID,
        one("orientation", 3, Kind::Message(&QUATERNION)),
        one("angular_velocity", 4, Kind::Message(&VECTOR3)),
        one("linear_acceleration", 5, Kind::Message(&VECTOR3)),
    ],
};

pub(crate) static VELOCITY_COMMAND: MessageType = MessageType {
    name: "asof.demo.VelocityCommand",
    fields: &[
        TIMESTAMP,
        one("linear", 2, Kind::Message(&VECTOR3)),
        one("angular", 3, Kind::Message(&VECTOR3)),
    ],
};

pub(crate) static BUMPER: MessageType = MessageType {
    name: "asof.demo.Bumper",
    fields: &[TIMESTAMP, FRAME_ID, one("is_pressed", 3, Kind::Bool)],
};

static STATUS_LEVEL: EnumType = EnumType {
    name: "Level",
    values: &["OK", "WARNING", "ERROR", "STALE"],
};

pub(crate) static STATUS: MessageType = MessageType {
    name: "asof.demo.Status",
    fields: &[
        one("level", 1, Kind::Enum(&STATUS_LEVEL)),
        one("name", 2, Kind::Text),
        one("message", 3, Kind::Text),
        one("hardware_id", 4, Kind::Text),
        many("values", 5, Kind::Message(&KEY_VALUE_PAIR)),
    ],
};

pub(crate) static DIAGNOSTICS: MessageType = MessageType {
    name: "asof.demo.Diagnostics",
    fields: &[TIMESTAMP, many("status", 2, Kind::Message(&STATUS))],
};
