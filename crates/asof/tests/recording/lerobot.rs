//! Datasets: joints by name, and episodes that are added.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use asof::formats::{McapWriter, McapWriterOptions};
use asof::lerobot::{DatasetMap, Exported, LerobotError, append, export};
use asof::{Channel, Message, Stamp};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

/// An arm and its gripper, which share a topic in turn, for two seconds.
fn recording(path: &Path, offset: i64) {
    let options = McapWriterOptions::default();
    let mut writer = McapWriter::create(path, options).expect("a writer");
    let channel = Arc::new(Channel {
        topic: "/joint_states".into(),
        message_encoding: "json".into(),
        ..Channel::default()
    });
    for at in 0..200_i64 {
        let value = (offset + at) as f64 + 0.5;
        let text = if at % 2 == 0 {
            format!(
                r#"{{"name":["left","right"],"position":[{value},{}]}}"#,
                -value
            )
        } else {
            format!(r#"{{"name":["grip"],"position":[{value}]}}"#)
        };
        let log_time = Stamp::from_nanos(1_000_000_000 + at * 10_000_000);
        let message = Message {
            channel: Arc::clone(&channel),
            log_time,
            publish_time: log_time,
            sequence: 0,
            payload: text.into(),
        };
        writer.write(&message).expect("writes");
    }
    writer.finish().expect("finishes");
}

fn map(paths: &str, hz: u32) -> DatasetMap {
    let text = format!("hz = {hz}\nvideos = false\n[features]\n\"observation.state\" = [{paths}]");
    DatasetMap::from_toml(&text).expect("a map")
}

const JOINTS: &str = r#""/joint_states.position[right]", "/joint_states.position[grip]""#;

fn written(
    places: &[&Path],
    folder: &Path,
    map: &DatasetMap,
    adds: bool,
) -> Result<Exported, LerobotError> {
    let places: Vec<Vec<PathBuf>> = places.iter().map(|place| vec![(*place).into()]).collect();
    let write = if adds { append } else { export };
    write(&places, folder, map, &mut |_| ControlFlow::Continue(()))
}

fn tables(folder: &Path) -> Vec<RecordBatch> {
    let mut files: Vec<PathBuf> = (std::fs::read_dir(folder.join("chunk-000")).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let file = std::fs::File::open(path).expect("a file");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
        let batches = reader.build().expect("rows");
        batches
            .map(|batch| batch.expect("rows"))
            .collect::<Vec<_>>()
    };
    files.iter().flat_map(read).collect()
}

fn integers(folder: &Path, column: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for batch in tables(folder) {
        let column = batch.column_by_name(column).expect(column);
        all.extend(column.as_primitive::<Int64Type>().values());
    }
    all
}

fn states(folder: &Path) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    for batch in tables(&folder.join("data")) {
        let column = batch.column_by_name("observation.state").expect("states");
        let rows = column.as_fixed_size_list();
        for row in 0..rows.len() {
            let row = rows.value(row);
            all.push(row.as_primitive::<Float32Type>().values().to_vec());
        }
    }
    all
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
}

