//! Names and values as they are mistyped: a name that nothing has is wrong usage in every verb, with the one that was meant; and
//! what the Tab key makes of a begun one.

mod common;

use std::fs;

use common::{Folder, asof};

/// What a command line says on standard error; it must have this exit code.
fn told(folder: &Folder, line: &str, code: i32) -> String {
    let output = folder.output(line);
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{line}: {told}");
    told
}

#[test]
fn a_name_that_nothing_has_is_wrong_usage_in_every_verb_and_the_meant_one_is_told() {
    let folder = Folder::with_attachment(b"data");
    fs::write(
        folder.path("run.mcap"),
        Folder::with_demo().read("run.mcap"),
    )
    .expect("write");
    for (line, meant) in [
        ("cat run.mcap --topics /odmo", "/odom"),
        ("cat run.mcap --topics /odom,/scna", "/scan"),
        ("cat run.mcap --topics odom", "/odom"),
        ("info run.mcap --topics /odmo", "/odom"),
        ("at run.mcap --topics /odmo", "/odom"),
        ("join run.mcap --anchor /odmo --with /scan", "/odom"),
        ("join run.mcap --anchor /odom --with /scna", "/scan"),
        (
            "join run.mcap --anchor /scan --with /odom --fields pose.pose.positon",
            "pose.pose.position",
        ),
        ("convert run.mcap -o out.mcap --topics /odmo", "/odom"),
        ("convert run.mcap -o out.mcap --exclude /odmo", "/odom"),
        ("convert run.mcap -o out.mcap --rename /odmo=/o", "/odom"),
        (
            "split run.mcap -o out.mcap --duration 1 --topics /odmo",
            "/odom",
        ),
        ("export run.mcap -o out --topics /odmo", "/odom"),
        (
            "export run.mcap -o out --fields pose.pose.positon",
            "pose.pose.position",
        ),
        ("cat run.mcap --fields positon", "pose.pose.position"),
        (
            "at run.mcap --fields twist.twist.lineer",
            "twist.twist.linear",
        ),
        ("tf run.mcap --topics /tf_sttic", "/tf_static"),
        ("tf run.mcap --pose-topic /odmo", "/odom"),
        ("tf run.mcap --from odom --to bas_link", "base_link"),
        (
            "tf run.mcap --from odom --to bas_link --every 100ms",
            "base_link",
        ),
        ("cat run.mcap --metadata asof-dmo", "asof-demo"),
        ("cat with.mcap --attachment robot.yml", "robot.yaml"),
    ] {
        let told = told(&folder, line, 2);
        let errors = told.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{line}: {told}");
        if line != "cat run.mcap --fields positon" {
            let wanted = format!("did you mean '{meant}'?");
            assert!(told.contains(&wanted), "{line}: {told}");
        }
    }
    let json = folder.output("tf run.mcap --from odom --to bas_link --json");
    assert_eq!(json.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&json.stdout).contains("unknown_frame"));
    assert_eq!(
        folder.names(),
        ["run.mcap", "with.mcap"],
        "nothing is written"
    );
    // A glob beside one that matches is a note; one alone is not.
    let some = told(&folder, "cat run.mcap --limit 1 --topics /odom,/lidar*", 0);
    assert!(some.contains("no topic matches '/lidar*'"), "{some}");
    told(&folder, "cat run.mcap --topics /lidar*", 2);
}

#[cfg(feature = "sql")]
#[test]
fn a_table_that_nothing_has_is_wrong_usage_and_tables_are_listed_once() {
    let folder = Folder::with_demo();
    let output = asof()
        .args(["sql", "run.mcap", "SELECT * FROM odmo"])
        .current_dir(folder.path("."))
        .output()
        .expect("asof runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean odom?"));
    let tables = asof()
        .args(["sql", "run.mcap", "--csv", "show tables;"])
        .current_dir(folder.path("."))
        .output()
        .expect("asof runs");
    let text = String::from_utf8(tables.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "table,alias,type,messages");
    let topics: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.contains('/'))
        .collect();
    let mut sorted = topics.clone();
    sorted.sort_unstable();
    assert_eq!(topics, sorted);
    assert_eq!(topics.len(), 12, "{text}");
    assert!(
        text.contains("\"\"\"/camera/image\"\"\",camera_image,"),
        "{text}"
    );
    assert!(!text.contains("\ncamera_image"), "{text}");
}

