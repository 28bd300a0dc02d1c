//! Two sessions on 127.0.0.1: what one publishes, the other discovers, receives and windows.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asof_core::testing::eventually;
use asof_core::{FollowEnd, Followed, Message, Query, Source, Stamp};
use asof_live::ros::{QosProfile, SampleAttachment};
use asof_live::{LiveSource, RecentOptions, Robot, Sample, connect};
use asof_tf::ros::StampedTransform;
use zenoh::Wait;
use zenoh::qos::CongestionControl;
use zenoh_ext::{AdvancedPublisherBuilderExt, CacheConfig};

/// Long: a machine may be slow, and a test that passes never waits for so long.
const SOON: Duration = Duration::from_mins(1);
const IMU: &str = "sensor_msgs::msg::dds_::Imu_";
const HASH: &str = "RIHS01_7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b";

/// A port of this machine that is free at the moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn pair() -> (Robot, Robot) {
    let port = free_port();
    let robot = connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a listener");
    let observer = connect(&format!("zenoh://127.0.0.1:{port}")).expect("a session");
    (robot, observer)
}

fn token(robot: &Robot, number: u32, topic: &str, qos: &str) -> zenoh::liveliness::LivelinessToken {
    let session = robot.zenoh().expect("on Zenoh");
    let topic = topic.replace('/', "%");
    let key = format!(
        "@ros2_lv/0/{}/0/{number}/MP/%/%/driver/{topic}/{IMU}/{HASH}/{qos}",
        session.zid()
    );
    session
        .liveliness()
        .declare_token(key)
        .wait()
        .expect("a token")
}

fn key(topic: &str) -> String {
    format!("0{topic}/{IMU}/{HASH}")
}

fn imu(seconds: u32) -> Vec<u8> {
    let mut cdr = vec![0, 1, 0, 0];
    cdr.extend(seconds.to_le_bytes());
    cdr.extend(5u32.to_le_bytes());
    cdr.extend([0; 40]);
    cdr
}

/// Until what is put on a topic reaches a subscriber elsewhere.
fn until_heard(robot: &Robot, topic: &str) {
    let publisher = robot
        .zenoh()
        .expect("on Zenoh")
        .declare_publisher(key(topic))
        .wait();
    let publisher = publisher.expect("a publisher");
    eventually("a subscriber", || {
        let status = publisher.matching_status().wait();
        status.is_ok_and(|status| status.matching())
    });
}

fn publish(robot: &Robot, topic: &str, sequence: i64, payload: Vec<u8>) {
    let attachment = SampleAttachment {
        sequence,
        source_timestamp: (1_000 + sequence).into(),
        gid: [9; 16],
    };
    robot
        .zenoh()
        .expect("on Zenoh")
        .put(key(topic), payload)
        .attachment(attachment.to_bytes().to_vec())
        // A burst must not be thinned out on a busy machine.
        .congestion_control(CongestionControl::Block)
        .wait()
        .expect("published");
}

#[test]
fn a_ros_topic_is_discovered_windowed_and_stamped_by_its_header() {
    let (robot, observer) = pair();
    let window = observer
        .create_window::<Sample>("/imu/data", 10)
        .with_stamp(|sample: &Sample| sample.header_stamp())
        .build()
        .expect("a window");
    let _token = token(&robot, 1, "/imu/data", &QosProfile::default().to_text());
    let topic = observer
        .wait_for_topic("/imu/data", SOON)
        .expect("discovered");
    assert_eq!(topic.types, ["sensor_msgs/msg/Imu"]);
    eventually("a subscription", || !window.keys().is_empty());
    until_heard(&robot, "/imu/data");
    for second in 1..=12 {
        publish(&robot, "/imu/data", second.into(), imu(second));
    }
    let last = window
        .wait_for(Stamp::from_nanos(12_000_000_005), SOON)
        .expect("the last");
    assert_eq!((last.sequence, last.source), (Some(12), Some(1_012.into())));
    assert_eq!((window.len(), window.stats().evicted), (10, 2));
    assert_eq!(window.stamp_fallbacks(), 0);
    assert_eq!(window.keys(), [key("/imu/data")]);
}

