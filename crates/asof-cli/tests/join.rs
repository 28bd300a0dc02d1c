//! `join`: by which time, in what form, and with how much in memory.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampNanosecondType};
use arrow_array::{Array, RecordBatch};
use asof::formats::{McapWriter, McapWriterOptions};
use asof::{Channel, Message, Schema, Stamp};
use common::Folder;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use serde_json::Value;

const MILLI: i64 = 1_000_000;
/// When the recordings of these tests start.
const START: i64 = 1_714_564_800_000_000_000;

const COUNTED: &str = "\
std_msgs/Header header
int32 n
uint8[] data
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
";

fn channel(topic: &str) -> Arc<Channel> {
    let schema = Schema {
        name: "test_msgs/msg/Counted".to_owned(),
        encoding: "ros2msg".to_owned(),
        data: COUNTED.into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(schema.into()),
        ..Channel::default()
    })
}

/// A message that was measured and logged at these milliseconds, with so many bytes of data.
fn counted(channel: &Arc<Channel>, measured: i64, logged: i64, n: i32, data: usize) -> Message {
    let stamp = START + measured * MILLI;
    let mut payload = vec![0, 1, 0, 0];
    payload.extend(((stamp / 1_000_000_000) as i32).to_le_bytes());
    payload.extend(((stamp % 1_000_000_000) as u32).to_le_bytes());
    payload.extend(1u32.to_le_bytes());
    payload.extend([0; 4]);
    payload.extend(n.to_le_bytes());
    payload.extend((data as u32).to_le_bytes());
    payload.extend(std::iter::repeat_n(7, data));
    let log_time = Stamp::from_nanos(START + logged * MILLI);
    Message {
        channel: Arc::clone(channel),
        log_time,
        publish_time: log_time,
        sequence: n as u32,
        payload: payload.into(),
    }
}

