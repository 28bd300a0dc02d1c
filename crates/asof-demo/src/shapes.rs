//! Recordings for benchmarks: any number of bytes, in the shapes that real robots record.
//!
//! Nothing is simulated here. Numbers drift and jitter like those of sensors, in steps of their
//! resolution, so that they compress about as well as real ones.

use std::sync::Arc;

use asof_core::{Channel, Message, Stamp};
use asof_ros::CdrWriter;
use bytes::Bytes;
use jpeg_encoder::{ColorType, Encoder};

use crate::DemoOptions;
use crate::random::Random;
use crate::readings::{Imu, Odometry, Quaternion, frame};
use crate::ros2;

/// Messages of one shape, sorted by log time, until there are enough bytes.
#[derive(Debug)]
pub struct Shapes {
    channels: Vec<Arc<Channel>>,
    sequences: Vec<u32>,
    /// Nanoseconds between two messages of a channel, and when its next one is due.
    periods: Vec<(i64, i64)>,
    start: Stamp,
    wanted: u64,
    made: u64,
    random: Random,
    maker: Maker,
}

#[derive(Debug)]
enum Maker {
    Small(Box<Small>),
    Large(Box<Large>),
}

/// Many small messages on ten topics, with at least this many payload bytes in total.
///
/// Four IMUs at 400 Hz, two odometries, transforms, two sets of twelve joints, and a command:
/// about 400 bytes a message, 2,200 messages for every second of the recording.
pub fn small_messages(seed: u64, payload_bytes: u64) -> Shapes {
    let topics: [(&str, &str, i64); 10] = [
        ("/imu/front", "sensor_msgs/msg/Imu", 2_500_000),
        ("/imu/rear", "sensor_msgs/msg/Imu", 2_500_000),
        ("/imu/left", "sensor_msgs/msg/Imu", 2_500_000),
        ("/imu/right", "sensor_msgs/msg/Imu", 2_500_000),
        ("/odom/wheels", "nav_msgs/msg/Odometry", 10_000_000),
        ("/odom/visual", "nav_msgs/msg/Odometry", 10_000_000),
        ("/tf", "tf2_msgs/msg/TFMessage", 10_000_000),
        (
            "/arm/joint_states",
            "sensor_msgs/msg/JointState",
            10_000_000,
        ),
        (
            "/legs/joint_states",
            "sensor_msgs/msg/JointState",
            10_000_000,
        ),
        ("/cmd_vel", "geometry_msgs/msg/Twist", 20_000_000),
    ];
    Shapes::new(
        seed,
        payload_bytes,
        &topics,
        Maker::Small(Box::new(Small::new())),
    )
}

/// A few large messages on four topics, with at least this many payload bytes in total.
///
/// Raw 1280 x 720 colour images, 848 x 480 depth images, clouds of 65,536 points and JPEGs of
/// about 150 kB, each ten times a second: about 48 MB for every second of the recording.
pub fn large_messages(seed: u64, payload_bytes: u64) -> Shapes {
    let topics: [(&str, &str, i64); 4] = [
        ("/camera/color", "sensor_msgs/msg/Image", 100_000_000),
        ("/camera/depth", "sensor_msgs/msg/Image", 100_000_000),
        ("/lidar/points", "sensor_msgs/msg/PointCloud2", 100_000_000),
        (
            "/camera/color/compressed",
            "sensor_msgs/msg/CompressedImage",
            100_000_000,
        ),
    ];
    let maker = Maker::Large(Box::new(Large::new(&mut Random::new(seed, 31))));
    Shapes::new(seed, payload_bytes, &topics, maker)
}

impl Shapes {
    fn new(seed: u64, wanted: u64, topics: &[(&str, &str, i64)], maker: Maker) -> Self {
        let channel = |&(topic, kind, _): &(&str, &str, i64)| {
            Arc::new(ros2::channel_of(topic, kind, "volatile"))
        };
        // Offset a little, so that no two messages have the same time.
        let periods = topics.iter().enumerate();
        Shapes {
            channels: topics.iter().map(channel).collect(),
            sequences: vec![0; topics.len()],
            periods: periods
                .map(|(index, &(_, _, period))| (period, 137_000 * index as i64))
                .collect(),
            start: DemoOptions::default().start,
            wanted,
            made: 0,
            random: Random::new(seed, 30),
            maker,
        }
    }

    /// Every channel of the messages.
    pub fn channels(&self) -> &[Arc<Channel>] {
        &self.channels
    }
}

