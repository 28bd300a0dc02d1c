//! Clients that ask and go away: what was begun for them ends.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asof_core::{Batch, Batches, Query, Source, SourceError, Stamp, Summary, Topics};
use asof_serve::Server;
use common::tape::Tape;
use common::{PATIENCE, Served, json_channel, logged, options, serve};

/// A recording on a slow disk, which counts its batches, and who reads it.
struct SlowTape {
    tape: Tape,
    batches: Arc<AtomicUsize>,
    readers: Arc<()>,
}

impl Source for SlowTape {
    fn summary(&self) -> Arc<Summary> {
        self.tape.summary()
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let (batches, reader) = (Arc::clone(&self.batches), Arc::clone(&self.readers));
        let read = self.tape.read(query)?.inspect(move |_| {
            let _ = &reader;
            batches.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(2));
        });
        Ok(Box::new(read))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.tape.latest_at(topics, at)
    }
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks, and disconnects when the recording is being read.
fn ask_and_leave(served: &Served, path: &str, batches: &AtomicUsize) {
    let before = batches.load(Ordering::Relaxed);
    let mut stream = TcpStream::connect(served.address()).expect("connect");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    until("it is read", || batches.load(Ordering::Relaxed) > before);
}

#[test]
fn work_for_a_client_that_is_gone_stops() {
    let channel = json_channel("/a");
    let count = 400_000;
    let messages = (0..count).map(|at| logged(&channel, at * 1_000_000, r#"{"x":1}"#));
    let (batches, readers) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let slow = SlowTape {
        tape: Tape::new(messages),
        batches: Arc::clone(&batches),
        readers: Arc::clone(&readers),
    };
    let served = serve(slow, &options());
    for path in [
        "/api/rows?topic=/a&paths=x",
        "/api/states?topic=/a&path=x",
        // Nothing of the topic is in the range that is asked for first.
        "/api/messages?topic=/a&limit=10000",
    ] {
        ask_and_leave(&served, path, &batches);
        // This one's and the recording's own are left.
        until(path, || Arc::strong_count(&readers) == 2);
        let read = batches.load(Ordering::Relaxed);
        assert!(read < count as usize / 256, "{path}: all of it was read");
    }
    assert_eq!(served.get("/api/summary").status, 200);
}

#[test]
fn a_reload_waits_for_what_is_being_computed() {
    let channel = json_channel("/a");
    let messages = (0..20_000).map(|at| logged(&channel, at * 1_000_000, r#"{"x":1}"#));
    let batches = Arc::new(AtomicUsize::new(0));
    let slow = SlowTape {
        tape: Tape::new(messages),
        batches: Arc::clone(&batches),
        readers: Arc::default(),
    };
    let served = serve(slow, &options());
    let path = "/api/rows?topic=/a&paths=x";
    let together: Vec<usize> = std::thread::scope(|scope| {
        let ask = || {
            scope.spawn(|| {
                served.get(path).json()["rows"]
                    .as_array()
                    .map_or(0, Vec::len)
            })
        };
        let asked: Vec<_> = (0..6).map(|_| ask()).collect();
        asked
            .into_iter()
            .map(|one| one.join().expect("answered"))
            .collect()
    });
    assert!(
        together
            .iter()
            .all(|rows| *rows == together[0] && *rows > 1000)
    );
    let once = 20_000_usize.div_ceil(256);
    let read = batches.load(Ordering::Relaxed);
    assert!(
        read < 2 * once,
        "{read} batches were read, {once} hold all of it"
    );
}

#[test]
fn long_lists_in_rows_and_states_are_cut() {
    let channel = json_channel("/a");
    let list = |x: i64| serde_json::json!({ "list": vec![x; 300_000], "x": x }).to_string();
    let messages = (0..30).map(|at| logged(&channel, at * 1_000_000_000, list(at)));
    let served = serve(Tape::new(messages), &options());
    for path in [
        "/api/rows?topic=/a&paths=list",
        "/api/states?topic=/a&path=list",
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() < 100_000, "{path}: {}", answer.body.len());
        let text = String::from_utf8_lossy(&answer.body);
        assert!(text.contains("(299800 more)"), "{path}");
    }
}

#[test]
fn a_topic_may_have_messages_of_several_types() {
    let schema = asof_core::Schema {
        name: "t/msg/T".to_owned(),
        encoding: "ros2msg".to_owned(),
        data: "int8 other\nint8 x\n".into(),
    };
    let typed = Arc::new(asof_core::Channel {
        topic: "/a".to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(Arc::new(schema)),
        ..asof_core::Channel::default()
    });
    let unknown = Arc::new(asof_core::Channel {
        topic: "/a".to_owned(),
        message_encoding: "abacus".to_owned(),
        ..asof_core::Channel::default()
    });
    let json = json_channel("/a");
    let messages = [
        logged(&unknown, 0, "?"),
        logged(&json, 1, r#"{"x":1}"#),
        logged(&typed, 2, vec![0, 1, 0, 0, 7, 2]),
        logged(&json, 3, r#"{"x":3}"#),
    ];
    let served = serve(Tape::new(messages), &options());
    let rows = served.get("/api/rows?topic=/a&paths=x").json();
    assert_eq!(
        rows["rows"],
        serde_json::json!([[1, 1], [2, 2], [3, 3]]),
        "{rows}"
    );
    let states = served.get("/api/states?topic=/a&path=x").json();
    assert_eq!(
        states["changes"],
        serde_json::json!([[1, 1], [2, 2], [3, 3]]),
        "{states}"
    );
}

#[test]
fn a_field_over_very_many_channels_of_a_topic_is_read_in_linear_time() {
    let asked = AtomicUsize::new(1);
    let make = |scale: usize| {
        let message = |at: usize| {
            let channel = json_channel("/a");
            logged(&channel, at as i64 * 1_000_000, format!("{{\"x\":{at}}}"))
        };
        let messages = (0..500 * scale).map(message).collect::<Vec<_>>();
        Arc::new(serve(Tape::new(messages), &options()))
    };
    asof_core::testing::assert_linear("channels of a topic", make, |served: Arc<Served>| {
        // Another range each time, so that no answer is a kept one.
        let before = asked.fetch_add(1, Ordering::Relaxed);
        let answer = served.get(&format!("/api/series?topic=/a&path=x&start=-{before}"));
        assert!(answer.body.len() > 16_000, "{}", answer.body.len());
    });
}

#[test]
fn rows_are_thinned_out_until_they_fit() {
    let channel = json_channel("/a");
    let list = |x: i64| serde_json::json!({ "list": vec![x; 150] }).to_string();
    let messages = (0..2000).map(|at| logged(&channel, at * 1_000_000, list(at)));
    let mut options = options();
    options.limits.answer_bytes = 100_000;
    let served = serve(Tape::new(messages), &options);
    let answer = served.get("/api/rows?topic=/a&paths=list");
    assert!(answer.body.len() <= 100_000, "{}", answer.body.len());
    let told = answer.json();
    assert_eq!(told["messages"], 2000);
    assert!(told["every"].as_u64().is_some_and(|every| every > 8));
    assert!(told["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    let served = serve(Tape::new(Vec::new()), &options);
    assert_eq!(
        served.get("/api/rows?topic=/a&paths=list").json()["messages"],
        0
    );
}

#[test]
fn a_server_can_be_dropped_by_a_task() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime");
    let server = Server::start(Arc::new(Tape::new(Vec::new())), "", &options()).expect("start");
    let dropped = runtime.block_on(async { tokio::spawn(async move { drop(server) }).await });
    dropped.expect("no panic");
}
