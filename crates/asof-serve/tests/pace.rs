//! A client that is told no more than it has time for, and first what it can show at once.

mod common;

use std::time::Duration;

use asof_demo::{Demo, DemoOptions};
use common::tape::Tape;
use common::{SECOND, START, json_channel, logged, options, serve};
use serde_json::{Value, json};

/// Numbers on `/odom`, fifty a second for four seconds.
fn numbers() -> Tape {
    let channel = json_channel("/odom");
    Tape::new((0..200).map(|index| {
        let payload = json!({ "index": index }).to_string();
        logged(&channel, START + index * SECOND / 50, payload)
    }))
}

#[test]
fn a_rate_leaves_messages_out_and_each_of_them_is_counted() {
    let served = serve(numbers(), &options());
    let mut client = served.connect();
    let wanted = json!({ "op": "subscribe", "topic": "/odom", "form": "json", "rate": 5.0 });
    client.say(&wanted);
    client.say(&json!({ "op": "speed", "times": 4 }));
    client.say(&json!({ "op": "play" }));
    let (mut told, mut left_out, mut last) = (0, 0, Value::Null);
    let end = client.find(|message| {
        if message["op"] == "message" {
            told += 1;
            left_out += message["left_out"].as_u64().unwrap_or(0);
            last = message["data"]["index"].clone();
        }
        message["state"] == "ended"
    });
    let dropped = end["dropped"]["/odom"].as_u64().unwrap_or(0);
    assert_eq!(last, 199, "the last one is told, however soon it comes");
    assert_eq!(
        told + left_out + dropped,
        200,
        "{told} told, {left_out} not"
    );
    assert!(left_out > told, "{told} told, {left_out} not");
}

#[test]
fn another_rate_does_not_tell_again_what_was_told() {
    let served = serve(numbers(), &options());
    let mut client = served.connect();
    client.say(&json!({ "op": "seek", "t": SECOND }));
    client.say(&json!({ "op": "subscribe", "topic": "/odom", "form": "json" }));
    client.find_on("/odom");
    client.say(
        &json!([{ "op": "subscribe", "topic": "/odom", "form": "json", "rate": 2.0 }, { "op": "seek", "t": 2 * SECOND }]),
    );
    assert_eq!(client.find_on("/odom")["t"], 2 * SECOND);
    // What looks different is told at once, also within the pause.
    client.say(
        &json!({ "op": "subscribe", "topic": "/odom", "form": "json", "rate": 2.0, "most": 9 }),
    );
    assert_eq!(client.find_on("/odom")["t"], 2 * SECOND);
}

#[test]
fn a_rate_that_is_not_one_limits_nothing() {
    let served = serve(numbers(), &options());
    for rate in [json!(0), json!(-1), json!(1e308), json!(null)] {
        let mut client = served.connect();
        let wanted = json!({ "op": "subscribe", "topic": "/odom", "form": "json", "rate": rate });
        client.say(&json!([{ "op": "seek", "t": SECOND }, wanted]));
        assert_eq!(client.find_on("/odom")["t"], SECOND, "{rate}");
    }
}

#[test]
fn of_a_large_recording_the_frames_around_the_position_are_told_first() {
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(30),
        ..DemoOptions::default()
    });
    let large = || Tape::new(demo.messages()).sized(1 << 40);
    let served = serve(large(), &options());
    let mut client = served.connect();
    client.say(&json!([{ "op": "seek", "t": 20 * SECOND }, { "op": "frames", "on": true }]));
    let first = client.find_op("frames");
    assert_eq!(first["partial"], true);
    let whole = client.find(|message| message["op"] == "frames" && message["partial"].is_null());
    let moving = |frames: &Value| -> Vec<(Value, Value)> {
        let edges = frames["edges"].as_array().expect("edges").iter();
        let mut poses: Vec<(Value, Value)> = edges
            .filter(|edge| edge["static"] == false)
            .map(|edge| (edge["child"].clone(), edge["pose"].clone()))
            .collect();
        poses.sort_by_key(|(child, _)| child.to_string());
        poses
    };
    assert!(!moving(&first).is_empty());
    assert_eq!(moving(&first), moving(&whole), "the same places, sooner");
    // What is held is told whole at once.
    client.say(&json!({ "op": "seek", "t": 21 * SECOND }));
    let next = client.find(|message| message["op"] == "frames" && message["t"] == 21 * SECOND);
    assert!(next["partial"].is_null());
}
