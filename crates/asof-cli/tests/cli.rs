//! What the command line says, held by snapshots; and what it promises about exit codes and files.
//!
//! The recordings are made by `asof demo`, which makes the same bytes everywhere. After a change that is
//! meant, `INSTA_UPDATE=always cargo test -p asof-cli` writes the snapshots anew; read the difference.

mod common;

use std::fs;

use common::{Folder, asof};
use insta::assert_snapshot;

#[test]
fn demo_shows_what_it_made_and_what_to_try() {
    let folder = Folder::empty();
    assert_snapshot!(folder.run("demo --seconds 1"));
}

#[test]
fn demo_makes_the_same_bytes_from_the_same_seed() {
    let folder = Folder::empty();
    for name in ["a.mcap", "b.mcap"] {
        folder.run(&format!("demo -o {name} --seconds 1 --seed 5"));
    }
    folder.run("demo -o c.mcap --seconds 1 --seed 6");
    assert_eq!(folder.read("a.mcap"), folder.read("b.mcap"));
    assert_ne!(folder.read("a.mcap"), folder.read("c.mcap"));
}

#[test]
fn demo_speaks_protobuf_and_json_too() {
    let folder = Folder::empty();
    for encoding in ["protobuf", "json"] {
        let line = format!("demo -o {encoding}.mcap --seconds 1 --encoding {encoding} --json");
        let info = json(&folder.stdout(&line));
        let topics = info["topics"].as_array().expect("topics");
        assert!(topics.len() > 8, "{info}");
        assert!(
            topics.iter().all(|topic| topic["encoding"] == encoding),
            "{info}"
        );
    }
}

#[test]
fn demo_replaces_its_own_recording_and_nobody_elses() {
    let folder = Folder::with_demo();
    assert_eq!(folder.exit_code("demo -o run.mcap --seconds 0"), 0);
    fs::write(folder.path("run.mcap"), "precious").expect("write");
    assert_snapshot!(folder.run("demo -o run.mcap --seconds 0"));
    assert_eq!(folder.read("run.mcap"), b"precious");
    assert_eq!(folder.exit_code("demo -o run.mcap --seconds 0 --force"), 0);
}

#[test]
fn demo_refuses_a_length_that_is_none() {
    let folder = Folder::empty();
    assert_snapshot!(folder.run("demo --seconds forever"));
    assert_eq!(folder.exit_code("demo --seconds -1"), 2);
    assert_eq!(folder.exit_code("demo --seconds NaN"), 2);
    assert!(!folder.path("asof-demo.mcap").exists());
}

#[test]
fn info_shows_a_table() {
    assert_snapshot!(Folder::with_demo().run("info run.mcap"));
}

#[test]
fn info_in_json_is_one_object() {
    assert_snapshot!(Folder::with_demo().run("info run.mcap --json"));
}

#[test]
fn info_of_chosen_topics_and_times_counts_what_is_there() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("info run.mcap --topics /tf*,/odom --start +0.5s --json"));
}

#[test]
fn info_of_a_recording_without_messages_has_no_times() {
    let folder = Folder::empty();
    folder.run("demo -o none.mcap --seconds 0");
    assert_snapshot!(folder.run("info none.mcap --topics /scan --json"));
}

#[test]
fn info_shows_names_of_any_length() {
    let folder = Folder::empty();
    let options = asof::formats::McapWriterOptions::default();
    let path = folder.path("long.mcap");
    let mut writer = asof::formats::McapWriter::create(path, options).expect("creates");
    let channel = asof::Channel {
        topic: "x".repeat(100_000),
        ..asof::Channel::default()
    };
    writer
        .write(&asof::Message {
            channel: channel.into(),
            log_time: 1.into(),
            publish_time: 1.into(),
            sequence: 0,
            payload: vec![1].into(),
        })
        .expect("writes");
    writer.finish().expect("finishes");
    assert_eq!(folder.exit_code("info long.mcap"), 0);
    let lines = folder.stdout("info long.mcap");
    assert!(lines.lines().filter(|line| line.len() > 500).count() == 1);
}

#[test]
fn info_of_a_cut_file_says_what_is_wrong() {
    assert_snapshot!(Folder::with_cut_demo().run("info cut.mcap --topics /scan"));
}

#[test]
fn info_goes_on_to_the_next_place_and_fails_all_the_same() {
    assert_snapshot!(Folder::with_demo().run("info nowhere.mcap run.mcap --topics /scan --json"));
}

#[test]
fn colors_come_when_they_are_asked_for() {
    assert_snapshot!(Folder::with_demo().run("info run.mcap --topics /scan --color always"));
}

