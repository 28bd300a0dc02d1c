//! Files that grow, parts of files, and files of others.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use asof::formats::{McapWriter, McapWriterOptions};
use asof::{Message, Stamp};
use common::{Folder, asof};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect(text)
}

/// Messages that the writer below writes.
const WRITTEN: i64 = 150;

/// No test of its own: the one below runs this program again, in which this writes a recording, slowly.
#[test]
fn a_writer_in_a_process_of_its_own() {
    let Some(path) = std::env::var_os("ASOF_TEST_WRITE_SLOWLY") else {
        return;
    };
    let options = McapWriterOptions {
        chunk_age: Some(Duration::from_millis(100)),
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(path, options).expect("creates");
    let channel = Arc::new(asof::Channel {
        topic: "/count".into(),
        message_encoding: "json".into(),
        ..asof::Channel::default()
    });
    for number in 0..WRITTEN {
        let at = Stamp::from_nanos(number * 10_000_000);
        let payload = format!("{{\"number\":{number}}}").into();
        let channel = Arc::clone(&channel);
        let message = Message {
            channel,
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload,
        };
        writer.write(&message).expect("writes");
        std::thread::sleep(Duration::from_millis(5));
    }
    writer.finish().expect("finishes");
}

#[test]
fn cat_follows_recordings_until_their_writers_close_them() {
    let folder = Folder::with_demo();
    let path = folder.path("growing.mcap");
    std::fs::write(&path, "").expect("writes");
    let start = |places: &[&Path]| {
        // Nobody knows yet that there will be such a topic.
        let chosen = "/count,/odom";
        asof()
            .args(["cat", "--follow", "--json", "--topics", chosen])
            .args(places)
            .stdout(Stdio::piped())
            .spawn()
            .expect("asof runs")
    };
    let readers = [
        (start(&[&path]), 0),
        (
            start(&[&folder.path("run.mcap"), &path]),
            folder.stdout("cat run.mcap --topics /odom").lines().count(),
        ),
    ];
    let mut writer = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_writer_in_a_process_of_its_own"])
        .env("ASOF_TEST_WRITE_SLOWLY", &path)
        .stdout(Stdio::null())
        .spawn()
        .expect("the writer runs");
    assert!(writer.wait().expect("the writer ends").success());
    for (reader, others) in readers {
        let output = reader.wait_with_output().expect("asof ends");
        assert!(output.status.success());
        let lines = String::from_utf8(output.stdout).expect("text");
        let rows: Vec<_> = lines.lines().map(json).collect();
        let numbers = rows.iter().filter_map(|row| row["data"]["number"].as_i64());
        assert_eq!(
            numbers.collect::<Vec<_>>(),
            (0..WRITTEN).collect::<Vec<_>>()
        );
        let odometry = rows.iter().filter(|row| row["topic"] == "/odom");
        assert_eq!(odometry.count(), others);
        assert_eq!(rows.len(), others + WRITTEN as usize, "and nothing else");
    }
}

#[test]
fn cat_follows_from_the_end_of_what_there_is_and_stops_at_a_limit() {
    let folder = Folder::with_demo();
    let all = folder.stdout("cat run.mcap --json --topics /odom");
    let followed = folder.stdout("cat run.mcap --json --topics /odom --follow");
    assert_eq!(all, followed);
    let last = folder.stdout("cat run.mcap --json --topics /odom --follow --start -0.1s --limit 3");
    assert_eq!(last.lines().count(), 3);
    assert_eq!(folder.exit_code("cat http://x/run.mcap --follow"), 2);
}

/// What happens to a file, and what is told of it.
type Change = (fn(&Path), &'static str);

#[test]
fn cat_ends_in_a_sentence_when_the_file_it_follows_is_replaced_removed_or_cut() {
    let changes: [Change; 3] = [
        (
            |path| {
                let other = path.with_extension("other");
                std::fs::write(&other, "another file").expect("writes");
                std::fs::rename(other, path).expect("renames");
            },
            "another file took its place",
        ),
        (
            |path| std::fs::remove_file(path).expect("removes"),
            "it was removed",
        ),
        (
            |path| {
                let file = File::options().write(true).open(path).expect("opens");
                file.set_len(100).expect("cuts");
            },
            "it became shorter",
        ),
    ];
    for (change, told) in changes {
        let folder = Folder::with_demo();
        folder.run("convert run.mcap -o cut.mcap --chunk-size 16k");
        let path = folder.path("cut.mcap");
        let bytes = folder.read("cut.mcap");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
        let mut reader = asof()
            .args(["cat", "--follow", "--json"])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("asof runs");
        let mut lines = BufReader::new(reader.stdout.take().expect("its output")).lines();
        assert!(lines.next().is_some_and(|line| line.is_ok()));
        // A recorder that is killed never closes its file: what there is comes, and the follower waits for more.
        assert!(reader.try_wait().expect("waits").is_none());
        change(&path);
        let rest = lines.count();
        let output = reader.wait_with_output().expect("asof ends");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(rest > 0 && text.contains(told), "{rest} lines, {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn info_on_a_file_that_is_being_written_tells_what_there_is_so_far() {
    let folder = Folder::with_cut_demo();
    let output = folder.output("info cut.mcap --json");
    assert_eq!(output.status.code(), Some(3));
    let info = json(&String::from_utf8_lossy(&output.stdout));
    assert_ne!(info["messages"], 0);
    assert_ne!(info["problems"], serde_json::json!([]));
}

#[test]
fn split_by_time_puts_every_message_into_one_part_and_static_transforms_into_all() {
    let folder = Folder::with_demo();
    let done = json(&folder.stdout("split run.mcap -o part.mcap --duration 300ms --json"));
    let parts = done["parts"].as_array().expect("parts");
    assert_eq!(parts.len(), 4);
    let info = json(&folder.stdout("info run.mcap --json"));
    assert_eq!(done["messages"], info["messages"]);
    for part in parts {
        let name = part["output"].as_str().expect("a name");
        let info = json(&folder.stdout(&format!("info {name} --topics /tf_static --json")));
        assert_ne!(info["messages"], 0, "{name}");
        assert_eq!(folder.exit_code(&format!("doctor {name}")), 0);
        let longest = part["end"].as_i64().zip(part["start"].as_i64());
        assert!(longest.is_some_and(|(end, start)| end - start < 300_000_000));
    }
    let tied = folder
        .stdout("cat part_0.mcap part_1.mcap part_2.mcap part_3.mcap --json --raw --topics /odom");
    assert_eq!(
        tied,
        folder.stdout("cat run.mcap --json --raw --topics /odom")
    );
}

#[test]
fn split_by_size_stays_near_the_size() {
    let folder = Folder::with_demo();
    let whole = folder.read("run.mcap").len() as u64;
    let done =
        json(&folder.stdout("split run.mcap -o part.mcap --size 100k --chunk-size 32k --json"));
    let parts = done["parts"].as_array().expect("parts");
    assert!(
        parts.len() as u64 >= whole / (200 << 10),
        "{} parts",
        parts.len()
    );
    let info = json(&folder.stdout("info run.mcap --json"));
    assert_eq!(done["messages"], info["messages"]);
    assert_eq!(folder.exit_code("split run.mcap -o run.mcap"), 2);
    assert_eq!(
        folder.exit_code("split . -o part.mcap --size 100k --force"),
        1
    );
}

#[test]
fn an_address_where_nobody_answers_is_told_by_name() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    drop(listener);
    let place = format!("http://{address}/run.mcap");
    let told = Folder::empty().run(&format!("info {place}"));
    assert!(told.contains(&place) && told.contains("exit 1"), "{told}");
    let is_told = told.contains("refused") || told.contains("--features remote");
    assert!(is_told, "{told}");
}

/// A recording from elsewhere; `None`, and says so, where there is none.
fn recording(name: &str) -> Option<String> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let data = std::env::var("ASOF_TEST_DATA").unwrap_or_else(|_| beside.to_owned());
    let path = Path::new(&data).join("recordings").join(name);
    if path.exists() {
        return Some(path.display().to_string());
    }
    asof_core::testing::skipped(format_args!("no {} (set ASOF_TEST_DATA)", path.display()));
    None
}

#[test]
fn convert_to_ros_2_transcodes_standard_types_and_the_robots_own() {
    let Some(bag) = recording("turtlesim-lz4.bag") else {
        return;
    };
    let folder = Folder::empty();
    let done = json(&folder.stdout(&format!("convert {bag} -o out.mcap --to ros2 --json")));
    assert_eq!(
        (&done["messages"], &done["transcoded"]),
        (&8647.into(), &8647.into())
    );
    assert!(done["kept"].as_array().is_none_or(Vec::is_empty), "{done}");
    let first = "--topics /turtle1/pose --limit 1 --json";
    let told = |place: &str| json(&folder.stdout(&format!("cat {place} {first}")));
    assert_eq!(told("out.mcap")["data"], told(&bag)["data"]);
    assert_eq!(told("out.mcap")["type"], "turtlesim/msg/Pose");
    let info = json(&folder.stdout("info out.mcap --json --topics /tf"));
    assert_eq!(info["topics"][0]["type"], "tf2_msgs/msg/TFMessage");
    assert_eq!(info["topics"][0]["encoding"], "cdr");
    let line = folder.stdout("cat out.mcap --topics /tf --limit 1 --json");
    assert!(
        json(&line)["data"]["transforms"][0]["header"]["stamp"]["nanosec"].is_u64(),
        "{line}"
    );
}

#[test]
fn a_type_without_a_definition_is_told_with_the_flag_that_helps_and_does() {
    let Some(bag) = recording("go2-vicon.db3") else {
        return;
    };
    let folder = Folder::empty();
    let package = folder.path("share/vicon_receiver/msg");
    std::fs::create_dir_all(&package).expect("a folder");
    let definition = "std_msgs/Header header\nfloat32 x_trans\nfloat32 y_trans\nfloat32 z_trans\nfloat32 x_rot\nfloat32 y_rot\n\
        float32 z_rot\nfloat32 w\nstring segment_name\nstring subject_name\nint32 frame_number\n\
        string translation_type\n";
    std::fs::write(package.join("Position.msg"), definition).expect("writes");
    for verb in ["cat --limit 1", "at --time -1s"] {
        let line = format!("{verb} {bag} --topics /vicon/* --json");
        let told = folder.run(&line);
        assert!(
            told.contains("no definition of vicon_receiver/msg/Position is known"),
            "{told}"
        );
        assert!(told.contains("--msg-path DIR"), "{told}");
        let found = json(&folder.stdout(&format!("{line} --msg-path share")));
        assert_eq!(found["data"]["subject_name"], "UnitreeGo2", "{found}");
    }
}

#[test]
fn folders_of_definitions_that_do_not_help_are_told_with_the_reason() {
    let Some(bag) = recording("go2-vicon.db3") else {
        return;
    };
    let folder = Folder::empty();
    let package = folder.path("share/vicon_receiver/msg");
    std::fs::create_dir_all(&package).expect("a folder");
    std::fs::create_dir(folder.path("empty")).expect("a folder");
    std::fs::write(package.join("Position.msg"), "Marker[] markers\n").expect("writes");
    for (given, told) in [
        (
            "share",
            "the definition of vicon_receiver/msg/Position needs vicon_receiver/msg/Marker",
        ),
        ("empty", "no .msg or .idl file below empty"),
        ("missing", "in missing: there is no such folder"),
        (
            "share/vicon_receiver/msg/Position.msg",
            "it is not a folder; name the folder that contains it",
        ),
    ] {
        let said = folder.run(&format!("info {bag} --msg-path {given}"));
        assert!(said.contains(told), "{given}: {said}");
    }
}

#[test]
fn a_type_that_is_defined_in_idl_alone_is_decoded() {
    let Some(bag) = recording("go2-vicon.db3") else {
        return;
    };
    let folder = Folder::empty();
    let package = folder.path("share/vicon_receiver/msg");
    std::fs::create_dir_all(&package).expect("a folder");
    let definition = "#include \"std_msgs/msg/Header.idl\"\n\
        module vicon_receiver { module msg { struct Position { std_msgs::msg::Header header;\n\
        float x_trans, y_trans, z_trans, x_rot, y_rot, z_rot, w;\n\
        string segment_name; string subject_name; int32 frame_number; string translation_type; }; }; };\n";
    std::fs::write(package.join("Position.idl"), definition).expect("writes");
    let line = format!("cat {bag} --topics /vicon/* --json --limit 1 --msg-path share");
    let found = json(&folder.stdout(&line));
    assert_eq!(found["data"]["subject_name"], "UnitreeGo2", "{found}");
    assert!(found["data"]["header"]["stamp"]["sec"].is_i64(), "{found}");
}

#[test]
fn info_shows_several_places_as_one_where_that_is_asked_for() {
    let folder = Folder::with_demo();
    std::fs::copy(folder.path("run.mcap"), folder.path("again.mcap")).expect("copies");
    let one = json(&folder.stdout("info run.mcap --json"));
    let both = json(&folder.stdout("info run.mcap again.mcap --merge --json"));
    let messages = one["messages"].as_u64().expect("a number");
    assert_eq!(both["messages"], 2 * messages);
    assert_eq!(both["path"], "run.mcap, again.mcap");
    let topics = |info: &serde_json::Value| info["topics"].as_array().map(Vec::len);
    assert_eq!(topics(&both), topics(&one));
    assert_eq!(folder.exit_code("info run.mcap missing.mcap --merge"), 1);
}

#[test]
fn doctor_checks_several_places_and_tells_of_the_worst() {
    let folder = Folder::with_cut_demo();
    let healthy = Folder::with_demo();
    std::fs::copy(healthy.path("run.mcap"), folder.path("run.mcap")).expect("copies");
    let lines = folder.stdout("doctor cut.mcap run.mcap --json");
    let healthy: Vec<_> = lines
        .lines()
        .map(|line| json(line)["healthy"].clone())
        .collect();
    assert_eq!(healthy, [false, true]);
    assert_eq!(folder.exit_code("doctor run.mcap run.mcap"), 0);
    assert_eq!(folder.exit_code("doctor cut.mcap run.mcap"), 3);
    assert_eq!(folder.exit_code("doctor missing.mcap cut.mcap"), 1);
}

#[cfg(unix)]
#[test]
fn an_interrupt_takes_what_was_unpacked_with_it() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let folder = Folder::with_demo();
    let packed = zstd::encode_all(&folder.read("run.mcap")[..], 1).expect("packs");
    std::fs::write(folder.path("run.mcap.zst"), packed).expect("writes");
    std::fs::create_dir(folder.path("temporary")).expect("creates");
    let count = || std::fs::read_dir(folder.path("temporary")).map(Iterator::count);
    // The pipe is full long before the end, so that it waits.
    let mut cat = asof()
        .args(["cat", "run.mcap.zst", "--raw", "--json"])
        .current_dir(folder.path(""))
        .env("TMPDIR", folder.path("temporary"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut pipe = cat.stdout.take().expect("a pipe");
    pipe.read_exact(&mut [0; 100]).expect("something comes");
    assert_eq!(count().expect("a folder"), 1);
    let number = cat.id().to_string();
    let sent = Command::new("kill").args(["-INT", &number]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(cat.wait().expect("ends").code(), Some(130));
    assert_eq!(count().expect("a folder"), 0);
}

#[test]
fn types_that_a_folder_defines_for_ros_2_are_transcoded_too() {
    let Some(bag) = recording("turtlesim-lz4.bag") else {
        return;
    };
    let folder = Folder::empty();
    let package = folder.path("share/turtlesim/msg");
    std::fs::create_dir_all(&package).expect("a folder");
    std::fs::write(package.join("Color.msg"), "uint8 r\nuint8 g\nuint8 b\n").expect("writes");
    let pose =
        "float32 x\nfloat32 y\nfloat32 theta\nfloat32 linear_velocity\nfloat32 angular_velocity\n";
    std::fs::write(package.join("Pose.msg"), pose).expect("writes");
    let line = format!("convert {bag} -o out.mcap --to ros2 --msg-path share --json");
    let done = json(&folder.stdout(&line));
    assert_eq!(done["transcoded"], 8647);
    let info = json(&folder.stdout("info out.mcap --json --topics /turtle1/pose"));
    assert_eq!(info["topics"][0]["encoding"], "cdr", "{info}");
    let first = "--topics /turtle1/pose --limit 1 --json";
    let told = |place: &str| json(&folder.stdout(&format!("cat {place} {first}")))["data"].clone();
    assert_eq!(told("out.mcap"), told(&bag));
}
