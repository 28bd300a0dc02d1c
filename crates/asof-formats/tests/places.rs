//! Folders, and several recordings as one.

mod common;

use asof_core::testing::assert_source;

use std::path::Path;

use asof_core::{Query, Source};
use asof_formats::{BagFile, McapFile, McapWriter, McapWriterOptions, Merged, open, open_all};
use common::bags::{BagMaker, Said};
use common::messages;

fn bag(said: &[Said<'_>]) -> Box<dyn Source> {
    let mut maker = BagMaker::new("none");
    maker.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    maker.connect(1, "/scan", "sensor_msgs/LaserScan", "float64 y\n", false);
    for message in said {
        maker.chunk(&[*message]);
    }
    Box::new(BagFile::from_bytes("part.bag", maker.finish()).expect("opens"))
}

fn merged(parts: Vec<Box<dyn Source>>) -> Merged {
    let named = |(index, part)| (format!("part {index}"), part);
    Merged::new(parts.into_iter().enumerate().map(named).collect())
}

fn payloads(source: &dyn Source) -> Vec<String> {
    messages(source, &Query::all())
        .iter()
        .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
        .collect()
}

#[test]
fn overlapping_recordings_are_merged_by_time_and_ties_keep_their_order() {
    let one = bag(&[(0, (1, 0), b"a"), (0, (3, 0), b"c"), (0, (5, 0), b"e")]);
    let two = bag(&[(0, (2, 0), b"b"), (0, (3, 0), b"d"), (1, (9, 0), b"f")]);
    let both = merged(vec![one, two]);
    assert_eq!(payloads(&both), ["a", "b", "c", "d", "e", "f"]);
    assert_source(&both, "merged");
}

#[test]
fn channels_that_are_equal_are_one() {
    let both = merged(vec![bag(&[(0, (1, 0), b"a")]), bag(&[(0, (2, 0), b"b")])]);
    let summary = both.summary();
    assert_eq!(summary.channels.len(), 2);
    assert_eq!(summary.channels[0].messages, Some(2));
    let found = messages(&both, &Query::all());
    assert!(std::sync::Arc::ptr_eq(&found[0].channel, &found[1].channel));
}

#[test]
fn disjoint_recordings_given_backwards_come_in_order() {
    let both = merged(vec![
        bag(&[(0, (9, 0), b"late")]),
        bag(&[(0, (1, 0), b"early")]),
    ]);
    assert_eq!(payloads(&both), ["early", "late"]);
    assert_source(&both, "disjoint");
}

fn write_mcap(path: &Path) {
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("creates");
    writer
        .write_metadata("robot", [("name".to_owned(), "tortoise".to_owned())].into())
        .expect("writes");
    let channel = std::sync::Arc::new(asof_core::Channel {
        topic: "/chat".into(),
        ..asof_core::Channel::default()
    });
    writer
        .write(&asof_core::Message {
            channel,
            log_time: 2_000_000_000.into(),
            publish_time: 1.into(),
            sequence: 4,
            payload: "in mcap".into(),
        })
        .expect("writes");
    writer.finish().expect("finishes");
}

#[test]
fn a_folder_of_drives_is_one_recording_of_all_formats() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut maker = BagMaker::new("lz4");
    maker.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    maker.chunk(&[(0, (1, 0), b"in bag"), (0, (3, 0), b"in bag again")]);
    std::fs::create_dir(folder.path().join("morning")).expect("creates");
    std::fs::write(folder.path().join("morning/a.bag"), maker.finish()).expect("writes");
    std::fs::write(folder.path().join("notes.txt"), "hello").expect("writes");
    write_mcap(&folder.path().join("b.mcap"));
    let all = open(folder.path()).expect("opens");
    assert_eq!(payloads(&*all), ["in bag", "in mcap", "in bag again"]);
    assert_eq!(all.summary().format, "bag+mcap");
    let entry = all.summary().metadata[0].clone();
    assert_eq!(all.metadata(&entry).expect("its text")["name"], "tortoise");
    assert_eq!(all.check(&mut |_, _| Ok(())).expect("reads"), []);
}

#[test]
fn a_file_compressed_as_a_whole_opens_as_what_is_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    write_mcap(&path);
    let packed = zstd::encode_all(&std::fs::read(&path).expect("reads")[..], 3).expect("packs");
    let packed_path = folder.path().join("run.mcap.zstd");
    std::fs::write(&packed_path, &packed).expect("writes");
    assert_eq!(payloads(&*open(&packed_path).expect("opens")), ["in mcap"]);
    std::fs::write(&packed_path, &packed[..packed.len() - 5]).expect("writes");
    match open(&packed_path) {
        Ok(cut) => assert!(!cut.summary().problems.is_empty()),
        Err(error) => assert!(error.to_string().contains("run.mcap.zstd"), "{error}"),
    }
}

