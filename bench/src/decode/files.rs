//! The recordings of the suite, made once and kept: the shapes of six kinds of robots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use asof_core::{Channel, Message, Schema, Stamp};
use asof_formats::{Compression, McapWriter, McapWriterOptions};

use super::proto;

pub struct Files {
    /// Small CDR messages: IMUs, odometry, transforms, joints. zstd, chunks of 768 KiB.
    pub a: PathBuf,
    /// Large CDR messages: pictures, depth, clouds, JPEG. lz4, chunks of 4 MiB.
    pub b: PathBuf,
    /// One custom type of some 110 leaves in 1.4 kB. zstd.
    pub c: PathBuf,
    /// Small Foxglove messages in protobuf. zstd.
    pub d1: PathBuf,
    /// Large Foxglove messages in protobuf. zstd.
    pub d2: PathBuf,
    /// Small, large and custom messages, interleaved. zstd, chunks of 4 MiB.
    pub e: PathBuf,
    /// The same, and a topic with twelve messages.
    pub e2: PathBuf,
    /// The same without compression.
    pub e3: PathBuf,
    /// The same as `e`, of more than a gigabyte. lz4, chunks of 4 MiB.
    pub large: PathBuf,
}

const MB: u64 = 1 << 20;

/// What part of their size the recordings have, in percent: a small one for a quick look.
fn percent() -> u64 {
    let text = std::env::var("ASOF_DECODE_PERCENT").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(100)
}

impl Files {
    pub fn prepare(wanted: impl Fn(&str) -> bool) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/data");
        std::fs::create_dir_all(&folder).expect("a folder for recordings");
        let percent = percent();
        let at = |name: &str| folder.join(format!("{name}-{percent}.mcap"));
        let part = |whole: u64| whole * percent / 100;
        let zstd = (Compression::Zstd, 768 << 10);
        let large_zstd = (Compression::Zstd, 4 << 20);
        let plain = (Compression::None, 4 << 20);
        let lz4 = (Compression::Lz4, 4 << 20);
        let files = Files {
            a: at("decode-a"),
            b: at("decode-b"),
            c: at("decode-c"),
            d1: at("decode-d1"),
            d2: at("decode-d2"),
            e: at("decode-e"),
            e2: at("decode-e2"),
            e3: at("decode-e3"),
            large: at("decode-large"),
        };
        if wanted("a_") || wanted("semantic") {
            make(&files.a, zstd, asof_demo::small_messages(7, part(290 * MB)));
        }
        if wanted("b_") {
            make(&files.b, lz4, asof_demo::large_messages(7, part(300 * MB)));
        }
        if wanted("c_") {
            make(&files.c, zstd, custom(part(180_000) as u32));
        }
        if wanted("d1_") {
            make(&files.d1, zstd, proto::small(part(330_000) as u32));
        }
        if wanted("d2_") {
            make(&files.d2, zstd, proto::large(part(280) as u32));
        }
        if wanted("e_") {
            make(&files.e, large_zstd, mixed(percent, false));
        }
        if wanted("e2_") {
            make(&files.e2, large_zstd, mixed(percent, true));
        }
        if wanted("e3_") {
            make(&files.e3, plain, mixed(percent, true));
        }
        if wanted("peak_memory") {
            let lz4 = (Compression::Lz4, super::memory::CHUNK_SIZE);
            make(&files.large, lz4, mixed(4 * percent, false));
        }
        files
    }
}

fn make(
    path: &Path,
    (compression, chunk_size): (Compression, u64),
    messages: impl Iterator<Item = Message>,
) {
    if path.exists() {
        return;
    }
    eprintln!("making {}", path.display());
    let part = path.with_extension("part");
    let options = McapWriterOptions {
        compression,
        chunk_size,
        chunk_age: None,
        profile: "ros2".to_owned(),
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(&part, options).expect("a new file");
    for message in messages {
        writer.write(&message).expect("room on the disk");
    }
    writer.finish().expect("room on the disk");
    std::fs::rename(&part, path).expect("a rename");
}

/// Small messages, clouds and JPEG, custom messages, by their times, all over the same 37 seconds; and twelve
/// events if wanted.
fn mixed(percent: u64, has_events: bool) -> impl Iterator<Item = Message> {
    let part = |whole: u64| whole * percent / 100;
    let is_kept = |m: &Message| {
        matches!(
            &*m.channel.topic,
            "/lidar/points" | "/camera/color/compressed"
        )
    };
    let mut sources: Vec<std::iter::Peekable<Box<dyn Iterator<Item = Message>>>> = vec![
        (Box::new(asof_demo::small_messages(3, part(30 * MB)))
            as Box<dyn Iterator<Item = Message>>)
            .peekable(),
        (Box::new(
            asof_demo::large_messages(3, u64::MAX)
                .filter(is_kept)
                .take(2 * part(370) as usize),
        ) as Box<dyn Iterator<Item = Message>>)
            .peekable(),
        (Box::new(custom(part(14_800) as u32)) as Box<dyn Iterator<Item = Message>>).peekable(),
    ];
    if has_events {
        sources.push((Box::new(events()) as Box<dyn Iterator<Item = Message>>).peekable());
    }
    std::iter::from_fn(move || {
        let next = sources
            .iter_mut()
            .enumerate()
            .filter_map(|(at, source)| Some((source.peek()?.log_time, at)))
            .min()?;
        sources[next.1].next()
    })
}

fn start() -> Stamp {
    asof_demo::DemoOptions::default().start
}

fn events() -> impl Iterator<Item = Message> {
    let channel = ros2("/events", "std_msgs/msg/String", "string data\n");
    (0..12).map(move |at| {
        let mut cdr = Cdr::default();
        cdr.text(&format!("event number {at}"));
        message(
            &channel,
            start().plus_nanos(at * 3_000_000_000 + 5),
            at as u32,
            cdr.finish(),
        )
    })
}

const CUSTOM: &str = "\
std_msgs/Header header
string mission
uint32 step
Arm[4] arms
Motor[6] motors
float32[32] currents
uint16[] faults
string[] notes
geometry_msgs/Pose[] plan
uint8[] blob
================================================================================
MSG: bench_msgs/Arm
string name
float64[7] joints
geometry_msgs/Pose tip
bool closed
float32 force
================================================================================
MSG: bench_msgs/Motor
uint8 id
int16 temperature
float32 rpm
float32 current
uint64 ticks
bool enabled
================================================================================
MSG: geometry_msgs/Pose
geometry_msgs/Point position
geometry_msgs/Quaternion orientation
================================================================================
MSG: geometry_msgs/Point
float64 x
float64 y
float64 z
================================================================================
MSG: geometry_msgs/Quaternion
float64 x
float64 y
float64 z
float64 w
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
";

fn ros2(topic: &str, name: &str, text: &str) -> Arc<Channel> {
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(Arc::new(Schema {
            name: name.to_owned(),
            encoding: "ros2msg".to_owned(),
            data: text.to_owned().into(),
        })),
        ..Channel::default()
    })
}

