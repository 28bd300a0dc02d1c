//! Every verb on a running robot: the words that are used for recordings, on a robot on 127.0.0.1.

#![cfg(feature = "live")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use asof::live::ros::SampleAttachment;
use asof::live::{Broadcaster, Robot};
use asof::tf::ros::StampedTransform;
use asof::{Query, Source, Stamp};
use common::Folder;
use nalgebra::Isometry3;
use serde_json::Value;
use zenoh::Wait;

const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
const STRING: &str = "std_msgs::msg::dds_::String_";

/// A robot with two topics of words and one that moves, every 10 ms, until it is dropped.
struct Moving {
    robot: Robot,
    url: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _tokens: Vec<zenoh::liveliness::LivelinessToken>,
}

impl Moving {
    fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let robot =
            asof::live::connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a robot");
        let tokens = ["chatter", "answers"].iter().enumerate();
        let tokens = tokens.map(|(number, topic)| token(&robot, number, topic));
        let tokens = tokens.collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (voice, end) = (robot.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let frames = voice.broadcaster("mover").expect("a broadcaster");
            still(&frames);
            let mut number = 0;
            while !end.load(Ordering::Relaxed) {
                number += 1;
                for topic in ["chatter", "answers"] {
                    say(&voice, topic, number);
                }
                moved(&frames);
                thread::sleep(Duration::from_millis(10));
            }
        });
        Moving {
            robot,
            url: format!("zenoh://127.0.0.1:{port}"),
            stop,
            thread: Some(thread),
            _tokens: tokens,
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = self.robot.zenoh().expect("on Zenoh").close().wait();
    }
}

/// Announces a topic of words.
fn token(robot: &Robot, number: usize, topic: &str) -> zenoh::liveliness::LivelinessToken {
    let session = robot.zenoh().expect("on Zenoh");
    let key = format!(
        "@ros2_lv/0/{}/0/{number}/MP/%/%/driver/%{topic}/{STRING}/{HASH}/::,:,:,:,,",
        session.zid()
    );
    let token = session.liveliness().declare_token(key);
    token.wait().expect("a token")
}

fn say(robot: &Robot, topic: &str, number: i64) {
    let text = format!("word {number}");
    let mut cdr = vec![0, 1, 0, 0];
    cdr.extend((text.len() as u32 + 1).to_le_bytes());
    cdr.extend(text.bytes());
    cdr.push(0);
    let attachment = SampleAttachment {
        sequence: number,
        source_timestamp: Stamp::now(),
        gid: [7; 16],
    };
    let put = robot
        .zenoh()
        .expect("on Zenoh")
        .put(format!("0/{topic}/{STRING}/{HASH}"), cdr);
    let _ = put.attachment(attachment.to_bytes().to_vec()).wait();
}

fn transform(parent: &str, child: &str, stamp: Stamp, x: f64) -> StampedTransform {
    StampedTransform {
        stamp,
        parent: parent.to_owned(),
        child: child.to_owned(),
        isometry: Isometry3::translation(x, 0.0, 0.0),
    }
}

fn still(frames: &Broadcaster) {
    let fixed = transform("base_link", "laser", Stamp::EPOCH, 0.25);
    frames.send_static(&[fixed]).expect("sent");
}

fn moved(frames: &Broadcaster) {
    let now = Stamp::now();
    let x = (now.nanos() / 1_000_000 % 100_000) as f64;
    let _ = frames.send(&[transform("map", "base_link", now, x)]);
}

fn rows(said: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).expect("JSON");
    said.lines().map(parse).collect()
}