#[test]
fn what_was_probably_meant_is_told() {
    let folder = Folder::with_demo();
    let place = told(&folder, "cat run.mcap /odom", 2);
    assert!(place.contains("for a topic: --topics /odom"), "{place}");
    for (word, meant) in [("odom", "/odom"), ("/odmo", "/odom"), ("/tf*", "/tf*")] {
        let place = told(&folder, &format!("cat run.mcap {word}"), 2);
        assert!(
            place.contains(&format!("for a topic: --topics {meant}")),
            "{place}"
        );
    }
    let time = told(&folder, "at run.mcap --time 10", 0);
    assert!(time.contains("did you mean --time +10s?"), "{time}");
    let time = told(&folder, "cat run.mcap --start 0 --end 0.5", 0);
    assert!(time.contains("did you mean +0s?"), "{time}");
    let time = told(&folder, "convert run.mcap -o part.mcap --start 0.5", 0);
    assert!(time.contains("did you mean --start +0.5s?"), "{time}");
    let time = told(
        &folder,
        "tf run.mcap --from odom --to base_link --at 0.5",
        1,
    );
    assert!(time.contains("did you mean --at +0.5s?"), "{time}");
    let every = "tf run.mcap --from odom --to base_link --every 100ms --start 0 --end 0.5";
    for line in [every, "tf run.mcap --pose-topic /odom --start 0 --end 0.5"] {
        let time = told(&folder, line, 0);
        assert!(time.contains("did you mean +0s?"), "{line}: {time}");
    }
    // No place but a typing error.
    assert!(!told(&folder, "cat run.mcap /nothing", 1).contains("--topics"));
}

#[test]
fn a_day_is_a_time_and_as_an_end_all_of_it() {
    let folder = Folder::with_demo();
    let count = |line: &str| folder.stdout(line).lines().count();
    let all = count("cat run.mcap --topics /odom --raw");
    assert_eq!(
        count("cat run.mcap --topics /odom --raw --start 2024-05-01 --end 2024-05-01"),
        all
    );
    assert_eq!(
        count("cat run.mcap --topics /odom --raw --start 2024-05-02"),
        0
    );
    assert_eq!(count("at run.mcap --time 2024-05-02 --topics /odom"), 1);
    assert_eq!(count("at run.mcap --time 2024-05-01 --topics /odom"), 0);
    assert_eq!(folder.exit_code("at run.mcap --time 2024-13-01"), 2);
}

#[test]
fn a_length_of_time_is_written_the_same_way_everywhere() {
    let folder = Folder::with_demo();
    for length in ["10", "10s", "1m30s"] {
        for line in [
            format!("split run.mcap -o part.mcap --force --duration {length}"),
            format!(
                "join run.mcap --anchor /scan --with /odom --within {length} --lateness {length}"
            ),
            format!("tf run.mcap --from odom --to base_link --every {length}"),
        ] {
            told(&folder, &line, 0);
        }
    }
    for length in ["0", "-5", "soon"] {
        told(
            &folder,
            &format!("split run.mcap -o part.mcap --duration {length}"),
            2,
        );
        told(
            &folder,
            &format!("tf run.mcap --from odom --to base_link --every {length}"),
            2,
        );
    }
}

#[test]
fn a_copy_in_text_mode_is_named_as_what_it_is() {
    let folder = Folder::with_demo();
    let bytes = folder.read("run.mcap");
    let without: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| *byte != b'\r')
        .collect();
    let mut with = Vec::new();
    for byte in &bytes {
        if *byte == b'\n' {
            with.push(b'\r');
        }
        with.push(*byte);
    }
    for changed in [without, with] {
        fs::write(folder.path("text.mcap"), changed).expect("write");
        let told = told(&folder, "info text.mcap", 1);
        assert!(told.contains("copied in text mode"), "{told}");
    }
}

#[cfg(unix)]
#[test]
fn a_demo_that_does_not_fit_says_the_cause() {
    let folder = Folder::empty();
    let (code, told) = folder.on_full_disk(8, "demo --seconds 5");
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("cannot write asof-demo.mcap: File too large"),
        "{told}"
    );
    assert_eq!(folder.names(), [""; 0]);
}