impl Iterator for Shapes {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.made >= self.wanted {
            return None;
        }
        let due = |&index: &usize| (self.periods[index].1, index);
        let index = (0..self.periods.len()).min_by_key(due)?;
        let (period, nanos) = &mut self.periods[index];
        let sent = self.start.plus_nanos(*nanos);
        *nanos += *period;
        let payload = match &mut self.maker {
            Maker::Small(small) => small.payload(index, sent, &mut self.random),
            Maker::Large(large) => large.payload(index, sent, &mut self.random),
        };
        self.made += payload.len() as u64;
        let sequence = self.sequences[index];
        self.sequences[index] = sequence.wrapping_add(1);
        Some(Message {
            channel: Arc::clone(&self.channels[index]),
            log_time: sent.plus_nanos(90_000),
            publish_time: sent,
            sequence,
            payload,
        })
    }
}

/// The state of the small messages: values that drift.
#[derive(Debug)]
struct Small {
    tilts: [[f64; 3]; 4],
    poses: [[f64; 4]; 2],
    frames: [[f64; 6]; 8],
    joints: [[f64; 12]; 2],
}

const JOINTS: [[&str; 12]; 2] = [
    [
        "shoulder_pan",
        "shoulder_lift",
        "elbow",
        "wrist_1",
        "wrist_2",
        "wrist_3",
        "finger_1",
        "finger_2",
        "finger_3",
        "thumb_1",
        "thumb_2",
        "lift",
    ],
    [
        "front_left_hip",
        "front_left_thigh",
        "front_left_knee",
        "front_right_hip",
        "front_right_thigh",
        "front_right_knee",
        "rear_left_hip",
        "rear_left_thigh",
        "rear_left_knee",
        "rear_right_hip",
        "rear_right_thigh",
        "rear_right_knee",
    ],
];

const FRAMES: [(&str, &str); 8] = [
    ("map", "odom"),
    ("odom", "base_link"),
    ("base_link", "arm_base"),
    ("arm_base", "arm_link_1"),
    ("arm_link_1", "arm_link_2"),
    ("arm_link_2", "arm_link_3"),
    ("arm_link_3", "gripper"),
    ("base_link", "head"),
];

impl Small {
    fn new() -> Self {
        Small {
            tilts: [[0.0; 3]; 4],
            poses: [[0.0; 4]; 2],
            frames: [[0.0; 6]; 8],
            joints: [[0.0; 12]; 2],
        }
    }

    fn payload(&mut self, index: usize, sent: Stamp, random: &mut Random) -> Bytes {
        match index {
            0..4 => self.imu(index, sent, random),
            4..6 => self.odometry(index - 4, sent, random),
            6 => self.transforms(sent, random),
            7..9 => self.joint_states(index - 7, sent, random),
            _ => command(random),
        }
    }

    fn imu(&mut self, index: usize, sent: Stamp, random: &mut Random) -> Bytes {
        const FRAMES: [&str; 4] = ["imu_front", "imu_rear", "imu_left", "imu_right"];
        let tilt = &mut self.tilts[index];
        for value in tilt.iter_mut() {
            *value += random.noise(2e-5);
        }
        // Filtered and calibrated on the sensor: no two values are the same.
        let mut around = |mean: f64, deviation: f64| mean + random.noise(deviation);
        let reading = Imu {
            orientation: rotation(*tilt),
            angular_velocity: [around(0.0, 0.003), around(0.0, 0.003), around(0.1, 0.003)],
            linear_acceleration: [around(0.1, 0.04), around(-0.2, 0.04), around(9.81, 0.04)],
        };
        let mut cdr = CdrWriter::with_capacity(332);
        ros2::imu_in(&mut cdr, sent, FRAMES[index], &reading);
        cdr.finish().into()
    }

    fn odometry(&mut self, index: usize, sent: Stamp, random: &mut Random) -> Bytes {
        let [x, y, heading, speed] = &mut self.poses[index];
        *speed = 0.98 * *speed + 0.01 + random.noise(0.005);
        *heading += random.noise(0.002);
        *x += *speed * 0.01;
        *y += random.noise(0.0005);
        let mut cdr = CdrWriter::with_capacity(736);
        ros2::header(&mut cdr, sent, frame::ODOM);
        cdr.string(frame::BASE);
        ros2::vector(&mut cdr, [*x, *y, 0.0]);
        ros2::quaternion(&mut cdr, rotation([0.0, 0.0, *heading]));
        // An estimator's variances jitter with its pose.
        let mut trembling = |value: f64| value * (1.0 + random.noise(0.01));
        cdr.float64s(&ros2::diagonal(
            Odometry::POSE_VARIANCES.map(&mut trembling),
        ));
        ros2::vector(&mut cdr, [*speed, 0.0, 0.0]);
        ros2::vector(&mut cdr, [0.0, 0.0, trembling(0.1)]);
        cdr.float64s(&ros2::diagonal(Odometry::VELOCITY_VARIANCES));
        cdr.finish().into()
    }