#[test]
fn info_at_and_cat_answer_of_a_robot_as_of_a_recording() {
    let robot = Moving::new();
    let (folder, url) = (Folder::empty(), &robot.url);

    let found = rows(&folder.stdout(&format!("info {url} --json"))).remove(0);
    assert_eq!(found["format"], "live", "{found}");
    let topics = found["topics"].as_array().expect("topics");
    let names: Vec<_> = topics.iter().map(|topic| topic["topic"].as_str()).collect();
    let expected = ["/answers", "/chatter", "/tf", "/tf_static"].map(Some);
    assert_eq!(names, expected, "{found}");
    assert!(
        topics
            .iter()
            .all(|topic| topic["messages"].as_u64() > Some(0)),
        "{found}"
    );

    let known = rows(&folder.stdout(&format!("at {url} --json --topics /chatter,/tf_static")));
    let topics: Vec<_> = known.iter().map(|row| row["topic"].as_str()).collect();
    assert_eq!(topics.len(), 2, "{known:?}");
    assert!(topics.contains(&Some("/tf_static")), "{known:?}");
    let before = Stamp::now();
    let earlier = rows(&folder.stdout(&format!("at {url} --json --topics /chatter --time -1s")));
    let at = earlier[0]["log_time"].as_i64().expect("a time");
    let age = Stamp::now().since(at.into());
    assert!(age >= 1_000_000_000 && at >= before.nanos(), "{age} ns ago");

    let said = folder.stdout(&format!("cat {url} --topics /chatter --json --limit 5"));
    let numbers: Vec<i64> = rows(&said)
        .iter()
        .map(|row| {
            let text = row["data"]["data"].as_str().expect("decoded");
            assert_eq!(text, format!("word {}", row["sequence"]));
            row["sequence"].as_i64().expect("a number")
        })
        .collect();
    assert!(
        numbers.windows(2).all(|two| two[1] == two[0] + 1),
        "{numbers:?}"
    );
    let csv = folder.stdout(&format!("cat {url} --topics /chatter --csv --limit 2"));
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.starts_with("log_time,publish_time,data\n"), "{csv}");
}

#[test]
fn a_name_that_a_robot_does_not_have_is_wrong_usage_in_every_verb_as_for_a_recording() {
    let robot = Moving::new();
    let (folder, url) = (Folder::empty(), &robot.url);
    for line in [
        "info URL --topics /chattr",
        "at URL --topics /chattr",
        "at URL --topics /answers,/chattr --time -1s",
        "cat URL --topics /chattr --for 2",
        "cat URL --topics /answers,/chattr --for 2",
        "join URL --anchor /chattr --with /answers --for 2",
        "join URL --anchor /answers --with /chattr --for 2",
        "export URL -o out --topics /chattr --for 2",
        "convert URL -o out.mcap --topics /chattr --for 2",
        "record URL -o out.mcap --topics /chattr --for 2",
        "live URL --topics /chattr --for 2",
        "tf URL --topics /tf_sttic,/tf",
        "tf URL --pose-topic /chattr --for 2",
    ] {
        let output = folder.output(&line.replace("URL", url));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {told}");
        let meant = if line.contains("/tf") {
            "/tf_static"
        } else {
            "/chatter"
        };
        let meant = format!("did you mean '{meant}'?");
        assert!(told.contains(&meant), "{line}: {told}");
        let errors = told.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{line}: {told}");
    }
    assert_eq!(folder.names(), [""; 0], "nothing is left behind");
    // A glob beside a name that is there is a note.
    let line = format!("at {url} --topics /answers,/lidar*");
    let output = folder.output(&line);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no topic matches '/lidar*'"), "{told}");
}

#[test]
fn a_topic_that_is_discovered_late_is_waited_for() {
    let robot = Moving::new();
    let mut verb = Command::new(env!("CARGO_BIN_EXE_asof"))
        .args([
            "at", &robot.url, "--topics", "/late", "--json", "--for", "60",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut told = BufReader::new(verb.stderr.take().expect("piped")).lines();
    let is_told = told.any(|line| line.expect("text").contains("waiting for '/late'"));
    assert!(is_told, "it says what it waits for: {:?}", verb.wait());
    let _token = token(&robot.robot, 9, "late");
    let stop = Arc::new(AtomicBool::new(false));
    let (voice, end) = (robot.robot.clone(), Arc::clone(&stop));
    let talking = thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            say(&voice, "late", 1);
            thread::sleep(Duration::from_millis(10));
        }
    });
    let output = verb.wait_with_output().expect("ended");
    stop.store(true, Ordering::Relaxed);
    talking.join().expect("talked");
    assert_eq!(output.status.code(), Some(0));
    let row = rows(&String::from_utf8_lossy(&output.stdout)).remove(0);
    assert_eq!(row["data"]["data"], "word 1");
}

#[test]
fn join_export_convert_and_doctor_listen_for_as_long_as_they_are_told() {
    let robot = Moving::new();
    let (folder, url) = (Folder::empty(), &robot.url);
    let line = format!("join {url} --anchor /chatter --with /answers --json --for 3");
    let joined = rows(&folder.stdout(&line));
    assert!(joined.len() > 10, "{} rows", joined.len());
    let is_whole = |row: &&Value| row["with"]["/answers"]["data"]["data"].is_string();
    assert!(joined.iter().filter(is_whole).count() >= joined.len() / 2);

    let line = format!("export {url} -o tables --format ndjson --topics /chatter --for 3");
    assert_eq!(folder.exit_code(&line), 0);
    let table = text(&folder, "tables");
    assert!(table.contains("word "), "{table}");

    assert_eq!(
        folder.exit_code(&format!("convert {url} -o run.mcap --for 3")),
        0
    );
    let found = rows(&folder.stdout("info run.mcap --json")).remove(0);
    assert_eq!(found["problems"], serde_json::json!([]), "{found}");
    assert_eq!(found["topics"].as_array().map(Vec::len), Some(4), "{found}");
    assert_eq!(folder.exit_code("tf run.mcap --from map --to laser"), 0);

    let said = folder.stdout(&format!("doctor {url} --json"));
    let found = rows(&said).remove(0);
    assert_eq!(found["healthy"], true, "{found}");
}