#[test]
fn a_raw_key_is_indexed_by_the_transports_time_and_missing_stamps_are_counted() {
    let (robot, observer) = pair();
    let window = observer
        .create_window::<Message>("demo/**", 100)
        .build()
        .expect("a window");
    let source = observer
        .create_window::<Message>("demo/**", 100)
        .with_source_stamp()
        .build()
        .expect("a window");
    eventually("the first message", || {
        robot.put("demo/a", "hello").expect("published");
        !window.is_empty() && !source.is_empty()
    });
    let first = window.oldest().expect("one");
    assert_eq!(
        (first.channel.topic.as_str(), &first.payload[..]),
        ("demo/a", b"hello".as_slice())
    );
    assert_eq!(
        window.stamp_fallbacks(),
        0,
        "the transport stamps every message"
    );
    assert!(
        source.stamp_fallbacks() > 0,
        "nothing is attached to a raw key"
    );
}

#[test]
fn a_late_joiner_gets_the_history_of_a_transient_local_topic() {
    let (robot, observer) = pair();
    let latched = robot
        .zenoh()
        .expect("on Zenoh")
        .declare_publisher(key("/map"))
        .cache(CacheConfig::default().max_samples(3))
        .publisher_detection()
        .wait()
        .expect("a publisher");
    for second in 1..=5u32 {
        latched.put(imu(second)).wait().expect("published");
    }
    let _token = token(&robot, 2, "/map", ":1:,3:,:,:,,");
    let window = observer
        .create_window::<Sample>("/map", 10)
        .with_stamp(|sample: &Sample| sample.header_stamp())
        .build()
        .expect("a window");
    eventually("history", || window.len() == 3);
    let seconds: Vec<i64> = window
        .iter()
        .map(|entry| entry.stamp.nanos() / 1_000_000_000)
        .collect();
    assert_eq!(seconds, [3, 4, 5]);
}

#[test]
fn windows_go_on_when_a_router_goes_away_and_comes_back() {
    let port = free_port();
    let address = format!("zenoh://?mode=router&listen=127.0.0.1:{port}");
    let router = connect(&address).expect("a router");
    let observer = connect(&format!("zenoh://127.0.0.1:{port}?mode=client")).expect("a client");
    let window = Arc::new(
        observer
            .create_window::<Message>("demo/a", 1000)
            .build()
            .expect("a window"),
    );
    eventually("a message", || {
        router.put("demo/a", "before").expect("published");
        !window.is_empty()
    });
    router
        .zenoh()
        .expect("on Zenoh")
        .close()
        .wait()
        .expect("closed");
    drop(router);
    let mut again = None;
    eventually("the port to be free again", || {
        again = connect(&address).ok();
        again.is_some()
    });
    let router = again.expect("a router");
    eventually("a message from the new router", || {
        router.put("demo/a", "after").expect("published");
        window
            .newest()
            .is_some_and(|entry| entry.payload == "after")
    });
}

#[test]
fn a_dropped_window_closes_for_those_who_wait() {
    let (_robot, observer) = pair();
    let window = observer
        .create_window::<Message>("demo/b", 10)
        .build()
        .expect("a window");
    let held = (*window).clone();
    drop(window);
    assert!(held.wait_for_change(SOON).is_err());
}

#[test]
fn a_publisher_that_hands_over_buffers_is_told_that_somebody_listens() {
    let (robot, observer) = pair();
    let _window = observer
        .create_window::<Sample>("/camera", 10)
        .build()
        .expect("a window");
    let listeners = |topic: &str| {
        let wanted = format!("@ros2_lv/0/*/*/*/MS/**/%{topic}/**");
        let replies = robot
            .zenoh()
            .expect("on Zenoh")
            .liveliness()
            .get(wanted)
            .wait()
            .expect("asked");
        replies.into_iter().count()
    };
    // As publishers of ROS 2 before 2026 are known; nobody has to be told.
    let _plain = token(&robot, 1, "/camera", &QosProfile::default().to_text());
    observer
        .wait_for_topic("/camera", SOON)
        .expect("discovered");
    until_heard(&robot, "/camera");
    assert_eq!(listeners("camera"), 0);
    // As rmw_zenoh of 2026 appends it for a type with buffers.
    let qos = format!(
        "{}/backends:cpu:;cuda:device%3A0",
        QosProfile::default().to_text()
    );
    let _newer = token(&robot, 2, "/camera", &qos);
    eventually("a listener", || listeners("camera") == 1);
}

