//! `asof serve` and the end of `asof demo`, as a person or a script starts them.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use asof_core::testing::{eventually, skipped};
use common::{Folder, asof};
use serde_json::Value;

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts it and waits for the address.
fn start(folder: &Folder, line: &str) -> (Running, String) {
    let mut child = asof()
        .args(line.split(' '))
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    let out = child.stdout.take().expect("an output");
    let running = Running(child);
    let line = BufReader::new(out)
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("Open http"))
        .expect("an address");
    (
        running,
        line["Open http://".len()..]
            .trim_end_matches('/')
            .to_owned(),
    )
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

#[test]
fn a_folder_is_a_list_of_recordings_with_a_catalogue_and_without() {
    let folder = Folder::empty();
    std::fs::create_dir_all(folder.path("runs/monday")).expect("made");
    for (name, seconds) in [("one", 1), ("monday/two", 2)] {
        folder.run(&format!(
            "demo -o runs/{name}.mcap --seconds {seconds} --no-serve"
        ));
    }
    let listed = |address: &str| {
        let answer = get(address, "/api/recordings");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let body: Value = serde_json::from_str(body).expect("JSON");
        let recordings = body["recordings"].as_array().expect("a list");
        let mut all: Vec<(String, i64)> = recordings
            .iter()
            .map(|one| {
                let seconds = one["duration"].as_i64().expect("a length") / 900_000_000;
                (
                    one["recording"].as_str().expect("a name").to_owned(),
                    seconds,
                )
            })
            .collect();
        all.sort();
        all
    };
    let two = [
        ("monday/two.mcap".to_owned(), 2),
        ("one.mcap".to_owned(), 1),
    ];
    {
        let (_running, address) = start(&folder, "serve runs --listen 0 --no-open");
        assert_eq!(listed(&address), two);
        let summary = get(&address, "/r/one.mcap/api/summary");
        assert!(summary.contains("\"name\":\"one.mcap\""), "{summary}");
        assert!(
            !folder.path("runs/.asof").exists(),
            "nothing is written there"
        );
        // What comes later is listed, too.
        folder.run("demo -o runs/three.mcap --seconds 1 --no-serve");
        eventually("the third", || listed(&address).len() == 3);
        std::fs::remove_file(folder.path("runs/three.mcap")).expect("removed");
        eventually("two again", || listed(&address) == two);
    }
    folder.run("index runs");
    let (_running, address) = start(&folder, "serve runs --listen 0 --no-open");
    assert_eq!(listed(&address), two);
}

#[test]
fn what_is_said_of_a_list_holds_for_each_recording_of_it() {
    let folder = Folder::empty();
    let package = folder.path("share/vicon_receiver/msg");
    for made in [&folder.path("runs"), &package] {
        std::fs::create_dir_all(made).expect("made");
    }
    folder.run("demo -o runs/one.mcap --seconds 1 --no-serve");
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let data = std::env::var("ASOF_TEST_DATA").unwrap_or_else(|_| beside.to_owned());
    let bag = Path::new(&data).join("recordings/go2-vicon.db3");
    if bag.exists() {
        std::fs::copy(&bag, folder.path("runs/two.db3")).expect("copied");
    } else {
        skipped(format_args!("no {} (set ASOF_TEST_DATA)", bag.display()));
    }
    let definition = "std_msgs/Header header\nfloat32 x_trans\nfloat32 y_trans\nfloat32 z_trans\nfloat32 x_rot\nfloat32 y_rot\n\
        float32 z_rot\nfloat32 w\nstring segment_name\nstring subject_name\nint32 frame_number\n\
        string translation_type\n";
    std::fs::write(package.join("Position.msg"), definition).expect("written");
    let urdf = "<robot name=\"two\"><link name=\"base_link\"/></robot>";
    std::fs::write(folder.path("two.urdf"), urdf).expect("written");
    let line = "serve runs --urdf two.urdf --msg-path share --listen 0 --no-open";
    for _ in ["without a catalogue", "with one"] {
        let (_running, address) = start(&folder, line);
        let summary = get(&address, "/r/one.mcap/api/summary");
        assert!(summary.contains("\"/robot_description\""), "{summary}");
        let summary = get(&address, "/api/summary");
        assert!(!summary.contains("\"/robot_description\""), "{summary}");
        if bag.exists() {
            let path = "/r/two.db3/api/messages?limit=1&topic=/vicon/UnitreeGo2/UnitreeGo2";
            let messages = get(&address, path);
            assert!(messages.contains("subject_name"), "{messages}");
        }
        folder.run("index runs");
    }
    std::fs::write(folder.path("odd.urdf"), "<robot").expect("written");
    let odd = "serve runs --urdf odd.urdf --listen 0 --no-open";
    assert_eq!(folder.exit_code(odd), 2);
}

#[test]
fn serve_says_where_and_shows_the_recording() {
    let folder = Folder::with_demo();
    let (_running, address) = start(&folder, "serve run.mcap --listen 127.0.0.1:0 --no-open");
    assert!(get(&address, "/").contains("/app.js"));
    assert!(get(&address, "/api/summary").contains("/odom"));
}

