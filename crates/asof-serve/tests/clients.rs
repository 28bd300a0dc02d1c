//! Many clients at once, from one cache.

mod common;

use std::time::{Duration, Instant};

use asof_core::testing::eventually;
use common::{PATIENCE, SECOND, demo, demo_with, options};
use serde_json::json;

#[test]
fn fifty_clients_play_at_once_and_the_source_is_read_once() {
    let served = demo(4);
    let total = served.get("/api/summary").json()["messages"]
        .as_u64()
        .expect("a count");
    let topics: Vec<String> = served.get("/api/summary").json()["topics"]
        .as_array()
        .expect("topics")
        .iter()
        .map(|topic| topic["topic"].as_str().expect("a name").to_owned())
        .collect();
    let before = served.server.cache_stats().source_messages;
    assert_eq!(before, 0);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut client = served.connect();
                // All at once: nothing is read for some of them alone.
                let wanted = |topic| json!({ "op": "subscribe", "topic": topic, "form": "json" });
                client.say(&topics.iter().map(wanted).collect());
                client.say(&json!({ "op": "speed", "times": 4 }));
                client.say(&json!({ "op": "play" }));
                let mut last = 0;
                loop {
                    let message = client.next();
                    if message["op"] == "message" && message["topic"] == "/odom" {
                        last = message["t"].as_i64().expect("a time");
                    }
                    if message["state"] == "ended" {
                        break;
                    }
                }
                assert!(last > 3 * SECOND, "{last}");
            });
        }
    });
    let read = served.server.cache_stats();
    assert_eq!((read.source_messages, read.source_reads), (total, 1));
}

#[test]
fn a_client_that_never_reads_costs_the_others_nothing() {
    let mut small = options();
    small.limits.outbox_bytes = 64 << 10;
    small.limits.stalled_after = Duration::from_millis(200);
    let served = demo_with(6, asof_demo::DemoEncoding::Cdr, &small);
    let mut deaf = served.connect();
    for topic in ["/camera/image", "/imu", "/odom", "/scan"] {
        deaf.say(&json!({ "op": "subscribe", "topic": topic, "form": "json", "every": true }));
    }
    deaf.say(&json!({ "op": "speed", "times": null }));
    // All of it, again and again: more than the network holds for it.
    for _ in 0..50 {
        deaf.say(&json!({ "op": "seek", "t": 0 }));
        deaf.say(&json!({ "op": "play" }));
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut client = served.connect();
    client.say(&json!({ "op": "subscribe", "topic": "/odom", "form": "json", "every": true }));
    client.say(&json!({ "op": "speed", "times": 10 }));
    client.say(&json!({ "op": "play" }));
    let mut heard = std::collections::BTreeSet::new();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let message = client.next();
        if message["op"] == "message" {
            heard.insert(message["t"].as_i64().expect("a time"));
        }
        if message["state"] == "ended" || Instant::now() > deadline {
            assert_eq!(message["dropped"], json!({}));
            break;
        }
    }
    assert_eq!(heard.len(), 300, "every message of six seconds at 50 Hz");
    // It hears from then on what is latest, and how much it missed.
    let state = deaf.find(|message| {
        message["dropped"]
            .as_object()
            .is_some_and(|dropped| !dropped.is_empty())
    });
    assert!(
        state["dropped"]
            .as_object()
            .is_some_and(|all| all.values().all(|count| count.as_u64() > Some(0)))
    );
}

#[test]
fn a_client_that_never_reads_is_let_go() {
    let mut strict = options();
    // Room for less than one picture: whatever comes next makes something give way.
    strict.limits.outbox_bytes = 4 << 10;
    strict.limits.stalled_after = Duration::from_millis(500);
    strict.limits.dropped_after = Duration::from_secs(1);
    let served = demo_with(4, asof_demo::DemoEncoding::Cdr, &strict);
    let mut deaf = served.connect();
    for topic in ["/camera/image", "/imu", "/odom", "/scan"] {
        deaf.say(&json!({ "op": "subscribe", "topic": topic, "form": "json", "every": true }));
    }
    deaf.say(&json!({ "op": "loop", "on": true }));
    deaf.say(&json!({ "op": "speed", "times": null }));
    deaf.say(&json!({ "op": "play" }));
    eventually("the end of a client that does not read", || {
        served.server.status()["clients"] == 0
    });
    assert!(served.server.status()["dropped"].as_u64() > Some(0));
}
