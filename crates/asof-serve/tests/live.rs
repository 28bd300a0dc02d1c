//! A running robot, fed by hand: the same page with a window of the last minutes.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use asof_core::testing::eventually;
use asof_core::{FollowEnd, Message, Stamp};
use asof_demo::{Demo, DemoOptions};
use asof_serve::ServeOptions;
use asof_window::{Bounds, Recent};
use common::{Client, SECOND, START, Served, json_channel as channel, options, serve};
use serde_json::{Value, json};

struct Robot {
    recent: Recent,
    served: Served,
}

impl Robot {
    fn with_window(age: Duration) -> Self {
        Robot::keeping(Bounds::age(age).and_bytes(600_000_000))
    }

    fn keeping(bounds: Bounds) -> Self {
        let recent = Recent::new(bounds);
        let options = ServeOptions {
            start: Some(Stamp::from_nanos(START)),
            ..options()
        };
        let served = serve(recent.clone(), &options);
        Robot { recent, served }
    }

    fn new() -> Self {
        Robot::with_window(Duration::from_mins(5))
    }

    /// Says a number, `t` nanoseconds after the start.
    fn say(&self, topic: &str, t: i64, number: i64) {
        self.recent.push(Message {
            channel: channel(topic),
            log_time: Stamp::from_nanos(START + t),
            publish_time: Stamp::from_nanos(START + t),
            sequence: number as u32,
            payload: format!("{{\"value\":{number}}}").into(),
        });
    }

    fn client(&self, topics: &[&str]) -> Client {
        let mut client = self.served.connect();
        for topic in topics {
            client.say(&json!({ "op": "subscribe", "topic": topic, "form": "json" }));
        }
        client
    }
}

fn value_of(message: &Value) -> i64 {
    message["data"]["value"].as_i64().expect("a value")
}

#[test]
fn the_summary_says_that_it_is_live_and_what_the_window_is() {
    let robot = Robot::with_window(Duration::from_secs(10));
    for t in 0..30 {
        robot.say("/odom", t * SECOND, t);
    }
    let summary = robot.served.get("/api/summary").json();
    assert_eq!(summary["live"], true);
    let window = &summary["window"];
    assert_eq!(window["from"], 19 * SECOND);
    assert_eq!(window["to"], 29 * SECOND);
    assert_eq!(
        (&window["messages"], &window["left"]),
        (&11.into(), &19.into())
    );
    assert_eq!(summary["topics"][0]["left"], 19);
}

#[test]
fn a_client_follows_from_the_beginning() {
    let robot = Robot::new();
    robot.say("/odom", 0, 1);
    let mut client = robot.client(&["/odom"]);
    // Which of them comes first is nobody's concern.
    let (mut has_state, mut has_message) = (false, false);
    client.find(|message| {
        has_state |= message["state"] == "playing" && message["following"] == true;
        has_message |= message["op"] == "message" && value_of(message) == 1;
        has_state && has_message
    });
    robot.say("/odom", SECOND, 2);
    let message = client.find_on("/odom");
    assert_eq!((value_of(&message), &message["t"]), (2, &SECOND.into()));
    client.find(|message| message["op"] == "state" && message["t"] == SECOND);
}

#[test]
fn every_message_comes_to_those_who_want_every_one() {
    let robot = Robot::new();
    let mut client = robot.served.connect();
    client.say(&json!({ "op": "subscribe", "topic": "/odom", "form": "json", "every": true }));
    client.find_op("nothing");
    for number in 0..500 {
        robot.say("/odom", number * 1_000_000, number);
    }
    for number in 0..500 {
        assert_eq!(value_of(&client.find_on("/odom")), number);
    }
}

#[test]
fn a_pause_stands_still_while_the_robot_goes_on() {
    let robot = Robot::new();
    robot.say("/odom", 0, 1);
    let mut client = robot.client(&["/odom"]);
    client.find_on("/odom");
    client.say(&json!({ "op": "pause" }));
    client.find(|message| message["state"] == "paused" && message["following"] == false);
    for t in 1..50 {
        robot.say("/odom", t * SECOND, t);
    }
    // The window is told while it moves on; nothing else is.
    client.find(|message| {
        assert!(
            message["op"] != "message" || value_of(message) == 1,
            "{message}"
        );
        message["op"] == "window" && message["to"] == 49 * SECOND
    });
    client.say(&json!({ "op": "seek", "t": 20 * SECOND }));
    assert_eq!(
        value_of(&client.find(|m| m["op"] == "message" && m["t"] != 0)),
        20
    );
}

