//! Every type that has a meaning says the same in both layers, in every flavour that it comes in.

mod common;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use asof_core::{Channel, Stamp};
use asof_decode::{Archetype, Layers, Payload, Projection};
use common::flavours::{Flavour, Types};
use common::types::{FOXGLOVE, PARTS, ROS};

const OF_ROS: [Flavour; 2] = [Flavour::Ros1, Flavour::Ros2];
const OF_FOXGLOVE: [Flavour; 5] = [
    Flavour::Protobuf,
    Flavour::Json,
    Flavour::Ros1,
    Flavour::Ros2,
    Flavour::Flatbuffer,
];

/// What an array holds, wherever it is in it: numbers by their bits as a double, and texts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Contents {
    floats: Vec<u64>,
    integers: Vec<i128>,
    texts: Vec<String>,
    bytes: Vec<Vec<u8>>,
}

impl Contents {
    fn of(batch: &RecordBatch) -> Self {
        let mut contents = Contents::default();
        batch.columns().iter().for_each(|array| contents.add(array));
        contents.floats.sort_unstable();
        contents.integers.sort_unstable();
        contents.texts.sort();
        contents.bytes.sort();
        contents
    }

    fn add(&mut self, array: &ArrayRef) {
        macro_rules! whole {
            ($kind:ty) => {
                self.integers.extend(
                    array
                        .as_primitive::<$kind>()
                        .iter()
                        .flatten()
                        .map(i128::from),
                )
            };
        }
        match array.data_type() {
            DataType::Float64 => self.floats.extend(
                array
                    .as_primitive::<Float64Type>()
                    .values()
                    .iter()
                    .map(|v| v.to_bits()),
            ),
            DataType::Float32 => self.floats.extend(
                array
                    .as_primitive::<Float32Type>()
                    .values()
                    .iter()
                    .map(|v| f64::from(*v).to_bits()),
            ),
            DataType::Int8 => whole!(Int8Type),
            DataType::Int16 => whole!(Int16Type),
            DataType::Int32 => whole!(Int32Type),
            DataType::Int64 => whole!(Int64Type),
            DataType::UInt8 => whole!(UInt8Type),
            DataType::UInt16 => whole!(UInt16Type),
            DataType::UInt32 => whole!(UInt32Type),
            DataType::UInt64 => whole!(UInt64Type),
            DataType::Utf8 => {
                let texts = array.as_string::<i32>().iter().flatten();
                self.texts.extend(texts.map(str::to_owned));
            }
            DataType::BinaryView => {
                let bytes = array.as_binary_view().iter().flatten();
                self.bytes.extend(bytes.map(<[u8]>::to_vec));
            }
            DataType::Struct(_) => {
                let parts = array.as_struct();
                parts.columns().iter().for_each(|part| self.add(part));
            }
            DataType::List(_) => self.add(array.as_list::<i32>().values()),
            DataType::FixedSizeList(..) => self.add(array.as_fixed_size_list().values()),
            _ => {}
        }
    }

    /// Whether everything here is in the other as well, as often.
    fn is_within(&self, other: &Contents) -> bool {
        fn within<T: Ord>(some: &[T], all: &[T]) -> bool {
            let mut all = all.iter();
            some.iter().all(|one| all.any(|other| other == one))
        }
        within(&self.integers, &other.integers)
            && within(&self.texts, &other.texts)
            && within(&self.bytes, &other.bytes)
    }
}

fn table(channel: &Channel, payload: &[u8], layers: &Layers, layer: &str) -> RecordBatch {
    let shared = Arc::new(channel.clone());
    let (assignment, table) = layers.assign(&shared, &Projection::All, &[payload]);
    assert_eq!(
        assignment.layer.as_deref(),
        Some(layer),
        "{}: {:?}",
        channel.type_name(),
        assignment.declined
    );
    let mut table = table.expect("a table");
    let at = Stamp::EPOCH;
    table.append(&[(at, at, Payload::from(payload))], &mut |_, error| {
        panic!("{}: {error}", channel.type_name())
    });
    table.take().expect("Arrow takes it").expect("rows")
}