/// All files of a folder as one text.
fn text(folder: &Folder, name: &str) -> String {
    let entries = std::fs::read_dir(folder.path(name)).expect("a folder");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(entry.expect("an entry").path()).expect("text")
    };
    entries.map(read).collect()
}

#[test]
fn tf_answers_follows_and_monitors_a_robot() {
    let robot = Moving::new();
    let (folder, url) = (Folder::empty(), &robot.url);
    let tree = folder.stdout(&format!("tf {url}"));
    assert!(
        tree.contains("base_link") && tree.contains("laser"),
        "{tree}"
    );
    let answer = rows(&folder.stdout(&format!("tf {url} --from map --to laser --json"))).remove(0);
    let stamp = answer["stamp"].as_i64().expect("a stamp");
    let x = (stamp / 1_000_000 % 100_000) as f64 + 0.25;
    assert_eq!(answer["translation"][0].as_f64(), Some(x), "{answer}");

    let line = format!("tf {url} --from map --to laser --json --follow --every 100ms --for 4");
    let followed = rows(&folder.stdout(&line));
    assert!(followed.len() > 2, "{followed:?}");
    let stamps: Vec<i64> = followed
        .iter()
        .filter_map(|row| row["stamp"].as_i64())
        .collect();
    assert!(
        stamps.windows(2).all(|two| two[1] - two[0] >= 100_000_000),
        "{stamps:?}"
    );

    let seen = rows(&folder.stdout(&format!("tf {url} --monitor --json --for 4")));
    let last = |child: &str| {
        let mut of_child = seen.iter().filter(|row| row["child"] == child);
        of_child.next_back().cloned().expect("an edge")
    };
    assert_eq!(last("laser")["static"], true);
    let base = last("base_link");
    assert!(
        base["hz"].as_f64() > Some(1.0) && base["samples"].as_u64() > Some(5),
        "{base}"
    );
    assert!(base["delay"].as_f64() > Some(0.0), "{base}");
}

#[test]
fn a_verb_that_cannot_says_so() {
    let folder = Folder::with_demo();
    for verb in [
        "split zenoh:// -o parts/ --duration 1s",
        "recover zenoh:// -o x.mcap",
    ] {
        let said = folder.run(verb);
        assert!(
            said.contains("it is a running robot") && said.contains("asof record"),
            "{said}"
        );
        assert!(said.ends_with("exit 1\n"), "{said}");
    }
    assert_eq!(folder.exit_code("info zenoh://robot?speed=9"), 2);
}

#[test]
fn a_robot_among_recordings_is_one_source_with_them() {
    let (robot, other) = (Moving::new(), Moving::new());
    let folder = Folder::with_demo();
    let (url, other) = (&robot.url, &other.url);
    let recorded = rows(&folder.stdout("cat run.mcap --topics /odom --json"));
    let line = format!("cat run.mcap {url} --topics /odom,/chatter --json --for 2s");
    let both = rows(&folder.stdout(&line));
    let of = |all: &[Value], topic: &str| -> Vec<Value> {
        let wanted = all.iter().filter(|row| row["topic"] == topic);
        wanted.cloned().collect()
    };
    assert_eq!(of(&both, "/odom"), recorded);
    let heard = of(&both, "/chatter").len();
    assert!(heard > 5, "{heard}");
    assert_eq!(both.len(), recorded.len() + heard, "and no other topic");
    let times: Vec<_> = both.iter().map(|row| row["log_time"].as_i64()).collect();
    assert!(times.is_sorted());
    // What the recording knew last, and what the robot says now.
    let now = rows(&folder.stdout(&format!("at run.mcap {url} --topics /odom,/chatter --json")));
    assert_eq!(now.len(), 2);
    let mut known = of(&now, "/odom").remove(0);
    assert!(known["age"].take().as_i64() > Some(0), "since long ago");
    known.as_object_mut().expect("a row").remove("age");
    assert_eq!(known, recorded[recorded.len() - 1]);
    // A glob that matches nothing beside others is noted once, whichever place is first.
    for places in [format!("run.mcap {url}"), format!("{url} run.mcap")] {
        let said = folder.run(&format!("at {places} --topics /odom,/nothing* --json"));
        assert_eq!(said.matches("no topic matches").count(), 1, "{said}");
    }
    let line = format!("convert run.mcap {url} -o both.mcap --topics /odom,/chatter --for 2s");
    assert!(folder.run(&line).ends_with("exit 0\n"));
    let info = &rows(&folder.stdout("info both.mcap --json"))[0];
    assert!(
        info["messages"].as_u64() > Some(recorded.len() as u64 + 5),
        "{info}"
    );
    // Two robots are one source, too.
    let line = format!("cat {url} {other} --topics /chatter --json --limit 40");
    assert_eq!(rows(&folder.stdout(&line)).len(), 40);
}

