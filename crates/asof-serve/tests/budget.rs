//! One budget for everything that a server makes: nothing is made before there is room for it.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use asof_core::testing::eventually;
use asof_core::{
    Batch, Batches, Channel, Message as Logged, Query, Schema, Source, SourceError, Stamp, Summary,
    TimeRange, Topics,
};
use asof_formats::{McapFile, McapWriter, McapWriterOptions};
use asof_serve::{
    Annotations, ListedRecording, OpenedRecording, Opener, RecordingList, RecordingsAsked,
    RecordingsFound, Refusal, ServeOptions, Server,
};
use common::tape::Tape;
use common::{SECOND, START, Served, json_channel, logged, options, serve};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The measures are of the whole process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

const BUDGET: usize = 24 << 20;

fn small() -> ServeOptions {
    let mut small = options();
    small.limits.waiting_bytes = BUDGET;
    small.limits.stalled_after = Duration::from_millis(300);
    small
}

fn waiting(served: &Served, what: &str) -> usize {
    let status = served.server.status();
    status["waiting"][what].as_u64().expect("a number") as usize
}

/// Has clients ask all at once, half of which never read. Returns the answers of the others, and by how much the process
/// grew meanwhile. Responses that were refused, or broken off, are asked for again.
fn ask_at_once(served: &Served, path: &str, clients: usize) -> (Vec<Value>, usize) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let deaf: Vec<TcpStream> = (0..clients)
        .map(|_| {
            let mut stream = TcpStream::connect(served.address()).expect("connect");
            write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("send");
            stream
        })
        .collect();
    // One after the other, so that what this test itself holds is small.
    let answers: Vec<Value> = (0..2)
        .map(|_| {
            let mut found = Value::Null;
            eventually("an answer", || {
                let answer = served.get(path);
                found = serde_json::from_slice(&answer.body).unwrap_or_default();
                answer.status == 200 && found.is_array()
            });
            // Only its length counts, from here on.
            let Value::Array(items) = found else {
                return Value::Null;
            };
            json!(items.len())
        })
        .collect();
    let grown = MEMORY.peak_usage().saturating_sub(before);
    drop(deaf);
    (answers, grown)
}

/// What a client of this test holds of an answer: its bytes, and the tree of values.
const CLIENT: usize = 16;

/// So many transforms, at a second of the recording.
fn transforms(second: i64, count: usize) -> Logged {
    let schema = Schema {
        name: "foxglove.FrameTransforms".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: b"{}".to_vec().into(),
    };
    let channel = Arc::new(Channel {
        schema: Some(Arc::new(schema)),
        ..Channel::clone(&json_channel("/tf"))
    });
    let one = |number: usize| {
        json!({
            "timestamp": { "sec": START / SECOND + second, "nsec": 0 },
            "parent_frame_id": "map", "child_frame_id": format!("a_frame_with_a_name_of_its_own_{number}"),
            "translation": { "x": number, "y": 0.123456789, "z": 0.0 },
            "rotation": { "x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0 },
        })
    };
    let all: Vec<Value> = (0..count).map(one).collect();
    let text = json!({ "transforms": all }).to_string();
    logged(&channel, second * SECOND, text)
}

#[test]
fn the_frames_of_a_robot_with_very_many_are_made_within_the_budget() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let count = 12_000;
    let served = serve(Tape::new([transforms(0, count)]), &small());
    // The transforms themselves are kept.
    let first = served.get("/api/frames?t=0");
    assert_eq!(first.json().as_array().map(Vec::len), Some(count));
    let length = first.body.len();
    drop(first);
    assert!(length > 1 << 20, "{length}");
    let (answers, grown) = ask_at_once(&served, "/api/frames?t=0", 12);
    assert_eq!(answers, [json!(count), json!(count)]);
    assert!(waiting(&served, "peak") <= BUDGET);
    assert!(grown <= BUDGET + CLIENT * length, "{grown}");
    // More than all of the budget: it is asked first, and says no.
    let mut tiny = small();
    tiny.limits.waiting_bytes = 4 << 20;
    let served = serve(Tape::new([transforms(0, count)]), &tiny);
    assert_eq!(served.get("/api/frames?t=0").status, 503);
    assert_eq!(served.get("/api/status").status, 200);
}

