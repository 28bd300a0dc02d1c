//! `asof serve` and the end of `asof demo`, as a person or a script starts them.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use common::{Folder, asof};

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts it and waits for the address.
fn start(folder: &Folder, line: &str) -> (Running, String) {
    let mut child = asof()
        .args(line.split(' '))
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    let out = child.stdout.take().expect("an output");
    let running = Running(child);
    let line = BufReader::new(out)
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("Open http"))
        .expect("an address");
    (
        running,
        line["Open http://".len()..]
            .trim_end_matches('/')
            .to_owned(),
    )
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

#[test]
fn serve_says_where_and_shows_the_recording() {
    let folder = Folder::with_demo();
    let (_running, address) = start(&folder, "serve run.mcap --listen 127.0.0.1:0 --no-open");
    assert!(get(&address, "/").contains("/app.js"));
    assert!(get(&address, "/api/summary").contains("/odom"));
}

#[test]
fn serve_shows_several_recordings_as_one() {
    let folder = Folder::with_demo();
    folder.run("demo -o other.mcap --seconds 1 --seed 9");
    let (_running, address) = start(&folder, "serve run.mcap other.mcap --listen 0");
    assert!(get(&address, "/api/summary").contains("run.mcap and 1 more"));
}

#[test]
fn demo_serves_when_it_is_asked_to() {
    let folder = Folder::empty();
    let (_running, address) = start(&folder, "demo --seconds 1 --serve --listen 0");
    assert!(get(&address, "/api/summary").contains("asof-demo.mcap"));
}

#[test]
fn demo_in_a_script_ends_by_itself() {
    let folder = Folder::empty();
    assert_eq!(folder.exit_code("demo --seconds 1"), 0);
    assert_eq!(folder.exit_code("demo --seconds 1 --no-serve"), 0);
    assert_eq!(folder.exit_code("demo --seconds 1 --serve --no-serve"), 2);
}

#[test]
fn serve_of_what_is_no_recording_fails_at_once() {
    let folder = Folder::with_demo();
    assert_eq!(folder.exit_code("serve nowhere.mcap"), 1);
    assert_eq!(folder.exit_code("serve run.mcap --listen nonsense"), 2);
    assert_eq!(folder.exit_code("serve"), 2);
}

#[test]
#[cfg(not(feature = "live"))]
fn serve_of_a_robot_says_how_to_get_it_where_it_is_not_built_in() {
    let output = asof()
        .args(["serve", "zenoh://127.0.0.1:1"])
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--features live"), "{said}");
}
