//! What the command does is a method of a recording.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use asof::align::AlignOptions;
use asof::check::{DoctorOptions, Expectations};
use asof::decode::ros::Odometry;
use asof::export::{ExportFormat, ExportOptions};
use asof::files::{ConvertOptions, Cut, RecoverOptions, SplitOptions};
use asof::formats::{McapWriter, McapWriterOptions};
use asof::{Error, Event, Progress, Recording, When};
use asof_demo::{Demo, DemoOptions};
use tempfile::TempDir;

/// Two seconds of the demo robot.
pub fn demo() -> (TempDir, Recording) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(2),
        ..DemoOptions::default()
    });
    for message in demo.messages() {
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
    let recording = asof::open(path).expect("a recording");
    (folder, recording)
}

#[test]
fn a_topic_is_a_table_columns_and_structs_with_the_same_rows() {
    let (_folder, recording) = demo();
    let odom = recording.topic("/odom").expect("a topic");
    let x = odom.f64("pose.pose.position.x").expect("numbers");
    let table = odom.read().expect("a table");
    let rows: usize = table
        .collect()
        .expect("rows")
        .iter()
        .map(RecordBatch::num_rows)
        .sum();
    let structs: Vec<f64> = odom
        .messages::<Odometry>()
        .expect("messages")
        .map(|message| message.expect("a message").message.pose.pose.position.x)
        .collect();
    assert_eq!(x, structs);
    assert_eq!(rows, x.len());
    let chosen = odom
        .columns(&["stamp", "pose.pose.position"])
        .expect("columns");
    assert_eq!(chosen.columns(), ["stamp", "pose.pose.position"]);
}

#[test]
fn a_missing_topic_or_field_is_an_error_that_names_what_is_there() {
    let (_folder, recording) = demo();
    let error = recording.topic("/odometry").expect_err("no such topic");
    assert!(error.to_string().contains("/odom"), "{error}");
    let odom = recording.topic("/odom").expect("a topic");
    let error = odom.f64("pose.position.x").expect_err("no such field");
    assert!(error.to_string().contains("covariance"), "{error}");
}

#[test]
fn what_was_known_is_asked_by_a_time_relative_to_the_recording() {
    let (_folder, recording) = demo();
    let at: When = "+1s".parse().expect("a time");
    let known = recording.at(at).expect("an answer");
    let limit = recording.resolve(at);
    assert!(known.len() > 3);
    assert!(known.iter().all(|message| message.log_time <= limit));
}

#[test]
fn a_join_and_a_resampling_are_tables() {
    let (_folder, recording) = demo();
    let joined = recording.join("/odom", &["/imu"], AlignOptions::default());
    let joined = joined.expect("a table");
    let rows: usize = joined
        .collect()
        .expect("rows")
        .iter()
        .map(RecordBatch::num_rows)
        .sum();
    let odom = recording.topic("/odom").expect("a topic");
    assert_eq!(rows, odom.f64("pose.pose.position.x").expect("x").len());
    let resampled = recording.resample(&["/odom"], 10.0, AlignOptions::default());
    let resampled = resampled.expect("a table").collect().expect("rows");
    let rows: usize = resampled.iter().map(RecordBatch::num_rows).sum();
    assert!((19..=21).contains(&rows), "{rows}");
}

#[test]
fn a_recording_is_converted_split_and_recovered_without_losing_a_message() {
    let (folder, recording) = demo();
    let all = recording.summary().messages.expect("a count");
    let copy = folder.path().join("copy.mcap");
    let written = recording.convert(&copy, &ConvertOptions::default());
    assert_eq!(written.expect("written").converted.messages, all);
    let saved = folder.path().join("saved.mcap");
    let saved = recording
        .recover(saved, &RecoverOptions::default())
        .expect("saved");
    assert_eq!((saved.messages, saved.lost), (all, 0));
    let options = SplitOptions::new(Cut::Duration(500_000_000));
    let parts = recording
        .split(folder.path().join("part.mcap"), &options)
        .expect("parts");
    assert_eq!(parts.messages, all);
    assert!(parts.parts.len() >= 4, "{}", parts.parts.len());
    let again = recording.convert(&copy, &ConvertOptions::default());
    assert!(matches!(again, Err(Error::File { .. })));
}

