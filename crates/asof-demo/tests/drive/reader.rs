//! A small reader of little-endian CDR, and the default drive, decoded once for all tests.

use std::sync::LazyLock;

use asof_core::{Message, Stamp};
use asof_demo::{Demo, DemoOptions, PlanarPose};

/// The default drive of thirty seconds in CDR.
pub static DRIVE: LazyLock<Vec<Message>> =
    LazyLock::new(|| Demo::new(DemoOptions::default()).messages().collect());

/// Where the robot really was during it.
pub static TRUTH: LazyLock<Vec<(Stamp, PlanarPose)>> =
    LazyLock::new(|| Demo::new(DemoOptions::default()).truth().collect());

/// The messages of one topic.
pub fn on(topic: &str) -> impl Iterator<Item = &'static Message> {
    DRIVE
        .iter()
        .filter(move |message| message.channel.topic == topic)
}

/// Where the robot really was when a message was sent.
pub fn truth_at(stamp: Stamp) -> PlanarPose {
    let index = TRUTH.binary_search_by_key(&stamp, |(stamp, _)| *stamp);
    TRUTH[index.expect("messages are sent on steps of the simulation")].1
}

/// Reads values one after the other.
pub struct Cdr<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Cdr<'a> {
    pub fn new(payload: &'a [u8]) -> Self {
        assert_eq!(payload[..4], [0, 1, 0, 0], "little-endian CDR");
        Cdr {
            body: &payload[4..],
            at: 0,
        }
    }

    /// Nothing is left.
    pub fn end(self) {
        assert_eq!(self.at, self.body.len(), "bytes are left over");
    }

    pub fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    pub fn uint32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub fn float32(&mut self) -> f32 {
        f32::from_le_bytes(self.take())
    }

    pub fn float64(&mut self) -> f64 {
        f64::from_le_bytes(self.take())
    }

    pub fn float64s<const N: usize>(&mut self) -> [f64; N] {
        std::array::from_fn(|_| self.float64())
    }

    pub fn float32_sequence(&mut self) -> Vec<f32> {
        (0..self.uint32()).map(|_| self.float32()).collect()
    }

    pub fn float64_sequence(&mut self) -> Vec<f64> {
        (0..self.uint32()).map(|_| self.float64()).collect()
    }

    pub fn blob(&mut self) -> &'a [u8] {
        let length = self.uint32() as usize;
        self.at += length;
        &self.body[self.at - length..self.at]
    }

    pub fn string(&mut self) -> &'a str {
        let bytes = self.blob();
        let (zero, text) = bytes.split_last().expect("a string has its closing zero");
        assert_eq!(*zero, 0);
        std::str::from_utf8(text).expect("a string is UTF-8")
    }

    pub fn stamp(&mut self) -> Stamp {
        let sec = self.uint32().cast_signed();
        Stamp::from_ros2(sec, self.uint32()).expect("a valid time")
    }

    /// Stamp and frame.
    pub fn header(&mut self) -> (Stamp, &'a str) {
        (self.stamp(), self.string())
    }

    /// Place and heading from a position or translation and a quaternion around the vertical.
    pub fn pose(&mut self) -> PlanarPose {
        let [x, y, _] = self.float64s();
        let [_, _, z, w]: [f64; 4] = self.float64s();
        assert!(
            (z * z + w * w - 1.0).abs() < 1e-6,
            "a rotation has length 1"
        );
        PlanarPose::new(x, y, 2.0 * z.atan2(w))
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.at = self.at.next_multiple_of(N) + N;
        self.body[self.at - N..self.at].try_into().expect("N bytes")
    }
}

/// What `/odom` says.
pub struct Odometry {
    pub stamp: Stamp,
    pub pose: PlanarPose,
    pub linear: f64,
    pub angular: f64,
}

pub fn odometry() -> Vec<Odometry> {
    let read = |message: &Message| {
        let mut cdr = Cdr::new(&message.payload);
        let (stamp, frame) = cdr.header();
        assert_eq!((frame, cdr.string()), ("odom", "base_link"));
        let pose = cdr.pose();
        let _covariance: [f64; 36] = cdr.float64s();
        let [linear, _, _] = cdr.float64s();
        let [_, _, angular] = cdr.float64s();
        let _covariance: [f64; 36] = cdr.float64s();
        cdr.end();
        Odometry {
            stamp,
            pose,
            linear,
            angular,
        }
    };
    on("/odom").map(read).collect()
}

/// What a message on `/tf` or `/tf_static` says: stamp, parent, child, pose on the floor.
pub fn transforms(message: &Message) -> Vec<(Stamp, &str, &str, [f64; 7])> {
    let mut cdr = Cdr::new(&message.payload);
    let count = cdr.uint32();
    let each = (0..count).map(|_| {
        let (stamp, parent) = cdr.header();
        (stamp, parent, cdr.string(), cdr.float64s())
    });
    let all = each.collect();
    cdr.end();
    all
}

pub fn flat([x, y, _, _, _, z, w]: [f64; 7]) -> PlanarPose {
    PlanarPose::new(x, y, 2.0 * z.atan2(w))
}

/// The smaller way around from one angle to the other.
pub fn turn_between(from: f64, to: f64) -> f64 {
    PlanarPose::new(0.0, 0.0, to - from).heading
}
