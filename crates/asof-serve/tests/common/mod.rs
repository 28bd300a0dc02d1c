//! A demo recording, served; and small clients to ask with.
#![allow(dead_code)] // Each test uses a part of it.

pub mod tape;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{Channel, Message as Logged, Source, Stamp};
use asof_demo::{Demo, DemoEncoding, DemoOptions};
use asof_serve::{ServeOptions, Server};
use serde_json::Value;
use tape::Tape;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

/// Long enough for any machine to answer, however busy it is.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// A second, in nanoseconds.
pub const SECOND: i64 = 1_000_000_000;

pub struct Served {
    pub server: Server,
}

/// So many seconds of the demo.
pub fn demo(seconds: u64) -> Served {
    demo_with(seconds, DemoEncoding::Cdr, &options())
}

pub fn options() -> ServeOptions {
    let mut options = ServeOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..ServeOptions::default()
    };
    options.limits.dropped_after = PATIENCE;
    options
}

pub fn demo_with(seconds: u64, encoding: DemoEncoding, options: &ServeOptions) -> Served {
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(seconds),
        encoding,
        ..DemoOptions::default()
    });
    serve(Tape::new(demo.messages()), options)
}

pub fn serve(source: impl Source + 'static, options: &ServeOptions) -> Served {
    let server = Server::start(Arc::new(source), "run.mcap", options).expect("start");
    Served { server }
}

/// Where recordings that are made by hand start.
pub const START: i64 = 1_700_000_000 * SECOND;

/// A channel of JSON, which needs no schema.
pub fn json_channel(topic: &str) -> Arc<Channel> {
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "json".to_owned(),
        ..Channel::default()
    })
}

/// A message, `t` nanoseconds after the start.
pub fn logged(channel: &Arc<Channel>, t: i64, payload: impl Into<bytes::Bytes>) -> Logged {
    let at = Stamp::from_nanos(START + t);
    Logged {
        channel: Arc::clone(channel),
        log_time: at,
        publish_time: at,
        sequence: 0,
        payload: payload.into(),
    }
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Served {
    /// A server that was started elsewhere.
    pub fn of(server: Server) -> Self {
        Served { server }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask(path, &[("host", "localhost")])
    }

    /// A request as a person would write it, and the whole answer.
    pub fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut text = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        text.push_str("\r\n");
        self.send(text.as_bytes())
    }

    pub fn send(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address()).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream.write_all(request).expect("send");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("read");
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        let mut body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        if head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked")
        {
            body = unchunked(&body);
        }
        Answer { status, head, body }
    }

    pub fn connect(&self) -> Client {
        self.connect_with("/ws", "asof.v1")
    }

    pub fn connect_with(&self, path: &str, protocol: &str) -> Client {
        self.try_connect(path, protocol, &[]).expect("a WebSocket")
    }

    pub fn try_connect(
        &self,
        path: &str,
        protocol: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Client, String> {
        let url = format!("ws://{}{path}", self.address());
        let mut request = url.into_client_request().expect("a request");
        // Some clients offer none.
        if !protocol.is_empty() {
            let protocol = protocol.parse().expect("a protocol");
            request
                .headers_mut()
                .insert("sec-websocket-protocol", protocol);
        }
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(*name, value.parse().expect("a value"));
        }
        let stream = TcpStream::connect(self.address()).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let (socket, answer) =
            tungstenite::client(request, stream).map_err(|error| error.to_string())?;
        let protocol = answer.headers().get("sec-websocket-protocol");
        let protocol = protocol.map(|name| name.to_str().expect("text").to_owned());
        Ok(Client { socket, protocol })
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        all.extend(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
    all
}

pub struct Client {
    pub socket: WebSocket<TcpStream>,
    /// The subprotocol that the server chose.
    pub protocol: Option<String>,
}

impl Client {
    pub fn say(&mut self, command: &Value) {
        self.socket
            .send(Message::Text(command.to_string().into()))
            .expect("send");
    }

    /// The next message of the server; of a binary one, its head.
    pub fn next(&mut self) -> Value {
        loop {
            match self.socket.read().expect("a message") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Binary(bytes) => {
                    let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
                    let mut head: Value =
                        serde_json::from_slice(&bytes[4..4 + len]).expect("a head in JSON");
                    head["body_bytes"] = (bytes.len() - 4 - len).into();
                    return head;
                }
                _ => {}
            }
        }
    }

    /// The first message for which this holds.
    pub fn find(&mut self, mut is_meant: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let message = self.next();
            if is_meant(&message) {
                return message;
            }
        }
        panic!("the server never said it");
    }

    pub fn find_op(&mut self, op: &str) -> Value {
        self.find(|message| message["op"] == op)
    }

    pub fn find_on(&mut self, topic: &str) -> Value {
        self.find(|message| message["op"] == "message" && message["topic"] == topic)
    }
}
