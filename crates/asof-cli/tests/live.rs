//! `asof live`, `asof record` and `asof cat` beside a robot on 127.0.0.1: the program as people run it.

#![cfg(feature = "live")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use asof::live::Robot;
use asof::live::ros::{GET_TYPE_DESCRIPTION, SampleAttachment, type_hash};
use asof_core::testing::eventually;
use common::{Folder, asof};
use serde_json::Value;
use zenoh::Wait;

const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
const STRING: &str = "std_msgs::msg::dds_::String_";
const NUMBER: &str = "std_msgs::msg::dds_::Int32_";

/// What the robot's own type is made of.
const SAID: (&str, &str) = ("my_msgs/msg/Said", "string text\n");

fn hash_of(kind: &str) -> String {
    if kind.contains("Said") {
        return type_hash(SAID.0, SAID.1).expect("a hash");
    }
    HASH.to_owned()
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A robot that says something every 10 ms until it is dropped.
struct Talking {
    robot: Robot,
    said: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _tokens: Vec<zenoh::liveliness::LivelinessToken>,
}

impl Talking {
    fn new(address: &str, topics: &[(&str, &str)]) -> Self {
        let robot = asof::live::connect(address).expect("a robot");
        let tokens = topics.iter().enumerate().map(|(number, (topic, kind))| {
            let topic = topic.replace('/', "%");
            token(&robot, number + 1, "MP", &topic, kind)
        });
        let tokens = tokens.collect();
        let (said, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let keys: Vec<_> = topics
            .iter()
            .map(|(topic, kind)| format!("0{topic}/{kind}/{}", hash_of(kind)))
            .collect();
        let (voice, count, end) = (robot.clone(), Arc::clone(&said), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed) + 1;
                for key in &keys {
                    let attachment = SampleAttachment {
                        sequence: number as i64,
                        source_timestamp: (number as i64).into(),
                        gid: [7; 16],
                    };
                    let put = voice
                        .zenoh()
                        .expect("on Zenoh")
                        .put(key.clone(), words(number));
                    let _ = put.attachment(attachment.to_bytes().to_vec()).wait();
                }
                count.store(number, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        });
        Talking {
            robot,
            said,
            stop,
            thread: Some(thread),
            _tokens: tokens,
        }
    }

    fn said(&self) -> u64 {
        self.said.load(Ordering::Relaxed)
    }

    /// Says nothing more, and stays.
    fn fall_silent(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.as_ref();
        eventually("silence", || thread.is_none_or(JoinHandle::is_finished));
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = self.robot.zenoh().expect("on Zenoh").close().wait();
    }
}

fn token(
    robot: &Robot,
    number: usize,
    entity: &str,
    topic: &str,
    kind: &str,
) -> zenoh::liveliness::LivelinessToken {
    let session = robot.zenoh().expect("on Zenoh");
    let key = format!(
        "@ros2_lv/0/{}/0/{number}/{entity}/%/%/driver/{topic}/{kind}/{}/::,:,:,:,,",
        session.zid(),
        hash_of(kind)
    );
    session
        .liveliness()
        .declare_token(key)
        .wait()
        .expect("a token")
}

/// `std_msgs/msg/String` as CDR.
fn words(number: u64) -> Vec<u8> {
    let text = format!("word {number}");
    let mut cdr = vec![0, 1, 0, 0];
    cdr.extend((text.len() as u32 + 1).to_le_bytes());
    cdr.extend(text.bytes());
    cdr.push(0);
    cdr
}

fn start(folder: &Folder, line: &str) -> Child {
    start_by(asof(), folder, line)
}

fn start_by(mut asof: Command, folder: &Folder, line: &str) -> Child {
    asof.args(line.split_whitespace())
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

/// A run whose words are read as they come, so that a test can wait for them: how long a run takes to say something
/// is the machine's affair.
struct Run {
    child: Child,
    out: Heard,
    err: Heard,
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<String>>);

impl Heard {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let heard = Heard::default();
        let text = heard.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                let mut text = text.0.lock().expect("no panic");
                text.push_str(&line);
                text.push('\n');
            }
        });
        heard
    }

    fn so_far(&self) -> String {
        self.0.lock().expect("no panic").clone()
    }

    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        eventually(what, || is_there(&self.so_far()));
    }
}