    fn transforms(&mut self, sent: Stamp, random: &mut Random) -> Bytes {
        let mut cdr = CdrWriter::with_capacity(900);
        cdr.length(FRAMES.len());
        for (names, place) in FRAMES.into_iter().zip(&mut self.frames) {
            for value in place.iter_mut() {
                *value += random.noise(0.001);
            }
            let [x, y, z, tilt @ ..] = *place;
            ros2::transform_stamped(&mut cdr, sent, names, [x, y, z], rotation(tilt));
        }
        cdr.finish().into()
    }

    fn joint_states(&mut self, index: usize, sent: Stamp, random: &mut Random) -> Bytes {
        let angles = &mut self.joints[index];
        for angle in angles.iter_mut() {
            *angle = (*angle + random.noise(0.004)).clamp(-2.5, 2.5);
        }
        let positions = angles.map(|angle| in_steps(angle, std::f64::consts::TAU / 65536.0));
        let speeds = angles.map(|_| random.noise(0.4));
        let efforts = angles.map(|angle| in_steps(4.0 * angle + random.noise(0.3), 1.0 / 64.0));
        let mut cdr = CdrWriter::with_capacity(720);
        ros2::joint_state(
            &mut cdr,
            sent,
            &JOINTS[index],
            &positions,
            &speeds,
            &efforts,
        );
        cdr.finish().into()
    }
}

fn command(random: &mut Random) -> Bytes {
    let mut cdr = CdrWriter::with_capacity(48);
    ros2::vector(
        &mut cdr,
        [in_steps(random.between(0.0, 0.8), 0.01), 0.0, 0.0],
    );
    ros2::vector(&mut cdr, [0.0, 0.0, in_steps(random.noise(0.5), 0.01)]);
    cdr.finish().into()
}

/// A rotation by small angles around the three axes, of length one.
fn rotation([x, y, z]: [f64; 3]) -> Quaternion {
    let (x, y, z) = (x / 2.0, y / 2.0, z / 2.0);
    let length = (1.0 + x * x + y * y + z * z).sqrt();
    [x / length, y / length, z / length, 1.0 / length]
}

/// The nearest multiple of a sensor's resolution.
fn in_steps(value: f64, step: f64) -> f64 {
    (value / step).round() * step
}

/// The state of the large messages: a scene that is drawn once and then scrolls and jitters.
#[derive(Debug)]
struct Large {
    colour: Vec<u8>,
    depth: Vec<u16>,
    cloud: Vec<[f32; 4]>,
    jpegs: Vec<Bytes>,
    frames: u64,
}

const COLOUR: (usize, usize) = (1280, 720);
const DEPTH: (usize, usize) = (848, 480);
const POINTS: usize = 65_536;

impl Large {
    fn new(random: &mut Random) -> Self {
        let colour = colour_scene(random);
        let jpegs = (0..8).map(|turn| jpeg(&colour, turn, random)).collect();
        let depth = (0..DEPTH.0 * DEPTH.1).map(|at| {
            let (x, y) = ((at % DEPTH.0) as u16, (at / DEPTH.0) as u16);
            let is_post = x % 200 < 40 && y > 120;
            if is_post {
                900 + x
            } else {
                4000 - 4 * y.min(400)
            }
        });
        let depth = depth.collect();
        let cloud = (0..POINTS).map(|at| {
            let (ring, column) = ((at % 64) as f64, (at / 64) as f64);
            let (sin, cos) = libm::sincos(column / 1024.0 * std::f64::consts::TAU);
            let range = 4.0 + 3.0 * sin * cos + 0.02 * ring;
            let up = (ring - 32.0) * 0.02 * range;
            let strength = random.between(0.0, 255.0).round();
            [range * cos, range * sin, up, strength].map(|value| value as f32)
        });
        Large {
            colour,
            depth,
            cloud: cloud.collect(),
            jpegs,
            frames: 0,
        }
    }

    fn payload(&mut self, index: usize, sent: Stamp, random: &mut Random) -> Bytes {
        match index {
            0 => self.colour_image(sent, random),
            1 => self.depth_image(sent, random),
            2 => self.point_cloud(sent, random),
            _ => self.compressed_image(sent),
        }
    }