#[test]
fn playing_on_from_behind_skips_nothing_and_catches_up() {
    let robot = Robot::new();
    for number in 0..1000 {
        robot.say("/odom", number * 10_000_000, number);
    }
    let mut client = robot.served.connect();
    client.say(&json!({ "op": "subscribe", "topic": "/odom", "form": "json", "every": true }));
    client.find_on("/odom");
    client.say(&json!({ "op": "pause" }));
    client.say(&json!({ "op": "speed", "times": 10 }));
    client.say(&json!({ "op": "seek", "t": 5 * SECOND }));
    client.find(|message| message["op"] == "message" && message["t"] == 5 * SECOND);
    client.say(&json!({ "op": "play" }));
    // The robot goes on, in its own time, while this client catches up.
    let stop = Arc::new(AtomicBool::new(false));
    let talking = talk(&robot.recent, 1000, &stop);
    let mut next = 501;
    let caught_up = client.find(|message| {
        if message["op"] == "message" {
            assert_eq!(value_of(message), next, "none is skipped, none comes twice");
            next += 1;
        }
        message["following"] == true && next > 1050
    });
    assert!(caught_up["t"].as_i64() > Some(10 * SECOND));
    stop.store(true, Ordering::Relaxed);
    talking.join().expect("said");
}

/// Says a number every 10 ms, from `from` on.
fn talk(recent: &Recent, from: i64, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (recent, stop) = (recent.clone(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut number = from;
        while !stop.load(Ordering::Relaxed) {
            let at = Stamp::from_nanos(START + number * 10_000_000);
            recent.push(Message {
                channel: channel("/odom"),
                log_time: at,
                publish_time: at,
                sequence: 0,
                payload: format!("{{\"value\":{number}}}").into(),
            });
            number += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
    })
}

#[test]
fn a_client_can_return_to_the_newest_at_once() {
    let robot = Robot::new();
    for t in 0..60 {
        robot.say("/odom", t * SECOND, t);
    }
    let mut client = robot.client(&["/odom"]);
    client.say(&json!({ "op": "pause" }));
    client.say(&json!({ "op": "seek", "t": 0 }));
    client.find(|message| message["op"] == "message" && message["t"] == 0);
    client.say(&json!({ "op": "follow" }));
    let state = client.find(|message| message["following"] == true);
    assert_eq!(state["t"], 59 * SECOND);
    robot.say("/odom", 60 * SECOND, 60);
    client.find(|message| message["op"] == "message" && message["t"] == 60 * SECOND);
}

#[test]
fn a_moment_that_has_left_the_window_is_said_to_have() {
    let robot = Robot::with_window(Duration::from_secs(5));
    robot.say("/odom", 0, 0);
    let mut client = robot.client(&["/odom"]);
    client.find_on("/odom");
    client.say(&json!({ "op": "pause" }));
    client.find(|message| message["state"] == "paused" && message["gone"] == false);
    for t in 1..20 {
        robot.say("/odom", t * SECOND, t);
    }
    client.find(|message| message["op"] == "state" && message["gone"] == true);
    let window = client.find(|message| message["op"] == "window" && message["to"] == 19 * SECOND);
    assert_eq!(
        (&window["from"], &window["left"]),
        (&(14 * SECOND).into(), &14.into())
    );
    // Played on, it goes on where the window begins.
    client.say(&json!({ "op": "play" }));
    client.find(|message| message["op"] == "message" && message["t"].as_i64() >= Some(14 * SECOND));
}

#[test]
fn topics_that_appear_later_are_told() {
    let robot = Robot::new();
    let mut client = robot.served.connect();
    client.find_op("hello");
    robot.say("/late", 0, 1);
    let told = client
        .find(|message| message["op"] == "topics" && message["topics"][0]["topic"] == "/late");
    assert_eq!(told["topics"][0]["messages"], 1);
}

#[test]
fn a_topic_can_be_subscribed_before_it_is_there() {
    let robot = Robot::new();
    let mut client = robot.client(&["/late"]);
    client.find_op("nothing");
    robot.say("/late", 0, 7);
    assert_eq!(value_of(&client.find_on("/late")), 7);
}

#[test]
fn a_series_of_a_robot_is_worked_out_anew() {
    let robot = Robot::new();
    let path = format!(
        "/api/series?topic=/odom&path=value&start=0&end={}&columns=10",
        10 * SECOND
    );
    let most = |robot: &Robot| {
        let body = robot.served.get(&path).body;
        let numbers = body
            .chunks_exact(8)
            .map(|eight| f64::from_le_bytes(eight.try_into().expect("eight")));
        numbers
            .filter(|n| (1.0..100.0).contains(n))
            .fold(0.0, f64::max)
    };
    robot.say("/odom", SECOND, 3);
    assert!((most(&robot) - 3.0).abs() < 1e-9);
    robot.say("/odom", 2 * SECOND, 9);
    assert!((most(&robot) - 9.0).abs() < 1e-9);
}

#[test]
fn the_frames_of_a_robot_are_known_even_after_their_messages_have_left() {
    let robot = Robot::with_window(Duration::from_secs(1));
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(4),
        ..DemoOptions::default()
    });
    for mut message in demo.messages() {
        let t = message.log_time.since(demo.options().start);
        message.log_time = Stamp::from_nanos(START + t);
        robot.recent.push(message);
        // The server looks five times a second, and a robot does not say four seconds' worth in one.
        if t % (SECOND / 4) < SECOND / 500 {
            robot.served.get("/api/frames?t=0");
        }
    }
    let frames = robot
        .served
        .get(&format!("/api/frames?t={}", 4 * SECOND))
        .json();
    let edges = frames.as_array().expect("edges");
    assert!(
        edges
            .iter()
            .any(|edge| edge["static"] == true && !edge["pose"].is_null()),
        "{frames}"
    );
    assert!(
        edges
            .iter()
            .any(|edge| edge["static"] == false && !edge["pose"].is_null()),
        "{frames}"
    );
}