impl Run {
    fn new(folder: &Folder, line: &str) -> Self {
        Run::of(start(folder, line))
    }

    fn of(mut child: Child) -> Self {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        Run {
            out: Heard::of(out.expect("an output")),
            err: Heard::of(err.expect("an output")),
            child,
        }
    }

    /// Ends it by a signal; its exit code and all that it said. What is in a pipe when a process ends is read a
    /// moment later.
    fn end(mut self, name: &str) -> (Option<i32>, String, String) {
        signal(&self.child, name);
        let code = self.child.wait().expect("ended").code();
        for heard in [&self.out, &self.err] {
            eventually("the end of its words", || Arc::strong_count(&heard.0) == 1);
        }
        (code, self.out.so_far(), self.err.so_far())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Records until the first chunk is in the file, then ends it by Ctrl-C; what it said on stderr.
fn record_some(folder: &Folder, line: &str, name: &str) -> String {
    let run = Run::new(folder, line);
    until_recording(folder, name);
    let (code, _, notes) = run.end("INT");
    assert_eq!(code, Some(0), "{notes}");
    notes
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status();
    assert!(sent.expect("kill").success());
}

/// Until the first chunk is in the file: then the robot is being recorded.
fn until_recording(folder: &Folder, name: &str) {
    let size = || std::fs::metadata(folder.path(name)).map_or(0, |found| found.len());
    eventually("the first chunk", || size() > 200);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn info(folder: &Folder, name: &str) -> Value {
    serde_json::from_str(&folder.stdout(&format!("info {name} --json"))).expect("JSON")
}

fn lines(output: &Output) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).expect("JSON");
    text(&output.stdout).lines().map(parse).collect()
}

#[test]
fn live_has_rate_bandwidth_jitter_age_and_drops_of_every_topic() {
    let port = free_port();
    let topics = [("/chatter", STRING), ("/odd.näme-1", STRING)];
    let _robot = Talking::new(&format!("zenoh://?listen=127.0.0.1:{port}"), &topics);
    let folder = Folder::empty();
    let line = format!("live zenoh://127.0.0.1:{port} --json --interval 0.5");
    let run = Run::new(&folder, &line);
    let rows = |said: &str| -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).expect("JSON");
        said.lines().map(parse).collect()
    };
    let is_seen = |row: &Value, topic: &str| {
        let is_more = |name: &str, least: f64| row[name].as_f64().is_some_and(|n| n > least);
        row["topic"] == topic
            && row["type"] == "std_msgs/msg/String"
            && is_more("messages", 10.0)
            && is_more("hz", 0.0)
            && is_more("bytes_per_second", 0.0)
            && is_more("jitter", 0.0)
            && is_more("age", 0.0)
            && row["drops"].is_u64()
    };
    for (topic, _) in topics {
        run.out.until(topic, |said| {
            rows(said).iter().any(|row| is_seen(row, topic))
        });
    }
    let (code, _, notes) = run.end("INT");
    assert_eq!(code, Some(0), "{notes}");
}

#[test]
fn live_prints_lines_in_a_pipe_and_ends_by_a_signal() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    let run = Run::new(
        &folder,
        &format!("live zenoh://127.0.0.1:{port} --interval 0.5"),
    );
    run.out.until("a line of the topic", |said| {
        said.contains("/chatter  std_msgs/msg/String")
    });
    let (code, said, notes) = run.end("TERM");
    assert_eq!(code, Some(0), "{notes}");
    assert!(said.starts_with("topic"), "{said}");
}

