//! PX4 logs: what is in them, and how they survive damage.

mod common;

use asof_core::testing::assert_source;

use asof_core::{FileParts, Message, Query, Source, Stamp, Topics};
use asof_formats::UlogFile;
use common::ulogs::{SYNC, UlogMaker, flight};
use common::{Dice, messages, mutate};

fn open(maker: &UlogMaker) -> UlogFile {
    UlogFile::from_bytes("flight.ulg", maker.bytes.clone()).expect("opens")
}

fn on(log: &UlogFile, topic: &str) -> Vec<Message> {
    messages(log, &Query::topics([topic]))
}

/// The texts that lie in a CDR payload, one after the other, from a place on.
fn holds(message: &Message, text: &str) -> bool {
    message
        .payload
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn topics_instances_parameters_strings_and_dropouts_are_topics() {
    let log = open(&flight(50));
    let summary = log.summary();
    let counts: Vec<(&str, Option<u64>)> = summary
        .channels
        .iter()
        .map(|entry| (entry.channel.topic.as_str(), entry.messages))
        .collect();
    let wanted = [
        ("/parameters", 4),
        ("/logged_strings", 2),
        ("/dropouts", 1),
        ("/sensor_accel", 50),
        ("/sensor_accel/1", 50),
        ("/battery", 5),
    ];
    assert_eq!(counts, wanted.map(|(topic, count)| (topic, Some(count))));
    assert_eq!(summary.library, "PX4x5");
    assert_eq!(summary.channels[4].channel.metadata["multi_id"], "1");
}

#[test]
fn a_message_is_cdr_with_a_definition_and_the_time_of_the_vehicle() {
    let log = open(&flight(50));
    let battery = &on(&log, "/battery")[0];
    assert_eq!(battery.log_time, Stamp::from_nanos(1_000_007_000));
    let schema = battery.channel.schema.as_ref().expect("a schema");
    assert_eq!(
        (schema.name.as_str(), schema.encoding.as_str()),
        ("ulog/msg/Battery", "ros2msg")
    );
    assert!(
        schema
            .data
            .starts_with(b"uint64 timestamp\nulog/Cell[2] cells\nbool charging\nstring name\n")
    );
    let wanted = [
        &[0, 1, 0, 0][..],
        &1_000_007u64.to_le_bytes(),
        &[0x10, 0x0e, 0x15, 0],
        &[0x11, 0x0e, 0xfe, 1],
        &[5, 0, 0, 0],
        b"lipo\0",
    ];
    assert_eq!(battery.payload, wanted.concat());
}

#[test]
fn parameters_say_whether_they_are_initial_changed_or_defaults() {
    let log = open(&flight(50));
    let found = on(&log, "/parameters");
    for (message, (name, source)) in found.iter().zip([
        ("SYS_AUTOSTART", "initial"),
        ("MC_ROLL_P", "initial"),
        ("SYS_AUTOSTART", "default"),
        ("MC_ROLL_P", "changed"),
    ]) {
        assert!(
            holds(message, name) && holds(message, source),
            "{name} {source}"
        );
    }
    assert_eq!(found[0].log_time, Stamp::from_nanos(1_000_000_000));
    assert_eq!(found[3].log_time, Stamp::from_nanos(1_020_007_000));
}

#[test]
fn strings_are_kept_with_and_without_a_tag() {
    let log = open(&flight(50));
    let found = on(&log, "/logged_strings");
    assert!(holds(&found[0], "takeoff") && holds(&found[1], "tagged"));
    assert!(found.iter().all(|message| holds(message, "warning")));
}

#[test]
fn dropouts_are_a_topic_and_the_doctor_tells_of_them() {
    let log = open(&flight(50));
    assert_eq!(log.summary().problems, []);
    let problems = log.check(&mut |_, _| Ok(())).expect("reads");
    assert_eq!(problems.len(), 1);
    assert!(problems[0].message.contains("1 times and dropped 0.250 s"));
}

#[test]
fn what_the_logger_wrote_about_the_vehicle_is_metadata() {
    let log = open(&flight(1));
    let entry = log.summary().metadata[0].clone();
    let found = log.metadata(&entry).expect("there");
    assert_eq!(found["ver_sw_release"], "7");
    assert_eq!(found["boot[0]"], "abcdef");
    assert_eq!(found["boot[1]"], "ghi");
}

#[test]
fn data_appended_behind_a_log_that_was_cut_are_read() {
    let mut maker = flight(30);
    let cut = maker.bytes.len() - 7;
    maker.bytes.truncate(cut);
    maker
        .append_here()
        .logged(1_040_000, None, "hard fault")
        .data(3, 1_041_000, &[0; 5]);
    let log = open(&maker);
    assert!(holds(
        on(&log, "/logged_strings").last().expect("one"),
        "hard fault"
    ));
    assert_eq!(on(&log, "/sensor_accel").len(), 31);
    let problems = &log.summary().problems;
    assert!(
        problems
            .iter()
            .any(|problem| problem.message.contains("before more was appended")),
        "{problems:?}"
    );
}

#[test]
fn a_large_log_is_read_in_sections_and_keeps_its_promises() {
    let log = open(&flight(60_000));
    assert_eq!(messages(&log, &Query::all()).len(), 126_007);
    // The suite reads everything very often.
    assert_source(&open(&flight(3000)), "flight.ulg");
}

#[test]
fn garbage_costs_only_what_it_hit() {
    let maker = flight(200);
    let mut bytes = maker.bytes.clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 40].fill(0xee);
    let log = UlogFile::from_bytes("holed.ulg", bytes).expect("opens");
    let found = messages(&log, &Query::all()).len();
    let all = messages(&open(&maker), &Query::all()).len();
    assert!(found < all && found + 5 >= all, "{found} of {all}");
    assert!(
        log.summary()
            .problems
            .iter()
            .any(|p| p.message.contains("not a message"))
    );
}