#[test]
fn a_folder_without_a_recording_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = open(folder.path()).map(|_| ()).expect_err("is refused");
    assert!(
        error.to_string().contains("no recording in this folder"),
        "{error}"
    );
    let nothing: [&str; 0] = [];
    assert!(open_all(&nothing, &asof_formats::OpenOptions::default()).is_err());
}

fn list_files(folder: &Path, names: &[&str]) {
    let lines: Vec<String> = names.iter().map(|name| format!("    - {name}")).collect();
    let head = "rosbag2_bagfile_information:\n  relative_file_paths:";
    let text = format!("{head}\n{}\n", lines.join("\n"));
    std::fs::write(folder.join("metadata.yaml"), text).expect("writes");
}

#[test]
fn a_folder_whose_files_are_missing_says_which_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    list_files(folder.path(), &["run_0.db3", "run_1.db3"]);
    let error = open(folder.path()).map(|_| ()).expect_err("is refused");
    let told = error.to_string();
    assert!(
        told.contains("lists run_0.db3") && told.contains("copy it here"),
        "{told}"
    );
}

#[test]
fn a_split_bag_without_one_of_its_parts_opens_and_says_which_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    list_files(folder.path(), &["run_0.mcap", "run_1.mcap"]);
    write_mcap(&folder.path().join("run_1.mcap"));
    let bag = open(folder.path()).expect("opens");
    assert_eq!(payloads(&*bag), ["in mcap"]);
    let problems = bag.summary().problems.clone();
    assert!(problems[0].message.contains("run_0.mcap"), "{problems:?}");
}

#[test]
fn a_split_bag_with_a_part_that_is_no_recording_opens_and_says_which() {
    let folder = tempfile::tempdir().expect("a folder");
    list_files(folder.path(), &["run_0.db3", "run_1.mcap"]);
    std::fs::write(
        folder.path().join("run_0.db3"),
        "SQLite format 3\0 and then nothing",
    )
    .expect("writes");
    write_mcap(&folder.path().join("run_1.mcap"));
    let bag = open(folder.path()).expect("opens");
    assert_eq!(payloads(&*bag), ["in mcap"]);
    let problems = bag.summary().problems.clone();
    assert!(problems[0].message.contains("run_0.db3"), "{problems:?}");
}

#[test]
fn a_bag_that_lists_its_own_description_opens_without_it() {
    let folder = folder_with_a_run();
    list_files(folder.path(), &["run.mcap", "metadata.yaml"]);
    let found = open(folder.path()).expect("opens");
    assert_eq!(found.summary().problems.len(), 1);
    assert!(!payloads(&found).is_empty());
}

#[test]
fn a_recording_that_was_renamed_is_found_in_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    list_files(folder.path(), &["rosbag2_2024_0.mcap"]);
    write_mcap(&folder.path().join("monday.mcap"));
    let bag = open(folder.path()).expect("opens");
    assert_eq!(payloads(&*bag), ["in mcap"]);
    assert!(
        bag.summary().problems[0]
            .message
            .contains("rosbag2_2024_0.mcap")
    );
}

#[test]
fn the_parts_of_a_split_bag_hold_what_the_whole_holds() {
    let Some(data) = common::test_data() else {
        return;
    };
    for (name, count) in [
        ("split-db3", 6074),
        ("split-mcap", 6074),
        ("msgcompressed-db3", 1127),
        ("filecompressed-one-db3", 0),
        ("auv-short-bag", 0),
    ] {
        let bag = open(data.join("recordings").join(name)).expect("opens");
        assert_eq!(bag.summary().problems, [], "{name}");
        let read = messages(&*bag, &Query::all()).len() as u64;
        assert_eq!(bag.summary().messages, Some(read), "{name}");
        assert!(count == 0 || read == count, "{name}: {read}");
        if name != "auv-short-bag" {
            assert_source(&*bag, name);
        }
    }
    let one = McapFile::open(data.join("recordings/auv-short.mcap")).expect("opens");
    let folder = open(data.join("recordings/auv-short-bag")).expect("opens");
    assert_eq!(one.summary().messages, folder.summary().messages);
}

/// A folder with `run.mcap`, which has one message.
fn folder_with_a_run() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write_mcap(&folder.path().join("run.mcap"));
    folder
}