fn recording(mut messages: Vec<Message>) -> Folder {
    let folder = Folder::empty();
    messages.sort_by_key(|message| message.log_time);
    let path = folder.path("run.mcap");
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("create");
    for message in &messages {
        writer.write(message).expect("write");
    }
    writer.finish().expect("finish");
    folder
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

fn errors(folder: &Folder, line: &str) -> String {
    String::from_utf8(folder.output(line).stderr).expect("text")
}

/// Pictures that are logged a quarter of a second after they were taken, and odometry that is logged at once.
fn late_pictures() -> Folder {
    let (image, odom) = (channel("/image"), channel("/odom"));
    let pictures = (0..20).map(|n| counted(&image, n * 100, n * 100 + 250, n as i32, 50));
    let poses = (0..250).map(|n| counted(&odom, n * 10, n * 10, n as i32, 0));
    recording(pictures.chain(poses).collect())
}

fn pairs(folder: &Folder, line: &str) -> Vec<(i64, i64)> {
    let number = |object: &Value| object["data"]["n"].as_i64().expect("a number");
    objects(&folder.stdout(line))
        .iter()
        .map(|row| (number(row), number(&row["with"]["/odom"])))
        .collect()
}

#[test]
fn messages_are_joined_by_their_stamps_where_all_have_one() {
    let folder = late_pictures();
    let command = "join run.mcap --anchor /image --with /odom --json";
    let by_stamp: Vec<(i64, i64)> = (0..20).map(|n| (n, n * 10)).collect();
    let by_log: Vec<(i64, i64)> = (0..20).map(|n| (n, (n * 10 + 25).min(249))).collect();
    assert_eq!(pairs(&folder, command), by_stamp);
    assert_eq!(pairs(&folder, &format!("{command} --on stamp")), by_stamp);
    assert_eq!(pairs(&folder, &format!("{command} --on log")), by_log);
    let said = errors(&folder, command);
    assert!(said.contains("joined on the stamps"), "{said}");
    let said = errors(&folder, &format!("{command} --on log"));
    assert!(!said.contains("joined on"), "{said}");
}

#[test]
fn what_comes_later_than_the_lateness_is_told() {
    let folder = late_pictures();
    let command = "join run.mcap --anchor /image --with /odom --json --lateness 100ms";
    let said = errors(&folder, command);
    assert!(
        said.contains("20 messages came more than 0.1 s late"),
        "{said}"
    );
}

#[test]
fn a_topic_without_stamps_is_joined_by_log_time_and_that_is_said() {
    let folder = Folder::with_demo();
    let command = "join run.mcap --anchor /scan --with /odom,/cmd_vel --json";
    let said = errors(&folder, command);
    assert!(
        said.contains("joined on log times: messages on /cmd_vel have no stamp"),
        "{said}"
    );
    let refused = folder.output(&format!("{command} --on stamp"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--on log"), "{said}");
}

#[test]
fn a_rare_topic_is_looked_up_ahead_and_every_row_is_right() {
    let (image, map) = (channel("/image"), channel("/map"));
    // 24 MB of pictures, and three maps.
    let at = [0, 9_000, 31_000];
    let maps = at.iter().map(|&t| counted(&map, t, t, t as i32, 10));
    let pictures = (0..1200).map(|n| counted(&image, n * 33 + 5, n * 33 + 5, n as i32, 20_000));
    let folder = recording(pictures.chain(maps).collect());
    for (method, on) in [
        ("nearest", "log"),
        ("nearest", "stamp"),
        ("last", "log"),
        ("interpolate", "stamp"),
    ] {
        let command =
            format!("join run.mcap --anchor /image --with /map --json --method {method} --on {on}");
        let rows = objects(&folder.stdout(&command));
        assert_eq!(rows.len(), 1200);
        for (n, row) in rows.iter().enumerate() {
            let t = n as i64 * 33 + 5;
            let wanted = match method {
                // A whole number between two is that of the first; after the last one nothing is between two.
                "interpolate" if t > 31_000 => None,
                "last" | "interpolate" => at.iter().copied().filter(|map| *map <= t).max(),
                _ => at.iter().copied().min_by_key(|map| (map - t).abs()),
            };
            assert_eq!(row["data"]["n"], n, "{command}");
            assert_eq!(
                row["with"]["/map"]["data"]["n"].as_i64(),
                wanted,
                "{command} {t}"
            );
            assert!(row.get("early").is_none(), "{command} {t}");
        }
        let said = errors(&folder, &command);
        assert!(!said.contains("warning"), "{said}");
    }
}

#[test]
fn bytes_are_left_out_of_json_unless_asked_for() {
    let folder = late_pictures();
    let command = "join run.mcap --anchor /image --with /odom --json";
    let rows = objects(&folder.stdout(command));
    assert!(rows[0]["data"].get("data").is_none());
    assert_eq!(rows[0]["data"]["n"], 0);
    assert!(errors(&folder, command).contains("bytes on /image were left out (data)"));
    let rows = objects(&folder.stdout(&format!("{command} --bytes")));
    assert_eq!(rows[0]["data"]["data"].as_str().map(str::len), Some(68));
}

#[test]
fn fields_are_chosen_by_path() {
    let folder = late_pictures();
    let command = "join run.mcap --anchor /image --with /odom --json --fields n";
    let row = objects(&folder.stdout(command)).remove(3);
    assert_eq!(row["data"], serde_json::json!({"n": 3}));
    assert_eq!(row["with"]["/odom"]["data"], serde_json::json!({"n": 30}));
    let refused = folder.output("join run.mcap --anchor /image --with /odom --fields none");
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn rows_are_comma_separated_under_a_header() {
    let folder = late_pictures();
    let command = "join run.mcap --anchor /image --with /odom --fields n --within 1ms";
    let text = folder.stdout(&format!("{command} --csv"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "time,/image.n,/odom offset,/odom.n");
    assert_eq!(lines.len(), 21);
    assert_eq!(lines[8], format!("{},7,0,70", START + 700 * MILLI));
    assert_eq!(folder.exit_code(&format!("{command} -o rows.csv")), 0);
    assert_eq!(
        String::from_utf8(folder.read("rows.csv")).expect("text"),
        text
    );
    // What is there is not replaced unless asked for.
    assert_eq!(folder.exit_code(&format!("{command} -o rows.csv")), 1);
    assert_eq!(
        folder.exit_code(&format!("{command} -o rows.csv --force")),
        0
    );
}

#[test]
fn what_is_missing_is_empty() {
    let folder = late_pictures();
    let command = "join run.mcap --anchor /odom --with /image --fields n --within 1ms --csv";
    let text = folder.stdout(command);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 251);
    assert_eq!(lines[1 + 10], format!("{},10,0,1", START + 100 * MILLI));
    assert_eq!(lines[1 + 11], format!("{},11,,", START + 110 * MILLI));
}

fn table(folder: &Folder, name: &str) -> Vec<RecordBatch> {
    let file = std::fs::File::open(folder.path(name)).expect("a file");
    let reader = ParquetRecordBatchReader::try_new(file, 1024).expect("Parquet");
    reader.map(|batch| batch.expect("rows")).collect()
}

#[test]
fn rows_become_a_table_with_a_struct_for_each_topic() {
    let folder = late_pictures();
    let command = "join run.mcap --anchor /odom --with /image --within 1ms";
    assert_eq!(folder.exit_code(&format!("{command} -o rows.parquet")), 0);
    assert_eq!(folder.exit_code(&format!("{command} --parquet same")), 0);
    let batches = table(&folder, "rows.parquet");
    assert_eq!(batches, table(&folder, "same"));
    let mut found = BTreeMap::new();
    for batch in &batches {
        let time = batch["time"].as_primitive::<TimestampNanosecondType>();
        let offset = batch["/image offset"].as_primitive::<Int64Type>();
        let (odom, image) = (batch["/odom"].as_struct(), batch["/image"].as_struct());
        let n = odom["n"].as_primitive::<Int32Type>();
        let picture = image["n"].as_primitive::<Int32Type>();
        for row in 0..batch.num_rows() {
            let image = image.is_valid(row).then(|| picture.value(row));
            assert_eq!(offset.is_valid(row), image.is_some());
            assert_eq!(
                time.value(row),
                START + i64::from(n.value(row)) * 10 * MILLI
            );
            found.insert(n.value(row), image);
        }
    }
    let wanted: BTreeMap<i32, Option<i32>> = (0..250)
        .map(|n| (n, (n % 10 == 0 && n < 200).then_some(n / 10)))
        .collect();
    assert_eq!(found, wanted);
}

/// The same large message in many rows: it is decoded once, and repeated over several batches of the table.
#[test]
fn a_message_in_many_rows_is_the_same_in_all_of_them() {
    let (tick, map) = (channel("/tick"), channel("/map"));
    let ticks = (0..200).map(|n| counted(&tick, n, n, n as i32, 0));
    let maps = (0..2).map(|n| counted(&map, n * 100, n * 100, n as i32 + 1, 400_000));
    let folder = recording(ticks.chain(maps).collect());
    let command = "join run.mcap --anchor /tick --with /map --method last -o rows.parquet";
    assert_eq!(folder.exit_code(command), 0);
    let mut rows = 0;
    for batch in table(&folder, "rows.parquet") {
        let (tick, map) = (batch["/tick"].as_struct(), batch["/map"].as_struct());
        let data = &map["data"];
        for row in 0..batch.num_rows() {
            let n = tick["n"].as_primitive::<Int32Type>().value(row);
            let wanted = if n < 100 { 1 } else { 2 };
            assert_eq!(map["n"].as_primitive::<Int32Type>().value(row), wanted);
            assert!(data.is_valid(row));
            rows += 1;
        }
    }
    assert_eq!(rows, 200);
}

#[test]
fn what_lies_between_two_messages_is_in_tables_too() {
    let folder = Folder::with_demo();
    let command = "join run.mcap --anchor /scan --with /odom --method interpolate --fields pose.pose.position";
    let json = objects(&folder.stdout(&format!("{command} --json")));
    let csv = folder.stdout(&format!("{command} --csv"));
    assert_eq!(folder.exit_code(&format!("{command} -o rows.parquet")), 0);
    let batches = table(&folder, "rows.parquet");
    let xs: Vec<f64> = batches
        .iter()
        .flat_map(|batch| {
            let position = batch["/odom"].as_struct()["pose"].as_struct()["pose"].as_struct();
            let position = position["position"].as_struct();
            let xs = position["x"].as_primitive::<arrow_array::types::Float64Type>();
            xs.values().to_vec()
        })
        .collect();
    let header = csv.lines().next().expect("a header");
    let column = header
        .split(',')
        .position(|name| name == "/odom.pose.pose.position.x");
    let column = column.expect("a column");
    assert_eq!(json.len(), xs.len());
    let mut between = 0;
    for ((json, x), line) in json.iter().zip(&xs).zip(csv.lines().skip(1)) {
        let odom = &json["with"]["/odom"];
        let wanted = odom["data"]["pose"]["pose"]["position"]["x"]
            .as_f64()
            .expect("x");
        between += usize::from(odom.get("between").is_some());
        assert!((x - wanted).abs() < 1e-12);
        let cell: f64 = line
            .split(',')
            .nth(column)
            .expect("a cell")
            .parse()
            .expect("x");
        assert!((cell - wanted).abs() < 1e-12);
    }
    assert!(between > 5, "{between}");
}

#[cfg(unix)]
#[test]
fn rows_that_do_not_fit_say_the_file_and_the_cause() {
    let folder = Folder::with_demo();
    for file in ["rows.csv", "rows.ndjson", "rows.parquet", "rows.arrow"] {
        let line = format!("join run.mcap --anchor /scan --with /odom -o {file}");
        let (code, told) = folder.on_full_disk(1, &line);
        assert_eq!(code, Some(1), "{told}");
        let cause = format!("cannot write {file}: File too large");
        assert!(told.contains(&cause), "{told}");
        assert_eq!(folder.names(), ["run.mcap"]);
    }
    for format in ["csv", "ndjson"] {
        let line = format!("export run.mcap -o out --format {format} --topics /scan");
        let (code, told) = folder.on_full_disk(1, &line);
        assert_eq!(code, Some(1), "{told}");
        let is_named = told.contains("cannot write out/") && told.contains("File too large");
        assert!(is_named, "{told}");
    }
}