fn semantic(channel: &Channel, payload: &[u8]) -> RecordBatch {
    table(channel, payload, &Layers::standard(), "semantic")
}

fn reflected(channel: &Channel, payload: &[u8]) -> RecordBatch {
    let layers = Layers::standard().without("semantic");
    table(channel, payload, &layers, "reflection")
}

/// Every type that is sent, in every flavour that it comes in.
fn every(mut check: impl FnMut(&str, Flavour, &Channel, &[u8])) {
    let all = [(ROS, &OF_ROS[..]), (FOXGLOVE, &OF_FOXGLOVE)];
    for (definitions, flavours) in all {
        let types = Types::parse(definitions);
        for (seed, name) in types.names().enumerate() {
            if PARTS.contains(&name) {
                continue;
            }
            for &flavour in flavours {
                let (channel, payload) = types.sample(name, flavour, seed as u64 * 2 + 1);
                check(name, flavour, &channel, &payload);
            }
        }
    }
}

#[test]
fn both_layers_have_the_same_floats_and_nothing_that_is_not_in_the_message() {
    let mut checked = 0;
    every(|name, flavour, channel, payload| {
        let meant = Contents::of(&semantic(channel, payload));
        let own = Contents::of(&reflected(channel, payload));
        assert_eq!(meant.floats, own.floats, "{name} {flavour:?}");
        assert!(
            meant.is_within(&own),
            "{name} {flavour:?}: {meant:?} is not within {own:?}"
        );
        checked += 1;
    });
    assert!(checked > 200, "{checked}");
}

#[test]
fn a_meaning_is_the_same_in_every_flavour() {
    let types = Types::parse(FOXGLOVE);
    for name in types.names().filter(|name| !PARTS.contains(name)) {
        let of = |flavour| {
            let (channel, payload) = types.sample(name, flavour, 11);
            let batch = semantic(&channel, &payload);
            let names: Vec<String> = batch
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            let stamps = batch.column_by_name("stamp").map(|stamps| {
                let stamps = stamps.as_primitive::<TimestampNanosecondType>();
                stamps.iter().collect::<Vec<_>>()
            });
            let contents = Contents::of(&batch);
            (names, stamps, contents.floats, contents.texts)
        };
        let first = of(Flavour::Protobuf);
        for flavour in OF_FOXGLOVE {
            assert_eq!(of(flavour), first, "{name} {flavour:?}");
        }
    }
}

/// The types that Rerun 0.41 gives a meaning to.
const OF_RERUN: &[&str] = &[
    "sensor_msgs/BatteryState",
    "sensor_msgs/CameraInfo",
    "sensor_msgs/CompressedImage",
    "sensor_msgs/FluidPressure",
    "sensor_msgs/Illuminance",
    "sensor_msgs/Image",
    "sensor_msgs/Imu",
    "sensor_msgs/JointState",
    "sensor_msgs/Joy",
    "sensor_msgs/MagneticField",
    "sensor_msgs/NavSatFix",
    "sensor_msgs/PointCloud2",
    "sensor_msgs/Range",
    "sensor_msgs/RelativeHumidity",
    "sensor_msgs/Temperature",
    "std_msgs/Float64Array",
    "std_msgs/Float64MultiArray",
    "std_msgs/String",
    "tf2_msgs/TFMessage",
    "rcl_interfaces/Log",
    "nav_msgs/OccupancyGrid",
    "nav2_msgs/VoxelGrid",
    "geometry_msgs/PoseStamped",
    "foxglove/CameraCalibration",
    "foxglove/CompressedImage",
    "foxglove/CompressedVideo",
    "foxglove/FrameTransform",
    "foxglove/FrameTransforms",
    "foxglove/LocationFix",
    "foxglove/LocationFixes",
    "foxglove/Log",
    "foxglove/PointCloud",
    "foxglove/PoseInFrame",
    "foxglove/PosesInFrame",
    "foxglove/RawImage",
    "foxglove/VoxelGrid",
];

