//! `asof record --keep`: snapshots of a robot on 127.0.0.1 that really publishes.

#![cfg(all(feature = "live", unix))]

mod common;

use std::io::{BufRead, Read, Write};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use asof::live::ros::QosProfile;
use asof::live::{PublisherOptions, Robot, TopicPublisher};
use asof::{Query, Stamp};
use asof_core::testing::eventually;
use common::Folder;

/// A robot with a bumper and a scanner.
struct Bumping {
    robot: Robot,
    url: String,
    bumper: TopicPublisher,
    scan: TopicPublisher,
}

fn publisher(robot: &Robot, topic: &str, type_name: &str, definition: &str) -> TopicPublisher {
    let options = PublisherOptions {
        node: "robot".to_owned(),
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        definition: definition.to_owned(),
        qos: QosProfile::default(),
        waits: true,
    };
    robot.publisher(&options).expect("a publisher")
}

impl Bumping {
    fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let robot =
            asof::live::connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a robot");
        Bumping {
            bumper: publisher(&robot, "/bumper", "std_msgs/msg/Bool", "bool data"),
            scan: publisher(&robot, "/scan", "std_msgs/msg/UInt8", "uint8 data"),
            url: format!("zenoh://127.0.0.1:{port}"),
            robot,
        }
    }

    /// Drives for a while, with the bumper pressed or not.
    fn drive(&self, time: Duration, is_pressed: bool) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for (publisher, value) in [(&self.scan, 7), (&self.bumper, u8::from(is_pressed))] {
                publisher
                    .publish(vec![0, 1, 0, 0, value], Stamp::now())
                    .expect("published");
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Drives until the recorder says that it has heard it.
    fn record(&self, folder: &Folder, words: &str) -> Recorder {
        let line = format!(
            "record {} -o run.mcap --json --status 100ms {words}",
            self.url
        );
        let child = common::asof()
            .args(line.split_whitespace().map(|word| word.replace('~', " ")))
            .current_dir(folder.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a recorder");
        Recorder(child)
    }
}

impl Drop for Bumping {
    fn drop(&mut self) {
        use zenoh::Wait;
        let _ = self.robot.zenoh().map(|session| session.close().wait());
    }
}

/// A recorder that runs.
struct Recorder(Child);

impl Recorder {
    fn send(&self, signal: &str) {
        let done = std::process::Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status();
        assert!(done.expect("kill").success());
    }

    /// Ends it as Ctrl-C does; its last line of JSON.
    fn end(mut self) -> serde_json::Value {
        self.send("-INT");
        let mut said = String::new();
        let mut out = self.0.stdout.take().expect("its output");
        out.read_to_string(&mut said).expect("read");
        let code = self.0.wait().expect("ended");
        assert!(code.success(), "{code}: {said}");
        serde_json::from_str(said.lines().last().expect("a report")).expect("JSON")
    }
}

/// Times of a topic's messages in a snapshot, in seconds.
fn times(folder: &Folder, name: &str, topic: &str) -> Vec<f64> {
    let file = asof::open(folder.path(name)).expect("a snapshot");
    let mut times = Vec::new();
    for batch in file.read(&Query::topics([topic])).expect("read") {
        let batch = batch.expect("a batch");
        times.extend(
            batch
                .iter()
                .map(|message| message.log_time.nanos() as f64 / 1e9),
        );
    }
    times
}

#[test]
fn a_field_that_becomes_true_writes_what_was_before_and_after_it() {
    let (folder, robot) = (Folder::empty(), Bumping::new());
    let words = "--keep 1s --after 1s --trigger /bumper.data~==~true --trigger log~>=~error";
    let recorder = robot.record(&folder, words);
    robot.drive(Duration::from_secs(5), false);
    assert!(folder.names().is_empty(), "nothing happened so far");
    let pressed = Stamp::now().nanos() as f64 / 1e9;
    robot.drive(Duration::from_millis(400), true);
    robot.drive(Duration::from_secs(4), false);
    let report = recorder.end();
    assert_eq!(folder.names(), ["run_0.mcap"], "{report}");
    assert_eq!(report["snapshots"]["triggered"], 1, "{report}");
    assert_eq!(report["snapshots"]["last"], "/bumper.data == true");
    let times = times(&folder, "run_0.mcap", "/scan");
    let (first, last) = (times[0], times[times.len() - 1]);
    assert!((first - (pressed - 1.0)).abs() < 0.7, "{}", first - pressed);
    assert!((last - (pressed + 1.0)).abs() < 0.7, "{}", last - pressed);
    let reasons = folder.stdout("cat run_0.mcap --metadata snapshot");
    assert!(reasons.contains("/bumper.data == true"), "{reasons}");
}

#[test]
fn a_signal_writes_a_snapshot_and_a_second_one_meanwhile_makes_it_longer() {
    let (folder, robot) = (Folder::empty(), Bumping::new());
    let recorder = robot.record(&folder, "--keep 500ms --after 2s");
    robot.drive(Duration::from_secs(4), false);
    recorder.send("-USR1");
    robot.drive(Duration::from_secs(1), false);
    recorder.send("-USR1");
    robot.drive(Duration::from_secs(4), false);
    let report = recorder.end();
    assert_eq!(folder.names(), ["run_0.mcap"], "{report}");
    assert_eq!(report["snapshots"]["triggered"], 2, "{report}");
    let times = times(&folder, "run_0.mcap", "/scan");
    let length = times[times.len() - 1] - times[0];
    assert!((2.8..4.8).contains(&length), "{length}");
}

#[test]
fn a_rate_that_falls_writes_a_snapshot() {
    let (folder, robot) = (Folder::empty(), Bumping::new());
    let recorder = robot.record(&folder, "--keep 1s --after 500ms --trigger rate(/scan)~<~5");
    robot.drive(Duration::from_secs(6), false);
    assert!(folder.names().is_empty(), "it is fast enough");
    eventually("noticing that it fell silent", || {
        !folder.names().is_empty()
    });
    let report = recorder.end();
    assert_eq!(report["snapshots"]["last"], "rate(/scan) < 5", "{report}");
}

#[test]
fn a_request_to_a_server_writes_a_snapshot_of_its_robot() {
    let (folder, robot) = (Folder::empty(), Bumping::new());
    let line = format!(
        "serve {} --listen 127.0.0.1:0 --no-open --snapshots run.mcap --keep 1s --after 1s",
        robot.url
    );
    let mut server = common::asof()
        .args(line.split(' '))
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a server");
    let out = server.stdout.take().expect("its output");
    let mut lines = std::io::BufReader::new(out).lines().map_while(Result::ok);
    let address = lines
        .find_map(|line| line.strip_prefix("Open http://").map(str::to_owned))
        .expect("an address");
    let address = address.trim_end_matches('/');
    robot.drive(Duration::from_secs(4), false);
    assert!(folder.names().is_empty(), "nobody has asked so far");
    // Pages of others cannot ask, and looking does not.
    let foreign = ask(address, "POST", "origin: http://elsewhere.example\r\n");
    assert!(!foreign.starts_with("HTTP/1.1 200"), "{foreign}");
    let looked = ask(address, "GET", "");
    assert!(looked.contains("\"triggered\":0"), "{looked}");
    let asked = Stamp::now().nanos() as f64 / 1e9;
    let answer = ask(address, "POST", "content-length: 0\r\n");
    assert!(answer.contains("\"reason\":\"it fell\""), "{answer}");
    robot.drive(Duration::from_secs(3), false);
    assert_eq!(folder.names(), ["run_0.mcap"]);
    let times = times(&folder, "run_0.mcap", "/scan");
    let (first, last) = (times[0], times[times.len() - 1]);
    assert!((first - (asked - 1.0)).abs() < 0.7, "{}", first - asked);
    assert!((last - (asked + 1.0)).abs() < 0.7, "{}", last - asked);
    let reasons = folder.stdout("cat run_0.mcap --metadata snapshot");
    assert!(reasons.contains("it fell"), "{reasons}");
    // One that is being written when the server ends is finished.
    ask(address, "POST", "content-length: 0\r\n");
    robot.drive(Duration::from_millis(300), false);
    let server = Recorder(server);
    server.send("-INT");
    let Recorder(mut server) = server;
    server.wait().expect("ended");
    assert_eq!(folder.exit_code("doctor run_1.mcap"), 0);
    assert_eq!(folder.exit_code("serve run_0.mcap --snapshots x.mcap"), 2);
}

/// What a server answers about snapshots.
fn ask(address: &str, method: &str, headers: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("connect");
    let request = format!(
        "{method} /api/snapshot?reason=it%20fell HTTP/1.1\r\nhost: {address}\r\n{headers}connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

#[test]
fn what_is_not_a_trigger_or_can_never_happen_is_told() {
    let (folder, robot) = (Folder::empty(), Bumping::new());
    let url = &robot.url;
    let wrong = common::asof()
        .args([
            "record",
            url,
            "-o",
            "run.mcap",
            "--keep",
            "1s",
            "--trigger",
            "when it breaks",
        ])
        .current_dir(folder.path(""))
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(
        said.contains("when it breaks") && said.contains("rate(/scan) < 5"),
        "{said}"
    );
    let recorder = robot.record(&folder, "--keep 1s --trigger /bumper.pressed~==~true");
    robot.drive(Duration::from_secs(4), true);
    let report = recorder.end();
    let problems = report["snapshots"]["problems"].to_string();
    assert!(problems.contains("pressed"), "{report}");
    let without = format!("record {url} -o run.mcap --trigger x");
    assert_eq!(folder.exit_code(&without), 2, "nothing would be kept");
}