#[test]
fn cat_prints_a_line_for_each_message() {
    assert_snapshot!(Folder::with_demo().run("cat run.mcap --raw --limit 5"));
}

#[test]
fn cat_in_json_has_the_payload_in_base64() {
    assert_snapshot!(
        Folder::with_demo().run("cat run.mcap --raw --json --topics /cmd_vel --limit 2")
    );
}

#[test]
fn cat_prints_decoded_messages() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("cat run.mcap --topics /cmd_vel,/bumper --limit 3"));
    assert_snapshot!(folder.run("cat run.mcap --topics /odom --limit 1 --json"));
    assert_snapshot!(folder.run("cat run.mcap --topics /cmd_vel --limit 3 --csv"));
}

#[test]
fn at_shows_the_last_message_of_every_topic() {
    let folder = Folder::with_demo();
    assert_snapshot!(
        folder.run("at run.mcap --time +0.5s --topics /cmd_vel,/bumper,/tf_static --json")
    );
    assert_snapshot!(folder.run("at run.mcap --time banana"));
}

#[test]
fn export_writes_a_table_per_topic() {
    let folder = Folder::with_demo();
    for format in ["parquet", "arrow", "csv", "ndjson"] {
        folder.stdout(&format!(
            "export run.mcap -o {format} --format {format} --topics /odom,/imu"
        ));
    }
}

#[test]
fn both_ends_of_a_time_are_in() {
    let folder = Folder::with_demo();
    let all = folder.stdout("cat run.mcap --raw --json --topics /odom");
    let times: Vec<i64> = all
        .lines()
        .map(|line| json(line)["log_time"].as_i64().expect("time"))
        .collect();
    let (third, fifth) = (times[2], times[4]);
    let some = folder.stdout(&format!(
        "cat run.mcap --raw --json --topics /odom --start {third}ns --end {fifth}ns"
    ));
    assert_eq!(
        some.lines().collect::<Vec<_>>(),
        all.lines().skip(2).take(3).collect::<Vec<_>>()
    );
}

#[test]
fn times_count_from_both_ends_of_the_recording() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("cat run.mcap --raw --topics /odom --start -0.05s"));
    assert_snapshot!(folder.run("cat run.mcap --raw --topics /odom --end +0.05s"));
}

#[test]
fn a_start_after_the_end_is_nothing_and_said_so() {
    assert_snapshot!(Folder::with_demo().run("cat run.mcap --raw --start -0.1s --end +0.1s"));
}

#[test]
fn a_time_outside_of_the_recording_is_nothing_and_said_so() {
    assert_snapshot!(Folder::with_demo().run("cat run.mcap --raw --start 2030-01-01T00:00:00Z"));
}

#[test]
fn a_topic_that_is_not_there_is_said_so() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("cat run.mcap --raw --topics scan,/nothing* --json"));
    assert_eq!(
        folder.exit_code("cat run.mcap --raw --topics nothing -q"),
        2
    );
}

#[test]
fn a_text_that_is_no_time_is_wrong_usage() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("cat run.mcap --raw --start banana"));
    assert_eq!(folder.exit_code("info run.mcap --end yesterday"), 2);
}

#[test]
fn metadata_comes_out_as_json() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("cat run.mcap --metadata asof-demo"));
    assert_snapshot!(folder.run("cat run.mcap --metadata other"));
}

#[test]
fn an_attachment_comes_out_as_it_went_in() {
    let folder = Folder::with_attachment(b"a: 1\n\xff\0");
    assert_eq!(
        folder
            .output("cat with.mcap --attachment robot.yaml")
            .stdout,
        b"a: 1\n\xff\0"
    );
    assert_snapshot!(folder.run("cat with.mcap --attachment map.png"));
    assert_snapshot!(folder.run("info with.mcap"));
}

#[test]
fn cat_of_a_cut_file_prints_what_is_left_and_exits_with_3() {
    let folder = Folder::with_cut_demo();
    assert_snapshot!(folder.run("cat cut.mcap --raw --topics /map --json --limit 0"));
    let left = folder.stdout("cat cut.mcap --raw --json").lines().count();
    assert!(left > 100, "{left} messages");
}

#[test]
fn doctor_finds_a_whole_file_healthy() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("doctor run.mcap"));
    assert_snapshot!(folder.run("doctor run.mcap --json"));
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let folder = Folder::with_cut_demo();
    assert_snapshot!(folder.run("doctor cut.mcap"));
    assert_snapshot!(folder.run("doctor cut.mcap --json"));
}