#[test]
fn a_type_that_is_defined_otherwise_on_the_robot_is_not_read_wrongly() {
    let (robot, observer) = pair();
    let other = HASH.replace("7d9a", "0000");
    let session = robot.zenoh().expect("on Zenoh");
    let token = format!(
        "@ros2_lv/0/{}/0/1/MP/%/%/driver/%imu/{IMU}/{other}/::,:,:,:,,",
        session.zid()
    );
    let _token = session
        .liveliness()
        .declare_token(token)
        .wait()
        .expect("a token");
    let topic = observer.wait_for_topic("/imu", SOON).expect("discovered");
    let schema = topic.publishers[0].channel.schema.as_ref();
    assert!(
        schema.is_some_and(|schema| schema.name == "sensor_msgs/msg/Imu" && schema.data.is_empty())
    );
    let (told, heard) = std::sync::mpsc::channel();
    let _subscription = observer.subscribe(
        |_| true,
        move |sample| {
            let _ = told.send(sample.is_defined_otherwise());
        },
    );
    eventually("a message", || {
        let put = session.put(format!("0/imu/{IMU}/{other}"), imu(1));
        put.wait().expect("published");
        heard.try_recv() == Ok(true)
    });
}

#[test]
fn a_robot_is_a_source_that_keeps_its_promises_while_it_grows() {
    let (robot, observer) = pair();
    let source = observer
        .recent(&RecentOptions::default().with_key("demo/**"))
        .expect("a source");
    let _token = token(&robot, 1, "/imu/data", &QosProfile::default().to_text());
    let topics = |source: &LiveSource| source.summary().topics().len();
    eventually("a topic", || topics(&source) == 1);
    until_heard(&robot, "/imu/data");
    let deadline = std::time::Instant::now() + SOON;
    assert!(source.wait_for_topics(deadline));
    let mut sent = 0;
    let mut grow = || {
        let before = source.stats().messages;
        for _ in 0..20 {
            sent += 1;
            publish(&robot, "/imu/data", sent, imu(sent as u32));
            robot
                .zenoh()
                .expect("on Zenoh")
                .put("demo/talker", vec![7; 40_000])
                .congestion_control(CongestionControl::Block)
                .wait()
                .expect("published");
        }
        eventually("all of them", || source.stats().messages == before + 40);
        let newest = source.read(&Query::all()).expect("read");
        let all: Vec<Message> = newest
            .flat_map(|batch| {
                let batch = batch.expect("a batch");
                batch
                    .iter()
                    .map(|message| message.to_message())
                    .collect::<Vec<_>>()
            })
            .collect();
        all[before as usize..].to_vec()
    };
    assert_eq!(grow().len(), 40);
    asof_core::testing::assert_growing(&source, "a robot", &mut grow);
    let summary = source.summary();
    assert_eq!(summary.profile, "ros2");
    assert_eq!(summary.topics(), ["/imu/data", "demo/talker"]);
    assert!(
        summary
            .recent
            .as_ref()
            .is_some_and(|recent| recent.is_connected)
    );
    let stats = source.stats();
    assert!(stats.bytes > 40_000 * stats.messages / 2, "{stats:?}");

    let mut follow = source.follow(&Query::all()).expect("followed");
    drop(source);
    let soon = std::time::Instant::now() + SOON;
    let end = loop {
        match follow.next(soon).expect("followed") {
            Followed::Batch(_) => {}
            other => break other,
        }
    };
    assert!(matches!(end, Followed::End(FollowEnd::Closed)), "{end:?}");
}

#[test]
fn transforms_of_a_robot_are_heard_in_one_line_also_those_that_were_sent_before() {
    let (robot, observer) = pair();
    let frames = robot.broadcaster("mover").expect("a broadcaster");
    let at = |parent: &str, child: &str, stamp: i64| StampedTransform {
        stamp: stamp.into(),
        parent: parent.to_owned(),
        child: child.to_owned(),
        isometry: nalgebra::Isometry3::translation(1.0, 0.0, 0.0),
    };
    frames.send_static(&[at("base", "laser", 0)]).expect("sent");
    frames
        .send_static(&[at("base", "camera", 0)])
        .expect("sent");
    let transforms = observer.transforms();
    let passed: Arc<AtomicBool> = Arc::default();
    let noted = Arc::clone(&passed);
    let filter = transforms.filter("map", 10, move |()| noted.store(true, Ordering::Relaxed));
    filter.push("laser", 1_500_000_000.into(), ());
    eventually("what was sent before", || {
        transforms.find("laser").is_some() && transforms.find("camera").is_some()
    });
    eventually("a subscription", || transforms.keys().len() == 2);
    let mut stamp = 1_000_000_000;
    eventually("a transform", || {
        frames.send(&[at("map", "base", stamp)]).expect("sent");
        stamp += 100_000_000;
        passed.load(Ordering::Relaxed)
    });
    let pose = transforms.lookup("map", "laser", 1_500_000_000.into());
    assert!((pose.expect("a pose").translation.x - 2.0).abs() < 1e-9);
    assert_eq!(filter.stats().passed, 1);
    let stats = transforms.transform_stats();
    assert_eq!((stats.refused, stats.restarts), (0, 0));
}

