//! Recordings that are opened from the page: paths of one server, within one budget.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asof_serve::{
    ListProgress, OpenedRecording, Opener, RecordingList, RecordingsAsked, RecordingsFound,
    Refusal, ServeOptions, Server,
};
use asof_window::Recent;
use common::{Served, json_channel, logged, options};
use serde_json::{Value, json};

/// Every name is a recording, except for `none`.
#[derive(Default)]
struct Names {
    opened: AtomicUsize,
}

/// A recording whose only topic has its name.
fn recording(name: &str) -> OpenedRecording {
    let recent = Recent::default();
    recent.push(logged(&json_channel(&format!("/{name}")), 0, "{\"x\":1}"));
    OpenedRecording {
        source: Arc::new(recent),
        name: name.to_owned(),
        robots: Vec::new(),
        annotations: None,
        disk: None,
        keep: None,
    }
}

impl RecordingList for Names {
    fn name(&self) -> String {
        "fleet".to_owned()
    }

    fn find(&self, _: &RecordingsAsked) -> Result<RecordingsFound, Refusal> {
        Ok(RecordingsFound {
            recordings: Vec::new(),
            reading: Some(ListProgress { done: 3, total: 7 }),
        })
    }

    fn open(&self, name: &str) -> Result<OpenedRecording, Refusal> {
        if name == "none" {
            return Err("no such recording".into());
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(recording(name))
    }
}

impl Opener for Names {
    fn folder(&self, _: Option<u64>) -> Result<(u64, PathBuf), Refusal> {
        Err("no folder".into())
    }

