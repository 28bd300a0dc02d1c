//! A folder to run `asof` in, and what it said there.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod film;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};

use asof::formats::{Attachment, McapWriter, McapWriterOptions};
use asof::{Channel, Message, Schema, Stamp};

/// The program under test, as a person without colours or a terminal would run it.
pub fn asof() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asof"));
    command.env_remove("NO_COLOR").env("COLUMNS", "100");
    command
}

/// A topic of ROS 2 messages of a type, with its definition.
pub fn ros2(topic: &str, name: &str, text: &str) -> Arc<Channel> {
    let schema = Schema {
        name: name.to_owned(),
        encoding: "ros2msg".to_owned(),
        data: text.to_owned().into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(Arc::new(schema)),
        ..Channel::default()
    })
}

/// A folder of its own for each test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn empty() -> Self {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// With `run.mcap`: a second of the demo.
    pub fn with_demo() -> Self {
        let folder = Folder::empty();
        fs::write(folder.path("run.mcap"), demo()).expect("write");
        folder
    }

    /// What a command says here that has these limits of the shell, with this folder first in PATH, and its exit code.
    #[cfg(unix)]
    pub fn limited(&self, limits: &str, line: &str) -> (Option<i32>, String) {
        let script = format!("{limits}; exec {} {line}", env!("CARGO_BIN_EXE_asof"));
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(self.path(""))
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("").display()))
            .output()
            .expect("bash");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    }

    /// The same where files have at most so many blocks of 1,024 bytes, which is refused like a full disk is.
    #[cfg(unix)]
    pub fn on_full_disk(&self, blocks: u32, line: &str) -> (Option<i32>, String) {
        self.limited(&format!("trap '' XFSZ; ulimit -f {blocks}"), line)
    }

    /// With `cut.mcap`: the first two thirds of it.
    pub fn with_cut_demo() -> Self {
        let folder = Folder::empty();
        let bytes = demo();
        fs::write(folder.path("cut.mcap"), &bytes[..bytes.len() * 2 / 3]).expect("write");
        folder
    }

    /// With `with.mcap`, which has two messages and an attachment `robot.yaml`.
    pub fn with_attachment(data: &[u8]) -> Self {
        let folder = Folder::empty();
        let options = McapWriterOptions::default();
        let mut writer = McapWriter::create(folder.path("with.mcap"), options).expect("create");
        let channel = Channel {
            topic: "/chatter".to_owned(),
            message_encoding: "json".to_owned(),
            ..Channel::default()
        };
        let channel = Arc::new(channel);
        for second in [1, 2] {
            let at = Stamp::from_nanos(second * 1_000_000_000);
            let message = Message {
                channel: channel.clone(),
                log_time: at,
                publish_time: at,
                sequence: second as u32,
                payload: "{}".into(),
            };
            writer.write(&message).expect("write");
        }
        let attachment = Attachment {
            name: "robot.yaml",
            media_type: "text/yaml",
            log_time: Stamp::from_nanos(1_000_000_000),
            create_time: Stamp::from_nanos(0),
            data,
        };
        writer.attach(&attachment).expect("attach");
        writer.finish().expect("finish");
        folder
    }

    /// With `run.mcap`, which has these messages, a second apart, the first at so many seconds.
    pub fn with_messages<P>(first: i64, messages: &[(&Arc<Channel>, P)]) -> Self
    where
        P: Clone + Into<bytes::Bytes>,
    {
        let folder = Folder::empty();
        let options = McapWriterOptions::default();
        let mut writer = McapWriter::create(folder.path("run.mcap"), options).expect("create");
        for (second, (channel, payload)) in (first..).zip(messages) {
            let at = Stamp::from_nanos(second * 1_000_000_000);
            let message = Message {
                channel: Arc::clone(channel),
                log_time: at,
                publish_time: at,
                sequence: 0,
                payload: payload.clone().into(),
            };
            writer.write(&message).expect("write");
        }
        writer.finish().expect("finish");
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect(name)
    }

    /// What lies in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        self.names_in("")
    }

    /// What lies in a folder of it, sorted.
    pub fn names_in(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).expect("folder");
        let entries = entries.map(|entry| entry.expect("entry").file_name());
        let mut names: Vec<String> = entries
            .map(|name| name.into_string().expect("name"))
            .collect();
        names.sort();
        names
    }

    pub fn output(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        asof()
            .args(words)
            .current_dir(self.0.path())
            .output()
            .expect("asof runs")
    }

    pub fn stdout(&self, line: &str) -> String {
        String::from_utf8(self.output(line).stdout).expect("text")
    }

    pub fn exit_code(&self, line: &str) -> i32 {
        self.output(line).status.code().expect("no signal")
    }

    /// Output, errors and exit code, as a snapshot holds them.
    pub fn run(&self, line: &str) -> String {
        let output = self.output(line);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let mut told = text(output.stdout);
        for line in text(output.stderr).lines() {
            told.extend(["stderr: ", line, "\n"]);
        }
        let code = output.status.code().expect("no signal").to_string();
        told.extend(["exit ", &code, "\n"]);
        told.replace(env!("CARGO_BIN_EXE_asof"), "asof").replace(
            concat!("asof ", env!("CARGO_PKG_VERSION")),
            "asof [VERSION]",
        )
    }
}

/// Made once for all tests of a run, by the program itself.
fn demo() -> Vec<u8> {
    static DEMO: OnceLock<Vec<u8>> = OnceLock::new();
    DEMO.get_or_init(|| {
        let folder = Folder::empty();
        assert_eq!(folder.exit_code("demo -o run.mcap --seconds 1"), 0);
        folder.read("run.mcap")
    })
    .clone()
}