#[test]
fn serve_shows_several_recordings_as_one() {
    let folder = Folder::with_demo();
    folder.run("demo -o other.mcap --seconds 1 --seed 9");
    let (_running, address) = start(&folder, "serve run.mcap other.mcap --listen 0");
    assert!(get(&address, "/api/summary").contains("run.mcap and 1 more"));
}

#[test]
fn a_description_from_a_file_is_found_where_robots_say_theirs() {
    let folder = Folder::with_demo();
    let urdf = "<robot name=\"two\"><link name=\"base_link\"/><link name=\"arm\"/>\
        <joint name=\"j\" type=\"fixed\"><parent link=\"base_link\"/><child link=\"arm\"/>\
        <origin xyz=\"1 2 3\"/></joint></robot>";
    std::fs::write(folder.path("two.urdf"), urdf).expect("written");
    std::fs::write(folder.path("arm.stl"), "solid arm").expect("written");
    let line = "serve run.mcap --urdf two.urdf --package . --listen 0";
    let (_running, address) = start(&folder, line);
    let summary = get(&address, "/api/summary");
    assert!(summary.contains("\"/robot_description\""), "{summary}");
    assert!(summary.contains("\"robot\""), "{summary}");
    let frames = get(&address, "/api/frames?t=1000000000");
    assert!(frames.contains("\"arm\""), "{frames}");
    let there = std::fs::canonicalize(folder.path("arm.stl")).expect("there");
    let mesh = get(
        &address,
        &format!("/api/asset?uri=file://{}", there.display()),
    );
    assert!(mesh.ends_with("solid arm"), "{mesh}");
    let missing = get(&address, "/api/asset?uri=package://two/leg.stl");
    assert!(
        missing.contains("package://two/leg.stl") && missing.contains("--package"),
        "{missing}"
    );
}

#[test]
fn a_description_that_is_none_is_refused() {
    let folder = Folder::with_demo();
    std::fs::write(folder.path("odd.urdf"), "<robot").expect("written");
    assert_eq!(
        folder.exit_code("serve run.mcap --urdf odd.urdf --listen 0"),
        2
    );
    assert_eq!(
        folder.exit_code("serve run.mcap --urdf none.urdf --listen 0"),
        1
    );
}

#[test]
fn demo_serves_when_it_is_asked_to() {
    let folder = Folder::empty();
    let (_running, address) = start(&folder, "demo --seconds 1 --serve --listen 0");
    assert!(get(&address, "/api/summary").contains("asof-demo.mcap"));
}

#[test]
fn demo_in_a_script_ends_by_itself() {
    let folder = Folder::empty();
    assert_eq!(folder.exit_code("demo --seconds 1"), 0);
    assert_eq!(folder.exit_code("demo --seconds 1 --no-serve"), 0);
    assert_eq!(folder.exit_code("demo --seconds 1 --serve --no-serve"), 2);
}

#[test]
fn serve_of_what_is_no_recording_fails_at_once() {
    let folder = Folder::with_demo();
    assert_eq!(folder.exit_code("serve nowhere.mcap"), 1);
    assert_eq!(folder.exit_code("serve run.mcap --listen nonsense"), 2);
}

#[test]
fn serve_without_a_recording_waits_for_files_on_its_page() {
    let folder = Folder::with_demo();
    let (_running, address) = start(&folder, "serve --listen 0 --no-open");
    assert!(get(&address, "/").starts_with("HTTP/1.1 200"));
    let summary = get(&address, "/api/summary");
    assert!(summary.contains(r#""topics":[]"#), "{summary}");
}

#[cfg(unix)]
#[test]
fn a_server_that_is_asked_to_end_tells_by_its_exit_code_who_asked() {
    let folder = Folder::with_demo();
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let (mut running, _) = start(&folder, "serve run.mcap --listen 0 --no-open");
        let id = running.0.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &id])
            .status();
        assert!(sent.expect("kill runs").success());
        let ended = running.0.wait().expect("it ends");
        assert_eq!(ended.code(), Some(code), "{signal}");
    }
}

#[test]
fn an_address_that_others_reach_is_told_to_be_plain_http() {
    let folder = Folder::with_demo();
    let mut child = asof()
        .args(["serve", "run.mcap", "--listen", "0.0.0.0:0", "--no-open"])
        .current_dir(folder.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let told = BufReader::new(child.stderr.take().expect("an output"));
    let _running = Running(child);
    let mut lines = told.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("plain HTTP") && line.contains("token")));
}

