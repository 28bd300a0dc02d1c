//! The form of the recording: order, times, rates, bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use asof_core::{Message, Stamp};
use asof_demo::{Demo, DemoEncoding, DemoOptions};

use crate::reader::{Cdr, DRIVE, on, transforms};

fn short(seed: u64, encoding: DemoEncoding) -> Vec<Message> {
    let options = DemoOptions {
        seed,
        encoding,
        duration: Duration::from_millis(1200),
        ..DemoOptions::default()
    };
    Demo::new(options).messages().collect()
}

/// FNV-1a over everything that a file would hold of the messages.
fn fingerprint(messages: &[Message]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for message in messages {
        eat(message.channel.topic.as_bytes());
        eat(&message.log_time.nanos().to_le_bytes());
        eat(&message.publish_time.nanos().to_le_bytes());
        eat(&message.sequence.to_le_bytes());
        eat(&message.payload);
    }
    hash
}

#[test]
fn the_same_seed_gives_the_same_bytes_in_every_encoding() {
    for encoding in [
        DemoEncoding::Cdr,
        DemoEncoding::Protobuf,
        DemoEncoding::Json,
    ] {
        assert!(short(7, encoding) == short(7, encoding), "{encoding:?}");
    }
}

#[test]
fn another_seed_gives_other_bytes() {
    assert_ne!(
        fingerprint(&short(7, DemoEncoding::Cdr)),
        fingerprint(&short(8, DemoEncoding::Cdr))
    );
}

/// Holds on every platform; a change of the drive on purpose changes the number with it.
#[test]
fn the_default_drive_is_the_same_on_every_platform() {
    assert_eq!(fingerprint(&DRIVE), 5614622663168415864);
}

#[test]
fn log_times_never_go_back() {
    assert!(DRIVE.is_sorted_by_key(|message| message.log_time));
}

#[test]
fn a_message_is_recorded_a_tenth_to_five_milliseconds_after_it_was_sent() {
    for message in DRIVE.iter() {
        let latency = message.log_time.since(message.publish_time);
        assert!((100_000..5_000_000).contains(&latency), "{latency} ns");
    }
}

#[test]
fn every_topic_has_its_rate() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for message in DRIVE.iter() {
        *counts.entry(&message.channel.topic).or_default() += 1;
    }
    let expected = [
        ("/camera/image", 300),
        ("/cmd_vel", 600),
        ("/diagnostics", 30),
        ("/imu", 6000),
        ("/joint_states", 1500),
        ("/map", 30),
        ("/odom", 1500),
        ("/scan", 300),
        ("/tf", 1500),
        ("/tf_static", 1),
    ];
    for (topic, count) in expected {
        assert_eq!(counts.get(topic), Some(&count), "{topic}");
    }
    assert!(counts["/bumper"] >= 5 && counts["/rosout"] >= 10);
    assert_eq!(counts.len(), 12);
}

#[test]
fn sequences_count_up_from_zero_on_every_topic() {
    let mut next: BTreeMap<&str, u32> = BTreeMap::new();
    for message in DRIVE.iter() {
        let expected = next.entry(&message.channel.topic).or_default();
        assert_eq!(message.sequence, *expected, "{}", message.channel.topic);
        *expected += 1;
    }
}

#[test]
fn header_stamps_are_publish_times() {
    for topic in [
        "/scan",
        "/odom",
        "/imu",
        "/map",
        "/camera/image",
        "/joint_states",
    ] {
        for message in on(topic) {
            assert_eq!(Cdr::new(&message.payload).stamp(), message.publish_time);
        }
    }
    for topic in ["/rosout", "/diagnostics"] {
        for message in on(topic) {
            assert_eq!(Cdr::new(&message.payload).stamp(), message.publish_time);
        }
    }
    for message in on("/tf").chain(on("/tf_static")) {
        for (stamp, ..) in transforms(message) {
            assert_eq!(stamp, message.publish_time);
        }
    }
}

