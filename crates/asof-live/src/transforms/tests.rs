//! What is heard, broadcast, and held back until it can be placed.

use asof_core::{Channel, Schema, Stamp};
use asof_ros::CdrWriter;
use asof_tf::ros::{RosEncoding, StampedTransform, tf_message};
use nalgebra::Isometry3;

use super::broadcast::encoded;
use super::*;

fn one(parent: &str, child: &str, stamp: i64) -> StampedTransform {
    StampedTransform {
        stamp: stamp.into(),
        parent: parent.to_owned(),
        child: child.to_owned(),
        isometry: Isometry3::translation(stamp as f64 * 1e-9, 2.0, 3.0),
    }
}

fn listener() -> Listener {
    Listener::new(BufferOptions::default().conflicts(Conflicts::LastWins))
}

fn message(topic: &str, type_name: &str, payload: Vec<u8>) -> Message {
    let schema = Schema {
        name: type_name.to_owned(),
        ..Schema::default()
    };
    Message {
        channel: Arc::new(Channel {
            topic: topic.to_owned(),
            message_encoding: "cdr".to_owned(),
            schema: Some(schema.into()),
            ..Channel::default()
        }),
        log_time: Stamp::EPOCH,
        publish_time: Stamp::EPOCH,
        sequence: 0,
        payload: payload.into(),
    }
}

impl Listener {
    fn take(&self, transforms: &[StampedTransform], is_static: bool) {
        let topic = if is_static { "/tf_static" } else { "/tf" };
        let mut message = message(topic, "tf2_msgs/msg/TFMessage", encoded(transforms));
        message.log_time = transforms[0].stamp;
        self.fill(message);
    }
}

#[test]
fn what_is_broadcast_is_what_is_read() {
    let sent = [
        one("map", "odom", 1_500_000_000),
        one("a", "b_link", 0),
        one("", "x", 7),
    ];
    let read = tf_message(RosEncoding::Cdr, &encoded(&sent)).expect("a message");
    assert_eq!(read, sent);
}

#[test]
fn a_clock_that_is_set_back_starts_the_buffer_anew() {
    let listener = listener();
    let second = 1_000_000_000;
    listener.take(&[one("base", "laser", 0)], true);
    for at in 100..105 {
        listener.take(&[one("map", "base", at * second)], false);
    }
    // A late one is sorted in.
    listener.take(&[one("map", "base", 104 * second - second / 2)], false);
    assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 0);
    assert!(
        listener
            .buffer
            .lookup("map", "base", (101 * second).into())
            .is_ok()
    );

    // A single one may be a stray.
    for at in [3, 3, 3] {
        assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 0);
        listener.take(&[one("map", "base", at * second)], false);
    }
    assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 1);
    assert!(
        listener
            .buffer
            .lookup("map", "base", (101 * second).into())
            .is_err()
    );
    assert!(
        listener
            .buffer
            .lookup("map", "laser", (3 * second).into())
            .is_ok()
    );
    listener.take(&[one("map", "base", 4 * second)], false);
    assert_eq!(
        listener.stats.restarts.load(Ordering::Relaxed),
        1,
        "told once"
    );
}