#[test]
fn a_recording_meets_the_expectations_that_it_suggests_and_does_not_differ_from_itself() {
    let (_folder, recording) = demo();
    let text = recording.expectations().expect("expectations").to_toml();
    let expectations = Expectations::from_toml("own.toml", &text.expect("TOML")).expect("read");
    let report = recording.check(&expectations).expect("a report");
    assert!(report.passed > 10 && report.failed == 0, "{report:?}");
    assert!(recording.diff(&recording).expect("a comparison").is_empty());
    let found = recording
        .doctor(&DoctorOptions::default())
        .expect("a diagnosis");
    assert!(found.healthy, "{:?}", found.problems);
}

#[test]
fn an_export_writes_a_file_for_each_topic() {
    let (folder, recording) = demo();
    for format in [ExportFormat::Parquet, ExportFormat::Csv] {
        let target: PathBuf = folder.path().join(format!("{format:?}"));
        let options = ExportOptions {
            format,
            query: asof::Query::topics(["/odom", "/imu"]),
            ..ExportOptions::default()
        };
        assert!(recording.export(&target, &options).expect("files"));
        let files = std::fs::read_dir(&target).expect("a folder").count();
        assert_eq!(files, 2);
    }
}

#[test]
fn progress_is_reported_and_cancelling_ends_the_work() {
    let (folder, recording) = demo();
    let reports = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reports);
    let progress = Progress::to(move |event| {
        if matches!(event, Event::Done { .. }) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let recording = recording.with_progress(progress.clone());
    let target = folder.path().join("copy.mcap");
    recording
        .convert(&target, &ConvertOptions::default())
        .expect("written");
    assert!(reports.load(Ordering::Relaxed) > 0);
    progress.cancel();
    let target = folder.path().join("other.mcap");
    let error = recording.convert(&target, &ConvertOptions::default());
    let error = error.expect_err("it is cancelled");
    assert!(error.is_cancelled(), "{error}");
    assert!(!target.exists());
    let error = recording.expectations().expect_err("it is cancelled");
    assert!(error.is_cancelled(), "{error}");
}

#[test]
fn a_dataset_is_made_of_a_recording_and_can_be_cancelled() {
    let (folder, recording) = demo();
    let map = asof::lerobot::DatasetMap::from_toml(
        "hz = 10\n[features]\n\"observation.state\" = [\"/odom.pose.pose.position.x\"]\n",
    )
    .expect("a map");
    let made = recording.lerobot(folder.path().join("dataset"), &map);
    let made = made.expect("a dataset");
    assert!((15..=21).contains(&made.frames), "{}", made.frames);
    assert!(folder.path().join("dataset/meta/info.json").is_file());
    let progress = Progress::default();
    progress.cancel();
    let other = folder.path().join("other");
    let error = recording.with_progress(progress).lerobot(&other, &map);
    assert!(error.expect_err("cancelled").is_cancelled());
    assert!(!other.exists());
}

#[test]
fn stamps_of_a_clock_that_is_off_are_told_by_topic_and_damage_nothing() {
    let (folder, recording) = demo();
    let options = DoctorOptions::default();
    let found = recording.doctor(&options).expect("a diagnosis");
    assert!(
        found.healthy && found.stamps.is_empty(),
        "{:?}",
        found.stamps
    );
    // Logged by a computer whose clock is two hours ahead of the robot's.
    let path = folder.path().join("off.mcap");
    let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(2),
        ..DemoOptions::default()
    });
    let mut odometry = 0;
    for mut message in demo.messages() {
        odometry += u64::from(message.channel.topic == "/odom");
        message.log_time = message.log_time.plus_nanos(7_200_000_000_000);
        message.publish_time = message.log_time;
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
    let recording = asof::open(path).expect("a recording");
    let found = recording.doctor(&options).expect("a diagnosis");
    assert!(found.healthy && !found.is_damaged);
    let stamps = &found.stamps["/odom"];
    assert_eq!((stamps.off, stamps.zero, stamps.jumps), (odometry, 0, 0));
    assert!(stamps.to_string().contains("behind their arrival by 2.0 h"));
    let json = serde_json::to_value(&found).expect("JSON");
    assert_eq!(json["stamps"]["/odom"]["off"], odometry);
}