#[test]
fn two_types_on_one_topic_are_told_and_cost_no_other_topic() {
    let port = free_port();
    let topics = [
        ("/chatter", STRING),
        ("/chatter", NUMBER),
        ("/fine", STRING),
    ];
    let _robot = Talking::new(&format!("zenoh://?listen=127.0.0.1:{port}"), &topics);
    let folder = Folder::empty();
    let url = format!("zenoh://127.0.0.1:{port}");
    let ended = |line: &str| {
        let output = start(&folder, line).wait_with_output();
        output.expect("ended")
    };
    let both = ["std_msgs/msg/Int32", "std_msgs/msg/String"];

    let found = lines(&ended(&format!("info {url} --json"))).remove(0);
    let listed = found["topics"].as_array().expect("topics").iter();
    let listed = listed.filter(|one| one["topic"] == "/chatter");
    let mut types: Vec<_> = listed.filter_map(|one| one["type"].as_str()).collect();
    types.sort_unstable();
    assert_eq!(types, both, "{found}");
    let told = found["problems"].to_string();
    assert!(told.contains("several types"), "{told}");

    let run = Run::new(&folder, &format!("live {url} --json --interval 0.5"));
    run.out.until("both types", |said| {
        let mut rows = said.lines().filter(|row| row.contains("/chatter"));
        rows.any(|row| both.iter().all(|name| row.contains(name)))
    });
    assert_eq!(run.end("INT").0, Some(0));

    // What is wrong with a topic that was not asked for is none of these.
    for line in [
        format!("cat {url} --topics /fine --json --limit 3"),
        format!("info {url} --topics /fine"),
        format!("record {url} --topics /fine -o fine.mcap --for 2s"),
    ] {
        let output = ended(&line);
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    }
}

#[test]
fn a_recording_that_is_ended_by_a_signal_is_whole_and_decodes() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    for name in ["INT", "TERM"] {
        let file = format!("{name}.mcap");
        let child = start(
            &folder,
            &format!("record zenoh://127.0.0.1:{port} -o {file} --json"),
        );
        until_recording(&folder, &file);
        signal(&child, name);
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = lines(&output).remove(0);
        let found = info(&folder, &file);
        assert_eq!(found["problems"], serde_json::json!([]), "{found}");
        assert_eq!(found["messages"], told["messages"]);
        assert_eq!(told["dropped"], 0);
        let first = folder.stdout(&format!("cat {file} --json --limit 1"));
        assert!(first.contains("{\"data\":\"word "), "{first}");
    }
}

#[test]
fn what_was_received_is_on_the_disk_soon_so_a_killed_recording_lacks_the_last_moment_only() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    let mut child = start(
        &folder,
        &format!("record zenoh://127.0.0.1:{port} -o cut.mcap"),
    );
    until_recording(&folder, "cut.mcap");
    robot.fall_silent();
    // Nothing comes any more that could push the last words onto the disk: they go there by themselves.
    eventually("the last word on the disk", || {
        last_sequence(&folder, "cut.mcap") == Some(robot.said())
    });
    child.kill().expect("SIGKILL");
    child.wait().expect("ended");
    let cut = info(&folder, "cut.mcap");
    assert_ne!(
        cut["problems"],
        serde_json::json!([]),
        "it was cut off: {cut}"
    );
    assert_eq!(folder.exit_code("recover cut.mcap -o whole.mcap"), 3);
    assert_eq!(
        info(&folder, "whole.mcap")["problems"],
        serde_json::json!([])
    );
    assert_eq!(last_sequence(&folder, "whole.mcap"), Some(robot.said()));
}

/// The number of the last message in a file, which may still be growing.
fn last_sequence(folder: &Folder, name: &str) -> Option<u64> {
    let said = folder.stdout(&format!("cat {name} --json"));
    let last: Value = serde_json::from_str(said.lines().last()?).ok()?;
    last["sequence"].as_u64()
}