#[test]
fn a_description_and_joint_states_place_what_no_transform_does() {
    let listener = listener();
    let urdf = r#"<robot name="arm"><link name="base"/><link name="mast"/><link name="head"/>
        <joint name="fixed" type="fixed"><parent link="base"/><child link="mast"/><origin xyz="0 0 1"/></joint>
        <joint name="turn" type="prismatic"><parent link="mast"/><child link="head"/><axis xyz="1 0 0"/>
        <limit lower="-9" upper="9" effort="1" velocity="1"/></joint></robot>"#;
    let mut text = CdrWriter::with_capacity(urdf.len());
    text.string(urdf);
    listener.fill(message(
        "/robot_description",
        "std_msgs/msg/String",
        text.finish(),
    ));
    let mut state = CdrWriter::with_capacity(64);
    state.int32(5).uint32(0).string("");
    state.length(1).string("turn");
    state.float64_sequence(&[2.5]).length(0).length(0);
    listener.fill(message(
        "/joint_states",
        "sensor_msgs/msg/JointState",
        state.finish(),
    ));
    let at = Stamp::from_nanos(5_000_000_000);
    let pose = listener.buffer.lookup("base", "head", at).expect("a pose");
    assert_eq!(
        pose.translation.vector,
        nalgebra::Vector3::new(2.5, 0.0, 1.0)
    );
    assert_eq!(listener.stats.received.load(Ordering::Relaxed), 1);
    // What the robot's own transforms place is theirs.
    listener.take(&[one("base", "mast", 5_000_000_000)], false);
    let pose = listener.buffer.lookup("base", "mast", at).expect("a pose");
    assert_eq!(
        pose.translation.vector,
        nalgebra::Vector3::new(5.0, 2.0, 3.0)
    );
    listener.fill(message(
        "/robot_description",
        "std_msgs/msg/String",
        vec![1, 2],
    ));
    assert_eq!(listener.stats.refused.load(Ordering::Relaxed), 1);
}

#[test]
fn a_filter_holds_what_cannot_be_transformed_yet_and_counts_what_it_drops() {
    let listener = Arc::new(listener());
    let passed: Arc<Mutex<Vec<i64>>> = Arc::default();
    let noted = Arc::clone(&passed);
    let failed: Arc<Mutex<Vec<(i64, FilterFailure)>>> = Arc::default();
    let failures = Arc::clone(&failed);
    let options = FilterOptions {
        targets: vec!["map".to_owned(), "base".to_owned()],
        tolerance: Duration::ZERO,
        capacity: 2,
    };
    let filter = listener.filter(
        options,
        move |value: i64| noted.lock().push(value),
        move |value, why| failures.lock().push((value, why)),
    );
    for at in [5, 10, 15] {
        filter.push("base", at.into(), at);
    }
    assert_eq!((filter.stats().waiting, filter.stats().crowded_out), (2, 1));
    listener.take(&[one("map", "base", 0), one("map", "base", 12)], false);
    assert_eq!(*passed.lock(), [10]);
    listener.take(&[one("map", "base", 20)], false);
    assert_eq!(*passed.lock(), [10, 15]);
    filter.push("nowhere", 1.into(), 1);
    let second = 1_000_000_000;
    for at in [100, 3, 3, 3] {
        listener.take(&[one("map", "base", at * second)], false);
    }
    let stats = filter.stats();
    assert_eq!((stats.passed, stats.restarted, stats.waiting), (2, 1, 0));
    let (crowded, restarted) = (FilterFailure::CrowdedOut, FilterFailure::Restarted);
    assert_eq!(*failed.lock(), [(5, crowded), (1, restarted)]);
}

#[test]
fn a_filter_waits_for_late_samples_and_for_its_tolerance() {
    let listener = Arc::new(listener());
    let passed: Arc<Mutex<Vec<i64>>> = Arc::default();
    let noted = Arc::clone(&passed);
    let options = FilterOptions {
        targets: vec!["map".to_owned()],
        tolerance: Duration::from_nanos(10),
        capacity: 10,
    };
    let filter = listener.filter(
        options,
        move |value: i64| noted.lock().push(value),
        |_, _| {},
    );
    listener.take(&[one("map", "base", 100)], false);
    filter.push("base", 50.into(), 50);
    filter.push("base", 95.into(), 95);
    assert_eq!((filter.stats().waiting, filter.stats().too_old), (2, 0));
    listener.take(&[one("map", "base", 40)], false);
    assert_eq!(*passed.lock(), [50], "a late sample has placed it");
    listener.take(&[one("map", "base", 105)], false);
    assert_eq!(
        *passed.lock(),
        [50, 95],
        "now the time after it is known too"
    );
}

