//! `at`, `join` and `export`: what they print and write.

mod common;

use common::Folder;
use serde_json::Value;

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

fn time(object: &Value) -> i64 {
    object["log_time"].as_i64().expect("a time")
}

#[test]
fn join_finds_the_nearest_message_for_each_of_another_topic() {
    let folder = Folder::with_demo();
    let odometry: Vec<i64> = objects(&folder.stdout("cat run.mcap --json --topics /odom"))
        .iter()
        .map(time)
        .collect();
    let joined =
        objects(&folder.stdout("join run.mcap --anchor /scan --with /odom --on log --json"));
    let scans = objects(&folder.stdout("cat run.mcap --json --topics /scan"));
    assert_eq!(joined.len(), scans.len());
    for (joined, scan) in joined.iter().zip(&scans) {
        for key in [
            "topic",
            "log_time",
            "publish_time",
            "sequence",
            "type",
            "encoding",
            "data",
        ] {
            assert_eq!(joined[key], scan[key], "{key}");
        }
        let found = &joined["with"]["/odom"];
        let distance = |other: &i64| (other - time(scan)).abs();
        let nearest = odometry.iter().map(distance).min().expect("odometry");
        assert_eq!(distance(&time(found)), nearest);
        assert_eq!(found["offset"], time(found) - time(scan));
    }
}

#[test]
fn join_with_the_last_never_looks_ahead_and_within_leaves_out_what_is_far() {
    let folder = Folder::with_demo();
    for line in objects(
        &folder.stdout("join run.mcap --anchor /scan --with /odom --on log --method last --json"),
    ) {
        let found = &line["with"]["/odom"];
        assert!(
            found.is_null() || found["offset"].as_i64() <= Some(0),
            "{found}"
        );
    }
    for line in
        objects(&folder.stdout("join run.mcap --anchor /imu --with /scan --within 1ms --json"))
    {
        let found = &line["with"]["/scan"];
        assert!(found.is_null() || found["offset"].as_i64().expect("ns").abs() <= 1_000_000);
    }
}

#[test]
fn join_interpolates_what_can_lie_between_two_messages() {
    let folder = Folder::with_demo();
    let odometry = objects(&folder.stdout("cat run.mcap --json --topics /odom"));
    let x = |object: &Value| {
        object["data"]["pose"]["pose"]["position"]["x"]
            .as_f64()
            .expect("x")
    };
    let command =
        "join run.mcap --anchor /scan --with /odom,/imu --on log --method interpolate --json";
    let mut is_between = 0;
    for line in objects(&folder.stdout(command)) {
        let found = &line["with"]["/odom"];
        let Some(between) = found["between"].as_array() else {
            continue;
        };
        let at = |time: &Value| {
            odometry
                .iter()
                .find(|o| o["log_time"] == *time)
                .expect("there")
        };
        let (before, after) = (at(&between[0]), at(&between[1]));
        let part = (time(&line) - time(before)) as f64 / (time(after) - time(before)) as f64;
        let expected = x(before) + (x(after) - x(before)) * part;
        assert!((x(found) - expected).abs() < 1e-12, "{found}");
        assert_eq!(found["log_time"], line["log_time"]);
        assert_eq!(
            found["data"]["child_frame_id"],
            before["data"]["child_frame_id"]
        );
        is_between += 1;
    }
    assert!(is_between > 5, "{is_between}");
    // Nothing lies between two scans: the nearest is taken.
    let scans = "join run.mcap --anchor /odom --with /scan --method interpolate --json";
    for line in objects(&folder.stdout(scans)) {
        assert!(line["with"]["/scan"].get("between").is_none());
    }
}

#[test]
fn join_within_a_time_has_the_same_lines_as_the_whole() {
    let folder = Folder::with_demo();
    for (method, with) in [
        ("nearest", "/odom,/cmd_vel"),
        ("last", "/odom,/cmd_vel"),
        ("interpolate", "/odom,/cmd_vel"),
        ("nearest", "/odom,/imu"),
        ("last", "/odom,/imu"),
    ] {
        let command =
            format!("join run.mcap --anchor /scan --with {with} --method {method} --json");
        let whole = objects(&folder.stdout(&command));
        let (start, end) = (time(&whole[2]), time(&whole[5]));
        let some = objects(&folder.stdout(&format!("{command} --start {start}ns --end {end}ns")));
        assert_eq!(some, whole[2..=5], "{method}");
    }
}

