//! Foxglove servers on 127.0.0.1, kind and not: what they advertise is discovered and received.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asof_core::testing::eventually;
use asof_core::{Channel, FileParts, Growth, Query, Schema, Source, Topics};
use asof_foxglove::{OLDER, SDK, message_data};
use asof_live::{LiveError, RecentOptions, Sample, Watch, connect};
use server::{Act, Server};

fn channel(topic: &str, encoding: &str, language: &str, data: &[u8]) -> Channel {
    Channel {
        topic: topic.to_owned(),
        message_encoding: encoding.to_owned(),
        schema: Some(Arc::new(Schema {
            name: "a/B".to_owned(),
            encoding: language.to_owned(),
            data: data.to_vec().into(),
        })),
        ..Channel::default()
    }
}

fn text(topic: &str) -> Channel {
    channel(topic, "json", "jsonschema", b"{}")
}

#[test]
fn channels_of_every_encoding_are_topics_with_their_schemas() {
    let channels = [
        channel("/two", "cdr", "ros2msg", b"float64 x"),
        channel("/one", "ros1", "ros1msg", b"float64 x"),
        channel("/proto", "protobuf", "protobuf", b"\x0a\xfe"),
        channel("/flat", "flatbuffer", "flatbuffer", b"\x00\xfe"),
        channel("/idl", "cdr", "ros2idl", b"module a {};"),
        text("/text"),
    ];
    for subprotocol in [SDK, OLDER] {
        let server = Server::start(subprotocol, &channels);
        let source = asof_live::open(&server.address()).expect("a source");
        let summary = source.summary();
        assert_eq!(summary.channels.len(), channels.len(), "{subprotocol}");
        for expected in &channels {
            let mut known = summary.channels.iter().map(|entry| &*entry.channel);
            assert!(known.any(|known| known == expected), "{}", expected.topic);
        }
        assert_eq!(source.growth(), Growth::Growing);
        assert_eq!(source.robot().info().details["subprotocol"], subprotocol);
    }
}

#[test]
fn a_callback_that_panics_ends_no_connection() {
    let server = Server::start(SDK, &[text("/a")]);
    let robot = connect(&server.address()).expect("a robot");
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let panicking = robot.subscribe(
        |_| true,
        move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            panic!("a panic that is meant");
        },
    );
    server.until_subscribed("/a");
    for number in 0..3 {
        server.publish("/a", number, b"{}");
    }
    eventually("all three", || heard.load(Ordering::Relaxed) == 3);
    assert!(robot.is_connected());
    drop(panicking);
}

#[test]
fn messages_come_with_the_servers_time_and_go_into_the_store() {
    let server = Server::start(SDK, &[text("/a"), text("/b")]);
    let source = connect(&server.address()).expect("a robot");
    let source = source.recent(&RecentOptions::default()).expect("a source");
    server.until_subscribed("/a");
    for number in 0..100_u64 {
        server.publish(
            "/a",
            1_000 + number,
            format!("{{\"n\":{number}}}").as_bytes(),
        );
    }
    let read = || {
        let batches = source.read(&Query::all()).expect("read");
        let batches: Vec<_> = batches.map(|batch| batch.expect("a batch")).collect();
        let messages = batches.iter().flat_map(asof_core::Batch::iter);
        messages
            .map(|message| (message.publish_time.nanos(), message.payload.to_vec()))
            .collect::<Vec<_>>()
    };
    eventually("100 messages", || read().len() == 100);
    for (number, (time, payload)) in read().into_iter().enumerate() {
        assert_eq!(time, 1_000 + number as i64);
        assert_eq!(payload, format!("{{\"n\":{number}}}").into_bytes());
    }
}

#[test]
fn only_what_is_wanted_is_subscribed_and_dropping_it_unsubscribes() {
    let server = Server::start(SDK, &[text("/a"), text("/b")]);
    let robot = connect(&server.address()).expect("a robot");
    let window = robot.create_window::<Sample>("/a", 10).with_receive_stamp();
    let window = window.build().expect("a window");
    server.until_subscribed("/a");
    assert_eq!(server.subscribed(), ["/a"]);
    drop(window);
    eventually("nothing is subscribed", || server.subscribed().is_empty());
}

#[test]
fn a_message_that_is_kept_for_late_joiners_reaches_all_who_ask() {
    let server = Server::start(SDK, &[text("/tf_static")]);
    server.latch("/tf_static", 7, b"{}");
    let robot = connect(&server.address()).expect("a robot");
    let early = robot.create_window::<Sample>("/tf_static", 10).build();
    let early = early.expect("a window");
    eventually("the early one", || early.len() == 1);
    let late = robot.create_window::<Sample>("/tf_static", 10).build();
    let late = late.expect("a window");
    eventually("the late one", || late.len() == 1);
    assert_eq!(early.len(), 1, "once");
}

#[test]
fn a_server_that_comes_late_goes_and_comes_back_is_found_again() {
    let mut server = Server::start(SDK, &[text("/a")]);
    let address = server.address();
    server.stop();
    let source = connect(&address).expect("a robot");
    let source = source.recent(&RecentOptions::default()).expect("a source");
    assert!(!source.robot().is_connected());
    eventually("it is said why", || !source.robot().problems().is_empty());
    for round in 1..=3 {
        server.restart(&[text("/a"), text("/more")]);
        server.until_subscribed("/a");
        server.publish("/a", round, b"{}");
        eventually("its message", || source.stats().messages == round);
        assert!(source.robot().is_connected());
        server.stop();
        eventually("it is missed", || !source.robot().is_connected());
        assert!(source.robot().topics().is_empty());
    }
    let known = source.latest_at(&Topics::All, asof_core::Stamp::MAX);
    assert_eq!(
        known.expect("asked").len(),
        1,
        "what was heard is still there"
    );
}