#[test]
fn the_facade_opens_a_robot_as_it_opens_a_file() {
    let robot = Moving::new();
    let source = asof::open(&robot.url).expect("a robot");
    assert!(source.growth().is_growing());
    let mut follow = source
        .follow(&Query::topics(["/chatter"]))
        .expect("followed");
    let deadline = std::time::Instant::now() + Duration::from_mins(1);
    let asof::Followed::Batch(batch) = follow.next(deadline).expect("followed") else {
        panic!("nothing came");
    };
    assert_eq!(batch.get(0).expect("one").channel.topic, "/chatter");
    let first = batch.get(0).expect("one").log_time;
    let known = source.latest_at(&asof::Topics::All, first).expect("asked");
    assert!(known.iter().all(|message| message.log_time <= first));
}

/// A Foxglove server that ends with the test: asof itself.
struct Serving(std::process::Child);

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn serving(folder: &Folder, place: &str) -> (Serving, String) {
    use std::io::BufRead;
    let mut child = common::asof()
        .args(["serve", place, "--listen", "127.0.0.1:0", "--no-open"])
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    let out = child.stdout.take().expect("an output");
    let running = Serving(child);
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("Open http"));
    let line = line.expect("an address");
    let address = line["Open http://".len()..]
        .trim_end_matches('/')
        .to_owned();
    (running, address)
}

#[test]
fn asof_watches_another_asof_as_a_robot() {
    let folder = Folder::empty();
    let robot = Moving::new();
    let (_serving, address) = serving(&folder, &robot.url);
    for url in [format!("foxglove://{address}"), format!("ws://{address}")] {
        let found = rows(&folder.stdout(&format!("info {url} --json --for 2s"))).remove(0);
        let topics = found["topics"].as_array().expect("topics");
        let names: Vec<&str> = topics
            .iter()
            .filter_map(|one| one["topic"].as_str())
            .collect();
        assert_eq!(names, ["/answers", "/chatter", "/tf", "/tf_static"]);
        assert!(topics.iter().all(|one| one["encoding"] == "cdr"), "{found}");
    }
    let url = format!("foxglove://{address}");
    let said = rows(&folder.stdout(&format!("cat {url} --topics /chatter --json --limit 5")));
    assert_eq!(said.len(), 5);
    assert!(
        said[0]["data"]["data"]
            .as_str()
            .is_some_and(|text| text.starts_with("word "))
    );
    let found = folder.stdout(&format!("tf {url} --from base_link --to laser --for 2s"));
    assert!(found.contains("0.25"), "{found}");
    let code = folder.exit_code(&format!("record {url} -o copy.mcap --for 2s"));
    assert_eq!(code, 0);
    let copy = asof::open(folder.path("copy.mcap")).expect("a recording");
    let summary = copy.summary();
    assert_eq!(summary.profile, "ros2");
    assert!(summary.topics().contains(&"/tf_static"));
    let messages = copy.read(&Query::topics(["/chatter"])).expect("read");
    let count: usize = messages.map(|batch| batch.expect("a batch").len()).sum();
    assert!(count > 20, "{count}");
}

#[test]
fn a_recording_that_is_served_is_a_robot_too() {
    let folder = Folder::with_demo();
    let (_serving, address) = serving(&folder, "run.mcap");
    let robot = asof::open(format!("ws://{address}")).expect("a source");
    let file = asof::open(folder.path("run.mcap")).expect("a recording");
    let known = |topics: Vec<&str>| topics.into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        known(robot.summary().topics()),
        known(file.summary().topics())
    );
}