#[test]
fn a_log_cut_anywhere_gives_a_front_of_its_messages() {
    let maker = flight(40);
    let all = messages(&open(&maker), &Query::all()).len();
    for len in 16..maker.bytes.len() {
        let cut = UlogFile::from_bytes("cut.ulg", maker.bytes[..len].to_vec()).expect("opens");
        assert!(messages(&cut, &Query::all()).len() <= all);
    }
}

#[test]
fn encrypted_newer_and_other_files_are_refused_by_name() {
    let refused = |bytes: Vec<u8>| {
        let error = UlogFile::from_bytes("x.ulg", bytes).map(|_| ());
        error.expect_err("is refused").to_string()
    };
    assert!(refused(b"ULogEnc\x01aaaaaaaaaaaaaaaa".to_vec()).contains("encrypted"));
    assert!(refused(b"hello".to_vec()).contains("not a ULog"));
    let mut newer = UlogMaker::new(0).bytes;
    newer[16 + 3 + 8] = 2;
    assert!(refused(newer).contains("does not support; update asof"));
}

#[test]
fn kinds_of_messages_from_the_future_are_stepped_over() {
    let mut maker = flight(5);
    maker
        .put(b'Z', b"something new")
        .put(b'S', &SYNC)
        .data(3, 2_000_000, &[0; 5]);
    let log = open(&maker);
    assert_eq!(on(&log, "/sensor_accel").len(), 6);
    assert_eq!(log.summary().problems, []);
}

/// A long run is behind `ASOF_LONG_TESTS`.
#[test]
fn no_damage_makes_reading_a_log_panic_or_hang() {
    let rounds = if std::env::var_os("ASOF_LONG_TESTS").is_some() {
        50_000
    } else {
        600
    };
    let bytes = flight(60).bytes;
    let mut dice = Dice(4);
    let mut seen = 0;
    for _ in 0..rounds {
        let Ok(log) = UlogFile::from_bytes("damaged.ulg", mutate(&bytes, &mut dice)) else {
            continue;
        };
        let found = messages(&log, &Query::all());
        seen += found.len();
        assert_eq!(log.summary().messages, Some(found.len() as u64));
        let batch = log.latest_at(&Topics::All, Stamp::MAX).expect("reads");
        assert!(batch.len() <= found.len().max(10));
        log.check(&mut |_, _| Ok(())).expect("reads");
    }
    assert!(seen > rounds * 20, "next to nothing was readable");
}