/// A recording of two numbers each second on `/n`, from this second on: the second, and the number of the recording.
fn numbers(folder: &TempDir, name: &str, seconds: &[i64], own: &str) -> PathBuf {
    let path = folder.path().join(name);
    let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
    let channel = Arc::new(asof::Channel {
        topic: "/n".to_owned(),
        message_encoding: "json".to_owned(),
        ..asof::Channel::default()
    });
    for second in seconds {
        let at = asof::Stamp::from_nanos(second * 1_000_000_000);
        let payload = format!(r#"{{"second": {second}, "recording": {own}}}"#);
        let message = asof::Message {
            channel: Arc::clone(&channel),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: payload.into(),
        };
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
    path
}

/// The values of a column as text.
fn texts(batches: &[RecordBatch], column: &str) -> Vec<String> {
    use arrow_array::Array;
    let texts = |batch: &RecordBatch| -> Vec<String> {
        let column = batch.column_by_name(column).expect("a column");
        let value = |row| {
            let mut out = Vec::new();
            asof::rows::write(&**column, row, asof::rows::Reader::Person, &mut out);
            String::from_utf8(out).expect("text")
        };
        (0..column.len()).map(value).collect()
    };
    batches.iter().flat_map(texts).collect()
}

#[test]
fn a_topic_of_several_recordings_is_in_order_of_time_and_each_row_names_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    // The first has whole numbers alone, and ends before the others begin to interleave; the last comes later than all.
    let places = [
        numbers(&folder, "late.mcap", &[20, 21], "1"),
        numbers(&folder, "a.mcap", &[1, 2, 5, 7, 8], "2"),
        numbers(&folder, "b.mcap", &[2, 3, 4, 7, 9], "0.5"),
        numbers(&folder, "none.mcap", &[], "7"),
    ];
    let names: Vec<String> = (places.iter())
        .map(|place| place.display().to_string())
        .collect();
    let recording = asof::open_all(&places).expect("recordings");
    let topic = recording.topic("/n").expect("a topic");
    let wanted = [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 2),
        (4, 2),
        (5, 1),
        (7, 1),
        (7, 2),
        (8, 1),
        (9, 2),
        (20, 0),
        (21, 0),
    ];
    let table = topic.read().expect("a table");
    assert_eq!(table.columns()[..2], ["recording", "log_time"]);
    assert!(
        table.columns().contains(&"recording_"),
        "{:?}",
        table.columns()
    );
    for rows in [None, Some(1), Some(3)] {
        let batches = table.batches_of(rows).expect("rows");
        let batches: Vec<RecordBatch> = batches.collect::<Result<_, _>>().expect("rows");
        assert!(
            batches
                .iter()
                .all(|batch| batch.num_rows() <= rows.unwrap_or(100))
        );
        let (seconds, from): (Vec<String>, Vec<String>) = wanted
            .iter()
            .map(|(second, place): &(i32, usize)| (second.to_string(), names[*place].clone()))
            .unzip();
        assert_eq!(texts(&batches, "second"), seconds);
        assert_eq!(texts(&batches, "recording"), from);
        assert_eq!(texts(&batches, "recording_")[..3], ["2.0", "2.0", "0.5"]);
    }
    let chosen = topic
        .columns(&["second", "recording", "recording_"])
        .expect("columns");
    assert_eq!(chosen.columns(), ["second", "recording", "recording_"]);
    assert_eq!(
        texts(&chosen.collect().expect("rows"), "recording_")[2..4],
        ["0.5", "0.5"]
    );
    let own = topic.columns(&["second"]).expect("columns");
    assert_eq!(own.columns(), ["second"]);
    let one = recording.clone().as_one();
    let one = one.topic("/n").expect("a topic").read().expect("a table");
    assert_eq!(one.columns()[0], "log_time");
    let error = topic
        .columns(&["recording", "nothing"])
        .expect_err("no such field");
    assert!(error.to_string().contains("nothing"), "{error}");
}

#[cfg(feature = "sql")]
#[test]
fn a_query_that_is_cancelled_ends_with_that() {
    let (_folder, recording) = demo();
    let progress = Progress::default();
    let recording = recording.with_progress(progress.clone());
    let table = recording.sql("SELECT stamp FROM odom").expect("a query");
    let mut rows = table.batches().expect("rows");
    progress.cancel();
    let error = rows.find_map(Result::err).expect("it is cancelled");
    assert!(error.is_cancelled(), "{error}");
}