#[test]
fn what_is_played_is_received_by_another_asof_as_it_was_recorded() {
    let folder = Folder::with_demo();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let robot =
        asof::live::connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a listener");
    let source = robot
        .recent(&asof::live::RecentOptions::default())
        .expect("a source");
    let line = format!(
        "play run.mcap zenoh://127.0.0.1:{port} --rate 2 --clock --topics /odom,/tf_static --remap /odom:=/robot/odom"
    );
    assert_eq!(folder.exit_code(&line), 0, "{}", folder.run(&line));
    let file = asof::open(folder.path("run.mcap")).expect("a recording");
    let payloads = |source: &dyn Source, topic: &str| -> Vec<Vec<u8>> {
        let batches = source.read(&Query::topics([topic])).expect("read");
        let batches: Vec<_> = batches.map(|batch| batch.expect("a batch")).collect();
        let messages = batches.iter().flat_map(asof::Batch::iter);
        messages.map(|message| message.payload.to_vec()).collect()
    };
    let sent = payloads(&file, "/odom");
    assert!(sent.len() > 10);
    asof_core::testing::eventually("all that was sent", || {
        payloads(&source, "/robot/odom").len() >= sent.len()
    });
    assert_eq!(payloads(&source, "/robot/odom"), sent);
    assert!(payloads(&source, "/odom").is_empty());
    assert_eq!(
        payloads(&source, "/tf_static"),
        payloads(&file, "/tf_static")
    );
    assert!(payloads(&source, "/clock").len() > 5);
    let known = source.summary();
    let odom = known
        .channels
        .iter()
        .find(|entry| entry.channel.topic == "/robot/odom");
    let kind = odom.map(|entry| entry.channel.type_name().to_owned());
    assert_eq!(kind.as_deref(), Some("nav_msgs/msg/Odometry"));
}

#[test]
fn several_robots_go_into_one_recording_that_is_split_tagged_and_thinned() {
    let folder = Folder::empty();
    let (one, two) = (Moving::new(), Moving::new());
    let line = format!(
        "record {} --and {} --prefix /one --prefix /two -o both.mcap --exclude /answers --tag site=hall --tag run=7 \
         --split-time 1s --level 3 --for 4s --json --status 500ms",
        one.url, two.url
    );
    let said = rows(&folder.stdout(&line));
    let (last, before) = said.split_last().expect("a report");
    assert!(before.len() >= 3, "how it goes: {said:?}");
    assert!(before.iter().all(|one| one["status"] == "recording"));
    assert_eq!(
        (&last["status"], &last["dropped"]),
        (&Value::from("done"), &Value::from(0))
    );
    let names = folder.names();
    assert!(names.len() >= 3 && names[0] == "both_0.mcap", "{names:?}");
    assert_eq!(last["files"].as_array().map(Vec::len), Some(names.len()));
    let paths: Vec<_> = names.iter().map(|name| folder.path(name)).collect();
    let all = asof::open_all(&paths).expect("a recording");
    let summary = all.summary();
    let topics = summary.topics();
    for topic in ["/one/chatter", "/two/chatter", "/one/tf", "/two/tf_static"] {
        assert!(topics.contains(&topic), "{topic} in {topics:?}");
    }
    assert!(
        !topics.iter().any(|topic| topic.contains("answers")),
        "{topics:?}"
    );
    let tags = folder.stdout("cat both_1.mcap --metadata tags");
    assert_eq!(tags.trim(), r#"{"run":"7","site":"hall"}"#);
    let without = format!("record {} --and {} -o c.mcap --for 1s", one.url, two.url);
    assert_eq!(folder.exit_code(&without), 2, "topics of both would be one");
}

#[test]
fn a_supervisor_is_told_when_the_recorder_is_ready_and_when_it_stops() {
    let folder = Folder::empty();
    let robot = Moving::new();
    let path = folder.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    let done = common::asof()
        .args(["record", &robot.url, "-o", "run.mcap", "--for", "2500ms"])
        .env("NOTIFY_SOCKET", &path)
        .current_dir(folder.path(""))
        .output()
        .expect("recorded");
    assert!(done.status.success());
    socket.set_nonblocking(true).expect("a socket");
    let mut told = Vec::new();
    let mut bytes = [0; 4_096];
    while let Ok(len) = socket.recv(&mut bytes) {
        told.push(String::from_utf8_lossy(&bytes[..len]).into_owned());
    }
    assert_eq!(told.first().map(String::as_str), Some("READY=1"));
    assert_eq!(told.last().map(String::as_str), Some("STOPPING=1"));
    assert!(
        told.iter()
            .any(|one| one.starts_with("WATCHDOG=1\nSTATUS=")),
        "{told:?}"
    );
}