#[test]
fn join_without_json_is_for_people() {
    let folder = Folder::with_demo();
    let text = folder.stdout("join run.mcap --anchor /scan --with /odom --end +0.2s");
    assert!(
        text.lines().all(|line| line.contains("|  /odom  ")),
        "{text}"
    );
}

#[test]
fn verbs_that_read_take_several_places() {
    let folder = Folder::with_demo();
    assert_eq!(
        folder.exit_code("convert run.mcap -o odom.mcap --topics /odom"),
        0
    );
    assert_eq!(
        folder.exit_code("convert run.mcap -o scan.mcap --topics /scan"),
        0
    );
    let both = "odom.mcap scan.mcap";
    let whole = folder.stdout("join run.mcap --anchor /scan --with /odom --json");
    assert_eq!(
        folder.stdout(&format!("join {both} --anchor /scan --with /odom --json")),
        whole
    );
    let whole = folder.stdout("at run.mcap --time +0.5s --topics /odom,/scan --json");
    let time = time(&objects(&folder.stdout("cat run.mcap --json --limit 1"))[0]) + 500_000_000;
    assert_eq!(
        folder.stdout(&format!("at {both} --time {time}ns --json")),
        whole
    );
    assert_eq!(folder.exit_code(&format!("export {both} -o tables")), 0);
    assert_eq!(folder.exit_code(&format!("tf {both}")), 0);
    let mut names: Vec<_> = std::fs::read_dir(folder.path("tables"))
        .expect("tables")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["odom.parquet", "scan.parquet"]);
}

#[test]
fn export_writes_the_times_that_are_chosen() {
    let folder = Folder::with_demo();
    folder.stdout("export run.mcap -o tables --format csv --topics /cmd_vel --times publish_time");
    let text = String::from_utf8(folder.read("tables/cmd_vel.csv")).expect("text");
    assert!(text.starts_with("publish_time,linear.x,"), "{text}");
    folder.stdout("export run.mcap -o lines --format ndjson --topics /cmd_vel --times log_time");
    let text = String::from_utf8(folder.read("lines/cmd_vel.ndjson")).expect("text");
    let first = &objects(&text)[0];
    assert!(first.get("publish_time").is_none() && first["log_time"].is_i64());
    assert!(first["linear"]["x"].is_number());
}

fn names_in(folder: &Folder, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path(name)).expect(name);
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn export_of_some_fields_is_of_the_topics_that_have_any() {
    let folder = Folder::with_demo();
    for format in ["parquet", "csv", "ndjson"] {
        let fields = "--fields angular_velocity.z,pose.pose.position.x";
        let output = folder.output(&format!(
            "export run.mcap -o {format} --format {format} {fields}"
        ));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("without any of these fields"), "{said}");
        let expected = ["imu", "odom"].map(|name| format!("{name}.{format}"));
        assert_eq!(names_in(&folder, format), expected);
    }
    let text = String::from_utf8(folder.read("csv/odom.csv")).expect("text");
    let first = "log_time,publish_time,pose.pose.position.x\n";
    assert!(text.starts_with(first), "{text}");
}

#[test]
fn export_of_a_field_that_no_topic_has_says_so_and_writes_nothing() {
    let folder = Folder::with_demo();
    let output = folder.output("export run.mcap -o tables --fields pose.pose,angular_velocity.w");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("has a field 'angular_velocity.w'"), "{said}");
    assert!(!folder.path("tables").exists());
}

#[test]
fn export_says_why_it_cannot_make_its_folder() {
    let folder = Folder::with_demo();
    let output = folder.output("export run.mcap -o run.mcap");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("a file is in its way"), "{said}");
}

#[test]
fn export_writes_what_the_file_says_about_itself_when_asked() {
    let folder = Folder::with_attachment(b"wheels: 4");
    folder.stdout("export with.mcap -o tables --format arrow --file-tables");
    assert_eq!(
        names_in(&folder, "tables"),
        [
            "_attachments.arrow",
            "_channels.arrow",
            "_recording.arrow",
            "_statistics.arrow",
            "chatter.arrow"
        ]
    );
    let table = folder.read("tables/_attachments.arrow");
    assert!(table.windows(9).any(|bytes| bytes == b"wheels: 4"));
    let output = folder.output("export with.mcap -o lines --format csv --file-tables");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_layer_is_switched_off_or_taken_alone_by_its_name() {
    let folder = Folder::with_attachment(b"wheels: 4");
    folder.stdout("export with.mcap -o alone --only attachments");
    assert_eq!(names_in(&folder, "alone"), ["_attachments.parquet"]);
    folder.stdout("export with.mcap -o without --file-tables --without attachments,statistics");
    assert_eq!(
        names_in(&folder, "without"),
        ["_channels.parquet", "_recording.parquet", "chatter.parquet"]
    );
    let output = folder.output("export with.mcap -o none --only nonsense");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("semantic, reflection, raw"), "{text}");
}