#[test]
#[cfg(unix)]
fn a_disk_that_is_slower_than_the_robot_is_told_of_and_costs_counted_messages() {
    let port = free_port();
    let robot = asof::live::connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a robot");
    let _token = token(&robot, 1, "MP", "%chatter", STRING);
    let folder = Folder::empty();
    // A pipe that is read slowly stands for the disk.
    let made = Command::new("mkfifo").arg(folder.path("pipe")).status();
    assert!(made.expect("mkfifo").success());
    let (is_slow, slow) = std::sync::mpsc::channel::<()>();
    let pipe = folder.path("pipe");
    let disk = thread::spawn(move || {
        let mut pipe = std::fs::File::open(pipe).expect("the other end");
        let (mut all, mut part) = (Vec::new(), vec![0; 1 << 14]);
        loop {
            let count = Read::read(&mut pipe, &mut part).expect("read");
            all.extend_from_slice(&part[..count]);
            if count == 0 {
                return all;
            }
            // Until the other end is dropped.
            let _ = slow.recv();
        }
    });
    let line = format!(
        "record zenoh://127.0.0.1:{port} -o pipe --force --queue 1 --compression none --json"
    );
    let run = Run::new(&folder, &line);
    let key = format!("0/chatter/{STRING}/{HASH}");
    let large = String::from_utf8(vec![b'x'; 50_000]).expect("text");
    eventually("a complaint", || {
        let mut cdr = vec![0, 1, 0, 0];
        cdr.extend((large.len() as u32 + 1).to_le_bytes());
        cdr.extend(large.bytes());
        cdr.push(0);
        let put = robot.zenoh().expect("on Zenoh").put(key.clone(), cdr);
        put.wait().expect("published");
        let said = run.err.so_far();
        said.contains("the disk is slower than the robot")
    });
    drop(is_slow);
    let (code, said_out, said) = run.end("INT");
    let written = disk.join().expect("read");
    let told: Value = serde_json::from_str(&said_out).expect("JSON");
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(told["topics"][0]["topic"], "/chatter");
    assert!(told["topics"][0]["dropped"].as_u64() > Some(0), "{told}");
    assert!(said.contains("of /chatter dropped"), "{said}");
    // What was written is whole, all the same.
    std::fs::write(folder.path("read.mcap"), written).expect("kept");
    let found = info(&folder, "read.mcap");
    assert_eq!(found["problems"], serde_json::json!([]), "{found}");
    assert_eq!(found["messages"], told["messages"]);
}

#[test]
fn serve_shows_a_robot_and_ends_by_a_signal() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    let line = format!("serve zenoh://127.0.0.1:{port} --window 2s --listen 0 --no-open");
    let mut child = start(&folder, &line);
    let out = child.stdout.take().expect("an output");
    let lines = BufRead::lines(BufReader::new(out));
    let url = lines
        .map_while(Result::ok)
        .find_map(|line| {
            Some(
                line.strip_prefix("Open http://")?
                    .trim_end_matches('/')
                    .to_owned(),
            )
        })
        .expect("an address");
    let asked = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&url).expect("connect");
        let ask = format!("GET {path} HTTP/1.0\r\nhost: {url}\r\n\r\n");
        std::io::Write::write_all(&mut stream, ask.as_bytes()).expect("asked");
        let mut answer = String::new();
        Read::read_to_string(&mut stream, &mut answer).expect("answered");
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        serde_json::from_str::<Value>(body).expect("JSON")
    };
    let summary = || asked("/api/summary");
    eventually("messages that have left the window", || {
        summary()["window"]["left"].as_u64() > Some(0)
    });
    let found = summary();
    assert_eq!(found["live"], true);
    assert_eq!(found["topics"][0]["topic"], "/chatter");
    assert_eq!(found["window"]["connected"], true);
    // What is held, up to now: an answer without an end would never come.
    let held = asked("/api/messages?topic=/chatter&start=0&limit=100000");
    assert!(held.as_array().is_some_and(|held| !held.is_empty()));
    let (from, to) = (&found["window"]["from"], &found["window"]["to"]);
    let length = to.as_i64().expect("a time") - from.as_i64().expect("a time");
    assert!(length <= 2_000_000_000, "{length}");
    signal(&child, "INT");
    assert!(child.wait().expect("ended").success());
    let folder = Folder::with_demo();
    let line = format!("serve run.mcap zenoh://127.0.0.1:{port} --listen 0 --no-open --for 1s");
    assert_eq!(folder.exit_code(&line), 0, "a recording beside it");
    assert_eq!(folder.exit_code("serve zenoh:// --window soon"), 2);
}