#[test]
fn a_connection_ends_with_a_word_of_both_sides_whoever_begins() {
    let server = Server::start(SDK, &[text("/a")]);
    let robot = connect(&server.address()).expect("a robot");
    eventually("the topic", || !robot.topics().is_empty());
    server.act(&Act::Close);
    eventually("the answer", || server.partings() == 1);
    // Its topics are those of the first connection until it has noticed.
    eventually("it calls again", || {
        server.connections.load(Ordering::Relaxed) == 2 && !robot.topics().is_empty()
    });
    drop(robot);
    eventually("its farewell", || server.partings() == 2);
}

#[test]
fn parameters_publishers_and_statuses_are_told() {
    let server = Server::start(SDK, &[text("/a")]);
    let source = asof_live::open(&server.address()).expect("a source");
    eventually("parameters", || {
        !source.robot().info().parameters.is_empty()
    });
    let info = source.robot().info();
    assert_eq!(info.name, "a server of the tests");
    assert_eq!(info.parameters["/driver.speed"], "1.5");
    eventually("publishers", || {
        !source.robot().info().publishers.is_empty()
    });
    assert_eq!(source.robot().info().publishers["/a"], ["/driver"]);
    server.act(&Act::Status("it is hot".to_owned()));
    server.act(&Act::Time(9_000));
    eventually("a status", || {
        let info = source.robot().info();
        info.statuses == ["it is hot"] && info.time == Some(9_000.into())
    });
    let summary = source.summary();
    let entry = summary.metadata.iter().find(|set| set.name == "parameters");
    let values = source.metadata(entry.expect("listed")).expect("read");
    assert_eq!(values["/driver.speed"], "1.5");
}

#[test]
fn what_is_malformed_is_counted_and_the_rest_goes_on() {
    let server = Server::start(SDK, &[text("/a")]);
    let source = connect(&server.address()).expect("a robot");
    let source = source.recent(&RecentOptions::default()).expect("a source");
    server.until_subscribed("/a");
    let nonsense = [
        Act::Text("no json".to_owned()),
        Act::Text("{\"op\":\"advertise\",\"channels\":7}".to_owned()),
        Act::Text(
            "{\"op\":\"advertise\",\"channels\":[{\"id\":9,\"topic\":\"/p\",\"encoding\":\"protobuf\",\
             \"schemaName\":\"x\",\"schema\":\"not base64!\"}]}"
                .to_owned(),
        ),
        Act::Binary(vec![]),
        Act::Binary(vec![1, 2]),
        Act::Binary(vec![250]),
    ];
    for act in &nonsense {
        server.act(act);
    }
    // Of nobody's subscription, and of a time that no clock has.
    server.act(&Act::Binary(message_data(4_000_000, 1, b"{}")));
    server.publish("/a", u64::MAX, b"{}");
    server.publish("/a", 0, b"{}");
    eventually("both messages", || source.stats().messages == 2);
    let problems = source.summary().problems.clone();
    let expected = format!("{} messages violated the protocol", nonsense.len());
    assert!(
        problems
            .iter()
            .any(|one| one.to_string().contains(&expected)),
        "{problems:?}"
    );
    assert!(source.robot().is_connected());
}

#[test]
fn an_oversized_message_ends_the_connection_and_not_the_robot() {
    let server = Server::start(SDK, &[text("/a")]);
    let source = connect(&server.address()).expect("a robot");
    let source = source.recent(&RecentOptions::default()).expect("a source");
    server.until_subscribed("/a");
    // Its header says that a terabyte follows.
    server.act(&Act::Raw(
        [&[0x82, 127][..], &(1_u64 << 40).to_be_bytes()].concat(),
    ));
    eventually("a second connection", || {
        server.connections.load(Ordering::Relaxed) == 2
    });
    server.until_subscribed("/a");
    server.publish("/a", 1, b"{}");
    eventually("its message", || source.stats().messages == 1);
    let problems = source.summary().problems.clone();
    assert!(
        problems
            .iter()
            .any(|one| one.to_string().contains("above the size limit")),
        "{problems:?}"
    );
}

#[test]
fn more_channels_than_are_followed_are_counted() {
    let channels: Vec<Channel> = (0..20_010).map(|n| text(&format!("/t{n}"))).collect();
    let server = Server::start(SDK, &channels);
    let robot = connect(&server.address()).expect("a robot");
    eventually("problems", || {
        let problems = robot.problems();
        problems
            .iter()
            .any(|one| one.to_string().contains("10 channels were above the limit"))
    });
    assert_eq!(robot.topics().len(), 20_000);
}

#[test]
fn a_thousand_topics_are_watched_and_each_is_heard() {
    let channels: Vec<Channel> = (0..1_000).map(|n| text(&format!("/t{n:04}"))).collect();
    let server = Server::start(SDK, &channels);
    let robot = connect(&server.address()).expect("a robot");
    let watch = Watch::new(&robot, |_| true);
    server.until_subscribed("/t0999");
    eventually("all are subscribed", || server.subscribed().len() == 1_000);
    for number in 0..1_000 {
        server.publish(&format!("/t{number:04}"), number, b"{}");
    }
    eventually("all are heard", || {
        let rates = watch.rates(asof_core::Stamp::now());
        rates.iter().filter(|rate| rate.messages == 1).count() == 1_000
    });
}

#[test]
fn raw_keys_are_not_there_and_that_is_said() {
    let server = Server::start(SDK, &[]);
    let robot = connect(&server.address()).expect("a robot");
    let refused = robot.subscribe_key("demo/**", |_| {});
    assert!(matches!(refused, Err(LiveError::NoKeys { .. })));
    assert!(matches!(robot.put("a", "b"), Err(LiveError::NotZenoh)));
}