#[test]
fn joints_of_messages_that_vary_are_chosen_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let (run, out) = (folder.path().join("run.mcap"), folder.path().join("out"));
    recording(&run, 0);
    let made = written(&[&run], &out, &map(JOINTS, 10), false).expect("a dataset");
    // The gripper is not known in the first frame.
    assert_eq!((made.frames, made.left_out), (19, 1));
    let found = states(&out);
    for (frame, state) in found.iter().enumerate() {
        let at = 10.0 * (frame as f32 + 1.0);
        assert_eq!(state, &[-(at + 0.5), at - 1.0 + 0.5], "frame {frame}");
    }
    let info = json(&out.join("meta/info.json"));
    let names = &info["features"]["observation.state"]["names"];
    assert_eq!(names, &serde_json::json!(["right", "grip"]));
    // All of them together have no one shape, and the way on is said.
    let error = written(
        &[&run],
        &folder.path().join("none"),
        &map(r#""/joint_states.position""#, 7),
        false,
    );
    let error = error.expect_err("they vary").to_string();
    assert!(
        error.contains("/joint_states.position[shoulder]"),
        "{error}"
    );
    let error = written(
        &[&run],
        &folder.path().join("none"),
        &map(r#""/joint_states.position[elbow]""#, 10),
        false,
    );
    let error = error.expect_err("there is none").to_string();
    assert!(
        error.contains("'elbow'") && error.contains("grip, left, right"),
        "{error}"
    );
}

#[test]
fn episodes_are_added_to_a_dataset() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let runs: Vec<PathBuf> = ["a.mcap", "b.mcap", "c.mcap"].map(path).to_vec();
    for (at, run) in runs.iter().enumerate() {
        recording(run, 1000 * at as i64);
    }
    let map = map(JOINTS, 10);
    let (grown, whole) = (path("grown"), path("whole"));
    // The first one makes it.
    for run in &runs {
        let made = written(&[run], &grown, &map, true).expect("it is added");
        assert_eq!((made.episodes, made.frames), (1, 19));
    }
    let all: Vec<&Path> = runs.iter().map(PathBuf::as_path).collect();
    written(&all, &whole, &map, false).expect("a dataset");

    assert_eq!(states(&grown), states(&whole));
    for column in ["index", "episode_index", "frame_index", "task_index"] {
        let of = |folder: &Path| integers(&folder.join("data"), column);
        assert_eq!(of(&grown), of(&whole), "{column}");
    }
    let episodes = grown.join("meta/episodes");
    for column in [
        "episode_index",
        "dataset_from_index",
        "dataset_to_index",
        "length",
    ] {
        let wanted = integers(&whole.join("meta/episodes"), column);
        assert_eq!(integers(&episodes, column), wanted, "{column}");
    }
    assert_eq!(integers(&episodes, "data/file_index"), [0, 1, 2]);
    assert_eq!(integers(&episodes, "meta/episodes/file_index"), [0, 1, 2]);
    let info = |folder: &Path| json(&folder.join("meta/info.json"));
    assert_eq!(info(&grown), info(&whole));
    let stats = |folder: &Path| json(&folder.join("meta/stats.json"));
    assert_near(&stats(&grown), &stats(&whole), "");
    // Nothing is left beside it.
    let beside = std::fs::read_dir(folder.path()).expect("a folder");
    assert_eq!(beside.count(), 5);
}

/// The quantiles of several episodes are averaged, in one step or in several.
fn assert_near(found: &Value, wanted: &Value, place: &str) {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            assert!(found.keys().eq(wanted.keys()), "{place}");
            for (name, value) in found {
                assert_near(value, &wanted[name], &format!("{place}/{name}"));
            }
        }
        (Value::Array(found), Value::Array(wanted)) => {
            assert_eq!(found.len(), wanted.len(), "{place}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert_near(found, wanted, place);
            }
        }
        (found, wanted) => {
            let (found, wanted) = (found.as_f64(), wanted.as_f64());
            let (found, wanted) = (found.expect("a number"), wanted.expect("a number"));
            let near = (found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0);
            assert!(near, "{place}: {found} is not {wanted}");
        }
    }
}

#[test]
fn what_does_not_fit_a_dataset_is_not_added_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (run, out) = (folder.path().join("run.mcap"), folder.path().join("out"));
    recording(&run, 0);
    written(&[&run], &out, &map(JOINTS, 10), false).expect("a dataset");
    let before = json(&out.join("meta/info.json"));
    for (map, why) in [
        (map(JOINTS, 20), "rate"),
        (
            map(r#""/joint_states.position[grip]""#, 10),
            "observation.state",
        ),
        (
            DatasetMap::from_toml(
                "hz = 10\n[features]\naction = [\"/joint_states.position[grip]\"]",
            )
            .expect("a map"),
            "features",
        ),
        (
            DatasetMap::from_toml(&format!(
                "hz = 10\nrobot_type = \"r7\"\n[features]\n\"observation.state\" = [{JOINTS}]"
            ))
            .expect("a map"),
            "robot",
        ),
    ] {
        let error = written(&[&run], &out, &map, true)
            .expect_err(why)
            .to_string();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(json(&out.join("meta/info.json")), before);
    assert_eq!(states(&out).len(), 19);
    // And without a wish to add, nothing is touched.
    let error = written(&[&run], &out, &map(JOINTS, 10), false).expect_err("it is there");
    assert!(error.to_string().contains("append"), "{error}");
}
