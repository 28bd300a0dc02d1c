//! What a page is told, over HTTP and over its WebSocket.

mod common;

use asof_core::{Problem, ProblemKind};
use common::tape::Tape;
use common::{SECOND, Served, demo, demo_with, json_channel, logged, options, serve};
use serde_json::json;

#[test]
fn the_summary_tells_what_the_recording_holds() {
    let served = demo(2);
    let summary = served.get("/api/summary").json();
    assert_eq!(summary["name"], "run.mcap");
    assert_eq!(summary["format"], "tape");
    let topics = summary["topics"].as_array().expect("topics");
    let camera = topics
        .iter()
        .find(|topic| topic["topic"] == "/camera/image")
        .expect("a camera");
    assert_eq!(camera["role"], "image");
    assert_eq!(camera["messages"], 20);
    assert_eq!(summary["frame_topics"], json!(["/tf", "/tf_static"]));
}

#[test]
fn the_page_is_embedded() {
    let served = demo(1);
    let page = served.get("/");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("text/html"));
    assert!(String::from_utf8_lossy(&page.body).contains("/app.js"));
    assert_eq!(served.get("/app.js").status, 200);
    assert_eq!(served.get("/scene.js").status, 200);
}

#[test]
fn a_message_comes_as_of_a_time_with_its_fields_in_order() {
    let served = demo(2);
    let answer = served.get(&format!("/api/message?topic=/odom&t={SECOND}"));
    let text = String::from_utf8(answer.body.clone()).expect("text");
    let order: Vec<usize> = ["\"header\"", "\"child_frame_id\"", "\"pose\"", "\"twist\""]
        .iter()
        .map(|name| text.find(name).expect("a field"))
        .collect();
    assert!(order.is_sorted(), "{text}");
    let message = answer.json();
    let t = message["t"].as_i64().expect("a time");
    assert!((SECOND - 30_000_000..=SECOND).contains(&t), "{t}");
}

#[test]
fn everything_that_was_known_comes_at_once() {
    let served = demo(2);
    let known = served
        .get(&format!("/api/at?t={SECOND}&topics=/odom,/tf_static"))
        .json();
    assert_eq!(known.as_array().map(Vec::len), Some(2));
}