#[cfg(unix)]
#[test]
fn what_was_read_is_in_the_cache_folder_the_next_time() {
    let folder = Folder::with_demo();
    std::fs::create_dir(folder.path("runs")).expect("made");
    std::fs::copy(folder.path("run.mcap"), folder.path("runs/run.mcap")).expect("copied");
    for (place, kept, at) in [("run.mcap", "one", ""), ("runs", "list", "/r/run.mcap")] {
        let line =
            format!("serve {place} --listen 0 --no-open --cache-dir {kept} --cache-dir-size 50");
        let messages_read = || {
            let (mut running, address) = start(&folder, &line);
            let answer = get(&address, &format!("{at}/api/messages?topic=/imu&last=50"));
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let status = get(&address, &format!("{at}/api/status"));
            let (_, body) = status.split_once("\r\n\r\n").expect("a body");
            let status: Value = serde_json::from_str(body).expect("JSON");
            let read = status["cache"]["source_messages"]
                .as_u64()
                .expect("a count");
            // As Ctrl-C does.
            let pid = running.0.id().to_string();
            let sent = std::process::Command::new("kill")
                .args(["-INT", &pid])
                .status();
            assert!(sent.expect("kill").success());
            assert_eq!(running.0.wait().expect("ends").code(), Some(130));
            read
        };
        let first = messages_read();
        let blocks = walk(&folder.path(kept));
        assert!(
            blocks.iter().any(|name| name.contains(".block")),
            "{blocks:?}"
        );
        let second = messages_read();
        assert!(
            first > 0 && second < first,
            "{place}: {first} and then {second} messages of the source"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_cache_folder_answers_only_with_the_messages_of_this_view() {
    let folder = Folder::empty();
    folder.run("demo -o a.mcap --seconds 1 --seed 1 --no-serve");
    folder.run("demo -o b.mcap --seconds 1 --seed 2 --no-serve");
    let answers = |line: &str| {
        let (mut running, address) = start(&folder, line);
        let told = ["/x/odom", "/y/odom"].map(|topic| {
            let answer = get(&address, &format!("/api/messages?topic={topic}&last=20"));
            let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
            body.to_owned()
        });
        let pid = running.0.id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status();
        assert!(sent.expect("kill").success());
        running.0.wait().expect("ends");
        told
    };
    for view in [
        "a.mcap b.mcap --prefix x,y",
        "a.mcap b.mcap --prefix y,x",
        "a.mcap b.mcap --prefix x,y --align start",
        "b.mcap a.mcap --prefix x,y --no-limits",
    ] {
        let line = format!("serve {view} --listen 0 --no-open");
        let bare = answers(&line);
        assert_ne!(bare[0], bare[1]);
        for _ in 0..2 {
            assert_eq!(answers(&format!("{line} --cache-dir kept")), bare, "{view}");
        }
    }
}

#[cfg(unix)]
fn walk(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            names.extend(walk(&path));
        } else {
            names.push(path.display().to_string());
        }
    }
    names
}

#[test]
fn a_folder_with_a_catalogue_is_a_list_to_choose_from() {
    let folder = Folder::with_demo();
    std::fs::create_dir_all(folder.path("r7")).expect("a folder");
    std::fs::rename(folder.path("run.mcap"), folder.path("r7/run.mcap")).expect("it moves");
    folder.run("demo -o other.mcap --seconds 1 --seed 9 --no-serve");
    folder.run("index . --pattern {robot}/…");
    let (_running, address) = start(&folder, "serve . --listen 127.0.0.1:0 --no-open");
    let summary = get(&address, "/api/summary");
    assert!(summary.contains(r#""fleet":".""#), "{summary}");
    assert!(
        summary.contains(r#""name":"""#),
        "nothing is open yet: {summary}"
    );

    let all = get(&address, "/api/recordings");
    assert!(all.contains(r#""total":2"#), "{all}");
    let one = get(
        &address,
        "/api/recordings?robot=r7&topic=/sca*&since=2024-05-01",
    );
    assert!(
        one.contains(r#""total":1"#) && one.contains("r7/run.mcap"),
        "{one}"
    );
    assert!(get(&address, "/api/recordings?text=OTHER").contains(r#""total":1"#));
    assert!(get(&address, "/api/recordings?since=soon").contains("soon"));

    let post = |path: &str| {
        let mut stream = TcpStream::connect(&address).expect("connect");
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("ask");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        answer
    };
    let opened = post("/api/recordings/open?recording=r7/run.mcap");
    assert!(opened.contains(r#"{"url":"/r/r7:run.mcap/"}"#), "{opened}");
    // A path of the same server; a recording is opened by its path alone, too.
    for (path, name) in [("r7:run.mcap", "r7/run.mcap"), ("other.mcap", "other.mcap")] {
        let summary = get(&address, &format!("/r/{path}/api/summary"));
        assert!(
            summary.contains(&format!(r#""name":"{name}""#)),
            "{summary}"
        );
        assert!(summary.contains("/odom") && summary.contains(r#""home":".""#));
    }
    assert!(get(&address, "/r/none.mcap/api/summary").contains("no such recording"));
    // What the catalogue does not know is not opened, wherever it lies.
    let refused = post("/api/recordings/open?recording=../../etc/passwd");
    assert!(refused.contains("no such recording"), "{refused}");
}