#[test]
fn a_recording_goes_on_when_the_router_goes_away_and_comes_back() {
    let port = free_port();
    let address = format!("zenoh://?mode=router&listen=127.0.0.1:{port}");
    let folder = Folder::empty();
    let line = format!("record zenoh://127.0.0.1:{port}?mode=client -o out.mcap --json");
    let first = Talking::new(&address, &[("/chatter", STRING)]);
    let run = Run::new(&folder, &line);
    until_recording(&folder, "out.mcap");
    drop(first);
    run.err
        .until("a word about it", |said| said.contains("is lost; retrying"));
    let mut second = None;
    eventually("the port to be free again", || {
        second = std::panic::catch_unwind(|| Talking::new(&address, &[("/chatter", STRING)])).ok();
        second.is_some()
    });
    let size = || std::fs::metadata(folder.path("out.mcap")).map_or(0, |found| found.len());
    let before = size();
    eventually("more of the recording", || size() > before + 200);
    let (code, _, notes) = run.end("INT");
    assert_eq!(code, Some(0), "{notes}");
    let said = folder.stdout("cat out.mcap --json");
    let times: Vec<i64> = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|message| message["log_time"].as_i64().expect("a time"))
        .collect();
    // It is told of when it has lasted two seconds.
    let is_gap = |pair: &[i64]| pair[1] - pair[0] > 1_900_000_000;
    assert!(times.windows(2).any(is_gap), "the router was away");
}

/// A response of the type description service, as a node gives it.
fn description(fields: &[(&str, u8)]) -> Vec<u8> {
    let mut cdr = vec![0, 1, 0, 0, 1];
    let align = |cdr: &mut Vec<u8>, to: usize| {
        let behind_head = cdr.len() - 4;
        cdr.resize(4 + behind_head.next_multiple_of(to), 0);
    };
    let number = |cdr: &mut Vec<u8>, value: usize| {
        align(cdr, 4);
        cdr.extend((value as u32).to_le_bytes());
    };
    let text = |cdr: &mut Vec<u8>, text: &str| {
        number(cdr, text.len() + 1);
        cdr.extend(text.bytes());
        cdr.push(0);
    };
    text(&mut cdr, "");
    text(&mut cdr, "my_msgs/msg/Said");
    number(&mut cdr, fields.len());
    for (name, kind) in fields {
        text(&mut cdr, name);
        cdr.push(*kind);
        align(&mut cdr, 8);
        cdr.extend([0; 16]);
        text(&mut cdr, "");
        text(&mut cdr, "");
    }
    for _ in 0..3 {
        number(&mut cdr, 0);
    }
    cdr
}

#[test]
fn a_type_that_only_its_node_knows_is_described_by_it() {
    let port = free_port();
    let kind = "my_msgs::msg::dds_::Said_";
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let robot = Talking::new(&address, &[("/said", kind)]);
    let service = "/driver/get_type_description";
    let answers = description(&[("text", 17)]);
    let _queryable = robot
        .robot
        .zenoh()
        .expect("on Zenoh")
        .declare_queryable(format!("0{service}/{GET_TYPE_DESCRIPTION}/{HASH}"))
        .complete(true)
        .callback(move |query| {
            let asked = query
                .payload()
                .map(|payload| payload.to_bytes().into_owned());
            let names = asked.is_some_and(|asked| text(&asked).contains("my_msgs/msg/Said"));
            assert!(names && query.attachment().is_some());
            let key = query.key_expr().clone();
            query.reply(key, answers.clone()).wait().expect("answered");
        })
        .wait()
        .expect("a service");
    let service = service.replace('/', "%");
    let _token = token(&robot.robot, 9, "SS", &service, GET_TYPE_DESCRIPTION);
    let folder = Folder::empty();
    let child = start(
        &folder,
        &format!("cat zenoh://127.0.0.1:{port} --json --limit 3"),
    );
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in lines(&output) {
        let said = line["data"]["text"].as_str().expect("decoded");
        assert!(said.starts_with("word "), "{line}");
    }
    let line = format!("record zenoh://127.0.0.1:{port} -o said.mcap");
    record_some(&folder, &line, "said.mcap");
    let said = folder.stdout("cat said.mcap --json");
    assert!(said.lines().count() > 0);
    assert!(
        said.lines().all(|line| line.contains("{\"text\":\"word ")),
        "{said}"
    );
}

