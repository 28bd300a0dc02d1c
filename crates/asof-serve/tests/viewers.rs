//! What Foxglove and Lichtblick see: which protocol is spoken, what is played, on which channels, and by which clock.

mod common;

use std::sync::Arc;

use asof_core::{Channel, Schema};
use common::tape::Tape;
use common::{Client, SECOND, START, Served, json_channel, logged, options, serve};
use serde_json::{Value, json};
use tungstenite::Message;

const SDK: &str = "foxglove.sdk.v1";
const OLDER: &str = "foxglove.websocket.v1";

/// What a server says.
#[derive(Debug, PartialEq)]
enum Said {
    Text(Value),
    Data {
        subscription: u32,
        time: u64,
        payload: Vec<u8>,
    },
    Time(u64),
    State {
        status: u8,
        time: u64,
        did_seek: bool,
        id: String,
    },
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

impl Client {
    fn said(&mut self) -> Said {
        loop {
            let bytes = match self.socket.read().expect("a message") {
                Message::Text(text) => {
                    return Said::Text(serde_json::from_str(&text).expect("JSON"));
                }
                Message::Binary(bytes) => bytes,
                _ => continue,
            };
            return match bytes[0] {
                1 => Said::Data {
                    subscription: u32::from_le_bytes(bytes[1..5].try_into().expect("four")),
                    time: u64_at(&bytes, 5),
                    payload: bytes[13..].to_vec(),
                },
                2 => Said::Time(u64_at(&bytes, 1)),
                5 => Said::State {
                    status: bytes[1],
                    time: u64_at(&bytes, 2),
                    did_seek: bytes[14] == 1,
                    id: String::from_utf8_lossy(&bytes[19..]).into_owned(),
                },
                other => panic!("opcode {other}"),
            };
        }
    }

    fn text_of(&mut self, op: &str) -> Value {
        loop {
            if let Said::Text(value) = self.said()
                && value["op"] == op
            {
                return value;
            }
        }
    }

    /// Subscribes to the channel that is advertised under this name.
    fn subscribe_to(&mut self, advertised: &Value, name: &str, subscription: u32) {
        let channels = advertised["channels"].as_array().expect("channels");
        let channel = channels.iter().find(|one| one["topic"] == name);
        let id = &channel.unwrap_or_else(|| panic!("no channel {name}"))["id"];
        let one = json!({ "id": subscription, "channelId": id });
        self.say(&json!({ "op": "subscribe", "subscriptions": [one] }));
    }

