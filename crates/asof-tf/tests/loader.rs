//! What a loader makes of messages: parents that change, robots that describe themselves, clocks that jump,
//! and those who write the same frame.

// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use asof_core::{Batch, Channel, Message, Schema, Stamp};
use asof_tf::{
    BufferOptions, Conflicts, LoaderOptions, LookupError, TransformBuffer, TransformLoader,
    TransformWaitError, TreeFormat,
};
use common::Recording;
use nalgebra::Isometry3;

const SECOND: i64 = 1_000_000_000;

fn shift(x: f64) -> Isometry3<f64> {
    Isometry3::translation(x, 0.0, 0.0)
}

fn at(nanos: i64) -> Stamp {
    Stamp::from_nanos(nanos)
}

/// ROS 1's serialization.
#[derive(Default)]
struct Ros1(Vec<u8>);

impl Ros1 {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn f64(&mut self, value: f64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn header(&mut self, stamp: i64, frame: &str) {
        self.u32(0);
        self.u32((stamp / SECOND) as u32);
        self.u32((stamp % SECOND) as u32);
        self.text(frame);
    }
}

fn message(topic: &str, kind: &str, node: &str, log_time: i64, payload: Vec<u8>) -> Message {
    let metadata = [("callerid".to_owned(), node.to_owned())];
    Message {
        channel: Arc::new(Channel {
            topic: topic.into(),
            message_encoding: "ros1".into(),
            schema: Some(Arc::new(Schema {
                name: kind.into(),
                ..Schema::default()
            })),
            metadata: metadata
                .into_iter()
                .filter(|(_, n)| !n.is_empty())
                .collect(),
        }),
        log_time: log_time.into(),
        publish_time: log_time.into(),
        sequence: 0,
        payload: payload.into(),
    }
}

fn tf_by(node: &str, topic: &str, stamp: i64, parent: &str, child: &str, x: f64) -> Message {
    let mut ros = Ros1::default();
    ros.u32(1);
    ros.header(stamp, parent);
    ros.text(child);
    for part in [x, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0] {
        ros.f64(part);
    }
    message(topic, "tf2_msgs/TFMessage", node, stamp, ros.0)
}

fn tf(topic: &str, stamp: i64, parent: &str, child: &str, x: f64) -> Message {
    tf_by("", topic, stamp, parent, child, x)
}

#[cfg(feature = "urdf")]
fn joints(topic: &str, stamp: i64, names: &[&str], positions: &[f64]) -> Message {
    let mut ros = Ros1::default();
    ros.header(stamp, "");
    ros.u32(names.len() as u32);
    for name in names {
        ros.text(name);
    }
    ros.u32(positions.len() as u32);
    for position in positions {
        ros.f64(*position);
    }
    ros.u32(0);
    ros.u32(0);
    message(topic, "sensor_msgs/JointState", "", stamp, ros.0)
}

#[cfg(feature = "urdf")]
fn description(topic: &str, stamp: i64, text: &str) -> Message {
    let mut ros = Ros1::default();
    ros.text(text);
    message(topic, "std_msgs/String", "", stamp, ros.0)
}

#[cfg(feature = "urdf")]
const ARM: &str = r#"<robot name="arm">
  <link name="base"/><link name="mast"/><link name="slide"/><link name="tip"/>
  <joint name="up" type="fixed"><parent link="base"/><child link="mast"/><origin xyz="0 0 2"/></joint>
  <joint name="out" type="prismatic"><parent link="mast"/><child link="slide"/><axis xyz="1 0 0"/>
    <limit lower="0" upper="1" effort="1" velocity="1"/></joint>
  <joint name="end" type="fixed"><parent link="slide"/><child link="tip"/><origin xyz="0.5 0 0"/></joint>
</robot>"#;

#[test]
fn a_recording_in_which_a_frame_changes_its_parent_is_read_to_its_end() {
    let messages = vec![
        tf("/tf_static", 0, "world", "left", 100.0),
        tf("/tf_static", 0, "world", "right", 200.0),
        tf("/tf", 10, "left", "box", 1.0),
        tf("/tf", 20, "left", "box", 2.0),
        tf("/tf", 30, "right", "box", 3.0),
        tf("/tf", 15, "left", "box", 9.0),
        tf("/tf", 40, "right", "box", 4.0),
        tf("/tf", 35, "left", "box", 7.0),
    ];
    let loaded = TransformBuffer::from_source(&Recording(messages)).expect("is read");
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let x = |t| {
        loaded
            .buffer
            .lookup("world", "box", at(t))
            .expect("there")
            .translation
            .x
    };
    assert_eq!(
        [10, 15, 20, 25, 30, 33, 35, 37, 40].map(x),
        [
            101.0, 109.0, 102.0, 102.0, 203.0, 203.0, 107.0, 107.0, 204.0
        ]
    );
}

/// A robot of so many fixed joints: a chain, or all on its base.
#[cfg(feature = "urdf")]
fn many_joints(count: usize, is_chain: bool) -> String {
    let joint = |n: usize| {
        let parent = if is_chain { n } else { 0 };
        let child = n + 1;
        format!(
            r#"<link name="l{child}"/><joint name="j{n}" type="fixed"><parent link="l{parent}"/><child link="l{child}"/>
            <origin xyz="1 0 0"/></joint>"#
        )
    };
    let joints: String = (0..count).map(joint).collect();
    format!(r#"<robot name="many"><link name="l0"/>{joints}</robot>"#)
}

#[cfg(feature = "urdf")]
#[test]
fn a_description_costs_what_its_joints_are() {
    for is_chain in [true, false] {
        let make = |scale: usize| many_joints(scale * 200, is_chain);
        asof_core::testing::assert_linear("joints", make, |text| {
            let last = text.matches("<joint").count();
            let recording = Recording(vec![description("/robot_description", 0, &text)]);
            let loaded = TransformBuffer::from_source(&recording).expect("is read");
            assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
            let found = loaded.buffer.lookup("l0", &format!("l{last}"), at(0));
            let x = if is_chain { last as f64 } else { 1.0 };
            assert_eq!(found.expect("is there").translation.x, x);
            assert_eq!(loaded.buffer.edges().len(), last);
            loaded.buffer.to_tree();
        });
    }
}

#[cfg(feature = "urdf")]
#[test]
fn a_robot_that_describes_itself_moves_by_its_joints() {
    // The description comes after the first joint states, as it does when a recording starts in between.
    let messages = vec![
        tf("/tf", 0, "odom", "base", 10.0),
        tf("/tf", 20, "odom", "base", 10.0),
        joints("/joint_states", 0, &["out"], &[0.0]),
        joints("/joint_states", 10, &["out", "other"], &[0.5, 1.0]),
        description("/robot_description", 15, ARM),
        joints("/joint_states", 20, &["out"], &[1.0]),
    ];
    let loaded = TransformBuffer::from_source(&Recording(messages)).expect("is read");
    assert_eq!((loaded.transforms, loaded.joints), (2, 3));
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let tip = loaded.buffer.lookup("odom", "tip", at(5)).expect("there");
    assert_eq!(tip.translation.vector.as_slice(), [10.75, 0.0, 2.0]);
}

#[cfg(feature = "urdf")]
#[test]
fn what_transforms_place_is_not_placed_by_the_description() {
    let state = |t| joints("/joint_states", t, &["out"], &[1.0]);
    let messages = vec![
        description("/robot_description", 0, ARM),
        state(0),
        tf("/tf", 10, "mast", "slide", 0.25),
        tf("/tf", 20, "mast", "slide", 0.25),
        // Fixed joints that are published on /tf become dynamic.
        tf("/tf", 10, "base", "mast", 3.0),
        tf("/tf", 20, "base", "mast", 3.0),
        state(15),
        state(20),
    ];
    let in_source = TransformBuffer::from_source(&Recording(messages.clone())).expect("is read");
    let mut loader = TransformLoader::new(TransformBuffer::new());
    for message in messages {
        let absorbed = loader.absorb(&Batch::from_iter([message]));
        assert!(absorbed.problems.is_empty(), "{:?}", absorbed.problems);
    }
    for buffer in [&in_source.buffer, loader.buffer()] {
        let tip = buffer.lookup("base", "tip", at(15)).expect("there");
        assert_eq!(tip.translation.vector.as_slice(), [3.75, 0.0, 0.0]);
    }
}

#[cfg(feature = "urdf")]
#[test]
fn two_robots_are_told_apart_by_their_namespaces() {
    let left = ARM
        .replace("link=\"", "link=\"left/")
        .replace("link name=\"", "link name=\"left/");
    let messages = vec![
        description("/left/robot_description", 0, &left),
        description("/right/robot_description", 0, ARM),
        joints("/left/joint_states", 5, &["out"], &[0.25]),
        joints("/right/joint_states", 5, &["out"], &[0.75]),
        description("/broken/robot_description", 6, "<robot"),
    ];
    let loaded = TransformBuffer::from_source(&Recording(messages)).expect("is read");
    let x = |a, b| {
        loaded
            .buffer
            .lookup(a, b, at(5))
            .expect("there")
            .translation
            .x
    };
    assert_eq!(x("left/base", "left/slide"), 0.25);
    assert_eq!(x("right/base", "right/slide"), 0.75);
    assert_eq!(loaded.problems.len(), 1);
}

#[test]
fn a_clock_that_jumps_back_starts_the_buffer_anew_and_says_so() {
    let options = LoaderOptions {
        jump_back: Some(Duration::from_secs(3)),
        monitor: true,
        ..LoaderOptions::default()
    };
    let mut loader = TransformLoader::with_options(TransformBuffer::new(), options);
    let mut jumps = Vec::new();
    let mut say = |loader: &mut TransformLoader, t: i64| {
        let batch = Batch::from_iter([tf("/tf", t * SECOND, "odom", "base", t as f64)]);
        jumps.extend(loader.absorb(&batch).jump);
    };
    (100..120).for_each(|t| say(&mut loader, t));
    // A little late, and one that is a stray.
    say(&mut loader, 118);
    say(&mut loader, 5);
    say(&mut loader, 120);
    (5..9).for_each(|t| say(&mut loader, t));
    assert_eq!(jumps.len(), 1);
    assert_eq!(
        (jumps[0].from, jumps[0].to),
        (at(120 * SECOND), at(7 * SECOND))
    );
    assert!(
        jumps[0].to_string().contains("jumped back from 120.0"),
        "{}",
        jumps[0]
    );
    let latest = loader
        .buffer()
        .lookup_latest("odom", "base")
        .expect("there");
    assert_eq!(latest.stamp, Some(at(8 * SECOND)));
    assert_eq!(loader.monitor().expect("was asked for").edges().count(), 1);
}

#[test]
fn two_who_write_one_frame_are_named() {
    let messages = vec![
        tf_by("/amcl", "/tf", 10, "map", "odom", 1.0),
        tf_by("/amcl", "/tf", 20, "map", "odom", 1.0),
        tf_by("/slam", "/tf", 25, "map", "odom", 1.0),
        tf_by("/amcl", "/tf", 30, "map", "odom", 1.0),
        tf_by("/ekf", "/tf", 30, "odom", "base", 1.0),
    ];
    let loaded = TransformBuffer::from_source(&Recording(messages)).expect("is read");
    let rivals: Vec<String> = loaded
        .buffer
        .rivals()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        rivals,
        ["frame 'odom' is placed by both '/amcl on /tf' and '/slam on /tf'"]
    );
    let edges = loaded.buffer.edges();
    assert_eq!(edges[1].authority.as_deref(), Some("/ekf on /tf"));
    assert!(
        loaded
            .buffer
            .to_yaml()
            .contains("broadcaster: '/ekf on /tf'")
    );
}

#[test]
fn the_latest_can_be_too_old() {
    let buffer = TransformBuffer::new();
    buffer
        .update("map", "base", at(10 * SECOND), shift(1.0))
        .expect("good");
    buffer
        .update_static("base", "lidar", shift(1.0))
        .expect("good");
    let ask = |now: i64, age| {
        buffer.lookup_latest_within("map", "lidar", at(now), Duration::from_secs(age))
    };
    assert!(ask(12 * SECOND, 2).is_ok());
    assert!(ask(5 * SECOND, 0).is_ok(), "from the future is not old");
    let error = ask(13 * SECOND, 2).expect_err("is old");
    assert_eq!(error.kind(), "stale");
    assert!(
        error.to_string().contains("is from 10.000000000, 3s ago"),
        "{error}"
    );
    let fixed = buffer.lookup_latest_within("base", "lidar", Stamp::MAX, Duration::ZERO);
    assert!(fixed.is_ok(), "static ones have no age");
}

#[test]
fn a_callback_is_called_once_with_the_answer_or_the_reason() {
    let buffer = TransformBuffer::new();
    let (tell, told) = mpsc::channel();
    let call = |t: i64, timeout| {
        let tell = tell.clone();
        let again = buffer.clone();
        buffer.on_transform("a", "b", at(t), timeout, move |found| {
            // It may use the buffer, and change it.
            let _ = again.update("a", "c", at(t), shift(0.0));
            tell.send((t, found)).expect("is listened to");
        })
    };
    let waiting = call(10, None);
    let cancelled = call(10, None);
    drop(cancelled);
    buffer.update("a", "b", at(5), shift(5.0)).expect("good");
    assert!(waiting.is_pending() && told.try_recv().is_err());
    buffer.update("a", "b", at(15), shift(15.0)).expect("good");
    assert!(!waiting.is_pending());
    let (t, found) = told.try_recv().expect("was called");
    assert_eq!((t, found.expect("there").translation.x), (10, 10.0));
    assert!(told.try_recv().is_err(), "the other was cancelled");
    // At once, and when the time is up.
    assert!(!call(12, None).is_pending());
    assert!(told.try_recv().is_ok());
    call(99, Some(Duration::from_millis(1))).detach();
    let (_, found) = told
        .recv_timeout(Duration::from_mins(1))
        .expect("was called");
    assert!(matches!(found, Err(TransformWaitError::TimedOut { .. })));
}

#[test]
fn a_deep_chain_and_a_wide_star_are_drawn_short_and_quickly() {
    let count = if cfg!(miri) { 200 } else { 100_000 };
    let chain = TransformBuffer::with_options(BufferOptions::unbounded());
    let star = TransformBuffer::with_options(BufferOptions::unbounded());
    let wide = count / 5;
    for n in 0..count {
        let child = format!("f{}", n + 1);
        chain
            .update_static(&format!("f{n}"), &child, shift(1.0))
            .expect("good");
        if n < wide {
            star.update_static("f0", &child, shift(1.0)).expect("good");
        }
    }
    let tree = chain.to_tree();
    assert!(
        tree.ends_with(&format!("└── ... and {} more\n", count - 100)),
        "{}",
        tree.len()
    );
    assert_eq!(tree.lines().count(), 102);
    if count > 1_000 {
        let tree = star.to_tree();
        assert!(tree.ends_with(&format!("└── ... and {} more\n", wide - 1_000)));
        assert_eq!(tree.lines().count(), 1_002);
    }
    for (buffer, count) in [(&chain, count), (&star, wide)] {
        for format in [TreeFormat::Dot, TreeFormat::Mermaid, TreeFormat::Yaml] {
            let mut text = Vec::new();
            buffer.write_tree(format, &mut text).expect("memory");
            assert!(text.len() > 20 * count && text.len() < 250 * count);
        }
    }
    let last = format!("f{count}");
    let far = chain.lookup("f0", &last, at(0)).expect("connected");
    assert_eq!(far.translation.x, count as f64);
    let gone: Result<_, LookupError> = star.lookup("f1", "nowhere", at(0));
    assert!(gone.is_err());
}

#[test]
fn a_frame_that_is_picked_up_is_told_once() {
    let options = BufferOptions::default().conflicts(Conflicts::LastWins);
    let mut loader = TransformLoader::new(TransformBuffer::with_options(options));
    let mut moved = Vec::new();
    for n in 0..6 {
        let parent = if n < 3 { "table" } else { "gripper" };
        let batch: Batch = [tf("/tf", n * SECOND, parent, "cup", 1.0)]
            .into_iter()
            .collect();
        let absorbed = loader.absorb(&batch);
        assert!(absorbed.problems.is_empty(), "{:?}", absorbed.problems);
        moved.extend(absorbed.moved);
    }
    let [only] = &*moved else { panic!("{moved:?}") };
    assert_eq!((only.from.as_str(), only.to.as_str()), ("table", "gripper"));
    let buffer = loader.buffer();
    assert!(buffer.lookup("table", "cup", at(SECOND)).is_ok());
    assert!(buffer.lookup("gripper", "cup", at(4 * SECOND)).is_ok());
}

#[test]
fn two_robots_have_a_buffer_each_or_a_prefix() {
    let mut messages = Vec::new();
    for n in 0..4 {
        messages.push(tf("/robot1/tf", n * SECOND, "map", "base_link", 1.0));
        messages.push(tf("/robot2/tf", n * SECOND, "map", "base_link", -1.0));
    }
    messages.push(tf("/robot2/tf_static", 0, "base_link", "lidar", 0.5));
    let recording = Recording(messages);
    let x = |buffer: &TransformBuffer, target: &str, source: &str| {
        let found = buffer.lookup(target, source, at(SECOND));
        found.map(|pose| pose.translation.x)
    };
    let each =
        TransformBuffer::by_namespace(&recording, &asof_core::Topics::All).expect("readable");
    let [first, second] = &*each else {
        panic!("{each:?}")
    };
    assert_eq!(
        (first.namespace.as_str(), second.namespace.as_str()),
        ("/robot1", "/robot2")
    );
    assert_eq!(x(&first.buffer, "map", "base_link"), Ok(1.0));
    assert_eq!(x(&second.buffer, "map", "lidar"), Ok(-0.5));
    assert!(first.buffer.find("lidar").is_none());
    let joined = TransformBuffer::from_source(&recording)
        .expect("readable")
        .buffer;
    assert_eq!(x(&joined, "robot1/map", "robot1/base_link"), Ok(1.0));
    assert_eq!(x(&joined, "robot2/map", "robot2/lidar"), Ok(-0.5));
    assert!(joined.find("map").is_none());
    let one = asof_core::Topics::named(["/robot1/tf"]);
    let alone = TransformBuffer::from_topics(&recording, &one)
        .expect("readable")
        .buffer;
    assert_eq!(
        x(&alone, "map", "base_link"),
        Ok(1.0),
        "one robot needs no prefix"
    );
}

#[test]
fn one_odd_stamp_clears_nothing_and_a_clock_that_is_set_forward_is_followed() {
    let options = LoaderOptions {
        jump_back: Some(Duration::from_secs(1)),
        ..LoaderOptions::default()
    };
    let mut loader = TransformLoader::with_options(TransformBuffer::new(), options);
    let mut logged = 0;
    let mut send = |stamp: i64| {
        let mut message = tf("/tf", stamp, "odom", "base", 1.0);
        logged += SECOND / 10;
        message.log_time = at(logged);
        loader.absorb(&[message].into_iter().collect())
    };
    for n in 1..100 {
        let is_odd = n % 10 == 0;
        let absorbed = send(n * SECOND / 10 + if is_odd { 7200 * SECOND } else { 0 });
        assert_eq!(absorbed.jump, None, "{n}");
        assert_eq!(absorbed.problems.len(), usize::from(is_odd));
    }
    // Sparse samples are not odd: the log's clock went on as theirs did.
    for n in 0..3 {
        send((7200 + n) * SECOND);
    }
    let buffer = loader.buffer();
    assert_eq!(
        buffer.edges()[0].range.expect("has samples").end,
        at(7202 * SECOND)
    );
}

#[test]
fn frames_that_are_long_gone_make_room() {
    let options = BufferOptions {
        max_frames: 100,
        ..BufferOptions::default()
    };
    let loading = LoaderOptions {
        forget_after: Some(Duration::from_mins(1)),
        ..LoaderOptions::default()
    };
    let mut loader = TransformLoader::with_options(TransformBuffer::with_options(options), loading);
    for n in 0..1_000 {
        let seen = format!("object_{n}");
        let batch: Batch = [
            tf("/tf", n * 10 * SECOND, "map", &seen, 1.0),
            tf("/tf", n * 10 * SECOND, "map", "base", 1.0),
        ]
        .into_iter()
        .collect();
        let absorbed = loader.absorb(&batch);
        assert!(absorbed.problems.is_empty(), "{n}: {:?}", absorbed.problems);
    }
    assert!(loader.buffer().find("object_999").is_some());
    assert!(loader.buffer().find("base").is_some());
}
