//! Queries over recordings, held against a plain look at the same messages.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Query, Source, Stamp, Topics};
use asof_decode::{Decoder, Projection};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::array::{ArrayRef, AsArray, RecordBatch};
use asof_sql::arrow::compute::concat_batches;
use asof_sql::arrow::datatypes::{
    DataType, Float64Type, Int64Type, TimestampNanosecondType, UInt64Type,
};
use asof_sql::{Database, SqlError, SqlOptions};
use tempfile::TempDir;

/// A recording of the demo robot, and a database of it.
struct Fixture {
    _folder: TempDir,
    recording: Arc<dyn Source>,
    database: Database,
}

fn write_demo(path: &Path, seed: u64, seconds: u64) {
    let options = McapWriterOptions {
        chunk_size: 64 << 10,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(path, options).expect("a file");
    let demo = asof_demo::Demo::new(asof_demo::DemoOptions {
        duration: Duration::from_secs(seconds),
        seed,
        ..asof_demo::DemoOptions::default()
    });
    for message in demo.messages() {
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
}

fn demo() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("demo.mcap");
    write_demo(&path, 1, 6);
    let recording: Arc<dyn Source> = Arc::from(asof_formats::open(&path).expect("opens"));
    let named = vec![("demo.mcap".to_owned(), Arc::clone(&recording))];
    let options = SqlOptions {
        threads: 3,
        ..SqlOptions::default()
    };
    Fixture {
        _folder: folder,
        recording,
        database: Database::new(named, options).expect("a database"),
    }
}

impl Fixture {
    fn rows(&self, sql: &str) -> RecordBatch {
        rows(&self.database, sql)
    }

    /// Messages of a topic.
    fn column_count(&self, topic: &str) -> usize {
        let batches = self.recording.read(&Query::topics([topic])).expect("reads");
        batches.map(|batch| batch.expect("a batch").len()).sum()
    }

    /// Stamps and one number of each message, by plain decoding.
    fn column(&self, topic: &str, pointer: &str) -> Vec<(i64, i64, f64)> {
        let mut found = Vec::new();
        for batch in self.recording.read(&Query::topics([topic])).expect("reads") {
            for message in batch.expect("a batch").iter() {
                let mut decoder =
                    Decoder::new(message.channel, &Projection::All, &[]).expect("a decoder");
                let json = decoder.json(message.payload).expect("decodes");
                let json: serde_json::Value = serde_json::from_str(&json).expect("json");
                let stamp = &json["header"]["stamp"];
                let stamp = stamp["sec"].as_i64().unwrap_or(0) * 1_000_000_000
                    + stamp["nanosec"].as_i64().unwrap_or(0);
                let value = json.pointer(pointer).and_then(serde_json::Value::as_f64);
                found.push((message.log_time.nanos(), stamp, value.expect(pointer)));
            }
        }
        found
    }
}

fn rows(database: &Database, sql: &str) -> RecordBatch {
    let mut query = database
        .query(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema = query.schema();
    let batches: Result<Vec<_>, _> = query.by_ref().collect();
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
    concat_batches(&schema, &batches).expect("one batch")
}

fn floats(array: &ArrayRef) -> Vec<Option<f64>> {
    array.as_primitive::<Float64Type>().iter().collect()
}

fn times(array: &ArrayRef) -> Vec<Option<i64>> {
    array
        .as_primitive::<TimestampNanosecondType>()
        .iter()
        .collect()
}

fn count(batch: &RecordBatch) -> i64 {
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

fn text(batch: &RecordBatch) -> String {
    let mut lines = Vec::new();
    for row in 0..batch.num_rows() {
        for column in batch.columns() {
            if let Some(texts) = column.as_string_opt::<i32>() {
                lines.push(texts.value(row).to_owned());
            } else if let Some(texts) = column.as_string_view_opt() {
                lines.push(texts.value(row).to_owned());
            }
        }
    }
    lines.join("\n")
}

#[test]
fn a_count_over_two_merged_files_decompresses_nothing_either() {
    let (one, two) = (demo(), demo());
    let parts: Vec<(String, Box<dyn Source>)> = vec![
        ("one".to_owned(), Box::new(Arc::clone(&one.recording))),
        ("two".to_owned(), Box::new(Arc::clone(&two.recording))),
    ];
    let merged: Arc<dyn Source> = Arc::new(asof_formats::Merged::new(parts));
    let named = vec![("both".to_owned(), Arc::clone(&merged))];
    let database = Database::new(named, SqlOptions::default()).expect("a database");
    let before = merged.read_stats().expect("counts").decompressed_bytes;
    let query = database.query(r#"SELECT count(*) FROM "/imu""#);
    let found = query.and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.expect("rows");
    let after = merged.read_stats().expect("counts").decompressed_bytes;
    let single = one.rows(r#"SELECT count(*) FROM "/imu""#);
    assert_eq!(count(&found[0]), 2 * count(&single));
    assert_eq!(before, after, "read from the indexes");
}

#[test]
fn a_count_comes_from_the_index_and_decompresses_nothing() {
    let fixture = demo();
    let before = fixture
        .recording
        .read_stats()
        .expect("counts")
        .decompressed_bytes;
    let found = fixture.rows(r#"SELECT count(*) FROM "/imu""#);
    let after = fixture
        .recording
        .read_stats()
        .expect("counts")
        .decompressed_bytes;
    let summary = fixture.recording.summary();
    let imu = summary
        .channels
        .iter()
        .find(|entry| entry.channel.topic == "/imu");
    assert_eq!(
        count(&found) as u64,
        imu.expect("there").messages.expect("counted")
    );
    assert_eq!(before, after, "bytes were decompressed for a count");
}

#[test]
fn a_nested_field_is_reached_by_dots_and_only_it_is_decoded() {
    let fixture = demo();
    let sql = r#"SELECT avg(twist.twist.linear.x), count(twist.twist.linear.x) FROM "/odom""#;
    let found = fixture.rows(sql);
    let wanted = fixture.column("/odom", "/twist/twist/linear/x");
    let mean = wanted.iter().map(|(_, _, x)| x).sum::<f64>() / wanted.len() as f64;
    let average = floats(found.column(0))[0].expect("a number");
    assert!((average - mean).abs() < 1e-12, "{average} {mean}");
    assert_eq!(
        count(&found.project(&[1]).expect("one")),
        wanted.len() as i64
    );
    let plan = text(&fixture.rows(&format!("EXPLAIN {sql}")));
    assert!(plan.contains("decoded [twist.twist.linear.x]"), "{plan}");
}

#[test]
fn rows_come_in_order_with_times_and_the_recording() {
    let fixture = demo();
    let sql = "SELECT recording, log_time, publish_time, stamp, sequence, pose.pose.position.x AS x FROM odom ORDER BY log_time";
    let found = fixture.rows(sql);
    let wanted = fixture.column("/odom", "/pose/pose/position/x");
    assert_eq!(found.num_rows(), wanted.len());
    let (logged, stamps, xs) = (
        times(found.column(1)),
        times(found.column(3)),
        floats(found.column(5)),
    );
    for (row, (log_time, stamp, x)) in wanted.iter().enumerate() {
        assert_eq!(
            (logged[row], stamps[row], xs[row]),
            (Some(*log_time), Some(*stamp), Some(*x))
        );
    }
    let utc = DataType::Timestamp(
        asof_sql::arrow::datatypes::TimeUnit::Nanosecond,
        Some("UTC".into()),
    );
    assert_eq!(found.schema().field(1).data_type(), &utc);
    let plan = text(&fixture.rows(&format!("EXPLAIN {sql}")));
    assert!(
        !plan.contains("SortExec"),
        "what is in order is sorted again: {plan}"
    );
}

#[test]
fn times_are_pushed_down_in_every_form_they_are_written_in() {
    let fixture = demo();
    let wanted = fixture.column("/odom", "/pose/pose/position/x");
    let start = fixture.recording.summary().range.start;
    let (from, to) = (
        start + Duration::from_millis(1500),
        start + Duration::from_secs(3),
    );
    let expected = wanted
        .iter()
        .filter(|(at, _, _)| (from.nanos()..=to.nanos()).contains(at))
        .count() as i64;
    for (from, to) in [
        ("+1.5s".to_owned(), "+3s".to_owned()),
        (from.to_string(), to.to_string()),
        (from.as_nanos_text(), to.as_nanos_text()),
    ] {
        let sql = format!(
            r#"SELECT count(*) FROM "/odom" WHERE log_time >= '{from}' AND log_time <= '{to}'"#
        );
        assert_eq!(count(&fixture.rows(&sql)), expected, "{sql}");
        let plan = text(&fixture.rows(&format!("EXPLAIN {sql}")));
        assert!(plan.contains("log_time from"), "{plan}");
        assert!(!plan.contains("FilterExec"), "{plan}");
    }
    let sql = r#"SELECT count(*) FROM "/odom" WHERE log_time BETWEEN '+1.5s' AND '+3s'"#;
    assert_eq!(count(&fixture.rows(sql)), expected);
}

/// What each row of the left side should be joined with, by looking at all of them.
fn brute_force(
    left: &[(i64, i64, f64)],
    right: &[(i64, i64, f64)],
    tolerance: Option<i64>,
    is_allowed: impl Fn(i64, i64) -> bool,
) -> Vec<Option<f64>> {
    let best = |stamp: i64| {
        let candidates = right.iter().filter(|(_, at, _)| is_allowed(stamp, *at));
        let near = candidates
            .filter(|(_, at, _)| tolerance.is_none_or(|tolerance| (stamp - at).abs() <= tolerance));
        // The nearest; of two that are as near, the earlier.
        near.min_by_key(|(_, at, _)| ((stamp - at).abs(), *at))
            .map(|(_, _, x)| *x)
    };
    left.iter().map(|(_, stamp, _)| best(*stamp)).collect()
}

/// A condition, its tolerance, and which pairs of times it allows.
type Case = (&'static str, Option<i64>, fn(i64, i64) -> bool);

#[test]
fn as_of_joins_are_what_a_look_at_all_messages_gives() {
    let fixture = demo();
    let scans = fixture.column("/scan", "/range_max");
    let odometry = fixture.column("/odom", "/pose/pose/position/x");
    let run = |condition: &str| {
        let sql = format!(
            r#"SELECT s.stamp, o.pose.pose.position.x AS x FROM "/scan" s ASOF JOIN "/odom" o MATCH_CONDITION ({condition}) ORDER BY s.stamp"#
        );
        let found = fixture.rows(&sql);
        assert_eq!(
            found.num_rows(),
            scans.len(),
            "every row of the left side stays: {condition}"
        );
        floats(found.column(1))
    };
    let cases: [Case; 8] = [
        ("s.stamp >= o.stamp", None, |a, b| a >= b),
        ("s.stamp > o.stamp", None, |a, b| a > b),
        ("s.stamp <= o.stamp", None, |a, b| a <= b),
        ("s.stamp < o.stamp", None, |a, b| a < b),
        ("o.stamp <= s.stamp", None, |a, b| a >= b),
        (
            "s.stamp >= o.stamp AND s.stamp - o.stamp <= INTERVAL '5 ms'",
            Some(5_000_000),
            |a, b| a >= b,
        ),
        ("nearest(s.stamp, o.stamp)", None, |_, _| true),
        (
            "nearest(s.stamp, o.stamp, INTERVAL '4 ms')",
            Some(4_000_000),
            |_, _| true,
        ),
    ];
    for (condition, tolerance, is_allowed) in cases {
        let wanted = brute_force(&scans, &odometry, tolerance, is_allowed);
        assert_eq!(run(condition), wanted, "{condition}");
    }
}

#[test]
fn several_as_of_joins_stand_in_a_row() {
    let fixture = demo();
    let found = fixture.rows(
        r#"SELECT s.stamp, o.pose.pose.position.x, i.angular_velocity.z FROM "/scan" s
           ASOF JOIN "/odom" o MATCH_CONDITION (s.stamp >= o.stamp)
           ASOF JOIN "/imu" i MATCH_CONDITION (nearest(s.stamp, i.stamp, '50ms'))
           ORDER BY s.stamp"#,
    );
    let scans = fixture.column("/scan", "/range_max");
    let odometry = fixture.column("/odom", "/pose/pose/position/x");
    let imu = fixture.column("/imu", "/angular_velocity/z");
    let back = |a: i64, b: i64| a >= b;
    assert_eq!(
        floats(found.column(1)),
        brute_force(&scans, &odometry, None, back)
    );
    let near = brute_force(&scans, &imu, Some(50_000_000), |_, _| true);
    assert_eq!(floats(found.column(2)), near);
}

#[test]
fn an_as_of_join_does_not_cross_recordings() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recordings: Vec<(String, Arc<dyn Source>)> = Vec::new();
    for (name, seed) in [("one", 1), ("two", 2)] {
        let path = folder.path().join(name);
        write_demo(&path, seed, 3);
        recordings.push((
            name.to_owned(),
            Arc::from(asof_formats::open(&path).expect("opens")),
        ));
    }
    let database = Database::new(recordings, SqlOptions::default()).expect("a database");
    let found = rows(
        &database,
        r#"SELECT count(*), count(o.recording), count(*) FILTER (WHERE s.recording <> o.recording)
           FROM "/scan" s ASOF JOIN "/odom" o MATCH_CONDITION (s.log_time >= o.log_time)"#,
    );
    let number = |at: usize| found.column(at).as_primitive::<Int64Type>().value(0);
    assert!(number(1) > 40, "{found:?}");
    assert_eq!(number(2), 0, "rows of another recording");
    let crossing = rows(
        &database,
        r#"SELECT count(*) FROM "/scan" s
           ASOF JOIN (SELECT log_time, recording AS other FROM "/odom") o MATCH_CONDITION (s.log_time >= o.log_time)
           WHERE s.recording <> o.other"#,
    );
    assert!(count(&crossing) > 0, "asked for, it crosses");
    let counts = rows(
        &database,
        "SELECT recording, count(*) FROM odom GROUP BY 1 ORDER BY 1",
    );
    assert_eq!(counts.num_rows(), 2);
}

#[test]
fn topics_are_united_and_nested_columns_keep_their_names() {
    let fixture = demo();
    let found = fixture.rows(
        r#"SELECT topic, count(*) AS n FROM (SELECT 'imu' AS topic, log_time FROM "/imu" UNION ALL SELECT 'odom', log_time FROM "/odom") u GROUP BY topic ORDER BY topic"#,
    );
    assert_eq!(found.num_rows(), 2);
    let found = fixture.rows("SELECT o.pose.pose.position.x, o.stamp FROM odom o LIMIT 1");
    let schema = found.schema();
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["o.pose.pose.position.x", "stamp"]);
    let grouped = fixture.rows(
        "SELECT header.frame_id, child_frame_id, count(*) FROM odom GROUP BY header.frame_id, child_frame_id ORDER BY header.frame_id",
    );
    assert_eq!(grouped.num_rows(), 1);
}

#[test]
fn points_and_poses_are_taken_into_other_frames() {
    let fixture = demo();
    let found = fixture.rows(
        r#"SELECT p['x'] AS x, q['position']['x'] AS qx, t['translation']['x'] AS tx FROM (
             SELECT transform_point('map', 'base_link', stamp, named_struct('x', 0, 'y', 0, 'z', 0)) AS p,
                    transform_pose('map', 'base_link', stamp, named_struct(
                      'position', named_struct('x', 0.0, 'y', 0.0, 'z', 0.0),
                      'orientation', named_struct('x', 0.0, 'y', 0.0, 'z', 0.0, 'w', 1.0))) AS q,
                    tf('map', 'base_link', stamp) AS t FROM "/scan")"#,
    );
    let (points, poses, origins) = (
        floats(found.column(0)),
        floats(found.column(1)),
        floats(found.column(2)),
    );
    assert!(origins.iter().flatten().count() > 30);
    // The origin of a frame is where the frame is.
    assert_eq!(points, origins);
    assert_eq!(poses, origins);
    let error = fixture
        .database
        .collect("SELECT transform_point('map', 'base_link', stamp, 1) FROM scan");
    let error = error.expect_err("not a point").to_string();
    assert!(error.contains("a point is a struct of x, y, z"), "{error}");
}

#[test]
fn what_messages_mean_are_tables_too() {
    let fixture = demo();
    let transforms = fixture.rows(
        "SELECT topic, parent_frame, child_frame, translation FROM transforms WHERE topic = '/tf'",
    );
    let messages = fixture.column_count("/tf");
    assert!(
        transforms.num_rows() >= messages,
        "a row for each transform"
    );
    let logs = fixture.rows("SELECT level, message FROM logs");
    assert_eq!(logs.num_rows(), fixture.column_count("/rosout"));
    let statuses = fixture.rows("SELECT log_time, level, name, message FROM diagnostics");
    assert!(statuses.num_rows() >= fixture.column_count("/diagnostics"));
    // The topic keeps its own name.
    let own = fixture.rows(r#"SELECT count(*) FROM "/diagnostics""#);
    assert_eq!(count(&own) as usize, fixture.column_count("/diagnostics"));
}

#[test]
fn what_was_known_at_a_time() {
    let fixture = demo();
    let at = fixture.recording.summary().range.start + Duration::from_secs(2);
    let known = fixture
        .recording
        .latest_at(&Topics::All, at)
        .expect("reads");
    let all = fixture.rows("SELECT topic, log_time, age, data FROM at('+2s')");
    assert_eq!(all.num_rows(), known.len());
    let one = fixture
        .rows(r#"SELECT log_time, pose.pose.position.x FROM "/odom" FOR SYSTEM_TIME AS OF '+2s'"#);
    let wanted = fixture
        .recording
        .latest_at(&Topics::named(["/odom"]), at)
        .expect("reads");
    let wanted = wanted.get(0).expect("known").log_time.nanos();
    assert_eq!(times(one.column(0)), [Some(wanted)]);
    let none =
        fixture.rows(r#"SELECT * FROM "/odom" FOR SYSTEM_TIME AS OF '1970-01-01T00:00:00Z'"#);
    assert_eq!(none.num_rows(), 0);
}

#[test]
fn transforms_are_functions_of_the_same_recording() {
    let fixture = demo();
    let found = fixture.rows(
        r#"SELECT stamp, t['translation']['x'] AS x, e FROM
           (SELECT stamp, tf('map', 'base_link', stamp) AS t, tf_error('map', 'base_link', stamp) AS e FROM "/scan") ORDER BY stamp"#,
    );
    let buffer = asof_tf::TransformBuffer::from_source(&*fixture.recording)
        .expect("reads")
        .buffer;
    let (stamps, xs) = (times(found.column(0)), floats(found.column(1)));
    let mut known = 0;
    for (stamp, x) in stamps.iter().zip(&xs) {
        let at = Stamp::from_nanos(stamp.expect("a stamp"));
        let wanted = buffer.lookup("map", "base_link", at);
        assert_eq!(x.is_some(), wanted.is_ok());
        if let (Some(x), Ok(wanted)) = (x, &wanted) {
            assert!((x - wanted.translation.x).abs() < 1e-12, "{x} {wanted}");
        }
        known += u32::from(wanted.is_ok());
    }
    assert!(known > 30, "{known} of {}", xs.len());
    let why = fixture.rows("SELECT tf_error('map', 'nowhere', log_time) AS e FROM odom LIMIT 1");
    assert!(text(&why).contains("nowhere"), "{}", text(&why));
}

#[test]
fn recordings_and_topics_are_tables_too() {
    let fixture = demo();
    let summary = fixture.recording.summary();
    let topics = fixture.rows("SELECT topic, messages FROM topics ORDER BY topic");
    assert_eq!(topics.num_rows(), summary.channels.len());
    let messages: u64 = topics
        .column(1)
        .as_primitive::<UInt64Type>()
        .iter()
        .flatten()
        .sum();
    assert_eq!(Some(messages), summary.messages);
    assert_eq!(fixture.rows("SELECT * FROM recordings").num_rows(), 1);
    assert_eq!(fixture.rows("SELECT * FROM problems").num_rows(), 0);
    for table in ["metadata", "attachments"] {
        assert_eq!(
            count(&fixture.rows(&format!("SELECT count(*) FROM {table}"))),
            0
        );
    }
    let tables = text(&fixture.rows("SHOW TABLES"));
    assert!(
        tables.contains("/camera/image") && tables.contains("camera_image"),
        "{tables}"
    );
    let columns = text(&fixture.rows(r#"DESCRIBE "/odom""#));
    assert!(
        columns.contains("pose") && columns.contains("Struct"),
        "{columns}"
    );
}

#[test]
fn a_mistake_is_told_with_the_nearest_name() {
    let fixture = demo();
    let error = |sql: &str| fixture.database.collect(sql).expect_err(sql).to_string();
    assert!(error(r#"SELECT * FROM "/odmo""#).contains(r#"did you mean "/odom"?"#));
    let column = error("SELECT log_tme FROM odom");
    assert!(column.contains("log_time"), "{column}");
    assert!(
        error("SELECT FROM WHERE").contains("Expected"),
        "{}",
        error("SELECT FROM WHERE")
    );
    let condition =
        error("SELECT 1 FROM odom a ASOF JOIN imu b MATCH_CONDITION (a.stamp = b.stamp)");
    assert!(condition.contains(">="), "{condition}");
    let time = error("SELECT count(*) FROM odom WHERE log_time > '+abc'");
    assert!(time.contains("'+abc' is not a time"), "{time}");
    let negative = "SELECT 1 FROM odom a ASOF JOIN imu b \
        MATCH_CONDITION (a.stamp >= b.stamp AND a.stamp - b.stamp <= INTERVAL '-20 ms')";
    assert!(error(negative).contains("cannot be negative"));
    assert!(error("SELECT 1; SELECT 2").contains("one query at a time"));
}

#[test]
fn queries_read_and_nothing_else() {
    let fixture = demo();
    for sql in [
        "CREATE TABLE t AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "COPY (SELECT 1) TO 'out.csv'",
        "INSERT INTO odom SELECT * FROM odom",
        "DROP TABLE odom",
        "SET datafusion.execution.batch_size = 1",
    ] {
        let error = fixture.database.collect(sql).expect_err(sql);
        assert!(matches!(error, SqlError::NotReading(_)), "{sql}: {error}");
    }
    let error = fixture.database.collect("SELECT * FROM '/etc/passwd'");
    assert!(error.is_err(), "a file that was not named was opened");
}

#[test]
fn memory_is_bounded_and_said_when_it_is_spent() {
    let fixture = demo();
    let named = vec![("demo".to_owned(), Arc::clone(&fixture.recording))];
    let options = SqlOptions {
        memory: 100_000,
        threads: 2,
        ..SqlOptions::default()
    };
    let database = Database::new(named, options).expect("a database");
    let sql =
        "SELECT count(*) FROM (SELECT DISTINCT a.log_time, b.log_time AS other FROM scan a, imu b)";
    let error = database.collect(sql).expect_err("too much");
    assert!(matches!(error, SqlError::Memory(_)), "{error}");
}
