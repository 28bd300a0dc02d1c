//! `asof check` and `asof diff`: expectations hold on the recording that they come from, and each kind fails on one that
//! was tampered with.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use asof::formats::{McapWriter, McapWriterOptions};
use asof::{Channel, Message, Query, Schema, Stamp};
use common::Folder;
use serde_json::Value;

/// Writes `bad.mcap`: `run.mcap` with each message as `tamper` leaves it, or without it.
fn tampered(folder: &Folder, tamper: impl Fn(&mut Message, i64) -> bool) {
    let good = asof::open(folder.path("run.mcap")).expect("opens");
    let start = good.summary().range.start;
    let mut channels: BTreeMap<String, Arc<Channel>> = BTreeMap::new();
    let mut messages = Vec::new();
    for batch in good.read(&Query::all()).expect("reads") {
        for message in batch.expect("a batch").iter() {
            let mut message = message.to_message();
            let millis = message.log_time.since(start) / 1_000_000;
            if tamper(&mut message, millis) {
                // A channel that was made anew is one for all its messages.
                let key = format!("{}{}", message.channel.topic, message.channel.type_name());
                let channel = channels
                    .entry(key)
                    .or_insert_with(|| message.channel.clone());
                message.channel = Arc::clone(channel);
                messages.push(message);
            }
        }
    }
    messages.sort_by_key(|message| message.log_time);
    let path = folder.path("bad.mcap");
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("create");
    for message in &messages {
        writer.write(message).expect("write");
    }
    writer.finish().expect("finish");
}

fn later(message: &mut Message, millis: i64) {
    message.log_time = Stamp::from_nanos(message.log_time.nanos() + millis * 1_000_000);
}

/// What fails of `bad.mcap`: subject and kind.
fn failed(folder: &Folder, expectations: &str) -> Vec<(String, String, Value)> {
    std::fs::write(folder.path("e.toml"), expectations).expect("written");
    let good = folder.output("check run.mcap -f e.toml");
    let told = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0), "the good one fails: {told}");
    let bad = folder.output("check bad.mcap -f e.toml --json");
    let report: Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    let failed = report["failed"].as_u64().expect("a count");
    assert_eq!(bad.status.code(), Some(i32::from(failed > 0)));
    let all = report["expectations"].as_array().expect("a list").iter();
    let failed = all.filter(|one| one["outcome"] == "failed");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    failed
        .map(|one| (text(&one["subject"]), text(&one["kind"]), one.clone()))
        .collect()
}

/// Holds that one expectation fails on what was tampered with, of this kind and about this.
fn assert_fails(folder: &Folder, expectations: &str, subject: &str, kind: &str) -> Value {
    let failed = failed(folder, expectations);
    let [(found, of_kind, verdict)] = &failed[..] else {
        panic!("{failed:?}");
    };
    assert_eq!((found.as_str(), of_kind.as_str()), (subject, kind));
    assert!(verdict["count"].as_u64() > Some(0), "{verdict}");
    verdict.clone()
}

#[test]
fn what_is_proposed_from_a_recording_holds_on_it() {
    let folder = Folder::with_demo();
    let written = folder.output("check run.mcap --write -f e.toml");
    assert_eq!(written.status.code(), Some(0));
    let output = folder.output("check run.mcap -f e.toml --json");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["failed"], 0, "{report}");
    let all = report["expectations"].as_array().expect("a list");
    for kind in [
        "type",
        "rate",
        "gap",
        "latency",
        "jump",
        "range",
        "transform",
    ] {
        assert!(
            all.iter().any(|one| one["kind"] == kind),
            "no {kind} is proposed"
        );
    }
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        folder.exit_code("check run.mcap --write -f e.toml"),
        1,
        "replaced"
    );
    assert_eq!(
        folder.exit_code("check run.mcap --write -f e.toml --force"),
        0
    );
}

#[test]
fn of_a_recording_without_messages_nothing_is_proposed_and_no_file_is_left() {
    let folder = Folder::empty();
    let path = folder.path("none.mcap");
    let writer = McapWriter::create(path, McapWriterOptions::default()).expect("create");
    writer.finish().expect("finish");
    let output = folder.output("check none.mcap --write -f e.toml");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("nothing to expect"), "{told}");
    assert_eq!(folder.names(), ["none.mcap"]);
}

#[test]
fn hints_name_files_as_words_of_a_shell() {
    let folder = Folder::with_demo();
    let in_place = |words: &[&str]| {
        let output = common::asof()
            .args(words)
            .current_dir(folder.path(""))
            .output()
            .expect("asof runs");
        assert_ne!(output.status.code(), Some(0));
        String::from_utf8(output.stderr).expect("text")
    };
    let told = in_place(&["check", "run.mcap", "-f", "my expectations.toml"]);
    assert!(told.contains("-f 'my expectations.toml'`"), "{told}");
    let none = folder.path("it is empty.mcap");
    let writer = McapWriter::create(none, McapWriterOptions::default()).expect("create");
    writer.finish().expect("finish");
    let told = in_place(&["check", "it is empty.mcap", "--write"]);
    assert!(told.contains("`asof info 'it is empty.mcap'`"), "{told}");
}