#[cfg(unix)]
#[test]
fn a_recording_is_there_once_however_many_links_lead_to_it() {
    use std::os::unix::fs::symlink;
    let folder = folder_with_a_run();
    symlink("run.mcap", folder.path().join("latest.mcap")).expect("links");
    symlink(".", folder.path().join("again")).expect("links");
    symlink(folder.path(), folder.path().join("and again")).expect("links");
    symlink("nothing", folder.path().join("nowhere.mcap")).expect("links");
    let found = open(folder.path()).expect("opens");
    assert_eq!(payloads(&*found), ["in mcap"]);
    assert_eq!(found.summary().problems, []);
}

#[test]
fn hidden_files_of_a_folder_are_none_of_its_recordings() {
    let folder = folder_with_a_run();
    write_mcap(&folder.path().join(".asof-unfinished.part"));
    std::fs::create_dir(folder.path().join(".trash")).expect("creates");
    write_mcap(&folder.path().join(".trash/old.mcap"));
    assert_eq!(payloads(&*open(folder.path()).expect("opens")), ["in mcap"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_a_folder_is_not_waited_for() {
    let folder = folder_with_a_run();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe.bag"))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no mkfifo here");
        return;
    }
    assert_eq!(payloads(&*open(folder.path()).expect("opens")), ["in mcap"]);
}

#[test]
fn what_is_named_like_a_recording_and_is_none_is_a_problem_of_its_folder() {
    for (name, contents, reason) in [
        ("empty.bag", "", "the file is empty"),
        ("text.bag", "hello, hello, hello", "not a ROS 1 bag"),
        ("text.db3", "hello, hello, hello", "not a ROS 2 bag"),
        ("text.ulg", "hello, hello, hello", "not a PX4 log"),
        ("text.mcap", "hello, hello, hello", "not an MCAP file"),
    ] {
        let folder = folder_with_a_run();
        std::fs::write(folder.path().join(name), contents).expect("writes");
        let found = open(folder.path()).expect("opens");
        assert_eq!(payloads(&*found), ["in mcap"], "{name}");
        let problems = &found.summary().problems;
        assert_eq!(problems.len(), 1, "{name}");
        let told = &problems[0].message;
        assert!(told.contains(name) && told.contains(reason), "{told}");
    }
}

#[test]
fn what_others_left_in_a_folder_is_no_problem() {
    let folder = folder_with_a_run();
    let at = |name: &str| folder.path().join(name);
    let database = rusqlite::Connection::open(at("app.sqlite")).expect("opens");
    database
        .execute_batch("CREATE TABLE settings(name TEXT)")
        .expect("creates");
    let packed = zstd::encode_all(&b"an archive of something"[..], 3).expect("packs");
    std::fs::write(at("backup.tar.zst"), packed).expect("writes");
    std::fs::create_dir(at("site")).expect("creates");
    std::fs::write(at("site/metadata.yaml"), "title: a page\n").expect("writes");
    std::fs::write(at("notes.txt"), "hello").expect("writes");
    let found = open(folder.path()).expect("opens");
    assert_eq!(payloads(&*found), ["in mcap"]);
    assert_eq!(found.summary().problems, []);
}

#[test]
fn a_metadata_file_opens_the_bag_that_it_describes() {
    let folder = tempfile::tempdir().expect("a folder");
    let bag = folder.path().join("bag");
    std::fs::create_dir(&bag).expect("creates");
    list_files(&bag, &["run_0.mcap"]);
    write_mcap(&bag.join("run_0.mcap"));
    write_mcap(&bag.join("other.mcap"));
    let found = open(bag.join("metadata.yaml")).expect("opens");
    assert_eq!(payloads(&*found), ["in mcap"]);
}

#[test]
fn a_metadata_file_that_was_named_after_a_recording_opens_that() {
    let folder = folder_with_a_run();
    list_files(folder.path(), &["rosbag2_0.mcap"]);
    let at = |name: &str| folder.path().join(name);
    std::fs::rename(at("metadata.yaml"), at("run.metadata.yaml")).expect("renames");
    write_mcap(&at("runner.mcap"));
    let found = open(at("run.metadata.yaml")).expect("opens");
    assert_eq!(payloads(&*found), ["in mcap"]);
    assert_eq!(found.summary().problems, []);
    std::fs::remove_file(at("run.mcap")).expect("removes");
    let error = open(at("run.metadata.yaml")).map(|_| ()).expect_err("none");
    assert!(error.to_string().contains("not beside it"), "{error}");
}

#[test]
fn a_metadata_file_of_something_else_is_refused() {
    let folder = folder_with_a_run();
    let path = folder.path().join("metadata.yaml");
    std::fs::write(&path, "title: a page\n").expect("writes");
    let error = open(path).map(|_| ()).expect_err("is refused");
    assert!(
        error
            .to_string()
            .contains("nor the description of a ROS 2 bag"),
        "{error}"
    );
}