/// The completions of the last of these words.
fn completions(folder: &Folder, words: &[&str]) -> Vec<String> {
    let output = asof()
        .arg("--")
        .args(words)
        .env("ASOF_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_IFS", "\n")
        .current_dir(folder.path("."))
        .output()
        .expect("asof runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn topics_and_fields_of_the_recordings_on_the_line_are_completed() {
    let folder = Folder::with_demo();
    let of = |words: &[&str]| completions(&folder, words);
    assert_eq!(
        of(&["asof", "cat", "run.mcap", "--topics", "/od"]),
        ["/odom"]
    );
    assert_eq!(
        of(&["asof", "at", "run.mcap", "--topics", "/odom,/tf"]),
        ["/odom,/tf", "/odom,/tf_static"]
    );
    assert_eq!(
        of(&["asof", "join", "run.mcap", "--anchor", "/sc"]),
        ["/scan"]
    );
    assert_eq!(
        of(&["asof", "cat", "run.mcap", "--fields", "pose.pose.pos"]),
        [
            "pose.pose.position",
            "pose.pose.position.x",
            "pose.pose.position.y",
            "pose.pose.position.z"
        ]
    );
    assert!(of(&["asof", "cat", "none.mcap", "--topics", "/"]).is_empty());
    assert!(of(&["asof", "doc"]).contains(&"doctor".to_owned()));
}

#[test]
fn layers_are_shown_by_doctor_and_bytes_are_counted_on_demand() {
    let folder = Folder::with_demo();
    let layers = folder.stdout("doctor run.mcap --layers");
    assert!(layers.contains("/odom  semantic: "), "{layers}");
    let topics = |line: &str| -> Vec<serde_json::Value> {
        let info: serde_json::Value = serde_json::from_str(&folder.stdout(line)).expect("JSON");
        info["topics"].as_array().expect("topics").clone()
    };
    let (quick, whole) = (
        topics("info run.mcap --json"),
        topics("info run.mcap --json --bytes"),
    );
    assert_eq!(quick.len(), whole.len());
    for (quick, whole) in quick.iter().zip(&whole) {
        let exact = whole["bytes"].as_u64().expect("a count");
        let near = quick["bytes_estimate"]
            .as_u64()
            .or(quick["bytes"].as_u64())
            .expect("a count");
        // All of its messages are known, or it is an estimate, and says so.
        let is_exact = quick["bytes"].as_u64() == Some(exact);
        let is_near = near.abs_diff(exact) * 2 <= exact;
        assert!(
            is_exact != quick["bytes_estimate"].is_u64() && (is_exact || is_near),
            "{quick} {whole}"
        );
    }
    let text = folder.stdout("info run.mcap");
    assert!(
        text.contains("~ is estimated") && !folder.stdout("info run.mcap --bytes").contains('~'),
        "{text}"
    );
}

/// Runs on a terminal of so many columns, by util-linux's `script`; `None` where there is none.
#[cfg(target_os = "linux")]
fn on_a_terminal(folder: &Folder, columns: usize, line: &str) -> Option<String> {
    let command = format!(
        "stty cols {columns} rows 50; {} {line}",
        env!("CARGO_BIN_EXE_asof")
    );
    let output = std::process::Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("NO_COLOR", "1")
        .current_dir(folder.path("."))
        .stdin(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.replace('\r', ""))
}

#[cfg(target_os = "linux")]
#[test]
fn tables_fit_a_terminal() {
    let folder = Folder::with_demo();
    let on = |columns, line| on_a_terminal(&folder, columns, line);
    let (Some(info), Some(at)) = (on(80, "info run.mcap"), on(80, "at run.mcap --time +0.5s"))
    else {
        return eprintln!("SKIPPED: there is no `script` here");
    };
    for (line, columns) in [
        ("info run.mcap", 80),
        ("info run.mcap", 50),
        ("at run.mcap --time +0.5s", 80),
        ("at run.mcap --time +0.5s", 50),
    ] {
        let text = on(columns, line).expect("a terminal");
        // What is said beside the table may be longer.
        let table = text.lines().filter(|line| line.starts_with("  "));
        let longest = table.map(|line| line.chars().count()).max();
        assert!(longest <= Some(columns), "{line}: {longest:?}: {text}");
    }
    assert!(info.contains("sensor_msgs/msg/LaserScan"), "{info}");
    let odom = at
        .lines()
        .find(|line| line.contains("/odom"))
        .expect("a line of /odom");
    assert!(
        odom.contains("child_frame_id") && odom.ends_with('…'),
        "{at}"
    );
    assert_eq!(
        at.lines().filter(|line| line.contains("/odom")).count(),
        1,
        "{at}"
    );
    assert!(at.contains("--pretty"), "{at}");
    let all = on(80, "at run.mcap --time +0.5s --pretty").expect("a terminal");
    assert!(all.contains("    position:"), "{all}");
}
