//! A rosbridge server on 127.0.0.1, as rosbridge_suite answers: topics by rosapi, messages in every form.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use asof_core::testing::eventually;
use asof_core::{Query, Source};
use asof_decode::Decoders;
use asof_live::{LiveSource, RecentOptions, connect};
use minicbor::Encoder;
use serde_json::{Value, json};
use tungstenite::{Error, Message, WebSocket};

/// A topic: its type, and its definition with what it refers to.
type Topics = BTreeMap<String, (String, String)>;

/// What the server can do.
#[derive(Clone, Copy, PartialEq)]
enum Skill {
    /// All of rosapi.
    Full,
    /// Topics without definitions, as before 2019.
    Names,
    /// No rosapi beside it.
    None,
}

struct Server {
    address: SocketAddr,
    state: Arc<State>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    skill: Skill,
    topics: Mutex<Topics>,
    /// In the order in which they were asked for.
    subscribed: Mutex<Vec<String>>,
    latched: Mutex<BTreeMap<String, Vec<u8>>>,
    outgoing: Mutex<Vec<Message>>,
    /// Bytes that go out as they are, under the WebSocket.
    under: Mutex<Vec<u8>>,
    connections: AtomicUsize,
    compressions: Mutex<BTreeSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panicked")
}

impl Server {
    fn start(skill: Skill, topics: &[(&str, &str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener");
        let state = Arc::new(State {
            skill,
            topics: Mutex::default(),
            subscribed: Mutex::default(),
            latched: Mutex::default(),
            outgoing: Mutex::default(),
            under: Mutex::default(),
            connections: AtomicUsize::new(0),
            compressions: Mutex::default(),
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let (shared, end) = (Arc::clone(&state), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        shared.connections.fetch_add(1, Ordering::Relaxed);
                        talk(stream, &shared, &end);
                        lock(&shared.subscribed).clear();
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        let server = Server {
            address,
            state,
            is_over,
            thread: Some(thread),
        };
        for (topic, kind, text) in topics {
            server.add(topic, kind, text);
        }
        server
    }

    fn add(&self, topic: &str, kind: &str, text: &str) {
        let told = (kind.to_owned(), text.to_owned());
        lock(&self.state.topics).insert(topic.to_owned(), told);
    }

    fn remove(&self, topic: &str) {
        lock(&self.state.topics).remove(topic);
    }

    fn address(&self) -> String {
        format!("rosbridge://{}", self.address)
    }

    fn send(&self, message: Message) {
        lock(&self.state.outgoing).push(message);
    }

    fn subscribed(&self) -> Vec<String> {
        lock(&self.state.subscribed).clone()
    }

    fn until_subscribed(&self, topic: &str) {
        eventually("a subscription", || {
            self.subscribed().iter().any(|one| one == topic)
        });
    }

    fn source(&self) -> LiveSource {
        let robot = connect(&self.address()).expect("a robot");
        robot.recent(&RecentOptions::default()).expect("a source")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn talk(stream: TcpStream, state: &State, is_over: &AtomicBool) {
    stream.set_nonblocking(false).expect("a stream");
    let Ok(mut socket) = tungstenite::accept(stream) else {
        return;
    };
    let quick = Some(Duration::from_millis(2));
    socket.get_ref().set_read_timeout(quick).expect("a timeout");
    while !is_over.load(Ordering::Relaxed) {
        match socket.read() {
            Ok(Message::Text(text)) => {
                let said = serde_json::from_str(&text).expect("JSON");
                if obey(&mut socket, state, &said).is_err() {
                    return;
                }
            }
            Ok(Message::Close(_)) => return,
            Ok(_) => {}
            Err(Error::Io(cause))
                if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        let under = std::mem::take(&mut *lock(&state.under));
        if socket.get_mut().write_all(&under).is_err() {
            return;
        }
        for message in std::mem::take(&mut *lock(&state.outgoing)) {
            if socket.send(message).is_err() {
                return;
            }
        }
    }
}

fn obey(socket: &mut WebSocket<TcpStream>, state: &State, said: &Value) -> Result<(), Error> {
    let text = |name: &str| said[name].as_str().expect(name).to_owned();
    match text("op").as_str() {
        "call_service" => {
            let topics = lock(&state.topics).clone();
            let names: Vec<&String> = topics.keys().collect();
            let types: Vec<&String> = topics.values().map(|(kind, _)| kind).collect();
            let texts: Vec<&String> = topics.values().map(|(_, text)| text).collect();
            let service = text("service");
            let values = match (service.as_str(), state.skill) {
                (_, Skill::None) | ("/rosapi/topics_and_raw_types", Skill::Names) => None,
                ("/rosapi/topics", _) => Some(json!({ "topics": names, "types": types })),
                _ => Some(json!({ "topics": names, "types": types, "typedefs_full_text": texts })),
            };
            let is_success = values.is_some();
            let values =
                values.unwrap_or_else(|| format!("Service {service} does not exist").into());
            let answer = json!({
                "op": "service_response", "id": text("id"), "service": service, "values": values,
                "result": is_success,
            });
            socket.send(Message::Text(answer.to_string().into()))
        }
        "subscribe" => {
            let topic = text("topic");
            lock(&state.compressions).insert(text("compression"));
            lock(&state.subscribed).push(topic.clone());
            let kept = lock(&state.latched).get(&topic).cloned();
            match kept {
                Some(payload) => socket.send(raw(&topic, &payload)),
                None => Ok(()),
            }
        }
        "unsubscribe" => {
            let topic = text("topic");
            lock(&state.subscribed).retain(|one| *one != topic);
            Ok(())
        }
        other => panic!("{other}"),
    }
}

/// A message as `cbor-raw` has it.
fn raw(topic: &str, payload: &[u8]) -> Message {
    raw_at(topic, (5, 7), payload)
}

/// The same, with the time that the server claims.
fn raw_at(topic: &str, (secs, nsecs): (i64, i64), payload: &[u8]) -> Message {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes);
    let written = (|| {
        encoder.map(3)?.str("op")?.str("publish")?;
        encoder.str("topic")?.str(topic)?;
        encoder.str("msg")?.map(3)?;
        encoder.str("secs")?.i64(secs)?.str("nsecs")?.i64(nsecs)?;
        encoder.str("bytes")?.bytes(payload)?;
        Ok::<(), minicbor::encode::Error<std::convert::Infallible>>(())
    })();
    written.expect("written");
    Message::Binary(bytes.into())
}

fn as_values(topic: &str, values: &Value) -> String {
    json!({ "op": "publish", "topic": topic, "msg": values }).to_string()
}

const STRING: (&str, &str, &str) = ("/chatter", "std_msgs/msg/String", "string data\n");
const IMU_OF_OURS: &str = "std_msgs/Header header\nfloat64 x\n\
    ================================================================================\nMSG: std_msgs/Header\n\
    builtin_interfaces/Time stamp\nstring frame_id\n\
    ================================================================================\nMSG: builtin_interfaces/Time\n\
    int32 sec\nuint32 nanosec\n";

fn cdr(text: &str) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 0];
    bytes.extend((text.len() as u32 + 1).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
    bytes
}

/// All messages as JSON, with their publish times.
fn heard(source: &LiveSource) -> Vec<(i64, Value)> {
    let mut decoders = Decoders::default();
    let mut all = Vec::new();
    for batch in source.read(&Query::all()).expect("read") {
        let batch = batch.expect("a batch");
        for message in batch.iter() {
            let mut text = Vec::new();
            let decoded = decoders.write_json(message, &mut text);
            assert!(decoded.is_ok(), "{}", message.channel.topic);
            let value = serde_json::from_slice(&text).expect("JSON");
            all.push((message.publish_time.nanos(), value));
        }
    }
    all
}

#[test]
fn raw_messages_are_the_bytes_of_the_robots_wire_with_the_servers_time() {
    let server = Server::start(Skill::Full, &[STRING]);
    let source = server.source();
    server.until_subscribed("/chatter");
    for number in 0..50 {
        server.send(raw("/chatter", &cdr(&format!("word {number}"))));
    }
    eventually("50 messages", || source.stats().messages == 50);
    let heard = heard(&source);
    assert_eq!(heard[49].0, 5_000_000_007);
    assert_eq!(heard[49].1["data"], "word 49");
    let compressions = lock(&server.state.compressions).clone();
    assert_eq!(compressions, BTreeSet::from(["cbor-raw".to_owned()]));
    let summary = source.summary();
    assert_eq!(summary.profile, "ros2");
    assert_eq!(source.robot().info().details["version"], "ROS 2");
}

#[test]
fn a_type_that_only_the_robot_knows_is_decoded_by_the_servers_definition() {
    let server = Server::start(Skill::Full, &[("/imu", "ours/msg/Imu", IMU_OF_OURS)]);
    let source = server.source();
    server.until_subscribed("/imu");
    let mut payload = vec![0, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    payload.extend(1.5_f64.to_le_bytes());
    server.send(raw("/imu", &payload));
    eventually("its message", || source.stats().messages == 1);
    let known = &heard(&source)[0].1;
    assert_eq!(
        (&known["x"], &known["header"]["stamp"]["sec"]),
        (&json!(1.5), &json!(1))
    );
}

#[test]
fn ros_one_is_ros_one() {
    let server = Server::start(
        Skill::Full,
        &[("/chatter", "std_msgs/String", "string data\n")],
    );
    let source = server.source();
    server.until_subscribed("/chatter");
    server.send(raw("/chatter", b"\x05\0\0\0hello"));
    server.send(Message::Text(
        as_values("/chatter", &json!({ "data": "again" })).into(),
    ));
    eventually("both", || source.stats().messages == 2);
    let words: Vec<Value> = heard(&source)
        .into_iter()
        .map(|(_, one)| one["data"].clone())
        .collect();
    assert_eq!(words, ["hello", "again"]);
    assert_eq!(source.summary().profile, "ros1");
}

#[test]
fn values_are_encoded_anew_by_their_type_and_that_is_said() {
    let server = Server::start(Skill::Full, &[STRING]);
    let source = server.source();
    server.until_subscribed("/chatter");
    let whole = as_values("/chatter", &json!({ "data": "in fragments" }));
    server.send(Message::Text(
        as_values("/chatter", &json!({ "data": "plain" })).into(),
    ));
    let (one, two) = whole.split_at(20);
    for (number, data) in [(1, two), (0, one)] {
        let part = json!({ "op": "fragment", "id": 7, "data": data, "num": number, "total": 2 });
        server.send(Message::Text(part.to_string().into()));
    }
    let wrong = as_values("/chatter", &json!({ "data": 5 }));
    server.send(Message::Text(wrong.into()));
    eventually("both", || source.stats().messages == 2);
    let words: Vec<Value> = heard(&source)
        .into_iter()
        .map(|(_, one)| one["data"].clone())
        .collect();
    assert_eq!(words, ["plain", "in fragments"]);
    let statuses = source.robot().info().statuses;
    assert!(
        statuses.iter().any(|one| one.contains("re-encoded")),
        "{statuses:?}"
    );
    eventually("what does not fit is told", || {
        let problems = source.summary().problems.clone();
        problems
            .iter()
            .any(|one| one.to_string().contains("could not be encoded"))
    });
}

#[test]
fn topics_that_come_and_go_are_found_by_looking_and_static_transforms_come_first() {
    let server = Server::start(Skill::Full, &[STRING]);
    let transforms = ("/tf_static", "tf2_msgs/msg/TFMessage", "");
    let source = server.source();
    server.until_subscribed("/chatter");
    lock(&server.state.latched).insert("/tf_static".to_owned(), vec![0, 1, 0, 0, 0, 0, 0, 0]);
    server.add("/a_late_one", "std_msgs/msg/String", "string data\n");
    server.add(transforms.0, transforms.1, transforms.2);
    server.until_subscribed("/a_late_one");
    let order = server.subscribed();
    assert_eq!(order, ["/chatter", "/tf_static", "/a_late_one"]);
    eventually("what was kept", || source.stats().messages == 1);
    // Its definition could not be had from the server; the standard one is known.
    assert_eq!(heard(&source)[0].1["transforms"], json!([]));
    server.remove("/chatter");
    eventually("it is gone", || source.robot().topics().len() == 2);
}

#[test]
fn without_definitions_the_standard_types_are_known() {
    let server = Server::start(Skill::Names, &[STRING]);
    let source = server.source();
    server.until_subscribed("/chatter");
    server.send(raw("/chatter", &cdr("hello")));
    eventually("its message", || source.stats().messages == 1);
    assert_eq!(heard(&source)[0].1["data"], "hello");
}

#[test]
fn without_rosapi_it_is_said_what_to_start() {
    let server = Server::start(Skill::None, &[STRING]);
    let source = server.source();
    eventually("a problem", || {
        let problems = source.robot().problems();
        problems
            .iter()
            .any(|one| one.to_string().contains("start rosapi"))
    });
}

#[test]
fn what_is_malformed_is_counted_and_the_rest_goes_on() {
    let server = Server::start(Skill::Full, &[STRING]);
    let source = server.source();
    server.until_subscribed("/chatter");
    let nonsense = [
        Message::Text("no json".into()),
        Message::Text("{\"op\":\"publish\"}".into()),
        Message::Text("{\"op\":\"png\",\"data\":\"AAAA\"}".into()),
        Message::Text("{\"op\":\"fragment\",\"id\":1,\"data\":\"\",\"num\":9,\"total\":2}".into()),
        Message::Binary(vec![0xff; 9].into()),
        Message::Binary(vec![].into()),
    ];
    let count = nonsense.len();
    for message in nonsense {
        server.send(message);
    }
    server.send(raw("/nobody", &cdr("?")));
    server.send(raw("/chatter", &cdr("hello")));
    eventually("its message", || source.stats().messages == 1);
    let problems = source.summary().problems.clone();
    let expected = format!("{count} messages violated the protocol");
    assert!(
        problems
            .iter()
            .any(|one| one.to_string().contains(&expected)),
        "{problems:?}"
    );
}

#[test]
fn an_oversized_message_ends_the_connection_and_not_the_robot() {
    let server = Server::start(Skill::Full, &[STRING]);
    let source = server.source();
    server.until_subscribed("/chatter");
    // Its header says that a terabyte follows.
    lock(&server.state.under).extend([&[0x82, 127][..], &(1_u64 << 40).to_be_bytes()].concat());
    eventually("a second connection", || {
        server.state.connections.load(Ordering::Relaxed) == 2
    });
    server.until_subscribed("/chatter");
    server.send(raw("/chatter", &cdr("hello")));
    eventually("its message", || source.stats().messages == 1);
    let problems = source.summary().problems.clone();
    let is_told = |one: &asof_core::Problem| one.to_string().contains("above the size limit");
    assert!(problems.iter().any(is_told), "{problems:?}");
}

#[test]
fn a_server_that_lies_about_types_and_times_costs_its_own_messages_alone() {
    let liars = [
        STRING,
        ("/short", "std_msgs/msg/String", "float64[100] data\n"),
        ("/huge", "std_msgs/msg/String", "float64[1000000000] data\n"),
        ("/other", "std_msgs/msg/String", "this is not a definition"),
        ("/deep", "ours/msg/Deep", "ours/Deep again\n"),
        ("/none", "", ""),
    ];
    let server = Server::start(Skill::Full, &liars);
    let source = server.source();
    for topic in ["/chatter", "/short", "/huge", "/other", "/deep"] {
        server.until_subscribed(topic);
        server.send(raw(topic, &cdr("hello")));
    }
    let times = [
        (0, -1),
        (-1, 0),
        (i64::MIN, 0),
        (i64::MAX, i64::MAX),
        (1 << 33, 0),
    ];
    for time in times {
        server.send(raw_at("/chatter", time, &cdr("hello")));
    }
    let expected = 5 + times.len() as u64;
    eventually("all messages", || source.stats().messages == expected);
    let mut decoders = Decoders::default();
    let mut decoded: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for batch in source.read(&Query::all()).expect("read") {
        let batch = batch.expect("a batch");
        for message in batch.iter() {
            let counts = decoded.entry(message.channel.topic.clone()).or_default();
            match decoders.write_json(message, &mut Vec::new()) {
                Ok(()) => counts.0 += 1,
                Err(_) => counts.1 += 1,
            }
        }
    }
    assert_eq!(
        decoded["/chatter"],
        (1 + times.len() as u64, 0),
        "{decoded:?}"
    );
    assert_eq!(decoded["/short"], (0, 1), "{decoded:?}");
    assert_eq!(decoded["/deep"], (0, 1), "{decoded:?}");
    // What is not a definition, or one of gigabytes, is passed over for the one of that name.
    assert_eq!(decoded["/other"], (1, 0), "{decoded:?}");
    assert_eq!(decoded["/huge"], (1, 0), "{decoded:?}");
    assert!(source.robot().is_connected());
}
