//! What `asof convert` promises, through the command.

mod common;

use std::fs;
use std::process::Stdio;

use asof::formats::{McapWriter, McapWriterOptions};
use common::{Folder, asof};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect(text)
}

#[test]
fn the_input_is_refused_as_output_under_every_name() {
    let folder = Folder::with_demo();
    let before = folder.read("run.mcap");
    fs::hard_link(folder.path("run.mcap"), folder.path("hard.mcap")).expect("links");
    let mut names = vec!["run.mcap", "./run.mcap", "hard.mcap"];
    if cfg!(unix) {
        #[cfg(unix)]
        std::os::unix::fs::symlink("run.mcap", folder.path("soft.mcap")).expect("links");
        names.push("soft.mcap");
    }
    for (verb, flags) in [("convert", ""), ("recover", "")] {
        for name in &names {
            let told = folder.run(&format!("{verb} run.mcap -o {name} --force {flags}"));
            assert!(
                told.contains("is the recording that is being read"),
                "{verb} {name}: {told}"
            );
        }
    }
    assert_eq!(folder.read("run.mcap"), before);
}

#[test]
fn a_file_that_is_there_stays_without_force_and_is_replaced_whole_with_it() {
    let folder = Folder::with_demo();
    fs::write(folder.path("out.mcap"), "mine").expect("writes");
    assert_eq!(folder.exit_code("convert run.mcap -o out.mcap"), 1);
    assert_eq!(folder.read("out.mcap"), b"mine");
    assert_eq!(folder.exit_code("convert run.mcap -o out.mcap --force"), 0);
    assert_eq!(folder.exit_code("doctor out.mcap"), 0);
    assert_eq!(folder.names(), ["out.mcap", "run.mcap"]);
}

