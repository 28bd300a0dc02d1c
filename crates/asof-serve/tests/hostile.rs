//! Those who mean no good: refused, counted, and nobody else notices.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use asof_core::testing::eventually;
use asof_serve::ServeOptions;
use common::{Served, demo, demo_with, options};
use serde_json::json;
use tungstenite::Message;

fn refused(served: &Served, sort: &str) -> u64 {
    served.server.status()["refused"][sort]
        .as_u64()
        .expect("a count")
}

fn still_serves(served: &Served) {
    assert_eq!(served.get("/api/summary").status, 200);
    let mut client = served.connect();
    client.find_op("hello");
}

#[test]
fn a_request_for_another_host_is_refused() {
    let served = demo(1);
    for host in [
        "evil.example",
        "localhost.evil.example:80",
        "192.168.0.7",
        "",
    ] {
        let answer = served.ask("/api/summary", &[("host", host)]);
        assert!(
            answer.status == 421 || answer.status == 400,
            "{host}: {}",
            answer.status
        );
        assert!(!String::from_utf8_lossy(&answer.body).contains("/odom"));
    }
    assert_eq!(
        served
            .send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            .status,
        421
    );
    assert!(refused(&served, "host") >= 4);
    still_serves(&served);
}

#[test]
fn a_page_of_another_site_may_not_connect() {
    let served = demo(1);
    let origin = [("host", "localhost"), ("origin", "https://evil.example")];
    let answer = served.ask("/api/summary", &origin);
    assert_eq!(answer.status, 403);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let flag = "--allow-origin https://evil.example";
    assert!(text.contains(flag), "{text}");
    for protocol in ["asof.v1", "foxglove.sdk.v1"] {
        let tried = served.try_connect("/ws", protocol, &[("origin", "https://evil.example")]);
        assert!(tried.is_err_and(|error| error.contains("403")));
    }
    assert_eq!(refused(&served, "origin"), 3);
    still_serves(&served);
}

#[test]
fn a_page_of_another_site_cannot_have_work_done_that_it_may_not_see() {
    let served = demo(1);
    for site in ["cross-site", "same-site"] {
        for path in ["/api/rows?topic=/odom&paths=x", "/api/summary", "/ws"] {
            let headers = [("host", "localhost"), ("sec-fetch-site", site)];
            assert_eq!(served.ask(path, &headers).status, 403, "{site} {path}");
        }
    }
    assert_eq!(refused(&served, "site"), 6);
    let own = [("host", "localhost"), ("sec-fetch-site", "same-origin")];
    assert_eq!(served.ask("/api/summary", &own).status, 200);
    still_serves(&served);
}

#[test]
fn a_request_with_two_origins_is_refused() {
    let served = demo(1);
    let own = format!("http://{}", served.address());
    let host = served.address().to_string();
    let origins = [
        ("host", &*host),
        ("origin", &*own),
        ("origin", "https://evil.example"),
    ];
    assert_eq!(served.ask("/api/summary", &origins[..2]).status, 200);
    assert_eq!(served.ask("/api/summary", &origins).status, 403);
}

#[test]
fn every_answer_has_the_headers_that_keep_a_browser_in_check() {
    let served = with_token();
    let ask = |path, headers: &[(&str, &str)]| served.ask(path, headers);
    let bearer = ("authorization", "Bearer 0123456789abcdef");
    let host = ("host", "localhost");
    let answers = [
        (421, ask("/", &[("host", "evil.example")])),
        (403, ask("/", &[host, ("origin", "https://evil.example")])),
        (
            403,
            ask("/api/at", &[host, ("sec-fetch-site", "cross-site")]),
        ),
        (401, ask("/", &[host])),
        (303, ask("/?token=0123456789abcdef", &[host])),
        (404, ask("/none", &[host, bearer])),
        (400, ask("/ws", &[host, bearer])),
        (400, ask("/api/message", &[host, bearer])),
        (200, ask("/api/summary", &[host, bearer])),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{}", answer.head);
        for name in [
            "content-security-policy",
            "x-content-type-options",
            "x-frame-options",
            "referrer-policy",
            "cross-origin-resource-policy",
            "cache-control",
        ] {
            assert!(answer.head.contains(name), "{status} lacks {name}");
        }
    }
}

#[test]
fn a_site_that_was_allowed_may_connect() {
    let allowed = ServeOptions {
        origins: vec!["https://app.foxglove.dev".to_owned()],
        ..options()
    };
    let served = demo_with(1, asof_demo::DemoEncoding::Cdr, &allowed);
    let headers = [("origin", "https://app.foxglove.dev")];
    assert!(served.try_connect("/", "foxglove.sdk.v1", &headers).is_ok());
}