#[test]
fn every_type_that_has_a_meaning_is_compared() {
    let mut found = Vec::new();
    every(|name, _, _, _| found.push(name.to_owned()));
    for archetype in Archetype::all() {
        for name in archetype.types {
            assert!(found.iter().any(|found| found == name), "{name}");
        }
    }
}

#[test]
fn the_readme_names_every_type_that_has_a_meaning() {
    let readme = include_str!("../README.md");
    for archetype in Archetype::all() {
        let row = readme
            .lines()
            .find(|line| line.starts_with(&format!("| {} |", archetype.name)))
            .unwrap_or_else(|| panic!("no row for {}", archetype.name));
        for name in archetype.types {
            let short = name.split('/').nth(1).unwrap_or(name);
            assert!(row.contains(short), "{name} is not in: {row}");
        }
    }
}

#[test]
fn what_rerun_gives_a_meaning_to_has_one_here() {
    let mut found = Vec::new();
    every(|name, _, _, _| found.push(name.to_owned()));
    for name in OF_RERUN {
        assert!(found.iter().any(|found| found == name), "{name}");
    }
}

#[test]
fn covariances_are_kept_as_lists_of_fixed_size_in_double_precision() {
    let types = Types::parse(ROS);
    for flavour in OF_ROS {
        let (channel, payload) = types.sample("sensor_msgs/Imu", flavour, 3);
        let batch = semantic(&channel, &payload);
        for name in [
            "orientation_covariance",
            "angular_velocity_covariance",
            "linear_acceleration_covariance",
        ] {
            let column = batch.column_by_name(name).expect(name);
            let DataType::FixedSizeList(item, 9) = column.data_type() else {
                panic!("{name}: {}", column.data_type());
            };
            assert_eq!(*item.data_type(), DataType::Float64, "{name}");
        }
    }
}

#[test]
fn scalar_sensors_keep_all_that_they_say() {
    let types = Types::parse(ROS);
    for (name, columns) in [
        ("sensor_msgs/Temperature", &["value", "variance"][..]),
        ("sensor_msgs/FluidPressure", &["value", "variance"]),
        ("sensor_msgs/Range", &["min_range", "max_range", "variance"]),
        (
            "sensor_msgs/BatteryState",
            &["charge", "design_capacity", "cell_voltage", "serial_number"],
        ),
    ] {
        let (channel, payload) = types.sample(name, Flavour::Ros2, 5);
        let batch = semantic(&channel, &payload);
        for column in columns {
            assert!(batch.column_by_name(column).is_some(), "{name} {column}");
        }
    }
}

#[test]
fn each_transform_has_its_own_stamp_in_every_flavour() {
    let ros = Types::parse(ROS);
    let foxglove = Types::parse(FOXGLOVE);
    let samples = OF_ROS
        .iter()
        .map(|flavour| ros.sample("tf2_msgs/TFMessage", *flavour, 9))
        .chain(
            OF_FOXGLOVE
                .iter()
                .map(|flavour| foxglove.sample("foxglove/FrameTransforms", *flavour, 9)),
        );
    for (channel, payload) in samples {
        let batch = semantic(&channel, &payload);
        let stamps = batch.column_by_name("stamp").expect("stamp");
        let stamps = stamps.as_primitive::<TimestampNanosecondType>();
        let mut different: Vec<i64> = stamps.iter().flatten().collect();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 1, "{}", channel.type_name());
        assert_eq!(different.len(), batch.num_rows(), "{}", channel.type_name());
        let translation = batch.column_by_name("translation").expect("translation");
        let DataType::FixedSizeList(item, 3) = translation.data_type() else {
            panic!("{}", translation.data_type());
        };
        assert_eq!(*item.data_type(), DataType::Float64);
    }
}