#[test]
fn doctor_notices_a_flipped_bit() {
    let folder = Folder::with_demo();
    let mut bytes = folder.read("run.mcap");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(folder.path("flipped.mcap"), bytes).expect("write");
    assert_eq!(folder.exit_code("doctor flipped.mcap"), 3);
}

#[test]
fn recover_saves_what_is_left_into_a_healthy_file() {
    let folder = Folder::with_cut_demo();
    assert_snapshot!(folder.run("recover cut.mcap -o saved.mcap"));
    assert_snapshot!(folder.run("doctor saved.mcap"));
    assert_eq!(
        folder.stdout("cat saved.mcap --raw --json"),
        folder.stdout("cat cut.mcap --raw --json")
    );
}

#[test]
fn recover_of_a_whole_file_loses_nothing() {
    let folder = Folder::with_attachment(b"kept");
    for compression in ["zstd", "lz4", "none"] {
        let out = format!("{compression}.mcap");
        let line = format!("recover with.mcap -o {out} --compression {compression} --json");
        assert_eq!(folder.exit_code(&line), 0);
        let info = json(&folder.stdout(&format!("info {out} --json")));
        assert_eq!(info["compression"], compression);
        assert_eq!(
            folder.stdout(&format!("cat {out} --attachment robot.yaml")),
            "kept"
        );
        assert_eq!(
            folder.stdout(&format!("cat {out} --raw --json")),
            folder.stdout("cat with.mcap --raw --json")
        );
    }
    assert_snapshot!(folder.run("recover with.mcap -o again.mcap --json"));
}

#[cfg(unix)]
#[test]
fn recover_never_writes_over_its_input() {
    let folder = Folder::with_cut_demo();
    let before = folder.read("cut.mcap");
    std::os::unix::fs::symlink(folder.path("cut.mcap"), folder.path("soft.mcap")).expect("link");
    fs::hard_link(folder.path("cut.mcap"), folder.path("hard.mcap")).expect("link");
    fs::create_dir(folder.path("sub")).expect("folder");
    for out in ["cut.mcap", "./sub/../cut.mcap", "soft.mcap", "hard.mcap"] {
        assert_eq!(
            folder.exit_code(&format!("recover cut.mcap -o {out} --force")),
            1,
            "{out}"
        );
    }
    assert_eq!(folder.read("cut.mcap"), before);
    assert_snapshot!(folder.run("recover soft.mcap -o cut.mcap --force"));
}

#[test]
fn recover_replaces_a_file_only_by_force() {
    let folder = Folder::with_cut_demo();
    fs::write(folder.path("saved.mcap"), "precious").expect("write");
    assert_snapshot!(folder.run("recover cut.mcap -o saved.mcap"));
    assert_eq!(folder.read("saved.mcap"), b"precious");
    assert_eq!(
        folder.exit_code("recover cut.mcap -o saved.mcap --force"),
        3
    );
    assert_eq!(folder.exit_code("doctor saved.mcap"), 0);
}

#[test]
fn recover_that_fails_leaves_nothing_behind() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("recover run.mcap -o missing/out.mcap"));
    fs::create_dir(folder.path("folder")).expect("folder");
    assert_snapshot!(folder.run("recover run.mcap -o folder --force"));
    assert_snapshot!(folder.run("recover nowhere.mcap -o out.mcap"));
    assert_eq!(folder.names(), ["folder", "run.mcap"]);
}

#[test]
fn what_is_no_recording_is_refused_by_every_verb() {
    let folder = Folder::empty();
    fs::write(folder.path("empty.mcap"), "").expect("write");
    fs::write(
        folder.path("text.mcap"),
        "this is some text, and no recording\n",
    )
    .expect("write");
    fs::write(folder.path("run.bag"), "#ROSBAG V1.2\n").expect("write");
    fs::write(folder.path("run.db3"), "SQLite format 3\0").expect("write");
    fs::create_dir(folder.path("folder")).expect("folder");
    let places = [
        "missing.mcap",
        "empty.mcap",
        "text.mcap",
        "run.bag",
        "run.db3",
        "folder",
        "ftp://robot/run.mcap",
    ];
    for place in places {
        for verb in ["cat --raw", "doctor", "recover -o out.mcap"] {
            assert_eq!(
                folder.exit_code(&format!("{verb} {place}")),
                1,
                "{verb} {place}"
            );
        }
    }
    let told: String = places
        .iter()
        .map(|place| folder.run(&format!("info {place}")))
        .collect();
    assert_snapshot!(told);
}