#[derive(serde::Deserialize)]
struct Turning {
    angular_velocity: [f64; 3],
}

#[derive(serde::Deserialize)]
struct Misfit {
    #[allow(dead_code, reason = "it never fits")]
    orientation: String,
}

#[test]
fn a_window_of_structs_is_held_against_the_type_and_filled_with_what_comes() {
    let (robot, observer) = pair();
    let _token = token(&robot, 1, "/imu/data", &QosProfile::default().to_text());
    let window = observer.window::<Turning>("/imu/data").expect("it fits");
    until_heard(&robot, "/imu/data");
    let mut cdr = vec![0, 1, 0, 0];
    cdr.extend(7u32.to_le_bytes());
    cdr.extend(5u32.to_le_bytes());
    // An empty frame, then the quaternion, its covariance, and the velocities.
    cdr.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    cdr.resize(4 + 16 + (4 + 9) * 8, 0);
    for number in [1.0f64, 2.0, 3.0] {
        cdr.extend(number.to_le_bytes());
    }
    cdr.resize(4 + 16 + (4 + 9 + 3 + 9 + 3 + 9) * 8, 0);
    publish(&robot, "/imu/data", 1, cdr.clone());
    publish(&robot, "/imu/data", 2, vec![0, 1, 0, 0, 9]);
    eventually("both", || window.len() == 1 && window.undecodable() == 1);
    let newest = window.newest().expect("one");
    assert_eq!(newest.stamp, 7_000_000_005.into());
    assert_eq!(newest.angular_velocity.map(|v| v as i64), [1, 2, 3]);
    // What a struct points to is weighed by what it was decoded from.
    let few = asof_window::Bounds::bytes(3 * cdr.len() as u64);
    let few = observer.window_within::<Turning>("/imu/data", few);
    let few = few.expect("it fits");
    eventually("a subscription", || !few.keys().is_empty());
    until_heard(&robot, "/imu/data");
    for second in 8u32..20 {
        cdr[4..8].copy_from_slice(&second.to_le_bytes());
        publish(&robot, "/imu/data", second.into(), cdr.clone());
    }
    few.wait_for(19_000_000_005.into(), SOON).expect("the last");
    assert_eq!(few.len(), 2);
    let error = observer
        .window::<Misfit>("/imu/data")
        .err()
        .expect("a text");
    assert!(error.to_string().contains("orientation"), "{error}");
}

/// A robot on DDS behind zenoh-bridge-ros2dds: its tokens, its bare keys, and what it keeps for late joiners.
#[test]
fn a_bridged_robot_is_discovered_by_its_tokens_and_heard_on_bare_keys() {
    let (robot, observer) = pair();
    let zid = robot.zenoh().expect("on Zenoh").zid();
    let declare = |text: String| {
        robot
            .zenoh()
            .expect("on Zenoh")
            .liveliness()
            .declare_token(text)
            .wait()
    };
    // What an older bridge has kept is asked for where it says; it is there before the token that leads to it.
    let kept = robot
        .zenoh()
        .expect("on Zenoh")
        .declare_queryable(format!("@/{zid}/@ros2_pub_cache/tf_static"))
        .callback(|query| {
            let reply = query.reply("tf_static", imu(3)).wait();
            reply.expect("a reply");
        })
        .wait();
    let _kept = kept.expect("a queryable");
    let _bridge = declare(format!("@/{zid}/@ros2_lv")).expect("a token");
    let _imu = declare(format!(
        "@/{zid}/@ros2_lv/MP/imu§data/sensor_msgs§msg§Imu/:1:0:0,10"
    ));
    let _fixed = declare(format!(
        "@/{zid}/@ros2_lv/MP/tf_static/tf2_msgs§msg§TFMessage/:1:1:0,1"
    ));
    let _reader = declare(format!(
        "@/{zid}/@ros2_lv/MS/cmd_vel/geometry_msgs§msg§Twist/:1:0:0,10"
    ));
    let source = observer.recent(&RecentOptions::default());
    let source = source.expect("a source");
    eventually("both topics", || observer.topics().len() == 2);
    let topics = observer.topics();
    assert_eq!(topics[0].name, "/imu/data");
    assert_eq!(topics[0].types, ["sensor_msgs/msg/Imu"]);
    let channel = &topics[0].publishers[0].channel;
    assert_eq!(channel.message_encoding, "cdr");
    assert!(
        channel
            .schema
            .as_ref()
            .is_some_and(|schema| !schema.data.is_empty())
    );
    eventually("what was kept", || source.stats().messages == 1);
    let publisher = robot
        .zenoh()
        .expect("on Zenoh")
        .declare_publisher("imu/data")
        .wait();
    let publisher = publisher.expect("a publisher");
    eventually("a subscriber", || {
        let status = publisher.matching_status().wait();
        status.is_ok_and(|status| status.matching())
    });
    publisher.put(imu(7)).wait().expect("published");
    eventually("its message", || source.stats().messages == 2);
}