#[test]
fn doctor_lists_the_layers_of_topics_and_of_the_file() {
    let folder = Folder::with_demo();
    let lines = objects(&folder.stdout("doctor run.mcap --layers --json"));
    let line = lines.into_iter().find(|line| line["topic"] == "/odom");
    assert_eq!(line.expect("/odom")["layer"], "semantic");
    let text = folder.stdout("doctor run.mcap --layers");
    assert!(text.contains("(the file)  recording: 1 row"), "{text}");
}

#[test]
fn export_of_a_damaged_file_writes_what_is_left_and_exits_with_3() {
    let folder = Folder::with_cut_demo();
    for format in ["parquet", "arrow", "csv", "ndjson"] {
        let line = format!("export cut.mcap -o {format} --format {format}");
        let output = folder.output(&line);
        assert_eq!(output.status.code(), Some(3), "{format}");
        assert!(!output.stderr.is_empty(), "{format}");
        assert!(names_in(&folder, format).len() > 3, "{format}");
    }
}

#[test]
fn a_chunk_of_an_unknown_codec_is_left_out_and_the_exit_code_says_so() {
    let folder = Folder::with_demo();
    let mut bytes = folder.read("run.mcap");
    // Every chunk and its index names its codec; that of the last chunk is made another.
    let places: Vec<usize> = bytes
        .windows(8)
        .enumerate()
        .filter(|(_, bytes)| bytes == b"\x04\0\0\0zstd")
        .map(|(at, _)| at)
        .collect();
    let codec = places[places.len() / 2 - 1] + 4;
    bytes[codec..codec + 4].copy_from_slice(b"zstq");
    std::fs::write(folder.path("odd.mcap"), bytes).expect("writes");
    let output = folder.output("export odd.mcap -o tables");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("zstq"), "{told}");
}

#[test]
fn cat_prints_the_fields_that_were_asked_for() {
    let folder = Folder::with_demo();
    let line = "cat run.mcap --topics /odom --limit 2 --json --fields pose.pose.position,twist.twist.linear.x";
    for message in objects(&folder.stdout(line)) {
        let data = message["data"].as_object().expect("data");
        assert_eq!(data.keys().collect::<Vec<_>>(), ["pose", "twist"]);
        assert!(message["data"]["pose"]["pose"]["position"]["y"].is_number());
        assert!(message["data"]["pose"]["pose"]["orientation"].is_null());
        assert!(message["data"]["twist"]["twist"]["linear"]["x"].is_number());
    }
    let known =
        folder.stdout("at run.mcap --topics /odom,/scan --json --fields pose.pose.position");
    let known = objects(&known);
    assert_eq!(
        known[0]["data"]["pose"]["pose"]
            .as_object()
            .expect("data")
            .len(),
        1
    );
    assert_eq!(known.len(), 1, "a topic without the field is left out");
    let refused = folder.output("cat run.mcap --fields pose.pose.positoin");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("'pose.pose.positoin'"), "{said}");
    let csv =
        folder.stdout("cat run.mcap --topics /odom --limit 1 --csv --fields pose.pose.position");
    let names = csv.lines().next().expect("names");
    assert!(
        names.ends_with("pose.pose.position.z") && !names.contains("orientation"),
        "{names}"
    );
}

#[test]
fn a_pretty_message_has_a_line_for_each_field() {
    let folder = Folder::with_demo();
    let text = folder.stdout("cat run.mcap --topics /odom --limit 1 --pretty");
    assert!(
        text.contains("\n  header:\n    stamp:\n      sec: "),
        "{text}"
    );
    assert!(text.contains("\n      position:\n        x: "), "{text}");
}

#[test]
fn at_tells_how_old_each_message_was() {
    let folder = Folder::with_demo();
    let text = folder.stdout("at run.mcap --time +1.5s --topics /odom");
    assert!(text.contains(" s old  /odom  "), "{text}");
    let known =
        objects(&folder.stdout("at run.mcap --time +1.5s --topics /odom,/tf_static --json"));
    for message in known {
        let age = message["age"].as_i64().expect("an age");
        assert!((0..=1_500_000_000).contains(&age), "{message}");
    }
}
