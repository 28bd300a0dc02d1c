//! The types that have a meaning, each defined once: `package/Type: kind name, kind name`.
//!
//! A kind without a package is a number, text, a time, or a type of the same package.

/// ROS's own, alike in ROS 1 and ROS 2 but for the header's `seq`.
pub const ROS: &str = "
std_msgs/Header: time stamp, string frame_id
std_msgs/ColorRGBA: float32 r, float32 g, float32 b, float32 a
std_msgs/MultiArrayDimension: string label, uint32 size, uint32 stride
std_msgs/MultiArrayLayout: MultiArrayDimension[] dim, uint32 data_offset
std_msgs/Bool: bool data
std_msgs/Byte: uint8 data
std_msgs/Char: uint8 data
std_msgs/Int8: int8 data
std_msgs/Int16: int16 data
std_msgs/Int32: int32 data
std_msgs/Int64: int64 data
std_msgs/UInt8: uint8 data
std_msgs/UInt16: uint16 data
std_msgs/UInt32: uint32 data
std_msgs/UInt64: uint64 data
std_msgs/Float32: float32 data
std_msgs/Float64: float64 data
std_msgs/String: string data
std_msgs/Float64Array: float64[] data
std_msgs/ByteMultiArray: MultiArrayLayout layout, uint8[] data
std_msgs/Int8MultiArray: MultiArrayLayout layout, int8[] data
std_msgs/Int16MultiArray: MultiArrayLayout layout, int16[] data
std_msgs/Int32MultiArray: MultiArrayLayout layout, int32[] data
std_msgs/Int64MultiArray: MultiArrayLayout layout, int64[] data
std_msgs/UInt8MultiArray: MultiArrayLayout layout, uint8[] data
std_msgs/UInt16MultiArray: MultiArrayLayout layout, uint16[] data
std_msgs/UInt32MultiArray: MultiArrayLayout layout, uint32[] data
std_msgs/UInt64MultiArray: MultiArrayLayout layout, uint64[] data
std_msgs/Float32MultiArray: MultiArrayLayout layout, float32[] data
std_msgs/Float64MultiArray: MultiArrayLayout layout, float64[] data
geometry_msgs/Vector3: float64 x, float64 y, float64 z
geometry_msgs/Point: float64 x, float64 y, float64 z
geometry_msgs/Point32: float32 x, float32 y, float32 z
geometry_msgs/Quaternion: float64 x, float64 y, float64 z, float64 w
geometry_msgs/Pose: Point position, Quaternion orientation
geometry_msgs/PoseStamped: std_msgs/Header header, Pose pose
geometry_msgs/PoseWithCovariance: Pose pose, float64[36] covariance
geometry_msgs/PoseWithCovarianceStamped: std_msgs/Header header, PoseWithCovariance pose
geometry_msgs/PoseArray: std_msgs/Header header, Pose[] poses
geometry_msgs/PointStamped: std_msgs/Header header, Point point
geometry_msgs/Polygon: Point32[] points
geometry_msgs/PolygonStamped: std_msgs/Header header, Polygon polygon
geometry_msgs/Transform: Vector3 translation, Quaternion rotation
geometry_msgs/TransformStamped: std_msgs/Header header, string child_frame_id, Transform transform
geometry_msgs/Twist: Vector3 linear, Vector3 angular
geometry_msgs/TwistStamped: std_msgs/Header header, Twist twist
geometry_msgs/TwistWithCovariance: Twist twist, float64[36] covariance
geometry_msgs/TwistWithCovarianceStamped: std_msgs/Header header, TwistWithCovariance twist
geometry_msgs/Wrench: Vector3 force, Vector3 torque
geometry_msgs/WrenchStamped: std_msgs/Header header, Wrench wrench
geometry_msgs/Accel: Vector3 linear, Vector3 angular
geometry_msgs/AccelStamped: std_msgs/Header header, Accel accel
tf2_msgs/TFMessage: geometry_msgs/TransformStamped[] transforms
tf/tfMessage: geometry_msgs/TransformStamped[] transforms
nav_msgs/Path: std_msgs/Header header, geometry_msgs/PoseStamped[] poses
nav_msgs/Odometry: std_msgs/Header header, string child_frame_id, geometry_msgs/PoseWithCovariance pose, geometry_msgs/TwistWithCovariance twist
nav_msgs/MapMetaData: time map_load_time, float32 resolution, uint32 width, uint32 height, geometry_msgs/Pose origin
nav_msgs/OccupancyGrid: std_msgs/Header header, MapMetaData info, int8[] data
nav2_msgs/CostmapMetaData: time map_load_time, time update_time, string layer, float32 resolution, uint32 size_x, uint32 size_y, geometry_msgs/Pose origin
nav2_msgs/Costmap: std_msgs/Header header, CostmapMetaData metadata, uint8[] data
nav2_msgs/CostmapUpdate: std_msgs/Header header, uint32 x, uint32 y, uint32 size_x, uint32 size_y, uint8[] data
map_msgs/OccupancyGridUpdate: std_msgs/Header header, int32 x, int32 y, uint32 width, uint32 height, int8[] data
audio_common_msgs/AudioData: uint8[] data
audio_common_msgs/AudioDataStamped: std_msgs/Header header, AudioData audio
grid_map_msgs/GridMapInfo: float64 resolution, float64 length_x, float64 length_y, geometry_msgs/Pose pose
grid_map_msgs/GridMap: std_msgs/Header header, GridMapInfo info, string[] layers, string[] basic_layers, std_msgs/Float32MultiArray[] data, uint16 outer_start_index, uint16 inner_start_index
nav2_msgs/VoxelGrid: std_msgs/Header header, uint32[] data, geometry_msgs/Point32 origin, geometry_msgs/Vector3 resolutions, uint32 size_x, uint32 size_y, uint32 size_z
costmap_2d/VoxelGrid: std_msgs/Header header, uint32[] data, geometry_msgs/Point32 origin, geometry_msgs/Vector3 resolutions, uint32 size_x, uint32 size_y, uint32 size_z
sensor_msgs/Image: std_msgs/Header header, uint32 height, uint32 width, string encoding, uint8 is_bigendian, uint32 step, uint8[] data
sensor_msgs/CompressedImage: std_msgs/Header header, string format, uint8[] data
ffmpeg_image_transport_msgs/FFMPEGPacket: std_msgs/Header header, int32 width, int32 height, string encoding, uint64 pts, uint8 flags, bool is_bigendian, uint8[] data
sensor_msgs/PointField: string name, uint32 offset, uint8 datatype, uint32 count
sensor_msgs/PointCloud2: std_msgs/Header header, uint32 height, uint32 width, PointField[] fields, bool is_bigendian, uint32 point_step, uint32 row_step, uint8[] data, bool is_dense
sensor_msgs/LaserScan: std_msgs/Header header, float32 angle_min, float32 angle_max, float32 angle_increment, float32 time_increment, float32 scan_time, float32 range_min, float32 range_max, float32[] ranges, float32[] intensities
sensor_msgs/RegionOfInterest: uint32 x_offset, uint32 y_offset, uint32 height, uint32 width, bool do_rectify
sensor_msgs/CameraInfo: std_msgs/Header header, uint32 height, uint32 width, string distortion_model, float64[] d, float64[9] k, float64[9] r, float64[12] p, uint32 binning_x, uint32 binning_y, RegionOfInterest roi
sensor_msgs/Imu: std_msgs/Header header, geometry_msgs/Quaternion orientation, float64[9] orientation_covariance, geometry_msgs/Vector3 angular_velocity, float64[9] angular_velocity_covariance, geometry_msgs/Vector3 linear_acceleration, float64[9] linear_acceleration_covariance
sensor_msgs/JointState: std_msgs/Header header, string[] name, float64[] position, float64[] velocity, float64[] effort
sensor_msgs/NavSatStatus: int8 status, uint16 service
sensor_msgs/NavSatFix: std_msgs/Header header, NavSatStatus status, float64 latitude, float64 longitude, float64 altitude, float64[9] position_covariance, uint8 position_covariance_type
sensor_msgs/BatteryState: std_msgs/Header header, float32 voltage, float32 temperature, float32 current, float32 charge, float32 capacity, float32 design_capacity, float32 percentage, uint8 power_supply_status, uint8 power_supply_health, uint8 power_supply_technology, bool present, float32[] cell_voltage, float32[] cell_temperature, string location, string serial_number
sensor_msgs/MagneticField: std_msgs/Header header, geometry_msgs/Vector3 magnetic_field, float64[9] magnetic_field_covariance
sensor_msgs/Range: std_msgs/Header header, uint8 radiation_type, float32 field_of_view, float32 min_range, float32 max_range, float32 range, float32 variance
sensor_msgs/Temperature: std_msgs/Header header, float64 temperature, float64 variance
sensor_msgs/FluidPressure: std_msgs/Header header, float64 fluid_pressure, float64 variance
sensor_msgs/RelativeHumidity: std_msgs/Header header, float64 relative_humidity, float64 variance
sensor_msgs/Illuminance: std_msgs/Header header, float64 illuminance, float64 variance
sensor_msgs/Joy: std_msgs/Header header, float32[] axes, int32[] buttons
rcl_interfaces/Log: time stamp, uint8 level, string name, string msg, string file, string function, uint32 line
rosgraph_msgs/Log: std_msgs/Header header, uint8 level, string name, string msg, string file, string function, uint32 line, string[] topics
visualization_msgs/Marker: std_msgs/Header header, string ns, int32 id, int32 type, int32 action, geometry_msgs/Pose pose, geometry_msgs/Vector3 scale, std_msgs/ColorRGBA color, duration lifetime, bool frame_locked, geometry_msgs/Point[] points, std_msgs/ColorRGBA[] colors, string text, string mesh_resource, bool mesh_use_embedded_materials
visualization_msgs/MarkerArray: Marker[] markers
diagnostic_msgs/KeyValue: string key, string value
diagnostic_msgs/DiagnosticStatus: uint8 level, string name, string message, string hardware_id, KeyValue[] values
diagnostic_msgs/DiagnosticArray: std_msgs/Header header, DiagnosticStatus[] status
";

