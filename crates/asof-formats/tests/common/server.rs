//! A web server, which may be slow, fail, change its files, or know no ranges.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asof_formats::{MappedFile, Storage};

/// How a server behaves.
#[derive(Default)]
pub struct Server {
    /// By path: what it holds, and its version.
    pub files: Mutex<BTreeMap<String, (MappedFile, u64)>>,
    pub latency: Duration,
    /// Of so many requests, one fails.
    pub fails_one_in: u64,
    pub knows_no_ranges: bool,
    /// What stands before the version of a file, by method; `None` says none.
    pub tags: Option<fn(&str) -> Option<&'static str>>,
    /// What it answers to those who ask about a file rather than for it.
    pub answers_head: Option<&'static str>,
    /// What it answers to everybody.
    pub answers: Option<&'static str>,
    /// A path that it hands out to nobody.
    pub keeps: Option<&'static str>,
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
}

impl Server {
    pub fn with_file(bytes: Vec<u8>) -> Self {
        Self::with(MappedFile::from_bytes("run", bytes.into()))
    }

    pub fn with_files(files: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Self {
        let held = files.into_iter().map(|(path, bytes)| {
            let file = MappedFile::from_bytes(path, bytes.into());
            (path.to_owned(), (file, 1))
        });
        Server {
            files: Mutex::new(held.collect()),
            ..Server::default()
        }
    }

    pub fn with(file: MappedFile) -> Self {
        Server {
            files: Mutex::new([("/run".to_owned(), (file, 1))].into()),
            ..Server::default()
        }
    }

    /// Starts to listen; returns the address of the file `/run`.
    pub fn start(self) -> (Arc<Self>, String) {
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

    pub fn swap_file(&self, bytes: Vec<u8>) {
        self.files.lock().expect("no panic").insert(
            "/run".to_owned(),
            (MappedFile::from_bytes("run", bytes.into()), 2),
        );
    }

    pub fn requests(&self) -> u64 {
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
        let answers = self
            .answers
            .or(self.answers_head.filter(|_| head[0].starts_with("HEAD")));
        if let Some(status) = answers {
            return format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes();
        }
        let field = |name: &str| {
            head.iter().find_map(|line| {
                let (found, value) = line.split_once(": ")?;
                found.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        let mut words = head[0].split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if self.keeps == Some(path) {
            return b"HTTP/1.1 403 Kept\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        let files = self.files.lock().expect("no panic");
        let Some((file, version)) = files.get(path) else {
            return b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n".to_vec();
        };
        let tag = format!("\"{version}\"");
        if field("If-Match").is_some_and(|wanted| wanted != tag) {
            return b"HTTP/1.1 412 Changed\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        let last = file.size() - 1;
        let range = field("Range")
            .filter(|_| !self.knows_no_ranges)
            .map(|range| {
                let (from, to) = range["bytes=".len()..].split_once('-').expect("a range");
                let from: u64 = from.parse().expect("a number");
                (from, to.parse().unwrap_or(last).min(last))
            });
        let (status, body) = match range {
            Some((from, to)) => (
                format!(
                    "206 Part\r\nContent-Range: bytes {from}-{to}/{}",
                    file.size()
                ),
                file.fetch(from, to + 1 - from),
            ),
            None => ("200 OK".to_owned(), file.fetch(0, file.size())),
        };
        let body = body.expect("in memory");
        let tag = match self.tags {
            None => format!("ETag: {tag}\r\n"),
            Some(tags) => {
                tags(method).map_or(String::new(), |before| format!("ETag: {before}{tag}\r\n"))
            }
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\n{tag}Last-Modified: Tue, 01 Jul 2025 10:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut answer = answer.into_bytes();
        if method == "GET" {
            self.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
            answer.extend_from_slice(&body);
        }
        answer
    }
}