pub fn message(channel: &Arc<Channel>, at: Stamp, sequence: u32, payload: Vec<u8>) -> Message {
    Message {
        channel: Arc::clone(channel),
        log_time: at.plus_nanos(80_000),
        publish_time: at,
        sequence,
        payload: payload.into(),
    }
}

fn custom(count: u32) -> impl Iterator<Item = Message> {
    let channel = ros2("/state", "bench_msgs/msg/State", CUSTOM);
    let mut noise = Noise(7);
    (0..count).map(move |at| {
        let stamp = start().plus_nanos(i64::from(at) * 2_500_000);
        let mut cdr = Cdr::default();
        let (sec, nanosec) = stamp.to_ros2().unwrap_or_default();
        cdr.word(&sec.to_le_bytes());
        cdr.word(&nanosec.to_le_bytes());
        cdr.text("base_link");
        cdr.text("survey of the north field");
        cdr.word(&at.to_le_bytes());
        for name in ["left_front", "right_front", "left_rear", "right_rear"] {
            cdr.text(name);
            // Joints are counted in steps, the tip's pose is computed: there a double's every bit counts.
            for _ in 0..7 {
                cdr.word(&noise.float(4096.0).to_le_bytes());
            }
            for part in 0..7 {
                let value = (f64::from(at) * 0.0025 + f64::from(part)).sin();
                cdr.word(&(value + noise.float(4096.0) * 1e-3).to_le_bytes());
            }
            cdr.word(&[u8::from(noise.next() & 15 == 0)]);
            cdr.word(&(noise.float(64.0) as f32).to_le_bytes());
        }
        for id in 0..6u8 {
            cdr.word(&[id]);
            cdr.word(&((noise.next() & 63) as u16 + 300).to_le_bytes());
            cdr.word(&(noise.float(16.0) as f32 * 1000.0).to_le_bytes());
            cdr.word(&(noise.float(256.0) as f32).to_le_bytes());
            cdr.word(&(u64::from(at) * 37 + u64::from(id)).to_le_bytes());
            cdr.word(&[1]);
        }
        for _ in 0..32 {
            cdr.word(&(noise.float(512.0) as f32).to_le_bytes());
        }
        // Faults come and go, so the shape changes now and then.
        let faults = if at % 50 < 3 { at % 50 } else { 0 };
        cdr.word(&faults.to_le_bytes());
        for fault in 0..faults {
            cdr.word(&(fault as u16).to_le_bytes());
        }
        cdr.word(&2u32.to_le_bytes());
        cdr.text("nominal");
        cdr.text("row 17 of 42");
        // A plan stays until the next one is made.
        let mut plan = Noise(u64::from(at / 40));
        cdr.word(&5u32.to_le_bytes());
        for _ in 0..35 {
            cdr.word(&plan.float(1024.0).to_le_bytes());
        }
        cdr.word(&96u32.to_le_bytes());
        for _ in 0..96 {
            cdr.word(&[plan.next() as u8]);
        }
        message(&channel, stamp, at, cdr.finish())
    })
}

/// Numbers with a sensor's noise.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// Between -1 and 1, in steps of one `steps`-th.
    pub fn float(&mut self, steps: f64) -> f64 {
        let unit = (self.next() & 0xffff) as f64 / 32768.0 - 1.0;
        (unit * unit * unit * steps).round() / steps
    }
}

#[derive(Default)]
struct Cdr(Vec<u8>);

impl Cdr {
    fn word(&mut self, bytes: &[u8]) {
        while self.0.len() % bytes.len() != 0 {
            self.0.push(0);
        }
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.word(&(text.len() as u32 + 1).to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 0];
        bytes.extend(self.0);
        bytes
    }
}