#[test]
fn a_quick_answer_about_very_many_frames_is_made_within_the_budget_too() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut tiny = small();
    tiny.limits.waiting_bytes = 1 << 20;
    // As if it were large: the frames around a position are sent before the others are read.
    let tape = Tape::new((0..3).map(|t| transforms(t, 12_000))).sized(1 << 40);
    let served = serve(tape, &tiny);
    let mut client = served.connect();
    client.say(&json!([{ "op": "seek", "t": SECOND }, { "op": "frames", "on": true }]));
    for t in [SECOND, 2 * SECOND] {
        client.say(&json!({ "op": "seek", "t": t }));
        let state = client.find(|message| message["op"] == "frames" || message["t"] == t);
        assert_eq!(state["op"], "state");
    }
    assert!(waiting(&served, "peak") <= tiny.limits.waiting_bytes);
}

/// Recordings with long tags.
struct Tagged;

impl RecordingList for Tagged {
    fn name(&self) -> String {
        "tagged".to_owned()
    }

    fn find(&self, _: &RecordingsAsked) -> Result<RecordingsFound, Refusal> {
        let tag = ("notes".to_owned(), "x".repeat(20_000));
        let one = |number: usize| ListedRecording {
            recording: format!("{number}.mcap"),
            range: TimeRange::EMPTY,
            messages: None,
            size: 0,
            robot: None,
            site: None,
            tags: [tag.clone()].into(),
            problems: 0,
        };
        Ok((0..300).map(one).collect::<Vec<_>>().into())
    }

    fn open(&self, _: &str) -> Result<OpenedRecording, Refusal> {
        Err("not in this test".into())
    }
}

#[test]
fn a_list_of_recordings_is_made_within_the_budget() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let with_list = |waiting_bytes| {
        let mut options = small();
        options.limits.waiting_bytes = waiting_bytes;
        options.recordings = Some(Arc::new(Tagged));
        serve(Tape::new([]), &options)
    };
    let listed = with_list(BUDGET).get("/api/recordings?from=50").json();
    assert_eq!(
        (&listed["total"], &listed["from"]),
        (&json!(300), &json!(50))
    );
    let recordings = listed["recordings"].as_array().expect("a list");
    assert_eq!(recordings.len(), 200);
    assert_eq!(recordings[0]["recording"], "50.mcap");
    let served = with_list(3 << 20);
    assert_eq!(served.get("/api/recordings").status, 503);
    assert_eq!(served.get("/api/recordings?from=299").status, 200);
}

#[test]
fn what_was_known_as_of_a_time_is_sent_while_it_is_made() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // 600 messages of 60 kB: more than the budget, and each fits.
    let text = format!("{{\"text\":\"{}\"}}", "x".repeat(60_000));
    let text = bytes::Bytes::from(text);
    let message = |number: i64| {
        let channel = json_channel(&format!("/topic{number}"));
        logged(&channel, number, text.clone())
    };
    let served = serve(Tape::new((0..600).map(message)), &small());
    for path in ["/api/at?t=1000000", "/api/at?t=600"] {
        let answer = served.get(path);
        assert_eq!((answer.status, answer.body.len() > BUDGET), (200, true));
    }
    let (answers, grown) = ask_at_once(&served, "/api/at?t=1000000", 12);
    assert_eq!(answers, [json!(600), json!(600)]);
    assert!(waiting(&served, "peak") <= BUDGET);
    let client = 6 * 600 * text.len();
    assert!(grown <= BUDGET + client, "{grown}");
}