#[test]
fn causes_are_told_with_v() {
    assert_snapshot!(Folder::empty().run("-v info missing.mcap"));
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    let folder = Folder::empty();
    let lines = [
        "frobnicate",
        "cat",
        "info run.mcap --topic x",
        "recover a b -o c.mcap",
        "cat a --raw --limit many",
        "completions tcsh",
    ];
    let told: String = lines.iter().map(|line| folder.run(line)).collect();
    assert_snapshot!(told);
}

#[test]
fn every_verbs_help_ends_with_examples() {
    let folder = Folder::empty();
    for verb in [
        "demo",
        "info",
        "cat",
        "convert",
        "split",
        "doctor",
        "recover",
        "completions",
    ] {
        for flag in ["-h", "--help"] {
            let help = folder.stdout(&format!("{verb} {flag}"));
            let (_, examples) = help.rsplit_once("Examples:\n").expect(verb);
            let examples: Vec<&str> = examples.lines().collect();
            // Of verbs that take a running robot, one shows that.
            assert!((2..=4).contains(&examples.len()), "{help}");
            let start = format!("  asof {verb}");
            assert!(
                examples.iter().all(|line| line.starts_with(&start)),
                "{help}"
            );
        }
    }
}

#[test]
fn help_names_the_flags() {
    let folder = Folder::empty();
    assert_snapshot!(folder.run("--help"));
    assert_snapshot!(folder.run("cat --help"));
}

#[test]
fn completions_come_for_every_shell() {
    let folder = Folder::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = folder.stdout(&format!("completions {shell}"));
        // It asks for the names when they are needed.
        assert!(script.contains("ASOF_COMPLETE"), "{shell}: {script}");
    }
}

#[test]
fn the_manual_has_a_page_for_the_command_and_one_for_each_verb() {
    let folder = Folder::empty();
    assert_eq!(folder.stdout("manual pages/man1"), "");
    let page = |name: &str| fs::read_to_string(folder.path(&format!("pages/man1/{name}.1")));
    let overview = page("asof").expect("asof(1)");
    let help = folder.stdout("--help");
    let verbs = help.split_once("Commands:\n").expect("verbs").1;
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    let verbs: Vec<&str> = verbs
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        verbs.contains(&"recover") && !verbs.contains(&"manual"),
        "{verbs:?}"
    );
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        assert!(page(&format!("asof-{verb}")).is_ok(), "no page for {verb}");
        assert!(
            overview.contains(&format!("{verb}(1)")),
            "{verb} is not in asof(1)"
        );
    }
    assert!(
        page("asof-cat")
            .expect("asof-cat(1)")
            .contains("\\-\\-topics")
    );
    fs::write(folder.path("file"), "").expect("writes");
    assert!(
        folder
            .run("manual file")
            .contains("cannot write the manual to file")
    );
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let folder = Folder::with_demo();
    let mut child = asof()
        .args(["cat", "run.mcap", "--raw", "--json"])
        .current_dir(folder.path("."))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("asof");
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("pipe"));
    reader.read_line(&mut line).expect("a line");
    drop(reader);
    let output = child.wait_with_output().expect("asof");
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[cfg(unix)]
#[test]
fn an_interrupt_takes_the_unfinished_file_away() {
    use std::process::Command;
    let folder = Folder::empty();
    let mut child = asof()
        .args(["demo", "--seconds", "1000000"])
        .current_dir(folder.path("."))
        .spawn()
        .expect("asof");
    asof_core::testing::eventually("the file in the making", || folder.names().len() == 1);
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("kill")
            .success()
    );
    assert_eq!(child.wait().expect("asof").code(), Some(130));
    assert_eq!(folder.names(), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let folder = Folder::with_demo();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = asof()
        .args(["cat", "run.mcap", "--raw", "--json"])
        .current_dir(folder.path("."))
        .stdout(full)
        .output()
        .expect("asof");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output
            .stderr
            .starts_with(b"error: cannot write to the output: No space left")
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_written_is_named_and_removed() {
    let folder = Folder::with_demo();
    for (line, file) in [
        ("export run.mcap -o out --topics /imu", "out/imu.parquet"),
        (
            "export run.mcap -o out --topics /imu --format csv",
            "out/imu.csv",
        ),
        (
            "export run.mcap -o out --topics /imu --format ndjson",
            "out/imu.ndjson",
        ),
        ("export run.mcap -o out --format images", ".jpg"),
        (
            "join run.mcap --anchor /scan --with /odom -o pairs.csv",
            "pairs.csv",
        ),
        (
            "join run.mcap --anchor /scan --with /odom -o pairs.parquet",
            "pairs.parquet",
        ),
        ("check run.mcap --write -f hopes.toml", "hopes.toml"),
        ("convert run.mcap -o copy.mcap", "copy.mcap"),
    ] {
        // No file may grow: as on a full disk, each write fails.
        let (code, told) = folder.on_full_disk(0, line);
        assert_eq!(code, Some(1), "{line}: {told}");
        let error = told.lines().find(|line| line.starts_with("error: "));
        let error = error.unwrap_or_else(|| panic!("{line}: {told}"));
        assert!(
            error.contains(file) && error.contains("File too large"),
            "{line}: {error}"
        );
        let mut left = folder.names();
        left.retain(|name| name != "run.mcap" && name != "out");
        assert_eq!(left, [""; 0], "{line}");
        let tables = fs::read_dir(folder.path("out")).into_iter().flatten();
        let files = tables.flatten().filter(|entry| entry.path().is_file());
        assert_eq!(files.count(), 0, "{line}");
    }
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect(text)
}

#[test]
fn convert_cuts_renames_and_tells_what_it_did() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run(
        "convert run.mcap -o cut.mcap --start +0.5s --exclude /camera*,/map --rename /odom=/robot/odom --json"
    ));
    let info = json(&folder.stdout("info cut.mcap --json"));
    let topics: Vec<&str> = info["topics"]
        .as_array()
        .expect("topics")
        .iter()
        .filter_map(|topic| topic["topic"].as_str())
        .collect();
    assert!(
        topics.contains(&"/robot/odom") && topics.contains(&"/tf_static"),
        "{topics:?}"
    );
    assert!(
        !topics.contains(&"/odom") && !topics.contains(&"/map"),
        "{topics:?}"
    );
    assert_eq!(folder.exit_code("doctor cut.mcap"), 0);
}

