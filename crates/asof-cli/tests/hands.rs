//! What people type, and what lies in their files: names with a slip of the finger, times that were printed, texts that
//! would command a terminal.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use asof::formats::{Attachment, McapWriter, McapWriterOptions};
use asof::{Message, Stamp};
use common::{Folder, asof};

const HOSTILE: &str = "a\u{1b}[31mb\u{9b}2Jc\u{202e}d\u{2066}e\u{feff}f\rg\u{85}h";

/// With `odd.mcap`: whatever is text in it would command a terminal.
fn hostile() -> Folder {
    let folder = Folder::empty();
    let options = McapWriterOptions {
        profile: HOSTILE.to_owned(),
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(folder.path("odd.mcap"), options).expect("create");
    let channel = Arc::new(asof::Channel {
        topic: format!("/{HOSTILE}"),
        message_encoding: "json".to_owned(),
        ..asof::Channel::default()
    });
    let at = Stamp::from_nanos(1_714_564_810_500_000_000);
    let payload = serde_json::json!({ "text": HOSTILE }).to_string();
    let message = Message {
        channel,
        log_time: at,
        publish_time: at,
        sequence: 1,
        payload: payload.into(),
    };
    writer.write(&message).expect("write");
    let attachment = Attachment {
        name: HOSTILE,
        media_type: HOSTILE,
        log_time: at,
        create_time: at,
        data: b"data",
    };
    writer.attach(&attachment).expect("attach");
    let metadata = [(HOSTILE.to_owned(), HOSTILE.to_owned())];
    writer
        .write_metadata(HOSTILE, metadata.into_iter().collect())
        .expect("metadata");
    writer.finish().expect("finish");
    folder
}

#[test]
fn nothing_in_a_file_commands_a_terminal() {
    let folder = hostile();
    let lines = [
        "info odd.mcap",
        "info odd.mcap --json",
        "doctor odd.mcap --layers",
        "doctor odd.mcap --layers --json",
        "cat odd.mcap",
        "cat odd.mcap --json",
        "cat odd.mcap --raw",
        "at odd.mcap",
        "at odd.mcap --json",
        "doctor odd.mcap",
        "doctor odd.mcap --json",
        "tf odd.mcap",
        "cat odd.mcap --attachment none",
        "cat odd.mcap --metadata none",
        "cat odd.mcap --topics /none",
    ];
    for line in lines {
        let said = folder.run(line);
        let is_command =
            |c: &char| (c.is_control() && *c != '\n') || "\u{202e}\u{2066}\u{feff}".contains(*c);
        let found: Vec<char> = said.chars().filter(is_command).collect();
        assert!(found.is_empty(), "{line}: {found:?} in {said:?}");
    }
    // In JSON it is another spelling of the same text.
    let said = folder.stdout("cat odd.mcap --json");
    let row: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(row["topic"], format!("/{HOSTILE}"));
    assert_eq!(row["data"]["text"], HOSTILE);
}

#[test]
fn a_name_with_a_slip_of_the_finger_is_guessed() {
    let folder = Folder::with_demo();
    let said = folder.run("cat run.mcap --topics /odmo");
    assert!(said.contains("did you mean '/odom'?"), "{said}");
    let said = folder.run("cat run.mcap --topics odom --limit 1");
    assert!(said.contains("did you mean '/odom'?"), "{said}");
    let said = folder.run("cta run.mcap");
    assert!(
        said.contains("did you mean 'cat'?") && said.ends_with("exit 2\n"),
        "{said}"
    );
    let said = folder.run("convert run.mcap -o x.mcap --rename /scann=/s");
    assert!(said.contains("did you mean '/scan'?"), "{said}");
}

#[test]
fn times_that_are_printed_can_be_given_back() {
    let folder = Folder::with_demo();
    let row = folder.stdout("cat run.mcap --topics /odom --start +0.5s --limit 1 --json");
    let row: serde_json::Value = serde_json::from_str(&row).expect("JSON");
    let at = row["log_time"].as_i64().expect("a time");
    let line = folder.stdout("cat run.mcap --topics /odom --start +0.5s --limit 1");
    let (printed, _) = line.split_once("  ").expect("a time");
    let seconds = Stamp::from_nanos(at).as_seconds_text();
    let plain = printed.trim_end_matches('Z');
    for time in [
        &at.to_string(),
        printed,
        plain,
        &seconds,
        &format!("{at}ns"),
    ] {
        let known = folder.stdout(&format!("at run.mcap --topics /odom --json --time {time}"));
        let known: serde_json::Value = serde_json::from_str(&known).expect("JSON");
        assert_eq!(known["log_time"].as_i64(), Some(at), "{time}");
    }
    let with_unit = folder.stdout("at run.mcap --topics /odom --time +0.5s");
    assert_eq!(
        folder.stdout("at run.mcap --topics /odom --time +0.5"),
        with_unit
    );
    assert_ne!(
        folder.stdout("at run.mcap --topics /odom"),
        with_unit,
        "the end"
    );
}

#[test]
fn a_line_in_a_pipe_is_whole() {
    let folder = Folder::with_demo();
    let said = folder.stdout("cat run.mcap --topics /scan --limit 1");
    assert!(
        said.len() > 1_000 && !said.contains('…'),
        "{} bytes",
        said.len()
    );
    let known = folder.stdout("at run.mcap --topics /scan");
    assert!(
        known.len() > 1_000 && !known.contains('…'),
        "{} bytes",
        known.len()
    );
}

#[test]
fn rows_of_several_topics_are_refused_before_the_first() {
    let folder = Folder::with_demo();
    let output = folder.output("cat run.mcap --csv");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = folder.stdout("cat run.mcap --csv --topics /cmd_vel --limit 2");
    assert_eq!(said.lines().count(), 3, "{said}");
}

#[test]
fn split_makes_the_folder_that_it_fills() {
    let folder = Folder::with_demo();
    assert_eq!(
        folder.exit_code("split run.mcap -o parts/deep/ --duration 500ms"),
        0
    );
    assert!(folder.path("parts/deep/run_0.mcap").exists());
}

#[test]
fn a_demo_with_an_address_is_served_also_without_a_terminal() {
    let folder = Folder::empty();
    let mut child = asof()
        .args("demo --seconds 1 --listen 127.0.0.1:0 --no-open".split(' '))
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let said = BufReader::new(child.stdout.take().expect("an output"));
    let mut lines = said.lines().map_while(Result::ok);
    let is_served = lines.any(|line| line.contains("Open http://127.0.0.1:"));
    let _ = child.kill();
    let _ = child.wait();
    assert!(is_served);
}