fn with_token() -> Served {
    let with_token = ServeOptions {
        token: Some("0123456789abcdef".to_owned()),
        ..options()
    };
    demo_with(1, asof_demo::DemoEncoding::Cdr, &with_token)
}

#[test]
fn a_change_with_the_token_in_its_address_is_carried_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let with_token = ServeOptions {
        token: Some("0123456789abcdef".to_owned()),
        annotations: Some(folder.path().join("notes.json")),
        ..options()
    };
    let served = demo_with(1, asof_demo::DemoEncoding::Cdr, &with_token);
    let post = "POST /api/annotations?token=0123456789abcdef&start=0&text=x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let answer = served.send(post.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.head);
    assert_eq!(answer.json()[0]["text"], "x");
}

#[test]
fn a_client_that_pings_and_never_reads_is_not_listened_to() {
    let served = demo(1);
    for (path, protocol) in [("/ws", "asof.v1"), ("/", "foxglove.sdk.v1")] {
        let mut client = served.connect_with(path, protocol);
        let stream = client.socket.get_mut();
        stream
            .set_write_timeout(Some(Duration::from_secs(2)))
            .expect("a timeout");
        // A masked ping of 125 bytes.
        let mut ping = vec![0x89, 0x80 + 125, 0, 0, 0, 0];
        ping.extend([7; 125]);
        let many = ping.repeat(500);
        let most = 64 << 20;
        let mut sent = 0;
        while sent < most {
            match stream.write(&many) {
                Ok(bytes) => sent += bytes,
                Err(_) => break,
            }
        }
        assert!(sent < most, "{protocol}: {sent} bytes of pings were taken");
    }
    still_serves(&served);
}

#[test]
fn without_the_token_there_is_nothing() {
    let served = with_token();
    for path in [
        "/",
        "/api/summary",
        "/app.js",
        "/?token=wrong",
        "/ws",
        "/api/summary?token=",
    ] {
        assert_eq!(served.get(path).status, 401, "{path}");
    }
    assert!(served.try_connect("/ws", "asof.v1", &[]).is_err());
    assert!(served.try_connect("/ws?token=no", "asof.v1", &[]).is_err());
    assert_eq!(refused(&served, "token"), 8);
}

#[test]
fn the_token_goes_from_the_address_into_a_cookie() {
    let served = with_token();
    assert!(served.server.url().ends_with("/?token=0123456789abcdef"));
    let first = served.get("/?token=0123456789abcdef&x=1");
    assert_eq!(first.status, 303);
    let cookie = first
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    assert!(first.head.contains("location: /?x=1"));
    let pair = cookie.split(';').next().expect("a pair");
    let again = served.ask("/", &[("host", "localhost"), ("cookie", pair)]);
    assert_eq!(again.status, 200);
    assert!(
        served
            .try_connect("/ws", "asof.v1", &[("cookie", pair)])
            .is_ok()
    );
    assert!(
        served
            .try_connect("/?token=0123456789abcdef", "foxglove.sdk.v1", &[])
            .is_ok()
    );
}

#[test]
fn another_address_than_this_machine_needs_a_token() {
    let open = ServeOptions {
        listen: std::net::SocketAddr::from(([0, 0, 0, 0], 0)),
        ..options()
    };
    let served = demo_with(1, asof_demo::DemoEncoding::Cdr, &open);
    let url = served.server.url();
    let (_, token) = url.split_once("?token=").expect("a token");
    assert_eq!(token.len(), 32);
    let port = served.address().port();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    write!(
        stream,
        "GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"
    )
    .expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    assert!(answer.starts_with("HTTP/1.1 401"));
}

#[test]
fn nothing_outside_of_the_page_can_be_reached() {
    let served = demo(1);
    for path in [
        "/../Cargo.toml",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/app.js/../../lib.rs",
        "/index.html%00",
        "/api/../../etc/passwd",
        "/\\..\\x",
    ] {
        let answer = served.get(path);
        assert!(
            answer.status == 404 || answer.status == 400,
            "{path}: {}",
            answer.status
        );
        assert!(answer.body.len() < 200);
    }
    assert_eq!(served.send(b"POST /api/summary HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").status, 400);
    still_serves(&served);
}