#[test]
fn topics_that_the_summary_does_not_list_are_known_too_however_many_there_are() {
    for count in [3, 40] {
        let message = |number: i64| {
            let channel = json_channel(&format!("/topic{number}"));
            logged(&channel, number, json!({ "number": number }).to_string())
        };
        let tape = Tape::new((0..count).map(message));
        let served = serve(tape.without_listing("/topic2"), &options());
        let known = served.get("/api/at?t=1000").json();
        let known = known.as_array().expect("a list").iter();
        let times: Vec<i64> = known.filter_map(|one| one["t"].as_i64()).collect();
        assert_eq!(times, (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn a_picture_comes_as_it_was_compressed() {
    let served = demo(1);
    let answer = served.get("/api/message?topic=/camera/image&t=900000000&form=image");
    assert!(answer.head.contains("image/jpeg"));
    assert_eq!(answer.body[..2], [0xff, 0xd8]);
}

#[test]
fn a_scan_becomes_points_where_its_frame_was() {
    let served = demo(1);
    let answer = served.get("/api/message?topic=/scan&t=900000000&form=points");
    let len = u32::from_le_bytes(answer.body[..4].try_into().expect("four")) as usize;
    let head: serde_json::Value = serde_json::from_slice(&answer.body[4..4 + len]).expect("JSON");
    let count = head["count"].as_u64().expect("a count") as usize;
    assert!(count > 100, "{head}");
    assert_eq!(answer.body.len() - 4 - len, count * 16);
    assert_eq!(head["root"], "map");
    assert_eq!(head["pose"].as_array().map(Vec::len), Some(7));
}

#[test]
fn a_map_comes_as_cells() {
    let served = demo(2);
    let answer = served.get("/api/message?topic=/map&t=1900000000&form=grid");
    let len = u32::from_le_bytes(answer.body[..4].try_into().expect("four")) as usize;
    let head: serde_json::Value = serde_json::from_slice(&answer.body[4..4 + len]).expect("JSON");
    let cells = head["width"].as_u64().expect("width") * head["height"].as_u64().expect("height");
    assert_eq!(answer.body.len() - 4 - len, cells as usize);
}

/// The parts of a stream of columns, put together; and what was said at its end.
fn columns(bytes: &[u8], lanes: usize, count: usize) -> (Vec<Vec<f64>>, String) {
    let mut all = vec![vec![f64::NAN; count]; lanes];
    let mut at = 0;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize;
    loop {
        let (first, len) = (word(at), word(at + 4));
        at += 8;
        if first == u32::MAX as usize {
            return (
                all,
                String::from_utf8_lossy(&bytes[at..at + len]).into_owned(),
            );
        }
        for lane in &mut all {
            for column in &mut lane[first..first + len] {
                *column = f64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
                at += 8;
            }
        }
    }
}

#[test]
fn a_series_has_the_least_and_the_greatest_of_each_column() {
    let served = demo(4);
    let answer = served.get("/api/series?topic=/cmd_vel&path=linear.x&columns=40");
    let (lanes, error) = columns(&answer.body, 2, 40);
    assert_eq!(error, "");
    // The same, from every message.
    let messages = served
        .get("/api/messages?topic=/cmd_vel&limit=10000")
        .json();
    let messages = messages.as_array().expect("messages");
    assert_eq!(messages.len(), 80);
    let summary = served.get("/api/summary").json();
    let duration = summary["duration"].as_i64().expect("a duration");
    for column in 0..40 {
        let values: Vec<f64> = messages
            .iter()
            .filter(|message| {
                let t = message["t"].as_i64().expect("a time");
                i128::from(t) * 40 / i128::from(duration + 1) == column
            })
            .map(|message| message["data"]["linear"]["x"].as_f64().expect("a number"))
            .collect();
        let least = values.iter().copied().fold(f64::NAN, f64::min);
        let most = values.iter().copied().fold(f64::NAN, f64::max);
        let (found_least, found_most) = (lanes[0][column as usize], lanes[1][column as usize]);
        // The reader of JSON in this test may be off in the last digit.
        let is_same = |a: f64, b: f64| (a - b).abs() < 1e-12 || (a.is_nan() && b.is_nan());
        assert!(is_same(found_least, least), "{found_least} {least}");
        assert!(is_same(found_most, most), "{found_most} {most}");
    }
}

#[test]
fn a_series_is_worked_out_once() {
    let served = demo(2);
    let ask = || {
        served
            .get("/api/series?topic=/imu&path=linear_acceleration.x&columns=100")
            .body
    };
    let first = ask();
    let read = served.server.cache_stats();
    assert_eq!(columns(&first, 2, 100), columns(&ask(), 2, 100));
    let again = served.server.cache_stats();
    assert_eq!((read.hits, read.misses), (again.hits, again.misses));
}

#[test]
fn fields_without_a_schema_are_plotted_as_the_messages_have_them() {
    let channel = json_channel("/x");
    let text = |n: i64| match n {
        0 => json!({ "x": 0 }),
        7 => json!({ "x": 3.5, "late": 2 }),
        n => json!({ "x": n as f64 / 2.0 }),
    };
    let served = serve(
        Tape::new((0..10).map(|n| logged(&channel, n * SECOND, text(n).to_string()))),
        &options(),
    );
    let series = |path: &str| {
        let answer = served.get(&format!("/api/series?topic=/x&path={path}&columns=10"));
        columns(&answer.body, 2, 10)
    };
    let (lanes, error) = series("x");
    let halves: Vec<f64> = (0..10).map(|n| f64::from(n) / 2.0).collect();
    assert_eq!((&lanes[0], error.as_str()), (&halves, ""));
    let (lanes, error) = series("late");
    let known: Vec<f64> = lanes[1]
        .iter()
        .copied()
        .filter(|one| !one.is_nan())
        .collect();
    assert_eq!((known.as_slice(), error.as_str()), (&[2.0][..], ""));
    let rows = served.get("/api/rows?topic=/x&paths=x,late").json();
    assert_eq!(rows["rows"].as_array().map(Vec::len), Some(10));
    assert_eq!(rows["rows"][7], json!([7 * SECOND, 3.5, 2]));
    assert!(
        series("none").1.contains("no field"),
        "{}",
        series("none").1
    );
}

#[test]
fn to_zoom_into_a_series_reads_nothing() {
    let ask = |served: &Served, range: &str| {
        let body = served
            .get(&format!(
                "/api/series?topic=/imu&path=linear_acceleration.x&columns=100{range}"
            ))
            .body;
        columns(&body, 2, 100)
    };
    let (served, other) = (demo(4), demo(4));
    ask(&served, "");
    let read = served.server.cache_stats();
    for range in [
        "&start=1000000000&end=2000000000",
        "&start=0&end=1",
        "&start=1500000001&end=3999999999",
    ] {
        // In bits: a column without a message is NaN.
        let bits = |(lanes, error): (Vec<Vec<f64>>, String)| {
            let lanes = lanes.into_iter().flatten().map(f64::to_bits);
            (lanes.collect::<Vec<_>>(), error)
        };
        assert_eq!(
            bits(ask(&served, range)),
            bits(ask(&other, range)),
            "{range}"
        );
    }
    let again = served.server.cache_stats();
    assert_eq!((read.hits, read.misses), (again.hits, again.misses));
}

#[test]
fn a_field_that_is_not_there_is_said_at_the_end_of_the_series() {
    let served = demo(1);
    for path in ["nothing", "linear", "[", "linear.x[3]"] {
        let answer = served.get(&format!(
            "/api/series?topic=/cmd_vel&path={path}&columns=10"
        ));
        assert_ne!(columns(&answer.body, 2, 10).1, "", "{path}");
    }
}

#[test]
fn density_counts_every_message() {
    let served = demo(2);
    let topics = served.get("/api/summary").json()["topics"]
        .as_array()
        .expect("topics")
        .len();
    let answer = served.get("/api/density?columns=20");
    let (lanes, error) = columns(&answer.body, topics, 20);
    assert_eq!(error, "");
    let total: f64 = lanes.iter().flatten().sum();
    let messages = served.get("/api/summary").json()["messages"]
        .as_f64()
        .expect("a count");
    assert!((total - messages).abs() < 0.5, "{total} {messages}");
}

#[test]
fn states_tell_when_a_value_changed() {
    let served = demo(10);
    let states = served.get("/api/states?topic=/bumper&path=data").json();
    let values: Vec<_> = states["changes"]
        .as_array()
        .expect("changes")
        .iter()
        .map(|change| change[1].clone())
        .collect();
    assert_eq!(values, [json!(false), json!(true), json!(false)]);
}

#[test]
fn the_frames_are_told_at_any_time() {
    let served = demo(2);
    let frames = served.get(&format!("/api/frames?t={SECOND}")).json();
    let edges = frames.as_array().expect("edges");
    let base = edges
        .iter()
        .find(|edge| edge["child"] == "base_link")
        .expect("base_link");
    assert_eq!(base["parent"], "odom");
    assert!(base["pose"][0].as_f64().is_some_and(|x| x > 0.1));
}

#[test]
fn foxgloves_own_types_are_shown_too() {
    for encoding in [
        asof_demo::DemoEncoding::Protobuf,
        asof_demo::DemoEncoding::Json,
    ] {
        let served = demo_with(2, encoding, &options());
        let summary = served.get("/api/summary").json();
        let topics = summary["topics"].as_array().expect("topics");
        let topic = |role: &str| {
            let found = topics.iter().find(|topic| topic["role"] == role);
            found.expect(role)["topic"]
                .as_str()
                .expect("a name")
                .to_owned()
        };
        let picture = served.get(&format!(
            "/api/message?topic={}&t={SECOND}&form=image",
            topic("image")
        ));
        assert!(
            picture.head.contains("image/jpeg"),
            "{encoding:?} {}",
            picture.head
        );
        let scan = served.get(&format!(
            "/api/message?topic={}&t={SECOND}&form=points",
            topic("points")
        ));
        assert!(
            String::from_utf8_lossy(&scan.body[..200]).contains("count"),
            "{encoding:?}"
        );
        let frames = served.get(&format!("/api/frames?t={SECOND}")).json();
        assert!(
            frames.as_array().is_some_and(|edges| edges.len() > 2),
            "{encoding:?} {frames}"
        );
    }
}

#[test]
fn a_client_hears_what_was_known_when_it_subscribes() {
    let served = demo(3);
    let mut client = served.connect();
    assert_eq!(client.find_op("hello")["summary"]["name"], "run.mcap");
    client.say(&json!({ "op": "seek", "t": 2 * SECOND }));
    client.say(&json!({ "op": "subscribe", "topic": "/odom", "form": "json" }));
    let message = client.find_on("/odom");
    let t = message["t"].as_i64().expect("a time");
    assert!((2 * SECOND - 30_000_000..=2 * SECOND).contains(&t), "{t}");
    assert!(message["data"]["pose"]["pose"]["position"]["x"].is_number());
}

#[test]
fn a_seek_tells_what_was_known_then() {
    let served = demo(3);
    let mut client = served.connect();
    client.say(&json!({ "op": "subscribe", "topic": "/scan", "form": "points" }));
    client.find(|message| message["op"] == "nothing" || message["op"] == "message");
    for seconds in [2, 1] {
        client.say(&json!({ "op": "seek", "t": seconds * SECOND }));
        let near = seconds * SECOND - 110_000_000..=seconds * SECOND;
        client.find(|message| {
            message["topic"] == "/scan" && message["t"].as_i64().is_some_and(|t| near.contains(&t))
        });
    }
}

#[test]
fn before_the_first_message_there_is_nothing() {
    let served = demo(3);
    let mut client = served.connect();
    client.say(&json!({ "op": "seek", "t": 2 * SECOND }));
    client.say(&json!({ "op": "subscribe", "topic": "/camera/image", "form": "image" }));
    assert!(client.find_on("/camera/image")["body_bytes"].as_u64() > Some(1000));
    client.say(&json!({ "op": "seek", "t": 0 }));
    assert_eq!(client.find_op("nothing")["topic"], "/camera/image");
}

#[test]
fn playing_goes_to_the_end_and_loops_when_asked() {
    let served = demo(2);
    let mut client = served.connect();
    client.say(&json!({ "op": "subscribe", "topic": "/odom", "form": "json" }));
    client.say(&json!({ "op": "speed", "times": 10 }));
    client.say(&json!({ "op": "play" }));
    client.find(|message| message["state"] == "playing");
    client.find(|message| message["state"] == "ended");
    client.say(&json!({ "op": "loop", "on": true }));
    client.say(&json!({ "op": "play" }));
    client.find(|message| message["state"] == "playing" && message["t"].as_i64() < Some(SECOND));
    client.find(|message| message["t"].as_i64() > Some(SECOND));
    client.find(|message| message["t"].as_i64().is_some_and(|t| t < SECOND));
}

#[test]
fn steps_go_message_by_message() {
    let served = demo(2);
    let mut client = served.connect();
    client.say(&json!({ "op": "subscribe", "topic": "/scan", "form": "json" }));
    client.say(&json!({ "op": "seek", "t": SECOND }));
    let known =
        client.find(|message| message["topic"] == "/scan" && message["t"].as_i64() > Some(0));
    client.say(&json!({ "op": "step" }));
    let next = client.find(|message| message["topic"] == "/scan" && message["t"] != known["t"]);
    assert!(next["t"].as_i64() > Some(SECOND));
    client.say(&json!({ "op": "step", "back": true }));
    client.find(|message| message["topic"] == "/scan" && message["t"] == known["t"]);
}

#[test]
fn frames_and_loaded_ranges_are_pushed() {
    let served = demo(2);
    let mut client = served.connect();
    client.say(&json!({ "op": "frames", "on": true }));
    let frames = client.find_op("frames");
    assert!(
        frames["edges"]
            .as_array()
            .is_some_and(|edges| edges.len() > 3)
    );
    served.get("/api/density?columns=4");
    let loaded = client.find(|message| {
        message["op"] == "loaded"
            && message["ranges"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
    });
    assert_eq!(loaded["ranges"][0], json!([0.0, 1.0]));
}

#[test]
fn those_who_play_together_go_together() {
    let served = demo(3);
    let (mut one, mut other, mut alone) = (served.connect(), served.connect(), served.connect());
    one.say(&json!({ "op": "together", "on": true }));
    other.say(&json!({ "op": "together", "on": true }));
    other.find(|message| message["together"] == true);
    one.say(&json!({ "op": "seek", "t": 2 * SECOND }));
    other.find(|message| message["op"] == "state" && message["t"] == 2 * SECOND);
    alone.say(&json!({ "op": "speed", "times": 2 }));
    let state = alone.find(|message| message["speed"] == 2.0);
    assert_eq!(state["t"], 0);
}

#[test]
fn a_recording_without_messages_is_served_too() {
    let served = serve(Tape::new([]), &options());
    assert_eq!(served.get("/api/summary").json()["is_empty"], true);
    assert_eq!(served.get("/api/density").status, 200);
    let mut client = served.connect();
    client.find_op("hello");
    client.say(&json!({ "op": "play" }));
    client.say(&json!({ "op": "seek", "t": 5 }));
    client.say(&json!({ "op": "subscribe", "topic": "/none", "form": "json" }));
    client.find_op("nothing");
}

#[test]
fn problems_of_a_damaged_recording_are_told() {
    let problem = Problem::whole(ProblemKind::Truncated, "it ends in the middle");
    let served = serve(Tape::with(&[], [], vec![problem]), &options());
    let problems = served.get("/api/problems").json();
    assert!(problems.as_array().is_some_and(|all| !all.is_empty()));
    let mut client = served.connect();
    let hello = client.find_op("hello");
    assert_eq!(hello["summary"]["problems"], problems);
}

#[test]
fn points_are_coloured_by_the_field_that_is_chosen() {
    let fields = json!([
        { "name": "x", "offset": 0, "type": 7 }, { "name": "y", "offset": 4, "type": 7 },
        { "name": "z", "offset": 8, "type": 7 }, { "name": "ring", "offset": 12, "type": 1 },
        { "name": "intensity", "offset": 13, "type": 1 },
    ]);
    let mut data = [1.0_f32, 2.0, 3.0].map(f32::to_le_bytes).concat();
    data.extend([7, 200]);
    let cloud = json!({
        "frame_id": "map", "point_stride": 14, "fields": fields, "data": data,
        "pose": { "position": { "x": 0, "y": 0, "z": 0 }, "orientation": { "x": 0, "y": 0, "z": 0, "w": 1 } },
    });
    let schema = asof_core::Schema {
        name: "foxglove.PointCloud".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: "{}".into(),
    };
    let channel = asof_core::Channel {
        schema: Some(schema.into()),
        ..(*json_channel("/cloud")).clone()
    };
    let message = logged(&channel.into(), 0, cloud.to_string());
    let served = serve(Tape::new([message]), &options());
    let value = |color: &str| {
        let answer = served.get(&format!("/api/message?topic=/cloud&form=points{color}"));
        let bytes = answer.body;
        let last = bytes.last_chunk::<4>().expect("a value");
        f32::from_le_bytes(*last)
    };
    assert_eq!(value("").to_bits(), 200.0_f32.to_bits());
    assert_eq!(value("&color=ring").to_bits(), 7.0_f32.to_bits());
    // A field that is not there changes nothing.
    assert_eq!(value("&color=none").to_bits(), 200.0_f32.to_bits());
}

#[test]
fn video_comes_from_the_last_packet_that_a_decoder_can_start_with() {
    let schema = asof_core::Schema {
        name: "foxglove.CompressedVideo".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: "{}".into(),
    };
    let channel: std::sync::Arc<_> = asof_core::Channel {
        schema: Some(schema.into()),
        ..(*json_channel("/video")).clone()
    }
    .into();
    let set = [0, 0, 0, 1, 0x67, 0x64, 0, 0x1f, 0xac];
    let key = [0, 0, 0, 1, 0x65, 0x88];
    let later = |number: u8| vec![0, 0, 0, 1, 0x41, number];
    // Parameters stand alone before the second key frame, as some cameras send them.
    let packets: Vec<Vec<u8>> = vec![
        [&set[..], &key].concat(),
        later(1),
        set.to_vec(),
        key.to_vec(),
        later(2),
        later(3),
    ];
    let messages = packets.iter().zip(0..).map(|(packet, at)| {
        let data = json!({ "format": "h264", "data": packet }).to_string();
        logged(&channel, at * SECOND, data)
    });
    let served = serve(Tape::new(messages.collect::<Vec<_>>()), &options());
    let asked = |t: i64, after: &str| {
        let answer = served.get(&format!("/api/video?topic=/video&t={}{after}", t * SECOND));
        let len = u32::from_le_bytes(*answer.body.first_chunk::<4>().expect("a length")) as usize;
        let head: serde_json::Value =
            serde_json::from_slice(&answer.body[4..4 + len]).expect("JSON");
        (head, answer.body[4 + len..].to_vec())
    };
    let (head, body) = asked(5, "");
    assert_eq!(
        (&head["anew"], &head["codec"]),
        (&json!(true), &json!("avc1.64001f"))
    );
    let times: Vec<i64> = head["packets"]
        .as_array()
        .expect("packets")
        .iter()
        .map(|one| one["t"].as_i64().expect("t") / SECOND)
        .collect();
    assert_eq!(times, [3, 4, 5]);
    assert_eq!(body, packets[2..].concat());
    // The parameters go with the picture that they are for.
    assert_eq!(head["packets"][0]["size"], set.len() + key.len());
    let (head, body) = asked(5, &format!("&after={}", 4 * SECOND));
    assert_eq!((&head["anew"], body), (&json!(false), packets[5].clone()));
    // What was shown lies before another start: a decoder starts there.
    let (head, _) = asked(4, &format!("&after={SECOND}"));
    assert_eq!(head["anew"], true);
    assert_eq!(
        asked(5, &format!("&after={}", 5 * SECOND)).0["packets"],
        json!([])
    );
    assert_eq!(served.get("/api/video?topic=/none&t=0").status, 400);
}

#[test]
fn the_policy_of_the_page_lets_it_fetch_tiles_from_where_it_was_told_alone() {
    let mut with = options();
    with.tiles = Some("https://tile.example.org/{z}/{x}/{y}.png".to_owned());
    let served = demo_with(1, asof_demo::DemoEncoding::Cdr, &with);
    let page = served.get("/").head.to_lowercase();
    assert!(
        page.contains("img-src https://tile.example.org 'self'"),
        "{page}"
    );
    assert_eq!(
        served.get("/api/summary").json()["tiles"],
        with.tiles.expect("tiles")
    );
    let page = demo(1).get("/").head.to_lowercase();
    assert!(page.contains("img-src 'self' blob: data:;"), "{page}");
}