#[test]
fn a_type_that_nobody_knows_is_recorded_and_said_and_a_folder_helps() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/said", "my_msgs::msg::dds_::Said_")]);
    let folder = Folder::empty();
    let record = |name: &str, more: &str| {
        let line = format!("record zenoh://127.0.0.1:{port} -o {name} {more}");
        record_some(&folder, &line, name)
    };
    let notes = record("a.mcap", "");
    assert!(notes.contains("--msg-path"), "{notes}");
    let found = info(&folder, "a.mcap");
    assert!(found["messages"].as_u64() > Some(0), "{found}");
    let package = folder.path("defs/my_msgs/msg");
    std::fs::create_dir_all(&package).expect("a folder");
    std::fs::write(package.join("Said.msg"), "string text\nint32 more\n").expect("a file");
    let other = record("other.mcap", "--msg-path defs");
    assert!(other.contains("their hashes differ"), "{other}");
    std::fs::write(package.join("Said.msg"), SAID.1).expect("a file");
    let notes = record("b.mcap", "--msg-path defs");
    assert!(!notes.contains("--msg-path"), "{notes}");
    let said = folder.stdout("cat b.mcap --json --limit 1");
    assert!(said.contains("{\"text\":\"word "), "{said}");
}

#[test]
fn messages_that_are_none_are_said_and_never_end_it() {
    let port = free_port();
    let robot = asof::live::connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a robot");
    let _token = token(&robot, 1, "MP", "%chatter", STRING);
    // Tokens that are none, too.
    let odd = ["@ros2_lv/0/x", "@ros2_lv/0/a/b/c/MP/%/%/n/%t/a::b/h/9:9:9"];
    let _odd = odd.map(|key| {
        robot
            .zenoh()
            .expect("on Zenoh")
            .liveliness()
            .declare_token(key)
            .wait()
    });
    let folder = Folder::empty();
    let run = Run::new(
        &folder,
        &format!("record zenoh://127.0.0.1:{port} -o out.mcap"),
    );
    let key = format!("0/chatter/{STRING}/{HASH}");
    let size = || std::fs::metadata(folder.path("out.mcap")).map_or(0, |found| found.len());
    let mut rounds_since = 0;
    eventually("a recording of some rounds", || {
        // No attachment, one that is garbage, and bytes that are no CDR.
        let put = |payload: Vec<u8>| robot.zenoh().expect("on Zenoh").put(key.clone(), payload);
        put(words(1)).wait().expect("published");
        put(words(2))
            .attachment(vec![1, 2, 3])
            .wait()
            .expect("published");
        put(vec![0xff; 7]).wait().expect("published");
        put(Vec::new()).wait().expect("published");
        rounds_since += usize::from(size() > 200);
        rounds_since > 20
    });
    let (code, _, notes) = run.end("INT");
    assert_eq!(code, Some(0), "{notes}");
    assert_eq!(info(&folder, "out.mcap")["problems"], serde_json::json!([]));
    assert_eq!(folder.exit_code("cat out.mcap --json"), 3);
    let said = folder.stdout("cat out.mcap --json");
    assert!(said.contains("word 1") && said.contains("word 2") && said.contains("\"error\""));
}

#[test]
fn addresses_that_are_none_are_wrong_usage() {
    let folder = Folder::empty();
    for url in [
        "http://robot",
        "zenoh://robot?mode=boss",
        "zenoh://robot?speed=9",
        "robot",
        #[cfg(feature = "dds")]
        "dds://nowhere.invalid:1",
    ] {
        assert_eq!(folder.exit_code(&format!("live {url} --for 1")), 2, "{url}");
        assert_eq!(
            folder.exit_code(&format!("record {url} -o x.mcap --for 1")),
            2,
            "{url}"
        );
        assert!(!folder.path("x.mcap").exists());
    }
}

#[test]
fn a_robot_that_is_not_there_is_waited_for() {
    let port = free_port();
    let folder = Folder::empty();
    for mode in ["peer", "client"] {
        let line = format!("live zenoh://127.0.0.1:{port}?mode={mode} --plain");
        let run = Run::new(&folder, &line);
        run.err.until("a word about it", |said| {
            said.contains("no answer from tcp/127.0.0.1")
        });
        let (code, _, notes) = run.end("INT");
        // Nobody answered.
        assert_eq!(code, Some(1), "{notes}");
    }
}

