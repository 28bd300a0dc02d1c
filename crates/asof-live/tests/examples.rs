//! The three examples, run together as processes of their own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Ends a process that the test started, whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn example(name: &str) -> PathBuf {
    // target/debug/deps/examples-… → target/debug/examples/NAME, where cargo test builds them.
    let test = std::env::current_exe().expect("a path");
    let profile = test
        .parent()
        .and_then(std::path::Path::parent)
        .expect("a target folder");
    profile.join("examples").join(name)
}

#[test]
fn the_talker_is_heard_by_both_windows() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    assert!(
        example("talker").exists(),
        "the examples are not built: `cargo test -p asof-live` builds them, `--test examples` alone does not"
    );
    let talker = Command::new(example("talker"))
        .arg(format!("zenoh://?listen=127.0.0.1:{port}"))
        .spawn()
        .expect("started");
    let _talker = Running(talker);
    let listen = |name| {
        Command::new(example(name))
            .args([format!("zenoh://127.0.0.1:{port}"), "3".to_owned()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started")
    };
    let listeners = ["window_by_transport_time", "window_by_application_time"].map(listen);
    for listener in listeners {
        let output = listener.wait_with_output().expect("ended");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success());
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.lines().all(|line| line.contains("'message ")),
            "{text}"
        );
    }
}
