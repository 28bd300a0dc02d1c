//! Definitions of ROS 2 message types, in the form that rosbag2 writes into a recording.

use std::fmt::Write as _;

/// The definition of a type and, after lines of `=`, of its dependencies.
pub(crate) fn definition(name: &str) -> String {
    let mut names = vec![name.to_owned()];
    let mut text = String::new();
    let mut done = 0;
    while done < names.len() {
        let fields = fields(&names[done]);
        if done > 0 {
            let rule = "=".repeat(80);
            let short = names[done].replace("/msg/", "/");
            // Writing to a String cannot fail.
            let _ = write!(text, "{rule}\nMSG: {short}\n");
        }
        text.push_str(fields);
        for line in fields.lines() {
            let kind = line.split([' ', '[']).next().unwrap_or_default();
            if let Some((package, short)) = kind.split_once('/') {
                let full = format!("{package}/msg/{short}");
                if !names.contains(&full) {
                    names.push(full);
                }
            }
        }
        done += 1;
    }
    text
}

/// The fields of one type, a line each; empty for a type that the robot does not use.
fn fields(name: &str) -> &'static str {
    TYPES
        .iter()
        .find(|(known, _)| *known == name)
        .map_or("", |(_, fields)| fields)
}

const TYPES: &[(&str, &str)] = &[
    ("builtin_interfaces/msg/Time", "int32 sec\nuint32 nanosec\n"),
    (
        "std_msgs/msg/Header",
        "builtin_interfaces/Time stamp\nstring frame_id\n",
    ),
    ("std_msgs/msg/Bool", "bool data\n"),
    (
        "geometry_msgs/msg/Vector3",
        "float64 x\nfloat64 y\nfloat64 z\n",
    ),
    (
        "geometry_msgs/msg/Point",
        "float64 x\nfloat64 y\nfloat64 z\n",
    ),
    (
        "geometry_msgs/msg/Quaternion",
        "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n",
    ),
    (
        "geometry_msgs/msg/Pose",
        "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
    ),
    (
        "geometry_msgs/msg/PoseWithCovariance",
        "geometry_msgs/Pose pose\nfloat64[36] covariance\n",
    ),
    (
        "geometry_msgs/msg/Twist",
        "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n",
    ),
    (
        "geometry_msgs/msg/TwistWithCovariance",
        "geometry_msgs/Twist twist\nfloat64[36] covariance\n",
    ),
    (
        "geometry_msgs/msg/Transform",
        "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n",
    ),
    (
        "geometry_msgs/msg/TransformStamped",
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n",
    ),
    (
        "tf2_msgs/msg/TFMessage",
        "geometry_msgs/TransformStamped[] transforms\n",
    ),
    (
        "nav_msgs/msg/Odometry",
        "std_msgs/Header header\nstring child_frame_id\n\
         geometry_msgs/PoseWithCovariance pose\ngeometry_msgs/TwistWithCovariance twist\n",
    ),
    (
        "nav_msgs/msg/MapMetaData",
        "builtin_interfaces/Time map_load_time\nfloat32 resolution\nuint32 width\nuint32 height\n\
         geometry_msgs/Pose origin\n",
    ),
    (
        "nav_msgs/msg/OccupancyGrid",
        "std_msgs/Header header\nnav_msgs/MapMetaData info\nint8[] data\n",
    ),
    (
        "sensor_msgs/msg/LaserScan",
        "std_msgs/Header header\nfloat32 angle_min\nfloat32 angle_max\nfloat32 angle_increment\n\
         float32 time_increment\nfloat32 scan_time\nfloat32 range_min\nfloat32 range_max\n\
         float32[] ranges\nfloat32[] intensities\n",
    ),
    (
        "sensor_msgs/msg/Imu",
        "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\n\
         float64[9] orientation_covariance\ngeometry_msgs/Vector3 angular_velocity\n\
         float64[9] angular_velocity_covariance\ngeometry_msgs/Vector3 linear_acceleration\n\
         float64[9] linear_acceleration_covariance\n",
    ),
    (
        "sensor_msgs/msg/JointState",
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\n\
         float64[] effort\n",
    ),
    (
        "sensor_msgs/msg/CompressedImage",
        "std_msgs/Header header\nstring format\nuint8[] data\n",
    ),
    (
        "sensor_msgs/msg/Image",
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\n\
         uint8 is_bigendian\nuint32 step\nuint8[] data\n",
    ),
    (
        "sensor_msgs/msg/PointField",
        "uint8 INT8=1\nuint8 UINT8=2\nuint8 INT16=3\nuint8 UINT16=4\nuint8 INT32=5\n\
         uint8 UINT32=6\nuint8 FLOAT32=7\nuint8 FLOAT64=8\nstring name\nuint32 offset\n\
         uint8 datatype\nuint32 count\n",
    ),
    (
        "sensor_msgs/msg/PointCloud2",
        "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\n\
         bool is_bigendian\nuint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n",
    ),
    (
        "rcl_interfaces/msg/Log",
        "byte DEBUG=10\nbyte INFO=20\nbyte WARN=30\nbyte ERROR=40\nbyte FATAL=50\n\
         builtin_interfaces/Time stamp\nuint8 level\nstring name\nstring msg\nstring file\n\
         string function\nuint32 line\n",
    ),
    ("diagnostic_msgs/msg/KeyValue", "string key\nstring value\n"),
    (
        "diagnostic_msgs/msg/DiagnosticStatus",
        "byte OK=0\nbyte WARN=1\nbyte ERROR=2\nbyte STALE=3\nbyte level\nstring name\n\
         string message\nstring hardware_id\ndiagnostic_msgs/KeyValue[] values\n",
    ),
    (
        "diagnostic_msgs/msg/DiagnosticArray",
        "std_msgs/Header header\ndiagnostic_msgs/DiagnosticStatus[] status\n",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_brings_everything_that_it_is_made_of_once() {
        let text = definition("nav_msgs/msg/Odometry");
        let parts: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("MSG: "))
            .collect();
        assert_eq!(
            parts,
            [
                "std_msgs/Header",
                "geometry_msgs/PoseWithCovariance",
                "geometry_msgs/TwistWithCovariance",
                "builtin_interfaces/Time",
                "geometry_msgs/Pose",
                "geometry_msgs/Twist",
                "geometry_msgs/Point",
                "geometry_msgs/Quaternion",
                "geometry_msgs/Vector3",
            ]
        );
    }

    #[test]
    fn every_type_that_a_field_names_is_defined() {
        for (name, _) in TYPES {
            for part in definition(name)
                .lines()
                .filter_map(|line| line.strip_prefix("MSG: "))
            {
                let full = part.replace('/', "/msg/");
                assert!(!fields(&full).is_empty(), "{name} needs {full}");
            }
        }
    }
}