/// Foxglove's, which come in protobuf, JSON, ROS and FlatBuffers.
pub const FOXGLOVE: &str = "
foxglove/Vector2: float64 x, float64 y
foxglove/Vector3: float64 x, float64 y, float64 z
foxglove/Point2: float64 x, float64 y
foxglove/Point3: float64 x, float64 y, float64 z
foxglove/Quaternion: float64 x, float64 y, float64 z, float64 w
foxglove/Pose: Vector3 position, Quaternion orientation
foxglove/Color: float64 r, float64 g, float64 b, float64 a
foxglove/PackedElementField: string name, uint32 offset, uint32 type
foxglove/FrameTransform: time timestamp, string parent_frame_id, string child_frame_id, Vector3 translation, Quaternion rotation
foxglove/FrameTransforms: FrameTransform[] transforms
foxglove/PoseInFrame: time timestamp, string frame_id, Pose pose
foxglove/PosesInFrame: time timestamp, string frame_id, Pose[] poses
foxglove/Point3InFrame: time timestamp, string frame_id, Point3 point
foxglove/RawImage: time timestamp, string frame_id, uint32 width, uint32 height, string encoding, uint32 step, uint8[] data
foxglove/CompressedImage: time timestamp, string frame_id, uint8[] data, string format
foxglove/CompressedVideo: time timestamp, string frame_id, uint8[] data, string format
foxglove/RawAudio: time timestamp, uint8[] data, string format, uint32 sample_rate, uint32 number_of_channels
foxglove/CompressedAudio: time timestamp, uint8[] data, string format, uint32 sample_rate, uint32 number_of_channels
foxglove/PointCloud: time timestamp, string frame_id, Pose pose, uint32 point_stride, PackedElementField[] fields, uint8[] data
foxglove/CompressedPointCloud: time timestamp, string frame_id, Pose pose, uint8[] data, string format
foxglove/LaserScan: time timestamp, string frame_id, Pose pose, float64 start_angle, float64 end_angle, float64[] ranges, float64[] intensities
foxglove/Grid: time timestamp, string frame_id, Pose pose, uint32 column_count, Vector2 cell_size, uint32 row_stride, uint32 cell_stride, PackedElementField[] fields, uint8[] data
foxglove/VoxelGrid: time timestamp, string frame_id, Pose pose, uint32 row_count, uint32 column_count, Vector3 cell_size, uint32 slice_stride, uint32 row_stride, uint32 cell_stride, PackedElementField[] fields, uint8[] data
foxglove/CameraCalibration: time timestamp, string frame_id, uint32 width, uint32 height, string distortion_model, float64[] D, float64[9] K, float64[9] R, float64[12] P
foxglove/Odometry: time timestamp, string frame_id, string body_frame_id, Pose pose, Vector3 linear_velocity, Vector3 angular_velocity, float64[36] pose_covariance, float64[36] velocity_covariance
foxglove/JointState: string name, float64 position, float64 velocity, float64 acceleration, float64 effort
foxglove/JointStates: time timestamp, JointState[] joints
foxglove/LocationFix: time timestamp, string frame_id, float64 latitude, float64 longitude, float64 altitude, float64[9] position_covariance, uint32 position_covariance_type
foxglove/LocationFixes: LocationFix[] fixes
foxglove/Log: time timestamp, uint32 level, string message, string name, string file, uint32 line
foxglove/KeyValuePair: string key, string value
foxglove/CubePrimitive: Pose pose, Vector3 size, Color color
foxglove/SceneEntity: time timestamp, string frame_id, string id, duration lifetime, bool frame_locked, KeyValuePair[] metadata, CubePrimitive[] cubes
foxglove/SceneEntityDeletion: time timestamp, uint32 type, string id
foxglove/SceneUpdate: SceneEntityDeletion[] deletions, SceneEntity[] entities
foxglove/CircleAnnotation: time timestamp, Point2 position, float64 diameter, float64 thickness, Color fill_color
foxglove/TextAnnotation: time timestamp, Point2 position, string text, float64 font_size, Color text_color
foxglove/ImageAnnotations: CircleAnnotation[] circles, TextAnnotation[] texts
foxglove/GeoJSON: string geojson
";

