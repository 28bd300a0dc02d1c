//! Buffers from recordings, messages and robot descriptions, and what no input may do to them.

// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

mod common;

use std::sync::Arc;

use asof_core::{Channel, Message, Schema, Stamp, TimeRange};
use asof_tf::ros::{RosDecodeError, RosEncoding, joint_state, tf_message};
use asof_tf::{TrajectoryFormat, TransformBuffer, every};
use bytes::Bytes;
use common::Recording;
use nalgebra::{Isometry3, Translation3, UnitQuaternion};

/// Writes messages as ROS does.
struct Writer {
    bytes: Vec<u8>,
    encoding: RosEncoding,
    is_big: bool,
}

impl Writer {
    fn new(encoding: RosEncoding, is_big: bool) -> Self {
        let bytes = match (encoding, is_big) {
            (RosEncoding::Ros1, _) => vec![],
            (RosEncoding::Cdr, true) => vec![0, 0, 0, 0],
            (RosEncoding::Cdr, false) => vec![0, 1, 0, 0],
        };
        Writer {
            bytes,
            encoding,
            is_big,
        }
    }

    fn align(&mut self, to: usize) {
        while self.encoding == RosEncoding::Cdr && !(self.bytes.len() - 4).is_multiple_of(to) {
            self.bytes.push(0);
        }
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        let bytes = if self.is_big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        self.bytes.extend_from_slice(&bytes);
    }

    fn f64(&mut self, value: f64) {
        self.align(8);
        let bytes = if self.is_big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        self.bytes.extend_from_slice(&bytes);
    }

    fn text(&mut self, text: &str) {
        let closing = usize::from(self.encoding == RosEncoding::Cdr);
        self.u32((text.len() + closing) as u32);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend(std::iter::repeat_n(0, closing));
    }

    fn header(&mut self, stamp: i64, frame: &str) {
        if self.encoding == RosEncoding::Ros1 {
            self.u32(0);
        }
        self.u32((stamp / 1_000_000_000) as u32);
        self.u32((stamp % 1_000_000_000) as u32);
        self.text(frame);
    }
}

type Sample<'a> = (i64, &'a str, &'a str, Isometry3<f64>);