#[test]
fn one_large_message_is_decoded_when_there_is_room_for_it() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let channel = json_channel("/large");
    let list = json!({ "list": vec![7; 4 << 20] }).to_string();
    let served = serve(Tape::new([logged(&channel, 0, list)]), &small());
    for path in [
        "/api/at?t=0",
        "/api/message?topic=/large",
        "/api/messages?topic=/large",
        "/api/messages?topic=/large&last=1",
        "/api/fields?topic=/large",
    ] {
        assert_eq!(served.get(path).status, 503, "{path}");
    }
    let rows = served.get("/api/rows?topic=/large&paths=list").json();
    let error = rows["error"].as_str().expect("an error");
    assert!(error.contains("waiting to be sent"), "{error}");
    assert_eq!(waiting(&served, "bytes"), 0);
}

#[test]
fn what_is_known_of_very_many_topics_is_looked_up_in_parts() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = json!({ "text": "x".repeat(500_000) }).to_string();
    let options = McapWriterOptions::default();
    let mut writer = McapWriter::new(std::io::Cursor::new(Vec::new()), options).expect("a writer");
    for at in 0..400_i64 {
        // The order of names is not that of times.
        let channel = json_channel(&format!("/{}/{at}", at * 7 % 11));
        let message = logged(&channel, at * 1_000_000, text.clone());
        writer.write(&message).expect("writes");
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    let file = McapFile::from_bytes("test", bytes).expect("opens");
    let mut options = small();
    options.cache_bytes = 64 << 20;
    let served = serve(file, &options);
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let told = served.get("/api/at?t=1000000000").json();
    let peak = MEMORY.peak_usage().saturating_sub(before);
    let times: Vec<i64> = told
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["t"].as_i64().expect("a time"))
        .collect();
    assert_eq!(times, (0..400).map(|at| at * 1_000_000).collect::<Vec<_>>());
    assert!(peak < 150 << 20, "{peak} bytes");
}

#[test]
fn of_the_last_messages_of_a_topic_only_those_are_read_that_are_sent() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let channel = json_channel("/a");
    let text = json!({ "text": "x".repeat(50_000) }).to_string();
    let options = McapWriterOptions::default();
    let mut writer = McapWriter::new(std::io::Cursor::new(Vec::new()), options).expect("a writer");
    for at in 0..8000 {
        let message = logged(&channel, at * 1_000_000, text.clone());
        writer.write(&message).expect("writes");
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    let file = McapFile::from_bytes("test", bytes).expect("opens");
    let mut options = small();
    options.cache_bytes = 64 << 20;
    let served = serve(file, &options);
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let told = served.get("/api/messages?topic=/a&last=8000").json();
    let peak = MEMORY.peak_usage().saturating_sub(before);
    let told = told.as_array().expect("a list");
    assert!(told.len() > 100, "{}", told.len());
    assert_eq!(told.last().expect("a message")["t"], 7999 * 1_000_000_i64);
    assert!(peak < 250 << 20, "{peak} bytes");
}

#[test]
fn annotations_are_sent_within_the_budget() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("notes.json");
    let text = "x".repeat(4000);
    let one = |id: u64| json!({ "id": id, "start": "0", "end": "0", "text": text });
    let kept: Vec<Value> = (1..=600).map(one).collect();
    let kept = json!({ "asof_annotations": 1, "annotations": kept }).to_string();
    std::fs::write(&file, &kept).expect("written");
    let length = kept.len();
    drop(kept);
    let noted = ServeOptions {
        annotations: Some(file.clone()),
        ..small()
    };
    let served = serve(Tape::new([]), &noted);
    let (answers, grown) = ask_at_once(&served, "/api/annotations", 24);
    assert_eq!(answers, [json!(600), json!(600)]);
    assert!(waiting(&served, "peak") <= BUDGET);
    assert!(grown <= BUDGET + CLIENT * length, "{grown}");
    // What another process adds is read again, and shown.
    let mut other = Annotations::read(&file).expect("read");
    let range = TimeRange::new(Stamp::EPOCH, Stamp::EPOCH);
    other.add(range, "one more").expect("kept");
    assert_eq!(
        served
            .get("/api/annotations")
            .json()
            .as_array()
            .map(Vec::len),
        Some(601)
    );
}

