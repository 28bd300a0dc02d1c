//! Recordings on a web server: a small one, which is slow, fails, changes its files, or knows no ranges.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asof_core::{Channel, Message, Query, Source, Stamp, Topics};
use asof_formats::{Compression, McapFile, McapWriter, McapWriterOptions, open};
use common::bags::BagMaker;
use common::messages;

/// How a server behaves.
#[derive(Default)]
struct Server {
    files: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
    latency: Duration,
    /// Of so many requests, one fails.
    fails_one_in: u64,
    knows_no_ranges: bool,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Server {
    fn with_file(bytes: Vec<u8>) -> Self {
        Server {
            files: Mutex::new([("/run".to_owned(), (bytes, 1))].into()),
            ..Server::default()
        }
    }

    /// Starts to listen; returns the address of the file.
    fn start(self) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = format!("http://{}/run", listener.local_addr().expect("an address"));
        let server = Arc::new(self);
        let shared = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&shared);
                std::thread::spawn(move || server.serve(stream));
            }
        });
        (server, address)
    }

    fn swap_file(&self, bytes: Vec<u8>) {
        self.files
            .lock()
            .expect("no panic")
            .insert("/run".to_owned(), (bytes, 2));
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Answers requests on one connection until it is closed.
    fn serve(&self, stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().expect("a clone"));
        let mut stream = stream;
        loop {
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                if lines.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push(line.trim().to_owned());
            }
            if stream.write_all(&self.answer(&head)).is_err() {
                return;
            }
        }
    }

    fn answer(&self, head: &[String]) -> Vec<u8> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.latency);
        if self.fails_one_in > 0 && number % self.fails_one_in == self.fails_one_in - 1 {
            return b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        let field = |name: &str| {
            head.iter().find_map(|line| {
                let (found, value) = line.split_once(": ")?;
                found.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        let mut words = head[0].split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let files = self.files.lock().expect("no panic");
        let Some((bytes, version)) = files.get(path) else {
            return b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n".to_vec();
        };
        let tag = format!("\"{version}\"");
        if field("If-Match").is_some_and(|wanted| wanted != tag) {
            return b"HTTP/1.1 412 Changed\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        let last = bytes.len() - 1;
        let range = field("Range")
            .filter(|_| !self.knows_no_ranges)
            .map(|range| {
                let (from, to) = range["bytes=".len()..].split_once('-').expect("a range");
                let from: usize = from.parse().expect("a number");
                (from, to.parse().unwrap_or(last).min(last))
            });
        let (status, body) = match range {
            Some((from, to)) => (
                format!(
                    "206 Part\r\nContent-Range: bytes {from}-{to}/{}",
                    bytes.len()
                ),
                &bytes[from..=to],
            ),
            None => ("200 OK".to_owned(), &bytes[..]),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nETag: {tag}\r\nLast-Modified: Tue, 01 Jul 2025 10:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut answer = answer.into_bytes();
        if method == "GET" {
            self.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
            answer.extend_from_slice(body);
        }
        answer
    }
}

/// 8 MB on two topics, in 500 chunks; `/rare` is in the first of them only.
fn recording() -> Vec<u8> {
    let options = McapWriterOptions {
        compression: Compression::None,
        chunk_size: 16 << 10,
        chunk_age: None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::new(Cursor::new(Vec::new()), options).expect("a writer");
    let channel = |topic: &str| {
        Arc::new(Channel {
            topic: topic.into(),
            ..Channel::default()
        })
    };
    let (often, rare) = (channel("/often"), channel("/rare"));
    for index in 0..8000i64 {
        let channel = if index == 3 { &rare } else { &often };
        writer
            .write(&Message {
                channel: Arc::clone(channel),
                log_time: Stamp::from_nanos(index * 1_000_000),
                publish_time: Stamp::from_nanos(index),
                sequence: index as u32,
                payload: vec![index as u8; 1000].into(),
            })
            .expect("writes");
    }
    writer.finish().expect("finishes").into_inner()
}

fn local(bytes: &[u8]) -> McapFile {
    McapFile::from_bytes("local", bytes.to_vec()).expect("opens")
}

#[test]
fn a_remote_recording_reads_as_the_local_one() {
    let bytes = recording();
    let (_, address) = Server::with_file(bytes.clone()).start();
    let remote = open(&address).expect("opens");
    assert_eq!(remote.summary().messages, Some(8000));
    assert!(messages(&*remote, &Query::all()) == messages(&local(&bytes), &Query::all()));
    assert_eq!(remote.summary().problems, []);
}

#[test]
fn opening_makes_at_most_four_requests() {
    let (server, address) = Server::with_file(recording()).start();
    let remote = open(&address).expect("opens");
    assert_eq!(remote.summary().channels.len(), 2);
    assert!(server.requests() <= 4, "{} requests", server.requests());
}

#[test]
fn a_look_at_a_moment_fetches_a_small_part() {
    let bytes = recording();
    let (server, address) = Server::with_file(bytes.clone()).start();
    let remote = open(&address).expect("opens");
    let at = Stamp::from_nanos(4_000_000_000);
    let found = remote.backfill(&Topics::All, at).expect("reads");
    let wanted = local(&bytes).backfill(&Topics::All, at).expect("reads");
    let plain = |batch: &asof_core::Batch| -> Vec<Message> {
        batch.iter().map(|message| message.to_message()).collect()
    };
    assert!(plain(&found) == plain(&wanted));
    let second = at..=at.plus_nanos(1_000_000_000);
    assert_eq!(
        messages(&*remote, &Query::all().between(second)).len(),
        1001
    );
    let fetched = server.bytes.load(Ordering::Relaxed);
    assert!(
        fetched < bytes.len() as u64 / 2,
        "{fetched} of {}",
        bytes.len()
    );
}

#[test]
fn a_slow_server_that_fails_now_and_then_costs_patience_and_nothing_else() {
    let bytes = recording();
    let server = Server {
        latency: Duration::from_millis(50),
        fails_one_in: 5,
        ..Server::with_file(bytes.clone())
    };
    let (_, address) = server.start();
    let remote = open(&address).expect("opens");
    let at = Stamp::from_nanos(7_000_000_000);
    assert_eq!(remote.backfill(&Topics::All, at).expect("reads").len(), 2);
    assert!(messages(&*remote, &Query::all()) == messages(&local(&bytes), &Query::all()));
}

#[test]
fn a_file_that_is_swapped_while_it_is_read_is_an_error() {
    let (server, address) = Server::with_file(recording()).start();
    let remote = open(&address).expect("opens");
    let mut batches = remote.read(&Query::all()).expect("reads");
    assert!(batches.next().expect("a batch").is_ok());
    let mut other = recording();
    other.rotate_left(100);
    server.swap_file(other);
    let error = batches.find_map(Result::err).expect("an error");
    assert!(
        error
            .to_string()
            .contains("changed while it was being read"),
        "{error}"
    );
}

#[test]
fn a_server_without_ranges_is_told_of() {
    let server = Server {
        knows_no_ranges: true,
        ..Server::with_file(recording())
    };
    let (_, address) = server.start();
    let error = open(&address).map(|_| ()).expect_err("is refused");
    assert!(
        error.to_string().contains("does not hand out ranges"),
        "{error}"
    );
}

#[test]
fn an_address_without_a_file_is_told_of() {
    let (_, address) = Server::with_file(recording()).start();
    let error = open(address.replace("/run", "/other"))
        .map(|_| ())
        .expect_err("is refused");
    assert!(error.to_string().contains("no such file there"), "{error}");
}

#[test]
fn a_bag_is_read_in_place_too() {
    let mut maker = BagMaker::new("lz4");
    maker.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    for second in 0..50 {
        maker.chunk(&[(0, (second, 0), b"here"), (0, (second, 5), b"there")]);
    }
    let (server, address) = Server::with_file(maker.finish()).start();
    let remote = open(&address).expect("opens");
    assert!(server.requests() <= 4, "{} requests", server.requests());
    assert_eq!(messages(&*remote, &Query::all()).len(), 100);
    assert_eq!(remote.summary().problems, []);
}