#[test]
fn the_clock_of_another_robot_drops_nothing_of_this_one() {
    let listener = listener();
    let filter = listener.filter(
        FilterOptions {
            targets: vec!["map".to_owned()],
            tolerance: Duration::ZERO,
            capacity: 10,
        },
        |_: i64| {},
        |_, _| {},
    );
    let second = 1_000_000_000;
    listener.take(&[one("map", "base", 50 * second)], false);
    filter.push("base", (60 * second).into(), 60);
    for at in [100, 101, 3, 3, 3] {
        let other = encoded(&[one("map", "base", at * second)]);
        let mut other = message("/robot2/tf", "tf2_msgs/msg/TFMessage", other);
        other.log_time = (at * second).into();
        listener.fill(other);
    }
    assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 1);
    let stats = filter.stats();
    assert_eq!((stats.waiting, stats.restarted), (1, 0));
}

#[test]
fn a_callback_may_panic_and_ask_for_the_buffers() {
    let listener = Arc::new(listener());
    listener.take(&[one("map", "base", 0)], false);
    let (own, passed) = (Arc::clone(&listener), Arc::<Mutex<Vec<i64>>>::default());
    let noted = Arc::clone(&passed);
    // Called while a message is being loaded.
    let waiting = listener
        .buffer
        .on_transform("map", "base", 10.into(), None, move |_| {
            noted.lock().push(own.buffers.lock().len() as i64);
        });
    let noted = Arc::clone(&passed);
    let filter = listener.filter(
        FilterOptions {
            targets: vec!["map".to_owned()],
            tolerance: Duration::ZERO,
            capacity: 10,
        },
        move |value: i64| {
            noted.lock().push(value);
            assert!(value != 10, "a panic that is meant");
        },
        |_, _| {},
    );
    for value in [10, 11] {
        filter.push("base", value.into(), value);
    }
    listener.take(&[one("map", "base", 20)], false);
    assert_eq!(*passed.lock(), [1, 10, 11]);
    drop(waiting);
}

#[test]
fn a_robot_in_a_namespace_whose_static_transforms_come_first_is_one() {
    let listener = listener();
    listener.take(&[one("base", "laser", 0)], true);
    let moving = encoded(&[one("map", "base", 0), one("map", "base", 10)]);
    listener.fill(message(
        "/robot/tf",
        "tf2_msgs/msg/TFMessage",
        moving.clone(),
    ));
    assert!(listener.buffer.lookup("map", "laser", 5.into()).is_ok());
    let names = || -> Vec<String> { listener.buffers.lock().keys().cloned().collect() };
    assert_eq!(names(), ["/robot"]);
    // Another one shares them, although they came before it, and the first keeps its buffer.
    listener.fill(message("/robot2/tf", "tf2_msgs/msg/TFMessage", moving));
    assert_eq!(names(), ["/robot", "/robot2"]);
    let other = listener.buffers.lock()["/robot2"].0.clone();
    assert!(other.lookup("map", "laser", 5.into()).is_ok());
    let later = encoded(&[one("map", "base", 20)]);
    listener.fill(message("/robot/tf", "tf2_msgs/msg/TFMessage", later));
    assert!(listener.buffer.lookup("map", "laser", 20.into()).is_ok());
    assert!(other.lookup("map", "laser", 20.into()).is_err());
}

#[test]
fn an_object_that_is_picked_up_and_a_second_robot_are_told_apart() {
    let listener = listener();
    listener.take(&[one("table", "cup", 0), one("gripper", "cup", 10)], false);
    assert!(listener.buffer.lookup("gripper", "cup", 10.into()).is_ok());
    assert_eq!(listener.stats.refused.load(Ordering::Relaxed), 0);
    let other = encoded(&[one("table", "cup", 20)]);
    listener.fill(message("/robot2/tf", "tf2_msgs/msg/TFMessage", other));
    let newest = listener
        .buffer
        .lookup_latest("gripper", "cup")
        .expect("there");
    assert_eq!(
        newest.stamp,
        Some(10.into()),
        "the other robot has its own buffer"
    );
    let loaders = listener.loaders.lock();
    let names: Vec<&str> = loaders.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["", "/robot2"]);
}
