//! Archetypes: one vocabulary for the meaning of messages, whatever their origin.
//!
//! Each archetype lists its types, and its columns with the path of each in every flavour. No payload is parsed here;
//! a column is a view of what reflection decoded.

/// The meaning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Archetype {
    /// Its name: `Imu`.
    pub name: &'static str,
    /// The types with this meaning, as `package/Type`.
    pub types: &'static [&'static str],
    /// A list in the message of which each element is a row.
    pub(crate) each: Option<&'static str>,
    pub(crate) columns: &'static [Column],
}

/// A column of an archetype, and its possible paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: &'static str,
    pub paths: &'static [&'static str],
    pub view: View,
}

/// How a column is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Unchanged.
    Same,
    /// `{x, y, z}` or more as a list of fixed size.
    Vector,
    /// `{sec, nanosec}` in its flavours as a timestamp.
    Time,
}

impl Archetype {
    /// Every archetype. A name may occur twice, for messages of one and messages of many.
    pub const fn all() -> &'static [Archetype] {
        ALL
    }

    /// The archetype of a type, in any spelling of its name: `sensor_msgs/msg/Imu`, `sensor_msgs/Imu`,
    /// `sensor_msgs::msg::dds_::Imu_`.
    pub fn of(type_name: &str) -> Option<&'static Archetype> {
        let name = plain_name(type_name);
        ALL.iter()
            .find(|archetype| archetype.types.contains(&name.as_str()))
    }

    /// The list in a message of which each element is one of these; `None` where the message itself is.
    pub const fn list(&self) -> Option<&'static str> {
        self.each
    }

    /// The possible paths of one of its columns, in ROS and Foxglove types: the first that exists counts. Empty for a
    /// column that it does not have. Where there is a [`list`](Self::list), paths start at its elements.
    pub fn paths_of(&self, column: &str) -> &'static [&'static str] {
        let known = self.columns.iter().find(|known| known.name == column);
        known.map_or(&[], |known| known.paths)
    }

    /// The paths of all columns that are presented as vectors, in every flavour.
    pub(crate) fn vectors(&self) -> Vec<String> {
        let columns = self.columns.iter();
        let paths = columns
            .filter(|column| column.view == View::Vector)
            .flat_map(|column| column.paths);
        paths
            .map(|path| match self.each {
                Some(list) => format!("{list}.{path}"),
                None => (*path).to_owned(),
            })
            .collect()
    }
}