    fn control(&mut self, is_playing: bool, seek: Option<u64>, id: &str) {
        let mut bytes = vec![3, u8::from(!is_playing)];
        bytes.extend(1.0_f32.to_le_bytes());
        bytes.push(u8::from(seek.is_some()));
        bytes.extend(seek.unwrap_or(0).to_le_bytes());
        bytes.extend((id.len() as u32).to_le_bytes());
        bytes.extend(id.as_bytes());
        self.socket
            .send(Message::Binary(bytes.into()))
            .expect("sent");
    }
}

/// Ten messages a second on one topic.
fn tenths(seconds: i64) -> Served {
    let channel = json_channel("/count");
    let message = |tenth| {
        logged(
            &channel,
            tenth * SECOND / 10,
            format!("{{\"tenth\":{tenth}}}"),
        )
    };
    serve(Tape::new((0..seconds * 10).map(message)), &options())
}

#[test]
fn of_the_protocols_that_a_client_offers_the_first_that_is_known_is_spoken() {
    let served = tenths(2);
    let both = format!("{OLDER}, {SDK}");
    let reversed = format!("{SDK},{OLDER}");
    for path in ["/", "/ws"] {
        for (offered, chosen) in [
            (both.as_str(), OLDER),
            (&reversed, SDK),
            (OLDER, OLDER),
            (SDK, SDK),
            ("foxglove.other.v9, foxglove.websocket.v1", OLDER),
            ("foxglove.websocket.v1, asof.v1", OLDER),
            ("asof.v1, foxglove.websocket.v1", "asof.v1"),
        ] {
            let mut client = served.connect_with(path, offered);
            assert_eq!(client.protocol.as_deref(), Some(chosen), "{offered}");
            let first = client.next();
            match chosen {
                "asof.v1" => assert_eq!(first["op"], "hello"),
                _ => assert_eq!(first["op"], "serverInfo"),
            }
            let capabilities = &first["capabilities"];
            let has_controls = capabilities.to_string().contains("playbackControl");
            assert_eq!(has_controls, chosen == SDK, "{offered}");
        }
    }
    assert!(served.try_connect("/", "foxglove.other.v9", &[]).is_err());
}

#[test]
fn a_client_that_offers_no_protocol_is_served_where_the_reference_server_would() {
    let served = tenths(2);
    let mut viewer = served.connect_with("/", "");
    assert_eq!(viewer.protocol, None);
    assert_eq!(viewer.next()["op"], "serverInfo");
    let mut page = served.connect_with("/ws", "");
    assert_eq!(page.next()["op"], "hello");
}

#[test]
fn a_client_that_never_asks_to_play_is_played_to_whatever_it_offered() {
    let served = tenths(1);
    let both = format!("{OLDER}, {SDK}");
    let reversed = format!("{SDK}, {OLDER}");
    for offered in [both.as_str(), &reversed, OLDER, SDK, ""] {
        let mut client = served.connect_with("/", offered);
        let advertised = client.text_of("advertise");
        client.subscribe_to(&advertised, "/count", 7);
        let (mut times, mut messages) = (0, 0);
        // Twice over, so that it is played again when it has ended.
        while times < 5 || messages < 15 {
            match client.said() {
                Said::Time(_) => times += 1,
                Said::Data { subscription, .. } => {
                    assert_eq!(subscription, 7);
                    messages += 1;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_message_comes_when_the_clients_clock_shows_its_time() {
    let served = tenths(1);
    for protocol in [OLDER, SDK] {
        let mut client = served.connect_with("/", protocol);
        let advertised = client.text_of("advertise");
        client.subscribe_to(&advertised, "/count", 1);
        let (mut clock, mut passes, mut last) = (0, 0, 0);
        while passes < 2 {
            match client.said() {
                Said::Time(time) if time < clock => {
                    passes += 1;
                    assert_eq!(time, START as u64, "it goes back to the start alone");
                    (clock, last) = (time, 0);
                }
                Said::Time(time) => clock = time,
                Said::Data { time, .. } => {
                    assert_eq!(time, clock, "the clock is set first");
                    assert!(time > last, "nothing of the next pass comes before it");
                    last = time;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn what_was_known_before_a_subscription_does_not_set_the_clock_back() {
    let (old, new) = (json_channel("/map"), json_channel("/count"));
    let tenths = (0..50).map(|tenth| logged(&new, tenth * SECOND / 10, "{}"));
    let map = logged(&old, 0, "{}");
    let served = serve(Tape::new(tenths.chain([map])), &options());
    let mut client = served.connect_with("/", OLDER);
    let advertised = client.text_of("advertise");
    client.subscribe_to(&advertised, "/count", 1);
    while !matches!(client.said(), Said::Data { time, .. } if time > (START + SECOND) as u64) {}
    client.subscribe_to(&advertised, "/map", 2);
    let mut clock = 0;
    loop {
        match client.said() {
            Said::Time(time) => {
                assert!(time >= clock, "{time} after {clock}");
                clock = time;
            }
            Said::Data {
                subscription: 2,
                time,
                ..
            } => {
                assert_eq!(time, START as u64, "the message keeps its own time");
                assert!(clock > START as u64);
                return;
            }
            _ => {}
        }
    }
}

#[test]
fn a_client_that_controls_is_obeyed_and_not_played_to_beyond_the_end() {
    let served = tenths(1);
    let mut client = served.connect_with("/", SDK);
    let advertised = client.text_of("advertise");
    client.subscribe_to(&advertised, "/count", 1);
    let half = (START + SECOND / 2) as u64;
    client.control(false, Some(half), "seek");
    let answer = loop {
        match client.said() {
            Said::State {
                status,
                time,
                did_seek,
                id,
            } if id == "seek" => break (status, time, did_seek),
            _ => {}
        }
    };
    assert_eq!(answer, (1, half, true));
    while !matches!(client.said(), Said::Data { time, .. } if time == half) {}
    client.control(true, None, "play");
    let mut last = 0;
    loop {
        match client.said() {
            Said::Data { time, .. } => {
                assert!(time >= last, "it starts over");
                last = time;
            }
            Said::State { status: 3, .. } => break,
            _ => {}
        }
    }
    assert_eq!(last, (START + 9 * SECOND / 10) as u64);
}

#[test]
fn a_new_pass_is_told_as_a_jump() {
    let served = tenths(1);
    let mut client = served.connect_with("/", SDK);
    loop {
        if let Said::State {
            did_seek: true,
            time,
            status,
            id,
        } = client.said()
        {
            assert_eq!((status, time, id.as_str()), (0, START as u64, ""));
            return;
        }
    }
}

#[test]
fn the_older_protocol_has_no_controls() {
    let served = tenths(2);
    let mut client = served.connect_with("/", OLDER);
    let advertised = client.text_of("advertise");
    client.subscribe_to(&advertised, "/count", 1);
    client.control(false, Some(START as u64), "pause");
    let status = client.text_of("status");
    let text = status["message"].as_str().expect("text");
    assert!(
        text.contains("playback control") && text.contains(SDK),
        "{text}"
    );
    // It plays on.
    let mut heard = 0;
    while heard < 5 {
        heard += usize::from(matches!(client.said(), Said::Data { .. }));
    }
}

fn described(topic: &str, kind: &str, caller: &str) -> Arc<Channel> {
    let schema = Schema {
        name: kind.to_owned(),
        encoding: "ros1msg".to_owned(),
        data: "int32 data\n".into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "ros1".to_owned(),
        schema: Some(Arc::new(schema)),
        metadata: [("callerid".to_owned(), caller.to_owned())].into(),
    })
}

#[test]
fn messages_of_all_publishers_of_a_topic_come_on_one_channel() {
    let publishers = ["/left", "/right"].map(|name| described("/odom", "std_msgs/Int32", name));
    let other = described("/odom", "std_msgs/UInt32", "/left");
    let message = |number: usize| {
        let channel = [&publishers[0], &publishers[1], &other][number % 3];
        logged(channel, number as i64 * SECOND / 30, vec![number as u8; 4])
    };
    let served = serve(Tape::new((0..30).map(message)), &options());
    let mut client = served.connect_with("/", OLDER);
    let advertised = client.text_of("advertise");
    let channels = advertised["channels"].as_array().expect("channels");
    let names: Vec<&str> = channels
        .iter()
        .filter_map(|one| one["topic"].as_str())
        .collect();
    assert_eq!(names, ["/odom", "/odom (std_msgs/UInt32)"]);
    client.subscribe_to(&advertised, "/odom", 1);
    client.subscribe_to(&advertised, "/odom (std_msgs/UInt32)", 2);
    let mut heard = std::collections::BTreeSet::new();
    while heard.len() < 30 {
        if let Said::Data {
            subscription,
            payload,
            ..
        } = client.said()
        {
            let is_other = payload[0] % 3 == 2;
            assert_eq!(subscription, if is_other { 2 } else { 1 });
            heard.insert(payload[0]);
        }
    }
}

#[test]
fn topics_without_a_schema_are_told_of_once_for_all() {
    let bare = |topic: &str| {
        Arc::new(Channel {
            topic: topic.to_owned(),
            message_encoding: "cdr".to_owned(),
            ..Channel::default()
        })
    };
    let channels = [bare("/a"), bare("/b"), bare("/c"), json_channel("/text")];
    let served = serve(Tape::with(&channels, [], Vec::new()), &options());
    let mut client = served.connect_with("/", OLDER);
    let advertised = client.text_of("advertise");
    assert_eq!(advertised["channels"].as_array().map(Vec::len), Some(1));
    let any = &advertised["channels"][0];
    assert_eq!(
        (&any["topic"], &any["schemaEncoding"]),
        (&"/text".into(), &"jsonschema".into())
    );
    let status = client.text_of("status");
    let text = status["message"].as_str().expect("text");
    assert!(
        text.starts_with("3 topics") && text.contains("/a, /b, /c"),
        "{text}"
    );
    client.say(&json!({ "op": "dance" }));
    assert!(
        client.text_of("status")["message"]
            .to_string()
            .contains("dance")
    );
}

#[test]
fn what_is_not_done_is_named() {
    let served = tenths(1);
    let mut client = served.connect_with("/", OLDER);
    for op in [
        "advertise",
        "setParameters",
        "callService",
        "é".repeat(4000).as_str(),
    ] {
        client.say(&json!({ "op": op }));
        let status = client.text_of("status");
        let text = status["message"].as_str().expect("text");
        let shown: String = op.chars().take(60).collect();
        assert!(text.contains(&shown) && text.len() < 400, "{text}");
    }
    client
        .socket
        .send(Message::Binary(vec![77, 1].into()))
        .expect("sent");
    let text = client.text_of("status")["message"].to_string();
    assert!(text.contains("77"), "{text}");
}

#[test]
fn files_of_folders_that_were_named_can_be_fetched_and_no_others() {
    let folder = std::env::temp_dir().join(format!("asof-viewers-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("robot/meshes")).expect("made");
    std::fs::write(folder.join("robot/meshes/arm.stl"), b"solid").expect("written");
    let with_assets = asof_serve::ServeOptions {
        assets: vec![folder.join("robot")],
        ..options()
    };
    let served = serve(Tape::new([]), &with_assets);
    let mut client = served.connect_with("/", OLDER);
    let info = client.text_of("serverInfo");
    assert_eq!(info["capabilities"], json!(["time", "assets"]));
    let mut fetch = |uri: &str, id: u32| {
        client.say(&json!({ "op": "fetchAsset", "uri": uri, "requestId": id }));
        loop {
            if let Message::Binary(bytes) = client.socket.read().expect("a message")
                && bytes[0] == 4
            {
                assert_eq!(bytes[1..5], id.to_le_bytes());
                let error = u32::from_le_bytes(bytes[6..10].try_into().expect("four")) as usize;
                let text = String::from_utf8_lossy(&bytes[10..10 + error]).into_owned();
                return (bytes[5], text, bytes[10 + error..].to_vec());
            }
        }
    };
    let found = fetch("package://robot/meshes/arm.stl", 7);
    assert_eq!(found, (0, String::new(), b"solid".to_vec()));
    let (status, error, data) = fetch("package://robot/../../etc/passwd", 8);
    assert_eq!((status, data), (1, Vec::new()));
    assert!(error.contains("passwd"), "{error}");
    drop(std::fs::remove_dir_all(folder));
}

#[test]
fn publishers_are_told_where_they_are_known() {
    let channels = ["/left", "/right"].map(|name| described("/odom", "std_msgs/Int32", name));
    let served = serve(Tape::with(&channels, [], Vec::new()), &options());
    let mut client = served.connect_with("/", OLDER);
    let info = client.text_of("serverInfo");
    assert_eq!(info["capabilities"], json!(["time", "connectionGraph"]));
    client.say(&json!({ "op": "subscribeConnectionGraph" }));
    let graph = client.text_of("connectionGraphUpdate");
    let expected = json!([{ "name": "/odom", "publisherIds": ["/left", "/right"] }]);
    assert_eq!(graph["publishedTopics"], expected);
}

/// A node's parameter `speed` over time.
fn speeds(values: impl IntoIterator<Item = (i64, f64)>) -> Tape {
    let schema = Schema {
        name: "rcl_interfaces/msg/ParameterEvent".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: "{\"type\":\"object\"}".into(),
    };
    let channel = Arc::new(Channel {
        schema: Some(Arc::new(schema)),
        ..(*json_channel("/parameter_events")).clone()
    });
    Tape::new(values.into_iter().map(|(t, value)| {
        let value = json!({ "type": 3, "double_value": value });
        let parameter = json!({ "name": "speed", "value": value });
        let event = json!({ "node": "/drive", "changed_parameters": [parameter] });
        logged(&channel, t, event.to_string())
    }))
}

#[test]
fn parameters_are_told_as_of_where_the_client_is() {
    let served = serve(speeds([(0, 1.5), (5 * SECOND, 2.5)]), &options());
    let mut client = served.connect_with("/", SDK);
    let info = client.text_of("serverInfo");
    assert!(
        info["capabilities"].to_string().contains("parameters"),
        "{info}"
    );
    for (t, value) in [(SECOND, 1.5), (5 * SECOND, 2.5)] {
        client.control(false, Some((START + t) as u64), "seek");
        client.say(&json!({ "op": "getParameters", "parameterNames": [], "id": "all" }));
        let told = client.text_of("parameterValues");
        let expected = json!([{ "name": "/drive.speed", "value": value, "type": "float64" }]);
        assert_eq!(
            (&told["parameters"], &told["id"]),
            (&expected, &json!("all"))
        );
    }
}

#[test]
fn parameters_that_change_often_are_those_of_the_last_event() {
    let last = 60_000;
    let served = serve(
        speeds((0..=last).map(|number| (number * 1_000_000, number as f64))),
        &options(),
    );
    let found = served.get(&format!("/api/parameters?t={}", last * 1_000_000));
    assert_eq!(
        found.json()["/drive.speed"],
        json!(last as f64),
        "{}",
        found.status
    );
}

/// Why a connection ended.
fn end_of(client: &mut Client) -> tungstenite::Error {
    loop {
        if let Err(end) = client.socket.read() {
            return end;
        }
    }
}

#[test]
fn a_connection_ends_with_a_word_of_both_sides_whoever_begins() {
    let served = tenths(2);
    let mut others = Vec::new();
    for protocol in ["asof.v1", OLDER, SDK] {
        let mut client = served.connect_with("/ws", protocol);
        client.socket.close(None).expect("said");
        let end = end_of(&mut client);
        assert!(matches!(end, tungstenite::Error::ConnectionClosed), "{end}");
        others.push(served.connect_with("/ws", protocol));
    }
    // Before the server ends they have all been heard.
    for client in &mut others {
        client.socket.read().expect("a greeting");
    }
    let ends = others
        .into_iter()
        .map(|mut client| std::thread::spawn(move || end_of(&mut client)));
    let ends: Vec<_> = ends.collect();
    drop(served);
    for end in ends {
        let end = end.join().expect("no panic");
        assert!(matches!(end, tungstenite::Error::ConnectionClosed), "{end}");
    }
}