#[cfg(unix)]
#[test]
fn expectations_that_do_not_fit_say_the_file_and_the_cause_and_leave_none() {
    let folder = Folder::with_demo();
    std::fs::write(
        folder.path("e.toml"),
        folder.stdout("check run.mcap --write"),
    )
    .expect("write");
    for (line, file) in [
        ("check run.mcap --write -f new.toml", "new.toml"),
        ("check run.mcap -f e.toml --junit report.xml", "report.xml"),
    ] {
        let (code, told) = folder.on_full_disk(0, line);
        assert_eq!(code, Some(1), "{told}");
        let cause = format!("cannot write {file}: File too large");
        assert!(told.contains(&cause), "{told}");
        assert_eq!(folder.names(), ["e.toml", "run.mcap"]);
    }
}

#[test]
fn what_is_proposed_from_a_recording_holds_on_its_parts() {
    let folder = Folder::empty();
    assert_eq!(
        folder.exit_code("demo -o run.mcap --seconds 12 --no-serve"),
        0
    );
    folder.run("check run.mcap --write -f e.toml");
    assert_eq!(
        folder.exit_code("split run.mcap -o part.mcap --duration 4s"),
        0
    );
    for part in ["part_0.mcap", "part_1.mcap", "part_2.mcap"] {
        let output = folder.output(&format!("check {part} -f e.toml --json"));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = report["expectations"].as_array().expect("a list").iter();
        let failed: Vec<String> = all
            .filter(|one| one["outcome"] == "failed")
            .map(|one| format!("{} {}: {}", one["subject"], one["kind"], one["message"]))
            .collect();
        assert!(failed.is_empty(), "{part}: {failed:#?}");
    }
}

#[test]
fn stamps_of_another_clock_are_noticed_and_no_latency_is_expected_of_them() {
    let folder = Folder::with_demo();
    // The recorder's clock is 55 years after the simulation's.
    tampered(&folder, |message, _| {
        later(message, 55 * 365 * 86_400_000);
        true
    });
    std::fs::rename(folder.path("bad.mcap"), folder.path("run.mcap")).expect("renamed");
    let told = folder.run("check run.mcap --write -f e.toml");
    assert!(told.contains("from another clock"), "{told}");
    let text = String::from_utf8(folder.read("e.toml")).expect("text");
    assert!(
        !text.contains("latency") && !text.contains("jump"),
        "{text}"
    );
    assert!(text.contains("rate"), "{text}");
    assert_eq!(folder.exit_code("check run.mcap -f e.toml"), 0);
    // Another run of the simulation has another distance between the clocks, which is no difference.
    tampered(&folder, |message, _| {
        later(message, 365 * 86_400_000);
        true
    });
    let found = folder.stdout("diff run.mcap bad.mcap --all --json");
    assert!(!found.contains("latency"), "{found}");
}

#[test]
fn what_is_printed_is_what_is_compared() {
    let folder = Folder::with_demo();
    tampered(&folder, |_, _| true);
    // 200 messages in 0.995 s: rounded to three digits, the rate is that bound.
    let rate = 200.0 / 0.994_989_466;
    let short = (rate * 1000.0_f64).floor() / 1000.0;
    let expected = format!("[topics.'/imu']\nrate = {{max = {short}}}");
    std::fs::write(folder.path("e.toml"), expected).expect("written");
    let told = folder.stdout("check run.mcap -f e.toml");
    let line = told
        .lines()
        .find(|line| line.contains("rate:"))
        .expect("a line");
    let found = line
        .split("rate: ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let found: f64 = found.and_then(|found| found.parse().ok()).expect(line);
    assert!(line.contains("FAILED") && found > short, "{line}");
}

#[test]
fn a_topic_that_is_gone_fails() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, _| message.channel.topic != "/odom");
    let expected = "[topics.'/odom']\nmessages = {min = 1}";
    assert_fails(&folder, expected, "/odom", "topic");
}

#[test]
fn another_type_fails() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, _| {
        if message.channel.topic == "/odom" {
            let mut channel = Channel::clone(&message.channel);
            let schema = channel.schema.as_deref().expect("a schema").clone();
            let name = "other_msgs/msg/Odometry".to_owned();
            channel.schema = Some(Schema { name, ..schema }.into());
            message.channel = Arc::new(channel);
        }
        true
    });
    let expected = "[topics.'/odom']\ntype = 'nav_msgs/msg/Odometry'";
    assert_fails(&folder, expected, "/odom", "type");
}