#[test]
fn convert_merges_places_and_keeps_every_message() {
    let folder = Folder::with_demo();
    folder.run("convert run.mcap -o early.mcap --end 1714564800500181578ns");
    folder.run(
        "convert run.mcap -o late.mcap --start 1714564800500181579ns --no-latched --no-attachments",
    );
    folder.run("convert late.mcap early.mcap -o both.mcap --compression lz4 --chunk-size 64k");
    let messages =
        |name: &str| json(&folder.stdout(&format!("info {name} --json")))["messages"].clone();
    let all = messages("run.mcap");
    assert_eq!(messages("both.mcap"), all);
    assert_eq!(
        folder.stdout("cat early.mcap late.mcap --raw --json"),
        folder.stdout("cat run.mcap --raw --json")
    );
}

#[test]
fn convert_never_writes_over_its_input() {
    let folder = Folder::with_demo();
    let before = folder.read("run.mcap");
    assert_snapshot!(folder.run("convert run.mcap -o run.mcap --force"));
    assert_eq!(folder.exit_code("convert . -o run.mcap --force"), 1);
    assert_eq!(folder.read("run.mcap"), before);
    assert_eq!(folder.names(), ["run.mcap"]);
}

#[test]
fn convert_refuses_what_it_cannot_obey() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("convert run.mcap -o out.mcap --rename odom"));
    assert_eq!(
        folder.exit_code("convert run.mcap -o out.mcap --chunk-size 0"),
        2
    );
    assert_eq!(
        folder.exit_code("convert run.mcap -o out.mcap --level 40"),
        2
    );
    assert_eq!(folder.exit_code("convert run.mcap"), 2);
    assert_eq!(folder.exit_code("convert nowhere.bag -o out.mcap"), 1);
    assert!(!folder.path("out.mcap").exists());
}

#[test]
#[cfg(not(feature = "live"))]
fn a_verb_that_is_not_in_the_build_names_the_packages_that_have_it_and_the_line_that_builds_it() {
    let lines = [
        ("live zenoh://127.0.0.1:1", "live"),
        ("serve zenoh://127.0.0.1:1", "live"),
        ("record zenoh://127.0.0.1:1 -o run.mcap", "live"),
        ("play run.mcap zenoh://127.0.0.1:1", "live"),
        ("cluster status 127.0.0.1:1", "cluster"),
    ];
    for (line, feature) in lines {
        let output = asof().args(line.split(' ')).output().expect("run");
        assert_eq!(output.status.code(), Some(1), "{line}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the Debian package"), "{line}: {said}");
        let build = format!("cargo install --path crates/asof-cli --features {feature}");
        assert!(said.contains(&build), "{line}: {said}");
    }
}