#[test]
fn layouts_that_a_team_keeps_are_sent_within_the_budget() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let tree = json!({ "kind": "raw", "text": "x".repeat(500_000) });
    for number in 0..80 {
        let layout = json!({ "asof_layout": 1, "name": format!("{number}"), "tree": tree });
        let path = folder.path().join(format!("{number}.json"));
        std::fs::write(path, layout.to_string()).expect("written");
    }
    let kept = ServeOptions {
        layouts: Some(folder.path().to_owned()),
        ..small()
    };
    let served = serve(Tape::new([]), &kept);
    let all = served.get("/api/layouts");
    assert!(all.body.len() > BUDGET);
    assert_eq!(all.json().as_object().map(serde_json::Map::len), Some(80));
    assert!(waiting(&served, "peak") <= BUDGET);
}

#[test]
fn transforms_and_blocks_share_the_memory_of_a_recording_and_the_least_recently_used_go_first() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let schema = Schema {
        name: "foxglove.FrameTransform".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: b"{}".to_vec().into(),
    };
    let channel = Arc::new(Channel {
        schema: Some(Arc::new(schema)),
        ..Channel::clone(&json_channel("/tf"))
    });
    let moved = |number: i64| {
        let t = number * SECOND / 200;
        let data = json!({
            "timestamp": { "sec": (START + t) / SECOND, "nsec": (START + t) % SECOND },
            "parent_frame_id": "map", "child_frame_id": format!("child{}", number % 2),
            "translation": { "x": number, "y": 0.0, "z": 0.0 },
            "rotation": { "x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0 },
        });
        logged(&channel, t, data.to_string())
    };
    let options = ServeOptions {
        // A quarter of it is for what was read.
        cache_bytes: 4 << 20,
        ..options()
    };
    let tape = Tape::new((0..45 * 200).map(moved));
    let served = serve(tape.sized(64 << 20), &options);
    for second in [5, 15, 25, 35] {
        let edges = served.get(&format!("/api/frames?t={}", second * SECOND));
        let x = edges.json()[0]["pose"][0].as_f64().expect("a pose");
        assert!((x - second as f64 * 200.0).abs() < 2.0, "{x}");
        let status = served.server.status();
        let number = |one: &Value| one.as_u64().expect("a number");
        let (held, blocks) = (
            number(&status["frames"]["bytes"]),
            number(&status["cache"]["budget"]),
        );
        assert!(held > 0 && held <= 512 << 10, "{held}");
        assert!(held + blocks <= 1 << 20, "{held} and {blocks}");
    }
    assert!(served.server.status()["frames"]["evicted"].as_u64() > Some(0));
    // What was dropped is read again.
    let again = served.get(&format!("/api/frames?t={}", 5 * SECOND)).json();
    assert_eq!(again.as_array().map(Vec::len), Some(2));
}