#[test]
fn a_lower_rate_and_fewer_messages_fail() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, millis| {
        message.channel.topic != "/imu" || millis % 20 < 10
    });
    let found = failed(
        &folder,
        "[topics.'/imu']\nrate = {min = 195}\nmessages = {min = 195}",
    );
    let kinds: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(kinds, ["messages", "rate"]);
}

#[test]
fn silence_within_and_at_the_ends_fails_with_its_time() {
    let expected = "[topics.'/imu']\ngap = '100ms'";
    let silences: [fn(i64) -> bool; 3] = [
        |millis| (300..500).contains(&millis),
        |millis| millis < 200,
        |millis| millis > 700,
    ];
    for is_silent in silences {
        let folder = Folder::with_demo();
        tampered(&folder, |message, millis| {
            message.channel.topic != "/imu" || !is_silent(millis)
        });
        let verdict = assert_fails(&folder, expected, "/imu", "gap");
        assert!(verdict["failures"][0]["log_time"].is_i64(), "{verdict}");
    }
}

#[test]
fn a_message_that_is_logged_late_fails() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, millis| {
        if message.channel.topic == "/odom" && (400..450).contains(&millis) {
            later(message, 300);
        }
        true
    });
    let expected = "[topics.'/odom']\nlatency = {min = '-1ms', max = '100ms'}";
    let verdict = assert_fails(&folder, expected, "/odom", "latency");
    assert!(
        verdict["message"].as_str().expect("text").contains("ms"),
        "{verdict}"
    );
}

#[test]
fn a_clock_that_is_set_fails_where_the_latency_alone_is_allowed() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, millis| {
        if message.channel.topic == "/odom" && millis >= 500 {
            later(message, 2000);
        }
        true
    });
    let expected = "[topics.'/odom']\njump = '500ms'\nlatency = {max = '10s'}";
    let verdict = assert_fails(&folder, expected, "/odom", "jump");
    assert_eq!(verdict["count"], 1);
}

#[test]
fn a_value_out_of_range_fails() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, millis| {
        if message.channel.topic == "/odom" && millis > 500 {
            let mut payload = message.payload.to_vec();
            // Before the 36 covariances at the end stands angular.z.
            let at = payload.len() - 36 * 8 - 8;
            payload[at..at + 8].copy_from_slice(&1e6_f64.to_le_bytes());
            message.payload = payload.into();
        }
        true
    });
    let expected = "[topics.'/odom'.ranges]\n'twist.twist.angular.z' = {min = -10, max = 10}";
    let verdict = assert_fails(&folder, expected, "/odom", "range");
    let message = verdict["failures"][0]["message"].as_str().expect("text");
    assert_eq!(message, "twist.twist.angular.z is 1000000");
}

#[test]
fn a_field_that_is_not_there_fails() {
    let folder = Folder::with_demo();
    tampered(&folder, |_, _| true);
    std::fs::write(
        folder.path("e.toml"),
        "[topics.'/odom'.ranges]\n'twist.none' = {min = 0}",
    )
    .expect("written");
    let output = folder.stdout("check run.mcap -f e.toml");
    assert!(output.contains("twist.none"), "{output}");
    assert_eq!(folder.exit_code("check run.mcap -f e.toml"), 1);
}

#[test]
fn a_transform_that_is_not_known_throughout_fails() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, millis| {
        message.channel.topic != "/tf" || millis < 300
    });
    let frames = "[[transforms]]\nfrom = 'odom'\nto = 'base_link'\nat = '/scan'";
    assert_fails(&folder, frames, "odom to base_link", "transform");
}

#[test]
fn a_query_that_finds_something_fails_or_is_skipped_and_said_so() {
    let folder = Folder::with_demo();
    let query = "[[sql]]\nname = 'no rows'\nquery = 'SELECT log_time, sequence FROM odom'";
    std::fs::write(folder.path("e.toml"), query).expect("written");
    let output = folder.output("check run.mcap -f e.toml --json");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    if cfg!(feature = "sql") {
        assert_eq!(report["failed"], 1, "{report}");
        let first = &report["expectations"][0]["failures"][0];
        assert!(first["log_time"].is_i64(), "{report}");
        assert_eq!(output.status.code(), Some(1));
    } else {
        assert_eq!(report["skipped"], 1, "{report}");
        let message = report["expectations"][0]["message"].as_str().expect("text");
        assert!(message.contains("--features sql"), "{message}");
    }
}

