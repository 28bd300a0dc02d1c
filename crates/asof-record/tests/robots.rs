//! What a robot publishes on 127.0.0.1 is in the recording.

mod common;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asof_core::testing::eventually;
use asof_core::{Message, Stamp};
use asof_live::ros::Durability::{TransientLocal, Volatile};
use asof_live::ros::QosProfile;
use asof_live::{PublisherOptions, TopicPublisher};
use asof_record::{RecordOptions, RecordOutput, Recorder, SplitOptions};

use common::{SOON, messages, number, pair, talker};

#[test]
fn a_recording_holds_the_same_bytes_and_the_robots_times() {
    let (robot, observer) = pair();
    let talker = talker(&robot, "/count", Volatile);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.mcap");
    observer.wait_for_topic("/count", SOON).expect("discovered");
    let recorder = Recorder::create(&observer, &path, RecordOptions::default(), |_| true);
    let recorder = recorder.expect("a recorder");
    eventually("a subscriber", || talker.is_heard());
    for value in 1..=20 {
        let at = (1_000 + i64::from(value)).into();
        talker.publish(number(value), at).expect("published");
    }
    eventually("twenty messages", || recorder.report().written() == 20);
    let report = recorder.stop().expect("closed whole");
    assert_eq!(report.dropped(), 0);
    let messages = messages(&path);
    assert_eq!(messages.len(), 20);
    assert_eq!(&messages[6].payload[..], &number(7)[..]);
    assert_eq!(
        (messages[6].sequence, messages[6].publish_time),
        (7, 1_007.into())
    );
    assert_eq!(messages[6].channel.type_name(), "std_msgs/msg/UInt32");
}

#[test]
fn a_slow_disk_costs_counted_messages_and_nothing_else() {
    /// A disk that stands still until it is told otherwise.
    struct Slow(Cursor<Vec<u8>>, Arc<AtomicBool>);
    impl std::io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            while self.1.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(4));
            }
            self.0.write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl std::io::Seek for Slow {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    impl RecordOutput for Slow {}
    let (robot, observer) = pair();
    let talker = talker(&robot, "/count", Volatile);
    observer.wait_for_topic("/count", SOON).expect("discovered");
    let mut options = RecordOptions {
        queue_bytes: 20_000,
        ..RecordOptions::default()
    };
    options.writer.chunk_size = 1;
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = Slow(Cursor::new(Vec::new()), Arc::clone(&is_slow));
    let recorder = Recorder::start(&observer, slow, options, |_| true).expect("a recorder");
    eventually("a subscriber", || talker.is_heard());
    is_slow.store(true, Ordering::Relaxed);
    for value in 1..=500 {
        talker.publish(number(value), 1.into()).expect("published");
    }
    eventually("drops", || recorder.report().dropped() > 0);
    is_slow.store(false, Ordering::Relaxed);
    eventually("all five hundred", || {
        let report = recorder.report();
        report.written() + report.dropped() == 500
    });
    let report = recorder.stop().expect("closed whole");
    assert_eq!(report.written() + report.dropped(), 500);
    assert!(report.written() > 0);
}

#[test]
fn a_recording_of_many_topics_holds_what_came_on_each() {
    let (robot, observer) = pair();
    let talkers = (0..200).map(|topic| talker(&robot, &format!("/t{topic:03}"), Volatile));
    let talkers: Vec<TopicPublisher> = talkers.collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.mcap");
    let recorder = Recorder::create(&observer, &path, RecordOptions::default(), |_| true);
    let recorder = recorder.expect("a recorder");
    eventually("subscribers", || {
        talkers.iter().all(TopicPublisher::is_heard)
    });
    for talker in &talkers {
        talker.publish(number(1), 1.into()).expect("published");
    }
    eventually("all are written", || recorder.report().written() == 200);
    let report = recorder.stop().expect("stopped");
    assert_eq!((report.topics.len(), report.dropped()), (200, 0));
    assert_eq!(messages(&path).len(), 200);
}

/// A time of the robot's clock, in seconds.
fn clock(seconds: u32) -> Vec<u8> {
    [&number(seconds)[..], &[0; 4]].concat()
}