/// A source whose questions wait until it is opened, and which counts them.
struct Gate {
    tape: Tape,
    state: Arc<(Mutex<bool>, Condvar)>,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Source for Gate {
    fn summary(&self) -> Arc<Summary> {
        self.tape.summary()
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.tape.read(query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let (is_open, opened) = &*self.state;
        let is_open = is_open.lock().expect("no panic");
        drop(opened.wait_while(is_open, |is_open| !*is_open));
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.tape.latest_at(topics, at)
    }
}

#[test]
fn requests_that_were_abandoned_keep_their_turn_until_their_work_has_ended() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // A topic for each request, so that none waits for what another reads.
    let message = |number: i64| logged(&json_channel(&format!("/a{number}")), number, "{}");
    let gate = Gate {
        tape: Tape::new((0..60).map(message)),
        state: Arc::default(),
        inside: Arc::default(),
        most: Arc::default(),
    };
    let (state, inside, most) = (
        Arc::clone(&gate.state),
        Arc::clone(&gate.inside),
        Arc::clone(&gate.most),
    );
    let served = serve(gate, &options());
    for number in 0..60 {
        let mut stream = TcpStream::connect(served.address()).expect("connect");
        let request =
            format!("GET /api/at?t=99&topics=/a{number} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        if number < 8 {
            eventually("it is being read", || {
                inside.load(Ordering::SeqCst) > number
            });
        }
        // It is gone, and its work is not.
    }
    assert_eq!(served.get("/api/status").status, 200);
    assert_eq!(inside.load(Ordering::SeqCst), 8);
    *state.0.lock().expect("no panic") = true;
    state.1.notify_all();
    eventually("all turns", || served.get("/api/at?t=0").status == 200);
    assert_eq!(most.load(Ordering::SeqCst), 8, "no more than eight at once");
    eventually("the end", || inside.load(Ordering::SeqCst) == 0);
}

/// A folder for each upload.
struct Folders(PathBuf, AtomicUsize);

impl Opener for Folders {
    fn folder(&self, look: Option<u64>) -> Result<(u64, PathBuf), Refusal> {
        let look = look.unwrap_or_else(|| self.1.fetch_add(1, Ordering::SeqCst) as u64);
        let folder = self.0.join(look.to_string());
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok((look, folder))
    }

    fn open(&self, _: u64) -> Result<OpenedRecording, Refusal> {
        Err("not in this test".into())
    }
}

fn with_uploads(folder: &tempfile::TempDir, options: &ServeOptions) -> Served {
    let opener = Folders(folder.path().to_owned(), AtomicUsize::new(0));
    let source = Arc::new(Tape::new([]));
    let server = Server::start_with(source, "", options, Some(Arc::new(opener)));
    Served::of(server.expect("start"))
}

fn upload(served: &Served, asked: &str, body: &str) -> common::Answer {
    let length = body.len();
    served.send(format!("POST /api/files?{asked} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes())
}

#[test]
fn uploads_that_do_not_come_end_and_others_are_served_meanwhile() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let mut hasty = options();
    hasty.limits.upload_timeout = Duration::from_millis(300);
    let served = with_uploads(&folder, &hasty);
    // Three times as many as are received at once; each says that more is to come.
    let unfinished: Vec<TcpStream> = (0..24)
        .map(|number| {
            let mut stream = TcpStream::connect(served.address()).expect("connect");
            let head = format!("POST /api/files?name={number}.mcap HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\nabc");
            stream.write_all(head.as_bytes()).expect("sent");
            stream
        })
        .collect();
    assert_eq!(served.get("/api/summary").status, 200);
    // While all of them are still connected.
    eventually("a place", || {
        upload(&served, "name=a.mcap", "x").status == 200
    });
    let holds_parts = || {
        let names = walk(folder.path());
        names.iter().any(|name| !name.ends_with("a.mcap"))
    };
    eventually("the end of what did not come", || !holds_parts());
    drop(unfinished);
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            names.extend(walk(&entry.path()));
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names
}

#[test]
fn the_bytes_of_all_uploads_count_together() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let mut few = options();
    few.limits.opened_bytes = 1000;
    let served = with_uploads(&folder, &few);
    let body = "x".repeat(600);
    assert_eq!(
        upload(&served, "name=a", &body).json(),
        json!({ "look": 0 })
    );
    // Neither in another upload nor in the same.
    for asked in ["name=b", "name=c&look=0"] {
        let refused = upload(&served, asked, &body);
        assert_eq!(refused.status, 400);
        let error = refused.json()["error"].to_string();
        assert!(error.contains("too large"), "{error}");
    }
    assert_eq!(upload(&served, "name=d", "small").status, 200);
    // What was refused does not count, and what is gone does not either.
    assert_eq!(walk(folder.path()).len(), 2);
    std::fs::remove_dir_all(folder.path().join("0")).expect("removed");
    assert_eq!(upload(&served, "name=e", &body).status, 200);
}
