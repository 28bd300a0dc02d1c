//! Recordings from other people's robots: every topic in every form, and the server is still there.

mod common;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asof_serve::Server;
use common::Served;
use serde_json::Value;

fn folder() -> PathBuf {
    match std::env::var_os("ASOF_TEST_DATA") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    }
}

#[test]
fn every_recording_of_others_is_shown() {
    let Ok(entries) = std::fs::read_dir(folder().join("recordings")) else {
        asof_core::testing::skipped(format_args!("no recordings in {}", folder().display()));
        return;
    };
    let mut count = 0;
    for entry in entries.flatten() {
        let Ok(recording) = asof_formats::open(entry.path()) else {
            continue;
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        let server = Server::start(Arc::new(recording), &name, &common::options()).expect("start");
        let served = Served::of(server);
        show_all(&served, &name);
        count += 1;
    }
    println!("{count} recordings were shown");
    assert!(count > 0);
}

fn show_all(served: &Served, name: &str) {
    let summary = served.get("/api/summary").json();
    let end = summary["duration"].as_i64().expect("a duration");
    let topics = summary["topics"].as_array().expect("topics");
    for topic in topics.iter().take(40) {
        if topic["messages"] == 0 {
            continue;
        }
        let (role, topic) = (&topic["role"], topic["topic"].as_str().expect("a name"));
        let encoded = topic.bytes().fold(String::new(), |mut text, byte| {
            write!(text, "%{byte:02x}").expect("text");
            text
        });
        let forms = ["image", "points", "grid"];
        let form = role.as_str().filter(|role| forms.contains(role));
        let form = form.unwrap_or("json");
        let answer = served.get(&format!("/api/message?topic={encoded}&t={end}&form={form}"));
        assert!(answer.status < 500, "{name} {topic}: {}", answer.status);
        // What can be decoded can be shown; a schema that is none is somebody else's matter.
        let plain = served.get(&format!("/api/message?topic={encoded}&t={end}"));
        let is_decoded = plain.status == 200 && plain.json()["error"].is_null();
        if role.is_string() && is_decoded && form != "json" {
            assert_eq!(answer.status, 200, "{name} {topic}");
            let text = String::from_utf8_lossy(&answer.body);
            // A map of somebody's test whose cells have no size cannot be drawn, and that is said.
            assert!(
                !text.contains("\"error\"") || text.contains("its resolution is 0"),
                "{name} {topic}: {}",
                &text[..text.len().min(300)]
            );
        }
        assert!(served.get(&format!("/api/fields?topic={encoded}")).status < 500);
    }
    assert_eq!(served.get("/api/density?columns=10").status, 200, "{name}");
    let frames = served.get(&format!("/api/frames?t={}", end / 2));
    assert!(matches!(frames.json(), Value::Array(_)), "{name}");
    let mut client = served.connect();
    client.find_op("hello");
}