#[test]
fn a_file_that_cannot_be_made_is_told_before_a_robot_is_waited_for() {
    let folder = Folder::empty();
    let port = free_port();
    let line = format!("record zenoh://127.0.0.1:{port}?mode=client -o none/run.mcap");
    let output = start(&folder, &line).wait_with_output().expect("ended");
    let notes = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(
        notes.contains("there is no folder none") && !notes.contains("no answer from"),
        "{notes}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_called_by_its_name() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    // A disk that is always full.
    std::os::unix::fs::symlink("/dev/full", folder.path("full.mcap")).expect("a link");
    let line = format!("record zenoh://127.0.0.1:{port} -o full.mcap --force");
    let output = start(&folder, &line).wait_with_output().expect("ended");
    let notes = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(
        notes.contains("No space left on device") && notes.contains("asof recover"),
        "{notes}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_fails_at_the_very_end_is_told_with_the_file() {
    let folder = Folder::empty();
    // A disk that takes everything, and says at last that it has lost it.
    let disk = r#"
        #include <errno.h>
        #include <unistd.h>
        int fdatasync(int file) {
            (void)file;
            if (access("broken", F_OK) != 0) return 0;
            errno = EIO;
            return -1;
        }"#;
    std::fs::write(folder.path("disk.c"), disk).expect("written");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "disk.so", "disk.c"])
        .current_dir(folder.path(""))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no C compiler");
        return;
    }
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let robot = Talking::new(&address, &[("/chatter", STRING)]);
    let mut asof = asof();
    asof.env("LD_PRELOAD", folder.path("disk.so"));
    let line = format!("record zenoh://127.0.0.1:{port} -o run.mcap");
    let run = Run::of(start_by(asof, &folder, &line));
    until_recording(&folder, "run.mcap");
    robot.fall_silent();
    eventually("the last word on the disk", || {
        last_sequence(&folder, "run.mcap") == Some(robot.said())
    });
    std::fs::write(folder.path("broken"), "").expect("written");
    let (code, _, notes) = run.end("INT");
    assert_eq!(code, Some(1), "{notes}");
    let told = "run.mcap: its end may not be on the disk: Input/output error";
    assert!(notes.contains(told), "{notes}");
}

#[test]
fn a_file_that_exists_is_not_recorded_over() {
    let folder = Folder::with_demo();
    let port = free_port();
    let line = format!("record zenoh://?listen=127.0.0.1:{port} -o run.mcap --for 1");
    let before = folder.read("run.mcap");
    let output = start(&folder, &line).wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--force"));
    assert!(folder.read("run.mcap") == before);
    // There is no robot, so there is nothing to replace it.
    let output = start(&folder, &format!("{line} --force"));
    let output = output.wait_with_output().expect("ended");
    let notes = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("run.mcap stays as it was"), "{notes}");
    assert!(folder.read("run.mcap") == before);
    let port = free_port();
    let _robot = Talking::new(
        &format!("zenoh://?listen=127.0.0.1:{port}"),
        &[("/chatter", STRING)],
    );
    let line = format!("record zenoh://127.0.0.1:{port} -o run.mcap --force");
    let recording = Run::new(&folder, &line);
    let is_new = || folder.read("run.mcap") != before;
    eventually("a message", is_new);
    let (code, _, notes) = recording.end("TERM");
    assert_eq!(code, Some(0), "{notes}");
    let topics = info(&folder, "run.mcap")["topics"].clone();
    assert_eq!(topics[0]["topic"], "/chatter");
}