/// A recording large enough that writing it takes a while.
fn large(folder: &Folder) {
    let options = McapWriterOptions {
        compression: asof::formats::Compression::None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(folder.path("large.mcap"), options).expect("creates");
    let channel = std::sync::Arc::new(asof::Channel {
        topic: "/noise".into(),
        ..asof::Channel::default()
    });
    let mut state = 88172645463325252u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(200_000)
    .collect();
    for number in 0..300 {
        let at = asof::Stamp::from_nanos(number);
        let message = asof::Message {
            channel: channel.clone(),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: noise.clone().into(),
        };
        writer.write(&message).expect("writes");
    }
    writer.finish().expect("finishes");
}

#[test]
fn until_it_is_complete_there_is_no_output_and_killed_there_never_is() {
    let folder = Folder::empty();
    large(&folder);
    let mut child = asof()
        .args(["convert", "large.mcap", "-o", "out.mcap", "--level", "19"])
        .current_dir(folder.path("."))
        .stdout(Stdio::null())
        .spawn()
        .expect("asof runs");
    asof_core::testing::eventually("a file in the making, or the end", || {
        folder.names().len() == 2 || child.try_wait().expect("waits").is_some()
    });
    assert!(!folder.path("out.mcap").exists());
    child.kill().expect("kills");
    let status = child.wait().expect("ends");
    assert!(!status.success(), "it was quicker than this test");
    assert!(!folder.path("out.mcap").exists());
}

#[test]
fn attachments_and_metadata_come_along_unless_they_are_not_wanted() {
    let folder = Folder::with_attachment(b"wheels: 4");
    let attachments = |flags: &str| {
        let line = format!("convert with.mcap -o out.mcap --force --json {flags}");
        let done = json(&folder.stdout(&line));
        let info = json(&folder.stdout("info out.mcap --json"));
        let listed = info["attachments"].as_array().map(Vec::len);
        assert_eq!(
            done["attachments"].as_u64(),
            listed.map(|count| count as u64)
        );
        assert_eq!(done["messages"], 2);
        listed
    };
    assert_eq!(attachments(""), Some(1));
    assert_eq!(attachments("--include-attachments"), Some(1));
    assert_eq!(attachments("--no-attachments"), Some(0));
    assert_eq!(
        attachments("--no-attachments --include-attachments"),
        Some(1)
    );
}

#[test]
fn metadata_comes_along_unless_it_is_not_wanted() {
    let folder = Folder::empty();
    let options = McapWriterOptions::default();
    let mut writer = McapWriter::create(folder.path("run.mcap"), options).expect("creates");
    let said = [("name".to_owned(), "tortoise".to_owned())].into();
    writer.write_metadata("robot", said).expect("writes");
    writer.finish().expect("finishes");
    let names = |flags: &str| {
        let done = json(&folder.stdout(&format!(
            "convert run.mcap -o out.mcap --force --json {flags}"
        )));
        let info = json(&folder.stdout("info out.mcap --json"));
        let listed = info["metadata"].as_array().expect("a list").clone();
        assert_eq!(done["metadata"], listed.len());
        listed.len()
    };
    assert_eq!(names(""), 1);
    assert_eq!(names("--include-metadata"), 1);
    assert_eq!(names("--no-metadata"), 0);
    assert_eq!(names("--no-metadata --include-metadata"), 1);
}

#[test]
fn the_summary_says_what_was_done_and_the_output_agrees() {
    let folder = Folder::with_demo();
    let line = "convert run.mcap -o out.mcap --start +0.4s --end -0.2s --rename /odom=/wheels --exclude /scan --json";
    let done = json(&folder.stdout(line));
    let info = json(&folder.stdout("info out.mcap --json"));
    for name in ["size", "start", "end", "messages"] {
        assert_eq!(done[name], info[name], "{name}");
    }
    assert_eq!(done["places"], serde_json::json!(["run.mcap"]));
    assert_eq!(done["output"], "out.mcap");
    assert_eq!(done["sorted_on_disk"], false);
    assert_eq!(done["problems"], serde_json::json!([]));
    let topics: Vec<&str> = info["topics"]
        .as_array()
        .expect("topics")
        .iter()
        .filter_map(|topic| topic["topic"].as_str())
        .collect();
    assert!(
        topics.contains(&"/wheels") && !topics.contains(&"/odom") && !topics.contains(&"/scan")
    );
}

#[test]
fn what_was_latched_before_a_cut_stands_at_its_beginning() {
    let folder = Folder::with_demo();
    let done = json(&folder.stdout("convert run.mcap -o cut.mcap --start +0.5s --json"));
    assert_ne!(done["latched"], 0);
    let line = folder.stdout("cat cut.mcap --topics /tf_static --json --raw");
    let latched = json(line.lines().next().expect("a message"));
    assert_eq!(latched["log_time"], done["start"]);
    let before = folder.stdout("cat run.mcap --topics /tf_static --json --raw");
    assert_eq!(
        latched["data"],
        json(before.lines().next().expect("a message"))["data"]
    );
    let done =
        json(&folder.stdout("convert run.mcap -o bare.mcap --start +0.5s --no-latched --json"));
    assert_eq!(done["latched"], 0);
    assert_eq!(
        folder.stdout("cat bare.mcap --topics /tf_static --json"),
        ""
    );
}

#[test]
fn each_compression_and_chunk_size_holds_the_same_messages() {
    let folder = Folder::with_demo();
    let all = folder.stdout("cat run.mcap --json --raw");
    for flags in [
        "--compression none",
        "--compression lz4 --chunk-size 16k",
        "--compression zstd --level 12",
    ] {
        assert_eq!(
            folder.exit_code(&format!("convert run.mcap -o out.mcap --force {flags}")),
            0
        );
        assert_eq!(folder.stdout("cat out.mcap --json --raw"), all, "{flags}");
        assert_eq!(folder.exit_code("doctor out.mcap"), 0, "{flags}");
    }
}

#[test]
fn places_that_are_no_recordings_are_refused_in_one_line_that_says_why() {
    let folder = Folder::empty();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path(name), bytes).expect("writes");
    write("empty.mcap", b"");
    write("empty.bag", b"");
    write("empty.db3", b"");
    write(
        "text.mcap",
        b"this is not a recording at all, whatever it is called",
    );
    write("old.bag", b"#ROSBAG V1.2\n0000000000");
    write("sqlite.db3", b"SQLite format 3\0 and then nothing");
    fs::create_dir(folder.path("folder")).expect("a folder");
    write("folder/readme.txt", b"no recording");
    let told = [
        ("empty.mcap", "empty"),
        ("empty.bag", "empty"),
        ("empty.db3", "empty"),
        ("text.mcap", "this is not an MCAP file"),
        ("old.bag", "1.2"),
        ("sqlite.db3", "SQLite"),
        ("folder", "no recording"),
        ("missing.bag", "no such file"),
    ];
    for (name, reason) in told {
        let output = folder.output(&format!("convert {name} -o out.mcap"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains(reason) && text.contains(name),
            "{name}: {text}"
        );
    }
    assert!(!folder.path("out.mcap").exists());
}

#[test]
fn names_that_promise_another_format_are_refused() {
    let folder = Folder::with_demo();
    for (verb, name) in [
        ("convert", "out.bag"),
        ("convert", "out.db3"),
        ("convert", "-"),
        ("convert", "s3://bucket/out.mcap"),
        ("recover", "out.bag"),
        ("split --size 1M", "out.bag"),
    ] {
        let line = format!("{verb} run.mcap -o {name}");
        assert_eq!(folder.exit_code(&line), 2, "{line}");
    }
    assert_eq!(folder.names(), ["run.mcap"]);
    let told = folder.run("convert run.mcap -o out.bag");
    assert!(told.contains("name it out.mcap"), "{told}");
}

#[test]
fn a_folder_is_no_output_of_convert() {
    let folder = Folder::with_demo();
    let told = folder.run("convert run.mcap -o .");
    assert!(told.contains("it is a folder; name a file in it"), "{told}");
}

#[test]
fn the_parts_of_a_bag_are_refused_as_output_also_when_its_description_is_the_place() {
    let folder = Folder::with_demo();
    let text = "rosbag2_bagfile_information:\n  relative_file_paths: [run.mcap]\n";
    fs::write(folder.path("metadata.yaml"), text).expect("writes");
    let before = folder.read("run.mcap");
    let told = folder.run("convert metadata.yaml -o run.mcap --force");
    assert!(
        told.contains("is the recording that is being read"),
        "{told}"
    );
    assert_eq!(folder.read("run.mcap"), before);
}

#[cfg(unix)]
#[test]
fn a_folder_that_links_to_itself_is_looked_through_once() {
    let folder = Folder::with_demo();
    for name in ["a", "b", "c"] {
        std::os::unix::fs::symlink(".", folder.path(name)).expect("links");
    }
    fs::create_dir(folder.path("out")).expect("creates");
    fs::write(folder.path("out/out.mcap"), "").expect("writes");
    let told = folder.run("convert . -o out/out.mcap --force");
    assert!(
        told.contains("is the recording that is being read"),
        "{told}"
    );
}

#[test]
fn renames_that_do_not_do_what_they_say_are_told() {
    let folder = Folder::with_demo();
    let told = |flags: &str| folder.run(&format!("convert run.mcap -o out.mcap --force {flags}"));
    let both = told("--rename /tf=/tf_static");
    assert!(
        both.contains("'/tf' and '/tf_static' are both written as '/tf_static'"),
        "{both}"
    );
    let both = told("--rename /tf=/frames --rename /tf_static=/frames");
    assert_eq!(
        both.matches("both written as '/frames'").count(),
        1,
        "{both}"
    );
    let alone = told("--rename /tf=/tf_static --exclude /tf_static");
    assert!(!alone.contains("note:"), "{alone}");
    let two = "convert run.mcap -o two.mcap --rename /tf=/a --rename /tf=/b";
    assert_eq!(folder.exit_code(two), 2);
}

#[test]
fn choices_without_an_effect_are_told() {
    let folder = Folder::with_demo();
    let told = folder.run("convert run.mcap -o a.mcap --exclude /nothing");
    assert!(told.contains("no topic matches '/nothing'"), "{told}");
    let told = folder.run("convert run.mcap -o b.mcap --compression lz4 --level 3");
    assert!(told.contains("--level is for zstd"), "{told}");
}

#[test]
fn split_into_a_folder_names_parts_after_the_recording() {
    let folder = Folder::with_demo();
    fs::create_dir(folder.path("parts")).expect("creates");
    assert_eq!(
        folder.exit_code("split run.mcap -o parts --duration 600ms"),
        0
    );
    assert!(folder.path("parts/run_0.mcap").is_file());
    assert!(folder.path("parts/run_1.mcap").is_file());
}

#[test]
fn split_refuses_before_it_writes_anything() {
    let folder = Folder::with_demo();
    fs::write(folder.path("part_1.mcap"), "mine").expect("writes");
    let told = folder.run("split run.mcap -o part.mcap --duration 200ms");
    assert!(told.contains("part_1.mcap exists already"), "{told}");
    fs::rename(folder.path("run.mcap"), folder.path("run_2.mcap")).expect("renames");
    let told = folder.run("split run_2.mcap -o run.mcap --duration 200ms --force");
    assert!(
        told.contains("is the recording that is being read"),
        "{told}"
    );
    assert_eq!(folder.names(), ["part_1.mcap", "run_2.mcap"]);
}

#[test]
fn parts_that_an_earlier_split_left_are_told() {
    let folder = Folder::with_demo();
    assert_eq!(
        folder.exit_code("split run.mcap -o part.mcap --duration 200ms"),
        0
    );
    let told = folder.run("split run.mcap -o part.mcap --duration 600ms --force");
    assert!(
        told.contains("part_2.mcap is from an earlier split"),
        "{told}"
    );
}

#[test]
fn times_without_a_message_make_no_part() {
    // Two messages, at 1 s and at 2 s.
    let folder = Folder::with_attachment(b"x");
    let done = json(&folder.stdout("split with.mcap -o part.mcap --duration 100ms --json"));
    let parts = done["parts"].as_array().expect("parts");
    let starts: Vec<_> = parts.iter().map(|part| part["start"].as_i64()).collect();
    assert_eq!(starts, [Some(1_000_000_000), Some(2_000_000_000)]);
    let none =
        json(&folder.stdout("split with.mcap -o none.mcap --duration 1s --start +5s --json"));
    assert_eq!(none["parts"], serde_json::json!([]));
}

#[test]
fn years_between_two_drives_make_no_parts_but_a_slip_of_the_finger_is_told() {
    let folder = Folder::with_attachment(b"x");
    let demo = Folder::with_demo();
    fs::copy(demo.path("run.mcap"), folder.path("run.mcap")).expect("copies");
    let done =
        json(&folder.stdout("split with.mcap run.mcap -o part.mcap --duration 500ms --json"));
    let parts = done["parts"].as_array().expect("parts");
    assert!((4..8).contains(&parts.len()), "{done}");
    let options = McapWriterOptions::default();
    let mut writer = McapWriter::create(folder.path("often.mcap"), options).expect("creates");
    for number in 0..1500 {
        let at = asof::Stamp::from_nanos(number * 1_000_000);
        let message = asof::Message {
            channel: std::sync::Arc::default(),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: vec![1].into(),
        };
        writer.write(&message).expect("writes");
    }
    writer.finish().expect("finishes");
    let told = folder.run("split often.mcap -o many.mcap --duration 1us");
    assert!(told.contains("choose a longer --duration"), "{told}");
    assert!(!folder.path("many_0.mcap").exists());
}

#[test]
fn parts_are_small_where_chunks_would_be_larger() {
    let folder = Folder::with_demo();
    let done = json(&folder.stdout("split run.mcap -o part.mcap --size 30k --json"));
    let parts = done["parts"].as_array().expect("parts");
    assert!(parts.len() > 2, "{done}");
    for part in parts {
        assert!(part["size"].as_u64().expect("a size") < 70 << 10, "{part}");
    }
}