#[test]
fn junit_has_what_failed_and_bad_files_are_told_with_their_line() {
    let folder = Folder::with_demo();
    let expected = "[topics.'/odom']\nmessages = {min = 1}\n[topics.'/none']\nrate = {min = 1}";
    std::fs::write(folder.path("e.toml"), expected).expect("written");
    assert_eq!(
        folder.exit_code("check run.mcap -f e.toml --junit r.xml"),
        1
    );
    let xml = String::from_utf8(folder.read("r.xml")).expect("text");
    assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
    for (text, named) in [
        ("[topics.'/odom']\nrat = {min = 1}", "line 2"),
        ("[topics.'/odom'", "line 1"),
        ("", "has no expectations"),
    ] {
        std::fs::write(folder.path("bad.toml"), text).expect("written");
        let output = folder.output("check run.mcap -f bad.toml");
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(named) && told.lines().count() == 1, "{told}");
    }
    let missing = String::from_utf8(folder.output("check run.mcap -f no.toml").stderr);
    assert!(missing.expect("text").contains("--write"), "no way on");
}

#[test]
fn what_is_checked_is_never_written_to() {
    let folder = Folder::with_demo();
    let before = folder.read("run.mcap");
    std::fs::write(
        folder.path("e.toml"),
        "[topics.'/odom']\nmessages = {min = 1}",
    )
    .expect("written");
    std::fs::write(folder.path("note.txt"), "mine").expect("written");
    for line in [
        "check run.mcap -f e.toml --junit run.mcap",
        "check run.mcap -f e.toml --junit ./run.mcap --force",
        "check run.mcap -f e.toml --junit e.toml --force",
        "check run.mcap -f e.toml --junit note.txt",
        "check run.mcap --write -f run.mcap --force",
    ] {
        assert_eq!(folder.exit_code(line), 1, "{line}");
        assert!(folder.read("run.mcap") == before, "{line}");
    }
    assert_eq!(folder.read("note.txt"), b"mine");
    // A report replaces an earlier one.
    for _ in 0..2 {
        let line = "check run.mcap -f e.toml --junit r.xml";
        assert_eq!(folder.exit_code(line), 0);
    }
}

#[test]
fn a_damaged_recording_is_checked_as_far_as_it_goes() {
    let folder = Folder::with_cut_demo();
    std::fs::write(
        folder.path("e.toml"),
        "[topics.'/odom']\nmessages = {min = 1}",
    )
    .expect("written");
    assert_eq!(folder.exit_code("check cut.mcap -f e.toml"), 3);
}

#[test]
fn a_diff_has_the_largest_difference_first() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, millis| {
        if message.channel.topic == "/odom" {
            let mut payload = message.payload.to_vec();
            let at = payload.len() - 36 * 8 - 8;
            payload[at..at + 8].copy_from_slice(&1e3_f64.to_le_bytes());
            message.payload = payload.into();
        }
        message.channel.topic != "/scan" && (message.channel.topic != "/imu" || millis % 20 < 10)
    });
    let same = folder.stdout("diff run.mcap run.mcap --all --json");
    assert_eq!(same, "", "a recording differs from itself");
    let found = folder.stdout("diff run.mcap bad.mcap --json");
    let found: Vec<Value> = found
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&found[0]["subject"], &found[0]["kind"]),
        (&"/scan".into(), &"topic".into())
    );
    assert_eq!(found[1]["subject"], "/odom twist.twist.angular.z");
    let has = |subject: &str, kind: &str| {
        let is_it = |one: &&Value| one["subject"] == subject && one["kind"] == kind;
        found.iter().any(|one| is_it(&one))
    };
    assert!(has("/imu", "rate") && has("/imu", "gap"), "{found:?}");
    let text = folder.stdout("diff run.mcap bad.mcap");
    assert!(text.starts_with("/scan topic:"), "{text}");
}

#[test]
fn each_recording_of_a_folder_has_its_own_report_with_a_catalogue_and_without() {
    let folder = Folder::with_demo();
    tampered(&folder, |message, _| message.channel.topic != "/imu");
    std::fs::create_dir(folder.path("fleet")).expect("a folder");
    for (from, to) in [("run.mcap", "good.mcap"), ("bad.mcap", "short.mcap")] {
        std::fs::rename(folder.path(from), folder.path("fleet").join(to)).expect("moved");
    }
    std::fs::write(
        folder.path("e.toml"),
        "[topics.'/imu']\nmessages = {min = 1}\n",
    )
    .expect("written");
    let reports = || {
        let output = folder.output("check fleet -f e.toml --json");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        let lines = String::from_utf8(output.stdout).expect("text");
        let one = |line: &str| {
            let report: Value = serde_json::from_str(line).expect("JSON");
            let path = report["path"].as_str().expect("a path").to_owned();
            (path, report["failed"].as_u64().expect("a count"))
        };
        lines.lines().map(one).collect::<Vec<_>>()
    };
    let without = reports();
    assert_eq!(
        without,
        [
            ("fleet/good.mcap".to_owned(), 0),
            ("fleet/short.mcap".to_owned(), 1)
        ]
    );
    folder.stdout("index fleet");
    assert_eq!(reports(), without);
}
