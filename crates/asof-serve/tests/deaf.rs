//! Clients that ask and never read: what waits for them is bounded, and the others are served.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use asof_core::testing::eventually;
use asof_serve::ServeOptions;
use common::tape::Tape;
use common::{SECOND, Served, json_channel, logged, options, serve};
use serde_json::{Value, json};

const BUDGET: usize = 40 << 20;

fn small() -> ServeOptions {
    let mut small = options();
    small.limits.waiting_bytes = BUDGET;
    small.limits.answer_bytes = 64 << 20;
    small.limits.stalled_after = Duration::from_millis(500);
    small
}

/// Texts of so many bytes, a hundred a second.
fn texts(count: i64, bytes: usize) -> Tape {
    let channel = json_channel("/text");
    let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(bytes));
    let payload = bytes::Bytes::from(payload);
    Tape::new((0..count).map(|at| logged(&channel, at * SECOND / 100, payload.clone())))
}

fn waiting(served: &Served) -> Value {
    served.server.status()["waiting"].clone()
}

fn within_budget(served: &Served, slack: usize) {
    let peak = waiting(served)["peak"].as_u64().expect("a number");
    assert!(peak <= (BUDGET + slack) as u64, "{peak}");
}

/// An answer that no system's buffers hold: 20 MB.
const LARGE: &str = "/api/messages?topic=/text&last=350";

#[test]
fn requests_whose_answers_are_never_read_are_let_go_and_others_are_answered() {
    let served = serve(texts(400, 60_000), &small());
    let deaf: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(served.address()).expect("connect");
            write!(stream, "GET {LARGE} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("send");
            stream
        })
        .collect();
    // There may be no room at first: then it says so, and has some once the others are let go.
    let (mut refused, mut whole) = (0, served.get(LARGE));
    eventually("room", || {
        if whole.status == 503 {
            refused += 1;
            whole = served.get(LARGE);
        }
        whole.status != 503
    });
    assert_eq!(whole.status, 200);
    assert!(whole.body.len() > 20_000_000);
    // There is room for one of them at a time, for two with what the system's buffers hold. The last ones may stay, since nobody
    // needs their room; each of the others was let go, or refused when its turn did not come soon enough.
    let count = |status: &Value, what: &str| status[what].as_u64().expect("a number");
    eventually("the end of six that are not read", || {
        let status = waiting(&served);
        let gone = count(&status, "let_go") + count(&status, "refused") - refused;
        count(&status, "let_go") > 0 && gone >= 6
    });
    within_budget(&served, 0);
    assert_eq!(served.get("/api/summary").status, 200);
    drop(deaf);
}

#[test]
fn an_answer_that_is_larger_than_all_that_may_wait_is_sent_in_parts_and_a_message_that_is_is_refused()
 {
    let mut tiny = small();
    tiny.limits.waiting_bytes = 1 << 20;
    let served = serve(texts(100, 60_000), &tiny);
    let answer = served.get("/api/messages?topic=/text&last=50");
    assert_eq!((answer.status, answer.body.len() > 3_000_000), (200, true));
    assert_eq!(answer.json().as_array().map(Vec::len), Some(50));
    let peak = waiting(&served)["peak"].as_u64().expect("a number");
    assert!(peak <= 1 << 20, "{peak}");
    let served = serve(texts(1, 300_000), &tiny);
    assert_eq!(served.get("/api/messages?topic=/text&last=1").status, 503);
    assert_eq!(served.server.status()["refused"]["no_room"], 1);
}

#[test]
fn connections_that_are_of_no_use_make_place_for_one_that_is() {
    let mut few = small();
    few.limits.connections = 4;
    let served = serve(texts(400, 60_000), &few);
    let idle: Vec<TcpStream> = (0..4)
        .map(|_| TcpStream::connect(served.address()).expect("connect"))
        .collect();
    eventually("a place", || served.get("/api/status").status == 200);
    drop(idle);
}

#[test]
fn websockets_that_are_never_read_share_one_budget_and_others_hear_everything_they_can() {
    // Three megabytes a message: any twelve of them are too many.
    let channel = json_channel("/large");
    let payload = bytes::Bytes::from(vec![b' '; 3 << 20]);
    let message = |at: i64| logged(&channel, at * SECOND / 10, payload.clone());
    let served = serve(Tape::new((0..20).map(message)), &small());
    let subscribe = json!({ "op": "subscribe", "subscriptions": [{ "id": 1, "channelId": 0 }] });
    let deaf: Vec<_> = (0..12)
        .map(|_| {
            let mut client = served.connect_with("/", "foxglove.websocket.v1");
            client.say(&subscribe);
            client
        })
        .collect();
    let mut client = served.connect_with("/", "foxglove.websocket.v1");
    client.say(&subscribe);
    let mut heard = 0;
    while heard < 30 {
        if let tungstenite::Message::Binary(bytes) = client.socket.read().expect("a message") {
            heard += usize::from(bytes[0] == 1);
        }
    }
    // What has to be said is said whatever waits, and is small.
    within_budget(&served, 1 << 20);
    drop(deaf);
}

#[test]
fn a_client_that_asks_and_takes_no_answers_is_not_listened_to() {
    let mut small = small();
    small.limits.outbox_bytes = 100_000;
    let served = serve(texts(10, 10), &small);
    let mut client = served.connect_with("/", "foxglove.websocket.v1");
    let stream = client.socket.get_mut();
    stream
        .set_write_timeout(Some(Duration::from_secs(2)))
        .expect("set");
    // An unknown command of 100 bytes has an answer of about as many. More than all buffers on the way hold, of it.
    let command = json!({ "op": "x".repeat(59) }).to_string();
    let mut frame = vec![0x81, 0x80 | command.len() as u8, 0, 0, 0, 0];
    frame.extend(command.as_bytes());
    let many: Vec<u8> = frame.repeat(10_000);
    let mut sent = 0;
    while sent < 60 && stream.write_all(&many).is_ok() {
        sent += 1;
    }
    assert!(sent < 60, "the server listened to all of it");
    within_budget(&served, 0);
    let used = waiting(&served)["peak"].as_u64().expect("a number");
    assert!(used < 20_000_000, "{used}");
}