    fn open(&self, _: u64) -> Result<OpenedRecording, Refusal> {
        Ok(recording("dropped"))
    }
}

fn server(options: &ServeOptions) -> (Served, Arc<Names>) {
    let names = Arc::new(Names::default());
    let options = ServeOptions {
        recordings: Some(Arc::clone(&names) as _),
        ..options.clone()
    };
    let opener = Some(Arc::clone(&names) as _);
    let server = Server::start_with(Arc::new(Recent::default()), "", &options, opener);
    (Served::of(server.expect("start")), names)
}

fn post(served: &Served, path: &str, body: &str) -> common::Answer {
    let length = body.len();
    served.send(format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes())
}

fn open_paths(served: &Served) -> Vec<String> {
    let status = served.server.status();
    let all = status["open"]["recordings"].as_array().expect("a list");
    let path = |one: &Value| one["path"].as_str().expect("a path").to_owned();
    all.iter().map(path).collect()
}

#[test]
fn a_recording_is_a_path_of_the_same_server_with_all_of_its_answers() {
    let (served, names) = server(&options());
    let opened = post(&served, "/api/recordings/open?recording=a/b%20c.mcap", "");
    assert_eq!(opened.json(), json!({ "url": "/r/a:b%20c.mcap/" }));
    let summary = served.get("/r/a:b%20c.mcap/api/summary").json();
    assert_eq!(
        (&summary["name"], &summary["home"]),
        (&json!("a/b c.mcap"), &json!("fleet"))
    );
    let at = "/r/a:b%20c.mcap/api/at";
    assert_eq!(served.get(at).json()[0]["data"], json!({ "x": 1 }));
    // The page is there without a slash, too, and a WebSocket of either protocol.
    assert_eq!(served.get("/r/a:b%20c.mcap").status, 303);
    assert_eq!(served.get("/r/a:b%20c.mcap/").status, 200);
    let mut client = served.connect_with("/r/a:b%20c.mcap/ws", "asof.v1");
    assert_eq!(client.find_op("hello")["summary"]["name"], "a/b c.mcap");
    let viewer = served.connect_with("/r/a:b%20c.mcap/", "foxglove.sdk.v1");
    assert_eq!(viewer.protocol.as_deref(), Some("foxglove.sdk.v1"));
    assert_eq!(names.opened.load(Ordering::Relaxed), 1);
    // The server's own recording is what it was.
    assert_eq!(served.get("/api/summary").json()["name"], "");
}

#[test]
fn a_link_opens_its_recording_and_the_page_alone_opens_nothing() {
    let (served, names) = server(&options());
    assert_eq!(served.get("/r/run.mcap/").status, 200);
    assert_eq!(names.opened.load(Ordering::Relaxed), 0);
    assert_eq!(
        served.get("/r/run.mcap/api/summary").json()["name"],
        "run.mcap"
    );
    assert_eq!(names.opened.load(Ordering::Relaxed), 1);
    let none = served.get("/r/none/api/summary");
    assert_eq!(
        (none.status, &none.json()["error"]),
        (400, &json!("no such recording"))
    );
    for path in [
        "/r/",
        "/r//api/summary",
        "/r/%zz/api/summary",
        "/r/~7/api/summary",
    ] {
        assert!((400..500).contains(&served.get(path).status), "{path}");
    }
}

#[test]
fn dropped_files_are_a_path_of_the_same_server_too() {
    let (served, _) = server(&options());
    let opened = post(&served, "/api/files/open?look=3", "");
    assert_eq!(opened.json(), json!({ "url": "/r/~3/" }));
    assert_eq!(served.get("/r/~3/api/summary").json()["name"], "dropped");
}

#[test]
fn one_budget_is_for_all_and_the_least_recently_used_is_closed_and_told() {
    let budget = 4 * (64 << 20);
    let options = ServeOptions {
        cache_bytes: budget,
        ..options()
    };
    let (served, names) = server(&options);
    for name in ["a", "b", "c", "d"] {
        served.get(&format!("/r/{name}/api/summary"));
    }
    // A client of `b` keeps it, though others were used since; `a` was used last.
    let mut watching = served.connect_with("/r/b/ws", "asof.v1");
    watching.find_op("hello");
    served.get("/r/c/api/summary");
    served.get("/r/a/api/summary");
    served.get("/r/e/api/summary");
    assert_eq!(open_paths(&served), ["/r/a/", "/r/b/", "/r/c/", "/r/e/"]);
    let status = served.server.status();
    let budgets = status["open"]["recordings"].as_array().expect("a list");
    let all: u64 = budgets
        .iter()
        .filter_map(|one| one["budget"].as_u64())
        .sum();
    assert!(all <= budget, "{all} of {budget}");
    assert_eq!(status["open"]["closed"], 1);
    // What was closed says so to those that still ask, and is opened again with its page.
    let closed = served.get("/r/d/api/summary").json();
    let text = closed["error"].as_str().expect("an error");
    assert!(text.contains("closed to make room"), "{text}");
    assert_eq!(names.opened.load(Ordering::Relaxed), 5);
    served.get("/r/d/");
    assert_eq!(served.get("/r/d/api/summary").json()["name"], "d");
}

#[test]
fn clients_with_the_token_open_recordings_and_others_do_not() {
    let options = ServeOptions {
        token: Some("secret".to_owned()),
        listen: ([0, 0, 0, 0], 0).into(),
        ..options()
    };
    let (served, names) = server(&options);
    assert_eq!(
        post(&served, "/api/recordings/open?recording=a", "").status,
        401
    );
    assert_eq!(served.get("/r/a/api/summary").status, 401);
    assert_eq!(names.opened.load(Ordering::Relaxed), 0);
    assert_eq!(
        post(&served, "/api/recordings/open?recording=a&token=secret", "").status,
        200
    );
    let port = served.address().port();
    let cookie = format!("asof_{port}=secret");
    let headers = [("host", "localhost"), ("cookie", cookie.as_str())];
    assert_eq!(served.ask("/r/a/api/summary", &headers).json()["name"], "a");
    // The token in a link goes into the cookie, and the link stays the same.
    let first = served.get("/r/a/?token=secret");
    assert!(
        first.head.to_lowercase().contains("location: /r/a/\r\n"),
        "{}",
        first.head
    );
}

#[test]
fn layouts_are_kept_in_the_folder_that_was_named_and_nowhere_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("layouts");
    let options = ServeOptions {
        layouts: Some(kept.clone()),
        ..options()
    };
    let (served, _) = server(&options);
    assert_eq!(served.get("/api/layouts").json(), json!({}));
    let tree = json!({ "kind": "scene" });
    let saved = post(&served, "/api/layouts?name=drive", &tree.to_string());
    assert_eq!(saved.json(), json!({ "drive": tree }));
    // Everyone has it, and a page that shows a recording of the list too.
    assert_eq!(served.get("/api/layouts").json()["drive"], tree);
    assert_eq!(served.get("/r/a/api/summary").json()["layouts"], true);
    let text = std::fs::read_to_string(kept.join("drive.json")).expect("a file");
    assert!(text.contains("asof_layout"), "{text}");
    for (name, body) in [
        ("..%2Fx", "{}"),
        ("", "{}"),
        ("list", "[]"),
        ("none", "nothing"),
    ] {
        assert_eq!(
            post(&served, &format!("/api/layouts?name={name}"), body).status,
            400,
            "{name}"
        );
    }
    // What others put there is no harm.
    std::fs::write(kept.join("odd.json"), "[1]").expect("a file");
    assert_eq!(
        post(&served, "/api/layouts/remove?name=drive", "").json(),
        json!({})
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        1
    );
    let (without, _) = server(&common::options());
    assert_eq!(post(&without, "/api/layouts?name=x", "{}").status, 400);
}

#[test]
fn a_list_says_how_far_it_is_while_recordings_are_looked_into() {
    let (served, _) = server(&options());
    let listed = served.get("/api/recordings").json();
    assert_eq!(listed["reading"], json!({ "done": 3, "total": 7 }));
    assert_eq!(listed["total"], 0);
}