#[test]
fn a_topic_with_and_without_a_bridge_is_recorded_once() {
    let (robot, observer) = pair();
    let zid = robot.zenoh().expect("on Zenoh").zid();
    let bridged = format!("@/{zid}/@ros2_lv/MP/imu§data/sensor_msgs§msg§Imu/:1:0:0,10");
    let bridged = robot
        .zenoh()
        .expect("on Zenoh")
        .liveliness()
        .declare_token(bridged)
        .wait();
    let _bridged = bridged.expect("a token");
    let source = observer
        .recent(&RecentOptions::default())
        .expect("a source");
    eventually("the bridged one", || source.keys() == ["imu/data"]);
    let own = token(&robot, 1, "/imu/data", &QosProfile::default().to_text());
    eventually("the other one", || source.keys() == [key("/imu/data")]);
    until_heard(&robot, "/imu/data");
    robot.put("imu/data", imu(1)).expect("published");
    publish(&robot, "/imu/data", 1, imu(1));
    publish(&robot, "/imu/data", 2, imu(2));
    eventually("two messages", || source.stats().messages >= 2);
    assert_eq!(source.stats().messages, 2);
    assert_eq!(observer.topics().len(), 1);
    drop(own);
    eventually("the bridged one again", || {
        let keys = source.keys();
        keys.contains(&"imu/data".to_owned())
    });
}

#[test]
fn a_thousand_topics_are_found_and_those_that_go_are_let_go() {
    let (robot, observer) = pair();
    let qos = QosProfile::default().to_text();
    let declare = |number: u32| token(&robot, number, &format!("/t{number:04}"), &qos);
    let tokens: Vec<_> = (0..1_000).map(declare).collect();
    let subscription = observer.subscribe(|_| true, |_| {});
    eventually("a thousand topics", || observer.topics().len() == 1_000);
    eventually("as many subscriptions", || {
        subscription.keys().len() == 1_000
    });
    drop(tokens);
    eventually("no topic", || observer.topics().is_empty());
    eventually("few subscriptions", || subscription.keys().len() <= 256);
    let _again = declare(5_000);
    let last = key("/t5000");
    eventually("the new one", || subscription.keys().contains(&last));
}

#[test]
fn a_callback_may_ask_its_own_subscription() {
    let (robot, observer) = pair();
    let _token = token(&robot, 1, "/imu", &QosProfile::default().to_text());
    let shared: Arc<std::sync::Mutex<Option<asof_live::Subscription>>> = Arc::default();
    let asked = Arc::clone(&shared);
    let (told, heard) = std::sync::mpsc::channel();
    let subscription = observer.subscribe(
        |_| true,
        move |_| {
            let keys = asked.lock().expect("no panic");
            let _ = told.send(keys.as_ref().map(asof_live::Subscription::keys));
        },
    );
    *shared.lock().expect("no panic") = Some(subscription);
    until_heard(&robot, "/imu");
    publish(&robot, "/imu", 1, imu(1));
    let keys = heard.recv_timeout(SOON).expect("heard");
    assert_eq!(keys, Some(vec![key("/imu")]));
    // It ends before what it calls.
    drop(shared.lock().expect("no panic").take());
}