    fn colour_image(&mut self, sent: Stamp, random: &mut Random) -> Bytes {
        self.frames += 1;
        let (width, height) = COLOUR;
        let mut cdr = CdrWriter::with_capacity(self.colour.len() + 96);
        ros2::header(&mut cdr, sent, "camera_optical");
        cdr.uint32(height as u32)
            .uint32(width as u32)
            .string("rgb8")
            .byte(0)
            .uint32(width as u32 * 3);
        // The scene scrolls, and part of its pixels flicker in their lowest bit.
        let mut data = self.colour.clone();
        data.rotate_left(self.frames as usize * 24 % self.colour.len());
        for eight in data.chunks_exact_mut(8) {
            let flicker = random.bits() & random.bits() & random.bits() & 0x0101_0101_0101_0101;
            for (byte, change) in eight.iter_mut().zip(flicker.to_le_bytes()) {
                *byte ^= change;
            }
        }
        cdr.blob(&data);
        cdr.finish().into()
    }

    fn depth_image(&mut self, sent: Stamp, random: &mut Random) -> Bytes {
        let (width, height) = DEPTH;
        let mut data = Vec::with_capacity(width * height * 2);
        for four in self.depth.chunks_exact(4) {
            let noise = random.bits();
            for (at, millimetres) in four.iter().enumerate() {
                let shake = (noise >> (16 * at) & 3) as u16;
                data.extend_from_slice(&(millimetres + shake).to_le_bytes());
            }
        }
        let mut cdr = CdrWriter::with_capacity(data.len() + 96);
        ros2::header(&mut cdr, sent, "camera_optical");
        cdr.uint32(height as u32)
            .uint32(width as u32)
            .string("16UC1")
            .byte(0)
            .uint32(width as u32 * 2)
            .blob(&data);
        cdr.finish().into()
    }

    fn point_cloud(&mut self, sent: Stamp, random: &mut Random) -> Bytes {
        let mut data = Vec::with_capacity(POINTS * 16);
        for point in &self.cloud {
            let bits = random.bits();
            for (at, &value) in point.iter().enumerate() {
                // To the half millimetre: below that a laser measures only noise.
                let shake = (bits >> (8 * at) & 15) as f32 - 8.0;
                let value = if at == 3 {
                    value
                } else {
                    (value * 2048.0 + shake).round() / 2048.0
                };
                data.extend_from_slice(&value.to_le_bytes());
            }
        }
        let mut cdr = CdrWriter::with_capacity(data.len() + 256);
        ros2::header(&mut cdr, sent, "lidar");
        cdr.uint32(1).uint32(POINTS as u32).length(4);
        for (at, name) in ["x", "y", "z", "intensity"].into_iter().enumerate() {
            // 7 is a 32-bit float.
            cdr.string(name).uint32(4 * at as u32).byte(7).uint32(1);
        }
        cdr.boolean(false)
            .uint32(16)
            .uint32(16 * POINTS as u32)
            .blob(&data)
            .boolean(true);
        cdr.finish().into()
    }

    fn compressed_image(&mut self, sent: Stamp) -> Bytes {
        let jpeg = &self.jpegs[self.frames as usize % self.jpegs.len()];
        let mut cdr = CdrWriter::with_capacity(jpeg.len() + 64);
        ros2::compressed_image(&mut cdr, sent, "camera_optical", jpeg);
        cdr.finish().into()
    }
}

/// Soft gradients, some hard edges, a few grainy patches.
fn colour_scene(random: &mut Random) -> Vec<u8> {
    let (width, height) = COLOUR;
    let mut scene = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            let is_grainy = (x / 160 + y / 120) % 3 == 0;
            let grain = if is_grainy { random.bits() & 0x0f } else { 0 } as usize;
            let block = (x / 80 * 37 + y / 60 * 59) % 128;
            scene.push((block + y / 8 + grain) as u8);
            scene.push((block + x / 16 + grain) as u8);
            scene.push((100 + block / 2 + (x + y) / 32 + grain) as u8);
        }
    }
    scene
}

fn jpeg(scene: &[u8], turn: usize, random: &mut Random) -> Bytes {
    let mut noisy = scene.to_vec();
    noisy.rotate_left(turn * 240);
    for byte in &mut noisy {
        *byte = byte.saturating_add((random.bits() & 7) as u8);
    }
    let mut jpeg = Vec::new();
    let encoder = Encoder::new(&mut jpeg, 91);
    let drawn = encoder.encode(&noisy, COLOUR.0 as u16, COLOUR.1 as u16, ColorType::Rgb);
    debug_assert!(drawn.is_ok());
    jpeg.into()
}