#[test]
fn the_transforms_of_a_robot_are_counted_and_stay_within_the_servers_memory() {
    let options = ServeOptions {
        start: Some(Stamp::from_nanos(START)),
        cache_bytes: 1_000_000,
        ..options()
    };
    let recent = Recent::new(Bounds::age(Duration::from_hours(1)).and_bytes(600_000_000));
    let served = serve(recent.clone(), &options);
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_mins(1),
        ..DemoOptions::default()
    });
    let is_frame = |message: &Message| message.channel.topic.starts_with("/tf");
    let mut count = 0;
    for mut message in demo.messages().filter(is_frame) {
        let t = message.log_time.since(demo.options().start);
        message.log_time = Stamp::from_nanos(START + t);
        recent.push(message);
        count += 1;
    }
    assert!(count > 1_000, "{count}");
    let bytes = || {
        let status = served.server.status();
        status["frames"]["bytes"].as_u64().expect("a number")
    };
    eventually("they are counted", || bytes() > 0);
    served.get(&format!("/api/frames?t={}", 59 * SECOND));
    // Half of what blocks and transforms have, and two chunks of each edge in any case.
    let edges = served.get("/api/frames?t=0").json();
    let edges = edges.as_array().map_or(0, Vec::len) as u64;
    assert!(
        bytes() <= 125_000 + edges * 10_000,
        "{} of {edges}",
        bytes()
    );
}

#[test]
fn foxglove_hears_of_channels_as_they_come_and_of_messages() {
    let robot = Robot::new();
    robot.say("/odom", 0, 1);
    let mut client = robot.served.connect_with("/", "foxglove.sdk.v1");
    let info = next_text(&mut client, "serverInfo");
    assert_eq!(info["capabilities"], json!(["time"]));
    let first = next_text(&mut client, "advertise");
    assert_eq!(first["channels"][0]["topic"], "/odom");
    robot.say("/late", SECOND, 5);
    let second = next_text(&mut client, "advertise");
    assert_eq!(second["channels"].as_array().map(Vec::len), Some(1));
    assert_eq!(second["channels"][0]["topic"], "/late");
    let id = second["channels"][0]["id"].as_u64().expect("an id");
    client.say(&json!({ "op": "subscribe", "subscriptions": [{ "id": 9, "channelId": id }] }));
    assert_eq!(next_data(&mut client), (9, "{\"value\":5}".to_owned()));
    robot.say("/late", 2 * SECOND, 6);
    assert_eq!(next_data(&mut client), (9, "{\"value\":6}".to_owned()));
}

fn next_text(client: &mut Client, op: &str) -> Value {
    loop {
        if let tungstenite::Message::Text(text) = client.socket.read().expect("a message") {
            let value: Value = serde_json::from_str(&text).expect("JSON");
            if value["op"] == op {
                return value;
            }
        }
    }
}

/// The next message: its subscription, and its payload.
fn next_data(client: &mut Client) -> (u32, String) {
    loop {
        if let tungstenite::Message::Binary(bytes) = client.socket.read().expect("a message")
            && bytes[0] == 1
        {
            let id = u32::from_le_bytes(bytes[1..5].try_into().expect("four"));
            return (id, String::from_utf8_lossy(&bytes[13..]).into_owned());
        }
    }
}