#[test]
fn the_drive_starts_when_it_is_told_to() {
    let options = DemoOptions {
        start: Stamp::from_nanos(5_000_000_000),
        duration: Duration::from_millis(100),
        ..DemoOptions::default()
    };
    let times: Vec<Stamp> = Demo::new(options)
        .messages()
        .map(|message| message.publish_time)
        .collect();
    assert_eq!(times.iter().min(), Some(&Stamp::from_nanos(5_000_000_000)));
    assert_eq!(times.iter().max(), Some(&Stamp::from_nanos(5_095_000_000)));
}

#[test]
fn a_drive_of_no_time_says_nothing() {
    let options = DemoOptions {
        duration: Duration::ZERO,
        ..DemoOptions::default()
    };
    assert_eq!(Demo::new(options).messages().count(), 0);
}

#[test]
fn a_longer_drive_starts_like_a_shorter_one() {
    let two = DemoOptions {
        duration: Duration::from_secs(2),
        ..DemoOptions::default()
    };
    let two: Vec<Message> = Demo::new(two).messages().collect();
    // The last few of the shorter drive may be overtaken in the longer one.
    let shared = two.len() - 20;
    assert!(two[..shared] == DRIVE[..shared]);
}

#[test]
fn pictures_are_jpegs_of_320_by_240() {
    for message in on("/camera/image") {
        let mut cdr = Cdr::new(&message.payload);
        assert_eq!(cdr.header().1, "camera_optical");
        assert_eq!(cdr.string(), "jpeg");
        let jpeg = cdr.blob();
        cdr.end();
        assert!(jpeg.starts_with(&[0xff, 0xd8]) && jpeg.ends_with(&[0xff, 0xd9]));
        // SOF0: length, precision, height, width.
        let frame = jpeg
            .windows(4)
            .position(|bytes| bytes == [0xff, 0xc0, 0x00, 0x11])
            .expect("a baseline frame");
        assert_eq!(jpeg[frame + 5..frame + 9], [0, 240, 1, 64]);
    }
}

#[test]
fn json_says_the_same_as_cdr() {
    let json = short(1, DemoEncoding::Json);
    let cdr = short(1, DemoEncoding::Cdr);
    assert_eq!(json.len(), cdr.len());
    for (json, cdr) in json.iter().zip(&cdr) {
        assert_eq!(
            (json.log_time, &json.channel.topic),
            (cdr.log_time, &cdr.channel.topic)
        );
        let value: serde_json::Value =
            serde_json::from_slice(&json.payload).expect("a JSON object");
        match json.channel.topic.as_str() {
            "/odom" => {
                let mut cdr = Cdr::new(&cdr.payload);
                cdr.header();
                cdr.string();
                let [x, y, _]: [f64; 3] = cdr.float64s();
                assert_eq!(value["pose"]["position"]["x"].as_f64(), Some(x));
                assert_eq!(value["pose"]["position"]["y"].as_f64(), Some(y));
            }
            "/imu" => {
                let mut cdr = Cdr::new(&cdr.payload);
                cdr.header();
                let _orientation: [f64; 13] = cdr.float64s();
                let [_, _, rate]: [f64; 3] = cdr.float64s();
                assert_eq!(value["angular_velocity"]["z"].as_f64(), Some(rate));
            }
            "/bumper" => assert_eq!(value["is_pressed"].as_bool(), Some(cdr.payload[4] == 1)),
            _ => {}
        }
    }
}

#[test]
fn every_channel_has_a_schema_in_the_language_of_its_encoding() {
    for (encoding, names) in [
        (DemoEncoding::Cdr, ("cdr", "ros2msg")),
        (DemoEncoding::Protobuf, ("protobuf", "protobuf")),
        (DemoEncoding::Json, ("json", "jsonschema")),
    ] {
        let demo = Demo::new(DemoOptions {
            encoding,
            ..DemoOptions::default()
        });
        for channel in demo.channels() {
            let schema = channel.schema.as_ref().expect("a schema");
            assert_eq!(
                (channel.message_encoding.as_str(), schema.encoding.as_str()),
                names
            );
            assert!(!schema.data.is_empty() && !schema.name.is_empty());
        }
    }
}
