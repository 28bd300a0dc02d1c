//! `asof lerobot`, where there is no ffmpeg. LeRobot itself loads datasets in the tests of the Python package.

mod common;

use std::fs::{self, File};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use asof::{Channel, Schema};
use common::film::{VIDEO, bytes_of, find};
use common::{Folder, asof};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

fn channel(topic: &str, name: &str) -> Arc<Channel> {
    let schema = Schema {
        name: name.to_owned(),
        encoding: "jsonschema".to_owned(),
        data: "{}".into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "json".to_owned(),
        schema: Some(Arc::new(schema)),
        ..Channel::default()
    })
}

/// Messages a second apart: a video, and an arm after each of its pictures.
fn with_video(order: &[usize]) -> Folder {
    let (video, arm) = (
        channel("/video", "foxglove.CompressedVideo"),
        channel("/arm", "my/Arm"),
    );
    let mut messages = Vec::new();
    for (at, picture) in order.iter().enumerate() {
        let data = bytes_of(VIDEO[*picture]);
        messages.push((&video, format!(r#"{{"format":"h264","data":{data:?}}}"#)));
        messages.push((&arm, format!(r#"{{"x":{at},"joints":[{at},1]}}"#)));
    }
    Folder::with_messages(1, &messages)
}

/// Makes a dataset by a map, as where there is no ffmpeg; the exit code, and what was said.
fn export(folder: &Folder, map: &str) -> (i32, String) {
    fs::write(folder.path("map.toml"), map).expect("write");
    let output = asof()
        .args(["lerobot", "run.mcap", "-o", "out", "--config", "map.toml"])
        .env("PATH", folder.path(""))
        .current_dir(folder.path(""))
        .output()
        .expect("asof runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("no signal"), told)
}

fn json(folder: &Folder, name: &str) -> Value {
    serde_json::from_slice(&folder.read(name)).expect("JSON")
}

fn rows(folder: &Folder, name: &str) -> RecordBatch {
    let file = File::open(folder.path(name)).expect(name);
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
    reader = reader.with_batch_size(1 << 20);
    let mut batches = reader.build().expect("Parquet");
    batches.next().expect("rows").expect("rows")
}

fn frames(folder: &Folder) -> RecordBatch {
    rows(folder, "out/data/chunk-000/file-000.parquet")
}

fn numbers(batch: &RecordBatch, column: &str) -> Vec<f32> {
    let column = batch.column_by_name(column).expect(column);
    column.as_primitive::<Float32Type>().values().to_vec()
}

fn episodes(batch: &RecordBatch) -> Vec<i64> {
    let column = batch.column_by_name("episode_index").expect("episodes");
    column.as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn numbers_and_pictures_of_the_demo_become_rows() {
    let folder = Folder::with_demo();
    let map = r#"
        hz = 10
        task = "drive"
        [features]
        "observation.state" = ["/joint_states.position", "/odom.pose.pose.position"]
        action = { paths = ["/cmd_vel.linear.x"], method = "interpolate" }
        "observation.images.front" = "/camera/image"
    "#;
    let (code, told) = export(&folder, map);
    assert_eq!(code, 0, "{told}");
    let info = json(&folder, "out/meta/info.json");
    let state = &info["features"]["observation.state"];
    // Two joints by their names, and a struct of three numbers.
    assert_eq!(state["shape"], serde_json::json!([5]));
    assert_eq!(
        info["features"]["observation.images.front"]["dtype"],
        "image"
    );
    assert_eq!(info["features"]["action"]["shape"], serde_json::json!([1]));
    assert_eq!(info["video_path"], Value::Null);
    let rows = frames(&folder);
    assert_eq!(info["total_frames"], rows.num_rows());
    let pictures = rows
        .column_by_name("observation.images.front")
        .expect("pictures");
    let first = pictures.as_struct().column(0).as_binary::<i32>().value(0);
    assert_eq!(first[..2], [0xff, 0xd8], "as it was recorded");
    let stats = json(&folder, "out/meta/stats.json");
    let actions = numbers(&rows, "action");
    let mean = actions.iter().map(|x| f64::from(*x)).sum::<f64>() / actions.len() as f64;
    assert!((stats["action"]["mean"][0].as_f64().expect("a number") - mean).abs() < 1e-9);
    assert_eq!(
        stats["observation.images.front"]["mean"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    // What is there is not written over.
    let (code, told) = export(&folder, map);
    assert!(code == 1 && told.contains("not empty"), "{told}");
    assert_eq!(folder.names(), ["map.toml", "out", "run.mcap"]);
}

#[test]
fn video_of_another_rate_is_not_copied() {
    let folder = with_video(&[0, 1, 2, 3, 4, 5]);
    let map = "hz = 1\n[features]\naction = [\"/arm.x\"]\n\"images.front\" = \"/video\"";
    let (code, told) = export(&folder, map);
    // A picture every two seconds is not one every second.
    assert!(code == 1 && told.contains("install ffmpeg"), "{told}");
    assert_eq!(folder.names(), ["map.toml", "run.mcap"], "nothing is left");
}

/// A video of one picture a second, and nothing else.
fn video_alone(order: &[usize]) -> Folder {
    let video = channel("/video", "foxglove.CompressedVideo");
    let packet = |picture: &usize| {
        let data = bytes_of(VIDEO[*picture]);
        (&video, format!(r#"{{"format":"h264","data":{data:?}}}"#))
    };
    Folder::with_messages(1, &order.iter().map(packet).collect::<Vec<_>>())
}

#[test]
fn packets_lie_in_the_film_as_they_were_recorded() {
    // What comes before the first picture that a decoder can start with is not shown.
    let folder = video_alone(&[1, 0, 1, 2, 3, 4, 5]);
    let map = "hz = 1\nepisodes = \"4s\"\n[features]\n\"images.front\" = \"/video\"";
    let (code, told) = export(&folder, map);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("has no statistics"), "{told}");
    let info = json(&folder, "out/meta/info.json");
    let front = &info["features"]["images.front"];
    assert_eq!(front["dtype"], "video");
    assert_eq!(front["shape"], serde_json::json!([16, 16, 3]));
    assert_eq!(
        (
            info["total_episodes"].as_u64(),
            info["total_frames"].as_u64()
        ),
        (Some(2), Some(6))
    );
    // The second episode begins with the fourth picture that can be shown, which a decoder can start with.
    let film = folder.read("out/videos/images.front/chunk-000/file-000.mp4");
    let tables = find(&film, &["moov", "trak", "mdia", "minf", "stbl"]);
    let words = |name: &str| -> Vec<u32> {
        let body = find(tables, &[name]).chunks_exact(4);
        body.map(|four| u32::from_be_bytes(four.try_into().expect("four")))
            .collect()
    };
    let (sizes, places) = (words("stsz"), words("co64"));
    assert_eq!(sizes[2], 6);
    assert_eq!(words("stss")[1..], [2, 1, 4]);
    for (at, packet) in VIDEO.iter().enumerate() {
        let place = places[2 + 2 * at + 1] as usize;
        let sample = &film[place..place + sizes[3 + at] as usize];
        let bytes = bytes_of(packet);
        // The last unit of the packet, after its length.
        let start = bytes
            .windows(4)
            .rposition(|four| four == [0, 0, 0, 1])
            .expect("a unit")
            + 4;
        assert_eq!(&sample[4..], &bytes[start..], "picture {at}");
        assert_eq!(sample[..4], (sample.len() as u32 - 4).to_be_bytes());
    }
    let entry = &find(tables, &["stsd"])[8..];
    assert_eq!(&entry[4..8], b"avc1");
    assert!(entry.windows(4).any(|four| four == b"avcC"));
    let places = rows(&folder, "out/meta/episodes/chunk-000/file-000.parquet");
    let from = places
        .column_by_name("videos/images.front/from_timestamp")
        .expect("times");
    assert_eq!(from.as_primitive::<Float64Type>().values()[..], [0.0, 3.0]);
}

#[test]
fn an_episode_within_a_film_brings_what_its_decoder_needs() {
    let folder = video_alone(&[0, 1, 2, 3, 4, 5]);
    let map = "hz = 1\nepisodes = \"2s\"\n[features]\n\"images.front\" = \"/video\"";
    assert_eq!(export(&folder, map).0, 0);
    let places = rows(&folder, "out/meta/episodes/chunk-000/file-000.parquet");
    let from = places
        .column_by_name("videos/images.front/from_timestamp")
        .expect("times");
    // 0 1 | 0 1 2 3 | 3 4 5: the second shows 2 and 3, the third 4 and 5.
    assert_eq!(
        from.as_primitive::<Float64Type>().values()[..],
        [0.0, 4.0, 7.0]
    );
}

#[test]
fn episodes_begin_and_end_where_a_topic_says_it() {
    let (arm, mark) = (
        channel("/arm", "my/Arm"),
        channel("/episode", "std_msgs/Bool"),
    );
    let name = channel("/name", "std_msgs/String");
    let say = |text: &str| text.to_owned();
    let folder = Folder::with_messages(
        1,
        &[
            (&arm, say(r#"{"x":1}"#)),
            (&mark, say(r#"{"data":true}"#)),
            (&arm, say(r#"{"x":3}"#)),
            (&mark, say(r#"{"data":false}"#)),
            (&name, say(r#"{"data":"lift"}"#)),
            (&arm, say(r#"{"x":6}"#)),
            (&mark, say(r#"{"data":true}"#)),
            (&name, say(r#"{"data":"drop"}"#)),
        ],
    );
    let map =
        |topic: &str| format!("hz = 1\nepisodes = \"{topic}\"\n[features]\naction = [\"/arm.x\"]");
    assert_eq!(export(&folder, &map("/episode")).0, 0);
    let found = frames(&folder);
    assert_eq!(numbers(&found, "action"), [1.0, 3.0, 6.0, 6.0]);
    assert_eq!(episodes(&found), [0, 0, 1, 1]);
    fs::remove_dir_all(folder.path("out")).expect("removed");
    // Texts name tasks.
    assert_eq!(export(&folder, &map("/name")).0, 0);
    let tasks = rows(&folder, "out/meta/tasks.parquet");
    let tasks = tasks
        .column_by_name("task")
        .expect("tasks")
        .as_string::<i32>();
    assert_eq!(tasks.iter().flatten().collect::<Vec<_>>(), ["lift", "drop"]);
}

#[test]
fn a_frame_that_lacks_something_is_left_out_and_cuts_an_episode() {
    let (arm, other) = (channel("/arm", "my/Arm"), channel("/other", "my/Other"));
    let arm = |x: i32| (&arm, format!(r#"{{"x":{x}}}"#));
    let other = (&other, "{}".to_owned());
    let folder = Folder::with_messages(
        1,
        &[
            other.clone(),
            arm(2),
            arm(3),
            other.clone(),
            other.clone(),
            other,
            arm(7),
        ],
    );
    let map = "hz = 1\ntolerance = \"1s\"\n[features]\naction = [\"/arm.x\"]";
    let (code, told) = export(&folder, map);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("3 frames left out"), "{told}");
    let found = frames(&folder);
    assert_eq!(numbers(&found, "action"), [2.0, 3.0, 3.0, 7.0]);
    assert_eq!(episodes(&found), [0, 0, 0, 1]);
}

#[test]
fn what_cannot_be_a_dataset_is_said_and_leaves_nothing() {
    let folder = with_video(&[0, 1]);
    let features = |text: &str| format!("hz = 1\n[features]\n{text}");
    for (map, code, wanted) in [
        ("hz = fast".to_owned(), 2, "line 1"),
        (features("action = [\"/nowhere.x\"]"), 1, "/nowhere.x"),
        (features("action = [\"/arm.z\"]"), 1, "'z'"),
        (
            features("action = [\"/video.format\"]"),
            1,
            "is not a number",
        ),
        (
            features("\"images.a\" = \"/nowhere\""),
            1,
            "there is no topic /nowhere",
        ),
        (
            features("\"images.a\" = \"/arm\""),
            1,
            "never known: images.a",
        ),
        (
            format!("episodes = \"/no\"\n{}", features("action = [\"/arm.x\"]")),
            1,
            "/no",
        ),
    ] {
        let (found, told) = export(&folder, &map);
        assert_eq!(found, code, "{map}: {told}");
        assert!(
            told.contains(wanted) && told.lines().count() == 1,
            "{map}: {told}"
        );
        assert_eq!(folder.names(), ["map.toml", "run.mcap"], "{map}");
    }
    let output = folder.output("lerobot zenoh://robot:7447 -o out --config map.toml");
    assert_eq!(output.status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn a_dataset_that_does_not_fit_says_the_file_and_the_cause() {
    let folder = Folder::with_demo();
    let map = "hz = 10\nvideos = false\n[features]\n\"observation.state\" = [\"/odom.pose.pose.position.x\"]\n";
    fs::write(folder.path("map.toml"), map).expect("write");
    let (code, told) = folder.on_full_disk(1, "lerobot run.mcap -o out --config map.toml");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("cannot write out/"), "{told}");
    assert!(told.contains("File too large"), "{told}");
    assert_eq!(folder.names(), ["map.toml", "run.mcap"]);
}