const fn same(name: &'static str, paths: &'static [&'static str]) -> Column {
    Column {
        name,
        paths,
        view: View::Same,
    }
}

const fn vector(name: &'static str, paths: &'static [&'static str]) -> Column {
    Column {
        name,
        paths,
        view: View::Vector,
    }
}

const fn time(name: &'static str, paths: &'static [&'static str]) -> Column {
    Column {
        name,
        paths,
        view: View::Time,
    }
}

const FRAME: Column = same("frame_id", &["header.frame_id", "frame_id"]);

const fn archetype(
    name: &'static str,
    types: &'static [&'static str],
    columns: &'static [Column],
) -> Archetype {
    Archetype {
        name,
        types,
        each: None,
        columns,
    }
}

/// One number that a sensor measures, with its variance: the type, and its field.
macro_rules! measured {
    ($name:literal, $type_name:literal, $field:literal) => {
        archetype(
            $name,
            &[$type_name],
            &[
                FRAME,
                same("value", &[$field]),
                same("variance", &["variance"]),
            ],
        )
    };
}

const fn rows_of(
    each: &'static str,
    name: &'static str,
    types: &'static [&'static str],
    columns: &'static [Column],
) -> Archetype {
    Archetype {
        name,
        types,
        each: Some(each),
        columns,
    }
}

const TRANSFORM: &[Column] = &[
    time("stamp", &["header.stamp", "timestamp"]),
    same("parent_frame", &["header.frame_id", "parent_frame_id"]),
    same("child_frame", &["child_frame_id"]),
    vector("translation", &["transform.translation", "translation"]),
    vector("rotation", &["transform.rotation", "rotation"]),
];

const FIX: &[Column] = &[
    FRAME,
    same("latitude", &["latitude"]),
    same("longitude", &["longitude"]),
    same("altitude", &["altitude"]),
    same("position_covariance", &["position_covariance"]),
    same("position_covariance_type", &["position_covariance_type"]),
    same("status", &["status.status"]),
    same("service", &["status.service"]),
];

const FIX_ROWS: &[Column] = &[
    time("stamp", &["timestamp"]),
    FRAME,
    same("latitude", &["latitude"]),
    same("longitude", &["longitude"]),
    same("altitude", &["altitude"]),
    same("position_covariance", &["position_covariance"]),
    same("position_covariance_type", &["position_covariance_type"]),
];

const MARKER: &[Column] = &[
    FRAME,
    same("ns", &["ns"]),
    same("id", &["id"]),
    same("type", &["type"]),
    same("action", &["action"]),
    vector("position", &["pose.position"]),
    vector("orientation", &["pose.orientation"]),
    vector("scale", &["scale"]),
    vector("color", &["color"]),
    same("lifetime", &["lifetime"]),
    same("frame_locked", &["frame_locked"]),
    same("points", &["points"]),
    same("colors", &["colors"]),
    same("text", &["text"]),
    same("texture_resource", &["texture_resource"]),
    same("texture", &["texture"]),
    same("uv_coordinates", &["uv_coordinates"]),
    same("mesh_resource", &["mesh_resource"]),
    same("mesh_file", &["mesh_file"]),
    same(
        "mesh_use_embedded_materials",
        &["mesh_use_embedded_materials"],
    ),
];

/// Every archetype.
pub(crate) const ALL: &[Archetype] = &[
    rows_of(
        "transforms",
        "Transform",
        &[
            "tf2_msgs/TFMessage",
            "tf/tfMessage",
            "foxglove/FrameTransforms",
        ],
        TRANSFORM,
    ),
    archetype(
        "Transform",
        &["geometry_msgs/TransformStamped", "foxglove/FrameTransform"],
        &[
            same("parent_frame", &["header.frame_id", "parent_frame_id"]),
            same("child_frame", &["child_frame_id"]),
            vector("translation", &["transform.translation", "translation"]),
            vector("rotation", &["transform.rotation", "rotation"]),
        ],
    ),
    archetype(
        "Pose",
        &[
            "geometry_msgs/Pose",
            "geometry_msgs/PoseStamped",
            "geometry_msgs/PoseWithCovariance",
            "geometry_msgs/PoseWithCovarianceStamped",
            "foxglove/PoseInFrame",
        ],
        &[
            FRAME,
            vector(
                "position",
                &["pose.pose.position", "pose.position", "position"],
            ),
            vector(
                "orientation",
                &["pose.pose.orientation", "pose.orientation", "orientation"],
            ),
            same("covariance", &["pose.covariance", "covariance"]),
        ],
    ),
    archetype(
        "Point",
        &["geometry_msgs/PointStamped", "foxglove/Point3InFrame"],
        &[FRAME, vector("position", &["point"])],
    ),
    archetype(
        "Poses",
        &[
            "nav_msgs/Path",
            "geometry_msgs/PoseArray",
            "foxglove/PosesInFrame",
        ],
        &[FRAME, same("poses", &["poses"])],
    ),
    archetype(
        "Polygon",
        &["geometry_msgs/PolygonStamped"],
        &[FRAME, same("points", &["polygon.points"])],
    ),
    archetype(
        "Image",
        &["sensor_msgs/Image", "foxglove/RawImage"],
        &[
            FRAME,
            same("width", &["width"]),
            same("height", &["height"]),
            same("encoding", &["encoding"]),
            same("step", &["step"]),
            same("is_bigendian", &["is_bigendian"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "CompressedImage",
        &["sensor_msgs/CompressedImage", "foxglove/CompressedImage"],
        &[FRAME, same("format", &["format"]), same("data", &["data"])],
    ),
    archetype(
        "CompressedVideo",
        &[
            "foxglove/CompressedVideo",
            "ffmpeg_image_transport_msgs/FFMPEGPacket",
        ],
        &[
            FRAME,
            same("format", &["format", "encoding"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "Audio",
        &[
            "foxglove/RawAudio",
            "foxglove/CompressedAudio",
            "audio_common_msgs/AudioData",
            "audio_common_msgs/AudioDataStamped",
        ],
        &[
            same("format", &["format"]),
            same("sample_rate", &["sample_rate"]),
            same("number_of_channels", &["number_of_channels"]),
            same("data", &["data", "audio.data"]),
        ],
    ),
    archetype(
        "PointCloud",
        &["sensor_msgs/PointCloud2", "foxglove/PointCloud"],
        &[
            FRAME,
            vector("position", &["pose.position"]),
            vector("orientation", &["pose.orientation"]),
            same("width", &["width"]),
            same("height", &["height"]),
            same("point_step", &["point_step", "point_stride"]),
            same("row_step", &["row_step"]),
            same("is_bigendian", &["is_bigendian"]),
            same("is_dense", &["is_dense"]),
            same("fields", &["fields"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "CompressedPointCloud",
        &["foxglove/CompressedPointCloud"],
        &[
            FRAME,
            vector("position", &["pose.position"]),
            vector("orientation", &["pose.orientation"]),
            same("format", &["format"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "LaserScan",
        &["sensor_msgs/LaserScan", "foxglove/LaserScan"],
        &[
            FRAME,
            vector("position", &["pose.position"]),
            vector("orientation", &["pose.orientation"]),
            same("angle_min", &["angle_min", "start_angle"]),
            same("angle_max", &["angle_max", "end_angle"]),
            same("angle_increment", &["angle_increment"]),
            same("time_increment", &["time_increment"]),
            same("scan_time", &["scan_time"]),
            same("range_min", &["range_min"]),
            same("range_max", &["range_max"]),
            same("ranges", &["ranges"]),
            same("intensities", &["intensities"]),
        ],
    ),
    archetype(
        "OccupancyGrid",
        &["nav_msgs/OccupancyGrid", "foxglove/Grid"],
        &[
            FRAME,
            same("resolution", &["info.resolution"]),
            vector("cell_size", &["cell_size"]),
            same("width", &["info.width", "column_count"]),
            same("height", &["info.height"]),
            vector("position", &["info.origin.position", "pose.position"]),
            vector(
                "orientation",
                &["info.origin.orientation", "pose.orientation"],
            ),
            same("map_load_time", &["info.map_load_time"]),
            same("row_stride", &["row_stride"]),
            same("cell_stride", &["cell_stride"]),
            same("fields", &["fields"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "Costmap",
        &["nav2_msgs/Costmap"],
        &[
            FRAME,
            same("resolution", &["metadata.resolution"]),
            same("width", &["metadata.size_x"]),
            same("height", &["metadata.size_y"]),
            vector("position", &["metadata.origin.position"]),
            vector("orientation", &["metadata.origin.orientation"]),
            same("layer", &["metadata.layer"]),
            same("map_load_time", &["metadata.map_load_time"]),
            same("update_time", &["metadata.update_time"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "GridUpdate",
        &["map_msgs/OccupancyGridUpdate", "nav2_msgs/CostmapUpdate"],
        &[
            FRAME,
            same("x", &["x"]),
            same("y", &["y"]),
            same("width", &["width", "size_x"]),
            same("height", &["height", "size_y"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "GridMap",
        &["grid_map_msgs/GridMap"],
        &[
            same("frame_id", &["header.frame_id", "info.header.frame_id"]),
            same("resolution", &["info.resolution"]),
            same("length_x", &["info.length_x"]),
            same("length_y", &["info.length_y"]),
            vector("position", &["info.pose.position"]),
            vector("orientation", &["info.pose.orientation"]),
            same("layers", &["layers"]),
            same("basic_layers", &["basic_layers"]),
            same("outer_start_index", &["outer_start_index"]),
            same("inner_start_index", &["inner_start_index"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "VoxelGrid",
        &[
            "nav2_msgs/VoxelGrid",
            "costmap_2d/VoxelGrid",
            "foxglove/VoxelGrid",
        ],
        &[
            FRAME,
            vector("position", &["origin", "pose.position"]),
            vector("orientation", &["pose.orientation"]),
            vector("cell_size", &["resolutions", "cell_size"]),
            same("size_x", &["size_x", "column_count"]),
            same("size_y", &["size_y", "row_count"]),
            same("size_z", &["size_z"]),
            same("slice_stride", &["slice_stride"]),
            same("row_stride", &["row_stride"]),
            same("cell_stride", &["cell_stride"]),
            same("fields", &["fields"]),
            same("data", &["data"]),
        ],
    ),
    archetype(
        "CameraInfo",
        &["sensor_msgs/CameraInfo", "foxglove/CameraCalibration"],
        &[
            FRAME,
            same("width", &["width"]),
            same("height", &["height"]),
            same("distortion_model", &["distortion_model"]),
            same("d", &["d", "D"]),
            same("k", &["k", "K"]),
            same("r", &["r", "R"]),
            same("p", &["p", "P"]),
            same("binning_x", &["binning_x"]),
            same("binning_y", &["binning_y"]),
            same("roi", &["roi"]),
        ],
    ),
    archetype(
        "Imu",
        &["sensor_msgs/Imu"],
        &[
            FRAME,
            vector("orientation", &["orientation"]),
            same("orientation_covariance", &["orientation_covariance"]),
            vector("angular_velocity", &["angular_velocity"]),
            same(
                "angular_velocity_covariance",
                &["angular_velocity_covariance"],
            ),
            vector("linear_acceleration", &["linear_acceleration"]),
            same(
                "linear_acceleration_covariance",
                &["linear_acceleration_covariance"],
            ),
        ],
    ),
    archetype(
        "Odometry",
        &["nav_msgs/Odometry", "foxglove/Odometry"],
        &[
            FRAME,
            same("child_frame", &["child_frame_id", "body_frame_id"]),
            vector("position", &["pose.pose.position", "pose.position"]),
            vector(
                "orientation",
                &["pose.pose.orientation", "pose.orientation"],
            ),
            same("pose_covariance", &["pose.covariance", "pose_covariance"]),
            vector(
                "linear_velocity",
                &["twist.twist.linear", "linear_velocity"],
            ),
            vector(
                "angular_velocity",
                &["twist.twist.angular", "angular_velocity"],
            ),
            same(
                "twist_covariance",
                &["twist.covariance", "velocity_covariance"],
            ),
        ],
    ),
    archetype(
        "Twist",
        &[
            "geometry_msgs/Twist",
            "geometry_msgs/TwistStamped",
            "geometry_msgs/TwistWithCovariance",
            "geometry_msgs/TwistWithCovarianceStamped",
        ],
        &[
            FRAME,
            vector("linear", &["twist.twist.linear", "twist.linear", "linear"]),
            vector(
                "angular",
                &["twist.twist.angular", "twist.angular", "angular"],
            ),
            same("covariance", &["twist.covariance", "covariance"]),
        ],
    ),
    archetype(
        "Wrench",
        &["geometry_msgs/Wrench", "geometry_msgs/WrenchStamped"],
        &[
            FRAME,
            vector("force", &["wrench.force", "force"]),
            vector("torque", &["wrench.torque", "torque"]),
        ],
    ),
    archetype(
        "Acceleration",
        &["geometry_msgs/Accel", "geometry_msgs/AccelStamped"],
        &[
            FRAME,
            vector("linear", &["accel.linear", "linear"]),
            vector("angular", &["accel.angular", "angular"]),
        ],
    ),
    archetype(
        "JointState",
        &["sensor_msgs/JointState", "foxglove/JointStates"],
        &[
            FRAME,
            same("name", &["name", "joints[].name"]),
            same("position", &["position", "joints[].position"]),
            same("velocity", &["velocity", "joints[].velocity"]),
            same("acceleration", &["joints[].acceleration"]),
            same("effort", &["effort", "joints[].effort"]),
        ],
    ),
    archetype(
        "NavSatFix",
        &["sensor_msgs/NavSatFix", "foxglove/LocationFix"],
        FIX,
    ),
    rows_of("fixes", "NavSatFix", &["foxglove/LocationFixes"], FIX_ROWS),
    archetype(
        "BatteryState",
        &["sensor_msgs/BatteryState"],
        &[
            FRAME,
            same("voltage", &["voltage"]),
            same("temperature", &["temperature"]),
            same("current", &["current"]),
            same("charge", &["charge"]),
            same("capacity", &["capacity"]),
            same("design_capacity", &["design_capacity"]),
            same("percentage", &["percentage"]),
            same("power_supply_status", &["power_supply_status"]),
            same("power_supply_health", &["power_supply_health"]),
            same("power_supply_technology", &["power_supply_technology"]),
            same("present", &["present"]),
            same("cell_voltage", &["cell_voltage"]),
            same("cell_temperature", &["cell_temperature"]),
            same("location", &["location"]),
            same("serial_number", &["serial_number"]),
        ],
    ),
    archetype(
        "MagneticField",
        &["sensor_msgs/MagneticField"],
        &[
            FRAME,
            vector("magnetic_field", &["magnetic_field"]),
            same("magnetic_field_covariance", &["magnetic_field_covariance"]),
        ],
    ),
    archetype(
        "Range",
        &["sensor_msgs/Range"],
        &[
            FRAME,
            same("radiation_type", &["radiation_type"]),
            same("field_of_view", &["field_of_view"]),
            same("min_range", &["min_range"]),
            same("max_range", &["max_range"]),
            same("range", &["range"]),
            same("variance", &["variance"]),
        ],
    ),
    measured!("Temperature", "sensor_msgs/Temperature", "temperature"),
    measured!("Pressure", "sensor_msgs/FluidPressure", "fluid_pressure"),
    measured!(
        "Humidity",
        "sensor_msgs/RelativeHumidity",
        "relative_humidity"
    ),
    measured!("Illuminance", "sensor_msgs/Illuminance", "illuminance"),
    archetype(
        "Joy",
        &["sensor_msgs/Joy"],
        &[
            FRAME,
            same("axes", &["axes"]),
            same("buttons", &["buttons"]),
        ],
    ),
    archetype(
        "Log",
        &["rcl_interfaces/Log", "rosgraph_msgs/Log", "foxglove/Log"],
        &[
            FRAME,
            same("level", &["level"]),
            same("name", &["name"]),
            same("message", &["msg", "message"]),
            same("file", &["file"]),
            same("function", &["function"]),
            same("line", &["line"]),
            same("topics", &["topics"]),
        ],
    ),
    archetype("Text", &["std_msgs/String"], &[same("value", &["data"])]),
    archetype(
        "Scalar",
        &[
            "std_msgs/Bool",
            "std_msgs/Byte",
            "std_msgs/Char",
            "std_msgs/Int8",
            "std_msgs/Int16",
            "std_msgs/Int32",
            "std_msgs/Int64",
            "std_msgs/UInt8",
            "std_msgs/UInt16",
            "std_msgs/UInt32",
            "std_msgs/UInt64",
            "std_msgs/Float32",
            "std_msgs/Float64",
        ],
        &[same("value", &["data"])],
    ),
    archetype(
        "Scalars",
        &[
            "std_msgs/ByteMultiArray",
            "std_msgs/Int8MultiArray",
            "std_msgs/Int16MultiArray",
            "std_msgs/Int32MultiArray",
            "std_msgs/Int64MultiArray",
            "std_msgs/UInt8MultiArray",
            "std_msgs/UInt16MultiArray",
            "std_msgs/UInt32MultiArray",
            "std_msgs/UInt64MultiArray",
            "std_msgs/Float32MultiArray",
            "std_msgs/Float64MultiArray",
            "std_msgs/Float64Array",
        ],
        &[same("values", &["data"]), same("layout", &["layout"])],
    ),
    archetype("Marker", &["visualization_msgs/Marker"], MARKER),
    rows_of(
        "markers",
        "Marker",
        &["visualization_msgs/MarkerArray"],
        MARKER,
    ),
    archetype(
        "Scene",
        &["foxglove/SceneUpdate"],
        &[
            same("deletions", &["deletions"]),
            same("entities", &["entities"]),
        ],
    ),
    archetype(
        "ImageAnnotations",
        &["foxglove/ImageAnnotations"],
        &[
            same("circles", &["circles"]),
            same("points", &["points"]),
            same("texts", &["texts"]),
        ],
    ),
    archetype(
        "GeoJson",
        &["foxglove/GeoJSON"],
        &[same("geojson", &["geojson"])],
    ),
    archetype(
        "Diagnostics",
        &["diagnostic_msgs/DiagnosticArray"],
        &[same("status", &["status"])],
    ),
];

/// Whether two messages of a type can be interpolated: not images, scans or texts.
pub(crate) fn has_between(type_name: &str) -> bool {
    const WITHOUT: [&str; 21] = [
        "Image",
        "CompressedImage",
        "CompressedVideo",
        "Audio",
        "PointCloud",
        "CompressedPointCloud",
        "LaserScan",
        "OccupancyGrid",
        "Costmap",
        "GridUpdate",
        "GridMap",
        "VoxelGrid",
        "Log",
        "Text",
        "Joy",
        "Marker",
        "Scene",
        "ImageAnnotations",
        "GeoJson",
        "Diagnostics",
        "CameraInfo",
    ];
    Archetype::of(type_name).is_none_or(|archetype| !WITHOUT.contains(&archetype.name))
}

/// `pkg/msg/Type`, `pkg::msg::dds_::Type_`, `pkg.Type` and `foxglove_msgs/msg/Type` as `package/Type`.
fn plain_name(type_name: &str) -> String {
    let parts: Vec<&str> = type_name
        .split(['/', '.', ':'])
        .filter(|part| !matches!(*part, "" | "msg" | "dds_"))
        .collect();
    let (Some(name), Some(package)) = (parts.last(), parts.first().filter(|_| parts.len() > 1))
    else {
        return type_name.to_owned();
    };
    let package = match *package {
        "foxglove_msgs" | "foxglove_schemas" => "foxglove",
        package => package,
    };
    format!("{package}/{}", name.strip_suffix('_').unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_however_its_name_is_written() {
        for name in [
            "sensor_msgs/msg/Imu",
            "sensor_msgs/Imu",
            "sensor_msgs::msg::dds_::Imu_",
        ] {
            assert_eq!(
                Archetype::of(name).map(|found| found.name),
                Some("Imu"),
                "{name}"
            );
        }
        for name in [
            "foxglove.RawImage",
            "foxglove_msgs/msg/RawImage",
            "foxglove_msgs/RawImage",
        ] {
            assert_eq!(
                Archetype::of(name).map(|found| found.name),
                Some("Image"),
                "{name}"
            );
        }
    }
}