#[test]
fn a_robot_that_does_not_answer_is_an_error_whatever_the_transport_and_leaves_nothing() {
    let folder = Folder::with_demo();
    std::fs::write(
        folder.path("expected.toml"),
        "[topics.'/imu']\nmessages = {min = 1}\n",
    )
    .expect("written");
    let files = || {
        let entries = std::fs::read_dir(folder.path("")).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|one| one.expect("a file").file_name())
            .collect();
        names.sort();
        names
    };
    let before = files();
    for scheme in ["zenoh", "foxglove", "rosbridge", "dds"] {
        let url = match scheme {
            "dds" if !cfg!(feature = "dds") => continue,
            // A domain that nobody uses.
            "dds" => "dds://lo?domain=211".to_owned(),
            scheme => format!("{scheme}://127.0.0.1:{}", free_port()),
        };
        let mut verbs = vec![
            format!("record {url} -o one.mcap"),
            format!("record {url} -o parts.mcap --split-size 1M"),
            format!("record {url} -o spans.mcap --split-time 1s --quota 1G"),
            format!("record {url} -o events.mcap --keep 5s --trigger /imu.x>1"),
            format!("live {url} --plain"),
            format!("info {url}"),
            format!("cat {url} --topics /imu"),
            format!("at {url}"),
            format!("export {url} -o out"),
            format!("join {url} --anchor /imu --with /odom"),
            format!("tf {url} --from map --to base_link"),
            format!("tf {url} --follow --from map --to base_link"),
            format!("tf {url} --monitor"),
            format!("convert {url} -o copy.mcap"),
            format!("doctor {url}"),
            format!("check {url} --file expected.toml"),
            format!("diff {url} run.mcap"),
        ];
        if cfg!(feature = "sql") {
            verbs.push(format!("sql {url} SELECT(1)"));
        }
        if scheme == "zenoh" {
            verbs.push(format!("play run.mcap {url}"));
        }
        let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb} --for 1")).collect();
        let started: Vec<Child> = verbs.iter().map(|verb| start(&folder, verb)).collect();
        for (verb, child) in verbs.iter().zip(started) {
            let output = child.wait_with_output().expect("ended");
            let notes = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{verb}: {notes}");
            assert!(notes.contains("no robot answered at"), "{verb}: {notes}");
            assert!(
                scheme == "zenoh" || !notes.to_lowercase().contains("zenoh"),
                "{verb}: {notes}"
            );
        }
    }
    assert_eq!(files(), before, "nothing is left behind");
}

#[test]
fn one_of_two_robots_that_does_not_answer_is_an_error_and_the_other_is_recorded() {
    let (port, nobody) = (free_port(), free_port());
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    let line = format!(
        "record zenoh://127.0.0.1:{port} --and zenoh://127.0.0.1:{nobody} --prefix /a --prefix /b -o both.mcap"
    );
    let run = Run::new(&folder, &line);
    until_recording(&folder, "both.mcap");
    run.err.until("a word about the other", |said| {
        said.contains("no answer from")
    });
    let (code, _, notes) = run.end("INT");
    assert_eq!(code, Some(1), "{notes}");
    let told = notes.lines().last().unwrap_or_default();
    assert!(
        told.contains("no robot answered at") && told.contains(&nobody.to_string()),
        "{notes}"
    );
    assert!(info(&folder, "both.mcap")["messages"].as_u64() > Some(0));
}

#[test]
fn a_recording_in_parts_goes_on_after_a_restart_within_one_quota() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    let parts = || {
        let files = std::fs::read_dir(folder.path("")).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let numbers = names.filter_map(|name| {
            let number = name.strip_prefix("run_")?.strip_suffix(".mcap")?;
            number.parse::<u64>().ok()
        });
        numbers.max().map_or(0, |last| last + 1)
    };
    let line = format!(
        "record zenoh://127.0.0.1:{port} -o run.mcap --split-size 2k --quota 12k --compression none"
    );
    for run in 1..=3 {
        let before = parts();
        let recording = Run::new(&folder, &line);
        eventually("three more parts", || parts() >= before + 3);
        let (code, _, notes) = recording.end("TERM");
        assert_eq!(code, Some(0), "run {run}: {notes}");
    }
}

#[test]
fn a_trigger_on_what_does_not_exist_is_a_warning_at_once_and_at_the_end() {
    let port = free_port();
    let address = format!("zenoh://?listen=127.0.0.1:{port}");
    let _robot = Talking::new(&address, &[("/chatter", STRING)]);
    let folder = Folder::empty();
    let line = format!(
        "record zenoh://127.0.0.1:{port} -o run.mcap --keep 5 --trigger /chater.data==1 --trigger /chatter.dta==1"
    );
    let run = Run::new(&folder, &line);
    run.err.until("both warnings", |said| {
        said.contains("/chater is not published") && said.contains("/chatter.dta")
    });
    let (code, _, notes) = run.end("INT");
    assert_eq!(code, Some(0), "{notes}");
    assert_eq!(notes.matches("/chater is not published").count(), 2);
}