/// Types that are parts of others and are never sent alone.
pub const PARTS: &[&str] = &[
    "std_msgs/Header",
    "std_msgs/ColorRGBA",
    "std_msgs/MultiArrayDimension",
    "std_msgs/MultiArrayLayout",
    "geometry_msgs/Vector3",
    "geometry_msgs/Point",
    "geometry_msgs/Point32",
    "geometry_msgs/Quaternion",
    "geometry_msgs/Polygon",
    "geometry_msgs/Transform",
    "nav_msgs/MapMetaData",
    "nav2_msgs/CostmapMetaData",
    "grid_map_msgs/GridMapInfo",
    "sensor_msgs/PointField",
    "sensor_msgs/RegionOfInterest",
    "sensor_msgs/NavSatStatus",
    "diagnostic_msgs/KeyValue",
    "diagnostic_msgs/DiagnosticStatus",
    "foxglove/Vector2",
    "foxglove/Vector3",
    "foxglove/Point2",
    "foxglove/Point3",
    "foxglove/Quaternion",
    "foxglove/Pose",
    "foxglove/Color",
    "foxglove/PackedElementField",
    "foxglove/JointState",
    "foxglove/KeyValuePair",
    "foxglove/CubePrimitive",
    "foxglove/SceneEntity",
    "foxglove/SceneEntityDeletion",
    "foxglove/CircleAnnotation",
    "foxglove/TextAnnotation",
];