fn tf(encoding: RosEncoding, is_big: bool, samples: &[Sample<'_>]) -> Vec<u8> {
    let mut writer = Writer::new(encoding, is_big);
    writer.u32(samples.len() as u32);
    for (stamp, parent, child, pose) in samples {
        writer.header(*stamp, parent);
        writer.text(child);
        let (t, q) = (pose.translation.vector, pose.rotation.coords);
        for part in [t.x, t.y, t.z, q.x, q.y, q.z, q.w] {
            writer.f64(part);
        }
    }
    writer.bytes
}

fn pose(x: f64) -> Isometry3<f64> {
    Isometry3::from_parts(
        Translation3::new(x, 2.0, 3.0),
        UnitQuaternion::from_euler_angles(0.1, 0.2, x),
    )
}

fn message(topic: &str, schema: &str, encoding: &str, log_time: i64, payload: Vec<u8>) -> Message {
    Message {
        channel: Arc::new(Channel {
            topic: topic.into(),
            message_encoding: encoding.into(),
            schema: Some(Arc::new(Schema {
                name: schema.into(),
                ..Schema::default()
            })),
            ..Channel::default()
        }),
        log_time: log_time.into(),
        publish_time: log_time.into(),
        sequence: 0,
        payload: Bytes::from(payload),
    }
}

const ROS2: &str = "tf2_msgs/msg/TFMessage";

#[test]
fn a_message_reads_the_same_in_every_encoding() {
    let samples = [
        (5_000_000_007, "odom", "base", pose(1.0)),
        (6, "base", "lidar_link", pose(2.0)),
    ];
    for (encoding, is_big) in [
        (RosEncoding::Cdr, false),
        (RosEncoding::Cdr, true),
        (RosEncoding::Ros1, false),
    ] {
        let found = tf_message(encoding, &tf(encoding, is_big, &samples)).expect("is whole");
        let found: Vec<_> = found
            .iter()
            .map(|t| (t.stamp.nanos(), &*t.parent, &*t.child, t.isometry))
            .collect();
        assert_eq!(found, samples, "{encoding:?} {is_big}");
    }
}

#[test]
fn a_message_cut_anywhere_is_an_error_that_says_where() {
    let samples = [
        (5, "odom", "base", pose(1.0)),
        (6, "base", "lidar", pose(2.0)),
    ];
    for encoding in [RosEncoding::Cdr, RosEncoding::Ros1] {
        let whole = tf(encoding, false, &samples);
        for len in 0..whole.len() {
            let error = tf_message(encoding, &whole[..len]).expect_err("is cut");
            assert!(
                matches!(error, RosDecodeError::Truncated { len: found, .. } if found == len),
                "{error}"
            );
        }
    }
}

#[test]
fn no_bytes_panic() {
    let mut random = 1_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let rounds = if cfg!(miri) { 50 } else { 20_000 };
    for encoding in [RosEncoding::Cdr, RosEncoding::Ros1] {
        let whole = tf(
            encoding,
            false,
            &[
                (5, "odom", "base", pose(1.0)),
                (6, "base", "lidar", pose(2.0)),
            ],
        );
        for _ in 0..rounds {
            let mut broken = whole.clone();
            for _ in 0..=next() % 4 {
                let place = next() as usize % broken.len();
                broken[place] = next() as u8;
            }
            broken.truncate(next() as usize % (whole.len() + 1));
            let buffer = TransformBuffer::new();
            let _ = joint_state(encoding, &broken);
            for t in tf_message(encoding, &broken).unwrap_or_default() {
                let _ = buffer.update(&t.parent, &t.child, t.stamp, t.isometry);
            }
        }
    }
}

#[test]
fn a_recording_is_found_by_type_and_loads_in_any_order() {
    let cdr = |samples: &[Sample<'_>]| tf(RosEncoding::Cdr, false, samples);
    let recording = Recording(vec![
        message(
            "/robot/tf_static",
            ROS2,
            "cdr",
            0,
            cdr(&[(0, "base", "lidar", pose(0.5))]),
        ),
        message(
            "/renamed",
            ROS2,
            "cdr",
            1,
            cdr(&[(30, "odom", "base", pose(3.0))]),
        ),
        message(
            "/renamed",
            ROS2,
            "cdr",
            2,
            cdr(&[(10, "odom", "base", pose(1.0))]),
        ),
        message(
            "/renamed",
            ROS2,
            "cdr",
            3,
            cdr(&[(20, "odom", "base", pose(2.0))]),
        ),
        message("/tf", "std_msgs/msg/String", "cdr", 4, vec![1, 2, 3]),
        message(
            "/tf",
            "tf/tfMessage",
            "ros1",
            5,
            tf(RosEncoding::Ros1, false, &[(20, "map", "odom", pose(9.0))]),
        ),
    ]);
    let loaded = TransformBuffer::from_source(&recording).expect("reads");
    assert_eq!(
        (loaded.transforms, loaded.problems.len()),
        (5, 0),
        "{:?}",
        loaded.problems
    );
    let buffer = loaded.buffer;
    for (t, x) in [(10, 1.0), (20, 2.0), (30, 3.0)] {
        assert_eq!(
            buffer
                .lookup("odom", "base", t.into())
                .expect("there")
                .translation
                .x,
            x
        );
    }
    assert!(buffer.lookup("map", "lidar", 20.into()).is_ok());
    assert_eq!(buffer.options().limits.window, None);
}

#[test]
fn what_a_recording_has_wrong_is_told_once_with_a_count() {
    let bad = tf(RosEncoding::Cdr, false, &[(1, "odom", "odom", pose(1.0))]);
    let recording = Recording(vec![
        message("/tf", ROS2, "cdr", 0, bad.clone()),
        message("/tf", ROS2, "cdr", 1, bad),
        message("/tf", ROS2, "cdr", 2, vec![0, 1, 0, 0, 9]),
    ]);
    let loaded = TransformBuffer::from_source(&recording).expect("reads");
    let told: Vec<_> = loaded
        .problems
        .iter()
        .map(|problem| problem.message.clone())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("its own parent (2 times)"), "{told:?}");
    assert!(told[1].contains("ends at byte 5"), "{told:?}");
}

fn robot() -> TransformBuffer {
    let buffer = TransformBuffer::new();
    buffer
        .update("odom", "base", 0.into(), pose(0.0))
        .expect("good");
    buffer
        .update("odom", "base", 1_000_000_000.into(), pose(1.0))
        .expect("good");
    buffer
        .update_static("base", "lidar", pose(0.5))
        .expect("good");
    buffer
        .update_static("base", "say \"x\"", pose(0.5))
        .expect("good");
    buffer
}

#[test]
fn the_tree_is_drawn_for_the_terminal() {
    assert_eq!(
        robot().to_tree(),
        "odom\n\
         └── base  (2 samples, 2.0 Hz, 1.000 s)\n    \
             ├── lidar  (static)\n    \
             └── say \"x\"  (static)\n"
    );
}

#[test]
fn a_single_sample_is_drawn_without_a_rate() {
    let buffer = TransformBuffer::new();
    buffer
        .update("odom", "base", 7.into(), pose(0.0))
        .expect("good");
    assert_eq!(buffer.to_tree(), "odom\n└── base  (1 sample)\n");
}

#[test]
fn dot_and_mermaid_quote_what_they_must() {
    let dot = robot().to_dot();
    assert!(
        dot.contains(r#""base" -> "say \"x\"" [label="static", style=dashed];"#),
        "{dot}"
    );
    let mermaid = robot().to_mermaid();
    assert!(mermaid.contains("f3[\"say #quot;x#quot;\"]"), "{mermaid}");
    assert!(
        mermaid.contains("f0 -->|\"2 samples<br>2.0 Hz<br>1.000 s\"| f1"),
        "{mermaid}"
    );
}

#[test]
fn yaml_is_that_of_tf2() {
    let yaml = robot().to_yaml();
    let first: Vec<_> = yaml.lines().take(7).collect();
    assert_eq!(
        first,
        [
            "base: ",
            "  parent: 'odom'",
            "  broadcaster: 'no recorded authority'",
            "  rate: 2.000",
            "  most_recent_transform: 1.000",
            "  oldest_transform: 0.000",
            "  buffer_length: 1.000",
        ]
    );
    assert!(yaml.contains("'say \"x\"': \n"));
    assert_eq!(TransformBuffer::new().to_yaml(), "[]");
}

#[test]
fn a_drawing_of_an_unknown_ending_is_refused() {
    let refused = robot().draw("frames.txt".as_ref());
    assert!(refused.is_err_and(|error| error.to_string().contains(".svg, .pdf or .png")));
}

#[test]
fn dot_draws_the_tree_where_it_is_installed() {
    let is_there = std::process::Command::new("dot").arg("-V").output();
    if is_there.is_err() {
        asof_core::testing::skipped("the drawing of a tree: Graphviz' `dot` is not here");
        return;
    }
    let file = |ending: &str| {
        std::env::temp_dir().join(format!("asof-tf-{}.{ending}", std::process::id()))
    };
    for (ending, start) in [("svg", "<?xml"), ("pdf", "%PDF-"), ("png", "\u{89}PNG")] {
        let file = file(ending);
        robot().draw(&file).expect("dot draws it");
        let drawn = std::fs::read(&file).expect("was written");
        let _ = std::fs::remove_file(&file);
        let text: String = drawn.iter().map(|byte| char::from(*byte)).collect();
        assert!(text.starts_with(start), "{ending} starts otherwise");
        if ending == "svg" {
            for word in [
                "odom",
                "base",
                "lidar",
                "say &quot;x&quot;",
                "2.0 Hz",
                "static",
            ] {
                assert!(text.contains(word), "{word} is not in the picture: {text}");
            }
        }
    }
    let nowhere = file("svg").join("no such folder.svg");
    assert!(robot().draw(&nowhere).is_err(), "dot says so itself");
}

#[test]
fn trajectories_are_written_for_others_to_read() {
    let pose = Isometry3::translation(1.5, 0.0, -2.0);
    let t = Stamp::from_nanos(1_500_000_000);
    assert_eq!(
        TrajectoryFormat::Csv.line(t, &pose),
        "1500000000,1.5,0,-2,0,0,0,1\n"
    );
    assert_eq!(
        TrajectoryFormat::Tum.line(t, &pose),
        "1.500000000 1.5 0 -2 0 0 0 1\n"
    );
    assert_eq!(
        TrajectoryFormat::Kitti.line(t, &pose),
        "1 0 0 1.5 0 1 0 0 0 0 1 -2\n"
    );
    let range = TimeRange::new(0.into(), 25.into());
    let stamps: Vec<_> = every(range, 10).map(Stamp::nanos).collect();
    assert_eq!(stamps, [0, 10, 20]);
    assert_eq!(
        every(range, 0).count() + every(TimeRange::EMPTY, 5).count(),
        0
    );
    assert_eq!(
        robot().covered("odom", "lidar"),
        Ok(TimeRange::new(0.into(), 1_000_000_000.into()))
    );
}

#[cfg(feature = "urdf")]
mod robots {
    use super::*;
    use asof_tf::RobotModel;
    use asof_tf::ros::JointPositions;

    const ARM: &str = r#"<robot name="arm">
        <link name="base"/><link name="upper"/><link name="fore"/><link name="tool"/><link name="shadow"/>
        <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
            <origin xyz="0 0 1" rpy="0 0 0"/><axis xyz="0 0 1"/>
            <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
        <joint name="slide" type="prismatic"><parent link="upper"/><child link="fore"/>
            <axis xyz="1 0 0"/><limit lower="0" upper="1" effort="1" velocity="1"/></joint>
        <joint name="mount" type="fixed"><parent link="fore"/><child link="tool"/>
            <origin xyz="0 0 0.5" rpy="0 1.5707963267948966 0"/></joint>
        <joint name="follower" type="prismatic"><parent link="base"/><child link="shadow"/>
            <axis xyz="0 1 0"/><mimic joint="slide" multiplier="2" offset="1"/>
            <limit lower="0" upper="9" effort="1" velocity="1"/></joint>
    </robot>"#;

    #[test]
    fn fixed_joints_are_static_and_joint_states_move_the_others() {
        let robot = RobotModel::from_urdf(ARM).expect("is a robot");
        let buffer = TransformBuffer::new();
        assert!(robot.publish_fixed(&buffer).is_empty());
        assert!(buffer.lookup("fore", "tool", 0.into()).is_ok());
        let state = JointPositions {
            stamp: 5.into(),
            names: vec!["shoulder".into(), "slide".into(), "someone else's".into()],
            positions: vec![std::f64::consts::FRAC_PI_2, 0.25, 1.0],
        };
        assert!(robot.move_joints(&buffer, &state).is_empty());
        let fore = buffer
            .lookup("base", "fore", 5.into())
            .expect("moved")
            .translation
            .vector;
        assert!(
            (fore - nalgebra::Vector3::new(0.0, 0.25, 1.0)).norm() < 1e-12,
            "{fore}"
        );
        let shadow = buffer
            .lookup("base", "shadow", 5.into())
            .expect("follows")
            .translation
            .y;
        assert!((shadow - 1.5).abs() < 1e-12);
        assert_eq!(robot.free_frames().count(), 0);
    }

    #[test]
    fn a_joint_state_reads_in_both_encodings() {
        for encoding in [RosEncoding::Cdr, RosEncoding::Ros1] {
            let mut writer = Writer::new(encoding, false);
            writer.header(5, "");
            writer.u32(2);
            writer.text("shoulder");
            writer.text("slide");
            writer.u32(2);
            writer.f64(0.5);
            writer.f64(-0.25);
            writer.u32(0);
            writer.u32(0);
            let found = joint_state(encoding, &writer.bytes).expect("is whole");
            assert_eq!(found.stamp.nanos(), 5);
            assert_eq!(found.names, ["shoulder", "slide"]);
            assert_eq!(found.positions, [0.5, -0.25]);
        }
    }

    #[test]
    fn no_description_panics() {
        let mut random = 7_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize
        };
        for _ in 0..if cfg!(miri) { 2 } else { 500 } {
            let mut text = ARM.as_bytes().to_vec();
            for _ in 0..=next() % 5 {
                let place = next() % text.len();
                match next() % 3 {
                    0 => text[place] = b"<>\"/= x9-"[next() % 9],
                    1 => drop(text.remove(place)),
                    _ => {
                        let end = (place + next() % 40).min(text.len());
                        text.drain(place..end);
                    }
                }
            }
            let Ok(text) = String::from_utf8(text) else {
                continue;
            };
            if let Ok(robot) = RobotModel::from_urdf(&text) {
                let buffer = TransformBuffer::new();
                robot.publish_fixed(&buffer);
                let names = vec!["shoulder".into(), "slide".into()];
                let state = JointPositions {
                    stamp: 0.into(),
                    names,
                    positions: vec![1.0, 0.5],
                };
                robot.move_joints(&buffer, &state);
            }
        }
    }
}