#[test]
fn questions_that_make_no_sense_are_answered_with_an_error() {
    let served = demo(1);
    for path in [
        "/api/message",
        "/api/message?topic=/none&t=1",
        "/api/message?topic=/odom&t=x",
        "/api/series?columns=0",
        "/api/series?columns=999999999",
        "/api/density?columns=-1",
        "/api/message?topic=/odom&form=music",
    ] {
        let status = served.get(path).status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    for path in [
        "/api/message?topic=/odom&t=9223372036854775807",
        "/api/at?t=9223372036854775807&topics=/odom",
        "/api/messages?topic=/odom&start=9223372036854775807&end=-9223372036854775808",
        "/api/frames?t=-9223372036854775808",
        "/api/series?topic=/odom&path=a&start=5&end=-5",
        "/api/rows?topic=/odom&paths=,,,[",
        "/api/states?topic=/odom&path=[[[",
    ] {
        assert!(served.get(path).status < 500, "{path}");
    }
    still_serves(&served);
}

#[test]
fn commands_that_are_none_are_answered_and_the_client_stays() {
    let served = demo(1);
    let mut client = served.connect();
    for text in [
        "",
        "{}",
        "[1]",
        "[{\"op\":\"play\"}, {}]",
        "{\"op\":\"fly\"}",
        "{\"op\":\"seek\"}",
        "{\"op\":\"seek\",\"t\":1e99}",
        "\u{0}",
    ] {
        client
            .socket
            .send(Message::Text(text.into()))
            .expect("send");
        client.find_op("error");
    }
    client
        .socket
        .send(Message::Binary(vec![1, 2, 3].into()))
        .expect("send");
    for command in [
        json!({ "op": "seek", "t": i64::MAX }),
        json!({ "op": "seek", "t": i64::MIN }),
        json!({ "op": "speed", "times": -3 }),
        json!({ "op": "step", "by": i64::MIN }),
        json!({ "op": "subscribe", "topic": "/odom", "form": "points" }),
        json!({ "op": "unsubscribe", "topic": "/never", "form": "json" }),
    ] {
        client.say(&command);
    }
    client.say(&json!({ "op": "speed", "times": 3 }));
    client.find(|message| message["speed"] == 3.0);
}

#[test]
fn a_client_cannot_subscribe_without_end() {
    let served = demo(1);
    let mut client = served.connect();
    for index in 0..600 {
        client.say(&json!({ "op": "subscribe", "topic": format!("/{index}"), "form": "json" }));
    }
    let error = client.find_op("error");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("too many"))
    );
}

#[test]
fn a_message_that_is_too_long_ends_the_connection() {
    let served = demo(1);
    let mut client = served.connect();
    client.find_op("hello");
    let long = "x".repeat(200 << 10);
    let sent = client.socket.send(Message::Text(long.into()));
    let heard = std::iter::from_fn(|| client.socket.read().ok())
        .take(1000)
        .count();
    assert!(sent.is_err() || heard < 1000);
    assert_eq!(refused(&served, "oversized"), 1);
    still_serves(&served);
}

#[test]
fn bytes_that_are_no_frames_end_the_connection() {
    let served = demo(1);
    for garbage in [
        &[0xff; 64][..],
        &[0x00; 64],
        &[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x83, 0x80, 1, 2, 3, 4],
    ] {
        let mut client = served.connect();
        client.find_op("hello");
        client.socket.get_mut().write_all(garbage).expect("send");
        let stream = client.socket.get_ref();
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("shut down");
        while client.socket.read().is_ok() {}
    }
    let broken = refused(&served, "malformed") + refused(&served, "oversized");
    assert!(broken >= 2, "{broken}");
    still_serves(&served);
}

#[test]
fn a_thousand_connections_that_come_and_go_leave_nothing_behind() {
    let served = demo(1);
    for round in 0..1000 {
        let mut stream = TcpStream::connect(served.address()).expect("connect");
        match round % 4 {
            0 => {}
            1 => stream.write_all(b"GET / HT").expect("send"),
            2 => stream
                .write_all(b"\x16\x03\x01\x02\x00\x01\x00")
                .expect("send"),
            _ => stream
                .write_all(b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n\r\n")
                .expect("send"),
        }
    }
    for _ in 0..20 {
        drop(served.connect());
    }
    eventually("the end of clients that went", || {
        served.server.status()["clients"] == 0
    });
    still_serves(&served);
}

#[test]
fn more_clients_than_there_is_room_for_are_turned_away() {
    let mut few = options();
    few.limits.clients = 2;
    let served = demo_with(1, asof_demo::DemoEncoding::Cdr, &few);
    let (first, second) = (served.connect(), served.connect());
    let third = served.try_connect("/ws", "asof.v1", &[]);
    assert!(third.is_err_and(|error| error.contains("503")));
    drop((first, second));
    eventually("room", || served.try_connect("/ws", "asof.v1", &[]).is_ok());
}