#[test]
fn a_window_stays_within_its_bytes_under_load() {
    let robot = Robot::keeping(Bounds::age(Duration::from_hours(1)).and_bytes(5_000_000));
    let served = &robot.served;
    let mut client = served.connect();
    client.say(&json!({ "op": "subscribe", "topic": "/camera", "form": "json" }));
    for number in 0..2000 {
        let at = Stamp::from_nanos(START + number * 1_000_000);
        robot.recent.push(Message {
            channel: channel("/camera"),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: vec![b' '; 20_000].into(),
        });
    }
    let status = served.get("/api/status").json();
    let window = &status["window"];
    assert!(window["bytes"].as_u64() <= Some(5_000_000), "{window}");
    assert!(window["crowded_out"].as_u64() > Some(1000), "{window}");
    assert!(
        status["cache"]["held"].as_u64() <= Some(1 << 20),
        "{status}"
    );
}

#[test]
fn a_clock_that_is_set_back_starts_everything_anew_and_is_told() {
    let robot = Robot::new();
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(2),
        ..DemoOptions::default()
    });
    let say = |shift: i64| {
        for mut message in demo.messages() {
            let t = message.log_time.since(demo.options().start);
            message.log_time = Stamp::from_nanos(START + shift + t);
            robot.recent.push(message);
        }
    };
    say(100 * SECOND);
    robot.say("/old", 102 * SECOND, 1);
    let mut page = robot.client(&["/odom"]);
    page.find_on("/odom");
    let mut viewer = robot.served.connect_with("/", "foxglove.websocket.v1");
    let first = next_time(&mut viewer);
    assert!(first >= (START + 101 * SECOND) as u64, "{first}");
    let before = robot.served.get("/api/frames?t=0").json();
    assert!(before.as_array().is_some_and(|edges| !edges.is_empty()));
    assert_eq!(robot.served.server.status()["frames"]["restarts"], 0);

    robot.say("/odom", 0, 2);
    page.find_op("restarted");
    page.find(|message| message["op"] == "message" && message["t"] == 0);
    page.find(|message| message["op"] == "problems");
    while next_time(&mut viewer) >= first {}
    let after = robot.served.get("/api/frames?t=0").json();
    assert_eq!(after, json!([]), "the frames belong to another time");
    assert_eq!(robot.served.server.status()["frames"]["restarts"], 1);

    say(SECOND);
    let path = format!("/api/frames?t={}", 2 * SECOND);
    let anew = robot.served.get(&path).json();
    assert_eq!(
        anew.as_array().map(Vec::len),
        before.as_array().map(Vec::len)
    );
}

/// The next time that a viewer's clock is set to.
fn next_time(client: &mut Client) -> u64 {
    loop {
        if let tungstenite::Message::Binary(bytes) = client.socket.read().expect("a message")
            && bytes[0] == 2
        {
            return u64::from_le_bytes(bytes[1..9].try_into().expect("eight"));
        }
    }
}

#[test]
fn a_robot_that_is_gone_for_good_is_told_and_what_is_held_stays() {
    let robot = Robot::new();
    robot.say("/odom", 0, 1);
    let mut page = robot.client(&["/odom"]);
    let mut viewer = robot.served.connect_with("/", "foxglove.sdk.v1");
    page.find_on("/odom");
    robot
        .recent
        .close(FollowEnd::Lost("its battery is empty".to_owned()));
    let over = page.find_op("over");
    assert!(over["message"].to_string().contains("battery"), "{over}");
    let status = next_text(&mut viewer, "status");
    assert!(
        status["message"].to_string().contains("battery"),
        "{status}"
    );
    assert_eq!(robot.served.get("/api/message?topic=/odom&t=0").status, 200);
}

#[test]
fn what_was_held_before_the_server_was_started_can_be_looked_at() {
    let recent = Recent::default();
    for t in 0..10 {
        let at = Stamp::from_nanos(START + t * SECOND);
        recent.push(Message {
            channel: channel("/odom"),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: format!("{{\"value\":{t}}}").into(),
        });
    }
    // Times are counted from the first message, where nobody said otherwise.
    let served = serve(recent, &options());
    let summary = served.get("/api/summary").json();
    assert_eq!(summary["start"], START.to_string());
    assert_eq!(summary["window"]["to"], 9 * SECOND);
    let message = served.get(&format!("/api/message?topic=/odom&t={}", 4 * SECOND));
    assert_eq!(message.json()["data"]["value"], 4);
}