#[test]
fn a_recorder_that_is_restarted_beside_a_clock_that_is_set_back_loses_nothing() {
    let (robot, observer) = pair();
    let fixed = talker(&robot, "/tf_static", TransientLocal);
    fixed.publish(number(7), 1.into()).expect("published");
    let counter = talker(&robot, "/count", Volatile);
    let options = PublisherOptions {
        node: "simulator".to_owned(),
        topic: "/clock".to_owned(),
        type_name: "rosgraph_msgs/msg/Clock".to_owned(),
        definition: String::new(),
        qos: QosProfile::default(),
        waits: true,
    };
    let time = robot.publisher(&options).expect("a publisher");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let mut options = RecordOptions {
        sim_time: true,
        ..RecordOptions::default()
    };
    options.writer.chunk_size = 1;
    let split = SplitOptions {
        bytes: Some(4_000),
        ..SplitOptions::default()
    };
    let mut published = 0;
    // Restarted three times; the clock is set back in the second run and in the third one.
    let mut second = 20_000;
    for run in 0..4 {
        let recorder =
            Recorder::create_parts(&observer, &path, split.clone(), options.clone(), |_| true);
        let recorder = recorder.expect("a recorder");
        let written = |topic: &str| {
            let report = recorder.report();
            report.topics.get(topic).map_or(0, |topic| topic.written)
        };
        eventually("subscribers", || counter.is_heard() && time.is_heard());
        eventually("the clock and what is latched", || {
            time.publish(clock(second), 1.into()).expect("published");
            written("/clock") > 0 && written("/tf_static") > 0
        });
        let begun = published;
        while published < begun + 200 {
            let is_set_back = (1..=2).contains(&run) && published == begun + 100;
            second = if is_set_back {
                second - 4_000
            } else {
                second + 1
            };
            time.publish(clock(second), 1.into()).expect("published");
            counter
                .publish(number(published), 1.into())
                .expect("published");
            published += 1;
        }
        eventually("all are written", || written("/count") == 200);
        let report = recorder.stop().expect("closed whole");
        assert!(report.parts.files.len() > 2, "{report:?}");
    }
    let mut counted = Vec::new();
    for entry in std::fs::read_dir(folder.path()).expect("a folder") {
        let path = entry.expect("a file").path();
        let held = messages(&path);
        let is_fixed = |one: &Message| one.channel.topic == "/tf_static";
        assert!(held.iter().any(is_fixed), "{} lacks it", path.display());
        let numbers = held.iter().filter(|one| one.channel.topic == "/count");
        counted.extend(numbers.map(|one| one.payload.clone()));
    }
    counted.sort();
    let mut expected: Vec<Vec<u8>> = (0..published).map(number).collect();
    expected.sort();
    assert_eq!(counted, expected);
}

#[test]
fn stamps_of_a_simulated_robot_are_compared_with_its_clock() {
    let (robot, observer) = pair();
    let own = |topic: &str, type_name: &str| {
        let definition = asof_formats::Definitions::standard().full_text(type_name);
        let options = PublisherOptions {
            node: "simulator".to_owned(),
            topic: topic.to_owned(),
            type_name: type_name.to_owned(),
            definition: definition.expect("a standard type"),
            qos: QosProfile::default(),
            waits: true,
        };
        robot.publisher(&options).expect("a publisher")
    };
    let time = own("/clock", "rosgraph_msgs/msg/Clock");
    let point = own("/point", "geometry_msgs/msg/PointStamped");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let options = RecordOptions {
        sim_time: true,
        ..RecordOptions::default()
    };
    let recorder = Recorder::create(&observer, &path, options, |_| true).expect("a recorder");
    let written = |topic: &str| {
        let report = recorder.report();
        report.topics.get(topic).map_or(0, |topic| topic.written)
    };
    eventually("subscribers", || point.is_heard() && time.is_heard());
    eventually("the clock", || {
        time.publish(clock(100), Stamp::now()).expect("published");
        written("/clock") > 0
    });
    // The stamp, an empty name, and three numbers.
    let stamped = |second: u32| [&clock(second)[..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0; 24]].concat();
    for second in [100, 100, 7_200] {
        let published = point.publish(stamped(second), Stamp::now());
        published.expect("published");
    }
    eventually("all are written", || written("/point") == 3);
    let report = recorder.stop().expect("stopped");
    let stamps = report.topics["/point"].stamps;
    assert_eq!(
        (stamps.off, stamps.offset),
        (1, 7_100_000_000_000),
        "{stamps}"
    );
    for message in messages(&path) {
        let late = message.log_time.since(message.publish_time);
        assert!((0..60_000_000_000).contains(&late), "{late} ns");
    }
}

#[test]
fn an_existing_file_is_not_recorded_over() {
    let (_robot, observer) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("precious.mcap");
    std::fs::write(&path, "precious").expect("written");
    let recorder = Recorder::create(&observer, &path, RecordOptions::default(), |_| true);
    assert!(recorder.is_err());
    assert_eq!(std::fs::read(&path).expect("read"), b"precious");
}
